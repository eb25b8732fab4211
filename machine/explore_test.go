package machine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/callgate/callgate/machine"
)

// gate is how a dispatcher moves a call, its approval and the run around them: one entry for each
// transaction. The laws below hold because of this relation and not of the single tables.
func gate() machine.System {
	move := func(part string, ev machine.Event) machine.Move { return machine.Move{Part: part, Event: ev} }
	call := func(ev machine.Event) machine.Move { return move("call", ev) }
	appr := func(ev machine.Event) machine.Move { return move("approval", ev) }
	callIn := func(states ...machine.State) func(machine.World) bool {
		return func(w machine.World) bool {
			for _, s := range states {
				if w.State("call") == s {
					return true
				}
			}
			return false
		}
	}
	settled := func(parts ...string) func(machine.World) bool {
		return func(w machine.World) bool { return w.Settled(parts...) }
	}
	joint := []machine.Joint{
		{Name: "ask", Moves: []machine.Move{call(machine.CallAsk), appr(machine.Create)}},
		{Name: "approve", Moves: []machine.Move{call(machine.CallApprove), appr(machine.ApprovalApprove)}},
		{Name: "reject", Moves: []machine.Move{call(machine.CallReject), appr(machine.ApprovalReject)}},
		{Name: "answer", Moves: []machine.Move{call(machine.CallAnswer), appr(machine.ApprovalAnswer)}},
		{Name: "expire", Moves: []machine.Move{call(machine.CallExpire), appr(machine.ApprovalExpire)}},
		{Name: "start approved", Moves: []machine.Move{appr(machine.ApprovalSpend), call(machine.CallStart)}, When: callIn(machine.CallApproved)},
		{Name: "start", Moves: []machine.Move{call(machine.CallStart)}, When: callIn(machine.CallReady)},
		{Name: "ask again", Moves: []machine.Move{appr(machine.ApprovalCancel), appr(machine.Create), call(machine.CallReask)}},
		{Name: "ask late", Moves: []machine.Move{appr(machine.Create), call(machine.CallReask)}, When: callIn(machine.CallReady)},
	}
	// What ends a call ends an approval that is still open in the same transaction.
	for _, ev := range []machine.Event{machine.CallDeny, machine.CallInvalidate, machine.CallCancel} {
		joint = append(joint,
			machine.Joint{Name: string(ev), Moves: []machine.Move{call(ev)}, When: settled("approval")},
			machine.Joint{Name: string(ev) + " and withdraw", Moves: []machine.Move{call(ev), appr(machine.ApprovalCancel)}})
	}
	// A run ends only over settled calls and approvals.
	for _, ev := range []machine.Event{machine.RunComplete, machine.RunFail, machine.RunSucceedPartially, machine.RunCancel} {
		joint = append(joint, machine.Joint{Name: "run " + string(ev), Moves: []machine.Move{move("run", ev)}, When: settled("call", "approval")})
	}
	return machine.System{
		Parts: []machine.Part{
			{Name: "run", Table: machine.Run()},
			{Name: "call", Table: machine.Call()},
			{Name: "approval", Table: machine.Approval(), Unborn: true, Again: true},
		},
		Joint: joint,
		Watch: []machine.Move{appr(machine.ApprovalSpend), appr(machine.ApprovalApprove)},
		Laws: []machine.Law{
			{Name: "F3: an approved call is approved by a live approval", Holds: func(w machine.World) bool {
				return w.State("call") != machine.CallApproved || w.State("approval") == machine.ApprovalApproved
			}},
			{Name: "F3: nothing is spent that nobody approved", Holds: func(w machine.World) bool {
				return w.Count("approval", machine.ApprovalSpend) <= w.Count("approval", machine.ApprovalApprove)
			}},
			{Name: "A2: one call spends one approval", Holds: func(w machine.World) bool {
				return w.Count("approval", machine.ApprovalSpend) <= 1
			}},
			{Name: "F10: a run that is over leaves nothing open", Holds: func(w machine.World) bool {
				return !w.Settled("run") || w.Settled("call", "approval")
			}},
			{Name: "an open approval has a call that waits for it", Holds: func(w machine.World) bool {
				return w.Settled("approval") || w.State("call") == machine.CallAwaitingApproval || w.State("call") == machine.CallApproved
			}},
		},
	}
}

func TestF10_CallApprovalAndRunHoldTogether(t *testing.T) {
	t.Parallel()
	got, err := machine.Explore(gate(), 50_000)
	if err != nil {
		t.Fatal(err)
	}
	if got.Broken != nil {
		t.Fatal(got.Broken)
	}
	if !got.Complete || got.Worlds < 500 {
		t.Errorf("%+v: want every world", got)
	}
	t.Logf("%d worlds, %d moves, depth %d", got.Worlds, got.Moves, got.Depth)
}

// The laws are worth something only if a dispatcher that forgets one half of a transaction breaks them.
func TestF10_ForgettingHalfATransactionIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		forget func(*machine.System)
		want   string
	}{
		{"the approval is not spent", func(s *machine.System) {
			replace(s, "start approved", machine.Joint{Name: "start approved", Moves: []machine.Move{{Part: "call", Event: machine.CallStart}}})
		}, "an open approval has a call that waits for it: broken by start -> ask -> approve -> start approved"},
		{"cancel leaves the approval open", func(s *machine.System) {
			replace(s, "cancel and withdraw", machine.Joint{Name: "cancel", Moves: []machine.Move{{Part: "call", Event: machine.CallCancel}}})
		}, "an open approval has a call that waits for it: broken by start -> ask -> cancel"},
		{"a run fails over a running call", func(s *machine.System) {
			replace(s, "run fail", machine.Joint{Name: "run fail", Moves: []machine.Move{{Part: "run", Event: machine.RunFail}}})
		}, "F10: a run that is over leaves nothing open: broken by start -> run fail"},
		{"approval and call expire apart", func(s *machine.System) {
			replace(s, "expire", machine.Joint{Name: "expire", Moves: []machine.Move{{Part: "approval", Event: machine.ApprovalExpire}}})
		}, "an open approval has a call that waits for it: broken by start -> ask -> call.expire"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sys := gate()
			c.forget(&sys)
			got, err := machine.Explore(sys, 50_000)
			if err != nil || got.Broken == nil {
				t.Fatalf("%+v, %v", got, err)
			}
			if !strings.HasPrefix(got.Broken.Error(), c.want) {
				t.Errorf("got  %s\nwant %s", got.Broken, c.want)
			}
		})
	}
}

// A run that waits for a person must be able to end when nobody comes: take the ways out of an approval
// away and the explorer shows the world that cannot settle.
func TestF8_AWorldThatCannotSettleIsFound(t *testing.T) {
	t.Parallel()
	never := func(machine.World) bool { return false }
	sys := machine.System{
		Parts: []machine.Part{{Name: "call", Table: machine.Call()}},
		Joint: []machine.Joint{
			{Name: "approve", Moves: []machine.Move{{Part: "call", Event: machine.CallApprove}}, When: never},
			{Name: "reject", Moves: []machine.Move{{Part: "call", Event: machine.CallReject}}, When: never},
			{Name: "expire", Moves: []machine.Move{{Part: "call", Event: machine.CallExpire}}, When: never},
			{Name: "answer", Moves: []machine.Move{{Part: "call", Event: machine.CallAnswer}}, When: never},
			{Name: "cancel", Moves: []machine.Move{{Part: "call", Event: machine.CallCancel}}, When: never},
		},
	}
	got, err := machine.Explore(sys, 1000)
	if err != nil || got.Broken == nil || got.Broken.Law != machine.Settles {
		t.Fatalf("%+v, %v", got, err)
	}
	if want := "every world can still settle: broken by start -> call.ask (call=awaiting_approval)"; got.Broken.Error() != want {
		t.Error(got.Broken)
	}
}

func TestExploreSaysWhenItStopped(t *testing.T) {
	t.Parallel()
	got, err := machine.Explore(gate(), 10)
	if err != nil || got.Complete || got.Worlds != 10 || got.Broken != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestExploreRefusesASystemThatDoesNotExist(t *testing.T) {
	t.Parallel()
	part := machine.Part{Name: "call", Table: machine.Call()}
	for want, sys := range map[string]machine.System{
		`explore: part "call" is said twice or has no table`: {Parts: []machine.Part{part, part}},
		"explore: run.fail: no such part":                    {Parts: []machine.Part{part}, Watch: []machine.Move{{Part: "run", Event: "fail"}}},
		"explore: call.fly: no such event":                   {Parts: []machine.Part{part}, Joint: []machine.Joint{{Name: "x", Moves: []machine.Move{{Part: "call", Event: "fly"}}}}},
		`explore: transaction "x" has no moves`:              {Parts: []machine.Part{part}, Joint: []machine.Joint{{Name: "x"}}},
	} {
		if _, err := machine.Explore(sys, 10); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func replace(s *machine.System, name string, by machine.Joint) {
	for i := range s.Joint {
		if s.Joint[i].Name == name {
			s.Joint[i] = by
		}
	}
}

// A parcel may be opened only after it was paid. Each table allows its own moves; together they need the
// rule that paying comes first.
func ExampleExplore() {
	parcel, _ := machine.New(doc("initial closed\nfinal opened\nwaiting closed person\nclosed open opened"))
	bill, _ := machine.New(doc("initial due\nfinal paid\nwaiting due person\ndue pay paid"))
	sys := machine.System{
		Parts: []machine.Part{{Name: "parcel", Table: parcel}, {Name: "bill", Table: bill}},
		Laws: []machine.Law{{Name: "paid first", Holds: func(w machine.World) bool {
			return w.State("parcel") != "opened" || w.State("bill") == "paid"
		}}},
	}
	got, _ := machine.Explore(sys, 100)
	fmt.Println(got.Broken)

	sys.Joint = []machine.Joint{{Name: "open", Moves: []machine.Move{{Part: "parcel", Event: "open"}},
		When: func(w machine.World) bool { return w.State("bill") == "paid" }}}
	got, _ = machine.Explore(sys, 100)
	fmt.Println(got.Broken == nil, got.Worlds, "worlds")
	// Output:
	// paid first: broken by start -> parcel.open (parcel=opened bill=due)
	// true 3 worlds
}
