package machine

import (
	"slices"

	"github.com/callgate/callgate/specs"
)

// graph: every state is reached, and every state that is reached and not final can still reach an end.
func (v *verifier) graph() {
	initial := State(v.doc.Initial.Value)
	out := map[State][]row{}
	for _, r := range v.rows {
		out[r.From] = append(out[r.From], r)
	}
	into := shortest(initial, out)
	v.unreached(into)

	ends := map[State]bool{}
	for s := range v.final {
		ends[s] = true
	}
	for grown := true; grown; {
		grown = false
		for _, r := range v.rows {
			if ends[r.To] && !ends[r.From] {
				ends[r.From], grown = true, true
			}
		}
	}
	v.stranded(into, out, ends)
	v.restless(into, out)
}

func (v *verifier) unreached(into map[State]Trace) {
	place := map[State]specs.Text{}
	for _, m := range v.mentions {
		if _, ok := place[State(m.Value)]; !ok {
			place[State(m.Value)] = m
		}
	}
	for _, s := range v.states {
		if _, ok := into[s]; ok {
			continue
		}
		why := "no event leads to it"
		for _, r := range v.rows {
			if r.To == s && r.From != s {
				why = "it is reached only from states that are unreachable themselves: " + r.String()
				break
			}
		}
		v.err(place[s], "unreachable-state", nearest(string(s), v.states), "state %q is unreachable: %s", s, why)
	}
}

// stranded reports the bottom of every trap once: other states that cannot reach an end lead into one.
func (v *verifier) stranded(into map[State]Trace, out map[State][]row, ends map[State]bool) {
	reported := map[State]bool{}
	for _, s := range byDistance(into) {
		if ends[s] || reported[s] {
			continue
		}
		way := into[s]
		if len(out[s]) == 0 {
			v.add(specs.Error, v.lastWord(way), "dead-end", "list it under `final`, or give it an event", way,
				"%q is a dead end, not final and without an exit: %s", s, orSelf(way, s))
			continue
		}
		from := shortest(s, out)
		bottom := true
		for other := range from {
			if _, back := shortest(other, out)[s]; !back {
				bottom = false
				break
			}
		}
		if !bottom {
			continue
		}
		for other := range from {
			reported[other] = true
		}
		round := slices.Concat(way, cycle(s, out, from))
		v.add(specs.Error, v.lastWord(way), "no-way-out", "give one of these states an event that leads to a final state", round,
			"no final state can be reached from %q: %s", s, round)
	}
}

// restless warns of a loop without a state that may rest: within one transaction it could go on for ever.
func (v *verifier) restless(into map[State]Trace, out map[State][]row) {
	rests := map[State]bool{}
	for _, w := range v.doc.Waiting {
		rests[State(w.State.Value)] = true
	}
	moving := map[State][]row{}
	for from, rows := range out {
		for _, r := range rows {
			if !rests[r.From] && !rests[r.To] {
				moving[from] = append(moving[from], r)
			}
		}
	}
	seen := map[State]bool{}
	for _, s := range byDistance(into) {
		if seen[s] || len(moving[s]) == 0 {
			continue
		}
		from := shortest(s, moving)
		round := cycle(s, moving, from)
		if round == nil {
			continue
		}
		for other := range from {
			seen[other] = true
		}
		v.add(specs.Warning, v.lastWord(into[s]), "transient-cycle", "list one of them under `waiting`, with its owner", round,
			"nothing may rest in this loop, so nobody owns it: %s", round)
	}
}

// lastWord is the word to point at for the state that a way ends in.
func (v *verifier) lastWord(way Trace) specs.Text {
	if len(way) == 0 {
		return v.doc.Initial
	}
	last := way[len(way)-1]
	for _, r := range v.rows {
		if r.Step == last {
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

// shortest gives the shortest way from a state to every state that can be reached from it, itself by the
// empty way. Among equally short ways it takes the first by the document's order.
func shortest(from State, out map[State][]row) map[State]Trace {
	ways := map[State]Trace{from: nil}
	for queue := []State{from}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		for _, r := range out[s] {
			if _, ok := ways[r.To]; !ok {
				ways[r.To] = append(slices.Clip(ways[s]), r.Step)
				queue = append(queue, r.To)
			}
		}
	}
	return ways
}

// cycle gives the shortest way from s back to s, nil when there is none.
func cycle(s State, out map[State][]row, from map[State]Trace) Trace {
	var best Trace
	for _, t := range byDistance(from) {
		for _, r := range out[t] {
			if way := from[t]; r.To == s && (best == nil || len(way)+1 < len(best)) {
				best = append(slices.Clip(way), r.Step)
			}
		}
	}
	return best
}

// byDistance orders the reached states nearest first; equal ones by name, so that the order is the same
// in every process.
func byDistance(into map[State]Trace) []State {
	var list []State
	for s := range into {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b State) int {
		if d := len(into[a]) - len(into[b]); d != 0 {
			return d
		}
		if a < b {
			return -1
		}
		return 1
	})
	return list
}
