package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/tools/agent"
)

func (a *app) journalVerb() *cobra.Command {
	const id = "the run's id, its beginning, or last"
	var all bool
	show := &cobra.Command{
		Use: "show RUN", Short: "What happened, as a story", Example: "  callgate journal show last",
		Long: "Tells a run's journal in sentences. --all shows every line with its kind and payload; --format json gives them whole.",
		Args: words(id),
	}
	show.RunE = a.verb(func(ctx context.Context, args []string) error { return a.showJournal(ctx, args[0], all) })
	show.Flags().BoolVar(&all, "all", false, "every line, none left out")
	var from int64
	var allTail bool
	tail := &cobra.Command{
		Use: "tail RUN", Short: "What happens, as it happens", Example: "  callgate journal tail last",
		Long: "Follows a run until it ends or you stop. With --format json each line is one JSON object.", Args: words(id),
	}
	tail.RunE = a.verb(func(ctx context.Context, args []string) error { return a.tailJournal(ctx, args[0], from, allTail) })
	tail.Flags().Int64Var(&from, "after", 0, "begin behind the line of this number")
	tail.Flags().BoolVar(&allTail, "all", false, "every line, none left out")
	var out string
	export := &cobra.Command{
		Use: "export RUN", Short: "The journal as JSON lines, hashes included", Example: "  callgate journal export last --out run.jsonl", Args: words(id),
	}
	export.RunE = a.verb(func(ctx context.Context, args []string) error { return a.exportJournal(ctx, args[0], out) })
	export.Flags().StringVar(&out, "out", "", "file to write, which must not exist yet (default: stdout)")
	verify := &cobra.Command{
		Use: "verify [RUN]", Short: "The proof that nobody touched the journal",
		Long: `Checks every line of a run, or of all runs of the tenant: its content against its hash, the chain from line to line, the
numbers, each move against the lifecycles, the records against what the lines say, and that nothing a line refers to is
missing. Names what was done: edit, gap, fork, truncation, illegal transition.`,
		Example: "  callgate journal verify", Args: cobra.MaximumNArgs(1), RunE: a.verb(a.verifyJournal),
	}
	for _, c := range []*cobra.Command{show, tail, export, verify} {
		a.storeFlags(c)
	}
	for _, c := range []*cobra.Command{show, tail, verify} {
		a.formatFlag(c)
	}
	return a.group("journal", "What happened: show, tail, export, verify", "  callgate journal show last", show, tail, export, verify)
}

func (a *app) showJournal(ctx context.Context, word string, all bool) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, word)
		if err != nil {
			return err
		}
		if a.json() {
			lines := []persistence.Line{}
			err := eachLine(ctx, h.store, h.tenant, run.ID, 0, func(l persistence.Line) error {
				lines = append(lines, l)
				return nil
			})
			if err != nil {
				return err
			}
			return a.printJSON(map[string]any{"run": run.ID, "state": run.State, "lines": lines})
		}
		a.printf("%s %s  %s as %s, %s\n", a.bold("run"), a.bold(string(run.ID)), run.Profile, plain(string(run.User)),
			run.Created.Local().Format("2006-01-02 15:04:05"))
		t := a.storyteller(h)
		t.all = all
		return eachLine(ctx, h.store, h.tenant, run.ID, 0, func(l persistence.Line) error {
			t.tell(ctx, l)
			return nil
		})
	})
}

func (a *app) tailJournal(ctx context.Context, word string, from int64, all bool) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, word)
		if err != nil {
			return err
		}
		t := a.storyteller(h)
		t.all = all
		if err := a.catchUp(ctx, t, run.ID, from); err != nil {
			return err
		}
		enc := json.NewEncoder(a.Stdout)
		enc.SetEscapeHTML(false)
		err = agent.Follow(ctx, h.store, h.tenant, run.ID, from, func(l persistence.Line) error {
			if a.json() {
				return enc.Encode(l)
			}
			t.tell(ctx, l)
			return nil
		})
		if errors.Is(err, context.Canceled) {
			return nil // stopping is how one stops following
		}
		return err
	})
}

func (a *app) exportJournal(ctx context.Context, word, out string) error {
	return a.withHouse(ctx, func(h *house) (err error) {
		run, err := h.findRun(ctx, word)
		if err != nil {
			return err
		}
		var w io.Writer = a.Stdout
		if out != "" {
			f, err := os.OpenFile(a.path(out), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, os.ErrExist) {
				return nof("%s is already there", out)
			}
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			w = f
		}
		b := bufio.NewWriter(w)
		enc := json.NewEncoder(b)
		enc.SetEscapeHTML(false)
		n := 0
		err = eachLine(ctx, h.store, h.tenant, run.ID, 0, func(l persistence.Line) error {
			n++
			return enc.Encode(l)
		})
		if err == nil {
			err = b.Flush()
		}
		if err == nil && out != "" {
			a.printf("%s: %s\n", out, plural(n, "line"))
		}
		return err
	})
}

func (a *app) verifyJournal(ctx context.Context, args []string) error {
	return a.withHouse(ctx, func(h *house) error {
		if len(args) == 0 {
			r, err := persistence.VerifyAll(ctx, h.store, h.tenant)
			if err != nil {
				return err
			}
			return a.reportVerified(r)
		}
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		r, err := persistence.Verify(ctx, h.store, h.tenant, run.ID)
		if err != nil {
			return err
		}
		return a.reportVerified(r)
	})
}

func (a *app) reportVerified(r persistence.Report) error {
	if a.json() {
		if err := a.printJSON(map[string]any{"ok": r.OK(), "report": r}); err != nil {
			return err
		}
	} else {
		for _, f := range r.Findings {
			where := "the tenant's own journal"
			if f.Run != "" {
				where = "run " + string(f.Run)
			}
			if f.Seq > 0 {
				where += fmt.Sprintf(", line %d", f.Seq)
			}
			a.note("%s: %s: %s\n", where, a.bad(string(f.Kind)), plain(f.Text))
		}
		verdict := a.good("ok")
		if !r.OK() {
			verdict = a.bad(plural(len(r.Findings), "finding"))
		}
		a.printf("%s: %s of %s read\n", verdict, plural(int(r.Lines), "line"), plural(r.Runs, "run"))
	}
	if !r.OK() {
		return quiet(exitNo)
	}
	return nil
}
