package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/machine"
)

// wild is a random document of a few states, as its edges.
type wild struct {
	edges [][3]string // from, event, to
	final []string
	wait  []string
}

var wildStates = []string{"a", "b", "c", "d", "e"}

// drawWild draws a document: a sound skeleton in which every state leads onwards and is led to, and then
// some edges at random, which may spoil it, or a skeleton that has lost an edge.
func drawWild(t *rapid.T) wild {
	var w wild
	states := wildStates[:rapid.IntRange(2, len(wildStates)).Draw(t, "states")]
	last := len(states) - 1
	w.final = []string{states[last]}
	event := rapid.SampledFrom([]string{"u", "v", "w", "x", "y", "z"})
	link := func(from, to int) {
		w.edges = append(w.edges, [3]string{states[from], event.Draw(t, "event"), states[to]})
	}
	for i := range last {
		link(i, rapid.IntRange(i+1, last).Draw(t, "onwards"))
	}
	for i := 1; i < last; i++ {
		link(rapid.IntRange(0, i-1).Draw(t, "from before"), i)
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "more") {
		link(rapid.IntRange(0, last).Draw(t, "from"), rapid.IntRange(0, last).Draw(t, "to"))
	}
	if rapid.Bool().Draw(t, "lose one") {
		i := rapid.IntRange(0, len(w.edges)-1).Draw(t, "lost")
		w.edges = slices.Delete(w.edges, i, i+1)
	}
	w.wait = rapid.SliceOfNDistinct(rapid.SampledFrom(states), 0, 2, rapid.ID).Draw(t, "waiting")
	if rapid.IntRange(0, 9).Draw(t, "no end") == 0 {
		w.final = nil
	}
	return w
}

func (w wild) text() string {
	var b strings.Builder
	b.WriteString("initial a\n")
	if len(w.final) > 0 {
		fmt.Fprintf(&b, "final %s\n", strings.Join(w.final, " "))
	}
	for _, s := range w.wait {
		fmt.Fprintf(&b, "waiting %s person\n", s)
	}
	for _, e := range w.edges {
		fmt.Fprintf(&b, "%s %s %s\n", e[0], e[1], e[2])
	}
	return b.String()
}

// distances is the plainest all-pairs search there is; absent means "no way".
func (w wild) distances() map[[2]string]int {
	d := map[[2]string]int{}
	for _, s := range wildStates {
		d[[2]string{s, s}] = 0
	}
	for range wildStates {
		for _, e := range w.edges {
			for _, s := range wildStates {
				if n, ok := d[[2]string{s, e[0]}]; ok {
					if m, ok := d[[2]string{s, e[2]}]; !ok || n+1 < m {
						d[[2]string{s, e[2]}] = n + 1
					}
				}
			}
		}
	}
	return d
}

func (w wild) isFinal(s string) bool { return slices.Contains(w.final, s) }

// endless says that no final state can be reached from s.
func (w wild) endless(s string, d map[[2]string]int) bool {
	for _, f := range w.final {
		if _, ok := d[[2]string{s, f}]; ok {
			return false
		}
	}
	return true
}

// sound is the definition, said without any cleverness.
func (w wild) sound() bool {
	if len(w.edges) == 0 || len(w.final) == 0 {
		return false
	}
	d := w.distances()
	used, once := map[string]bool{"a": true}, map[string]bool{}
	for _, e := range w.edges {
		if w.isFinal(e[0]) || once[e[0]+e[1]] {
			return false
		}
		once[e[0]+e[1]] = true
		used[e[0]], used[e[2]] = true, true
	}
	for _, s := range w.wait {
		if w.isFinal(s) || !used[s] {
			return false
		}
	}
	for _, f := range w.final {
		used[f] = true
	}
	for s := range used {
		if _, reached := d[[2]string{"a", s}]; !reached || w.endless(s, d) {
			return false
		}
	}
	return true
}

// A document becomes a table exactly when it is sound by the plain definition, and every counterexample is a
// real way, as short as any, into a place that no way leads out of.
func TestF8_AcceptedExactlyWhenSound(t *testing.T) {
	t.Parallel()
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWild(t)
		table, err := machine.New(doc(w.text()))
		if (err == nil) != w.sound() {
			t.Fatalf("sound: %v, error: %v\n%s", w.sound(), err, w.text())
		}
		if err == nil {
			accepted++
			for _, e := range w.edges {
				if step, err := table.Fire(machine.State(e[0]), machine.Event(e[1])); err != nil || string(step.To) != e[2] {
					t.Fatalf("%v: %v, %v", e, step, err)
				}
			}
			return
		}
		d := w.distances()
		for _, f := range machine.Verify(doc(w.text())).Findings {
			if f.Code != "dead-end" && f.Code != "no-way-out" {
				continue
			}
			at, trap, into := "a", "", -1
			for _, step := range f.Trace {
				if string(step.From) != at || !edge(w, step) {
					t.Fatalf("%s is no way\n%s", f.Trace, w.text())
				}
				at = string(step.To)
			}
			if f.Code == "dead-end" {
				trap, into = at, len(f.Trace)
			} else {
				// The round comes last; the way in ends where the round starts.
				for i := range f.Trace {
					if string(f.Trace[i].From) == at {
						trap, into = at, i
						break
					}
				}
			}
			if trap == "" || !w.endless(trap, d) || into != d[[2]string{"a", trap}] {
				t.Fatalf("%s: %q after %d steps, at best %d\n%s", f.Trace, trap, into, d[[2]string{"a", trap}], w.text())
			}
		}
	})
	t.Logf("%d accepted", accepted)
	if accepted == 0 {
		t.Error("no random document was sound; the test has lost its subject")
	}
}

func edge(w wild, step machine.Step) bool {
	return slices.Contains(w.edges, [3]string{string(step.From), string(step.Event), string(step.To)})
}
