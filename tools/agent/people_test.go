package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
	"github.com/callgate/callgate/tools/provider"
	"github.com/callgate/callgate/tools/toolstest"
)

func toolMap(name specs.ToolName, e tools.Executor) map[specs.ToolName]tools.Executor {
	return map[specs.ToolName]tools.Executor{name: e}
}

// beside runs a run in another goroutine and gives what came of it.
func (h *house) beside(id specs.RunID) <-chan agent.Outcome {
	out := make(chan agent.Outcome, 1)
	go func() {
		o, err := h.runner.Run(context.Background(), tenant, id)
		if err != nil {
			h.t.Errorf("run: %v", err)
		}
		out <- o
	}()
	return out
}

// Somebody else's process cancels while a tool works, while the model thinks, and while a person is waited for.
func TestCancel_ByAnotherProcess(t *testing.T) {
	t.Parallel()
	t.Run("while a tool works", func(t *testing.T) {
		t.Parallel()
		started := make(chan tools.Request)
		h := open(t, play{calls(`note.get {}`, `mail.send {"to":"me"}`), draft, commit, finish},
			options{tools: toolMap("note.get", toolstest.SlowTool{Delay: time.Minute, Started: started})})
		run := h.start()
		out := h.beside(run.ID)
		<-started
		other := open(t, play{}, options{path: h.path, config: alive})
		ok(t, other.runner.Cancel(context.Background(), ann, run.ID))
		if o := <-out; o.State != machine.RunCancelled || !strings.Contains(o.Reason, "ann") {
			t.Errorf("the outcome is %+v\n%s", o, h.story(run.ID))
		}
		h.sound(run.ID)
		if n := len(h.happened()); n != 0 {
			t.Errorf("%d mails went out after the cancel", n)
		}
	})
	t.Run("while the model thinks", func(t *testing.T) {
		t.Parallel()
		asked := make(chan struct{})
		h := open(t, thinking(asked), options{})
		run := h.start()
		out := h.beside(run.ID)
		<-asked
		other := open(t, play{}, options{path: h.path, config: alive})
		ok(t, other.runner.Cancel(context.Background(), ann, run.ID))
		if o := <-out; o.State != machine.RunCancelled {
			t.Errorf("the outcome is %+v", o)
		}
		h.sound(run.ID)
	})
	t.Run("while a person is waited for", func(t *testing.T) {
		t.Parallel()
		h := open(t, play{calls(`mail.send {"to":"x@elsewhere"}`)}, options{})
		run := h.start()
		h.ends(run.ID, machine.RunAwaitingApproval)
		other := open(t, play{}, options{path: h.path, config: alive})
		ok(t, other.runner.Cancel(context.Background(), ann, run.ID))
		h.ends(run.ID, machine.RunCancelled)
		wantErr(t, other.runner.Cancel(context.Background(), ann, run.ID), tools.ErrRunEnded)
	})
	t.Run("before anybody began", func(t *testing.T) {
		t.Parallel()
		h := open(t, play{}, options{})
		run := h.start()
		ok(t, h.runner.Cancel(context.Background(), ann, run.ID))
		h.ends(run.ID, machine.RunCancelled)
	})
}

// alive is a process that holds nobody for dead.
func alive(c *agent.Config) { c.Takeover = nil }

// thinking is a model that never answers by itself.
type thinking chan struct{}

func (c thinking) Next(ctx context.Context, _ provider.Request) (provider.Reply, error) {
	close(c)
	<-ctx.Done()
	return provider.Reply{}, ctx.Err()
}

// Two live processes do not work on one run.
func TestLease_TheSecondProcessIsTurnedAway(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	h := open(t, thinking(asked), options{})
	run := h.start()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := h.runner.Run(ctx, tenant, run.ID)
		ended <- err
	}()
	<-asked
	other := open(t, play{draft, commit, finish}, options{path: h.path, host: h.host, config: func(c *agent.Config) { c.Takeover, c.Owner = nil, "other" }})
	_, err := other.runner.Run(context.Background(), tenant, run.ID)
	var held *persistence.HeldError
	if !errors.As(err, &held) || held.Owner != "test" {
		t.Errorf("the second process got %v", err)
	}
	// The first is told to stop; it rests where it was, and the second goes on at once.
	cancel()
	wantErr(t, <-ended, context.Canceled)
	other.ends(run.ID, machine.RunCompleted)
}

// A process whose lease was taken over writes nothing any more.
func TestCase_H36_AProcessThatWasTakenForDeadStops(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	h := open(t, thinking(asked), options{config: func(c *agent.Config) { c.LeaseTTL = 150 * time.Millisecond }})
	run := h.start()
	ended := make(chan error, 1)
	go func() {
		_, err := h.runner.Run(context.Background(), tenant, run.ID)
		ended <- err
	}()
	<-asked
	other := open(t, play{calls(`mail.send {"to":"x@elsewhere"}`)}, options{path: h.path, host: h.host}) // its Takeover holds the first for dead
	other.ends(run.ID, machine.RunAwaitingApproval)
	wantErr(t, <-ended, persistence.ErrFenced)
}

// A run that waits is left alone: being started again and again costs it nothing.
func TestCase_D05_AWaitingRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	h := open(t, play{calls(`mail.send {"to":"x@elsewhere"}`)}, options{})
	run := h.start()
	h.ends(run.ID, machine.RunAwaitingApproval)
	before := len(h.lines(run.ID))
	for range 3 {
		other := open(t, play{}, options{path: h.path})
		if out := other.ends(run.ID, machine.RunAwaitingApproval); len(out.Waiting) != 1 {
			t.Errorf("%d approvals wait", len(out.Waiting))
		}
	}
	if after := len(h.lines(run.ID)); after != before {
		t.Errorf("%d lines became %d", before, after)
	}
}

// A tool that may have happened and did not answer is not tried again: a person says what became of it.
func TestCase_D07_ATimeoutIsNotRetriedBlindly(t *testing.T) {
	t.Parallel()
	bundle := strings.Replace(theBundle, "idempotent: false, cancellable: true}\n  budget: {timeout: 5s}", "idempotent: false, cancellable: false}\n  budget: {timeout: 100ms}", 1)
	effects := &toolstest.MemoryRecorder{}
	var got []provider.ToolResult
	h := open(t, play{calls(`mail.send {"to":"me"}`, `note.put {"to":"1"}`), looking(func(r provider.Request) { got = results(r) }, draft), commit, finish},
		options{bundle: bundle, effects: effects, tools: toolMap("mail.send", toolstest.SlowTool{Recorder: effects, Delay: 2500 * time.Millisecond, Deaf: true})})
	run := h.start()
	out := h.ends(run.ID, machine.RunAwaitingApproval)
	if len(out.Unknown) != 1 || out.Unknown[0].Tool != "mail.send" {
		t.Fatalf("the outcome is %+v", out)
	}
	h.ends(run.ID, machine.RunAwaitingApproval) // asking again does not help
	h.reconcile(out.Unknown[0], true)
	h.ends(run.ID, machine.RunCompleted)
	if len(got) != 2 || got[0].Result.IsError || got[1].Result.IsError {
		t.Errorf("the model reads %+v", got)
	}
	if n := len(h.happened()); n != 2 {
		t.Errorf("%d effects, want one each: %v", n, h.happened())
	}
}

// fatal is a host that takes a commit, upon which the process dies.
type fatal struct {
	tools.Host
	process *mortal
}

func (f fatal) Commit(ctx context.Context, c tools.Commit) (tools.Receipt, error) {
	defer f.process.die(0, false)
	return f.Host.Commit(ctx, c)
}

// The process dies while the host takes a commit. A host that can be asked settles it, also one that could not answer when the
// run was first taken up; where it cannot be asked, a person does; either way the commit counts.
func TestPlay_ACommitFoundLaterCounts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"the host remembers", "the host answers later", "a person remembers"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mute error
			if name != "the host remembers" {
				mute = errors.New("no answer")
			}
			turns := play{draft, commit, text("one"), text("two")}
			m := &mortal{left: 1 << 30}
			first := open(t, turns, options{
				wrap:   func(s persistence.Store) persistence.Store { m.Store = s; return m },
				before: func(h tools.Host) tools.Host { return fatal{h, m} },
			})
			run := first.start()
			_, err := first.runner.Run(context.Background(), tenant, run.ID)
			wantErr(t, err, errCut)
			first.host.Mute = mute
			h := open(t, turns, options{path: first.path, host: first.host})
			if mute != nil {
				out := h.ends(run.ID, machine.RunAwaitingApproval)
				if len(out.Unknown) != 1 || out.Unknown[0].Tool != "workspace.commit" {
					t.Fatalf("the outcome is %+v\n%s", out, h.story(run.ID))
				}
				before := len(h.lines(run.ID))
				if again := h.ends(run.ID, machine.RunAwaitingApproval); len(again.Unknown) != 1 || len(h.lines(run.ID)) != before {
					t.Fatalf("asking in vain changed something: %+v\n%s", again, h.story(run.ID))
				}
				if name == "the host answers later" {
					h.host.Mute = nil
				} else {
					h.reconcile(out.Unknown[0], true)
				}
			}
			h.ends(run.ID, machine.RunPartialSuccess)
			if got := h.host.Messages("chat-1"); len(got) != 1 {
				t.Errorf("the reader got %+v", got)
			}
		})
	}
}

// persist/ comes from the chat, goes back when the run finishes, and only then.
func TestW6_PersistIsPromotedByFinishOnly(t *testing.T) {
	t.Parallel()
	remember := func(s string) say {
		return calls(`workspace.read_file {"path":"persist/MEMORY.md"}`, `workspace.write_file {"path":"persist/MEMORY.md","content":"`+s+`"}`)
	}
	memory := func(h *house) specs.Digest {
		tree, err := h.store.Tree(context.Background(), tenant, persistence.ChatTree("chat-1"), 0)
		ok(t, err)
		return tree.Files["persist/MEMORY.md"].Digest
	}
	is := func(s string) specs.Digest { return specs.DigestOf([]byte(s)) }
	h := open(t, play{remember("one"), draft, commit, finish}, options{})
	path, host := h.path, h.host
	h.ends(h.start().ID, machine.RunCompleted)
	if memory(h) != is("one") {
		t.Fatal("the first run's memory was not promoted")
	}
	next := func(turns play) *house { return open(t, turns, options{path: path, host: host}) }

	var got []provider.ToolResult
	h = next(play{remember("two"), looking(func(r provider.Request) { got = results(r) }, calls(`mail.send {"to":"abuse"}`))})
	h.ends(h.start().ID, machine.RunFailed)
	if memory(h) != is("one") || !strings.Contains(said(got[0].Result), "one") {
		t.Error("a failed run changed the memory, or could not read it")
	}
	h = next(play{remember("three"), draft, commit, calls(`mail.send {"to":"abuse"}`)})
	h.ends(h.start().ID, machine.RunPartialSuccess)
	if memory(h) != is("one") {
		t.Error("a partially successful run changed the memory")
	}
	h = next(play{remember("four"), calls(`mail.send {"to":"x@elsewhere"}`)})
	run := h.start()
	h.ends(run.ID, machine.RunAwaitingApproval)
	ok(t, h.runner.Cancel(context.Background(), ann, run.ID))
	h.ends(run.ID, machine.RunCancelled)
	if memory(h) != is("one") {
		t.Error("a cancelled run changed the memory")
	}

	// Two runs at once: the one that finishes second, with another text in the same file, does not win by being late.
	wait := calls(`mail.send {"to":"x@elsewhere"}`)
	slow := next(play{remember("slow"), wait, draft, commit, finish})
	slowRun := slow.start()
	out := slow.ends(slowRun.ID, machine.RunAwaitingApproval)
	quick := next(play{remember("quick"), draft, commit, finish})
	quick.ends(quick.start().ID, machine.RunCompleted)
	slow.decide(out.Waiting[0], tools.BallotApprove)
	end := slow.ends(slowRun.ID, machine.RunPartialSuccess)
	if end.ErrorCode != agent.CodePersistConflict || !strings.Contains(end.Reason, "persist/MEMORY.md") || memory(slow) != is("quick") {
		t.Errorf("the outcome is %+v", end)
	}

	// Other files do not conflict.
	slow = next(play{calls(`workspace.write_file {"path":"persist/other.md","content":"other"}`), wait, draft, commit, finish})
	slowRun = slow.start()
	out = slow.ends(slowRun.ID, machine.RunAwaitingApproval)
	quick = next(play{remember("quicker"), draft, commit, finish})
	quick.ends(quick.start().ID, machine.RunCompleted)
	slow.decide(out.Waiting[0], tools.BallotApprove)
	slow.ends(slowRun.ID, machine.RunCompleted)
	if memory(slow) != is("quicker") {
		t.Error("a run took back what it never touched")
	}
}

const thePlan = `
---
apiVersion: callgate/v1
kind: Plan
metadata: {name: story}
spec:
  mode: free
  profiles: [writer]
  nodes:
    - {id: collect, title: Collect, tools: {allow: [note.get, "workspace.write_file"]}, guidance: Read the notes first., maxRounds: 3}
    - {id: publish, title: Publish, tools: {allow: [workspace.commit, workspace.finish]}, guidance: Publish and finish.}
  transitions:
    - {from: collect, to: publish, when: 'run.artifacts.exists(a, a == "main")'}
`

func TestPlan_NodesGuideAndGrant(t *testing.T) {
	t.Parallel()
	var reqs []provider.Request
	keep := func(r provider.Request) { reqs = append(reqs, r) }
	names := func(r provider.Request) string {
		var out []string
		for _, p := range r.Tools {
			out = append(out, string(p.Name))
		}
		return strings.Join(out, " ")
	}
	h := open(t, play{looking(keep, calls(`note.get {}`)), looking(keep, draft), looking(keep, calls(`note.get {}`, `workspace.commit {}`)), looking(keep, finish)},
		options{bundle: theBundle + thePlan})
	run := h.start()
	if run.Plan != "story" || run.Node != "collect" {
		t.Fatalf("the run starts in %s/%s", run.Plan, run.Node)
	}
	h.ends(run.ID, machine.RunCompleted)
	want := []string{"note.get workspace.write_file", "note.get workspace.write_file", "workspace.commit workspace.finish", "workspace.commit workspace.finish"}
	for i, r := range reqs {
		if names(r) != want[i] {
			t.Errorf("turn %d offers %q, want %q", i+1, names(r), want[i])
		}
	}
	told := 0
	for _, m := range reqs[3].Messages {
		if m.Kind == "plan" {
			told++
		}
	}
	if told != 2 || h.count(run.ID, persistence.KindNodeEntered) != 2 {
		t.Errorf("told of %d steps, the journal of %d", told, h.count(run.ID, persistence.KindNodeEntered))
	}
	if got := results(reqs[3]); got[0].Result.ErrorCode != tools.CodeUnavailable || got[1].Result.IsError {
		t.Errorf("outside its step a tool is %+v", got)
	}
}

func TestPlan_AStepHasItsOwnRounds(t *testing.T) {
	t.Parallel()
	again := calls(`note.get {}`)
	h := open(t, play{again, again, again, again}, options{bundle: theBundle + thePlan})
	out := h.ends(h.start().ID, machine.RunFailed)
	if out.ErrorCode != agent.CodeMaxRounds || !strings.Contains(out.Reason, "collect") {
		t.Errorf("the outcome is %+v", out)
	}
}

func TestPlan_MoreThanTheLoopKeepsIsRefused(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]string{{"mode: free", "mode: strict"}, {"maxRounds: 3}", "approval: {approvers: {roles: [approver]}}}"}} {
		h := open(t, play{}, options{bundle: theBundle + strings.Replace(thePlan, change[0], change[1], 1)})
		_, err := h.runner.Start(context.Background(), agent.StartRequest{Tenant: tenant, Bundle: h.compiled.Bundle.Digest, User: ann})
		var bad *agent.RequestError
		if !errors.As(err, &bad) || bad.Field != "plan" {
			t.Errorf("%s: %v", change[1], err)
		}
	}
}

// A node may be played by another profile; its tools, limits and words hold while the node does.
func TestPlan_ANodeHasItsOwnProfile(t *testing.T) {
	t.Parallel()
	plan := strings.Replace(thePlan, "id: collect, title: Collect, tools: {allow: [note.get, \"workspace.write_file\"]}", "id: collect, title: Collect, profile: worker", 1)
	var reqs []provider.Request
	keep := func(r provider.Request) { reqs = append(reqs, r) }
	plan = strings.Replace(plan, `run.artifacts.exists(a, a == "main")`, "run.nodeRounds >= 1", 1)
	h := open(t, play{looking(keep, draft), looking(keep, commit), finish}, options{bundle: theBundle + plan})
	h.ends(h.start().ID, machine.RunCompleted)
	offered := func(r provider.Request) bool {
		return slices.ContainsFunc(r.Tools, func(p provider.Tool) bool { return p.Name == "workspace.rollback" })
	}
	if !offered(reqs[0]) || offered(reqs[1]) {
		t.Errorf("only the worker may roll back; it is offered: %v, to the writer: %v", offered(reqs[0]), offered(reqs[1]))
	}
	if !strings.HasPrefix(reqs[0].System, "You are worker.") || !strings.HasPrefix(reqs[1].System, "You are Writer.") {
		t.Errorf("the model is told %.30q and then %.30q", reqs[0].System, reqs[1].System)
	}
}

// lossy is a store that has lost one blob.
type lossy struct {
	persistence.Store
	lost func(specs.Digest) bool
}

func (l lossy) Blob(ctx context.Context, t specs.TenantID, d specs.Digest) ([]byte, error) {
	if l.lost(d) {
		return nil, persistence.ErrNotFound
	}
	return l.Store.Blob(ctx, t, d)
}

// A provider's metadata that was lost cannot be made up: the run fails.
func TestPlay_LostMetadataFailsTheRun(t *testing.T) {
	t.Parallel()
	var gone specs.Digest
	var h *house
	forget := func(r provider.Request) {
		for _, l := range h.lines(r.Run) {
			if l.Kind == persistence.KindModelTurn {
				gone = specs.Digest(strings.Split(strings.SplitAfter(string(l.Payload), `"response":"`)[1], `"`)[0])
			}
		}
	}
	turns := play{calls(`mail.send {"to":"x@elsewhere"}`), looking(forget, draft), commit}
	o := options{wrap: func(s persistence.Store) persistence.Store {
		return lossy{s, func(d specs.Digest) bool { return gone != "" && d == gone }}
	}}
	h = open(t, turns, o)
	run := h.start()
	out := h.ends(run.ID, machine.RunAwaitingApproval)
	h.decide(out.Waiting[0], tools.BallotApprove)
	forget(provider.Request{Run: run.ID})
	out = h.ends(run.ID, machine.RunFailed)
	if out.ErrorCode != "provider.metadata_lost" {
		t.Errorf("the outcome is %+v", out)
	}
}

// Who follows a run sees every line once and in order, until it is over.
func TestFollow_EveryLineOnce(t *testing.T) {
	t.Parallel()
	h := open(t, play{draft, commit, finish}, options{})
	run := h.start()
	seen := make(chan int64, 1000)
	done := make(chan error, 1)
	go func() {
		done <- agent.Follow(context.Background(), h.store, tenant, run.ID, 1, func(l persistence.Line) error { seen <- l.Seq; return nil })
	}()
	h.ends(run.ID, machine.RunCompleted)
	ok(t, <-done)
	close(seen)
	want := int64(2)
	for seq := range seen {
		if seq != want {
			t.Fatalf("got line %d, want %d", seq, want)
		}
		want++
	}
	if want != int64(len(h.lines(run.ID)))+1 {
		t.Errorf("followed to %d of %d", want-1, len(h.lines(run.ID)))
	}
	enough := errors.New("enough")
	wantErr(t, agent.Follow(context.Background(), h.store, tenant, run.ID, 0, func(persistence.Line) error { return enough }), enough)
}
