package specs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// doc wraps a spec of a kind, indented by two, so that line 5 is the first of the spec.
func doc(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: callgate/v1\nkind: %s\nmetadata: {name: %s}\nspec:\n  %s\n", kind, name, strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "))
}

// load loads one file a.yaml.
func load(text string, opts LoadOptions) (*Bundle, error) {
	return Load(fstest.MapFS{"a.yaml": {Data: []byte(text)}}, opts)
}

// findings loads one file and gives what is wrong with it.
func findings(t *testing.T, text string, opts LoadOptions) Diagnostics {
	t.Helper()
	b, err := load(text, opts)
	if err == nil {
		return b.Warnings
	}
	ds, ok := AsDiagnostics(err)
	if !ok {
		t.Fatalf("not a diagnostic: %v", err)
	}
	return ds
}

// wantOnly checks that there is exactly one finding, and where.
func wantOnly(t *testing.T, ds Diagnostics, code string, line, col int, words string) {
	t.Helper()
	if len(ds) != 1 {
		t.Errorf("want one finding %s at %d:%d, got %d:\n%s", code, line, col, len(ds), ds.Text())
		return
	}
	d := ds[0]
	if d.Code != code || d.Pos != (Pos{"a.yaml", line, col}) || !strings.Contains(d.Message+" | "+d.Hint, words) {
		t.Errorf("want %s at %d:%d with %q, got %s\n%s", code, line, col, words, d.Code, ds.Text())
	}
}

// TestStrictYAML: everything that two YAML readers may read differently is refused, at its place.
func TestStrictYAML(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		code       string
		line, col  int
		words      string
	}{
		{"Norway as a value", "displayName: no", "yaml-1.1-boolean", 5, 16, `quote the text: "no"`},
		{"a plain yes where a bool belongs", "model: {provider: scripted}\ntools: {allow: [on]}", "yaml-1.1-boolean", 6, 19, "true or false"},
		{"a plain Y as a key", "tools:\n  describe: {Y: x}", "yaml-1.1-boolean", 6, 16, "quote the text"},
		{"a number as a key", "tools:\n  describe: {12: x}", "key-not-text", 6, 16, "quote it"},
		{"an anchor", "displayName: &a Ann", "yaml-anchor", 5, 16, "write the value out"},
		{"an alias", "displayName: &a Ann\ninstructions: *a", "", 0, 0, ""},
		{"a merge key", "run: {<<: {maxCalls: 1}}", "yaml-merge", 5, 9, "write the keys out"},
		{"a tag", "displayName: !!str 5", "yaml-tag", 5, 16, "quote a value"},
		{"a text that begins with !", "displayName: !tool.name", "yaml-tag", 5, 16, `quote the text: "!tool.name"`},
		{"a local tag", "displayName: !x Ann", "yaml-tag", 5, 16, "tags are not used"},
		{"a number beyond int64", "run: {maxCalls: 9223372036854775808}", "integer-range", 5, 19, "64 bits"},
		{"a leading zero", "run: {maxCalls: 010}", "ambiguous-number", 5, 19, "octal"},
		{"an old number with underscores", "run: {maxCalls: 1_000}", "ambiguous-number", 5, 19, "quote it"},
		{"an old time of day", "displayName: 12:30:00", "ambiguous-number", 5, 16, "quote it"},
		{"not a number", "run: {maxCalls: .nan}", "not-a-number", 5, 19, ""},
		{"a duplicate key", "displayName: a\ninstructions: b\ndisplayName: c", "duplicate-key", 7, 3, "first on line 5"},
		{"a list as a key", "? [a]\n: b", "key-not-text", 5, 5, "a key must be a text"},
		{"an unknown key", "displayname: Ann", "unknown-key", 5, 3, `did you mean "displayName"?`},
		{"an unknown key far from all", "color: red", "unknown-key", 5, 3, "known here: displayName"},
		{"a text for a list", "tools: {allow: workspace.list_files}", "wrong-type", 5, 18, `[` + `"workspace.list_files"]`},
		{"a mapping for a list", "tools: {allow: {a: b}}", "wrong-type", 5, 18, "expected a list, got a mapping"},
		{"a number for a text", "displayName: 12", "wrong-type", 5, 16, `quote it: "12"`},
		{"a version for a text", "displayName: 1.10", "wrong-type", 5, 16, `quote it: "1.10"`},
		{"a text for a number", `run: {maxCalls: "12"}`, "wrong-type", 5, 19, "without quotes"},
		{"a float for a whole number", "run: {maxCalls: 1.5}", "wrong-type", 5, 19, "expected a whole number, got the number 1.5"},
		{"nothing for a list", "tools: {allow: }", "wrong-type", 5, 18, "write [] for an empty list"},
		{"nothing for a mapping", "tools:", "wrong-type", 5, 9, "expected a mapping with the keys allow"},
		{"a misspelt word", "run: {presentation: foregroud}", "unknown-word", 5, 23, `did you mean "foreground"?`},
		{"a number out of range", "run: {maxCalls: 0}", "out-of-range", 5, 19, "from 1 to"},
		{"a tab in a flow indent", "run: {\n\tmaxCalls: 3}", "tab-indent", 6, 3, "indent with spaces"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ds := findings(t, doc("Profile", "p", c.spec), LoadOptions{})
			if c.code == "" { // both the anchor and the alias are said
				if len(ds) != 2 || ds[0].Code != "yaml-anchor" || ds[1].Code != "yaml-alias" {
					t.Errorf("got\n%s", ds.Text())
				}
				return
			}
			wantOnly(t, ds, c.code, c.line, c.col, c.words)
		})
	}
}

// TestSyntaxErrorsPointAtTheTrueLine: what the YAML library reports lines away is found where it was written.
func TestSyntaxErrorsPointAtTheTrueLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		line, col  int
		words      string
	}{
		{"an open bracket", "a: 1\nb: [x, y\nc: 2\nd: {e: [f]}\n", 2, 4, "this [ is never closed"},
		{"an open brace", "a: 1\nb: {x: y\nc: 2\n", 2, 4, "this { is never closed"},
		{"the wrong bracket", "a: [1, {b: 2]\nc: d\n", 1, 8, "a ] comes first, on line 1"},
		{"an open double quote", "a: 1\nb: \"x\nc: 2\nd: 3\n", 2, 4, "this quote is never closed"},
		{"an open single quote", "a: 'it\nc: 2\n", 1, 4, "this quote is never closed"},
		{"a closing bracket too many", "a: 1\nb: ]\n", 2, 4, "closes nothing"},
		{"a colon in a text", "a: 1\nreason: Note: this\n", 2, 13, "quote the text"},
		{"a tab as indent", "a:\n\tb: 1\n", 2, 1, "a tab stands in the indentation"},
		{"a plain star", "a:\n  - b\n  - *\n", 3, 5, `quote it: "*"`},
		{"a plain star in brackets", "a: [*]\n", 1, 5, `quote it: "*"`},
		{"a plain glob", "a: [*.b]\n", 1, 5, "quote the text"},
		{"a plain at-sign", "a: @b\n", 1, 4, "cannot start with '@'"},
		{"a line under none", "a:\n    b: 1\n  c: 2\n", 3, 3, "stands under none"},
		{"a bad escape", "a: 1\nb: \"\\d+\"\n", 2, 5, "unknown escape"},
		{"a quote inside a quote", "a: 'it's'\n", 1, 8, "follows the closing quote"},
		{"a text after a closed quote", "a: \"x\" y\n", 1, 8, "follows the closing quote"},
		{"brackets in block texts do not count", "a: |\n  [ { \" '\nb: [\n", 3, 4, "this [ is never closed"},
		{"brackets in quotes and comments do not count", "a: \"[\" # {\nb: {c\n", 2, 4, "this { is never closed"},
		{"the second document", "a: 1\n---\nb: 1\nc: [\n", 4, 4, "this [ is never closed"},
		{"a line indented too deep", "a:\n  b: [x]\n   c: 1\n", 3, 4, "2 spaces"},
		{"a line indented too deep after a plain text", "a:\n  - b: x\n       c: 1\n", 3, 8, "4 spaces"},
		{"a text that goes on is not indented too deep", "a: x\n   y z\nb: [\n", 3, 4, "this [ is never closed"},
		{"a directive", "%YAML 1.1\n---\na: 1\n", 1, 1, "directives"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			src := newSourceText("a.yaml", c.text)
			var ds Diagnostics
			parseYAML(src, func(d Diagnostic) { ds = append(ds, d) })
			if len(ds) == 0 {
				t.Fatal("this was taken for YAML")
			}
			d := ds[0]
			if d.Pos != (Pos{"a.yaml", c.line, c.col}) || !strings.Contains(d.Message+" | "+d.Hint, c.words) {
				t.Errorf("want %d:%d with %q, got\n%s", c.line, c.col, c.words, ds.Text())
			}
		})
	}
}

// TestSyntaxMistakesHideNothing: what is no YAML is reported, and everything around it is still looked at, at its own place.
func TestSyntaxMistakesHideNothing(t *testing.T) {
	t.Parallel()
	rule := func(lines string) string {
		return "layer: profile\nrules:\n" + lines + "\n- name: last\n  tools: [\"*\"]\n  efect: deny"
	}
	for name, lines := range map[string]string{
		"a plain !":              "- name: a\n  tools: [\"*\"]\n  when: !tool.annotations.readOnly && true\n  effect: deny",
		"a colon in a text":      "- name: a\n  tools: [\"*\"]\n  when: tool.name == \"a: b\"\n  effect: deny",
		"over several lines":     "- name: a\n  tools: [\"*\"]\n  when: !tool.annotations.readOnly ||\n    tool.name == \"x\"\n  effect: deny",
		"a plain star":           "- name: a\n  tools: [*]\n  effect: deny",
		"a plain star in a list": "- name: a\n  tools:\n    - *\n  effect: deny",
		"an open bracket":        "- name: a\n  tools: [\"*\"\n  effect: deny",
		"an open quote":          "- {name: a, tools: [\"*], effect: deny}",
		"indented too deep":      "- name: a\n  tools: [\"*\"]\n   when: |\n      true\n  effect: deny",
		"indented under none":    "- name: a\n  tools: [\"*\"]\n effect: deny",
		"the same twice":         "- name: a\n  tools: [*]\n  when: !x\n  effect: deny",
	} {
		want := 2
		if name == "the same twice" {
			want = 3
		}
		ds := findings(t, doc("Policy", "p", rule(lines)), LoadOptions{})
		last := 5 + 2 + strings.Count(lines, "\n") + 3
		if len(ds) != want || ds[len(ds)-1].Code != "unknown-key" || ds[len(ds)-1].Pos != (Pos{"a.yaml", last, 5}) || ds[0].Code != "yaml-syntax" {
			t.Errorf("%s: want %d findings, the last at %d:5, got\n%s", name, want, last, ds.Text())
		}
	}
	two := doc("Policy", "p", "layer: user\nrules: []")
	ds := findings(t, two+two[:len(two)-1]+"x\n", LoadOptions{})
	if len(ds) == 0 || ds[0].Code != "no-separator" || ds[0].Pos.Line != 7 {
		t.Errorf("no line of ---:\n%s", ds.Text())
	}
}

// TestMendedIsBroken: a document that was only read by mending it is never used.
func TestMendedIsBroken(t *testing.T) {
	t.Parallel()
	b, err := load(doc("Policy", "p", "layer: profile\nrules:\n- name: a\n  tools: [\"*\"]\n   effect: allow"), LoadOptions{Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(b.Policies, func(p *Policy) bool { return p.Name == "p" }) || len(b.Unreadable) == 0 {
		t.Errorf("a mended document is in the bundle; unreadable: %v", b.Unreadable)
	}
}

// TestOneMistakeOneFinding: what follows from a mistake is not said again.
func TestOneMistakeOneFinding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, code, words string }{
		{doc("Policy", "p", "layer: user\nrules: [{name: a, tool: [\"*\"], effect: deny}]"), "unknown-key", `"tools"`},
		{strings.Replace(doc("Policy", "p", "layer: user\nrules: []"), "apiVersion", "apiversion", 1), "unknown-key", `"apiVersion"`},
		{doc("Policy", "p", "layer: user\nrules: [{<<: {a: b}, name: a}]"), "yaml-merge", "write the keys out"},
		{doc("Policy", "p", "layer: user\nrules: [{name: a, tools: [\"*\"], effect: approve, approval: {approvers: {role: [x]}}}]"), "unknown-key", `"roles"`},
		{doc("Policy", "p", "layer: user\nrules: [{name: a, tools: [\"*\"], effect: approve, approval: {approvers: {roles: [x]}, ttl: 15}}]"), "wrong-type", "a unit"},
		{doc("Tool", "x.y", "source: built_in\nbudget: {timeout: 10}"), "wrong-type", "a unit"},
	} {
		ds := findings(t, c.text, LoadOptions{})
		if len(ds) != 1 || ds[0].Code != c.code || !strings.Contains(ds[0].Hint, c.words) {
			t.Errorf("want %s with %q, got\n%s", c.code, c.words, ds.Text())
		}
	}
}

// TestAllMistakesOfAllFilesAtOnce: a mistake hides no other, in another document of the file or another file.
func TestAllMistakesOfAllFilesAtOnce(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{
		"b.yaml":         {Data: []byte(doc("Profile", "q", "tools: {allow: [") + "---\n" + doc("Profile", "p", "displayname: x"))},
		"a/x.yml":        {Data: []byte(doc("Policy", "q", "layer: profil\nrules: []"))},
		"c.yaml":         {Data: []byte("\x00\x01")},
		"notes.txt":      {Data: []byte("not: [yaml")},
		".hid/x.yml":     {Data: []byte("not: [yaml")},
		"scripts/s.yaml": {Data: []byte("turns: []")},
	}
	_, err := Load(fsys, LoadOptions{})
	ds, _ := AsDiagnostics(err)
	var got []string
	for _, d := range ds {
		got = append(got, fmt.Sprintf("%s %s", d.Pos, d.Code))
	}
	want := []string{"a/x.yml:5:10 unknown-word", "b.yaml:5:18 yaml-syntax", "b.yaml:11:3 unknown-key", "c.yaml:1:1 control-character"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
