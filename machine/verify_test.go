package machine_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// Every kind of fault: where it is, what it is called, what a reader is told.
func TestF8_EveryFaultIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []string // "line:col code: message"
	}{
		{"dead end", "initial created\nfinal paid\nwaiting created person\ncreated pay paid\ncreated approve approved\napproved pack stuck", []string{
			`6:15 dead-end: "stuck" is a dead end, not final and without an exit: created --approve--> approved --pack--> stuck`,
		}},
		{"dead end at birth", "initial created\nfinal paid\npaid x paid", []string{
			`1:9 dead-end: "created" is a dead end, not final and without an exit: created`,
			`3:1 final-with-exit: final state "paid" has an exit: paid --x--> paid`,
			`3:1 unreachable-state: state "paid" is unreachable: no event leads to it`,
		}},
		{"round for ever", "initial created\nfinal paid\nwaiting created person\nwaiting a worker\nwaiting b worker\ncreated pay paid\ncreated go a\na go b\nb go a", []string{
			`7:12 no-way-out: no final state can be reached from "a": created --go--> a --go--> b --go--> a`,
		}},
		{"only itself", "initial created\nfinal paid\nwaiting created person\nwaiting a worker\ncreated pay paid\ncreated go a\na vote a", []string{
			`6:12 no-way-out: no final state can be reached from "a": created --go--> a --vote--> a`,
		}},
		{"unreachable", "initial created\nfinal paid lost\nwaiting created person\ncreated pay paid\nisland swim shore\nshore pay paid", []string{
			`2:12 unreachable-state: state "lost" is unreachable: no event leads to it`,
			`5:1 unreachable-state: state "island" is unreachable: no event leads to it`,
			`5:13 unreachable-state: state "shore" is unreachable: the ways to it start in states that are unreachable themselves: island --swim--> shore`,
		}},
		{"misspelt, with a list", "initial created\nstates created approved paid\nfinal paid\nwaiting created person\ncreated approve aproved\napproved pay paid", []string{
			`5:17 unknown-state: state "aproved" is not listed under ` + "`states`",
		}},
		{"misspelt, without a list", "initial created\nfinal paid\nwaiting created person\ncreated approve aproved\napproved pay paid\ncreated pay paid", []string{
			`4:17 dead-end: "aproved" is a dead end, not final and without an exit: created --approve--> aproved`,
			`5:1 unreachable-state: state "approved" is unreachable: no event leads to it`,
		}},
		{"twice one edge", "initial created\nfinal paid gone\nwaiting created person\ncreated pay paid\ncreated pay gone", []string{
			`5:1 duplicate-edge: event "pay" already leads from "created" to "paid", order.yaml:4:1`,
		}},
		{"exit from an end", "initial created\nfinal paid\nwaiting created person\ncreated pay paid\npaid refund created", []string{
			`5:1 final-with-exit: final state "paid" has an exit: paid --refund--> created`,
		}},
		{"nobody wakes it", "initial created\nfinal paid\nwaiting created\ncreated pay paid", []string{
			`3:9 waiting-without-owner: nobody moves "created" on`,
		}},
		{"unknown owner", "initial created\nfinal paid\nwaiting created boss\ncreated pay paid", []string{
			`3:9 unknown-owner: "boss" cannot own a waiting state`,
		}},
		{"timer without a row", "initial created\nfinal paid\nwaiting created person expire\ncreated pay paid", []string{
			`3:9 timer-without-edge: the timer of "created" fires "expire", which may not happen there`,
		}},
		{"waiting for nothing", "initial created\nfinal paid\nwaiting created person\nwaiting paid person\nwaiting nowhere person\ncreated pay paid", []string{
			`4:9 final-waiting: "paid" is final and waiting; nothing is left to wait for`,
			`5:9 unknown-state: waiting state "nowhere" has no event and is not the initial state`,
		}},
		{"initial is final", "initial created\nfinal created\ncreated pay created", []string{
			`1:9 initial-final: initial state "created" is final, so nothing could ever happen`,
			`3:1 final-with-exit: final state "created" has an exit: created --pay--> created`,
		}},
		{"empty", "final", []string{
			`1:1 missing-field: a machine needs a final state`,
			`1:1 missing-field: a machine needs an event`,
			`1:1 missing-field: a machine needs an initial state`,
		}},
		{"names", "initial created\nfinal paid paid\nwaiting created person\ncreated create paid\ncreated p@y paid\ncreated pay p%d", []string{
			`2:12 repeated-name: "paid" stands twice under ` + "`final`, order.yaml:2:7",
			`4:9 reserved-name: "create" is the birth of every machine and is not declared`,
			`5:9 bad-name: "p@y" cannot be the name of an event`,
			`6:13 bad-name: "p%d" cannot be the name of a state`,
		}},
		{"several at once", "initial created\nfinal paid\nwaiting created\nwaiting held robot\ncreated pay paid\ncreated pay held\nheld x stuck", []string{
			`3:9 waiting-without-owner: nobody moves "created" on`,
			`4:9 unknown-owner: "robot" cannot own a waiting state`,
			`6:1 duplicate-edge: event "pay" already leads from "created" to "paid", order.yaml:5:1`,
			`7:8 dead-end: "stuck" is a dead end, not final and without an exit: created --pay--> held --x--> stuck`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := machine.New(doc(c.text))
			ds, ok := specs.AsDiagnostics(err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			var got []string
			for _, d := range ds {
				got = append(got, strings.TrimPrefix(d.Pos.String(), "order.yaml:")+" "+d.Code+": "+d.Message)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

// What `machine verify` prints: the author's own line, a caret under the word, the shortest way into it.
func TestF8_ReportForPeople(t *testing.T) {
	t.Parallel()
	text := "initial created\nfinal paid\nwaiting created person\ncreated pay paid\ncreated approve approved\napproved pack stuck"
	lines := strings.Split(text, "\n")
	report := machine.Verify(doc(text), machine.WithSource(func(p specs.Pos) string { return lines[p.Line-1] }))
	want := `order.yaml:6:15: "stuck" is a dead end, not final and without an exit: created --approve--> approved --pack--> stuck
  approved pack stuck
                ^^^^^
  hint: list it under ` + "`final`" + `, or give it an event
order: 4 states, 3 events, 3 edges: 1 error
`
	if got := report.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := report.Findings[0].Trace.String(); got != "created --approve--> approved --pack--> stuck" {
		t.Errorf("trace %s", got)
	}
	if got := machine.Verify(machine.Run().Document()).Text(); got != "run: 15 states, 23 events, 50 edges: every state is reached and reaches an end\n" {
		t.Error(got)
	}
}

// A shorter way is preferred to the one that the document tells first.
func TestF8_TheCounterexampleIsShortest(t *testing.T) {
	t.Parallel()
	report := machine.Verify(doc("initial a\nfinal z\nwaiting a person\nwaiting b person\nwaiting c person\na one b\nb two c\nc three stuck\na end z\nc end z\nb end z\na jump c"))
	if got := report.Findings[0].Trace.String(); got != "a --jump--> c --three--> stuck" {
		t.Error(got)
	}
}

// A loop that nobody may rest in loads, with a warning.
func TestF8_ALoopWithoutRestIsAWarning(t *testing.T) {
	t.Parallel()
	table := mustNew(t, "initial a\nfinal z\na go b\nb back a\nb end z")
	ws := table.Warnings()
	if len(ws) != 1 || ws[0].Code != "transient-cycle" || !strings.Contains(ws[0].Message, "a --go--> b --back--> a") {
		t.Errorf("%v", ws)
	}
	for _, shipped := range machine.All() {
		if len(shipped.Warnings()) > 0 {
			t.Errorf("%s: %v", shipped.Name(), shipped.Warnings())
		}
	}
}

func TestF8_InvariantsAreTried(t *testing.T) {
	t.Parallel()
	text := "initial pending\nfinal spent\nwaiting pending person\nwaiting approved worker\npending approve approved\napproved undo pending\napproved spend spent\ninvariant once count"
	broken := errors.New("no such\nfunction")
	compile := func(holds func(machine.State, []machine.Event) (bool, error), err error) machine.Option {
		return machine.WithInvariants(func(specs.MachineInvariant) (func(machine.State, []machine.Event) (bool, error), error) {
			return holds, err
		})
	}
	once := func(_ machine.State, h []machine.Event) (bool, error) {
		n := 0
		for _, ev := range h {
			if ev == "approve" {
				n++
			}
		}
		return n <= 1, nil
	}
	for _, c := range []struct {
		name string
		opt  machine.Option
		want string
	}{
		{"broken", compile(once, nil), `invariant "once" is broken: pending --approve--> approved --undo--> pending --approve--> approved`},
		{"cannot be compiled", compile(nil, broken), `invariant "once" cannot be used: no such function`},
		{"cannot be decided", compile(func(machine.State, []machine.Event) (bool, error) { return true, broken }, nil), `invariant "once" cannot be decided (no such function): pending`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := machine.New(doc(text), c.opt)
			ds, _ := specs.AsDiagnostics(err)
			if len(ds) != 1 || ds[0].Code != "invariant" || ds[0].Message != c.want || ds[0].Pos.Line != 8 {
				t.Errorf("got %v", ds)
			}
		})
	}
	report := machine.Verify(doc(text), compile(func(machine.State, []machine.Event) (bool, error) { return true, nil }, nil))
	if len(report.Laws) != 1 || report.Laws[0].Complete || report.Laws[0].Depth < 10 {
		t.Errorf("a table with a loop has histories without end: %+v", report.Laws)
	}
	report = machine.Verify(doc("initial a\nfinal z\nwaiting a person\na go z\ninvariant fine yes"),
		compile(func(machine.State, []machine.Event) (bool, error) { return true, nil }, nil))
	if l := report.Laws[0]; !l.Complete || l.Histories != 2 || l.Depth != 1 {
		t.Errorf("%+v", l)
	}
	if !strings.Contains(report.Text(), `order: invariant "fine" holds: all 2 histories tried`) {
		t.Error(report.Text())
	}
}

// A document of the largest accepted size with nothing but traps is looked through in moderate time, and
// one beyond it is refused before that.
func TestF8_LargeDocuments(t *testing.T) {
	t.Parallel()
	ring := func(n int) string {
		var b strings.Builder
		b.WriteString("initial s0\nfinal z\n")
		for i := range n {
			b.WriteString("s" + strconv.Itoa(i) + " e" + strconv.Itoa(i%200) + " s" + strconv.Itoa((i+1)%n) + "\n")
		}
		return b.String()
	}
	report := machine.Verify(doc(ring(255)))
	if !slices.ContainsFunc(report.Findings, func(f machine.Finding) bool { return f.Code == "no-way-out" && len(f.Trace) == 255 }) {
		t.Errorf("%v", report.Diagnostics())
	}
	report = machine.Verify(doc(ring(300)))
	if report.Findings[0].Code != "too-large" {
		t.Errorf("%v", report.Diagnostics())
	}
}
