package specs

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// spot is the character whose place is asked for; it stands once in every text below.
const spot = "※"

// TestTextPlacesEverywhere: in every scalar style, in block and flow mappings, at any depth, with either line ending, with a
// byte order mark and with characters of several bytes before it, the place of a character is where it stands.
func TestTextPlacesEverywhere(t *testing.T) {
	t.Parallel()
	// %s is the indentation of a continued line.
	block := map[string]string{
		"plain":                        "args.a == ※",
		"plain over lines":             "args.a ==\n%s文 ||\n%s  ※ == 1",
		"plain, empty line":            "args.a ==\n\n%s※ == 1",
		"plain with a comment":         "args.文 == ※ # ※",
		"single":                       "'a == ''文'' && ※'",
		"single over lines":            "'a &&\n%s''b'' ||\n\n%s※'",
		"double":                       `"a == \"b\" && \u6587\x41\n\t\U0001F600 ※"`,
		"double, the spot escaped":     `"a == \"b\" && \u203b"`,
		"double over lines":            "\"a \\\n%s\\  b\n%s文\\\"\n\n%s※\"",
		"literal":                      "|\n%sa\n%s  文 ※\n%sb",
		"literal, strip":               "|-\n%sa\n\n%s※",
		"literal, keep":                "|+\n%s文文\n%s※\n\n",
		"literal, comment":             "|   # a comment ※ here\n%s※",
		"literal, indented first":      "|2\n%s    a\n%s※",
		"literal, indented and strip":  "|2-\n%s    a ※",
		"literal, strip and indented":  "|-2\n%s    a ※",
		"literal, empty lines first":   "|\n\n\n%sa\n%s※",
		"literal, a tab":               "|\n%sa\t文\n%s\t※\tb",
		"folded":                       ">\n%sa &&\n%s文 ※",
		"folded, strip":                ">-\n%sa\n\n\n%s※",
		"folded, more indented":        ">\n%sa\n%s  b\n%s   c ※\n%sd",
		"folded, indented after empty": ">\n%sa\n\n%s  b\n\n%s※",
		"folded, keep":                 ">+\n%sa\n%s※\n\n\n",
		"folded, own indent":           ">2-\n%s   a\n%s※",
		"folded, empty lines first":    ">\n\n%sa\n%s※",
		"quoted on the next line":      "\n%s\"a ※\"",
		"plain on the next line":       "\n%sa ==\n%s※",
	}
	inFlow := func(style string) bool {
		return !strings.Contains(style, "literal") && !strings.Contains(style, "folded") && style != "plain with a comment"
	}
	contexts := map[string]struct {
		text, indent string
		flow         bool
	}{
		"last key":      {"nodes: [{id: one}]\ntransitions:\n- from: one\n  to: one\n  when: @\n", "    ", false},
		"first key":     {"nodes: [{id: one}]\ntransitions:\n  - when: @\n    from: one\n    to: one\n", "      ", false},
		"after Chinese": {"nodes:\n- id: one\n  title: 文件\n# 文 注释\ntransitions: \n    -   from: one\n        to: one\n        when:   @\n", "          ", false},
		"flow":          {"nodes: [{id: one, title: 文件}]\ntransitions: [{from: one, to: one, when: @}]\n", "      ", true},
		"flow, first":   {"nodes: [{id: one}]\ntransitions: [ { when: @ , from: one, to: one}]\n", "      ", true},
		"flow, quoted":  {"nodes: [{id: one}]\ntransitions: [{\"from\": one, \"to\": one, \"when\":@}]\n", "  ", true},
		"flow, lines":   {"nodes: [{id: one}]\ntransitions: [\n  {from: one,\n   to: one,\n   when: @\n   }]\n", "      ", true},
	}
	for where, c := range contexts {
		for style, text := range block {
			if c.flow && !inFlow(style) || where == "flow, quoted" && strings.HasPrefix(text, "args") || where == "flow, quoted" && strings.HasPrefix(text, "\n") {
				continue
			}
			scalar := strings.ReplaceAll(text, "%s", c.indent)
			if strings.Contains(text, "|2") || strings.Contains(text, "|-2") || strings.Contains(text, ">2") {
				scalar = strings.ReplaceAll(text, "%s", strings.TrimSuffix(c.indent, "  ")+"  ")
			}
			body := doc("Plan", "文-p", strings.Replace(c.text, "@", scalar, 1))
			body = strings.Replace(body, "文-p", "p", 1)
			for _, end := range []string{"\n", "\r\n"} {
				for _, mark := range []string{"", "\ufeff"} {
					placeIsRight(t, fmt.Sprintf("%s, %s, %q, mark %q", where, style, end, mark), body, end, mark)
				}
			}
		}
	}
}

func placeIsRight(t *testing.T, name, body, end, mark string) {
	t.Helper()
	b, err := load(mark+strings.ReplaceAll(body, "\n", end), LoadOptions{NoCatalog: true})
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, body)
		return
	}
	w := b.Plans[0].Transitions[0].When
	i := strings.Index(w.Value, spot)
	if i < 0 || !w.Exact() {
		t.Errorf("%s: value %q, exact %v\n%s", name, w.Value, w.Exact(), body)
		return
	}
	clean := body
	at := -1
	for { // not the one in a comment
		k := strings.Index(clean, spot)
		if esc := strings.Index(clean, `\u203b`); k < 0 || esc >= 0 && esc < k {
			k = esc
		}
		line := clean[strings.LastIndexByte(clean[:k], '\n')+1 : k]
		if at = k; !strings.Contains(line, "# ") {
			break
		}
		clean = clean[:k] + "x" + clean[k+len(spot):]
	}
	before := clean[:at]
	line := 1 + strings.Count(before, "\n")
	col := 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	if got := w.At(utf8.RuneCountInString(w.Value[:i])); got.Line != line || got.Col != col {
		t.Errorf("%s: said to be at %d:%d, stands at %d:%d\n%s", name, got.Line, got.Col, line, col, body)
	}
}
