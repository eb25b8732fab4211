package tools_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/toolstest"
)

func TestViewIsAWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bundle := houseDigest(t)
	toolstest.RunWorkspace(t, func(t *testing.T) toolstest.WorkspaceUnderTest {
		s := r.newRun(bundle)
		return toolstest.WorkspaceUnderTest{
			Open: func(t *testing.T, invocation string) tools.Workspace {
				own := s
				own.Invocation = specs.InvocationID(invocation)
				ws, err := r.d.OpenView(t.Context(), own)
				if err != nil {
					t.Fatal(err)
				}
				views.Store(ws, own)
				return ws
			},
			Commit: func(t *testing.T, ws tools.Workspace) error {
				own, _ := views.Load(ws)
				return r.d.CommitView(t.Context(), own.(tools.Scope), ws)
			},
		}
	})
}

var views sync.Map // of an open view: its scope

func houseDigest(t *testing.T) specs.Digest {
	c, err := houseCompiled()
	if err != nil {
		t.Fatal(err)
	}
	return c.Bundle.Digest
}

func write(path, content string) string {
	raw, _ := json.Marshal(map[string]string{"path": path, "content": content})
	return string(raw)
}

func (r *rig) tree() persistence.Tree {
	r.t.Helper()
	tree, err := r.store.Tree(r.ctx, tenant, persistence.RunTree(r.scope.Run), 0)
	r.must(err)
	return tree
}

func TestW8_EveryMutationHasACheckpointWithItsDigest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.execute(r.one("workspace.write_file", write("output/a.md", "one")))
	r.execute(r.one("workspace.read_file", `{"path":"output/a.md"}`))
	r.execute(r.one("workspace.apply_patch", `{"path":"output/a.md","old_string":"one","new_string":"two"}`))
	refused := r.execute(r.one("workspace.apply_patch", `{"path":"output/a.md","old_string":"nope","new_string":"x"}`))
	if !refused.IsError {
		t.Fatalf("%+v", refused)
	}
	var versions []int64
	for _, l := range r.journal() {
		if l.Kind != persistence.KindCheckpoint {
			continue
		}
		var n struct {
			Version int64 `json:"version"`
			Files   []struct{ Path, SHA256 string }
		}
		r.must(json.Unmarshal(l.Payload, &n))
		tree, err := r.store.Tree(r.ctx, tenant, persistence.RunTree(r.scope.Run), n.Version)
		r.must(err)
		for _, f := range n.Files {
			if tree.Files[f.Path].Digest != specs.Digest("sha256:"+f.SHA256) {
				t.Errorf("version %d: %s is %s, the line says %s", n.Version, f.Path, tree.Files[f.Path].Digest, f.SHA256)
			}
		}
		versions = append(versions, n.Version)
	}
	if fmt.Sprint(versions) != "[1 2]" || r.tree().Version != 2 {
		t.Errorf("checkpoints %v, tree at %d", versions, r.tree().Version)
	}
	r.verify()
}

func TestW3_TwoWritersNeverLoseAnEdit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.execute(r.one("workspace.write_file", write("output/log.md", "")))
	var calls []tools.Call
	for i := range 6 {
		raw, _ := json.Marshal(map[string]string{"path": "output/log.md", "content": fmt.Sprintf("%d\n", i), "mode": "append"})
		calls = append(calls, call(fmt.Sprint(i), "workspace.write_file", string(raw)))
	}
	var wg sync.WaitGroup
	for _, p := range r.propose(calls...) {
		wg.Go(func() {
			for range 10 { // a workspace that keeps moving is said to be busy; the model tries again, and so do we
				if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); !errors.Is(err, persistence.ErrStale) {
					return
				}
			}
		})
	}
	wg.Wait()
	data, err := r.store.Blob(r.ctx, tenant, r.tree().Files["output/log.md"].Digest)
	r.must(err)
	done := 0
	cs, err := r.store.Calls(r.ctx, tenant, r.scope.Run)
	r.must(err)
	for _, c := range cs[1:] {
		if c.State == machine.CallCompleted {
			done++
		} else if c.ErrorCode != "workspace.busy" {
			t.Errorf("%s %s", c.State, c.ErrorCode)
		}
	}
	if n := strings.Count(string(data), "\n"); n != done || done == 0 {
		t.Errorf("%d appends succeeded, %d are in the file:\n%s", done, n, data)
	}
	r.verify()
}

func TestW3_ATreeThatMovedUnderTheCallIsReadAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.execute(r.one("workspace.write_file", write("output/a.md", "mine")))
	p := r.one("workspace.write_file", write("output/a.md", "mine too"))
	var moved atomic.Bool
	r.store.hook(func(_ int, c persistence.Change) error {
		if strings.HasPrefix(c.Key, "end/") && moved.CompareAndSwap(false, true) {
			other := r.scope
			other.Invocation = "somebody-else"
			ws, err := r.d.OpenView(r.ctx, other)
			r.must(err)
			ws.Write("output/a.md", []byte("theirs"))
			return r.d.CommitView(r.ctx, other, ws)
		}
		return nil
	}, nil)
	res := r.execute(p)
	wantCode(t, &res, "workspace.stale_file")
	data, err := r.store.Blob(r.ctx, tenant, r.tree().Files["output/a.md"].Digest)
	if err != nil || string(data) != "theirs" {
		t.Errorf("%q %v", data, err)
	}
	r.verify()
}

func TestACrashedWorkspaceCallIsDoneOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("workspace.write_file", write("output/a.md", "x"))
	r.crashIn(p)
	if len(r.tree().Files) != 0 {
		t.Fatal("an edit without its outcome")
	}
	r.d = r.dispatcher()
	r.must(r.d.Recover(r.ctx, r.scope))
	if res := r.execute(p); res.IsError {
		t.Errorf("%+v", res)
	}
	if tree := r.tree(); tree.Version != 1 || len(tree.Files) != 1 {
		t.Errorf("%+v", tree)
	}
	r.verify()
}

func TestCancelledRunKeepsNoEditOfARunningCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("workspace.write_file", write("output/a.md", "x"))
	var once atomic.Bool
	r.store.hook(func(_ int, c persistence.Change) error {
		if strings.HasPrefix(c.Key, "end/") && once.CompareAndSwap(false, true) {
			return r.d.CancelRun(r.ctx, ann, r.scope.Run)
		}
		return nil
	}, nil)
	// The run loop moves the run in the same commit, so the cancel is noticed.
	h := tools.Hooks{Done: func(e tools.Ending) tools.Rider {
		run, err := r.store.Run(r.ctx, tenant, r.scope.Run)
		r.must(err)
		run.State = machine.RunCreated
		step, err := machine.Run().Fire(machine.RunCreated, machine.RunInitialize)
		r.must(err)
		return tools.Rider{After: []persistence.Entry{{Move: &persistence.Move{Step: step, Record: &run}}}}
	}}
	res, err := r.d.ExecuteWith(r.ctx, r.scope, p.Call.ID, h)
	r.must(err)
	wantCode(t, &res, tools.CodeCancelled)
	if len(r.tree().Files) != 0 {
		t.Error("a cancelled run got another edit")
	}
	r.state(p, machine.CallCancelled)
	r.verify()
}

func TestHooksRideInTheSameCommits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.one("workspace.write_file", write("output/a.md", "x"))
	var ending tools.Ending
	h := tools.Hooks{
		Start: func(c persistence.Call) tools.Rider {
			return tools.Rider{After: []persistence.Entry{{Kind: persistence.KindNote, Payload: json.RawMessage(`{"at":"start"}`)}}}
		},
		Done: func(e tools.Ending) tools.Rider {
			ending = e
			return tools.Rider{After: []persistence.Entry{{Kind: persistence.KindCheckpoint}, {Kind: persistence.KindNote}}}
		},
	}
	r.store.hook(nil, nil)
	_, err := r.d.ExecuteWith(r.ctx, r.scope, p.Call.ID, h)
	r.must(err)
	if r.store.applies() != 2 || ending.Tree == nil || !ending.Started || ending.Event != machine.CallComplete {
		t.Errorf("%d commits, %+v", r.store.applies(), ending)
	}
	checkpoints := 0
	for _, l := range r.journal() {
		if l.Kind == persistence.KindCheckpoint {
			checkpoints++
			if !strings.Contains(string(l.Payload), "output/a.md") || l.Call != p.Call.ID {
				t.Errorf("%+v", l)
			}
		}
	}
	if checkpoints != 1 {
		t.Errorf("%d checkpoint lines", checkpoints)
	}
	r.verify()
}

func TestCommitReachesTheChatOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.execute(r.one("workspace.write_file", write("output/main.md", "hello")))
	p := r.one("workspace.commit", `{}`)
	if p.Approval != nil {
		r.decide(p, bob, tools.BallotApprove)
	}
	r.crashIn(p)
	r.d = r.dispatcher()
	r.must(r.d.Recover(r.ctx, r.scope))
	res, err := r.d.Execute(r.ctx, r.scope, p.Call.ID)
	r.must(err)
	if res.IsError {
		t.Errorf("%+v", res)
	}
	if ms := r.host.Messages("chat-1"); len(ms) != 1 {
		t.Errorf("%d messages: %+v", len(ms), ms)
	}
	if !hasKind(r.journal(), persistence.KindCommitted) {
		t.Error("the journal does not say that a commit reached the chat")
	}
	r.verify()
}

// Wherever the process dies, at any of its writes, before or after the write lands: a reader finds the old file or the new one, whole,
// and whoever takes the run up brings it to the new one.
func TestW4_AFileIsOldOrNewWhereverTheProcessDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bundle := houseDigest(t)
	const before, after = "the old text, whole", "the new text, whole"
	patch, _ := json.Marshal(map[string]string{"path": "output/a.md", "old_string": "old", "new_string": "new"})
	for name, args := range map[string]string{"workspace.write_file": write("output/a.md", after), "workspace.apply_patch": string(patch)} {
		cuts := 0
		for at := 1; at <= cuts+1; at++ { // one beyond the last write, so that all of them were tried
			for _, lands := range []bool{false, true} {
				r.store.hook(nil, nil)
				r.scope = r.newRun(bundle)
				r.execute(r.one("workspace.write_file", write("output/a.md", before)))
				scope, seen := r.scope, map[string]bool{}
				look := func(when string) {
					data, err := r.store.Blob(r.ctx, tenant, r.tree().Files["output/a.md"].Digest)
					if err != nil || string(data) != before && string(data) != after {
						t.Errorf("%s, write %d (landed: %v), %s: the file is %q, %v", name, at, lands, when, data, err)
					}
					if seen[after] && string(data) == before {
						t.Errorf("%s, write %d (landed: %v), %s: the old file is back", name, at, lands, when)
					}
					seen[string(data)] = true
				}
				cut := false
				r.store.hook(func(n int, _ persistence.Change) error {
					look("before")
					if n == at && !lands {
						cut = true
						return errCut
					}
					return nil
				}, func(n int, _ persistence.Change) error {
					look("after")
					if n == at && lands {
						cut = true
						return errCut
					}
					return nil
				})
				ps := r.turnThrough(scope, []tools.Call{call("w", name, args)}, at%2 == 0)
				if cut {
					cuts = at
				}
				r.store.hook(nil, nil)
				look("at the end")
				if c := r.call(ps[0].Call.ID); !seen[before] || !seen[after] || c.State != machine.CallCompleted {
					t.Errorf("%s, write %d (landed: %v): seen %v, the call is %s: %s", name, at, lands, seen, c.State, c.Reason)
				}
				if tree := r.tree(); tree.Version != 2 {
					t.Errorf("%s, write %d (landed: %v): written %d times", name, at, lands, tree.Version-1)
				}
				r.verify()
			}
		}
		if cuts < 2 {
			t.Errorf("%s: only %d writes were cut", name, cuts)
		}
	}
}
