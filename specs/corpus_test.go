package specs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// corpusFile reads a file of the shared corpus of public data, and skips the test where that is absent.
func corpusFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(corpusDir(t), filepath.FromSlash(name)))
	if err != nil {
		t.Skipf("the corpus file %s is not here: set CALLGATE_CORPUS to the corpus folder", name)
	}
	return data
}

func corpusDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("CALLGATE_CORPUS"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "..", "shared", "corpus")
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("no go.mod above this test")
		}
		dir = up
	}
}

func corpusLines(t *testing.T, name string) [][]byte {
	t.Helper()
	var out [][]byte
	for line := range bytes.Lines(corpusFile(t, name)) {
		if len(bytes.TrimSpace(line)) > 0 {
			out = append(out, line)
		}
	}
	return out
}
