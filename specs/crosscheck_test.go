package specs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestCrossDocumentChecks: what does not fit together between documents.
func TestCrossDocumentChecks(t *testing.T) {
	t.Parallel()
	profile := doc("Profile", "writer", "displayName: W")
	for _, c := range []struct {
		name, text string
		severity   Severity
		code       string
		line, col  int
		words      string
	}{
		{"a profile allows an unknown tool", doc("Profile", "p", "tools: {allow: [workspace.raed_file]}"), Error, "unknown-tool", 5, 19, `did you mean "workspace.read_file"?`},
		{"a profile allows a glob of nothing", doc("Profile", "p", "tools: {allow: [\"nothing.*\"]}"), Warning, "selects-nothing", 5, 19, "selects no tool"},
		{"a profile allows a tool of another kind", doc("Profile", "p", "tools: {allow: [\"mcp:workspace.read_file\"]}"), Error, "unknown-tool", 5, 19, "of kind built_in"},
		{"a profile grants task.return", doc("Profile", "p", "tools: {allow: [task.return]}"), Error, "runtime-only", 5, 19, "cannot be granted"},
		{"a profile denies a misspelt tool", doc("Profile", "p", "tools: {deny: [workspace.rollbak]}"), Warning, "unknown-tool", 5, 18, `workspace.rollback`},
		{"a profile describes an unknown tool", doc("Profile", "p", "tools: {describe: {workspace.comit: x}}"), Error, "unknown-tool", 5, 39, `workspace.commit`},
		{"a profile describes an unknown parameter", doc("Profile", "p", "tools: {parameters: {workspace.commit: {pth: x}}}"), Error, "unknown-parameter", 5, 48, `did you mean "path"?`},
		{"a rule allows an unknown tool", doc("Policy", "p", "layer: profile\nrules: [{name: r, tools: [workspace.fnish], effect: allow}]"), Error, "unknown-tool", 6, 29, "workspace.finish"},
		{"a rule waives a glob of nothing", doc("Policy", "p", "layer: profile\nrules: [{name: r, tools: [\"mcp:*\"], effect: waive}]"), Warning, "selects-nothing", 6, 29, ""},
		{"a rule denies a misspelt tool", doc("Policy", "p", "layer: profile\nrules: [{name: r, tools: [workspace.fnish], effect: deny}]"), Warning, "unknown-tool", 6, 29, "workspace.finish"},
		{"a policy matches no profile", profile + "---\n" + doc("Policy", "p", "layer: profile\nmatch: {profiles: [wrter]}\nrules: []"), Warning, "match-nothing", 12, 22, `did you mean "writer"?`},
		{"a user layer allows", doc("Policy", "p", "layer: user\nrules: [{name: r, tools: [\"*\"], effect: allow}]"), Error, "user-layer-allow", 6, 43, "waive"},
		{"two rules of one name", doc("Policy", "p", "layer: user\nrules:\n- {name: r, tools: [\"*\"], effect: deny}\n- {name: r, tools: [\"*\"], effect: hide}"), Error, "duplicate-name", 8, 5, "on line 7"},
		{"a rule of no tools", doc("Policy", "p", "layer: user\nrules: [{name: r, tools: [], effect: deny}]"), Error, "selects-nothing", 6, 28, ""},
		{"nobody approves", doc("Policy", "p", "layer: user\nrules: [{name: r, tools: [\"*\"], effect: approve, approval: {approvers: {}}}]"), Error, "no-approvers", 6, 74, "at least one"},
		{"a quorum of none", doc("Policy", "p", "layer: user\nrules: [{name: r, tools: [\"*\"], effect: approve, approval: {approvers: {roles: [a]}, quorum: 0}}]"), Error, "out-of-range", 6, 96, "from 1"},
		{"a quorum out of reach", doc("Policy", "p", "layer: user\nrules: [{name: r, tools: [\"*\"], effect: approve, approval: {approvers: {users: [a]}, quorum: 2}}]"), Error, "quorum-too-high", 6, 62, "never"},
		{"a plan leads nowhere", doc("Plan", "p", "nodes: [{id: draft}]\ntransitions: [{from: draft, to: darft}]"), Error, "unknown-node", 6, 17, `did you mean "draft"?`},
		{"a plan node of nobody", profile + "---\n" + doc("Plan", "p", "nodes: [{id: draft, profile: wrter}]"), Error, "unknown-profile", 11, 11, "writer"},
		{"a plan node out of reach", doc("Plan", "p", "nodes: [{id: draft}, {id: publish}]"), Warning, "unreachable-node", 5, 24, "publish"},
		{"a plan starts nowhere", doc("Plan", "p", "initial: drft\nnodes: [{id: draft}]"), Error, "unknown-node", 1, 1, "draft"},
		{"two nodes of one name", doc("Plan", "p", "nodes: [{id: draft}, {id: draft}]"), Error, "duplicate-name", 5, 24, "on line 5"},
		{"a default profile of nobody", profile + "---\n" + doc("Tenant", "t", "defaultProfile: wrter"), Error, "unknown-profile", 11, 19, "writer"},
		{"two profiles of one name", profile + "---\n" + profile, Error, "duplicate-name", 9, 18, "a.yaml:3:18"},
		{"two tenants", doc("Tenant", "t", "{}") + "---\n" + doc("Tenant", "u", "{}"), Error, "duplicate-name", 7, 1, "a.yaml:1:1"},
		{"a test of an unknown tool", doc("PolicyTest", "p", "cases: [{name: c, tool: workspace.fnish, expect: {}}]"), Error, "unknown-tool", 5, 27, "workspace.finish"},
		{"a test as nobody", doc("PolicyTest", "p", "cases: [{name: c, tool: workspace.finish, as: {profile: x}, expect: {}}]"), Error, "unknown-profile", 5, 11, ""},
		{"a test of an unknown rule", doc("PolicyTest", "p", "cases: [{name: c, tool: workspace.finish, expect: {rule: callgate-defaults/comit}}]"), Error, "unknown-rule", 5, 60, "callgate-defaults/commit"},
		{"a source pins an unknown tool", doc("Source", "s", "type: mcp\npins: {s.x: \"sha256:"+strings.Repeat("0", 64)+"\"}"), Warning, "unknown-pin", 1, 1, ""},
		{"a tool of a source that is not there", doc("Tool", "s.x", "source: {kind: mcp, name: s}"), Warning, "unknown-source", 5, 11, "source_unavailable"},
		{"a tool of a misspelt source", doc("Source", "github", "type: mcp") + "---\n" + doc("Tool", "s.x", "source: {kind: mcp, name: gihub}"), Error, "unknown-source", 11, 11, `did you mean "github"?`},
		{"a tool of a source of another kind", doc("Source", "github", "type: mcp") + "---\n" + doc("Tool", "s.x", "source: {kind: skill, name: github}"), Error, "source-kind", 11, 11, "mcp"},
		{"a broken output schema", doc("Tool", "s.x", "source: built_in\noutputSchema: {type: strin}"), Error, "bad-schema", 6, 24, "outputSchema"},
		{"a contradiction", doc("Tool", "s.x", "source: built_in\nannotations: {readOnly: true, destructive: true}"), Error, "contradiction", 6, 16, ""},
		{"a root that is none", doc("Profile", "p", "workspace: {visible: [outputs]}"), Error, "unknown-root", 5, 25, `did you mean "output"?`},
		{"a bad duration", doc("Source", "s", "type: mcp\ntimeout: 10"), Error, "wrong-type", 6, 12, "duration"},
		{"a duration without a unit", doc("Source", "s", "type: mcp\ntimeout: \"10\""), Error, "bad-duration", 6, 12, "10s"},
		{"a budget with a bad duration", doc("Tool", "s.x", "source: built_in\nbudget: {timeout: 10 s}"), Error, "bad-duration", 6, 21, "10s"},
		{"visibility misspelt", doc("Tool", "s.x", "source: built_in\nvisibility: modl"), Error, "unknown-word", 6, 15, `did you mean "model"?`},
		{"a plan that starts nowhere", doc("Plan", "p", "initial: b\nnodes: [{id: a}]"), Error, "unknown-node", 1, 1, "starts at"},
		{"a case names a rule without its policy", doc("Policy", "p", "layer: user\nrules: [{name: a, tools: [\"*\"], effect: deny}]") + "---\n" + doc("PolicyTest", "t", "cases: [{name: c, tool: workspace.finish, expect: {rule: a}}]"), Error, "unknown-rule", 12, 60, `did you mean "p/a"?`},
		{"a case names a list that a profile does not have", profile + "---\n" + doc("PolicyTest", "t", "cases: [{name: c, tool: workspace.finish, expect: {rule: writer/tools.deny}}]"), Error, "unknown-rule", 11, 60, ""},
		{"a case in a node that is not there", doc("PolicyTest", "t", "cases: [{name: c, tool: workspace.finish, as: {node: draft}, expect: {}}]"), Error, "unknown-node", 5, 11, "no nodes"},
		{"a case with a misspelt argument", doc("PolicyTest", "t", "cases: [{name: c, tool: workspace.finish, args: {raeson: x}, expect: {}}]"), Warning, "unfit-arguments", 5, 51, `did you mean "reason"?`},
		{"a case with an argument of another type", doc("PolicyTest", "t", "cases: [{name: c, tool: workspace.finish, args: {reason: 1}, expect: {}}]"), Warning, "unfit-arguments", 5, 60, "string"},
		{"a case whose arguments are a text", doc("PolicyTest", "t", "cases: [{name: c, tool: workspace.finish, args: '{}', expect: {}}]"), Warning, "unfit-arguments", 5, 51, "must be an object"},
		{"an unknown dimension", doc("PolicyTest", "p", "cases: [{name: c, tool: workspace.finish, budget: {calls: 1}, expect: {}}]"), Error, "bad-name", 5, 54, "maxCalls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ds := findings(t, c.text, LoadOptions{})
			wantOnly(t, ds, c.code, c.line, c.col, c.words)
			if len(ds) == 1 && ds[0].Severity != c.severity {
				t.Errorf("it is a(n) %s", ds[0].Severity)
			}
		})
	}
}

// TestWhatMayBeSaidAheadOfTime: denying what is not there yet is no finding.
func TestWhatMayBeSaidAheadOfTime(t *testing.T) {
	t.Parallel()
	ds := findings(t, doc("Policy", "p", "layer: user\nrules:\n- {name: a, tools: [\"shell.*\", \"mcp:*\"], effect: deny}\n- {name: b, tools: [\"entirely.other_name\"], effect: approve}\n- {name: c, tools: [\"x.*\"], effect: hide}"), LoadOptions{})
	if len(ds) > 0 {
		t.Errorf("findings:\n%s", ds.Text())
	}
}

// TestAPlansMistakesAreAllSaid: a start that does not exist hides no transition.
func TestAPlansMistakesAreAllSaid(t *testing.T) {
	t.Parallel()
	ds := findings(t, doc("Plan", "p", "initial: b\nnodes: [{id: a}]\ntransitions: [{from: a, to: c}]"), LoadOptions{})
	if len(ds) != 2 || ds[0].Code != "unknown-node" || ds[1].Code != "unknown-node" || ds[1].Pos.Line != 7 {
		t.Errorf("got\n%s", ds.Text())
	}
}

// TestCasesMayNameEveryVoice that can decide, not rules alone.
func TestCasesMayNameEveryVoice(t *testing.T) {
	t.Parallel()
	bundle := doc("Profile", "w", "tools: {allow: [\"*\"], deny: [dice.roll]}") + "---\n" +
		doc("Plan", "p", "nodes: [{id: a, tools: {allow: [], deny: [dice.roll]}}]") + "---\n" +
		doc("Source", "s", "type: mcp") + "---\n" + doc("Tool", "s.x", "source: {kind: mcp, name: s}\npermission: deny\nvisibility: user\nbudget: {maxCalls: 1}") + "---\n" +
		doc("Policy", "rules", "layer: user\nrules: [{name: a, tools: [\"*\"], effect: deny}]")
	b, err := load(bundle, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []RuleID{"default", "p/a/tools.allow", "p/a/tools.deny", "rules/a", "s.x/arguments", "s.x/budget", "s.x/permission",
		"s.x/visibility", "s/capabilities", "s/pins", "w/run", "w/tools.allow", "w/tools.deny"}
	voices := b.Voices()
	for _, v := range want {
		if !slices.Contains(voices, v) {
			t.Errorf("%s is no voice", v)
		}
		ds := findings(t, bundle+"---\n"+doc("PolicyTest", "t", "cases: [{name: c, tool: s.x, expect: {rule: "+string(v)+"}}]"), LoadOptions{})
		if len(ds) > 0 {
			t.Errorf("%s:\n%s", v, ds.Text())
		}
	}
	for _, v := range []RuleID{"workspace.finish/permission", "workspace.finish/visibility", "rules/b", "p/a"} {
		if slices.Contains(voices, v) {
			t.Errorf("%s is a voice", v)
		}
	}
}

// TestShippedToolsCannotBeRedefined by a tenant; an operator who does it is warned.
func TestShippedToolsCannotBeRedefined(t *testing.T) {
	t.Parallel()
	tool := doc("Tool", "workspace.commit", "source: built_in\ntitle: Mine")
	wantOnly(t, findings(t, tool, LoadOptions{Level: TenantLevel}), "shipped-name", 3, 18, "built in")
	b, err := load(tool, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if b.Tool("workspace.commit").Title != "Mine" || b.ToolByAlias("workspace_commit").Title != "Mine" {
		t.Error("the operator's document does not stand")
	}
	wantOnly(t, b.Warnings, "replaces-built-in", 3, 18, "")
	wantOnly(t, findings(t, doc("Policy", "callgate-defaults", "layer: platform\nrules: []"), LoadOptions{}), "shipped-name", 3, 18, "built in")
}

// TestTwelveMistakes: one folder, twelve different mistakes, twelve findings at the right places, in file order.
func TestTwelveMistakes(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{
		"policy.yaml": {Data: []byte(`apiVersion: callgate/v1
kind: Policy
metadata: {name: rules}
spec:
  layer: profil
  rules:
    - name: a
      tools: ["workspace.*"]
      effect: alow
    - name: b
      tools: ["workspace.read_file"]
      effect: deny
      efect: deny
    - name: c
      tools: ["workspace.*"]
      effect: approve
      approval: {approvers: {roles: [approver]}, quorum: 0}
    - name: d
      tools: ["workspace.*"]
      effect: deny
      effect: allow
    - name: e
      tools: no
      effect: deny
`)},
		"profile.yaml": {Data: []byte(`apiVersion: callgate/v1
kind: Profile
metadata: {name: writer}
spec:
  tools: {allow: [workspace.raed_file]}
  run: {maxCalls: 99999999999999999999}
  displayName: &x Writer
---
apiVersion: callgate/v1
kind: Plan
metadata: {name: plan}
spec:
  nodes: [{id: draft}]
  transitions: [{from: draft, to: drft}]
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: my.tool}
spec:
  source: built_in
  inputSchema: {type: object, properties: {a: {type: strng}}}
---
apiVersion: callgate/v1
kind: Tenant
metadata: {name: t
spec: {}
`)},
	}
	_, err := Load(fsys, LoadOptions{})
	ds, ok := AsDiagnostics(err)
	if !ok {
		t.Fatal(err)
	}
	var got []string
	for _, d := range ds {
		got = append(got, fmt.Sprintf("%s %s", d.Pos, d.Code))
		text := d.Text()
		if !strings.Contains(text, d.Pos.String()+": ") || !strings.Contains(text, "^") || d.Source == "" {
			t.Errorf("a finding without its line and caret:\n%s", text)
		}
	}
	want := `policy.yaml:5:10 unknown-word
policy.yaml:9:15 unknown-word
policy.yaml:13:7 unknown-key
policy.yaml:17:58 out-of-range
policy.yaml:21:7 duplicate-key
policy.yaml:23:14 yaml-1.1-boolean
profile.yaml:5:19 unknown-tool
profile.yaml:6:19 integer-range
profile.yaml:7:16 yaml-anchor
profile.yaml:14:17 unknown-node
profile.yaml:21:54 bad-schema
profile.yaml:25:11 yaml-syntax`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s\n\n%s", strings.Join(got, "\n"), want, ds.Text())
	}
}
