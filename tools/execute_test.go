package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

func TestP12_ReloadOnlyTightensARunningCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, q := r.one("act.once", `{}`), r.one("act.ask", `{}`)
	r.decide(q, bob, tools.BallotApprove)
	r.activate(house, `
apiVersion: callgate/v1
kind: Policy
metadata: {name: stop}
spec: {layer: platform, rules: [{name: stop, tools: [act.once, act.ask], effect: deny, message: Stopped.}, {name: look, tools: [act.look], effect: approve}]}
`)
	for _, c := range []tools.Proposal{p, q} {
		res := r.execute(c)
		wantCode(t, &res, tools.CodeDenied)
		if text(res) != "Stopped." {
			t.Errorf("%q", text(res))
		}
		r.wantEffects(c, 0)
		r.state(c, machine.CallDenied)
	}
	r.approvalState(q.Call.Approval, machine.ApprovalCancelled)

	// The other way round: a bundle that allows more changes nothing for a run that is pinned to a stricter one.
	r.activate(strings.Replace(house, `effect: deny, message: Not to evil.`, `effect: waive`, 1))
	evil := r.one("act.twice", `{"to":"evil"}`)
	wantCode(t, evil.Result, tools.CodeDenied)
	r.verify()
}

func TestP17_OneSetOfBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var ran json.RawMessage
	r.on("act.ask", func(_ ctxT, req tools.Request) (tools.Result, error) {
		ran = slices.Clone(req.Args)
		return tools.Text("ok"), nil
	})
	p := r.one("act.ask", ` { "num" : 9007199254740993, "to":"\u0041" } `)
	r.decide(p, bob, tools.BallotApprove)
	r.execute(p)
	const want = `{"num":9007199254740993,"to":"A"}`
	if string(ran) != want {
		t.Errorf("executed %s", ran)
	}
	digest := specs.DigestOf([]byte(want))
	var card tools.Card
	r.must(json.Unmarshal(p.Approval.Shown, &card))
	if card.Arguments != want || card.ArgsDigest != digest || p.Approval.ArgsDigest != digest || p.Call.Args != digest {
		t.Errorf("shown %s, bound to %s", card.Arguments, p.Approval.ArgsDigest)
	}
	records, err := r.store.Decisions(r.ctx, tenant, r.scope.Run, p.Call.ID)
	r.must(err)
	for _, rec := range records {
		var in struct {
			Args json.RawMessage `json:"args"`
		}
		r.must(json.Unmarshal(rec.Input, &in))
		if got, err := specs.CanonicalJSON(in.Args); err != nil || string(got) != want {
			t.Errorf("%s evaluated %s", rec.Phase, in.Args)
		}
	}
	for _, l := range r.journal() {
		if l.Kind == "tool_call_requested" && !strings.Contains(string(l.Payload), `"args":`+want) {
			t.Errorf("journaled %s", l.Payload)
		}
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	deaf := func(ctx ctxT, _ tools.Request) (tools.Result, error) { <-release; return tools.Text("late"), nil }
	r.on("act.slow", deaf)
	r.on("act.brief", deaf)
	slow, brief := r.one("act.slow", `{}`), r.one("act.brief", `{}`)
	if _, err := r.d.Execute(r.ctx, r.scope, slow.Call.ID); !errors.Is(err, tools.ErrOutcomeUnknown) {
		t.Errorf("a tool that must not be doubled did not answer: %v", err)
	}
	r.state(slow, machine.CallOutcomeUnknown)
	res := r.execute(brief)
	wantCode(t, &res, tools.CodeTimedOut)
	r.state(brief, machine.CallTimedOut)
	if _, err := r.d.Execute(r.ctx, r.scope, slow.Call.ID); !errors.Is(err, tools.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	r.wantEffects(slow, 1)
	said := false
	for _, l := range r.journal() {
		said = said || l.Kind == "tool_call_outcome_unknown" && strings.Contains(string(l.Payload), "idempotency key cg-")
	}
	if !said {
		t.Error("nobody is told what they can do")
	}
	close(release)
	r.must(r.d.Close(r.ctx))
	late := 0
	for _, l := range r.journal() {
		if l.Kind == persistence.KindLateResult {
			late++
		}
	}
	if late != 2 {
		t.Errorf("%d late answers in the journal, want 2", late)
	}
	r.state(slow, machine.CallOutcomeUnknown)
	r.state(brief, machine.CallTimedOut)
	if _, err := r.d.Execute(r.ctx, r.scope, brief.Call.ID); !errors.Is(err, tools.ErrClosed) {
		t.Errorf("a closed dispatcher ran a call: %v", err)
	}
	r.verify()
}

func TestCase_D07_NoBlindRetry(t *testing.T) { testUnknown(t) }

func TestJ7_OnlyAPersonOrTheToolEndsTheUnknown(t *testing.T) { testUnknown(t) }

func testUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var ps []tools.Proposal
	for i := range 2 {
		ps = append(ps, r.one("act.once", fmt.Sprintf(`{"num":%d}`, i)))
		r.crashIn(ps[i])
	}
	for _, p := range ps {
		r.d = r.dispatcher()
		r.must(r.d.Recover(r.ctx, r.scope))
		for range 3 {
			if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); !errors.Is(err, tools.ErrOutcomeUnknown) {
				t.Fatalf("%v", err)
			}
		}
		r.wantEffects(p, 1)
		r.state(p, machine.CallOutcomeUnknown)
	}
	res, err := r.d.Reconcile(r.ctx, bob, r.scope.Run, ps[0].Call.ID, true, "The mail is in the outbox.")
	r.must(err)
	if res.IsError || !strings.Contains(text(res), "outbox") || !strings.Contains(text(res), "bob") {
		t.Errorf("%+v", res)
	}
	r.state(ps[0], machine.CallCompleted)
	_, err = r.d.Reconcile(r.ctx, bob, r.scope.Run, ps[1].Call.ID, false, "No trace of it.")
	r.must(err)
	r.state(ps[1], machine.CallFailed)
	var illegal *machine.IllegalError
	if _, err := r.d.Reconcile(r.ctx, bob, r.scope.Run, ps[1].Call.ID, true, "no, it did"); !errors.As(err, &illegal) {
		t.Errorf("reconciled twice: %v", err)
	}
	if res := r.execute(ps[0]); text(res) == "" {
		t.Error("no stored result")
	}
	r.verify()
}

// crashIn makes the process die after the effect and before the outcome: the outcome cannot be written any more.
func (r *rig) crashIn(p tools.Proposal) {
	r.t.Helper()
	r.store.hook(func(_ int, c persistence.Change) error {
		if strings.HasPrefix(c.Key, "end/") {
			return errCut
		}
		return nil
	}, nil)
	_, err := r.d.Execute(r.ctx, r.scope, p.Call.ID)
	var sys *tools.SystemError
	if !errors.As(err, &sys) || sys.Code != "journal.append_failed" {
		r.t.Fatalf("the outcome was lost and nobody noticed: %v", err)
	}
	r.store.hook(nil, nil)
	r.state(p, machine.CallStarted)
}

func TestJ3_AppendErrorWithholdsTheResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.twice", `{}`)
	r.store.hook(func(int, persistence.Change) error { return errCut }, nil)
	res, err := r.d.Execute(r.ctx, r.scope, p.Call.ID)
	var sys *tools.SystemError
	if !errors.As(err, &sys) || sys.Code != "journal.append_failed" || len(res.Content) > 0 {
		t.Fatalf("before: %+v %v", res, err)
	}
	r.wantEffects(p, 0) // what could not be written down was not done
	r.store.hook(nil, nil)
	r.crashIn(p)
	r.wantEffects(p, 1)
}

func TestJ2_StartedIsDurableBeforeTheEffect(t *testing.T) { testF3(t) }

func TestF3_NothingStartsUnasked(t *testing.T) { testF3(t) }

// testF3 looks at the store from within the effect.
func testF3(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	check := func(ctx ctxT, req tools.Request) (tools.Result, error) {
		c, err := r.store.Call(ctx, req.Tenant, req.Run, req.Call)
		if err != nil {
			return tools.Result{}, err
		}
		lines, err := r.store.Journal(ctx, req.Tenant, req.Run, persistence.JournalQuery{Limit: 5000})
		if err != nil {
			return tools.Result{}, err
		}
		var seen []string
		for _, l := range lines {
			if l.Call == req.Call && l.Machine == machine.CallName {
				seen = append(seen, string(l.Event))
			}
		}
		if c.State != machine.CallStarted || !slices.Contains(seen, "start") || !slices.Contains(seen, "approve") && !slices.Contains(seen, "allow") {
			t.Errorf("%s ran in state %s after %v", c.ID, c.State, seen)
		}
		if slices.Contains(seen, "approve") {
			a, err := r.store.Approval(ctx, req.Tenant, c.Approval)
			if err != nil || a.State != machine.ApprovalSpent || a.ArgsDigest != specs.DigestOf(req.Args) {
				t.Errorf("approval %+v %v", a.State, err)
			}
		}
		return tools.Text("ok"), nil
	}
	for _, tool := range []string{"act.once", "act.twice", "act.ask", "act.look"} {
		r.on(tool, check)
		p := r.one(tool, `{}`)
		if p.Approval != nil {
			r.decide(p, bob, tools.BallotApprove)
		}
		r.execute(p)
		r.wantEffects(p, 1)
	}
	ps, err := r.d.Propose(r.ctx, r.scope, []tools.Call{call("x", "act.once", `{}`)}, tools.Rider{StartFirst: true})
	r.must(err)
	r.execute(ps[0])
	r.wantEffects(ps[0], 1)
}

func TestF6_EqualEventsAtOnceHaveOneWinner(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := r.dispatcher() // another process on the same store
	for i := range 4 {
		p := r.one("act.once", fmt.Sprintf(`{"num":%d}`, i))
		var done atomic.Int64
		var wg sync.WaitGroup
		for j := range 8 {
			d := r.d
			if j%2 == 1 {
				d = other
			}
			wg.Go(func() {
				if res, err := d.Execute(r.ctx, r.scope, p.Call.ID); err == nil && !res.IsError {
					done.Add(1)
				}
			})
		}
		wg.Wait()
		r.wantEffects(p, 1)
		starts := 0
		for _, k := range r.kinds(p.Call.ID) {
			if k == "tool_call_started" {
				starts++
			}
		}
		if starts != 1 || done.Load() == 0 {
			t.Errorf("%d starts, %d answers", starts, done.Load())
		}
	}
	r.verify()
}

func TestF7_NoPointOfCancelOrPanicWedgesACall(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"act.twice", "act.ask"} {
		for point := 1; point <= 4; point++ {
			for _, after := range []bool{false, true} {
				r := newRig(t)
				ctx, cancel := context.WithCancel(r.ctx)
				cut := func(n int, _ persistence.Change) error {
					if n == point {
						cancel()
						return context.Canceled
					}
					return nil
				}
				if after {
					r.store.hook(nil, cut)
				} else {
					r.store.hook(cut, nil)
				}
				ps, err := r.d.Propose(ctx, r.scope, []tools.Call{call("c", tool, `{}`)}, tools.Rider{})
				if err == nil {
					if ps[0].Approval != nil {
						_, _ = r.d.Decide(ctx, tenant, ballot(ps[0].Call.Approval, bob))
					}
					_, _ = r.d.Execute(ctx, r.scope, ps[0].Call.ID)
				}
				cancel()
				r.store.hook(nil, nil)

				// A fresh process goes on from storage alone.
				r.d = r.dispatcher()
				ps, err = r.d.Propose(r.ctx, r.scope, []tools.Call{call("c", tool, `{}`)}, tools.Rider{})
				r.must(err)
				r.must(r.d.Recover(r.ctx, r.scope))
				if r.call(ps[0].Call.ID).State == machine.CallAwaitingApproval {
					r.decide(ps[0], bob, tools.BallotApprove)
				}
				_, err = r.d.Execute(r.ctx, r.scope, ps[0].Call.ID)
				if errors.Is(err, tools.ErrOutcomeUnknown) {
					_, err = r.d.Reconcile(r.ctx, bob, r.scope.Run, ps[0].Call.ID, true, "seen")
				}
				if err != nil || !machine.Call().IsFinal(r.call(ps[0].Call.ID).State) {
					t.Errorf("%s cut at %d (after %v): wedged in %s: %v", tool, point, after, r.call(ps[0].Call.ID).State, err)
				}
				if tool == "act.ask" && r.effectsOf(ps[0].Call.ID) > 1 {
					t.Errorf("%s cut at %d ran twice", tool, point)
				}
				r.verify()
			}
		}
	}
}

func TestAPanickingToolEndsItsCallOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, `
apiVersion: callgate/v1
kind: Source
metadata: {name: ext}
spec: {type: extension, trust: trusted, capabilities: ["ext.*"], pins: {ext.burst: "sha256:1111111111111111111111111111111111111111111111111111111111111111"}}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: ext.burst}
spec:
  description: Breaks.
  source: {kind: extension, name: ext, tool: burst, digest: "sha256:1111111111111111111111111111111111111111111111111111111111111111"}
  inputSchema: {type: object}
  annotations: {sideEffect: process, readOnly: false, destructive: false}
  errors: [ext.known]
---
apiVersion: callgate/v1
kind: Policy
metadata: {name: ext}
spec: {layer: profile, match: {profiles: [worker]}, rules: [{name: ext, tools: ["ext.*"], effect: allow}]}
`)
	mode := "panic"
	r.must(r.reg.AddSource("ext", tools.ExecutorFunc(func(ctxT, tools.Request) (tools.Result, error) {
		switch mode {
		case "panic":
			panic("boom")
		case "known":
			return tools.Recoverable("ext.known", "said"), nil
		}
		return tools.Recoverable("secret.internal.code", "said"), nil
	})))
	for _, c := range [][2]string{{"panic", tools.CodeFailed}, {"known", "ext.known"}, {"unknown", tools.CodeFailed}} {
		mode = c[0]
		p := r.one("ext.burst", `{}`)
		if p.Result != nil {
			t.Fatalf("%s: %+v %s", mode, p.Result, p.Decision.Reason)
		}
		res := r.execute(p)
		wantCode(t, &res, c[1])
		r.state(p, machine.CallFailed)
	}
	r.on("act.once", func(ctxT, tools.Request) (tools.Result, error) { panic("ours") })
	p := r.one("act.once", `{}`)
	var sys *tools.SystemError
	if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); !errors.As(err, &sys) || sys.Code != "tool.panicked" {
		t.Errorf("a built-in tool's panic is a system failure: %v", err)
	}
	r.state(p, machine.CallFailed)
	r.verify()
}

func TestF9_SystemFailureIsNotTheModelsToMend(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.on("act.once", func(ctxT, tools.Request) (tools.Result, error) {
		return tools.Result{}, tools.Systemf("workspace.escape", "a link leads out of the store")
	})
	p := r.one("act.once", `{}`)
	var sys *tools.SystemError
	if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); !errors.As(err, &sys) || sys.Code != "workspace.escape" {
		t.Fatalf("%v", err)
	}
	r.state(p, machine.CallFailed)
	r.on("act.once", func(ctxT, tools.Request) (tools.Result, error) { return tools.Recoverable("x.again", "mend it"), nil })
	q := r.one("act.once", `{}`)
	res := r.execute(q) // recoverable: no error, the run goes on
	wantCode(t, &res, "x.again")
}

func TestJ6_AFinishedCallNeverRunsAgain(t *testing.T) { testNeverAgain(t) }

func TestCase_H31_SiblingsRunOnceOnResume(t *testing.T) { testNeverAgain(t) }

func TestCase_D06_FinishedStepsAreNotRepeated(t *testing.T) { testNeverAgain(t) }

func testNeverAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	calls := []tools.Call{call("a", "act.once", `{}`), call("b", "act.ask", `{}`), call("c", "act.twice", `{}`)}
	scope := r.scope
	ps := r.propose(calls...)
	r.execute(ps[0])
	r.execute(ps[2])
	for range 3 {
		r.d = r.dispatcher()
		r.must(r.d.Recover(r.ctx, scope))
		again, err := r.d.Propose(r.ctx, scope, calls, tools.Rider{StartFirst: true})
		r.must(err)
		if again[1].Approval == nil || again[1].Approval.ID != ps[1].Approval.ID {
			t.Fatal("an open question was put again")
		}
		for _, p := range again {
			_, _ = r.d.Execute(r.ctx, scope, p.Call.ID)
		}
	}
	r.wantEffects(ps[0], 1)
	r.wantEffects(ps[1], 0)
	r.wantEffects(ps[2], 1)
	r.verify()
}

func TestRestartKeepsTheKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.twice", `{}`)
	r.crashIn(p)
	r.d = r.dispatcher()
	r.must(r.d.Recover(r.ctx, r.scope))
	if res := r.execute(p); text(res) != "done" {
		t.Fatalf("%+v", res)
	}
	all, err := r.effects.Effects()
	r.must(err)
	if len(all) != 2 || all[0].Key != all[1].Key || all[0].Key == "" {
		t.Errorf("%+v", all)
	}
	if c := r.call(p.Call.ID); c.Attempt != 2 || c.State != machine.CallCompleted {
		t.Errorf("%+v", c)
	}
	open, err := r.store.Reservations(r.ctx, tenant, r.scope.Run)
	r.must(err)
	if len(open) != 0 {
		t.Errorf("%+v", open)
	}
	r.verify()
}

type reconciler struct {
	tools.ExecutorFunc
	happened bool
	err      error
}

func (r reconciler) Reconcile(context.Context, tools.Request) (tools.Result, bool, error) {
	return tools.Text("it is there"), r.happened, r.err
}

func TestTheToolItselfMaySayWhatBecameOfACall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happened bool
		err      error
		want     machine.State
	}{
		"it happened":    {true, nil, machine.CallCompleted},
		"it did not":     {false, nil, machine.CallFailed},
		"it cannot tell": {false, errors.New("down"), machine.CallOutcomeUnknown},
	} {
		r := newRig(t, strings.ReplaceAll(`
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.tell}
spec:
  description: Can tell.
  source: built_in
  inputSchema: {type: object}
  annotations: {sideEffect: process, readOnly: false, destructive: false}
`, "\t", " "))
		add := func(tells bool) {
			e := r.recording().(tools.ExecutorFunc)
			r.must(r.reg.Add("act.tell", reconciler{e, c.happened && tells, c.err}))
		}
		add(true)
		p := r.one("act.tell", `{}`)
		r.crashIn(p)
		r.d = r.dispatcher()
		add(true)
		r.must(r.d.Recover(r.ctx, r.scope))
		r.state(p, c.want)
		r.wantEffects(p, 1)
		if c.want == machine.CallCompleted && text(r.execute(p)) != "it is there" {
			t.Errorf("%s: the result is not the tool's", name)
		}
		r.verify()
	}
}

func TestCancelOfARunningCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	running := make(chan struct{}, 4)
	r.on("act.stop", func(ctx ctxT, _ tools.Request) (tools.Result, error) {
		running <- struct{}{}
		<-ctx.Done()
		return tools.Result{}, ctx.Err()
	})
	r.on("act.once", func(ctx ctxT, _ tools.Request) (tools.Result, error) {
		running <- struct{}{}
		select {
		case <-ctx.Done(): // it is not told
			t.Error("a tool that does not listen was told to stop")
		case <-time.After(300 * time.Millisecond):
		}
		return tools.Text("finished in its own time"), nil
	})
	for tool, want := range map[string]machine.State{"act.stop": machine.CallCancelled, "act.once": machine.CallCompleted} {
		p := r.one(tool, `{}`)
		done := make(chan error, 1)
		go func() { _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); done <- err }()
		<-running
		r.must(r.d.CancelCall(r.ctx, bob, r.scope.Run, p.Call.ID))
		r.must(<-done, tool)
		r.state(p, want)
	}
	waiting := r.one("act.ask", `{}`)
	r.must(r.d.CancelCall(r.ctx, bob, r.scope.Run, waiting.Call.ID))
	r.state(waiting, machine.CallCancelled)
	r.approvalState(waiting.Call.Approval, machine.ApprovalCancelled)
	res := r.execute(waiting)
	wantCode(t, &res, tools.CodeCancelled)
	r.verify()
}

func TestAProcessThatStopsLeavesTheCallToTheNext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	running := make(chan struct{})
	var first atomic.Bool
	r.on("act.look", func(ctx ctxT, _ tools.Request) (tools.Result, error) {
		if first.CompareAndSwap(false, true) {
			close(running)
			<-ctx.Done()
			return tools.Result{}, ctx.Err()
		}
		return tools.Text("seen"), nil
	})
	p := r.one("act.look", `{}`)
	ctx, stop := context.WithCancel(r.ctx)
	done := make(chan error, 1)
	go func() { _, err := r.d.Execute(ctx, r.scope, p.Call.ID); done <- err }()
	<-running
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	r.state(p, machine.CallStarted)
	r.d = r.dispatcher()
	if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); !errors.Is(err, tools.ErrElsewhere) {
		t.Errorf("nobody has said that the other process is gone: %v", err)
	}
	r.must(r.d.Recover(r.ctx, r.scope))
	if res := r.execute(p); text(res) != "seen" {
		t.Errorf("%+v", res)
	}
	r.verify()
}

func TestCancelledRunStartsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ready, asked, approved := r.one("act.once", `{}`), r.one("act.ask", `{}`), r.one("act.ask", `{"num":1}`)
	r.decide(approved, bob, tools.BallotApprove)
	r.must(r.d.CancelRun(r.ctx, ann, r.scope.Run))
	r.must(r.d.CancelRun(r.ctx, bob, r.scope.Run))
	for _, p := range []tools.Proposal{ready, approved} {
		res := r.execute(p)
		wantCode(t, &res, tools.CodeCancelled)
		r.wantEffects(p, 0)
	}
	if _, err := r.d.Propose(r.ctx, r.scope, []tools.Call{call("z", "act.once", `{}`)}, tools.Rider{}); !errors.Is(err, tools.ErrRunEnded) {
		t.Errorf("%v", err)
	}
	r.endRun(machine.RunCancel)
	r.state(asked, machine.CallCancelled)
	r.approvalState(asked.Call.Approval, machine.ApprovalCancelled)
	if _, err := r.d.Decide(r.ctx, tenant, ballot(asked.Call.Approval, bob)); err == nil {
		t.Error("a question of an ended run was answered")
	}
	if err := r.d.CancelRun(r.ctx, ann, r.scope.Run); !errors.Is(err, tools.ErrRunEnded) {
		t.Errorf("%v", err)
	}
	r.verify()
}

// endRun ends the run in one change, as the run loop does.
func (r *rig) endRun(ev machine.Event) {
	r.t.Helper()
	lines, settle, err := r.d.ClosingEntries(r.ctx, tenant, r.scope.Run, "the run ends")
	r.must(err)
	run, err := r.store.Run(r.ctx, tenant, r.scope.Run)
	r.must(err)
	inv, err := r.store.Invocation(r.ctx, tenant, r.scope.Run, run.Root)
	r.must(err)
	is, err := machine.Invocation().Fire(inv.State, machine.InvocationCancel)
	r.must(err)
	rs, err := machine.Run().Fire(run.State, ev)
	r.must(err)
	lines = append(lines, persistence.Entry{Move: &persistence.Move{Step: is, Record: &inv}}, persistence.Entry{Move: &persistence.Move{Step: rs, Record: &run}})
	_, err = r.store.Apply(r.ctx, persistence.Change{Tenant: tenant, Run: run.ID, Key: "close", Lines: lines, Settle: settle})
	r.must(err)
}

func TestF10_NothingOutlivesItsRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ps := r.propose(call("a", "act.once", `{}`), call("b", "act.twice", `{}`), call("c", "act.ask", `{}`), call("d", "act.ask", `{"num":1}`),
		call("e", "act.once", `{"num":2}`), call("f", "act.once", `{"num":3}`))
	r.crashIn(ps[0])
	r.crashIn(ps[1])
	r.decide(ps[3], bob, tools.BallotApprove)
	r.crashIn(ps[5])
	fresh := r.dispatcher()
	r.must(fresh.Recover(r.ctx, tools.Scope{Tenant: tenant, Run: r.scope.Run, Invocation: r.scope.Invocation}))
	if _, err := fresh.Execute(r.ctx, r.scope, ps[5].Call.ID); !errors.Is(err, tools.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	r.d = fresh
	r.endRun(machine.RunFail)
	for i, want := range []machine.State{machine.CallUnresolved, machine.CallCancelled, machine.CallCancelled, machine.CallCancelled, machine.CallCancelled, machine.CallUnresolved} {
		r.state(ps[i], want)
		res, err := r.d.Execute(r.ctx, r.scope, ps[i].Call.ID)
		if err != nil || !res.IsError || len(res.Content) == 0 {
			t.Errorf("call %d has no result: %+v %v", i, res, err)
		}
	}
	open, err := r.store.Reservations(r.ctx, tenant, r.scope.Run)
	r.must(err)
	if len(open) > 0 {
		t.Errorf("%d reservations outlive the run", len(open))
	}
	r.verify()
}
