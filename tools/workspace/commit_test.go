package workspace_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/toolstest"
	"github.com/callgate/callgate/tools/workspace"
)

func newChat(t *testing.T, files map[string]string) (*desk, *toolstest.FakeHost) {
	t.Helper()
	d := newT(t, files)
	host := &toolstest.FakeHost{}
	d.req.Host, d.req.Chat, d.req.Run = host, "chat", "run"
	return d, host
}

func expectChat(t *testing.T, host *toolstest.FakeHost, want ...string) {
	t.Helper()
	var got []string
	for _, m := range host.Messages("chat") {
		got = append(got, m.Text)
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("the chat holds %q, want %q", got, want)
	}
}

func TestCommitPublishesThroughTheHost(t *testing.T) {
	d, host := newChat(t, map[string]string{"output/main.md": "draft", "output/more.md": "+more"})
	d.req.IdempotencyKey = "k1"
	r := d.ok(workspace.Commit, obj{})
	if r.Signal != tools.SignalCommitted || !strings.Contains(text(r), "workspace_finish") {
		t.Errorf("result %+v", r)
	}
	expectChat(t, host, "draft")
	d.req.IdempotencyKey = "k2"
	d.ok(workspace.Commit, obj{"path": "output/more.md", "mode": "append"})
	expectChat(t, host, "draft+more")
	d.ok(workspace.Commit, obj{"path": "output/more.md", "mode": "append"}) // the same call again
	expectChat(t, host, "draft+more")
	d.req.IdempotencyKey = "k3"
	d.ok(workspace.Commit, obj{"path": "output/more.md", "mode": "replace", "reason": "shorter"})
	expectChat(t, host, "+more")
	d.req.IdempotencyKey, d.req.Run = "k4", "another run"
	d.ok(workspace.Commit, obj{"mode": "append"})
	expectChat(t, host, "+more", "draft")
	if d.tree.Version() != 1 {
		t.Error("a commit changed the workspace")
	}
}

func TestCommitRefuses(t *testing.T) {
	d, host := newChat(t, map[string]string{
		"output/empty.md": "", "output/big.md": strings.Repeat("x", workspace.MaxFileBytes+1), "output/binary": "\xff\xfe", "persist/x.md": "x",
	})
	d.visible = []string{"output"}
	d.refused(workspace.Commit, obj{}, workspace.CodeNotFound, "output/main.md", "workspace_write_file")
	d.refused(workspace.Commit, obj{"path": "output/empty.md"}, workspace.CodeEmptyCommit)
	d.refused(workspace.Commit, obj{"path": "output/big.md"}, workspace.CodeTooLarge)
	d.refused(workspace.Commit, obj{"path": "output/binary"}, workspace.CodeNotText)
	d.refused(workspace.Commit, obj{"path": "persist/x.md"}, workspace.CodeNotVisible)
	d.refused(workspace.Commit, obj{"mode": "prepend"}, tools.CodeInvalidArguments, "append")
	expectChat(t, host)
	d.visible, d.req.Host = nil, nil
	d.refused(workspace.Commit, obj{"path": "persist/x.md"}, tools.CodeSourceUnavailable, "kept")
}

// A lost acknowledgement is not a lost commit: the host is asked.
func TestCommitAsksWhenTheAnswerIsLost(t *testing.T) {
	d, host := newChat(t, map[string]string{"output/main.md": "draft"})
	host.LoseAcks = 1
	if r := d.ok(workspace.Commit, obj{}); r.Signal != tools.SignalCommitted {
		t.Errorf("result %+v", r)
	}
	expectChat(t, host, "draft")

	host.Refuse = errors.New("the chat is read-only")
	d.req.IdempotencyKey = "second"
	d.refused(workspace.Commit, obj{}, workspace.CodeCommitFailed, "read-only", "Nothing was published")

	host.Mute = errors.New("no answer")
	if r, err := d.try(workspace.Commit, obj{}); !errors.Is(err, host.Refuse) || !errors.Is(err, host.Mute) {
		t.Errorf("when nobody can say what became of it: %+v, %v", r, err)
	}
}

// When the call's time is over the host may still be at work, so the tool must not claim that nothing happened.
func TestCommitThatIsCutOffIsNotDeclaredUndone(t *testing.T) {
	d, _ := newChat(t, map[string]string{"output/main.md": "draft"})
	ctx, cancel := context.WithCancel(context.Background())
	req := d.req
	req.Host, req.Workspace, req.Args = cutOff{cancel}, d.tree.Open("root", nil, nil), json.RawMessage(`{}`)
	if r, err := executors[workspace.Commit].Execute(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
}

type cutOff struct{ cancel func() }

func (c cutOff) Commit(ctx context.Context, _ tools.Commit) (tools.Receipt, error) {
	c.cancel()
	return tools.Receipt{}, ctx.Err()
}

func (cutOff) Confirm(context.Context, specs.TenantID, string, string) (tools.Receipt, bool, error) {
	return tools.Receipt{}, false, nil
}

func TestCommitReconciles(t *testing.T) {
	d, host := newChat(t, map[string]string{"output/main.md": "draft"})
	rec, ok := executors[workspace.Commit].(tools.Reconciler)
	if !ok {
		t.Fatal("commit cannot be reconciled")
	}
	req := d.req
	req.Args, req.IdempotencyKey = json.RawMessage(`{"mode":"append"}`), "k"
	if r, happened, err := rec.Reconcile(t.Context(), req); happened || err != nil {
		t.Errorf("before: %+v, %v, %v", r, happened, err)
	}
	d.req.IdempotencyKey = "k"
	done := d.ok(workspace.Commit, obj{"mode": "append"})
	r, happened, err := rec.Reconcile(t.Context(), req)
	if !happened || err != nil || string(r.Structured) != string(done.Structured) || r.Signal != tools.SignalCommitted {
		t.Errorf("after: %+v, %v, %v; the call said %+v", r, happened, err, done)
	}
	host.Mute = errors.New("no answer")
	if _, _, err := rec.Reconcile(t.Context(), req); !errors.Is(err, host.Mute) {
		t.Errorf("mute host: %v", err)
	}
	req.Host = nil
	if _, _, err := rec.Reconcile(t.Context(), req); err == nil {
		t.Error("without a host it claims to know")
	}
}

func TestFinish(t *testing.T) {
	d := newT(t, map[string]string{"output/main.md": "x"})
	writer := &specs.Profile{Output: specs.Output{Artifacts: []specs.Artifact{
		{ID: "main", Path: "output/main.md", Required: true}, {ID: "notes", Path: "plan/notes.md", Required: true}, {ID: "extra", Path: "plan/extra.md"},
	}}}
	d.refused(workspace.Finish, obj{}, workspace.CodeCommitRequired, "workspace_commit") // no profile: the careful reading
	d.req.Profile = writer
	d.refused(workspace.Finish, obj{}, workspace.CodeCommitRequired)
	d.req.Commits = 1
	d.refused(workspace.Finish, obj{"reason": "done"}, workspace.CodeArtifactMissing, "plan/notes.md")
	d.tree.Put("plan/notes.md", "n")
	if r := d.ok(workspace.Finish, obj{"reason": "done"}); r.Signal != tools.SignalFinish {
		t.Errorf("result %+v", r)
	}
	writer.Run.Presentation, d.req.Commits = specs.Background, 0
	if r := d.ok(workspace.Finish, obj{}); r.Signal != tools.SignalFinish {
		t.Errorf("result %+v", r)
	}
	d.refused(workspace.Finish, obj{"reason": strings.Repeat("x", 2001)}, tools.CodeInvalidArguments, "reason")
}

// W6, the part of this family: only finish signals the end, which promotes persist/; a write there stays in the run.
func TestW6_OnlyFinishSignalsTheEnd(t *testing.T) {
	d, host := newChat(t, map[string]string{"persist/MEMORY.md": "stable", "output/main.md": "x"})
	host.Refuse = errors.New("no")
	d.read("persist/MEMORY.md")
	for _, r := range []tools.Result{
		d.call(workspace.WriteFile, obj{"path": "persist/MEMORY.md", "content": "changed"}),
		d.call(workspace.ApplyPatch, obj{"path": "persist/MEMORY.md", "old_string": "changed", "new_string": "again"}),
		d.call(workspace.Rollback, obj{"checkpoint": "1"}), d.call(workspace.CreateCheckpoint, obj{}),
		d.call(workspace.ListFiles, obj{}), d.call(workspace.SearchFiles, obj{"query": "x"}), d.call(workspace.Commit, obj{}),
		d.call(workspace.Finish, obj{}), // refused: nothing committed
	} {
		if r.Signal == tools.SignalFinish || r.Signal == tools.SignalCommitted {
			t.Errorf("%+v signals %d", r, r.Signal)
		}
	}
}
