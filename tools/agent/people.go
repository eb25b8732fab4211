package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// Guide gives a live run a word from a person. It enters before the next model request, whoever makes that, also when the
// run waits at this moment. Errors: *RequestError, tools.ErrRunEnded, or one of the store.
func (r *Runner) Guide(ctx context.Context, by tools.Principal, id specs.RunID, text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return &RequestError{Field: "text", Why: "empty"}
	case len(text) > MaxGuidanceBytes:
		return &RequestError{Field: "text", Why: fmt.Sprintf("%d bytes; at most %d", len(text), MaxGuidanceBytes)}
	case !utf8.ValidString(text):
		return &RequestError{Field: "text", Why: "not UTF-8"}
	case by.User == "":
		return &RequestError{Field: "user", Why: "missing"}
	}
	run, err := r.c.Store.Run(ctx, by.Tenant, id)
	if err != nil {
		return err
	}
	if run.State == machine.RunCancelling || machine.Run().IsFinal(run.State) {
		return fmt.Errorf("run %s is %s: %w", id, run.State, tools.ErrRunEnded)
	}
	blob := persistence.BlobOf("text/plain", []byte(text))
	_, err = r.c.Store.Apply(ctx, persistence.Change{Tenant: by.Tenant, Run: id, Key: "guide/" + newID(), Blobs: []persistence.Blob{blob},
		Lines: []persistence.Entry{line(persistence.KindGuidanceSubmitted, guidancePayload{Text: blob.Digest, By: by.User})}})
	return err
}

// Cancel says that a run is to stop. Whoever works on it stops within Config.Poll; when nobody does, the run is settled
// here. Cancelling a run that is over answers tools.ErrRunEnded.
func (r *Runner) Cancel(ctx context.Context, by tools.Principal, id specs.RunID) error {
	if err := r.c.Dispatcher.CancelRun(ctx, by, id); err != nil {
		return err
	}
	_, err := r.Run(ctx, by.Tenant, id)
	var held *persistence.HeldError
	if errors.As(err, &held) {
		return nil // its holder will see it
	}
	return err
}

// Follow gives each journal line of a run to fn, from the one behind afterSeq on, without loss or repeat, until the run is
// over and all was given, fn errs, or ctx ends. A run that waits is followed on; who does not want that ends ctx.
func Follow(ctx context.Context, store persistence.Store, t specs.TenantID, run specs.RunID, afterSeq int64, fn func(persistence.Line) error) error {
	const page = 200
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		// The state is read before the lines: a run that is over when its lines are read has no further ones.
		now, err := store.Run(ctx, t, run)
		if err != nil {
			return err
		}
		for {
			lines, err := store.Journal(ctx, t, run, persistence.JournalQuery{AfterSeq: afterSeq, Limit: page})
			if err != nil {
				return err
			}
			for _, l := range lines {
				if err := fn(l); err != nil {
					return err
				}
				afterSeq = l.Seq
			}
			if len(lines) < page {
				break
			}
		}
		if machine.Run().IsFinal(now.State) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
