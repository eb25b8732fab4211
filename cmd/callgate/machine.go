package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

func (a *app) machineVerb() *cobra.Command {
	draw := &cobra.Command{
		Use:   "draw [NAME]",
		Short: "A lifecycle as a diagram",
		Long: `Prints the diagram of one lifecycle: approval, call, invocation or run, or the Machine documents of a YAML file.
Without a name, all four that ship.`,
		Example: "  callgate machine draw call --as mermaid",
		Args:    cobra.MaximumNArgs(1),
	}
	as := draw.Flags().String("as", "mermaid", "mermaid or dot")
	draw.RunE = a.verb(func(_ context.Context, args []string) error { return a.drawMachines(args, *as) })

	verify := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "A lifecycle's own proof, with a counterexample when it fails",
		Long: `Checks that every state is reached and reaches an end, that nothing rests without somebody who wakes it, and that
the document's invariants hold in every short history. A fault comes with the shortest way into it. Without a file,
the four lifecycles that ship with the program are checked.`,
		Example: "  callgate machine verify my-gate/order.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE:    a.verb(a.verifyMachines),
	}
	a.formatFlag(verify)
	return a.group("machine", "Lifecycles: draw them, prove them", "  callgate machine verify", draw, verify)
}

// invariantCompiler joins the room that knows lifecycles with the one that knows CEL.
func invariantCompiler(inv specs.MachineInvariant) (func(machine.State, []machine.Event) (bool, error), error) {
	holds, err := celpolicy.CompileInvariant(inv.Check)
	if err != nil {
		return nil, err
	}
	return func(s machine.State, history []machine.Event) (bool, error) {
		words := make([]string, len(history))
		for i, e := range history {
			words[i] = string(e)
		}
		return holds(string(s), words)
	}, nil
}

// machineDocs gives the documents to look at, and how to show an author's line of them.
func (a *app) machineDocs(args []string) ([]*specs.Machine, func(specs.Pos) string, error) {
	if len(args) == 0 {
		var docs []*specs.Machine
		for _, t := range machine.All() {
			docs = append(docs, t.Document())
		}
		return docs, nil, nil
	}
	for _, t := range machine.All() {
		if t.Name() == args[0] {
			return []*specs.Machine{t.Document()}, nil, nil
		}
	}
	if !strings.ContainsAny(args[0], "./\\") {
		return nil, nil, nof("there is no lifecycle %q", args[0]).
			withHint("approval, call, invocation and run ship with the program; others are named by their file")
	}
	data, err := a.readFile(args[0])
	if err != nil {
		return nil, nil, err
	}
	b, err := specs.LoadFiles([]specs.File{{Name: filepath.ToSlash(args[0]), Data: data}}, specs.LoadOptions{Level: specs.PlatformLevel})
	if err != nil {
		return nil, nil, err
	}
	if len(b.Machines) == 0 {
		return nil, nil, nof("%s holds no Machine document", args[0])
	}
	return b.Machines, b.SourceLine, nil
}

func (a *app) drawMachines(args []string, as string) error {
	if as != "mermaid" && as != "dot" {
		return usagef("--as is mermaid or dot, not %q", as)
	}
	docs, source, err := a.machineDocs(args)
	if err != nil {
		return err
	}
	for i, doc := range docs {
		t, err := machine.New(doc, machine.WithSource(source))
		if err != nil {
			return err
		}
		if i > 0 {
			a.printf("\n")
		}
		if as == "dot" {
			a.printf("%s", t.Dot())
		} else {
			a.printf("%s", t.Mermaid())
		}
	}
	return nil
}

// verifiedMachine is one entry of the JSON report.
type verifiedMachine struct {
	Machine  string              `json:"machine"`
	OK       bool                `json:"ok"`
	States   int                 `json:"states"`
	Events   int                 `json:"events"`
	Edges    int                 `json:"edges"`
	Findings []machineFinding    `json:"findings"`
	Laws     []machine.LawReport `json:"invariants"`
}

type machineFinding struct {
	specs.Diagnostic
	Trace string `json:"trace,omitempty"`
}

func (a *app) verifyMachines(_ context.Context, args []string) error {
	docs, source, err := a.machineDocs(args)
	if err != nil {
		return err
	}
	bad := false
	var out []verifiedMachine
	for _, doc := range docs {
		r := machine.Verify(doc, machine.WithSource(source), machine.WithInvariants(invariantCompiler))
		bad = bad || r.Err() != nil
		if a.json() {
			v := verifiedMachine{Machine: r.Machine, OK: r.Err() == nil, States: r.States, Events: r.Events, Edges: r.Edges,
				Findings: []machineFinding{}, Laws: append([]machine.LawReport{}, r.Laws...)}
			for _, f := range r.Findings {
				v.Findings = append(v.Findings, machineFinding{f.Diagnostic, f.Trace.String()})
			}
			out = append(out, v)
			continue
		}
		if r.Err() != nil {
			a.note("%s", r.Text())
		} else {
			a.printf("%s", r.Text())
		}
	}
	if a.json() {
		if err := a.printJSON(map[string]any{"ok": !bad, "machines": out}); err != nil {
			return err
		}
	}
	if bad {
		return quiet(exitNo)
	}
	return nil
}
