package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

func (a *app) approvalsVerb() *cobra.Command {
	const id = "the approval's id, its beginning, or last"
	var all bool
	var run string
	list := &cobra.Command{Use: "list", Short: "Questions that wait for a person", Example: "  callgate approvals list", Args: words()}
	list.RunE = a.verb(func(ctx context.Context, _ []string) error { return a.listApprovals(ctx, all, run) })
	list.Flags().BoolVar(&all, "all", false, "also those that were decided")
	list.Flags().StringVar(&run, "run", "", "only of this run")

	show := &cobra.Command{Use: "show ID", Short: "One question, whole", Example: "  callgate approvals show last", Args: words(id), RunE: a.verb(a.showApproval)}

	var args, scope, lasts string
	var anyArgs bool
	approve := &cobra.Command{
		Use: "approve ID", Short: "Say yes",
		Long: `Says yes to one question. The yes is bound to what was shown: arguments, tool definition, policy; should one of them
change before the call starts, people are asked again. --args puts other arguments in their place, which are judged like
the model's own. With --scope run or grant, calls like this one are not asked about again, where the rule allows that.`,
		Example: "  callgate approvals approve last --as bob", Args: words(id),
	}
	approve.RunE = a.verb(func(ctx context.Context, ids []string) error {
		b := tools.Ballot{Verdict: tools.BallotApprove, Scope: tools.GrantScope(scope), AnyArgs: anyArgs}
		switch b.Scope {
		case tools.ScopeOnce, tools.ScopeRun, tools.ScopeGrant:
		default:
			return usagef("--scope is once, run or grant, not %q", scope)
		}
		if anyArgs && b.Scope == tools.ScopeOnce {
			return usagef("--any-args needs --scope run or grant")
		}
		if lasts != "" {
			d, err := specs.ParseDuration(lasts)
			if err != nil {
				return usagef("--for: %v", err)
			}
			b.GrantFor = d
		}
		if args != "" {
			raw, err := jsonObject("--args", args)
			if err != nil {
				return err
			}
			b.Args = raw
		}
		return a.decide(ctx, ids[0], b)
	})
	f := approve.Flags()
	f.StringVar(&args, "args", "", "other arguments, a JSON object")
	f.StringVar(&scope, "scope", "once", "once; run: for the rest of this run; grant: remembered for this user")
	f.StringVar(&lasts, "for", "", "how long a grant is remembered (default 24h)")
	f.BoolVar(&anyArgs, "any-args", false, "the grant matches any arguments of the tool, not only these")

	var reason string
	reject := &cobra.Command{Use: "reject ID", Short: "Say no, with a reason that the model reads",
		Example: "  callgate approvals reject last --reason 'Not this file.' --as bob", Args: words(id)}
	reject.RunE = a.verb(func(ctx context.Context, ids []string) error {
		if strings.TrimSpace(reason) == "" {
			return usagef("--reason says why; the model reads it")
		}
		return a.decide(ctx, ids[0], tools.Ballot{Verdict: tools.BallotReject, Reason: reason})
	})
	reject.Flags().StringVar(&reason, "reason", "", "why, for the model to read")

	var text string
	answer := &cobra.Command{Use: "answer ID", Short: "Give the result in the tool's place",
		Example: "  callgate approvals answer last --text 'The file says 42.' --as bob", Args: words(id)}
	answer.RunE = a.verb(func(ctx context.Context, ids []string) error {
		if text == "" {
			return usagef("--text is the result that the model reads")
		}
		result := tools.Text("%s", text)
		return a.decide(ctx, ids[0], tools.Ballot{Verdict: tools.BallotAnswer, Answer: &result})
	})
	answer.Flags().StringVar(&text, "text", "", "the result")

	reask := &cobra.Command{Use: "reask ID", Short: "Put a parked question anew", Example: "  callgate approvals reask last --as bob", Args: words(id),
		Long: `A question whose rule says onExpire: park can no longer be answered when its time is over. This puts it anew, with a
fresh time.`,
		RunE: a.verb(a.reaskApproval)}

	grants, revoke := a.grantVerbs()
	for _, c := range []*cobra.Command{list, show, approve, reject, answer, reask, grants, revoke} {
		a.storeFlags(c)
		a.formatFlag(c)
	}
	for _, c := range []*cobra.Command{approve, reject, answer, reask, revoke} {
		a.asFlag(c)
	}
	return a.group("approvals", "Questions to people: list, show, approve, reject, answer, reask, grants, revoke", "  callgate approvals list",
		list, show, approve, reject, answer, reask, grants, revoke)
}

func (a *app) listApprovals(ctx context.Context, all bool, runWord string) error {
	return a.withHouse(ctx, func(h *house) error {
		var run specs.RunID
		if runWord != "" {
			r, err := h.findRun(ctx, runWord)
			if err != nil {
				return err
			}
			run = r.ID
		}
		states := []machine.State{machine.ApprovalPending, machine.ApprovalParked}
		if all {
			states = nil
		}
		found, err := h.approvals(ctx, run, states)
		if err != nil {
			return err
		}
		if a.json() {
			list := make([]map[string]any, 0, len(found))
			for i := range found {
				list = append(list, recordJSON(&found[i], found[i].RecordMeta))
			}
			return a.printJSON(map[string]any{"approvals": list})
		}
		if len(found) == 0 {
			a.note("nothing waits for a person\n")
			return nil
		}
		now, err := h.store.Now(ctx)
		if err != nil {
			return err
		}
		rows := [][]string{{a.dim("APPROVAL"), a.dim("STATE"), a.dim("TOOL"), a.dim("FOR"), a.dim("DUE"), a.dim("BECAUSE")}}
		for _, w := range found {
			due := ""
			if w.State == machine.ApprovalPending {
				due = ago(now.Sub(w.Deadline))
			}
			rows = append(rows, []string{shortID(w.ID), a.approvalState(w.State), string(w.Tool), plain(string(w.Requester)), due, becauseOf(w)})
		}
		table(a.Stdout, rows)
		return nil
	})
}

func (a *app) approvalState(s machine.State) string {
	switch s {
	case machine.ApprovalPending, machine.ApprovalParked:
		return a.wait(string(s))
	case machine.ApprovalApproved, machine.ApprovalSpent, machine.ApprovalAnswered:
		return a.good(string(s))
	}
	return a.bad(string(s))
}

func becauseOf(w persistence.Approval) string {
	var rules []string
	for _, ask := range w.Asks {
		rules = append(rules, orElse(ask.Reason, string(ask.Rule)))
	}
	return oneLine(strings.Join(rules, "; "), 70)
}

func (a *app) showApproval(ctx context.Context, args []string) error {
	return a.withHouse(ctx, func(h *house) error {
		w, err := h.findApproval(ctx, args[0])
		if err != nil {
			return err
		}
		if a.json() {
			return a.printJSON(recordJSON(&w, w.RecordMeta))
		}
		now, err := h.store.Now(ctx)
		if err != nil {
			return err
		}
		a.printf("%s\n", a.card(w, now))
		return nil
	})
}

// decided is the JSON report of a decision.
type decided struct {
	Approval specs.ApprovalID `json:"approval"`
	State    machine.State    `json:"state"`
	Run      specs.RunID      `json:"run"`
	Call     specs.CallID     `json:"call"`
	By       specs.UserID     `json:"by,omitempty"`
	Missing  int              `json:"missing,omitempty"` // yeses that are still needed
	Next     string           `json:"next"`
}

func (a *app) decide(ctx context.Context, word string, b tools.Ballot) error {
	return a.withHouse(ctx, func(h *house) error {
		w, err := h.findApproval(ctx, word)
		if err != nil {
			return err
		}
		if b.By, err = a.approver(ctx, h, w.Run); err != nil {
			return err
		}
		b.Approval = w.ID
		after, err := h.dispatcher.Decide(ctx, h.tenant, b)
		if err != nil {
			return err
		}
		out := decided{Approval: after.ID, State: after.State, Run: w.Run, Call: after.Call, By: after.DecidedBy, Missing: missing(after),
			Next: "callgate runs resume " + a.ref(w.Run)}
		if a.json() {
			return a.printJSON(out)
		}
		if after.State == machine.ApprovalPending {
			a.printf("%s counts; %s still needed\n", plain(string(b.By.User)), plural(out.Missing, "yes", "yeses"))
			return nil
		}
		a.printf("%s by %s\n", a.approvalState(after.State), plain(string(b.By.User)))
		a.printf("  %s\n", out.Next)
		return nil
	})
}

func (a *app) reaskApproval(ctx context.Context, args []string) error {
	return a.withHouse(ctx, func(h *house) error {
		w, err := h.findApproval(ctx, args[0])
		if err != nil {
			return err
		}
		who, err := a.approver(ctx, h, w.Run)
		if err != nil {
			return err
		}
		fresh, err := h.dispatcher.Reask(ctx, who, w.ID)
		if err != nil {
			return err
		}
		next := fmt.Sprintf("callgate approvals approve %s --as %s%s", fresh.ID, h.candidates(ctx, w.Run)(fresh), a.sameStore())
		if a.json() {
			return a.printJSON(decided{Approval: fresh.ID, State: fresh.State, Run: w.Run, Call: fresh.Call, Missing: missing(fresh), Next: next})
		}
		a.printf("asked anew\n  %s\n", next)
		return nil
	})
}

// missing counts the yeses that a question still needs, for the rule that needs most.
func missing(w persistence.Approval) int {
	if w.State != machine.ApprovalPending {
		return 0
	}
	most := 0
	for _, ask := range w.Asks {
		have := 0
		for _, v := range w.Votes {
			for _, r := range v.Rules {
				if r == ask.Rule {
					have++
				}
			}
		}
		most = max(most, ask.Quorum-have)
	}
	return most
}
