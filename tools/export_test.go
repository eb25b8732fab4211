package tools

import (
	"context"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Unreachable names an ask that nobody can answer, or "".
func Unreachable(asks []celpolicy.Ask, requester specs.UserID) specs.RuleID {
	return unreachable(asks, requester)
}

// OpenView and CommitView let the workspace kit prove the view that calls are given.
func (d *Dispatcher) OpenView(ctx context.Context, s Scope) (Workspace, error) {
	return d.newView(ctx, &scene{Scope: s})
}

func (d *Dispatcher) CommitView(ctx context.Context, s Scope, ws Workspace) error {
	tree, blobs, reads := ws.(*view).change("test", "", s.Invocation)
	ch := persistence.Change{Tenant: s.Tenant, Run: s.Run, Key: uniqueKey("view", ""), Blobs: blobs, Reads: reads,
		Lines: []persistence.Entry{{Kind: persistence.KindNote}}}
	if tree != nil {
		ch.Trees = []persistence.TreeChange{*tree}
	}
	_, err := d.store.Apply(ctx, ch)
	return err
}
