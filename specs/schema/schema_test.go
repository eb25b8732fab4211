package schema

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/callgate/callgate/specs"
	"gopkg.in/yaml.v3"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGolden shows every change of the schemas in review: they are what authors' editors know.
func TestGolden(t *testing.T) {
	t.Parallel()
	all := All()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, all[name], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v (write it with: go test ./specs/schema -update)", err)
		}
		if !bytes.Equal(all[name], want) {
			t.Errorf("%s changed; look at it and run: go test ./specs/schema -update", name)
		}
	}
}

// TestDocumentsThatLoadFitTheSchema: the shipped catalog and the sample are valid in an editor too.
func TestDocumentsThatLoadFitTheSchema(t *testing.T) {
	t.Parallel()
	v, err := specs.Schema{Raw: Combined()}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	docs := 0
	for _, fsys := range []fs.FS{specs.Catalog(), os.DirFS("../testdata/sample")} {
		names, err := fs.Glob(fsys, "*.yaml")
		if err != nil || len(names) == 0 {
			t.Fatal("no files", err)
		}
		for _, name := range names {
			data, err := fs.ReadFile(fsys, name)
			if err != nil {
				t.Fatal(err)
			}
			dec := yaml.NewDecoder(bytes.NewReader(data))
			for {
				var doc any
				if dec.Decode(&doc) != nil {
					break
				}
				raw, err := json.Marshal(doc)
				if err != nil {
					t.Fatal(err)
				}
				if err := v.Validate(raw); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				docs++
			}
		}
	}
	if docs < 25 {
		t.Errorf("only %d documents were looked at", docs)
	}
}

// TestSchemaRefusesWhatTheLoaderRefuses, for mistakes that a schema can see.
func TestSchemaRefusesWhatTheLoaderRefuses(t *testing.T) {
	t.Parallel()
	v, err := specs.Schema{Raw: Combined()}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{
		`{"apiVersion":"callgate/v1","kind":"Profile","metadata":{"name":"p"},"spec":{"displayname":"x"}}`,
		`{"apiVersion":"callgate/v1","kind":"Profile","metadata":{"name":"p q"},"spec":{}}`,
		`{"apiVersion":"callgate/v2","kind":"Profile","metadata":{"name":"p"},"spec":{}}`,
		`{"apiVersion":"callgate/v1","kind":"Policy","metadata":{"name":"p"},"spec":{"layer":"platfrom","rules":[]}}`,
		`{"apiVersion":"callgate/v1","kind":"Policy","metadata":{"name":"p"},"spec":{"layer":"user","rules":[{"name":"r","tools":["*"],"effect":"deny","approval":{"approvers":{},"quorum":0}}]}}`,
		`{"apiVersion":"callgate/v1","kind":"Nothing","metadata":{"name":"p"},"spec":{}}`,
		`{"apiVersion":"callgate/v1","kind":"Profile","spec":{}}`,
	} {
		if err := v.Validate([]byte(raw)); err == nil {
			t.Errorf("accepted: %s", raw)
		}
	}
}
