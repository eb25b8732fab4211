package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlite"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/toolstest"
	"github.com/callgate/callgate/tools/workspace"
)

const tenant specs.TenantID = "acme"

var (
	ann  = tools.Principal{Tenant: tenant, User: "ann", Roles: []specs.Role{"author", "approver"}} // starts the runs
	bob  = tools.Principal{Tenant: tenant, User: "bob", Roles: []specs.Role{"approver"}}
	cleo = tools.Principal{Tenant: tenant, User: "cleo", Roles: []specs.Role{"approver", "lead"}}
	dave = tools.Principal{Tenant: tenant, User: "dave", Roles: []specs.Role{"author"}}
)

// house has a tool of every manner: once must never run twice, twice may, look only looks, stop listens, ask needs a person.
const house = `
apiVersion: callgate/v1
kind: Tenant
metadata: {name: acme}
spec: {defaultProfile: worker, users: {ann: {roles: [author]}, bob: {roles: [approver]}}}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.once}
spec:
  title: Do once
  description: Does something that must not be doubled.
  source: built_in
  inputSchema: &none {type: object, additionalProperties: false, properties: {to: {type: string}, num: {type: integer}}}
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: false}
  budget: {timeout: 5s}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.twice}
spec:
  title: Do twice
  description: Does something that may be doubled.
  source: built_in
  inputSchema: *none
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: true}
  budget: {timeout: 5s}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.look}
spec:
  title: Look
  description: Looks.
  source: built_in
  inputSchema: *none
  outputSchema: {type: object, required: [ok], properties: {ok: {type: boolean}}}
  annotations: {sideEffect: none, readOnly: true, idempotent: true, cancellable: true}
  budget: {timeout: 5s}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.stop}
spec:
  title: Stop
  description: Listens when it is told to stop.
  source: built_in
  inputSchema: *none
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: false, cancellable: true}
  budget: {timeout: 5s}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.slow}
spec:
  title: Slow
  description: Is given very little time.
  source: built_in
  inputSchema: *none
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: false}
  budget: {timeout: 30ms}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.brief}
spec:
  title: Brief
  description: Is given very little time and may be doubled.
  source: built_in
  inputSchema: *none
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: true}
  budget: {timeout: 30ms}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.ask}
spec:
  title: Ask first
  description: Needs a person.
  source: built_in
  inputSchema: *none
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: false}
  permission: approval
  budget: {timeout: 5s}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.pay}
spec:
  title: Pay
  description: Costs money.
  source: built_in
  inputSchema: *none
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: false, cost: 7}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.guess}
spec:
  title: Guess
  description: Costs nobody knows what.
  source: built_in
  inputSchema: *none
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: false, cost: unknown}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.hidden}
spec:
  title: Hidden
  description: For nobody.
  source: built_in
  inputSchema: *none
  annotations: {sideEffect: none, readOnly: true}
  visibility: hidden
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.gone}
spec:
  title: Gone
  description: Nothing is connected that could run it.
  source: built_in
  inputSchema: *none
  annotations: {sideEffect: none, readOnly: true}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: act.must}
spec:
  title: Must
  description: Has a required argument.
  source: built_in
  inputSchema: {type: object, additionalProperties: false, required: [to], properties: {to: {type: string}, secret: {type: string}}}
  annotations: {sideEffect: none, readOnly: true}
  redact: [/secret]
---
apiVersion: callgate/v1
kind: Policy
metadata: {name: floor}
spec:
  layer: platform
  rules:
    - {name: no-evil, tools: ["act.*"], when: 'has(args.to) && args.to == "evil"', effect: deny, message: Not to evil.}
    - {name: no-quiet, tools: ["act.*"], when: 'has(args.to) && args.to == "quiet"', effect: deny}
    - {name: price-is-known, tools: [act.guess], effect: waive}
    - {name: publish-freely, tools: [workspace.commit], effect: waive}
---
apiVersion: callgate/v1
kind: Profile
metadata: {name: worker}
spec:
  instructions: Work.
  model: {provider: scripted}
  tools: {allow: ["act.*", "workspace.*"], deny: []}
  run: {presentation: background, maxCalls: 60}
`

// noAnchors writes the house's shared schema out, since bundles have no anchors.
func noAnchors(y string) string {
	const none = "{type: object, additionalProperties: false, properties: {to: {type: string}, num: {type: integer}}}"
	return strings.ReplaceAll(strings.ReplaceAll(y, "&none "+none, none), "*none", none)
}

// rig is a dispatcher on a real store, with a run to work in.
type rig struct {
	t        testing.TB
	ctx      context.Context
	store    *cutStore
	d        *tools.Dispatcher
	reg      *tools.Registry
	policies *shelf
	effects  *toolstest.MemoryRecorder
	host     *toolstest.FakeHost
	clock    *clock
	scope    tools.Scope
	do       map[string]tools.ExecutorFunc // what a tool does after its effect was recorded
	mu       sync.Mutex
}

type ctxT = context.Context

type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time      { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) add(d time.Duration) { c.ahead.Add(int64(d)) }
func (r *rig) must(err error, what ...any) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(append(what, err)...)
	}
}

// shelf is Policies in memory.
type shelf struct {
	mu   sync.Mutex
	all  map[specs.Digest]*tools.Compiled
	live *tools.Compiled
}

func (s *shelf) Pinned(_ context.Context, _ specs.TenantID, d specs.Digest) (*tools.Compiled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.all[d]; ok {
		return c, nil
	}
	return nil, persistence.ErrNotFound
}

func (s *shelf) Live(context.Context, specs.TenantID) (*tools.Compiled, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live, s.live != nil, nil
}

func compile(t testing.TB, docs ...string) *tools.Compiled {
	t.Helper()
	c, err := compiled(docs...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func compiled(docs ...string) (*tools.Compiled, error) {
	var files []specs.File
	for i, d := range docs {
		files = append(files, specs.File{Name: fmt.Sprintf("%02d.yaml", i), Data: []byte(noAnchors(d))})
	}
	b, err := specs.LoadFiles(files, specs.LoadOptions{Level: specs.PlatformLevel})
	if err != nil {
		return nil, err
	}
	p, err := celpolicy.Compile(b)
	if err != nil {
		return nil, err
	}
	return &tools.Compiled{Bundle: b, Policy: p}, nil
}

// activate puts another bundle in force without touching the run's own.
func (r *rig) activate(docs ...string) {
	c := compile(r.t, docs...)
	r.policies.mu.Lock()
	defer r.policies.mu.Unlock()
	r.policies.all[c.Bundle.Digest], r.policies.live = c, c
}

var houseCompiled = sync.OnceValues(func() (*tools.Compiled, error) { return compiled(house) })

func newRig(t testing.TB, extra ...string) *rig {
	t.Helper()
	r := &rig{t: t, ctx: t.Context(), effects: &toolstest.MemoryRecorder{}, clock: &clock{}, do: map[string]tools.ExecutorFunc{}, host: &toolstest.FakeHost{}}
	st, err := sqlite.Open(r.ctx, filepath.Join(t.TempDir(), "s.db"), sqlite.Options{Now: r.clock.now})
	r.must(err)
	t.Cleanup(func() { _ = st.Close() })
	r.store = &cutStore{Store: st}
	c, err := houseCompiled()
	r.must(err)
	if len(extra) > 0 {
		c = compile(t, append([]string{house}, extra...)...)
	}
	r.policies = &shelf{all: map[specs.Digest]*tools.Compiled{c.Bundle.Digest: c}}
	r.d = r.dispatcher()
	r.scope = r.newRun(c.Bundle.Digest)
	return r
}

// dispatcher is a fresh process on the same store.
func (r *rig) dispatcher() *tools.Dispatcher {
	r.t.Helper()
	reg, err := tools.NewRegistry(workspace.Executors())
	r.must(err)
	for _, name := range []string{"act.once", "act.twice", "act.look", "act.stop", "act.slow", "act.brief", "act.ask", "act.pay", "act.guess", "act.hidden", "act.must"} {
		r.must(reg.Add(specs.ToolName(name), r.recording()))
	}
	r.reg = reg
	d, err := tools.New(tools.Config{Store: r.store, Registry: reg, Policies: r.policies, Host: r.host})
	r.must(err)
	r.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		if err := d.Close(ctx); err != nil {
			r.t.Errorf("a tool never ended: %v", err)
		}
	})
	return d
}

// recording is an executor whose effect an outsider counts.
func (r *rig) recording() tools.Executor {
	return tools.ExecutorFunc(func(ctx context.Context, req tools.Request) (tools.Result, error) {
		if err := r.effects.Record(toolstest.Effect{Run: req.Run, Key: req.IdempotencyKey, Tool: req.Tool.ToolName(), Call: req.Call, Args: req.Args}); err != nil {
			return tools.Result{}, err
		}
		r.mu.Lock()
		f := r.do[req.Tool.Name]
		r.mu.Unlock()
		if f != nil {
			return f(ctx, req)
		}
		return tools.Text("done"), nil
	})
}

func (r *rig) on(tool string, f tools.ExecutorFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.do[tool] = f
}

var runs atomic.Int64

func (r *rig) newRun(bundle specs.Digest) tools.Scope {
	r.t.Helper()
	n := runs.Add(1)
	run := persistence.Run{ID: specs.RunID(fmt.Sprintf("run-%d", n)), Profile: "worker", User: ann.User, Roles: ann.Roles,
		Bundle: bundle, Root: specs.InvocationID(fmt.Sprintf("inv-%d", n)), Chat: "chat-1"}
	inv := persistence.Invocation{ID: run.Root, Kind: persistence.InvocationRoot, Profile: "worker"}
	_, err := r.store.Apply(r.ctx, persistence.Change{Tenant: tenant, Run: run.ID, Key: "open", Lines: []persistence.Entry{
		{Move: &persistence.Move{Step: machine.Run().Birth(), Record: &run}},
		{Move: &persistence.Move{Step: machine.Invocation().Birth(), Record: &inv}},
	}})
	r.must(err)
	return tools.Scope{Tenant: tenant, Run: run.ID, Invocation: run.Root, Turn: 1}
}

func call(id, name, args string) tools.Call {
	return tools.Call{ID: id, Name: name, Arguments: json.RawMessage(args)}
}

// propose makes a turn of calls. Each turn of a rig has the next number.
func (r *rig) propose(calls ...tools.Call) []tools.Proposal {
	r.t.Helper()
	ps, err := r.d.Propose(r.ctx, r.scope, calls, tools.Rider{})
	r.must(err)
	r.scope.Turn++
	return ps
}

// one proposes a single call.
func (r *rig) one(name, args string) tools.Proposal {
	r.t.Helper()
	return r.propose(call("c", name, args))[0]
}

func (r *rig) execute(p tools.Proposal) tools.Result {
	r.t.Helper()
	res, err := r.d.Execute(r.ctx, r.scope, p.Call.ID)
	r.must(err, "execute "+p.Call.Asked)
	return res
}

func (r *rig) call(id specs.CallID) persistence.Call {
	r.t.Helper()
	c, err := r.store.Call(r.ctx, tenant, r.scope.Run, id)
	r.must(err)
	return c
}

func (r *rig) state(p tools.Proposal, want machine.State) {
	r.t.Helper()
	if c := r.call(p.Call.ID); c.State != want {
		r.t.Fatalf("call %s of %s is %s, want %s (%s)", c.ID, c.Asked, c.State, want, c.Reason)
	}
}

func (r *rig) approvalState(id specs.ApprovalID, want machine.State) {
	r.t.Helper()
	a, err := r.store.Approval(r.ctx, tenant, id)
	r.must(err)
	if a.State != want {
		r.t.Fatalf("approval is %s, want %s", a.State, want)
	}
}

func (r *rig) decide(p tools.Proposal, by tools.Principal, v tools.BallotVerdict) persistence.Approval {
	r.t.Helper()
	a, err := r.d.Decide(r.ctx, tenant, tools.Ballot{Approval: p.Call.Approval, By: by, Verdict: v, Reason: "because"})
	r.must(err)
	return a
}

func (r *rig) journal() []persistence.Line {
	r.t.Helper()
	lines, err := r.store.Journal(r.ctx, tenant, r.scope.Run, persistence.JournalQuery{Limit: 5000})
	r.must(err)
	return lines
}

func (r *rig) kinds(id specs.CallID) []string {
	var out []string
	for _, l := range r.journal() {
		if l.Call == id {
			out = append(out, l.Kind)
		}
	}
	return out
}

// effectsOf counts how often the outside saw a call.
func (r *rig) effectsOf(id specs.CallID) int {
	r.t.Helper()
	all, err := r.effects.Effects()
	r.must(err)
	n := 0
	for _, e := range all {
		if e.Call == id {
			n++
		}
	}
	return n
}

func (r *rig) wantEffects(p tools.Proposal, want int) {
	r.t.Helper()
	if n := r.effectsOf(p.Call.ID); n != want {
		r.t.Fatalf("the effect of %s was seen %d times, want %d", p.Call.Asked, n, want)
	}
}

func text(res tools.Result) string {
	var b strings.Builder
	for _, c := range res.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

func wantCode(t testing.TB, res *tools.Result, code string) {
	t.Helper()
	if res == nil || !res.IsError || res.ErrorCode != code {
		t.Fatalf("result %+v, want error %s", res, code)
	}
}

// verify checks what must hold after everything: the chain, the fold of every machine, the references.
func (r *rig) verify() {
	r.t.Helper()
	counters, err := r.store.Counters(r.ctx, tenant, "")
	r.must(err)
	for _, c := range counters {
		if c.Limit != c.Spent+c.Reserved+c.Left || c.Spent < 0 || c.Reserved < 0 || c.Left < 0 {
			r.t.Errorf("counter %+v does not add up", c)
		}
	}
	report, err := persistence.Verify(r.ctx, r.store.Store, tenant, r.scope.Run)
	r.must(err)
	if len(report.Findings) > 0 {
		r.t.Errorf("the journal does not verify: %+v", report.Findings)
	}
}

// errCut is a store that breaks.
var errCut = errors.New("the store is gone")

// cutStore lets a test stand between the dispatcher and its store.
type cutStore struct {
	persistence.Store
	mu     sync.Mutex
	n      int                                     // Applies so far
	before func(n int, c persistence.Change) error // refuses before anything is written
	after  func(n int, c persistence.Change) error // loses the answer after it was written
}

func (s *cutStore) Apply(ctx context.Context, c persistence.Change) (persistence.Applied, error) {
	s.mu.Lock()
	s.n++
	n, before, after := s.n, s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(n, c); err != nil {
			return persistence.Applied{}, err
		}
	}
	a, err := s.Store.Apply(ctx, c)
	if err == nil && after != nil {
		if err := after(n, c); err != nil {
			return persistence.Applied{}, err
		}
	}
	return a, err
}

func (s *cutStore) hook(before, after func(n int, c persistence.Change) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.before, s.after = 0, before, after
}

func (s *cutStore) applies() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func digestOf(ref string) specs.Digest { return specs.Digest(strings.TrimPrefix(ref, "blob:")) }

func hasKind(lines []persistence.Line, kind string) bool {
	return slices.ContainsFunc(lines, func(l persistence.Line) bool { return l.Kind == kind })
}
