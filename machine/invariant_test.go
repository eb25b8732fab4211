package machine_test

import (
	"strings"
	"testing"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// compile joins this room's invariants with the room that knows CEL, as the command line does.
func compile(inv specs.MachineInvariant) (func(machine.State, []machine.Event) (bool, error), error) {
	holds, err := celpolicy.CompileInvariant(inv.Check)
	if err != nil {
		return nil, err
	}
	return func(s machine.State, history []machine.Event) (bool, error) {
		words := make([]string, len(history))
		for i, ev := range history {
			words[i] = string(ev)
		}
		return holds(string(s), words)
	}, nil
}

func TestTheShippedInvariantsHold(t *testing.T) {
	t.Parallel()
	for _, table := range machine.All() {
		t.Run(table.Name(), func(t *testing.T) {
			t.Parallel()
			report := machine.Verify(table.Document(), machine.WithInvariants(compile))
			if err := report.Err(); err != nil {
				t.Fatal(err)
			}
			if len(report.Laws) == 0 || len(report.Laws) != len(table.Document().Invariants) {
				t.Errorf("%d of %d invariants checked", len(report.Laws), len(table.Document().Invariants))
			}
			t.Log(report.Text())
		})
	}
}

// A broken invariant points at its own text, with the shortest history that breaks it.
func TestF8_InvariantsPointIntoTheYAML(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, old, new, want string }{
		{"broken invariant", `count(history, "spend") <= 1`, `count(history, "expire") == 0`, `order.yaml:16:14: invariant "spent only once" is broken: pending --expire--> expired
        check: count(history, "expire") == 0
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
`},
		{"invariant with a typo", `count(history,`, `count(histry,`, `order.yaml:16:20: undeclared reference to 'histry' (in container '')
        check: count(histry, "spend") <= 1
                     ^`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(approval, c.old, c.new, 1)
			if text == approval {
				t.Fatal("nothing was replaced")
			}
			b, doc := load(t, text)
			report := machine.Verify(doc, machine.WithInvariants(compile), machine.WithSource(b.SourceLine))
			if got := report.Diagnostics().Text(); !strings.HasPrefix(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
