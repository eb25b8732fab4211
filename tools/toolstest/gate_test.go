package toolstest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/toolstest"
	"github.com/callgate/callgate/tools/workspace"
)

const bundle = `
apiVersion: callgate/v1
kind: Tenant
metadata: {name: test}
spec: {defaultProfile: writer}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: mail.send}
spec:
  title: Send mail
  description: Sends a mail.
  source: built_in
  inputSchema: {type: object, additionalProperties: false, required: [to], properties: {to: {type: string}}}
  annotations: {sideEffect: process, readOnly: false, destructive: false, idempotent: false}
---
apiVersion: callgate/v1
kind: Tool
metadata: {name: view.hold}
spec:
  title: Hold
  description: Holds its view of the workspace.
  source: built_in
  inputSchema: {type: object, additionalProperties: false, properties: {}}
  annotations: {sideEffect: workspace, readOnly: false, destructive: false, idempotent: false}
---
apiVersion: callgate/v1
kind: Policy
metadata: {name: floor}
spec:
  layer: platform
  rules:
    - {name: publish-freely, tools: [workspace.commit], effect: waive}
    - {name: no-evil, tools: [mail.send], when: 'args.to == "evil"', effect: deny, message: Not to evil.}
    - name: ask
      tools: [mail.send]
      when: 'args.to == "boss"'
      effect: approve
      approval: {approvers: {roles: [approver]}}
---
apiVersion: callgate/v1
kind: Profile
metadata: {name: writer}
spec:
  instructions: Write.
  model: {provider: scripted}
  tools: {allow: ["workspace.*", "mail.*", "view.*"]}
  delegation: {mayDelegateTo: [writer], mayBeCalledBy: [writer], delegableTools: ["view.*"]}
`

func TestCallsGoThroughTheWholeGate(t *testing.T) {
	t.Parallel()
	g := toolstest.New(t, bundle, toolstest.WithFake("mail.send"), toolstest.WithFiles(map[string]string{"plan/p.md": "plan"}))
	if r := g.Call("mail.send", map[string]string{"to": "bob"}); r.IsError {
		t.Errorf("result %+v", r)
	}
	if r := g.Call("mail.send", map[string]string{"to": "evil"}); r.ErrorCode != tools.CodeDenied {
		t.Errorf("result %+v", r)
	}
	if r := g.Call("mail.send", json.RawMessage(`{"to":`)); r.ErrorCode != tools.CodeInvalidArguments {
		t.Errorf("result %+v", r)
	}
	p := g.Propose("mail.send", map[string]string{"to": "boss"})
	if p.Call.State != machine.CallAwaitingApproval {
		t.Fatalf("the call is %s", p.Call.State)
	}
	g.Approve(p.Call.Approval, "bob", "approver")
	if r := g.Execute(p); r.IsError {
		t.Errorf("result %+v", r)
	}
	effects, err := g.Effects.Effects()
	if err != nil || len(effects) != 2 || string(effects[0].Args) != `{"to":"bob"}` || string(effects[1].Args) != `{"to":"boss"}` {
		t.Errorf("effects %+v, %v", effects, err)
	}
	if text, ok := g.File(g.Scope.Run, "plan/p.md"); !ok || text != "plan" {
		t.Errorf("the file is %q, %v", text, ok)
	}
}

const script = `
turns:
  - calls: [{tool: workspace.list_files}]
  - expect: {results: [{tool: workspace.list_files, error: none, contains: plan/p.md}]}
    calls:
      - {tool: workspace.write_file, args: {path: output/main.md, content: "Once upon a time."}}
      - {tool: mail.send, args: {to: boss}}
  - expect: {results: [{tool: workspace.write_file, error: none}, {tool: mail.send, error: none}]}
    calls: [{tool: workspace.commit}]
  - calls: [{tool: workspace.finish}]
`

func TestPlayAWholeRun(t *testing.T) {
	t.Parallel()
	g := toolstest.New(t, bundle, toolstest.WithFake("mail.send"), toolstest.WithFiles(map[string]string{"plan/p.md": "plan"}))
	run, out := g.Play(script)
	if len(out.Waiting) != 1 {
		t.Fatalf("outcome %+v", out)
	}
	g.Approve(out.Waiting[0].ID, "bob", "approver")
	if out = g.Resume(run, script); out.State != machine.RunCompleted {
		t.Fatalf("outcome %+v", out)
	}
	if got := g.Host.Messages("chat"); len(got) != 1 || got[0].Text != "Once upon a time." {
		t.Errorf("the chat holds %+v", got)
	}
	if effects, err := g.Effects.Effects(); err != nil || len(effects) != 1 {
		t.Errorf("effects %+v, %v", effects, err)
	}
	for i, l := range g.Journal(run.ID) {
		if l.Seq != int64(i+1) {
			t.Fatalf("line %d has the number %d", i+1, l.Seq)
		}
	}
}

// hold lets a test keep the workspace view of a running call and say when the call ends.
type hold struct {
	given chan tools.Workspace
	end   chan struct{}
}

// The view that the dispatcher hands to tools is a tools.Workspace like any other.
func TestTheDispatchersWorkspacePassesTheKit(t *testing.T) {
	t.Parallel()
	toolstest.RunWorkspace(t, func(t *testing.T) toolstest.WorkspaceUnderTest {
		var mu sync.Mutex
		holds := map[specs.CallID]hold{}
		byView := map[tools.Workspace]func() error{}
		take := tools.ExecutorFunc(func(ctx context.Context, req tools.Request) (tools.Result, error) {
			mu.Lock()
			h, first := holds[req.Call]
			delete(holds, req.Call)
			mu.Unlock()
			if !first { // the tree had moved on, so the dispatcher gives the tool a new view
				return tools.Recoverable("view.again", "The first view was stale."), nil
			}
			select {
			case h.given <- req.Workspace:
			case <-ctx.Done():
				return tools.Result{}, ctx.Err()
			}
			select {
			case <-h.end:
				return tools.Text("done"), nil
			case <-ctx.Done():
				return tools.Result{}, ctx.Err()
			}
		})
		g := toolstest.New(t, bundle, toolstest.WithTool("view.hold", transactional{take}))
		scopes := map[string]tools.Scope{}
		return toolstest.WorkspaceUnderTest{
			Open: func(t *testing.T, invocation string) tools.Workspace {
				t.Helper()
				if _, there := scopes[invocation]; !there {
					scopes[invocation] = invocationOf(t, g, invocation, len(scopes))
				}
				g.Scope.Invocation = scopes[invocation].Invocation
				p := g.Propose("view.hold", struct{}{})
				h := hold{make(chan tools.Workspace), make(chan struct{})}
				mu.Lock()
				holds[p.Call.ID] = h
				mu.Unlock()
				scope, done := g.Scope, make(chan error, 1)
				scope.Turn = p.Call.Turn
				go func() {
					r, err := g.Dispatcher.Execute(context.Background(), scope, p.Call.ID)
					if err == nil && r.IsError {
						err = errors.New(r.ErrorCode)
					}
					done <- err
					close(done)
				}()
				var once sync.Once
				finish := func() (err error) {
					once.Do(func() {
						close(h.end)
						select {
						case err = <-done:
						case <-time.After(10 * time.Second):
							err = errors.New("the call does not end")
						}
					})
					return err
				}
				t.Cleanup(func() { _ = finish() })
				select {
				case ws := <-h.given:
					byView[ws] = finish
					return ws
				case err := <-done:
					t.Fatalf("the call ended by itself: %v", err)
				case <-time.After(10 * time.Second):
					t.Fatal("the call does not start")
				}
				return nil
			},
			Commit: func(_ *testing.T, ws tools.Workspace) error { return byView[ws]() },
		}
	})
}

type transactional struct{ tools.Executor }

func (transactional) Transactional() {}

// invocationOf gives the run's root for the first name, and one more invocation for every other.
func invocationOf(t *testing.T, g *toolstest.Gate, name string, n int) tools.Scope {
	t.Helper()
	scope := g.Scope
	if n == 0 {
		return scope
	}
	inv := persistence.Invocation{ID: specs.InvocationID("other-" + name), Kind: persistence.InvocationSubagent, Parent: scope.Invocation, Profile: "writer", Depth: 1}
	_, err := g.Store.Apply(t.Context(), persistence.Change{Tenant: toolstest.Tenant, Run: scope.Run, Key: "invocation/" + name, Lines: []persistence.Entry{
		{Kind: machine.Invocation().Birth().Journal, Invocation: inv.ID, Move: &persistence.Move{Step: machine.Invocation().Birth(), Record: &inv}}}})
	if err != nil {
		t.Fatal(err)
	}
	scope.Invocation = inv.ID
	return scope
}

// The workspace family over the real store: what a tool reported is what the store holds, in one journal line (W8).
func TestW8_WorkspaceOverTheStore(t *testing.T) {
	t.Parallel()
	g := toolstest.New(t, bundle)
	for i := range 3 {
		r := g.Call(workspace.WriteFile, map[string]string{"path": "output/main.md", "content": fmt.Sprint("text ", i)})
		var said struct{ SHA256, Checkpoint string }
		if err := json.Unmarshal(r.Structured, &said); err != nil || r.IsError {
			t.Fatalf("%+v, %v", r, err)
		}
		tree, err := g.Store.Tree(t.Context(), toolstest.Tenant, persistence.RunTree(g.Scope.Run), 0)
		if err != nil || string(tree.Files["output/main.md"].Digest) != "sha256:"+said.SHA256 || fmt.Sprint(tree.Version) != said.Checkpoint {
			t.Errorf("stored %+v, said %+v, %v", tree, said, err)
		}
	}
	checkpoints := 0
	for _, l := range g.Journal(g.Scope.Run) {
		if l.Kind == persistence.KindCheckpoint {
			checkpoints++
		}
	}
	if checkpoints != 3 {
		t.Errorf("%d checkpoint lines for 3 writes", checkpoints)
	}
	r := g.Call(workspace.ApplyPatch, map[string]string{"path": "output/main.md", "old_string": "text", "new_string": "TEXT"})
	for _, c := range r.Content {
		if c.Type == tools.ContentDiffRef {
			if c.Ref == "" {
				t.Errorf("the diff has no ref: %+v", c)
			}
			return
		}
	}
	t.Errorf("no diff in %+v", r)
}

func TestRecordersCountEveryEffect(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]toolstest.Recorder{
		"memory": &toolstest.MemoryRecorder{}, "file": toolstest.FileRecorder{Path: filepath.Join(t.TempDir(), "effects.jsonl")},
	} {
		if n, err := toolstest.Count(r, "k1"); n != 0 || err != nil {
			t.Errorf("%s: %d, %v before any effect", name, n, err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if err := r.Record(toolstest.Effect{Tool: "x", Key: fmt.Sprint("k", i%2), Args: json.RawMessage(`{"n":9007199254740993}`)}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n, err := toolstest.Count(r, "k1"); n != 10 || err != nil {
			t.Errorf("%s: %d, %v; want 10", name, n, err)
		}
	}
}

func TestFakeTools(t *testing.T) {
	t.Parallel()
	rec := &toolstest.MemoryRecorder{}
	req := tools.Request{IdempotencyKey: "k"}
	failing := &toolstest.FailingTool{Recorder: rec, Err: errors.New("broken"), Times: 2}
	for i, want := range []bool{true, true, false} {
		if _, err := failing.Execute(t.Context(), req); (err != nil) != want {
			t.Errorf("try %d: %v", i+1, err)
		}
	}
	if n, err := toolstest.Count(rec, "k"); n != 3 || err != nil {
		t.Errorf("%d effects, %v", n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := (toolstest.SlowTool{Delay: time.Hour}).Execute(ctx, req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow tool that listens: %v", err)
	}
	deaf := toolstest.SlowTool{Delay: 20 * time.Millisecond, Deaf: true}
	if r, err := deaf.Execute(context.WithoutCancel(ctx), req); err != nil || r.IsError {
		t.Errorf("a deaf tool: %+v, %v", r, err)
	}
	rt := toolstest.ReconcilingTool{FakeTool: toolstest.FakeTool{Recorder: rec}}
	if _, happened, err := rt.Reconcile(t.Context(), req); !happened || err != nil {
		t.Errorf("reconcile: %v, %v", happened, err)
	}
	req.IdempotencyKey = "never"
	if _, happened, err := rt.Reconcile(t.Context(), req); happened || err != nil {
		t.Errorf("reconcile of what never happened: %v, %v", happened, err)
	}
}
