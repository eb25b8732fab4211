package tools_test

import (
	"context"
	"testing"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

func TestRegistryFindsTheNearestExecutor(t *testing.T) {
	t.Parallel()
	said := func(s string) tools.Executor {
		return tools.ExecutorFunc(func(context.Context, tools.Request) (tools.Result, error) { return tools.Text("%s", s), nil })
	}
	reg, err := tools.NewRegistry(map[specs.ToolName]tools.Executor{"a.own": said("tool")})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{reg.AddSource("hub", said("source")), reg.AddKind(specs.SourceMCP, said("kind"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tool := func(name string, kind specs.SourceKind, source specs.SourceName) *specs.Tool {
		return &specs.Tool{Meta: specs.Meta{Name: name}, Source: specs.ToolSource{Kind: kind, Name: source}}
	}
	for _, c := range []struct {
		tool *specs.Tool
		want string
	}{
		{tool("a.own", specs.SourceMCP, "hub"), "tool"},
		{tool("hub.x", specs.SourceMCP, "hub"), "source"},
		{tool("far.x", specs.SourceMCP, "far"), "kind"},
		{tool("b.x", specs.SourceBuiltIn, ""), ""},
		{tool("e.x", specs.SourceExtension, "e"), ""},
	} {
		e, ok := reg.Lookup(c.tool)
		if !ok {
			if c.want != "" {
				t.Errorf("%s: nobody, want the %s's", c.tool.Name, c.want)
			}
			continue
		}
		res, err := e.Execute(t.Context(), tools.Request{})
		if err != nil || text(res) != c.want {
			t.Errorf("%s: %q, want %q", c.tool.Name, text(res), c.want)
		}
	}
	for what, err := range map[string]error{
		"a second executor for a tool":   reg.Add("a.own", said("x")),
		"a second executor for a source": reg.AddSource("hub", said("x")),
		"a second executor for a kind":   reg.AddKind(specs.SourceMCP, said("x")),
		"no executor":                    reg.Add("z", nil),
		"no name":                        reg.Add("", said("x")),
	} {
		if err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func TestToolsAreFoundByAliasAndByName(t *testing.T) {
	t.Parallel()
	c, err := houseCompiled()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range c.Bundle.Tools {
		for _, name := range []string{tool.Name, string(specs.AliasOf(tool.ToolName()))} {
			if got := tools.FindTool(c.Bundle, name); got != tool {
				t.Errorf("%s finds %v", name, got)
			}
		}
	}
	for _, name := range []string{"", "nope", "act", "ACT.ONCE", "act.once ", "act/once"} {
		if got := tools.FindTool(c.Bundle, name); got != nil {
			t.Errorf("%q finds %s", name, got.Name)
		}
	}
}
