package specs

import (
	"testing"
	"testing/fstest"
)

// TestLoadSmallest loads the smallest bundle that says something.
func TestLoadSmallest(t *testing.T) {
	t.Parallel()
	b, err := Load(fstest.MapFS{"a.yaml": {Data: []byte(`apiVersion: callgate/v1
kind: Profile
metadata: {name: reader}
spec:
  tools: {allow: ["workspace.list_files"]}
`)}}, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := b.Profile("reader")
	if p == nil || p.Tools.Allow == nil || (*p.Tools.Allow)[0].Value != "workspace.list_files" {
		t.Fatalf("the profile was not read: %+v", p)
	}
	if got := (*p.Tools.Allow)[0].At(10); got != (Pos{"a.yaml", 5, 30}) {
		t.Errorf("character 10 of the selector is at %v, want a.yaml:5:30", got)
	}
	if found := shipped().found; len(found) > 0 {
		t.Fatalf("the shipped catalog has findings:\n%s", found.Text())
	}
}
