package main

import (
	"context"
	"errors"
	"strings"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// People write the beginning of an id, or "last". Programs write it whole.

// maxLookup is how many records are looked through for the beginning of an id.
const maxLookup = 10_000

// lookup finds the one id that begins as written. next gives pages, newest first.
func lookup(what, word string, next func(after persistence.Cursor) (ids []string, more persistence.Cursor, err error)) (string, error) {
	if word == "" {
		return "", usagef("an empty text names no %s", what)
	}
	var found []string
	for after, n := persistence.Cursor(""), 0; n < maxLookup; {
		ids, more, err := next(after)
		if err != nil {
			return "", err
		}
		if word == "last" && len(ids) > 0 {
			return ids[0], nil
		}
		for _, id := range ids {
			if id == word {
				return id, nil
			}
			if strings.HasPrefix(id, strings.ToLower(word)) {
				found = append(found, id)
			}
		}
		n += len(ids)
		if more == "" {
			break
		}
		after = more
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && word == "last":
		return "", nof("there is no %s here", what).withHint("--tenant and --store choose where to look")
	case len(found) == 0:
		return "", notThere(what, word)
	}
	return "", nof("%d %ss begin with %s", len(found), what, word).withHint("write more of it: %s", strings.Join(found[:min(3, len(found))], ", "))
}

// notThere says that there is nothing of that id, and how to see what there is.
func notThere(what, word string) error {
	return nof("there is no %s %s", what, plain(word)).
		withHint("%s shows them; --tenant and --store choose where to look", map[string]string{
			"run": "callgate runs list", "approval": "callgate approvals list --all", "grant": "callgate approvals grants",
		}[what])
}

const idLength = 36

func (h *house) findRun(ctx context.Context, word string) (persistence.Run, error) {
	id := word
	if len(word) != idLength {
		var err error
		id, err = lookup("run", word, func(after persistence.Cursor) ([]string, persistence.Cursor, error) {
			runs, more, err := h.store.Runs(ctx, h.tenant, persistence.Query{After: after, Limit: 500})
			ids := make([]string, len(runs))
			for i, r := range runs {
				ids[i] = string(r.ID)
			}
			return ids, more, err
		})
		if err != nil {
			return persistence.Run{}, err
		}
	}
	run, err := h.store.Run(ctx, h.tenant, specs.RunID(id))
	if errors.Is(err, persistence.ErrNotFound) {
		return run, notThere("run", word)
	}
	return run, err
}

func (h *house) findApproval(ctx context.Context, word string) (persistence.Approval, error) {
	id := word
	if len(word) != idLength {
		var err error
		id, err = lookup("approval", word, func(after persistence.Cursor) ([]string, persistence.Cursor, error) {
			list, more, err := h.store.Approvals(ctx, h.tenant, persistence.Query{After: after, Limit: 500})
			ids := make([]string, len(list))
			for i, x := range list {
				ids[i] = string(x.ID)
			}
			return ids, more, err
		})
		if err != nil {
			return persistence.Approval{}, err
		}
	}
	found, err := h.store.Approval(ctx, h.tenant, specs.ApprovalID(id))
	if errors.Is(err, persistence.ErrNotFound) {
		return found, notThere("approval", word)
	}
	return found, err
}

// shortID is as much of an id as tells it apart in practice: its milliseconds and the first random digits.
func shortID[T ~string](id T) string {
	if len(id) > 18 {
		return string(id)[:18]
	}
	return string(id)
}
