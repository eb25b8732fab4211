package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/tools"
)

// end ends the run because of a failure: partially successful when a commit is in the chat, else failed. A run that was
// cancelled meanwhile is left to the loop, which ends it as cancelled.
func (s *shift) end(ctx context.Context, f *failure) error {
	var err error
	for range maxStale {
		run, loadErr := s.load(ctx)
		if loadErr != nil {
			return loadErr
		}
		if run.State == machine.RunCancelling || machine.Run().IsFinal(run.State) {
			return nil
		}
		calls, loadErr := s.c.Store.Calls(ctx, s.tenant, s.id)
		if loadErr != nil {
			return loadErr
		}
		run.Commits = max(run.Commits, confirmed(calls))
		ev := machine.RunFail
		if run.Commits > 0 {
			if _, illegal := machine.Run().Fire(run.State, machine.RunSucceedPartially); illegal == nil {
				ev = machine.RunSucceedPartially
			}
		}
		if err = s.close(ctx, run, ev, f, closing{}); !errors.Is(err, persistence.ErrStale) {
			return err
		}
	}
	return err
}

// maxReason bounds what a journal line says about why a run ended, in bytes.
const maxReason = 4000

// closing is what else is written when a run ends.
type closing struct {
	lines []persistence.Entry
	trees []persistence.TreeChange
	blobs []persistence.Blob
}

// close ends the run and everything in it with one Apply: calls, approvals, invocations, reservations, and last the run.
func (s *shift) close(ctx context.Context, run persistence.Run, ev machine.Event, f *failure, more closing) error {
	reason := "the run is over"
	change := persistence.Change{Trees: more.trees, Blobs: more.blobs}
	st := begin(run)
	if f != nil {
		reason = clip(f.reason, maxReason)
		st.lines = append(st.lines, f.lines...)
		change.Blobs = append(change.Blobs, f.blobs...)
		st.run.Reason, st.run.ErrorCode, st.run.Retryable = reason, f.code, f.retryable
		if ev == machine.RunCancel {
			st.run.ErrorCode = ""
		}
	}
	st.lines = append(st.lines, more.lines...)
	entries, settlements, err := s.c.Dispatcher.ClosingEntries(ctx, s.tenant, s.id, reason)
	if err != nil {
		return err
	}
	change.Settle = settlements
	st.lines = append(st.lines, entries...)
	if err := s.closeRoot(ctx, st, ev); err != nil {
		return err
	}
	payload := map[string]any{"rounds": run.Round, "commits": st.run.Commits}
	if f != nil {
		payload["reason"], payload["code"] = reason, f.code
	}
	st.move(ev, payload)
	st.lines[len(st.lines)-1].Level = levelOf(ev)
	return s.commit(ctx, st, change)
}

func (s *shift) closeRoot(ctx context.Context, st *story, ev machine.Event) error {
	root, err := s.c.Store.Invocation(ctx, s.tenant, s.id, st.run.Root)
	if err != nil {
		return err
	}
	if machine.Invocation().IsFinal(root.State) {
		return nil
	}
	how := machine.InvocationFail
	switch ev {
	case machine.RunComplete:
		how = machine.InvocationFinish
	case machine.RunCancel:
		how = machine.InvocationCancel
	}
	st.invocation(root, how)
	return nil
}

func levelOf(ev machine.Event) persistence.Level {
	switch ev {
	case machine.RunFail:
		return persistence.LevelError
	case machine.RunSucceedPartially, machine.RunCancel:
		return persistence.LevelWarn
	}
	return persistence.LevelInfo
}

// finish completes the run: persist/ goes back to the chat's stable tree, after a check that nobody else changed the same
// files meanwhile, in the Apply that ends the run. On a conflict the run does not complete and the stable tree stays as it is.
func (s *shift) finish(ctx context.Context, run persistence.Run) error {
	var more closing
	if run.Chat != "" {
		promoted, err := s.promotion(ctx, run)
		if err != nil {
			return err
		}
		if promoted != nil {
			payload, blobs, err := tools.CheckpointPayload(*promoted)
			if err != nil {
				return err
			}
			more = closing{lines: []persistence.Entry{line(persistence.KindPersistPromoted, payload)}, trees: []persistence.TreeChange{*promoted}, blobs: blobs}
		}
	}
	return s.close(ctx, run, machine.RunComplete, nil, more)
}

// promotion compares three manifests: the stable tree that persist/ was projected from, the stable tree now, and the run's
// files. What the run changed is promoted; a file that both changed, in different ways, is a conflict.
func (s *shift) promotion(ctx context.Context, run persistence.Run) (*persistence.TreeChange, error) {
	id := persistence.ChatTree(run.Chat)
	base := persistence.Tree{}
	var err error
	if run.PersistBase > 0 {
		if base, err = s.c.Store.Tree(ctx, s.tenant, id, run.PersistBase); err != nil {
			return nil, err
		}
	}
	stable, err := s.c.Store.Tree(ctx, s.tenant, id, 0)
	if err != nil {
		return nil, err
	}
	mine, err := s.c.Store.Tree(ctx, s.tenant, persistence.RunTree(s.id), 0)
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for path := range base.Files {
		paths[path] = true
	}
	for path := range mine.Files {
		if strings.HasPrefix(path, "persist/") {
			paths[path] = true
		}
	}
	change := persistence.TreeChange{Tree: id, Base: stable.Version, Checkpoint: persistence.Checkpoint{Reason: "promoted by run " + string(run.ID)}}
	var conflicts []string
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		was, is, now := base.Files[path].Digest, stable.Files[path].Digest, mine.Files[path]
		switch {
		case now.Digest == was || now.Digest == is:
		case is != was:
			conflicts = append(conflicts, path)
		default:
			change.Edits = append(change.Edits, persistence.TreeEdit{Path: path, Digest: now.Digest, Size: now.Size})
		}
	}
	if len(conflicts) > 0 {
		return nil, &failure{code: CodePersistConflict, retryable: true,
			reason: fmt.Sprintf("another run changed %s while this one worked on its own copy; nothing of persist/ was promoted, and the run's copy is kept in its workspace", few(conflicts))}
	}
	if len(change.Edits) == 0 {
		return nil, nil
	}
	return &change, nil
}

func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
