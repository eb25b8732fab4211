package persistencetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlstore"
	"github.com/callgate/callgate/specs"
)

// onlyEdges: an illegal move leaves state and journal as they were and has a typed error.
func onlyEdges(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	a.must(a.born("c1"))
	before := a.call("c1")
	c := before
	table := machine.Call()
	for _, from := range append(table.States(), "", "nonsense") {
		for _, ev := range append(table.Events(), "", machine.Create) {
			if _, err := table.Fire(from, ev); err == nil || from == "" && ev == machine.Create {
				continue
			}
			step := machine.Step{Machine: "call", From: from, Event: ev, To: "completed", Journal: "tool_call_completed"}
			_, err := s.Apply(t.Context(), a.change("x", persistence.Entry{Move: &persistence.Move{Step: step, Record: &c}}))
			var illegal *machine.IllegalError
			if !errors.Is(err, persistence.ErrIllegal) || !errors.As(err, &illegal) {
				t.Fatalf("%v: %v", step, err)
			}
		}
	}
	// A lawful event with another target, another kind, another machine.
	step, _ := table.Fire("requested", machine.CallAllow)
	for _, spoil := range []func(*machine.Step){
		func(s *machine.Step) { s.To = "started" }, func(s *machine.Step) { s.Journal = "tool_call_started" },
	} {
		bad := step
		spoil(&bad)
		a.refused(a.change("x", persistence.Entry{Move: &persistence.Move{Step: bad, Record: &c}}), persistence.ErrIllegal)
	}
	foreign := step
	foreign.Machine = "run"
	a.refused(a.change("x", persistence.Entry{Move: &persistence.Move{Step: foreign, Record: &c}}), persistence.ErrInvalid)
	a.refused(a.change("x", persistence.Entry{Kind: "note", Move: &persistence.Move{Step: step, Record: &c}}), persistence.ErrInvalid)
	if after := a.call("c1"); !reflect.DeepEqual(after, before) {
		t.Errorf("the call changed: %+v, was %+v", after, before)
	}
	sound(t, s)
}

// rawMovesAreRefused: the database holds the law too.
func rawMovesAreRefused(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	a := begin(t, s, "r")
	a.must(a.born("c1"))
	before := a.call("c1")
	for _, sql := range []string{
		`UPDATE subjects SET state = 'completed' WHERE machine = 'call'`,
		`UPDATE subjects SET from_state = state, event = 'complete', state = 'completed', version = version + 1 WHERE machine = 'call'`,
		`UPDATE subjects SET from_state = 'started', event = 'complete', state = 'completed', version = version + 1 WHERE machine = 'call'`,
		`UPDATE subjects SET from_state = state, event = 'allow', state = 'ready', version = version + 2 WHERE machine = 'call'`,
		`UPDATE subjects SET machine = 'run', from_state = 'created', event = 'initialize', state = 'initializing_workspace', version = version + 1 WHERE machine = 'call'`,
		`INSERT INTO subjects SELECT tenant, run, machine, 'c2', 'started', 'complete', 'completed', 1, deadline, due, ended, created, updated, born, body FROM subjects WHERE machine = 'call'`,
		`INSERT INTO subjects SELECT tenant, run, machine, 'c2', '', 'create', 'completed', 1, deadline, due, ended, created, updated, born, body FROM subjects WHERE machine = 'call'`,
	} {
		if err := p.Exec(t, sql); err == nil {
			t.Errorf("the database let this pass: %s", sql)
		}
	}
	if after := a.call("c1"); !reflect.DeepEqual(after, before) {
		t.Errorf("the call changed: %+v, was %+v", after, before)
	}
	// Journal lines: every combination that is no edge is refused; a sample of them, and every near miss of one edge.
	insert := func(m, from, event, to, kind any) error {
		return p.Exec(t, `INSERT INTO journal (tenant, run, seq, id, at, level, kind, payload, cause, request, invocation, call, related,
			machine, subject, from_state, event, to_state, prev, hash)
			SELECT tenant, run, 99, id, at, level, $1, payload, cause, request, invocation, call, related, $2, $3, $4, $5, $6, prev, hash
			FROM journal WHERE run = 'r' AND seq = 1`, kind, m, map[bool]any{true: nil, false: "c1"}[m == nil], from, event, to)
	}
	law := map[machine.Step]bool{}
	for _, step := range sqlstore.Law() {
		law[step] = true
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	table := machine.Call()
	for range 40 {
		step := machine.Step{Machine: "call", From: table.States()[rnd.IntN(len(table.States()))], Event: table.Events()[rnd.IntN(len(table.Events()))],
			To: table.States()[rnd.IntN(len(table.States()))], Journal: "tool_call_completed"}
		if law[step] {
			continue
		}
		if err := insert(step.Machine, string(step.From), string(step.Event), string(step.To), step.Journal); err == nil {
			t.Fatalf("the database let a line with %v pass", step)
		}
	}
	for _, miss := range [][5]any{
		{"call", "requested", "allow", "ready", "note"},
		{"call", "requested", "allow", "started", "tool_call_ready"},
		{"run", "requested", "allow", "ready", "tool_call_ready"},
		{"call", nil, "allow", "ready", "tool_call_ready"},
		{"call", "requested", nil, "ready", "tool_call_ready"},
		{nil, "requested", "allow", "ready", "tool_call_ready"},
	} {
		if err := insert(miss[0], miss[1], miss[2], miss[3], miss[4]); err == nil {
			t.Fatalf("the database let a line with %v pass", miss)
		}
	}
}

// lawIsOne: the edges in the database are the edges of the machine room.
func lawIsOne(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	held, err := s.Transitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	law := sqlstore.Law()
	key := func(s machine.Step) string {
		return fmt.Sprint(s.Machine, "\x00", s.From, "\x00", s.Event, "\x00", s.To, "\x00", s.Journal)
	}
	order := func(a, b machine.Step) int { return map[bool]int{true: -1, false: 1}[key(a) < key(b)] }
	slices.SortFunc(held, order)
	slices.SortFunc(law, order)
	if !slices.Equal(held, law) {
		t.Errorf("the database holds %d edges, the machine room %d: %v", len(held), len(law), held)
	}
}

// freshProcessSeesTheSame: memory is never ahead of the store.
func freshProcessSeesTheSame(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	a := begin(t, s, "r")
	call := &persistence.Call{ID: "c1", Invocation: "i1"}
	c := a.change("request", persistence.Entry{Move: &persistence.Move{Step: machine.Call().Birth(), Record: call}})
	c.Lines = append(c.Lines, moves(t, machine.Call(), "requested", call, machine.CallAllow, machine.CallStart)...)
	got := a.must(c)
	if call.State != machine.CallStarted || call.Version != 3 || !call.Created.Equal(got.At) || !call.Updated.Equal(got.At) || call.Tenant != tenant || call.Run != "r" {
		t.Errorf("after the commit the record says %+v", call.RecordMeta)
	}
	back, err := p.Open(t, persistence.Options{}).Call(t.Context(), tenant, "r", "c1")
	if err != nil || !reflect.DeepEqual(back, *call) {
		t.Errorf("another process reads %+v, %v; the first one has %+v", back, err, *call)
	}
	// A refused change leaves the record in memory alone.
	was := *call
	bad := a.change("x", moves(t, machine.Call(), "started", call, machine.CallComplete)...)
	bad.Lines[0].Move.Version = 1
	a.refused(bad, persistence.ErrStale)
	if !reflect.DeepEqual(*call, was) {
		t.Errorf("a refused change moved the record to %+v", call.RecordMeta)
	}
	got2 := lines(t, s, "r")
	if l := got2[1]; l.Call != "c1" || l.Invocation != "i1" || l.Subject != "c1" || l.To != "requested" {
		t.Errorf("the line does not say whom it is about: %+v", l)
	}
}

// foldIsTheProjection: random walks of several records; after each step the lines so far lead to the stored state.
func foldIsTheProjection(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		a := begin(t, s, specs.RunID(fmt.Sprintf("r%d", seed)))
		ids := []specs.CallID{"a", "b", "c"}
		for _, id := range ids {
			a.must(a.born(id))
		}
		for range 12 {
			id := ids[rnd.IntN(len(ids))]
			call := a.call(id)
			legal := machine.Call().Legal(call.State)
			if len(legal) == 0 {
				continue
			}
			a.must(a.move(id, legal[rnd.IntN(len(legal))]))
			events := map[string][]machine.Event{}
			for _, l := range lines(t, s, a.run) {
				if l.Machine == "call" && l.From != "" {
					events[l.Subject] = append(events[l.Subject], l.Event)
				}
			}
			for _, id := range ids {
				want, err := machine.Call().Fold(events[string(id)])
				if got := a.call(id); err != nil || got.State != want || got.Version != int64(len(events[string(id)])+1) {
					t.Fatalf("seed %d: %s is %s at version %d, its lines lead to %s: %v", seed, id, got.State, got.Version, want, err)
				}
			}
		}
	}
	sound(t, s)
}

// oneOfManyWins: n equal events at once, one success.
func oneOfManyWins(t *testing.T, place Make) {
	p := place(t)
	stores := []persistence.Store{p.Open(t, persistence.Options{}), p.Open(t, persistence.Options{})}
	a := begin(t, stores[0], "r")
	for i := range 3 {
		id := specs.CallID(fmt.Sprintf("c%d", i))
		a.must(a.born(id, machine.CallAllow))
		changes := make([]persistence.Change, 8)
		for j := range changes {
			changes[j] = a.move(id, machine.CallStart)
		}
		errs := crowd(len(changes), func(j int) error {
			_, err := stores[j%2].Apply(t.Context(), changes[j])
			return err
		})
		if n := winners(t, errs, persistence.ErrStale); n != 1 {
			t.Errorf("%d of %d started the call", n, len(errs))
		}
	}
	// Two births of one run, and of one call.
	errs := crowd(6, func(i int) error {
		b := &author{t: t, store: stores[i%2], run: "twins"}
		c := b.birth()
		c.Key = fmt.Sprint("twin", i)
		_, err := b.store.Apply(t.Context(), c)
		return err
	})
	if n := winners(t, errs, persistence.ErrStale); n != 1 {
		t.Errorf("the run was born %d times", n)
	}
	sound(t, stores[0])
}

// nothingOutlivesItsRun: the run cannot end over open calls, approvals, invocations, reservations; its lease ends.
func nothingOutlivesItsRun(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	inv := &persistence.Invocation{ID: "i1", Kind: persistence.InvocationRoot}
	a.must(a.change("invoke", persistence.Entry{Move: &persistence.Move{Step: machine.Invocation().Birth(), Record: inv}}))
	c := a.born("c1", machine.CallAllow, machine.CallStart)
	c.Reserve = []persistence.Reservation{{Call: "c1", Counter: "run/r/calls", Limit: 5, Amount: 1}}
	a.must(c)
	lease, err := s.Acquire(t.Context(), tenant, "r", "worker", time.Hour, nil)
	must(t, err)

	a.refused(a.moveRun(machine.RunFail), persistence.ErrInvalid)
	end := a.move("c1", machine.CallComplete)
	end.Lines = append(end.Lines, moves(t, machine.Invocation(), "created", inv, "cancel")...)
	end.Lines = append(end.Lines, a.moveRun(machine.RunFail).Lines...)
	a.refused(end, persistence.ErrInvalid) // the reservation
	end.Settle = []persistence.Settlement{{Call: "c1", Counter: "run/r/calls", Spent: 1}}
	end.Fence = lease.Fence
	a.must(end)

	a.refused(a.born("late"), persistence.ErrStale)
	again := a.change("fenced", note(`{}`))
	again.Fence = lease.Fence
	a.refused(again, persistence.ErrFenced)
	if _, err := s.Acquire(t.Context(), tenant, "r", "other", time.Hour, nil); !errors.Is(err, persistence.ErrStale) {
		t.Errorf("a lease on an ended run: %v", err)
	}
	a.must(a.change("late result", persistence.Entry{Kind: persistence.KindLateResult}))
	sound(t, s)
	anchors, err := s.Journal(t.Context(), tenant, "", persistence.JournalQuery{Related: "r"})
	if err != nil || len(anchors) != 2 || anchors[0].Kind != persistence.KindRunOpened || anchors[1].Kind != persistence.KindRunClosed {
		t.Errorf("the tenant's chain has %v, %v", anchors, err)
	}
}

// changesThatContradictThemselves are refused whole.
func changesThatContradictThemselves(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	a.must(a.born("c1"))
	for what, c := range map[string]persistence.Change{
		"no tenant":      {Run: "r", Key: "k", Lines: []persistence.Entry{note(`{}`)}},
		"no key":         {Tenant: tenant, Run: "r", Lines: []persistence.Entry{note(`{}`)}},
		"no line":        {Tenant: tenant, Run: "r", Key: "k"},
		"no kind":        {Tenant: tenant, Run: "r", Key: "k", Lines: []persistence.Entry{{}}},
		"a false anchor": {Tenant: tenant, Key: "k", Lines: []persistence.Entry{{Kind: persistence.KindRunClosed, Related: "r"}}},
		"bad level":      {Tenant: tenant, Run: "r", Key: "k", Lines: []persistence.Entry{{Kind: "note", Level: "loud"}}},
		"bad payload":    {Tenant: tenant, Run: "r", Key: "k", Lines: []persistence.Entry{note(`{`)}},
		"no record":      {Tenant: tenant, Run: "r", Key: "k", Lines: []persistence.Entry{{Move: &persistence.Move{}}}},
		"nil record":     {Tenant: tenant, Run: "r", Key: "k", Lines: []persistence.Entry{{Move: &persistence.Move{Step: machine.Call().Birth(), Record: (*persistence.Call)(nil)}}}},
		"other run":      {Tenant: tenant, Run: "r", Key: "k", Lines: []persistence.Entry{{Move: &persistence.Move{Step: machine.Run().Birth(), Record: &persistence.Run{ID: "q"}}}}},
		"other tenant":   {Tenant: tenant, Run: "r", Key: "k", Lines: []persistence.Entry{{Move: &persistence.Move{Step: machine.Call().Birth(), Record: &persistence.Call{ID: "x", RecordMeta: persistence.RecordMeta{Tenant: "evil"}}}}}},
		"outside a run":  {Tenant: tenant, Key: "k", Lines: []persistence.Entry{{Move: &persistence.Move{Step: machine.Call().Birth(), Record: &persistence.Call{ID: "x"}}}}},
		"lease, no run":  {Tenant: tenant, Key: "k", Fence: 1, Lines: []persistence.Entry{note(`{}`)}},
		"bundle in run":  {Tenant: tenant, Run: "r", Key: "k", Lines: []persistence.Entry{note(`{}`)}, Bundle: &persistence.BundleChange{Activate: "sha256:x"}},
		"empty bundle":   {Tenant: tenant, Key: "k", Lines: []persistence.Entry{note(`{}`)}, Bundle: &persistence.BundleChange{}},
		"stray decision": {Tenant: tenant, Run: "r", Key: "k", Lines: []persistence.Entry{note(`{}`)}, Decisions: []persistence.DecisionRecord{{Call: "c1", Phase: "call", Attempt: 1, Input: []byte(`{}`), Output: []byte(`{}`)}}},
		"odd moves": {Tenant: tenant, Run: "r", Key: "k", Lines: append(moves(t, machine.Call(), "requested", &persistence.Call{ID: "c1"}, machine.CallAllow),
			moves(t, machine.Call(), "requested", &persistence.Call{ID: "c1"}, machine.CallAllow)...)},
	} {
		if _, err := s.Apply(t.Context(), c); !errors.Is(err, persistence.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ghost := &author{t: t, store: s, run: "ghost"}
	ghost.refused(ghost.change("note", note(`{}`)), persistence.ErrNotFound)
	c := &persistence.Call{ID: "nobody"}
	a.refused(a.change("move", moves(t, machine.Call(), "requested", c, machine.CallAllow)...), persistence.ErrNotFound)
	twice := a.born("c1")
	a.refused(twice, persistence.ErrStale)
	if n := a.head().Seq; n != 2 {
		t.Errorf("%d lines", n)
	}
}

// caseH32: two results for one call, the second is refused.
func caseH32(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	a.must(a.born("c1", machine.CallAllow, machine.CallStart))
	first, second := a.move("c1", machine.CallComplete), a.move("c1", machine.CallFail)
	first.Artifacts = []persistence.Artifact{{Name: "tool-results/c1.json", Digest: specs.DigestOf([]byte("1"))}}
	first.Blobs = []persistence.Blob{persistence.BlobOf("", []byte("1"))}
	a.must(first)
	a.refused(second, persistence.ErrStale)
	if c := a.call("c1"); c.State != machine.CallCompleted {
		t.Errorf("the call is %s", c.State)
	}
}
