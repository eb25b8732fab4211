package specs

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

type suiteCase struct {
	File, Description string
	Schema            json.RawMessage
	Tests             []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

// suiteExceptions say where we knowingly differ from the official suite: draft, file, what happens, and why. Everything else
// in it passes.
var suiteExceptions = []struct{ draft, file, why string }{
	{"draft2020-12", "refRemote.json", "two documents of the suite are known by the address they come from and by another $id; nothing comes from an address here"},
	{"draft2020-12", "optional/format/", "a format says what is meant and is not enforced in this draft, as the draft has it by default"},
	{"draft2020-12", "optional/format-assertion.json", "a meta-schema of one's own would have to be fetched"},
	{"draft7", "optional/content.json", "encoded content is not looked into"},
	{"draft7", "optional/cross-draft.json", "the other draft's schema would have to be fetched"},
	{"", "optional/ecmascript-regex.json", "patterns are RE2: linear time, ASCII \\s, no \\c"},
	{"draft7", "optional/format/ecmascript-regex.json", "patterns are RE2"},
	{"draft7", "optional/format/idn-email.json", "internationalized addresses are checked for their @ only"},
	{"draft7", "optional/format/ipv4.json", "the library takes a plus sign"},
	{"draft7", "optional/format/uri-reference.json", "the library reads references as net/url does"},
	{"draft7", "optional/format/uri-template.json", "the library knows templates of level 1"},
}

func suiteException(draft, file string) bool {
	for _, e := range suiteExceptions {
		if strings.HasPrefix(draft, e.draft) && strings.HasPrefix(file, e.file) {
			return true
		}
	}
	return false
}

// TestSchemaSuite runs the official suite of both drafts, required and optional. What a schema refers to outside itself is
// never fetched: such a schema is refused alone, and right once the other one stands inside it.
func TestSchemaSuite(t *testing.T) {
	t.Parallel()
	var remotes map[string]json.RawMessage
	if err := json.Unmarshal(corpusFile(t, "2-json-schema/remotes.json"), &remotes); err != nil {
		t.Fatal(err)
	}
	for _, draft := range []struct{ name, url, defs string }{
		{"draft2020-12", "https://json-schema.org/draft/2020-12/schema", "$defs"},
		{"draft7", "http://json-schema.org/draft-07/schema#", "definitions"},
	} {
		for _, part := range []string{"required", "optional"} {
			good, excepted, bundled := 0, 0, 0
			for _, line := range corpusLines(t, "2-json-schema/"+draft.name+"."+part+".jsonl") {
				var c suiteCase
				if err := json.Unmarshal(line, &c); err != nil {
					t.Fatal(err)
				}
				v, err := Schema{Raw: withDraft(c.Schema, draft.url)}.Compile()
				if err != nil && strings.Contains(err.Error(), "outside itself") && part == "required" {
					bundled++
					v, err = Schema{Raw: withRemotes(t, withDraft(c.Schema, draft.url), draft.defs, remotes)}.Compile()
				}
				if err != nil {
					if excepted++; !suiteException(draft.name, c.File) {
						t.Errorf("%s %s, %s: %v", draft.name, c.File, c.Description, err)
					}
					continue
				}
				for _, tc := range c.Tests {
					if (v.Validate(tc.Data) == nil) == tc.Valid {
						good++
						continue
					}
					if excepted++; !suiteException(draft.name, c.File) {
						t.Errorf("%s %s, %s, %s: want %v", draft.name, c.File, c.Description, tc.Description, tc.Valid)
					}
				}
			}
			t.Logf("%s, %s: %d as expected, %d by a listed exception, %d schemas refused until what they refer to stood inside", draft.name, part, good, excepted, bundled)
			if part == "required" && (good < 690 || excepted > 2) {
				t.Errorf("%s: %d as expected, %d exceptions among the required", draft.name, good, excepted)
			}
		}
	}
	for _, e := range suiteExceptions {
		t.Logf("exception: %s %s: %s", e.draft, e.file, e.why)
	}
}

// withDraft says the draft in a schema that does not.
func withDraft(raw json.RawMessage, url string) json.RawMessage {
	m := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &m) != nil || m["$schema"] != nil {
		return raw
	}
	m["$schema"], _ = json.Marshal(url)
	out, _ := json.Marshal(m)
	return out
}

// withRemotes puts the suite's other documents inside a schema, each under its own $id.
func withRemotes(t *testing.T, raw json.RawMessage, defs string, remotes map[string]json.RawMessage) json.RawMessage {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	inside, _ := schema[defs].(map[string]any)
	if inside == nil {
		inside = map[string]any{}
	}
	for _, url := range slices.Sorted(maps.Keys(remotes)) {
		var doc map[string]any
		if strings.Contains(url, "/v1/") || strings.Contains(url, "2019-09") || strings.Contains(url, "draft3") || strings.Contains(url, "draft4") || strings.Contains(url, "draft6") ||
			strings.Contains(url, "draft7") != (defs == "definitions") && strings.Contains(url, "draft") || json.Unmarshal(remotes[url], &doc) != nil {
			continue
		}
		if doc["$id"] == nil {
			doc["$id"] = url
		}
		inside[url] = doc
	}
	schema[defs] = inside
	out, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
