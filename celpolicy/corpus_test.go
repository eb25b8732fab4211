package celpolicy

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
)

// corpus finds the folder of real-world files, or skips.
func corpus(t *testing.T) fs.FS {
	t.Helper()
	dir := os.Getenv("CALLGATE_CORPUS")
	if dir == "" {
		root, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for !exists(filepath.Join(root, "go.mod")) && filepath.Dir(root) != root {
			root = filepath.Dir(root)
		}
		dir = filepath.Join(root, "..", "shared", "corpus")
	}
	if !exists(dir) {
		t.Skip("the corpus of real-world files is not here (set CALLGATE_CORPUS)")
	}
	return os.DirFS(dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestRealToolsCanBeWrittenAbout: for every argument of every tool of every real tools/list, the obvious condition
// loads, and decides over arguments that have it and over arguments that have not.
func TestRealToolsCanBeWrittenAbout(t *testing.T) {
	t.Parallel()
	b := &specs.Bundle{}
	values := map[specs.ToolName]json.RawMessage{}
	err := fs.WalkDir(corpus(t), "1-mcp-tools", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		raw, err := fs.ReadFile(corpus(t), path)
		if err != nil {
			return err
		}
		for _, tool := range toolsIn(raw) {
			name := fmt.Sprintf("f%d.t%d", len(b.Tools), len(b.Tools))
			b.Tools = append(b.Tools, &specs.Tool{Meta: specs.Meta{Name: name}, InputSchema: specs.Schema{Raw: tool}})
			var schema struct {
				Properties map[string]any `json:"properties"`
				Required   []string       `json:"required"`
			}
			_ = json.Unmarshal(tool, &schema)
			args := map[string]any{}
			pol := &specs.Policy{Meta: specs.Meta{Name: "about-" + name}, Layer: specs.LayerProfile}
			for prop := range schema.Properties {
				args[prop] = "x"
				path, has := "args."+prop, "has(args."+prop+")"
				if !isIdentifier(prop) {
					path, has = fmt.Sprintf("args[%q]", prop), fmt.Sprintf("%q in args", prop)
				}
				pol.Rules = append(pol.Rules, specs.Rule{Name: prop, Tools: texts1(name), Effect: specs.EffectDeny,
					When: specs.TextOf(has + ` && dyn(` + path + `) == "x"`)})
			}
			b.Policies = append(b.Policies, pol)
			if values[specs.ToolName(name)], err = json.Marshal(args); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Tools) < 100 {
		t.Fatalf("only %d tools in the corpus", len(b.Tools))
	}
	p, err := Compile(b)
	if err != nil {
		ds, _ := specs.AsDiagnostics(err)
		t.Fatalf("%d findings, first: %v", len(ds), ds[0])
	}
	rules := 0
	for _, tool := range b.Tools {
		d := p.Resolve(Input{Phase: PhaseCall, Tool: tool.ToolName(), Args: values[tool.ToolName()], Trace: true})
		empty := p.Resolve(Input{Phase: PhaseCall, Tool: tool.ToolName(), Args: json.RawMessage(`{}`), Trace: true})
		for i, v := range d.Trace {
			rules++
			if v.Outcome != Matched || empty.Trace[i].Outcome != Unmatched {
				t.Errorf("%s: with it %s (%s), without %s (%s)", v.Rule, v.Outcome, v.Error, empty.Trace[i].Outcome, empty.Trace[i].Error)
			}
		}
	}
	t.Logf("%d tools, %d arguments", len(b.Tools), rules)
}

// TestRealToolsAreTyped: the arguments of real tools have a type at load, or a reason why they have none.
func TestRealToolsAreTyped(t *testing.T) {
	t.Parallel()
	tools, typed := 0, 0
	reasons := map[string]int{}
	untyped := func(s *shape) bool {
		if s.kind != shapeDyn {
			return false
		}
		if s.why == "" {
			t.Error("an argument has no type and no reason")
		}
		why := s.why
		if strings.HasPrefix(why, "$ref ") {
			why = "$ref ..." + why[strings.LastIndex(why, " is "):]
		}
		reasons[why]++
		return true
	}
	var count func(s *shape)
	count = func(s *shape) {
		switch {
		case untyped(s), s.kind == shapeMap && untyped(s.elem):
			return
		case s.kind == shapeObject:
			for _, name := range slices.Sorted(maps.Keys(s.fields)) {
				count(s.fields[name])
			}
			return
		case s.elem != nil:
			count(s.elem)
			return
		}
		typed++
	}
	err := fs.WalkDir(corpus(t), "1-mcp-tools", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") && !strings.HasSuffix(path, ".jsonl") {
			return err
		}
		raw, err := fs.ReadFile(corpus(t), path)
		if err != nil {
			return err
		}
		texts := []string{string(raw)}
		if strings.HasSuffix(path, ".jsonl") {
			texts = strings.Split(string(raw), "\n")
		}
		for _, text := range texts {
			for _, schema := range toolsIn([]byte(text)) {
				if _, err := (specs.Schema{Raw: schema}).Compile(); err != nil {
					t.Logf("%s: not usable: %v", path, err)
				}
				tools++
				count(shapeOf(specs.Schema{Raw: schema}))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	total := typed
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%5d  %s", reasons[why], why)
		total += reasons[why]
	}
	t.Logf("%5d of %d values in the arguments of %d tools are typed (%.1f%%)", typed, total, tools, 100*float64(typed)/float64(total))
	if tools < 450 || typed*100 < total*92 {
		t.Errorf("%d of %d values of %d tools are typed", typed, total, tools)
	}
}

// toolsIn gives the input schemas of all tools anywhere in a JSON text.
func toolsIn(raw []byte) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		var out []json.RawMessage
		for _, e := range list {
			out = append(out, toolsIn(e)...)
		}
		return out
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	if s, ok := object["inputSchema"]; ok && len(object["name"]) > 0 && s[0] == '{' {
		return []json.RawMessage{s}
	}
	var out []json.RawMessage
	for _, k := range slices.Sorted(maps.Keys(object)) {
		out = append(out, toolsIn(object[k])...)
	}
	return out
}
