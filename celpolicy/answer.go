package celpolicy

import (
	"slices"

	"github.com/callgate/callgate/specs"
)

// Answer is the short form of a Decision about one call: what a gate needs before it lets the call on.
type Answer struct {
	Callable         bool
	ApprovalRequired bool // of a callable call
	// Code is empty when callable; Rule and Layer name the voice that decided. See Decision.
	Code  string
	Rule  specs.RuleID
	Layer specs.LayerName
}

// Answer gives the short form.
func (d *Decision) Answer() Answer {
	return Answer{Callable: d.Callable, ApprovalRequired: d.Callable && d.ApprovalRequired, Code: d.Code, Rule: d.Rule, Layer: d.Layer}
}

// Check answers about one call as Resolve does, without reasons, budgets or trace, and allocates nothing where the
// arguments are Parsed and the rules about the tool are of the lowered subset. PhaseList is for Visible.
func (p *Policy) Check(in *Input) Answer {
	e := p.tools[in.Tool]
	if e == nil {
		return Answer{Code: CodeUnknownTool}
	}
	ev := p.evaluation(in, seesAll)
	r := p.residual(e, ev)
	if r == nil || r.beyond(ev) {
		ev.release()
		return p.slowly(in)
	}
	ev.entry = e
	a, ok := r.check(ev)
	ev.release()
	if !ok {
		return p.slowly(in)
	}
	return a
}

func (p *Policy) slowly(in *Input) Answer {
	whole := *in
	whole.Trace = false
	d := p.Resolve(whole)
	return d.Answer()
}

// beyond says that only Resolve can answer: a child, a listing, a computed budget, or conditions that could run out of
// what a decision may cost.
func (r *residual) beyond(ev *evaluation) bool {
	return r.hard || len(ev.in.Envelopes) > 0 || ev.in.Phase == PhaseList ||
		r.cost.most(len(ev.in.Args), r.rolesOf(ev)) > CostPerExpression
}

func (r *residual) rolesOf(ev *evaluation) uint64 {
	if r.cost.roles == 0 {
		return 0
	}
	return ev.rolesWeight()
}

// residual gives a tool's residual for a profile and node. Only those that the bundle has are kept: there is no end of
// others.
func (p *Policy) residual(e *toolEntry, ev *evaluation) *residual {
	run := &ev.in.Run
	if kept := e.residuals.Load(); kept != nil {
		for i := range *kept {
			if k := &(*kept)[i]; k.profile == ev.profile && k.node == run.Node && k.plan == run.Plan {
				return k.residual
			}
		}
	}
	if ev.profile != "" && p.profiles[ev.profile] == nil {
		return nil
	}
	if _, err := p.activeNode(run.Plan, run.Node); err != nil {
		return nil
	}
	if run.Node == "" && run.Plan != "" && p.plans[run.Plan] == nil {
		return nil
	}
	sees := ev.sees
	ev.sees = seesTool
	r := ev.residual(e)
	ev.sees, ev.ledger = sees, ledger{}
	e.keep(seat{ev.profile, run.Plan, run.Node, r})
	return r
}

// seat is where a tool is asked for.
type seat struct {
	profile specs.ProfileName
	plan    string
	node    specs.NodeID
	*residual
}

func (e *toolEntry) keep(s seat) {
	for {
		old := e.residuals.Load()
		var all []seat
		if old != nil {
			all = slices.Clip(*old)
		}
		if slices.ContainsFunc(all, func(k seat) bool { return k.profile == s.profile && k.plan == s.plan && k.node == s.node }) {
			return
		}
		all = append(all, s)
		if e.residuals.CompareAndSwap(old, &all) {
			return
		}
	}
}

// check answers a call. It says false when something went wrong inside, and Resolve must answer.
func (r *residual) check(ev *evaluation) (a Answer, ok bool) {
	defer func() {
		if recover() != nil {
			a, ok = Answer{}, false
		}
	}()
	if ev.read() == nil {
		return a, false
	}
	return r.decide(ev, r.refused(ev)), true
}

// decide draws the sum.
func (r *residual) decide(ev *evaluation, against fault) Answer {
	if against.order != 0 {
		return against.answer()
	}
	broke := r.broke
	granter, miss := r.granted(ev, &broke)
	if miss.order != 0 {
		return miss.answer()
	}
	ask, asked := r.asked(ev, &broke)
	r.runsOut(ev.p, &ev.in.Budget, &broke)
	switch {
	case broke.set:
		return broke.answer()
	case asked:
		return Answer{Callable: true, ApprovalRequired: true, Rule: ask.rule, Layer: ask.layer}
	}
	return Answer{Callable: true, Rule: granter, Layer: r.granter.layer}
}

func (f *fault) answer() Answer { return Answer{Code: f.code, Rule: f.rule, Layer: f.layer} }

func (x *exhaustion) answer() Answer {
	return Answer{Code: CodeBudgetExhausted, Rule: x.by, Layer: x.layer}
}

// ask asks an open rule. In a listing, what does not read the tool is asked once for all tools.
func (ev *evaluation) ask(o *openRule) tri {
	if o.matches && !ev.applies(o.policy, ev.profile, ev.in.Run.Node) {
		return triNo
	}
	if o.when == nil {
		return triYes
	}
	if len(ev.memo) == 0 || o.when.usesTool {
		return ev.test(o.when)
	}
	known := &ev.memo[o.when.place]
	if *known == 0 {
		*known = 1 + ev.test(o.when)
	}
	return *known - 1
}

// refused finds the refusal that is named. Denies that would be named later are not asked.
func (r *residual) refused(ev *evaluation) fault {
	worst := r.against
	for i := range r.denies {
		o := &r.denies[i]
		f := fault{o.order, o.policy.doc.Layer, o.id, CodeDenied}
		if !f.before(&worst) {
			break
		}
		switch ev.ask(o) {
		case triYes:
			if o.rule.Effect == specs.EffectHide {
				f.order, f.code = f.order+2, CodeHidden
			}
			worst.take(f)
		case triBad:
			f.order, f.code = f.order+1, CodePolicyError
			worst.take(f)
		}
	}
	if r.shown {
		f := fault{faultOrder(false, specs.LayerSpec, 2), specs.LayerSpec, specs.VoiceOf(r.entry.tool.Name, specs.VoiceVisibility), CodeHidden}
		switch ev.test(r.entry.visibility) {
		case triYes:
			return worst
		case triBad:
			f.order, f.code = f.order-1, CodePolicyError
		}
		worst.take(f)
	}
	return worst
}

// granted says who allows the call, or who should have and did not.
func (r *residual) granted(ev *evaluation, broke *exhaustion) (by specs.RuleID, miss fault) {
	granter := r.granter
	var few [2]ceiling
	ceilings := append(few[:0], r.ceilings...)
	for i := range r.allows {
		o := &r.allows[i]
		c := &granter
		layer := o.policy.doc.Layer
		if layer != granter.layer {
			c = nil
			for j := range ceilings {
				if ceilings[j].layer == layer {
					c = &ceilings[j]
				}
			}
		}
		if !o.pays && (c == nil || c.at < o.at) {
			continue
		}
		if ev.ask(o) != triYes {
			continue
		}
		if c != nil && o.at < c.at {
			c.by, c.at = o.id, o.at
		}
		if o.broke {
			broke.take(layer, o.id)
		}
	}
	if granter.never || granter.at > listPlace {
		miss.take(granter.miss)
	}
	for i := range ceilings {
		if ceilings[i].at > listPlace {
			miss.take(ceilings[i].miss)
		}
	}
	return granter.by, miss
}

// asked finds the first ask that nobody waives and no remembered grant answers.
func (r *residual) asked(ev *evaluation, broke *exhaustion) (first openAsk, found bool) {
	waived := r.waived
	for i := range r.waives {
		o := &r.waives[i]
		if !o.pays && (o.rank >= waived || len(r.asks) == 0 && len(r.approves) == 0) {
			continue
		}
		if ev.ask(o) == triYes {
			waived = min(waived, o.rank)
			if o.broke {
				broke.take(o.policy.doc.Layer, o.id)
			}
		}
	}
	stands := func(a *openAsk) bool {
		return a.rank < waived && ev.grantFor(a.rule, a.grant) == ""
	}
	for i := range r.asks {
		if stands(&r.asks[i]) {
			first, found = r.asks[i], true
			break
		}
	}
	for i := range r.approves {
		o := &r.approves[i]
		later := found && (o.rank > first.rank || o.rank == first.rank && o.id > first.rule)
		if later && !o.pays {
			continue
		}
		switch ev.ask(o) {
		case triYes, triBad:
		default:
			continue
		}
		if o.broke {
			broke.take(o.policy.doc.Layer, o.id)
		}
		if a := (openAsk{o.policy.doc.Layer, o.id, o.rank, o.grant}); !later && stands(&a) {
			first, found = a, true
		}
	}
	return first, found
}

// runsOut says whether the run's own limits leave nothing for this call.
func (r *residual) runsOut(p *Policy, f *BudgetFacts, broke *exhaustion) {
	limits := runLimits(f, r.prof)
	cost := r.entry.price(p, DimCost)
	if limits.calls-1 < f.Used[keyCalls] || limits.calls < 1 {
		broke.take(specs.LayerBudget, r.owner(DimCalls, limits.calls, DefaultMaxCalls))
	}
	if limits.tokens-1 < f.Used[keyTokens] || limits.tokens < 1 {
		broke.take(specs.LayerBudget, r.owner(DimOutputTokens, limits.tokens, DefaultMaxOutputTokens))
	}
	if cost > 0 && f.Used[keyCost] > limits.cost-cost || limits.cost < cost {
		broke.take(specs.LayerBudget, r.owner(DimCost, limits.cost, DefaultMaxCost))
	}
}

// owner names who set one of the run's own limits.
func (r *residual) owner(dim Dimension, value, def int64) specs.RuleID {
	if r.prof == nil || value == def && dim != DimCalls {
		return fromDefault
	}
	return specs.VoiceOf(r.prof.Name, specs.VoiceRun)
}
