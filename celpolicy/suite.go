package celpolicy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/callgate/callgate/specs"
)

// SuiteOptions says which tests to run and whether to measure what they reach.
type SuiteOptions struct {
	// Run keeps the cases whose "<suite>/<case>" matches; nil keeps all.
	Run *regexp.Regexp
	// Coverage asks for SuiteReport.Coverage.
	Coverage bool
}

// SuiteReport is the outcome of a bundle's PolicyTest documents.
type SuiteReport struct {
	Cases    []CaseReport `json:"cases"`
	Passed   int          `json:"passed"`
	Failed   int          `json:"failed"`
	Skipped  int          `json:"skipped"` // left out by SuiteOptions.Run
	Coverage *Coverage    `json:"coverage,omitempty"`
}

// CaseReport is one case: what was expected and what was decided instead.
type CaseReport struct {
	Suite    string      `json:"suite"`
	Case     string      `json:"case"`
	Pos      specs.Pos   `json:"pos"`
	Passed   bool        `json:"passed"`
	Diffs    []Diff      `json:"diffs,omitempty"`
	Decision Explanation `json:"decision"`
}

// Diff is one field that came out otherwise than expected.
type Diff struct {
	Field string `json:"field"`
	Want  string `json:"want"`
	Got   string `json:"got"`
}

// TestNow is the time of a case that names none.
var TestNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// RunSuite runs the tests of a bundle against a policy: usually the policy of the same bundle, in a comparison
// another one's.
func RunSuite(p *Policy, b *specs.Bundle, opts SuiteOptions) SuiteReport {
	rep := SuiteReport{Cases: []CaseReport{}}
	var cov *coverer
	if opts.Coverage {
		cov = newCoverer(p)
	}
	for _, suite := range b.Tests {
		for i := range suite.Cases {
			c := &suite.Cases[i]
			if opts.Run != nil && !opts.Run.MatchString(suite.Name+"/"+c.Name) {
				rep.Skipped++
				continue
			}
			r := runCase(p, b, suite, c)
			if cov != nil {
				if in, err := caseInput(b, suite, c); err == nil {
					cov.observe(in)
				}
			}
			if r.Passed {
				rep.Passed++
			} else {
				rep.Failed++
			}
			rep.Cases = append(rep.Cases, r)
		}
	}
	if cov != nil {
		rep.Coverage = cov.report()
	}
	return rep
}

func runCase(p *Policy, b *specs.Bundle, suite *specs.PolicyTest, c *specs.TestCase) CaseReport {
	r := CaseReport{Suite: suite.Name, Case: c.Name, Pos: c.Pos}
	in, err := caseInput(b, suite, c)
	if err != nil {
		r.Diffs = []Diff{{Field: "case", Want: "a case that can be run", Got: err.Error()}}
		return r
	}
	r.Decision = Explain(p, in)
	r.Diffs = compareCase(&r.Decision, &c.Expect)
	r.Passed = len(r.Diffs) == 0
	return r
}

// caseInput makes the input that a case describes.
func caseInput(b *specs.Bundle, suite *specs.PolicyTest, c *specs.TestCase) (Input, error) {
	in := Input{
		Phase: PhaseCall, Tool: specs.ToolName(c.Tool.Value), Args: c.Args.Raw, Now: TestNow,
		Run: RunFacts{Profile: specs.ProfileName(c.As.Profile), Node: specs.NodeID(c.As.Node), Labels: c.As.Labels,
			Round: c.As.Round, Depth: c.As.Depth},
		User: UserFacts{ID: specs.UserID(c.As.User)},
		Call: CallFacts{Sequence: c.Call.Sequence, Repeat: c.Call.Repeat},
	}
	if c.Phase != "" {
		in.Phase = Phase(c.Phase)
	}
	if c.Now != "" {
		at, err := time.Parse(time.RFC3339, c.Now)
		if err != nil {
			return in, fmt.Errorf("now: %q is not an RFC 3339 time", c.Now)
		}
		in.Now = at
	}
	if plan, node, ok := strings.Cut(c.As.Node, "/"); ok {
		in.Run.Plan, in.Run.Node = plan, specs.NodeID(node)
	}
	if t := b.Tenant; t != nil {
		in.Tenant = TenantFacts{ID: specs.TenantID(t.Name), Labels: t.Labels}
		if u, ok := t.Users[c.As.User]; ok {
			in.User.Roles, in.User.Labels = u.Roles, u.Labels
		}
	}
	if u, ok := suite.Users[c.As.User]; ok {
		in.User.Roles, in.User.Labels = u.Roles, u.Labels
	}
	if c.As.Tenant != "" {
		t, ok := suite.Tenants[c.As.Tenant]
		if !ok && string(in.Tenant.ID) != c.As.Tenant {
			return in, fmt.Errorf("as.tenant: the suite has no tenant %q", c.As.Tenant)
		}
		if ok {
			in.Tenant = TenantFacts{ID: specs.TenantID(c.As.Tenant), Labels: t.Labels}
		}
	}
	if len(c.Budget) > 0 {
		in.Budget.Used = map[string]int64{}
	}
	for key, n := range c.Budget {
		name, ok := budgetKey(key)
		if !ok {
			return in, fmt.Errorf("budget: %q is no dimension; use calls, outputTokens or cost", key)
		}
		in.Budget.Used[name] = n
	}
	return in, nil
}

// budgetKey accepts both ways to name a dimension: by what was used (calls) and by its limit (maxCalls).
func budgetKey(s string) (string, bool) {
	switch s {
	case keyCalls, string(DimCalls):
		return keyCalls, true
	case keyTokens, string(DimOutputTokens):
		return keyTokens, true
	case keyCost, string(DimCost):
		return keyCost, true
	}
	return "", false
}

func compareCase(d *Explanation, want *specs.TestExpect) []Diff {
	var out []Diff
	differ := func(field, want, got string) {
		if want != got {
			out = append(out, Diff{field, want, got})
		}
	}
	for _, b := range []struct {
		field string
		want  *bool
		got   bool
	}{{"visible", want.Visible, d.Visible}, {"callable", want.Callable, d.Callable}, {"approvalRequired", want.ApprovalRequired, d.ApprovalRequired}} {
		if b.want != nil {
			differ(b.field, fmt.Sprint(*b.want), fmt.Sprint(b.got))
		}
	}
	if want.Rule.Value != "" {
		differ("rule", want.Rule.Value, string(d.Rule))
	}
	if want.Reason != nil {
		differ("reason", *want.Reason, d.Reason)
	}
	if want.Message != nil {
		differ("message", *want.Message, d.Message)
	}
	for _, key := range slices.Sorted(maps.Keys(want.Budget)) {
		name, _ := budgetKey(key)
		got := fmt.Sprintf("%q is no limit", key)
		switch {
		case name == keyCalls:
			got = fmt.Sprint(d.Budget.MaxCalls.Value)
		case name == keyTokens:
			got = fmt.Sprint(d.Budget.MaxOutputTokens.Value)
		case name == keyCost:
			got = fmt.Sprint(d.Budget.MaxCost.Value)
		case key == "timeout":
			got = fmt.Sprint(int64(d.Budget.Timeout))
		}
		differ("budget."+key, fmt.Sprint(want.Budget[key]), got)
	}
	return out
}

// Text is the report for a person at a terminal: failures in full, passes as a count.
func (r SuiteReport) Text() string {
	var b strings.Builder
	for i := range r.Cases {
		c := &r.Cases[i]
		if c.Passed {
			continue
		}
		at := c.Pos.String()
		if at != "" {
			at += ": "
		}
		fmt.Fprintf(&b, "%sFAIL %s/%s\n", at, c.Suite, c.Case)
		for _, d := range c.Diffs {
			fmt.Fprintf(&b, "    %-16s expected %s, got %s\n", d.Field, orNothing(d.Want), orNothing(d.Got))
		}
		if c.Decision.Tool != "" {
			fmt.Fprintf(&b, "    decided: %s; %s\n", c.Decision.headline(), c.Decision.Reason)
		}
	}
	fmt.Fprintf(&b, "%d passed, %d failed", r.Passed, r.Failed)
	if r.Skipped > 0 {
		fmt.Fprintf(&b, ", %d left out", r.Skipped)
	}
	b.WriteString("\n")
	if r.Coverage != nil {
		b.WriteString(r.Coverage.Text())
	}
	return b.String()
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
