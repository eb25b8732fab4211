package persistencetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

const tenant specs.TenantID = "acme"

// author writes the changes of one run, one sentence each. Its methods give the Change; apply sends it.
type author struct {
	t     testing.TB
	store persistence.Store
	run   specs.RunID
	n     atomic.Int64
}

func begin(t testing.TB, s persistence.Store, run specs.RunID) *author {
	t.Helper()
	a := &author{t: t, store: s, run: run}
	a.must(a.birth())
	return a
}

// key makes a change's key, fresh each time.
func (a *author) key(what string) string { return fmt.Sprintf("%s/%d", what, a.n.Add(1)) }

func (a *author) change(what string, lines ...persistence.Entry) persistence.Change {
	return persistence.Change{Tenant: tenant, Run: a.run, Key: a.key(what), Lines: lines}
}

func (a *author) must(c persistence.Change) persistence.Applied {
	a.t.Helper()
	got, err := a.store.Apply(a.ctx(), c)
	if err != nil {
		a.t.Fatalf("apply %s: %v", c.Key, err)
	}
	return got
}

func (a *author) ctx() context.Context { return a.t.Context() }

// refused applies a change that must be refused with want, and sees that nothing was written.
func (a *author) refused(c persistence.Change, want error) {
	a.t.Helper()
	before := a.head()
	_, err := a.store.Apply(a.ctx(), c)
	if !errors.Is(err, want) {
		a.t.Fatalf("apply %s: got %v, want %v", c.Key, err, want)
	}
	if after := a.head(); after != before {
		a.t.Fatalf("apply %s was refused (%v) and wrote all the same: %v, then %v", c.Key, err, before, after)
	}
}

func (a *author) head() persistence.Head {
	a.t.Helper()
	h, err := a.store.Head(a.ctx(), tenant, a.run)
	if err != nil && !errors.Is(err, persistence.ErrNotFound) {
		a.t.Fatal(err)
	}
	return h
}

func (a *author) birth() persistence.Change {
	run := &persistence.Run{ID: a.run, User: "ada", Profile: "writer"}
	return a.change("create", persistence.Entry{Move: &persistence.Move{Step: machine.Run().Birth(), Record: run}})
}

func note(payload string) persistence.Entry {
	return persistence.Entry{Kind: persistence.KindNote, Payload: []byte(payload)}
}

// born is a new call with every move given, in one change.
func (a *author) born(id specs.CallID, events ...machine.Event) persistence.Change {
	a.t.Helper()
	call := &persistence.Call{ID: id, ProviderID: "p-" + string(id)}
	c := a.change("request/" + string(id))
	c.Lines = append([]persistence.Entry{{Move: &persistence.Move{Step: machine.Call().Birth(), Record: call}}},
		moves(a.t, machine.Call(), machine.Call().Initial(), call, events...)...)
	return c
}

// moves are the lines of some events in a row.
func moves(t testing.TB, table *machine.Table, from machine.State, r persistence.Record, events ...machine.Event) (out []persistence.Entry) {
	t.Helper()
	for _, ev := range events {
		step, err := table.Fire(from, ev)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, persistence.Entry{Move: &persistence.Move{Step: step, Record: r}})
		from = step.To
	}
	return out
}

// move reads a call and gives the change that moves it on.
func (a *author) move(id specs.CallID, events ...machine.Event) persistence.Change {
	a.t.Helper()
	call, err := a.store.Call(a.ctx(), tenant, a.run, id)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.change(string(events[0])+"/"+string(id), moves(a.t, machine.Call(), call.State, &call, events...)...)
}

// moveRun is move for the run itself.
func (a *author) moveRun(events ...machine.Event) persistence.Change {
	a.t.Helper()
	run, err := a.store.Run(a.ctx(), tenant, a.run)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.change(string(events[0]), moves(a.t, machine.Run(), run.State, &run, events...)...)
}

func (a *author) call(id specs.CallID) persistence.Call {
	a.t.Helper()
	c, err := a.store.Call(a.ctx(), tenant, a.run, id)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// lines reads a whole chain in small pages.
func lines(t testing.TB, s persistence.Store, run specs.RunID) (out []persistence.Line) {
	t.Helper()
	for q := (persistence.JournalQuery{Limit: 7}); ; {
		page, err := s.Journal(t.Context(), tenant, run, q)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page...)
		if len(page) < 7 {
			return out
		}
		q.AfterSeq = page[6].Seq
	}
}

// sound says that the whole tenant verifies.
func sound(t testing.TB, s persistence.Store) {
	t.Helper()
	report, err := persistence.VerifyAll(t.Context(), s, tenant)
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK() {
		t.Fatalf("the store does not verify: %v", report.Findings)
	}
}

// crowd runs the same work n times at once and gives the errors.
func crowd(n int, work func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			errs[i] = work(i)
		})
	}
	close(start)
	all.Wait()
	return errs
}

// winners counts the nil errors, and fails for one that is neither nil nor one of the others.
func winners(t testing.TB, errs []error, others ...error) (n int) {
	t.Helper()
	for _, err := range errs {
		switch {
		case err == nil:
			n++
		default:
			ok := false
			for _, o := range others {
				ok = ok || errors.Is(err, o)
			}
			if !ok {
				t.Errorf("unexpected: %v", err)
			}
		}
	}
	return n
}

// wall is a clock that tests set.
type wall struct{ us atomic.Int64 }

func newWall() *wall {
	w := &wall{}
	w.us.Store(time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC).UnixMicro())
	return w
}

func (w *wall) now() time.Time               { return time.UnixMicro(w.us.Load()).UTC() }
func (w *wall) advance(d time.Duration)      { w.us.Add(d.Microseconds()) }
func (w *wall) options() persistence.Options { return persistence.Options{Now: w.now} }
