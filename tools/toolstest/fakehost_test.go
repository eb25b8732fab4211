package toolstest_test

import (
	"testing"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/toolstest"
)

func TestFakeHostKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	h := &toolstest.FakeHost{}
	for _, tenant := range []specs.TenantID{"a", "b"} {
		if r, ok, err := h.Confirm(t.Context(), tenant, "c", "k"); ok || err != nil {
			t.Fatalf("%s: confirmed before it was committed: %+v %v", tenant, r, err)
		}
		c := tools.Commit{Tenant: tenant, Run: "r", Chat: "c", Key: "k", Mode: tools.CommitReplace, Content: "of " + string(tenant)}
		r, err := h.Commit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if again, ok, err := h.Confirm(t.Context(), tenant, "c", "k"); !ok || err != nil || again != r {
			t.Errorf("%s: %+v %v %v, want %+v", tenant, again, ok, err, r)
		}
		if ms := h.MessagesOf(tenant, "c"); len(ms) != 1 || ms[0].Text != c.Content {
			t.Errorf("%s: %+v", tenant, ms)
		}
	}
	if ms := h.Messages("c"); len(ms) != 2 {
		t.Errorf("%+v", ms)
	}
}
