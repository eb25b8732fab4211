package machine

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/callgate/callgate/specs"
)

// Trace is a way through a table, each step starting where the one before ended.
type Trace []Step

// String gives `created --approve--> approved --pay--> stuck`, or "" for an empty way.
func (tr Trace) String() string {
	var b strings.Builder
	for i, s := range tr {
		if i == 0 {
			b.WriteString(string(s.From))
		}
		fmt.Fprintf(&b, " --%s--> %s", s.Event, s.To)
	}
	return b.String()
}

// Finding is one fault of a document, with the shortest way that shows it where there is one.
type Finding struct {
	specs.Diagnostic
	Trace Trace
}

// Report is what Verify found out.
type Report struct {
	Machine               string
	States, Events, Edges int
	Findings              []Finding // in file order
	Laws                  []LawReport
}

// LawReport says how far one invariant of the document was checked.
type LawReport struct {
	Name      string `json:"name"`
	Depth     int    `json:"depth"`     // every history of at most this many events was tried
	Histories int    `json:"histories"` // how many that were
	Complete  bool   `json:"complete"`  // no longer history exists
}

// Diagnostics gives the findings without their traces.
func (r Report) Diagnostics() specs.Diagnostics {
	var ds specs.Diagnostics
	for _, f := range r.Findings {
		ds = append(ds, f.Diagnostic)
	}
	return ds
}

// Err is nil when the document can be run on, else a *specs.InvalidError.
func (r Report) Err() error { return r.Diagnostics().Err() }

// Text is the report for people: every finding as the author's own line with a caret, then one line per
// invariant and one on the whole.
func (r Report) Text() string {
	var b strings.Builder
	b.WriteString(r.Diagnostics().Text())
	for _, l := range r.Laws {
		held := fmt.Sprintf("held in all %d histories of up to %d events", l.Histories, l.Depth)
		if l.Complete {
			held = fmt.Sprintf("holds: all %d histories tried", l.Histories)
		}
		fmt.Fprintf(&b, "%s: invariant %q %s\n", r.Machine, l.Name, held)
	}
	verdict := "every state is reached and reaches an end"
	if n := len(r.Diagnostics().Errors()); n == 1 {
		verdict = "1 error"
	} else if n > 1 {
		verdict = fmt.Sprintf("%d errors", n)
	}
	fmt.Fprintf(&b, "%s: %d states, %d events, %d edges: %s\n", r.Machine, r.States, r.Events, r.Edges, verdict)
	return b.String()
}

// A table is asked about every pair of state and event when it is made, so both are bounded.
const (
	maxStates = 256
	maxEvents = 256
)

// Verify looks for every way in which a document could mislead or strand whoever runs on it:
//
//	missing-field, bad-name, reserved-name, repeated-name, too-large
//	unknown-state      a state that `states` does not list, or that only `waiting` mentions
//	unreachable-state  nothing leads there from the initial state
//	duplicate-edge     one event with two rows from one state
//	dead-end           a state that is not final with no way on: the shortest way into it
//	no-way-out         states that go round for ever: the shortest way in and round
//	final-with-exit, final-waiting, initial-final
//	waiting-without-owner, unknown-owner, timer-without-edge
//	transient-cycle    (warning) a loop in which nothing may rest
//	invariant          a history that breaks an invariant (only with WithInvariants)
//
// All findings of one document come at once.
func Verify(doc *specs.Machine, opts ...Option) Report {
	report, _, err := verify(doc, opts)
	if err != nil {
		report.Findings = append(report.Findings, Finding{Diagnostic: specs.Diagnostic{
			Pos: doc.Pos, Severity: specs.Error, Code: "engine", Message: err.Error()}})
	}
	return report
}

func verify(doc *specs.Machine, opts []Option) (Report, *Table, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	v := &verifier{draft: read(doc), source: o.source}
	v.names()
	v.rowsAreOne()
	v.ends()
	v.rests()
	if !v.has("missing-field", "bad-name", "unknown-state", "too-large") {
		v.graph()
	}
	var (
		table *Table
		laws  []LawReport
		err   error
	)
	if v.sound() {
		if table, err = build(v.draft); err == nil && o.compile != nil {
			laws = v.laws(table, o.compile)
		}
	}
	slices.SortStableFunc(v.found, func(a, b Finding) int {
		switch {
		case a.Pos.Before(b.Pos):
			return -1
		case b.Pos.Before(a.Pos):
			return 1
		}
		return strings.Compare(a.Code+a.Message, b.Code+b.Message)
	})
	return Report{Machine: doc.Name, States: len(v.states), Events: len(v.events), Edges: len(v.rows),
		Findings: v.found, Laws: laws}, table, err
}

type verifier struct {
	*draft
	source func(specs.Pos) string
	found  []Finding
}

// has says whether one of these was found. What follows from a misspelt name is noise: a graph with one
// has a dead end and an unreachable state too.
func (v *verifier) has(codes ...string) bool {
	return slices.ContainsFunc(v.found, func(f Finding) bool { return slices.Contains(codes, f.Code) })
}

func (v *verifier) sound() bool {
	return !slices.ContainsFunc(v.found, func(f Finding) bool { return f.Severity == specs.Error })
}

func (v *verifier) add(sev specs.Severity, at specs.Text, code, hint string, trace Trace, format string, args ...any) {
	d := specs.Diagnostic{Pos: at.Pos, Severity: sev, Code: code, Message: fmt.Sprintf(format, args...), Hint: hint,
		Width: max(1, utf8.RuneCountInString(at.Value))}
	d.Source = v.line(d.Pos)
	v.found = append(v.found, Finding{Diagnostic: d, Trace: trace})
}

// line is the author's own line at a place, "" when it is not at hand.
func (v *verifier) line(p specs.Pos) string {
	if v.source == nil || p.IsZero() {
		return ""
	}
	return v.source(p)
}

func (v *verifier) err(at specs.Text, code, hint, format string, args ...any) {
	v.add(specs.Error, at, code, hint, nil, format, args...)
}

// whole is the place of faults that no single word of the document is to blame for.
func (v *verifier) whole() specs.Text { return specs.Text{Value: v.doc.Name, Pos: v.doc.NamePos} }

// names: everything has a usable one, says it once, and means something known.
func (v *verifier) names() {
	doc := v.doc
	if doc.Initial.Value == "" {
		v.err(v.whole(), "missing-field", "initial: <the state a new one is in>", "a machine needs an initial state")
	}
	if len(doc.Final) == 0 {
		v.err(v.whole(), "missing-field", "final: [<states in which it is over>]", "a machine needs a final state")
	}
	if len(doc.Events) == 0 {
		v.err(v.whole(), "missing-field", "events: [{name: ..., from: [...], to: ...}]", "a machine needs an event")
	}
	if len(v.states) > maxStates || len(v.events) > maxEvents {
		v.err(v.whole(), "too-large", "split it in two machines", "%d states and %d events; at most %d and %d",
			len(v.states), len(v.events), maxStates, maxEvents)
	}
	for _, m := range v.mentions {
		if !validName(m.Value) {
			v.err(m, "bad-name", nameHint, "%q cannot be the name of a state", m.Value)
		} else if len(doc.States) > 0 && !v.listed[State(m.Value)] {
			v.err(m, "unknown-state", nearest(m.Value, v.states), "state %q is not listed under `states`", m.Value)
		}
	}
	v.once("states", doc.States)
	v.once("final", doc.Final)
	var waiting []specs.Text
	for _, w := range doc.Waiting {
		waiting = append(waiting, w.State)
	}
	v.once("waiting", waiting)
	for _, e := range doc.Events {
		switch {
		case e.Name.Value == string(Create):
			v.err(e.Name, "reserved-name", "set `birth` to choose the journal kind of the first line",
				"%q is the birth of every machine and is not declared", Create)
		case !validName(e.Name.Value):
			v.err(e.Name, "bad-name", nameHint, "%q cannot be the name of an event", e.Name.Value)
		}
		if len(e.From) == 0 {
			v.err(e.Name, "missing-field", "from: [<states>]", "event %q happens in no state", e.Name.Value)
		}
		if e.To.Value == "" {
			v.err(e.Name, "missing-field", "to: <state>", "event %q leads nowhere", e.Name.Value)
		}
	}
}

func (v *verifier) once(list string, names []specs.Text) {
	seen := map[string]specs.Pos{}
	for _, n := range names {
		if first, ok := seen[n.Value]; ok {
			v.err(n, "repeated-name", "", "%q stands twice under `%s`%s", n.Value, list, at(first))
			continue
		}
		seen[n.Value] = n.Pos
	}
}

// rowsAreOne: of two rows for one pair, an engine keeps the last and tells nobody.
func (v *verifier) rowsAreOne() {
	seen := map[[2]string]row{}
	for _, r := range v.rows {
		key := [2]string{string(r.From), string(r.Event)}
		if first, ok := seen[key]; ok {
			v.err(r.from, "duplicate-edge", "keep one of the two rows", "event %q already leads from %q to %q%s",
				r.Event, r.From, first.To, at(first.from.Pos))
			continue
		}
		seen[key] = r
	}
}

// ends: what is over stays over.
func (v *verifier) ends() {
	for _, r := range v.rows {
		if v.final[r.From] {
			v.err(r.from, "final-with-exit", "take it from `final`, or the row away", "final state %q has an exit: %s", r.From, r.Step)
		}
	}
	if v.final[State(v.doc.Initial.Value)] {
		v.err(v.doc.Initial, "initial-final", "", "initial state %q is final, so nothing could ever happen", v.doc.Initial.Value)
	}
}

var owners = []string{"person", "host", "worker", "model"}

// rests: who rests must be woken.
func (v *verifier) rests() {
	mentioned := map[State]bool{State(v.doc.Initial.Value): true}
	for _, s := range v.doc.States {
		mentioned[State(s.Value)] = true
	}
	exits := map[[2]string]bool{}
	for _, r := range v.rows {
		mentioned[r.From], mentioned[r.To] = true, true
		exits[[2]string{string(r.From), string(r.Event)}] = true
	}
	for _, w := range v.doc.Waiting {
		s := State(w.State.Value)
		switch {
		case !mentioned[s]:
			v.err(w.State, "unknown-state", nearest(w.State.Value, v.states), "waiting state %q has no event and is not the initial state", s)
		case v.final[s]:
			v.err(w.State, "final-waiting", "", "%q is final and waiting; nothing is left to wait for", s)
		case w.Owner == "" && w.Timer == "":
			v.err(w.State, "waiting-without-owner", "{state: "+w.State.Value+", owner: person}, or a timer", "nobody moves %q on", s)
		}
		if w.Owner != "" && !slices.Contains(owners, w.Owner) {
			v.err(w.State, "unknown-owner", "one of "+strings.Join(owners, ", "), "%q cannot own a waiting state", w.Owner)
		}
		if w.Timer != "" && !exits[[2]string{string(s), w.Timer}] {
			v.err(w.State, "timer-without-edge", "add "+string(s)+" to the `from` of "+w.Timer, "the timer of %q fires %q, which may not happen there", s, w.Timer)
		}
	}
}

func at(p specs.Pos) string {
	if p.IsZero() {
		return ""
	}
	return ", " + p.String()
}

const nameHint = "a name is 1 to 128 of A-Z a-z 0-9 _ . -"

func validName(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// nearest hints at the known state that was probably meant.
func nearest(word string, known []State) string {
	best, dist := "", 1+len(word)/3
	for _, k := range known {
		if string(k) == word || len(k) > 64 || len(word) > 64 {
			continue
		}
		if d := editDistance(word, string(k)); d <= dist {
			best, dist = string(k), d-1
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

func editDistance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		cur := make([]int, len(b)+1)
		cur[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			cur[j+1] = min(prev[j+1]+1, cur[j]+1, prev[j]+cost)
		}
		prev = cur
	}
	return prev[len(b)]
}
