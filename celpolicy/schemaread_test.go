package celpolicy

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/callgate/callgate/specs"
)

func readShape(schema string) *shape {
	return shapeOf(specs.Schema{Raw: json.RawMessage(schema)})
}

// TestSchemasBecomeTypes: what each word of JSON Schema says about the argument `a`.
func TestSchemasBecomeTypes(t *testing.T) {
	t.Parallel()
	const defs = `"$defs":{"s":{"type":"string"},"n":{"$anchor":"num","type":"number"},"o":{"type":"object","required":["x"],"properties":{"x":{"$ref":"#/$defs/s"}}},
		"far":{"$id":"other.json","$defs":{"i":{"$anchor":"whole","type":"integer"}},"type":"boolean"},"a/b~c":{"type":"integer"}},"definitions":{"old":{"type":"boolean"}}`
	for _, c := range []struct{ schema, want string }{
		{`{"type":"string"}`, "string"}, {`{"type":"integer"}`, "int"}, {`{"type":"number"}`, "double"}, {`{"type":"boolean"}`, "bool"}, {`{"type":"null"}`, "null"},
		{`{"type":["string"]}`, "string"}, {`{"type":["string","null"]}`, "string|null"}, {`{"type":["integer","number"]}`, "double"},
		{`{"type":["number","null"],"minimum":1}`, "double|null"}, {`{"type":["string","integer"]}`, "dyn"}, {`{}`, "dyn"}, {`true`, "dyn"}, {`false`, "dyn"},
		{`{"enum":["a","b"]}`, "string"}, {`{"enum":["a",null]}`, "string|null"}, {`{"enum":[1,2]}`, "int"}, {`{"enum":[1,2.5]}`, "double"}, {`{"const":true}`, "bool"}, {`{"const":null}`, "null"}, {`{"enum":[1,"a"]}`, "dyn"},
		{`{"$ref":"#/$defs/s"}`, "string"}, {`{"$ref":"#/definitions/old"}`, "bool"}, {`{"$ref":"#num"}`, "double"}, {`{"$ref":"other.json"}`, "bool"}, {`{"$ref":"other.json#/$defs/i"}`, "int"},
		{`{"$ref":"other.json#whole"}`, "int"}, {`{"$ref":"#/$defs/far/$defs/i"}`, "int"}, {`{"$ref":"#/$defs/a~1b~0c"}`, "int"}, {`{"$ref":"#whole"}`, "dyn"}, {`{"$ref":"#/$defs/none"}`, "dyn"}, {`{"$ref":"https://example.com/s"}`, "dyn"},
		{`{"$ref":"#/$defs/s","maxLength":3}`, "string"}, {`{"$ref":"#/$defs/n","type":"integer"}`, "int"}, {`{"$dynamicRef":"#num"}`, "dyn"},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, "string|null"}, {`{"oneOf":[{"const":"a"},{"const":"b"}]}`, "string"}, {`{"anyOf":[{"$ref":"#/$defs/s"},{"enum":["x"]}]}`, "string"},
		{`{"anyOf":[{"type":"string"},{"type":"integer"}]}`, "dyn"}, {`{"type":"string","anyOf":[{"minLength":3},{"pattern":"^x"}]}`, "string"}, {`{"type":["string","null"],"not":{"const":""}}`, "string|null"},
		{`{"anyOf":[{"$ref":"#/$defs/o"},{"type":"null"}]}`, "{x:string;}|null"}, {`{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]}`, "list<string>|null"},
		{`{"allOf":[{"$ref":"#/$defs/o"},{"properties":{"y":{"type":"integer"}},"required":["y"]}]}`, "{x:string;y:int;}"},
		{`{"type":"object","properties":{"x":{"type":"string"}},"allOf":[{"required":["x"]}]}`, "{x:string;}"},
		{`{"type":"object","properties":{"x":{"type":"number"}},"allOf":[{"properties":{"x":{"type":"integer"}}}]}`, "{x?:int;}"},
		{`{"allOf":[{"type":"string"},{"type":["string","null"]}]}`, "string"}, {`{"allOf":[{"type":"string"},{"type":"integer"}]}`, "dyn"},
		{`{"type":"object","properties":{"x":{"type":"string"},"y":{"type":"string"}},"anyOf":[{"required":["x"]},{"required":["y"]}]}`, "{x?:string;y?:string;}"},
		{`{"type":"object","properties":{"x":{"type":"string"},"y":{"type":"string"}},"anyOf":[{"required":["x"]},{"required":["x","y"]}]}`, "{x:string;y?:string;}"},
		{`{"oneOf":[{"type":"object","required":["kind","n"],"properties":{"kind":{"const":"n"},"n":{"type":"integer"}}},{"type":"object","required":["kind"],"properties":{"kind":{"const":"s"},"s":{"type":"string"}}}]}`, "{kind:string;n?:int;s?:string;}"},
		{`{"type":"object","properties":{"x":{"type":"string"}},"if":{"properties":{"x":{"const":"a"}}},"then":{"properties":{"y":{"type":"integer"}},"required":["y"]}}`, "{x?:string;y?:int;}"},
		{`{"type":"object","properties":{"x":{"type":"string"}},"dependentSchemas":{"x":{"properties":{"y":{"type":"integer"}},"required":["y"]}}}`, "{x?:string;y?:int;}"},
		{`{"properties":{"x":{"type":"string"}}}`, "{x?:string;}"}, {`{"type":"object"}`, "map<dyn>"}, {`{"type":"object","additionalProperties":false}`, "{}"},
		{`{"type":"object","additionalProperties":{"type":"integer"}}`, "map<int>"}, {`{"type":"object","patternProperties":{"^x":{"type":"string"}}}`, "map<string>"},
		{`{"type":"object","patternProperties":{"^x":{"type":"string"},"^y":{"type":"string"}},"additionalProperties":{"type":"integer"}}`, "map<dyn>"},
		{`{"type":"object","patternProperties":{"^x":{"type":"string"}},"additionalProperties":true}`, "map<dyn>"},
		{`{"type":"object","properties":{"x":{"type":"string"}},"additionalProperties":true}`, "{x?:string;...}"}, {`{"type":"object","properties":{"x":{"type":"string"}},"unevaluatedProperties":false}`, "{x?:string;}"},
		{`{"type":"object","properties":{"x-y":{"type":"string"}}}`, "{x-y?:string;}"}, {`{"type":"array"}`, "list<dyn>"}, {`{"type":"array","items":{"type":"string"}}`, "list<string>"}, {`{"items":{"type":"string"}}`, "list<string>"},
		{`{"type":"array","prefixItems":[{"type":"number"},{"type":"number"}],"items":false}`, "list<double>"}, {`{"type":"array","prefixItems":[{"type":"number"}]}`, "list<dyn>"},
		{`{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":false}`, "list<dyn>"}, {`{"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"number"}}`, "list<double>"},
		{`{"type":"array","items":{"type":"object","properties":{"x-y":{"type":"string"}}}}`, "list<map<dyn>>"}, {`{"type":"array","items":{"type":"object","properties":{"x":{"type":"string"}}}}`, "list<{x?:string;}>"},
		{`{"type":"string","format":"date-time","contentEncoding":"base64"}`, "string"}, {`{"enum":[]}`, "dyn"},
	} {
		s := readShape(`{"type":"object","required":["a"],"properties":{"a":` + c.schema + `},` + defs + `}`)
		if got := s.fields["a"].key(); got != c.want {
			t.Errorf("%s is %s, want %s", c.schema, got, c.want)
		}
		if a := s.fields["a"]; a.kind == shapeDyn && a.why == "" {
			t.Errorf("%s is dyn and does not say why", c.schema)
		}
	}
}

// TestOldDrafts: in draft-07 a $ref stands alone, an $id of "#x" is an anchor and a list of items is a tuple.
func TestOldDrafts(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"$ref":"#/definitions/d","type":"integer"}`:                                      "string",
		`{"$ref":"#here"}`:                                                                 "bool",
		`{"type":"array","items":[{"type":"string"}],"additionalItems":false}`:             "list<string>",
		`{"type":"array","items":[{"type":"string"}],"additionalItems":{"type":"string"}}`: "list<string>",
		`{"type":"array","items":[{"type":"string"}]}`:                                     "list<dyn>",
		`{"type":"object","properties":{"x":{"type":"string"}},"dependencies":{"x":{"properties":{"y":{"type":"integer"}}},"y":["x"]}}`: "{x?:string;y?:int;}",
	} {
		s := readShape(`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":` + schema + `},"definitions":{"d":{"type":"string"},"e":{"$id":"#here","type":"boolean"}}}`)
		if got := s.fields["a"].key(); got != want {
			t.Errorf("%s is %s, want %s", schema, got, want)
		}
	}
	rooted := readShape(`{"$id":"https://example.com/root.json","type":"object","properties":{"a":{"$ref":"#/$defs/d"},"b":{"$ref":"root.json#/$defs/d"},"c":{"$ref":"https://example.com/root.json#/$defs/d"}},"$defs":{"d":{"type":"string"}}}`)
	if got := rooted.key(); got != "{a?:string;b?:string;c?:string;}" {
		t.Errorf("a schema with an $id is %s", got)
	}
}

// TestHostileSchemasStaySmall: definitions that use each other cost neither time nor memory, and say why they have no type.
func TestHostileSchemasStaySmall(t *testing.T) {
	t.Parallel()
	var twice strings.Builder
	twice.WriteString(`{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range 60 {
		next := `{"$ref":"#/$defs/d` + strconv.Itoa(i+1) + `"}`
		twice.WriteString(`"d` + strconv.Itoa(i) + `":{"type":"object","properties":{"l":` + next + `,"r":` + next + `}},`)
	}
	twice.WriteString(`"d60":{"type":"string"}}}`)
	for name, schema := range map[string]string{
		"twice a level": twice.String(),
		"itself":        `{"type":"object","properties":{"a":{"$ref":"#"}}}`,
		"a circle":      `{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/y"},"y":{"$ref":"#/$defs/x"}}}`,
		"allOf itself":  `{"type":"object","allOf":[{"$ref":"#"}],"properties":{"a":{"type":"string"}}}`,
		"deep":          `{"type":"object","properties":{"a":` + strings.Repeat(`{"items":`, 60) + `{}` + strings.Repeat(`}`, 60) + `}}`,
		"huge numbers":  `{"type":"object","properties":{"a":{"type":"number","minimum":1e400,"enum":[1e-400,1e399]}}}`,
		"bad pattern":   `{"type":"object","properties":{"a":{"type":"string","pattern":"(?=x)((((a{100}){100}){100}){100})"}}}`,
	} {
		start := time.Now()
		s := readShape(schema)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		if s.kind != shapeObject || len(s.key()) > 1<<20 {
			t.Errorf("%s is %.200s", name, s.key())
		}
	}
}

// TestLimitsNeverLeaveOut: what a schema takes, the limits take; the combinations keep that.
func TestLimitsNeverLeaveOut(t *testing.T) {
	t.Parallel()
	parts := []string{`{"type":"string"}`, `{"type":"integer","minimum":2}`, `{"type":"number","exclusiveMaximum":3}`, `{"enum":["a","b",2]}`, `{"const":"a"}`, `{"type":["string","null"],"maxLength":1}`, `{"type":"boolean"}`,
		`{}`, `{"minLength":2}`, `{"type":"string","pattern":"^a"}`, `{"type":"null"}`, `{"maximum":2}`, `{"type":"array","maxItems":0}`}
	values := []string{`"a"`, `"b"`, `"ab"`, `""`, `1`, `2`, `2.0`, `2.5`, `3`, `null`, `true`, `-1e3`}
	var schemas []string
	for _, a := range parts {
		for _, b := range parts {
			schemas = append(schemas, `{"allOf":[`+a+`,`+b+`]}`, `{"anyOf":[`+a+`,`+b+`]}`, `{"anyOf":[{"allOf":[`+a+`,`+b+`]},{"const":"b"}]}`)
		}
	}
	for _, schema := range schemas {
		v, err := specs.Schema{Raw: json.RawMessage(schema)}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		l := readShape(`{"properties":{"a":` + schema + `}}`).fields["a"].limits
		for _, raw := range values {
			value, err := specs.DecodeJSON([]byte(raw), specs.JSONLimits{})
			if err != nil {
				t.Fatal(err)
			}
			if v.ValidateValue(value) == nil && l != nil && !l.takes(value) {
				t.Errorf("%s takes %s, its limits do not", schema, raw)
			}
		}
	}
}

// TestLimitsOfPropertiesNeverLeaveOut: the same for what a schema says about properties, whoever says it: a branch that may not
// hold, a condition, a pattern of names.
func TestLimitsOfPropertiesNeverLeaveOut(t *testing.T) {
	t.Parallel()
	parts := []string{`{}`, `{"type":"object"}`, `{"properties":{"k":{"const":"a"}}}`, `{"properties":{"k":{"const":"b"},"n":{"type":"integer","maximum":3}},"required":["k"]}`,
		`{"properties":{"o":{"properties":{"k":{"enum":["a"]}}}}}`, `{"properties":{"n":{"minimum":2}},"additionalProperties":false}`, `{"patternProperties":{"^k":{"enum":["a","b"]}}}`,
		`{"patternProperties":{"^x":{"const":"a"}}}`, `{"additionalProperties":{"enum":["a",2]}}`, `{"type":"string"}`, `{"properties":{"l":{"items":{"properties":{"k":{"const":"a"}}}}}}`,
		`{"properties":{"k":{"maxLength":1}},"additionalProperties":{"enum":["a",2]}}`}
	values := []string{`{}`, `{"k":"a"}`, `{"k":"b"}`, `{"k":"cc"}`, `{"n":1}`, `{"n":2}`, `{"n":9}`, `{"k":"b","n":9}`, `{"o":{"k":"a"}}`, `{"o":{"k":"z"}}`, `{"x":"a"}`, `{"x":"z"}`, `{"y":"z"}`, `{"y":2}`, `{"l":[{"k":"a"}]}`, `{"l":[{"k":"z"}]}`, `{"k":"a","y":"z"}`}
	var schemas []string
	for _, a := range parts {
		for _, b := range parts {
			schemas = append(schemas, `{"allOf":[`+a+`,`+b+`]}`, `{"anyOf":[`+a+`,`+b+`]}`, `{"oneOf":[`+a+`,`+b+`]}`, `{"if":`+a+`,"then":`+b+`}`, `{"if":{"required":["n"]},"then":`+a+`,"else":`+b+`}`,
				`{"dependentSchemas":{"n":`+a+`},"allOf":[`+b+`]}`)
		}
	}
	for _, schema := range schemas {
		v, err := specs.Schema{Raw: json.RawMessage(schema)}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		s := readShape(`{"properties":{"a":` + schema + `}}`).fields["a"]
		for _, raw := range values {
			value, err := specs.DecodeJSON([]byte(raw), specs.JSONLimits{})
			if err != nil {
				t.Fatal(err)
			}
			if v.ValidateValue(value) == nil && !takesAll(s, value) {
				t.Errorf("%s takes %s, its limits do not", schema, raw)
			}
		}
	}
}

// takesAll holds a value and all inside it against limits. Types are left aside: where a branch declares a property, the
// others are read as if they meant the same one.
func takesAll(s *shape, v any) bool {
	if s == nil || s.absent {
		return true
	}
	if s.limits != nil {
		l := *s.limits
		l.kinds = kindAny
		if !l.takes(v) {
			return false
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if s.kind == shapeObject && s.fields[name] != nil && !takesAll(s.fields[name], member) || s.kind == shapeMap && !takesAll(s.elem, member) {
				return false
			}
		}
	case []any:
		for _, e := range v {
			if s.kind == shapeList && !takesAll(s.elem, e) {
				return false
			}
		}
	}
	return true
}

// TestNumbersOfHugeExponentsAreNotCompared: a few characters must not become a number of a million digits.
func TestNumbersOfHugeExponentsAreNotCompared(t *testing.T) {
	t.Parallel()
	for text, exact := range map[json.Number]bool{"1e999999": false, "1e-999999": false, "0e-999999": false, "1e308": true, "1e-300": true, "0": true, "0.0": true, "123456789012345678901234567890": true} {
		if got := rational(text) != nil; got != exact {
			t.Errorf("%s is compared exactly: %t, want %t", text, got, exact)
		}
	}
	if l := readShape(`{"properties":{"a":{"enum":[1e400]}}}`).fields["a"].limits; l != nil && !l.takes(json.Number("1e400")) {
		t.Error("a listed number of a huge exponent is not taken")
	}
}
