package celpolicy

import (
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
)

const literalSchema = `{type: object, required: [mode, "n", d, s], properties: {mode: {enum: [replace, append]}, "n": {type: integer, minimum: 1, maximum: 50}, d: {type: number, exclusiveMinimum: 0, exclusiveMaximum: 1}, s: {type: string, maxLength: 5},
    level: {enum: [1, 2, 3]}, flag: {const: true}, code: {type: string, pattern: "^[A-Z]{3}$"}, when: {type: string, format: date-time}, tags: {type: array, maxItems: 3, items: {enum: [red, green]}}, any: {type: [string, integer]}, maybe: {enum: [ja, nein, null]},
    kind: {oneOf: [{const: file}, {const: folder}]}, rows: {type: array, items: {type: object, properties: {state: {enum: [open, closed]}}}}, sub: {type: object, required: [x], properties: {x: {enum: [a, b]}}}, free: {}}}`

// TestLiteralsOutsideASchema: a comparison that a schema decides for good is named at its literal, with the way out; its
// near miss says nothing.
func TestLiteralsOutsideASchema(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ when, code, under, hint string }{
		{`args.mode == "apend"`, "impossible-value", `"apend"`, `did you mean "append"?`}, {`"apend" == args.mode`, "impossible-value", `"apend"`, "append"}, {`args.mode == "append"`, "", "", ""},
		{`args.mode != "apend"`, "impossible-value", `"apend"`, "append"}, {`args.mode != "append"`, "", "", ""},
		{`args.mode in ["replace", "insert"]`, "impossible-value", `"insert"`, "replace"}, {`args.mode in ["replace", "append"]`, "", "", ""},
		{`args.mode == "append" ? args.n > 3 : args.mode == "rplace"`, "impossible-value", `"rplace"`, "replace"},
		{`args.mode.lowerAscii() == "append"`, "", "", ""}, {`args.mode.upperAscii() == "append"`, "impossible-value", `"append"`, "upperAscii"}, {`args.s.lowerAscii().contains("Key")`, "matches-nothing", `"Key"`, "lowerAscii"},
		{`args.n > 50`, "out-of-range", "50", "at most 50"}, {`args.n >= 50`, "", "", ""}, {`args.n < 1`, "out-of-range", "1", "at least 1"}, {`0 >= args.n`, "out-of-range", "0", "at least 1"},
		{`args.n == 51`, "impossible-value", "51", "at most 50"}, {`args.n == 50`, "", "", ""}, {`args.n <= 50`, "", "", ""}, {`args.n == -5`, "impossible-value", "-5", "at least 1"},
		{`args.d >= 1.0`, "out-of-range", "1.0", "less than 1"}, {`args.d < 1.0`, "", "", ""}, {`args.d == 0.0`, "impossible-value", "0.0", "more than 0"}, {`args.d > 0.5`, "", "", ""},
		{`args.s == "123456"`, "impossible-value", `"123456"`, "at most 5 characters"}, {`args.s == "文文文文文"`, "", "", ""}, {`args.s.startsWith("123456")`, "matches-nothing", `"123456"`, "5 characters"},
		{`size(args.s) > 5`, "out-of-range", "5", "at most 5"}, {`size(args.s) > 4`, "", "", ""}, {`args.s.size() < 0`, "out-of-range", "0", "at least 0"}, {`size(args.mode) == 3`, "impossible-value", "3", ""},
		{`args.?level.orValue(0) == 4`, "impossible-value", "4", "0"}, {`args.?level.orValue(0) == 0`, "", "", ""}, {`has(args.level) && args.level > 3`, "out-of-range", "3", "1, 2, 3"}, {`has(args.level) && args.level > 2`, "", "", ""},
		{`has(args.flag) && args.flag == false`, "impossible-value", "false", "true"}, {`has(args.code) && args.code == "abc"`, "impossible-value", `"abc"`, "pattern"}, {`has(args.code) && args.code == "ABC"`, "", "", ""},
		{`has(args.when) && args.when == "tomorrow"`, "off-format", `"tomorrow"`, ""}, {`has(args.when) && args.when == "2026-01-01T00:00:00Z"`, "", "", ""}, {`has(args.when) && args.when == ""`, "", "", ""},
		{`has(args.tags) && "blue" in args.tags`, "impossible-value", `"blue"`, "red"}, {`has(args.tags) && args.tags.exists(t, t == "blue")`, "impossible-value", `"blue"`, "green"}, {`has(args.tags) && args.tags.all(t, t != "red")`, "", "", ""},
		{`has(args.tags) && args.tags[0] == "blue"`, "impossible-value", `"blue"`, "red"}, {`has(args.tags) && size(args.tags) > 3`, "out-of-range", "3", "at most 3"}, {`has(args.rows) && args.rows.exists(r, has(r.state) && r.state == "shut")`, "impossible-value", `"shut"`, "closed"},
		{`has(args.any) && args.any == true`, "impossible-value", "true", "string or integer"}, {`has(args.any) && args.any == 3`, "", "", ""}, {`has(args.any) && args.any == 3.5`, "impossible-value", "3.5", ""},
		{`has(args.maybe) && args.maybe == null`, "", "", ""}, {`has(args.maybe) && args.maybe == "maybe"`, "impossible-value", `"maybe"`, "null"}, {`has(args.kind) && args.kind == "fil"`, "impossible-value", `"fil"`, `"file"`},
		{`has(args.sub) && args.sub.x == "c"`, "impossible-value", `"c"`, `"a"`}, {`has(args.free) && args.free == "anything"`, "", "", ""}, {`has(args.mode) && args.mode == 'it\'s'`, "impossible-value", `'it\'s'`, ""}, {`args.mode == r"\d"`, "impossible-value", `r"\d"`, ""},
		{`args.mode.matches("^ins")`, "matches-nothing", `"^ins"`, "replace"}, {`args.mode.matches("^rep|^app")`, "", "", ""}, {`args.s.matches("x$y")`, "matches-nothing", `"x$y"`, "end"}, {`args.s.matches("a^b")`, "matches-nothing", `"a^b"`, ""},
		{`args.s.matches("[^\\s\\S]")`, "matches-nothing", `"[^\\s\\S]"`, ""}, {`args.s.matches("(^|,)a($|,)")`, "", "", ""}, {`args.s.matches("(?m)a$\\n^b")`, "", "", ""}, {`user.id.matches("$x")`, "matches-nothing", `"$x"`, ""}, {`user.id.matches("^$")`, "", "", ""},
		{`args.mode.startsWith("insert")`, "matches-nothing", `"insert"`, "replace"}, {`args.mode.endsWith("ace")`, "", "", ""}, {`args.mode.contains("x")`, "matches-nothing", `"x"`, ""}, {`glob(args.mode, "ins*")`, "matches-nothing", `"ins*"`, ""}, {`glob(args.mode, "*e*")`, "", "", ""},
		{`tool.annotations.sideEffect == "netwrok"`, "impossible-value", `"netwrok"`, `"network"`}, {`tool.source.kind == "mcp"`, "", "", ""}, {`tool.permission in ["allow", "ask"]`, "impossible-value", `"ask"`, "approval"}, {`run.depth < 0`, "out-of-range", "0", "at least 0"}, {`call.repeat > 0`, "", "", ""}, {`budget.left.calls <= 0`, "", "", ""},
		{`args.n < 100`, "out-of-range", "100", "at most 50"},
	} {
		docs := []string{toolDoc("w.write", literalSchema), policyDoc("[w.write]", "deny", "|\n        "+c.when)}
		ds := findings(t, docs...)
		switch {
		case c.code == "" && len(ds) == 0:
		case len(ds) != 1 || ds[0].Code != c.code || !strings.Contains(ds[0].Hint, c.hint):
			t.Errorf("%s: want %q with the hint %q, got\n%s", c.when, c.code, c.hint, ds.Text())
		case caret(t, ds[0], docs...) != c.under:
			t.Errorf("%s: the caret stands under %q, want %q", c.when, caret(t, ds[0], docs...), c.under)
		case (ds[0].Severity == specs.Warning) != (c.code == "off-format" || strings.Contains(ds[0].Message, "always true (") && c.code == "out-of-range"):
			t.Errorf("%s: it is an %s", c.when, ds[0].Severity)
		}
	}
}

// TestLiteralsOverSeveralTools: what no tool can have is an error, what some cannot have is a warning that names them, and
// a condition on the tool itself keeps a comparison to the tools that it is about.
func TestLiteralsOverSeveralTools(t *testing.T) {
	t.Parallel()
	tools := []string{toolDoc("w.one", `{type: object, required: [mode], properties: {mode: {enum: [a, b]}}}`), toolDoc("w.two", `{type: object, required: [mode], properties: {mode: {enum: [b, c]}}}`),
		toolDoc("w.three", `{type: object, required: [mode], properties: {mode: {type: string}}}`), toolDoc("x.none", `{type: object, properties: {path: {type: string}}}`)}
	for _, c := range []struct {
		sel, when string
		severity  specs.Severity // "": silent
		words     string
	}{
		{`[w.one, w.two]`, `args.mode == "z"`, specs.Error, "(w.one, w.two)"}, {`[w.one, w.two]`, `args.mode == "a"`, specs.Warning, "1 of 2 selected tools: w.two"}, {`[w.one, w.two]`, `args.mode == "b"`, "", ""},
		{`["w.*"]`, `args.mode == "z"`, specs.Warning, "2 of 3 selected tools: w.one, w.two"}, {`["w.*", "x.*"]`, `has(args.mode) && args.mode == "z"`, specs.Warning, "2 of 4"}, {`[w.one, x.none]`, `has(args.mode) && args.mode == "z"`, specs.Error, "w.one"},
		{`[w.one, w.two]`, `tool.name == "w.one" && args.mode == "a"`, "", ""}, {`[w.one, w.two]`, `args.mode == "c" && tool.name in ["w.two"]`, "", ""}, {`[w.one, w.two]`, `glob(tool.name, "*.one") ? args.mode == "a" : args.mode == "b"`, "", ""},
		{`[w.one, w.two]`, `tool.name == "w.one" && args.mode == "c"`, specs.Error, "w.one"}, {`[w.one, w.two]`, `tool.name.startsWith("w.o") && args.mode == "c"`, specs.Error, "w.one"},
	} {
		ds := findings(t, append(tools, policyDoc(c.sel, "deny", "|\n        "+c.when))...)
		if c.severity == "" && len(ds) > 0 || c.severity != "" && (len(ds) != 1 || ds[0].Severity != c.severity || !strings.Contains(ds[0].Message, c.words)) {
			t.Errorf("%s over %s: want %q with %q, got\n%s", c.when, c.sel, c.severity, c.words, ds.Text())
		}
	}
}
