package machine

import "github.com/callgate/callgate/specs"

// draft is a document spread out into rows, before anybody knows whether it is sound.
type draft struct {
	doc      *specs.Machine
	states   []State // as listed; with no list, in the order of first mention
	events   []Event // in the order of first mention
	listed   map[State]bool
	final    map[State]bool
	mentions []specs.Text // every place that names a state
	rows     []row
}

// row is one edge with the places to point at.
type row struct {
	Step
	from, to specs.Text
}

func read(doc *specs.Machine) *draft {
	d := &draft{doc: doc, listed: map[State]bool{}, final: map[State]bool{}}
	states, events := map[State]bool{}, map[Event]bool{}
	mention := func(t specs.Text) {
		if t.Value == "" {
			return
		}
		d.mentions = append(d.mentions, t)
		// With a list, a state outside it is a fault and not one more state.
		if s := State(t.Value); !states[s] && (len(doc.States) == 0 || d.listed[s]) {
			states[s] = true
			d.states = append(d.states, s)
		}
	}
	for _, s := range doc.States {
		d.listed[State(s.Value)] = true
		mention(s)
	}
	mention(doc.Initial)
	for _, e := range doc.Events {
		if ev := Event(e.Name.Value); !events[ev] {
			events[ev] = true
			d.events = append(d.events, ev)
		}
		journal := e.Journal
		if journal == "" {
			journal = doc.Name + "_" + e.Name.Value
		}
		for _, from := range e.From {
			mention(from)
			d.rows = append(d.rows, row{from: from, to: e.To, Step: Step{Machine: doc.Name, From: State(from.Value),
				Event: Event(e.Name.Value), To: State(e.To.Value), Journal: journal}})
		}
		mention(e.To)
	}
	for _, w := range doc.Waiting {
		mention(w.State)
	}
	for _, f := range doc.Final {
		mention(f)
		d.final[State(f.Value)] = true
	}
	return d
}

func (d *draft) birth() Step {
	journal := d.doc.Birth
	if journal == "" {
		journal = d.doc.Name + "_created"
	}
	return Step{Machine: d.doc.Name, Event: Create, To: State(d.doc.Initial.Value), Journal: journal}
}
