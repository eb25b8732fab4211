package importer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
)

// through says whether a call of an MCP tool gets through the gateway's rules: everybody is granted everything else.
func through(t testing.TB, got *Imported, user string, labels map[string]string, tool, args string) bool {
	t.Helper()
	more := "---\napiVersion: callgate/v1\nkind: Profile\nmetadata: {name: all}\nspec: {tools: {allow: [\"*\"]}}\n"
	for _, name := range []string{"echo", "add", "get-env"} {
		more += fmt.Sprintf("---\napiVersion: callgate/v1\nkind: Tool\nmetadata: {name: gw.%s}\nspec: {description: d, source: {kind: mcp, name: gw, tool: %s}, inputSchema: {type: object}}\n", name, name)
	}
	p := compiled(t, &Imported{Name: got.Name, YAML: append(got.YAML[:len(got.YAML):len(got.YAML)], more...)})
	d := p.Resolve(celpolicy.Input{Phase: celpolicy.PhaseCall, Tool: specs.ToolName("gw." + tool), Args: []byte(args), Run: celpolicy.RunFacts{Profile: "all"},
		User: celpolicy.UserFacts{ID: specs.UserID(user), Labels: labels}})
	return d.Callable
}

func gateway(t testing.TB, text string, skip bool) *Imported {
	t.Helper()
	got, err := Agentgateway("config.yaml", []byte(text), Options{Source: "gw", SkipInvalid: skip})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAgentgatewayRules(t *testing.T) {
	t.Parallel()
	rules := func(r string) string { return "mcp:\n  policies:\n    mcpAuthorization:\n      rules:\n" + r }
	claims := map[string]string{"nested.key": "value"}
	for _, c := range []struct {
		name, text string
		user       string
		labels     map[string]string
		tool, args string
		want       bool
	}{
		{"allow", rules("      - mcp.tool.name == \"echo\"\n"), "", nil, "echo", "{}", true},
		{"what no rule allows", rules("      - mcp.tool.name == \"echo\"\n"), "", nil, "add", "{}", false},
		{"the subject", rules("      - jwt.sub == \"ann\" && mcp.tool.name == \"add\"\n"), "ann", nil, "add", "{}", true},
		{"another subject", rules("      - jwt.sub == \"ann\" && mcp.tool.name == \"add\"\n"), "bob", nil, "add", "{}", false},
		{"a nested claim", rules("      - jwt.nested.key == \"value\"\n"), "", claims, "get-env", "{}", true},
		{"a missing claim", rules("      - jwt.nested.key == \"value\"\n"), "", nil, "get-env", "{}", false},
		{"a missing claim, negated", rules("      - jwt.nested.key != \"bad\"\n"), "", nil, "get-env", "{}", false},
		{"deny alone", rules("      - deny: mcp.tool.name == \"add\"\n"), "", nil, "echo", "{}", true},
		{"deny", rules("      - deny: mcp.tool.name == \"add\"\n"), "", nil, "add", "{}", false},
		{"deny before allow", rules("      - \"true\"\n      - deny: mcp.tool.name == \"add\"\n"), "", nil, "add", "{}", false},
		{"deny with a missing claim", rules("      - deny: jwt.team == \"x\"\n"), "", nil, "add", "{}", false},
		{"require", rules("      - require: jwt.sub == \"ann\"\n      - require: mcp.tool.name != \"add\"\n"), "ann", nil, "echo", "{}", true},
		{"require both", rules("      - require: jwt.sub == \"ann\"\n      - require: mcp.tool.name != \"add\"\n"), "ann", nil, "add", "{}", false},
		{"arguments", rules("      - mcp.tool.arguments.n < 5\n"), "", nil, "add", `{"n": 3}`, true},
		{"other arguments", rules("      - mcp.tool.arguments.n < 5\n"), "", nil, "add", `{"n": 7}`, false},
		{"no argument", rules("      - mcp.tool.arguments.n < 5\n"), "", nil, "add", `{}`, false},
		{"the target", rules("      - mcp.tool.target == \"gw\"\n"), "", nil, "add", `{}`, true},
		{"prompts alone", rules("      - mcp.prompt.name == \"x\"\n"), "", nil, "add", `{}`, false},
		{"no rules", "policies: {mcpAuthorization: {rules: []}}\n", "", nil, "add", `{}`, false},
		{"not CEL", rules("      - foo_{{mcp.tool.name}}\n"), "", nil, "echo", `{}`, false},
		{"what is not known", rules("      - request.path == \"/mcp\"\n"), "", nil, "echo", `{}`, false},
		{"our own names", rules("      - tool.name == \"gw.echo\"\n"), "", nil, "echo", `{}`, false},
		{"a resource", "kind: AgentgatewayPolicy\nspec:\n  backend:\n    mcp:\n      authorization:\n        action: Require\n        policy: {matchExpressions: ['mcp.tool.name == \"echo\"']}\n", "", nil, "echo", "{}", true},
		{"a resource, else", "kind: AgentgatewayPolicy\nspec:\n  backend:\n    mcp:\n      authorization:\n        action: Require\n        policy: {matchExpressions: ['mcp.tool.name == \"echo\"']}\n", "", nil, "add", "{}", false},
		{"two lists, both", "a:\n  policies: {mcpAuthorization: {rules: ['\"x\" == \"x\"']}}\nb:\n  policies: {mcpAuthorization: {rules: ['mcp.tool.name == \"echo\"']}}\n", "", nil, "echo", "{}", true},
		{"two lists, one", "a:\n  policies: {mcpAuthorization: {rules: ['\"x\" == \"x\"']}}\nb:\n  policies: {mcpAuthorization: {rules: ['mcp.tool.name == \"echo\"']}}\n", "", nil, "add", "{}", false},
	} {
		if got := through(t, gateway(t, c.text, false), c.user, c.labels, c.tool, c.args); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAgentgatewayRefuses(t *testing.T) {
	t.Parallel()
	const ok = "kind: AgentgatewayPolicy\nspec:\n  backend: {mcp: {authorization: {policy: {matchExpressions: ['true']}}}}\n"
	for _, c := range []struct{ text, want string }{
		{ok + "  traffic: {authorization: {action: Deny, policy: {matchExpressions: ['true']}}}\n", "config.yaml:4:13: refused: authorization"},
		{ok + "  traffic: {somethingNew: 1}\n", "refused: somethingNew"},
		{ok + "  traffic: {rateLimit: {}}\n", "refused: rateLimit: limits calls"},
		{"kind: AgentgatewayPolicy\nspec:\n  backend: {mcp: {authorization: {action: Perhaps, policy: {matchExpressions: ['true']}}}}\n", "refused: authorization"},
		{"policies: {mcpAuthorization: {rules: [{perhaps: 'true'}]}}\n", "refused: a rule"},
		{"policies: {mcpAuthorization: {rules: [{deny: request.path == 1}]}}\n", "refused: deny request.path == 1"},
		{"policies: {mcpAuthorization: {rules: [{require: 'nothing('}]}}\n", "refused: require nothing("},
		{"policies: {mcpAuthorization: {rules: [{require: mcp.prompt.name == \"x\"}]}}\n", "refused: require mcp.prompt.name"},
	} {
		_, err := Agentgateway("config.yaml", []byte(c.text), Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
		if through(t, gateway(t, c.text, true), "ann", nil, "echo", "{}") {
			t.Errorf("%s: the rest lets a call through", c.text)
		}
	}
	for _, text := range []string{"", "a: [", "a: 1", "kind: Pod"} {
		if _, err := Agentgateway("config.yaml", []byte(text), Options{SkipInvalid: true}); err == nil {
			t.Errorf("%q was imported", text)
		}
	}
}

func FuzzAgentgateway(f *testing.F) {
	f.Add([]byte("mcp:\n  policies:\n    jwtAuth: {}\n    mcpAuthorization:\n      rules:\n      - jwt.a[\"b\"] == true\n      - deny: mcp.tool.arguments.x in [1]\n      - require: has(mcp.tool)\n  targets: [{name: t}]\n"))
	f.Add([]byte("kind: AgentgatewayPolicy\nspec:\n  backend: {mcp: {authorization: {action: Deny, policy: {matchExpressions: ['r\"x\" == b\"y\" // z', '\"\"\"']}}}}\n---\nkind: x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, skip := range []bool{false, true} {
			got, err := Agentgateway("f.yaml", data, Options{SkipInvalid: skip})
			loadsOrRefuses(t, got, err)
		}
	})
}
