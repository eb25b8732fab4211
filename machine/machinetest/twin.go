package machinetest

import (
	"slices"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// Twin answers from the document itself, row by row, with no index, no engine and nothing to get wrong. It
// is what a table is compared with.
type Twin struct{ doc *specs.Machine }

// NewTwin reads a document as it stands; it does not verify it.
func NewTwin(doc *specs.Machine) Twin { return Twin{doc} }

// Initial is the state a machine is born into.
func (w Twin) Initial() machine.State { return machine.State(w.doc.Initial.Value) }

// Fire gives the state that an event leads to, or false.
func (w Twin) Fire(from machine.State, ev machine.Event) (machine.State, bool) {
	for _, row := range w.doc.Events {
		if row.Name.Value == string(ev) && has(row.From, from) {
			return machine.State(row.To.Value), true
		}
	}
	return "", false
}

// Legal lists what may happen in a state, sorted.
func (w Twin) Legal(from machine.State) []machine.Event {
	var list []machine.Event
	for _, row := range w.doc.Events {
		if has(row.From, from) {
			list = append(list, machine.Event(row.Name.Value))
		}
	}
	slices.Sort(list)
	return list
}

// IsFinal says that the document lists the state as final.
func (w Twin) IsFinal(s machine.State) bool { return has(w.doc.Final, s) }

func has(list []specs.Text, s machine.State) bool {
	return slices.ContainsFunc(list, func(t specs.Text) bool { return t.Value == string(s) })
}
