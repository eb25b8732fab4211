package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
	"github.com/callgate/callgate/tools/toolstest"
)

// acknowledging prints the number of every line that the store said was written.
type acknowledging struct{ persistence.Store }

func (a acknowledging) Apply(ctx context.Context, c persistence.Change) (persistence.Applied, error) {
	applied, err := a.Store.Apply(ctx, c)
	if err == nil && c.Run != "" {
		fmt.Printf("\nACK %v\n", applied.Seqs)
	}
	return applied, err
}

// killed is the play of the process that is killed: in the middle of a tool, or while it waits for a person.
var killed = map[string]play{
	"in the middle of a tool":    {calls(`note.put {"to":"1"}`, `mail.send {"to":"me"}`), draft, commit, finish},
	"at a waiting approval":      {calls(`note.put {"to":"1"}`, `mail.send {"to":"x@elsewhere"}`), draft, commit, finish},
	"in a tool that repeats":     {calls(`note.put {"to":"1"}`, `note.put {"to":"hang"}`), draft, commit, finish},
	"in the middle of a thought": {calls(`note.put {"to":"1"}`), nil, commit, finish},
}

// hang records the effect, tells the parent, and never comes back.
func hang(r toolstest.Recorder, when func(tools.Request) bool) tools.Executor {
	return tools.ExecutorFunc(func(ctx context.Context, req tools.Request) (tools.Result, error) {
		res, err := toolstest.FakeTool{Recorder: r}.Execute(ctx, req)
		if err == nil && when(req) {
			fmt.Printf("\nHANG\n")
			time.Sleep(time.Minute)
		}
		return res, err
	})
}

// TestKilledChild is the other process. It does nothing in an ordinary test run.
func TestKilledChild(t *testing.T) {
	dir, scene := os.Getenv("CALLGATE_TEST_KILL_DIR"), os.Getenv("CALLGATE_TEST_KILL_SCENE")
	if dir == "" {
		t.Skip("only as the child of TestJ4")
	}
	effects := toolstest.FileRecorder{Path: filepath.Join(dir, "effects")}
	turns := append(play{}, killed[scene]...)
	if turns[1] == nil {
		turns[1] = looking(func(provider.Request) { fmt.Printf("\nHANG\n"); time.Sleep(time.Minute) }, draft)
	}
	always := func(tools.Request) bool { return true }
	h := open(t, turns, options{path: filepath.Join(dir, "callgate.db"), effects: effects,
		wrap: func(s persistence.Store) persistence.Store { return acknowledging{s} },
		tools: map[specs.ToolName]tools.Executor{
			"mail.send": hang(effects, always),
			"note.put":  hang(effects, func(r tools.Request) bool { return strings.Contains(string(r.Args), "hang") }),
		}})
	run := h.start()
	fmt.Printf("\nRUN %s\n", run.ID)
	h.run(run.ID)
	fmt.Printf("\nHANG\n")
	time.Sleep(time.Minute)
}

// Kill -9 at a waiting approval, in the middle of a tool, and of a thought: every line that was acknowledged is there, the run
// goes on in another process, and the effect that cannot be taken back happened once at most.
func TestJ4_TestJ6_Kill9(t *testing.T) {
	t.Parallel()
	for scene, turns := range killed {
		t.Run(scene, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			id, acked := killChild(t, dir, scene)
			effects := toolstest.FileRecorder{Path: filepath.Join(dir, "effects")}
			turns := append(play{}, turns...)
			if turns[1] == nil {
				turns[1] = draft
			}
			h := open(t, turns, options{path: filepath.Join(dir, "callgate.db"), effects: effects})
			lines := h.lines(id)
			for _, seq := range acked {
				if seq > int64(len(lines)) {
					t.Fatalf("line %d was acknowledged and is gone; %d are left", seq, len(lines))
				}
			}
			run, err := h.store.Run(context.Background(), tenant, id)
			ok(t, err)
			if out := h.live(t, run); out.State != machine.RunCompleted {
				t.Errorf("the run is %s: %s\n%s", out.State, out.Reason, h.story(id))
			}
			n := map[string]int{}
			for _, e := range h.happened() {
				n[string(e.Tool)+" "+e.Key]++
			}
			for what, times := range n {
				if strings.HasPrefix(what, "mail.send") && times > 1 {
					t.Errorf("%s happened %d times", what, times)
				}
			}
			if scene == "in the middle of a tool" && h.count(id, "tool_call_outcome_unknown") != 1 {
				t.Errorf("nobody was asked what became of the mail\n%s", h.story(id))
			}
			if scene == "in a tool that repeats" && len(n) != 2 {
				t.Errorf("the repeated call used another key: %v", n)
			}
		})
	}
}

// killChild runs a scene in a process of its own and kills it when it hangs.
func killChild(t *testing.T, dir, scene string) (id specs.RunID, acked []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledChild$", "-test.v")
	child.Env = append(os.Environ(), "CALLGATE_TEST_KILL_DIR="+dir, "CALLGATE_TEST_KILL_SCENE="+scene)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	ok(t, err)
	ok(t, child.Start())
	var heard strings.Builder
	hung := false
	for lines := bufio.NewScanner(out); !hung && lines.Scan(); {
		line := lines.Text()
		heard.WriteString(line + "\n")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "RUN":
			id = specs.RunID(rest)
		case "ACK":
			for _, s := range strings.Fields(strings.Trim(rest, "[]")) {
				var seq int64
				if _, err := fmt.Sscan(s, &seq); err == nil {
					acked = append(acked, seq)
				}
			}
		case "HANG":
			hung = true
		}
	}
	ok(t, child.Process.Kill())
	_ = child.Wait()
	if !hung || id == "" || len(acked) < 5 {
		t.Fatalf("the child did not get as far as it should:\n%s", heard.String())
	}
	return id, acked
}
