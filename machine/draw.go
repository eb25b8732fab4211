package machine

import (
	"fmt"
	"slices"
	"strings"
)

// arrow is every event that leads from one state to another, as one line of a picture.
type arrow struct {
	from, to State
	events   []string
}

// arrows gives the picture's lines, by the document's order of states. A timer's event is marked, so that
// a reader sees what happens when nobody does anything.
func (t *Table) arrows() []arrow {
	var list []arrow
	for _, from := range t.states {
		_, timer := t.Waiting(from)
		for _, to := range t.states {
			a := arrow{from: from, to: to}
			for _, ev := range t.events {
				if step, err := t.Fire(from, ev); err == nil && step.To == to {
					label := string(ev)
					if ev == timer {
						label += " (timer)"
					}
					a.events = append(a.events, label)
				}
			}
			if len(a.events) > 0 {
				list = append(list, a)
			}
		}
	}
	return list
}

// label is a state's name and who moves it on.
func (t *Table) label(s State) string {
	if owner, _ := t.Waiting(s); owner != "" {
		return string(s) + " / " + owner
	}
	return string(s)
}

// mermaidWords mean something to mermaid at the start of a line.
var mermaidWords = []string{"state", "note", "end", "direction", "class", "classdef", "style", "as", "click", "default", "scale", "hide"}

// mermaidIDs gives each state a word that mermaid takes for a name; nearly always the state's own.
func (t *Table) mermaidIDs() map[State]string {
	ids, taken := map[State]string{}, map[string]bool{}
	for _, s := range t.states {
		id := strings.NewReplacer("-", "_", ".", "_").Replace(string(s))
		for slices.Contains(mermaidWords, strings.ToLower(id)) || taken[id] {
			id += "_"
		}
		ids[s], taken[id] = id, true
	}
	return ids
}

// Mermaid draws the table as a mermaid stateDiagram-v2, which GitHub and most wikis show. A state at rest
// is labelled with its owner, "approved / worker". The text is the same in every process.
func (t *Table) Mermaid() string {
	id := t.mermaidIDs()
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	for _, s := range t.states {
		fmt.Fprintf(&b, "    state \"%s\" as %s\n", t.label(s), id[s])
	}
	fmt.Fprintf(&b, "    [*] --> %s\n", id[t.Initial()])
	for _, a := range t.arrows() {
		fmt.Fprintf(&b, "    %s --> %s : %s\n", id[a.from], id[a.to], strings.Join(a.events, ", "))
	}
	for _, s := range t.Finals() {
		fmt.Fprintf(&b, "    %s --> [*]\n", id[s])
	}
	return b.String()
}

// Dot draws the table for Graphviz. Final states have a double border, resting ones are round and name
// their owner. The text is the same in every process.
func (t *Table) Dot() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n    rankdir=LR;\n    node [shape=box];\n    \"\" [shape=point];\n", t.name)
	for _, s := range t.states {
		style := ""
		switch {
		case t.IsFinal(s):
			style = " [peripheries=2]"
		case t.IsWaiting(s):
			style = fmt.Sprintf(" [style=rounded, label=%q]", t.label(s))
		}
		fmt.Fprintf(&b, "    %q%s;\n", s, style)
	}
	fmt.Fprintf(&b, "    \"\" -> %q;\n", t.Initial())
	for _, a := range t.arrows() {
		fmt.Fprintf(&b, "    %q -> %q [label=%q];\n", a.from, a.to, strings.Join(a.events, "\n"))
	}
	b.WriteString("}\n")
	return b.String()
}
