package machine_test

import (
	"strings"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

func load(t *testing.T, text string) (*specs.Bundle, *specs.Machine) {
	t.Helper()
	b, err := specs.LoadFiles([]specs.File{{Name: "order.yaml", Data: []byte(text)}}, specs.LoadOptions{NoCatalog: true})
	if err != nil {
		t.Fatal(err)
	}
	return b, b.Machines[0]
}

const approval = `apiVersion: callgate/v1
kind: Machine
metadata: {name: approval}
spec:
  initial: pending
  final: [spent, rejected, expired, cancelled]
  waiting: [pending, approved]
  events:
    - {name: approve, from: [pending], to: approved, journal: tool_call_approved}
    - {name: spend,   from: [approved], to: spent}
    - {name: reject,  from: [pending], to: rejected, journal: tool_call_denied}
    - {name: expire,  from: [pending, approved], to: expired, journal: tool_call_expired}
    - {name: cancel,  from: [pending, approved], to: cancelled}
  invariants:
    - name: spent only once
      check: count(history, "spend") <= 1
`

// The smallest document that a user would write, from YAML to a step.
func TestADocumentFromYAML(t *testing.T) {
	t.Parallel()
	_, doc := load(t, approval)
	table, err := machine.New(doc)
	if err != nil {
		t.Fatal(err)
	}
	step, err := table.Fire("approved", "spend")
	if err != nil || step != (machine.Step{Machine: "approval", From: "approved", Event: "spend", To: "spent", Journal: "approval_spend"}) {
		t.Errorf("%+v, %v", step, err)
	}
	if birth := table.Birth(); birth.Journal != "approval_created" || birth.To != "pending" {
		t.Errorf("%+v", birth)
	}
	if owner, _ := table.Waiting("approved"); owner != "person" {
		t.Errorf("a bare waiting state is owned by %q", owner)
	}
}

// Each fault points at the author's own word.
func TestF8_FaultsPointIntoTheYAML(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, old, new, want string }{
		{"dead end", "final: [spent, rejected,", "final: [rejected,", `order.yaml:10:45: "spent" is a dead end, not final and without an exit: pending --approve--> approved --spend--> spent
      - {name: spend,   from: [approved], to: spent}
                                              ^^^^^
  hint: list it under ` + "`final`" + `, or give it an event
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(approval, c.old, c.new, 1)
			if text == approval {
				t.Fatal("nothing was replaced")
			}
			b, doc := load(t, text)
			report := machine.Verify(doc, machine.WithSource(b.SourceLine))
			if got := report.Diagnostics().Text(); !strings.HasPrefix(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
