package machine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/looplab/fsm"

	"github.com/callgate/callgate/specs"
)

// ErrEngine says that looplab/fsm and the verified rows disagree about an edge. It means a fault in this
// package or in that library, never in a document.
var ErrEngine = errors.New("machine: the engine disagrees with the table")

// Option changes what New and Verify do.
type Option func(*options)

// CompileInvariant makes a function of an invariant's CEL text. It comes from outside because this room
// does not know CEL; an error that holds specs.Diagnostics is shown at the author's own line.
type CompileInvariant func(specs.MachineInvariant) (func(state State, history []Event) (bool, error), error)

type options struct {
	source  func(specs.Pos) string
	compile CompileInvariant
}

// WithSource lets findings show the author's own line. source gives the line at a place, without its line
// end, or "" when it is not at hand; specs.Bundle has such a function.
func WithSource(source func(specs.Pos) string) Option {
	return func(o *options) { o.source = source }
}

// WithInvariants has the document's invariants tried on every history up to a bound; see LawReport.
func WithInvariants(compile CompileInvariant) Option {
	return func(o *options) { o.compile = compile }
}

// New makes a table of a document. The error is a *specs.InvalidError with every fault of the document at
// once, in file order; see Verify for what counts as one.
//
// looplab/fsm is the engine: every cell of the table is its answer. It is asked at this moment and never
// again, because an fsm.FSM carries a state, takes locks and a context, and stops answering after a
// cancelled one; and only after the document is known to be sound, because it accepts unknown states and
// silently keeps the last of two equal edges.
func New(doc *specs.Machine, opts ...Option) (*Table, error) {
	report, table, err := verify(doc, opts)
	if invalid := report.Err(); invalid != nil {
		return nil, invalid
	}
	if err != nil {
		return nil, err
	}
	table.warnings = report.Diagnostics().Warnings()
	return table, nil
}

// build makes the table of a draft that was found sound.
func build(d *draft) (*Table, error) {
	t := &Table{
		doc:     d.doc,
		name:    d.doc.Name,
		birth:   d.birth(),
		states:  d.states,
		events:  d.events,
		stateNo: index(d.states),
		eventNo: index(d.events),
		cells:   make([]uint32, len(d.states)*len(d.events)),
		legal:   make([][]Event, len(d.states)),
		final:   make([]bool, len(d.states)),
		waits:   map[State]specs.MachineWait{},
	}
	for i, s := range t.states {
		t.final[i] = d.final[s]
	}
	for _, w := range d.doc.Waiting {
		t.waits[State(w.State.Value)] = w
	}
	for _, r := range d.rows {
		t.steps = append(t.steps, r.Step)
	}
	slices.SortFunc(t.steps, compareSteps)
	if err := t.ask(); err != nil {
		return nil, err
	}
	t.digest = t.sum()
	return t, nil
}

// ask fills the cells with looplab's answer to every (state, event), and holds them against the rows.
func (t *Table) ask() error {
	var descs []fsm.EventDesc
	rows := map[[2]string]int{}
	for i, s := range t.steps {
		descs = append(descs, fsm.EventDesc{Name: string(s.Event), Src: []string{string(s.From)}, Dst: string(s.To)})
		rows[[2]string{string(s.From), string(s.Event)}] = i
	}
	// The prototype lives in this function alone, has no callbacks and never sees a context that can end:
	// the three things that make one stop answering.
	engine := fsm.NewFSM(string(t.birth.To), descs, nil)
	for si, s := range t.states {
		for ei, e := range t.events {
			to, ok, err := fireEngine(engine, s, e)
			if err != nil {
				return err
			}
			row, has := rows[[2]string{string(s), string(e)}]
			if ok != has || ok && t.steps[row].To != to {
				return fmt.Errorf("%w: %s in %q of %s", ErrEngine, e, s, t.name)
			}
			if ok {
				t.cells[si*len(t.events)+ei] = uint32(row) + 1
				t.legal[si] = append(t.legal[si], e)
			}
		}
		slices.Sort(t.legal[si])
	}
	return nil
}

// fireEngine puts the engine into a state and lets an event happen. A self-loop is a move although
// looplab reports it as an error.
func fireEngine(engine *fsm.FSM, from State, ev Event) (to State, ok bool, err error) {
	engine.SetState(string(from))
	switch err := engine.Event(context.Background(), string(ev)).(type) {
	case nil:
		return State(engine.Current()), true, nil
	case fsm.NoTransitionError:
		return from, true, nil
	case fsm.InvalidEventError, fsm.UnknownEventError:
		return "", false, nil
	default:
		return "", false, fmt.Errorf("%w: %s in %q: %w", ErrEngine, ev, from, err)
	}
}

// sum is the digest of what the table means, in an order that the document's own order cannot change.
func (t *Table) sum() specs.Digest {
	type wait struct{ State, Owner, Timer string }
	meaning := struct {
		Name  string
		Edges []Step
		Final []State
		Waits []wait
		Laws  []string
	}{Name: t.name, Edges: t.Edges(), Final: t.Finals()}
	for s, w := range t.waits {
		meaning.Waits = append(meaning.Waits, wait{string(s), w.Owner, w.Timer})
	}
	for _, inv := range t.doc.Invariants {
		meaning.Laws = append(meaning.Laws, inv.Name+"\x00"+inv.Check.Value)
	}
	slices.Sort(meaning.Final)
	slices.SortFunc(meaning.Waits, func(a, b wait) int { return cmp.Compare(a.State, b.State) })
	slices.Sort(meaning.Laws)
	// Only texts and lists of texts: this cannot fail, and field order is the struct's.
	raw, _ := json.Marshal(meaning)
	h := sha256.Sum256(raw)
	return specs.Digest("sha256:" + hex.EncodeToString(h[:]))
}

func compareSteps(a, b Step) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Event, b.Event))
}

func index[T comparable](list []T) map[T]int {
	m := make(map[T]int, len(list))
	for i, v := range list {
		m[v] = i
	}
	return m
}
