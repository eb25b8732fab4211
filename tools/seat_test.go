package tools_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// narrow is a source that takes two calls at once, with a tool that has time and one that has little.
const narrow = `
apiVersion: callgate/v1
kind: Source
metadata: {name: ext}
spec:
  type: extension
  trust: trusted
  concurrency: 2
  capabilities: ["ext.*"]
  pins: {ext.work: "sha256:1111111111111111111111111111111111111111111111111111111111111111", ext.brief: "sha256:1111111111111111111111111111111111111111111111111111111111111111"}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: ext.work}
spec:
  description: Works.
  source: {kind: extension, name: ext, tool: work, digest: "sha256:1111111111111111111111111111111111111111111111111111111111111111"}
  inputSchema: {type: object, properties: {num: {type: integer}}}
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: true}
  budget: {timeout: 20s}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: ext.brief}
spec:
  description: Works, and has little time.
  source: {kind: extension, name: ext, tool: brief, digest: "sha256:1111111111111111111111111111111111111111111111111111111111111111"}
  inputSchema: {type: object, properties: {num: {type: integer}}}
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: true}
  budget: {timeout: 40ms}
---
apiVersion: callgate/v1
kind: Policy
metadata: {name: ext}
spec: {layer: profile, match: {profiles: [worker]}, rules: [{name: ext, tools: ["ext.*"], effect: allow, budget: {maxCalls: 20}}]}
`

// desk is the source's far end: it says who came in, and lets them go one by one.
type desk struct {
	in   chan specs.CallID
	out  chan struct{}
	mu   sync.Mutex
	now  map[specs.TenantID]int
	most int
}

func (r *rig) desk() *desk {
	d := &desk{in: make(chan specs.CallID, 100), out: make(chan struct{}, 100), now: map[specs.TenantID]int{}}
	r.must(r.reg.AddSource("ext", d))
	return d
}

func (d *desk) Execute(_ context.Context, req tools.Request) (tools.Result, error) {
	d.mu.Lock()
	d.now[req.Tenant]++
	d.most = max(d.most, d.now[req.Tenant])
	d.mu.Unlock()
	d.in <- req.Call
	<-d.out
	d.mu.Lock()
	d.now[req.Tenant]--
	d.mu.Unlock()
	return tools.Text("ok"), nil
}

type answered struct {
	res tools.Result
	err error
}

// going executes a call beside the test.
func (r *rig) going(ctx context.Context, s tools.Scope, id specs.CallID) chan answered {
	ch := make(chan answered, 1)
	d := r.d
	go func() {
		res, err := d.Execute(ctx, s, id)
		ch <- answered{res, err}
	}()
	return ch
}

func (r *rig) works(n int, name string) []tools.Proposal {
	r.t.Helper()
	var calls []tools.Call
	for i := range n {
		calls = append(calls, call(fmt.Sprint(name, i), name, fmt.Sprintf(`{"num":%d}`, i)))
	}
	return r.propose(calls...)
}

// A source gets no more calls at once than it says; those that wait have not started, and none is lost.
func TestSourcesGetNoMoreCallsThanTheyTake(t *testing.T) {
	t.Parallel()
	r := newRig(t, narrow)
	d := r.desk()
	ps := r.works(6, "ext.work")
	var going []chan answered
	for _, p := range ps {
		going = append(going, r.going(r.ctx, r.scope, p.Call.ID))
	}
	for range ps {
		<-d.in
		started := 0
		for _, p := range ps {
			if r.call(p.Call.ID).State == machine.CallStarted {
				started++
			}
		}
		if started > 2 {
			t.Errorf("%d calls are started at a source that takes 2", started)
		}
		d.out <- struct{}{}
	}
	for i, g := range going {
		if a := <-g; a.err != nil || a.res.IsError {
			t.Errorf("call %d: %+v %v", i, a.res, a.err)
		}
	}
	if d.most > 2 {
		t.Errorf("%d calls at once", d.most)
	}
	r.verify()
}

// Nobody waits longer than the call's own timeout, and who waited in vain has cost nothing. Another tenant has seats of its own.
func TestWaitingForASourceIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, narrow)
	d := r.desk()
	ps := r.works(2, "ext.work")
	var going []chan answered
	for _, p := range ps {
		going = append(going, r.going(r.ctx, r.scope, p.Call.ID))
		<-d.in
	}
	spent := r.counter("ext%2Fext/maxCalls")
	late := r.one("ext.brief", `{}`)
	res := r.execute(late)
	wantCode(t, &res, tools.CodeSourceBusy)
	if !res.Retryable {
		t.Error("the model is not told that it may try again")
	}
	r.state(late, machine.CallFailed)
	if c := r.call(late.Call.ID); c.Attempt != 0 {
		t.Errorf("it was started %d times", c.Attempt)
	}
	if c := r.counter("ext%2Fext/maxCalls"); c != spent {
		t.Errorf("waiting in vain cost something: %+v, before %+v", c, spent)
	}

	// A caller that gives up leaves the call as it was, and its place to the next.
	ctx, stop := context.WithTimeout(r.ctx, 30*time.Millisecond)
	defer stop()
	patient := r.propose(call("p", "ext.work", `{"num":77}`))[0]
	if a := <-r.going(ctx, r.scope, patient.Call.ID); !errors.Is(a.err, context.DeadlineExceeded) {
		t.Errorf("%+v %v", a.res, a.err)
	}
	r.state(patient, machine.CallReady)

	// Another tenant's run is served at once.
	other := r.foreignRun("other")
	qs, err := r.d.Propose(r.ctx, other, []tools.Call{call("x", "ext.work", `{}`)}, tools.Rider{StartFirst: true})
	r.must(err)
	if qs[0].Call.State != machine.CallReady {
		t.Errorf("a call that may have to wait was started with its turn: %s", qs[0].Call.State)
	}
	theirs := r.going(r.ctx, other, qs[0].Call.ID)
	if id := <-d.in; id != qs[0].Call.ID {
		t.Errorf("%s came in", id)
	}
	for range 3 {
		d.out <- struct{}{}
	}
	for _, g := range append(going, theirs) {
		if a := <-g; a.err != nil || a.res.IsError {
			t.Errorf("%+v %v", a.res, a.err)
		}
	}
	d.out <- struct{}{}
	if res := r.execute(patient); res.IsError {
		t.Errorf("%+v", res)
	}
	r.verify()
}

// foreignRun opens a run of another tenant with the same bundle.
func (r *rig) foreignRun(t specs.TenantID) tools.Scope {
	r.t.Helper()
	mine, err := r.store.Run(r.ctx, tenant, r.scope.Run)
	r.must(err)
	run := persistence.Run{ID: "theirs", Profile: "worker", User: ann.User, Bundle: mine.Bundle, Root: "root"}
	inv := persistence.Invocation{ID: run.Root, Kind: persistence.InvocationRoot, Profile: "worker"}
	_, err = r.store.Apply(r.ctx, persistence.Change{Tenant: t, Run: run.ID, Key: "open", Lines: []persistence.Entry{
		{Move: &persistence.Move{Step: machine.Run().Birth(), Record: &run}}, {Move: &persistence.Move{Step: machine.Invocation().Birth(), Record: &inv}}}})
	r.must(err)
	return tools.Scope{Tenant: t, Run: run.ID, Invocation: run.Root, Turn: 1}
}

// Whoever had to wait is judged by the policy of the moment at which it gets its seat.
func TestWhoWaitedForASourceIsJudgedAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, narrow)
	d := r.desk()
	ps := r.works(3, "ext.work")
	var going []chan answered
	for _, p := range ps[:2] {
		going = append(going, r.going(r.ctx, r.scope, p.Call.ID))
		<-d.in
	}
	last := r.going(r.ctx, r.scope, ps[2].Call.ID)
	time.Sleep(50 * time.Millisecond) // it waits by now; should it not, it is denied at its first look
	r.activate(house, narrow, `
apiVersion: callgate/v1
kind: Policy
metadata: {name: stop}
spec: {layer: platform, rules: [{name: stop, tools: ["ext.*"], effect: deny}]}
`)
	d.out <- struct{}{}
	d.out <- struct{}{}
	for _, g := range going {
		if a := <-g; a.err != nil || a.res.IsError {
			t.Errorf("%+v %v", a.res, a.err)
		}
	}
	if a := <-last; a.err != nil || !a.res.IsError {
		t.Errorf("the deny that came while it waited does not hold: %+v %v", a.res, a.err)
	}
	r.state(ps[2], machine.CallDenied)
	if len(d.in) != 0 {
		t.Error("it came in")
	}
	r.verify()
}

// A tool that does not come back is still at its source, and so is one that was started again after a crash.
func TestASeatIsTakenAsLongAsTheToolIsThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, narrow)
	d := r.desk()
	var deaf []chan answered
	for _, p := range r.works(2, "ext.brief") {
		deaf = append(deaf, r.going(r.ctx, r.scope, p.Call.ID))
		<-d.in
	}
	for _, g := range deaf {
		a := <-g // long after its timeout
		r.must(a.err)
		wantCode(t, &a.res, tools.CodeTimedOut)
	}
	third := r.propose(call("third", "ext.brief", `{"num":3}`))[0]
	res := r.execute(third)
	wantCode(t, &res, tools.CodeSourceBusy)
	for range 3 {
		d.out <- struct{}{}
	}
	work := r.propose(call("w", "ext.work", `{}`))[0]
	if res := r.execute(work); res.IsError { // both have come back by now, or do while it waits
		t.Errorf("%+v", res)
	}
	<-d.in

	// A crash; the next process starts the call again and it takes a seat like any other.
	p := r.propose(call("again", "ext.work", `{"num":8}`))[0]
	d.out <- struct{}{}
	r.crashIn(p)
	<-d.in
	r.d = r.dispatcher()
	d = r.desk()
	r.must(r.d.Recover(r.ctx, r.scope))
	var going []chan answered
	for _, q := range r.propose(call("f1", "ext.work", `{"num":11}`), call("f2", "ext.work", `{"num":12}`)) {
		going = append(going, r.going(r.ctx, r.scope, q.Call.ID))
		<-d.in
	}
	going = append(going, r.going(r.ctx, r.scope, p.Call.ID))
	time.Sleep(30 * time.Millisecond)
	if len(d.in) != 0 {
		t.Error("the call that was started again took a seat that is not there")
	}
	for range 3 {
		d.out <- struct{}{}
	}
	for _, g := range going {
		if a := <-g; a.err != nil || a.res.IsError {
			t.Errorf("%+v %v", a.res, a.err)
		}
	}
	r.verify()
}
