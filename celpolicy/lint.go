package celpolicy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/callgate/callgate/specs"
)

// lint warns about rules that load and can never matter: whoever wrote them believes that they do.
func (c *compiler) lint(p *Policy) {
	for _, pol := range p.policies {
		if pol.doc.Shipped {
			continue
		}
		for _, r := range pol.rules {
			c.lintRule(p, pol, r)
		}
	}
	c.lintApprovers(p)
}

func (c *compiler) warn(r *compiledRule, pos specs.Pos, code, message, hint string) {
	c.report(specs.Diagnostic{Pos: orPos(pos, r.rule.Pos), Severity: specs.Warning, Code: code,
		Message: fmt.Sprintf("%s %s", r.id, message), Hint: hint})
}

func (c *compiler) lintRule(p *Policy, pol *compiledPolicy, r *compiledRule) {
	if why := c.silent(pol); why != "" {
		c.warn(r, r.rule.Pos, "unreachable-rule", "is never asked: "+why, "")
		return
	}
	if r.when != nil {
		if v, constant := r.when.constant(); constant && !v {
			c.warn(r, r.rule.When.Pos, "dead-rule", "can never match: its condition is false", "remove it")
			return
		}
	}
	if first := p.sameAs(r); first != "" {
		c.warn(r, r.rule.Pos, "duplicate-rule", "says the same as "+string(first), "remove one of them")
		return
	}
	tools := c.selected(pol, r.rule)
	switch e := r.rule.Effect; {
	case len(tools) == 0:
		return // the loader says what a selector without tools means
	case e != specs.EffectDeny && e != specs.EffectHide:
		if c.lintShadowed(p, pol, r, tools) {
			return
		}
	case e == specs.EffectHide && r.usesArgs:
		c.warn(r, r.rule.EffectPos, "hide-by-arguments", "cannot hide: when tools are listed nobody knows the arguments, so it only refuses calls",
			"use effect: deny, with a message for the model")
	}
	switch r.rule.Effect {
	case specs.EffectApprove:
		if !slices.ContainsFunc(tools, func(t *specs.Tool) bool { return c.granted(p, t) }) {
			c.warn(r, r.rule.Pos, "nobody-grants", "asks about tools that nobody grants"+forTools(toolNames(tools), 0),
				"an approve rule grants nothing: allow them in a profile's tools.allow or by an allow rule of the profile layer")
		}
	case specs.EffectWaive:
		if !slices.ContainsFunc(tools, func(t *specs.Tool) bool { return p.asked(t, pol.rank) }) {
			c.warn(r, r.rule.Pos, "waives-nothing", "waives asks that nobody makes: no approve rule of its layer or below selects these tools", p.askedAbove(tools, pol.rank))
		}
	case specs.EffectDeny, specs.EffectHide:
		if !r.rule.Budget.Pos.IsZero() {
			c.warn(r, r.rule.Budget.Pos, "unused-budget", "refuses, so its budget is never charged", "")
		}
	}
}

// silent says why a policy never speaks.
func (c *compiler) silent(pol *compiledPolicy) string {
	m := &pol.doc.Match
	for _, l := range []struct {
		what  string
		globs *[]specs.Text
	}{{"tenants", m.Tenants}, {"users", m.Users}, {"roles", m.Roles}, {"profiles", m.Profiles}, {"nodes", m.Nodes}, {"sources", m.Sources}} {
		if l.globs != nil && len(*l.globs) == 0 {
			return "its policy matches no " + l.what + " ([] matches nothing; leave the key out to match all)"
		}
	}
	if pol.doc.Layer == specs.LayerPlan && len(c.b.Plans) == 0 {
		return "it speaks for a plan node, and there is no plan"
	}
	return ""
}

// sameAs finds an earlier rule that says exactly the same.
func (p *Policy) sameAs(r *compiledRule) specs.RuleID {
	for _, pol := range p.policies {
		for _, q := range pol.rules {
			if q == r {
				return ""
			}
			if q.rule.Effect == r.rule.Effect && pol.rank == r.policy.rank && strings.TrimSpace(q.rule.When.Value) == strings.TrimSpace(r.rule.When.Value) &&
				sameTexts(q.rule.Tools, r.rule.Tools) && sameMatch(&pol.doc.Match, &r.policy.doc.Match) && sameLimits(q, r) {
				return q.id
			}
		}
	}
	return ""
}

// sameLimits keeps apart rules that differ in what they ask or pay: two budgets are two counters.
func sameLimits(q, r *compiledRule) bool {
	return q.rule.Approval == nil && r.rule.Approval == nil &&
		len(q.budget.amounts)+len(r.budget.amounts) == 0 && q.budget.timeout == nil && r.budget.timeout == nil
}

func sameTexts(a, b []specs.Text) bool {
	x, y := texts(a), texts(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func texts(in []specs.Text) []string {
	out := make([]string, len(in))
	for i, t := range in {
		out[i] = t.Value
	}
	return out
}

func dimensions(m *specs.Match) [6]*[]specs.Text {
	return [6]*[]specs.Text{m.Tenants, m.Users, m.Roles, m.Profiles, m.Nodes, m.Sources}
}

func sameMatch(a, b *specs.Match) bool {
	x, y := dimensions(a), dimensions(b)
	for i := range x {
		if (x[i] == nil) != (y[i] == nil) || x[i] != nil && !sameTexts(*x[i], *y[i]) {
			return false
		}
	}
	return true
}

// covers says whether a policy certainly speaks whenever the other one does.
func covers(wide, narrow *compiledPolicy) bool {
	if wide.doc.Layer == specs.LayerPlan && narrow.doc.Layer != specs.LayerPlan {
		return false
	}
	x, y := dimensions(&wide.doc.Match), dimensions(&narrow.doc.Match)
	for i := range x {
		if x[i] != nil && (y[i] == nil || !sameTexts(*x[i], *y[i])) {
			return false
		}
	}
	return true
}

func always(r *compiledRule) bool {
	if r.when == nil {
		return r.rule.When.IsZero()
	}
	v, constant := r.when.constant()
	return constant && v
}

// lintShadowed warns when something else already refuses every tool a rule selects.
func (c *compiler) lintShadowed(p *Policy, pol *compiledPolicy, r *compiledRule, tools []*specs.Tool) bool {
	by := map[string]bool{}
	for _, t := range tools {
		who := p.refusedAlways(t, pol)
		if who == "" {
			return c.lintCeiling(p, pol, r, tools)
		}
		by[who] = true
	}
	names := make([]string, 0, len(by))
	for n := range by {
		names = append(names, n)
	}
	slices.Sort(names)
	c.warn(r, r.rule.Pos, "shadowed-rule", "can never matter: every tool it selects is refused by "+strings.Join(names, ", "), "a deny is final; narrow it, or remove this rule")
	return true
}

// refusedAlways names who refuses a tool whenever a policy speaks, or "".
func (p *Policy) refusedAlways(t *specs.Tool, pol *compiledPolicy) string {
	e := p.tools[t.ToolName()]
	if t.Permission == specs.PermissionDeny {
		return t.Name + "/permission"
	}
	for _, q := range e.rules {
		if (q.rule.Effect == specs.EffectDeny || q.rule.Effect == specs.EffectHide) && always(q) && covers(q.policy, pol) {
			return string(q.id)
		}
	}
	return ""
}

// lintCeiling warns about a grant that a platform ceiling over everybody leaves out.
func (c *compiler) lintCeiling(p *Policy, pol *compiledPolicy, r *compiledRule, tools []*specs.Tool) bool {
	if r.rule.Effect != specs.EffectAllow || pol.doc.Layer == specs.LayerPlatform || pol.doc.Layer == specs.LayerSource {
		return false
	}
	ceiling := slices.IndexFunc(p.policies, func(q *compiledPolicy) bool {
		return q.doc.Layer == specs.LayerPlatform && q.hasAllow && covers(q, pol)
	})
	if ceiling < 0 {
		return false
	}
	for _, t := range tools {
		if slices.ContainsFunc(p.tools[t.ToolName()].rules, func(q *compiledRule) bool {
			return q.policy.doc.Layer == specs.LayerPlatform && q.rule.Effect == specs.EffectAllow
		}) {
			return false
		}
	}
	c.warn(r, r.rule.Pos, "outside-ceiling", fmt.Sprintf("grants nothing: the platform ceiling %s leaves out every tool it selects", p.policies[ceiling].doc.Name),
		"the ceiling is all that a platform layer allows; widen it there")
	return true
}

// granted says whether anybody grants a tool, under whatever condition.
func (c *compiler) granted(p *Policy, t *specs.Tool) bool {
	if t.ToolName() == toolReturn {
		return true
	}
	for _, prof := range c.b.Profiles {
		if prof.Tools.Allow != nil {
			if _, ok := listed(*prof.Tools.Allow, t); ok {
				return true
			}
		}
	}
	for _, plan := range c.b.Plans {
		for i := range plan.Nodes {
			if a := plan.Nodes[i].Tools.Allow; a != nil {
				if _, ok := listed(*a, t); ok {
					return true
				}
			}
		}
	}
	return slices.ContainsFunc(p.tools[t.ToolName()].rules, func(r *compiledRule) bool {
		l := r.policy.doc.Layer
		return r.rule.Effect == specs.EffectAllow && (l == specs.LayerProfile || l == specs.LayerPlan)
	})
}

// asked says whether any layer of at most a rank's strength asks about a tool.
func (p *Policy) asked(t *specs.Tool, rank int) bool {
	return t.Permission == specs.PermissionApproval || slices.ContainsFunc(p.tools[t.ToolName()].rules, func(r *compiledRule) bool {
		return r.rule.Effect == specs.EffectApprove && r.policy.rank >= rank
	})
}

// askedAbove is the hint for a waive that is too weak: who asks, and whose waive would clear it.
func (p *Policy) askedAbove(tools []*specs.Tool, rank int) string {
	for _, t := range tools {
		for _, r := range p.tools[t.ToolName()].rules {
			if l := r.policy.doc.Layer; r.rule.Effect == specs.EffectApprove && r.policy.rank < rank {
				return fmt.Sprintf("%s may ask, and only a waive of the %s layer or above it clears that", r.id, l)
			}
		}
	}
	return ""
}

func toolNames(tools []*specs.Tool) []string {
	out := make([]string, len(tools))
	for i, t := range tools {
		out[i] = t.Name
	}
	return out
}

// lintApprovers warns about asks that nobody of the tenant's own people could answer. A tenant that declares no
// users has them elsewhere, and nothing is known.
func (c *compiler) lintApprovers(p *Policy) {
	if c.b.Tenant == nil || len(c.b.Tenant.Users) == 0 {
		return
	}
	var shipped []string
	for _, pol := range p.policies {
		for _, r := range pol.rules {
			if r.rule.Effect != specs.EffectApprove {
				continue
			}
			a := filled(r.rule.Approval)
			n := c.approvers(a.Approvers)
			if n >= a.Quorum {
				continue
			}
			if pol.doc.Shipped {
				shipped = append(shipped, string(r.id))
				continue
			}
			pos := r.rule.Pos
			if r.rule.Approval != nil {
				pos = r.rule.Approval.Pos
			}
			c.warn(r, pos, "nobody-approves", fmt.Sprintf("asks for %d of %s, and the tenant has %d", a.Quorum, people(a.Approvers), n),
				"give somebody the role in the Tenant's users, or name other approvers")
		}
	}
	if len(shipped) > 0 {
		c.report(specs.Diagnostic{Pos: c.b.Tenant.Pos, Severity: specs.Warning, Code: "nobody-approves",
			Message: "nobody of the tenant's users can answer the asks of " + strings.Join(shipped, ", "),
			Hint:    "give somebody the role approver in the Tenant's users"})
	}
}

func (c *compiler) approvers(a specs.Approvers) int {
	n := 0
	for id, u := range c.b.Tenant.Users {
		if slices.Contains(a.Users, specs.UserID(id)) || slices.ContainsFunc(u.Roles, func(r specs.Role) bool { return slices.Contains(a.Roles, r) }) {
			n++
		}
	}
	return n
}

func people(a specs.Approvers) string {
	var out []string
	for _, r := range a.Roles {
		out = append(out, "the role "+string(r))
	}
	for _, u := range a.Users {
		out = append(out, string(u))
	}
	return strings.Join(out, " or ")
}
