package importer

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/callgate/callgate/specs"
)

// corpus finds the folder of real-world policies, or skips.
func corpus(t *testing.T, below string) fs.FS {
	t.Helper()
	dir := os.Getenv("CALLGATE_CORPUS")
	if dir == "" {
		root, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for !exists(filepath.Join(root, "go.mod")) && filepath.Dir(root) != root {
			root = filepath.Dir(root)
		}
		dir = filepath.Join(root, "..", "shared", "corpus")
	}
	dir = filepath.Join(dir, "5-policies", below)
	if !exists(dir) {
		t.Skip("the corpus of real-world files is not here (set CALLGATE_CORPUS)")
	}
	return os.DirFS(dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// outcome says what became of one input: it loads, or it is refused for a reason that has a place.
func outcome(t *testing.T, name string, got *Imported, err error) {
	t.Helper()
	if err != nil {
		ds, ok := specs.AsDiagnostics(err)
		if !ok || len(ds.Errors()) == 0 {
			t.Errorf("%s: an error without findings: %v", name, err)
			return
		}
		for _, d := range ds.Errors() {
			if d.Code != codeRefused {
				t.Errorf("%s: the import made what does not load: %s", name, d.Text())
			}
		}
		t.Logf("%s: refused: %v", name, ds.Errors()[0].Message)
		return
	}
	if got == nil {
		return
	}
	t.Logf("%s: %d rules, %d deny, %d remarks", name, got.Rules, got.Denies, len(got.Remarks))
}

func TestRealClaudeSettings(t *testing.T) {
	t.Parallel()
	fsys := corpus(t, "claude-settings")
	files, err := fs.Glob(fsys, "*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no files")
	}
	for _, f := range files {
		data, err := fs.ReadFile(fsys, f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Claude(f, data, Options{})
		outcome(t, f, got, err)
		if err != nil {
			t.Errorf("%s: every real settings file can be imported: %v", f, err)
		}
	}
}

func TestRealAgentgatewayPolicies(t *testing.T) {
	t.Parallel()
	fsys := corpus(t, "agentgateway")
	files, err := fs.Glob(fsys, "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no files")
	}
	for _, f := range files {
		data, err := fs.ReadFile(fsys, f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Agentgateway(f, data, Options{})
		outcome(t, f, got, err)
		got, err = Agentgateway(f, data, Options{SkipInvalid: true})
		outcome(t, f, got, err)
	}
}

// cerbosFiles reads the policies below some folders.
func cerbosFiles(t *testing.T, fsys fs.FS, dirs ...string) []specs.File {
	t.Helper()
	var files []specs.File
	for _, dir := range dirs {
		names, err := fs.Glob(fsys, dir+"/*.yaml")
		if err != nil || len(names) == 0 {
			t.Fatal(err, "no files in "+dir)
		}
		for _, n := range names {
			data, err := fs.ReadFile(fsys, n)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, specs.File{Name: n, Data: data})
		}
	}
	return files
}

func TestRealCerbosPolicies(t *testing.T) {
	t.Parallel()
	fsys := corpus(t, "cerbos")
	all := cerbosFiles(t, fsys, "derived_roles", "export_constants", "export_variables", "principal_policies", "resource_policies", "role_policies")
	_, err := Cerbos(all, Options{})
	outcome(t, "all", nil, err)
	got, err := Cerbos(all, Options{SkipInvalid: true})
	outcome(t, "all, the rest", got, err)
	if err != nil {
		t.Errorf("what is not refused can be imported: %v", err)
	}
	for _, f := range append(all, cerbosFiles(t, fsys, "cel_eval", "engine")...) {
		got, err := Cerbos([]specs.File{f}, Options{SkipInvalid: true})
		outcome(t, f.Name, got, err)
	}
}
