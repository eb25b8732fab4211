package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// standing says how the calls of the present turn stand.
type standing struct {
	next     *persistence.Call  // can be executed now
	waiting  bool               // some call waits for a person
	unknown  []persistence.Call // nobody knows whether these happened
	finished *persistence.Call  // workspace.finish succeeded
	after    *persistence.Call  // a call behind the finish
	denied   []persistence.Call
	broken   *persistence.Call // a system failure happened in it
	commits  int64             // confirmed in the whole run
}

// stand reads the calls of the run. Calls that wait for people do not hold back their siblings, except that finish waits
// for all calls before it and holds those behind it: what it ends must have happened.
func (s *shift) stand(ctx context.Context, run persistence.Run) (standing, error) {
	var st standing
	calls, err := s.c.Store.Calls(ctx, s.tenant, s.id)
	if err != nil {
		return st, err
	}
	st.commits = confirmed(calls)
	calls = slices.DeleteFunc(calls, func(c persistence.Call) bool { return c.Turn != run.Round || c.Invocation != run.Root })
	slices.SortFunc(calls, func(a, b persistence.Call) int { return int(a.Index - b.Index) })
	open, held := false, false
	for i := range calls {
		c := &calls[i]
		if st.finished != nil && st.after == nil {
			st.after = c
		}
		if c.SystemFailure != "" && st.broken == nil {
			st.broken = c
		}
		switch c.State {
		case machine.CallReady, machine.CallApproved, machine.CallStarted:
			if c.Tool == toolFinish && open {
				held = true
			}
			if st.next == nil && !held {
				st.next = c
			}
		case machine.CallRequested, machine.CallAwaitingApproval:
			st.waiting = true
		case machine.CallOutcomeUnknown:
			st.unknown = append(st.unknown, *c)
		case machine.CallDenied:
			st.denied = append(st.denied, *c)
		case machine.CallCompleted:
			if c.Tool == toolFinish && ran(c) {
				st.finished = c
			}
		}
		open = open || !machine.Call().IsFinal(c.State)
	}
	return st, nil
}

// ran says that the tool itself did it: a person who answers in its place finishes and commits nothing.
func ran(c *persistence.Call) bool { return c.Attempt > 0 && !c.IsError }

// confirmed counts the commits that are known to be in the chat.
func confirmed(calls []persistence.Call) (n int64) {
	for i := range calls {
		if c := &calls[i]; c.Tool == toolCommit && c.State == machine.CallCompleted && ran(c) {
			n++
		}
	}
	return n
}

// dispatch sees to the calls of the turn, one a step: executes the next, ends the turn, or parks the run.
func (s *shift) dispatch(ctx context.Context, run persistence.Run) error {
	now, err := s.stand(ctx, run)
	if err != nil {
		return err
	}
	if now.broken != nil {
		return &failure{code: now.broken.SystemFailure, reason: fmt.Sprintf("a system failure in call %s of %s", now.broken.ID, now.broken.Asked)}
	}
	if err := s.failingDenial(ctx, now.denied); err != nil {
		return err
	}
	run.Commits = max(run.Commits, now.commits)
	st := begin(run)
	switch {
	case now.finished != nil && now.after != nil:
		return &failure{code: CodeToolAfterFinish, reason: fmt.Sprintf("the model called %s after %s in one turn", now.after.Asked, toolFinish)}
	case now.finished != nil:
		st.run.Finished = true
		st.move(machine.RunFinish, map[string]any{"turn": run.Round, "call": now.finished.ID})
		return s.commit(ctx, st, persistence.Change{})
	case now.next != nil:
		return s.execute(ctx, run, *now.next)
	case now.waiting || len(now.unknown) > 0:
		p := map[string]any{"turn": run.Round}
		if ids := idsOf(now.unknown); len(ids) > 0 {
			p["outcomeUnknown"] = ids
		}
		st.move(machine.RunAwaitApproval, p)
		return s.commit(ctx, st, persistence.Change{})
	}
	return s.nextTurn(ctx, st)
}

// nextTurn leaves the turn. When the plan stays where it is, the next request goes out with the same Apply; a new node is
// written down first, because what the model may see depends on it.
func (s *shift) nextTurn(ctx context.Context, st *story) error {
	c, _, err := s.compiled(ctx, st.run)
	if err != nil {
		return err
	}
	node, err := s.nextNode(ctx, st.run, c)
	if err != nil {
		return err
	}
	var blobs []persistence.Blob
	if node != nil {
		root, err := s.c.Store.Invocation(ctx, s.tenant, s.id, st.run.Root)
		if err != nil {
			return err
		}
		blobs = enter(st, st.run.Plan, node, root.Profile)
	}
	st.move(machine.RunNextTurn, map[string]any{"turn": st.run.Round})
	if node != nil {
		return s.commit(ctx, st, persistence.Change{Blobs: blobs})
	}
	return s.turn(ctx, st.run, st)
}

// failingDenial ends the run when a rule that denied a call says so.
func (s *shift) failingDenial(ctx context.Context, denied []persistence.Call) error {
	for _, c := range denied {
		records, err := s.c.Store.Decisions(ctx, s.tenant, s.id, c.ID)
		if err != nil {
			return err
		}
		for _, r := range records {
			var d celpolicy.Decision
			if err := json.Unmarshal(r.Output, &d); err != nil {
				return tools.Systemf("journal.unreadable", "decision about call %s: %w", c.ID, err)
			}
			if !d.Callable && d.OnDeny == specs.OnDenyFailRun {
				return &failure{code: CodeDeniedFailsRun, reason: fmt.Sprintf("%s was denied by %s, which ends the run: %s", c.Asked, d.Rule, d.Reason)}
			}
		}
	}
	return nil
}

// execute runs one call through the dispatcher. The run's own moves ride in the dispatcher's commits.
func (s *shift) execute(ctx context.Context, run persistence.Run, c persistence.Call) error {
	hooks := tools.Hooks{
		Start: func(c persistence.Call) tools.Rider { return s.ridesWithStart(ctx, c) },
		Done:  func(e tools.Ending) tools.Rider { return s.ridesWithOutcome(ctx, e) },
	}
	err := s.watched(ctx, func(ctx context.Context) error {
		_, err := s.c.Dispatcher.ExecuteWith(ctx, s.scope(run), c.ID, hooks)
		return err
	})
	switch {
	case errors.Is(err, tools.ErrWaiting), errors.Is(err, tools.ErrOutcomeUnknown), errors.Is(err, tools.ErrRunEnded):
		return nil // it is in the store, where the next step reads it
	}
	return err
}

// ridesWithStart moves the run to awaiting_host_commit together with the start of a call that asks the host.
func (s *shift) ridesWithStart(ctx context.Context, c persistence.Call) tools.Rider {
	if c.Tool != toolCommit {
		return tools.Rider{}
	}
	return s.ride(ctx, func(st *story) {
		if st.run.State == machine.RunDispatchingTool {
			st.move(machine.RunAwaitHost, map[string]any{"call": c.ID})
		}
	})
}

// ridesWithOutcome moves the run together with the outcome of a call: through the states of a workspace change, or back
// from the host. Nothing rides when the run has been cancelled meanwhile.
func (s *shift) ridesWithOutcome(ctx context.Context, e tools.Ending) tools.Rider {
	if e.Tree == nil && e.Call.Tool != toolCommit {
		return tools.Rider{}
	}
	split := 0
	r := s.ride(ctx, func(st *story) {
		switch {
		case st.run.State == machine.RunAwaitingHostCommit && e.Call.Tool == toolCommit:
			split = 1
			if e.Event == machine.CallComplete && !e.Result.IsError {
				st.run.Commits++
				st.move(machine.RunHostCommitted, map[string]any{"call": e.Call.ID, "commits": st.run.Commits})
			} else {
				st.move(machine.RunHostFailed, map[string]any{"call": e.Call.ID, "code": e.Result.ErrorCode})
			}
		case st.run.State == machine.RunDispatchingTool && e.Tree != nil:
			split = 2
			if len(e.Tree.Edits) > 0 {
				st.move(machine.RunApplyPatch, map[string]any{"call": e.Call.ID})
			} else {
				split = 1
			}
			st.move(machine.RunCheckpoint, map[string]any{"call": e.Call.ID})
			st.move(machine.RunCheckpointed, nil) // the dispatcher puts the checkpoint into it
		}
	})
	if e.Call.Tool == toolCommit {
		return tools.Rider{After: r.Before}
	}
	if split > len(r.Before) {
		return tools.Rider{}
	}
	return tools.Rider{Before: r.Before[:split], After: r.Before[split:]}
}

// ride tells a story about the run as it is now. When the run cannot be read nothing rides: a call's outcome is written
// all the same, and the loop finds the run at rest and mends its state.
func (s *shift) ride(ctx context.Context, tell func(*story)) tools.Rider {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	run, err := s.load(ctx)
	if err != nil {
		return tools.Rider{}
	}
	st := begin(run)
	tell(st)
	if st.err != nil {
		return tools.Rider{}
	}
	return tools.Rider{Before: st.lines}
}

// hostCommit goes on from awaiting_host_commit, where a crash or a refusal can leave the run.
func (s *shift) hostCommit(ctx context.Context, run persistence.Run) error {
	now, err := s.stand(ctx, run)
	if err != nil {
		return err
	}
	st := begin(run)
	if now.next != nil && now.next.Tool == toolCommit && now.next.State == machine.CallStarted {
		return s.execute(ctx, run, *now.next)
	}
	ev := machine.RunHostFailed
	if now.commits > run.Commits {
		st.run.Commits, ev = now.commits, machine.RunHostCommitted
	}
	st.move(ev, map[string]any{"commits": st.run.Commits})
	return s.commit(ctx, st, persistence.Change{})
}

// wait is a run at rest for people. It goes on when there is something to do; otherwise it says what is waited for.
func (s *shift) wait(ctx context.Context, run persistence.Run) (*Outcome, error) {
	for swept := false; ; swept = true {
		now, err := s.stand(ctx, run)
		if err != nil {
			return nil, err
		}
		if now.next != nil || !now.waiting && len(now.unknown) == 0 {
			run.Commits = max(run.Commits, now.commits)
			st := begin(run)
			st.move(machine.RunResumeDispatch, map[string]any{"turn": run.Round})
			return nil, s.commit(ctx, st, persistence.Change{})
		}
		approvals, err := s.approvals(ctx)
		if err != nil {
			return nil, err
		}
		clock, err := s.c.Store.Now(ctx)
		if err != nil {
			return nil, err
		}
		due := slices.ContainsFunc(approvals, func(a persistence.Approval) bool { return !a.Deadline.IsZero() && !clock.Before(a.Deadline) })
		if !due || swept {
			return &Outcome{State: run.State, Waiting: approvals, Unknown: now.unknown}, nil
		}
		if _, err := s.c.Dispatcher.Sweep(ctx); err != nil {
			return nil, err
		}
		if run, err = s.load(ctx); err != nil {
			return nil, err
		}
		if run.State != machine.RunAwaitingApproval {
			return nil, nil
		}
	}
}

// approvals lists what people have to decide in this run, oldest first.
func (s *shift) approvals(ctx context.Context) ([]persistence.Approval, error) {
	var all []persistence.Approval
	q := persistence.Query{Run: s.id, States: []machine.State{machine.ApprovalPending, machine.ApprovalParked}, Limit: 500}
	for {
		page, next, err := s.c.Store.Approvals(ctx, s.tenant, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if next == "" {
			slices.Reverse(all)
			return all, nil
		}
		q.After = next
	}
}

func idsOf(calls []persistence.Call) []specs.CallID {
	var ids []specs.CallID
	for _, c := range calls {
		ids = append(ids, c.ID)
	}
	return ids
}
