package main

import (
	"context"
	"slices"
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
by. "free" means that every call may be made at once, "asks" that every call waits for a person; "may ask" and "may be
refused" depend on the arguments.`,
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
	MayAsk           bool             `json:"mayAsk,omitempty"`       // some arguments need a person, others do not
	MayBeRefused     bool             `json:"mayBeRefused,omitempty"` // some arguments are refused
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
	list, hidden := []listedTool{}, 0
	for _, d := range c.Policy.List(in) {
		if !d.Visible && !all {
			hidden++
			continue
		}
		t := c.Bundle.Tool(d.Tool)
		entry := listedTool{Name: d.Tool, Alias: specs.AliasOf(d.Tool), Title: t.Title, Source: t.Source.Kind,
			Visible: d.Visible, Callable: d.Callable, ApprovalRequired: d.ApprovalRequired, DependsOnArgs: d.Unknown,
			Code: d.Code, Rule: d.Rule, Reason: d.Reason}
		entry.hear(d.Trace)
		list = append(list, entry)
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

// hear learns from the voices that wait for arguments what these could still change.
func (t *listedTool) hear(trace []celpolicy.Voice) {
	for _, v := range trace {
		if v.Outcome != celpolicy.Unknown {
			continue
		}
		switch v.Effect {
		case specs.EffectApprove, specs.EffectWaive:
			t.MayAsk = t.MayAsk || t.ApprovalRequired == (v.Effect == specs.EffectWaive)
		case specs.EffectDeny, specs.EffectHide:
			t.MayBeRefused = true
		case specs.EffectAllow: // matters when nobody else of the layer allows for certain
			t.MayBeRefused = t.MayBeRefused || !slices.ContainsFunc(trace, func(o celpolicy.Voice) bool {
				return o.Layer == v.Layer && o.Effect == specs.EffectAllow && o.Outcome == celpolicy.Matched
			})
		}
	}
}

// standing is a tool's verdict in a few words.
func (a *app) standing(t listedTool) string {
	if !t.Visible {
		return a.bad("hidden") + " " + oneLine(orElse(string(t.Rule), t.Code), 40)
	}
	if !t.Callable {
		return a.bad(strings.TrimPrefix(t.Code, "policy."))
	}
	var words []string
	switch {
	case t.MayAsk:
		words = append(words, a.wait("may ask"))
	case t.ApprovalRequired:
		words = append(words, a.wait("asks"))
	}
	if t.MayBeRefused {
		words = append(words, "may be refused")
	}
	if words == nil {
		return a.good("free")
	}
	return strings.Join(words, ", ")
}
