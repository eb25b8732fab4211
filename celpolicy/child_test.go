package celpolicy

import (
	"slices"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
)

// A child has what its own profile grants, within what its caller may pass on, under the denies of both. No rule of either is
// lost, nothing is refused that both let through, and whoever is refused is told by whom.
func TestCase_H52_ChildRulesMeetAndSayWhy(t *testing.T) {
	t.Parallel()
	const schema = `{type: object, additionalProperties: false, properties: {path: {type: string}}}`
	profile := func(name, spec string) string {
		return "apiVersion: callgate/v1\nkind: Profile\nmetadata: {name: " + name + "}\nspec: " + spec
	}
	rules := func(name, of, list string) string {
		return "apiVersion: callgate/v1\nkind: Policy\nmetadata: {name: " + name + "}\nspec: {layer: profile, match: {profiles: [" + of + "]}, rules: [" + list + "]}"
	}
	p := compile(t,
		toolDoc("w.both", schema), toolDoc("w.passed", schema), toolDoc("w.kept", schema), toolDoc("w.ungranted", schema),
		toolDoc("w.parent", schema), toolDoc("w.own", schema), toolDoc("w.asked", schema), toolDoc("w.when", schema),
		// The parent itself may use less than it may pass on: the two are two sets.
		profile("boss", `{tools: {allow: [w.both, w.kept, w.when, w.asked], deny: [w.parent]}, delegation: {delegableTools: [w.both, w.passed, w.ungranted, w.parent, w.own, w.asked, w.when]}}`),
		profile("kid", `{tools: {allow: ["w.*"], deny: [w.own]}}`),
		profile("shy", `{tools: {allow: [w.both]}}`),
		rules("boss-rules", "boss", `{name: outside, tools: [w.when], when: '!path.within(args.path, "output")', effect: deny}, {name: ask-boss, tools: [w.both], effect: approve}`),
		rules("kid-rules", "kid", `{name: ask, tools: [w.asked], effect: approve}`),
	)
	resolve := func(tool, as string, envelopes ...specs.ProfileName) Decision {
		in := Input{Phase: PhaseCall, Tool: specs.ToolName(tool), Args: []byte(`{"path":"secret/a"}`), Run: RunFacts{Profile: specs.ProfileName(as), Depth: int64(len(envelopes))}, Now: TestNow, Trace: true}
		for _, e := range envelopes {
			in.Envelopes = append(in.Envelopes, Envelope{Profile: e})
		}
		return p.Resolve(in)
	}
	for _, c := range []struct {
		tool, as string
		callable bool
		code     string
		rule     specs.RuleID // that a refused child is told
		because  string
	}{
		{"w.both", "kid", true, "", "", "both let it through"},
		{"w.passed", "kid", true, "", "", "the parent cannot use it itself, and may pass it on"},
		{"w.kept", "kid", false, CodeEnvelope, "boss/delegation.delegableTools", "the parent uses it and does not pass it on"},
		{"w.ungranted", "shy", false, CodeNotAllowed, "", "it may be passed on, and the child's profile does not grant it"},
		{"w.parent", "kid", false, CodeDenied, "", "the parent's deny holds below it"},
		{"w.own", "kid", false, CodeDenied, "", "the child's own deny is not dropped"},
		{"w.when", "kid", false, CodeDenied, "boss-rules/outside", "the parent's rule about arguments holds below it"},
		{"w.asked", "kid", true, "", "", "the child's own ask is not dropped"},
	} {
		d := resolve(c.tool, c.as, "boss")
		if d.Callable != c.callable || d.Code != c.code || c.rule != "" && d.Rule != c.rule {
			t.Errorf("%s for %s (%s): %s", c.tool, c.as, c.because, bytesOf1(t, d))
		}
		if !c.callable {
			won := slices.IndexFunc(d.Trace, func(v Voice) bool { return v.Won })
			if d.Reason == "" || c.code != CodeNotAllowed && won < 0 {
				t.Errorf("%s for %s is refused and nobody says why: %s", c.tool, c.as, bytesOf1(t, d))
			}
		}
	}
	if d := resolve("w.asked", "kid", "boss"); !d.ApprovalRequired {
		t.Error("the child's ask is gone")
	}
	if d := resolve("w.kept", "kid", "boss"); !strings.Contains(d.Reason, "boss may not pass w.kept on") {
		t.Errorf("the child is told: %s", d.Reason)
	}
	if d := resolve("w.parent", "kid", "boss"); !slices.ContainsFunc(d.Trace, func(v Voice) bool { return v.Won && v.Note == "on the path: boss" }) {
		t.Errorf("the trace does not say whose deny it is: %s", bytesOf1(t, d))
	}
	// The same rules do not follow the child's profile where it is not a child.
	for _, tool := range []string{"w.kept", "w.parent", "w.when"} {
		if d := resolve(tool, "kid"); !d.Callable {
			t.Errorf("%s is refused without a caller: %s", tool, d.Reason)
		}
	}
	// A path of two: every caller has its say.
	if d := resolve("w.both", "kid", "boss", "shy"); d.Callable || d.Code != CodeEnvelope || !strings.Contains(d.Reason, "shy") {
		t.Errorf("a caller in the middle passed on what it may not: %s", bytesOf1(t, d))
	}
}
