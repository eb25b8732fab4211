package mcp

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/specs"
)

const listed = `{"name":"get file","description":"Reads: a file # not a comment","inputSchema":{"type":"object","properties":{"b":{"type":"string","enum":["yes","no","1e3"]},"a":{"type":"integer","minimum":-9007199254740993}}},"annotations":{"readOnlyHint":true,"title":"Get"}}`

func load(t *testing.T, m *Imported) *specs.Bundle {
	t.Helper()
	b, err := specs.LoadFiles([]specs.File{{Name: "import.yaml", Data: m.YAML()}}, specs.LoadOptions{Level: specs.TenantLevel})
	if err != nil {
		t.Fatalf("what was written does not load:\n%v\n%s", err, m.YAML())
	}
	return b
}

func TestEveryShapeOfAToolListIsRead(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"result":       `{"tools":[` + listed + `]}`,
		"bare array":   `[` + listed + `]`,
		"reply":        `{"jsonrpc":"2.0","id":1,"result":{"tools":[` + listed + `]}}`,
		"pages":        `{"initialize":{"result":{"serverInfo":{"name":"Files & More"}}},"pages":[{"result":{"tools":[` + listed + `],"nextCursor":"2"}},{"result":{"tools":[]}}]}`,
		"session":      `{"dir":"client->server","msg":{"method":"tools/list","id":1}}` + "\n" + `{"dir":"server->client","msg":{"id":1,"result":{"tools":[` + listed + `]}}}`,
		"twice":        `{"tools":[` + listed + `]}` + "\n" + `{"tools":[` + listed + `]}`,
		"a BOM":        "\ufeff" + `{"tools":[` + listed + `]}`,
		"input_schema": `[` + strings.Replace(listed, "inputSchema", "input_schema", 1) + `]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Import([]byte(text), Options{Source: "files"})
			if err != nil {
				t.Fatal(err)
			}
			tool := load(t, got).Tool(specs.ImportedName("files", "get file"))
			if tool == nil {
				t.Fatalf("the tool is not in the bundle:\n%s", got.YAML())
			}
			if tool.Source.Tool != "get file" || tool.Describe.Value != "Reads: a file # not a comment" || tool.Title != "Get" {
				t.Errorf("name, description or title changed: %q %q %q", tool.Source.Tool, tool.Describe.Value, tool.Title)
			}
			if want := `"minimum":-9007199254740993`; !strings.Contains(string(tool.InputSchema.Raw), want) {
				t.Errorf("numbers must stay exact: %s has no %s", tool.InputSchema.Raw, want)
			}
		})
	}
}

func TestImportAllowsNothing(t *testing.T) {
	t.Parallel()
	got, err := Import([]byte(`{"tools":[`+listed+`]}`), Options{Source: "files"})
	if err != nil {
		t.Fatal(err)
	}
	b := load(t, got)
	for _, p := range b.Policies {
		if !p.Shipped {
			t.Errorf("importing made a policy: %s", p.Name)
		}
	}
	if len(b.Profiles) > 0 {
		t.Error("importing made a profile")
	}
	src := b.Source("files")
	if src == nil || len(src.Capabilities) != 0 || src.Trust != specs.Untrusted {
		t.Fatalf("the source must accept nothing and be untrusted: %+v", src)
	}
	tool := b.Tool(specs.ImportedName("files", "get file"))
	if d := src.Pins[string(tool.ToolName())]; d == "" || d != tool.Source.Digest {
		t.Errorf("the pin %q is not the tool's digest %q", d, tool.Source.Digest)
	}
}

func TestHintsAreReadTheCarefulWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hints                                        string
		readOnly, destructive, idempotent, openWorld bool
	}{
		{`{}`, false, true, false, true},
		{`{"readOnlyHint":true}`, true, false, false, true},
		{`{"readOnlyHint":true,"destructiveHint":true}`, false, true, false, true},
		{`{"destructiveHint":false}`, false, false, false, true},
		{`{"idempotentHint":true,"openWorldHint":false}`, false, true, true, false},
		{`{"readOnlyHint":null,"destructiveHint":null}`, false, true, false, true},
	} {
		got, err := Import([]byte(`[{"name":"x","description":"d","inputSchema":{"type":"object"},"annotations":`+c.hints+`}]`), Options{})
		if err != nil {
			t.Fatal(err)
		}
		a := load(t, got).Tool("imported.x").Annotations
		if a.ReadOnly != c.readOnly || a.Destructive != c.destructive || a.Idempotent != c.idempotent || a.OpenWorld != c.openWorld {
			t.Errorf("%s became %+v", c.hints, a)
		}
	}
}

func TestWhatCannotBeImportedIsNamedWithItsPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a foreign type":       {`[{"name":"f","parameters":{"type":"dict","properties":{}}}]`, `tool "f": /parameters/type: "dict" is not a type of JSON Schema`},
		"a foreign type below": {`[{"name":"f","inputSchema":{"type":"object","properties":{"a/b":{"type":"float"}}}}]`, `tool "f": /inputSchema/properties/a~1b/type: "float"`},
		"a broken schema":      {`[{"name":"f","inputSchema":{"type":"object","minProperties":"two"}}]`, `tool "f": /inputSchema`},
		"no schema object":     {`[{"name":"f","inputSchema":[]}]`, `tool "f": /inputSchema: a schema is a JSON object`},
		"no name":              {`{"tools":[{"description":"d"}]}`, `/tools/0/name`},
		"two meanings":         {`[{"name":"f","inputSchema":{"type":"object"}},{"name":"f","description":"other","inputSchema":{"type":"object"}}]`, `defines this name twice`},
		"a hint that is text":  {`[{"name":"f","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"true"}}]`, `/annotations/readOnlyHint`},
		"a huge integer":       {`[{"name":"f","inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":99999999999999999999}}}}]`, `tool "f"`},
		"a duplicate key":      {`{"tools":[],"tools":[]}`, `tools`},
		"nothing":              {``, `the file is empty`},
		"another file":         {`{"openapi":"3.1.0"}`, `there is no tool list in this file`},
		"not JSON":             {"apiVersion: callgate/v1", `this is not JSON`},
		"an unknown argument key": {`[{"name":"f","arguments":[{"name":"a","type":"string","pattern":"x"}]}]`,
			`tool "f": /arguments/0/pattern`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Import([]byte(c.text), Options{})
			var bad *ImportError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want an ImportError", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
		})
	}
}

func TestSkipInvalidKeepsTheRestAndSaysWhat(t *testing.T) {
	t.Parallel()
	got, err := Import([]byte(`[`+listed+`,{"name":"f","inputSchema":{"type":"dict"}}]`), Options{SkipInvalid: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Sources[0].Tools) != 1 || len(got.Skipped) != 1 || got.Skipped[0].Tool != "f" {
		t.Errorf("got %d tools, skipped %v", len(got.Sources[0].Tools), got.Skipped)
	}
}

func TestARegistrysArgumentListIsNeverNoParameters(t *testing.T) {
	t.Parallel()
	got, err := Import([]byte(`[{"name":"q","description":"d","arguments":[{"name":"sql","type":"string","desc":"A query"},{"name":"rows","type":"array","items":{"type":"string"},"optional":true}]}]`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := load(t, got).Tool("imported.q").InputSchema.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if v.Validate([]byte(`{}`)) == nil {
		t.Error("sql is required and its absence was accepted")
	}
	if v.Validate([]byte(`{"sql":1}`)) == nil {
		t.Error("sql is a text and a number was accepted")
	}
	if err := v.Validate([]byte(`{"sql":"select 1","rows":["a"]}`)); err != nil {
		t.Error(err)
	}
	if len(got.Notes) == 0 {
		t.Error("whoever imports must be told that the schema is second-hand")
	}
}

// What goes into YAML must come out as it was, whatever a server writes into a name, a description or an enum.
func TestTextsSurviveYAML(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		describe := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune("ab: #'\"\\\n\t-?{}[],&*!|>%@`~yesno01.")), rapid.Rune())).Draw(rt, "describe")
		word := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune("yesnoffalstru01.e-~: ")), rapid.Rune())).Draw(rt, "word")
		if describe == "" {
			describe = "d"
		}
		name := "t" + word
		if strings.ContainsAny(describe+word, "\x00\ufeff") || len(name) > 20 {
			rt.Skip("names are bounded")
		}
		schema := mustJSON(map[string]any{"type": "object", "properties": map[string]any{"p": map[string]any{"enum": []any{word, describe}}}})
		text := mustJSON(map[string]any{"tools": []any{map[string]any{"name": name, "description": describe, "inputSchema": json.RawMessage(schema)}}})
		got, err := Import(text, Options{Source: "s"})
		if err != nil {
			rt.Skip(err.Error())
		}
		b, err := specs.LoadFiles([]specs.File{{Name: "f.yaml", Data: got.YAML()}}, specs.LoadOptions{})
		if err != nil {
			rt.Fatalf("%v\n%s", err, got.YAML())
		}
		tool := b.Tool(specs.ImportedName("s", name))
		if tool == nil {
			rt.Fatalf("the tool is gone:\n%s", got.YAML())
		}
		if tool.Source.Tool != name || tool.Describe.Value != describe {
			rt.Fatalf("%q became %q, %q became %q", name, tool.Source.Tool, describe, tool.Describe.Value)
		}
		want, _ := specs.DigestJSON(schema)
		if have, _ := specs.DigestJSON(tool.InputSchema.Raw); have != want {
			rt.Fatalf("the schema %s became %s", schema, tool.InputSchema.Raw)
		}
	})
}

// corpus finds the folder of public test data beside the repository, or skips.
func corpus(t *testing.T, below string) string {
	t.Helper()
	dir := os.Getenv("CALLGATE_CORPUS")
	if dir == "" {
		root, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
				break
			}
			root = filepath.Dir(root)
		}
		dir = filepath.Join(root, "..", "shared", "corpus")
	}
	dir = filepath.Join(dir, below)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the corpus is not here (%s); CALLGATE_CORPUS names it", dir)
	}
	return dir
}

// Real tool lists, as servers gave them, become documents that load.
func TestRealToolListsImport(t *testing.T) {
	t.Parallel()
	dir := corpus(t, "1-mcp-tools")
	want := map[string]int{
		"github-toolsnaps.tools.json":                         81,
		"docker-registry/buildkite.tools.json":                24,
		"docker-registry/sonarqube.tools.json":                25,
		"docker-registry/sqlite-mcp-server.tools.json":        25,
		"docker-registry/vectra-ai-rux-mcp-server.tools.json": 25,
		"kubernetes/toolsets-config-tools.json":               1,
		"kubernetes/toolsets-core-tools.json":                 19,
		"kubernetes/toolsets-helm-tools.json":                 3,
		"kubernetes/toolsets-kiali-tools.json":                11,
		"kubernetes/toolsets-tekton-tools.json":               6,
		"live/everything.initialize+tools-list.json":          13,
		"live/everything.session.jsonl":                       13,
		"live/filesystem.initialize+tools-list.json":          14,
		"live/notion.initialize+tools-list.json":              24,
		"live/playwright.initialize+tools-list.json":          32,
		"live/slack.initialize+tools-list.json":               8,
		"vscode-languageModelTools.json":                      28,
	}
	for name, n := range want {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Import(data, Options{Source: "real"})
			if err != nil {
				t.Fatal(err)
			}
			b := load(t, got)
			if len(got.Sources) != 1 || len(got.Sources[0].Tools) != n {
				t.Fatalf("got %d sources, %d tools, want 1 and %d", len(got.Sources), len(got.Sources[0].Tools), n)
			}
			for _, tool := range got.Sources[0].Tools {
				loaded := b.Tool(tool.Name)
				if loaded == nil || loaded.Source.Tool != tool.Definition.Name || loaded.Describe.Value != orElse(tool.Definition.Description, tool.Definition.Name) {
					t.Fatalf("%s did not come through", tool.Name)
				}
				if upstream, ok := specs.UpstreamName("real", tool.Name); !ok || upstream != tool.Definition.Name {
					t.Errorf("%s does not lead back to %q: %q", tool.Name, tool.Definition.Name, upstream)
				}
				was, _ := specs.DigestJSON(tool.Definition.InputSchema)
				if is, _ := specs.DigestJSON(loaded.InputSchema.Raw); is != was {
					t.Errorf("the schema of %s changed", tool.Name)
				}
			}
		})
	}
}

// A benchmark's functions are not JSON Schema; taking them for it would check nothing.
func TestForeignFunctionListsAreRefused(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(corpus(t, "1-mcp-tools"), "bfcl-functions.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	_, err = Import([]byte("["+strings.Join(lines, ",")+"]"), Options{})
	var bad *ImportError
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), `"dict" is not a type of JSON Schema`) {
		t.Fatalf("got %v", err)
	}
}

// One file with many servers makes one source each; what cannot be checked is named and the rest is kept.
func TestManyServersInOneFile(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(corpus(t, "1-mcp-tools"), "livemcpbench-servers.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Import(data, Options{SkipInvalid: true})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range got.Sources {
		n += len(s.Tools)
	}
	if len(got.Sources) != 25 || n+len(got.Skipped) < 174 || n < 150 {
		t.Errorf("%d servers, %d tools, left out: %v", len(got.Sources), n, got.Skipped)
	}
	for _, f := range got.Files() {
		if _, err := specs.LoadFiles([]specs.File{{Name: f.Name, Data: f.Data}}, specs.LoadOptions{}); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"tools":[` + listed + `]}`))
	f.Add([]byte(`[{"name":"f","arguments":[{"name":"a","type":"string"}]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Import(data, Options{SkipInvalid: true})
		if err != nil {
			return
		}
		for _, file := range got.Files() {
			if _, err := specs.LoadFiles([]specs.File{{Name: file.Name, Data: file.Data}}, specs.LoadOptions{}); err != nil {
				t.Fatalf("%v\n%s", err, file.Data)
			}
		}
	})
}
