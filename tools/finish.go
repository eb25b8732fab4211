package tools

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// endNote is the payload of the line that ends a call that ran.
type endNote struct {
	Attempt      int64        `json:"attempt"`
	IsError      bool         `json:"isError"`
	ErrorCode    string       `json:"errorCode,omitempty"`
	Result       specs.Digest `json:"result,omitempty"`
	Structured   bool         `json:"structured,omitempty"`
	OutputTokens int64        `json:"outputTokens"`
	Cost         int64        `json:"cost"`
	ElapsedMS    int64        `json:"elapsedMs"`
	Message      string       `json:"message,omitempty"` // of an error that the gate or a built-in tool wrote
	Why          string       `json:"why,omitempty"`
	By           specs.UserID `json:"by,omitempty"`
}

// discard forgets the edits that were staged; what was learned by reading stays.
func (v *view) discard() {
	clear(v.data)
	clear(v.removed)
	v.keep, v.label = false, ""
	for path, digest := range v.learned {
		if f, ok := v.tree.Files[path]; !ok || f.Digest != digest {
			delete(v.learned, path)
		}
	}
}

// finish writes the outcome of an attempt in one Apply: the call's last move, its result, what its budget came to, its edits and
// their checkpoint, and the caller's own lines. The effect has happened, so this does not stop with the caller's context. When it
// cannot be written, the result is withheld.
func (d *Dispatcher) finish(ctx context.Context, sc *scene, call *persistence.Call, st *started, v *view, e ending, h Hooks) (Result, error) {
	ctx, stop := d.after(ctx)
	defer stop()
	k := kept{result: e.result}
	if e.event != machine.CallLose {
		var err error
		if k, err = tidy(sc, st.tool, e.result, st.allow.tokens); err != nil {
			e = failed(err)
			k = kept{result: e.result}
		}
		if k.result.IsError && e.event == machine.CallComplete {
			// What the tool did is done, also where its answer could not be shown: its edits stand.
			e.event = machine.CallFail
		}
		e.ownCode(&k)
		k.result.Usage.Elapsed = e.result.Usage.Elapsed
		k.result.Usage.Cost = d.cost(sc, st, k.result.Usage.Cost)
	}
	for try := 0; ; try++ {
		ch, next, err := d.outcome(ctx, sc, call, st, v, e, &k, h)
		if err != nil {
			return Result{}, err
		}
		_, err = d.store.Apply(ctx, ch)
		switch {
		case err == nil:
			*call = *next
			k.result.Signal = e.result.Signal
			return k.result, e.err
		case errors.Is(err, persistence.ErrStale) && try < maxTries:
			var done bool
			var res Result
			if res, done, err = d.overtaken(ctx, sc, call, v); done || err != nil {
				return res, err
			}
			if run, err := d.store.Run(ctx, sc.Tenant, sc.Run); err != nil {
				return Result{}, err
			} else if sc.run = run; sc.ending() || try >= 2 {
				h.Done = nil // the run is somewhere else by now; what the tool did is written all the same
			}
			if sc.ending() && v.edited() {
				v.discard()
				r := Recoverable(CodeCancelled, "The call was cancelled: the run is being cancelled. Nothing was written.")
				r.Retryable = false
				e, k = ending{event: machine.CallCancel, result: r, why: "the run is being cancelled"}, kept{result: r}
			}
			continue
		case (errors.Is(err, persistence.ErrLocked) || errors.Is(err, persistence.ErrUnavailable)) && try < 3:
			select {
			case <-time.After(time.Duration(50<<try) * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		return Result{}, appendFailed(context.WithoutCancel(ctx), err)
	}
}

// overtaken looks why an outcome did not fit: the call was ended by somebody else, or the workspace moved.
func (d *Dispatcher) overtaken(ctx context.Context, sc *scene, call *persistence.Call, v *view) (Result, bool, error) {
	now, err := d.store.Call(ctx, sc.Tenant, sc.Run, call.ID)
	if err != nil {
		return Result{}, true, err
	}
	if now.State != machine.CallStarted || now.Attempt != call.Attempt {
		d.late(sc, *call, landing{})
		if machine.Call().IsFinal(now.State) {
			r, err := d.StoredResult(ctx, now)
			return r, true, err
		}
		return Result{}, true, ErrOutcomeUnknown
	}
	if v.edited() {
		tree, err := d.store.Tree(ctx, sc.Tenant, persistence.RunTree(sc.Run), 0)
		if err != nil {
			return Result{}, true, err
		}
		if tree.Version != v.tree.Version {
			run, err := d.store.Run(ctx, sc.Tenant, sc.Run)
			if err != nil {
				return Result{}, true, err
			}
			if run.State != machine.RunCancelling {
				return Result{}, true, errRerun
			}
		}
	}
	return Result{}, false, nil
}

// outcome builds the change. Before are events that the call's table wants first.
func (d *Dispatcher) outcome(ctx context.Context, sc *scene, call *persistence.Call, st *started, v *view, e ending, k *kept, h Hooks, before ...machine.Event) (persistence.Change, *persistence.Call, error) {
	next := *call
	ch := persistence.Change{Tenant: sc.Tenant, Run: sc.Run, Fence: sc.Fence, Key: uniqueKey("end", call.ID), Blobs: k.blobs}
	open, err := d.reservations(ctx, sc.Tenant, sc.Run, call.ID)
	if err != nil {
		return ch, nil, err
	}
	note := endNote{Attempt: call.Attempt, Why: clip(e.why, 2000), ElapsedMS: e.result.Usage.Elapsed.Milliseconds()}
	used := k.result.Usage
	if e.event == machine.CallLose {
		used.Cost = d.cost(sc, st, 0) // it may have happened, so it is paid for
		next.Reason = clip(e.why, 1000)
	} else {
		if err := keepResult(sc.calls, &ch, &next, &k.result); err != nil {
			return ch, nil, err
		}
		note.IsError, note.ErrorCode, note.Result = k.result.IsError, k.result.ErrorCode, next.Result
		note.Structured, note.OutputTokens, note.Cost = len(k.result.Structured) > 0, used.OutputTokens, used.Cost
		if k.result.IsError && (st.tool.Source.Kind == specs.SourceBuiltIn || e.event != machine.CallFail) {
			note.Message = clip(textOf(k.result), 500)
		}
		next.Reason = clip(e.why, 500)
		var sys *SystemError
		if errors.As(e.err, &sys) {
			next.SystemFailure = sys.Code // a process that dies before it ends the run leaves this to its successor
		}
	}
	ch.Settle = settle(open, used)

	s := &story{}
	for _, digest := range k.stored {
		s.write(about(persistence.KindResultStored, call), map[string]any{"digest": digest, "ref": "blob:" + string(digest)})
	}
	var checkpoint *checkpointNote
	var tree *persistence.TreeChange
	if v != nil {
		var blobs []persistence.Blob
		tree, blobs, ch.Reads = v.change(string(call.Tool), call.ID, call.Invocation)
		ch.Blobs = append(ch.Blobs, blobs...)
	}
	if tree != nil {
		n, manifest, err := noteCheckpoint(tree)
		if err != nil {
			return ch, nil, err
		}
		if manifest != nil {
			ch.Blobs = append(ch.Blobs, *manifest)
		}
		checkpoint = &n
		ch.Trees = append(ch.Trees, *tree)
	}
	if e.result.Signal == SignalCommitted && !k.result.IsError {
		s.write(about(persistence.KindCommitted, call), map[string]any{"idempotencyKey": call.IdempotencyKey, "chat": sc.run.Chat, "result": next.Result})
	}
	if e.result.Signal == SignalRolledBack && !e.result.IsError && v != nil {
		as := v.tree.Version // nothing had to change
		if tree != nil {
			as = tree.Base + 1
		}
		s.write(about(persistence.KindRolledBack, call), rollbackNote{Version: e.result.RolledBack, As: as})
	}
	at, version := call.State, call.Version
	for _, ev := range before {
		at = s.move(machine.Call(), at, ev, &next, map[string]any{"attempt": call.Attempt, "why": note.Why})
		s.last().Move.Version, version = version, 0
	}
	s.move(machine.Call(), at, e.event, &next, note)
	s.last().Move.Version = version
	if k.result.IsError || e.event == machine.CallLose {
		s.last().Level = persistence.LevelWarn
	}
	if e.err != nil && e.event == machine.CallFail {
		s.last().Level = persistence.LevelError
	}
	r := Rider{}
	if h.Done != nil {
		res := k.result
		res.Signal = e.result.Signal
		if e.event == machine.CallLose {
			res = Result{}
		}
		r = h.Done(Ending{Call: next, Tool: st.tool, Event: e.event, Result: res, Started: true, Tree: tree})
	}
	if checkpoint != nil {
		if err := placeCheckpoint(s, &r, call, *checkpoint); err != nil {
			return ch, nil, err
		}
	}
	addRider(&ch, r, s.lines)
	return ch, &next, s.err
}

// placeCheckpoint gives the payload to the caller's own checkpoint line, or writes one.
func placeCheckpoint(s *story, r *Rider, call *persistence.Call, n checkpointNote) error {
	payload, err := marshal(n)
	if err != nil {
		return err
	}
	for _, lines := range [][]persistence.Entry{r.Before, r.After} {
		for i := range lines {
			if lines[i].Kind == persistence.KindCheckpoint && len(lines[i].Payload) == 0 {
				lines[i].Payload, lines[i].Call, lines[i].Invocation = payload, call.ID, call.Invocation
				return nil
			}
		}
	}
	e := about(persistence.KindCheckpoint, call)
	e.Payload = payload
	s.lines = append(s.lines, e)
	return nil
}

// cost is what a call is charged: what the tool reported, else its price; at most what was set aside.
func (d *Dispatcher) cost(sc *scene, st *started, reported int64) int64 {
	price, known := sc.price(st.tool)
	if reported > 0 && (!known || reported < price) {
		return min(reported, max(price, 0))
	}
	return price
}

// cancelledBy is the cause of a call's context when a person took the call back.
type cancelledBy struct{ user specs.UserID }

func (e *cancelledBy) Error() string { return fmt.Sprintf("%s took it back", e.user) }
