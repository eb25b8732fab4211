package specs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFormatLayout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"indentation and gaps", "a:\n     b:   1\n     c:\n     -   x\n     -    y:  2\n          z: 3\n", "a:\n  b: 1\n  c:\n    - x\n    - y: 2\n      z: 3\n"},
		{"a list at its key's own column", "rules:\n- name: a\n  tools: [b]\n- name: c\n", "rules:\n  - name: a\n    tools: [b]\n  - name: c\n"},
		{"lists in lists", "a:\n -  - 1\n    - 2\n -\n   - 3\n", "a:\n  - - 1\n    - 2\n  -\n    - 3\n"},
		{"blank lines", "\n\na: 1\n\n\n\nb: 2   \n\n\n", "a: 1\n\nb: 2\n"},
		{"line ends and a byte order mark", "\ufeffa: 1\r\nb: 2\r\n", "a: 1\nb: 2\n"},
		{"no end", "a: 1", "a: 1\n"},
		{"comments", "# head\na:\n    # above b\n    b: 1   # beside, where it was\n  # before the next\n# at the column of c\nc: 2\n# foot\n", "# head\na:\n  # above b\n  b: 1   # beside, where it was\n# before the next\n# at the column of c\nc: 2\n# foot\n"},
		{"a comment at the end of a block", "a:\n    b: 1\n    # of a\nc: 1\n", "a:\n  b: 1\n  # of a\nc: 1\n"},
		{"literal text", "a:\n    when: |\n          x &&\n            y   \n\n          z\n    b: 1\n", "a:\n  when: |\n    x &&\n      y   \n\n    z\n  b: 1\n"},
		{"literal text that says its indentation", "a:\n    when: |2\n        x\n      y\n", "a:\n  when: |2\n      x\n    y\n"},
		{"a hash in a text is no comment", "a: |\n    # text\n    b\n# comment\nc: '# text'\n", "a: |\n  # text\n  b\n# comment\nc: '# text'\n"},
		{"text that keeps its last lines", "a: |+\n  x\n\n\nb: 1\n", "a: |+\n  x\n\n\nb: 1\n"},
		{"text that keeps the file's last lines", "a: |+\n  x\n\n\n", "a: |+\n  x\n\n\n"},
		{"folded text", "a: >-\n      one\n      two\n\n\n\nb: 1\n", "a: >-\n  one\n  two\n\nb: 1\n"},
		{"plain text over lines", "a:\n    b: one\n        two\n\n        three\n    c: 1\n", "a:\n  b: one\n    two\n\n    three\n  c: 1\n"},
		{"quoted text over lines", "a:\n    b: \"one \\\n          two\"\n    c: 'x\n\n      y'\n", "a:\n  b: \"one \\\n    two\"\n  c: 'x\n\n    y'\n"},
		{"flow over lines", "a:\n    b: [x,\n        y,   # why\n    ]\n    c: {d: \"]\",\n        e: 1}\n", "a:\n  b: [x,\n      y,   # why\n  ]\n  c: {d: \"]\",\n      e: 1}\n"},
		{"a value on a line of its own", "a:\n      one\nb:\n        [x]\n", "a:\n  one\nb:\n  [x]\n"},
		{"empty values", "a:\nb:   # none\nc:\n-\n- x\n", "a:\nb:   # none\nc:\n  -\n  - x\n"},
		{"documents", "a: 1\n---\n\n\nb:\n    c: 1\n---   # third\nd: 1\n", "a: 1\n---\n\nb:\n  c: 1\n---   # third\nd: 1\n"},
		{"quoted keys", "\"a: b\" :   1\n'it''s':  2\n", "\"a: b\" : 1\n'it''s': 2\n"},
		{"wide characters", "a:\n    名前:   値\n    b: \"é\"   \n", "a:\n  名前: 値\n  b: \"é\"\n"},
		{"only comments", "# a\n\n\n# b\n", "# a\n\n# b\n"},
		{"nothing", "", ""},
	} {
		got, err := Format("a.yaml", []byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(c.want, string(got)); d != "" {
			t.Errorf("%s:\n%s", c.name, d)
		}
		again, err := Format("a.yaml", got)
		if err != nil || string(again) != string(got) {
			t.Errorf("%s: formatting twice: %v\n%s", c.name, err, cmp.Diff(string(got), string(again)))
		}
	}
}

// What is not understood well enough is left alone, and said so; what is no YAML has its findings.
func TestFormatLeavesAlone(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"a: &x 1\nb: 2\n", "a: !!str 1\n", "? a\n: b\n", "? [a]\n: b\n"} {
		_, err := Format("a.yaml", []byte(in))
		if bad := (*FormatError)(nil); !errors.As(err, &bad) {
			t.Errorf("%q: %v", in, err)
		} else if !strings.HasPrefix(err.Error(), "a.yaml:1:") {
			t.Errorf("%q: no place in %q", in, err)
		}
	}
	for _, in := range []string{"a: [\n", "a: 1\n b: 2\n", "\xff\xfe", "a:\n\t- 1\n"} {
		_, err := Format("a.yaml", []byte(in))
		if _, ok := AsDiagnostics(err); !ok {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// The catalog, the sample and the starter are written in this layout.
func TestOwnFilesAreFormatted(t *testing.T) {
	t.Parallel()
	n := 0
	for _, root := range []string{".", "../cmd/callgate/starter", "../testdata/tenants"} {
		err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
				return err
			}
			data, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				return err
			}
			if strings.Contains(string(data), "@USER@") { // a template
				return nil
			}
			got, err := Format(path, data)
			if err != nil {
				return err
			}
			if n++; string(got) != string(data) {
				t.Errorf("%s/%s:\n%s", root, path, cmp.Diff(string(data), string(got)))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if n < 10 {
		t.Errorf("only %d files found", n)
	}
}

var commentIn = regexp.MustCompile(`#c[0-9]+#`)

// checkFormat holds what comes out against what went in.
func checkFormat(t interface{ Fatalf(string, ...any) }, in []byte) {
	out, err := Format("a.yaml", in)
	if err != nil {
		if _, ok := AsDiagnostics(err); ok {
			return
		}
		if bad := (*FormatError)(nil); errors.As(err, &bad) {
			return
		}
		t.Fatalf("%v", err)
	}
	again, err := Format("a.yaml", out)
	if err != nil || string(again) != string(out) {
		t.Fatalf("formatting twice is not formatting once: %v\n%s", err, cmp.Diff(string(out), string(again)))
	}
	load := func(data []byte) Digest {
		b, err := LoadFiles([]File{{Name: "a.yaml", Data: data}}, LoadOptions{})
		if err != nil {
			return ""
		}
		return b.Digest
	}
	if before, after := load(in), load(out); before != after {
		t.Fatalf("the digest was %q and is %q\n%s\n%s", before, after, in, out)
	}
	if before, after := commentIn.FindAllString(string(in), -1), commentIn.FindAllString(string(out), -1); !cmp.Equal(before, after) {
		t.Fatalf("the comments were %v and are %v", before, after)
	}
}

// TestFormatAnyLayout writes one bundle in any layout that YAML allows: formatting succeeds, keeps the digest and every comment,
// and two layouts of the same lines become one.
func TestFormatAnyLayout(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &wildWriter{t: t}
		w.document()
		in := []byte(w.b.String())
		if rapid.Bool().Draw(t, "crlf") {
			in = []byte(strings.ReplaceAll(string(in), "\n", "\r\n"))
		}
		b, err := LoadFiles([]File{{Name: "a.yaml", Data: in}}, LoadOptions{})
		if err != nil {
			t.Fatalf("the test wrote no bundle: %v\n%s", err, in)
		}
		out, err := Format("a.yaml", in)
		if err != nil {
			t.Fatalf("%v\n%s", err, in)
		}
		c, err := LoadFiles([]File{{Name: "a.yaml", Data: out}}, LoadOptions{})
		if err != nil || b.Digest != c.Digest {
			t.Fatalf("%v: %s and %s\n%s\n%s", err, b.Digest, c.Digest, in, out)
		}
		for i, line := range strings.Split(string(out), "\n") {
			if strings.HasSuffix(line, " ") {
				t.Fatalf("line %d ends in a blank: %q", i+1, line)
			}
		}
		checkFormat(t, in)
		if n := len(commentIn.FindAllString(string(out), -1)); n != w.comments {
			t.Fatalf("%d of %d comments are left\n%s", n, w.comments, out)
		}
	})
}

// wildWriter writes a policy as somebody might who has never seen one.
type wildWriter struct {
	t        *rapid.T
	b        strings.Builder
	comments int
}

func (w *wildWriter) n(label string, low, high int) int {
	return rapid.IntRange(low, high).Draw(w.t, label)
}

// noise is what may stand between two lines: empty ones, and comments in any column up to a limit.
func (w *wildWriter) noise(most int) {
	for range w.n("noise", 0, 4) - 2 {
		switch w.n("what", 0, 2) {
		case 0:
			w.b.WriteString(strings.Repeat(" ", w.n("blanks", 0, 3)) + "\n")
		case 1:
			w.b.WriteString(strings.Repeat(" ", w.n("column", 0, most)) + w.comment() + "\n")
		}
	}
}

func (w *wildWriter) comment() string {
	w.comments++
	return fmt.Sprintf("#c%d# words: [", w.comments)
}

func (w *wildWriter) gap() string { return strings.Repeat(" ", w.n("gap", 1, 4)) }

func (w *wildWriter) end() {
	switch w.n("end", 0, 5) {
	case 0:
		w.b.WriteString(w.gap() + w.comment())
	case 1:
		w.b.WriteString(w.gap())
	}
	w.b.WriteString("\n")
}

func (w *wildWriter) document() {
	w.noise(8)
	for i := range w.n("documents", 1, 2) {
		if i > 0 {
			w.b.WriteString("---")
			w.end()
		}
		fmt.Fprintf(&w.b, "apiVersion:%scallgate/v1", w.gap())
		w.end()
		w.noise(0)
		fmt.Fprintf(&w.b, "kind:%sPolicy", w.gap())
		w.end()
		fmt.Fprintf(&w.b, "metadata:%s{name: p%d}", w.gap(), i)
		w.end()
		w.b.WriteString("spec:")
		w.end()
		at := w.n("indent", 1, 5)
		in := strings.Repeat(" ", at)
		w.noise(at)
		fmt.Fprintf(&w.b, "%slayer:%sprofile", in, w.gap())
		w.end()
		w.noise(at)
		w.b.WriteString(in + "rules:")
		w.end()
		dash := at + w.n("dash", 0, 4)
		for j := range w.n("rules", 1, 3) {
			w.rule(dash, j)
		}
	}
}

func (w *wildWriter) rule(dash, number int) {
	w.noise(dash)
	gap := w.gap()
	in := strings.Repeat(" ", dash+1+len(gap))
	fmt.Fprintf(&w.b, "%s-%sname:%sr%d", strings.Repeat(" ", dash), gap, w.gap(), number)
	w.end()
	w.noise(len(in))
	switch w.n("tools", 0, 3) {
	case 0:
		fmt.Fprintf(&w.b, "%stools:%s[workspace.*, \"dice.*\"]", in, w.gap())
		w.end()
	case 1:
		w.b.WriteString(in + "tools: [workspace.*,")
		w.end()
		fmt.Fprintf(&w.b, "%s   \"dice.*\"", in)
		w.end()
		fmt.Fprintf(&w.b, "%s%s]", in, strings.Repeat(" ", w.n("closer", 0, 2)))
		w.end()
	case 2:
		w.b.WriteString(in + "tools:")
		w.end()
		item := in + strings.Repeat(" ", w.n("item", 0, 4))
		for _, s := range []string{"workspace.*", "'dice.*'"} {
			fmt.Fprintf(&w.b, "%s-%s%s", item, w.gap(), s)
			w.end()
			w.noise(len(item))
		}
	default:
		w.b.WriteString(in + "tools:")
		w.end()
		fmt.Fprintf(&w.b, "%s  [workspace.*]", in)
		w.end()
	}
	w.when(in)
	fmt.Fprintf(&w.b, "%seffect:%sdeny", in, w.gap())
	w.end()
	switch w.n("reason", 0, 3) {
	case 0:
		fmt.Fprintf(&w.b, "%sreason:%sone\n%s   two\n\n%s  three", in, w.gap(), in, in)
		w.end()
	case 1:
		fmt.Fprintf(&w.b, "%sreason:%s\"one \\\n%s   two\n%s  three\"", in, w.gap(), in, in)
		w.end()
	case 2:
		fmt.Fprintf(&w.b, "%sreason:%s>-\n%s   one\n%s   two\n", in, w.gap(), in, in)
	}
}

func (w *wildWriter) when(in string) {
	text := in + strings.Repeat(" ", w.n("text", 1, 6))
	switch w.n("when", 0, 4) {
	case 0:
		fmt.Fprintf(&w.b, "%swhen:%srun.depth == 0", in, w.gap())
		w.end()
	case 1:
		fmt.Fprintf(&w.b, "%swhen:%s|%s\n", in, w.gap(), []string{"", "-", "+"}[w.n("chomp", 0, 2)])
		fmt.Fprintf(&w.b, "%srun.depth == 0 &&\n%s  user.id != \"#no\"\n", text, text)
	case 2:
		fmt.Fprintf(&w.b, "%swhen: |2\n%s  run.depth == 0\n", in, in)
	case 3:
		fmt.Fprintf(&w.b, "%swhen:\n%s'run.depth == 0'", in, text)
		w.end()
	}
}

func FuzzFormat(f *testing.F) {
	for _, s := range []string{
		"a:\n   b: |2+\n      x\n\n\n   - c\n", "- - - a\n    # c\n - [b, {c: \"d\n  e\"}]\n", "a: >\n\n  b\n c: d\n# e\n", "---\n# a\n--- |\n  x\n...\n", "a: 'b\n\n  c'   # d\n? e\n: f\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkFormat(t, data) })
}
