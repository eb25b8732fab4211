package main

import (
	"context"
	"path"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/celpolicy"
)

func (a *app) testVerb() *cobra.Command {
	var (
		coverage bool
		run      string
	)
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "The bundle's own expectations",
		Long: `Runs the PolicyTest documents of DIR: each case is one call and what should be decided about it. --coverage also shows
which rules, and which branches of their conditions, no case has reached.`,
		Example: "  callgate test my-gate --coverage",
		Args:    oneDir,
	}
	cmd.RunE = a.verb(func(_ context.Context, dirs []string) error { return a.test(dirs[0], coverage, run) })
	cmd.Flags().BoolVar(&coverage, "coverage", false, "which rules and branches were reached")
	cmd.Flags().StringVar(&run, "run", "", "only cases whose suite/name matches this regular expression")
	a.formatFlag(cmd)
	a.levelFlag(cmd)
	return cmd
}

func (a *app) test(dir string, coverage bool, run string) error {
	opts := celpolicy.SuiteOptions{Coverage: coverage}
	if run != "" {
		re, err := regexp.Compile(run)
		if err != nil {
			return usagef("--run: %v", err)
		}
		opts.Run = re
	}
	c, err := a.compileDir(dir)
	if err != nil {
		return err
	}
	if len(c.Bundle.Tests) == 0 {
		return nof("the bundle has no PolicyTest document").withHint("callgate init writes a bundle that has one")
	}
	r := celpolicy.RunSuite(c.Policy, c.Bundle, opts)
	if r.Passed+r.Failed == 0 {
		return nof("no case matches --run %s", run)
	}
	for i := range r.Cases {
		r.Cases[i].Pos.File = path.Join(filepath.ToSlash(dir), r.Cases[i].Pos.File)
	}
	if r.Coverage != nil {
		for i := range r.Coverage.Rules {
			rule := &r.Coverage.Rules[i]
			rule.Pos.File = path.Join(filepath.ToSlash(dir), rule.Pos.File)
			for j := range rule.Branches {
				rule.Branches[j].Pos.File = path.Join(filepath.ToSlash(dir), rule.Branches[j].Pos.File)
			}
		}
	}
	if a.json() {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		a.printf("%s", r.Text())
	}
	if r.Failed > 0 {
		return quiet(exitNo)
	}
	return nil
}
