package celpolicy

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
)

var update = flag.Bool("update", false, "write the golden files anew")

// story is a tenant in which every kind of answer occurs.
func story(t *testing.T) *Policy {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "story.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := specs.LoadFiles([]specs.File{{Name: "story.yaml", Data: raw}}, specs.LoadOptions{NoCatalog: true})
	if err != nil {
		t.Fatalf("%v", err)
	}
	p, err := Compile(b)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// TestExplain shows what a person reads about every kind of answer. The golden files are part of the documentation.
func TestExplain(t *testing.T) {
	t.Parallel()
	p := story(t)
	ann := UserFacts{ID: "ann", Roles: []specs.Role{"author"}}
	for name, c := range map[string]struct {
		in   Input
		want Explanation
	}{
		"denied by platform": {Input{Tool: "shell.run"}, Explanation{Code: CodeDenied, Layer: "platform", Rule: "baseline/no-shell"}},
		"denied by user":     {Input{Tool: "mail.send", Args: json.RawMessage(`{"to":"x@evil.example"}`)}, Explanation{ApprovalRequired: true, Code: CodeDenied, Layer: "user", Rule: "ann-says/not-to-strangers"}},
		"allowed by plan over profile": {Input{Tool: "mail.send", Args: json.RawMessage(`{"to":"bob@home.example"}`), Run: RunFacts{Plan: "letter", Node: "send"}},
			Explanation{Visible: true, Callable: true, ApprovalRequired: true, Layer: "source", Rule: "outside/mail-needs-a-person"}},
		"ask by source":   {Input{Tool: "mail.send", Args: json.RawMessage(`{"to":"bob@home.example"}`), Run: RunFacts{Plan: "letter", Node: "send"}, User: UserFacts{ID: "bob"}}, Explanation{Visible: true, Callable: true, ApprovalRequired: true, Layer: "source", Rule: "outside/mail-needs-a-person"}},
		"hidden":          {Input{Tool: "notes.purge"}, Explanation{Code: CodeHidden, Layer: "spec", Rule: "notes.purge/visibility"}},
		"unknown at list": {Input{Phase: PhaseList, Tool: "notes.write"}, Explanation{Visible: true, Callable: true, Layer: "profile", Rule: "writer/tools.allow", Unknown: true}},
		"allowed":         {Input{Tool: "notes.write", Args: json.RawMessage(`{"path":"a.md","text":"x"}`)}, Explanation{Visible: true, Callable: true, Layer: "profile", Rule: "writer/tools.allow"}},
		"not allowed":     {Input{Tool: "mail.send", Args: json.RawMessage(`{"to":"bob@home.example"}`), User: UserFacts{ID: "bob"}}, Explanation{ApprovalRequired: true, Code: CodeNotAllowed, Layer: "profile"}},
		"no such tool":    {Input{Tool: "notes.wirte"}, Explanation{Code: CodeUnknownTool}},
		"budget used up":  {Input{Tool: "notes.write", Args: json.RawMessage(`{"path":"a.md","text":"x"}`), Budget: BudgetFacts{Used: map[string]int64{"calls": 80}}}, Explanation{Visible: true, Code: CodeBudgetExhausted, Layer: "budget", Rule: "writer/run"}},
		"error":           {Input{Tool: "notes.write", Args: json.RawMessage(`{"path":"a.md"}`)}, Explanation{Visible: true, Code: CodePolicyError, Layer: "platform", Rule: "baseline/no-secrets"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := c.in
			in.Run.Profile, in.Now = "writer", TestNow
			if in.Phase == "" {
				in.Phase = PhaseCall
			}
			if in.User.ID == "" {
				in.User = ann
			}
			x := Explain(p, in)
			w := c.want
			if x.Visible != w.Visible || x.Callable != w.Callable || x.ApprovalRequired != w.ApprovalRequired || x.Code != w.Code || x.Layer != w.Layer || x.Rule != w.Rule || x.Unknown != w.Unknown {
				t.Errorf("got visible %v, callable %v, approval %v, unknown %v, %s by %s of %q", x.Visible, x.Callable, x.ApprovalRequired, x.Unknown, x.Code, x.Rule, x.Layer)
			}
			if x.Code != CodeUnknownTool && x.Code != CodeNotAllowed && x.Code != CodeBudgetExhausted && !slices.ContainsFunc(x.Trace, func(v Voice) bool { return v.Won && v.Rule == x.Rule }) {
				t.Errorf("no voice of the trace won: %s", bytesOf1(t, x.Trace))
			}
			golden(t, "explain "+name+".txt", x.Text())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", strings.ReplaceAll(name, " ", "-"))
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run with -update and look at the change\n--- got\n%s", path, got)
	}
}

// TestExplanationJSON: these keys are what scripts rely on.
func TestExplanationJSON(t *testing.T) {
	t.Parallel()
	x := Explain(story(t), Input{Phase: PhaseCall, Tool: "shell.run", Run: RunFacts{Profile: "writer"}})
	var m map[string]any
	if err := json.Unmarshal([]byte(bytesOf1(t, x)), &m); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"visible", "callable", "approvalRequired", "reason", "budget", "policyDigest", "trace"} {
		if _, ok := m[key]; !ok {
			t.Errorf("no %q", key)
		}
	}
	v, ok := m["trace"].([]any)[0].(map[string]any)
	if !ok {
		t.Fatal("the trace is empty")
	}
	for _, key := range []string{"layer", "rule", "file", "line", "effect", "outcome"} {
		if _, ok := v[key]; !ok {
			t.Errorf("no %q in the trace: %v", key, v)
		}
	}
	if got := bytesOf1(t, Explain(story(t), Input{Tool: "nope"}).Trace); got != "[]" {
		t.Errorf("an empty trace is %s", got)
	}
}

// TestSuite: the authors' own tests, what they print when they fail, and what they cover.
func TestSuite(t *testing.T) {
	t.Parallel()
	p := story(t)
	r := RunSuite(p, p.Bundle(), SuiteOptions{Coverage: true})
	if r.Failed != 2 || r.Passed != 4 {
		t.Errorf("%d passed, %d failed", r.Passed, r.Failed)
	}
	golden(t, "suite.txt", r.Text())
	if c := r.Coverage; c == nil || c.Covered == 0 || c.Covered >= c.Total {
		t.Errorf("coverage %+v", r.Coverage)
	}
}

// TestSuiteWithoutTests is no failure and covers nothing.
func TestSuiteWithoutTests(t *testing.T) {
	t.Parallel()
	p := compile(t, one("platform", "deny", `has(args.mode)`)...)
	r := RunSuite(p, p.Bundle(), SuiteOptions{Coverage: true})
	if r.Failed+r.Passed != 0 || r.Coverage.Covered != 0 || r.Coverage.Total != 2 {
		t.Errorf("%+v", r)
	}
}

// TestSampleSuitePasses: the sample bundle's own tests hold.
func TestSampleSuitePasses(t *testing.T) {
	t.Parallel()
	p := compile(t, sample(t))
	if ds := p.Warnings(); len(ds) > 0 {
		t.Errorf("%s", ds.Text())
	}
	if r := RunSuite(p, p.Bundle(), SuiteOptions{}); r.Failed > 0 || r.Passed != 3 {
		t.Errorf("%s", r.Text())
	}
}

// TestATooWeakWaiveSaysWhoAsks and from where the ask could be cleared.
func TestATooWeakWaiveSaysWhoAsks(t *testing.T) {
	t.Parallel()
	ds := findings(t, toolDoc("w.write", openSchema), "apiVersion: callgate/v1\nkind: Profile\nmetadata: {name: p}\nspec: {tools: {allow: [w.write]}}",
		policyLayer("a", "profile", "[w.write]", "waive", "has(args.mode)", ""), policyLayer("b", "platform", "[w.write]", "approve", "true", ""))
	if len(ds) != 1 || ds[0].Code != "waives-nothing" || !strings.Contains(ds[0].Hint, "b/") || !strings.Contains(ds[0].Hint, "the platform layer") {
		t.Errorf("got\n%s", ds.Text())
	}
}

// TestLint: rules that load and can never matter.
func TestLint(t *testing.T) {
	t.Parallel()
	grant := doc("Profile", "p", "{tools: {allow: [w.write]}}")
	tool := toolDoc("w.write", openSchema)
	for name, c := range map[string]struct {
		docs []string
		code string // "": no finding
	}{
		"dead":         {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "deny", "false", "")}, "dead-rule"},
		"duplicate":    {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "deny", "has(args.mode)", ""), policyLayer("b", "profile", "[w.write]", "deny", "has(args.mode)", "")}, "duplicate-rule"},
		"shadowed":     {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "allow", "has(args.mode)", ""), policyLayer("b", "platform", "[\"w.*\"]", "deny", "true", "")}, "shadowed-rule"},
		"ceiling":      {[]string{tool, grant, toolDoc("x.y", openSchema), policyLayer("a", "profile", "[w.write]", "allow", "has(args.mode)", ""), policyLayer("b", "platform", "[x.y]", "allow", "true", "")}, "outside-ceiling"},
		"no plan":      {[]string{tool, grant, policyLayer("a", "plan", "[w.write]", "allow", "has(args.mode)", "")}, "unreachable-rule"},
		"ungranted":    {[]string{tool, policyLayer("a", "profile", "[w.write]", "approve", "has(args.mode)", "")}, "nobody-grants"},
		"granted":      {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "approve", "has(args.mode)", "")}, ""},
		"waives":       {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "waive", "has(args.mode)", "")}, "waives-nothing"},
		"waives above": {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "waive", "has(args.mode)", ""), policyLayer("b", "platform", "[w.write]", "approve", "true", "")}, "waives-nothing"},
		"waives below": {[]string{tool, grant, policyLayer("a", "platform", "[w.write]", "waive", "has(args.mode)", ""), policyLayer("b", "profile", "[w.write]", "approve", "true", "")}, ""},
		"hide":         {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "hide", "has(args.mode)", "")}, "hide-by-arguments"},
		"budget":       {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "deny", "has(args.mode)", "      budget: {maxCalls: 3}\n")}, "unused-budget"},
		"approvers":    {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "approve", "has(args.mode)", ""), doc("Tenant", "acme", "{users: {ann: {roles: [author]}}}")}, "nobody-approves"},
		"quorum":       {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "approve", "has(args.mode)", "      approval: {approvers: {roles: [author]}, quorum: 2}\n"), doc("Tenant", "acme", "{users: {ann: {roles: [author]}}}")}, "nobody-approves"},
		"enough":       {[]string{tool, grant, policyLayer("a", "profile", "[w.write]", "approve", "has(args.mode)", ""), doc("Tenant", "acme", "{users: {ann: {roles: [approver]}}}")}, ""},
	} {
		p := compile(t, c.docs...)
		ds := p.Warnings()
		switch {
		case c.code == "" && len(ds) > 0:
			t.Errorf("%s:\n%s", name, ds.Text())
		case c.code != "" && (len(ds) != 1 || ds[0].Code != c.code || ds[0].Pos.Line == 0):
			t.Errorf("%s: want one %s:\n%s", name, c.code, ds.Text())
		}
	}
}

// TestSemver orders versions as the specification does.
func TestSemver(t *testing.T) {
	t.Parallel()
	sorted := []string{"0.0.1", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0"}
	for i, a := range sorted {
		for j, b := range sorted {
			x, ok := parseSemver(a)
			y, ok2 := parseSemver(b)
			if !ok || !ok2 {
				t.Fatalf("%s or %s is not a version", a, b)
			}
			if got, want := x.compare(y), min(1, max(-1, i-j)); got != want {
				t.Errorf("%s against %s: %d, want %d", a, b, got, want)
			}
		}
	}
	for _, bad := range []string{"", "1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.x", "-1.2.3", "99999999999999999999.0.0"} {
		if _, ok := parseSemver(bad); ok {
			t.Errorf("%q is a version", bad)
		}
	}
	if x, ok := parseSemver("1.2.3+build.5"); !ok || x.num != [3]uint64{1, 2, 3} {
		t.Error("build metadata")
	}
}
