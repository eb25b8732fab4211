//go:build unix

package chat_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/chat"
)

// A pipe where a file should be must not make anybody wait.
func TestPipesAreRefusedAtOnce(t *testing.T) {
	h := newHost(t)
	file := h.Path("t", "c")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{file, file + ".lock"} {
		if err := os.RemoveAll(place); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(place, 0o600); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := h.Commit(t.Context(), commit("k", "r", tools.CommitReplace, "x")); !errors.Is(err, chat.ErrNotAFile) {
			t.Errorf("%s: %v", place, err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s took %v", place, took)
		}
		if err := os.Remove(place); err != nil {
			t.Fatal(err)
		}
	}
}
