package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// grantVerbs are the verbs about what people said yes to in advance.
func (a *app) grantVerbs() (list, revoke *cobra.Command) {
	var run string
	list = &cobra.Command{Use: "grants", Short: "Remembered yeses that hold", Example: "  callgate approvals grants", Args: words(),
		Long: `Lists the yeses that were given with --scope run or grant and are neither revoked nor over. They are rows of their own;
no policy was changed by them.`}
	list.RunE = a.verb(func(ctx context.Context, _ []string) error { return a.listGrants(ctx, run) })
	list.Flags().StringVar(&run, "run", "", "only those that hold in this run")
	revoke = &cobra.Command{Use: "revoke GRANT", Short: "Take a remembered yes back", Example: "  callgate approvals revoke last --as bob",
		Args: words("the grant's id, its beginning, or last"), RunE: a.verb(a.revokeGrant),
		Long: "Takes a remembered yes back. Calls that it answered for are asked about again, also those that have not started yet."}
	return list, revoke
}

// grantOut is a grant as JSON reports it.
type grantOut struct {
	ID      string            `json:"id"`
	Tool    specs.ToolName    `json:"tool"`
	Run     specs.RunID       `json:"run,omitempty"`
	User    specs.UserID      `json:"user,omitempty"`
	Args    map[string]string `json:"args,omitempty"` // JSON pointer -> canonical JSON; absent: any arguments
	Rules   []specs.RuleID    `json:"rules"`
	By      specs.UserID      `json:"by"`
	Created time.Time         `json:"created"`
	Expires time.Time         `json:"expires,omitzero"` // absent: never
}

func (a *app) listGrants(ctx context.Context, runWord string) error {
	return a.withHouse(ctx, func(h *house) error {
		var run specs.RunID
		if runWord != "" {
			r, err := h.findRun(ctx, runWord)
			if err != nil {
				return err
			}
			run = r.ID
		}
		grants, err := h.store.Grants(ctx, h.tenant, run)
		if err != nil {
			return err
		}
		slices.Reverse(grants) // newest first, as everywhere
		if a.json() {
			out := make([]grantOut, 0, len(grants))
			for _, g := range grants {
				out = append(out, grantOut{ID: g.ID, Tool: g.Tool, Run: g.Run, User: g.User, Args: g.Args, Rules: g.Rules, By: g.By, Created: g.Created, Expires: g.Expires})
			}
			return a.printJSON(map[string]any{"grants": out})
		}
		if len(grants) == 0 {
			a.note("no yes is remembered\n")
			return nil
		}
		now, err := h.store.Now(ctx)
		if err != nil {
			return err
		}
		rows := [][]string{{a.dim("GRANT"), a.dim("TOOL"), a.dim("ARGUMENTS"), a.dim("FOR"), a.dim("BY"), a.dim("ENDS")}}
		for _, g := range grants {
			ends := ""
			if !g.Expires.IsZero() {
				ends = ago(now.Sub(g.Expires))
			}
			whom := plain(string(g.User))
			if g.Run != "" {
				whom = "run " + shortID(g.Run)
			}
			rows = append(rows, []string{shortID(g.ID), string(g.Tool), grantArgs(g), whom, plain(string(g.By)), ends})
		}
		table(a.Stdout, rows)
		return nil
	})
}

func grantArgs(g persistence.Grant) string {
	if g.Args == nil {
		return "any"
	}
	var parts []string
	for pointer, text := range g.Args {
		if pointer != "" {
			text = pointer + " = " + text
		}
		parts = append(parts, text)
	}
	slices.Sort(parts)
	return oneLine(strings.Join(parts, ", "), 60)
}

func (a *app) revokeGrant(ctx context.Context, args []string) error {
	who, err := a.person()
	if err != nil {
		return err
	}
	return a.withHouse(ctx, func(h *house) error {
		id, err := h.findGrant(ctx, args[0])
		if err != nil {
			return err
		}
		err = h.dispatcher.RevokeGrant(ctx, who, id)
		if errors.Is(err, persistence.ErrNotFound) {
			return notThere("grant", id)
		}
		if err != nil {
			return err
		}
		if a.json() {
			return a.printJSON(map[string]any{"grant": id, "revoked": true, "by": who.User})
		}
		a.printf("revoked by %s: calls like that are asked about again\n", plain(string(who.User)))
		return nil
	})
}

// findGrant finds a grant that holds. A whole id is taken as it is, so that revoking twice is revoking once.
func (h *house) findGrant(ctx context.Context, word string) (string, error) {
	if len(word) == idLength {
		return word, nil
	}
	return lookup("grant", word, func(persistence.Cursor) ([]string, persistence.Cursor, error) {
		grants, err := h.store.Grants(ctx, h.tenant, "")
		slices.Reverse(grants)
		ids := make([]string, len(grants))
		for i, g := range grants {
			ids[i] = g.ID
		}
		return ids, "", err
	})
}
