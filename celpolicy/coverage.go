package celpolicy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"

	"github.com/callgate/callgate/specs"
)

// Coverage says which rules, and which branches of their conditions, a suite has reached.
type Coverage struct {
	Rules   []RuleCoverage `json:"rules"`
	Covered int            `json:"covered"` // branches
	Total   int            `json:"total"`
}

// RuleCoverage is one rule's branches.
type RuleCoverage struct {
	Rule     specs.RuleID     `json:"rule"`
	Pos      specs.Pos        `json:"pos"`
	Branches []BranchCoverage `json:"branches"`
}

// BranchCoverage counts how often a condition, or an operand of its &&, ||, ! and ?:, came out either way. A
// rule without a condition has one branch, that it was asked.
type BranchCoverage struct {
	Text  string    `json:"text,omitempty"` // empty: the whole rule
	Pos   specs.Pos `json:"pos"`
	True  int       `json:"true"`
	False int       `json:"false"`
	Only  bool      `json:"only,omitempty"` // it has no false side
}

type coverer struct {
	p     *Policy
	c     *compiler
	rules map[specs.RuleID]*ruleProbe
	order []specs.RuleID
}

type ruleProbe struct {
	rule  *compiledRule
	parts []probe
}

type probe struct {
	expr   *expr // nil: the rule itself
	branch BranchCoverage
}

func newCoverer(p *Policy) *coverer {
	v := &coverer{p: p, rules: map[specs.RuleID]*ruleProbe{}}
	c, err := newCompiler(p.bundle)
	if err == nil {
		v.c = c
	}
	for _, pol := range p.policies {
		for _, r := range pol.rules {
			if pol.doc.Shipped {
				continue
			}
			rp := &ruleProbe{rule: r}
			if r.when == nil {
				rp.parts = []probe{{branch: BranchCoverage{Pos: r.rule.Pos, Only: true}}}
			} else {
				rp.parts = v.probes(r)
			}
			v.rules[r.id] = rp
			v.order = append(v.order, r.id)
		}
	}
	slices.Sort(v.order)
	return v
}

// probes takes a condition apart at &&, ||, ! and ?:. Each part is an expression of its own, asked beside the rule.
func (v *coverer) probes(r *compiledRule) []probe {
	whole := probe{expr: r.when, branch: BranchCoverage{Pos: r.rule.When.At(0), Text: oneLine(r.rule.When.Value)}}
	out := []probe{whole}
	if v.c == nil {
		return out
	}
	parsed := r.when.parsed.NativeRep()
	for _, part := range operands(parsed.Expr()) {
		text, err := parser.Unparse(part, parsed.SourceInfo())
		if err != nil {
			continue
		}
		e := v.c.expression(text)
		if e.program == nil || e.out.Kind() != types.BoolKind && e.out.Kind() != types.DynKind {
			continue
		}
		at := offsetOf(r.when.text, parsed.SourceInfo().GetStartLocation(leftmost(part).ID()))
		out = append(out, probe{expr: e, branch: BranchCoverage{Text: oneLine(text), Pos: r.rule.When.At(at)}})
	}
	return out
}

func operands(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind {
		return nil
	}
	var out []ast.Expr
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr, operators.Conditional:
		for _, a := range e.AsCall().Args() {
			if inner := operands(a); len(inner) > 0 {
				out = append(out, inner...)
			} else {
				out = append(out, a)
			}
		}
	case operators.LogicalNot:
		return operands(e.AsCall().Args()[0])
	}
	return out
}

// leftmost finds where an expression starts: cel-go places an operator at its sign.
func leftmost(e ast.Expr) ast.Expr {
	for {
		switch e.Kind() {
		case ast.SelectKind:
			e = e.AsSelect().Operand()
			continue
		case ast.CallKind:
			c := e.AsCall()
			if c.IsMemberFunction() {
				e = c.Target()
				continue
			}
			if len(c.Args()) > 1 && strings.Trim(c.FunctionName(), "_@!=<>+-*/%?[]&|in") == "" {
				e = c.Args()[0]
				continue
			}
		}
		return e
	}
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) > 80 {
		s = string([]rune(s)[:77]) + "..."
	}
	return s
}

// observe asks every rule that a decision asks, and every part of it.
func (v *coverer) observe(in Input) {
	e := v.p.tools[in.Tool]
	if e == nil {
		return
	}
	for _, r := range e.rules {
		rp := v.rules[r.id]
		if rp == nil {
			continue
		}
		ev := v.p.evaluation(&in, sightOf(in.Phase))
		ev.at(e)
		if ev.applies(r.policy, ev.profile, in.Run.Node) {
			for i := range rp.parts {
				part := &rp.parts[i]
				got := Matched
				if part.expr != nil {
					ev.spent = 0
					got, _ = ev.condition(part.expr)
				}
				switch got {
				case Matched:
					part.branch.True++
				case Unmatched:
					part.branch.False++
				}
			}
		}
		ev.release()
	}
}

func (v *coverer) report() *Coverage {
	out := &Coverage{Rules: []RuleCoverage{}}
	for _, id := range v.order {
		rp := v.rules[id]
		rc := RuleCoverage{Rule: id, Pos: rp.rule.rule.Pos}
		for _, part := range rp.parts {
			rc.Branches = append(rc.Branches, part.branch)
			out.Total++
			if part.branch.True > 0 {
				out.Covered++
			}
			if part.branch.Only {
				continue
			}
			out.Total++
			if part.branch.False > 0 {
				out.Covered++
			}
		}
		out.Rules = append(out.Rules, rc)
	}
	return out
}

// Text names every branch that no test has reached, and the share that was.
func (c *Coverage) Text() string {
	var b strings.Builder
	for _, r := range c.Rules {
		for _, br := range r.Branches {
			at := br.Pos.String()
			if at != "" {
				at += ": "
			}
			switch {
			case br.Only && br.True == 0:
				fmt.Fprintf(&b, "%s%s is never asked\n", at, r.Rule)
			case br.Only || br.True > 0 && br.False > 0:
			case br.True == 0 && br.False == 0:
				fmt.Fprintf(&b, "%s%s: never decided: %s\n", at, r.Rule, br.Text)
			case br.True == 0:
				fmt.Fprintf(&b, "%s%s: never true: %s\n", at, r.Rule, br.Text)
			default:
				fmt.Fprintf(&b, "%s%s: never false: %s\n", at, r.Rule, br.Text)
			}
		}
	}
	share := 100.0
	if c.Total > 0 {
		share = 100 * float64(c.Covered) / float64(c.Total)
	}
	fmt.Fprintf(&b, "coverage %.1f%%: %d of %d branches, %d rules\n", share, c.Covered, c.Total, len(c.Rules))
	return b.String()
}
