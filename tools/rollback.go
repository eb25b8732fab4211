package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Restored says what a rollback did.
type Restored struct {
	Version int64    // the new version, which has the files of the old one
	Written []string // paths that have their old content again, sorted
	Removed []string // paths that the old version did not have, sorted
}

// rollbackNote is the payload of workspace_rolled_back.
type rollbackNote struct {
	Version int64        `json:"version"`      // gone back to
	As      int64        `json:"as"`           // the version that has its files now
	By      specs.UserID `json:"by,omitempty"` // empty: the agent, by its tool
}

// RollbackRun makes a run's workspace what it was in a version: exactly its files, and the absence of those it did not have,
// as a new version. A person does this from outside; the agent's own way is the tool workspace.rollback. The caller holds the
// run's lease, so that nobody is at work on the files, and what agents know of the changed files is stale afterwards.
// Errors: ErrRunEnded, persistence.ErrNotFound for a version that does not exist, persistence.ErrCorrupt when content of
// it is lost (nothing was changed then), or one of Apply.
func RollbackRun(ctx context.Context, store persistence.Store, lease persistence.Lease, by Principal, version int64) (Restored, error) {
	var r Restored
	run, err := store.Run(ctx, by.Tenant, lease.Run)
	if err != nil {
		return r, err
	}
	if machine.Run().IsFinal(run.State) {
		return r, fmt.Errorf("run %s is %s: %w", run.ID, run.State, ErrRunEnded)
	}
	id := persistence.RunTree(run.ID)
	now, err := store.Tree(ctx, by.Tenant, id, 0)
	if err != nil {
		return r, err
	}
	if version < 1 || version > now.Version {
		return r, fmt.Errorf("version %d of 1 to %d: %w", version, now.Version, persistence.ErrNotFound)
	}
	then, err := store.Tree(ctx, by.Tenant, id, version)
	if err != nil {
		return r, err
	}
	change := persistence.TreeChange{Tree: id, Base: now.Version,
		Checkpoint: persistence.Checkpoint{Reason: clip(fmt.Sprintf("rollback to %d by %s", version, by.User), 200)}}
	for path, f := range then.Files {
		// Every byte is read before anything is switched: a version that cannot be had whole is not restored in part.
		if _, err := store.Blob(ctx, by.Tenant, f.Digest); err != nil {
			return r, fmt.Errorf("%s of version %d: %w", path, version, err)
		}
		if was, ok := now.Files[path]; !ok || was.Digest != f.Digest {
			change.Edits = append(change.Edits, persistence.TreeEdit{Path: path, Digest: f.Digest, Size: f.Size})
			r.Written = append(r.Written, path)
		}
	}
	for path := range now.Files {
		if _, ok := then.Files[path]; !ok {
			change.Edits = append(change.Edits, persistence.TreeEdit{Path: path})
			r.Removed = append(r.Removed, path)
		}
	}
	slices.Sort(r.Written)
	slices.Sort(r.Removed)
	slices.SortFunc(change.Edits, func(a, b persistence.TreeEdit) int { return strings.Compare(a.Path, b.Path) })
	note, rest, err := noteCheckpoint(&change)
	if err != nil {
		return r, err
	}
	rolled, err := json.Marshal(rollbackNote{Version: version, As: note.Version, By: by.User})
	if err != nil {
		return r, err
	}
	saved, err := json.Marshal(note)
	if err != nil {
		return r, err
	}
	key, err := uuid.NewV7()
	if err != nil {
		return r, fmt.Errorf("no randomness: %w", err)
	}
	c := persistence.Change{Tenant: by.Tenant, Run: run.ID, Key: "rollback/" + key.String(), Fence: lease.Fence,
		Lines: []persistence.Entry{
			{Kind: persistence.KindRolledBack, Payload: rolled, Invocation: run.Root},
			{Kind: persistence.KindCheckpoint, Payload: saved, Invocation: run.Root},
		},
		Trees: []persistence.TreeChange{change}}
	if rest != nil {
		c.Blobs = append(c.Blobs, *rest)
	}
	done, err := store.Apply(ctx, c)
	if err != nil {
		return r, err
	}
	r.Version = done.Versions[0]
	return r, nil
}
