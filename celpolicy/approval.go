package celpolicy

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/callgate/callgate/specs"
)

// What an ask says where its author says nothing.
const (
	DefaultApprover   specs.Role = "approver"
	DefaultQuorum                = 1
	DefaultTTL                   = 15 * time.Minute
	maxGrantPathDepth            = 32
)

// filled gives an approval with every default written out.
func filled(a *specs.Approval) specs.Approval {
	var out specs.Approval
	if a != nil {
		out = *a
		out.Approvers.Roles, out.Approvers.Users = slices.Clone(a.Approvers.Roles), slices.Clone(a.Approvers.Users)
	}
	if len(out.Approvers.Roles) == 0 && len(out.Approvers.Users) == 0 {
		out.Approvers.Roles = []specs.Role{DefaultApprover}
	}
	out.Quorum = cmp.Or(out.Quorum, DefaultQuorum)
	out.TTL = cmp.Or(out.TTL, DefaultTTL)
	out.OnExpire = cmp.Or(out.OnExpire, specs.OnExpireReject)
	return out
}

// grantable says whether a remembered grant may answer an ask: yes, but for destructive tools and rollback only
// where the author says so.
func (e *toolEntry) grantable(a *specs.Approval) bool {
	if a != nil && a.Grantable != nil {
		return *a.Grantable
	}
	return !e.annotations.Destructive && e.tool.ToolName() != toolRollback
}

func (h *hearing) askOf(r *compiledRule, voice int) *ask {
	layer := r.policy.doc.Layer
	a := Ask{Rule: r.id, Layer: layer, Approval: filled(r.rule.Approval), Grantable: h.entry.grantable(r.rule.Approval)}
	a.Approval.Grantable = nil // Ask.Grantable is the answer
	a.Reason = h.reason(r, "")
	return &ask{Ask: a, rank: specs.LayerRank(layer), voice: voice}
}

// waive clears asks: by a waive rule of a layer at or above the asker, or by a remembered grant.
func (h *hearing) waive() {
	var left []*ask
	for _, a := range h.asks {
		i := slices.IndexFunc(h.waives, func(w *compiledRule) bool { return w.policy.rank <= a.rank })
		if i >= 0 {
			h.clear(a, "waived by "+string(h.waives[i].id))
			continue
		}
		if g := h.ev.grantFor(a.Rule, a.Grantable); g != "" {
			h.clear(a, "cleared by grant "+g)
			h.grants = append(h.grants, g)
			continue
		}
		left = append(left, a)
	}
	slices.SortStableFunc(left, func(x, y *ask) int {
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.Rule, y.Rule))
	})
	h.asks = left
	slices.Sort(h.grants)
	h.grants = slices.Compact(h.grants)
	for _, l := range voiceOrder {
		if h.verdicts[l] == VerdictAsk && !slices.ContainsFunc(left, func(a *ask) bool { return a.Layer == l }) {
			h.verdicts[l] = VerdictNone
			if h.allowed[l] != nil {
				h.verdicts[l] = VerdictAllow
			}
		}
	}
}

func (h *hearing) clear(a *ask, note string) {
	if a.voice >= 0 {
		h.voices[a.voice].Outcome, h.voices[a.voice].Note = Waived, note
	}
}

// grantFor finds the remembered grant that answers an ask for exactly this tool, definition, person, run and
// arguments. While arguments are unknown, only a grant for any arguments does.
func (ev *evaluation) grantFor(rule specs.RuleID, grantable bool) string {
	in := ev.in
	if !grantable || len(in.Grants) == 0 {
		return ""
	}
	best := ""
	for i := range in.Grants {
		g := &in.Grants[i]
		switch {
		case g.Tool != ev.entry.tool.ToolName(), g.ToolDigest != ev.entry.digest,
			g.Run != "" && g.Run != in.Run.ID, g.User != "" && g.User != in.User.ID,
			!g.Expires.IsZero() && !in.Now.Before(g.Expires), !slices.Contains(g.Rules, rule):
			continue
		}
		if len(g.Args) > 0 && (ev.unknown() || !grantArgs(g.Args, in.Args)) {
			continue
		}
		if best == "" || g.ID < best {
			best = g.ID
		}
	}
	return best
}

// grantArgs says whether every pointed-at argument has exactly the granted value, in canonical form.
func grantArgs(want map[string]string, raw []byte) bool {
	v, err := specs.DecodeJSON(raw, specs.JSONLimits{Bytes: MaxArgsBytes})
	if err != nil {
		return false
	}
	for pointer, canonical := range want {
		at, ok := follow(v, pointer)
		if !ok {
			return false
		}
		value, err := json.Marshal(at)
		if err != nil {
			return false
		}
		got, err := specs.CanonicalJSON(value)
		if err != nil || string(got) != canonical {
			return false
		}
	}
	return true
}

func follow(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	if !strings.HasPrefix(pointer, "/") || strings.Count(pointer, "/") > maxGrantPathDepth {
		return nil, false
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch t := v.(type) {
		case map[string]any:
			next, ok := t[part]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, ok := index(part, len(t))
			if !ok {
				return nil, false
			}
			v = t[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func index(s string, n int) (int, bool) {
	if s == "" || len(s) > 9 || len(s) > 1 && s[0] == '0' || !isDigits(s) {
		return 0, false
	}
	i := 0
	for _, c := range s {
		i = i*10 + int(c-'0')
	}
	return i, i < n
}
