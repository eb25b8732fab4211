package tools

import (
	"context"
	"errors"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// sweepPage is how many due records one look at the store answers.
const sweepPage = 100

// Sweep moves every approval on whose time is over by the store's clock, together with its call: expired, or parked where all
// its rules say so. It answers how many moved. Any process may sweep at any time; the states decide who was first.
func (d *Dispatcher) Sweep(ctx context.Context) (int, error) {
	moved := 0
	for {
		due, err := d.store.Due(ctx, sweepPage)
		if err != nil {
			return moved, err
		}
		progress := false
		for _, r := range due {
			id := specs.ApprovalID(r.ID)
			if r.Machine != machine.ApprovalName {
				continue
			}
			ok, err := d.expireApproval(ctx, r.Tenant, id)
			if err != nil {
				return moved, err
			}
			if ok {
				moved++
				progress = true
			}
		}
		if len(due) < sweepPage || !progress {
			return moved, nil
		}
	}
}

// expireApproval ends one approval whose time is over. False means that there was nothing to do, or that somebody was first.
func (d *Dispatcher) expireApproval(ctx context.Context, t specs.TenantID, id specs.ApprovalID) (bool, error) {
	a, err := d.store.Approval(ctx, t, id)
	if err != nil {
		return false, err
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return false, err
	}
	if a.Deadline.IsZero() || now.Before(a.Deadline) || machine.Approval().IsFinal(a.State) || a.State == machine.ApprovalParked {
		return false, nil
	}
	ch := persistence.Change{Tenant: t, Run: a.Run, Key: uniqueKey("expire", a.Call)}
	s, next := &story{}, a
	park := a.State == machine.ApprovalPending && a.OnExpire == specs.OnExpirePark
	if park {
		s.move(machine.Approval(), a.State, machine.ApprovalPark, &next, map[string]any{"call": a.Call,
			"whatNow": "It can no longer be approved. Reject it, or ask for it anew."})
		s.last().Move.Version = a.Version
	} else if err := d.expireWithCall(ctx, s, &ch, a, &next); err != nil {
		if errors.Is(err, persistence.ErrStale) {
			return false, nil
		}
		return false, err
	}
	if s.err != nil {
		return false, s.err
	}
	ch.Lines = s.lines
	if _, err := d.store.Apply(ctx, ch); err != nil {
		if errors.Is(err, persistence.ErrStale) {
			return false, nil
		}
		return false, appendFailed(ctx, err)
	}
	return true, nil
}

func (d *Dispatcher) expireWithCall(ctx context.Context, s *story, ch *persistence.Change, a persistence.Approval, next *persistence.Approval) error {
	call, err := d.store.Call(ctx, a.Tenant, a.Run, a.Call)
	if err != nil {
		return err
	}
	siblings, err := d.store.Calls(ctx, a.Tenant, a.Run)
	if err != nil {
		return err
	}
	why := "nobody decided in time"
	if a.State == machine.ApprovalApproved {
		why = "it was approved and not started in time"
	}
	s.move(machine.Approval(), a.State, machine.ApprovalExpire, next, map[string]any{"call": a.Call, "why": why})
	s.last().Move.Version = a.Version
	if call.Approval != a.ID || call.State != machine.CallAwaitingApproval && call.State != machine.CallApproved {
		return persistence.ErrStale
	}
	after := call
	r := Recoverable(CodeApprovalExpired, "The call needed an approval, and %s. Nothing ran.", why)
	r.Retryable = false
	after.Reason = why
	if err := keepResult(siblings, ch, &after, &r); err != nil {
		return err
	}
	s.move(machine.Call(), call.State, machine.CallExpire, &after, map[string]any{"approval": a.ID, "why": why})
	s.last().Move.Version, s.last().Level = call.Version, persistence.LevelWarn
	return nil
}
