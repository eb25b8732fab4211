package machine

import (
	"fmt"
	"strings"

	"github.com/callgate/callgate/specs"
)

// How far an invariant is tried: histories grow as the branching of the table to the power of their
// length, and each costs one evaluation, so their number is bounded; and their length, because a table that
// only goes round has few but ever longer ones.
const (
	maxHistories = 5000
	maxDepth     = 64
)

// laws tries every invariant of the document on every history, shortest first.
func (v *verifier) laws(t *Table, compile CompileInvariant) []LawReport {
	var out []LawReport
	for _, inv := range v.doc.Invariants {
		holds, err := compile(inv)
		if err != nil {
			if ds, ok := specs.AsDiagnostics(err); ok {
				for _, d := range ds {
					if d.Source == "" {
						d.Source = v.line(d.Pos)
					}
					v.found = append(v.found, Finding{Diagnostic: d})
				}
			} else {
				v.err(inv.Check, "invariant", "", "invariant %q cannot be used: %s", inv.Name, oneLine(err))
			}
			continue
		}
		law, broken := t.CheckInvariant(Invariant{Name: inv.Name, Holds: holds}, maxHistories)
		if broken != nil {
			v.add(specs.Error, inv.Check, "invariant", "", broken.Trace, "invariant %q %s", inv.Name, broken.why())
			continue
		}
		out = append(out, law)
	}
	return out
}

// Invariant is something that must hold in every state with every history that led there. An error counts
// as "does not hold".
type Invariant struct {
	Name  string
	Holds func(state State, history []Event) (bool, error)
}

// Broken is a history that breaks an invariant; no shorter one does.
type Broken struct {
	Invariant string
	Trace     Trace // empty: broken at birth
	State     State
	Err       error // the invariant could not be evaluated
}

func (b *Broken) Error() string { return fmt.Sprintf("invariant %q %s", b.Invariant, b.why()) }

// Unwrap gives the evaluation's own error, if that is what broke.
func (b *Broken) Unwrap() error { return b.Err }

func (b *Broken) why() string {
	how := "is broken"
	if b.Err != nil {
		how = "cannot be decided (" + oneLine(b.Err) + ")"
	}
	return how + ": " + orSelf(b.Trace, b.State)
}

// CheckInvariant tries an invariant on every history of the table, shortest first, until limit histories
// were tried or they are 64 events long. It says how far it got, or gives the shortest history that breaks it.
func (t *Table) CheckInvariant(inv Invariant, limit int) (LawReport, *Broken) {
	law := LawReport{Name: inv.Name, Complete: true}
	type node struct {
		state State
		trace Trace
	}
	for level := []node{{state: t.Initial()}}; ; law.Depth++ {
		var next []node
		for _, n := range level {
			history := make([]Event, len(n.trace))
			for i, s := range n.trace {
				history[i] = s.Event
			}
			ok, err := inv.Holds(n.state, history)
			law.Histories++
			if err != nil || !ok {
				return law, &Broken{Invariant: inv.Name, Trace: n.trace, State: n.state, Err: err}
			}
			for _, ev := range t.legal[t.stateNo[n.state]] {
				step, _ := t.Fire(n.state, ev) // legal: it is in the list
				next = append(next, node{step.To, append(n.trace[:len(n.trace):len(n.trace)], step)})
			}
		}
		if len(next) == 0 {
			return law, nil
		}
		// Only whole levels are tried, so that "every history of at most Depth events" is true.
		if law.Histories+len(next) > limit || law.Depth == maxDepth {
			law.Complete = false
			return law, nil
		}
		level = next
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
