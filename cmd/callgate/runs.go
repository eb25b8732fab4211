package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

func (a *app) runsVerb() *cobra.Command {
	var states []string
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "Runs, newest first", Example: "  callgate runs list --state awaiting_approval", Args: words(),
	}
	list.RunE = a.verb(func(ctx context.Context, _ []string) error { return a.listRuns(ctx, states, limit) })
	list.Flags().StringArrayVar(&states, "state", nil, "only runs in this state; may be repeated")
	list.Flags().IntVar(&limit, "limit", 50, "how many at most")

	show := &cobra.Command{
		Use: "show RUN", Short: "One run: its calls, what waits, what it used", Example: "  callgate runs show last", Args: words("the run's id, its beginning, or last"),
		RunE: a.verb(a.showRun),
	}
	var answerAs string
	resume := &cobra.Command{
		Use: "resume RUN", Short: "Go on with a run, from the store alone",
		Long: `Takes up a run where it stands: after a crash, after a person decided, on any machine that reaches the store. What was
finished is not repeated. A tool that may have run and is not safe to repeat becomes outcome_unknown and waits for
callgate runs reconcile.`,
		Example: "  callgate runs resume last", Args: words("the run's id, its beginning, or last"),
	}
	resume.RunE = a.verb(func(ctx context.Context, args []string) error {
		a.user = answerAs
		return a.resumeRun(ctx, args)
	})
	resume.Flags().StringVar(&answerAs, "as", "", "who answers questions at this terminal (default $CALLGATE_USER, else your login name)")
	cancel := &cobra.Command{
		Use: "cancel RUN", Short: "Ask a run to stop", Example: "  callgate runs cancel last",
		Long: `Says that a run is to stop: its calls, questions and children are settled and nothing is published any more. Its
workspace and checkpoints stay. A process that works on it stops at once; when none does, the run is settled here.`,
		Args: words("the run's id, its beginning, or last"), RunE: a.verb(a.cancelRun),
	}
	guide := &cobra.Command{
		Use: "guide RUN TEXT", Short: "Say something to a live run", Example: "  callgate runs guide last 'Shorter, please.'",
		Long: "Hands a word to the agent. It enters before the next model request, also when the run waits at this moment.",
		Args: words("the run's id, its beginning, or last", "the text"), RunE: a.verb(a.guideRun),
	}
	var happened, remark string
	reconcile := &cobra.Command{
		Use: "reconcile RUN CALL", Short: "Say whether a call of unknown outcome happened",
		Long: `After a crash nobody may know whether a tool that is not safe to repeat did its work; the call is outcome_unknown and
the run waits. A person looks at the world outside and says --happened yes or --happened no. The journal keeps who said
it and why.`,
		Example: "  callgate runs reconcile last 1-publish --happened yes --note 'the message is in the chat' --as bob",
		Args:    words("the run's id, its beginning, or last", "the call's id"),
	}
	reconcile.RunE = a.verb(func(ctx context.Context, args []string) error { return a.reconcile(ctx, args, happened, remark) })
	reconcile.Flags().StringVar(&happened, "happened", "", "yes or no")
	reconcile.Flags().StringVar(&remark, "note", "", "how you know")
	for _, c := range []*cobra.Command{list, show, resume, cancel, guide, reconcile} {
		a.storeFlags(c)
		a.formatFlag(c)
	}
	for _, c := range []*cobra.Command{cancel, guide, reconcile} {
		a.asFlag(c)
	}
	return a.group("runs", "Runs: list, show, resume, cancel, guide, reconcile", "  callgate runs list", list, show, resume, cancel, guide, reconcile)
}

// withHouse opens the parts for a verb and closes them behind it.
func (a *app) withHouse(ctx context.Context, do func(h *house) error) error {
	h, err := a.openHouse(ctx, mustExist)
	if err != nil {
		return err
	}
	defer h.close()
	return do(h)
}

func (a *app) listRuns(ctx context.Context, states []string, limit int) error {
	if limit < 1 || limit > 100_000 {
		return usagef("--limit is a number from 1 to 100000")
	}
	q := persistence.Query{}
	for _, s := range states {
		if !machine.Run().Has(machine.State(s)) {
			return usagef("a run has no state %q", s)
		}
		q.States = append(q.States, machine.State(s))
	}
	return a.withHouse(ctx, func(h *house) error {
		var runs []persistence.Run
		for len(runs) < limit {
			q.Limit = min(500, limit-len(runs))
			page, next, err := h.store.Runs(ctx, h.tenant, q)
			if err != nil {
				return err
			}
			runs = append(runs, page...)
			if q.After = next; next == "" {
				break
			}
		}
		if a.json() {
			list := make([]map[string]any, 0, len(runs))
			for i := range runs {
				list = append(list, recordJSON(&runs[i], runs[i].RecordMeta))
			}
			return a.printJSON(map[string]any{"runs": list})
		}
		if len(runs) == 0 {
			a.note("no runs\n")
			return nil
		}
		now, err := h.store.Now(ctx)
		if err != nil {
			return err
		}
		rows := [][]string{{a.dim("RUN"), a.dim("STATE"), a.dim("PROFILE"), a.dim("BY"), a.dim("CALLS"), a.dim("STARTED"), a.dim("TASK")}}
		for _, r := range runs {
			rows = append(rows, []string{shortID(r.ID), a.runState(r.State), string(r.Profile), plain(string(r.User)), fmt.Sprint(r.Calls),
				ago(now.Sub(r.Created)), oneLine(r.Task, 50)})
		}
		table(a.Stdout, rows)
		return nil
	})
}

func (a *app) runState(s machine.State) string {
	switch {
	case s == machine.RunCompleted:
		return a.good(string(s))
	case s == machine.RunAwaitingApproval:
		return a.wait(string(s))
	case machine.Run().IsFinal(s):
		return a.bad(string(s))
	}
	return string(s)
}

// recordJSON is a record with what the store adds to it: state, version, times.
func recordJSON(r any, m persistence.RecordMeta) map[string]any {
	out := map[string]any{}
	raw, err := json.Marshal(r)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		err = dec.Decode(&out)
	}
	if err != nil {
		out["error"] = err.Error()
	}
	out["state"], out["version"] = m.State, m.Version
	out["created"], out["updated"] = m.Created, m.Updated
	if !m.Deadline.IsZero() {
		out["deadline"] = m.Deadline
	}
	if m.Run != "" {
		out["run"] = m.Run
	}
	return out
}

func (a *app) showRun(ctx context.Context, args []string) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		calls, err := h.store.Calls(ctx, h.tenant, run.ID)
		if err != nil {
			return err
		}
		approvals, err := h.approvals(ctx, run.ID, nil)
		if err != nil {
			return err
		}
		if a.json() {
			out := recordJSON(&run, run.RecordMeta)
			delete(out, "run")
			var cs, as []map[string]any
			for i := range calls {
				cs = append(cs, recordJSON(&calls[i], calls[i].RecordMeta))
			}
			for i := range approvals {
				as = append(as, recordJSON(&approvals[i], approvals[i].RecordMeta))
			}
			out["callRecords"], out["approvals"] = orEmpty(cs), orEmpty(as)
			return a.printJSON(out)
		}
		return a.printRun(ctx, h, run, calls, approvals)
	})
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (h *house) approvals(ctx context.Context, run specs.RunID, states []machine.State) ([]persistence.Approval, error) {
	var all []persistence.Approval
	q := persistence.Query{Run: run, States: states, Limit: 500}
	for {
		page, next, err := h.store.Approvals(ctx, h.tenant, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if q.After = next; next == "" {
			return all, nil
		}
	}
}

func (a *app) printRun(ctx context.Context, h *house, run persistence.Run, calls []persistence.Call, approvals []persistence.Approval) error {
	now, err := h.store.Now(ctx)
	if err != nil {
		return err
	}
	row := func(name, format string, args ...any) {
		a.printf("%s %s\n", a.dim(pad(name, 10)), fmt.Sprintf(format, args...))
	}
	row("run", "%s", run.ID)
	state := a.runState(run.State)
	if run.Reason != "" {
		state += ": " + oneLine(run.Reason, 200)
	}
	row("state", "%s", state)
	if run.ErrorCode != "" {
		again := ""
		if run.Retryable {
			again = " (starting it again may help)"
		}
		row("error", "%s%s", run.ErrorCode, again)
	}
	row("agent", "%s, for %s", run.Profile, plain(string(run.User)))
	if run.Task != "" {
		row("task", "%s", oneLine(run.Task, 200))
	}
	if run.Plan != "" {
		row("plan", "%s, at %s", run.Plan, run.Node)
	}
	row("bundle", "%s", short(string(run.Bundle)))
	row("started", "%s (%s)", run.Created.Local().Format(time.DateTime), ago(now.Sub(run.Created)))
	row("used", "%s, %s, %s", plural(int(run.Round), "turn"), plural(int(run.Calls), "call"), plural(int(run.Commits), "commit"))
	if len(calls) > 0 {
		a.printf("\n")
		rows := [][]string{{a.dim("CALL"), a.dim("TOOL"), a.dim("STATE"), a.dim("WHY")}}
		for _, c := range calls {
			rows = append(rows, []string{plain(string(c.ID)), plain(orElse(string(c.Tool), c.Asked)), a.callState(c),
				oneLine(orElse(c.Reason, c.ErrorCode), 70)})
		}
		table(a.Stdout, rows)
	}
	for _, w := range approvals {
		if w.State == machine.ApprovalPending || w.State == machine.ApprovalParked {
			a.printf("\n%s\n", a.card(w, now))
		}
	}
	return nil
}

func (a *app) callState(c persistence.Call) string {
	switch {
	case c.State == machine.CallCompleted && !c.IsError:
		return a.good(string(c.State))
	case c.State == machine.CallAwaitingApproval, c.State == machine.CallOutcomeUnknown:
		return a.wait(string(c.State))
	case machine.Call().IsFinal(c.State):
		return a.bad(string(c.State))
	}
	return string(c.State)
}

func (a *app) resumeRun(ctx context.Context, args []string) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		told, err := h.told(ctx, run.ID)
		if err != nil {
			return err
		}
		return a.drive(ctx, h, run, told)
	})
}

// told is the line up to which the story of a run is known to whoever goes on with it: where it last began to wait, so that
// what people decided meanwhile is told, else its end.
func (h *house) told(ctx context.Context, run specs.RunID) (int64, error) {
	waits, err := machine.Run().Fire(machine.RunDispatchingTool, machine.RunAwaitApproval)
	if err != nil {
		return 0, err
	}
	head, err := h.store.Head(ctx, h.tenant, run)
	if err != nil {
		return 0, err
	}
	lines, err := h.store.Journal(ctx, h.tenant, run, persistence.JournalQuery{BeforeSeq: head.Seq + 1, Limit: 1, Kinds: []string{waits.Journal}})
	if err != nil || len(lines) == 0 {
		return head.Seq, err
	}
	return lines[0].Seq, nil
}

func (a *app) cancelRun(ctx context.Context, args []string) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		who, err := a.person()
		if err != nil {
			return err
		}
		if err := h.runner.Cancel(ctx, who, run.ID); err != nil {
			return err
		}
		if run, err = h.store.Run(ctx, h.tenant, run.ID); err != nil {
			return err
		}
		if a.json() {
			return a.printJSON(map[string]any{"run": run.ID, "state": run.State})
		}
		a.printf("run %s is %s\n", shortID(run.ID), a.runState(run.State))
		return nil
	})
}

func (a *app) guideRun(ctx context.Context, args []string) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		who, err := a.person()
		if err != nil {
			return err
		}
		if err := h.runner.Guide(ctx, who, run.ID, args[1]); err != nil {
			return err
		}
		if a.json() {
			return a.printJSON(map[string]any{"run": run.ID, "guided": true})
		}
		a.printf("run %s will be told before its next turn\n", shortID(run.ID))
		return nil
	})
}

func (a *app) reconcile(ctx context.Context, args []string, happened, remark string) error {
	if happened != "yes" && happened != "no" {
		return usagef("--happened is yes or no")
	}
	if strings.TrimSpace(remark) == "" {
		return usagef("--note says how you know; the journal keeps it")
	}
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		who, err := a.approver(ctx, h, run.ID)
		if err != nil {
			return err
		}
		if _, err := h.dispatcher.Reconcile(ctx, who, run.ID, specs.CallID(args[1]), happened == "yes", remark); err != nil {
			return err
		}
		c, err := h.store.Call(ctx, h.tenant, run.ID, specs.CallID(args[1]))
		if err != nil {
			return err
		}
		if a.json() {
			return a.printJSON(recordJSON(&c, c.RecordMeta))
		}
		a.printf("call %s is %s\n  callgate runs resume %s\n", plain(string(c.ID)), a.callState(c), a.ref(run.ID))
		return nil
	})
}
