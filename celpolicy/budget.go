package celpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

// The limits that hold where no layer says anything. All are per run; the timeout is of one attempt.
const (
	DefaultMaxCalls        int64 = 80
	DefaultMaxOutputTokens int64 = 1_000_000
	DefaultMaxCost         int64 = 1_000_000 // in the tenant's smallest money unit
	DefaultTimeout               = 60 * time.Second
	// DefaultUnknownCost is what a tool of unknown price is charged where the tenant says nothing.
	DefaultUnknownCost int64 = 100
)

// Keys of BudgetFacts.
const (
	keyCalls  = "calls"
	keyTokens = "outputTokens"
	keyCost   = "cost"
)

// OwnerRun is the Charge.Owner of the run's own limits.
const OwnerRun = "run"

const fromDefault = specs.VoiceDefault

type amounts struct{ calls, tokens, cost int64 }

// runLimits gives the run's own limits: the input's, met by the profile's, met by the defaults where both are silent.
func (p *Policy) runLimits(in *Input, profile specs.ProfileName) amounts {
	return runLimits(&in.Budget, p.profiles[profile])
}

func runLimits(b *BudgetFacts, prof *specs.Profile) amounts {
	out := amounts{DefaultMaxCalls, DefaultMaxOutputTokens, DefaultMaxCost}
	if prof != nil {
		if prof.Run.MaxCalls > 0 {
			out.calls = prof.Run.MaxCalls
		}
		if prof.Run.MaxCost != nil {
			out.cost = *prof.Run.MaxCost
		}
	}
	meet := func(have *int64, key string, spoke bool) {
		if v, ok := b.Limit[key]; ok && (!spoke || v < *have) {
			*have = v
		}
	}
	meet(&out.calls, keyCalls, prof != nil && prof.Run.MaxCalls > 0)
	meet(&out.tokens, keyTokens, false)
	meet(&out.cost, keyCost, prof != nil && prof.Run.MaxCost != nil)
	return out
}

func (p *Policy) defaultLimits() Limits {
	def := func(v int64) Limit { return Limit{Value: v, Per: specs.PerRun, From: fromDefault} }
	return Limits{MaxCalls: def(DefaultMaxCalls), MaxOutputTokens: def(DefaultMaxOutputTokens), MaxCost: def(DefaultMaxCost),
		Timeout: DefaultTimeout, TimeoutFrom: fromDefault}
}

// limitSet is every limit that applies, and what came of them.
type limitSet struct {
	limits    Limits
	charges   []Charge
	exhausted string // why the call cannot be paid, "" when it can
	by        specs.RuleID
	layer     specs.LayerName
}

// budgets lets all limits meet: the smallest of every dimension wins, and every counter must be able to pay.
func (h *hearing) budgets() {
	ev, set := h.ev, &h.limits
	t := h.entry.tool
	run := ev.p.runLimits(ev.in, ev.profile)
	from := fromDefault
	if prof := ev.p.profiles[ev.profile]; prof != nil {
		from = specs.VoiceOf(prof.Name, specs.VoiceRun)
	}
	for _, own := range []struct {
		dim   Dimension
		value int64
		def   int64
		used  int64
	}{
		{DimCalls, run.calls, DefaultMaxCalls, ev.in.Budget.Used[keyCalls]},
		{DimOutputTokens, run.tokens, DefaultMaxOutputTokens, ev.in.Budget.Used[keyTokens]},
		{DimCost, run.cost, DefaultMaxCost, ev.in.Budget.Used[keyCost]},
	} {
		who := from
		if own.value == own.def && own.dim != DimCalls {
			who = fromDefault
		}
		h.limit(Charge{Owner: OwnerRun, Per: specs.PerRun, Dimension: own.dim, Limit: own.value}, who, specs.LayerBudget)
		need := h.entry.price(ev.p, own.dim)
		if need > 0 && own.used > own.value-need {
			h.exhaust(fmt.Sprintf("the run has used %d of %d %s", own.used, own.value, own.dim.word()), who, specs.LayerBudget)
		}
	}
	set.limits.Timeout, set.limits.TimeoutFrom = 0, ""
	if src := ev.p.sources[t.Source.Name]; src != nil && src.Timeout > 0 {
		h.timeout(src.Timeout, specs.RuleID(src.Name+"/timeout"), specs.LayerSource)
	}
	h.limitsOf(h.entry.budget, string(specs.VoiceOf(t.Name, specs.VoiceBudget)), specs.LayerSpec)
	for _, r := range h.paying {
		h.limitsOf(r.budget, string(r.id), r.policy.doc.Layer)
	}
	if set.limits.TimeoutFrom == "" {
		set.limits.Timeout, set.limits.TimeoutFrom = DefaultTimeout, fromDefault
	}
	slices.SortFunc(set.charges, func(x, y Charge) int {
		return cmp.Or(cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.Dimension, y.Dimension), cmp.Compare(x.Per, y.Per))
	})
	if set.exhausted != "" {
		h.verdict(specs.LayerBudget, VerdictDeny)
	}
}

// price is what one call takes of a dimension. How long its answer is nobody knows before, so one token must be left.
func (e *toolEntry) price(p *Policy, d Dimension) int64 {
	if d != DimCost {
		return 1
	}
	if e.annotations.CostUnknown {
		return p.tenant.unknownCost
	}
	return max(0, e.annotations.Cost)
}

func (h *hearing) limitsOf(b compiledBudget, owner string, layer specs.LayerName) {
	id := specs.RuleID(owner)
	for i := range b.amounts {
		a := &b.amounts[i]
		v, known := h.amount(a, id)
		if known {
			h.limit(Charge{Owner: owner, Per: b.per, Dimension: a.dim, Limit: v}, id, layer)
		}
	}
	if b.timeout != nil {
		if v, known := h.amount(b.timeout, id); known {
			h.timeout(time.Duration(v), id, layer)
		}
	}
}

// amount evaluates one limit. An error is the strictest limit there is, 0; one that hangs on unknown arguments
// says nothing yet.
func (h *hearing) amount(a *compiledAmount, id specs.RuleID) (int64, bool) {
	if a.expr == nil {
		return max(0, a.value), true
	}
	v, unknown, err := h.ev.value(a.expr)
	if unknown {
		h.open = true
		return 0, false
	}
	if err == nil {
		switch n := v.(type) {
		case types.Int:
			return max(0, int64(n)), true
		case types.Duration:
			return max(0, int64(n.Duration)), true
		}
		err = fmt.Errorf("it gave %s", v.Type().TypeName())
	}
	for i := range h.voices {
		if h.voices[i].Rule == id {
			h.voices[i].Error = fmt.Sprintf("its budget %s could not be worked out and counts as 0: %v", a.dim, err)
		}
	}
	return 0, true
}

func (h *hearing) limit(c Charge, from specs.RuleID, layer specs.LayerName) {
	h.limits.charges = append(h.limits.charges, c)
	l := &h.limits.limits.MaxCalls
	switch c.Dimension {
	case DimOutputTokens:
		l = &h.limits.limits.MaxOutputTokens
	case DimCost:
		l = &h.limits.limits.MaxCost
	}
	next := Limit{Value: c.Limit, Per: c.Per, From: from}
	if l.From == "" || tighter(next, *l) {
		*l = next
	}
	if need := h.entry.price(h.ev.p, c.Dimension); c.Limit < need {
		h.exhaust(fmt.Sprintf("%s allows %d %s, this call needs %d", from, c.Limit, c.Dimension.word(), need), from, layer)
	}
}

// word is how a person calls a dimension.
func (d Dimension) word() string {
	switch d {
	case DimCalls:
		return "calls"
	case DimOutputTokens:
		return "output tokens"
	}
	return "cost"
}

// tighter orders limits: by value, and among equals by who set them, so that the order of files does not show.
// A voice of an author comes before the default.
func tighter(a, b Limit) bool {
	if a.Value != b.Value {
		return a.Value < b.Value
	}
	if (a.From == fromDefault) != (b.From == fromDefault) {
		return b.From == fromDefault
	}
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Per, b.Per)) < 0
}

func (h *hearing) timeout(v time.Duration, from specs.RuleID, layer specs.LayerName) {
	l := &h.limits.limits
	if l.TimeoutFrom == "" || v < l.Timeout || v == l.Timeout && from < l.TimeoutFrom {
		l.Timeout, l.TimeoutFrom = v, from
	}
	if v == 0 {
		h.exhaust(fmt.Sprintf("%s leaves no time for a call", from), from, layer)
	}
}

// exhaust keeps the first reason by order of voices and then by name.
func (h *hearing) exhaust(text string, by specs.RuleID, layer specs.LayerName) {
	s := &h.limits
	if s.exhausted == "" || cmp.Or(cmp.Compare(voiceRank(layer), voiceRank(s.layer)), cmp.Compare(by, s.by), cmp.Compare(text, s.exhausted)) < 0 {
		s.exhausted, s.by, s.layer = text, by, layer
	}
}
