package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/callgate/callgate/specs"
)

// State is where a machine stands. The empty State is "not born yet" and belongs to no table.
type State string

// Event is what happens to a machine.
type Event string

// Create is the event of every machine's first line: from nothing into the initial state. No document may
// declare it, and Fire refuses it, because a machine that exists cannot be born again.
const Create Event = "create"

// Step is one lawful move, and everything that a store has to write down about it.
type Step struct {
	Machine string // the document's name: "call", "run"
	From    State  // empty for the birth
	Event   Event
	To      State
	Journal string // kind of the journal line that this move writes
}

// String gives `from --event--> to`.
func (s Step) String() string { return fmt.Sprintf("%s --%s--> %s", s.From, s.Event, s.To) }

// IllegalError says that an event may not happen in a state. Nothing has changed.
type IllegalError struct {
	Machine string
	From    State
	Event   Event
	Legal   []Event // what may happen in From, sorted; empty when From is final or not a state of this machine
}

func (e *IllegalError) Error() string {
	if len(e.Legal) == 0 {
		return fmt.Sprintf("%s: %q may not happen in %q: nothing may", e.Machine, e.Event, e.From)
	}
	legal := make([]string, len(e.Legal))
	for i, ev := range e.Legal {
		legal[i] = string(ev)
	}
	return fmt.Sprintf("%s: %q may not happen in %q; legal: %s", e.Machine, e.Event, e.From, strings.Join(legal, ", "))
}

// Table is a verified lifecycle. Make one with New; the zero Table knows no state and refuses everything.
type Table struct {
	doc      *specs.Machine
	name     string
	digest   specs.Digest
	birth    Step
	states   []State
	events   []Event
	stateNo  map[State]int
	eventNo  map[Event]int
	cells    []uint32 // [state*len(events)+event]: 1 + index into steps, 0 for "may not happen"
	steps    []Step   // sorted by from, event
	legal    [][]Event
	final    []bool
	waits    map[State]specs.MachineWait
	warnings specs.Diagnostics
}

// Fire answers what happens to a machine in state from when ev happens: the step to commit, or an
// *IllegalError. It keeps nothing and allocates only for the error.
func (t *Table) Fire(from State, ev Event) (Step, error) {
	s, okState := t.stateNo[from]
	e, okEvent := t.eventNo[ev]
	if okState && okEvent {
		if cell := t.cells[s*len(t.events)+e]; cell != 0 {
			return t.steps[cell-1], nil
		}
	}
	return Step{}, &IllegalError{Machine: t.name, From: from, Event: ev, Legal: t.Legal(from)}
}

// Fold replays a history on a newborn machine and gives the state it ends in. The events are those after
// the birth. The first one that may not happen stops it with an error that names its number, from 0, and
// unwraps to *IllegalError; the state is then the last lawful one.
func (t *Table) Fold(events []Event) (State, error) {
	state := t.Initial()
	for i, ev := range events {
		step, err := t.Fire(state, ev)
		if err != nil {
			return state, fmt.Errorf("event %d: %w", i, err)
		}
		state = step.To
	}
	return state, nil
}

// Name is the document's name, "call".
func (t *Table) Name() string { return t.name }

// Digest names the table's meaning: equal for two documents exactly when they allow the same moves, write
// the same journal kinds and rest in the same hands. Order, comments and layout do not count.
func (t *Table) Digest() specs.Digest { return t.digest }

// Document is what the table was made from. Do not change it.
func (t *Table) Document() *specs.Machine { return t.doc }

// Warnings are findings that did not stop the table from being made.
func (t *Table) Warnings() specs.Diagnostics { return slices.Clone(t.warnings) }

// Initial is the state a machine is born into.
func (t *Table) Initial() State { return t.birth.To }

// Birth is the pseudo-edge that every machine's first journal line takes: From is empty, Event is Create.
func (t *Table) Birth() Step { return t.birth }

// States lists every state, in the document's order.
func (t *Table) States() []State { return slices.Clone(t.states) }

// Events lists every event, in the document's order, without Create.
func (t *Table) Events() []Event { return slices.Clone(t.events) }

// Has says whether s is a state of this machine.
func (t *Table) Has(s State) bool { _, ok := t.stateNo[s]; return ok }

// IsFinal says that nothing more can happen in s. An unknown state is not final.
func (t *Table) IsFinal(s State) bool {
	i, ok := t.stateNo[s]
	return ok && t.final[i]
}

// Finals lists the final states, in the document's order.
func (t *Table) Finals() []State {
	return slices.DeleteFunc(t.States(), func(s State) bool { return !t.IsFinal(s) })
}

// IsWaiting says that a machine may rest in s between two transactions.
func (t *Table) IsWaiting(s State) bool { _, ok := t.waits[s]; return ok }

// Waiting says who moves a machine on that rests in s (person, host, worker, model; may be empty when a
// timer does) and which event fires when its deadline passes (empty: none). Both are empty when s is no
// waiting state.
func (t *Table) Waiting(s State) (owner string, timer Event) {
	w := t.waits[s]
	return w.Owner, Event(w.Timer)
}

// Legal lists the events that may happen in s, sorted.
func (t *Table) Legal(s State) []Event {
	i, ok := t.stateNo[s]
	if !ok {
		return nil
	}
	return slices.Clone(t.legal[i])
}

// Edges lists every lawful move, the birth first, then sorted by from-state and event. A store builds its
// transitions table from it, so that the database refuses what Fire refuses.
func (t *Table) Edges() []Step {
	return append([]Step{t.birth}, t.steps...)
}
