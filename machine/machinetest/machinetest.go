// Package machinetest proves a lifecycle the way the shipped ones are proven.
//
// What you most likely want is one line in a test of your own:
//
//	func TestOrderLifecycle(t *testing.T) {
//		table, err := machine.New(doc)
//		if err != nil {
//			t.Fatal(err)
//		}
//		machinetest.Run(t, table)
//	}
//
// Run holds the table against a [Twin], which reads the document's rows one by one and is too simple to
// be wrong: every pair of state and event, folds of every prefix of random walks, walks that go on after
// illegal events, and a way to an end from everywhere.
//
// Promises: the checks need nothing but the table, run in well under a second for a table of the shipped
// size, and print the walk that fails, shrunk to its shortest form.
package machinetest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/machine"
)

// Run checks a table in subtests named by law: F1, F2, F5, F7, F8.
func Run(t *testing.T, table *machine.Table) {
	t.Helper()
	twin := NewTwin(table.Document())
	t.Run("F1_only_edges_of_the_document", func(t *testing.T) { t.Parallel(); edges(t, table, twin) })
	t.Run("F2_final_states_have_no_exit", func(t *testing.T) { t.Parallel(); ends(t, table, twin) })
	t.Run("F5_the_fold_is_the_state", func(t *testing.T) { t.Parallel(); folds(t, table, twin) })
	t.Run("F7_an_error_changes_nothing", func(t *testing.T) { t.Parallel(); errorsLeaveNoTrace(t, table, twin) })
	t.Run("F8_every_state_reaches_an_end", func(t *testing.T) { t.Parallel(); ways(t, table, twin) })
}

// edges: F1, for all pairs, and for words that belong to no machine.
func edges(t *testing.T, table *machine.Table, twin Twin) {
	states := append(table.States(), "", "no_such_state", "\x00")
	events := append(table.Events(), "", "no_such_event", machine.Create, "\xff")
	known := 0
	for _, s := range states {
		for _, ev := range events {
			step, err := table.Fire(s, ev)
			to, ok := twin.Fire(s, ev)
			if ok {
				known++
				if err != nil || step.To != to || step.From != s || step.Event != ev || step.Machine != table.Name() || step.Journal == "" {
					t.Errorf("%s in %q: got %+v, %v; the document says %q", ev, s, step, err, to)
				}
				continue
			}
			var illegal *machine.IllegalError
			if !errors.As(err, &illegal) {
				t.Errorf("%q in %q: got %+v, %v; the document does not have it", ev, s, step, err)
				continue
			}
			if illegal.From != s || illegal.Event != ev || illegal.Machine != table.Name() || !slices.Equal(illegal.Legal, twin.Legal(s)) {
				t.Errorf("%q in %q: the error says %+v; legal is %q", ev, s, illegal, twin.Legal(s))
			}
		}
	}
	if listed := table.Edges(); len(listed) != known+1 || listed[0] != table.Birth() {
		t.Errorf("Edges lists %d moves, want the birth and %d", len(listed), known)
	}
}

// ends: F2, on the table and along walks, each of which meets a final state at most once, as its last.
func ends(t *testing.T, table *machine.Table, twin Twin) {
	if len(table.Finals()) == 0 || table.IsFinal(table.Initial()) {
		t.Fatalf("finals %q, initial %q", table.Finals(), table.Initial())
	}
	for _, s := range table.States() {
		if table.IsFinal(s) != twin.IsFinal(s) || table.IsFinal(s) && len(table.Legal(s)) > 0 {
			t.Errorf("%q: final %v, exits %q", s, table.IsFinal(s), table.Legal(s))
		}
	}
	if t.Failed() {
		return // rapid refuses to start on a test that has failed
	}
	rapid.Check(t, func(t *rapid.T) {
		state, terminal := table.Initial(), 0
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			ev := rapid.SampledFrom(table.Events()).Draw(t, "event")
			if step, err := table.Fire(state, ev); err == nil {
				if state = step.To; table.IsFinal(state) {
					terminal++
				}
			}
		}
		if terminal > 1 {
			t.Fatalf("%d terminal events", terminal)
		}
	})
}

// folds: F5, for every prefix of a lawful walk.
func folds(t *testing.T, table *machine.Table, twin Twin) {
	rapid.Check(t, func(t *rapid.T) {
		var history []machine.Event
		state := twin.Initial()
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			legal := twin.Legal(state)
			if len(legal) == 0 {
				break
			}
			ev := rapid.SampledFrom(legal).Draw(t, "event")
			history = append(history, ev)
			state, _ = twin.Fire(state, ev)
			if got, err := table.Fold(history); err != nil || got != state {
				t.Fatalf("fold of %s is %q (%v), the walk is in %q", words(history), got, err, state)
			}
		}
	})
}

// errorsLeaveNoTrace: F7. After any number of refused events the next lawful one succeeds.
func errorsLeaveNoTrace(t *testing.T, table *machine.Table, twin Twin) {
	word := rapid.OneOf(rapid.SampledFrom(table.Events()), rapid.Map(rapid.String(), func(s string) machine.Event { return machine.Event(s) }))
	rapid.Check(t, func(t *rapid.T) {
		state := twin.Initial()
		for range 20 {
			for range rapid.IntRange(0, 3).Draw(t, "noise") {
				ev := word.Draw(t, "noise event")
				if _, ok := twin.Fire(state, ev); ok {
					continue
				}
				if step, err := table.Fire(state, ev); err == nil {
					t.Fatalf("%q in %q leads to %q", ev, state, step.To)
				}
			}
			legal := twin.Legal(state)
			if len(legal) == 0 {
				return
			}
			ev := rapid.SampledFrom(legal).Draw(t, "event")
			step, err := table.Fire(state, ev)
			if want, _ := twin.Fire(state, ev); err != nil || step.To != want {
				t.Fatalf("%s in %q after refused events: %+v, %v", ev, state, step, err)
			}
			state = step.To
		}
	})
}

// ways: F8, by walking backwards from the final states, and no state that may rest without a hand to move
// it on.
func ways(t *testing.T, table *machine.Table, twin Twin) {
	ends := map[machine.State]bool{}
	for grown := true; grown; {
		grown = false
		for _, s := range table.States() {
			if ends[s] {
				continue
			}
			leads := twin.IsFinal(s) || slices.ContainsFunc(twin.Legal(s), func(ev machine.Event) bool {
				to, _ := twin.Fire(s, ev)
				return ends[to]
			})
			if leads {
				ends[s], grown = true, true
			}
		}
	}
	for _, s := range table.States() {
		if !ends[s] {
			t.Errorf("%q cannot reach a final state", s)
		}
		owner, timer := table.Waiting(s)
		if table.IsWaiting(s) && owner == "" && timer == "" {
			t.Errorf("%q rests and nobody moves it on", s)
		}
		if _, ok := twin.Fire(s, timer); timer != "" && !ok {
			t.Errorf("the timer of %q fires %q, which may not happen there", s, timer)
		}
	}
}

func words(history []machine.Event) string {
	var list []string
	for _, ev := range history {
		list = append(list, string(ev))
	}
	return strings.Join(list, " ")
}
