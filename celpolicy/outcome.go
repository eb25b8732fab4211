package celpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/callgate/callgate/specs"
)

// decision draws the sum of what was heard.
func (h *hearing) decision() Decision {
	in := h.ev.in
	d := Decision{
		Tool: in.Tool, Phase: in.Phase, Budget: h.limits.limits, Charges: h.limits.charges,
		PolicyDigest: h.ev.p.digest, Grants: h.grants,
	}
	for _, a := range h.asks {
		d.Asks = append(d.Asks, a.Ask)
	}
	d.ApprovalRequired = len(d.Asks) > 0
	d.Visible = len(h.refusals) == 0
	d.VisibleToUser = !slices.ContainsFunc(h.refusals, func(r refusal) bool { return !r.onlyMe })
	for _, r := range h.sorted() {
		if !r.missing && !slices.Contains(d.DeniedBy, r.rule) {
			d.DeniedBy = append(d.DeniedBy, r.rule)
		}
	}
	d.Callable = d.Visible && h.limits.exhausted == ""
	won := -1
	switch {
	case d.Callable:
		won = h.accepted(&d)
	case !d.Visible:
		won = h.refused(&d)
	default:
		d.Code, d.Rule, d.Layer = CodeBudgetExhausted, h.limits.by, h.limits.layer
		d.Reason = "the budget is used up: " + h.limits.exhausted
		d.Message = fmt.Sprintf("The budget for %s is used up: %s.", in.Tool, h.limits.exhausted)
	}
	d.Unknown = h.ev.unknown() && h.open && d.Visible
	d.Verdicts = h.verdicts
	if in.Trace {
		d.Trace = h.trace(won)
	}
	return d
}

// sorted puts refusals in the order in which they are named: real denies before silence, then by layer, then
// a plain deny before one that could not be decided before a hide, then by rule.
func (h *hearing) sorted() []refusal {
	out := slices.Clone(h.refusals)
	slices.SortStableFunc(out, func(x, y refusal) int {
		return cmp.Or(compareBool(x.missing, y.missing), cmp.Compare(voiceRank(x.layer), voiceRank(y.layer)),
			cmp.Compare(x.weight, y.weight), cmp.Compare(x.rule, y.rule), cmp.Compare(x.text, y.text))
	})
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (h *hearing) refused(d *Decision) int {
	r := h.sorted()[0]
	d.Code, d.Rule, d.Layer, d.Reason = r.code, r.rule, r.layer, r.text
	d.Message = ModelMessageUnavailable(d.Tool)
	if r.r != nil {
		word := "denies it"
		if r.r.rule.Effect == specs.EffectHide {
			word = "hides it"
		}
		fallback := fmt.Sprintf("%s %s", r.r.id, word)
		if r.text != "" {
			fallback = fmt.Sprintf("%s %s: %s", r.r.id, word, r.text)
		}
		d.Reason = fallback
		if r.code != CodePolicyError {
			d.Reason = h.reason(r.r, fallback)
		}
		if m := strings.TrimSpace(r.r.rule.Message.Value); m != "" {
			d.Message = m
		}
		d.OnDeny = r.r.rule.OnDeny
	}
	d.OnDeny = cmp.Or(d.OnDeny, specs.OnDenyResult)
	return r.voice
}

func (h *hearing) accepted(d *Decision) int {
	if len(h.asks) > 0 {
		a := h.asks[0]
		d.Rule, d.Layer, d.Reason = a.Rule, a.Layer, a.Reason
		if d.Reason == "" {
			d.Reason = fmt.Sprintf("%s asks for approval", a.Rule)
		}
		return a.voice
	}
	layer := specs.LayerProfile
	if h.ev.planSpeaks(h.node, h.child) == triYes {
		layer = specs.LayerPlan
	}
	g := h.allowed[layer]
	if g == nil {
		return -1
	}
	d.Rule, d.Layer = g.rule, layer
	d.Reason = fmt.Sprintf("%s allows it", g.rule)
	if r := h.ev.p.byRule[g.rule]; r != nil && !g.list {
		d.Reason = h.reason(r, d.Reason)
	}
	return slices.IndexFunc(h.voices, func(v Voice) bool { return v.Rule == g.rule && v.Effect == specs.EffectAllow })
}

// reason gives a rule's own words, or fallback when it has none or they cannot be worked out.
func (h *hearing) reason(r *compiledRule, fallback string) string {
	if h.quiet {
		return fallback
	}
	if r.reason != nil {
		if s, err := h.ev.text(r.reason); err == nil && s != "" {
			return s
		}
		return fallback
	}
	return cmp.Or(strings.TrimSpace(r.rule.Reason.Value), fallback)
}

// trace puts every voice in the order of layers and rules, and marks the one that decided.
func (h *hearing) trace(won int) []Voice {
	if won >= 0 {
		h.voices[won].Won = true
	}
	out := slices.Clone(h.voices)
	for i := range out {
		v := &out[i]
		if r := h.ev.p.byRule[v.Rule]; r != nil && (v.Outcome == Matched || v.Outcome == Errored || v.Outcome == Waived) {
			v.Reason = h.reason(r, "")
		}
	}
	slices.SortStableFunc(out, func(x, y Voice) int {
		return cmp.Or(cmp.Compare(voiceRank(x.Layer), voiceRank(y.Layer)), cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Note, y.Note))
	})
	return out
}

// Tighten lets a policy in force narrow a decision that was pinned before it: its explicit denies and hides
// count and nothing else of it. It never allows, never drops an ask, never raises a limit.
func Tighten(pinned, live Decision) Decision {
	if len(live.DeniedBy) == 0 {
		return pinned
	}
	out := pinned
	for _, by := range live.DeniedBy {
		if !slices.Contains(out.DeniedBy, by) {
			out.DeniedBy = append(slices.Clip(out.DeniedBy), by)
		}
	}
	out.VisibleToUser = pinned.VisibleToUser && live.VisibleToUser
	if !live.Visible {
		out.Visible = false
	}
	if !pinned.Callable {
		return out
	}
	out.Callable = false
	out.Code, out.Rule, out.Layer = live.Code, live.Rule, live.Layer
	out.Reason, out.Message, out.OnDeny = live.Reason, live.Message, live.OnDeny
	out.Verdicts = make(map[specs.LayerName]Verdict, len(pinned.Verdicts))
	for l, v := range pinned.Verdicts {
		out.Verdicts[l] = v
		if w := live.Verdicts[l]; (w == VerdictDeny || w == VerdictError) && strength(w) > strength(v) {
			out.Verdicts[l] = w
		}
	}
	if len(live.Trace) > 0 {
		out.Trace = slices.Clone(pinned.Trace)
		for _, v := range live.Trace {
			if v.Effect == specs.EffectDeny || v.Effect == specs.EffectHide {
				v.Note = strings.TrimSpace("by the policy in force " + v.Note)
				out.Trace = append(out.Trace, v)
			}
		}
	}
	return out
}
