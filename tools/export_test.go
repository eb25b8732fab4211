package tools

import (
	"context"

	"github.com/callgate/callgate/persistence"
)

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
