package importer

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
)

// compiled loads what an import made.
func compiled(t testing.TB, got *Imported) *celpolicy.Policy {
	t.Helper()
	b, err := specs.LoadFiles([]specs.File{{Name: got.Name, Data: got.YAML}}, specs.LoadOptions{})
	if err != nil {
		t.Fatalf("%v\n%s", err, got.YAML)
	}
	p, err := celpolicy.Compile(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// refused says that a call is not let through, whatever a person says.
func refused(d celpolicy.Decision) bool { return !d.Callable }

type engineCase struct {
	Inputs []struct {
		Actions   []string
		Principal struct {
			ID, Scope string
			Version   string `yaml:"policyVersion"`
			Roles     []specs.Role
			Attr      map[string]any
		}
		Resource struct {
			Kind, ID, Scope string
			Version         string `yaml:"policyVersion"`
			Attr            map[string]any
		}
	}
	WantOutputs []struct {
		Actions map[string]struct{ Effect string }
	} `yaml:"wantOutputs"`
}

// TestWhatCerbosDeniesIsDenied holds imports against the decisions that Cerbos' own tests expect. Nothing that Cerbos denies is
// let through, whatever the scope of the request; without scopes most of what it allows is let through as well.
func TestWhatCerbosDeniesIsDenied(t *testing.T) {
	t.Parallel()
	fsys := corpus(t, "cerbos")
	all := cerbosFiles(t, fsys, "derived_roles", "export_constants", "export_variables", "principal_policies", "resource_policies", "role_policies")
	same := compare(t, fsys, all, "default", true)
	t.Logf("all policies: %d decisions as in Cerbos", same)
	for version, least := range map[string]int{"default": 15, "20210210": 30} {
		var plain []specs.File
		for _, f := range all {
			text := string(f.Data)
			other := strings.Contains(text, "version:") && !strings.Contains(text, version) && version != "default" || version == "default" && strings.Contains(text, "20210210")
			if !strings.Contains(text, "scope:") && !other {
				plain = append(plain, f)
			}
		}
		if same := compare(t, fsys, plain, version, false); same < least {
			t.Errorf("version %s: only %d decisions are as in Cerbos", version, same)
		}
	}
}

// compare gives how many decisions are the same.
func compare(t *testing.T, fsys fs.FS, files []specs.File, version string, scoped bool) (same int) {
	t.Helper()
	got, err := Cerbos(files, Options{SkipInvalid: true})
	if err != nil {
		t.Fatal(err)
	}
	names, _ := fs.Glob(fsys, "engine/*.yaml")
	stricter := 0
	said, cases := map[specs.ToolName]bool{}, map[string]engineCase{}
	for _, name := range names {
		raw, err := fs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		var c engineCase
		if err := yaml.Unmarshal(raw, &c); err != nil {
			t.Fatal(name, err)
		}
		cases[name] = c
	}
	p := withTools(t, got, cases)
	for _, name := range names {
		c := cases[name]
		for i, in := range c.Inputs {
			mine := func(v string) bool { return v == version || v == "" && version == "default" }
			if !mine(in.Resource.Version) || !mine(in.Principal.Version) || i >= len(c.WantOutputs) || !scoped && in.Resource.Scope+in.Principal.Scope != "" {
				continue
			}
			for action, want := range c.WantOutputs[i].Actions {
				d := p.Resolve(request(t, in.Resource.Kind, action, in.Principal.ID, in.Principal.Roles, in.Principal.Attr, in.Resource.ID, in.Resource.Attr))
				switch {
				case refused(d) == (want.Effect == "EFFECT_DENY"):
					same++
				case refused(d):
					stricter++
					if key := d.Tool; !scoped && !said[key] {
						said[key] = true
						t.Logf("%s: %s by %s: Cerbos allows, here: %s", name, d.Tool, in.Principal.ID, d.Reason)
					}
				default:
					t.Errorf("%s: %s by %s: Cerbos denies, here it is let through", name, d.Tool, in.Principal.ID)
				}
			}
		}
	}
	t.Logf("version %s: %d decisions as in Cerbos, %d stricter", version, same, stricter)
	return same
}

// request is what a request to Cerbos is here.
func request(t testing.TB, kind, action, who string, roles []specs.Role, principal map[string]any, id string, resource map[string]any) celpolicy.Input {
	t.Helper()
	args := map[string]any{"id": id}
	for k, v := range resource {
		args[k] = v
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for k, v := range principal {
		switch v.(type) {
		case string, bool:
			labels[k] = fmt.Sprint(v)
		}
	}
	c := &cerbosImport{source: "cerbos"}
	return celpolicy.Input{Phase: celpolicy.PhaseCall, Tool: specs.ToolName(c.name(kind, action)), Args: raw, Run: celpolicy.RunFacts{Profile: "cerbos"},
		User: celpolicy.UserFacts{ID: specs.UserID(who), Roles: roles, Labels: labels}}
}

// withTools loads what an import made together with stand-ins for every tool that some cases call.
func withTools(t *testing.T, got *Imported, cases map[string]engineCase) *celpolicy.Policy {
	t.Helper()
	c := &cerbosImport{source: "cerbos"}
	var more strings.Builder
	seen := map[string]bool{}
	for _, one := range cases {
		for i, in := range one.Inputs {
			if i >= len(one.WantOutputs) {
				continue
			}
			for action := range one.WantOutputs[i].Actions {
				name := c.name(in.Resource.Kind, action)
				if seen[name] || strings.Contains(string(got.YAML), "metadata: {name: "+name+"}\n") {
					continue
				}
				seen[name] = true
				fmt.Fprintf(&more, "---\napiVersion: callgate/v1\nkind: Tool\nmetadata: {name: %s}\nspec: {description: d, source: {kind: extension, name: cerbos, tool: %q}, inputSchema: {type: object, additionalProperties: true}}\n", name, action)
			}
		}
	}
	return compiled(t, &Imported{Name: got.Name, YAML: append(got.YAML[:len(got.YAML):len(got.YAML)], more.String()...)})
}
