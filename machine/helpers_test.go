package machine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// doc makes a document from one line per fact, so that a test shows the lifecycle it is about:
//
//	initial created
//	final paid gone
//	waiting created person
//	created pay paid
//
// Every word stands at its line and column of the text.
func doc(text string) *specs.Machine {
	m := &specs.Machine{Meta: specs.Meta{Kind: specs.KindMachine, Name: "order",
		Pos: specs.Pos{File: "order.yaml", Line: 1, Col: 1}, NamePos: specs.Pos{File: "order.yaml", Line: 1, Col: 1}}}
	for no, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
		var words []specs.Text
		col := 1
		for _, w := range strings.Split(line, " ") {
			if w != "" {
				t := specs.TextOf(w)
				t.Pos = specs.Pos{File: "order.yaml", Line: no + 1, Col: col}
				words = append(words, t)
			}
			col += len(w) + 1
		}
		switch words[0].Value {
		case "initial":
			m.Initial = words[1]
		case "birth":
			m.Birth = words[1].Value
		case "final":
			m.Final = words[1:]
		case "states":
			m.States = words[1:]
		case "waiting":
			w := specs.MachineWait{State: words[1]}
			if len(words) > 2 && words[2].Value != "-" {
				w.Owner = words[2].Value
			}
			if len(words) > 3 {
				w.Timer = words[3].Value
			}
			m.Waiting = append(m.Waiting, w)
		case "invariant":
			m.Invariants = append(m.Invariants, specs.MachineInvariant{Name: words[1].Value, Check: words[2]})
		default: // from event to
			m.Events = append(m.Events, specs.MachineEvent{Name: words[1], From: words[:1:1], To: words[2], Pos: words[0].Pos})
		}
	}
	return m
}

func mustNew(t testing.TB, text string) *machine.Table {
	t.Helper()
	table, err := machine.New(doc(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

const order = `
initial created
final paid gone
waiting created person give_up
created pay paid
created nudge created
created give_up gone
`

func ExampleTable_Fire() {
	step, err := machine.Call().Fire(machine.CallReady, machine.CallStart)
	fmt.Println(step, "writes", step.Journal, err)

	_, err = machine.Call().Fire(machine.CallRejected, machine.CallStart)
	fmt.Println(err)
	// Output:
	// ready --start--> started writes tool_call_started <nil>
	// call: "start" may not happen in "rejected": nothing may
}
