package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
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
	b, found, err := a.findings(f)
	if err != nil {
		return err
	}
	ok := found.Err() == nil
	if a.json() {
		out := validated{OK: ok, Diagnostics: found}
		if out.Diagnostics == nil {
			out.Diagnostics = specs.Diagnostics{}
		}
		if b != nil {
			out.Digest, out.Documents = b.Digest, countDocuments(b)
		}
		if err := a.printJSON(out); err != nil {
			return err
		}
		if !ok {
			return quiet(exitNo)
		}
		return nil
	}
	if !ok {
		return &specs.InvalidError{Diagnostics: found}
	}
	a.note("%s", found.Text())
	summary := a.good("valid") + ": " + describeDocuments(b)
	if n := len(found); n > 0 {
		summary += ", " + plural(n, "warning")
	}
	a.printf("%s\n%s\n", summary, a.dim("digest "+string(b.Digest)))
	return nil
}

// findings is everything there is to say about a folder; b is nil when it could not be read as a bundle.
func (a *app) findings(f *folder) (*specs.Bundle, specs.Diagnostics, error) {
	b, err := a.load(f)
	if err != nil {
		if ds, ok := specs.AsDiagnostics(err); ok {
			return nil, ds, nil
		}
		return nil, nil, err
	}
	found := append(specs.Diagnostics(nil), b.Warnings...)
	p, err := celpolicy.Compile(b)
	if ds, ok := specs.AsDiagnostics(err); ok {
		found = append(found, ds...)
	} else if err != nil {
		return nil, nil, err
	} else {
		found = append(found, p.Warnings()...)
	}
	for _, doc := range b.Machines {
		found = append(found, machine.Verify(doc, machine.WithInvariants(invariantCompiler),
			machine.WithSource(b.SourceLine)).Diagnostics()...)
	}
	found = f.place(found)
	found.Sort()
	return b, found, nil
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
