package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A person at a terminal, in memory. Every folder of a test is its own world.
type terminal struct {
	dir     string
	env     map[string]string
	columns int // how wide; 0: nobody knows
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	return &terminal{dir: t.TempDir(), env: map[string]string{"NO_COLOR": "1"}}
}

// types runs the program while somebody types what in says. Screen is everything they see.
func (w *terminal) types(t *testing.T, in string, args ...string) (screen string, code int) {
	t.Helper()
	return w.typesInto(t, context.Background(), strings.NewReader(in), args...)
}

func (w *terminal) typesInto(t *testing.T, ctx context.Context, in io.Reader, args ...string) (screen string, code int) {
	t.Helper()
	var out lockedBuffer
	code = run(ctx, args, env{
		Stdin: bufio.NewReader(in), Stdout: &out, Stderr: &out, Getenv: func(k string) string { return w.env[k] },
		TerminalIn: true, TerminalOut: true, Columns: func() int { return w.columns }, Dir: w.dir, User: "tess",
	})
	return out.String(), code
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func sees(t *testing.T, screen string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(screen, w) {
			t.Errorf("the screen does not show %q:\n%s", w, screen)
		}
	}
}

func studio(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "testdata", "tenants", "studio"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAQuestionIsAskedAtTheTerminal(t *testing.T) {
	t.Parallel()
	w := newTerminal(t)
	screen, code := w.types(t, "what?\na\n", "run", studio(t), "--user", "ann", "--as", "bob")
	if code != exitOK {
		t.Errorf("exit %d", code)
	}
	sees(t, screen,
		"Write a workspace file",                                             // the card: what
		"- The reader likes exact times.",                                    // with its arguments, whole
		"Long-term memory changes are reviewed.",                             // why
		"role approver",                                                      // who
		"decide as bob: [a]pprove",                                           // the prompt
		"approved", "completed", "The lamp went out at a quarter past four.") // and how it went on
	if n := strings.Count(screen, "[a]pprove"); n != 2 {
		t.Errorf("asked %d times, want again after a word that means nothing", n)
	}
}

func TestRejectingAtTheTerminalTellsTheModelWhy(t *testing.T) {
	t.Parallel()
	w := newTerminal(t)
	screen, code := w.types(t, "r\n\nr\nNot this time.\n", "run", studio(t), "--user", "ann", "--as", "bob")
	if code != exitOK {
		t.Errorf("exit %d", code)
	}
	sees(t, screen, "reason, for the model to read", "a rejection needs a reason\n", "rejected", "Not this time.", "completed")
}

func TestEditingAtTheTerminalIsJudgedLikeTheModelsCall(t *testing.T) {
	t.Parallel()
	w := newTerminal(t)
	edit := "e\n{\"path\":\"persist/MEMORY.md\",\"content\":\"api_key = 1\"}\n" + // refused by the policy
		"e\n{\"path\": 7}\n" + // refused by the schema
		"e\n{\"path\":\"persist/MEMORY.md\",\"content\":\"Times.\"}\n"
	screen, code := w.types(t, edit, "run", studio(t), "--user", "ann", "--as", "bob")
	if code != exitOK {
		t.Errorf("exit %d", code)
	}
	sees(t, screen, "writers/no-secrets", "edited", "completed")
	if text, _ := w.types(t, "", "workspace", "cat", "last", "persist/MEMORY.md"); text != "Times." {
		t.Errorf("the file says %q", text)
	}
}

func TestQuittingLeavesTheQuestionOpen(t *testing.T) {
	t.Parallel()
	w := newTerminal(t)
	for _, keys := range []string{"q\n", ""} { // the second: the input ends
		screen, code := w.types(t, keys, "run", studio(t), "--user", "ann", "--as", "bob")
		if code != exitWaiting {
			t.Errorf("exit %d", code)
		}
		sees(t, screen, "waiting for a person", "callgate approvals approve", "--as bob", "callgate runs resume")
	}
	screen, _ := w.types(t, "", "approvals", "list")
	if n := strings.Count(screen, "pending"); n != 2 {
		t.Errorf("%d questions are open, want 2:\n%s", n, screen)
	}
}

func TestWhoMayNotDecideIsNotAsked(t *testing.T) {
	t.Parallel()
	w := newTerminal(t)
	screen, code := w.types(t, "a\n", "run", studio(t), "--user", "ann", "--as", "mallory")
	if code != exitWaiting {
		t.Errorf("exit %d", code)
	}
	sees(t, screen, `nobody called "mallory"`, "users: {mallory: {roles: [approver]}}")
	if strings.Contains(screen, "[a]pprove") {
		t.Errorf("a stranger was asked:\n%s", screen)
	}
	// Ann is known and may not: she sees why, and the question stays open.
	screen, code = w.types(t, "a\nq\n", "runs", "resume", "last", "--as", "ann")
	if code != exitWaiting {
		t.Errorf("exit %d", code)
	}
	sees(t, screen, "ann cannot decide")
}

func TestInterruptingAtTheQuestionLeavesItOpen(t *testing.T) {
	t.Parallel()
	w := newTerminal(t)
	ctx, cancel := context.WithCancel(context.Background())
	in, keys := io.Pipe()
	defer keys.Close()
	done := make(chan int, 1)
	var screen string
	go func() {
		var code int
		screen, code = w.typesInto(t, ctx, in, "run", studio(t), "--user", "ann", "--as", "bob")
		done <- code
	}()
	// The first byte is read only when the program asks; then the person changes their mind.
	if _, err := keys.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if code := <-done; code != exitWaiting {
		t.Errorf("exit %d", code)
	}
	sees(t, screen, "interrupted", "callgate runs resume")
	screen, code := w.types(t, "a\n", "runs", "resume", "last", "--as", "bob")
	if code != exitOK {
		t.Errorf("exit %d\n%s", code, screen)
	}
}

// On a narrow terminal words stay whole and stand in their column; what people copy or judge, commands and arguments, is
// not broken.
func TestANarrowTerminalBreaksBetweenWords(t *testing.T) {
	t.Parallel()
	narrow := newTerminal(t)
	narrow.columns = 60
	screen, code := narrow.types(t, "a\n", "run", studio(t), "--user", "ann", "--as", "bob")
	if code != exitOK {
		t.Errorf("exit %d", code)
	}
	copied := regexp.MustCompile(`^the whole story: |^  callgate |leave it open > |^ +"`)
	var broken int
	for line := range strings.Lines(screen) {
		line = strings.TrimRight(line, "\n")
		if textWidth(line) > 60 && !copied.MatchString(line) {
			t.Errorf("%d cells: %q", textWidth(line), line)
		}
		if strings.HasPrefix(line, strings.Repeat(" ", 29)) {
			broken++
		}
	}
	if broken == 0 {
		t.Error("no line of the story was broken")
	}
	story, _ := narrow.types(t, "", "journal", "show", "last")
	narrow.columns = 0
	if whole, _ := narrow.types(t, "", "journal", "show", "last"); !slices.Equal(strings.Fields(whole), strings.Fields(story)) {
		t.Errorf("other words where it is narrow:\n%s\nthan where it is wide:\n%s", story, whole)
	}
	sees(t, screen, `"content": "- The reader likes exact times.\n"`)
	narrow.columns = 30 // no room for a column of words
	if screen, code := narrow.types(t, "", "journal", "show", "last"); code != exitOK || strings.Contains(screen, "\n"+strings.Repeat(" ", 29)) {
		t.Errorf("exit %d\n%s", code, screen)
	}
}

// What a model wrote reaches the terminal as text, never as a command to it.
func TestNothingAModelWritesMovesTheCursor(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\x1b[2Jgone":      `\u{1b}[2Jgone`,
		"a\u202eb":         `a\u{202e}b`,
		"zero\u200bwidth":  `zero\u{200b}width`,
		"tab\tand\nline":   `tab\u{9}and\u{a}line`,
		"schön 漢字 e\u0301": "schön 漢字 e\u0301",
		"bad \xff byte":    `bad \u{fffd} byte`,
	} {
		if got := plain(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
	if got := textWidth("\x1b[32m漢字\x1b[0me\u0301"); got != 5 {
		t.Errorf("width %d, want 5", got)
	}
}

// A fault of the program is told as one, without a stack in the user's face.
func TestAFaultInTheProgramIsASentence(t *testing.T) {
	t.Parallel()
	var screen lockedBuffer
	code := run(context.Background(), []string{"machine", "draw", "call"}, env{Stdout: broken{}, Stderr: &screen,
		Stdin: bufio.NewReader(strings.NewReader("")), Getenv: func(string) string { return "" }, Dir: t.TempDir()})
	if code != exitSystem {
		t.Errorf("exit %d", code)
	}
	sees(t, screen.String(), "a fault in the program: a hole", "nothing already stored is lost")
	if strings.Contains(screen.String(), "goroutine") {
		t.Errorf("a stack was shown:\n%s", screen.String())
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { panic("a hole") }

// Whatever line an author loses, they get findings or a bundle, never a fault of the program: looking on for mistakes in
// documents that have some must not fall over them.
func TestAnyLineMissingIsAFindingOrNothing(t *testing.T) {
	t.Parallel()
	w := newTerminal(t)
	if _, code := w.types(t, "", "init", "gate"); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	for _, name := range []string{"gate.yaml", "tests.yaml"} {
		path := filepath.Join(w.dir, "gate", name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(whole), "\n")
		for i := 0; i < len(lines); i += everyLine {
			if strings.HasPrefix(strings.TrimSpace(lines[i]), "#") || strings.TrimSpace(lines[i]) == "" {
				continue
			}
			less := strings.Join(lines[:i], "") + strings.Join(lines[i+1:], "")
			if err := os.WriteFile(path, []byte(less), 0o600); err != nil {
				t.Fatal(err)
			}
			if screen, code := w.types(t, "", "validate", "gate"); code != exitOK && code != exitNo {
				t.Errorf("without line %d of %s, %q: exit %d\n%s", i+1, name, lines[i], code, screen)
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
