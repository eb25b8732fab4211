package celpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

const openSchema = `{type: object, additionalProperties: false, properties: {mode: {type: string}, env: {type: object, additionalProperties: false, properties: {kind: {type: string}}}}}`

// one makes a bundle of one tool that the profile "p" grants, and a rule about it.
func one(layer, effect, when string) []string {
	return []string{toolDoc("w.write", openSchema),
		"apiVersion: callgate/v1\nkind: Profile\nmetadata: {name: p}\nspec: {tools: {allow: [w.write]}}",
		fmt.Sprintf("apiVersion: callgate/v1\nkind: Policy\nmetadata: {name: pol}\nspec:\n  layer: %s\n  rules:\n    - name: one\n      tools: [\"w.*\"]\n      effect: %s\n      when: |\n        %s", layer, effect, when)}
}

func ask1(p *Policy, args string) Decision {
	return p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Args: json.RawMessage(args), Run: RunFacts{Profile: "p"}, Now: TestNow, Trace: true})
}

func TestCase_E01_AbsentFieldInADenyDenies(t *testing.T) {
	t.Parallel()
	for _, when := range []string{`args.mode != "safe"`, `!(args.mode in ["safe"])`, `args.mode == "unsafe"`, `args.mode.startsWith("x")`} {
		p := compile(t, one("platform", "deny", when)...)
		if d := ask1(p, `{}`); d.Callable || d.Code != CodePolicyError || d.Trace[0].Error == "" {
			t.Errorf("%s over {}: %s", when, bytesOf1(t, d))
		}
		if d := ask1(p, `{"mode":"safe"}`); !d.Callable {
			t.Errorf("%s over safe: %s", when, d.Reason)
		}
	}
}

func TestCase_E02_AbsentParentInADenyDenies(t *testing.T) {
	t.Parallel()
	p := compile(t, one("user", "deny", `args.env.kind != "test"`)...)
	for _, args := range []string{`{}`, `{"env":{}}`, `{"env":{"kind":"prod"}}`, `{"env":null}`, `{"env":"x"}`} {
		if d := ask1(p, args); d.Callable {
			t.Errorf("%s is callable", args)
		}
	}
	if d := ask1(p, `{"env":{"kind":"test"}}`); !d.Callable {
		t.Errorf("test is refused: %s", d.Reason)
	}
}

func TestCase_E03_ErroringDenyDenies(t *testing.T) {
	t.Parallel()
	d := ask1(compile(t, one("platform", "deny", `1 / call.repeat > 0`)...), `{}`)
	if d.Callable || d.Code != CodePolicyError || d.Layer != specs.LayerPlatform || !strings.Contains(d.Reason, "policy.yaml:") {
		t.Errorf("%s", bytesOf1(t, d))
	}
}

func TestCase_E04_UndecidableRuleDoesNotLoad(t *testing.T) {
	t.Parallel()
	docs := one("platform", "deny", `true`)
	docs[0] = strings.Replace(docs[0], "  source: built_in", "  source: built_in\n  visibility: has(args.mode)", 1)
	ds := findings(t, docs...).Errors()
	if len(ds) != 1 || ds[0].Code != "not-known-here" || ds[0].Pos.Line == 0 {
		t.Errorf("a visibility over arguments:\n%s", ds.Text())
	}
	// A rule over arguments of a tool that has none can match nothing, and says so.
	if ds := findings(t, toolDoc("w.write", `{type: object, additionalProperties: false}`), policyDoc("[w.write]", "deny", "has(args.mode)")).Errors(); len(ds) != 1 {
		t.Errorf("a condition on an argument that no tool has:\n%s", ds.Text())
	}
}

func TestCase_E05_DenyOnlySetAffectsOnlyMatches(t *testing.T) {
	t.Parallel()
	p := compile(t, one("platform", "deny", `has(args.mode) && args.mode == "x"`)...)
	if d := ask1(p, `{"mode":"y"}`); !d.Callable {
		t.Errorf("a deny-only platform refused what it does not match: %s", d.Reason)
	}
	if d := ask1(p, `{"mode":"x"}`); d.Callable {
		t.Error("the match is callable")
	}
}

func TestCase_E06_EmptyMissingAndUnreadableAreNothingAllowed(t *testing.T) {
	t.Parallel()
	empty := []specs.Text{}
	tool := &specs.Tool{Meta: specs.Meta{Name: "w.write"}}
	codes := map[string]string{}
	for name, b := range map[string]*specs.Bundle{
		"no profile":   {Tools: []*specs.Tool{tool}},
		"missing list": {Tools: []*specs.Tool{tool}, Profiles: []*specs.Profile{{Meta: specs.Meta{Name: "p"}}}},
		"empty list":   {Tools: []*specs.Tool{tool}, Profiles: []*specs.Profile{{Meta: specs.Meta{Name: "p"}, Tools: specs.ProfileTools{Allow: &empty}}}},
		"unreadable":   {Tools: []*specs.Tool{tool}, Unreadable: []specs.LayerName{specs.LayerProfile}},
	} {
		p, err := Compile(b)
		if err != nil {
			t.Fatal(err)
		}
		in := Input{Phase: PhaseCall, Tool: "w.write", Trace: true}
		if name != "no profile" && name != "unreadable" {
			in.Run.Profile = "p"
		}
		d := p.Resolve(in)
		if d.Callable || d.Visible {
			t.Errorf("%s allows", name)
		}
		codes[name] = d.Code
	}
	if codes["unreadable"] != CodeLayerUnreadable || codes["empty list"] != CodeNotAllowed || codes["no profile"] != CodeNotAllowed {
		t.Errorf("status does not tell them apart: %v", codes)
	}
}

func TestCase_E07_ConditionMustBeBool(t *testing.T) {
	t.Parallel()
	for _, when := range []string{`"deny"`, `args.?mode`, `1`, `[true]`, `{"a": true}`} {
		if ds := findings(t, one("platform", "deny", when)...).Errors(); len(ds) != 1 || ds[0].Code != "wrong-type" {
			t.Errorf("%s loads:\n%s", when, ds.Text())
		}
	}
	// Where the type is known only when it runs, anything else than a bool is an error: it denies.
	p := compile(t, toolDoc("w.write", `{type: object}`), one("platform", "deny", `args.mode`)[1], one("platform", "deny", `args.mode`)[2])
	for args, callable := range map[string]bool{`{"mode":"no"}`: false, `{"mode":true}`: false, `{"mode":0}`: false, `{"mode":null}`: false, `{"mode":false}`: true} {
		if d := ask1(p, args); d.Callable != callable {
			t.Errorf("%s: callable %v", args, d.Callable)
		}
	}
}

func TestCase_E12_NarrowDenyBeatsBroadAllow(t *testing.T) {
	t.Parallel()
	docs := append(one("profile", "allow", `true`), policyLayer("narrow", "profile", "[w.write]", "deny", `has(args.mode)`, ""))
	if d := ask1(compile(t, docs...), `{"mode":"x"}`); d.Callable || d.Rule != "narrow/one" {
		t.Errorf("%s", d.Reason)
	}
}

// policyLayer writes a policy of one rule.
func policyLayer(name, layer, tools, effect, when, more string) string {
	return fmt.Sprintf("apiVersion: callgate/v1\nkind: Policy\nmetadata: {name: %s}\nspec:\n  layer: %s\n  rules:\n    - name: one\n      tools: %s\n      effect: %s\n      when: |\n        %s\n%s", name, layer, tools, effect, when, more)
}

func TestCase_E09_H23_LowerRuleNeverBeatsAPlatformDeny(t *testing.T) {
	t.Parallel()
	docs := append(one("platform", "deny", `true`), policyLayer("same", "profile", "[w.write]", "allow", "true", ""), policyLayer("source", "source", "[w.write]", "allow", "true", ""))
	if d := ask1(compile(t, docs...), `{}`); d.Callable || d.Layer != specs.LayerPlatform {
		t.Errorf("%s", d.Reason)
	}
}

func TestCase_E11_WildcardCarriesItsSource(t *testing.T) {
	t.Parallel()
	b := load(t, append(one("platform", "deny", "true"), toolDoc("x.y", "{type: object}"))...)
	b.Tools = append(b.Tools, &specs.Tool{Meta: specs.Meta{Name: "w.remote"}, Source: specs.ToolSource{Kind: specs.SourceMCP, Name: "srv"}})
	b.Policies[0].Rules[0].Tools = texts1("built_in:*")
	allow := texts1("*")
	b.Profiles[0].Tools.Allow = &allow
	p, err := Compile(b)
	if err != nil {
		t.Fatal(err)
	}
	for tool, callable := range map[specs.ToolName]bool{"w.write": false, "x.y": false, "w.remote": true} {
		if d := p.Resolve(Input{Phase: PhaseCall, Tool: tool, Run: RunFacts{Profile: "p"}}); d.Callable != callable {
			t.Errorf("%s: callable %v (%s)", tool, d.Callable, d.Reason)
		}
	}
}

func TestCase_E14_EmptyAllowListIsNotUnset(t *testing.T) {
	t.Parallel()
	nothing := false
	w := &world{profile: wLists{allow: &nothing}, phase: PhaseCall, role: "author"}
	if d := w.resolve(t); d.Callable {
		t.Error("a list that leaves the tool out allows it")
	}
	b := w.bundle()
	b.Policies = []*specs.Policy{{Meta: specs.Meta{Name: "none"}, Layer: specs.LayerProfile, Match: specs.Match{Profiles: &[]specs.Text{}},
		Rules: []specs.Rule{{Name: "one", Tools: texts1("*"), Effect: specs.EffectAllow}}}}
	p, err := Compile(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Resolve(w.input(p)); d.Callable {
		t.Error("profiles: [] matched everything")
	}
	if !slices.ContainsFunc(p.Warnings(), func(d specs.Diagnostic) bool { return d.Code == "unreachable-rule" }) {
		t.Error("nobody said that [] matches nothing")
	}
}

func TestCase_E21_H26_PanicDenies(t *testing.T) {
	t.Parallel()
	p := compile(t, one("platform", "deny", `args.?mode.orValue("") == "x"`)...)
	// A program that panics: what an engine's own fault would look like.
	p.tools["w.write"].rules[0].when = &expr{program: nil}
	if d := ask1(p, `{}`); d.Callable || d.Code != CodePolicyError {
		t.Errorf("no program: %s", bytesOf1(t, d))
	}
	ev := p.evaluation(&Input{}, seesAll)
	defer ev.release()
	if _, _, err := ev.value(&expr{program: panicking{}}); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("a panic came back as %v", err)
	}
}

func TestCase_E23_NestedLoopIsCutOff(t *testing.T) {
	t.Parallel()
	p := compile(t, one("platform", "deny", `lists.range(10000).all(a, lists.range(10000).all(b, lists.range(10000).all(c, a + b + c >= 0)))`)...)
	start := time.Now()
	d := ask1(p, `{}`)
	if d.Callable || d.Code != CodePolicyError || !strings.Contains(d.Reason, "cost limit") {
		t.Errorf("%s", bytesOf1(t, d))
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestCase_E24_E33_InvalidPolicyNeverLoads(t *testing.T) {
	t.Parallel()
	b := load(t, one("platform", "deny", `args.nope == 1 || user.nope == 2 || nope(3) || nope.four`)...)
	p, err := Compile(b)
	var invalid *specs.InvalidError
	if p != nil || !errors.As(err, &invalid) || len(invalid.Diagnostics.Errors()) < 3 {
		t.Errorf("%v", err)
	}
}

func TestCase_E31_H27_UnreadableLayerDeniesLoudly(t *testing.T) {
	t.Parallel()
	yes := true
	for _, l := range ruleLayers {
		w := &world{profile: wLists{allow: &yes}, phase: PhaseCall, role: "author", unreadable: []specs.LayerName{l}}
		d := w.resolve(t)
		if d.Callable || d.Code != CodeLayerUnreadable || d.Layer != l || d.Verdicts[l] != VerdictDeny ||
			!slices.ContainsFunc(d.Trace, func(v Voice) bool { return v.Won && v.Layer == l && v.Error != "" }) {
			t.Errorf("%s: %s", l, bytesOf1(t, d))
		}
	}
	d := compile(t, one("platform", "deny", "false")...).Resolve(Input{Phase: PhaseCall, Tool: "w.write", Run: RunFacts{Profile: "nope"}})
	if d.Callable || d.Code != CodeLayerUnreadable {
		t.Errorf("a profile that is not there: %s", bytesOf1(t, d))
	}
	d = compile(t, one("platform", "deny", "false")...).Resolve(Input{Phase: PhaseCall, Tool: "w.write", Run: RunFacts{Profile: "p", Node: "nope"}})
	if d.Callable || d.Code != CodeLayerUnreadable {
		t.Errorf("a plan node that is not there: %s", bytesOf1(t, d))
	}
}

func TestCase_E35_EveryOutcomeIsOnRecord(t *testing.T) {
	t.Parallel()
	d := ask1(compile(t, one("platform", "approve", `1 / call.repeat > 0`)...), `{}`)
	if !d.ApprovalRequired || d.PolicyDigest == "" || d.Trace[0].Outcome != Errored || d.Trace[0].Error == "" || d.Verdicts[specs.LayerPlatform] != VerdictError {
		t.Errorf("%s", bytesOf1(t, d))
	}
}

func TestCase_H1_CostLimitHoldsInEveryPhase(t *testing.T) {
	t.Parallel()
	if err := SelfTest(); err != nil {
		t.Fatal(err)
	}
	p := compile(t, one("platform", "deny", `lists.range(10000).all(a, lists.range(10000).all(b, a + b >= 0))`)...)
	for _, trace := range []bool{false, true} {
		for _, phase := range []Phase{PhaseList, PhaseCall, PhaseDispatch} {
			if d := p.Resolve(Input{Phase: phase, Tool: "w.write", Run: RunFacts{Profile: "p"}, Trace: trace}); d.Callable || d.Code != CodePolicyError {
				t.Errorf("%s, trace %v: %s", phase, trace, d.Code)
			}
		}
	}
}

func TestCase_H48_H53_UnreadableArgumentsRunNothing(t *testing.T) {
	t.Parallel()
	docs := one("platform", "approve", `true`) // no rule looks at the arguments
	p := compile(t, docs...)
	for _, args := range []string{`{"mode":"x"`, `[]`, `null`, `"x"`, `{"mode":"x","mode":"y"}`, `{} {}`, "{\"mode\":\"\xff\"}", strings.Repeat(`{"a":`, 500),
		`{"mode":"` + strings.Repeat("x", MaxArgsBytes) + `"}`} {
		d := ask1(p, args)
		if d.Callable || d.Code != CodePolicyError {
			t.Errorf("%.40s: %s", args, bytesOf1(t, d))
		}
	}
	if d := ask1(p, ``); !d.Callable {
		t.Errorf("absent arguments are {}: %s", d.Reason)
	}
}

func TestCase_H54_NoInputButTheInput(t *testing.T) {
	t.Parallel()
	env, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range env.Variables() {
		if !slices.Contains(append([]string{"type", "list", "map", "null_type", "google.protobuf.Timestamp", "google.protobuf.Duration"}, variables...), v.Name()) && v.Type().Kind() != types.TypeKind {
			t.Errorf("an expression can see %s", v.Name())
		}
	}
	for name := range prices {
		if _, ok := env.Functions()[name]; !ok && name != "in" {
			t.Errorf("a price for %s, which is no function", name)
		}
	}
}

func TestCase_W06_WithinGoesByComponents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, root string
		want       bool
	}{
		{"output/a.md", "output", true}, {"output", "output", true}, {"output/", "output/", true}, {"./output/a", "output", true},
		{"output-secret/a", "output", false}, {"outputs", "output", false}, {"a/output/b", "output", false},
		{"output/../persist/a", "output", false}, {"output/../persist/a", "persist", false}, {"../output", "output", false},
		{"/output/a", "output", false}, {`output\a`, "output", false}, {"output/a\x00b", "output", false}, {"C:/output", "output", false},
		{"", "output", false}, {"output/a", "", false}, {"a/b/c", "a/b", true}, {"a/bc", "a/b", false}, {"anything", ".", true}, {"Output/a", "output", false},
	} {
		if got := pathWithin(c.path, c.root); got != c.want {
			t.Errorf("path.within(%q, %q) = %v", c.path, c.root, got)
		}
	}
}

func TestCase_E08_E25_H27_APolicyNeverChanges(t *testing.T) {
	t.Parallel()
	docs := append(one("profile", "approve", "true"), policyLayer("more", "platform", "[w.write]", "approve", "true", "      approval: {approvers: {roles: [security], users: [bob]}}\n"))
	p := compile(t, docs...)
	want := bytesOf1(t, ask1(p, `{"mode":"x"}`))
	// Whoever gets a decision may do with it what they like.
	d := ask1(p, `{"mode":"x"}`)
	for l := range d.Verdicts {
		d.Verdicts[l] = "mine"
	}
	for i := range d.Asks {
		for j := range d.Asks[i].Approval.Approvers.Roles {
			d.Asks[i].Approval.Approvers.Roles[j] = "eve"
		}
		for j := range d.Asks[i].Approval.Approvers.Users {
			d.Asks[i].Approval.Approvers.Users[j] = "eve"
		}
	}
	for i := range d.Charges {
		d.Charges[i].Limit = 1 << 40
	}
	for i := range d.Trace {
		d.Trace[i].Outcome = "mine"
	}
	for _, w := range p.Warnings() {
		w.Message = "mine"
	}
	p.List(Input{Run: RunFacts{Profile: "p"}})
	Explain(p, Input{Tool: "w.write"})
	if got := bytesOf1(t, ask1(p, `{"mode":"x"}`)); got != want {
		t.Errorf("what a caller did shows in the next decision:\n%s\n%s", want, got)
	}
}

func TestCase_E32_AGrantIsNotAPolicy(t *testing.T) {
	t.Parallel()
	p := compile(t, one("platform", "approve", "true")...)
	in := Input{Phase: PhaseCall, Tool: "w.write", Run: RunFacts{Profile: "p"}, Now: TestNow}
	before := bytesOf1(t, p.Resolve(in))
	granted := in
	granted.Grants = []Grant{{ID: "g", Tool: "w.write", ToolDigest: p.ToolDigest("w.write"), Rules: []specs.RuleID{"pol/one"}}}
	if d := p.Resolve(granted); d.ApprovalRequired || d.PolicyDigest != p.Digest() {
		t.Errorf("%s", bytesOf1(t, d))
	}
	if after := bytesOf1(t, p.Resolve(in)); after != before {
		t.Error("a grant outlived the input it came with")
	}
	// And it grants nothing: it only answers an ask.
	in.Run.Profile, granted.Run.Profile = "", ""
	if d := p.Resolve(granted); d.Callable {
		t.Error("a remembered yes granted a tool")
	}
}
