package celpolicy

import (
	"cmp"
	"slices"

	"github.com/callgate/callgate/specs"
)

// residual is what is left of all that a bundle says about one tool once some of an input is known: the profile and
// node it is asked in, or with them the person and the run. What that settles is settled once; the rules that hang
// on more stay, in the order in which they are asked.
type residual struct {
	entry *toolEntry
	prof  *specs.Profile
	// against is the refusal that is certain and named first.
	against fault
	// Who must allow, and what is certain about each of them.
	granter  ceiling
	ceilings []ceiling
	asks     []openAsk // certain ones, in order
	waived   int       // the highest layer that certainly waives: its rank, or noRank
	broke    exhaustion
	denies   []openRule // in the order of naming
	approves []openRule // in the order of asks
	allows   []openRule
	waives   []openRule
	shown    bool // the tool's own visibility condition is still to be asked
	stateful bool // some open condition reads what changes from call to call
	hard     bool // only Resolve answers
	fixed    bool // nothing is open: decided answers, as long as the run's budget lasts
	decided  Answer
	cost     expense
}

// noRank is below every layer.
const noRank = 1 << 10

// fault is one reason against, as far as naming it goes; the zero fault is none.
type fault struct {
	order int // 1 + missing, the voice's rank, weight: the least is named
	layer specs.LayerName
	rule  specs.RuleID
	code  string
}

func (f *fault) before(g *fault) bool {
	return f.order != 0 && (g.order == 0 || f.order < g.order || f.order == g.order && f.rule < g.rule)
}

func (f *fault) take(g fault) {
	if g.before(f) {
		*f = g
	}
}

func faultOrder(missing bool, layer specs.LayerName, weight int) int {
	order := 1 + voiceRank(layer)<<8 + weight
	if missing {
		order += 1 << 16
	}
	return order
}

func (r *refusal) fault() fault {
	return fault{faultOrder(r.missing, r.layer, r.weight), r.layer, r.rule, r.code}
}

// ceiling is a layer that must allow: the granter, or one whose allows leave out the rest.
type ceiling struct {
	layer specs.LayerName
	by    specs.RuleID // who certainly allows, "" when nobody does yet
	at    int          // that rule's place; lists come after all rules
	never bool
	miss  fault // what it is when nobody does
}

const listPlace = 1 << 30

// openRule is a rule that is still to be asked.
type openRule struct {
	*compiledRule
	at      int  // its place among the rules of its tool
	matches bool // its policy's match is still to be asked
	order   int  // of denies: as a plain deny
	rank    int  // of its layer
	grant   bool // of approves: a remembered grant may answer
	pays    bool
	args    bool // nothing but arguments can settle it: a listing need not ask
	broke   bool // its limits leave nothing
}

type openAsk struct {
	layer specs.LayerName
	rule  specs.RuleID
	rank  int
	grant bool
}

// exhaustion is a limit that leaves nothing.
type exhaustion struct {
	set   bool
	layer specs.LayerName
	by    specs.RuleID
}

func (x *exhaustion) take(layer specs.LayerName, by specs.RuleID) {
	if !x.set || cmp.Or(cmp.Compare(voiceRank(layer), voiceRank(x.layer)), cmp.Compare(by, x.by)) < 0 {
		*x = exhaustion{true, layer, by}
	}
}

// residual settles what the evaluation can see of one tool. It never asks cel-go: that would look beyond.
func (ev *evaluation) residual(e *toolEntry) *residual {
	ev.at(e)
	p := ev.p
	h := ev.hearing(e)
	h.quiet = true
	r := &residual{entry: e, prof: p.profiles[ev.profile], waived: noRank}
	h.hearUnreadable()
	h.hearNode()
	h.hearLists()
	h.hearDocument()
	for at, rule := range e.rules {
		ev.ledger = ledger{}
		r.cost.add(rule.expense())
		r.hard = r.hard || rule.budget.computed()
		speaks := ev.speaks(rule.policy)
		if speaks == triNo {
			continue
		}
		outcome, settled := ev.settled(rule.when)
		if speaks == triYes && settled {
			h.heard(rule, outcome, nil, "")
			continue
		}
		r.keep(p, rule, at, speaks == triOpen)
	}
	if e.visibility != nil {
		r.cost.add(e.visibility.cost)
		if _, settled := ev.settled(e.visibility); !settled {
			r.shown = true
			r.stateful = r.stateful || e.visibility.stateful
		}
	}
	if !r.shown {
		h.hearVisibility()
	}
	r.freeze(h)
	r.hard = r.hard || r.cost.steep
	if r.fixed = !r.hard && !r.shown && len(r.denies)+len(r.approves)+len(r.allows)+len(r.waives) == 0; r.fixed {
		blank := *ev.in
		blank.Budget, blank.Grants = BudgetFacts{}, nil
		in := ev.in
		ev.in = &blank
		r.decided = r.decide(ev, r.against)
		ev.in = in
	}
	return r
}

// settled answers a condition when what can be seen is enough.
func (ev *evaluation) settled(e *expr) (Outcome, bool) {
	if e == nil {
		return Matched, true
	}
	if e.lowered == nil {
		return Unknown, false
	}
	switch ev.lowered(e) {
	case triYes:
		return Matched, true
	case triNo:
		return Unmatched, true
	case triBad:
		return Errored, !ev.beyond
	}
	return Unknown, false
}

// speaks is applies, for an evaluation that may not see the person yet.
func (ev *evaluation) speaks(pol *compiledPolicy) tri {
	m := &pol.doc.Match
	if ev.sees >= seesSubject || m.Tenants == nil && m.Users == nil && m.Roles == nil {
		return triOf(ev.applies(pol, ev.profile, ev.in.Run.Node))
	}
	if pol.doc.Layer == specs.LayerPlan && ev.in.Run.Node == "" || !globbed(m.Profiles, string(ev.profile)) || !matchNode(m.Nodes, ev.in.Run.Plan, ev.in.Run.Node) {
		return triNo
	}
	return triOpen
}

func (r *residual) keep(p *Policy, rule *compiledRule, at int, matches bool) {
	layer := rule.policy.doc.Layer
	o := openRule{compiledRule: rule, at: at, matches: matches, order: faultOrder(false, layer, 0), rank: rule.policy.rank,
		pays: rule.budget.speaks(), broke: rule.budget.broke(p, r.entry)}
	if w := rule.when; w != nil {
		r.stateful = r.stateful || w.stateful
		o.args = w.onlyArgs && !matches
	}
	switch rule.rule.Effect {
	case specs.EffectDeny, specs.EffectHide:
		r.denies = append(r.denies, o)
	case specs.EffectApprove:
		o.grant = r.entry.grantable(rule.rule.Approval)
		r.approves = append(r.approves, o)
	case specs.EffectAllow:
		r.allows = append(r.allows, o)
	case specs.EffectWaive:
		r.waives = append(r.waives, o)
	}
}

// freeze keeps what was heard.
func (r *residual) freeze(h *hearing) {
	p, e := h.ev.p, r.entry
	for i := range h.refusals {
		r.against.take(h.refusals[i].fault())
	}
	for _, a := range h.asks {
		r.asks = append(r.asks, openAsk{a.Layer, a.Rule, a.rank, a.Grantable})
	}
	byRank := func(ra, rb int, a, b specs.RuleID) int { return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(a, b)) }
	slices.SortFunc(r.asks, func(x, y openAsk) int { return byRank(x.rank, y.rank, x.rule, y.rule) })
	slices.SortFunc(r.approves, func(x, y openRule) int { return byRank(x.rank, y.rank, x.id, y.id) })
	for _, w := range h.waives {
		r.waived = min(r.waived, w.policy.rank)
	}
	for _, rule := range h.paying {
		if rule.budget.broke(p, e) {
			r.broke.take(rule.policy.doc.Layer, rule.id)
		}
	}
	if e.budget.broke(p, e) {
		r.broke.take(specs.LayerSpec, specs.VoiceOf(e.tool.Name, specs.VoiceBudget))
	}
	r.hard = r.hard || e.budget.computed() || e.tool.ToolName() == toolReturn
	r.whoAllows(h)
}

// whoAllows finds the layers that must allow. Where a policy's match is not settled, it may or may not be a ceiling.
func (r *residual) whoAllows(h *hearing) {
	granter := specs.LayerProfile
	switch speaks := h.ev.planSpeaks(h.node, false); {
	case speaks == triOpen:
		r.hard = true
	case speaks == triYes:
		granter = specs.LayerPlan
	}
	r.granter = r.ceilingOf(h, granter, CodeNotAllowed)
	r.granter.never = granter == specs.LayerProfile && h.ev.profile == ""
	for _, layer := range []specs.LayerName{specs.LayerPlatform, specs.LayerSource} {
		for _, pol := range h.ev.p.policies {
			if pol.doc.Layer != layer || !pol.hasAllow || layer == specs.LayerSource && !matchSource(pol.doc.Match, r.entry.tool) {
				continue
			}
			if speaks := h.ev.speaks(pol); speaks == triOpen {
				r.hard = true
			} else if speaks == triYes {
				r.ceilings = append(r.ceilings, r.ceilingOf(h, layer, CodeCeiling))
				break
			}
		}
	}
}

func (r *residual) ceilingOf(h *hearing, layer specs.LayerName, code string) ceiling {
	c := ceiling{layer: layer, at: listPlace + 1, miss: fault{faultOrder(true, layer, 3), layer, "", code}}
	if g := h.allowed[layer]; g != nil {
		c.by, c.at = g.rule, listPlace
		if !g.list {
			c.at = slices.IndexFunc(r.entry.rules, func(rule *compiledRule) bool { return rule.id == g.rule })
		}
	}
	return c
}

// expense bounds the rule's condition.
func (r *compiledRule) expense() expense {
	switch {
	case r.when == nil:
		return expense{}
	}
	return r.when.cost
}

func (b *compiledBudget) speaks() bool { return len(b.amounts) > 0 || b.timeout != nil }

// computed says that some limit is an expression.
func (b *compiledBudget) computed() bool {
	return b.timeout != nil && b.timeout.expr != nil ||
		slices.ContainsFunc(b.amounts, func(a compiledAmount) bool { return a.expr != nil })
}

// broke says that some limit is below what one call needs.
func (b *compiledBudget) broke(p *Policy, e *toolEntry) bool {
	return b.timeout != nil && b.timeout.expr == nil && b.timeout.value <= 0 ||
		slices.ContainsFunc(b.amounts, func(a compiledAmount) bool { return a.expr == nil && max(0, a.value) < e.price(p, a.dim) })
}
