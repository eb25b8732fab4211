package tools_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

func TestHappyCallCommitsTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.on("act.once", func(_ ctxT, req tools.Request) (tools.Result, error) {
		if req.IdempotencyKey == "" || req.Attempt != 1 || string(req.Args) != `{"to":"x"}` {
			t.Errorf("request %+v", req)
		}
		return tools.Text("sent"), nil
	})
	r.store.hook(nil, nil)
	ps, err := r.d.Propose(r.ctx, r.scope, []tools.Call{call("c1", "act_once", ` {"to" : "x"} `)}, tools.Rider{StartFirst: true})
	r.must(err)
	if ps[0].Call.State != machine.CallStarted {
		t.Fatalf("state %s", ps[0].Call.State)
	}
	res, err := r.d.Execute(r.ctx, r.scope, ps[0].Call.ID)
	r.must(err)
	if text(res) != "sent" || res.IsError {
		t.Fatalf("result %+v", res)
	}
	if n := r.store.applies(); n != 2 {
		t.Errorf("%d commits, want 2", n)
	}
	r.wantEffects(ps[0], 1)
	again, err := r.d.Execute(r.ctx, r.scope, ps[0].Call.ID)
	r.must(err)
	if text(again) != "sent" {
		t.Errorf("the stored result is %+v", again)
	}
	r.wantEffects(ps[0], 1)
	want := []string{"tool_call_requested", "tool_call_ready", "tool_call_started", "tool_call_completed"}
	if got := r.kinds(ps[0].Call.ID); !slices.Equal(got, want) {
		t.Errorf("journal %v, want %v", got, want)
	}
	raw, err := r.store.Blob(r.ctx, tenant, ps[0].Call.RawArgs)
	r.must(err)
	if string(raw) != ` {"to" : "x"} ` {
		t.Errorf("the model's bytes were changed: %q", raw)
	}
	r.verify()
}

func TestSeveralCallsOfATurnAreIndependent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.on("act.twice", func(ctxT, tools.Request) (tools.Result, error) { return tools.Recoverable("x.broken", "no"), nil })
	ps := r.propose(call("a", "act.once", `{}`), call("b", "act.twice", `{}`), call("c", "act.ask", `{}`), call("d", "act.nope", `{}`), call("e", "act.look", `{}`))
	if len(ps) != 5 {
		t.Fatalf("%d proposals", len(ps))
	}
	if res := r.execute(ps[0]); text(res) != "done" {
		t.Errorf("a: %+v", res)
	}
	res := r.execute(ps[1])
	wantCode(t, &res, "x.broken")
	if _, err := r.d.Execute(r.ctx, r.scope, ps[2].Call.ID); !errors.Is(err, tools.ErrWaiting) {
		t.Errorf("c: %v", err)
	}
	wantCode(t, ps[3].Result, tools.CodeUnavailable)
	if res := r.execute(ps[4]); text(res) != "done" {
		t.Errorf("e: %+v", res)
	}
	r.state(ps[1], machine.CallFailed)
	r.state(ps[3], machine.CallDenied)
	r.verify()
}

func TestCase_H47_MissingOrEqualIDsAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := len(r.journal())
	for name, calls := range map[string][]tools.Call{
		"no id":                       {call("", "act.look", `{}`)},
		"no id on the second":         {call("a", "act.look", `{}`), call("", "act.look", `{}`)},
		"same id, other arguments":    {call("a", "act.look", `{}`), call("a", "act.look", `{"to":"x"}`)},
		"same id, other tool":         {call("a", "act.look", `{}`), call("a", "act.once", `{}`)},
		"no calls":                    {},
		"an id that is not text":      {call("\xff", "act.look", `{}`)},
		"an id longer than any other": {call(strings.Repeat("x", 5000), "act.look", `{}`)},
	} {
		if _, err := r.d.Propose(r.ctx, r.scope, calls, tools.Rider{}); !errors.Is(err, tools.ErrInvalidCall) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(r.journal()); n != before {
		t.Errorf("%d lines were written", n-before)
	}
}

func TestCase_P15_OneIDTwiceWithEqualContentIsOneCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ps := r.propose(call("a", "act.once", `{}`), call("a", "act.once", `{}`), call("b", "act.once", `{}`))
	if len(ps) != 3 || ps[0].Call.ID != ps[1].Call.ID || ps[2].Call.ID == ps[0].Call.ID {
		t.Fatalf("%+v", ps)
	}
	for _, p := range ps {
		r.execute(p)
	}
	r.wantEffects(ps[0], 1)
	r.wantEffects(ps[2], 1)
	calls, err := r.store.Calls(r.ctx, tenant, r.scope.Run)
	r.must(err)
	if len(calls) != 2 {
		t.Errorf("%d calls", len(calls))
	}
}

func TestSameIDInALaterTurnIsANewCallWithItsOwnFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.one("act.once", `{"num":1}`), r.one("act.once", `{"num":2}`)
	r.execute(a)
	r.execute(b)
	r.wantEffects(a, 1)
	r.wantEffects(b, 1)
	calls, err := r.store.Calls(r.ctx, tenant, r.scope.Run)
	r.must(err)
	names := map[string]bool{}
	for i := range calls {
		for _, name := range []string{tools.ArgsArtifact(&calls[i], calls), tools.ResultArtifact(&calls[i], calls)} {
			d, err := r.store.Artifact(r.ctx, tenant, r.scope.Run, name)
			r.must(err, name)
			data, err := r.store.Blob(r.ctx, tenant, d)
			r.must(err)
			if names[name] || !strings.Contains(string(data), `"c"`) {
				t.Errorf("%s: %s", name, data)
			}
			names[name] = true
		}
	}
	if !names["tool-args/call_2e7d2c03a9507ae2.json"] { // the first 8 bytes of sha256("c")
		t.Errorf("names %v", names)
	}
}

func TestCase_P23_MalformedArgumentsAreRecordedAndNeverRepaired(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, args := range []string{`{"to":`, `{"to":"x"`, `nonsense`, `[]`, `null`, `"{}"`, `{"to":"a","to":"b"}`, `{"TO":"a"}`, `{"num":1.5}`,
		`{"num":1e400}`, strings.Repeat("[", 5000), `{"num":123456789012345678901234567890}`, "{\"to\":\"\xff\"}"} {
		p := r.one("act.once", args)
		wantCode(t, p.Result, tools.CodeInvalidArguments)
		if !p.Result.Retryable {
			t.Errorf("%.40s: the model may mend it", args)
		}
		r.state(p, machine.CallFailed)
		r.wantEffects(p, 0)
		if raw, err := r.store.Blob(r.ctx, tenant, p.Call.RawArgs); err != nil || string(raw) != args {
			t.Errorf("the model's bytes are not kept: %q %v", raw, err)
		}
	}
	for _, args := range []string{"", `""`, "  "} {
		if p := r.one("act.once", args); p.Result != nil {
			t.Errorf("%q is {} where the schema takes {}: %+v", args, p.Result)
		}
		p := r.one("act.must", args)
		wantCode(t, p.Result, tools.CodeInvalidArguments)
	}
	r.verify()
}

func TestCase_H48_TruncatedArgumentsNeverRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	whole := `{"to":"someone","num":12}`
	for i := 1; i < len(whole); i++ {
		p := r.one("act.once", whole[:i])
		wantCode(t, p.Result, tools.CodeInvalidArguments)
		r.wantEffects(p, 0)
	}
}

func TestCase_E30_InvisibleIsUnknown(t *testing.T) { testInvisible(t) }

func TestP7_AnInvisibleToolAnswersLikeAnUnknownOne(t *testing.T) { testInvisible(t) }

func testInvisible(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	answer := func(name, args string) string {
		p := r.one(name, args)
		wantCode(t, p.Result, tools.CodeUnavailable)
		r.state(p, machine.CallDenied)
		if p.Result.Retryable {
			t.Errorf("%s: retryable", name)
		}
		return strings.ReplaceAll(text(*p.Result), name, "X")
	}
	unknown := answer("act.unknown", `{}`)
	for _, c := range [][2]string{{"act.hidden", `{}`}, {"act.hidden", `{"bad":`}, {"act.hidden", `{"unknown":1}`}, {"task.return", `{}`}, {"", `{}`}, {"act.unknown", `{"bad":`}} {
		name := c[0]
		if name == "" {
			continue
		}
		if got := answer(name, c[1]); got != unknown {
			t.Errorf("%s %s: %q, an unknown tool answers %q", name, c[1], got, unknown)
		}
	}
	list, _, err := r.d.List(r.ctx, r.scope)
	r.must(err)
	for _, dec := range list {
		p, err := r.d.Propose(r.ctx, r.scope, []tools.Call{call("v", string(dec.Tool), `{}`)}, tools.Rider{})
		r.must(err)
		r.scope.Turn++
		if !dec.Visible && (p[0].Result == nil || p[0].Result.ErrorCode != tools.CodeUnavailable) {
			t.Errorf("%s is not in the list and answers %+v", dec.Tool, p[0].Result)
		}
	}
}

func TestDeniedReadsTheRulesOwnMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.once", `{"to":"evil"}`)
	wantCode(t, p.Result, tools.CodeDenied)
	if text(*p.Result) != "Not to evil." || p.Result.Retryable {
		t.Errorf("%+v", p.Result)
	}
	q := r.one("act.once", `{"to":"quiet"}`)
	wantCode(t, q.Result, tools.CodeUnavailable)
	r.wantEffects(p, 0)
}

func TestCase_A35_TheSameRefusedCallIsAnsweredFromMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.ask", `{"to":"x"}`)
	r.decide(p, bob, tools.BallotReject)
	again := r.one("act_ask", ` {"to":"x"}`)
	wantCode(t, again.Result, tools.CodeRejected)
	if again.Approval != nil || text(*again.Result) != text(r.execute(p)) || again.Result.Retryable {
		t.Errorf("%+v", again.Result)
	}
	r.state(again, machine.CallDenied)
	other := r.one("act.ask", `{"to":"y"}`)
	if other.Approval == nil {
		t.Error("other arguments are another call, and are asked about")
	}
	denied := r.one("act.once", `{"to":"evil"}`)
	twice := r.one("act.once", `{"to":"evil"}`)
	wantCode(t, twice.Result, tools.CodeDenied)
	if text(*twice.Result) != text(*denied.Result) {
		t.Errorf("%q, %q", text(*twice.Result), text(*denied.Result))
	}
}

func TestNothingConnectedIsSaidBeforeAnybodyIsAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("act.gone", `{}`)
	wantCode(t, p.Result, tools.CodeSourceUnavailable)
	if !p.Result.Retryable {
		t.Error("it is recoverable")
	}
	r.state(p, machine.CallFailed)
}

func TestJ11_EachCallHasOneDecision(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ps := r.propose(call("1", "act.once", `{}`), call("2", "act.nope", `{}`), call("3", "act.once", `{"bad`), call("4", "act.ask", `{}`),
		call("5", "act.once", `{"to":"evil"}`), call("6", "act.hidden", `{}`), call("7", "act.gone", `{}`), call("8", "act.once", `{"to":"evil"}`))
	r.execute(ps[0])
	for _, p := range ps {
		records, err := r.store.Decisions(r.ctx, tenant, r.scope.Run, p.Call.ID)
		r.must(err)
		n := 0
		for _, rec := range records {
			if rec.Phase != "call" {
				continue
			}
			n++
			var out struct {
				Verdicts       map[string]string `json:"verdicts"`
				BudgetSnapshot json.RawMessage   `json:"budgetSnapshot"`
				Budget         json.RawMessage   `json:"budget"`
			}
			r.must(json.Unmarshal(rec.Output, &out))
			if rec.PolicyDigest == "" || len(out.Verdicts) == 0 || len(out.BudgetSnapshot) == 0 || len(rec.Input) == 0 || rec.Seq == 0 {
				t.Errorf("%s: decision %+v", p.Call.Asked, rec)
			}
		}
		if n != 1 {
			t.Errorf("%s has %d decisions of the call phase", p.Call.Asked, n)
		}
	}
}

func TestProposeTwiceWritesOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	calls := []tools.Call{call("1", "act.once", `{}`), call("2", "act.ask", `{}`), call("3", "act.nope", `{}`)}
	first, err := r.d.Propose(r.ctx, r.scope, calls, tools.Rider{})
	r.must(err)
	n := len(r.journal())
	second, err := r.dispatcher().Propose(r.ctx, r.scope, calls, tools.Rider{})
	r.must(err)
	if len(r.journal()) != n {
		t.Error("the second time wrote something")
	}
	for i := range first {
		if first[i].Call.ID != second[i].Call.ID || first[i].Call.State != second[i].Call.State || (first[i].Result == nil) != (second[i].Result == nil) {
			t.Errorf("%+v\n%+v", first[i], second[i])
		}
	}
	if _, err := r.d.Propose(r.ctx, r.scope, calls[:2], tools.Rider{}); !errors.Is(err, tools.ErrInvalidCall) {
		t.Errorf("fewer calls in the same turn: %v", err)
	}
	calls[0].Arguments = json.RawMessage(`{"num":9}`)
	if _, err := r.d.Propose(r.ctx, r.scope, calls, tools.Rider{}); !errors.Is(err, tools.ErrInvalidCall) {
		t.Errorf("other calls in the same turn: %v", err)
	}
}

func TestCallKeyIsInjectiveAndPlain(t *testing.T) {
	t.Parallel()
	ids := []string{"a", "A", "a b", "a\x00", "1-a", "-a", "~a", strings.Repeat("x", 129), strings.Repeat("x", 130), "日本", "call_0", ""}
	seen := map[specs.CallID]string{}
	for turn := int64(1); turn < 12; turn++ {
		for _, id := range ids {
			k := tools.CallKey(turn, id)
			name := string(rune(turn)) + id
			if was, ok := seen[k]; ok {
				t.Errorf("%q and %q share %s", was, name, k)
			}
			seen[k] = name
			if len(k) > 160 || strings.ContainsAny(string(k), " \x00/") {
				t.Errorf("key %q", k)
			}
		}
	}
}
