package persistencetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// snapshot is everything that one big change moves.
type snapshot struct {
	head            persistence.Head
	state           machine.State
	spent, reserved int64
	tree            int64
	read            specs.Digest
	decided, named  int
}

func (a *author) own() persistence.CounterKey {
	return persistence.CounterKey("run/" + a.run + "/maxCalls")
}

func (a *author) snapshot(id specs.CallID) (v snapshot) {
	a.t.Helper()
	ctx := context.Background()
	v.head = a.head()
	v.state = a.call(id).State
	c := a.counter(a.own())
	v.spent, v.reserved = c.Spent, c.Reserved
	tree, err := a.store.Tree(ctx, tenant, persistence.RunTree(a.run), 0)
	must(a.t, err)
	v.tree = tree.Version
	reads, err := a.store.ReadStates(ctx, tenant, a.run, "i1")
	must(a.t, err)
	v.read = reads["x"]
	ds, err := a.store.Decisions(ctx, tenant, a.run, id)
	must(a.t, err)
	names, err := a.store.Artifacts(ctx, tenant, a.run)
	must(a.t, err)
	v.decided, v.named = len(ds), len(names)
	return v
}

// big is a change that touches every table, and what the snapshot is after it.
func (a *author) big(id specs.CallID, i int, before snapshot) (persistence.Change, func(persistence.Head) snapshot) {
	blob := persistence.BlobOf("text/plain", fmt.Appendf(nil, "content %d", i))
	c := a.move(id, machine.CallAllow, machine.CallStart)
	c.Lines = append(c.Lines, note(`{}`))
	c.Reserve = []persistence.Reservation{{Call: id, Counter: a.own(), Limit: 1000, Amount: 1}}
	c.Blobs = []persistence.Blob{blob}
	c.Artifacts = []persistence.Artifact{{Name: fmt.Sprint("artifact", i), Digest: blob.Digest}}
	c.Trees = []persistence.TreeChange{{Tree: persistence.RunTree(a.run), Base: before.tree, Edits: []persistence.TreeEdit{{Path: "x", Digest: blob.Digest, Size: int64(len(blob.Data))}}}}
	c.Reads = []persistence.ReadState{{Invocation: "i1", Path: "x", Digest: blob.Digest}}
	c.Decisions = []persistence.DecisionRecord{{Call: id, Phase: "call", Attempt: 1, Input: []byte(`{}`), Output: []byte(`{}`)}}
	return c, func(head persistence.Head) snapshot {
		return snapshot{head: head, state: machine.CallStarted, spent: before.spent, reserved: before.reserved + 1, tree: before.tree + 1, read: blob.Digest, decided: 1, named: before.named + 1}
	}
}

// allOrNothing: a change that is given up at a random moment is written whole or not at all, and the error says which.
func allOrNothing(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	rnd := rand.New(rand.NewPCG(8, 9))
	written, given := 0, 0
	for i := range 24 {
		id := specs.CallID(fmt.Sprint("c", i))
		a.must(a.born(id))
		before := a.snapshot(id)
		c, after := a.big(id, i, before)
		ctx, cancel := context.WithCancel(t.Context())
		wait := time.Duration(rnd.IntN(3000)) * time.Microsecond
		if i == 0 {
			cancel()
		}
		timer := time.AfterFunc(wait, cancel)
		_, err := s.Apply(ctx, c)
		timer.Stop()
		cancel()
		got := a.snapshot(id)
		switch {
		case err == nil && got == after(got.head) && got.head.Seq == before.head.Seq+3:
			written++
		case err == nil:
			t.Fatalf("acknowledged and then %+v, before %+v", got, before)
		case !errors.Is(err, context.Canceled):
			t.Fatalf("given up: %v", err)
		case got != before:
			t.Fatalf("given up (%v) and then %+v, before %+v", err, got, before)
		default:
			given++
			a.must(c) // the same key again, now to the end
		}
	}
	t.Logf("%d written, %d given up", written, given)
	if given == 0 {
		t.Error("nothing was given up: the test shows nothing")
	}
	sound(t, s)
}

// refusedByTheDatabase: a change that the database refuses in its last statements leaves nothing of the first ones.
func refusedByTheDatabase(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	for _, table := range []string{"changes", "blobs", "journal", "decisions", "reservations", "artifacts", "checkpoints", "reads"} {
		a := begin(t, s, specs.RunID("run-"+table))
		a.must(a.born("c1"))
		before := a.snapshot("c1")
		c, after := a.big("c1", 0, before)
		must(t, p.Exec(t, "ALTER TABLE "+table+" RENAME TO away"))
		if _, err := s.Apply(t.Context(), c); err == nil {
			t.Errorf("without %s: acknowledged", table)
		}
		must(t, p.Exec(t, "ALTER TABLE away RENAME TO "+table))
		if got := a.snapshot("c1"); got != before {
			t.Errorf("without %s: then %+v, before %+v", table, got, before)
		}
		a.must(c) // and the store is none the worse for it
		if got := a.snapshot("c1"); got != after(got.head) {
			t.Errorf("without %s and with it again: %+v", table, got)
		}
	}
	sound(t, s)
}

// killedWritersLoseNothing: a process that is killed while it writes has lost nothing that it was told is written, and
// has left nothing half-written.
func killedWritersLoseNothing(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	rnd := rand.New(rand.NewPCG(10, 11))
	for round := range 3 {
		run := specs.RunID(fmt.Sprintf("crash%d", round))
		self, err := os.Executable()
		must(t, err)
		child := exec.Command(self, "-test.run=^$")
		child.Env = append(os.Environ(), crashPlace+"="+p.Name(), crashRun+"="+string(run))
		out, err := child.StdoutPipe()
		must(t, err)
		must(t, child.Start())
		acked := int64(0)
		stopAt := int64(5 + rnd.IntN(30))
		for in := bufio.NewScanner(out); in.Scan(); {
			n, err := strconv.ParseInt(in.Text(), 10, 64)
			if err != nil {
				t.Fatalf("the child says %q", in.Text())
			}
			acked = n
			if n >= stopAt {
				time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond)
				must(t, child.Process.Kill())
			}
		}
		_ = child.Wait() // killed
		if acked < stopAt {
			t.Fatalf("the child ended by itself after %d", acked)
		}
		a := &author{t: t, store: s, run: run}
		all := lines(t, s, run)
		if got := int64(len(all)); got < acked || all[got-1].Seq != got {
			t.Errorf("%d lines, the last with number %d; %d were acknowledged", got, all[got-1].Seq, acked)
		}
		tree, err := s.Tree(t.Context(), tenant, persistence.RunTree(run), 0)
		must(t, err)
		cs, err := s.Calls(t.Context(), tenant, run)
		must(t, err)
		if c := a.counter(persistence.CounterKey("run/" + run)); int64(len(all)) != 1+5*tree.Version || int64(len(cs)) != tree.Version || c.Spent+c.Reserved != tree.Version || c.Reserved != min(1, tree.Version) {
			t.Errorf("%d lines, tree at %d, %d calls, %+v: something is half-written", len(all), tree.Version, len(cs), c)
		}
		a.must(a.change("after", note(`{}`)))
		sound(t, s)
	}
}

// The environment of the child that killedWritersLoseNothing kills.
const (
	crashPlace = "CALLGATE_TEST_CRASH_PLACE"
	crashRun   = "CALLGATE_TEST_CRASH_RUN"
)

// crashChild writes changes of five lines each until it is killed, and prints the last acknowledged number.
func crashChild() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // in case nobody kills us
	defer cancel()
	s, err := OpenNamed(ctx, os.Getenv(crashPlace))
	if err != nil {
		return err
	}
	defer s.Close()
	run := specs.RunID(os.Getenv(crashRun))
	_, err = s.Apply(ctx, persistence.Change{Tenant: tenant, Run: run, Key: "create",
		Lines: []persistence.Entry{{Move: &persistence.Move{Step: machine.Run().Birth(), Record: &persistence.Run{ID: run}}}}})
	if err != nil {
		return err
	}
	counter := persistence.CounterKey("run/" + run)
	for i := int64(0); ; i++ {
		id := specs.CallID(fmt.Sprint("c", i))
		call := &persistence.Call{ID: id}
		blob := persistence.BlobOf("text/plain", fmt.Appendf(nil, "%d", i))
		c := persistence.Change{Tenant: tenant, Run: run, Key: fmt.Sprint("big/", i), Blobs: []persistence.Blob{blob},
			Lines: []persistence.Entry{{Move: &persistence.Move{Step: machine.Call().Birth(), Record: call}}, note(`{}`)},
			Trees: []persistence.TreeChange{{Tree: persistence.RunTree(run), Base: i, Edits: []persistence.TreeEdit{{Path: "x", Digest: blob.Digest, Size: int64(len(blob.Data))}}}}}
		from := machine.Call().Initial()
		for _, ev := range []machine.Event{machine.CallAllow, machine.CallStart, machine.CallComplete} {
			step, err := machine.Call().Fire(from, ev)
			if err != nil {
				return err
			}
			c.Lines = append(c.Lines, persistence.Entry{Move: &persistence.Move{Step: step, Record: call}})
			from = step.To
		}
		c.Reserve = []persistence.Reservation{{Call: id, Counter: counter, Limit: 1 << 40, Amount: 1}}
		if i > 0 {
			c.Settle = []persistence.Settlement{{Call: specs.CallID(fmt.Sprint("c", i-1)), Counter: counter, Spent: 1}}
		}
		got, err := s.Apply(ctx, c)
		if err != nil {
			return err
		}
		if _, err := fmt.Println(got.Seqs[len(got.Seqs)-1]); err != nil {
			return err
		}
	}
}
