package specs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestCase_Y01_NoIsNotFalse: words that YAML 1.1 takes for booleans are refused plain, as values and as keys, in our own
// keys and inside schemas, and taken quoted.
func TestCase_Y01_NoIsNotFalse(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"y", "Y", "yes", "Yes", "YES", "n", "N", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"} {
		for _, c := range []struct {
			spec string
			col  int
		}{
			{"displayName: %s", 16}, {"tools: {allow: [%s]}", 19}, {"tools: {describe: {%s: x}}", 22},
		} {
			wantOnly(t, findings(t, doc("Profile", "p", fmt.Sprintf(c.spec, word)), LoadOptions{}), "yaml-1.1-boolean", 5, c.col, word)
		}
		wantOnly(t, findings(t, doc("Tool", "a.b", fmt.Sprintf("source: built_in\ninputSchema: {properties: {a: {enum: [%s]}}}", word)), LoadOptions{}), "yaml-1.1-boolean", 6, 41, word)
		if _, err := load(doc("Profile", "p", fmt.Sprintf("displayName: %q", word)), LoadOptions{}); err != nil {
			t.Errorf("%q is refused quoted: %v", word, err)
		}
	}
}

// TestCase_Y02_AliasBombs never unfold: an alias is an error wherever it stands.
func TestCase_Y02_AliasBombs(t *testing.T) {
	t.Parallel()
	ds := findings(t, "a: &a [x]\nb: [*a, *a]\nc: &c [*c]\n", LoadOptions{})
	var got []string
	for _, d := range ds {
		if d.Code == "yaml-alias" || d.Code == "yaml-anchor" {
			got = append(got, fmt.Sprint(d.Code, d.Pos.Line, ":", d.Pos.Col))
		}
	}
	if want := []string{"yaml-anchor1:4", "yaml-alias2:5", "yaml-alias2:9", "yaml-anchor3:4", "yaml-alias3:8"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\n%s", got, ds.Text())
	}
}

// TestCase_Y03_MergeAndDuplicateKeys are errors, with both lines; nothing is left to the last or the first.
func TestCase_Y03_MergeAndDuplicateKeys(t *testing.T) {
	t.Parallel()
	wantOnly(t, findings(t, doc("Policy", "p", "layer: user\nrules:\n- name: r\n  tools: [\"*\"]\n  effect: deny\n  effect: allow"), LoadOptions{}), "duplicate-key", 10, 5, "first on line 9")
	ds := findings(t, doc("Policy", "p", "layer: user\nrules:\n- &r {name: r, tools: [\"*\"], effect: deny}\n- {<<: *r, name: s}"), LoadOptions{})
	codes := ""
	for _, d := range ds {
		codes += d.Code + " "
	}
	if !strings.Contains(codes, "yaml-anchor") || !strings.Contains(codes, "yaml-merge") || !strings.Contains(codes, "yaml-alias") {
		t.Errorf("got\n%s", ds.Text())
	}
}

// TestCase_Y04_EqualTextsLoadEqually, every time.
func TestCase_Y04_EqualTextsLoadEqually(t *testing.T) {
	t.Parallel()
	good := doc("Profile", "p", "tools: {describe: {workspace.commit: a, workspace.finish: b, workspace.rollback: c}}")
	bad := doc("Profile", "p", "tools: {describe: {w.a: a, w.b: b, w.c: c, w.d: d, w.e: e}}\ncolor: x")
	first, err := load(good, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text := findings(t, bad, LoadOptions{}).Text()
	for range 50 {
		b, err := load(good, LoadOptions{})
		if err != nil || b.Digest != first.Digest {
			t.Fatalf("another digest, or %v", err)
		}
		if again := findings(t, bad, LoadOptions{}).Text(); again != text {
			t.Fatalf("another report:\n%s\n%s", text, again)
		}
	}
}

// TestCase_E06_EmptyIsNotEverything: an empty list and an absent one grant nothing, and can be told apart; a key without a
// value is an error and not a guess.
func TestCase_E06_EmptyIsNotEverything(t *testing.T) {
	t.Parallel()
	empty, err := load(doc("Profile", "p", "tools: {allow: []}"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	absent, err := load(doc("Profile", "p", "tools: {}"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a := empty.Profile("p").Tools.Allow; a == nil || len(*a) != 0 {
		t.Errorf("an empty list reads as %v", a)
	}
	if a := absent.Profile("p").Tools.Allow; a != nil {
		t.Errorf("an absent list reads as %v", *a)
	}
	if empty.Digest == absent.Digest {
		t.Error("empty and absent have one digest")
	}
	wantOnly(t, findings(t, doc("Profile", "p", "tools:\n  allow:"), LoadOptions{}), "wrong-type", 6, 11, "write []")
	wantOnly(t, findings(t, doc("Policy", "p", "layer: user\nrules:"), LoadOptions{}), "wrong-type", 6, 9, "write []")
	wantOnly(t, findings(t, doc("Policy", "p", "layer: user"), LoadOptions{}), "missing-key", 5, 3, "rules")
	wantOnly(t, findings(t, doc("Policy", "p", "layer: user\nmatch: {roles: null}\nrules: []"), LoadOptions{}), "wrong-type", 6, 18, "a list")
}

// TestCase_E08_ConflictsAreLoadErrors: two statements about one thing do not load, so no order can choose between them.
func TestCase_E08_ConflictsAreLoadErrors(t *testing.T) {
	t.Parallel()
	a := doc("Policy", "p", "layer: user\nrules: []")
	b := doc("Policy", "p", "layer: profile\nrules: []")
	for _, text := range []string{a + "---\n" + b, b + "---\n" + a} {
		wantOnly(t, findings(t, text, LoadOptions{}), "duplicate-name", 10, 18, "a.yaml:3:18")
	}
}

// TestCase_E24_InvalidNeverLoads: one mistake anywhere and there is no bundle; what was loaded before is untouched.
func TestCase_E24_InvalidNeverLoads(t *testing.T) {
	t.Parallel()
	good := doc("Policy", "p", "layer: user\nrules: [{name: r, tools: [\"*\"], effect: deny}]")
	before, err := load(good, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	digest := before.Digest
	after, err := load(good+"---\n"+doc("Policy", "q", "layer: user\nrules: [{name: r, tools: [\"*\"], effect: dny}]"), LoadOptions{})
	if after != nil || err == nil {
		t.Error("a partly wrong bundle loads")
	}
	if before.Digest != digest || len(before.Policies) != 2 {
		t.Error("the bundle before has changed")
	}
}

// TestCase_E27_UnsupportedFieldsAreErrors, on every level of every kind: nothing that is written is ignored.
func TestCase_E27_UnsupportedFieldsAreErrors(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, root := range sampleDocs(t) {
		for _, m := range mappings(root, "") {
			m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "zzzDefaultAction"}, &yaml.Node{Kind: yaml.ScalarNode, Value: "deny"})
			out, err := yaml.Marshal(root)
			m.Content = m.Content[:len(m.Content)-2]
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, d := range findings(t, string(out), LoadOptions{NoCatalog: true}) {
				found = found || d.Code == "unknown-key" && strings.Contains(d.Message, "zzzDefaultAction")
			}
			if !found {
				t.Errorf("an unknown key is ignored in\n%s", out)
			}
			tried++
		}
	}
	if tried < 60 {
		t.Errorf("only %d places were tried", tried)
	}
}

// mappings lists the mappings whose keys are ours: not schemas, arguments or mappings by free names.
func mappings(n *yaml.Node, key string) []*yaml.Node {
	switch key {
	case "inputSchema", "args":
		return nil
	}
	var out []*yaml.Node
	free := key == "users" || key == "labels" || key == "describe" || key == "env" || key == "secrets" || key == "parameters"
	if n.Kind == yaml.MappingNode {
		if !free {
			out = append(out, n)
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			out = append(out, mappings(n.Content[i+1], n.Content[i].Value)...)
		}
	} else if n.Kind == yaml.SequenceNode {
		for _, c := range n.Content {
			out = append(out, mappings(c, "")...)
		}
	}
	return out
}

// TestTortureFiles: each file of the handmade torture set is refused, or loads only what it says.
func TestTortureFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(corpusDir(t), "7-yaml-json-torture", "handmade")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Skip("the corpus folder 7-yaml-json-torture/handmade is not here: set CALLGATE_CORPUS to the corpus folder")
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		_, err = LoadFiles([]File{{e.Name(), data}}, LoadOptions{})
		ds, ok := AsDiagnostics(err)
		if !ok || len(ds) == 0 {
			t.Errorf("%s: no finding (%v)", e.Name(), err) // none of them is a bundle
			continue
		}
		want := map[string]string{
			"anchors-policy.yaml": "yaml-anchor", "billion-laughs.yaml": "yaml-alias", "self-alias.yaml": "yaml-alias", "deep-nesting.yaml": "too-deep",
			"duplicate-keys.yaml": "duplicate-key", "norway.yaml": "yaml-1.1-boolean", "nul-and-control.yaml": "control-character",
			"tabs.yaml": "tab-indent", "tags.yaml": "yaml-tag",
		}[e.Name()]
		found := want == ""
		for _, d := range ds {
			found = found || d.Code == want
		}
		if !found {
			t.Errorf("%s: no %s in\n%s", e.Name(), want, ds.Text())
		}
	}
}

// TestYAMLSuite: no case of the public suite makes the loader panic or hang; what must fail is an error; what is plain YAML of
// our strict kind has the value that the suite gives. The few known gaps of the YAML library are listed.
func TestYAMLSuite(t *testing.T) {
	t.Parallel()
	cases, failing, compared := 0, 0, 0
	for _, line := range corpusLines(t, "7-yaml-json-torture/yaml-test-suite.jsonl") {
		var c struct {
			ID, Name, YAML, JSON string
			Fail                 bool
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		cases++
		_, err := load(c.YAML, LoadOptions{})
		if err == nil {
			t.Errorf("%s %s: this is taken for a bundle", c.ID, c.Name)
		}
		var ds Diagnostics
		report := func(d Diagnostic) { ds = append(ds, d) }
		if offset, _, _, _ := badText([]byte(c.YAML)); offset >= 0 {
			continue
		}
		src := newSourceText("a.yaml", c.YAML)
		roots := parseYAML(src, report)
		r := &reader{strictness: &strictness{src: src, report: report, bad: map[*yaml.Node]bool{}}}
		var out []byte
		for _, doc := range roots {
			if r.check(doc.root, 0) {
				var s Schema
				jsonValue("", false).read(r, doc.root, &s)
				out = append(append(out, s.Raw...), '\n')
			}
		}
		if c.Fail {
			failing++
			if len(ds) == 0 && !libraryTakes[c.ID] {
				t.Errorf("%s %s: must fail, and loads as %s\n%s", c.ID, c.Name, out, c.YAML)
			}
			continue
		}
		if len(ds) > 0 || c.JSON == "" {
			continue // stricter than YAML, which is the point
		}
		compared++
		got, want := decodeAll(t, out), decodeAll(t, []byte(c.JSON))
		if !reflect.DeepEqual(got, want) && !libraryDiffers[c.ID] {
			t.Errorf("%s %s: got %v, want %v\n%s", c.ID, c.Name, got, want, c.YAML)
		}
	}
	t.Logf("%d cases, %d that must fail, %d values compared", cases, failing, compared)
	if cases < 250 || compared < 80 {
		t.Errorf("%d cases, %d compared", cases, compared)
	}
}

// libraryTakes lists invalid YAML that gopkg.in/yaml.v3 reads all the same.
var libraryTakes = map[string]bool{
	"9C9N": true, "QB6E": true, // lines of a flow list or quoted text that are indented too little
	"CVW2": true, "X4QW": true, // a comment without a space before it
	"DK95:01": true,               // a tab that indents the second line of a quoted text
	"G5U8":    true, "YJV2": true, // a lone dash in brackets is a text
	"HRE5": true, // \' in double quotes
	"S98Z": true, // empty lines of a block text indented more than its first line
}

// libraryDiffers lists valid YAML that it reads differently.
var libraryDiffers = map[string]bool{
	"JEF9:02": true, "L24T:01": true, // blanks in the last, empty line of a block text
	"PUW8": true, // our own choice: a document without content is no document
}

func decodeAll(t *testing.T, data []byte) []any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(data)))
	var out []any
	for dec.More() {
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		out = append(out, v)
	}
	return out
}

// TestInvisibleOrderIsShown: a line that reads otherwise than it looks is pointed at, and still loads.
func TestInvisibleOrderIsShown(t *testing.T) {
	t.Parallel()
	wantOnly(t, findings(t, doc("Profile", "p", "displayName: \"a\u202eb\""), LoadOptions{}), "invisible-character", 5, 18, "U+202E")
}

// FuzzLoad wants -fuzzminimizetime 5x: files are read by several goroutines, so coverage differs between runs of one input.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(doc("Policy", "p", "layer: user\nrules: [{name: r, tools: [\"*\"], effect: deny, when: \"a && b\"}]")))
	f.Add([]byte(doc("Tool", "a.b", "source: {kind: mcp, name: s}\ninputSchema: {type: object, properties: {a: {type: string}}}")))
	f.Add([]byte("a: &a [*a]\n<<: *a\n---\n? [x]\n: !!str y\n\tz: \"\\q\""))
	f.Add([]byte("kind: |2-\n   x\n  y\nz: >+\n\n a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := LoadFiles([]File{{"a.yaml", data}}, LoadOptions{Partial: len(data)%2 == 0})
		if err == nil {
			if b.Digest == "" {
				t.Fatal("no digest")
			}
			return
		}
		ds, ok := AsDiagnostics(err)
		if !ok || len(ds.Errors()) == 0 {
			t.Fatalf("%v", err)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, d := range ds {
			if d.Pos.Line > lines || d.Message == "" {
				t.Fatalf("%+v", d)
			}
		}
		_ = ds.Text()
	})
}
