package machine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/looplab/fsm"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/machine/machinetest"
)

func TestShippedLifecyclesKeepTheLaws(t *testing.T) {
	t.Parallel()
	for _, table := range machine.All() {
		t.Run(table.Name(), func(t *testing.T) { t.Parallel(); machinetest.Run(t, table) })
	}
}

func TestAUsersOwnLifecycleKeepsTheLaws(t *testing.T) {
	t.Parallel()
	machinetest.Run(t, mustNew(t, order))
}

// Every cell of every shipped table is what a looplab machine made for that one question answers.
func TestF1_TheTableIsWhatTheEngineSays(t *testing.T) {
	t.Parallel()
	for _, table := range machine.All() {
		var events []fsm.EventDesc
		for _, row := range table.Document().Events {
			var from []string
			for _, f := range row.From {
				from = append(from, f.Value)
			}
			events = append(events, fsm.EventDesc{Name: row.Name.Value, Src: from, Dst: row.To.Value})
		}
		for _, s := range table.States() {
			for _, ev := range table.Events() {
				engine := fsm.NewFSM(string(s), events, nil)
				err := engine.Event(context.Background(), string(ev))
				var stays fsm.NoTransitionError
				step, refused := table.Fire(s, ev)
				if happened := err == nil || errors.As(err, &stays); happened != (refused == nil) {
					t.Errorf("%s: %s in %q: engine %v, table %v", table.Name(), ev, s, err, refused)
				} else if happened && string(step.To) != engine.Current() {
					t.Errorf("%s: %s in %q: engine %q, table %q", table.Name(), ev, s, engine.Current(), step.To)
				}
			}
		}
	}
}

func TestF1_AnIllegalEventSaysWhatWouldBeLegal(t *testing.T) {
	t.Parallel()
	_, err := machine.Approval().Fire(machine.ApprovalApproved, machine.ApprovalApprove)
	var illegal *machine.IllegalError
	if !errors.As(err, &illegal) {
		t.Fatalf("got %v", err)
	}
	want := []machine.Event{machine.ApprovalCancel, machine.ApprovalExpire, machine.ApprovalSpend}
	if illegal.Machine != "approval" || illegal.From != machine.ApprovalApproved || !slices.Equal(illegal.Legal, want) {
		t.Errorf("got %+v", illegal)
	}
	if got := err.Error(); got != `approval: "approve" may not happen in "approved"; legal: cancel, expire, spend` {
		t.Error(got)
	}
}

// The lists that a table hands out are copies: a caller who sorts one changes nothing.
func TestF1_NobodyCanChangeATable(t *testing.T) {
	t.Parallel()
	table := mustNew(t, order)
	for _, list := range [][]machine.Event{table.Events(), table.Legal("created")} {
		for i := range list {
			list[i] = "overwritten"
		}
	}
	for i, edges := 0, table.Edges(); i < len(edges); i++ {
		edges[i] = machine.Step{}
	}
	for i, states := 0, table.States(); i < len(states); i++ {
		states[i] = ""
	}
	machinetest.Run(t, table)
	if table.Birth().To != "created" || len(table.Edges()) != 4 {
		t.Errorf("birth %v, edges %v", table.Birth(), table.Edges())
	}
}

func TestF1_NobodyIsBornTwice(t *testing.T) {
	t.Parallel()
	for _, table := range machine.All() {
		for _, s := range append(table.States(), "") {
			if step, err := table.Fire(s, machine.Create); err == nil {
				t.Errorf("%s: born again: %v", table.Name(), step)
			}
		}
	}
	want := map[string]string{"call": "tool_call_requested", "run": "run_created", "approval": "approval_requested", "invocation": "invocation_created"}
	for _, table := range machine.All() {
		if birth := table.Birth(); birth.Journal != want[table.Name()] || birth.From != "" || birth.Event != machine.Create {
			t.Errorf("%s is born by %+v", table.Name(), birth)
		}
	}
}

// Every walk of the shipped tables, to a depth: a final state is entered at most once, and nothing follows.
func TestF2_OneTerminalEvent(t *testing.T) {
	t.Parallel()
	for _, table := range machine.All() {
		walks, ended := 0, 0
		var walk func(s machine.State, depth, terminal int)
		walk = func(s machine.State, depth, terminal int) {
			walks++
			if table.IsFinal(s) {
				ended++
				terminal++
			}
			if terminal > 1 {
				t.Fatalf("%s: %q is a second end", table.Name(), s)
			}
			for _, ev := range table.Events() {
				step, err := table.Fire(s, ev)
				if err != nil {
					continue
				}
				if terminal > 0 {
					t.Fatalf("%s: something follows the end: %v", table.Name(), step)
				}
				if depth > 0 {
					walk(step.To, depth-1, terminal)
				}
			}
		}
		walk(table.Initial(), 7, 0)
		if ended == 0 || ended == walks {
			t.Errorf("%s: %d walks, %d at an end", table.Name(), walks, ended)
		}
	}
}

// Rejected is over. Whatever is tried afterwards, in whatever order, nothing starts.
func TestCase_A07_ARejectedCallCannotRun(t *testing.T) {
	t.Parallel()
	table := machine.Call()
	for _, over := range []machine.State{machine.CallRejected, machine.CallDenied, machine.CallExpired, machine.CallCancelled} {
		if !table.IsFinal(over) {
			t.Errorf("%q is not final", over)
		}
		for _, ev := range table.Events() {
			if step, err := table.Fire(over, ev); err == nil {
				t.Errorf("%v", step)
			}
		}
	}
}

// An event from inside a self-loop's callback locks looplab up for good. Here a self-loop is a row like
// any other, and asking again while an answer is being used is free of locks.
func TestCase_H3_ASelfLoopDoesNotLock(t *testing.T) {
	t.Parallel()
	done := make(chan error, 1)
	go func() {
		for range 3 {
			step, err := machine.Approval().Fire(machine.ApprovalPending, machine.ApprovalVote)
			if err != nil || step.To != machine.ApprovalPending || step.Journal != "approval_voted" {
				done <- fmt.Errorf("%+v, %w", step, err)
				return
			}
			if _, err := machine.Approval().Fire(step.To, machine.ApprovalApprove); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("locked up")
	}
}

func TestF5_FoldNamesTheFirstUnlawfulEvent(t *testing.T) {
	t.Parallel()
	state, err := machine.Call().Fold([]machine.Event{machine.CallAllow, machine.CallStart, machine.CallApprove, machine.CallComplete})
	var illegal *machine.IllegalError
	if state != machine.CallStarted || !errors.As(err, &illegal) || illegal.Event != machine.CallApprove {
		t.Errorf("%q, %v", state, err)
	}
	if want := `event 2: call: "approve" may not happen in "started"; legal: cancel, complete, fail, lose, time_out`; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

// Many callers at once, lawful and not, get the answers that one would get.
func TestF7_ConcurrentCallersDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	table := machine.Run()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if _, err := table.Fire(machine.RunCompleted, machine.RunFail); err == nil {
					t.Error("a completed run failed")
				}
				if step, err := table.Fire(machine.RunFinishing, machine.RunComplete); err != nil || step.To != machine.RunCompleted {
					t.Errorf("%v, %v", step, err)
				}
			}
		})
	}
	wg.Wait()
}

// What the kit says against a table holds for the zero Table too: it refuses, it does not fall over.
func TestF7_TheZeroTableRefusesEverything(t *testing.T) {
	t.Parallel()
	var table machine.Table
	if _, err := table.Fire("a", "b"); err == nil {
		t.Error("the zero table let something happen")
	}
	if table.Has("") || table.IsFinal("") || table.IsWaiting("") || len(table.States()) > 0 {
		t.Error("the zero table knows a state")
	}
}

func TestDigestIsTheMeaning(t *testing.T) {
	t.Parallel()
	base := mustNew(t, order).Digest()
	same := mustNew(t, `
final gone paid
created give_up gone
created nudge created
created pay paid
waiting created person give_up
initial created
`).Digest()
	if base != same || len(base) != len("sha256:")+64 {
		t.Errorf("the order of lines counts: %s, %s", base, same)
	}
	seen := map[string]string{string(base): "the original"}
	for what, text := range map[string]string{
		"another target":  "initial created\nfinal paid gone\nwaiting created person give_up\ncreated pay gone\ncreated nudge created\ncreated give_up paid",
		"another owner":   "initial created\nfinal paid gone\nwaiting created worker give_up\ncreated pay paid\ncreated nudge created\ncreated give_up gone",
		"another timer":   "initial created\nfinal paid gone\nwaiting created person\ncreated pay paid\ncreated nudge created\ncreated give_up gone",
		"another birth":   "birth order_placed" + order,
		"one event fewer": "initial created\nfinal paid gone\nwaiting created person give_up\ncreated pay paid\ncreated give_up gone",
		"an invariant":    order + "invariant x true",
	} {
		d := string(mustNew(t, text).Digest())
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", what, other)
		}
		seen[d] = what
	}
}

// A state or event may come from a database row or a request: any text has an answer.
func FuzzFire(f *testing.F) {
	f.Add("requested", "allow")
	f.Add("", "")
	f.Add("ready\x00", "ſtart")
	f.Fuzz(func(t *testing.T, from, ev string) {
		for _, table := range machine.All() {
			step, err := table.Fire(machine.State(from), machine.Event(ev))
			if err == nil && (!table.Has(step.To) || string(step.From) != from || string(step.Event) != ev) {
				t.Errorf("%s: %q in %q gives %+v", table.Name(), ev, from, step)
			}
			if err != nil && err.Error() == "" {
				t.Errorf("a silent refusal of %q in %q", ev, from)
			}
		}
	})
}

func BenchmarkFire(b *testing.B) {
	table := machine.Call()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := table.Fire(machine.CallApproved, machine.CallStart); err != nil {
			b.Fatal(err)
		}
	}
}

// For comparison: the engine itself, put into the state and fired.
func BenchmarkEngine(b *testing.B) {
	var events []fsm.EventDesc
	for _, s := range machine.Call().Edges()[1:] {
		events = append(events, fsm.EventDesc{Name: string(s.Event), Src: []string{string(s.From)}, Dst: string(s.To)})
	}
	engine := fsm.NewFSM("requested", events, nil)
	b.ReportAllocs()
	for b.Loop() {
		engine.SetState("approved")
		if err := engine.Event(context.Background(), "start"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	doc := machine.Run().Document()
	for b.Loop() {
		if _, err := machine.New(doc); err != nil {
			b.Fatal(err)
		}
	}
}
