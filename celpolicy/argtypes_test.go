package celpolicy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
)

// toolDoc writes a tool with the properties of its arguments.
func toolDoc(name, schema string) string {
	return fmt.Sprintf("apiVersion: callgate/v1\nkind: Tool\nmetadata: {name: %s}\nspec:\n  title: T\n  description: D\n  source: built_in\n  inputSchema: %s\n  annotations: {readOnly: true, sideEffect: none}", name, schema)
}

const writeSchema = `{type: object, additionalProperties: false, required: [path, count, price, tags], properties: {path: {type: string}, count: {type: integer}, price: {type: number}, tags: {type: array, items: {type: string}}, mode: {enum: [replace, append]}, where: {type: object, additionalProperties: false, required: [host], properties: {host: {type: string}, port: {type: integer}}}, env: {type: object, additionalProperties: {type: string}}, big: {$ref: "#/$defs/size"}, loop: {$ref: "#/$defs/tree"}, either: {type: [string, integer]}, free: {type: object}}, $defs: {size: {type: integer}, tree: {type: object, additionalProperties: false, properties: {next: {$ref: "#/$defs/tree"}}}}}`

// policyDoc writes a profile-layer policy of one rule; when is the YAML after `when:`.
func policyDoc(tools, effect, when string) string {
	return fmt.Sprintf("apiVersion: callgate/v1\nkind: Policy\nmetadata: {name: pol}\nspec:\n  layer: profile\n  rules:\n    - name: one\n      tools: %s\n      effect: %s\n      when: %s", tools, effect, when)
}

func findings(t *testing.T, docs ...string) specs.Diagnostics {
	t.Helper()
	p, err := Compile(load(t, docs...))
	if err != nil {
		ds, ok := specs.AsDiagnostics(err)
		if !ok {
			t.Fatalf("%v", err)
		}
		return ds
	}
	return p.Warnings()
}

// caret gives the text that a finding underlines, by reading the source at its position.
func caret(t *testing.T, d specs.Diagnostic, docs ...string) string {
	t.Helper()
	lines := strings.Split(strings.Join(docs, "\n---\n"), "\n")
	if d.Pos.Line < 1 || d.Pos.Line > len(lines) {
		t.Fatalf("%v is nowhere", d.Pos)
	}
	runes := []rune(lines[d.Pos.Line-1])
	return string(runes[d.Pos.Col-1 : min(len(runes), d.Pos.Col-1+d.Width)])
}

// TestMistypedArgument: args.pth points at the author's own line and column whatever the scalar's style is.
func TestMistypedArgument(t *testing.T) {
	t.Parallel()
	tool := toolDoc("w.write", writeSchema)
	for name, when := range map[string]string{
		"plain":           `args.pth == "x"`,
		"plain folded":    "args.path == \"y\" ||\n        args.pth == \"x\"",
		"single quoted":   `'args.pth == "it''s"'`,
		"double quoted":   `"args.path == \"\u00e9\\n\" || args.pth == \"x\""`,
		"literal":         "|\n        args.path == \"y\" ||\n          args.pth == \"x\"",
		"folded":          ">\n        args.path == \"y\" ||\n        args.pth == \"x\"",
		"folded, wide":    ">-\n        args.path == \"世界\" ||\n\n        args.pth == \"x\"",
		"has":             `has(args.pth)`,
		"optional":        `args.?pth.orValue("") == "x"`,
		"deep in a macro": "|\n        args.tags.exists(tag,\n          tag == args.pth)",
	} {
		policy := policyDoc("[w.write]", "deny", when)
		ds := findings(t, tool, policy).Errors()
		if len(ds) != 1 {
			t.Errorf("%s: %d findings:\n%s", name, len(ds), ds.Text())
			continue
		}
		if got := caret(t, ds[0], tool, policy); got != "pth" {
			t.Errorf("%s: the caret stands under %q at %v\n%s", name, got, ds[0].Pos, ds.Text())
		}
		if !strings.Contains(ds[0].Hint, `"path"`) || !strings.Contains(ds[0].Message, "pth") || !strings.Contains(ds[0].Message, "w.write") {
			t.Errorf("%s: %s (%s)", name, ds[0].Message, ds[0].Hint)
		}
	}
}

// TestLoadErrors: each of these conditions is refused with a code an author can look up.
func TestLoadErrors(t *testing.T) {
	t.Parallel()
	for when, want := range map[string]string{
		`args.where.hst == "x"`:                 "unknown-field",
		`has(args.loop) && has(args.loop.prev)`: "unknown-field",
		`user.role == "admin"`:                  "unknown-field",
		`tool.annotation.readOnly`:              "unknown-field",
		`tool.source.trusted`:                   "unknown-field",
		`budget.left.call > 3`:                  "unknown-field",
		`uesr.id == "x"`:                        "unknown-variable",
		`args.count > 1.5`:                      "mixed-numbers",
		`args.price > 5`:                        "mixed-numbers",
		`args.price == 5`:                       "mixed-numbers",
		`args.count == "5"`:                     "expression",
		`args.path.matchs("x")`:                 "unknown-function",
		`pathWithin(args.path, "x")`:            "unknown-function",
		`args.path`:                             "wrong-type",
		`args.count + 1`:                        "wrong-type",
		`"deny"`:                                "wrong-type",
		`args.path ==`:                          "expression-syntax",
		`args.path.matches("(")`:                "expression",
		`{"a": 1, "b": 2}.exists(k, k == "a")`:  "expression",
		`args.tags[0] == 1`:                     "expression",
		`args.env.HOME == 3`:                    "expression",
		`has(args.big) && args.big == 1.0`:      "mixed-numbers",
	} {
		ds := findings(t, toolDoc("w.write", writeSchema), policyDoc("[w.write]", "deny", "|\n        "+when)).Errors()
		if len(ds) != 1 || ds[0].Code != want {
			t.Errorf("%s: want one %s, got\n%s", when, want, ds.Text())
			continue
		}
		if ds[0].Pos.Line == 0 || ds[0].Source == "" {
			t.Errorf("%s: no place: %+v", when, ds[0])
		}
	}
}

// TestMistakesOfOtherLanguages: who writes what another language calls right is told what CEL calls it.
func TestMistakesOfOtherLanguages(t *testing.T) {
	t.Parallel()
	for when, want := range map[string]string{
		`args.path = "x"`:                     "write ==",
		`args.path === "x"`:                   "write ==",
		`args.path is "x"`:                    "write ==",
		`args.path == "x" and true`:           "write &&",
		`args.path == "x" & true`:             "write &&",
		`args.path == "x" or true`:            "write ||",
		`args.path == "x" | true`:             "write ||",
		`not args.path == "x"`:                "write !",
		`args.path like "x%"`:                 "glob(",
		`args.path == "x"; true`:              "one expression",
		`if args.path == "x" then true`:       "? THIS : THAT",
		`args.path == “x”`:                    "straight quotes",
		`args.path == "x`:                     `add "`,
		`len(args.path) > 3`:                  `"size"`,
		`args.path.length() > 3`:              `"size"`,
		`now.hour() > 18`:                     `"getHours"`,
		`args.path.startswith("x")`:           `"startsWith"`,
		`startsWith(args.path, "x")`:          "x.startsWith(...)",
		`args.path == null`:                   "has(args.name)",
		`args["path"] == "x"`:                 "args.name",
		`args.count == "5"`:                   "without quotes",
		`args.path in [1]`:                    "type of the list's values",
		`user.roles == "admin"`:               `"x" in list`,
		`user.roles.contains("admin")`:        `"x" in list`,
		`tool.annotations.sideEffect == netw`: "stands in quotes",
		`arg.path == "x"`:                     `"args"`,
	} {
		ds := findings(t, toolDoc("w.write", writeSchema), policyDoc("[w.write]", "deny", "|\n        "+when)).Errors()
		if len(ds) != 1 || !strings.Contains(ds[0].Hint, want) || strings.ContainsAny(ds[0].Message, "_@#") {
			t.Errorf("%s: want one finding with the hint %q, got\n%s", when, want, ds.Text())
		}
	}
}

// TestTypedConditionsLoad: and these are fine, without a warning.
func TestTypedConditionsLoad(t *testing.T) {
	t.Parallel()
	for _, when := range []string{
		`path.within(args.path, "output")`, `args.count > 9007199254740993`, `args.price > 5.0`,
		`"secret" in args.tags && args.tags.all(t, size(t) < 9)`, `has(args.mode) && args.mode == "append"`,
		`!has(args.mode) || args.mode == "append"`, `args.?mode.orValue("replace") == "append"`,
		`has(args.mode) ? args.mode == "append" : false`, `args.mode == "append" && has(args.mode)`,
		`has(args.where) && args.where.host.endsWith(".example")`, `args.?where.?port.orValue(0) == 443`,
		`has(args.where) && has(args.where.port) && args.where.port == 443`,
		`has(args.env) && "HOME" in args.env && args.env.HOME.startsWith("/")`,
		`has(args.either) && args.either == 3 || has(args.either) && args.either == "x"`,
		`has(args.free) && args.free.anything == 1`, `has(args.loop) && has(args.loop.next) && has(args.loop.next.next)`,
		`tool.annotations.readOnly && tool.source.kind == "built_in" && tool.source.accepted`,
		`"admin" in user.roles && user.labels.team == "ops" && tenant.labels["tier"] == "pro" && "x" in run.labels`,
		`budget.left.calls > 3 && budget.used.cost < budget.limit.cost`, `call.repeat > 2 && call.sequence > 0`,
		`now > timestamp("2026-01-01T00:00:00Z") && now.getHours() < 20`, `run.depth == 0 && run.round < 5 && "main" in run.artifacts`,
		`glob(args.path, "*.md")`, `semver("1.2.3").isLessThan(semver("2.0.0"))`, `cidr("10.0.0.0/8").containsIP("10.1.2.3")`,
		`sets.contains(args.tags, ["a"]) && math.greatest(args.count, 3) > 2 && args.tags.slice(0, 0).size() == 0`,
		`lists.range(3).exists(i, i == args.count)`, `dyn(args).extra == 1`,
	} {
		ds := findings(t, toolDoc("w.write", writeSchema), policyDoc("[w.write]", "deny", "|\n        "+when))
		if len(ds) != 0 {
			t.Errorf("%s:\n%s", when, ds.Text())
		}
	}
}

// TestSeveralToolsAreCheckedEach: one rule over many tools reports each mistake once and names the tools.
func TestSeveralToolsAreCheckedEach(t *testing.T) {
	t.Parallel()
	path := `{type: object, additionalProperties: false, required: [path], properties: {path: {type: string}}}`
	file := `{type: object, additionalProperties: false, required: [file], properties: {file: {type: string}}}`
	docs := func(when string) []string {
		return []string{toolDoc("w.one", path), toolDoc("w.two", path), toolDoc("w.three", file), policyDoc(`["w.*"]`, "deny", "|\n        "+when)}
	}
	ds := findings(t, docs(`args.path == "x"`)...).Errors()
	if len(ds) != 1 || !strings.Contains(ds[0].Message, "1 of 3 selected tools: w.three") || !strings.Contains(ds[0].Hint, "has(args.path)") {
		t.Errorf("one tool without the argument:\n%s", ds.Text())
	}
	ds = findings(t, docs(`args.pth == "x"`)...).Errors()
	if len(ds) != 1 || !strings.Contains(ds[0].Message, "w.one, w.three, w.two") {
		t.Errorf("a typo in all:\n%s", ds.Text())
	}
	// has() over several tools may name what some of them lack, and protects the use behind it.
	for _, when := range []string{`has(args.path) && args.path == "x"`, `has(args.file) ? args.file == "x" : has(args.path)`, `args.?path.orValue("") == "x"`} {
		if ds := findings(t, docs(when)...); len(ds) != 0 {
			t.Errorf("%s:\n%s", when, ds.Text())
		}
	}
	// But a name that none of them has is a typo even there.
	if ds := findings(t, docs(`has(args.pth) && args.pth == "x"`)...).Errors(); len(ds) == 0 {
		t.Error("has() hid a typo")
	}
	p := compile(t, docs(`has(args.path) && args.path == "x"`)...)
	for tool, want := range map[specs.ToolName]Outcome{"w.one": Matched, "w.three": Unmatched} {
		args := `{"path":"x"}`
		if tool == "w.three" {
			args = `{"file":"x"}`
		}
		d := p.Resolve(Input{Phase: PhaseCall, Tool: tool, Args: json.RawMessage(args), Trace: true})
		if d.Trace[0].Outcome != want {
			t.Errorf("%s: %s, want %s (%s)", tool, d.Trace[0].Outcome, want, d.Trace[0].Error)
		}
	}
}

// TestDynSaysWhy: where the schema promises too little, the expression is checked when it runs, and explain says so.
func TestDynSaysWhy(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{type: object, properties: {a: {}}, additionalProperties: true}`: "gives no type",
		`{type: object}`: "open object",
		`{type: object, properties: {a: {type: [string, integer]}}}`:                  "union of string, integer",
		`{type: object, properties: {a: {anyOf: [{type: string}, {type: integer}]}}}`: "union of string, integer",
		`{type: object, properties: {a: {enum: [1, x]}}}`:                             "enum of several types",
		`{type: object, patternProperties: {"^x": {type: [string, integer]}}}`:        "union of string, integer",
		`{type: object, properties: {a: {description: anything}}}`:                    "gives no type",
	} {
		p, err := Compile(&specs.Bundle{Tools: load(t, toolDoc("w.write", schema)).Tools, Policies: []*specs.Policy{{Meta: specs.Meta{Name: "pol"},
			Layer: specs.LayerProfile, Rules: []specs.Rule{{Name: "one", Tools: texts1("*"), Effect: specs.EffectDeny, When: specs.TextOf(`has(args.a) && args.a == "x"`)}}}}})
		if err != nil {
			t.Errorf("%s: %v", schema, err)
			continue
		}
		x := Explain(p, Input{Phase: PhaseCall, Tool: "w.write", Args: json.RawMessage(`{"a":"x"}`)})
		if len(x.Notes) != 1 || !strings.Contains(x.Notes[0], want) || !strings.Contains(x.Text(), want) || !strings.Contains(x.Trace[0].Note, want) {
			t.Errorf("%s: notes %q, want %q", schema, x.Notes, want)
		}
		if x.Callable || x.Trace[0].Outcome != Matched {
			t.Errorf("%s: %s", schema, x.Trace[0].Outcome)
		}
	}
}

// TestCase_E18_OptionalNeedsAQuestion: an optional argument read without has() or ?. is a warning that says what
// the rule will do when the argument is absent.
func TestCase_E18_OptionalNeedsAQuestion(t *testing.T) {
	t.Parallel()
	for effect, then := range map[string]string{"deny": "this rule denies", "allow": "this rule does not allow", "approve": "this rule asks", "waive": "this rule does not waive", "hide": "this rule hides"} {
		ds := findings(t, toolDoc("w.write", writeSchema), policyDoc("[w.write]", effect, `args.mode == "append"`))
		i := slices.IndexFunc(ds, func(d specs.Diagnostic) bool { return d.Code == "optional-unguarded" })
		if i < 0 || ds[i].Severity != specs.Warning || !strings.Contains(ds[i].Message, then) || !strings.Contains(ds[i].Hint, "has(args.mode)") {
			t.Errorf("%s:\n%s", effect, ds.Text())
		}
	}
	for _, when := range []string{`args.where.host == "x"`, `has(args.where) && args.where.port == 1`, `has(args.mode) || args.mode == "x"`,
		`!has(args.mode) && args.mode == "x"`, `has(args.path) && args.mode == "x"`} {
		ds := findings(t, toolDoc("w.write", writeSchema), policyDoc("[w.write]", "deny", "|\n        "+when))
		if !slices.ContainsFunc(ds, func(d specs.Diagnostic) bool { return d.Code == "optional-unguarded" }) {
			t.Errorf("%s: no warning", when)
		}
	}
}

// TestCase_E22_WholeNumbersStayExact: above 2^53 nothing is rounded, and what cannot be exact is an error that
// goes to the strict side.
func TestCase_E22_WholeNumbersStayExact(t *testing.T) {
	t.Parallel()
	p := compile(t, toolDoc("w.write", `{type: object, additionalProperties: false, properties: {num: {type: integer}, d: {type: number}, x: {}}}`),
		policyDoc("[w.write]", "deny", "|\n        has(args.num) && args.num == 9007199254740993 || has(args.d) && args.d > 1.5 || has(args.x) && args.x > 9007199254740992.0"))
	for args, want := range map[string]Outcome{
		`{"num":9007199254740993}`: Matched, `{"num":9007199254740992}`: Unmatched, `{"num":9007199254740994}`: Unmatched,
		`{"num":9223372036854775807}`: Unmatched, `{"num":9223372036854775808}`: Errored, `{"num":1.0}`: Unmatched, `{"num":1.5}`: Errored,
		`{"d":2}`: Matched, `{"d":1}`: Unmatched, `{"d":1e3}`: Matched, `{"d":9007199254740993}`: Errored,
		`{"x":9007199254740993}`: Matched, `{"x":9007199254740992}`: Unmatched, `{"x":1}`: Unmatched,
	} {
		d := p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Args: json.RawMessage(args), Trace: true})
		if d.Trace[0].Outcome != want {
			t.Errorf("%s: %s, want %s (%s)", args, d.Trace[0].Outcome, want, d.Trace[0].Error)
		}
	}
	if c, mixed := exactCompare(toInt(1<<53+1), toDouble(1<<53)); !mixed || c != 1 {
		t.Errorf("2^53+1 against 2^53 is %d", c)
	}
}
