package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/callgate/callgate/specs"
)

// Options says how to import.
type Options struct {
	// Source names the Source document, and is the first part of every tool's name. Empty: the name the file gives, or Fallback.
	Source specs.SourceName
	// Fallback is used where the file names no server, "imported" by default.
	Fallback string
	// SkipInvalid leaves out what cannot be imported; Imported.Skipped says what. Without it the import fails.
	SkipInvalid bool
}

// Imported is what an import makes.
type Imported struct {
	Sources []Source
	Skipped []Problem
	Notes   []string // for the person who imports: what was guessed
}

// Source is one server's documents.
type Source struct {
	Name   specs.SourceName
	Server string // the server's own name, if the file gives it
	Tools  []Tool
}

// Tool is one imported tool.
type Tool struct {
	Name        specs.ToolName // in the bundle
	Definition  Definition
	Annotations specs.Annotations
}

// Import reads tool lists. The error is an *ImportError with all problems of the file.
func Import(data []byte, opts Options) (*Imported, error) {
	r, err := read(data)
	if err != nil {
		return nil, err
	}
	got := &Imported{Notes: r.notes}
	if opts.Source != "" && len(r.servers) > 1 {
		return nil, problem("the file holds the tools of %d servers, so one source name cannot stand for all", len(r.servers))
	}
	for _, server := range r.servers {
		name := opts.Source
		if name == "" {
			name = sourceName(orElse(server.Name, orElse(opts.Fallback, "imported")))
		}
		src := Source{Name: name, Server: server.Name}
		if slices.ContainsFunc(got.Sources, func(s Source) bool { return s.Name == name }) {
			r.fail("", "", "two servers of this file would both be the source %q", name)
			continue
		}
		for _, d := range server.Tools {
			if t, ok := r.tool(name, d); ok {
				src.Tools = append(src.Tools, t)
			}
		}
		slices.SortFunc(src.Tools, func(a, b Tool) int { return strings.Compare(string(a.Name), string(b.Name)) })
		got.Sources = append(got.Sources, src)
	}
	if len(r.problems) > 0 && !opts.SkipInvalid {
		return nil, &ImportError{Problems: r.problems}
	}
	got.Skipped = r.problems
	return got, nil
}

func (r *reader) tool(source specs.SourceName, d Definition) (Tool, bool) {
	t := Tool{Name: specs.ImportedName(source, d.Name), Definition: d, Annotations: annotations(d.Hints)}
	if len(t.Name) > 128 {
		r.fail(d.Name, "/name", "as %s it has %d characters; a tool's name has at most 128", t.Name, len(t.Name))
		return t, false
	}
	if pointer, err := fitsYAML(d.InputSchema, "/inputSchema"); err != nil {
		r.fail(d.Name, pointer, "%v", err)
		return t, false
	}
	if pointer, err := fitsYAML(d.OutputSchema, "/outputSchema"); err != nil {
		r.fail(d.Name, pointer, "%v", err)
		return t, false
	}
	return t, true
}

// annotations reads hints the careful way: what the server does not say is the dangerous reading. Destructive means something
// only for a tool that changes things.
func annotations(h Hints) specs.Annotations {
	readOnly := h.ReadOnly != nil && *h.ReadOnly && (h.Destructive == nil || !*h.Destructive) // of a contradiction, the worse half
	a := specs.Annotations{
		SideEffect:  specs.SideNetwork,
		ReadOnly:    readOnly,
		Destructive: !readOnly,
		Idempotent:  h.Idempotent != nil && *h.Idempotent,
		OpenWorld:   h.OpenWorld == nil || *h.OpenWorld,
		Reversible:  specs.ReversibleNone,
	}
	if readOnly {
		a.SideEffect = specs.SideNone
	}
	if h.Destructive != nil {
		a.Destructive = *h.Destructive
	}
	return a
}

var notName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// sourceName makes a document name of whatever a server calls itself.
func sourceName(s string) specs.SourceName {
	s = strings.ToLower(strings.Trim(notName.ReplaceAllString(s, "-"), "-"))
	if len(s) > 40 {
		s = strings.Trim(s[:40], "-")
	}
	return specs.SourceName(orElse(s, "imported"))
}

// File is one file of the import.
type File struct {
	Name string
	Data []byte
}

// Files gives one YAML file per source, ready to be put into a bundle's folder.
func (m *Imported) Files() []File {
	var out []File
	for _, s := range m.Sources {
		out = append(out, File{Name: "source-" + string(s.Name) + ".yaml", Data: s.YAML()})
	}
	return out
}

// YAML is all files in one.
func (m *Imported) YAML() []byte {
	var b bytes.Buffer
	for i, s := range m.Sources {
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(s.YAML())
	}
	return b.Bytes()
}

// YAML is the source's documents: the Source first, then its tools by name.
func (s Source) YAML() []byte {
	var b bytes.Buffer
	from := ""
	if s.Server != "" {
		from = fmt.Sprintf(" of the MCP server %q", s.Server)
	}
	count := fmt.Sprintf("%d tools", len(s.Tools))
	if len(s.Tools) == 1 {
		count = "1 tool"
	}
	fmt.Fprintf(&b, `# %s%s. Importing allows nothing. Before an agent can use one,
#   1. name it under capabilities here, which accepts the definition pinned below; a definition that changes is not accepted;
#   2. grant it in a profile (tools.allow);
#   3. decide in a policy what needs a person. Hints count as the server gave them only when trust is trusted.
`, count, comment(from))
	pins := &yaml.Node{Kind: yaml.MappingNode}
	for _, t := range s.Tools {
		pins.Content = append(pins.Content, str(string(t.Name)), str(string(t.Definition.Digest)))
	}
	if len(s.Tools) == 0 {
		pins.Style = yaml.FlowStyle
	}
	none := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	writeDocument(&b, specs.KindSource, string(s.Name), mapping(
		"type", str(string(specs.SourceMCP)), "trust", str(string(specs.Untrusted)), "capabilities", none, "pins", pins))
	for _, t := range s.Tools {
		b.WriteString("---\n")
		writeDocument(&b, specs.KindTool, string(t.Name), t.spec(s.Name))
	}
	return b.Bytes()
}

// comment keeps text of a foreign server on its comment line.
func comment(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}

func (t Tool) spec(source specs.SourceName) *yaml.Node {
	d, a := t.Definition, t.Annotations
	n := mapping()
	if d.Title != "" {
		add(n, "title", str(d.Title))
	}
	add(n, "description", str(orElse(d.Description, d.Name)))
	src := mapping("kind", str(string(specs.SourceMCP)), "name", str(string(source)), "tool", str(d.Name), "digest", str(string(t.Definition.Digest)))
	add(n, "source", src)
	notes := mapping("sideEffect", str(string(a.SideEffect)), "readOnly", boolean(a.ReadOnly), "destructive", boolean(a.Destructive),
		"idempotent", boolean(a.Idempotent), "openWorld", boolean(a.OpenWorld), "reversible", str(string(a.Reversible)))
	notes.Style = yaml.FlowStyle
	add(n, "annotations", notes)
	add(n, "inputSchema", fromJSON(d.InputSchema))
	if len(d.OutputSchema) > 0 {
		add(n, "outputSchema", fromJSON(d.OutputSchema))
	}
	return n
}

func writeDocument(b *bytes.Buffer, kind specs.Kind, name string, spec *yaml.Node) {
	meta := mapping("name", str(name))
	meta.Style = yaml.FlowStyle
	doc := mapping("apiVersion", str(specs.APIVersion), "kind", str(string(kind)), "metadata", meta, "spec", spec)
	enc := yaml.NewEncoder(b)
	enc.SetIndent(2)
	// Nodes made of texts, numbers and booleans always encode; the loader checks the whole afterwards all the same.
	_ = enc.Encode(doc)
	_ = enc.Close()
}

func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(pairs); i += 2 {
		add(n, pairs[i].(string), pairs[i+1].(*yaml.Node))
	}
	return n
}

func add(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, str(key), value)
}

// str writes a text so that every reader takes it for one: what a YAML 1.1 reader would take for a boolean, a number or null
// is quoted, and so is what holds control characters.
func str(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	if n.Style == yaml.LiteralStyle && !literalSafe(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	if n.Style == 0 && !plainSafe(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

var plainText = regexp.MustCompile(`^[A-Za-z_$/][A-Za-z0-9_$/.,:;()<>+=*'" -]*[A-Za-z0-9_.)/]$|^[A-Za-z_$]$`)

// plainSafe is narrower than YAML: whoever reads the file should not have to know YAML's rules.
func plainSafe(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "no", "on", "off", "y", "n", "true", "false", "null", "~", "nan", ".inf", ".nan":
		return false
	}
	return plainText.MatchString(s) && !strings.Contains(s, " #") && !strings.Contains(s, ": ")
}

func literalSafe(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffd)
	}) && !strings.HasPrefix(s, " ") && !strings.HasPrefix(s, "\n") && !strings.Contains(s, " \n") && !strings.Contains(s, "\t")
}

func boolean(v bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}
}

// fromJSON keeps the order of keys and the digits of numbers.
func fromJSON(raw json.RawMessage) *yaml.Node {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return nodeOf(dec)
}

func nodeOf(dec *json.Decoder) *yaml.Node {
	tok, err := dec.Token()
	if err != nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
	switch v := tok.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		short := true
		for dec.More() {
			if v == '{' {
				key, _ := dec.Token()
				name, _ := key.(string)
				n.Content = append(n.Content, str(name))
			}
			child := nodeOf(dec)
			short = short && child.Kind == yaml.ScalarNode && child.Style != yaml.LiteralStyle
			n.Content = append(n.Content, child)
		}
		_, _ = dec.Token() // the closing one
		if short && (len(n.Content) == 0 || v == '[' && width(n) < 80 || v == '{' && width(n) < 60) {
			n.Style = yaml.FlowStyle
			for _, c := range n.Content {
				if c.Style == 0 && c.Tag == "!!str" && strings.ContainsAny(c.Value, ",[]{}") {
					c.Style = yaml.DoubleQuotedStyle
				}
			}
		}
		return n
	case string:
		return str(v)
	case bool:
		return boolean(v)
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(string(v), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: string(v)}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
}

func width(n *yaml.Node) int {
	w := 0
	for _, c := range n.Content {
		w += len(c.Value) + 4
	}
	return w
}

// fitsYAML finds what our documents do not hold: integers beyond 64 bits.
func fitsYAML(raw json.RawMessage, at string) (pointer string, err error) {
	if len(raw) == 0 {
		return "", nil
	}
	switch first(raw) {
	case '{':
		o := objectOf(raw)
		for _, k := range sortedKeys(o) {
			if p, err := fitsYAML(o[k], at+"/"+escapePointer(k)); err != nil {
				return p, err
			}
		}
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return at, err
		}
		for i, item := range items {
			if p, err := fitsYAML(item, fmt.Sprintf("%s/%d", at, i)); err != nil {
				return p, err
			}
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if s := string(bytes.TrimSpace(raw)); !strings.ContainsAny(s, ".eE") {
			var n int64
			if json.Unmarshal(raw, &n) != nil {
				return at, fmt.Errorf("%s does not fit in 64 bits", s)
			}
		}
	}
	return "", nil
}
