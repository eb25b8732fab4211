package celpolicy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/specs"
)

// The twin decides a world by reading the rules of combination off the page, slowly and without any of the
// resolver's code.

type truth int

const (
	no truth = iota
	yesTrue
	broken
	maybe
)

func (w *world) truthOf(c wCond, argsKnown bool) truth {
	switch c {
	case condNone, condTrue:
		return yesTrue
	case condFalse:
		return no
	case condError:
		return broken
	case condArgsError:
		if !argsKnown {
			return maybe
		}
		return broken
	case condOr:
		return yesTrue // t.one is asked
	case condAnd:
		return no
	}
	if !argsKnown {
		return maybe
	}
	if w.n > 0 {
		return yesTrue
	}
	return no
}

type verdictOfTwin struct {
	visible, callable, ask bool
	calls                  int64
	primary                specs.LayerName // of a deny, "" when nobody denies
	asks                   []specs.RuleID
}

func (w *world) speaks(r wRule) bool {
	return !r.other && (r.role == "" || r.role == w.role) && (r.layer != specs.LayerPlan || w.node != nil)
}

func (w *world) layerSpeaksOfAllows(l specs.LayerName) bool {
	return slices.ContainsFunc(w.rules, func(r wRule) bool {
		return r.layer == l && r.effect == specs.EffectAllow && (r.role == "" || r.role == w.role)
	})
}

// twin answers for one state of knowledge.
func (w *world) twin(argsKnown bool) verdictOfTwin {
	strict := func(t truth) bool { return t == yesTrue || t == broken }
	denies := map[specs.LayerName]bool{}
	allows := map[specs.LayerName]bool{}
	for _, l := range w.unreadable {
		denies[l] = true
	}
	list := func(l specs.LayerName, lists wLists) {
		if lists.deny != nil && *lists.deny {
			denies[l] = true
		}
		if lists.allow != nil && *lists.allow {
			allows[l] = true
		}
	}
	if !w.noProfile {
		list(specs.LayerProfile, w.profile)
	}
	if w.node != nil {
		list(specs.LayerPlan, *w.node)
	}
	out := verdictOfTwin{calls: 80}
	meet := func(n int64) {
		if n > 0 {
			out.calls = min(out.calls, n)
		}
	}
	meet(w.specCalls)
	if !w.noProfile {
		meet(w.runCalls)
	}
	for _, r := range w.rules {
		if !w.speaks(r) {
			continue
		}
		got := w.truthOf(r.cond, argsKnown)
		switch r.effect {
		case specs.EffectDeny, specs.EffectHide:
			if strict(got) {
				denies[r.layer] = true
			}
		case specs.EffectAllow:
			if got == yesTrue || got == maybe {
				allows[r.layer] = true
			}
			if got == yesTrue {
				meet(r.calls)
			}
		case specs.EffectApprove:
			if strict(got) {
				meet(r.calls)
			}
		case specs.EffectWaive:
			if got == yesTrue {
				meet(r.calls)
			}
		}
	}
	if w.permission == specs.PermissionDeny || w.visibility == specs.VisibleUser || w.visibility == specs.VisibleHidden {
		denies[specs.LayerSpec] = true
	}

	order := []specs.LayerName{specs.LayerPlatform, specs.LayerUser, specs.LayerPlan, specs.LayerProfile, specs.LayerSource, specs.LayerSpec}
	waived := func(asker specs.LayerName) bool {
		return slices.ContainsFunc(w.rules, func(r wRule) bool {
			return r.effect == specs.EffectWaive && w.speaks(r) && w.truthOf(r.cond, argsKnown) == yesTrue &&
				slices.Index(order, r.layer) <= slices.Index(order, asker)
		})
	}
	for i, r := range w.rules {
		if r.effect == specs.EffectApprove && w.speaks(r) && strict(w.truthOf(r.cond, argsKnown)) && !waived(r.layer) && !slices.Contains(w.grants, i) {
			out.asks = append(out.asks, ruleID(i))
		}
	}
	if w.permission == specs.PermissionApproval && !waived(specs.LayerSpec) {
		out.asks = append(out.asks, "t.one/permission")
	}
	out.ask = len(out.asks) > 0
	slices.Sort(out.asks)

	granter := specs.LayerProfile
	if w.node != nil && (w.node.allow != nil || w.layerSpeaksOfAllows(specs.LayerPlan)) {
		granter = specs.LayerPlan
	}
	granted := allows[granter] && !(granter == specs.LayerProfile && w.noProfile)
	for _, l := range []specs.LayerName{specs.LayerPlatform, specs.LayerSource} {
		if w.layerSpeaksOfAllows(l) && !allows[l] {
			granted = false
		}
	}
	for _, l := range []specs.LayerName{specs.LayerUser, specs.LayerPlatform, specs.LayerPlan, specs.LayerProfile, specs.LayerSource, specs.LayerSpec} {
		if denies[l] {
			out.primary = l
			break
		}
	}
	out.callable = granted && len(denies) == 0
	out.visible = out.callable
	return out
}

// TestTwinAgrees holds the resolver to a second, dumb reading of the same ten rules.
func TestTwinAgrees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		d := w.resolve(t)
		want := w.twin(w.phase != PhaseList)
		visible := w.twin(false).visible
		var asks []specs.RuleID
		for _, a := range d.Asks {
			asks = append(asks, a.Rule)
		}
		slices.Sort(asks)
		layer := specs.LayerName("")
		if len(d.DeniedBy) > 0 {
			layer = d.Layer
		}
		if d.Visible != visible || d.Callable != want.callable || d.ApprovalRequired != want.ask || layer != want.primary ||
			d.Budget.MaxCalls.Value != want.calls || !slices.Equal(asks, want.asks) {
			t.Fatalf("world %+v\nnode %+v\nwant %+v (visible %v)\ngot  %s", w, w.node, want, visible, bytesOf1(t, d))
		}
	})
}
