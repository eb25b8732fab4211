package tools_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/toolstest"
)

// turnThrough drives a turn to its end as a run loop would, in one process after the other, until nothing moves it but a person.
func (r *rig) turnThrough(scope tools.Scope, calls []tools.Call, startFirst bool) []tools.Proposal {
	r.t.Helper()
	for range 40 {
		ps, err := r.d.Propose(r.ctx, scope, calls, tools.Rider{StartFirst: startFirst})
		if err == nil {
			err = r.d.Recover(r.ctx, scope)
		}
		open := false
		for i := 0; err == nil && i < len(ps); i++ {
			p := ps[i]
			if p.Approval != nil && p.Approval.State == machine.ApprovalPending {
				if _, err = r.d.Decide(r.ctx, tenant, ballot(p.Approval.ID, bob)); err != nil {
					break
				}
			}
			_, e := r.d.Execute(r.ctx, scope, p.Call.ID)
			if e != nil && !errors.Is(e, tools.ErrOutcomeUnknown) {
				err = e
			}
			open = open || e != nil && !errors.Is(e, tools.ErrOutcomeUnknown)
		}
		if err == nil && !open {
			return ps
		}
		r.d = r.dispatcher() // the process is dead; another one takes the run up
	}
	r.t.Fatal("the turn does not come to an end")
	return nil
}

// TestJ6_NoCrashPointDoublesAnEffect cuts the process off at its k-th write, before or after it lands, any number of times.
func TestJ6_NoCrashPointDoublesAnEffect(t *testing.T) {
	t.Parallel()
	tool := []string{"act.once", "act.twice", "act.look", "act.ask", "workspace.write_file"}
	digest := houseDigest(t)
	r := newRig(t)
	rounds := 0
	rapid.Check(t, func(rt *rapid.T) {
		if rounds++; rounds > 40 {
			return // each round is a hundred commits to a real disk
		}

		r.store.hook(nil, nil)
		r.scope = r.newRun(digest)
		scope := r.scope
		var calls []tools.Call
		for i := range rapid.IntRange(1, 3).Draw(rt, "calls") {
			name := rapid.SampledFrom(tool).Draw(rt, "tool")
			args := fmt.Sprintf(`{"num":%d}`, i)
			if name == "workspace.write_file" {
				args = write(fmt.Sprintf("output/%d.md", i), "x")
			}
			calls = append(calls, call(fmt.Sprint(i), name, args))
		}
		cuts := map[int]bool{} // at which write, and whether it lands
		for range rapid.IntRange(1, 3).Draw(rt, "cuts") {
			cuts[rapid.IntRange(1, 12).Draw(rt, "at")] = rapid.Bool().Draw(rt, "lands")
		}
		r.store.hook(func(n int, _ persistence.Change) error {
			if lands, ok := cuts[n]; ok && !lands {
				return errCut
			}
			return nil
		}, func(n int, _ persistence.Change) error {
			if cuts[n] {
				return errCut
			}
			return nil
		})
		ps := r.turnThrough(scope, calls, rapid.Bool().Draw(rt, "startFirst"))
		r.store.hook(nil, nil)
		all, err := r.effects.Effects()
		if err != nil {
			rt.Fatal(err)
		}
		for _, p := range ps {
			c, err := r.store.Call(r.ctx, tenant, scope.Run, p.Call.ID)
			if err != nil {
				rt.Fatal(err)
			}
			n, keys := count(all, scope.Run, c.ID)
			switch {
			case keys > 1:
				rt.Fatalf("%s was tried with %d keys", c.Tool, keys)
			case (c.Tool == "act.once" || c.Tool == "act.ask") && n > 1:
				rt.Fatalf("%s happened %d times", c.Tool, n)
			case c.State == machine.CallCompleted && n == 0 && c.Tool != "workspace.write_file":
				rt.Fatalf("%s is completed and never happened", c.Tool)
			case c.State == machine.CallOutcomeUnknown && c.Tool != "act.once" && c.Tool != "act.ask":
				rt.Fatalf("%s may be repeated and rests in doubt", c.Tool)
			case c.State != machine.CallOutcomeUnknown && !machine.Call().IsFinal(c.State):
				rt.Fatalf("%s rests in %s", c.Tool, c.State)
			}
		}
		r.verify()
	})
}

func count(all []toolstest.Effect, run specs.RunID, id specs.CallID) (n, keys int) {
	seen := map[string]bool{}
	for _, e := range all {
		if e.Run == run && e.Call == id {
			n++
			seen[e.Key] = true
		}
	}
	return n, len(seen)
}

func TestJ8_TheSameTurnFromTwoProcessesIsWrittenOnce(t *testing.T) { testOneProposal(t) }

func TestCase_H34_OneActionOneQuestion(t *testing.T) { testOneProposal(t) }

func testOneProposal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := r.dispatcher()
	calls := []tools.Call{call("a", "act.ask", `{}`), call("b", "act.once", `{}`)}
	type answer struct {
		ps  []tools.Proposal
		err error
	}
	answers := make(chan answer)
	for i := range 8 {
		d := r.d
		if i%2 == 1 {
			d = other
		}
		go func() {
			ps, err := d.Propose(r.ctx, r.scope, calls, tools.Rider{})
			answers <- answer{ps, err}
		}()
	}
	ids := map[specs.ApprovalID]bool{}
	for range 8 {
		a := <-answers
		r.must(a.err)
		ids[a.ps[0].Call.Approval] = true
	}
	as, _, err := r.store.Approvals(r.ctx, tenant, persistence.Query{Run: r.scope.Run})
	r.must(err)
	if len(ids) != 1 || len(as) != 1 {
		t.Errorf("%d questions about one action: %v", len(as), ids)
	}
	r.verify()
}

func TestCase_H32_OneCallOneResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.twice", `{}`)
	// The process loses its answer after the outcome is written, and another one takes the run up.
	r.store.hook(nil, func(n int, _ persistence.Change) error {
		if n == 2 {
			return errCut
		}
		return nil
	})
	if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); err == nil {
		t.Fatal("the answer was not lost")
	}
	r.store.hook(nil, nil)
	r.d = r.dispatcher()
	r.must(r.d.Recover(r.ctx, r.scope))
	r.execute(p)
	r.execute(p)
	ends := 0
	for _, l := range r.journal() {
		if l.Machine == machine.CallName && machine.Call().IsFinal(l.To) {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("%d results", ends)
	}
	r.wantEffects(p, 1)
	r.verify()
}

func TestCase_A14_AnyProcessAnswersAndGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.ask", `{}`)
	r.d = r.dispatcher()
	r.decide(p, bob, tools.BallotApprove)
	r.d = r.dispatcher()
	r.execute(p)
	r.wantEffects(p, 1)
}

func TestCase_D02_AFencedWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old, err := r.store.Acquire(r.ctx, tenant, r.scope.Run, "old", 1, nil)
	r.must(err)
	r.scope.Fence = old.Fence
	if _, err := r.store.Acquire(r.ctx, tenant, r.scope.Run, "new", 1<<40, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if _, err := r.d.Propose(r.ctx, r.scope, []tools.Call{call("a", "act.once", `{}`)}, tools.Rider{StartFirst: true}); !errors.Is(err, persistence.ErrFenced) {
		t.Errorf("%v", err)
	}
	calls, err := r.store.Calls(r.ctx, tenant, r.scope.Run)
	r.must(err)
	if len(calls) != 0 {
		t.Error("a worker that lost its lease wrote a call")
	}
}

func TestALateAnswerAfterTheRunsEndHarmsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	r.on("act.slow", func(ctxT, tools.Request) (tools.Result, error) { <-release; return tools.Text("late"), nil })
	p := r.one("act.slow", `{}`)
	if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); !errors.Is(err, tools.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	r.endRun(machine.RunFail)
	close(release)
	r.must(r.d.Close(r.ctx))
	r.state(p, machine.CallUnresolved)
	r.verify()
}
