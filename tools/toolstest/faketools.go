package toolstest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/callgate/callgate/tools"
)

// FakeTool records its effect and then answers. Its zero value with a Recorder answers "done".
type FakeTool struct {
	Recorder Recorder
	// Answer makes the result; nil answers "done".
	Answer func(ctx context.Context, req tools.Request) (tools.Result, error)
}

// Execute implements tools.Executor.
func (f FakeTool) Execute(ctx context.Context, req tools.Request) (tools.Result, error) {
	if err := ctx.Err(); err != nil {
		return tools.Result{}, err
	}
	if f.Recorder != nil {
		if err := f.Recorder.Record(effectOf(req)); err != nil {
			return tools.Result{}, err
		}
	}
	if f.Answer == nil {
		return tools.Text("done"), nil
	}
	return f.Answer(ctx, req)
}

// ReconcilingTool is a FakeTool that can say later whether it happened: its Recorder knows.
type ReconcilingTool struct{ FakeTool }

// Reconcile implements tools.Reconciler.
func (r ReconcilingTool) Reconcile(ctx context.Context, req tools.Request) (tools.Result, bool, error) {
	n, err := Count(r.Recorder, req.IdempotencyKey)
	if err != nil || n == 0 {
		return tools.Result{}, false, err
	}
	res, err := FakeTool{Answer: r.Answer}.Execute(ctx, req)
	return res, err == nil, err
}

// SlowTool takes its time between its effect and its answer.
type SlowTool struct {
	Recorder Recorder
	Delay    time.Duration
	// Deaf makes it sleep on when its context ends, as a tool that cannot be cancelled; it still ends after Delay.
	Deaf bool
	// Started, when not nil, receives each call right after its effect; the tool waits for the receiver or its context.
	Started chan<- tools.Request
}

// Execute implements tools.Executor.
func (s SlowTool) Execute(ctx context.Context, req tools.Request) (tools.Result, error) {
	_, err := FakeTool{Recorder: s.Recorder}.Execute(ctx, req)
	if err != nil {
		return tools.Result{}, err
	}
	if s.Started != nil {
		select {
		case s.Started <- req:
		case <-ctx.Done():
			return tools.Result{}, ctx.Err()
		}
	}
	wait := time.NewTimer(s.Delay)
	defer wait.Stop()
	if s.Deaf {
		<-wait.C
		return tools.Text("done, late"), nil
	}
	select {
	case <-wait.C:
		return tools.Text("done"), nil
	case <-ctx.Done():
		return tools.Result{}, ctx.Err()
	}
}

// FailingTool fails its first Times executions (0: all of them) and then answers "done". Use it by pointer.
type FailingTool struct {
	Recorder Recorder     // sees the effect before the failure, when set
	Err      error        // the system failure; nil: Result is given
	Result   tools.Result // what a recoverable failure says
	Panic    any          // when not nil, it panics with this
	Times    int64
	tries    atomic.Int64
}

// Execute implements tools.Executor.
func (f *FailingTool) Execute(ctx context.Context, req tools.Request) (tools.Result, error) {
	done, err := FakeTool{Recorder: f.Recorder}.Execute(ctx, req)
	if err != nil {
		return done, err
	}
	if n := f.tries.Add(1); f.Times > 0 && n > f.Times {
		return done, nil
	}
	if f.Panic != nil {
		panic(f.Panic)
	}
	return f.Result, f.Err
}
