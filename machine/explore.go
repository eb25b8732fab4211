package machine

import (
	"fmt"
	"slices"
	"strings"
)

// System is several machines that live beside each other, and which of their moves are one transaction.
// Explore walks everything that such a system can do and holds it against laws, which is how one finds
// the order of events in which a call starts on an approval that was already spent.
type System struct {
	Parts []Part
	// Joint are the transactions. A move that stands in one of them happens only that way; every other
	// move of every part may happen alone at any time.
	Joint []Joint
	// Watch are moves that laws want to count.
	Watch []Move
	Laws  []Law
}

// Part is one machine of a system.
type Part struct {
	Name  string
	Table *Table
	// Unborn starts the part before its birth; the Create move brings it into its initial state. A part that
	// is not born is settled: nobody waits for it.
	Unborn bool
	// Again lets Create happen once more after a final state: a call may need a second approval.
	Again bool
}

// Move is one event of one part.
type Move struct {
	Part  string
	Event Event
}

func (m Move) String() string { return m.Part + "." + string(m.Event) }

// Joint is one transaction: its moves all happen, in this order, or none does.
type Joint struct {
	Name  string
	Moves []Move
	When  func(World) bool // nil: whenever every move may happen
}

// Law must hold in every world that can come about.
type Law struct {
	Name  string
	Holds func(World) bool
}

// Settles names the law that Explore checks by itself: from every world, one can be reached in which every
// part is final or unborn.
const Settles = "every world can still settle"

// World is where every part of a system stands at one moment. It is valid during the call that it is
// handed to.
type World struct {
	x    *explorer
	cell []uint16 // per part: 0 unborn, else 1 + state number; then per watched move: its count
}

// State gives a part's state, empty when it is not born.
func (w World) State(part string) State {
	i, ok := w.x.partNo[part]
	if !ok || w.cell[i] == 0 {
		return ""
	}
	return w.x.sys.Parts[i].Table.states[w.cell[i]-1]
}

// Settled says that nothing more can happen to these parts: each is final or not born. With no names it
// asks for all parts.
func (w World) Settled(parts ...string) bool {
	for i, p := range w.x.sys.Parts {
		if (len(parts) == 0 || slices.Contains(parts, p.Name)) && w.cell[i] != 0 && !p.Table.final[w.cell[i]-1] {
			return false
		}
	}
	return true
}

// Count says how often a watched move has happened: 0, 1, or 2 for "at least twice".
func (w World) Count(part string, ev Event) int {
	if i := slices.Index(w.x.sys.Watch, Move{part, ev}); i >= 0 {
		return int(w.cell[len(w.x.sys.Parts)+i])
	}
	return 0
}

// String gives `call=approved approval=spent`.
func (w World) String() string {
	var words []string
	for _, p := range w.x.sys.Parts {
		words = append(words, p.Name+"="+string(w.State(p.Name)))
	}
	return strings.Join(words, " ")
}

// Exploration is what Explore found out.
type Exploration struct {
	Worlds   int  // different ones seen
	Moves    int  // transactions between them
	Depth    int  // the longest shortest way to one of them, in transactions
	Complete bool // no other world exists; false when the limit was met first
	Broken   *Counterexample
}

// Counterexample is a shortest way to a world that breaks a law.
type Counterexample struct {
	Law   string
	Trace []string // names of transactions; a lone move is `part.event`
	World string
}

func (c *Counterexample) Error() string {
	return fmt.Sprintf("%s: broken by %s (%s)", c.Law, strings.Join(append([]string{"start"}, c.Trace...), " -> "), c.World)
}

// Explore walks every world of a system, nearest first, until all are seen or limit worlds are. The error
// is about the system itself: a part or event that does not exist, a name said twice.
func Explore(sys System, limit int) (Exploration, error) {
	x := &explorer{sys: sys, partNo: map[string]int{}}
	if err := x.prepare(); err != nil {
		return Exploration{}, err
	}
	return x.walk(limit), nil
}

type explorer struct {
	sys    System
	partNo map[string]int
	acts   []Joint
}

func (x *explorer) prepare() error {
	for i, p := range x.sys.Parts {
		if _, twice := x.partNo[p.Name]; twice || p.Table == nil {
			return fmt.Errorf("explore: part %q is said twice or has no table", p.Name)
		}
		x.partNo[p.Name] = i
	}
	known := func(m Move) error {
		i, ok := x.partNo[m.Part]
		if !ok {
			return fmt.Errorf("explore: %s: no such part", m)
		}
		if _, ok := x.sys.Parts[i].Table.eventNo[m.Event]; !ok && m.Event != Create {
			return fmt.Errorf("explore: %s: no such event", m)
		}
		return nil
	}
	tied := map[Move]bool{}
	for _, j := range x.sys.Joint {
		if len(j.Moves) == 0 {
			return fmt.Errorf("explore: transaction %q has no moves", j.Name)
		}
		for _, m := range j.Moves {
			if err := known(m); err != nil {
				return err
			}
			tied[m] = true
		}
	}
	for _, m := range x.sys.Watch {
		if err := known(m); err != nil {
			return err
		}
	}
	x.acts = slices.Clone(x.sys.Joint)
	for _, p := range x.sys.Parts {
		events := p.Table.Events()
		if p.Unborn || p.Again {
			events = append([]Event{Create}, events...)
		}
		for _, ev := range events {
			if m := (Move{p.Name, ev}); !tied[m] {
				x.acts = append(x.acts, Joint{Name: m.String(), Moves: []Move{m}})
			}
		}
	}
	return nil
}

// apply gives the cells after a transaction, or false when it may not happen now.
func (x *explorer) apply(cell []uint16, act Joint) ([]uint16, bool) {
	if act.When != nil && !act.When(World{x, cell}) {
		return nil, false
	}
	next := slices.Clone(cell)
	for _, m := range act.Moves {
		i := x.partNo[m.Part]
		p := x.sys.Parts[i]
		switch {
		case m.Event == Create:
			if next[i] != 0 && !(p.Again && p.Table.final[next[i]-1]) {
				return nil, false
			}
			next[i] = 1 + uint16(p.Table.stateNo[p.Table.Initial()])
		case next[i] == 0:
			return nil, false
		default:
			step, err := p.Table.Fire(p.Table.states[next[i]-1], m.Event)
			if err != nil {
				return nil, false
			}
			next[i] = 1 + uint16(p.Table.stateNo[step.To])
		}
		if w := slices.Index(x.sys.Watch, m); w >= 0 {
			next[len(x.sys.Parts)+w] = min(2, next[len(x.sys.Parts)+w]+1)
		}
	}
	return next, true
}

// seen is a world with the way it was first reached.
type seen struct {
	cell   []uint16
	parent int // index of the world before; -1 for the start
	act    string
	depth  int
}

func (x *explorer) walk(limit int) Exploration {
	start := make([]uint16, len(x.sys.Parts)+len(x.sys.Watch))
	for i, p := range x.sys.Parts {
		if !p.Unborn {
			start[i] = 1 + uint16(p.Table.stateNo[p.Table.Initial()])
		}
	}
	var (
		out    = Exploration{Complete: true}
		worlds = []seen{{cell: start, parent: -1}}
		number = map[string]int{key(start): 0}
		before [][]int // by world: the worlds that lead to it
	)
	before = append(before, nil)
	for at := 0; at < len(worlds); at++ {
		here := worlds[at]
		out.Depth = here.depth
		for _, law := range x.sys.Laws {
			if !law.Holds(World{x, here.cell}) {
				out.Worlds, out.Complete = len(worlds), false
				out.Broken = x.counterexample(law.Name, worlds, at)
				return out
			}
		}
		for _, act := range x.acts {
			next, ok := x.apply(here.cell, act)
			if !ok {
				continue
			}
			n, known := number[key(next)]
			if !known {
				if len(worlds) >= limit {
					out.Complete = false
					continue
				}
				n = len(worlds)
				number[key(next)] = n
				worlds = append(worlds, seen{next, at, act.Name, here.depth + 1})
				before = append(before, nil)
			}
			out.Moves++
			before[n] = append(before[n], at)
		}
	}
	out.Worlds = len(worlds)
	if out.Complete {
		out.Broken = x.unsettled(worlds, before)
	}
	return out
}

// unsettled walks backwards from every settled world; the nearest world not met is a trap.
func (x *explorer) unsettled(worlds []seen, before [][]int) *Counterexample {
	settles := make([]bool, len(worlds))
	var queue []int
	for i, w := range worlds {
		if (World{x, w.cell}).Settled() {
			settles[i] = true
			queue = append(queue, i)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, b := range before[queue[0]] {
			if !settles[b] {
				settles[b] = true
				queue = append(queue, b)
			}
		}
	}
	if i := slices.Index(settles, false); i >= 0 {
		return x.counterexample(Settles, worlds, i)
	}
	return nil
}

func (x *explorer) counterexample(law string, worlds []seen, at int) *Counterexample {
	c := &Counterexample{Law: law, World: World{x, worlds[at].cell}.String()}
	for ; worlds[at].parent >= 0; at = worlds[at].parent {
		c.Trace = append(c.Trace, worlds[at].act)
	}
	slices.Reverse(c.Trace)
	return c
}

func key(cell []uint16) string {
	b := make([]byte, 0, 2*len(cell))
	for _, c := range cell {
		b = append(b, byte(c>>8), byte(c))
	}
	return string(b)
}
