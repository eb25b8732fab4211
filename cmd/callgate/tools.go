package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
)

func (a *app) toolsVerb() *cobra.Command {
	var (
		s   subject
		all bool
	)
	cmd := &cobra.Command{
		Use:   "tools DIR",
		Short: "The list of tools a model would see",
		Long: `Lists the tools that policy shows to the model of a profile, by canonical name, with the alias the model calls them
by. "asks" means that a call waits for a person, "may ask" and "may be refused" that it depends on the arguments.`,
		Example: "  callgate tools my-gate --profile writer",
		Args:    oneDir,
	}
	cmd.RunE = a.verb(func(_ context.Context, dirs []string) error { return a.listTools(dirs[0], s, all) })
	s.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also those it would not see, with the reason")
	a.formatFlag(cmd)
	a.levelFlag(cmd)
	return cmd
}

// listedTool is one entry of the JSON report.
type listedTool struct {
	Name             specs.ToolName   `json:"name"`
	Alias            specs.Alias      `json:"alias"`
	Title            string           `json:"title,omitempty"`
	Source           specs.SourceKind `json:"source"`
	Visible          bool             `json:"visible"`
	Callable         bool             `json:"callable"`
	ApprovalRequired bool             `json:"approvalRequired"`
	DependsOnArgs    bool             `json:"dependsOnArgs,omitempty"`
	Code             string           `json:"code,omitempty"`
	Rule             specs.RuleID     `json:"rule,omitempty"`
	Reason           string           `json:"reason,omitempty"`
}

func (a *app) listTools(dir string, s subject, all bool) error {
	c, err := a.compileDir(dir)
	if err != nil {
		return err
	}
	in, err := s.input(c, celpolicy.PhaseList)
	if err != nil {
		return err
	}
	in.Trace = false
	list, hidden := []listedTool{}, 0
	for _, d := range c.Policy.List(in) {
		if !d.Visible && !all {
			hidden++
			continue
		}
		t := c.Bundle.Tool(d.Tool)
		list = append(list, listedTool{Name: d.Tool, Alias: specs.AliasOf(d.Tool), Title: t.Title, Source: t.Source.Kind,
			Visible: d.Visible, Callable: d.Callable, ApprovalRequired: d.ApprovalRequired, DependsOnArgs: d.Unknown,
			Code: d.Code, Rule: d.Rule, Reason: d.Reason})
	}
	if a.json() {
		return a.printJSON(map[string]any{"profile": in.Run.Profile, "policyDigest": c.Policy.Digest(), "tools": list})
	}
	if in.Run.Profile == "" {
		a.note("no profile is named and the bundle has no default, so nothing is granted\n")
	}
	var rows [][]string
	for _, t := range list {
		rows = append(rows, []string{string(t.Name), a.dim(string(t.Alias)), a.standing(t), oneLine(t.Title, 60)})
	}
	table(a.Stdout, rows)
	if hidden > 0 {
		a.note("%s not shown to this model; --all lists them\n", plural(hidden, "tool"))
	}
	return nil
}

// standing is a tool's verdict in a few words.
func (a *app) standing(t listedTool) string {
	switch {
	case !t.Visible:
		return a.bad("hidden") + " " + oneLine(orElse(string(t.Rule), t.Code), 40)
	case t.ApprovalRequired && t.DependsOnArgs:
		return a.wait("may ask")
	case t.ApprovalRequired:
		return a.wait("asks")
	case !t.Callable:
		return a.bad(strings.TrimPrefix(t.Code, "policy."))
	case t.DependsOnArgs:
		return "depends"
	}
	return a.good("free")
}
