package apply_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/apply"
	"github.com/callgate/callgate/specs"
)

// Nothing in a Change makes Prepare or Decide panic, and both leave Change and Facts as they were.
func TestNoChangePanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := change(rt)
		before := clone(rt, c)
		plan, err := apply.Prepare(c)
		if !reflect.DeepEqual(clone(rt, c), before) {
			rt.Fatal("Prepare changed the change")
		}
		if err != nil {
			if !errors.Is(err, persistence.ErrInvalid) && !errors.Is(err, persistence.ErrIllegal) {
				rt.Fatalf("untyped: %v", err)
			}
			return
		}
		n := plan.Needs()
		if !slices.IsSorted(n.Counters) || !slices.IsSorted(n.Trees) || !slices.IsSorted(n.Digests) || len(slices.Compact(slices.Clone(n.Counters))) != len(n.Counters) {
			rt.Fatalf("needs are not in the order of locks: %+v", n)
		}
		f := facts(rt, n)
		applied, writes, err := plan.Decide(f)
		if !reflect.DeepEqual(clone(rt, c), before) {
			rt.Fatal("Decide changed the change")
		}
		if err != nil {
			if writes != nil || applied.Seqs != nil {
				rt.Fatalf("refused (%v) and yet %+v", err, writes)
			}
			return
		}
		if len(applied.Seqs) != len(c.Lines) || !slices.IsSorted(applied.Seqs) {
			rt.Fatalf("numbers %v for %d lines", applied.Seqs, len(c.Lines))
		}
		for _, k := range writes.Counters {
			if k.Spent < 0 || k.Reserved < 0 || k.Left < 0 || k.Limit != k.Spent+k.Reserved+k.Left {
				rt.Fatalf("counter %+v", k)
			}
		}
		for _, l := range writes.Lines {
			if l.Hash != l.Sum() {
				rt.Fatalf("line %+v has another hash", l)
			}
		}
		// The same question has the same answer, ids of lines apart; and the answer kept under the key is that answer.
		f.Prior = writes.Applied
		again, nothing, err := plan.Decide(f)
		if err != nil || nothing != nil || !slices.Equal(again.Seqs, applied.Seqs) || !again.At.Equal(applied.At) || again.Duplicate {
			rt.Fatalf("its own commit, asked again: %+v, %v; was %+v", again, err, applied)
		}
		other, err := apply.Prepare(c)
		if err != nil {
			rt.Fatal(err)
		}
		if again, _, err = other.Decide(f); err != nil || !again.Duplicate {
			rt.Fatalf("somebody else's repetition: %+v, %v", again, err)
		}
	})
}

func clone(rt *rapid.T, v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error() // invalid raw JSON: the same text for the same value
	}
	return string(out)
}

var texts = []string{"", "a", "b", "r", "\x00", "\xff"}

func text(rt *rapid.T, name string) string {
	if rapid.IntRange(0, 20).Draw(rt, "odd") == 0 {
		return rapid.SampledFrom(texts).Draw(rt, name)
	}
	return rapid.SampledFrom(texts[1:3]).Draw(rt, name)
}

func list[T any](rt *rapid.T, most int, one func() T) (out []T) {
	for range rapid.IntRange(0, most).Draw(rt, "n") {
		out = append(out, one())
	}
	return out
}

func change(rt *rapid.T) persistence.Change {
	number := func() int64 { return rapid.SampledFrom([]int64{0, 1, 5, 1<<63 - 1, -1}).Draw(rt, "number") }
	blob := func() persistence.Blob { return persistence.BlobOf("text/plain", []byte(text(rt, "data"))) }
	digest := func() specs.Digest { return blob().Digest }
	c := persistence.Change{Tenant: specs.TenantID(text(rt, "tenant")), Run: "r", Key: text(rt, "key")}
	call := &persistence.Call{ID: specs.CallID(text(rt, "id")), Reason: text(rt, "reason")}
	run := &persistence.Run{ID: "r"}
	c.Lines = list(rt, 4, func() persistence.Entry {
		e := persistence.Entry{Payload: json.RawMessage(rapid.SampledFrom([]string{"", "{}", `{"a":1}`, "{"}).Draw(rt, "payload")), Call: specs.CallID(text(rt, "call"))}
		switch rapid.IntRange(0, 5).Draw(rt, "what") {
		case 0:
			e.Move = &persistence.Move{Step: machine.Run().Birth(), Record: run}
		case 1:
			e.Move = &persistence.Move{Step: machine.Call().Birth(), Record: call}
		case 2:
			edges := machine.Call().Edges()
			e.Move = &persistence.Move{Step: rapid.SampledFrom(edges).Draw(rt, "edge"), Record: call, Version: number(), OnTime: rapid.Bool().Draw(rt, "onTime")}
		case 3:
			e.Move = &persistence.Move{Step: rapid.SampledFrom(machine.Run().Edges()).Draw(rt, "edge"), Record: run}
		default:
			e.Kind = "note"
		}
		return e
	})
	if rapid.Bool().Draw(rt, "more") {
		c.Blobs = list(rt, 2, blob)
		c.Reserve = list(rt, 2, func() persistence.Reservation {
			return persistence.Reservation{Call: "a", Counter: persistence.CounterKey(text(rt, "counter")), Limit: number(), Amount: number()}
		})
		c.Settle = list(rt, 2, func() persistence.Settlement {
			return persistence.Settlement{Call: "a", Counter: persistence.CounterKey(text(rt, "counter")), Spent: number()}
		})
		c.Adjust = list(rt, 2, func() persistence.Adjustment {
			a := persistence.Adjustment{Counter: persistence.CounterKey(text(rt, "counter")), Delta: number(), Reason: text(rt, "reason")}
			if raw, err := json.Marshal(a.Note("ada")); err == nil && rapid.IntRange(0, 9).Draw(rt, "told") > 0 {
				c.Lines = append(c.Lines, persistence.Entry{Kind: persistence.KindBudgetAdjusted, Payload: raw})
			}
			return a
		})
		c.Artifacts = list(rt, 2, func() persistence.Artifact { return persistence.Artifact{Name: text(rt, "name"), Digest: digest()} })
		c.Trees = list(rt, 2, func() persistence.TreeChange {
			return persistence.TreeChange{Tree: persistence.TreeID(text(rt, "tree")), Base: number(), Edits: list(rt, 2, func() persistence.TreeEdit {
				return persistence.TreeEdit{Path: text(rt, "path"), Digest: digest(), Size: 1}
			})}
		})
		c.Decisions = list(rt, 1, func() persistence.DecisionRecord {
			return persistence.DecisionRecord{Call: specs.CallID(text(rt, "call")), Phase: "call", Attempt: number(), Input: []byte(`{}`), Output: []byte(`{}`)}
		})
		c.Fence = number()
	}
	return c
}

// facts draws a store that may or may not have what is asked for.
func facts(rt *rapid.T, n apply.Needs) apply.Facts {
	yes := func() bool { return rapid.IntRange(0, 3).Draw(rt, "there") > 0 }
	f := apply.Facts{Now: time.Unix(1, 999), Subjects: map[apply.SubjectKey]apply.Subject{}, Counters: map[persistence.CounterKey]persistence.Counter{},
		Reservations: map[apply.ReservationKey]int64{}, Trees: map[persistence.TreeID]int64{}, Digests: map[specs.Digest]bool{}}
	if yes() {
		f.Head = &persistence.Head{Seq: 7, Hash: "sha256:7"}
	}
	if yes() {
		f.Lease = &persistence.Lease{Owner: "a", Fence: 1}
	}
	for _, k := range n.Subjects {
		if table, ok := persistence.TableOf(k.Machine); ok && !n.RunBorn && yes() {
			f.Subjects[k] = apply.Subject{State: rapid.SampledFrom(table.States()).Draw(rt, "state"), Version: 1}
		}
	}
	for _, k := range n.Counters {
		f.Counters[k] = persistence.Counter{Key: k, Limit: 10, Spent: 2, Reserved: 5}
	}
	for _, k := range n.Reservations {
		if rapid.Bool().Draw(rt, "open") {
			f.Reservations[k] = 5
		}
	}
	for _, k := range n.Trees {
		f.Trees[k] = rapid.SampledFrom([]int64{0, 1, 5}).Draw(rt, "version")
	}
	for _, d := range n.Digests {
		f.Digests[d] = yes()
	}
	return f
}

// Whoever takes a lease over has a greater fence than everybody before, and a holder in time keeps it.
func TestCase_D02_FencesOnlyGrow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var held *persistence.Lease
		now, last := time.Unix(0, 0), int64(0)
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(rt, "later")) * time.Second)
			dead := rapid.SampledFrom([]int64{0, last, last - 1}).Draw(rt, "dead")
			got, err := apply.Lease(held, false, dead, now, "w", 2*time.Second)
			free := held == nil || held.Owner == "" || !now.Before(held.Until) || held.Fence == dead
			if free != (err == nil) {
				rt.Fatalf("free %v, answer %v", free, err)
			}
			if err != nil {
				continue
			}
			if got.Fence <= last {
				rt.Fatalf("fence %d after %d", got.Fence, last)
			}
			held, last = &got, got.Fence
			if rapid.Bool().Draw(rt, "release") {
				held.Owner = ""
			}
		}
	})
}
