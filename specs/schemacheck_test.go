package specs

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

func schemaOf(raw string) Schema { return Schema{Raw: json.RawMessage(raw)} }

// TestArgumentErrorsHelpTheModel: each message names the place, what was expected and what came.
func TestArgumentErrorsHelpTheModel(t *testing.T) {
	t.Parallel()
	v, err := schemaOf(`{"type":"object","additionalProperties":false,"required":["path","content"],"properties":{
		"path":{"type":"string","minLength":1,"maxLength":10,"pattern":"^[a-z/.]+$"},"content":{"type":"string"},"mode":{"enum":["replace","append"]},
		"limit":{"type":"integer","minimum":1,"maximum":50},"n":{"type":["number","null"],"multipleOf":0.5},"kind":{"const":"x"},
		"one":{"oneOf":[{"type":"string"},{"type":"integer","minimum":3}]},"items":{"type":"array","minItems":1,"uniqueItems":true,"items":{"$ref":"#/$defs/item"}}},
		"$defs":{"item":{"type":"object","additionalProperties":false,"required":["index"],"properties":{"index":{"type":"integer"}}}}}`).Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, pointer, words string }{
		{`{"path":"a"}`, "", `the property "content" is missing (string)`},
		{`{"pth":"a","path":"a","content":""}`, "", `unknown property "pth"; did you mean "path"?`},
		{`{"zzzzzz":1,"path":"a","content":""}`, "", `known: content, items, kind, limit, mode, n, one, path`},
		{`{"path":5,"content":""}`, "/path", `expected string, got 5`},
		{`{"path":"A","content":""}`, "/path", `pattern`},
		{`{"path":"","content":""}`, "/path", `minLength`},
		{`{"path":"a","content":"","mode":"apend"}`, "/mode", `expected one of "replace", "append", got "apend"; did you mean "append"?`},
		{`{"path":"a","content":"","limit":51}`, "/limit", `maximum`},
		{`{"path":"a","content":"","limit":1.5}`, "/limit", `expected integer, got 1.5`},
		{`{"path":"a","content":"","kind":"y"}`, "/kind", `expected "x", got "y"`},
		{`{"path":"a","content":"","one":2}`, "/one", `fits none of the allowed forms`},
		{`{"path":"a","content":"","items":[{"index":1},{"idx":2}]}`, "/items/1", `the property "index" is missing (integer)`},
		{`[]`, "", `expected object, got []`},
		{`{"path":"a","path":"b","content":""}`, "", `the key "path" is there twice`},
		{`{"path":"a"`, "", `not acceptable JSON`},
	} {
		err := v.Validate([]byte(c.args))
		var ae *ArgError
		if !errors.As(err, &ae) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", c.args, err, c.words)
			continue
		}
		found := ae.Pointer == c.pointer
		for _, m := range ae.More {
			found = found || m.Pointer == c.pointer
		}
		if !found {
			t.Errorf("%s: nothing at %q: %v", c.args, c.pointer, err)
		}
	}
	if err := v.Validate([]byte(`{"path":"a","content":"","n":null,"one":3,"items":[{"index":9007199254740993}]}`)); err != nil {
		t.Error(err)
	}
	err = v.Validate([]byte(`{"path":5,"content":6,"mode":7}`))
	var ae *ArgError
	if !errors.As(err, &ae) || len(ae.More) != 2 {
		t.Errorf("want all three mistakes at once, got %v", err)
	}
}

// TestSchemasThatDoNotCompile are refused at load, at the place inside the schema.
func TestSchemasThatDoNotCompile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schema    string
		line, col int
		words     string
	}{
		{"{type: dict}", 6, 22, "not a valid JSON Schema"},
		{"{type: object, properties: {a: {type: String}}}", 6, 53, "not a valid JSON Schema"},
		{"{type: object, properties: {a: {type: integer, exclusiveMinimum: true}}}", 6, 80, "not a valid JSON Schema"},
		{"{type: array}", 6, 22, "arguments are always an object"},
		{"{properties: {a: {$ref: \"#/$defs/b\"}}}", 6, 15, "which is not there"},
		{"{properties: {a: {$ref: \"file:///etc/passwd\"}}}", 6, 15, "references must stay inside"},
		{"{properties: {a: {$ref: \"https://example.com/s\"}}}", 6, 15, "references must stay inside"},
		{"{$schema: \"https://example.com/draft\", type: object}", 6, 15, "references must stay inside"},
		{"{properties: {a: {type: string, pattern: \"(?=x)\"}}}", 6, 56, "lookaround"},
		{"{properties: {a: {required: x}}}", 6, 43, "not a valid JSON Schema"},
	} {
		wantOnly(t, findings(t, doc("Tool", "a.b", "source: built_in\ninputSchema: "+strings.Replace(c.schema, "{", "{", 1)), LoadOptions{}), "bad-schema", c.line, c.col+1, c.words)
	}
}

func TestSchemaDrafts(t *testing.T) {
	t.Parallel()
	for _, draft := range []string{"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"} {
		v, err := schemaOf(`{"$schema":"` + draft + `","type":"object","properties":{"a":{"type":"string"}}}`).Compile()
		if err != nil {
			t.Errorf("%s: %v", draft, err)
			continue
		}
		if v.Validate([]byte(`{"a":1}`)) == nil || v.Validate([]byte(`{"a":"x"}`)) != nil {
			t.Errorf("%s is not kept", draft)
		}
	}
}

// TestCase_P07_NoPropertiesIsAnObject: a tool without an inputSchema takes an empty object and nothing else.
func TestCase_P07_NoPropertiesIsAnObject(t *testing.T) {
	t.Parallel()
	b, err := load(doc("Tool", "a.b", "source: built_in"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := b.Tool("a.b").Args()
	if err != nil || v.Validate([]byte(`{}`)) != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{`[]`, `null`, `{"a":1}`, `""`} {
		if v.Validate([]byte(raw)) == nil {
			t.Errorf("%s is taken", raw)
		}
	}
	if v, err := b.Tool("a.b").Result(); v != nil || err != nil {
		t.Errorf("a free result has a validator: %v %v", v, err)
	}
}

// TestHostileSchemasAndValues: no panic, no endless check.
func TestHostileSchemasAndValues(t *testing.T) {
	t.Parallel()
	v, err := schemaOf(`{"type":"object","properties":{"n":{"type":"number","minimum":1,"multipleOf":0.001}}}`).Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{`{"n":1e5000000}`, `{"n":1e-5000000}`, `{"n":1e400}`, `{"n":` + strings.Repeat("9", 5000) + `}`} {
		_ = v.Validate([]byte(raw))
	}
	if _, err := schemaOf(`{"type":"object","properties":{"n":{"minimum":1e5000000}}}`).Compile(); err == nil {
		t.Error("an absurd bound compiles")
	}
	// Every level refers to the next one twice: 2^40 visits.
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range 40 {
		next := `{"$ref":"#/$defs/d` + string(rune('0'+(i+1)/10)) + string(rune('0'+(i+1)%10)) + `"}`
		name := string(rune('0'+i/10)) + string(rune('0'+i%10))
		if i == 0 {
			name = "0"
		}
		b.WriteString(`"d` + name + `":{"allOf":[` + next + `,` + next + `]},`)
	}
	b.WriteString(`"d40":{"type":"object"}}}`)
	bomb, err := schemaOf(b.String()).Compile()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err = bomb.Validate([]byte(`{}`))
	if err == nil || !strings.Contains(err.Error(), "too long") || time.Since(start) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	if err := bomb.Validate([]byte(`{}`)); err == nil {
		t.Error("the second try is let through")
	}
	loop, err := schemaOf(`{"$ref":"#"}`).Compile()
	if err == nil {
		_ = loop.Validate([]byte(`{}`))
	}
}

// TestValidatorsAreShared: many goroutines, one validator, the right answer for each.
func TestValidatorsAreShared(t *testing.T) {
	t.Parallel()
	b := loadShipped(t)
	tool := b.Tool("workspace.read_file")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			v, err := tool.Args()
			if err != nil {
				t.Error(err)
				return
			}
			for range 50 {
				if err := v.Validate([]byte(`{"path":"output/a"}`)); err != nil {
					t.Error(err)
				}
				if err := v.Validate([]byte(`{"pth":"output/a"}`)); err == nil {
					t.Errorf("%d: a wrong call is taken", i)
				}
			}
		})
	}
	wg.Wait()
	first, _ := tool.Args()
	if again, _ := tool.Args(); again != first {
		t.Error("the validator is made anew")
	}
}

// TestRealSchemas: every schema of real servers compiles, or says where it is wrong; none makes the library panic.
func TestRealSchemas(t *testing.T) {
	t.Parallel()
	var list struct {
		Tools []struct {
			Name        string
			Description string
			InputSchema json.RawMessage
		}
	}
	if err := json.Unmarshal(corpusFile(t, "1-mcp-tools/github-toolsnaps.tools.json"), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Tools) < 80 {
		t.Fatalf("only %d tools", len(list.Tools))
	}
	for _, tool := range list.Tools {
		if _, err := (Schema{Raw: tool.InputSchema}).compile(true); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
		if _, err := DefinitionDigest(tool.Name, tool.Description, tool.InputSchema); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
	}
	for _, line := range corpusLines(t, "1-mcp-tools/livemcpbench-servers.jsonl") {
		v, err := DecodeJSON(line, JSONLimits{})
		if err != nil {
			t.Fatal(err)
		}
		schemas := 0
		var walk func(any)
		walk = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				if s, ok := v["inputSchema"].(map[string]any); ok {
					raw, err := appendCanonical(nil, s, "")
					if err != nil {
						t.Error(err)
						return
					}
					schemas++
					var se *SchemaError
					if _, err := (Schema{Raw: raw}).compile(true); err != nil && !errors.As(err, &se) {
						t.Errorf("%v", err)
					}
				}
				for _, e := range v {
					walk(e)
				}
			case []any:
				for _, e := range v {
					walk(e)
				}
			}
		}
		walk(v)
		if schemas == 0 {
			t.Error("a server without schemas")
		}
	}
}

// TestReferencesOutsideSayTheWayOut: a schema that refers to a file or an address is refused with what to do instead, at the
// reference's own place.
func TestReferencesOutsideSayTheWayOut(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"file:///etc/passwd", "https://example.com/s.json", "other.json", "../up.json#/x"} {
		ds := findings(t, doc("Tool", "a.b", "source: built_in\ninputSchema: {properties: {a: {$ref: \""+ref+"\"}}}"), LoadOptions{})
		if len(ds) != 1 || ds[0].Code != "bad-schema" || !strings.Contains(ds[0].Hint, "#/$defs/NAME") || ds[0].Pos.Line == 0 {
			t.Errorf("%s:\n%s", ref, ds.Text())
		}
	}
}
