package tools

import (
	"context"
	"errors"
	"fmt"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// CancelRun records that somebody wants a run to stop. It needs no lease: whoever works on the run sees it and settles what is
// open. Asking twice is asking once; a run that has ended is ErrRunEnded.
func (d *Dispatcher) CancelRun(ctx context.Context, by Principal, id specs.RunID) error {
	for try := 0; ; try++ {
		run, err := d.store.Run(ctx, by.Tenant, id)
		if err != nil {
			return err
		}
		switch {
		case machine.Run().IsFinal(run.State):
			return fmt.Errorf("run %s is %s: %w", id, run.State, ErrRunEnded)
		case run.State == machine.RunCancelling:
			return nil
		}
		next, s := run, &story{}
		next.CancelledBy = by.User
		s.move(machine.Run(), run.State, machine.RunRequestCancel, &next, map[string]any{"by": by.User})
		s.last().Move.Version = run.Version
		if s.err != nil {
			return s.err
		}
		_, err = d.store.Apply(ctx, persistence.Change{Tenant: by.Tenant, Run: id, Key: uniqueKey("cancel", specs.CallID(by.User)), Lines: s.lines})
		if err == nil {
			return nil
		}
		if !errors.Is(err, persistence.ErrStale) || try >= 2*maxTries {
			return appendFailed(ctx, err)
		}
	}
}

// CancelCall takes one call back. One that has not started ends here; one that this process runs is told to stop, and ends as
// its nature allows. A call that another process runs cannot be reached: ErrElsewhere.
func (d *Dispatcher) CancelCall(ctx context.Context, by Principal, run specs.RunID, id specs.CallID) error {
	for try := 0; ; try++ {
		call, err := d.store.Call(ctx, by.Tenant, run, id)
		if err != nil {
			return err
		}
		switch {
		case machine.Call().IsFinal(call.State):
			return nil
		case call.State == machine.CallStarted:
			k := flightKey{by.Tenant, run, id}
			d.mu.Lock()
			f, ok := d.flights[k]
			d.mu.Unlock()
			if !ok {
				return ErrElsewhere
			}
			f.cancel(&cancelledBy{by.User})
			return nil
		}
		ch := persistence.Change{Tenant: by.Tenant, Run: run, Key: uniqueKey("cancel", id)}
		s := &story{}
		if err := d.takeBack(ctx, s, &ch, call, (&cancelledBy{by.User}).Error()); err != nil {
			return err
		}
		ch.Lines = s.lines
		if _, err = d.store.Apply(ctx, ch); err == nil {
			return nil
		}
		if !errors.Is(err, persistence.ErrStale) || try >= maxTries {
			return appendFailed(ctx, err)
		}
	}
}

// ErrElsewhere says that somebody else started the call, who may still be running it.
var ErrElsewhere = errors.New("the call was started by another process")

// takeBack cancels a call that has not started, and the question about it.
func (d *Dispatcher) takeBack(ctx context.Context, s *story, ch *persistence.Change, call persistence.Call, why string) error {
	a, err := d.openApproval(ctx, &call)
	if err != nil {
		return err
	}
	if a != nil {
		s.move(machine.Approval(), a.State, machine.ApprovalCancel, a, map[string]any{"call": call.ID, "why": why})
	}
	siblings, err := d.store.Calls(ctx, call.Tenant, call.Run)
	if err != nil {
		return err
	}
	next, r := call, cancelledResult(why)
	next.Reason = clip(why, 500)
	if err := keepResult(siblings, ch, &next, &r); err != nil {
		return err
	}
	s.move(machine.Call(), call.State, machine.CallCancel, &next, map[string]any{"why": why})
	s.last().Move.Version = call.Version
	return s.err
}

// ClosingEntries gives what has to be in the Change that ends a run, so that nothing of the run outlives it: every open call,
// approval and invocation moved to an end, and what calls still hold of a budget. The root invocation is left to the caller,
// who knows whether it finished, failed or was cancelled. A call that may have happened stays unresolved in the journal.
func (d *Dispatcher) ClosingEntries(ctx context.Context, t specs.TenantID, id specs.RunID, reason string) ([]persistence.Entry, []persistence.Settlement, error) {
	run, err := d.store.Run(ctx, t, id)
	if err != nil {
		return nil, nil, err
	}
	s := &story{}
	note := map[string]any{"why": clip(reason, 500)}
	calls, err := d.store.Calls(ctx, t, id)
	if err != nil {
		return nil, nil, err
	}
	unsure := map[specs.CallID]bool{}
	for i := range calls {
		c := &calls[i]
		if machine.Call().IsFinal(c.State) {
			continue
		}
		a, err := d.openApproval(ctx, c)
		if err != nil && !errors.Is(err, persistence.ErrStale) {
			return nil, nil, err
		}
		if a != nil {
			s.move(machine.Approval(), a.State, machine.ApprovalCancel, a, note)
		}
		c.IsError, c.Reason, c.ErrorCode = true, clip(reason, 500), CodeCancelled
		safe, err := d.harmless(ctx, run, c)
		if err != nil {
			return nil, nil, err
		}
		if c.State == machine.CallStarted && safe || c.State != machine.CallStarted && c.State != machine.CallOutcomeUnknown {
			s.move(machine.Call(), c.State, machine.CallCancel, c, note)
			continue
		}
		c.ErrorCode = CodeOutcomeUnknown
		unsure[c.ID] = true
		at := c.State
		if at == machine.CallStarted {
			at = s.move(machine.Call(), at, machine.CallLose, c, note)
		}
		s.move(machine.Call(), at, machine.CallAbandon, c, note)
	}
	invocations, err := d.store.Invocations(ctx, t, id)
	if err != nil {
		return nil, nil, err
	}
	for i := range invocations {
		v := &invocations[i]
		if v.ID == run.Root || machine.Invocation().IsFinal(v.State) {
			continue
		}
		v.Reason = clip(reason, 500)
		s.move(machine.Invocation(), v.State, machine.InvocationCancel, v, note)
	}
	open, err := d.store.Reservations(ctx, t, id)
	if err != nil {
		return nil, nil, err
	}
	var settled []persistence.Settlement
	for _, r := range open {
		used := Usage{}
		if unsure[r.Call] {
			used.Cost = r.Amount // it may have happened, so it is paid for
		}
		settled = append(settled, settle([]persistence.Reservation{r}, used)...)
	}
	return s.lines, settled, s.err
}

// harmless says that a started call may be cancelled without leaving a doubt behind.
func (d *Dispatcher) harmless(ctx context.Context, run persistence.Run, c *persistence.Call) (bool, error) {
	if c.State != machine.CallStarted {
		return true, nil
	}
	pinned, err := d.policies.Pinned(ctx, run.Tenant, run.Bundle)
	if err != nil {
		return false, nil // without its bundle nobody knows what the tool was: doubt it is
	}
	t := pinned.Bundle.Tool(c.Tool)
	if t == nil {
		return false, nil
	}
	e, ok := d.registry.Lookup(t)
	if !ok {
		return false, nil
	}
	return natureOf(pinned, t, e).repeatable, nil
}
