package agent_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
	"github.com/callgate/callgate/tools/provider"
	"github.com/callgate/callgate/tools/toolstest"
)

var errCut = errors.New("the process died here")

// mortal is a store of a process that dies at its k-th Apply: before it was written, or after. From then on nothing that the
// process does reaches the store.
type mortal struct {
	persistence.Store
	mu    sync.Mutex
	left  int // Applies that still succeed
	after bool
	dead  bool
	n     int // Applies that were tried
}

func (m *mortal) Apply(ctx context.Context, c persistence.Change) (persistence.Applied, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return persistence.Applied{}, errCut
	}
	m.n++
	if m.left > 0 {
		m.left--
		return m.Store.Apply(ctx, c)
	}
	m.dead = true
	if m.after {
		_, err := m.Store.Apply(ctx, c)
		return persistence.Applied{}, errors.Join(errCut, err)
	}
	return persistence.Applied{}, errCut
}

func (m *mortal) Release(ctx context.Context, l persistence.Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errCut
	}
	return m.Store.Release(ctx, l)
}

// die makes the process die at the k-th Apply from now on.
func (m *mortal) die(k int, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.after = k, after
}

// fullLife is a play that goes through every kind of step: siblings of every manner, a question, drift, memory, a commit.
func fullLife() play {
	return play{
		calls(`note.put {"to":"1"}`, `mail.send {"to":"me"}`, `mail.send {"to":"x@elsewhere"}`),
		text("Here is the story."),
		calls(`workspace.write_file {"path":"output/main.md","content":"A fine story."}`, `workspace.write_file {"path":"persist/MEMORY.md","content":"likes stories"}`),
		commit,
		closing,
		closing,
	}
}

// crashed plays a life that is cut at one point, and gives the house that outlives it. Died is false when the run was over first.
func crashed(t testing.TB, turns play, k int, after bool) (h *house, run persistence.Run, died bool) {
	t.Helper()
	var m *mortal
	o := options{path: filepath.Join(t.TempDir(), "callgate.db"), host: &toolstest.FakeHost{}, effects: &toolstest.MemoryRecorder{},
		wrap: func(s persistence.Store) persistence.Store { m = &mortal{Store: s, left: 1 << 30}; return m }}
	first := open(t, turns, o)
	run = first.start()
	m.die(k, after)
	for range 3 {
		out, err := first.runner.Run(context.Background(), tenant, run.ID)
		if m.dead {
			died = true
			break
		}
		ok(t, err)
		if out.Ended() {
			break
		}
		people(first, out)
		if m.dead {
			died = true
			break
		}
	}
	o.wrap = nil
	return open(t, turns, o), run, died
}

// people decide what waits for them; errors are the dying process's.
func people(h *house, out agent.Outcome) {
	ctx := context.Background()
	for _, a := range out.Waiting {
		_, _ = h.dispatcher.Decide(ctx, tenant, tools.Ballot{Approval: a.ID, By: bob, Verdict: tools.BallotApprove})
	}
	for _, c := range out.Unknown {
		happened, err := toolstest.Count(h.effects, c.IdempotencyKey)
		ok(h.t, err)
		_, _ = h.dispatcher.Reconcile(ctx, bob, c.Run, c.ID, happened > 0, "looked it up")
	}
}

// live plays a run to its end with the people's help.
func (h *house) live(t testing.TB, run persistence.Run) agent.Outcome {
	t.Helper()
	for range 20 {
		out := h.run(run.ID)
		if out.Ended() {
			h.sound(run.ID)
			return out
		}
		people(h, out)
	}
	t.Fatalf("the run does not end\n%s", h.story(run.ID))
	return agent.Outcome{}
}

// eachCrash tries every crash point of a life: every Apply, before it was written and, when both is asked for, after. To the store
// the end of one is the beginning of the next; to the world outside they differ.
func eachCrash(t *testing.T, turns func() play, both bool, check func(t *testing.T, h *house, run persistence.Run)) {
	points := 15
	for died := true; died; points += 5 { // beyond the end nothing dies, which costs a few lives and misses no point
		_, _, died = crashed(t, turns(), points, false)
	}
	cuts := []bool{false}
	if both {
		cuts = append(cuts, true)
	}
	for k := 0; k < points; k += stride {
		for _, after := range cuts {
			t.Run(fmt.Sprintf("apply %d, after=%v", k, after), func(t *testing.T) {
				t.Parallel()
				h, run, died := crashed(t, turns(), k, after)
				if died {
					check(t, h, run)
				} else if k < 15 {
					t.Error("the play no longer goes through the life of a run")
				}
			})
		}
	}
}

// At every crash point: a tool that cannot be taken back has its effect at most once, one that can be repeated always with
// the same key, and a step that is in the journal is not done again. D06, H31: no finished sibling runs again.
func TestJ6_TestCase_D06_H31_EffectsAtEveryCrashPoint(t *testing.T) {
	t.Parallel()
	eachCrash(t, fullLife, true, func(t *testing.T, h *house, run persistence.Run) {
		out := h.live(t, run)
		if out.State != machine.RunCompleted {
			t.Errorf("the run is %s: %s %s\n%s", out.State, out.ErrorCode, out.Reason, h.story(run.ID))
		}
		byKey := map[string]int{}
		for _, e := range h.happened() {
			byKey[e.Key]++
			if e.Tool == "mail.send" && byKey[e.Key] > 1 {
				t.Errorf("%s %s happened %d times", e.Tool, e.Args, byKey[e.Key])
			}
		}
		if len(byKey) > 3 {
			t.Errorf("%d different effects of 3 calls: %v", len(byKey), h.happened())
		}
		for _, c := range h.calls(run.ID) {
			if c.State == machine.CallCompleted && c.Attempt > 0 && (c.Tool == "mail.send" || c.Tool == "note.put") && byKey[c.IdempotencyKey] == 0 {
				t.Errorf("call %s is completed and had no effect", c.ID)
			}
		}
		if got := h.host.Messages("chat-1"); len(got) != 1 || got[0].Text != "A fine story." {
			t.Errorf("the reader got %+v", got)
		}
		turns := map[string]int{}
		for _, l := range h.lines(run.ID) {
			if l.Kind == persistence.KindModelTurn {
				turn, _, err := agent.ReadTurn(context.Background(), h.store, l)
				ok(t, err)
				turns[fmt.Sprint(turn)]++
			}
		}
		for turn, n := range turns {
			if n != 1 {
				t.Errorf("turn %s was played %d times", turn, n)
			}
		}
		stable, err := h.store.Tree(context.Background(), tenant, persistence.ChatTree("chat-1"), 0)
		ok(t, err)
		if _, has := stable.Files["persist/MEMORY.md"]; !has {
			t.Error("persist/ was not promoted")
		}
	})
}

// From wherever a crash leaves a run, cancelling leads to its end, and nothing is committed after it.
func TestF8_EveryStateLeadsToAnEnd(t *testing.T) {
	t.Parallel()
	shorter := func() play {
		return play{calls(`note.put {"to":"1"}`, `mail.send {"to":"x@elsewhere"}`), text("Here is the story."), draft, commit, finish}
	}
	eachCrash(t, shorter, false, func(t *testing.T, h *house, run persistence.Run) {
		before := len(h.host.Messages("chat-1"))
		err := h.runner.Cancel(context.Background(), ann, run.ID)
		if errors.Is(err, tools.ErrRunEnded) {
			return
		}
		ok(t, err)
		h.ends(run.ID, machine.RunCancelled)
		if after := len(h.host.Messages("chat-1")); after != before {
			t.Error("something was committed after the cancel")
		}
		stable, err := h.store.Tree(context.Background(), tenant, persistence.ChatTree("chat-1"), 0)
		ok(t, err)
		if len(stable.Files) > 0 {
			t.Errorf("persist/ was promoted: %v", stable.Files)
		}
	})
}

// Random lives, cut at random points as often as it pleases: the numbers of the journal have no gap and no repeat, and the
// chain verifies.
func TestJ1_SeqHasNoGapAcrossCrashes(t *testing.T) {
	t.Parallel()
	lines := []string{`note.put {"to":"1"}`, `mail.send {"to":"me"}`, `mail.send {"to":"x@elsewhere"}`, `mail.send {"to":"everybody"}`,
		`workspace.write_file {"path":"scratch/a.md","content":"a"}`, `workspace.read_file {"path":"nowhere"}`, `nobody.knows {}`, `note.get {"to":`}
	rapid.Check(t, func(r *rapid.T) {
		var turns play
		for range rapid.IntRange(1, 2).Draw(r, "turns") {
			turns = append(turns, calls(rapid.SliceOfN(rapid.SampledFrom(lines), 1, 4).Draw(r, "calls")...))
		}
		turns = append(turns, draft, commit, closing, closing)
		h, run, _ := crashed(t, turns, rapid.IntRange(0, 20).Draw(r, "cut"), rapid.Bool().Draw(r, "after"))
		h.live(t, run)
	})
}

// The run ends as the failure says, whatever the tool has done: failed, or partially successful when a commit is out.
// What the model can read and mend never ends it.
func TestF9_SystemFailuresEndTheRunOthersDoNot(t *testing.T) {
	t.Parallel()
	system := &toolstest.FailingTool{Err: tools.Systemf("workspace.escape", "a link leads out")}
	mild := &toolstest.FailingTool{Result: tools.Recoverable("note.gone", "It is gone.")}
	panics := &toolstest.FailingTool{Panic: "oh"}
	bad := calls(`note.get {}`, `note.put {"to":"1"}`)
	for name, c := range map[string]struct {
		tool  tools.Executor
		turns play
		state machine.State
	}{
		"system":                 {system, play{bad, draft, commit, finish}, machine.RunFailed},
		"system after a commit":  {system, play{draft, commit, bad, finish}, machine.RunPartialSuccess},
		"recoverable":            {mild, play{bad, draft, commit, finish}, machine.RunCompleted},
		"recoverable all along":  {mild, play{draft, bad, commit, bad, finish}, machine.RunCompleted},
		"a built-in that panics": {panics, play{bad, draft, commit, finish}, machine.RunFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, c.turns, options{tools: toolMap("note.get", c.tool)})
			out := h.ends(h.start().ID, c.state)
			if c.tool == system && out.ErrorCode != "workspace.escape" {
				t.Errorf("the outcome is %+v", out)
			}
		})
	}
}

// Whatever ends a run ends everything in it: waiting siblings, their approvals, the invocation, the lease.
func TestF10_NothingOutlivesTheRun(t *testing.T) {
	t.Parallel()
	waiting := `mail.send {"to":"x@elsewhere"}`
	for name, end := range map[string]struct {
		turns play
		act   func(h *house, run persistence.Run)
		state machine.State
	}{
		"failed":    {play{calls(waiting, `mail.send {"to":"abuse"}`)}, nil, machine.RunFailed},
		"partial":   {play{draft, commit, calls(waiting, `mail.send {"to":"abuse"}`)}, nil, machine.RunPartialSuccess},
		"cancelled": {play{calls(waiting, waiting)}, func(h *house, run persistence.Run) { ok(h.t, h.runner.Cancel(context.Background(), ann, run.ID)) }, machine.RunCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, end.turns, options{})
			run := h.start()
			if end.act != nil {
				h.ends(run.ID, machine.RunAwaitingApproval)
				end.act(h, run)
			}
			h.ends(run.ID, end.state)
			as, _, err := h.store.Approvals(context.Background(), tenant, persistence.Query{Run: run.ID})
			ok(t, err)
			if len(as) == 0 {
				t.Fatal("there was no approval to settle")
			}
			_, err = h.dispatcher.Decide(context.Background(), tenant, tools.Ballot{Approval: as[0].ID, By: bob, Verdict: tools.BallotApprove})
			var decided *tools.DecidedError
			if !errors.As(err, &decided) {
				t.Errorf("an approval of a run that is over can be decided: %v", err)
			}
		})
	}
}

// A process that dies between a system failure and the end of the run leaves the end to the next one.
func TestF9_ASystemFailureIsNotForgottenInACrash(t *testing.T) {
	t.Parallel()
	broken := &toolstest.FailingTool{Err: tools.Systemf("workspace.escape", "a link leads out")}
	turns := play{calls(`note.get {}`, `note.put {"to":"1"}`), draft, commit, finish}
	m := &mortal{left: 1 << 30}
	o := options{tools: toolMap("note.get", broken), wrap: func(s persistence.Store) persistence.Store { m.Store = s; return m }}
	first := open(t, turns, o)
	run := first.start()
	m.die(4, false) // begin, ask, propose and start, the failure; the end of the run is cut
	_, err := first.runner.Run(context.Background(), tenant, run.ID)
	wantErr(t, err, errCut)
	h := open(t, turns, options{path: first.path})
	if c := h.calls(run.ID)["1-c1"]; c.State != machine.CallFailed {
		t.Fatalf("the call is %s: the cut is at another place\n%s", c.State, h.story(run.ID))
	}
	if out := h.ends(run.ID, machine.RunFailed); out.ErrorCode != "workspace.escape" {
		t.Errorf("the outcome is %+v", out)
	}
	if n := len(h.happened()); n != 0 {
		t.Errorf("a sibling ran after it: %v", h.happened())
	}
}

// hiccup is a store that refuses one Apply and then works again.
type hiccup struct {
	persistence.Store
	mu     sync.Mutex
	left   int
	before func() // told when it refuses
}

var errHiccup = errors.New("the disk had a hiccup")

func (s *hiccup) Apply(ctx context.Context, c persistence.Change) (persistence.Applied, error) {
	s.mu.Lock()
	s.left--
	refuse := s.left == -1
	s.mu.Unlock()
	if refuse {
		s.before()
		return persistence.Applied{}, errHiccup
	}
	return s.Store.Apply(ctx, c)
}

// A journal that cannot be written stops the run before the next effect: where something has happened already the run fails and
// the model never reads what came of it; where nothing has, it rests or fails, and nothing happens.
func TestJ3_NothingHappensOnceTheJournalFailed(t *testing.T) {
	t.Parallel()
	turns := play{calls(`mail.send {"to":"me"}`, `note.put {"to":"1"}`), draft, commit, finish}
	for k := 0; k < 11; k += stride {
		t.Run(fmt.Sprintf("apply %d", k), func(t *testing.T) {
			t.Parallel()
			s := &hiccup{left: 1 << 30}
			h := open(t, turns, options{wrap: func(inner persistence.Store) persistence.Store { s.Store = inner; return s }})
			run := h.start()
			var effects, messages int
			seen := func() (int, int) { return len(h.happened()), len(h.host.Messages("chat-1")) }
			s.mu.Lock()
			s.left, s.before = k, func() { effects, messages = seen() }
			s.mu.Unlock()
			out, err := h.runner.Run(context.Background(), tenant, run.ID)
			if e, m := seen(); e != effects || m != messages {
				t.Errorf("%d effects and %d messages became %d and %d after the journal failed", effects, messages, e, m)
			}
			switch {
			case err != nil:
				wantErr(t, err, errHiccup)
				for _, c := range h.calls(run.ID) {
					if c.State == machine.CallStarted && c.Tool == "mail.send" {
						t.Errorf("the mail may have gone out and the run rests: %s", h.story(run.ID))
					}
				}
			case out.State != machine.RunFailed && out.State != machine.RunPartialSuccess:
				t.Errorf("the run is %s", out.State)
			default:
				h.sound(run.ID)
			}
		})
	}
}

// Work that the run has handed to others ends with it.
func TestF10_UnfinishedChildrenAreCancelled(t *testing.T) {
	t.Parallel()
	child := persistence.Invocation{ID: "child-1", Kind: persistence.InvocationSubagent, Profile: "worker", Depth: 1}
	var h *house
	delegate := func(r provider.Request) {
		child.Parent = r.Invocation
		_, err := h.store.Apply(context.Background(), persistence.Change{Tenant: tenant, Run: r.Run, Key: "child", Lines: []persistence.Entry{
			{Move: &persistence.Move{Step: machine.Invocation().Birth(), Record: &child}}}})
		if err != nil {
			t.Error(err)
		}
	}
	h = open(t, play{looking(delegate, draft), commit, finish}, options{})
	run := h.start()
	h.ends(run.ID, machine.RunCompleted)
	got, err := h.store.Invocation(context.Background(), tenant, run.ID, "child-1")
	ok(t, err)
	root, err := h.store.Invocation(context.Background(), tenant, run.ID, run.Root)
	ok(t, err)
	if got.State != machine.InvocationCancelled || root.State != machine.InvocationFinished {
		t.Errorf("the child is %s, the root %s", got.State, root.State)
	}
}
