package specs

import "slices"

// Besides rules, other parts of a bundle speak in a decision. Each has a RuleID too, its owner and one of these words
// with a slash between them, so that traces, tests and people name every voice in the same way.
const (
	VoiceAllowList    = "tools.allow"  // of a profile; of a plan node, whose owner is <plan>/<node>
	VoiceDenyList     = "tools.deny"   // likewise
	VoiceRun          = "run"          // a profile's limits of a run
	VoicePermission   = "permission"   // a tool's own
	VoiceVisibility   = "visibility"   // a tool's own
	VoiceBudget       = "budget"       // a tool's own
	VoiceArguments    = "arguments"    // of a call that no rule can look at
	VoiceCapabilities = "capabilities" // of a source that does not accept a tool
	VoicePins         = "pins"         // of a source whose tool is new or another than before
)

// VoiceDefault speaks where nobody set a limit.
const VoiceDefault RuleID = "default"

// VoiceOf names a voice that is no rule's.
func VoiceOf(owner, word string) RuleID { return RuleID(owner + "/" + word) }

// Voices gives, sorted, every voice that can decide about a call of a root run under this bundle: what
// expect.rule of a test may name.
func (b *Bundle) Voices() []RuleID {
	out := []RuleID{VoiceDefault}
	say := func(can bool, owner, word string) {
		if can {
			out = append(out, VoiceOf(owner, word))
		}
	}
	lists := func(owner string, t *ProfileTools) {
		say(t.Allow != nil, owner, VoiceAllowList)
		say(len(t.Deny) > 0, owner, VoiceDenyList)
	}
	for _, p := range b.Policies {
		for i := range p.Rules {
			if r := &p.Rules[i]; r.Name != "" {
				out = append(out, p.ID(r))
			}
		}
	}
	for _, p := range b.Profiles {
		lists(p.Name, &p.Tools)
		say(true, p.Name, VoiceRun)
	}
	for _, p := range b.Plans {
		for i := range p.Nodes {
			lists(p.Name+"/"+string(p.Nodes[i].ID), &p.Nodes[i].Tools)
		}
	}
	imported := map[SourceName]bool{}
	for _, t := range b.Tools {
		say(t.Permission == PermissionApproval || t.Permission == PermissionDeny, t.Name, VoicePermission)
		say(!t.Visibility.Expr.IsZero() || t.Visibility.Word == VisibleUser || t.Visibility.Word == VisibleHidden, t.Name, VoiceVisibility)
		say(t.Budget.MaxCalls.Set || t.Budget.MaxOutputTokens.Set || t.Budget.MaxCost.Set || t.Budget.Timeout.Set, t.Name, VoiceBudget)
		say(true, t.Name, VoiceArguments)
		imported[t.Source.Name] = imported[t.Source.Name] || t.Source.Kind != SourceBuiltIn
	}
	for _, s := range b.Sources {
		say(imported[SourceName(s.Name)], s.Name, VoiceCapabilities)
		say(imported[SourceName(s.Name)], s.Name, VoicePins)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
