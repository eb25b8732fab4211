package specs

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"
)

// sampleDocs reads the sample as YAML trees, one per document.
func sampleDocs(t *testing.T) []*yaml.Node {
	t.Helper()
	fsys := os.DirFS("testdata/sample")
	names, err := fs.Glob(fsys, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []*yaml.Node
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range parseYAML(newSourceText(name, string(data)), func(d Diagnostic) { t.Error(d.Text()) }) {
			out = append(out, doc.root)
		}
	}
	return out
}

// rewrite writes a tree with other key orders, styles and rule orders, and the same meaning.
func rewrite(t *rapid.T, n *yaml.Node, parentKey string) *yaml.Node {
	out := &yaml.Node{Kind: n.Kind, Value: n.Value, Tag: n.Tag, Style: n.Style}
	switch n.Kind {
	case yaml.MappingNode:
		if rapid.Bool().Draw(t, "flow") {
			out.Style = yaml.FlowStyle
		} else {
			out.Style = 0
		}
		order := make([]int, len(n.Content)/2)
		for i := range order {
			order[i] = i
		}
		for _, i := range rapid.Permutation(order).Draw(t, "keys") {
			k := *n.Content[2*i]
			k.HeadComment, k.LineComment, k.FootComment = "", "", ""
			out.Content = append(out.Content, &k, rewrite(t, n.Content[2*i+1], n.Content[2*i].Value))
		}
	case yaml.SequenceNode:
		items := n.Content
		if parentKey == "rules" {
			items = rapid.Permutation(items).Draw(t, "rules")
		}
		for _, c := range items {
			out.Content = append(out.Content, rewrite(t, c, ""))
		}
	case yaml.ScalarNode:
		out.LineComment, out.HeadComment = "", ""
		if !isPlain(n) || resolvePlain(n.Value) == scalarText {
			out.Tag = "!!str"
			out.Style = rapid.SampledFrom([]yaml.Style{yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle, yaml.LiteralStyle}).Draw(t, "style")
			if strings.TrimSpace(n.Value) != n.Value || n.Value == "" {
				out.Style = yaml.DoubleQuotedStyle
			}
		}
	}
	return out
}

// TestP9_DigestIgnoresHowItIsWritten: files, their names and order, documents, keys, rules, styles, comments and line ends
// may change; the digest stays.
func TestP9_DigestIgnoresHowItIsWritten(t *testing.T) {
	t.Parallel()
	want, err := Load(os.DirFS("testdata/sample"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	docs := sampleDocs(t)
	rapid.Check(t, func(t *rapid.T) {
		texts := map[string]string{}
		for _, d := range rapid.Permutation(docs).Draw(t, "documents") {
			out, err := yaml.Marshal(rewrite(t, d, ""))
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("f%d/%d.yml", rapid.IntRange(0, 2).Draw(t, "folder"), rapid.IntRange(0, 3).Draw(t, "file"))
			texts[name] += "--- # a comment\n" + string(out)
		}
		crlf := rapid.Bool().Draw(t, "crlf")
		var files []File
		for name, text := range texts {
			if crlf {
				text = strings.ReplaceAll(text, "\n", "\r\n")
			}
			files = append(files, File{name, []byte(text)})
		}
		b, err := LoadFiles(files, LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if b.Digest != want.Digest {
			for i, d := range b.documents() {
				x, _ := CanonicalDocument(d)
				y, _ := CanonicalDocument(want.documents()[i])
				if string(x) != string(y) {
					t.Fatalf("another digest:\n%s\n%s", x, y)
				}
			}
			t.Fatal("another digest of equal documents")
		}
	})
}

// TestDigestSeesEveryMeaning: whichever single value of whichever document changes, the digest changes.
func TestDigestSeesEveryMeaning(t *testing.T) {
	t.Parallel()
	want, err := Load(os.DirFS("testdata/sample"), LoadOptions{Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	base := map[string]Digest{}
	for _, d := range want.documents() {
		c, err := CanonicalDocument(d)
		if err != nil {
			t.Fatal(err)
		}
		base[string(kindOf(d))+d.Head().Name] = DigestOf(c)
	}
	changed := 0
	for _, root := range sampleDocs(t) {
		if child(root, "kind").Value == string(KindPolicyTest) {
			continue
		}
		name := child(root, "kind").Value + child(child(root, "metadata"), "name").Value
		for _, leaf := range leaves(child(root, "spec")) {
			old := leaf.Value
			switch {
			case !isPlain(leaf) || resolvePlain(old) == scalarText:
				leaf.Value = old + "x"
			case resolvePlain(old) == scalarInt:
				leaf.Value = "7" + old
			case old == "true":
				leaf.Value = "false"
			default:
				leaf.Value = "true"
			}
			out, err := yaml.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			now := leaf.Value
			leaf.Value = old
			b, err := load(string(out), LoadOptions{NoCatalog: true, Partial: true})
			if err != nil {
				t.Fatal(err)
			}
			var errs Diagnostics
			for _, d := range b.Warnings.Errors() {
				switch d.Code { // of one document alone, references are unknown
				case "unknown-tool", "unknown-profile", "unknown-node":
				default:
					errs = append(errs, d)
				}
			}
			if len(errs) > 0 {
				continue // no longer a document that loads
			}
			c, err := CanonicalDocument(readFile(File{"a.yaml", out}, PlatformLevel).docs[0])
			if err != nil {
				t.Fatal(err)
			}
			if DigestOf(c) == base[name] {
				t.Errorf("%s: %q for %q leaves the digest as it was", name, now, old)
			}
			changed++
		}
	}
	if changed < 80 {
		t.Errorf("only %d values were tried", changed)
	}
}

func leaves(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode {
		return []*yaml.Node{n}
	}
	var out []*yaml.Node
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue
		}
		out = append(out, leaves(c)...)
	}
	return out
}

// TestTestsAreNotInTheDigest: writing a test changes no decision, so it changes no policy.
func TestTestsAreNotInTheDigest(t *testing.T) {
	t.Parallel()
	profile := doc("Profile", "p", "displayName: x")
	a, err := load(profile, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := load(profile+"---\n"+doc("PolicyTest", "s", "cases: [{name: c, tool: workspace.finish, expect: {callable: false}}]"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := load(profile, LoadOptions{NoCatalog: true})
	if err != nil {
		t.Fatal(err)
	}
	if a.Digest != b.Digest {
		t.Error("a test changes the digest")
	}
	if a.Digest == c.Digest {
		t.Error("the shipped documents are not covered by the digest")
	}
}

// TestCanonicalDocumentReadsBack: the canonical form is YAML of the same document.
func TestCanonicalDocumentReadsBack(t *testing.T) {
	t.Parallel()
	b, err := Load(os.DirFS("testdata/sample"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, d := range b.documents() {
		if d.Head().Shipped {
			continue
		}
		c, err := CanonicalDocument(d)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(c) + "\n")
	}
	again, err := load(text.String(), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest != b.Digest {
		t.Error("the canonical forms have another digest")
	}
}

// TestToolDigest: two loads agree, and a changed word is another definition.
func TestToolDigest(t *testing.T) {
	t.Parallel()
	get := func(spec string) Digest {
		b, err := load(doc("Tool", "a.b", spec), LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return b.Tool("a.b").Digest()
	}
	a := get("source: mcp\ndescription: Reads.\ninputSchema: {type: object, properties: {a: {type: string}, b: {}}}")
	if b := get("inputSchema: {properties: {b: {}, a: {type: string}}, type: object}\ndescription: >-\n  Reads.\nsource: {kind: mcp}"); a != b {
		t.Error("the writing changes the digest")
	}
	if b := get("source: mcp\ndescription: Reads!\ninputSchema: {type: object, properties: {a: {type: string}, b: {}}}"); a == b {
		t.Error("another description has the same digest")
	}
	x, err := DefinitionDigest("t", "d", []byte(`{"a":1,"b":2}`))
	y, err2 := DefinitionDigest("t", "d", []byte(` {"b":2,"a":1}`))
	z, err3 := DefinitionDigest("t", "d ", []byte(`{"a":1,"b":2}`))
	if err != nil || err2 != nil || err3 != nil || x != y || x == z {
		t.Errorf("%s %s %s %v %v %v", x, y, z, err, err2, err3)
	}
}
