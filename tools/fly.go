package tools

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// landing is how an attempt came down.
type landing struct {
	res       Result
	err       error
	panicked  any
	gone      bool // it did not come back; its goroutine is still running
	expired   bool // the tool's time was over
	cancelled bool // the caller's context ended first
	elapsed   time.Duration
}

// grace is how long a tool that was told to stop may take to come back.
const grace = 2 * time.Second

// tool runs an executor in a goroutine of the dispatcher's own, and waits for it as long as it has. A patient call is not
// told when the caller's context ends: it has its timeout, whatever happens. What comes back after everybody has left goes to late.
func (d *Dispatcher) tool(ctx context.Context, exec Executor, req Request, timeout time.Duration, patient bool, late func(landing)) landing {
	parent := ctx
	if patient {
		parent = context.WithoutCancel(ctx)
	}
	own, cancel := context.WithTimeout(parent, timeout)
	stop := context.AfterFunc(d.base, cancel)
	back, left := make(chan landing), make(chan struct{})
	began := time.Now()
	d.own.Add(1) // the flight holds the group above zero
	go func() {
		defer d.own.Done()
		defer cancel()
		defer stop()
		l := attempt(own, exec, req)
		l.elapsed = time.Since(began)
		l.expired = errors.Is(own.Err(), context.DeadlineExceeded)
		l.cancelled = own.Err() != nil && !l.expired
		select {
		case back <- l:
		case <-left:
			late(l)
		}
	}()
	timer := time.NewTimer(timeout + grace)
	defer timer.Stop()
	var ended <-chan struct{}
	if !patient {
		ended = ctx.Done()
	}
	cancelled := false
	for {
		select {
		case l := <-back:
			return l
		case <-ended:
			ended, cancelled = nil, true
			timer.Reset(grace)
		case <-timer.C:
			close(left)
			return landing{gone: true, expired: !cancelled, cancelled: cancelled, elapsed: time.Since(began)}
		}
	}
}

// attempt calls the executor; a panic of a tool does not take the process with it.
func attempt(ctx context.Context, exec Executor, req Request) (l landing) {
	defer func() {
		if p := recover(); p != nil {
			l = landing{panicked: p, err: Systemf("tool.panicked", "%s panicked: %v\n%s", req.Tool.Name, p, clip(string(debug.Stack()), 2000))}
		}
	}()
	l.res, l.err = exec.Execute(ctx, req)
	return l
}

// nature is what may be done with a call of a tool that did not come back.
type nature struct {
	transactional bool // no effect but the staged edits
	repeatable    bool // may be started again with the same key: once or twice is the same
	stoppable     bool // listens when told to stop
}

// natureOf reads the annotations as policy reads them: those of an untrusted source never make a tool safer than the strict
// reading.
func natureOf(c *Compiled, t *specs.Tool, e Executor) nature {
	if _, ok := e.(Transactional); ok {
		return nature{transactional: true, repeatable: true, stoppable: true}
	}
	a, ok := c.Policy.Annotations(t.ToolName())
	if !ok {
		return nature{}
	}
	return nature{repeatable: a.ReadOnly || a.Idempotent, stoppable: a.Cancellable || a.ReadOnly}
}

// errRerun says that the workspace moved under a transactional call: it is run again on the new version.
var errRerun = errors.New("the workspace moved; run again")

// fly runs a started call and writes what came of it.
func (d *Dispatcher) fly(ctx context.Context, sc *scene, call *persistence.Call, st *started, h Hooks) (Result, error) {
	exec, ok := d.registry.Lookup(st.tool)
	if !ok {
		return d.finish(ctx, sc, call, st, nil, ending{event: machine.CallFail, result: sourceUnavailable(st.tool)}, h)
	}
	n := natureOf(sc.pinned, st.tool, exec)
	for try := 0; ; try++ {
		req, v, err := d.request(ctx, sc, call, st)
		if err != nil {
			return d.finish(ctx, sc, call, st, nil, failed(err), h)
		}
		l := d.tool(ctx, exec, req, timeoutOf(st.dec), !n.stoppable, func(l landing) {
			sc.seat.free()
			d.late(sc, *call, l)
		})
		sc.seat.kept = l.gone
		e, err := d.read(ctx, sc, call, st, n, l)
		if err != nil {
			return Result{}, err
		}
		if l.gone || e.event != machine.CallComplete && e.event != machine.CallFail {
			v = nil // its goroutine may still hold it, and nothing of it counts
		} else if v.edited() && !n.transactional {
			e, v = failed(Systemf("workspace.not_transactional", "%s edited the workspace without being transactional", st.tool.Name)), nil
		} else if e.result.IsError && v != nil {
			v.discard() // an error result leaves the files as they were
		}
		res, err := d.finish(ctx, sc, call, st, v, e, h)
		if errors.Is(err, errRerun) {
			if try < maxTries {
				continue
			}
			v.discard()
			e = ending{event: machine.CallFail, result: Recoverable("workspace.busy", "The workspace kept changing under this call. Nothing was written; try again.")}
			return d.finish(ctx, sc, call, st, v, e, h)
		}
		return res, err
	}
}

// request is what the executor is handed. Only built-in tools see the workspace.
func (d *Dispatcher) request(ctx context.Context, sc *scene, call *persistence.Call, st *started) (Request, *view, error) {
	req := Request{
		Tenant: sc.Tenant, Run: sc.Run, Invocation: call.Invocation, Call: call.ID, Tool: st.tool, Args: st.args, Attempt: call.Attempt,
		IdempotencyKey: call.IdempotencyKey, Deadline: time.Now().Add(timeoutOf(st.dec)), Profile: sc.profile, Chat: sc.run.Chat,
		Commits: sc.run.Commits, Host: d.host,
	}
	if st.tool.Source.Kind != specs.SourceBuiltIn {
		return req, nil, nil
	}
	v, err := d.newView(ctx, sc)
	if err != nil {
		return req, nil, err
	}
	req.Workspace = v
	return req, v, nil
}

// ending is what an attempt means for its call.
type ending struct {
	event  machine.Event
	result Result
	err    error  // the run cannot go on
	why    string // for the journal
}

// ownCode keeps the error code of a result that the gate wrote in the tool's place; what tools may say does not bind it.
func (e ending) ownCode(k *kept) {
	if e.event == machine.CallTimeOut || e.event == machine.CallCancel {
		k.result.ErrorCode = e.result.ErrorCode
	}
}

func failed(err error) ending {
	var sys *SystemError
	if !errors.As(err, &sys) {
		sys = &SystemError{Code: "tool.system", Err: err}
	}
	r := Recoverable(CodeFailed, "The tool failed in a way that ends this run.")
	r.Retryable = false
	return ending{event: machine.CallFail, result: r, err: sys, why: sys.Code}
}

// read says what a landing means. The error is the caller's own context, when it ended without the run being cancelled:
// the call then stays started, and whoever takes the run up decides as after a crash.
func (d *Dispatcher) read(ctx context.Context, sc *scene, call *persistence.Call, st *started, n nature, l landing) (ending, error) {
	stopped := !l.gone && l.err != nil
	var sys *SystemError
	switch {
	case l.panicked != nil && st.tool.Source.Kind != specs.SourceBuiltIn:
		return ending{event: machine.CallFail, result: Recoverable(CodeFailed, "The tool broke down. It may have done part of its work."), why: clip(l.err.Error(), 2000)}, nil
	case !l.gone && l.err == nil:
		l.res.Usage.Elapsed = l.elapsed
		ev := machine.CallComplete
		if l.res.IsError {
			ev = machine.CallFail
		}
		return ending{event: ev, result: l.res}, nil
	case stopped && errors.Is(l.err, ErrOutcomeUnknown):
		return unknown(call, clip(l.err.Error(), 500)), nil
	case stopped && (errors.As(l.err, &sys) || !l.expired && !l.cancelled):
		return failed(l.err), nil
	case l.expired:
		if n.repeatable || n.stoppable && stopped {
			return ending{event: machine.CallTimeOut, why: "no answer within " + timeoutOf(st.dec).String(),
				result: Recoverable(CodeTimedOut, "The tool gave no answer within %s.", timeoutOf(st.dec))}, nil
		}
		return unknown(call, "no answer within "+timeoutOf(st.dec).String()), nil
	}
	why, err := d.cancelCause(ctx, sc)
	if err != nil {
		return ending{}, err
	}
	if n.repeatable || n.stoppable && stopped {
		r := Recoverable(CodeCancelled, "The call was cancelled while it ran: %s.", why)
		r.Retryable = false
		return ending{event: machine.CallCancel, result: r, why: why}, nil
	}
	return unknown(call, "cancelled while it ran: "+why), nil
}

// cancelCause says why a running call was told to stop, or gives the error of a context that merely ended.
func (d *Dispatcher) cancelCause(ctx context.Context, sc *scene) (string, error) {
	var by *cancelledBy
	if errors.As(context.Cause(ctx), &by) {
		return by.Error(), nil
	}
	look, stop := d.after(ctx)
	defer stop()
	run, err := d.store.Run(look, sc.Tenant, sc.Run)
	if err != nil {
		return "", err
	}
	if run.State == machine.RunCancelling {
		return "the run is being cancelled", nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return "", ErrClosed
}

// unknown is a call of which nobody can say whether it happened. The line tells people what they can do.
func unknown(call *persistence.Call, why string) ending {
	return ending{event: machine.CallLose, err: ErrOutcomeUnknown, why: fmt.Sprintf(
		"%s. It may or may not have happened, and it is not started again by itself. Look at the tool's side for the idempotency key %s, then record what you found: that it happened, or that it did not.",
		why, call.IdempotencyKey)}
}

// after is a context for writing down what has already happened: it outlives the caller's, but not for long.
func (d *Dispatcher) after(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), writeTime)
}

// writeTime bounds the writing of an outcome.
const writeTime = 30 * time.Second

// late writes down that a tool came back after its call had ended. Nobody waits for this line, and a store that cannot take it
// loses nothing but it.
func (d *Dispatcher) late(sc *scene, call persistence.Call, l landing) {
	ctx, stop := context.WithTimeout(context.Background(), writeTime)
	defer stop()
	e := about(persistence.KindLateResult, &call)
	e.Level = persistence.LevelWarn
	s := &story{}
	s.write(e, lateNote{Attempt: call.Attempt, IsError: l.res.IsError || l.err != nil, ElapsedMS: l.elapsed.Milliseconds(),
		Note: "The tool answered after its call had ended. The answer is ignored."})
	_, _ = d.store.Apply(ctx, persistence.Change{Tenant: sc.Tenant, Run: sc.Run, Key: uniqueKey("late", call.ID), Lines: s.lines})
}

type lateNote struct {
	Attempt   int64  `json:"attempt"`
	IsError   bool   `json:"isError"`
	ElapsedMS int64  `json:"elapsedMs"`
	Note      string `json:"note"`
}
