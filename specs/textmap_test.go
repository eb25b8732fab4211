package specs

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestTextPlaces: every character of a text stands where At says, in every scalar style.
func TestTextPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, yaml string
		value      string
		at         map[int]string // index in the value -> line:col
	}{
		{"plain", "when: args.pth == 1", "args.pth == 1", map[int]string{0: "5:9", 5: "5:14", 13: "5:22"}},
		{"plain over lines", "when: a &&\n  b &&\n\n  c", "a && b &&\nc", map[int]string{0: "5:9", 4: "5:13", 5: "6:5", 10: "8:5"}},
		{"single quotes", "when: 'a == ''b'' && c'", "a == 'b' && c", map[int]string{0: "5:10", 5: "5:15", 6: "5:17", 12: "5:24"}},
		{"double quotes", `when: "a == \"b\" \u0026\x26 c"`, `a == "b" && c`, map[int]string{0: "5:10", 5: "5:15", 6: "5:17", 9: "5:21", 10: "5:27", 12: "5:32"}},
		{"double quotes over lines", "when: \"a\n  \\tb \\\n  c\"", "a \tb c", map[int]string{0: "5:10", 1: "5:11", 2: "6:5", 3: "6:7", 5: "7:5"}},
		{"block", "when: |\n  a &&\n    b\n  c", "a &&\n  b\nc\n", map[int]string{0: "6:5", 4: "6:9", 7: "7:7", 9: "8:5"}},
		{"block with its own indent", "when: |2\n    a\n  b", "  a\nb\n", map[int]string{0: "6:5", 2: "6:7", 4: "7:5"}},
		{"folded", "when: >\n  a &&\n  b\n\n  c\n    d\n  e", "a && b\nc\n  d\ne\n", map[int]string{0: "6:5", 4: "6:9", 5: "7:5", 7: "9:5", 11: "10:7", 13: "11:5"}},
		{"folded without the last break", "when: >-\n  a &&\n  b", "a && b", map[int]string{0: "6:5", 5: "7:5"}},
		{"folded, keeping breaks", "when: >+\n  a\n", "a\n\n", map[int]string{0: "6:5", 1: "6:6"}},
		{"Chinese", "when: 文 == \"件\" && x", `文 == "件" && x`, map[int]string{0: "5:9", 2: "5:11", 6: "5:15", 12: "5:21"}},
		{"Chinese folded", "when: >-\n  文件 ==\n  名字", "文件 == 名字", map[int]string{1: "6:6", 6: "7:5"}},
		{"emoji in double quotes", `when: "😀 \U0001F600 x"`, "😀 😀 x", map[int]string{0: "5:10", 2: "5:12", 4: "5:23"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, err := load(doc("Plan", "p", "nodes: [{id: one}]\ntransitions:\n- from: one\n  "+strings.ReplaceAll(c.yaml, "\n", "\n  ")+"\n  to: one"), LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w := b.Plans[0].Transitions[0].When
			if w.Value != c.value || !w.Exact() {
				t.Fatalf("value %q, exact %v", w.Value, w.Exact())
			}
			for i, want := range c.at {
				var line, col int
				if _, err := fmt.Sscanf(want, "%d:%d", &line, &col); err != nil {
					t.Fatal(err)
				}
				// The expression starts at line 8, column 5 here; the table counts as if at line 5, column 3.
				if got := w.At(i); got.Line != line+3 || got.Col != col+2 {
					t.Errorf("character %d is at %v, want %d:%d", i, got, line+3, col+2)
				}
			}
		})
	}
}

// TestTextPlacesAnyText: whatever is written in whatever style, the place of a character holds that character
// (or the escape or line break it was made of), and no style makes the mapper give up.
func TestTextPlacesAnyText(t *testing.T) {
	t.Parallel()
	word := rapid.StringOfN(rapid.RuneFrom([]rune("ab文 é😀'\"\\.&|>-#:,[]{}!*1")), 1, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		var lines []string
		for _, l := range rapid.SliceOfN(word, 1, 5).Draw(t, "lines") {
			if l = strings.TrimSpace(l); l != "" {
				lines = append(lines, l)
			}
		}
		style := rapid.SampledFrom([]string{"'", `"`, "|", ">", "|-", ">-", "|+", ">+"}).Draw(t, "style")
		var b strings.Builder
		b.WriteString("    when: " + style)
		gap := rapid.SliceOfN(rapid.IntRange(0, 2), len(lines), len(lines)).Draw(t, "gaps")
		deep := rapid.SliceOfN(rapid.IntRange(0, 2), len(lines), len(lines)).Draw(t, "indents")
		for i, l := range lines {
			switch style {
			case "'":
				l = strings.ReplaceAll(l, "'", "''")
			case `"`:
				l = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "é", `\u00e9`, "b", `\x62`).Replace(l)
			}
			if i == 0 && (style == "'" || style == `"`) {
				b.WriteString(l)
				continue
			}
			if i == 0 {
				deep[i] = 0
			}
			b.WriteString("\n" + strings.Repeat("\n", gap[i]) + "      " + strings.Repeat(" ", deep[i]) + l)
		}
		if style == "'" || style == `"` {
			b.WriteString(style)
		}
		text := doc("Plan", "p", "nodes: [{id: one}]\ntransitions:\n- from: one\n  to: one") + b.String() + "\n"
		bundle, err := load(text, LoadOptions{NoCatalog: true})
		if err != nil {
			if strings.TrimSpace(strings.Join(lines, "")) == "" {
				return // an empty expression is refused
			}
			t.Fatalf("%v\n%s", err, text)
		}
		w := bundle.Plans[0].Transitions[0].When
		if !w.Exact() {
			t.Fatalf("no exact places for %q in\n%s", w.Value, text)
		}
		src := newSourceText("a.yaml", text)
		for i, r := range []rune(w.Value) {
			p := w.At(i)
			at := src.char(p.Line, p.Col)
			if at != r && at != '\\' && r != '\n' && !(r == ' ' && at == 0) {
				t.Fatalf("character %d %q is said to be at %v, where %q stands\n%s", i, r, p, at, text)
			}
			if i > 0 && p.Before(w.At(i-1)) {
				t.Fatalf("places go backwards at %d\n%s", i, text)
			}
		}
	})
}
