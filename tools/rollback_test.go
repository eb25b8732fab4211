package tools_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/tools"
)

// rolledBack gives the payloads of the run's workspace_rolled_back lines.
func (r *rig) rolledBack() (out []string) {
	for _, l := range r.journal() {
		if l.Kind == persistence.KindRolledBack {
			out = append(out, string(l.Payload))
		}
	}
	return out
}

// Whoever rolls a workspace back, the journal says to which version, and as which one it now stands.
func TestARollbackIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, `
apiVersion: callgate/v1
kind: Policy
metadata: {name: freely}
spec: {layer: platform, rules: [{name: back, tools: [workspace.rollback], effect: waive}]}
`)
	r.execute(r.one("workspace.write_file", write("output/a.md", "one")))
	r.execute(r.one("workspace.write_file", write("output/b.md", "two")))
	back := func(to string) tools.Result {
		t.Helper()
		p := r.one("workspace.rollback", fmt.Sprintf(`{"checkpoint":%q,"reason":"n"}`, to))
		if p.Approval != nil {
			r.decide(p, bob, tools.BallotApprove)
		}
		return r.execute(p)
	}
	if res := back("9"); !res.IsError || len(r.rolledBack()) != 0 {
		t.Fatalf("a rollback that was refused is told: %v %+v", r.rolledBack(), res)
	}
	if res := back("1"); res.IsError {
		t.Fatalf("%+v", res)
	}
	if got := r.rolledBack(); len(got) != 1 || got[0] != `{"as":3,"version":1}` {
		t.Errorf("the tool's rollback: %v", got)
	}
	if tree := r.tree(); tree.Version != 3 || len(tree.Files) != 1 {
		t.Errorf("%+v", tree)
	}
	if res := back("1"); res.IsError { // twice is once, and is told all the same
		t.Fatalf("%+v", res)
	}
	if got := r.rolledBack(); len(got) != 2 || got[1] != fmt.Sprintf(`{"as":%d,"version":1}`, r.tree().Version) {
		t.Errorf("a rollback with nothing to do: %v, tree at %d", got, r.tree().Version)
	}
	lease, err := r.store.Acquire(r.ctx, tenant, r.scope.Run, "ann", time.Minute, nil)
	r.must(err)
	done, err := tools.RollbackRun(r.ctx, r.store, lease, ann, 2)
	r.must(err)
	if got := r.rolledBack(); len(got) != 3 || got[2] != fmt.Sprintf(`{"as":%d,"by":"ann","version":2}`, done.Version) {
		t.Errorf("a person's rollback: %v", got)
	}
	r.verify()
}
