package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools/agent"
)

// drive moves a run on and shows what happens, until it ends or waits for somebody who is not here.
func (a *app) drive(ctx context.Context, h *house, run persistence.Run, afterSeq int64) error {
	teller := a.storyteller(h)
	teller.silence = a.json()
	if err := a.catchUp(ctx, teller, run.ID, afterSeq); err != nil {
		return err
	}
	if !a.json() {
		a.printf("%s %s  %s as %s\n", a.bold("run"), a.bold(shortID(run.ID)), run.Profile, plain(string(run.User)))
		if run.Task != "" {
			a.printf("%s\n", a.dim("task: "+oneLine(run.Task, 100)))
		}
	}
	for {
		out, err := a.step(ctx, h, run.ID, teller)
		if err != nil {
			return a.interrupted(run.ID, err)
		}
		if len(out.Waiting) > 0 && len(out.Unknown) == 0 && a.TerminalIn && a.TerminalOut && !a.json() {
			goOn, err := a.ask(ctx, h, out.Waiting)
			if err != nil {
				return a.interrupted(run.ID, err)
			}
			if goOn {
				continue
			}
		}
		return a.conclude(ctx, h, run.ID, out)
	}
}

// catchUp reads what was told before, so that later lines can refer to it.
func (a *app) catchUp(ctx context.Context, t *storyteller, run specs.RunID, until int64) error {
	if until == 0 {
		return nil
	}
	silence := t.silence
	t.silence = true
	defer func() { t.silence = silence }()
	return eachLine(ctx, t.store, t.tenant, run, 0, func(l persistence.Line) error {
		if l.Seq <= until {
			t.tell(ctx, l)
		}
		return nil
	})
}

// step runs until the run rests, with its lines told as they are written.
func (a *app) step(ctx context.Context, h *house, run specs.RunID, t *storyteller) (agent.Outcome, error) {
	follow, stop := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() {
		// Whatever it misses when it is stopped, or fails to read, is told below.
		_ = agent.Follow(follow, h.store, h.tenant, run, t.last, func(l persistence.Line) error {
			t.tell(follow, l)
			return nil
		})
	})
	out, err := h.runner.Run(ctx, h.tenant, run)
	stop()
	teller.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	rest := eachLine(ctx, h.store, h.tenant, run, t.last, func(l persistence.Line) error {
		t.tell(ctx, l)
		return nil
	})
	if err == nil {
		err = rest
	}
	return out, err
}

// eachLine gives every line of a run behind afterSeq.
func eachLine(ctx context.Context, store persistence.Store, t specs.TenantID, run specs.RunID, afterSeq int64, fn func(persistence.Line) error) error {
	const page = 1000
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
			return nil
		}
	}
}

// interrupted says how a run that was left in the middle goes on.
func (a *app) interrupted(run specs.RunID, err error) error {
	var held *persistence.HeldError
	if errors.As(err, &held) {
		return err
	}
	return &failure{err: err, hint: fmt.Sprintf("the run is in the store; callgate runs resume %s goes on with it", a.ref(run))}
}

// ref is an id as part of a command that can be copied, with the flags that find the same store again.
func (a *app) ref(run specs.RunID) string { return string(run) + a.sameStore() }

func (a *app) sameStore() string {
	s := ""
	if a.store != "" {
		s += " --store " + shellWord(a.store)
	}
	if a.tenant != "" && a.tenant != "default" {
		s += " --tenant " + shellWord(a.tenant)
	}
	return s
}

func shellWord(s string) string {
	if strings.ContainsAny(s, " '\"$&?*\\;|<>()`!#~") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
