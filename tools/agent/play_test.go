package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
	"github.com/callgate/callgate/tools/provider"
	"github.com/callgate/callgate/tools/toolstest"
)

func TestPlay_DraftCommitFinish(t *testing.T) {
	t.Parallel()
	h := open(t, play{draft, commit, finish}, options{})
	run := h.start()
	out := h.ends(run.ID, machine.RunCompleted)
	if out.Reason != "" || out.ErrorCode != "" {
		t.Errorf("a completed run has a reason to have failed: %+v", out)
	}
	if got := h.host.Messages("chat-1"); len(got) != 1 || got[0].Text != "A fine story." {
		t.Errorf("the reader got %+v", got)
	}
	done, err := h.store.Run(context.Background(), tenant, run.ID)
	ok(t, err)
	if done.Round != 3 || done.Calls != 3 || done.Commits != 1 || !done.Finished {
		t.Errorf("the record says %+v", done)
	}
	var states []machine.State
	for _, l := range h.lines(run.ID) {
		if l.Machine == machine.RunName {
			states = append(states, l.To)
		}
	}
	for _, s := range []machine.State{machine.RunInitializingWorkspace, machine.RunApplyingWorkspacePatch, machine.RunCreatingCheckpoint, machine.RunAwaitingHostCommit, machine.RunFinishing} {
		if !slices.Contains(states, s) {
			t.Errorf("the run never was %s: %v", s, states)
		}
	}
}

// A run that is over is over: running it again answers and writes nothing.
func TestPlay_ARunThatIsOverStaysOver(t *testing.T) {
	t.Parallel()
	h := open(t, play{draft, commit, finish}, options{})
	run := h.start()
	h.ends(run.ID, machine.RunCompleted)
	before := len(h.lines(run.ID))
	h.ends(run.ID, machine.RunCompleted)
	if after := len(h.lines(run.ID)); after != before {
		t.Errorf("%d lines became %d", before, after)
	}
	wantErr(t, h.runner.Guide(context.Background(), ann, run.ID, "more"), tools.ErrRunEnded)
}

func TestPlay_TheRequestIsWhatTheStoreSays(t *testing.T) {
	t.Parallel()
	var reqs []provider.Request
	keep := func(r provider.Request) { reqs = append(reqs, r) }
	meta := json.RawMessage("{ \"signature\" : \"<a&b>\u2028\" ,\n \"n\": 9007199254740993 }")
	first := func(provider.Request) (provider.Reply, error) {
		return provider.Reply{Text: "I write.", Metadata: meta, Calls: []tools.Call{{ID: "x<1>", Name: "workspace_write_file",
			Arguments: json.RawMessage(`{ "path":"output/main.md", "content":"a<b" }`), Metadata: meta}}}, nil
	}
	h := open(t, play{looking(keep, first), looking(keep, commit), looking(keep, finish)}, options{})
	h.ends(h.start().ID, machine.RunCompleted)
	if !strings.Contains(reqs[0].System, "You are Writer.") || !strings.Contains(reqs[0].System, "Draft in output/main.md") || !strings.Contains(reqs[0].System, "workspace_finish") {
		t.Errorf("the system prompt is %q", reqs[0].System)
	}
	if m := reqs[0].Messages[0]; m.Kind != "task" || m.Text != "Write a story." {
		t.Errorf("the first message is %+v", m)
	}
	var reply *provider.Message
	for i, m := range reqs[2].Messages {
		if m.Role == provider.RoleAssistant && reply == nil {
			reply = &reqs[2].Messages[i]
			if next := reqs[2].Messages[i+1]; next.Role != provider.RoleTool || next.Results[0].ProviderID != "x<1>" || next.Results[0].Result.IsError {
				t.Errorf("the result behind the call is %+v", next)
			}
		}
	}
	if reply == nil || reply.Text != "I write." || string(reply.Metadata) != string(meta) || string(reply.Calls[0].Metadata) != string(meta) ||
		string(reply.Calls[0].Arguments) != `{ "path":"output/main.md", "content":"a<b" }` {
		t.Errorf("the reply came back changed: %+v", reply)
	}
	// The third request repeats the second and adds to it; only the file list at the end is always the newest.
	second := reqs[1].Messages[:len(reqs[1].Messages)-1]
	for i, m := range second {
		a, _ := json.Marshal(m)
		b, _ := json.Marshal(reqs[2].Messages[i])
		if string(a) != string(b) {
			t.Errorf("message %d was %s and is %s", i, a, b)
		}
	}
}

// The wire list equals the visible list, on every request, and the author's specs stay as they are.
func TestCase_E30_TheWireListIsTheVisibleList(t *testing.T) {
	t.Parallel()
	var h *house
	look := func(r provider.Request) {
		decisions, _, err := h.dispatcher.List(context.Background(), tools.Scope{Tenant: tenant, Run: r.Run, Invocation: r.Invocation, Turn: r.Turn})
		if err != nil {
			t.Error(err)
		}
		var visible, wire []specs.ToolName
		for _, d := range decisions {
			if d.Visible {
				visible = append(visible, d.Tool)
			}
		}
		for _, p := range r.Tools {
			wire = append(wire, p.Name)
			if p.Alias != specs.AliasOf(p.Name) {
				t.Errorf("%s is called %s", p.Name, p.Alias)
			}
			switch p.Name {
			case "workspace.commit":
				if p.Description != "Publish the draft." {
					t.Errorf("the profile's description is lost: %q", p.Description)
				}
			case "mail.send":
				if !strings.Contains(string(p.InputSchema), `"The address."`) {
					t.Errorf("the profile's parameter description is lost: %s", p.InputSchema)
				}
			}
		}
		if !slices.Equal(visible, wire) || !slices.IsSorted(wire) || len(wire) == 0 {
			t.Errorf("visible %v, sent %v", visible, wire)
		}
		if slices.Contains(wire, "workspace.rollback") || slices.Contains(wire, "dice.roll") {
			t.Errorf("sent what nobody may see: %v", wire)
		}
	}
	h = open(t, play{looking(look, draft), looking(look, commit), looking(look, finish)}, options{})
	h.ends(h.start().ID, machine.RunCompleted)
	if d := h.compiled.Bundle.Tool("workspace.commit").Describe.Value; d == "Publish the draft." {
		t.Error("the canonical spec was changed")
	}
	if s := string(h.compiled.Bundle.Tool("mail.send").InputSchema.Raw); strings.Contains(s, "The address.") {
		t.Error("the canonical schema was changed")
	}
}

// A31: what was done before a pause is still there after it. A32: a rejected call costs its siblings nothing. A33: every call
// has exactly one result. A36: what needs no person needs no resume.
func TestCase_A31_A32_A33_A36_SiblingsAcrossAPause(t *testing.T) {
	t.Parallel()
	turn := calls(`note.get {"to":"1"}`, `mail.send {"to":"x@elsewhere"}`, `note.put {"to":"2"}`, `mail.send {"to":"y@elsewhere"}`, `nobody.knows {}`, `note.get {"to":"3"}`)
	var got []provider.ToolResult
	h := open(t, play{turn, looking(func(r provider.Request) { got = results(r) }, draft), commit, finish}, options{})
	run := h.start()
	out := h.ends(run.ID, machine.RunAwaitingApproval)
	if len(out.Waiting) != 2 {
		t.Fatalf("%d approvals wait, want 2", len(out.Waiting))
	}
	if n := len(h.happened()); n != 3 {
		t.Errorf("%d ready siblings ran before the pause, want 3", n)
	}
	h.decide(out.Waiting[0], tools.BallotReject)
	// One of two is decided: the turn still waits, and nothing that ran runs again.
	if out = h.ends(run.ID, machine.RunAwaitingApproval); len(out.Waiting) != 1 {
		t.Fatalf("%d approvals wait, want 1", len(out.Waiting))
	}
	h.decide(out.Waiting[0], tools.BallotApprove)
	h.ends(run.ID, machine.RunCompleted)
	wantCodes := []string{"", tools.CodeRejected, "", "", tools.CodeUnavailable, ""}
	if len(got) != len(wantCodes) {
		t.Fatalf("%d results for %d calls", len(got), len(wantCodes))
	}
	for i, r := range got {
		if r.ProviderID != fmt.Sprintf("c%d", i+1) || r.Result.ErrorCode != wantCodes[i] {
			t.Errorf("result %d is of %s: %q, want %q", i, r.ProviderID, r.Result.ErrorCode, wantCodes[i])
		}
	}
	if got[1].Result.Retryable || !strings.Contains(said(got[1].Result), "not now") {
		t.Errorf("the model does not learn why it was rejected: %+v", got[1].Result)
	}
	if n := len(h.happened()); n != 4 {
		t.Errorf("%d effects, want 4", n)
	}
}

// A second question in the same run is asked as well.
func TestCase_A23_TheSecondApprovalSurfaces(t *testing.T) {
	t.Parallel()
	ask := func(to string) say { return calls(`mail.send {"to":"` + to + `@elsewhere"}`) }
	h := open(t, play{ask("x"), ask("y"), draft, commit, finish}, options{})
	run := h.start()
	for i := range 2 {
		out := h.ends(run.ID, machine.RunAwaitingApproval)
		if len(out.Waiting) != 1 {
			t.Fatalf("round %d: %d approvals wait, want 1", i, len(out.Waiting))
		}
		h.decide(out.Waiting[0], tools.BallotApprove)
	}
	h.ends(run.ID, machine.RunCompleted)
	if n := len(h.happened()); n != 2 {
		t.Errorf("%d mails went out, want 2", n)
	}
}

// A waiting run goes on in another process, from the store alone. A22: on the store that production uses.
func TestCase_A14_A22_AnotherProcessGoesOn(t *testing.T) {
	t.Parallel()
	turns := play{calls(`note.put {"to":"1"}`, `mail.send {"to":"x@elsewhere"}`), draft, commit, finish}
	h := open(t, turns, options{})
	run := h.start()
	out := h.ends(run.ID, machine.RunAwaitingApproval)
	other := open(t, turns, options{path: h.path, host: h.host, effects: h.effects})
	other.decide(out.Waiting[0], tools.BallotApprove)
	other.ends(run.ID, machine.RunCompleted)
	if n := len(h.happened()); n != 2 {
		t.Errorf("%d effects, want 2: %v", n, h.happened())
	}
}

// After an edit the model reads which arguments ran, and that a person chose them.
func TestCase_A34_EditedArgumentsAreShownAsEdited(t *testing.T) {
	t.Parallel()
	var got []provider.ToolResult
	h := open(t, play{calls(`mail.send {"to":"x@elsewhere"}`), looking(func(r provider.Request) { got = results(r) }, draft), commit, finish}, options{})
	run := h.start()
	out := h.ends(run.ID, machine.RunAwaitingApproval)
	h.decide(out.Waiting[0], tools.BallotApprove, func(b *tools.Ballot) { b.Args = json.RawMessage(`{"to":"z@elsewhere"}`) })
	h.ends(run.ID, machine.RunCompleted)
	if len(got) != 1 || !got[0].Edited || string(got[0].EditedArgs) != `{"to":"z@elsewhere"}` || !strings.Contains(said(got[0].Result), `z@elsewhere`) {
		t.Errorf("the model reads %+v", got)
	}
	if es := h.happened(); len(es) != 1 || string(es[0].Args) != `{"to":"z@elsewhere"}` {
		t.Errorf("what ran: %+v", es)
	}
}

// The same denied call again is answered from memory, and nobody can mistake the answer for a failure to try again.
func TestCase_A35_ADenialIsRemembered(t *testing.T) {
	t.Parallel()
	spam := calls(`mail.send {"to":"everybody"}`)
	var first, second []provider.ToolResult
	h := open(t, play{spam, looking(func(r provider.Request) { first = results(r) }, spam), looking(func(r provider.Request) { second = results(r) }, draft), commit, finish}, options{})
	h.ends(h.start().ID, machine.RunCompleted)
	for _, got := range [][]provider.ToolResult{first, second} {
		if len(got) != 1 || got[0].Result.ErrorCode != tools.CodeDenied || got[0].Result.Retryable || said(got[0].Result) != "Never write to everybody." {
			t.Errorf("the model reads %+v", got)
		}
	}
	if n := len(h.happened()); n != 0 {
		t.Errorf("%d mails went out", n)
	}
}

// An expired question ends with its call, and the run goes on without anybody's help.
func TestCase_A30_AnExpiredApprovalLetsTheRunGoOn(t *testing.T) {
	t.Parallel()
	var got []provider.ToolResult
	h := open(t, play{calls(`mail.send {"to":"x@elsewhere"}`), looking(func(r provider.Request) { got = results(r) }, draft), commit, finish}, options{})
	run := h.start()
	h.ends(run.ID, machine.RunAwaitingApproval)
	h.clock.pass(16 * 60 * 1e9)
	h.ends(run.ID, machine.RunCompleted)
	if len(got) != 1 || got[0].Result.ErrorCode != tools.CodeApprovalExpired {
		t.Errorf("the model reads %+v", got)
	}
}

// What can be seen as waiting can be decided: the question is not shown before it is durable.
func TestCase_A16_WhatIsShownAsWaitingCanBeDecided(t *testing.T) {
	t.Parallel()
	h := open(t, play{calls(`mail.send {"to":"x@elsewhere"}`), draft, commit, finish}, options{})
	run := h.start()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	decided := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			as, _, err := h.store.Approvals(ctx, tenant, persistence.Query{States: []machine.State{machine.ApprovalPending}, Run: run.ID})
			if err == nil && len(as) == 0 {
				continue
			}
			if err == nil {
				_, err = h.dispatcher.Decide(ctx, tenant, tools.Ballot{Approval: as[0].ID, By: bob, Verdict: tools.BallotApprove})
			}
			decided <- err
			return
		}
	}()
	h.run(run.ID)
	ok(t, <-decided)
	h.ends(run.ID, machine.RunCompleted)
}

func TestPlay_ADenialCanEndTheRun(t *testing.T) {
	t.Parallel()
	h := open(t, play{calls(`note.get {}`, `mail.send {"to":"abuse"}`, `note.put {"to":"1"}`)}, options{})
	out := h.ends(h.start().ID, machine.RunFailed)
	if out.ErrorCode != agent.CodeDeniedFailsRun || !strings.Contains(out.Reason, "no-abuse") {
		t.Errorf("the outcome is %+v", out)
	}
}

func TestPlay_Drift(t *testing.T) {
	t.Parallel()
	t.Run("one reminder saves the run", func(t *testing.T) {
		t.Parallel()
		var req provider.Request
		h := open(t, play{text("Here is your story."), looking(func(r provider.Request) { req = r }, draft), commit, finish}, options{})
		run := h.start()
		h.ends(run.ID, machine.RunCompleted)
		tree, err := h.store.Tree(context.Background(), tenant, persistence.RunTree(run.ID), 0)
		ok(t, err)
		if f := tree.Files["output/direct_output.md"]; f.Digest != specs.DigestOf([]byte("Here is your story.")) {
			t.Errorf("the text was not kept: %v", tree.Files)
		}
		last := req.Messages[len(req.Messages)-2]
		if last.Kind != "reminder" || !strings.Contains(last.Text, "output/direct_output.md") {
			t.Errorf("the model is not reminded: %+v", req.Messages)
		}
		for _, kind := range []string{persistence.KindDirectOutput, persistence.KindDriftRecovery} {
			if n := h.count(run.ID, kind); n != 1 {
				t.Errorf("%d lines %s", n, kind)
			}
		}
	})
	t.Run("a second drift fails, and a person may try again", func(t *testing.T) {
		t.Parallel()
		h := open(t, play{text("one"), text("two")}, options{})
		out := h.ends(h.start().ID, machine.RunFailed)
		if out.ErrorCode != agent.CodeToolCallRequired || !out.Retryable {
			t.Errorf("the outcome is %+v", out)
		}
	})
	t.Run("after a commit it is a partial success", func(t *testing.T) {
		t.Parallel()
		h := open(t, play{draft, commit, text("one"), text("two")}, options{})
		out := h.ends(h.start().ID, machine.RunPartialSuccess)
		if out.ErrorCode != agent.CodeToolCallRequired || len(h.host.Messages("chat-1")) != 1 {
			t.Errorf("the outcome is %+v", out)
		}
	})
}

func TestPlay_EndsOfTheRules(t *testing.T) {
	t.Parallel()
	again := calls(`note.get {}`)
	for name, c := range map[string]struct {
		turns play
		state machine.State
		code  string
	}{
		"too many rounds":              {slices.Repeat(play{again}, 13), machine.RunFailed, agent.CodeMaxRounds},
		"too many rounds, committed":   {append(play{draft, commit}, slices.Repeat(play{again}, 12)...), machine.RunPartialSuccess, agent.CodeMaxRounds},
		"a call after finish":          {play{draft, commit, calls(`workspace.finish {}`, `note.put {"to":"late"}`)}, machine.RunPartialSuccess, agent.CodeToolAfterFinish},
		"finish before commit is mild": {play{finish, draft, commit, finish}, machine.RunCompleted, ""},
		"finish behind its siblings":   {play{draft, calls(`workspace.commit {}`, `note.put {"to":"1"}`, `workspace.finish {}`)}, machine.RunCompleted, ""},
		"a call without an id": {play{func(provider.Request) (provider.Reply, error) {
			return provider.Reply{Calls: []tools.Call{{Name: "note.get", Arguments: json.RawMessage(`{}`)}}}, nil
		}}, machine.RunFailed, "model.invalid_tool_call"},
		"one id for two calls": {play{func(provider.Request) (provider.Reply, error) {
			return provider.Reply{Calls: []tools.Call{{ID: "a", Name: "note.get", Arguments: json.RawMessage(`{"to":"1"}`)}, {ID: "a", Name: "note.get", Arguments: json.RawMessage(`{"to":"2"}`)}}}, nil
		}}, machine.RunFailed, "model.invalid_tool_call"},
		"the same call twice is one": {play{func(provider.Request) (provider.Reply, error) {
			c := tools.Call{ID: "a", Name: "note.put", Arguments: json.RawMessage(`{"to":"1"}`)}
			return provider.Reply{Calls: []tools.Call{c, c}}, nil
		}, looking(func(r provider.Request) {
			if n := len(results(r)); n != 1 {
				t.Errorf("%d results for one call", n)
			}
		}, draft), commit, finish}, machine.RunCompleted, ""},
		"arguments that are no JSON": {play{calls(`note.put {"to":`), looking(func(r provider.Request) {
			if got := results(r); got[0].Result.ErrorCode != tools.CodeInvalidArguments {
				t.Errorf("the model reads %+v", got)
			}
		}, draft), commit, finish}, machine.RunCompleted, ""},
		"the model stops by itself": {play{calls(`note.get {}`), func(provider.Request) (provider.Reply, error) { return provider.Reply{Stop: true}, nil }}, machine.RunCompleted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, c.turns, options{})
			run := h.start()
			out := h.ends(run.ID, c.state)
			if out.ErrorCode != c.code {
				t.Errorf("the code is %q (%s), want %q", out.ErrorCode, out.Reason, c.code)
			}
			if name == "a call after finish" && len(h.happened()) > 0 {
				t.Error("the call after finish ran")
			}
		})
	}
}

func TestPlay_AModelThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	asked := 0
	flaky := func(fails int) say {
		return func(r provider.Request) (provider.Reply, error) {
			if asked++; asked <= fails {
				return provider.Reply{}, broken
			}
			return draft(r)
		}
	}
	h := open(t, play{flaky(2), commit, finish}, options{})
	run := h.start()
	h.ends(run.ID, machine.RunCompleted)
	if n := h.count(run.ID, persistence.KindModelFailed); n != 2 || asked != 3 {
		t.Errorf("%d failures in the journal, asked %d times", n, asked)
	}
	done, err := h.store.Run(context.Background(), tenant, run.ID)
	ok(t, err)
	if done.Round != 3 {
		t.Errorf("failed requests counted as rounds: %d", done.Round)
	}
	asked = 0
	h = open(t, play{flaky(99)}, options{})
	out := h.ends(h.start().ID, machine.RunFailed)
	if out.ErrorCode != agent.CodeModelUnavailable || !out.Retryable || asked != 3 {
		t.Errorf("asked %d times; the outcome is %+v", asked, out)
	}
}

func TestPlay_GuidanceEntersBeforeTheNextRequest(t *testing.T) {
	t.Parallel()
	var h *house
	var reqs []provider.Request
	keep := func(r provider.Request) { reqs = append(reqs, r) }
	guide := func(r provider.Request) {
		keep(r)
		if err := h.runner.Guide(context.Background(), ann, r.Run, "Make it short."); err != nil {
			t.Error(err)
		}
	}
	h = open(t, play{looking(guide, calls(`mail.send {"to":"x@elsewhere"}`)), looking(keep, draft), looking(keep, commit), finish}, options{})
	run := h.start()
	out := h.ends(run.ID, machine.RunAwaitingApproval)
	ok(t, h.runner.Guide(context.Background(), ann, run.ID, "And merry."))
	h.decide(out.Waiting[0], tools.BallotApprove)
	h.ends(run.ID, machine.RunCompleted)
	told := func(r provider.Request) (out []string) {
		for _, m := range r.Messages {
			if m.Kind == "guidance" {
				out = append(out, m.Text)
			}
		}
		return out
	}
	want := []string{"Make it short.", "And merry."}
	if len(told(reqs[0])) != 0 || !slices.Equal(told(reqs[1]), want) || !slices.Equal(told(reqs[2]), want) {
		t.Errorf("the requests carry %v, %v, %v", told(reqs[0]), told(reqs[1]), told(reqs[2]))
	}
	if s, a := h.count(run.ID, persistence.KindGuidanceSubmitted), h.count(run.ID, persistence.KindGuidanceApplied); s != 2 || a != 2 {
		t.Errorf("%d submitted, %d applied", s, a)
	}
	for _, text := range []string{"", "  ", strings.Repeat("x", agent.MaxGuidanceBytes+1), "\xff"} {
		var bad *agent.RequestError
		if err := h.runner.Guide(context.Background(), ann, run.ID, text); !errors.As(err, &bad) {
			t.Errorf("guidance %.10q: %v", text, err)
		}
	}
}

func TestPlay_ResultsAreShownAsTheProfileSays(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 2000)
	tell := map[specs.ToolName]tools.Executor{"note.get": toolstest.FakeTool{Answer: func(context.Context, tools.Request) (tools.Result, error) { return tools.Text("%s", long), nil }}}
	for view, check := range map[string]func(string) bool{
		"{toolResults: whole}":                        func(s string) bool { return s == long },
		"{toolResults: whole, maxResultTokens: 1000}": func(s string) bool { return len(s) > 3500 && len(s) < 4400 && strings.Contains(s, "not shown") },
		"{toolResults: excerpt}":                      func(s string) bool { return len(s) > 900 && len(s) < 1300 && strings.Contains(s, "blob:sha256:") },
		"{toolResults: hidden}":                       func(s string) bool { return !strings.Contains(s, "long") && strings.Contains(s, "succeeded") },
	} {
		t.Run(view, func(t *testing.T) {
			t.Parallel()
			bundle := strings.Replace(theBundle, "  run: {presentation: foreground", "  context: "+view+"\n  run: {presentation: foreground", 1)
			var got []provider.ToolResult
			h := open(t, play{calls(`note.get {}`, `nobody.knows {}`), looking(func(r provider.Request) { got = results(r) }, draft), commit, finish}, options{bundle: bundle, tools: tell})
			run := h.start()
			h.ends(run.ID, machine.RunCompleted)
			if !check(said(got[0].Result)) {
				t.Errorf("the model reads %d bytes: %.80q", len(said(got[0].Result)), said(got[0].Result))
			}
			if got[1].Result.ErrorCode != tools.CodeUnavailable || said(got[1].Result) == "" {
				t.Errorf("an error is not shown: %+v", got[1].Result)
			}
			whole := said(got[0].Result) == long
			if n := h.count(run.ID, persistence.KindContextSkipped); whole != (n == 0) {
				t.Errorf("%d lines say what was left out", n)
			}
		})
	}
}

func TestStart_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	h := open(t, play{}, options{})
	for field, change := range map[string]func(*agent.StartRequest){
		"profile": func(q *agent.StartRequest) { q.Profile = "wirter" },
		"plan":    func(q *agent.StartRequest) { q.Plan = "none" },
		"user":    func(q *agent.StartRequest) { q.User = tools.Principal{Tenant: "other", User: "ann"} },
		"tenant":  func(q *agent.StartRequest) { q.Tenant = "" },
		"task":    func(q *agent.StartRequest) { q.Task = "\xff" },
		"files":   func(q *agent.StartRequest) { q.Files = map[string][]byte{"output/../../etc": nil} },
	} {
		q := agent.StartRequest{Tenant: tenant, Bundle: h.compiled.Bundle.Digest, User: ann}
		change(&q)
		_, err := h.runner.Start(context.Background(), q)
		var bad *agent.RequestError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := h.runner.Start(context.Background(), agent.StartRequest{Tenant: tenant, Bundle: specs.DigestOf(nil), User: ann})
	wantErr(t, err, persistence.ErrNotFound)
	run, err := h.runner.Start(context.Background(), agent.StartRequest{Tenant: tenant, Bundle: h.compiled.Bundle.Digest, User: ann, Files: map[string][]byte{"plan/a.md": []byte("hi")}})
	ok(t, err)
	if run.Profile != "writer" || run.State != machine.RunCreated {
		t.Errorf("the run is %+v", run)
	}
	tree, err := h.store.Tree(context.Background(), tenant, persistence.RunTree(run.ID), 0)
	ok(t, err)
	if _, has := tree.Files["plan/a.md"]; !has {
		t.Errorf("the workspace holds %v", tree.Files)
	}
}
