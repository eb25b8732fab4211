package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// started is a call that may run now: its start is committed, its budget is set aside.
type started struct {
	tool    *specs.Tool
	args    json.RawMessage
	dec     celpolicy.Decision // of the dispatch phase
	allow   allowance
	attempt int64
	unfit   bool // the approval was given for something else and is not needed: it is cancelled, not spent
}

// Execute runs a call, once, and gives its one result. A call that has ended already answers from the store; one that waits
// for a person is ErrWaiting; one of which nobody knows whether it happened is ErrOutcomeUnknown; one that somebody else started
// and may still be running is ErrElsewhere, unless the scope holds the run's lease, so that it must be a dead process's. A
// *SystemError means that the run cannot go on.
func (d *Dispatcher) Execute(ctx context.Context, s Scope, id specs.CallID) (Result, error) {
	return d.ExecuteWith(ctx, s, id, Hooks{})
}

// ExecuteWith is Execute with lines of the caller's own in the same commits.
func (d *Dispatcher) ExecuteWith(ctx context.Context, s Scope, id specs.CallID, h Hooks) (Result, error) {
	k := flightKey{s.Tenant, s.Run, id}
	for {
		air, cancel := context.WithCancelCause(ctx)
		f, mine, err := d.takeOff(k, cancel)
		if err != nil {
			cancel(nil)
			return Result{}, err
		}
		if mine {
			var res Result
			func() {
				defer cancel(nil)
				defer d.land(k, f)
				res, f.err = d.execute(air, s, id, h)
			}()
			return res, f.err
		}
		cancel(nil)
		select {
		case <-ctx.Done():
			return Result{}, ctx.Err()
		case <-f.done:
			var sys *SystemError
			if errors.As(f.err, &sys) {
				return Result{}, f.err
			}
		}
	}
}

func (d *Dispatcher) execute(ctx context.Context, s Scope, id specs.CallID, h Hooks) (Result, error) {
	place := &seat{d: d}
	defer place.done()
	for try := 0; try < maxTries; try++ {
		call, err := d.store.Call(ctx, s.Tenant, s.Run, id)
		if err != nil {
			return Result{}, err
		}
		switch {
		case machine.Call().IsFinal(call.State):
			return d.StoredResult(ctx, call)
		case call.State == machine.CallAwaitingApproval:
			return Result{}, ErrWaiting
		}
		// The call's own invocation and turn decide, not what the caller happens to be doing.
		s.Invocation, s.Turn = call.Invocation, call.Turn
		sc, err := d.scene(ctx, s)
		if err != nil {
			return Result{}, err
		}
		if sc.ended() {
			return Result{}, fmt.Errorf("run %s is %s: %w", s.Run, sc.run.State, ErrRunEnded)
		}
		sc.seat = place
		st := &started{}
		switch call.State {
		case machine.CallReady, machine.CallApproved:
			var res *Result
			st, res, err = d.launch(ctx, sc, &call, h)
			if res != nil {
				return *res, err
			}
		case machine.CallStarted, machine.CallOutcomeUnknown:
			own, ok := d.recall(flightKey{s.Tenant, s.Run, id})
			switch {
			case ok && call.State == machine.CallStarted && own.attempt == call.Attempt:
				st, err = d.reseat(ctx, sc, &call, own, h)
			case call.State == machine.CallStarted && s.Fence == 0:
				// Without the run's lease nobody knows whether the one who started it is gone. Recover is told so.
				return Result{}, ErrElsewhere
			default:
				st, err = d.recover(ctx, sc, &call, h)
			}
		default:
			return Result{}, Systemf("call.undecided", "call %s is %s", id, call.State)
		}
		if errors.Is(err, persistence.ErrStale) || err == nil && st == nil {
			continue // somebody moved it meanwhile; look again
		}
		if err != nil {
			return Result{}, err
		}
		return d.fly(ctx, sc, &call, st, h)
	}
	return Result{}, fmt.Errorf("call %s: %w", id, persistence.ErrStale)
}

// settled is what a step short of the tool itself has to write.
type settled struct {
	event    machine.Event
	result   *Result
	approval *persistence.Approval // the open one
	next     *persistence.Approval // asked anew
	why      string
	in       celpolicy.Input
	dec      *celpolicy.Decision // nil: no policy was asked
	attempt  int64               // of the dispatch phase
	tool     *specs.Tool
}

// launch asks policy once more and starts the call, or ends it, or asks people anew. One of the three answers is set; none means
// that the call was moved by somebody else.
func (d *Dispatcher) launch(ctx context.Context, sc *scene, call *persistence.Call, h Hooks) (*started, *Result, error) {
	if sc.ending() {
		r := cancelledResult("the run is being cancelled")
		a, err := d.openApproval(ctx, call)
		if err != nil {
			return nil, nil, err
		}
		return d.conclude(ctx, sc, call, settled{event: machine.CallCancel, result: &r, approval: a, why: "the run is being cancelled"}, h)
	}
	st := &started{tool: sc.pinned.Bundle.Tool(call.Tool), attempt: call.Attempt + 1}
	if st.tool == nil {
		return nil, nil, Systemf("tool.missing", "tool %s of call %s is not in bundle %s", call.Tool, call.ID, sc.run.Bundle)
	}
	var err error
	if st.args, err = d.StoredArgs(ctx, *call); err != nil {
		return nil, nil, err
	}
	in := sc.input(celpolicy.PhaseDispatch, call.Tool, st.args, call.Sequence, sc.repeats(call.Tool, call.Args, call.Sequence))
	st.dec = sc.decide(in)
	end := settled{in: in, dec: &st.dec, tool: st.tool}
	if end.approval, err = d.openApproval(ctx, call); err != nil {
		return nil, nil, err
	}
	if end.attempt, err = d.dispatches(ctx, call); err != nil {
		return nil, nil, err
	}
	refuse := func(ev machine.Event, r Result) (*started, *Result, error) {
		end.event, end.result = ev, &r
		return d.conclude(ctx, sc, call, end, h)
	}
	if !st.dec.Visible || !st.dec.Callable {
		return refuse(machine.CallDeny, denial(st.dec, call.Asked))
	}
	if _, ok := d.registry.Lookup(st.tool); !ok {
		return refuse(machine.CallInvalidate, sourceUnavailable(st.tool))
	}
	if end.why, err = d.outdated(ctx, sc, call, end.approval, st); err != nil {
		return nil, nil, err
	}
	if end.why != "" {
		if who := unreachable(st.dec.Asks, sc.run.User); who != "" {
			return refuse(machine.CallDeny, denied("This call needs an approval that nobody can give."))
		}
		end.event = machine.CallReask
		if end.next, err = d.newApproval(ctx, sc, call, st.tool, st.args, st.dec); err != nil {
			return nil, nil, err
		}
		return d.conclude(ctx, sc, call, end, h)
	}
	switch waited, err := sc.seat.take(ctx, sc, st.tool, timeoutOf(st.dec)); {
	case errors.Is(err, errBusy):
		return refuse(machine.CallInvalidate, busy(st.tool, timeoutOf(st.dec)))
	case err != nil:
		return nil, nil, err
	case waited:
		return nil, nil, nil // the world went on meanwhile; look again, with the seat in hand
	}
	var ex *exhausted
	if st.allow, ex, err = d.allow(ctx, sc, call.ID, st.tool, st.dec); err != nil {
		return nil, nil, err
	}
	if ex != nil {
		return refuse(machine.CallDeny, exhaustedResult(ex))
	}
	err = d.commitStart(ctx, sc, call, st, end, h)
	var budget *persistence.BudgetError
	switch {
	case errors.As(err, &budget):
		return refuse(machine.CallDeny, exhaustedResult(broke(sc, st.dec, budget)))
	case errors.Is(err, persistence.ErrExpired):
		if _, err := d.expireApproval(ctx, sc.Tenant, end.approval.ID); err != nil {
			return nil, nil, err
		}
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	return st, nil, nil
}

// outdated says why the yes that a call has does not fit what would run now, or "".
func (d *Dispatcher) outdated(ctx context.Context, sc *scene, call *persistence.Call, a *persistence.Approval, st *started) (string, error) {
	if a == nil {
		if st.dec.ApprovalRequired {
			return "policy now asks for approval", nil
		}
		return "", nil
	}
	targets, err := d.targets(ctx, sc, st.tool, st.args)
	if err != nil {
		return "", err
	}
	bound, err := bind(sc, call.ID, call.Tool, sc.definition(st.tool), call.Args, targets)
	if err != nil {
		return "", err
	}
	if bound != a.Bound {
		if !st.dec.ApprovalRequired {
			st.unfit = true // nobody needs to be asked any more; the old yes is not spent on something else
			return "", nil
		}
		switch {
		case sc.definition(st.tool) != a.ToolDigest:
			return "the tool's definition changed since it was approved", nil
		case call.Args != a.ArgsDigest:
			return "the arguments changed since they were approved", nil
		}
		return "what the call would act on changed since it was approved", nil
	}
	for _, ask := range st.dec.Asks {
		if !slices.ContainsFunc(a.Asks, func(b persistence.Ask) bool { return b.Rule == ask.Rule }) {
			return fmt.Sprintf("%s now asks for approval too", ask.Rule), nil
		}
	}
	return "", nil
}

// openApproval loads the approval that a call has and that can still be spent or cancelled.
func (d *Dispatcher) openApproval(ctx context.Context, call *persistence.Call) (*persistence.Approval, error) {
	if call.Approval == "" {
		return nil, nil
	}
	a, err := d.store.Approval(ctx, call.Tenant, call.Approval)
	if err != nil {
		return nil, err
	}
	if machine.Approval().IsFinal(a.State) {
		if call.State == machine.CallApproved {
			return nil, persistence.ErrStale // the call will have moved too
		}
		return nil, nil
	}
	return &a, nil
}

// dispatches gives the number of the next decision of the dispatch phase.
func (d *Dispatcher) dispatches(ctx context.Context, call *persistence.Call) (int64, error) {
	if call.Attempt == 0 && call.Approvals == 0 {
		return 1, nil
	}
	records, err := d.store.Decisions(ctx, call.Tenant, call.Run, call.ID)
	if err != nil {
		return 0, err
	}
	n := int64(1)
	for _, r := range records {
		if r.Phase == string(celpolicy.PhaseDispatch) {
			n = max(n, r.Attempt+1)
		}
	}
	return n, nil
}

// startNote is the payload of tool_call_started.
type startNote struct {
	Attempt        int64          `json:"attempt"`
	IdempotencyKey string         `json:"idempotencyKey"`
	Timeout        string         `json:"timeout"`
	Args           specs.Digest   `json:"argsDigest"`
	OutputTokens   int64          `json:"outputTokens"` // most that the model will be shown
	Reserved       []reservedNote `json:"reserved,omitempty"`
}

type reservedNote struct {
	Counter persistence.CounterKey `json:"counter"`
	Amount  int64                  `json:"amount"`
	Limit   int64                  `json:"limit"`
}

// write tells the start. The call moves from `at`.
func (st *started) write(s *story, ch *persistence.Change, at machine.State, ev machine.Event, call *persistence.Call) {
	call.Attempt = st.attempt
	call.IdempotencyKey = idempotencyKey(ch.Tenant, ch.Run, call.ID)
	note := startNote{Attempt: st.attempt, IdempotencyKey: call.IdempotencyKey, Timeout: timeoutOf(st.dec).String(), Args: call.Args, OutputTokens: st.allow.tokens}
	for _, r := range st.allow.reserve[:min(len(st.allow.reserve), 40)] {
		note.Reserved = append(note.Reserved, reservedNote{r.Counter, r.Amount, r.Limit})
	}
	s.move(machine.Call(), at, ev, call, note)
	ch.Reserve = append(ch.Reserve, st.allow.reserve...)
}

// commitStart spends the approval, reserves the budget and starts the call, before anything happens outside.
func (d *Dispatcher) commitStart(ctx context.Context, sc *scene, call *persistence.Call, st *started, end settled, h Hooks) error {
	next := *call
	ch := persistence.Change{Tenant: sc.Tenant, Run: sc.Run, Fence: sc.Fence, Key: uniqueKey("start", call.ID)}
	s := &story{}
	if a := end.approval; a != nil {
		spent, ev := *a, machine.ApprovalSpend
		if st.unfit {
			ev = machine.ApprovalCancel
		}
		s.move(machine.Approval(), a.State, ev, &spent, map[string]any{"call": call.ID, "bound": a.Bound})
		s.last().Move.OnTime, s.last().Move.Version = !st.unfit, a.Version
	}
	rec, err := sc.record(call.ID, celpolicy.PhaseDispatch, end.attempt, end.in, st.dec, st.tool)
	if err != nil {
		return err
	}
	ch.Decisions = append(ch.Decisions, rec)
	st.write(s, &ch, call.State, machine.CallStart, &next)
	s.last().Move.Version = call.Version
	if s.err != nil {
		return s.err
	}
	var r Rider
	if h.Start != nil {
		r = h.Start(next)
	}
	addRider(&ch, r, s.lines)
	if _, err := d.store.Apply(ctx, ch); err != nil {
		return appendFailed(ctx, err)
	}
	*call = next
	return nil
}

// conclude writes the end of a call that did not run, or the new question about it.
func (d *Dispatcher) conclude(ctx context.Context, sc *scene, call *persistence.Call, end settled, h Hooks) (*started, *Result, error) {
	next := *call
	ch := persistence.Change{Tenant: sc.Tenant, Run: sc.Run, Fence: sc.Fence, Key: uniqueKey(string(end.event), call.ID)}
	s := &story{}
	if a := end.approval; a != nil {
		gone := *a
		s.move(machine.Approval(), a.State, machine.ApprovalCancel, &gone, map[string]any{"call": call.ID, "why": end.why})
		s.last().Move.Version = a.Version
	}
	var note any = map[string]any{"why": end.why}
	if end.dec != nil {
		rec, err := sc.record(call.ID, celpolicy.PhaseDispatch, end.attempt, end.in, *end.dec, end.tool)
		if err != nil {
			return nil, nil, err
		}
		ch.Decisions = append(ch.Decisions, rec)
		note = noteOf(*end.dec, end.result)
		next.Reason = clip(end.dec.Reason, 500)
	}
	if end.why != "" {
		next.Reason = end.why
	}
	if end.next != nil {
		next.Approval, next.Approvals = end.next.ID, call.Approvals+1
	}
	if end.result != nil {
		if err := keepResult(sc.calls, &ch, &next, end.result); err != nil {
			return nil, nil, err
		}
	}
	s.move(machine.Call(), call.State, end.event, &next, note)
	s.last().Move.Version, s.last().Level = call.Version, persistence.LevelWarn
	if end.next != nil {
		n := approvalNote(end.next)
		n.Why = end.why
		s.birth(machine.Approval(), end.next, n)
	}
	if s.err != nil {
		return nil, nil, s.err
	}
	var r Rider
	if h.Done != nil {
		e := Ending{Call: next, Tool: end.tool, Event: end.event}
		if end.result != nil {
			e.Result = *end.result
		}
		r = h.Done(e)
	}
	addRider(&ch, r, s.lines)
	if _, err := d.store.Apply(ctx, ch); err != nil {
		return nil, nil, appendFailed(ctx, err)
	}
	*call = next
	if end.next != nil {
		return nil, nil, ErrWaiting
	}
	return nil, end.result, nil
}

func cancelledResult(why string) Result {
	r := Recoverable(CodeCancelled, "The call was cancelled: %s. Nothing ran.", why)
	r.Retryable = false
	return r
}

// prepareStart readies the start of a call that needs nobody, within the change that proposes it. Where the dispatch phase would
// not let it start, it is left to Execute.
func (d *Dispatcher) prepareStart(ctx context.Context, sc *scene, c *candidate) error {
	if sc.seats(c.tool) > 0 {
		return nil // it may have to wait for a seat
	}
	in := c.in
	in.Phase = celpolicy.PhaseDispatch
	st := &started{tool: c.tool, args: c.args, dec: sc.decide(in), attempt: 1}
	if !st.dec.Callable || !st.dec.Visible || st.dec.ApprovalRequired {
		return nil
	}
	var ex *exhausted
	var err error
	if st.allow, ex, err = d.allow(ctx, sc, c.call.ID, c.tool, st.dec); err != nil {
		return err
	}
	if ex != nil {
		c.refuse(machine.CallDeny, exhaustedResult(ex))
		return nil
	}
	c.start, c.startIn = st, in
	return nil
}
