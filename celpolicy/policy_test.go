package celpolicy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
)

// load reads documents the way a user's folder is read, the shipped catalog left out, and fails on any error.
func load(t testing.TB, docs ...string) *specs.Bundle {
	t.Helper()
	b, err := specs.LoadFiles([]specs.File{{Name: "policy.yaml", Data: []byte(strings.Join(docs, "\n---\n"))}}, specs.LoadOptions{NoCatalog: true})
	if err != nil {
		t.Fatalf("load:\n%v", err)
	}
	return b
}

func compile(t testing.TB, docs ...string) *Policy {
	t.Helper()
	p, err := Compile(load(t, docs...))
	if err != nil {
		t.Fatalf("compile:\n%v", err)
	}
	return p
}

func sample(t testing.TB) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "sample.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestSampleBundleDecides(t *testing.T) {
	t.Parallel()
	p := compile(t, sample(t))
	_ = p
}
