package persistencetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

const calls persistence.CounterKey = "run/r/maxCalls"

func (a *author) counter(key persistence.CounterKey) persistence.Counter {
	a.t.Helper()
	c, err := a.store.Counter(a.ctx(), tenant, key)
	if err != nil {
		a.t.Fatal(err)
	}
	if c.Limit != c.Spent+c.Reserved+c.Left || c.Spent < 0 || c.Reserved < 0 || c.Left < 0 {
		a.t.Fatalf("counter %+v does not add up", c)
	}
	return c
}

func (a *author) reserve(call specs.CallID, key persistence.CounterKey, limit, amount int64) persistence.Change {
	c := a.change("reserve", note(`{}`))
	c.Reserve = []persistence.Reservation{{Call: call, Counter: key, Limit: limit, Amount: amount, LeaseUntil: time.Unix(1700000000, 0).UTC()}}
	return c
}

func (a *author) settle(call specs.CallID, key persistence.CounterKey, spent int64) persistence.Change {
	c := a.change("settle", note(`{}`))
	c.Settle = []persistence.Settlement{{Call: call, Counter: key, Spent: spent}}
	return c
}

// countersAddUp: random reservations and settlements against a plain sum, with limits that change.
func countersAddUp(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	a := begin(t, s, "r")
	rnd := rand.New(rand.NewPCG(3, 4))
	open := map[specs.CallID]int64{}
	var spent, reserved int64
	for i := range 60 {
		if id := specs.CallID(fmt.Sprintf("c%d", rnd.IntN(8))); open[id] == 0 {
			limit, amount := rnd.Int64N(60), 1+rnd.Int64N(10)
			_, err := s.Apply(t.Context(), a.reserve(id, calls, limit, amount))
			var over *persistence.BudgetError
			switch fits := spent+reserved+amount <= limit; {
			case fits && err == nil:
				open[id] = amount
				reserved += amount
				if c := a.counter(calls); c.Limit != limit {
					t.Fatalf("step %d: limit %d, want %d", i, c.Limit, limit)
				}
			case fits:
				t.Fatalf("step %d: refused: %v", i, err)
			case !errors.As(err, &over):
				t.Fatalf("step %d: %d of %d, %d used: %v", i, amount, limit, spent+reserved, err)
			case over.Counter != calls || over.Limit != limit || over.Spent != spent || over.Reserved != reserved || over.Asked != amount:
				t.Fatalf("step %d: %+v", i, over)
			}
		} else {
			used := rnd.Int64N(open[id] + 1)
			a.must(a.settle(id, calls, used))
			spent, reserved = spent+used, reserved-open[id]
			delete(open, id)
		}
		if c := a.counter(calls); c.Spent != spent || c.Reserved != reserved {
			t.Fatalf("step %d: %+v, want %d spent, %d reserved", i, c, spent, reserved)
		}
	}
	if rs, err := s.Reservations(t.Context(), tenant, "r"); err != nil || len(rs) != len(open) {
		t.Errorf("open reservations %v, %v; want %v", rs, err, open)
	}
	// At the end of the range: an error, never an overflow.
	const most = math.MaxInt64
	a.must(a.reserve("big", "run/r/cost", most, most))
	var over *persistence.BudgetError
	if _, err := s.Apply(t.Context(), a.reserve("one", "run/r/cost", most, 1)); !errors.As(err, &over) {
		t.Errorf("one over the end: %v", err)
	}
	a.must(a.settle("big", "run/r/cost", most))
	if _, err := s.Apply(t.Context(), a.reserve("more", "run/r/cost", most, most)); !errors.As(err, &over) {
		t.Errorf("twice the end: %v", err)
	}
	if c := a.counter("run/r/cost"); c.Spent != most || c.Left != 0 {
		t.Errorf("%+v", c)
	}
	a.refused(a.reserve("neg", calls, 10, -1), persistence.ErrInvalid)
	a.refused(a.reserve("neg", calls, -1, 0), persistence.ErrInvalid)
	a.refused(a.settle("neg", calls, -1), persistence.ErrInvalid)
	// By raw SQL, too, a counter cannot be made to lie.
	for _, sql := range []string{`UPDATE counters SET spent = -1`, `UPDATE counters SET reserved = lim + 1`, `UPDATE counters SET lim = spent + reserved - 1`} {
		if err := p.Exec(t, sql); err == nil {
			t.Errorf("the database let this pass: %s", sql)
		}
	}
}

// neverOverTheLimit: many runs and processes at one counter.
func neverOverTheLimit(t *testing.T, place Make) {
	p := place(t)
	stores := []persistence.Store{p.Open(t, persistence.Options{}), p.Open(t, persistence.Options{})}
	const day persistence.CounterKey = "tenant/acme/day/2026-03-01/maxCalls"
	const other persistence.CounterKey = "run/x/maxCalls"
	authors := make([]*author, 5)
	for i := range authors {
		authors[i] = begin(t, stores[i%2], specs.RunID(fmt.Sprintf("r%d", i)))
	}
	const limit = 12
	errs := crowd(5, func(i int) error {
		var over *persistence.BudgetError
		for n := range 4 {
			call := specs.CallID(fmt.Sprint("c", n))
			c := authors[i].reserve(call, day, limit, 1)
			// A second counter, named first by some and last by others: nobody may wait for anybody crosswise.
			c.Reserve = append(c.Reserve, persistence.Reservation{Call: call, Counter: other, Limit: 1000, Amount: 2})
			if i%2 == 0 {
				c.Reserve[0], c.Reserve[1] = c.Reserve[1], c.Reserve[0]
			}
			_, err := authors[i].store.Apply(t.Context(), c)
			if errors.As(err, &over) {
				continue
			}
			if err != nil {
				return err
			}
			if n == 0 { // said twice
				if _, err := authors[i].store.Apply(t.Context(), c); err != nil {
					return err
				}
			}
		}
		return nil
	})
	winners(t, errs)
	if c := authors[0].counter(day); c.Reserved != limit || c.Left != 0 {
		t.Errorf("%+v, want all of %d", c, limit)
	}
	if c := authors[0].counter(other); c.Reserved != 2*limit {
		t.Errorf("a refused change took from the other counter: %+v", c)
	}
	sound(t, stores[0])
}

// reservationsEndOnce: each in exactly one settlement, which never gives back more than was reserved.
func reservationsEndOnce(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	a.must(a.reserve("c1", calls, 10, 4))
	a.refused(a.reserve("c1", calls, 10, 1), persistence.ErrConflict)
	a.refused(a.settle("c1", calls, 5), persistence.ErrInvalid)
	a.refused(a.settle("c2", calls, 0), persistence.ErrStale)
	rs, err := s.Reservations(t.Context(), tenant, "r")
	if err != nil || len(rs) != 1 || rs[0].Amount != 4 || rs[0].Limit != 10 || rs[0].Call != "c1" || !rs[0].LeaseUntil.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("open: %+v, %v", rs, err)
	}
	changes := make([]persistence.Change, 6)
	for i := range changes {
		changes[i] = a.settle("c1", calls, int64(i%5))
	}
	errs := crowd(len(changes), func(i int) error {
		_, err := s.Apply(t.Context(), changes[i])
		return err
	})
	if n := winners(t, errs, persistence.ErrStale); n != 1 {
		t.Errorf("settled %d times", n)
	}
	if c := a.counter(calls); c.Reserved != 0 || c.Spent > 4 {
		t.Errorf("%+v", c)
	}
	// What a change gives back can pay for what it reserves.
	left := a.counter(calls).Left
	a.must(a.reserve("c3", calls, 10, left))
	both := a.settle("c3", calls, 0)
	both.Reserve = []persistence.Reservation{{Call: "c3", Counter: calls, Limit: 10, Amount: left}}
	a.must(both)
	if c := a.counter(calls); c.Left != 0 || c.Reserved != left {
		t.Errorf("%+v", c)
	}
}

// recoveryFreesWhatIsLate: whoever recovers finds every reservation with the end of its lease, and can release the
// late ones; afterwards none is older than its lease.
func recoveryFreesWhatIsLate(t *testing.T, place Make) {
	w := newWall()
	p := place(t)
	a := begin(t, p.Open(t, w.options()), "r")
	for i := range 6 {
		c := a.reserve(specs.CallID(fmt.Sprint("c", i)), calls, 100, int64(i+1))
		c.Reserve[0].LeaseUntil = w.now().Add(time.Duration(i) * time.Minute)
		a.must(c)
	}
	w.advance(3 * time.Minute)
	fresh := p.Open(t, w.options())
	late := func() (out []persistence.Reservation) {
		t.Helper()
		rs, err := fresh.Reservations(t.Context(), tenant, "r")
		must(t, err)
		now, err := fresh.Now(t.Context())
		must(t, err)
		for _, r := range rs {
			if !r.LeaseUntil.After(now) {
				out = append(out, r)
			}
		}
		return out
	}
	found := late()
	if len(found) != 4 {
		t.Fatalf("late: %v", found)
	}
	for _, r := range found {
		a.must(a.settle(r.Call, r.Counter, 0))
	}
	if again := late(); len(again) != 0 {
		t.Errorf("still late: %v", again)
	}
	if c := a.counter(calls); c.Reserved != 5+6 || c.Spent != 0 {
		t.Errorf("%+v", c)
	}
}

// refusedChangesCostNothing: whatever the reason of the refusal.
func refusedChangesCostNothing(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	a.must(a.born("c1", machine.CallAllow, machine.CallStart))
	stale := a.move("c1", machine.CallComplete)
	a.must(a.move("c1", machine.CallFail))
	stale.Reserve = []persistence.Reservation{{Call: "c1", Counter: calls, Limit: 10, Amount: 1}}
	a.refused(stale, persistence.ErrStale)
	fenced := a.reserve("c1", calls, 10, 1)
	fenced.Fence = 7
	a.refused(fenced, persistence.ErrFenced)
	part := a.reserve("c1", calls, 10, 1)
	part.Reserve = append(part.Reserve, persistence.Reservation{Call: "c1", Counter: "run/r/cost", Limit: 1, Amount: 2})
	var over *persistence.BudgetError
	if _, err := s.Apply(t.Context(), part); !errors.As(err, &over) || over.Counter != "run/r/cost" {
		t.Errorf("got %v", err)
	}
	if c := a.counter(calls); c != (persistence.Counter{Key: calls}) {
		t.Errorf("%+v", c)
	}
	if cs, err := s.Counters(t.Context(), tenant, ""); err != nil || len(cs) != 0 {
		t.Errorf("counters %v, %v", cs, err)
	}
}

// caseH60: a prefix is text. % and _ are only themselves.
func caseH60(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	for i, key := range []persistence.CounterKey{"run/a", "run/b", "run_a", "run%a", "ru\\n/a", "user/ü", "user/u"} {
		a.must(a.reserve(specs.CallID(fmt.Sprint("c", i)), key, 10, 1))
	}
	for prefix, want := range map[string]int{"": 7, "run": 4, "run/": 2, "run_": 1, "run%": 1, "%": 0, "_": 0, "ru\\": 1, "user/ü": 1, "run/a": 1, "run/ab": 0, "'": 0} {
		cs, err := s.Counters(t.Context(), tenant, prefix)
		if err != nil || len(cs) != want {
			t.Errorf("prefix %q: %v, %v; want %d", prefix, cs, err, want)
		}
	}
}

// adjust corrects a counter, and says so.
func (a *author) adjust(key persistence.CounterKey, delta int64) persistence.Change {
	a.t.Helper()
	adj := persistence.Adjustment{Counter: key, Delta: delta, Reason: "the price was wrong"}
	raw, err := json.Marshal(adj.Note("ada"))
	must(a.t, err)
	c := a.change("adjust", persistence.Entry{Kind: persistence.KindBudgetAdjusted, Payload: raw})
	c.Adjust = []persistence.Adjustment{adj}
	return c
}

// caseB05: a wrong price is corrected by a signed entry that the journal tells, and the counter adds up all the while.
func caseB05(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	const cost persistence.CounterKey = "run/r/cost"
	a.must(a.reserve("c1", cost, 100, 90))
	a.must(a.settle("c1", cost, 90)) // should have been 9
	var over *persistence.BudgetError
	if _, err := s.Apply(t.Context(), a.reserve("c2", cost, 100, 11)); !errors.As(err, &over) {
		t.Fatalf("before the correction: %v", err)
	}
	down := a.adjust(cost, -81)
	a.must(down)
	a.must(down) // the same change again corrects nothing twice
	if c := a.counter(cost); c.Spent != 9 || c.Limit != 100 || c.Left != 91 {
		t.Errorf("%+v", c)
	}
	a.must(a.reserve("c2", cost, 100, 11))
	// Upward beyond the limit: the stored limit follows, and nothing more can be reserved under the old one.
	a.must(a.adjust(cost, 200))
	if c := a.counter(cost); c.Spent != 209 || c.Reserved != 11 || c.Limit != 220 || c.Left != 0 {
		t.Errorf("%+v", c)
	}
	if _, err := s.Apply(t.Context(), a.reserve("c3", cost, 100, 1)); !errors.As(err, &over) || over.Spent != 209 {
		t.Errorf("over the limit: %v", err)
	}
	a.must(a.settle("c2", cost, 11))
	a.must(a.adjust(cost, -220))
	if c := a.counter(cost); c.Spent != 0 || c.Limit != 220 || c.Left != 220 {
		t.Errorf("%+v", c)
	}
	// A counter nobody reserved against, and the ends of the range.
	a.must(a.adjust("run/r/new", math.MaxInt64))
	if c := a.counter("run/r/new"); c.Spent != math.MaxInt64 || c.Left != 0 {
		t.Errorf("%+v", c)
	}
	for name, c := range map[string]persistence.Change{
		"below nothing": a.adjust(cost, -1), "the least there is": a.adjust(cost, math.MinInt64), "overflow": a.adjust("run/r/new", 1), "nothing": a.adjust(cost, 0),
		"untold":     func() persistence.Change { c := a.adjust(cost, 5); c.Lines = []persistence.Entry{note(`{}`)}; return c }(),
		"told wrong": func() persistence.Change { c := a.adjust(cost, 5); c.Adjust[0].Delta = 6; return c }(),
		"only told":  func() persistence.Change { c := a.adjust(cost, 5); c.Adjust = nil; return c }(),
		"no reason":  func() persistence.Change { c := a.adjust(cost, 5); c.Adjust[0].Reason = ""; return c }(),
	} {
		t.Log(name)
		a.refused(c, persistence.ErrInvalid)
	}
	if c := a.counter(cost); c.Spent != 0 {
		t.Errorf("a refused correction counted: %+v", c)
	}
	// The tenant's own counters are corrected on the tenant's own journal.
	own := a.adjust("tenant/acme/day", 3)
	own.Run = ""
	a.must(own)
	if ls := lines(t, s, ""); !slices.ContainsFunc(ls, func(l persistence.Line) bool { return l.Kind == persistence.KindBudgetAdjusted }) {
		t.Error("the tenant's journal does not tell the correction")
	}
	told := int64(0)
	for _, l := range lines(t, s, "r") {
		var n persistence.AdjustmentNote
		if l.Kind != persistence.KindBudgetAdjusted {
			continue
		}
		must(t, json.Unmarshal(l.Payload, &n))
		if n.By != "ada" || n.Reason == "" {
			t.Errorf("%s", l.Payload)
		}
		if n.Counter == cost {
			told += n.Delta
		}
	}
	if told != -81+200-220 {
		t.Errorf("the journal tells %d in all", told)
	}
	sound(t, s)
}
