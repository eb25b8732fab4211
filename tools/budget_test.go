package tools_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/tools"
)

// purse has limits of every span.
const purse = `
apiVersion: callgate/v1
kind: Policy
metadata: {name: purse}
spec:
  layer: profile
  match: {profiles: [worker]}
  rules:
    - {name: few, tools: [act.once], effect: allow, budget: {maxCalls: 3}}
    - {name: turn, tools: [act.twice], effect: allow, budget: {maxCalls: 1, per: turn}}
    - {name: day, tools: [act.stop], effect: allow, budget: {maxCalls: 1, per: user/day}}
    - {name: talk, tools: [act.look], effect: allow, budget: {maxOutputTokens: 40}}
    - {name: money, tools: [act.pay, act.guess], effect: allow, budget: {maxCost: 120}}
    - {name: none, tools: [act.must], effect: allow, budget: {maxCalls: 0}}
    - {name: scarce, tools: [act.ask], effect: allow, budget: {maxCalls: 1}}
`

func (r *rig) counters(part string) []persistence.Counter {
	r.t.Helper()
	all, err := r.store.Counters(r.ctx, tenant, "")
	r.must(err)
	var out []persistence.Counter
	for _, c := range all {
		if strings.Contains(string(c.Key), part) {
			out = append(out, c)
		}
	}
	return out
}

func (r *rig) counter(part string) persistence.Counter {
	r.t.Helper()
	out := r.counters(part)
	if len(out) != 1 {
		r.t.Fatalf("%d counters of %s: %+v", len(out), part, out)
	}
	return out[0]
}

func TestB1_LimitIsSpentReservedLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse)
	r.on("act.once", func(ctxT, tools.Request) (tools.Result, error) {
		c := r.counter("purse%2Ffew/maxCalls")
		if c.Reserved != 1 || c.Limit != c.Spent+c.Reserved+c.Left {
			t.Errorf("while it runs: %+v", c)
		}
		return tools.Text("ok"), nil
	})
	for i := range 3 {
		r.execute(r.one("act.once", fmt.Sprintf(`{"num":%d}`, i)))
		if c := r.counter("purse%2Ffew/maxCalls"); c.Spent != int64(i+1) || c.Reserved != 0 || c.Left != int64(2-i) || c.Limit != 3 {
			t.Errorf("after %d: %+v", i+1, c)
		}
	}
	r.verify()
}

func TestB2_NeverAboveTheLimit(t *testing.T) { testNeverAbove(t) }

func TestCase_B01_ReservationIsAtomic(t *testing.T) { testNeverAbove(t) }

func TestCase_H29_NoOvershootUnderLoad(t *testing.T) { testNeverAbove(t) }

func testNeverAbove(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse)
	other := r.dispatcher()
	var calls []tools.Call
	for i := range 12 {
		calls = append(calls, call(fmt.Sprint(i), "act.once", fmt.Sprintf(`{"num":%d}`, i)))
	}
	ps := r.propose(calls...)
	var wg sync.WaitGroup
	for i, p := range ps {
		d := r.d
		if i%2 == 0 {
			d = other
		}
		wg.Go(func() { _, _ = d.Execute(r.ctx, r.scope, p.Call.ID) })
	}
	wg.Wait()
	ran, refused := 0, 0
	for _, p := range ps {
		ran += r.effectsOf(p.Call.ID)
		if c := r.call(p.Call.ID); c.ErrorCode == tools.CodeBudgetExhausted {
			refused++
		}
	}
	if c := r.counter("purse%2Ffew/maxCalls"); ran != 3 || refused != 9 || c.Spent != 3 || c.Reserved != 0 {
		t.Errorf("%d ran, %d were refused: %+v", ran, refused, c)
	}
	r.verify()
}

func TestB3_EveryReservationEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse)
	r.on("act.look", func(_ ctxT, req tools.Request) (tools.Result, error) {
		return tools.Text("%s", strings.Repeat("x", 20)), nil
	})
	r.execute(r.one("act.look", `{}`))
	if c := r.counter("purse%2Ftalk/maxOutputTokens"); c.Spent != 5 || c.Reserved != 0 || c.Left != 35 {
		t.Errorf("what was set aside and not used is given back: %+v", c)
	}
	r.on("act.look", func(_ ctxT, req tools.Request) (tools.Result, error) {
		return tools.Text("%s", strings.Repeat("y", 4000)), nil
	})
	res := r.execute(r.one("act.look", `{"num":2}`))
	if n := len(text(res)); n > 35*4 || res.Usage.OutputTokens > 35 || len(res.ResourceRefs) != 1 {
		t.Errorf("%d bytes, %+v", n, res.Usage)
	}
	full, err := r.store.Blob(r.ctx, tenant, res.ResourceRefs[0].Digest)
	if err != nil || len(full) != 4000 {
		t.Errorf("the rest is kept behind the reference: %d %v", len(full), err)
	}
	p := r.one("act.look", `{"num":3}`)
	if p.Result == nil {
		res = r.execute(p)
		p.Result = &res
	}
	wantCode(t, p.Result, tools.CodeBudgetExhausted)
	if c := r.counter("purse%2Ftalk/maxOutputTokens"); c.Spent != 40 || c.Reserved != 0 || c.Left != 0 {
		t.Errorf("%+v", c)
	}
	open, err := r.store.Reservations(r.ctx, tenant, r.scope.Run)
	r.must(err)
	if len(open) > 0 {
		t.Errorf("%+v", open)
	}
	r.verify()
}

func TestB4_WhatDoesNotRunCostsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse)
	r.one("act.once", `{"to":"evil"}`)
	r.one("act.once", `{"bad`)
	r.one("act.nope", `{}`)
	r.one("act.once", `{"to":"evil"}`) // from memory
	p := r.one("act.ask", `{}`)
	r.clock.add(time.Hour)
	_, err := r.d.Sweep(r.ctx)
	r.must(err)
	r.state(p, machine.CallExpired)
	for _, c := range r.counters("") {
		if c.Spent != 0 || c.Reserved != 0 {
			t.Errorf("%+v", c)
		}
	}
	// An exhausted budget refuses and leaves every counter as it was.
	for i := range 3 {
		r.execute(r.one("act.once", fmt.Sprintf(`{"num":%d}`, i)))
	}
	before := fmt.Sprint(r.counters(""))
	q := r.one("act.once", `{"num":9}`)
	if q.Result == nil {
		res := r.execute(q)
		q.Result = &res
	}
	wantCode(t, q.Result, tools.CodeBudgetExhausted)
	if !strings.Contains(text(*q.Result), "maxCalls") || !q.Result.Retryable {
		t.Errorf("it names the dimension: %q", text(*q.Result))
	}
	r.state(q, machine.CallDenied)
	if after := fmt.Sprint(r.counters("")); after != before {
		t.Errorf("counters moved:\n%s\n%s", before, after)
	}
	list, _, err := r.d.List(r.ctx, r.scope)
	r.must(err)
	for _, dec := range list {
		if dec.Tool == "act.once" && !dec.Visible {
			t.Error("an exhausted budget took the tool off the list")
		}
	}
	r.verify()
}

func TestB4_NobodyIsAskedForWhatCannotBePaid(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse)
	p := r.one("act.ask", `{}`)
	r.decide(p, bob, tools.BallotApprove)
	r.execute(p)
	q := r.one("act.ask", `{"num":2}`)
	wantCode(t, q.Result, tools.CodeBudgetExhausted)
	none := r.one("act.must", `{"to":"x"}`)
	if none.Result == nil {
		res := r.execute(none)
		none.Result = &res
	}
	wantCode(t, none.Result, tools.CodeBudgetExhausted)
}

func TestB5_TheRunsOwnLimitHoldsForAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.Replace(purse, "{name: few, tools: [act.once], effect: allow, budget: {maxCalls: 3}}", "{name: few, tools: [act.once], effect: allow, budget: {maxCalls: 1000}}", 1))
	ran := 0
	for i := range 62 {
		p := r.one("act.once", fmt.Sprintf(`{"num":%d}`, i))
		if p.Result != nil {
			wantCode(t, p.Result, tools.CodeBudgetExhausted)
			continue
		}
		if res := r.execute(p); !res.IsError {
			ran++
		}
	}
	if ran != 60 {
		t.Errorf("%d calls ran in a run of at most 60", ran)
	}
}

func TestB6_AfterRecoveryNothingHoldsAnOldReservation(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse)
	once, twice := r.one("act.once", `{}`), r.one("act.twice", `{}`)
	r.crashIn(once)
	r.crashIn(twice)
	open, err := r.store.Reservations(r.ctx, tenant, r.scope.Run)
	r.must(err)
	if len(open) == 0 {
		t.Fatal("nothing was set aside")
	}
	r.clock.add(time.Hour)
	r.d = r.dispatcher()
	r.must(r.d.Recover(r.ctx, r.scope))
	r.execute(twice)
	open, err = r.store.Reservations(r.ctx, tenant, r.scope.Run)
	r.must(err)
	for _, o := range open {
		if !o.LeaseUntil.After(r.clock.now()) {
			t.Errorf("%+v", o)
		}
	}
	if len(open) > 0 {
		t.Errorf("%d reservations are still open", len(open))
	}
	if c := r.counter("purse%2Ffew/maxCalls"); c.Spent != 1 {
		t.Errorf("a call that may have happened is paid for: %+v", c)
	}
	r.verify()
}

func TestB7_AnUnknownPriceIsTheMaximum(t *testing.T) { testUnknownPrice(t) }

func TestCase_H30_UnknownPriceIsReserved(t *testing.T) { testUnknownPrice(t) }

func testUnknownPrice(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse+`---
apiVersion: callgate/v1
kind: Policy
metadata: {name: cheap}
spec: {layer: platform, rules: [{name: price, tools: [act.guess, act.pay], effect: waive}]}
`)
	r.on("act.guess", func(ctxT, tools.Request) (tools.Result, error) {
		if c := r.counter("purse%2Fmoney/maxCost"); c.Reserved != 100 {
			t.Errorf("set aside %+v", c)
		}
		return tools.Text("ok"), nil
	})
	p := r.one("act.guess", `{}`)
	if p.Approval != nil {
		r.decide(p, bob, tools.BallotApprove)
	}
	res := r.execute(p)
	if c := r.counter("purse%2Fmoney/maxCost"); c.Spent != 100 || res.Usage.Cost != 100 {
		t.Errorf("%+v %+v", c, res.Usage)
	}
	q := r.one("act.guess", `{"num":2}`)
	if q.Result == nil {
		res := r.execute(q)
		q.Result = &res
	}
	wantCode(t, q.Result, tools.CodeBudgetExhausted)
	if res := r.execute(r.one("act.pay", `{}`)); res.IsError || res.Usage.Cost != 7 {
		t.Errorf("%+v", res)
	}
	r.verify()
}

func TestBudgetSpans(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse)
	ps := r.propose(call("a", "act.twice", `{}`), call("b", "act.twice", `{"num":1}`))
	if res := r.execute(ps[0]); res.IsError {
		t.Errorf("%+v", res)
	}
	res := r.execute(ps[1])
	wantCode(t, &res, tools.CodeBudgetExhausted)
	if res := r.execute(r.one("act.twice", `{}`)); res.IsError {
		t.Errorf("a new turn has its own: %+v", res)
	}
	if res := r.execute(r.one("act.stop", `{}`)); res.IsError {
		t.Errorf("%+v", res)
	}
	bundle := ps[0].Call.Policy
	r.scope = r.newRun(bundle)
	p := r.one("act.stop", `{}`)
	if p.Result == nil {
		res := r.execute(p)
		p.Result = &res
	}
	wantCode(t, p.Result, tools.CodeBudgetExhausted)
	r.clock.add(24 * time.Hour)
	if res := r.execute(r.one("act.stop", `{"num":1}`)); res.IsError {
		t.Errorf("a new day: %+v", res)
	}
}

func TestCase_B03_EveryLimitIsOnThePath(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse)
	for tool, dims := range map[string]int{"act.once": 2, "act.look": 2, "act.pay": 2} {
		p := r.one(tool, `{"num":77}`)
		if p.Approval != nil {
			continue
		}
		r.execute(p)
		for _, charge := range p.Decision.Charges {
			found := false
			for _, c := range r.counters("/" + string(charge.Dimension)) {
				found = found || c.Limit == charge.Limit
			}
			if !found {
				t.Errorf("%s: the charge %+v has no counter", tool, charge)
			}
		}
		if len(p.Decision.Charges) < dims {
			t.Errorf("%s draws on %d counters: %+v", tool, len(p.Decision.Charges), p.Decision.Charges)
		}
	}
}
