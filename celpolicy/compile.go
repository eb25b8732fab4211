package celpolicy

import (
	"cmp"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

// Policy is a compiled bundle. It never changes; any number of goroutines may ask it.
type Policy struct {
	bundle   *specs.Bundle
	digest   specs.Digest
	tools    map[specs.ToolName]*toolEntry
	names    []specs.ToolName // canonical order
	entries  []*toolEntry     // in the same order
	texts    int              // compiled expressions
	profiles map[specs.ProfileName]*specs.Profile
	sources  map[specs.SourceName]*specs.Source
	plans    map[string]*compiledPlan
	nodes    map[specs.NodeID][]*planNode // by id, over all plans
	policies []*compiledPolicy            // by layer, then name
	byRule   map[specs.RuleID]*compiledRule
	tenant   tenantDefaults
	warnings specs.Diagnostics
}

type tenantDefaults struct {
	profile     specs.ProfileName
	unknownCost int64
}

// compiledPolicy is a Policy document with what its layer can do.
type compiledPolicy struct {
	doc      *specs.Policy
	rank     int
	hasAllow bool // it sets a ceiling (platform, source), or speaks about allows (plan)
	rules    []*compiledRule
}

// compiledRule is one rule, ready to be asked.
type compiledRule struct {
	id       specs.RuleID
	policy   *compiledPolicy
	rule     *specs.Rule
	when     *expr // nil: always
	usesArgs bool  // of `when`
	reason   *expr // nil: the reason is text
	budget   compiledBudget
}

type compiledBudget struct {
	per     specs.Per
	amounts []compiledAmount // in the order calls, output tokens, cost
	timeout *compiledAmount
}

type compiledAmount struct {
	dim   Dimension
	value int64
	expr  *expr // nil: value
}

// Compile checks every expression of a bundle and makes it a Policy. The error is a *specs.InvalidError that
// holds all mistakes, each at its own line and column.
func Compile(b *specs.Bundle) (*Policy, error) {
	c, err := newCompiler(b)
	if err != nil {
		return nil, err
	}
	p := c.policy()
	c.diags.Sort()
	if err := c.diags.Err(); err != nil {
		return nil, err
	}
	p.warnings = c.diags.Warnings()
	return p, nil
}

// Digest names the bundle that the policy was made from.
func (p *Policy) Digest() specs.Digest { return p.digest }

// Bundle is what the policy was made from.
func (p *Policy) Bundle() *specs.Bundle { return p.bundle }

// Warnings are findings that do not stop a load: rules that can never matter, unguarded optional properties.
func (p *Policy) Warnings() specs.Diagnostics { return slices.Clone(p.warnings) }

type compiler struct {
	b       *specs.Bundle
	open    *cel.Env // args is any object
	core    *cel.Env // without args
	options []cel.ProgramOption
	args    argTypes
	envs    map[string]*cel.Env // by argument type
	memo    map[string]*expr
	shapes  map[specs.ToolName]*shape
	diags   specs.Diagnostics
}

func newCompiler(b *specs.Bundle) (*compiler, error) {
	env, err := shared()
	if err != nil {
		return nil, err
	}
	base, ok := env.CELTypeProvider().(*provider)
	if !ok {
		return nil, errEnvironment
	}
	own := &provider{Provider: base, structs: map[string]*structType{}}
	core, err := env.Extend(cel.CustomTypeProvider(own))
	if err != nil {
		return nil, err
	}
	open, err := core.Extend(cel.Variable(varArgs, openArgs))
	if err != nil {
		return nil, err
	}
	c := &compiler{
		b: b, core: core, open: open, options: programOptions(),
		args: argTypes{provider: own, made: map[string]*types.Type{}},
		envs: map[string]*cel.Env{}, memo: map[string]*expr{}, shapes: map[specs.ToolName]*shape{},
	}
	for _, t := range b.Tools {
		c.shapes[t.ToolName()] = shapeOf(t.InputSchema)
	}
	return c, nil
}

// voiceOrder is the order of primary reasons: whoever comes first is named when several deny.
var voiceOrder = []specs.LayerName{specs.LayerUser, specs.LayerPlatform, specs.LayerPlan, specs.LayerProfile,
	specs.LayerSource, specs.LayerSpec, specs.LayerBudget}

func voiceRank(l specs.LayerName) int { return slices.Index(voiceOrder, l) }

func (c *compiler) policy() *Policy {
	p := &Policy{
		bundle: c.b, digest: c.b.Digest,
		tools:    map[specs.ToolName]*toolEntry{},
		profiles: map[specs.ProfileName]*specs.Profile{},
		sources:  map[specs.SourceName]*specs.Source{},
		plans:    map[string]*compiledPlan{},
		nodes:    map[specs.NodeID][]*planNode{},
		byRule:   map[specs.RuleID]*compiledRule{},
		tenant:   tenantDefaults{unknownCost: DefaultUnknownCost},
	}
	if t := c.b.Tenant; t != nil {
		p.tenant.profile = specs.ProfileName(t.DefaultProfile.Value)
		if t.UnknownCost != nil {
			p.tenant.unknownCost = *t.UnknownCost
		}
	}
	for _, prof := range c.b.Profiles {
		p.profiles[specs.ProfileName(prof.Name)] = prof
	}
	for _, s := range c.b.Sources {
		p.sources[specs.SourceName(s.Name)] = s
	}
	for _, doc := range c.b.Policies {
		p.policies = append(p.policies, c.compilePolicy(doc))
	}
	slices.SortStableFunc(p.policies, func(x, y *compiledPolicy) int {
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.doc.Name, y.doc.Name))
	})
	for _, pol := range p.policies {
		for _, r := range pol.rules {
			p.byRule[r.id] = r
		}
	}
	for _, doc := range c.b.Plans {
		plan := c.compilePlan(doc)
		p.plans[doc.Name] = plan
		for id, n := range plan.nodes {
			p.nodes[id] = append(p.nodes[id], n)
		}
	}
	for _, t := range c.b.Tools {
		e := c.index(p, t)
		p.tools[t.ToolName()] = e
		p.names = append(p.names, t.ToolName())
	}
	slices.Sort(p.names)
	for i, name := range p.names {
		p.tools[name].at = i
		p.entries = append(p.entries, p.tools[name])
	}
	c.lint(p)
	p.texts = len(c.memo)
	return p
}

func (c *compiler) compilePolicy(doc *specs.Policy) *compiledPolicy {
	pol := &compiledPolicy{doc: doc, rank: specs.LayerRank(doc.Layer)}
	for i := range doc.Rules {
		r := &doc.Rules[i]
		if r.Effect == specs.EffectAllow {
			pol.hasAllow = true
			if doc.Layer == specs.LayerUser {
				c.report(specs.Diagnostic{Pos: orPos(r.EffectPos, r.Pos), Severity: specs.Error, Code: "user-allow",
					Message: "a user layer cannot allow: grants belong to a profile or an active plan node",
					Hint:    "to stop a question that this layer or one below asks, use effect: waive"})
			}
		}
		pol.rules = append(pol.rules, c.compileRule(pol, r))
	}
	return pol
}

func (c *compiler) compileRule(pol *compiledPolicy, r *specs.Rule) *compiledRule {
	out := &compiledRule{id: pol.doc.ID(r), policy: pol, rule: r}
	tools := c.selected(pol, r)
	if r.When.Value != "" || !r.When.Pos.IsZero() {
		out.when = c.check(use{text: r.When, what: "a condition", want: types.BoolType, tools: tools, rule: r})
		out.usesArgs = out.when != nil && out.when.usesArgs
	}
	if c.looksLikeCEL(r.Reason) {
		out.reason = c.check(use{text: r.Reason, what: "a reason", want: types.StringType, tools: tools, rule: r,
			hint: `a reason is text or a CEL string; to write prose that looks like CEL, put it in CEL quotes: '"like this"'`})
	}
	out.budget = c.compileBudget(r.Budget, tools, r)
	return out
}

func (c *compiler) compileBudget(b specs.Budget, tools []*specs.Tool, r *specs.Rule) compiledBudget {
	out := compiledBudget{per: cmp.Or(b.Per, specs.PerRun)}
	amount := func(dim Dimension, set bool, value int64, text specs.Text, want *types.Type) *compiledAmount {
		if !set {
			return nil
		}
		a := &compiledAmount{dim: dim, value: value}
		if text.Value != "" {
			a.expr = c.check(use{text: text, what: "a budget", want: want, tools: tools, rule: r})
		}
		return a
	}
	for _, v := range []struct {
		dim Dimension
		in  specs.IntValue
	}{{DimCalls, b.MaxCalls}, {DimOutputTokens, b.MaxOutputTokens}, {DimCost, b.MaxCost}} {
		if a := amount(v.dim, v.in.Set, v.in.Const, v.in.Expr, types.IntType); a != nil {
			out.amounts = append(out.amounts, *a)
		}
	}
	out.timeout = amount("timeout", b.Timeout.Set, b.Timeout.Const, b.Timeout.Expr, types.DurationType)
	return out
}

// selected gives the tools that a rule can ever be asked about.
func (c *compiler) selected(pol *compiledPolicy, r *specs.Rule) []*specs.Tool {
	var out []*specs.Tool
	for _, t := range c.b.Tools {
		if selects(r, t) && (pol.doc.Layer != specs.LayerSource || matchSource(pol.doc.Match, t)) {
			out = append(out, t)
		}
	}
	return out
}

func selects(r *specs.Rule, t *specs.Tool) bool {
	return slices.ContainsFunc(r.Tools, func(g specs.Text) bool { return specs.MatchTool(g.Value, t) })
}

func orPos(p, q specs.Pos) specs.Pos {
	if p.IsZero() {
		return q
	}
	return p
}
