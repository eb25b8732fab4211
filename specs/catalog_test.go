package specs

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// builtIn is the list of the contract; a tool that is missing or extra here is a change of the product.
var builtIn = []string{
	"agent.await", "agent.delegate", "agent.handoff", "agent.list", "chat.read_messages", "chat.search", "dice.roll",
	"skill.list", "skill.read", "skill.search", "task.return", "workspace.apply_patch", "workspace.commit",
	"workspace.create_checkpoint", "workspace.finish", "workspace.list_files", "workspace.read_file", "workspace.rollback",
	"workspace.search_files", "workspace.write_file", "worldinfo.read_activated",
}

func loadShipped(t *testing.T) *Bundle {
	t.Helper()
	b, err := Load(fstest.MapFS{"t.yaml": {Data: []byte("apiVersion: callgate/v1\nkind: Tenant\nmetadata: {name: t}\nspec: {}\n")}}, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCatalogHasEveryBuiltInTool(t *testing.T) {
	t.Parallel()
	if found := shipped().found; len(found) > 0 {
		t.Fatalf("the shipped catalog has findings:\n%s", found.Text())
	}
	b := loadShipped(t)
	if len(b.Warnings) > 0 {
		t.Errorf("an almost empty bundle has warnings:\n%s", b.Warnings.Text())
	}
	var names []string
	for _, tool := range b.Tools {
		names = append(names, tool.Name)
		if tool.Source.Kind != SourceBuiltIn || !tool.Shipped || tool.Permission != PermissionAllow || !tool.Budget.Timeout.Set {
			t.Errorf("%s: source %v, shipped %v, permission %v, timeout %v", tool.Name, tool.Source, tool.Shipped, tool.Permission, tool.Budget.Timeout)
		}
		if tool.Describe.Value == "" || tool.Title == "" {
			t.Errorf("%s has no words for the model", tool.Name)
		}
		args, err := tool.Args()
		if err != nil {
			t.Errorf("%s: %v", tool.Name, err)
			continue
		}
		if err := args.Validate([]byte(`{"no_such_property": 1}`)); err == nil {
			t.Errorf("%s takes an unknown property", tool.Name)
		}
		alias := AliasOf(tool.ToolName())
		if back, ok := ToolNameOf(alias); !ok || back != tool.ToolName() || strings.Contains(string(alias), aliasMark) {
			t.Errorf("%s has the alias %s, which does not tell its name", tool.Name, alias)
		}
	}
	if !slices.Equal(names, builtIn) {
		t.Errorf("built-in tools:\n%v\nwant\n%v", names, builtIn)
	}
}

func TestCatalogDefaultsAskAndNeverGrant(t *testing.T) {
	t.Parallel()
	b := loadShipped(t)
	if len(b.Policies) != 1 || b.Policies[0].Name != "callgate-defaults" || b.Policies[0].Layer != LayerPlatform {
		t.Fatalf("shipped policies: %v", b.Policies)
	}
	grantable := map[string]bool{}
	for _, r := range b.Policies[0].Rules {
		if r.Effect != EffectApprove || r.Approval == nil || !slices.Equal(r.Approval.Approvers.Roles, []Role{"approver"}) {
			t.Errorf("%s: effect %s, approval %+v", r.Name, r.Effect, r.Approval)
			continue
		}
		grantable[r.Name] = r.Approval.Grantable == nil || *r.Approval.Grantable
	}
	want := map[string]bool{"mcp-tools": true, "destructive": false, "commit": true, "rollback": false, "external-network": true, "high-cost": true}
	if len(grantable) != len(want) {
		t.Errorf("asks: %v", grantable)
	}
	for name, g := range want {
		if got, ok := grantable[name]; !ok || got != g {
			t.Errorf("ask %s: there %v, grantable %v, want %v", name, ok, got, g)
		}
	}
}

// TestCatalogLimits holds the numbers of the contract.
func TestCatalogLimits(t *testing.T) {
	t.Parallel()
	b := loadShipped(t)
	for _, c := range []struct{ tool, args, wrong string }{
		{"workspace.list_files", `{"depth": 4}`, ""},
		{"workspace.list_files", `{"depth": 5}`, "/depth"},
		{"workspace.search_files", `{"query": "x", "limit": 50, "context_lines": 5}`, ""},
		{"workspace.search_files", `{"query": "x", "limit": 51}`, "/limit"},
		{"workspace.search_files", `{"query": "x", "context_lines": 6}`, "/context_lines"},
		{"workspace.read_file", `{"path": "output/a", "max_chars": 80001}`, "/max_chars"},
		{"workspace.write_file", `{"path": "output/a", "content": "x", "mode": "prepend"}`, "/mode"},
		{"workspace.apply_patch", `{"path": "output/a", "old_string": "", "new_string": "x"}`, "/old_string"},
		{"workspace.commit", `{}`, ""},
		{"workspace.finish", `{}`, ""},
		{"chat.search", `{"query": "x", "limit": 51}`, "/limit"},
		{"chat.read_messages", `{"messages": [{"index": 0, "max_chars": 8001}]}`, "/messages/0/max_chars"},
		{"worldinfo.read_activated", `{}`, ""},
		{"skill.read", `{"name": "x", "max_chars": 20001}`, "/max_chars"},
		{"dice.roll", `{"formula": "3d6+4"}`, ""},
		{"dice.roll", `{"formula": "20"}`, ""},
		{"dice.roll", `{"formula": "d6"}`, ""},
		{"dice.roll", `{"formula": "2d10 - 1"}`, "/formula"},
		{"agent.list", `{"limit": 21}`, "/limit"},
		{"agent.await", `{"timeoutMs": 300001}`, "/timeoutMs"},
		{"agent.delegate", `{"agentId": "a", "task": {"objective": "o"}, "budget": {"maxRounds": 3}}`, ""},
		{"task.return", `{"summary": "s"}`, ""},
	} {
		args, err := b.Tool(ToolName(c.tool)).Args()
		if err != nil {
			t.Fatal(err)
		}
		err = args.Validate([]byte(c.args))
		if c.wrong == "" {
			if err != nil {
				t.Errorf("%s %s: %v", c.tool, c.args, err)
			}
			continue
		}
		bad, ok := err.(*ArgError)
		if !ok || bad.Pointer != c.wrong {
			t.Errorf("%s %s: %v, want a mistake at %s", c.tool, c.args, err, c.wrong)
		}
	}
}
