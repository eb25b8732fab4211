package machine

import (
	"cmp"
	"slices"

	"github.com/callgate/callgate/specs"
)

// graph: every state is reached, and every state that is reached and not final can still reach an end.
func (v *verifier) graph() {
	out := exits{}
	for _, r := range v.rows {
		out[r.From] = append(out[r.From], r.Step)
	}
	into := out.waysFrom(State(v.doc.Initial.Value))
	v.unreached(into)
	v.stranded(into, out)
	v.restless(into, out)
}

func (v *verifier) unreached(into ways) {
	place := map[State]specs.Text{}
	for _, m := range v.mentions {
		if _, ok := place[State(m.Value)]; !ok {
			place[State(m.Value)] = m
		}
	}
	for _, s := range v.states {
		if into.reach(s) {
			continue
		}
		why := "no event leads to it"
		for _, r := range v.rows {
			if r.To == s && r.From != s {
				why = "the ways to it start in states that are unreachable themselves: " + r.String()
				break
			}
		}
		v.err(place[s], "unreachable-state", nearest(string(s), v.states), "state %q is unreachable: %s", s, why)
	}
}

// stranded reports the bottom of every trap: other states that cannot reach an end lead into one.
func (v *verifier) stranded(into ways, out exits) {
	for _, trap := range out.components(into) {
		leaves := slices.ContainsFunc(trap, func(s State) bool {
			return v.final[s] || slices.ContainsFunc(out[s], func(e Step) bool { return !slices.Contains(trap, e.To) })
		})
		if leaves {
			continue
		}
		s := trap[0]
		way := into.to(s)
		if len(out[s]) == 0 {
			v.add(specs.Error, v.lastWord(way), "dead-end", "list it under `final`, or give it an event", way,
				"%q is a dead end, not final and without an exit: %s", s, orSelf(way, s))
			continue
		}
		round := append(way, out.cycle(s)...)
		v.add(specs.Error, v.lastWord(way), "no-way-out", "give one of these states an event that leads to a final state", round,
			"no final state can be reached from %q: %s", s, round)
	}
}

// restless warns of a loop without a state that may rest: within one transaction it could go on for ever.
func (v *verifier) restless(into ways, out exits) {
	rests := map[State]bool{}
	for s := range v.final {
		rests[s] = true
	}
	for _, w := range v.doc.Waiting {
		rests[State(w.State.Value)] = true
	}
	moving := exits{}
	for s, steps := range out {
		for _, e := range steps {
			if !rests[e.From] && !rests[e.To] {
				moving[s] = append(moving[s], e)
			}
		}
	}
	for _, loop := range moving.components(into) {
		s := loop[0]
		if round := moving.cycle(s); round != nil {
			v.add(specs.Warning, v.lastWord(into.to(s)), "transient-cycle", "list one of them under `waiting`, with its owner", round,
				"nothing may rest in this loop, so nobody owns it: %s", round)
		}
	}
}

// lastWord is the word to point at for the state that a way ends in.
func (v *verifier) lastWord(way Trace) specs.Text {
	if len(way) == 0 {
		return v.doc.Initial
	}
	for _, r := range v.rows {
		if r.Step == way[len(way)-1] {
			return r.to
		}
	}
	return v.whole()
}

func orSelf(way Trace, s State) string {
	if len(way) == 0 {
		return string(s)
	}
	return way.String()
}

// exits are the steps out of each state, in the document's order.
type exits map[State][]Step

// ways are the shortest ways from one state: by state, the step that arrives there. Among equally short
// ways the first by the document's order is kept.
type ways struct {
	from    State
	arrives map[State]Step
	dist    map[State]int
}

func (out exits) waysFrom(from State) ways {
	w := ways{from: from, arrives: map[State]Step{}, dist: map[State]int{from: 0}}
	for queue := []State{from}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		for _, e := range out[s] {
			if !w.reach(e.To) {
				w.arrives[e.To], w.dist[e.To] = e, w.dist[s]+1
				queue = append(queue, e.To)
			}
		}
	}
	return w
}

func (w ways) reach(s State) bool { _, ok := w.dist[s]; return ok }

// to gives the way to a state that is reached.
func (w ways) to(s State) Trace {
	var way Trace
	for s != w.from {
		way = append(way, w.arrives[s])
		s = w.arrives[s].From
	}
	slices.Reverse(way)
	return way
}

// cycle gives a shortest way from s back to s, nil when there is none.
func (out exits) cycle(s State) Trace {
	w := out.waysFrom(s)
	var last *Step
	for _, t := range w.nearestFirst() {
		for _, e := range out[t] {
			if e.To == s && last == nil {
				last = &e
			}
		}
	}
	if last == nil {
		return nil
	}
	return append(w.to(last.From), *last)
}

// nearestFirst orders the reached states by distance, equal ones by name: the same in every process.
func (w ways) nearestFirst() []State {
	var list []State
	for s := range w.dist {
		list = append(list, s)
	}
	slices.SortFunc(list, w.compare)
	return list
}

func (w ways) compare(a, b State) int {
	return cmp.Or(cmp.Compare(w.dist[a], w.dist[b]), cmp.Compare(a, b))
}

// components splits the reached states into strongly connected components (Tarjan), each with its nearest
// state first. Its depth is bounded by the number of states.
func (out exits) components(into ways) [][]State {
	var (
		found [][]State
		stack []State
		order = map[State]int{} // 1 + when it was first seen
		low   = map[State]int{}
		open  = map[State]bool{}
		visit func(State)
	)
	visit = func(s State) {
		order[s] = len(order) + 1
		low[s] = order[s]
		stack, open[s] = append(stack, s), true
		for _, e := range out[s] {
			if order[e.To] == 0 {
				visit(e.To)
				low[s] = min(low[s], low[e.To])
			} else if open[e.To] {
				low[s] = min(low[s], order[e.To])
			}
		}
		if low[s] != order[s] {
			return
		}
		i := slices.Index(stack, s)
		component := slices.Clone(stack[i:])
		stack = stack[:i]
		for _, c := range component {
			open[c] = false
		}
		slices.SortFunc(component, into.compare)
		found = append(found, component)
	}
	for _, s := range into.nearestFirst() {
		if order[s] == 0 {
			visit(s)
		}
	}
	return found
}
