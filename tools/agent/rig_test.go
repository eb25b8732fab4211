package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlite"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
	"github.com/callgate/callgate/tools/provider"
	"github.com/callgate/callgate/tools/toolstest"
	"github.com/callgate/callgate/tools/workspace"
)

// TestMain keeps the random lives few: each is a whole run on disk. -rapid.checks asks for more.
func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		_ = flag.Set("rapid.checks", fmt.Sprint(9/stride))
	}
	goleak.VerifyTestMain(m)
}

const tenant specs.TenantID = "default"

var (
	ann = tools.Principal{Tenant: tenant, User: "ann", Roles: []specs.Role{"author"}}
	bob = tools.Principal{Tenant: tenant, User: "bob", Roles: []specs.Role{"approver"}}
)

// theBundle is a small house: a writer who may publish without being asked, and three outside tools of different manners.
const theBundle = `
apiVersion: callgate/v1
kind: Tenant
metadata: {name: default}
spec:
  defaultProfile: writer
  users: {ann: {roles: [author]}, bob: {roles: [approver]}}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: mail.send}
spec:
  title: Send a mail
  description: Sends a mail. It cannot be taken back.
  source: built_in
  inputSchema: {type: object, additionalProperties: false, required: [to], properties: {to: {type: string, description: Who gets it.}, text: {type: string}}}
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: false, cancellable: true}
  budget: {timeout: 5s}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: note.put}
spec:
  title: Put a note
  description: Puts a note. Twice is as good as once.
  source: built_in
  inputSchema: {type: object, additionalProperties: false, required: [to], properties: {to: {type: string}, text: {type: string}}}
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: true, cancellable: true}
  budget: {timeout: 5s}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: note.get}
spec:
  title: Get a note
  description: Gets a note.
  source: built_in
  inputSchema: {type: object, additionalProperties: false, properties: {to: {type: string}}}
  annotations: {sideEffect: none, readOnly: true, idempotent: true, cancellable: true}
  budget: {timeout: 5s}
---
apiVersion: callgate/v1
kind: Policy
metadata: {name: house}
spec:
  layer: platform
  rules:
    - {name: publish-freely, tools: [workspace.commit], effect: waive}
---
apiVersion: callgate/v1
kind: Policy
metadata: {name: writers}
spec:
  layer: profile
  match: {profiles: [writer]}
  rules:
    - name: strangers
      tools: [mail.send]
      when: args.to.endsWith("@elsewhere")
      effect: approve
      reason: Mail to strangers is looked at first.
      approval: {approvers: {roles: [approver]}, quorum: 1, ttl: 15m}
    - name: memory
      tools: [workspace.write_file]
      when: path.within(args.path, "persist") && args.content.contains("ask")
      effect: approve
      approval: {approvers: {roles: [approver]}, quorum: 1, ttl: 15m}
    - {name: no-spam, tools: [mail.send], when: 'args.to == "everybody"', effect: deny, message: Never write to everybody.}
    - {name: no-abuse, tools: [mail.send], when: 'args.to == "abuse"', effect: deny, onDeny: fail_run}
---
apiVersion: callgate/v1
kind: Profile
metadata: {name: writer}
spec:
  displayName: Writer
  instructions: Draft in output/main.md, commit, then finish.
  model: {provider: scripted}
  tools:
    allow: ["workspace.*", "mail.*", "note.*"]
    deny: [workspace.rollback]
    describe: {workspace.commit: Publish the draft.}
    parameters: {mail.send: {to: The address.}}
  run: {presentation: foreground, maxRounds: 12, maxCalls: 40, driftRecoveries: 1}
  output: {artifacts: [{id: main, path: output/main.md, target: messageBody, required: true}]}
---
apiVersion: callgate/v1
kind: Profile
metadata: {name: worker}
spec:
  tools: {allow: ["workspace.*", "mail.*", "note.*"]}
  run: {presentation: background, maxRounds: 4, driftRecoveries: 0}
`

// say is what the model does in one turn; it sees the request.
type say func(provider.Request) (provider.Reply, error)

// play is a model that knows its part by heart: turn n is line n, in whichever process it is asked.
type play []say

func (p play) Next(ctx context.Context, req provider.Request) (provider.Reply, error) {
	if err := ctx.Err(); err != nil {
		return provider.Reply{}, err
	}
	if req.Turn > int64(len(p)) {
		return provider.Reply{}, fmt.Errorf("the play has no turn %d", req.Turn)
	}
	return p[req.Turn-1](req)
}

// calls is a turn of calls, each "tool {json}", with ids c1, c2 and so on.
func calls(texts ...string) say {
	return func(provider.Request) (provider.Reply, error) {
		var r provider.Reply
		for i, text := range texts {
			name, args, _ := strings.Cut(text, " ")
			r.Calls = append(r.Calls, tools.Call{ID: fmt.Sprintf("c%d", i+1), Name: name, Arguments: json.RawMessage(args)})
		}
		return r, nil
	}
}

func text(s string) say {
	return func(provider.Request) (provider.Reply, error) { return provider.Reply{Text: s}, nil }
}

// looking lets a test read the request of a turn before the turn is played.
func looking(look func(provider.Request), then say) say {
	return func(r provider.Request) (provider.Reply, error) {
		look(r)
		return then(r)
	}
}

var (
	draft  = calls(`workspace.write_file {"path":"output/main.md","content":"A fine story."}`)
	commit = calls(`workspace.commit {}`)
	finish = calls(`workspace.finish {"reason":"done"}`)
)

// closing is a model that looks before it finishes: a commit that was lost is made again.
func closing(r provider.Request) (provider.Reply, error) {
	for _, m := range r.Messages {
		for _, res := range m.Results {
			if res.Tool == "workspace.commit" && !res.Result.IsError {
				return finish(r)
			}
		}
	}
	return commit(r)
}

// house is everything a run needs. Another process is another house on the same path.
type house struct {
	t          testing.TB
	path       string
	store      persistence.Store
	compiled   *tools.Compiled
	dispatcher *tools.Dispatcher
	runner     *agent.Runner
	host       *toolstest.FakeHost
	effects    toolstest.Recorder
	clock      *clock
}

type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

type options struct {
	path    string
	bundle  string
	host    *toolstest.FakeHost
	effects toolstest.Recorder
	wrap    func(persistence.Store) persistence.Store
	tools   map[specs.ToolName]tools.Executor
	config  func(*agent.Config)
	before  func(tools.Host) tools.Host // stands before the host
	clock   *clock
}

var compiledOnce = sync.OnceValues(func() (*tools.Compiled, error) { return compile(theBundle) })

func compile(text string) (*tools.Compiled, error) {
	b, err := specs.Load(fstest.MapFS{"house.yaml": {Data: []byte(text)}}, specs.LoadOptions{Level: specs.PlatformLevel})
	if err != nil {
		return nil, err
	}
	p, err := celpolicy.Compile(b)
	return &tools.Compiled{Bundle: b, Policy: p}, err
}

func open(t testing.TB, m provider.Model, o options) *house {
	t.Helper()
	h := &house{t: t, path: o.path, host: o.host, effects: o.effects, clock: o.clock}
	if h.path == "" {
		h.path = filepath.Join(t.TempDir(), "callgate.db")
	}
	if h.host == nil {
		h.host = &toolstest.FakeHost{}
	}
	if h.effects == nil {
		h.effects = &toolstest.MemoryRecorder{}
	}
	if h.clock == nil {
		h.clock = &clock{}
	}
	var err error
	if o.bundle == "" {
		h.compiled, err = compiledOnce()
	} else {
		h.compiled, err = compile(o.bundle)
	}
	ok(t, err)
	store, err := sqlite.Open(context.Background(), h.path, persistence.Options{Now: h.clock.now})
	ok(t, err)
	h.store = store
	if o.wrap != nil {
		h.store = o.wrap(store)
	}
	outside := map[specs.ToolName]tools.Executor{}
	for _, name := range []specs.ToolName{"mail.send", "note.put", "note.get"} {
		if e := o.tools[name]; e != nil {
			outside[name] = e
			continue
		}
		outside[name] = toolstest.FakeTool{Recorder: h.effects}
	}
	registry, err := tools.NewRegistry(workspace.Executors(), outside)
	ok(t, err)
	var host tools.Host = h.host
	if o.before != nil {
		host = o.before(host)
	}
	h.dispatcher, err = tools.New(tools.Config{Store: h.store, Registry: registry, Policies: h, Host: host, Clock: h.clock.now})
	ok(t, err)
	retries := 2
	c := agent.Config{Dispatcher: h.dispatcher, Store: h.store, Policies: h, Owner: "test", LeaseTTL: 5 * time.Second, Poll: 10 * time.Millisecond,
		ModelRetries: &retries, ModelBackoff: time.Millisecond, Takeover: func(string) bool { return true },
		Models: func(context.Context, persistence.Run, *specs.Profile) (provider.Model, error) { return m, nil }}
	if o.config != nil {
		o.config(&c)
	}
	h.runner, err = agent.New(c)
	ok(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.dispatcher.Close(ctx); err != nil {
			t.Errorf("close the dispatcher: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return h
}

// Pinned and Live make the house its own tools.Policies.
func (h *house) Pinned(_ context.Context, _ specs.TenantID, d specs.Digest) (*tools.Compiled, error) {
	if d != h.compiled.Bundle.Digest {
		return nil, fmt.Errorf("bundle %s: %w", d, persistence.ErrNotFound)
	}
	return h.compiled, nil
}

func (h *house) Live(context.Context, specs.TenantID) (*tools.Compiled, bool, error) {
	return nil, false, nil
}

func (h *house) start(change ...func(*agent.StartRequest)) persistence.Run {
	h.t.Helper()
	q := agent.StartRequest{Tenant: tenant, Bundle: h.compiled.Bundle.Digest, Profile: "writer", Task: "Write a story.", User: ann, Chat: "chat-1"}
	for _, f := range change {
		f(&q)
	}
	run, err := h.runner.Start(context.Background(), q)
	ok(h.t, err)
	return run
}

func (h *house) run(id specs.RunID) agent.Outcome {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	out, err := h.runner.Run(ctx, tenant, id)
	if err != nil {
		h.t.Fatalf("run: %v\n%s", err, h.story(id))
	}
	return out
}

// ends plays the run and wants it to end in a state.
func (h *house) ends(id specs.RunID, state machine.State) agent.Outcome {
	h.t.Helper()
	out := h.run(id)
	if out.State != state {
		h.t.Fatalf("the run is %s (%s: %s), want %s\n%s", out.State, out.ErrorCode, out.Reason, state, h.story(id))
	}
	if out.Ended() {
		h.sound(id)
	}
	return out
}

// sound checks what holds for every run that is over: F10 (nothing in it is open), J1 (numbers without gap), and a chain
// that verifies.
func (h *house) sound(id specs.RunID) {
	h.t.Helper()
	ctx := context.Background()
	lines := h.lines(id)
	for i, l := range lines {
		if l.Seq != int64(i+1) {
			h.t.Fatalf("line %d has number %d", i+1, l.Seq)
		}
	}
	cs, err := h.store.Calls(ctx, tenant, id)
	ok(h.t, err)
	for _, c := range cs {
		if !machine.Call().IsFinal(c.State) {
			h.t.Errorf("the run is over and call %s is %s", c.ID, c.State)
		}
	}
	invs, err := h.store.Invocations(ctx, tenant, id)
	ok(h.t, err)
	for _, i := range invs {
		if !machine.Invocation().IsFinal(i.State) {
			h.t.Errorf("the run is over and invocation %s is %s", i.ID, i.State)
		}
	}
	as, _, err := h.store.Approvals(ctx, tenant, persistence.Query{Run: id, Limit: 500})
	ok(h.t, err)
	for _, a := range as {
		if !machine.Approval().IsFinal(a.State) {
			h.t.Errorf("the run is over and approval %s is %s", a.ID, a.State)
		}
	}
	left, err := h.store.Reservations(ctx, tenant, id)
	ok(h.t, err)
	if len(left) > 0 {
		h.t.Errorf("the run is over and holds %v", left)
	}
	report, err := persistence.Verify(ctx, h.store, tenant, id)
	ok(h.t, err)
	if len(report.Findings) > 0 {
		h.t.Errorf("the journal does not verify: %v", report.Findings)
	}
}

func (h *house) lines(id specs.RunID) []persistence.Line {
	h.t.Helper()
	lines, err := h.store.Journal(context.Background(), tenant, id, persistence.JournalQuery{Limit: 5000})
	ok(h.t, err)
	return lines
}

// count gives how many lines of a kind the journal holds.
func (h *house) count(id specs.RunID, kind string) (n int) {
	h.t.Helper()
	for _, l := range h.lines(id) {
		if l.Kind == kind {
			n++
		}
	}
	return n
}

// story is the journal as text, for a failing test.
func (h *house) story(id specs.RunID) string {
	var b strings.Builder
	for _, l := range h.lines(id) {
		fmt.Fprintf(&b, "%3d %-30s %s %s\n", l.Seq, l.Kind, l.Call, l.Payload)
	}
	return b.String()
}

func (h *house) calls(id specs.RunID) map[specs.CallID]persistence.Call {
	h.t.Helper()
	list, err := h.store.Calls(context.Background(), tenant, id)
	ok(h.t, err)
	out := map[specs.CallID]persistence.Call{}
	for _, c := range list {
		out[c.ID] = c
	}
	return out
}

func (h *house) decide(a persistence.Approval, v tools.BallotVerdict, change ...func(*tools.Ballot)) {
	h.t.Helper()
	b := tools.Ballot{Approval: a.ID, By: bob, Verdict: v}
	if v == tools.BallotReject {
		b.Reason = "not now"
	}
	for _, f := range change {
		f(&b)
	}
	_, err := h.dispatcher.Decide(context.Background(), tenant, b)
	ok(h.t, err)
}

func (h *house) reconcile(c persistence.Call, happened bool) {
	h.t.Helper()
	_, err := h.dispatcher.Reconcile(context.Background(), bob, c.Run, c.ID, happened, "looked it up")
	ok(h.t, err)
}

func (h *house) happened() []toolstest.Effect {
	h.t.Helper()
	es, err := h.effects.Effects()
	ok(h.t, err)
	return es
}

// results gives the results a request shows for the turn that ended last, in order.
func results(req provider.Request) []provider.ToolResult {
	for _, m := range slices.Backward(req.Messages) {
		if m.Role == provider.RoleTool {
			return m.Results
		}
	}
	return nil
}

func said(r tools.Result) string {
	var b strings.Builder
	for _, c := range r.Content {
		b.WriteString(c.Text)
		b.Write(c.JSON)
	}
	return b.String()
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}
