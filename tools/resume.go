package tools

import (
	"context"
	"errors"
	"fmt"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Recover settles, after a crash, the calls of a run that somebody started who is no longer there; the caller says so by
// calling it, best with the run's lease. What may be repeated is started again, with the same idempotency key, for Execute to
// run. Of everything else the tool is asked what became of it, where it can say; otherwise the call's outcome is unknown, and
// a person is needed. A tool that could not say then is asked again each time, so that nobody answers for it once it can.
func (d *Dispatcher) Recover(ctx context.Context, s Scope) error {
	calls, err := d.store.Calls(ctx, s.Tenant, s.Run)
	if err != nil {
		return err
	}
	for i := range calls {
		c := &calls[i]
		if c.State != machine.CallStarted && c.State != machine.CallOutcomeUnknown || d.here(flightKey{s.Tenant, s.Run, c.ID}) {
			continue
		}
		own := s
		own.Invocation, own.Turn = c.Invocation, c.Turn
		sc, err := d.scene(ctx, own)
		if err != nil {
			return err
		}
		if sc.ended() {
			return nil
		}
		st, err := d.recover(ctx, sc, c, Hooks{})
		switch {
		case errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, persistence.ErrStale):
		case err != nil:
			return err
		case st != nil:
			d.remember(flightKey{s.Tenant, s.Run, c.ID}, st)
		}
	}
	return d.release(ctx, s)
}

// here says that this process has the call in hand.
func (d *Dispatcher) here(k flightKey) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, flying := d.flights[k]
	_, waiting := d.started[k]
	return flying || waiting
}

// release gives back what calls hold that are not running: none does, unless a step of an older version left it so.
func (d *Dispatcher) release(ctx context.Context, s Scope) error {
	open, err := d.store.Reservations(ctx, s.Tenant, s.Run)
	if err != nil {
		return err
	}
	for _, r := range open {
		c, err := d.store.Call(ctx, s.Tenant, s.Run, r.Call)
		if err != nil {
			return err
		}
		if c.State == machine.CallStarted {
			continue
		}
		st := &story{}
		st.write(about(persistence.KindNote, &c), map[string]any{"released": r.Counter, "amount": r.Amount, "why": "held by a call that is not running"})
		_, err = d.store.Apply(ctx, persistence.Change{Tenant: s.Tenant, Run: s.Run, Fence: s.Fence, Key: uniqueKey("release", r.Call), Lines: st.lines,
			Settle: []persistence.Settlement{{Call: r.Call, Counter: r.Counter}}})
		if err != nil && !errors.Is(err, persistence.ErrStale) {
			return appendFailed(ctx, err)
		}
	}
	return nil
}

// repeat finds who would run a call again and whether that is allowed.
func (d *Dispatcher) repeat(sc *scene, c *persistence.Call) (*specs.Tool, Executor, nature, error) {
	t := sc.pinned.Bundle.Tool(c.Tool)
	if t == nil {
		return nil, nil, nature{}, Systemf("tool.missing", "tool %s of call %s is not in bundle %s", c.Tool, c.ID, sc.run.Bundle)
	}
	e, ok := d.registry.Lookup(t)
	if !ok {
		return t, nil, nature{}, nil
	}
	return t, e, natureOf(sc.pinned, t, e), nil
}

// recover decides about a call that was started by somebody who is gone, or whose outcome is unknown: it is started again, or
// ended by what the tool says, or left as unknown (ErrOutcomeUnknown). Neither a started call nor an error means that it ended.
func (d *Dispatcher) recover(ctx context.Context, sc *scene, call *persistence.Call, h Hooks) (*started, error) {
	tool, exec, n, err := d.repeat(sc, call)
	if err != nil {
		return nil, err
	}
	st := &started{tool: tool, attempt: call.Attempt + 1}
	if st.args, err = d.StoredArgs(ctx, *call); err != nil {
		return nil, err
	}
	in := sc.input(celpolicy.PhaseDispatch, call.Tool, st.args, call.Sequence, sc.repeats(call.Tool, call.Args, call.Sequence))
	st.dec = sc.decide(in)
	if n.repeatable && !sc.ending() && st.dec.Callable && st.dec.Visible {
		switch waited, err := sc.seat.take(ctx, sc, st.tool, timeoutOf(st.dec)); {
		case err == nil && !waited:
			return st, d.restart(ctx, sc, call, st, in)
		case err == nil:
			return nil, nil // the world went on meanwhile; look again, with the seat in hand
		case !errors.Is(err, errBusy):
			return nil, err
		case call.State == machine.CallOutcomeUnknown:
			return nil, ErrOutcomeUnknown // as it was; somebody may come back to it
		}
		return nil, d.ended(ctx, sc, call, st, noSeat(st), h)
	}
	e := unknown(call, "the process that ran this call is gone")
	if n.repeatable && sc.ending() && call.State == machine.CallStarted {
		r := Recoverable(CodeCancelled, "The call was cancelled while it ran: the run is being cancelled.")
		r.Retryable = false
		e = ending{event: machine.CallCancel, result: r, why: "the run is being cancelled"}
	} else if asked, ok := exec.(Reconciler); ok {
		if found, ok := d.ask(ctx, sc, call, st, asked); ok {
			e = found
		}
	}
	if e.event == machine.CallLose && call.State == machine.CallOutcomeUnknown {
		return nil, ErrOutcomeUnknown
	}
	if e.event != machine.CallLose && e.event != machine.CallCancel && call.State == machine.CallStarted {
		// The tool's word ends a call of which nobody knew: the table goes through "unknown", in one commit.
		return nil, d.ended(ctx, sc, call, st, e, h, machine.CallLose)
	}
	return nil, d.ended(ctx, sc, call, st, e, h)
}

// noSeat ends a call that is safe to repeat and found no seat at its source to be repeated in.
func noSeat(st *started) ending {
	return ending{event: machine.CallTimeOut, result: busy(st.tool, timeoutOf(st.dec)), why: "no place at its source to run it again"}
}

// reseat readies a call whose start was committed by Propose or Recover, of which only what Recover started again may need a seat.
// It waits no longer than its reservations surely last.
func (d *Dispatcher) reseat(ctx context.Context, sc *scene, call *persistence.Call, st *started, h Hooks) (*started, error) {
	_, err := sc.seat.take(ctx, sc, st.tool, min(timeoutOf(st.dec), settleMargin))
	switch {
	case err == nil:
		return st, nil
	case errors.Is(err, errBusy):
		return nil, d.ended(ctx, sc, call, st, noSeat(st), h)
	}
	d.remember(flightKey{sc.Tenant, sc.Run, call.ID}, st)
	return nil, err
}

// restart starts a call again, with the same idempotency key, and keeps its budget set aside for the new attempt.
func (d *Dispatcher) restart(ctx context.Context, sc *scene, call *persistence.Call, st *started, in celpolicy.Input) error {
	open, err := d.reservations(ctx, sc.Tenant, sc.Run, call.ID)
	if err != nil {
		return err
	}
	ch := persistence.Change{Tenant: sc.Tenant, Run: sc.Run, Fence: sc.Fence, Key: uniqueKey("retry", call.ID)}
	st.allow.tokens = MaxOutputPerCall
	for _, r := range open {
		ch.Settle = append(ch.Settle, persistence.Settlement{Call: r.Call, Counter: r.Counter})
		r.LeaseUntil = sc.now.Add(timeoutOf(st.dec) + settleMargin)
		st.allow.reserve = append(st.allow.reserve, r)
		if dimensionOf(r.Counter) == celpolicy.DimOutputTokens {
			st.allow.tokens = min(st.allow.tokens, r.Amount)
		}
	}
	n, err := d.dispatches(ctx, call)
	if err != nil {
		return err
	}
	rec, err := sc.record(call.ID, celpolicy.PhaseDispatch, n, in, st.dec, st.tool)
	if err != nil {
		return err
	}
	ch.Decisions = append(ch.Decisions, rec)
	next, at, s := *call, call.State, &story{}
	version := call.Version
	if at == machine.CallStarted {
		at = s.move(machine.Call(), at, machine.CallLose, &next, map[string]any{"attempt": call.Attempt,
			"why": "the process that ran this call is gone; the call may be repeated, so it is started again"})
		s.last().Move.Version, version = version, 0
	}
	st.write(s, &ch, at, machine.CallRetry, &next)
	s.last().Move.Version = version
	if s.err != nil {
		return s.err
	}
	ch.Lines = s.lines
	if _, err := d.store.Apply(ctx, ch); err != nil {
		return appendFailed(ctx, err)
	}
	*call = next
	return nil
}

// ask lets the tool say what became of a call.
func (d *Dispatcher) ask(ctx context.Context, sc *scene, call *persistence.Call, st *started, r Reconciler) (ending, bool) {
	req, _, err := d.request(ctx, sc, call, st)
	if err != nil {
		return ending{}, false
	}
	ctx, stop := context.WithTimeout(ctx, timeoutOf(st.dec))
	defer stop()
	res, happened, err := reconcile(ctx, r, req)
	switch {
	case err != nil:
		return ending{}, false
	case happened:
		return ending{event: machine.CallReconcileCompleted, result: res, why: "the tool says that it happened"}, true
	}
	return ending{event: machine.CallReconcileFailed, why: "the tool says that it did not happen",
		result: Recoverable(CodeFailed, "The call was interrupted and did not happen. Call again if it is still wanted.")}, true
}

func reconcile(ctx context.Context, r Reconciler, req Request) (res Result, ok bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reconcile panicked: %v", p)
		}
	}()
	return r.Reconcile(ctx, req)
}

// ended writes an ending that no attempt of this process led to. Before are events that the table wants first.
func (d *Dispatcher) ended(ctx context.Context, sc *scene, call *persistence.Call, st *started, e ending, h Hooks, before ...machine.Event) error {
	st.allow.tokens = MaxOutputPerCall
	k, err := tidy(sc, st.tool, e.result, st.allow.tokens)
	if err != nil {
		return err
	}
	e.ownCode(&k)
	k.result.Usage.Cost = d.cost(sc, st, k.result.Usage.Cost)
	ch, next, err := d.outcome(ctx, sc, call, st, nil, e, &k, h, before...)
	if err != nil {
		return err
	}
	if _, err := d.store.Apply(ctx, ch); err != nil {
		return appendFailed(ctx, err)
	}
	*call = *next
	return e.err
}

// Reconcile records what a person found out about a call whose outcome is unknown: that it happened, or that it did not.
// The note is told to the model. Anything but an unknown outcome is an *machine.IllegalError.
func (d *Dispatcher) Reconcile(ctx context.Context, by Principal, run specs.RunID, id specs.CallID, happened bool, note string) (Result, error) {
	for try := 0; ; try++ {
		call, err := d.store.Call(ctx, by.Tenant, run, id)
		if err != nil {
			return Result{}, err
		}
		ev, res := machine.CallReconcileCompleted, Text("The outcome was unknown. %s looked and says that it happened. %s", by.User, clip(note, 2000))
		if !happened {
			ev, res = machine.CallReconcileFailed, Recoverable(CodeFailed, "The outcome was unknown. %s looked and says that it did not happen. %s", by.User, clip(note, 2000))
		}
		siblings, err := d.store.Calls(ctx, by.Tenant, run)
		if err != nil {
			return Result{}, err
		}
		ch := persistence.Change{Tenant: by.Tenant, Run: run, Key: uniqueKey("reconcile", id)}
		next, s := call, &story{}
		if err := keepResult(siblings, &ch, &next, &res); err != nil {
			return Result{}, err
		}
		next.Reason = clip(note, 500)
		s.move(machine.Call(), call.State, ev, &next, endNote{Attempt: call.Attempt, IsError: res.IsError, ErrorCode: res.ErrorCode,
			Result: next.Result, Why: clip(note, 2000), By: by.User})
		s.last().Move.Version = call.Version
		if s.err != nil {
			return Result{}, s.err
		}
		ch.Lines = s.lines
		if _, err = d.store.Apply(ctx, ch); err == nil {
			return res, nil
		}
		if !errors.Is(err, persistence.ErrStale) || try >= maxTries {
			return Result{}, appendFailed(ctx, err)
		}
	}
}
