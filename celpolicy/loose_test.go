package celpolicy

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/callgate/callgate/specs"
)

const looseSchema = `{type: object, required: [title, meta], properties: {title: {type: [string, "null"]}, limit: {anyOf: [{type: number}, {type: "null"}]}, x-id: {type: string}, "on": {type: boolean}, tags: {type: [array, "null"], items: {type: string}},
    meta: {type: object, additionalProperties: true, required: [size], properties: {size: {type: integer}}}, who: {anyOf: [{$ref: "#/$defs/person"}, {type: "null"}]}, rows: {type: array, items: {type: object, properties: {a-b: {type: string}, c: {type: string}}}}}, $defs: {person: {type: object, required: [name], properties: {name: {type: string}}}}}`

// TestNullableAndOpenArguments: a value that may be null has its type and may be asked for null; an object with other
// properties has types for those it declares, and is a map where it is used as one.
func TestNullableAndOpenArguments(t *testing.T) {
	t.Parallel()
	for when, want := range map[string]string{
		`args.title == "x"`: "", `args.title != null && args.title.startsWith("x")`: "", `args.title == null`: "", `args.title == 5`: "expression",
		`has(args.limit) && args.limit > 5.0`: "", `has(args.limit) && args.limit > 5`: "mixed-numbers", `has(args.limit) && args.limit == null`: "",
		`has(args.tags) && "x" in args.tags`: "", `has(args.tags) && dyn(args.tags) == null`: "", `has(args.tags) && 5 in args.tags`: "expression",
		`has(args.who) && args.who != null && args.who.name == "ann"`: "", `has(args.who) && args.who.nam == "ann"`: "unknown-field",
		`args.meta.size > 5`: "", `args.meta.size > "5"`: "expression", `args.meta.other == 5`: "", `has(args.meta.other) && args.meta.other == "x"`: "",
		`args.meta["size"] == 5`: "", `args.meta.all(k, k != "secret")`: "", `size(args.meta) > 3`: "", `"x" in args.meta`: "",
		`"x-id" in args && args["x-id"] == "x"`: "", `args.?title.orValue("") == "x"`: "", `args.titel == "x"`: "unknown-field",
		`has(args.rows) && args.rows.exists(r, r["a-b"] == "x")`: "", `has(args.rows) && args.rows == "x"`: "expression", `(has(args.on) && args.on ? args.meta : args.meta).size == 5`: "",
	} {
		ds := findings(t, toolDoc("w.write", looseSchema), policyDoc("[w.write]", "deny", "|\n        "+when))
		if want == "" && len(ds) > 0 || want != "" && (len(ds) != 1 || ds[0].Code != want) {
			t.Errorf("%s: want %q, got\n%s", when, want, ds.Text())
		}
	}
}

// TestNumbersOfUnions: at run time a number takes the type of its place, also where null is possible, where branches
// meet, and among declared properties of an open object.
func TestNumbersOfUnions(t *testing.T) {
	t.Parallel()
	p := compile(t, toolDoc("w.write", `{type: object, additionalProperties: true, properties: {a: {type: [number, "null"]}, b: {anyOf: [{type: integer}, {type: number}]}, c: {type: [integer, "null"]}, d: {type: [integer, string]}}}`),
		policyDoc("[w.write]", "deny", "|\n        has(args.a) && args.a == 2.0 || has(args.b) && args.b < 1.5 || has(args.c) && args.c == 9007199254740993 || has(args.d) && args.d == 3 || has(args.free) && args.free == 4"))
	for args, want := range map[string]Outcome{
		`{"a":2}`: Matched, `{"a":2.0}`: Matched, `{"a":null}`: Unmatched, `{"b":1}`: Matched, `{"b":2}`: Unmatched, `{"b":1.4}`: Matched,
		`{"c":9007199254740993}`: Matched, `{"c":9007199254740992}`: Unmatched, `{"c":null}`: Unmatched, `{"c":1.5}`: Errored,
		`{"d":3}`: Matched, `{"d":"3"}`: Unmatched, `{"free":4}`: Matched, `{"free":"4"}`: Unmatched, `{}`: Unmatched,
	} {
		d := p.Resolve(Input{Phase: PhaseCall, Tool: "w.write", Args: json.RawMessage(args), Trace: true})
		if d.Trace[0].Outcome != want {
			t.Errorf("%s: %s, want %s (%s)", args, d.Trace[0].Outcome, want, d.Trace[0].Error)
		}
	}
}

// TestARuleOverOpenAndClosedTools still finds what one of them lacks.
func TestARuleOverOpenAndClosedTools(t *testing.T) {
	t.Parallel()
	docs := []string{toolDoc("w.open", `{type: object, additionalProperties: true, properties: {path: {type: string}}}`),
		toolDoc("w.shut", `{type: object, properties: {path: {type: string}}}`), policyDoc(`["w.*"]`, "deny", `has(args.mode) && args.mode == "x"`)}
	ds := findings(t, docs...)
	if !slices.ContainsFunc(ds, func(d specs.Diagnostic) bool { return d.Code == "unknown-field" }) {
		t.Errorf("no finding about the tool without `mode`:\n%s", ds.Text())
	}
}
