package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/specs"
)

func (a *app) validateVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate DIR",
		Short: "Every mistake of a bundle at once, with place and hint",
		Long: `Reads every YAML file below DIR and reports all mistakes in file order: syntax, unknown keys, names that do not
exist, expressions that do not type-check, lifecycles that can get stuck. Warnings tell of rules that are dead,
shadowed or unreachable; they do not change the exit code. Nothing of the catalog that ships with the program has to
be in DIR.`,
		Example: "  callgate validate my-gate",
		Args:    oneDir,
		RunE:    a.verb(a.validate),
	}
	a.formatFlag(cmd)
	a.levelFlag(cmd)
	return cmd
}

// validated is the JSON report.
type validated struct {
	OK          bool              `json:"ok"`
	Digest      specs.Digest      `json:"digest,omitempty"`
	Documents   map[string]int    `json:"documents,omitempty"`
	Diagnostics specs.Diagnostics `json:"diagnostics"`
}

func (a *app) validate(_ context.Context, args []string) error {
	f, err := a.openFolder(args[0])
	if err != nil {
		return err
	}
	defer f.close()
	x, err := a.examine(f)
	if err != nil {
		return err
	}
	if err := x.err(); err != nil {
		if a.json() {
			if err := a.printJSON(validated{Diagnostics: x.all}); err != nil {
				return err
			}
			return quiet(exitNo)
		}
		return err
	}
	b := x.bundle
	if a.json() {
		return a.printJSON(validated{OK: true, Digest: b.Digest, Documents: countDocuments(b), Diagnostics: orEmpty(x.all)})
	}
	a.note("%s", x.all.Text())
	summary := a.good("valid") + ": " + describeDocuments(b)
	if n := len(x.all); n > 0 {
		summary += ", " + plural(n, "warning")
	}
	a.printf("%s\n%s\n", summary, a.dim("digest "+string(b.Digest)))
	return nil
}

func countDocuments(b *specs.Bundle) map[string]int {
	own := map[string]int{}
	count := func(k specs.Kind, m *specs.Meta) {
		if !m.Shipped {
			own[string(k)]++
		}
	}
	for _, d := range b.Tools {
		count(specs.KindTool, d.Head())
	}
	for _, d := range b.Policies {
		count(specs.KindPolicy, d.Head())
	}
	for _, d := range b.Profiles {
		count(specs.KindProfile, d.Head())
	}
	for _, d := range b.Plans {
		count(specs.KindPlan, d.Head())
	}
	for _, d := range b.Sources {
		count(specs.KindSource, d.Head())
	}
	for _, d := range b.Machines {
		count(specs.KindMachine, d.Head())
	}
	for _, d := range b.Tests {
		count(specs.KindPolicyTest, d.Head())
	}
	if b.Tenant != nil {
		count(specs.KindTenant, b.Tenant.Head())
	}
	return own
}

func describeDocuments(b *specs.Bundle) string {
	own := countDocuments(b)
	var parts []string
	for _, k := range specs.Kinds() {
		if n := own[string(k)]; n > 0 {
			many := string(k) + "s"
			if k == specs.KindPolicy {
				many = "Policies"
			}
			parts = append(parts, plural(n, string(k), many))
		}
	}
	if len(parts) == 0 {
		return "no documents"
	}
	return strings.Join(parts, ", ")
}
