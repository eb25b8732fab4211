package scripted

import (
	"encoding/json"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/callgate/callgate/specs"
)

// script is a file as it was understood.
type script struct {
	name  string
	turns []turn
}

// turn is one entry of the list.
type turn struct {
	pos    specs.Pos
	when   *like
	expect *expectation
	sleep  time.Duration
	fail   string
	text   string
	calls  []planned
	speaks bool // it makes a reply; a turn that only sleeps or fails does not
}

// planned is a call the script makes.
type planned struct {
	id    *string // nil: made from turn and place
	tool  string
	bytes json.RawMessage
}

// like is what a result must be like.
type like struct {
	pos      specs.Pos
	tool     specs.ToolName // "" any
	errorIs  *string        // nil any, "" no error
	contains string
}

type expectation struct {
	tools, not []named
	results    []like
}

type named struct {
	pos  specs.Pos
	name specs.ToolName
}

// readScript reads a file, reporting every mistake at once.
func readScript(name string, data []byte) (*script, error) {
	p := &parser{YAMLFile: specs.ReadYAML(name, data)}
	s := &script{name: name}
	for i, root := range p.Roots {
		if i > 0 {
			p.Report(root, "second-document", "a script is one document", "put all turns into one list")
			break
		}
		p.object(root, map[string]func(*yaml.Node){"turns": func(n *yaml.Node) {
			for _, item := range p.list(n) {
				s.turns = append(s.turns, p.turn(item))
			}
		}}, "turns")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// parser walks the nodes. Its methods report what is wrong and give zero values for it.
type parser struct{ *specs.YAMLFile }

// object visits the keys of a mapping. Required keys must be there.
func (p *parser) object(n *yaml.Node, keys map[string]func(*yaml.Node), required ...string) map[string]*yaml.Node {
	present := map[string]*yaml.Node{}
	if n.Kind != yaml.MappingNode {
		p.Expect(n, "a mapping", "")
		return present
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		visit, known := keys[key.Value]
		switch {
		case p.Bad(key):
		case !known:
			p.ReportKey(key, sortedKeys(keys))
		default:
			present[key.Value] = key
			visit(value)
		}
	}
	for _, r := range required {
		if present[r] == nil && !p.Bad(n) {
			p.Report(n, "missing-key", `the key "`+r+`" is missing`, "")
		}
	}
	return present
}

func (p *parser) list(n *yaml.Node) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		p.Expect(n, "a list", "put it in brackets")
		return nil
	}
	return n.Content
}

func (p *parser) text(into *string) func(*yaml.Node) {
	return func(n *yaml.Node) { *into, _ = p.Text(n) }
}

func (p *parser) turn(n *yaml.Node) turn {
	t := turn{pos: p.Pos(n)}
	var drift string
	has := p.object(n, map[string]func(*yaml.Node){
		"when": func(n *yaml.Node) {
			l := p.like(n)
			t.when = &l
		},
		"expect": func(n *yaml.Node) { t.expect = p.expectation(n) },
		"sleep": func(n *yaml.Node) {
			text, ok := p.Text(n)
			if !ok {
				return
			}
			d, err := specs.ParseDuration(text)
			if err != nil || d < 0 || d > time.Hour {
				p.Report(n, "bad-duration", "this is not a duration up to 1h", "write a number and a unit: 50ms, 2s")
			}
			t.sleep = d
		},
		"say":   p.text(&t.text),
		"drift": p.text(&drift),
		"fail":  p.text(&t.fail),
		"calls": func(n *yaml.Node) {
			for _, c := range p.list(n) {
				t.calls = append(t.calls, p.call(c))
			}
		},
	})
	conflict := func(a, b string) {
		if has[a] != nil && has[b] != nil {
			p.Report(has[b], "conflicting-keys", `"`+a+`" and "`+b+`" cannot stand in one turn`, "make two turns of it")
		}
	}
	for _, pair := range [][2]string{{"drift", "say"}, {"drift", "calls"}, {"fail", "say"}, {"fail", "calls"}, {"fail", "drift"}} {
		conflict(pair[0], pair[1])
	}
	if has["drift"] != nil {
		t.text = drift
	}
	if has["fail"] != nil && t.fail == "" {
		t.fail = "the script says so"
	}
	t.speaks = has["say"] != nil || has["drift"] != nil || has["calls"] != nil
	if understood := len(has) == len(n.Content)/2; understood && !t.speaks && has["fail"] == nil && has["sleep"] == nil && !p.Bad(n) {
		p.Report(n, "empty-turn", "this turn does nothing", "give it one of say, calls, drift, fail, sleep")
	}
	return t
}

func (p *parser) call(n *yaml.Node) planned {
	c := planned{bytes: json.RawMessage(`{}`)}
	has := p.object(n, map[string]func(*yaml.Node){
		"id": func(n *yaml.Node) {
			if id, ok := p.Text(n); ok {
				c.id = &id
			}
		},
		"tool": p.text(&c.tool),
		"args": func(n *yaml.Node) {
			if n.Kind != yaml.MappingNode {
				p.Expect(n, "a mapping", "arguments that are no object are written with raw")
				return
			}
			c.bytes, _ = p.JSON(n)
		},
		"raw": func(n *yaml.Node) {
			text, _ := p.Text(n)
			c.bytes = json.RawMessage(text)
		},
	}, "tool")
	if has["args"] != nil && has["raw"] != nil {
		p.Report(has["raw"], "conflicting-keys", `"args" and "raw" cannot stand in one call`, "keep one of them")
	}
	return c
}

func (p *parser) like(n *yaml.Node) like {
	l := like{pos: p.Pos(n)}
	var tool string
	has := p.object(n, map[string]func(*yaml.Node){
		"tool": p.text(&tool),
		"error": func(n *yaml.Node) {
			if code, ok := p.Text(n); ok {
				if code == "none" {
					code = ""
				}
				l.errorIs = &code
			}
		},
		"contains": p.text(&l.contains),
	})
	if len(has) == 0 && !p.Bad(n) {
		p.Report(n, "empty-condition", "this holds for any result", "name a tool, an error or a text it contains")
	}
	l.tool = specs.ToolName(tool)
	return l
}

func (p *parser) expectation(n *yaml.Node) *expectation {
	e := &expectation{}
	names := func(into *[]named) func(*yaml.Node) {
		return func(n *yaml.Node) {
			for _, item := range p.list(n) {
				if name, ok := p.Text(item); ok {
					*into = append(*into, named{p.Pos(item), specs.ToolName(name)})
				}
			}
		}
	}
	p.object(n, map[string]func(*yaml.Node){
		"tools": names(&e.tools),
		"not":   names(&e.not),
		"results": func(n *yaml.Node) {
			for _, item := range p.list(n) {
				e.results = append(e.results, p.like(item))
			}
		},
	})
	return e
}
