package toolstest

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlite"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
	"github.com/callgate/callgate/tools/provider"
	"github.com/callgate/callgate/tools/provider/scripted"
	"github.com/callgate/callgate/tools/workspace"
)

// Tenant is whose bundle, runs and calls those of a Gate are.
const Tenant specs.TenantID = "test"

// Gate is a whole gate for a test: a bundle in force, a store in a temporary folder, a dispatcher with the workspace
// family, and a run in which single calls can be made. Its methods fail the test when the gate itself does.
type Gate struct {
	t          testing.TB
	Bundle     *specs.Bundle
	Store      persistence.Store
	Policies   tools.Policies
	Dispatcher *tools.Dispatcher
	Host       *FakeHost
	// Effects sees what FakeTools made by WithFake did.
	Effects *MemoryRecorder
	// Scope is where Call makes its calls; its Turn grows with each.
	Scope tools.Scope

	set settings
	mu  sync.Mutex
}

type settings struct {
	executors map[specs.ToolName]tools.Executor
	fakes     []specs.ToolName
	profile   specs.ProfileName
	user      tools.Principal
	files     map[string][]byte
}

// Option changes what New makes.
type Option func(*settings)

// WithTool gives a tool of the bundle its executor.
func WithTool(name specs.ToolName, ex tools.Executor) Option {
	return func(s *settings) { s.executors[name] = ex }
}

// WithFake gives tools of the bundle a FakeTool that records into Gate.Effects.
func WithFake(names ...specs.ToolName) Option {
	return func(s *settings) { s.fakes = append(s.fakes, names...) }
}

// WithProfile makes runs of this profile; without it they have the tenant's default profile.
func WithProfile(name specs.ProfileName) Option { return func(s *settings) { s.profile = name } }

// WithUser makes runs of this user; without it they are those of "ann", an author.
func WithUser(user specs.UserID, roles ...specs.Role) Option {
	return func(s *settings) { s.user = tools.Principal{Tenant: Tenant, User: user, Roles: roles} }
}

// WithFiles puts files into the workspace of every run before it starts, by path below a root.
func WithFiles(files map[string]string) Option {
	return func(s *settings) {
		for path, text := range files {
			s.files[path] = []byte(text)
		}
	}
}

// New makes a Gate of a bundle, read with the operator's rights. It is closed with the test. A bundle that does not load or
// compile fails the test with the findings.
func New(t testing.TB, bundle string, opts ...Option) *Gate {
	t.Helper()
	g := &Gate{t: t, Host: &FakeHost{}, Effects: &MemoryRecorder{}, set: settings{
		executors: map[specs.ToolName]tools.Executor{}, files: map[string][]byte{},
		user: tools.Principal{Tenant: Tenant, User: "ann", Roles: []specs.Role{"author"}},
	}}
	for _, o := range opts {
		o(&g.set)
	}
	for _, name := range g.set.fakes {
		g.set.executors[name] = FakeTool{Recorder: g.Effects}
	}
	ctx := context.Background()
	var err error
	g.Bundle, err = specs.LoadFiles([]specs.File{{Name: "bundle.yaml", Data: []byte(bundle)}}, specs.LoadOptions{Level: specs.PlatformLevel})
	g.must(err, "the bundle")
	_, err = celpolicy.Compile(g.Bundle)
	g.must(err, "the bundle")
	store, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "callgate.db"), sqlite.Options{})
	g.must(err, "the store")
	g.Store = store
	g.must(tools.ApplyBundle(ctx, store, g.set.user, g.Bundle), "apply the bundle")
	g.must(tools.ActivateBundle(ctx, store, g.set.user, g.Bundle.Digest, ""), "activate the bundle")
	g.Policies = tools.NewStoredPolicies(store)
	registry, err := tools.NewRegistry(workspace.Executors(), g.set.executors)
	g.must(err, "the registry")
	g.Dispatcher, err = tools.New(tools.Config{Store: store, Registry: registry, Policies: g.Policies, Host: g.Host})
	g.must(err, "the dispatcher")
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		if err := g.Dispatcher.Close(ctx); err != nil {
			t.Errorf("a tool never ended: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	run := g.start(nil, "")
	g.Scope = tools.Scope{Tenant: Tenant, Run: run.ID, Invocation: run.Root, Turn: 1}
	return g
}

func (g *Gate) must(err error, what string) {
	g.t.Helper()
	if err != nil {
		g.t.Fatalf("%s: %v", what, err)
	}
}

// runner makes a run loop that plays a model.
func (g *Gate) runner(m provider.Model) *agent.Runner {
	g.t.Helper()
	r, err := agent.New(agent.Config{Dispatcher: g.Dispatcher, Store: g.Store, Policies: g.Policies, Owner: "toolstest",
		Poll: 10 * time.Millisecond, ModelBackoff: time.Millisecond, Takeover: func(string) bool { return true },
		Models: func(context.Context, persistence.Run, *specs.Profile) (provider.Model, error) { return m, nil }})
	g.must(err, "the runner")
	return r
}

func (g *Gate) start(m provider.Model, task string) persistence.Run {
	g.t.Helper()
	run, err := g.runner(m).Start(context.Background(), agent.StartRequest{Tenant: Tenant, Bundle: g.Bundle.Digest, Profile: g.set.profile,
		Task: task, User: g.set.user, Chat: "chat", Files: g.set.files})
	g.must(err, "start a run")
	return run
}

// Play runs a script (see package scripted) as a whole run until it ends or waits for a person. Resume takes it up again.
func (g *Gate) Play(script string) (persistence.Run, agent.Outcome) {
	g.t.Helper()
	m, err := scripted.Load("script.yaml", []byte(script))
	g.must(err, "the script")
	run := g.start(m, "Play the script.")
	out, err := g.runner(m).Run(g.t.Context(), Tenant, run.ID)
	g.must(err, "play")
	return run, out
}

// Resume moves a run on, for example after Approve. Script is the one it was started with.
func (g *Gate) Resume(run persistence.Run, script string) agent.Outcome {
	g.t.Helper()
	m, err := scripted.Load("script.yaml", []byte(script))
	g.must(err, "the script")
	out, err := g.runner(m).Run(g.t.Context(), Tenant, run.ID)
	g.must(err, "resume")
	return out
}

// Propose makes a call as a model's whole turn and says what became of it. Args may be anything that marshals to JSON, or
// a json.RawMessage, which is sent as it is.
func (g *Gate) Propose(tool specs.ToolName, args any) tools.Proposal {
	g.t.Helper()
	raw, isRaw := args.(json.RawMessage)
	if !isRaw {
		var err error
		raw, err = json.Marshal(args)
		g.must(err, "the arguments")
	}
	g.mu.Lock()
	scope := g.Scope
	g.Scope.Turn++
	g.mu.Unlock()
	id := fmt.Sprintf("t%d", scope.Turn)
	ps, err := g.Dispatcher.Propose(g.t.Context(), scope, []tools.Call{{ID: id, Name: string(tool), Arguments: raw}}, tools.Rider{})
	g.must(err, "propose "+string(tool))
	return ps[0]
}

// Execute runs a proposed call, or gives the result it already has. A call that waits for a person fails the test.
func (g *Gate) Execute(p tools.Proposal) tools.Result {
	g.t.Helper()
	if p.Result != nil {
		return *p.Result
	}
	scope := g.Scope
	scope.Turn = p.Call.Turn
	r, err := g.Dispatcher.Execute(g.t.Context(), scope, p.Call.ID)
	g.must(err, "execute "+p.Call.Asked)
	return r
}

// Call makes a call and runs it. One that waits for a person fails the test: use Propose, Approve, Execute.
func (g *Gate) Call(tool specs.ToolName, args any) tools.Result {
	g.t.Helper()
	p := g.Propose(tool, args)
	if p.Call.State == machine.CallAwaitingApproval {
		g.t.Fatalf("%s waits for a person: %s", tool, p.Decision.Reason)
	}
	return g.Execute(p)
}

// Approve lets somebody say yes to the call's question.
func (g *Gate) Approve(id specs.ApprovalID, user specs.UserID, roles ...specs.Role) {
	g.t.Helper()
	_, err := g.Dispatcher.Decide(g.t.Context(), Tenant, tools.Ballot{Approval: id, Verdict: tools.BallotApprove, By: tools.Principal{Tenant: Tenant, User: user, Roles: roles}})
	g.must(err, "approve")
}

// Journal gives the lines of a run, in order.
func (g *Gate) Journal(run specs.RunID) []persistence.Line {
	g.t.Helper()
	lines, err := g.Store.Journal(g.t.Context(), Tenant, run, persistence.JournalQuery{Limit: 5000})
	g.must(err, "read the journal")
	return lines
}

// File reads a file of a run's workspace; ok is false when there is none.
func (g *Gate) File(run specs.RunID, path string) (text string, ok bool) {
	g.t.Helper()
	tree, err := g.Store.Tree(g.t.Context(), Tenant, persistence.RunTree(run), 0)
	g.must(err, "read the workspace")
	f, ok := tree.Files[path]
	if !ok {
		return "", false
	}
	data, err := g.Store.Blob(g.t.Context(), Tenant, f.Digest)
	g.must(err, "read "+path)
	return string(data), true
}
