package machinetest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/machine/machinetest"
	"github.com/callgate/callgate/specs"
)

// ticket makes a small lifecycle anew, so that a test may spoil it.
func ticket(t testing.TB) *machine.Table {
	t.Helper()
	text := specs.TextOf
	table, err := machine.New(&specs.Machine{
		Meta:    specs.Meta{Kind: specs.KindMachine, Name: "ticket"},
		Initial: text("open"),
		Final:   []specs.Text{text("closed")},
		Waiting: []specs.MachineWait{{State: text("open"), Owner: "person"}},
		Events: []specs.MachineEvent{
			{Name: text("comment"), From: []specs.Text{text("open")}, To: text("open")},
			{Name: text("close"), From: []specs.Text{text("open")}, To: text("closed")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestASoundLifecyclePasses(t *testing.T) {
	t.Parallel()
	machinetest.Run(t, ticket(t))
}

const spoil = "MACHINETEST_SPOIL"

// spoiled are ways in which a table and its document can come apart, by the law that must notice.
var spoiled = map[string]func(*specs.Machine){
	"F1_only_edges_of_the_document": func(d *specs.Machine) { d.Events[1].To = specs.TextOf("open") },
	"F2_final_states_have_no_exit":  func(d *specs.Machine) { d.Final = nil },
	"F5_the_fold_is_the_state":      func(d *specs.Machine) { d.Events[0].To = specs.TextOf("closed") },
	"F7_an_error_changes_nothing":   func(d *specs.Machine) { d.Events = d.Events[:1] },
	"F8_every_state_reaches_an_end": func(d *specs.Machine) { d.Events[1].To = specs.TextOf("open"); d.Final = nil },
}

// TestSpoiled is run by TestEveryLawCanFail in a process of its own, because it fails.
func TestSpoiled(t *testing.T) {
	change, ok := spoiled[os.Getenv(spoil)]
	if !ok {
		t.Skip("only meant to fail, in a process of its own")
	}
	table := ticket(t)
	change(table.Document())
	machinetest.Run(t, table)
}

func TestEveryLawCanFail(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for law := range spoiled {
		t.Run(law, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self, "-test.run=^TestSpoiled$", "-test.timeout=20s", "-rapid.nofailfile")
			cmd.Env = append(os.Environ(), spoil+"="+law)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestSpoiled/"+law) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
