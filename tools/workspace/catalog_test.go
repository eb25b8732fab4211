package workspace_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/workspace"
)

// The shipped specs and this family speak of the same tools and arguments: whatever a spec offers, its tool takes.
func TestShippedSpecsOfferWhatTheToolsTake(t *testing.T) {
	d := newT(t, map[string]string{"output/main.md": "x"})
	f, err := specs.Catalog().Open("workspace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	seen := map[specs.ToolName]bool{}
	for dec := yaml.NewDecoder(f); ; {
		var doc struct {
			Metadata struct{ Name specs.ToolName }
			Spec     struct {
				InputSchema struct {
					Properties map[string]struct {
						Type    string
						Minimum int
						Maximum int
					}
				} `yaml:"inputSchema"`
			}
		}
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := doc.Metadata.Name
		if !strings.HasPrefix(string(name), "workspace.") {
			continue
		}
		seen[name] = true
		least, most := obj{}, obj{}
		for p, s := range doc.Spec.InputSchema.Properties {
			switch {
			case p == "mode":
				least[p], most[p] = "replace", "append"
			case s.Type == "string":
				least[p], most[p] = "output/main.md", "output/main.md"
			case s.Type == "integer":
				least[p], most[p] = s.Minimum, max(s.Minimum, s.Maximum)
			case s.Type == "boolean":
				least[p], most[p] = false, true
			default:
				t.Fatalf("%s: %s has the type %q", name, p, s.Type)
			}
		}
		for _, args := range []obj{least, most} {
			if r := d.call(name, args); r.ErrorCode == tools.CodeInvalidArguments {
				t.Errorf("%s %v: %s", name, args, text(r))
			}
		}
	}
	for name := range workspace.Executors() {
		if !seen[name] {
			t.Errorf("no shipped spec for %s", name)
		}
	}
}
