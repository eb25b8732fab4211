package tools_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

func TestCase_A02_A10_A11_A13_EveryPathPassesTheOneGate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	paths := map[string]func(id string) tools.Proposal{
		"by alias": func(id string) tools.Proposal { return r.propose(call(id, "act_ask", `{}`))[0] },
		"started with its turn": func(id string) tools.Proposal {
			ps, err := r.d.Propose(r.ctx, r.scope, []tools.Call{call(id, "act.ask", `{"num":1}`)}, tools.Rider{StartFirst: true})
			r.must(err)
			r.scope.Turn++
			return ps[0]
		},
		"from another process": func(id string) tools.Proposal {
			r.d = r.dispatcher()
			return r.propose(call(id, "act.ask", `{"num":2}`))[0]
		},
		"in another turn and invocation's name": func(id string) tools.Proposal {
			p := r.propose(call(id, "act.ask", `{"num":3}`))[0]
			other := r.scope
			other.Turn, other.Invocation = 99, "somebody"
			if _, err := r.d.Execute(r.ctx, other, p.Call.ID); !errors.Is(err, tools.ErrWaiting) {
				t.Errorf("%v", err)
			}
			return p
		},
	}
	n := 0
	for name, path := range paths {
		n++
		p := path(fmt.Sprint(n))
		if p.Approval == nil || p.Call.State != machine.CallAwaitingApproval {
			t.Errorf("%s: %s", name, p.Call.State)
		}
		if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); !errors.Is(err, tools.ErrWaiting) {
			t.Errorf("%s: %v", name, err)
		}
		r.must(r.d.Recover(r.ctx, r.scope))
		r.wantEffects(p, 0)
	}
}

func TestCase_A08_DispatchReadsTheCallsState(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.ask", `{}`)
	r.decide(p, bob, tools.BallotReject)
	for range 3 {
		res, err := r.dispatcher().Execute(r.ctx, r.scope, p.Call.ID)
		r.must(err)
		wantCode(t, &res, tools.CodeRejected)
	}
	r.wantEffects(p, 0)
}

func TestCase_A16_AQuestionIsSeenOnlyWhenItIsDurable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store.hook(func(int, persistence.Change) error {
		as, _, err := r.store.Approvals(r.ctx, tenant, persistence.Query{Run: r.scope.Run})
		if err != nil || len(as) != 0 {
			t.Errorf("seen before it is written: %v %v", as, err)
		}
		return errCut
	}, nil)
	if ps, err := r.d.Propose(r.ctx, r.scope, []tools.Call{call("a", "act.ask", `{}`)}, tools.Rider{}); err == nil {
		t.Fatalf("%+v", ps)
	}
	r.store.hook(nil, nil)
	p := r.one("act.ask", `{}`)
	r.decide(p, bob, tools.BallotApprove) // at once: nothing has to be waited for
	r.execute(p)
	r.wantEffects(p, 1)
}

func TestCase_A18_A19_A20_QuestionsBelongToTheirRunAndInvocation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.scope
	p := r.one("act.ask", `{}`)
	r.scope = r.newRun(p.Call.Policy)
	q := r.one("act.ask", `{}`) // the same agent, tool, arguments, turn and provider id in another run
	if p.Call.ID != q.Call.ID || p.Approval.ID == q.Approval.ID || p.Approval.Bound == q.Approval.Bound {
		t.Fatalf("%+v %+v", p.Approval, q.Approval)
	}
	if p.Approval.Invocation != first.Invocation || q.Approval.Invocation != r.scope.Invocation {
		t.Error("a question went to another invocation")
	}
	r.decide(p, bob, tools.BallotApprove)
	if _, err := r.d.Execute(r.ctx, r.scope, q.Call.ID); !errors.Is(err, tools.ErrWaiting) {
		t.Errorf("a yes leaked into another run: %v", err)
	}
}

func TestCase_A23_A36_LaterQuestionsAreSeenAndAllowedCallsNeedNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ps := r.propose(call("a", "act.ask", `{"num":1}`), call("b", "act.twice", `{}`), call("c", "act.ask", `{"num":2}`), call("d", "act.look", `{}`))
	for _, i := range []int{1, 3} {
		if res := r.execute(ps[i]); res.IsError {
			t.Errorf("%+v", res)
		}
	}
	r.decide(ps[0], bob, tools.BallotApprove)
	r.execute(ps[0])
	next := r.one("act.ask", `{"num":3}`)
	as, _, err := r.store.Approvals(r.ctx, tenant, persistence.Query{Run: r.scope.Run, States: []machine.State{machine.ApprovalPending}})
	r.must(err)
	if len(as) != 2 || as[0].Call != next.Call.ID {
		t.Errorf("%d questions are open", len(as))
	}
}

func TestCase_A31_A33_EveryCallHasExactlyOneResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ps := r.propose(call("a", "act.ask", `{"num":1}`), call("b", "act.twice", `{}`), call("c", "act.nope", `{}`), call("d", "act.once", `{"bad`),
		call("e", "act.once", `{"to":"evil"}`), call("f", "act.ask", `{"num":2}`), call("g", "act.gone", `{}`))
	r.decide(ps[0], bob, tools.BallotReject)
	r.decide(ps[5], bob, tools.BallotApprove)
	seen := map[specs.CallID]bool{}
	r.d = r.dispatcher()
	for _, p := range ps {
		res := r.execute(p)
		if res.CallID != p.Call.ID || seen[res.CallID] || len(res.Content) == 0 {
			t.Errorf("%s: %+v", p.Call.ID, res)
		}
		seen[res.CallID] = true
	}
	ends := map[string]int{}
	for _, l := range r.journal() {
		if l.Machine == machine.CallName && machine.Call().IsFinal(l.To) {
			ends[l.Subject]++
		}
	}
	if len(ends) != len(ps) {
		t.Errorf("%v", ends)
	}
	for id, n := range ends {
		if n != 1 {
			t.Errorf("%s ended %d times", id, n)
		}
	}
	r.verify()
}

func TestCase_A34_AnEditIsSaidWithTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.ask", `{"to":"x"}`)
	b := ballot(p.Call.Approval, bob)
	b.Args = []byte(`{"to":"y"}`)
	_, err := r.d.Decide(r.ctx, tenant, b)
	r.must(err)
	r.execute(p)
	c := r.call(p.Call.ID)
	args, err := r.d.StoredArgs(r.ctx, c)
	r.must(err)
	raw, err := r.store.Blob(r.ctx, tenant, c.RawArgs)
	r.must(err)
	if !c.Edited || string(args) != `{"to":"y"}` || string(raw) != `{"to":"x"}` {
		t.Errorf("%v %s %s", c.Edited, args, raw)
	}
}

func TestCase_A41_ChecksEndBeforeTheEffectBegins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.once", `{}`)
	r.on("act.once", func(ctx ctxT, req tools.Request) (tools.Result, error) {
		records, err := r.store.Decisions(ctx, tenant, req.Run, req.Call)
		if err != nil || len(records) != 2 || records[1].Phase != "dispatch" {
			t.Errorf("the effect began after %d decisions: %v", len(records), err)
		}
		return tools.Text("ok"), nil
	})
	r.execute(p)
	r.wantEffects(p, 1)
}

// child gives the run a second invocation below the root, as delegation does.
func (r *rig) child(profile specs.ProfileName) tools.Scope {
	r.t.Helper()
	inv := persistence.Invocation{ID: specs.InvocationID("child-of-" + string(r.scope.Invocation)), Kind: persistence.InvocationSubagent,
		Parent: r.scope.Invocation, Profile: profile, Depth: 1}
	_, err := r.store.Apply(r.ctx, persistence.Change{Tenant: tenant, Run: r.scope.Run, Key: "child", Lines: []persistence.Entry{
		{Move: &persistence.Move{Step: machine.Invocation().Birth(), Record: &inv}}}})
	r.must(err)
	s := r.scope
	s.Invocation = inv.ID
	return s
}

const family = `
apiVersion: callgate/v1
kind: Profile
metadata: {name: parent}
spec:
  instructions: Delegate.
  model: {provider: scripted}
  tools: {allow: ["act.*"], deny: [act.stop]}
  delegation: {delegableTools: [act.once, act.stop, act.ask]}
  run: {presentation: background, maxCalls: 3}
---
apiVersion: callgate/v1
kind: Profile
metadata: {name: helper}
spec:
  instructions: Help.
  model: {provider: scripted}
  tools: {allow: ["act.*"]}
  run: {presentation: background, maxCalls: 1000}
`

func TestP13_AChildStaysWithinWhatItsParentMayPassOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, family)
	r.parentRun()
	r.scope = r.child("helper")
	for name, want := range map[string]string{"act.once": "", "act.ask": "", "act.look": tools.CodeUnavailable, "act.stop": tools.CodeUnavailable, "act.twice": tools.CodeUnavailable} {
		p := r.propose(call(name, name, `{}`))[0]
		switch {
		case want == "" && p.Result != nil:
			t.Errorf("%s: %+v %s", name, p.Result, p.Decision.Reason)
		case want != "":
			wantCode(t, p.Result, want)
		}
	}
}

func TestB5_ChildrenDrawOnTheRunsOwnLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t, family)
	r.parentRun()
	root, kid := r.scope, r.child("helper")
	ran := 0
	for i := range 8 {
		s := root
		if i%2 == 1 {
			s = kid
		}
		s.Turn = int64(i + 1)
		ps, err := r.d.Propose(r.ctx, s, []tools.Call{call("c", "act.once", fmt.Sprintf(`{"num":%d}`, i))}, tools.Rider{})
		r.must(err)
		if ps[0].Result != nil {
			wantCode(t, ps[0].Result, tools.CodeBudgetExhausted)
			continue
		}
		res, err := r.d.Execute(r.ctx, s, ps[0].Call.ID)
		r.must(err)
		if !res.IsError {
			ran++
		}
	}
	if ran > 3 {
		t.Errorf("%d calls ran in a run of at most 3", ran)
	}
	r.verify()
}

// parentRun opens a run of the profile parent.
func (r *rig) parentRun() {
	r.t.Helper()
	old, err := r.store.Run(r.ctx, tenant, r.scope.Run)
	r.must(err)
	run := persistence.Run{ID: old.ID + "-p", Profile: "parent", User: ann.User, Roles: ann.Roles, Bundle: old.Bundle, Root: old.Root + "-p"}
	inv := persistence.Invocation{ID: run.Root, Kind: persistence.InvocationRoot, Profile: "parent"}
	_, err = r.store.Apply(r.ctx, persistence.Change{Tenant: tenant, Run: run.ID, Key: "open", Lines: []persistence.Entry{
		{Move: &persistence.Move{Step: machine.Run().Birth(), Record: &run}}, {Move: &persistence.Move{Step: machine.Invocation().Birth(), Record: &inv}}}})
	r.must(err)
	r.scope = tools.Scope{Tenant: tenant, Run: run.ID, Invocation: run.Root, Turn: 1}
}

func TestCase_A12_WithoutAnApproverNothingRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.ReplaceAll(people, "quorum: 2, notRequester: true, ttl: 10m", "quorum: 1, notRequester: true, ttl: 10m"))
	p := r.one("act.once", `{"to":"two"}`)
	for range 2 { // nobody is there: it waits, and then it is over
		if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); !errors.Is(err, tools.ErrWaiting) {
			t.Fatal(err)
		}
	}
	r.clock.add(1 << 50)
	_, err := r.d.Sweep(r.ctx)
	r.must(err)
	res := r.execute(p)
	wantCode(t, &res, tools.CodeApprovalExpired)
	r.wantEffects(p, 0)
}
