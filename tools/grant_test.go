package tools_test

import (
	"errors"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/tools"
)

// granted answers a question with "yes, and remember".
func (r *rig) granted(name, args string) persistence.Grant {
	r.t.Helper()
	b := ballot(r.one(name, args).Call.Approval, bob)
	b.Scope = tools.ScopeGrant
	_, err := r.d.Decide(r.ctx, tenant, b)
	r.must(err)
	grants, err := r.store.Grants(r.ctx, tenant, "")
	r.must(err)
	if len(grants) == 0 {
		r.t.Fatal("nothing was remembered")
	}
	return grants[len(grants)-1]
}

// "Yes, and remember" is a row of its own: the authored policy stays what it was, byte for byte, and taking the row back brings
// the question back.
func TestCase_E32_AGrantIsItsOwnRowAndNeverRewritesPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, people)
	run, err := r.store.Run(r.ctx, tenant, r.scope.Run)
	r.must(err)
	before, err := r.policies.Pinned(r.ctx, tenant, run.Bundle)
	r.must(err)
	first, second := r.granted("act.ask", `{"to":"x"}`), r.granted("act.ask", `{"to":"y"}`)
	if first.ID == second.ID {
		t.Fatal("one yes took the other's place")
	}
	if q := r.one("act.ask", `{"to":"x"}`); q.Approval != nil || q.Decision.PolicyDigest != run.Bundle {
		t.Fatalf("the remembered yes does not hold, or the policy is another: %+v", q.Decision)
	}
	after, err := r.policies.Pinned(r.ctx, tenant, run.Bundle)
	r.must(err)
	if after.Bundle.Digest != before.Bundle.Digest || after.Bundle.Digest != run.Bundle {
		t.Error("a remembered yes changed the bundle")
	}
	if stored, err := r.store.Bundles(r.ctx, tenant); err != nil || len(stored) != 0 {
		t.Errorf("a remembered yes wrote a bundle: %v %v", stored, err)
	}

	waiting := r.one("act.ask", `{"to":"x"}`) // ready, because of the grant, and not started yet
	r.must(r.d.RevokeGrant(r.ctx, cleo, first.ID))
	r.must(r.d.RevokeGrant(r.ctx, bob, first.ID)) // once more is once
	if _, err := r.d.Execute(r.ctx, r.scope, waiting.Call.ID); !errors.Is(err, tools.ErrWaiting) {
		t.Errorf("a call that only the revoked yes let through: %v", err)
	}
	r.wantEffects(waiting, 0)
	if q := r.one("act.ask", `{"to":"x"}`); q.Approval == nil || q.Call.State != machine.CallAwaitingApproval {
		t.Error("the question does not come back")
	}
	if q := r.one("act.ask", `{"to":"y"}`); q.Approval != nil {
		t.Error("revoking one grant took the other with it")
	}
	for _, id := range []string{"", "nobody", string(make([]byte, 300))} {
		if err := r.d.RevokeGrant(r.ctx, bob, id); !errors.Is(err, persistence.ErrNotFound) {
			t.Errorf("revoke %q: %v", id, err)
		}
	}
	if err := r.d.RevokeGrant(r.ctx, tools.Principal{Tenant: "elsewhere", User: "eve"}, second.ID); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("another tenant's grant: %v", err)
	}
	told := 0
	lines, err := r.store.Journal(r.ctx, tenant, "", persistence.JournalQuery{Kinds: []string{persistence.KindGrantRevoked}})
	r.must(err)
	for _, l := range lines {
		if l.Related == first.ID {
			told++
		}
	}
	if told != 1 || len(lines) != 1 {
		t.Errorf("the tenant's journal tells %d revocations, %d of this grant", len(lines), told)
	}
	r.verify()
}
