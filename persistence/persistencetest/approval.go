package persistencetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// asked is a call that waits for a person until the deadline.
func (a *author) asked(id specs.CallID, deadline time.Time) *persistence.Approval {
	a.t.Helper()
	ask := &persistence.Approval{ID: specs.ApprovalID("ask-" + string(id)), Call: id, Shown: []byte(`{"tool":"x"}`)}
	ask.Deadline = deadline
	c := a.born(id, machine.CallAsk)
	for i := range c.Lines {
		c.Lines[i].Move.Record.(*persistence.Call).Deadline = deadline
	}
	c.Lines = append(c.Lines, persistence.Entry{Move: &persistence.Move{Step: machine.Approval().Birth(), Record: ask}})
	a.must(c)
	return ask
}

// decide moves an approval and its call.
func (a *author) decide(id specs.ApprovalID, ev machine.Event, call machine.Event, by specs.UserID) persistence.Change {
	a.t.Helper()
	ask, err := a.store.Approval(a.ctx(), tenant, id)
	if err != nil {
		a.t.Fatal(err)
	}
	ask.DecidedBy = by
	c := a.change(string(ev), moves(a.t, machine.Approval(), ask.State, &ask, ev)...)
	c.Lines = append(c.Lines, a.move(ask.Call, call).Lines...)
	for i := range c.Lines {
		c.Lines[i].Move.OnTime = true
	}
	return c
}

// approvedOnceSpentOnce: two approvers, one wins; two workers, one starts.
func approvedOnceSpentOnce(t *testing.T, place Make) {
	p := place(t)
	stores := []persistence.Store{p.Open(t, persistence.Options{}), p.Open(t, persistence.Options{})}
	a := begin(t, stores[0], "r")
	ask := a.asked("c1", time.Time{})
	var changes []persistence.Change
	for i := range 6 {
		ev, call := machine.ApprovalApprove, machine.CallApprove
		if i%2 == 1 {
			ev, call = machine.ApprovalReject, machine.CallReject
		}
		changes = append(changes, a.decide(ask.ID, ev, call, specs.UserID(fmt.Sprint("user", i))))
	}
	// Two that say yes must be able to go on.
	changes = []persistence.Change{changes[0], changes[2], changes[4]}
	errs := crowd(len(changes), func(i int) error {
		_, err := stores[i%2].Apply(t.Context(), changes[i])
		return err
	})
	if n := winners(t, errs, persistence.ErrStale); n != 1 {
		t.Fatalf("decided %d times", n)
	}
	got, err := stores[1].Approval(t.Context(), tenant, ask.ID)
	must(t, err)
	for i, err := range errs {
		if err == nil && got.DecidedBy != specs.UserID(fmt.Sprint("user", 2*i)) {
			t.Errorf("the winner is user%d, the store says %s", 2*i, got.DecidedBy)
		}
	}
	late := a.change("late", moves(t, machine.Approval(), machine.ApprovalPending, &got, machine.ApprovalReject)...)
	a.refused(late, persistence.ErrStale)

	spend := make([]persistence.Change, 5)
	for i := range spend {
		spend[i] = a.decide(ask.ID, machine.ApprovalSpend, machine.CallStart, got.DecidedBy)
	}
	errs = crowd(len(spend), func(i int) error {
		_, err := stores[i%2].Apply(t.Context(), spend[i])
		return err
	})
	if n := winners(t, errs, persistence.ErrStale); n != 1 {
		t.Errorf("spent %d times", n)
	}
	if c := a.call("c1"); c.State != machine.CallStarted {
		t.Errorf("the call is %s", c.State)
	}
	sound(t, stores[0])
}

// noDecisionAfterTheDeadline: by the store's clock, to the microsecond, for decision and dispatch.
func noDecisionAfterTheDeadline(t *testing.T, place Make) {
	w := newWall()
	s := place(t).Open(t, w.options())
	a := begin(t, s, "r")
	deadline := w.now().Add(time.Minute)
	for _, id := range []specs.CallID{"early", "exact", "late"} {
		a.asked(id, deadline)
	}
	w.advance(time.Minute - time.Microsecond)
	a.must(a.decide("ask-early", machine.ApprovalApprove, machine.CallApprove, "ada"))
	due, err := s.Due(t.Context(), 10)
	if err != nil || len(due) != 0 {
		t.Errorf("due too early: %v, %v", due, err)
	}
	w.advance(time.Microsecond)
	a.refused(a.decide("ask-exact", machine.ApprovalApprove, machine.CallApprove, "ada"), persistence.ErrExpired)
	a.refused(a.decide("ask-early", machine.ApprovalSpend, machine.CallStart, "ada"), persistence.ErrExpired)
	w.advance(time.Hour)
	a.refused(a.decide("ask-late", machine.ApprovalReject, machine.CallReject, "ada"), persistence.ErrExpired)
	if due, err = s.Due(t.Context(), 10); err != nil || len(due) != 6 {
		t.Errorf("due: %v, %v", due, err)
	}
}

// caseA30: expiry moves approval, call and run in one step; Due names what waits on a timer, and nothing else.
func caseA30(t *testing.T, place Make) {
	w := newWall()
	s := place(t).Open(t, w.options())
	a := begin(t, s, "r")
	ask := a.asked("c1", w.now().Add(time.Minute))
	a.must(a.moveRun(machine.RunInitialize, machine.RunAssemble, machine.RunCallModel, machine.RunDispatch, machine.RunAwaitApproval))
	// A deadline in a state without a timer is only a note.
	c := a.born("c2", machine.CallAllow)
	for i := range c.Lines {
		c.Lines[i].Move.Record.(*persistence.Call).Deadline = w.now()
	}
	a.must(c)
	w.advance(2 * time.Minute)
	due, err := s.Due(t.Context(), 10)
	if err != nil || len(due) != 2 {
		t.Fatalf("due: %v, %v", due, err)
	}
	for _, d := range due {
		if d.Tenant != tenant || d.Run != "r" || d.Machine == "run" || d.ID == "c2" || d.State == "" {
			t.Errorf("due: %+v", d)
		}
	}
	expire := a.decide(ask.ID, machine.ApprovalExpire, machine.CallExpire, "")
	expire.Lines = append(expire.Lines, a.moveRun(machine.RunResumeDispatch).Lines...)
	for i := range expire.Lines {
		expire.Lines[i].Move.OnTime = false
	}
	late := expire // somebody else's timer fired too
	late.Key = "other timer"
	a.must(expire)
	a.refused(late, persistence.ErrStale)
	if r, err := s.Run(t.Context(), tenant, "r"); err != nil || r.State != machine.RunDispatchingTool {
		t.Errorf("the run is %s, %v", r.State, err)
	}
	if due, err = s.Due(t.Context(), 10); err != nil || len(due) != 0 {
		t.Errorf("still due: %v, %v", due, err)
	}
	sound(t, s)
}

// leases: one holder, takeover of the late and the dead, ever growing fences.
func leases(t *testing.T, place Make) {
	w := newWall()
	p := place(t)
	s := p.Open(t, w.options())
	begin(t, s, "r")
	ctx := t.Context()
	if _, err := s.Acquire(ctx, tenant, "nobody", "a", time.Minute, nil); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("a lease on a missing run: %v", err)
	}
	first, err := s.Acquire(ctx, tenant, "r", "a", time.Minute, nil)
	must(t, err)
	if first.Fence < 1 || !first.Until.Equal(w.now().Add(time.Minute)) {
		t.Errorf("%+v", first)
	}
	var held *persistence.HeldError
	if _, err := s.Acquire(ctx, tenant, "r", "b", time.Minute, nil); !errors.As(err, &held) || held.Owner != "a" || !held.Until.Equal(first.Until) {
		t.Errorf("held: %v", err)
	}
	if _, err := s.Acquire(ctx, tenant, "r", "b", time.Minute, func(holder string) bool { return holder != "a" }); !errors.As(err, &held) {
		t.Errorf("held by the living: %v", err)
	}
	w.advance(30 * time.Second)
	first, err = s.Renew(ctx, first, time.Minute)
	must(t, err)
	w.advance(59 * time.Second)
	if _, err := s.Acquire(ctx, tenant, "r", "b", time.Minute, nil); !errors.As(err, &held) {
		t.Errorf("renewed and yet not held: %v", err)
	}
	second, err := s.Acquire(ctx, tenant, "r", "b", time.Minute, func(holder string) bool { return holder == "a" })
	must(t, err)
	w.advance(time.Minute)
	third, err := p.Open(t, w.options()).Acquire(ctx, tenant, "r", "c", time.Minute, nil)
	must(t, err)
	if second.Fence <= first.Fence || third.Fence <= second.Fence {
		t.Errorf("fences %d, %d, %d", first.Fence, second.Fence, third.Fence)
	}
	if _, err := s.Renew(ctx, second, time.Minute); !errors.Is(err, persistence.ErrFenced) {
		t.Errorf("renewing a lost lease: %v", err)
	}
	must(t, s.Release(ctx, second)) // lost, and no error
	if _, err := s.Acquire(ctx, tenant, "r", "d", time.Minute, nil); !errors.As(err, &held) || held.Owner != "c" {
		t.Errorf("a lost lease released another's: %v", err)
	}
	must(t, s.Release(ctx, third))
	fourth, err := s.Acquire(ctx, tenant, "r", "d", time.Minute, nil)
	if err != nil || fourth.Fence <= third.Fence {
		t.Errorf("after release: %+v, %v", fourth, err)
	}
	if _, err := s.Renew(ctx, persistence.Lease{Tenant: tenant, Run: "r"}, time.Minute); !errors.Is(err, persistence.ErrFenced) {
		t.Errorf("renewing nothing: %v", err)
	}
	// Many at once: one.
	begin(t, s, "r2")
	errs := crowd(6, func(i int) error {
		_, err := s.Acquire(ctx, tenant, "r2", fmt.Sprint("w", i), time.Minute, nil)
		if errors.As(err, new(*persistence.HeldError)) {
			return persistence.ErrLocked
		}
		return err
	})
	if n := winners(t, errs, persistence.ErrLocked); n != 1 {
		t.Errorf("%d hold the lease", n)
	}
}

// staleHoldersWriteNothing: the fence is checked at every write, by a lease's token and not by its time.
func staleHoldersWriteNothing(t *testing.T, place Make) {
	w := newWall()
	p := place(t)
	s, other := p.Open(t, w.options()), p.Open(t, w.options())
	a := begin(t, s, "r")
	fenced := func(fence int64) persistence.Change {
		c := a.change("fenced", note(`{}`))
		c.Fence = fence
		return c
	}
	a.refused(fenced(1), persistence.ErrFenced) // nobody ever held it
	mine, err := s.Acquire(t.Context(), tenant, "r", "a", time.Minute, nil)
	must(t, err)
	a.must(fenced(mine.Fence))
	w.advance(time.Hour)
	a.must(fenced(mine.Fence)) // late, but nobody took it over
	theirs, err := other.Acquire(t.Context(), tenant, "r", "b", time.Minute, nil)
	must(t, err)
	a.refused(fenced(mine.Fence), persistence.ErrFenced)
	a.refused(fenced(theirs.Fence+1), persistence.ErrFenced)
	a.must(fenced(theirs.Fence))
	a.must(a.change("person", note(`{}`))) // needs no lease
	must(t, other.Release(t.Context(), theirs))
	a.refused(fenced(theirs.Fence), persistence.ErrFenced)
	// While leases change hands all the time, no change is written under a fence that has passed.
	const hands = 6
	errs := crowd(hands, func(i int) error {
		l, err := s.Acquire(t.Context(), tenant, "r", fmt.Sprint("w", i), time.Minute, func(string) bool { return true })
		if errors.As(err, new(*persistence.HeldError)) {
			return nil
		}
		if err != nil {
			return err
		}
		for range 3 {
			c := a.change("race", note(fmt.Sprintf(`{"fence":%d}`, l.Fence)))
			c.Fence = l.Fence
			if _, err := other.Apply(t.Context(), c); err != nil && !errors.Is(err, persistence.ErrFenced) {
				return err
			}
		}
		return nil
	})
	winners(t, errs)
	last := ""
	for _, l := range lines(t, s, "r") {
		if len(l.Payload) > 2 {
			if string(l.Payload) < last && len(l.Payload) <= len(last) {
				t.Errorf("line %d was written under %s after %s", l.Seq, l.Payload, last)
			}
			last = string(l.Payload)
		}
	}
	sound(t, s)
}
