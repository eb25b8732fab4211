package celpolicy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

// house writes random bundles whose rules have conditions of every kind, for the law that the short answers are the long ones.
type house struct {
	exprGen
	c *compiler // to leave out conditions that do not load
}

func (g house) when(depth int) specs.Text {
	for {
		text := g.pick("", "", "1 < 2", "2 < 1", "1 / (call.repeat - call.repeat) > 0", "user.roles.exists(r, r == 'a')", g.cond(depth), g.cond(depth), g.cond(depth))
		if text == "" {
			return specs.Text{}
		}
		clear(g.c.memo)
		if g.c.check(use{text: specs.TextOf(text), what: "a condition", want: types.BoolType}) != nil {
			return specs.TextOf(text)
		}
	}
}

func (g house) globs(of ...string) *[]specs.Text {
	if g.IntN(3) != 0 {
		return nil
	}
	l := texts1(g.pick(of...))
	return &l
}

func (g house) lists() specs.ProfileTools {
	var out specs.ProfileTools
	switch g.IntN(5) {
	case 0:
	case 1:
		none := texts1("nothing.here")
		out.Allow = &none
	default:
		all := texts1("t.*")
		out.Allow = &all
	}
	if g.IntN(8) == 0 {
		out.Deny = texts1("t.one")
	}
	return out
}

func (g house) budget() (b specs.Budget) {
	switch g.IntN(12) {
	case 0:
		b.MaxCalls = specs.IntValue{Set: true, Const: 0}
	case 1:
		b.MaxCost = specs.IntValue{Set: true, Const: g.Int64N(3)}
	case 2:
		b.MaxCalls = specs.IntValue{Set: true, Expr: specs.TextOf("run.depth == 0 ? 3 : 0")}
	case 3:
		b.MaxOutputTokens = specs.IntValue{Set: true, Const: 7}
	}
	return b
}

func (g house) bundle() *specs.Bundle {
	b := &specs.Bundle{Digest: "sha256:house"}
	friendly := g.IntN(2) == 0 // nothing denies, so that what comes after denies matters
	for _, name := range []string{"t.one", "t.two", "task.return"} {
		t := &specs.Tool{Meta: specs.Meta{Name: name}, InputSchema: specs.Schema{Raw: json.RawMessage(`{"type":"object"}`)}, Source: specs.ToolSource{Kind: specs.SourceBuiltIn},
			Annotations: specs.Annotations{ReadOnly: g.IntN(2) == 0, Destructive: g.IntN(4) == 0, Cost: g.Int64N(3), CostUnknown: g.IntN(8) == 0}, Budget: g.budget()}
		switch n := g.IntN(10); {
		case friendly && n != 1:
		case n == 0:
			t.Permission = specs.PermissionDeny
		case n <= 2:
			t.Permission = specs.PermissionApproval
		case n == 3:
			t.Visibility.Word = specs.VisibleUser
		case n == 4:
			t.Visibility.Expr = specs.TextOf(g.pick("user.labels.tier == 'a'", "run.round < 3", "'a' in user.roles", "user.roles.exists(r, r == 'a')", "1 / run.depth > 0"))
		}
		b.Tools = append(b.Tools, t)
	}
	for _, name := range []string{"p", "a"} {
		prof := &specs.Profile{Meta: specs.Meta{Name: name}, Tools: g.lists()}
		if friendly {
			all := texts1("t.*")
			prof.Tools = specs.ProfileTools{Allow: &all}
		}
		if g.IntN(6) == 0 {
			prof.Run.MaxCalls = 1 + g.Int64N(9)
		}
		b.Profiles = append(b.Profiles, prof)
	}
	b.Plans = []*specs.Plan{{Meta: specs.Meta{Name: "b"}, Nodes: []specs.PlanNode{{ID: "n", Tools: g.lists()}}}}
	for i := range g.IntN(7) {
		layer := ruleLayers[g.IntN(len(ruleLayers))]
		effects := []specs.Effect{specs.EffectApprove, specs.EffectApprove, specs.EffectWaive, specs.EffectDeny, specs.EffectHide, specs.EffectAllow, specs.EffectAllow}
		switch {
		case layer == specs.LayerUser && friendly:
			effects = effects[:3]
		case layer == specs.LayerUser:
			effects = effects[:5]
		case friendly:
			effects = append(effects[:3], effects[5:]...)
		}
		pol := &specs.Policy{Meta: specs.Meta{Name: policyName(i)}, Layer: layer}
		for j := range 1 + g.IntN(3) {
			pol.Rules = append(pol.Rules, specs.Rule{Name: ruleName(j), Tools: texts1(g.pick("t.*", "t.*", "t.one", "*")), Effect: effects[g.IntN(len(effects))], When: g.when(g.IntN(3)), Budget: g.budget()})
		}
		pol.Match.Users, pol.Match.Roles, pol.Match.Profiles, pol.Match.Nodes, pol.Match.Tenants = g.globs("ann", "zed"), g.globs("a", "author"), g.globs("p", "a"), g.globs("n", "b/n"), g.globs("a", "x*")
		b.Policies = append(b.Policies, pol)
	}
	if g.IntN(15) == 0 {
		b.Unreadable = []specs.LayerName{ruleLayers[g.IntN(len(ruleLayers))]}
	}
	return b
}

// facts gives an input of this bundle, sometimes with a budget nearly used up, grants, a caller above, or names nobody knows.
func (g house) facts(p *Policy) Input {
	in := g.input()
	in.Tool = specs.ToolName(g.pick("t.one", "t.one", "t.two", "task.return", "t.none"))
	in.Run.Node, in.Run.Plan = "", ""
	if g.IntN(3) == 0 {
		in.Run.Node, in.Run.Plan = specs.NodeID(g.pick("n", "n", "gone")), g.pick("", "b", "b", "gone")
	}
	if g.IntN(8) == 0 {
		in.Run.Profile = specs.ProfileName(g.pick("", "gone"))
	}
	if g.IntN(6) == 0 {
		in.Budget.Limit = map[string]int64{keyCalls: g.Int64N(12), keyCost: g.Int64N(4)}
	}
	if g.IntN(12) == 0 {
		in.Envelopes = []Envelope{{Profile: "p"}}
	}
	for i := range g.IntN(3) {
		in.Grants = append(in.Grants, Grant{ID: fmt.Sprint("g", i), Tool: in.Tool, ToolDigest: p.ToolDigest(in.Tool), Rules: []specs.RuleID{ruleID(g.IntN(4)), specs.RuleID(policyName(g.IntN(4)) + "/" + ruleName(g.IntN(2)))}})
	}
	return in
}

// TestShortAnswersAreTheLongOnes is the law of Check, Visible and Surface: they say what Resolve says, with and without a
// memo, whatever has been asked before.
func TestShortAnswersAreTheLongOnes(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			g := house{exprGen: exprGen{rand.New(rand.NewPCG(*lowerSeed, uint64(100+w)))}}
			for range *lowerCases / 100 {
				if t.Failed() {
					return
				}
				codes := compareAnswers(t, g)
				mu.Lock()
				for _, c := range codes {
					seen[c]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Log(seen)
	for _, code := range []string{"ask", "yes", CodeNotAllowed, CodeCeiling, CodeDenied, CodeHidden, CodePolicyError, CodeBudgetExhausted, CodeEnvelope, CodeLayerUnreadable, CodeUnknownTool} {
		if seen[code] == 0 {
			t.Errorf("no case ended with %s", code)
		}
	}
}

func compareAnswers(t *testing.T, g house) (codes []string) {
	c, err := newCompiler(&specs.Bundle{})
	if err != nil {
		t.Error(err)
		return nil
	}
	g.c = c
	b := g.bundle()
	p, err := Compile(b)
	if err != nil {
		t.Errorf("%v", err)
		return nil
	}
	for range 6 {
		in := g.facts(p)
		s := p.Surface(in)
		for range 3 { // the same invocation at other moments
			later := g.facts(p)
			m := Moment{Args: later.Args, Parsed: later.Parsed, Call: later.Call, Budget: later.Budget, Grants: later.Grants, Round: later.Run.Round, NodeRounds: later.Run.NodeRounds,
				Commits: later.Run.Commits, Calls: later.Run.Calls, Now: later.Now}
			in = s.input(later.Tool, &m)
			d := p.Resolve(in)
			want := d.Answer()
			if got := p.Check(&in); got != want {
				t.Errorf("Check: %+v\nResolve: %+v\n%s", got, want, describe(b, in))
			}
			if got := s.Check(in.Tool, &m); got != want {
				t.Errorf("Surface.Check: %+v\nResolve: %+v\n%s", got, want, describe(b, in))
			}
			var shown []specs.ToolName
			for _, d := range p.List(in) {
				if d.Visible {
					shown = append(shown, d.Tool)
				}
			}
			if got := p.Visible(in); !slices.Equal(got, shown) {
				t.Errorf("Visible: %v\nList: %v\n%s", got, shown, describe(b, in))
			}
			if got := s.Visible(&m); !slices.Equal(got, shown) {
				t.Errorf("Surface.Visible: %v\nList: %v\n%s", got, shown, describe(b, in))
			}
			switch {
			case want.ApprovalRequired:
				codes = append(codes, "ask")
			case want.Callable:
				codes = append(codes, "yes")
			default:
				codes = append(codes, want.Code)
			}
			if t.Failed() {
				return codes
			}
		}
	}
	return codes
}

func describe(b *specs.Bundle, in Input) string {
	raw, _ := json.Marshal(in)
	out := string(raw) + "\n"
	for _, p := range b.Policies {
		for _, r := range p.Rules {
			out += fmt.Sprintf("%s %s/%s %s %v when %q budget %+v match %+v\n", p.Layer, p.Name, r.Name, r.Effect, r.Tools[0].Value, r.When.Value, r.Budget, p.Match)
		}
	}
	return out
}
