package celpolicy

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"pgregory.net/rapid"

	"github.com/callgate/callgate/specs"
)

// A world is a small random bundle together with an input, written so that a reader can work out the answer
// by hand. The twin in twin_test.go does.
type world struct {
	rules      []wRule
	profile    wLists // of the profile "p"
	node       *wLists
	visibility specs.VisibleTo
	permission specs.Permission
	specCalls  int64 // 0: says nothing
	runCalls   int64
	unreadable []specs.LayerName
	n          int64 // args.n
	role       specs.Role
	noProfile  bool
	phase      Phase
	grants     []int // indexes of rules that a remembered grant answers
}

type wLists struct {
	allow, deny *bool // nil: the key is absent; false: a list that leaves the tool out
}

type wRule struct {
	layer  specs.LayerName
	effect specs.Effect
	cond   wCond
	role   specs.Role // the policy's match.roles, "" for everybody
	calls  int64      // budget, 0: none
	other  bool       // selects only the other tool
}

// wCond is a condition whose outcome is plain to see.
type wCond int

const (
	condNone wCond = iota
	condTrue
	condFalse
	condError
	condArgs      // args.n > 0
	condArgsError // fails once args are known
	condOr        // args.n > 0 || tool.name == "t.one": true without args
	condAnd       // args.n > 0 && tool.name == "t.two": false without args
	numConds
)

var condText = map[wCond]string{condTrue: "1 < 2", condFalse: "2 < 1", condError: "1 / (call.repeat - call.repeat) > 0",
	condArgs: "args.n > 0", condArgsError: "1 / (args.n - args.n) > 0",
	condOr: `args.n > 0 || tool.name == "t.one"`, condAnd: `args.n > 0 && tool.name == "t.two"`}

var ruleLayers = []specs.LayerName{specs.LayerPlatform, specs.LayerUser, specs.LayerPlan, specs.LayerProfile, specs.LayerSource}

func drawRule(t *rapid.T) wRule {
	r := wRule{
		layer: rapid.SampledFrom(ruleLayers).Draw(t, "layer"),
		cond:  wCond(rapid.IntRange(0, int(numConds)-1).Draw(t, "cond")),
		calls: rapid.SampledFrom([]int64{0, 0, 0, 3, 70}).Draw(t, "calls"),
		role:  rapid.SampledFrom([]specs.Role{"", "", "author", "auditor"}).Draw(t, "role"),
		other: rapid.IntRange(0, 5).Draw(t, "other") == 0,
	}
	effects := []specs.Effect{specs.EffectAllow, specs.EffectAllow, specs.EffectApprove, specs.EffectWaive, specs.EffectDeny, specs.EffectHide}
	if r.layer == specs.LayerUser {
		effects = effects[2:]
	}
	r.effect = rapid.SampledFrom(effects).Draw(t, "effect")
	return r
}

func drawLists(t *rapid.T) wLists {
	pick := func(name string, in []int) *bool {
		switch rapid.SampledFrom(in).Draw(t, name) {
		case 1:
			v := true
			return &v
		case 2:
			v := false
			return &v
		}
		return nil
	}
	return wLists{allow: pick("allow", []int{0, 1, 1, 1, 2}), deny: pick("deny", []int{0, 0, 0, 0, 0, 1, 2})}
}

func drawWorld(t *rapid.T) *world {
	w := &world{
		profile:    drawLists(t),
		visibility: rapid.SampledFrom([]specs.VisibleTo{"", "", "", "", specs.VisibleModel, specs.VisibleUser, specs.VisibleHidden}).Draw(t, "visibility"),
		permission: rapid.SampledFrom([]specs.Permission{"", specs.PermissionAllow, specs.PermissionAllow, specs.PermissionApproval, specs.PermissionDeny}).Draw(t, "permission"),
		specCalls:  rapid.SampledFrom([]int64{0, 0, 5}).Draw(t, "specCalls"),
		runCalls:   rapid.SampledFrom([]int64{0, 10}).Draw(t, "runCalls"),
		n:          rapid.Int64Range(-1, 1).Draw(t, "n"),
		role:       rapid.SampledFrom([]specs.Role{"author", "auditor"}).Draw(t, "userRole"),
		phase:      rapid.SampledFrom([]Phase{PhaseList, PhaseCall, PhaseDispatch}).Draw(t, "phase"),
		noProfile:  rapid.IntRange(0, 9).Draw(t, "noProfile") == 0,
	}
	for range rapid.IntRange(0, 5).Draw(t, "rules") {
		w.rules = append(w.rules, drawRule(t))
	}
	if rapid.Bool().Draw(t, "node") {
		l := drawLists(t)
		w.node = &l
	}
	if rapid.IntRange(0, 9).Draw(t, "unreadable") == 0 {
		w.unreadable = []specs.LayerName{rapid.SampledFrom(ruleLayers).Draw(t, "which")}
	}
	for i, r := range w.rules {
		if r.effect == specs.EffectApprove && rapid.IntRange(0, 3).Draw(t, "grant") == 0 {
			w.grants = append(w.grants, i)
		}
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.rules = slices.Clone(w.rules)
	c.grants = slices.Clone(w.grants)
	return &c
}

const worldSchema = `{"type":"object","additionalProperties":false,"required":["n"],"properties":{"n":{"type":"integer"}}}`

func ruleName(i int) string { return fmt.Sprintf("r%d", i) }

func policyName(i int) string { return fmt.Sprintf("pol%d", i) }

func ruleID(i int) specs.RuleID { return specs.RuleID(policyName(i) + "/" + ruleName(i)) }

func texts1(s ...string) []specs.Text {
	out := make([]specs.Text, len(s))
	for i, x := range s {
		out[i] = specs.TextOf(x)
	}
	return out
}

func (l wLists) lists() specs.ProfileTools {
	var out specs.ProfileTools
	if l.allow != nil {
		g := texts1("nothing.here")
		if *l.allow {
			g = texts1("t.one")
		}
		out.Allow = &g
	}
	if l.deny != nil {
		out.Deny = texts1("nothing.here")
		if *l.deny {
			out.Deny = texts1("t.*")
		}
	}
	return out
}

// bundle writes the world down, one policy for each rule.
func (w *world) bundle() *specs.Bundle {
	tool := func(name string) *specs.Tool {
		return &specs.Tool{Meta: specs.Meta{Name: name}, InputSchema: specs.Schema{Raw: json.RawMessage(worldSchema)},
			Source: specs.ToolSource{Kind: specs.SourceBuiltIn}, Annotations: specs.Annotations{ReadOnly: true}}
	}
	one := tool("t.one")
	one.Visibility.Word, one.Permission = w.visibility, w.permission
	if w.specCalls > 0 {
		one.Budget = specs.Budget{MaxCalls: specs.IntValue{Set: true, Const: w.specCalls}}
	}
	b := &specs.Bundle{Digest: "sha256:world", Tools: []*specs.Tool{one, tool("t.two")}, Unreadable: w.unreadable,
		Profiles: []*specs.Profile{{Meta: specs.Meta{Name: "p"}, Tools: w.profile.lists(), Run: specs.RunLimits{MaxCalls: w.runCalls}}}}
	if w.node != nil {
		b.Plans = []*specs.Plan{{Meta: specs.Meta{Name: "plan"}, Nodes: []specs.PlanNode{{ID: "node", Tools: w.node.lists()}}}}
	}
	for i, r := range w.rules {
		rule := specs.Rule{Name: ruleName(i), Tools: texts1("t.*"), Effect: r.effect, When: specs.TextOf(condText[r.cond])}
		if r.other {
			rule.Tools = texts1("t.two")
		}
		if r.calls > 0 {
			rule.Budget = specs.Budget{MaxCalls: specs.IntValue{Set: true, Const: r.calls}}
		}
		pol := &specs.Policy{Meta: specs.Meta{Name: policyName(i)}, Layer: r.layer, Rules: []specs.Rule{rule}}
		if r.role != "" {
			roles := texts1(string(r.role))
			pol.Match.Roles = &roles
		}
		b.Policies = append(b.Policies, pol)
	}
	return b
}

func (w *world) input(p *Policy) Input {
	in := Input{Phase: w.phase, Tool: "t.one", Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, w.n)), Now: TestNow,
		Run: RunFacts{ID: "run", Profile: "p"}, User: UserFacts{ID: "ann", Roles: []specs.Role{w.role}}, Trace: true}
	if w.node != nil {
		in.Run.Node = "node"
	}
	if w.noProfile {
		in.Run.Profile = ""
	}
	for _, i := range w.grants {
		in.Grants = append(in.Grants, Grant{ID: fmt.Sprintf("g%d", i), Tool: "t.one", ToolDigest: p.ToolDigest("t.one"), Rules: []specs.RuleID{ruleID(i)}})
	}
	return in
}

// resolve compiles and asks.
func (w *world) resolve(t failer) Decision {
	p, err := Compile(w.bundle())
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	return p.Resolve(w.input(p))
}

type failer interface {
	Fatalf(format string, args ...any)
}

func bytesOf1(t failer, v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	return string(raw)
}

func toInt(i int64) ref.Val { return types.Int(i) }

func toDouble(f float64) ref.Val { return types.Double(f) }

// panicking is a program with a fault of the engine in it.
type panicking struct{ cel.Program }

func (panicking) Eval(any) (ref.Val, *cel.EvalDetails, error) { panic("boom") }
