package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// ask shows each open question on the terminal. It says whether the run can go on now.
func (a *app) ask(ctx context.Context, h *house, waiting []persistence.Approval) (bool, error) {
	decided := false
	for _, w := range waiting {
		if w.State != machine.ApprovalPending {
			continue
		}
		done, err := a.askOne(ctx, h, w)
		if err != nil {
			return false, err
		}
		decided = decided || done
	}
	return decided, nil
}

func (a *app) askOne(ctx context.Context, h *house, w persistence.Approval) (bool, error) {
	who, err := a.approver(ctx, h, w.Run)
	if err != nil {
		_, text, hint := judge(err)
		a.note("\n%s\n  hint: %s\n", text, hint)
		return false, nil
	}
	now, err := h.store.Now(ctx)
	if err != nil {
		return false, err
	}
	a.printf("\n%s\n", a.card(w, now))
	for {
		a.printf("%s", a.column(0, fmt.Sprintf("%s as %s: [a]pprove  [r]eject  [e]dit arguments  [q]uit and leave it open > ",
			a.bold("decide"), plain(string(who.User)))))
		line, err := a.readLine(ctx)
		if errors.Is(err, io.EOF) {
			a.printf("\n")
			return false, nil
		}
		if err != nil {
			return false, err
		}
		b := tools.Ballot{Approval: w.ID, By: who, Verdict: tools.BallotApprove, Scope: tools.ScopeOnce}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "a", "approve", "y", "yes":
		case "r", "reject", "n", "no":
			b.Verdict = tools.BallotReject
			a.printf("reason, for the model to read > ")
			if b.Reason, err = a.readLine(ctx); err != nil && !errors.Is(err, io.EOF) {
				return false, err
			}
			if b.Reason = strings.TrimSpace(b.Reason); b.Reason == "" {
				a.printf("%s\n", a.bad("a rejection needs a reason"))
				continue
			}
		case "e", "edit":
			a.printf("arguments as one line of JSON > ")
			text, err := a.readLine(ctx)
			if err != nil && !errors.Is(err, io.EOF) {
				return false, err
			}
			b.Args = json.RawMessage(strings.TrimSpace(text))
		case "q", "quit":
			return false, nil
		default:
			continue
		}
		_, err = h.dispatcher.Decide(ctx, h.tenant, b)
		if err == nil {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		code, text, hint := judge(err)
		if code == exitSystem {
			return false, err
		}
		a.printf("%s\n", a.bad(text))
		if hint != "" {
			a.printf("  hint: %s\n", hint)
		}
		var decided *tools.DecidedError
		if errors.As(err, &decided) || errors.Is(err, persistence.ErrExpired) {
			return true, nil
		}
	}
}

// readLine reads a line that a person types, or ends with ctx. The reader goroutine then ends with the next line or the
// end of the input, which is the process's own.
func (a *app) readLine(ctx context.Context) (string, error) {
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		line, err := a.Stdin.ReadString('\n')
		if line != "" && errors.Is(err, io.EOF) {
			err = nil
		}
		got <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case x := <-got:
		return strings.TrimRight(x.line, "\r\n"), x.err
	}
}

// candidates gives the name to put into the command that decides: somebody who may, so that it can be copied as it is.
func (h *house) candidates(ctx context.Context, run specs.RunID) func(persistence.Approval) string {
	users, err := h.users(ctx, run)
	return func(w persistence.Approval) string {
		if err == nil {
			for _, name := range slices.Sorted(maps.Keys(users)) {
				if mayDecide(w, specs.UserID(name), users[name].Roles) {
					return shellWord(name)
				}
			}
		}
		return "USER"
	}
}

// mayDecide guesses from the stored question; the dispatcher alone knows.
func mayDecide(w persistence.Approval, user specs.UserID, roles []specs.Role) bool {
	for _, ask := range w.Asks {
		role := slices.ContainsFunc(roles, func(r specs.Role) bool { return slices.Contains(ask.Roles, r) })
		if !role && !slices.Contains(ask.Users, user) || ask.NotRequester && user == w.Requester {
			return false
		}
	}
	return !slices.ContainsFunc(w.Votes, func(v persistence.Vote) bool { return v.User == user })
}
