package tools_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/tools"
)

// A tool that lost its answer and could not ask again says so, and the call waits for a person instead of being called failed.
func TestCase_D07_AToolThatCannotTellLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.on("act.once", func(context.Context, tools.Request) (tools.Result, error) {
		return tools.Result{}, fmt.Errorf("send: %w (%w)", tools.ErrOutcomeUnknown, errors.New("connection reset"))
	})
	p := r.one("act.once", `{"to":"x"}`)
	if _, err := r.d.Execute(r.ctx, r.scope, p.Call.ID); !errors.Is(err, tools.ErrOutcomeUnknown) {
		t.Fatalf("execute: %v, want ErrOutcomeUnknown", err)
	}
	r.state(p, machine.CallOutcomeUnknown)
	r.verify()
}
