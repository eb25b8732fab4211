package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
)

func (a *app) doctorVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "What is wrong with this machine or database, and how to mend it",
		Long: `Looks whether the store can be reached and has the right version, whether the database still holds the law (its table
of moves, its triggers), whether the clocks agree, and whether the policy engine cuts off what is too expensive.`,
		Example: "  callgate doctor", Args: words(), RunE: a.verb(a.doctor),
	}
	a.storeFlags(cmd)
	a.formatFlag(cmd)
	return cmd
}

// check is one thing that was looked at. Err is empty when it is well.
type check struct {
	What string `json:"what"`
	Said string `json:"said,omitempty"`
	Err  string `json:"error,omitempty"`
	Fix  string `json:"fix,omitempty"`
}

// failedCheck is a thing that could not be looked at, with what helps.
func failedCheck(what string, err error) check {
	_, text, hint := judge(err)
	return check{What: what, Err: text, Fix: hint}
}

// maxSkew is how far two clocks may be apart before people are told wrong times.
const maxSkew = 5 * time.Second

func (a *app) doctor(ctx context.Context, _ []string) error {
	checks, code, err := a.diagnose(ctx)
	if err != nil {
		return err
	}
	bad := slices.ContainsFunc(checks, func(c check) bool { return c.Err != "" })
	if a.json() {
		if err := a.printJSON(map[string]any{"ok": !bad, "checks": checks}); err != nil {
			return err
		}
	} else {
		for _, c := range checks {
			if c.Err == "" {
				a.printf("%s %s  %s\n", a.good("✓"), pad(c.What, 13), a.dim(c.Said))
				continue
			}
			a.printf("%s %s: %s\n", a.bad("✗"), c.What, block(c.Err))
			if c.Fix != "" {
				a.printf("    %s\n", c.Fix)
			}
		}
	}
	if bad {
		return quiet(code)
	}
	return nil
}

// diagnose answers 4 as code when the store cannot be used at all, 1 when something about it is wrong.
func (a *app) diagnose(ctx context.Context) (checks []check, code int, err error) {
	add := func(c check) { checks = append(checks, c) }
	engine := check{What: "policy engine", Said: "an expensive expression is cut off"}
	if err := celpolicy.SelfTest(); err != nil {
		engine.Err, engine.Fix = err.Error(), "this build of the program must not be used; report it"
	}
	add(engine)

	p, err := a.storePlace()
	if err != nil {
		return nil, exitUsage, err
	}
	store, err := a.openStore(ctx, mustExist)
	if err != nil {
		add(failedCheck("store "+p.String(), err))
		return checks, exitSystem, nil
	}
	defer store.Close()
	add(check{What: "store", Said: p.String() + " answers"})

	now, err := store.Now(ctx)
	if err != nil {
		add(failedCheck("clock", err))
		return checks, exitSystem, nil
	}
	clock := check{What: "clock", Said: "this machine and the store agree"}
	if skew := time.Since(now).Round(time.Second); skew.Abs() > maxSkew {
		clock.Err = fmt.Sprintf("this machine is %s ahead of the store", skew)
		clock.Fix = "set the clock; expiry is decided by the store's, so nothing unsafe happens meanwhile"
	}
	add(clock)

	law := check{What: "lifecycles", Said: "the database holds the same moves as the program"}
	if err := sameLaw(ctx, store); err != nil {
		law.Err, law.Fix = err.Error(), "callgate migrate"+a.sameStore()
	}
	add(law)

	ailments, err := store.Doctor(ctx)
	if err != nil {
		add(failedCheck("database", err))
		return checks, exitSystem, nil
	}
	for _, x := range ailments {
		add(check{What: "database", Err: x.What, Fix: x.Fix})
	}
	if len(ailments) == 0 {
		add(check{What: "database", Said: "version, keys, triggers and settings are as they should be"})
	}
	if p.sqlite != "" {
		add(a.privacy(p.sqlite))
	}
	return checks, exitNo, nil
}

// privacy says whether others on this machine can read the journal.
func (a *app) privacy(path string) check {
	c := check{What: "file", Said: "readable by you alone"}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		c.Err = err.Error()
	case info.Mode().Perm()&0o077 != 0:
		c.Err = fmt.Sprintf("others can open %s (mode %04o)", a.shown(path), info.Mode().Perm())
		c.Fix = "chmod 600 " + shellWord(a.shown(path))
	}
	return c
}

func sameLaw(ctx context.Context, store persistence.Store) error {
	have, err := store.Transitions(ctx)
	if err != nil {
		return err
	}
	var want []machine.Step
	for _, t := range machine.All() {
		want = append(want, t.Edges()...)
	}
	var diff []string
	for _, s := range want {
		if !slices.Contains(have, s) {
			diff = append(diff, "missing: "+s.Machine+": "+s.String())
		}
	}
	for _, s := range have {
		if !slices.Contains(want, s) {
			diff = append(diff, "not ours: "+s.Machine+": "+s.String())
		}
	}
	if len(diff) == 0 {
		return nil
	}
	if len(diff) > 5 {
		diff = append(diff[:5], fmt.Sprintf("and %d more", len(diff)-5))
	}
	return errors.New(strings.Join(diff, "; "))
}
