package celpolicy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/specs"
)

func doc(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: callgate/v1\nkind: %s\nmetadata: {name: %s}\nspec: %s", kind, name, spec)
}

// TestP13_AChildStaysInsideItsCallers: a child's tools are its own profile's, within what every caller may pass on,
// under every deny on the path; publishing, finishing and delegating stay with the root, returning is the child's.
func TestP13_AChildStaysInsideItsCallers(t *testing.T) {
	t.Parallel()
	tools := []specs.ToolName{"w.read", "w.write", "workspace.commit", "workspace.finish", "agent.delegate", toolReturn}
	subset := func(t *rapid.T, name string) []specs.ToolName {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(tools), 0, len(tools), rapid.ID[specs.ToolName]).Draw(t, name)
	}
	globs := func(names []specs.ToolName) *[]specs.Text {
		out := make([]specs.Text, len(names))
		for i, n := range names {
			out[i] = specs.TextOf(string(n))
		}
		return &out
	}
	rapid.Check(t, func(t *rapid.T) {
		b := &specs.Bundle{}
		for _, n := range tools {
			b.Tools = append(b.Tools, &specs.Tool{Meta: specs.Meta{Name: string(n)}, Source: specs.ToolSource{Kind: specs.SourceBuiltIn}})
		}
		type prof struct{ allow, deny, delegable, ruleDeny []specs.ToolName }
		names := []string{"root", "middle", "leaf"}
		of := map[string]prof{}
		for _, n := range names {
			p := prof{subset(t, n+" allow"), nil, subset(t, n+" delegable"), nil}
			if rapid.Bool().Draw(t, n+" denies") {
				p.deny = subset(t, n+" deny")[:0]
				p.deny = append(p.deny, rapid.SampledFrom(tools).Draw(t, n+" denied"))
			}
			doc := &specs.Profile{Meta: specs.Meta{Name: n}, Tools: specs.ProfileTools{Allow: globs(p.allow), Deny: *globs(p.deny)}, Delegation: specs.Delegation{DelegableTools: globs(p.delegable)}}
			if rapid.IntRange(0, 4).Draw(t, n+" closed") == 0 {
				doc.Delegation.DelegableTools, p.delegable = nil, nil
			}
			if rapid.IntRange(0, 3).Draw(t, n+" rule") == 0 {
				p.ruleDeny = []specs.ToolName{rapid.SampledFrom(tools).Draw(t, n+" rule denied")}
				b.Policies = append(b.Policies, &specs.Policy{Meta: specs.Meta{Name: "deny-" + n}, Layer: specs.LayerProfile,
					Match: specs.Match{Profiles: globs([]specs.ToolName{specs.ToolName(n)})},
					Rules: []specs.Rule{{Name: "one", Tools: *globs(p.ruleDeny), Effect: specs.EffectDeny}}})
			}
			of[n] = p
			b.Profiles = append(b.Profiles, doc)
		}
		var nodeAllows []specs.ToolName
		if rapid.Bool().Draw(t, "plan") {
			nodeAllows = subset(t, "node allow")
			b.Plans = []*specs.Plan{{Meta: specs.Meta{Name: "plan"}, Nodes: []specs.PlanNode{{ID: "node", Tools: specs.ProfileTools{Allow: globs(nodeAllows)}}}}}
		}
		p, err := Compile(b)
		if err != nil {
			t.Fatalf("%v", err)
		}
		depth := rapid.IntRange(0, 2).Draw(t, "depth")
		path := names[:depth]
		child := names[depth]
		in := Input{Phase: rapid.SampledFrom([]Phase{PhaseList, PhaseCall}).Draw(t, "phase"), Run: RunFacts{Profile: specs.ProfileName(child), Depth: int64(depth)}, Trace: true}
		if len(b.Plans) > 0 {
			in.Run.Plan, in.Run.Node = "plan", "node"
		}
		for _, n := range path {
			in.Envelopes = append(in.Envelopes, Envelope{Profile: specs.ProfileName(n)})
		}
		for _, tool := range tools {
			in.Tool = tool
			want := slices.Contains(of[child].allow, tool) && tool != toolReturn
			if depth == 0 && len(b.Plans) > 0 { // a plan leads the root, and only the root
				want = slices.Contains(nodeAllows, tool) && tool != toolReturn
			}
			if depth > 0 && tool == toolReturn {
				want = true
			}
			for _, n := range path {
				if tool != toolReturn && !slices.Contains(of[n].delegable, tool) {
					want = false
				}
			}
			for _, n := range append(slices.Clone(path), child) {
				if slices.Contains(of[n].deny, tool) || slices.Contains(of[n].ruleDeny, tool) {
					want = false
				}
			}
			if depth > 0 && (tool == "workspace.commit" || tool == "workspace.finish" || tool == "agent.delegate") {
				want = false
			}
			if d := p.Resolve(in); d.Callable != want || d.Visible != want {
				t.Fatalf("%s at depth %d: callable %v, want %v: %s\n%+v", tool, depth, d.Callable, want, d.Reason, of)
			}
		}
	})
}

// TestP16_ArgumentsChangeNothingButThemselves: whatever a model writes, rules over who calls, for whom, and in which
// run see the same facts, and so does the approval.
func TestP16_ArgumentsChangeNothingButThemselves(t *testing.T) {
	t.Parallel()
	p := compile(t, toolDoc("w.write", `{type: object}`), doc("Profile", "p", "{tools: {allow: [w.write]}}"),
		policyLayer("facts", "platform", "[w.write]", "approve", `user.id == "ann" && tenant.id == "acme" && run.id == "r1" && run.profile == "p" && user.roles == ["author"] && tool.name == "w.write" && budget.left.calls == 80 && call.sequence == 1`,
			"      reason: '\"for \" + user.id + \" of \" + tenant.id'\n      approval: {approvers: {users: [bob]}, notRequester: true}\n"))
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"user", "tenant", "run", "tool", "call", "budget", "now", "args", "__proto__", "@meter", "user.id", "policyDigest"}), 0, 6, rapid.ID[string]).Draw(t, "keys")
		args := map[string]any{}
		for _, k := range keys {
			args[k] = rapid.SampledFrom([]any{"eve", map[string]any{"id": "eve", "roles": []any{"admin"}}, nil, true, json.Number("7")}).Draw(t, k)
		}
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatalf("%v", err)
		}
		d := p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Args: raw, Now: TestNow, Run: RunFacts{ID: "r1", Profile: "p"},
			User: UserFacts{ID: "ann", Roles: []specs.Role{"author"}}, Tenant: TenantFacts{ID: "acme"}, Call: CallFacts{Sequence: 1}})
		if !d.ApprovalRequired || len(d.Asks) != 1 || d.PolicyDigest != p.Digest() || d.Tool != "w.write" {
			t.Fatalf("%s decides otherwise: %s", raw, bytesOf1(t, d))
		}
		a := d.Asks[0]
		if a.Rule != "facts/one" || a.Reason != "for ann of acme" || !slices.Equal(a.Approval.Approvers.Users, []specs.UserID{"bob"}) || !a.Approval.NotRequester {
			t.Fatalf("%s changes the approval: %+v", raw, a)
		}
	})
}

// TestP17_ArgumentsStayAsTheyCame: deciding never touches the bytes that are hashed, shown and run, and decides
// alike over any two texts of the same value.
func TestP17_ArgumentsStayAsTheyCame(t *testing.T) {
	t.Parallel()
	p := compile(t, one("platform", "deny", `has(args.mode) && args.mode == "é"`)...)
	for _, raw := range []string{`{"mode":"é"}`, `{ "mode" : "\u00e9" }`, "{\n\"mode\":\"\\u00E9\"\n}"} {
		args := json.RawMessage(raw)
		if d := ask1(p, raw); d.Callable {
			t.Errorf("%s is callable", raw)
		}
		p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Args: args, Run: RunFacts{Profile: "p"}})
		if string(args) != raw {
			t.Errorf("the bytes changed: %s", args)
		}
	}
}

// TestHiding: a hide and visibility words are for the model; people see what is only kept from it.
func TestHiding(t *testing.T) {
	t.Parallel()
	docs := func(visibility string) []string {
		d := one("platform", "deny", "false")
		d[0] = strings.Replace(d[0], "  source: built_in", "  source: built_in\n  visibility: "+visibility, 1)
		return d
	}
	for visibility, want := range map[string][2]bool{"model": {true, true}, "user": {false, true}, "hidden": {false, false},
		`'user.id == "ann"'`: {true, true}, `'user.id == "bob"'`: {false, false}, `'1 / (run.depth - run.depth) > 0'`: {false, false}} {
		d := compile(t, docs(visibility)...).Resolve(Input{Phase: PhaseList, Tool: "w.write", Run: RunFacts{Profile: "p"}, User: UserFacts{ID: "ann"}})
		if got := [2]bool{d.Visible, d.VisibleToUser}; got != want || d.Callable != want[0] {
			t.Errorf("visibility %s: model and people %v, want %v", visibility, got, want)
		}
	}
	d := ask1(compile(t, one("user", "hide", "true")...), `{}`)
	if d.Visible || !d.VisibleToUser || d.Callable || d.Code != CodeHidden || d.Message != ModelMessageUnavailable("w.write") {
		t.Errorf("a hide rule: %s", bytesOf1(t, d))
	}
}

// TestVisibleIsAboutTheTool: a call that only its arguments forbid leaves the tool on the list, and there the
// arguments are unknown.
func TestVisibleIsAboutTheTool(t *testing.T) {
	t.Parallel()
	p := compile(t, one("platform", "deny", `has(args.mode) && args.mode == "x"`)...)
	if d := ask1(p, `{"mode":"x"}`); d.Callable || !d.Visible {
		t.Errorf("%s", bytesOf1(t, d))
	}
	l := p.List(Input{Run: RunFacts{Profile: "p"}, Args: json.RawMessage(`{"mode":"x"}`)})
	if len(l) != 1 || !l[0].Visible || !l[0].Unknown || l[0].Phase != PhaseList {
		t.Errorf("%s", bytesOf1(t, l))
	}
	// Certainly denied is hidden: no argument could help.
	p = compile(t, one("platform", "deny", `has(args.mode) && args.mode == "x" || user.id == "ann"`)...)
	if l := p.List(Input{Run: RunFacts{Profile: "p"}, User: UserFacts{ID: "ann"}}); l[0].Visible || l[0].Unknown {
		t.Errorf("%s", bytesOf1(t, l))
	}
}

// TestSelectorsOfAPolicy: each part of `match` narrows whom a policy speaks about, with globs.
func TestSelectorsOfAPolicy(t *testing.T) {
	t.Parallel()
	for match, want := range map[string]bool{
		"{tenants: [acme]}": true, "{tenants: [other]}": false, "{users: [\"a*\"]}": true, "{users: [bob]}": false, "{roles: [author, x]}": true,
		"{roles: [admin]}": false, "{profiles: [p]}": true, "{profiles: [q]}": false, "{tenants: [acme], roles: [admin]}": false,
	} {
		docs := one("platform", "deny", "true")
		docs[2] = strings.Replace(docs[2], "  layer: platform", "  layer: platform\n  match: "+match, 1)
		p, err := Compile(load(t, docs...))
		if err != nil {
			t.Fatal(err)
		}
		d := p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Run: RunFacts{Profile: "p"}, User: UserFacts{ID: "ann", Roles: []specs.Role{"author"}}, Tenant: TenantFacts{ID: "acme"}})
		if denied := !d.Callable; denied != want {
			t.Errorf("match %s: denied %v", match, denied)
		}
	}
}

// TestDefaultProfile: without a named profile the tenant's holds, and without one nothing is granted.
func TestDefaultProfile(t *testing.T) {
	t.Parallel()
	docs := one("platform", "deny", "false")
	in := Input{Phase: PhaseCall, Tool: "w.write"}
	if d := compile(t, docs...).Resolve(in); d.Callable || d.Code != CodeNotAllowed {
		t.Errorf("no profile at all: %s", bytesOf1(t, d))
	}
	if d := compile(t, append(docs, doc("Tenant", "acme", "{defaultProfile: p}"))...).Resolve(in); !d.Callable || d.Rule != "p/tools.allow" {
		t.Errorf("the tenant's default: %s", bytesOf1(t, d))
	}
}

// TestCeilings: a platform's allows bound everything, a source's its own tools, and neither grants.
func TestCeilings(t *testing.T) {
	t.Parallel()
	docs := append(one("platform", "allow", `has(args.mode) && args.mode == "safe"`), toolDoc("x.other", openSchema))
	p := compile(t, docs...)
	if d := ask1(p, `{"mode":"safe"}`); !d.Callable {
		t.Errorf("inside: %s", d.Reason)
	}
	if d := ask1(p, `{"mode":"x"}`); d.Callable || d.Code != CodeCeiling || d.Layer != specs.LayerPlatform || !d.Visible {
		t.Errorf("outside by its arguments: %s", bytesOf1(t, d))
	}
	if d := p.Resolve(Input{Phase: PhaseCall, Tool: "x.other", Run: RunFacts{Profile: "p"}}); d.Callable || d.Visible {
		t.Errorf("a tool the ceiling leaves out: %s", bytesOf1(t, d))
	}
	grants := slices.Clone(docs)
	grants[1] = doc("Profile", "p", "{tools: {allow: []}}")
	if d := ask1(compile(t, grants...), `{"mode":"safe"}`); d.Callable {
		t.Error("a ceiling granted")
	}
	src := one("source", "allow", "true")
	src[2] = strings.Replace(src[2], "  layer: source", "  layer: source\n  match: {sources: [elsewhere]}", 1)
	if d := ask1(compile(t, append(src, doc("Source", "elsewhere", "{type: mcp}"))...), `{}`); !d.Callable {
		t.Errorf("another source's ceiling: %s", d.Reason)
	}
}

// TestN8_Quarantine: a definition that is not the accepted one is neither listed nor callable.
func TestN8_Quarantine(t *testing.T) {
	t.Parallel()
	const a, b = specs.Digest("sha256:a"), specs.Digest("sha256:b")
	for name, c := range map[string]struct {
		pins     map[string]specs.Digest
		accepts  []specs.Text
		trust    specs.Trust
		callable bool
		accepted bool
		readOnly bool
	}{
		"pinned and trusted":   {map[string]specs.Digest{"srv.read": a}, texts1("*"), specs.Trusted, true, true, true},
		"pinned, untrusted":    {map[string]specs.Digest{"srv.read": a}, texts1("re*"), specs.Untrusted, true, true, false},
		"pinned, no trust":     {map[string]specs.Digest{"srv.read": a}, texts1("srv.*"), "", true, true, false},
		"changed":              {map[string]specs.Digest{"srv.read": b}, texts1("*"), specs.Trusted, false, false, true},
		"new":                  {map[string]specs.Digest{"srv.other": a}, texts1("*"), specs.Trusted, false, false, true},
		"not a capability":     {map[string]specs.Digest{"srv.read": a}, texts1("write*"), specs.Trusted, false, false, true},
		"no capability at all": {map[string]specs.Digest{"srv.read": a}, nil, specs.Trusted, false, false, true},
	} {
		all := texts1("*")
		bundle := &specs.Bundle{
			Tools: []*specs.Tool{{Meta: specs.Meta{Name: "srv.read"}, Annotations: specs.Annotations{ReadOnly: true, Idempotent: true},
				Source: specs.ToolSource{Kind: specs.SourceMCP, Name: "srv", Tool: "read", Digest: a}}},
			Sources:  []*specs.Source{{Meta: specs.Meta{Name: "srv"}, Type: specs.SourceMCP, Pins: c.pins, Capabilities: c.accepts, Trust: c.trust}},
			Profiles: []*specs.Profile{{Meta: specs.Meta{Name: "p"}, Tools: specs.ProfileTools{Allow: &all}}},
			Policies: []*specs.Policy{{Meta: specs.Meta{Name: "see"}, Layer: specs.LayerPlatform, Rules: []specs.Rule{
				{Name: "accepted", Tools: texts1("mcp:*"), Effect: specs.EffectApprove, When: specs.TextOf("tool.source.accepted")},
				{Name: "read", Tools: texts1("mcp:*"), Effect: specs.EffectApprove, When: specs.TextOf("tool.annotations.readOnly")}}}},
		}
		p, err := Compile(bundle)
		if err != nil {
			t.Fatal(err)
		}
		d := p.Resolve(Input{Phase: PhaseCall, Tool: "srv.read", Run: RunFacts{Profile: "p"}})
		if d.Callable != c.callable || d.Visible != c.callable || !c.callable && d.Layer != specs.LayerSource {
			t.Errorf("%s: %s", name, bytesOf1(t, d))
		}
		var asks []specs.RuleID
		for _, x := range d.Asks {
			asks = append(asks, x.Rule)
		}
		if slices.Contains(asks, "see/accepted") != c.accepted || slices.Contains(asks, "see/read") != c.readOnly {
			t.Errorf("%s: asks %v", name, asks)
		}
		if ann, ok := p.Annotations("srv.read"); !ok || ann.ReadOnly != c.readOnly || ann.Destructive == c.readOnly {
			t.Errorf("%s: annotations %+v", name, ann)
		}
	}
}

// TestSeveralAsks: all of them stand, sorted by layer and rule, each with its own approvers.
func TestSeveralAsks(t *testing.T) {
	t.Parallel()
	docs := append(one("profile", "approve", "true"),
		policyLayer("b", "platform", "[w.write]", "approve", "true", "      approval: {approvers: {roles: [security]}, quorum: 2, ttl: 5m, onExpire: park}\n"),
		policyLayer("a", "platform", "[w.write]", "approve", "true", ""))
	docs[0] = strings.Replace(docs[0], "  annotations:", "  permission: approval\n  annotations:", 1)
	d := ask1(compile(t, docs...), `{}`)
	var rules []specs.RuleID
	for _, a := range d.Asks {
		rules = append(rules, a.Rule)
		if len(a.Approval.Approvers.Roles)+len(a.Approval.Approvers.Users) == 0 || a.Approval.Quorum < 1 || a.Approval.TTL <= 0 || a.Approval.OnExpire == "" {
			t.Errorf("%s: defaults are not written out: %+v", a.Rule, a.Approval)
		}
	}
	if !slices.Equal(rules, []specs.RuleID{"a/one", "b/one", "pol/one", "w.write/permission"}) || d.Rule != "a/one" {
		t.Errorf("asks %v, first %s", rules, d.Rule)
	}
	if b := d.Asks[1].Approval; b.Quorum != 2 || b.TTL != 5*time.Minute || b.OnExpire != specs.OnExpirePark {
		t.Errorf("%+v", b)
	}
}

// TestGrants: a remembered yes clears an ask for exactly what it was given for.
func TestGrants(t *testing.T) {
	t.Parallel()
	p := compile(t, one("platform", "approve", "true")...)
	digest := p.ToolDigest("w.write")
	good := Grant{ID: "g1", Tool: "w.write", ToolDigest: digest, Run: "r1", User: "ann", Rules: []specs.RuleID{"pol/one"},
		Args: map[string]string{"/mode": `"x"`}, Expires: TestNow.Add(time.Minute)}
	with := func(change func(*Grant)) Decision {
		g := good
		g.Args = map[string]string{"/mode": `"x"`}
		change(&g)
		return p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Args: json.RawMessage(`{"env":{"kind":"a"},"mode":"\u0078"}`), Now: TestNow,
			Run: RunFacts{ID: "r1", Profile: "p"}, User: UserFacts{ID: "ann"}, Grants: []Grant{g}, Trace: true})
	}
	for name, change := range map[string]func(*Grant){
		"as given": func(*Grant) {}, "for any run": func(g *Grant) { g.Run = "" }, "for anybody": func(g *Grant) { g.User = "" },
		"for any arguments": func(g *Grant) { g.Args = nil }, "for ever": func(g *Grant) { g.Expires = time.Time{} },
		"for a whole object": func(g *Grant) { g.Args = map[string]string{"/env": `{"kind":"a"}`} },
	} {
		if d := with(change); d.ApprovalRequired || !slices.Equal(d.Grants, []string{"g1"}) || d.Trace[0].Outcome != Waived && d.Trace[1].Outcome != Waived {
			t.Errorf("%s: still asks", name)
		}
	}
	for name, change := range map[string]func(*Grant){
		"another tool": func(g *Grant) { g.Tool = "w.read" }, "another definition": func(g *Grant) { g.ToolDigest = "sha256:0" },
		"another run": func(g *Grant) { g.Run = "r2" }, "another person": func(g *Grant) { g.User = "bob" },
		"another rule": func(g *Grant) { g.Rules = []specs.RuleID{"pol/two"} }, "no rule": func(g *Grant) { g.Rules = nil },
		"another argument": func(g *Grant) { g.Args = map[string]string{"/mode": `"y"`} }, "an absent argument": func(g *Grant) { g.Args = map[string]string{"/path": `"x"`} },
		"a pattern": func(g *Grant) { g.Args = map[string]string{"/mode": `"*"`} }, "expired": func(g *Grant) { g.Expires = TestNow },
		"a broken pointer": func(g *Grant) { g.Args = map[string]string{"mode": `"x"`} },
	} {
		if d := with(change); !d.ApprovalRequired {
			t.Errorf("%s: cleared the ask", name)
		}
	}
	list := p.List(Input{Now: TestNow, Run: RunFacts{ID: "r1", Profile: "p"}, User: UserFacts{ID: "ann"}, Grants: []Grant{good}})
	if !list[0].ApprovalRequired {
		t.Error("a grant for some arguments cleared an ask before the arguments are known")
	}
	// Destructive tools are not grantable unless the ask says so.
	docs := one("platform", "approve", "true")
	docs[0] = strings.Replace(docs[0], "{readOnly: true, sideEffect: none}", "{sideEffect: process, destructive: true}", 1)
	p = compile(t, docs...)
	digest = p.ToolDigest("w.write")
	if d := with(func(g *Grant) { g.ToolDigest = digest }); !d.ApprovalRequired || d.Asks[0].Grantable {
		t.Error("a grant cleared a destructive tool's ask")
	}
	docs[2] += "\n      approval: {approvers: {roles: [approver]}, grantable: true}"
	p = compile(t, docs...)
	if d := with(func(g *Grant) { g.ToolDigest = digest }); d.ApprovalRequired {
		t.Error("the author made it grantable")
	}
}

// TestBudgets: who limits, who is charged, and what happens at the end of it.
func TestBudgets(t *testing.T) {
	t.Parallel()
	budget := func(b string) []string {
		docs := one("profile", "allow", "true")
		docs[2] += "\n      budget: " + b
		return docs
	}
	d := ask1(compile(t, budget(`{maxCalls: 7, maxCost: 'user.id == "ann" ? 50 : 5', timeout: 3s, per: user/day}`)...), `{}`)
	want := []Charge{{"pol/one", specs.PerUserDay, DimCalls, 7}, {"pol/one", specs.PerUserDay, DimCost, 5},
		{OwnerRun, specs.PerRun, DimCalls, 80}, {OwnerRun, specs.PerRun, DimCost, DefaultMaxCost}, {OwnerRun, specs.PerRun, DimOutputTokens, DefaultMaxOutputTokens}}
	if !slices.Equal(d.Charges, want) || d.Budget.MaxCost.Value != 5 || d.Budget.Timeout != 3*time.Second || d.Budget.TimeoutFrom != "pol/one" {
		t.Errorf("%s", bytesOf1(t, d))
	}
	for _, b := range []string{`{maxCalls: 0}`, `{maxCalls: '1 / (call.repeat - call.repeat)'}`, `{maxCalls: '-5'}`, `{maxOutputTokens: 0}`} {
		d := ask1(compile(t, budget(b)...), `{}`)
		if d.Callable || !d.Visible || d.Code != CodeBudgetExhausted || d.Rule != "pol/one" || !strings.Contains(d.Message, "allows 0 ") || d.Verdicts[specs.LayerBudget] != VerdictDeny {
			t.Errorf("%s: %s", b, bytesOf1(t, d))
		}
	}
	p := compile(t, budget(`{maxCalls: 7}`)...)
	for used, callable := range map[int64]bool{0: true, 79: true, 80: false, 200: false} {
		d := p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Run: RunFacts{Profile: "p"}, Budget: BudgetFacts{Used: map[string]int64{"calls": used}}})
		if d.Callable != callable || !d.Visible {
			t.Errorf("%d calls used: callable %v (%s)", used, d.Callable, d.Reason)
		}
	}
	costly := budget(`{maxCalls: 7}`)
	costly[0] = strings.Replace(costly[0], "readOnly: true,", "readOnly: true, cost: 30,", 1)
	p = compile(t, costly...)
	for limit, callable := range map[int64]bool{0: false, 29: false, 30: true, 59: true} {
		d := p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Run: RunFacts{Profile: "p"}, Budget: BudgetFacts{Limit: map[string]int64{"cost": limit}}})
		if d.Callable != callable {
			t.Errorf("a call of 30 within %d: %v (%s)", limit, d.Callable, d.Reason)
		}
	}
	costly[0] = strings.Replace(costly[0], "cost: 30", "cost: unknown", 1)
	p = compile(t, costly...)
	d = p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Run: RunFacts{Profile: "p"}, Budget: BudgetFacts{Limit: map[string]int64{"cost": 99}}})
	if d.Callable {
		t.Error("a price that nobody knows counted as nothing")
	}
}

// TestReasons: prose stays prose, CEL is worked out, and prose that looks like CEL says what to do.
func TestReasons(t *testing.T) {
	t.Parallel()
	reason := func(r string) []string {
		docs := one("platform", "deny", "true")
		docs[2] += "\n      reason: " + r
		return docs
	}
	for r, want := range map[string]string{
		"Shell is off on this platform.": "Shell is off on this platform.", "Denied": "Denied", "not today, sorry": "not today, sorry",
		`'"no " + tool.name'`: "no w.write", `'"x" + args.mode'`: "pol/one denies it", `'user.id'`: "ann",
	} {
		p := compile(t, reason(r)...)
		d := p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Run: RunFacts{Profile: "p"}, User: UserFacts{ID: "ann"}})
		if d.Reason != want {
			t.Errorf("%s gives %q, want %q", r, d.Reason, want)
		}
	}
	for _, r := range []string{`'"unclosed'`, `user.name`, `call.sequence`} {
		if ds := findings(t, reason(r)...).Errors(); len(ds) != 1 || ds[0].Pos.Line == 0 {
			t.Errorf("%s:\n%s", r, ds.Text())
		}
	}
}

// TestMessageAndOnDeny: the deciding rule's own words reach the model, and nobody else's.
func TestMessageAndOnDeny(t *testing.T) {
	t.Parallel()
	docs := one("profile", "deny", "true")
	docs[2] += "\n      message: Ask for another file.\n      onDeny: fail_run"
	d := ask1(compile(t, docs...), `{}`)
	if d.Message != "Ask for another file." || d.OnDeny != specs.OnDenyFailRun {
		t.Errorf("%s", bytesOf1(t, d))
	}
	d = ask1(compile(t, append(docs, policyLayer("user", "user", "[w.write]", "deny", "true", ""))...), `{}`)
	if d.Message != ModelMessageUnavailable("w.write") || d.OnDeny != specs.OnDenyResult || d.Rule != "user/one" {
		t.Errorf("the user's deny decides: %s", bytesOf1(t, d))
	}
}

// TestUserLayerCannotAllow, also in a bundle that no loader has seen.
func TestUserLayerCannotAllow(t *testing.T) {
	t.Parallel()
	w := &world{rules: []wRule{{layer: specs.LayerUser, effect: specs.EffectAllow}}}
	_, err := Compile(w.bundle())
	ds, _ := specs.AsDiagnostics(err)
	if len(ds.Errors()) != 1 || !strings.Contains(ds[0].Hint, "waive") {
		t.Errorf("%v", err)
	}
}

// TestRuleBudgetIsChargedWhereItMatched, and nowhere else.
func TestRuleBudgetIsChargedWhereItMatched(t *testing.T) {
	t.Parallel()
	docs := append(one("profile", "waive", `has(args.mode)`), policyLayer("asks", "profile", "[w.write]", "approve", "true", ""))
	docs[2] += "\n      budget: {maxCalls: 3}"
	p := compile(t, docs...)
	charged := func(d Decision) bool {
		return slices.ContainsFunc(d.Charges, func(c Charge) bool { return c.Owner == "pol/one" })
	}
	if d := ask1(p, `{"mode":"x"}`); !charged(d) || d.ApprovalRequired {
		t.Errorf("matched: %s", bytesOf1(t, d))
	}
	if d := ask1(p, `{}`); charged(d) || !d.ApprovalRequired || d.Budget.MaxCalls.Value != 80 {
		t.Errorf("not matched: %s", bytesOf1(t, d))
	}
}

// TestP6_TheFiveClasses: the five classes of calls that a person must agree to are asks of the shipped platform layer:
// only a platform rule waives them, and what is destructive no grant clears.
func TestP6_TheFiveClasses(t *testing.T) {
	t.Parallel()
	compileShipped := func(more ...string) *Policy {
		docs := append([]string{
			doc("Profile", "p", `{tools: {allow: ["*"]}}`),
			strings.Replace(toolDoc("net.post", openSchema), "{readOnly: true, sideEffect: none}", "{sideEffect: network}", 1),
			strings.Replace(toolDoc("net.get", openSchema), "{readOnly: true, sideEffect: none}", "{sideEffect: network, readOnly: true}", 1),
			strings.Replace(toolDoc("disk.wipe", openSchema), "{readOnly: true, sideEffect: none}", "{sideEffect: process, destructive: true}", 1),
			strings.Replace(toolDoc("big.think", openSchema), "{readOnly: true, sideEffect: none}", "{readOnly: true, sideEffect: none, cost: unknown}", 1),
			strings.Replace(toolDoc("srv.tool", openSchema), "source: built_in", "source: {kind: mcp, name: srv, tool: tool}", 1),
		}, more...)
		b, err := specs.LoadFiles([]specs.File{{Name: "policy.yaml", Data: []byte(strings.Join(docs, "\n---\n"))}}, specs.LoadOptions{})
		if err != nil {
			t.Fatalf("%v", err)
		}
		p, err := Compile(b)
		if err != nil {
			t.Fatalf("%v", err)
		}
		return p
	}
	asks := map[specs.ToolName]bool{"net.post": true, "net.get": false, "disk.wipe": true, "big.think": true, "srv.tool": true,
		"workspace.commit": true, "workspace.rollback": true, "workspace.write_file": false, "workspace.read_file": false}
	all := func(p *Policy, want func(bool) bool) {
		t.Helper()
		for tool, asked := range asks {
			d := p.Resolve(Input{Phase: PhaseList, Tool: tool, Run: RunFacts{Profile: "p"}})
			if !d.Callable || d.ApprovalRequired != want(asked) {
				t.Errorf("%s: callable %v, approvalRequired %v by %s", tool, d.Callable, d.ApprovalRequired, d.Rule)
			}
			for _, a := range d.Asks {
				if a.Layer != specs.LayerPlatform || (tool == "disk.wipe" || tool == "workspace.rollback") && a.Grantable {
					t.Errorf("%s: %+v", tool, a)
				}
			}
		}
	}
	same := func(b bool) bool { return b }
	all(compileShipped(), same)
	all(compileShipped(policyLayer("a", "user", `["*"]`, "waive", "true", ""), policyLayer("b", "profile", `["*"]`, "allow", "true", "")), same)
	all(compileShipped(policyLayer("a", "platform", `["*"]`, "waive", "true", "")), func(bool) bool { return false })
}

// TestListIsInCanonicalOrder whatever the order of documents.
func TestListIsInCanonicalOrder(t *testing.T) {
	t.Parallel()
	docs := []string{doc("Profile", "p", `{tools: {allow: ["*"]}}`)}
	for _, n := range []string{"z.a", "a.z", "m.m", "a.b"} {
		docs = append(docs, toolDoc(n, openSchema))
	}
	var got []specs.ToolName
	for _, d := range compile(t, docs...).List(Input{Run: RunFacts{Profile: "p"}}) {
		got = append(got, d.Tool)
	}
	if !slices.Equal(got, []specs.ToolName{"a.b", "a.z", "m.m", "z.a"}) {
		t.Errorf("%v", got)
	}
}
