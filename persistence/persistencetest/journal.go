package persistencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// seqHasNoGaps: writers that race, fail, repeat themselves and give up half-way leave lines 1..n.
func seqHasNoGaps(t *testing.T, place Make) {
	p := place(t)
	stores := []persistence.Store{p.Open(t, persistence.Options{}), p.Open(t, persistence.Options{})}
	const writers, each = 4, 15
	run := begin(t, stores[0], "r")
	var mu sync.Mutex
	seen := map[int64]string{1: "create"}
	errs := crowd(writers, func(i int) error {
		rnd := rand.New(rand.NewPCG(uint64(i), 42))
		s := stores[i%2]
		for n := range each {
			c := persistence.Change{Tenant: tenant, Run: "r", Key: fmt.Sprintf("%d/%d", i, n)}
			for range 1 + rnd.IntN(4) {
				c.Lines = append(c.Lines, note(fmt.Sprintf(`{"writer":%d,"n":%d}`, i, n)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			switch rnd.IntN(5) {
			case 0: // a change that must fail after its lines were laid out
				c.Settle = []persistence.Settlement{{Call: "nobody", Counter: "run/r/calls", Spent: 1}}
			case 1:
				time.AfterFunc(time.Duration(rnd.IntN(2000))*time.Microsecond, cancel)
			case 2: // said twice
				if _, err := s.Apply(ctx, c); err != nil {
					cancel()
					return err
				}
			}
			got, err := s.Apply(ctx, c)
			gaveUp := ctx.Err() != nil
			cancel()
			if err != nil {
				if errors.Is(err, persistence.ErrStale) || gaveUp {
					continue
				}
				return err
			}
			mu.Lock()
			for _, seq := range got.Seqs {
				if other, taken := seen[seq]; taken {
					t.Errorf("number %d went to %s and to %s", seq, other, c.Key)
				}
				seen[seq] = c.Key
			}
			mu.Unlock()
		}
		return nil
	})
	winners(t, errs)
	all := lines(t, stores[0], "r")
	for i, l := range all {
		if l.Seq != int64(i+1) {
			t.Fatalf("line %d has number %d", i+1, l.Seq)
		}
	}
	if len(all) != len(seen) {
		t.Errorf("%d lines are stored, %d were acknowledged", len(all), len(seen))
	}
	if h := run.head(); h.Seq != int64(len(all)) {
		t.Errorf("the head is at %d of %d", h.Seq, len(all))
	}
	sound(t, stores[1])
}

// sameKeySameAnswer: a change sent again, also by many at once, is one row and one answer.
func sameKeySameAnswer(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	a := begin(t, s, "r")
	c := a.born("c1", machine.CallAllow)
	c.Trees = []persistence.TreeChange{{Tree: persistence.RunTree("r")}}
	answers := make([]persistence.Applied, 6)
	copies := make([]persistence.Change, len(answers))
	for i := range copies {
		copies[i] = a.born("c1", machine.CallAllow) // records of its own: Apply writes into them
		copies[i].Key, copies[i].Trees = c.Key, c.Trees
	}
	errs := crowd(len(answers), func(i int) (err error) {
		answers[i], err = s.Apply(t.Context(), copies[i])
		return err
	})
	if n := winners(t, errs); n != len(errs) {
		t.Fatalf("%d of %d were answered", n, len(errs))
	}
	fresh := 0
	for _, got := range answers {
		if !got.Duplicate {
			fresh++
		}
		if !slices.Equal(got.Seqs, []int64{2, 3}) || !slices.Equal(got.Versions, []int64{1}) || !got.At.Equal(answers[0].At) {
			t.Errorf("answers differ: %+v and %+v", got, answers[0])
		}
	}
	if fresh != 1 {
		t.Errorf("%d of the answers say that they were the first", fresh)
	}
	if n := len(lines(t, s, "r")); n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
	// The key is known before anything else is looked at: the state has moved on, the lease has passed.
	a.must(a.move("c1", machine.CallStart))
	c.Fence = 99
	if got := a.must(c); !got.Duplicate || !slices.Equal(got.Seqs, []int64{2, 3}) {
		t.Errorf("sent again later: %+v", got)
	}
	// Another process, another run: the same key is another change.
	other := begin(t, p.Open(t, persistence.Options{}), "r2")
	d := other.change("x", note(`{}`))
	d.Key = c.Key
	if got := other.must(d); got.Duplicate {
		t.Error("a key of one run counted in another")
	}
}

// linesCannotBeChanged: the database itself refuses, by raw SQL.
func linesCannotBeChanged(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	a := begin(t, s, "r")
	a.must(a.change("note", note(`{"a":1}`)))
	before := lines(t, s, "r")
	for _, sql := range []string{
		`UPDATE journal SET kind = 'note' WHERE seq = 1`,
		`UPDATE journal SET payload = payload`,
		`DELETE FROM journal WHERE seq = 2`,
		`DELETE FROM journal`,
		`INSERT INTO journal SELECT * FROM journal WHERE seq = 2`,
	} {
		if err := p.Exec(t, sql); err == nil {
			t.Errorf("the database let this pass: %s", sql)
		}
	}
	last := `TRUNCATE journal`
	if _, ok := p.(sqlitePlace); ok {
		last = `INSERT OR REPLACE INTO journal SELECT * FROM journal WHERE seq = 2`
	}
	if err := p.Exec(t, last); err == nil {
		t.Errorf("the database let this pass: %s", last)
	}
	if after := lines(t, s, "r"); len(after) != len(before) || after[1].Hash != before[1].Hash {
		t.Errorf("the journal changed: %v", after)
	}
	sound(t, s)
}

// bytesInBytesOut: what was accepted comes back as it was.
func bytesInBytesOut(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		if n > 40 {
			return // rapid has no other way to say that a database is slow
		}
		data := rapid.SliceOf(rapid.Byte()).Draw(rt, "data")
		text := rapid.SampledFrom([]string{"", "\x00", "a\x00b", "\u2028", "\ufffd", `\ufffd`, "<&>", "\U0010FFFF", "é"}).Draw(rt, "text")
		raw := []byte(rapid.SampledFrom([]string{`{ "a" : 1.0e2 }`, `{"s":"\ud800"}`, `{"s":"\udc00\u0000"}`, "[\n9007199254740993,\t123456789012345678901234567890]", `"<&>"`, `{"a":1,"a":2}`}).Draw(rt, "raw"))
		id := specs.CallID(fmt.Sprintf("c%d", n))
		blob := persistence.BlobOf("application/octet-stream", data)
		call := &persistence.Call{ID: id, ProviderID: text, Asked: text, Reason: text, Metadata: raw, Args: blob.Digest, RawArgs: blob.Digest}
		approval := &persistence.Approval{ID: specs.ApprovalID("a" + string(id)), Call: id, Shown: raw, Reason: text}
		c := a.change("request", persistence.Entry{Move: &persistence.Move{Step: machine.Call().Birth(), Record: call}},
			persistence.Entry{Move: &persistence.Move{Step: machine.Approval().Birth(), Record: approval}})
		c.Blobs = []persistence.Blob{blob}
		c.Decisions = []persistence.DecisionRecord{{Call: id, Phase: "call", Attempt: 1, Input: raw, Output: raw}}
		a.must(c)
		got := a.call(id)
		if string(got.Metadata) != string(raw) || got.ProviderID != text || got.Asked != text || got.Reason != text {
			rt.Fatalf("call came back as %+v, metadata %s", got, got.Metadata)
		}
		back, err := s.Blob(t.Context(), tenant, blob.Digest)
		if err != nil || string(back) != string(data) {
			rt.Fatalf("blob came back as %q: %v", back, err)
		}
		shown, err := s.Approval(t.Context(), tenant, approval.ID)
		if err != nil || string(shown.Shown) != string(raw) || shown.Reason != text {
			rt.Fatalf("approval came back as %+v: %v", shown, err)
		}
		ds, err := s.Decisions(t.Context(), tenant, "r", id)
		if err != nil || len(ds) != 1 || string(ds[0].Input) != string(raw) || string(ds[0].Output) != string(raw) {
			rt.Fatalf("decision came back as %+v: %v", ds, err)
		}
	})
	// What cannot be kept is refused before anything is written, never altered.
	bad := a.born("bad")
	bad.Lines[0].Move.Record.(*persistence.Call).Reason = "\xff"
	a.refused(bad, persistence.ErrInvalid)
	for _, text := range []string{"a\x00b", "\xff", strings.Repeat("x", 513)} {
		odd := a.change("note", note(`{}`))
		odd.Lines[0].Request = text
		a.refused(odd, persistence.ErrInvalid)
	}
}

// caseH38: NUL and lone surrogates in content do not end a run.
func caseH38(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	a.must(a.change("nul", note(`{"text":"a\u0000b"}`)))
	raw := persistence.BlobOf("application/json", []byte(`{"text":"\ud83d \udc00"}`))
	c := a.born("c1", machine.CallAllow, machine.CallStart)
	c.Lines[0].Move.Record.(*persistence.Call).RawArgs = raw.Digest
	c.Blobs = []persistence.Blob{raw}
	a.must(c)
	got := lines(t, s, "r")
	if string(got[1].Payload) != `{"text":"a\u0000b"}` {
		t.Errorf("payload came back as %s", got[1].Payload)
	}
	// A payload with a lone surrogate has no canonical form. It is refused as a whole, and the run goes on.
	a.refused(a.change("lone", note(`{"text":"\ud800"}`)), persistence.ErrInvalid)
	a.must(a.move("c1", machine.CallComplete))
	sound(t, s)
}

// refsResolve: no line over the limit, and nothing is stored that points nowhere.
func refsResolve(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	a := begin(t, s, "r")
	fits := a.change("fits", note(`"`+strings.Repeat("x", persistence.MaxPayload-2)+`"`))
	a.must(fits)
	a.refused(a.change("large", note(`"`+strings.Repeat("x", persistence.MaxPayload-1)+`"`)), persistence.ErrInvalid)

	blob := persistence.BlobOf("text/plain", []byte("here"))
	nowhere := specs.DigestOf([]byte("nowhere"))
	wrong := blob
	wrong.Digest = nowhere
	for what, spoil := range map[string]func(*persistence.Change){
		"result":   func(c *persistence.Change) { c.Lines[0].Move.Record.(*persistence.Call).Result = nowhere },
		"artifact": func(c *persistence.Change) { c.Artifacts = []persistence.Artifact{{Name: "x", Digest: nowhere}} },
		"file": func(c *persistence.Change) {
			c.Trees = []persistence.TreeChange{{Tree: persistence.RunTree("r"), Edits: []persistence.TreeEdit{{Path: "output/x", Digest: nowhere}}}}
		},
		"digest": func(c *persistence.Change) { c.Blobs = []persistence.Blob{wrong} },
		"size": func(c *persistence.Change) {
			c.Blobs = []persistence.Blob{blob}
			c.Trees = []persistence.TreeChange{{Tree: persistence.RunTree("r"), Edits: []persistence.TreeEdit{{Path: "output/x", Digest: blob.Digest, Size: 9}}}}
		},
	} {
		c := a.born(specs.CallID("bad-" + what))
		spoil(&c)
		a.refused(c, persistence.ErrInvalid)
	}
	c := a.born("good")
	c.Lines[0].Move.Record.(*persistence.Call).Args = blob.Digest
	c.Blobs = []persistence.Blob{blob, blob}
	c.Artifacts = []persistence.Artifact{{Name: "tool-args/good.json", Digest: blob.Digest}}
	a.must(c)
	if d, err := s.Artifact(t.Context(), tenant, "r", "tool-args/good.json"); err != nil || d != blob.Digest {
		t.Errorf("artifact: %s, %v", d, err)
	}
	same := a.change("same", note(`{}`))
	same.Artifacts = c.Artifacts
	a.must(same)
	other := a.change("other", note(`{}`))
	other.Blobs = []persistence.Blob{persistence.BlobOf("text/plain", []byte("other"))}
	other.Artifacts = []persistence.Artifact{{Name: "tool-args/good.json", Digest: other.Blobs[0].Digest}}
	a.refused(other, persistence.ErrConflict)
	sound(t, s)

	// Content that was changed or removed behind the store's back.
	p.Disarm(t)
	if err := p.Exec(t, `UPDATE blobs SET data = $1 WHERE digest = $2`, []byte("hers"), string(blob.Digest)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Blob(t.Context(), tenant, blob.Digest); !errors.Is(err, persistence.ErrCorrupt) {
		t.Errorf("a changed blob reads as %v", err)
	}
	reports(t, s, "r", persistence.FoundMissingBlob, persistence.FoundArtifact)
	if err := p.Exec(t, `DELETE FROM blobs`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Blob(t.Context(), tenant, blob.Digest); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("a removed blob reads as %v", err)
	}
	reports(t, s, "r", persistence.FoundMissingBlob, persistence.FoundArtifact)
}

// redactionAtTheWriter: what is redacted is in no byte of the stored line, and its hash is of the stored form.
func redactionAtTheWriter(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	e := note(`{"keep":9007199254740993,"user":{"to ken":"s3cr3t","na/me":["s3cr3t","ok"]},"z":{"z":"s3cr3t"}}`)
	e.Redact = []string{"/user/to ken", "/user/na~1me/0", "/z", "/not/there", "/keep/x"}
	a.must(a.change("note", e))
	got := lines(t, s, "r")[1]
	want := `{"keep":9007199254740993,"user":{"na/me":["[redacted]","ok"],"to ken":"[redacted]"},"z":"[redacted]"}`
	if string(got.Payload) != want {
		t.Errorf("stored %s\nwant   %s", got.Payload, want)
	}
	if got.Hash != got.Sum() {
		t.Error("the hash is of something else")
	}
	whole := note(`{"a":"s3cr3t"}`)
	whole.Redact = []string{""}
	a.must(a.change("whole", whole))
	if got := lines(t, s, "r")[2]; string(got.Payload) != persistence.Redacted {
		t.Errorf("stored %s", got.Payload)
	}
	bad := note(`{}`)
	bad.Redact = []string{"user/token"}
	a.refused(a.change("bad", bad), persistence.ErrInvalid)
}

// caseD09: the hash is over the stored form, so it holds in another process, whatever the clock's resolution.
func caseD09(t *testing.T, place Make) {
	p := place(t)
	ns := int64(0)
	s := p.Open(t, persistence.Options{Now: func() time.Time {
		ns += 999
		return time.Date(2026, 1, 1, 0, 0, 0, 1, time.FixedZone("east", 7200)).Add(time.Duration(ns))
	}})
	a := begin(t, s, "r")
	for range 5 {
		a.must(a.change("note", note(`{}`)))
	}
	c := a.born("c1")
	c.Lines[0].Move.Record.(*persistence.Call).Deadline = time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC)
	got := a.must(c)
	other := p.Open(t, persistence.Options{})
	sound(t, other)
	all := lines(t, other, "r")
	if at := all[len(all)-1].At; !at.Equal(got.At) || at.Location() != time.UTC {
		t.Errorf("acknowledged %v, stored %v", got.At, at)
	}
	if d := a.call("c1").Deadline; !d.Equal(time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC)) {
		t.Errorf("deadline %v", d)
	}
}

// caseD10: a clock that runs backwards changes nothing about the order, which is by number.
func caseD10(t *testing.T, place Make) {
	w := newWall()
	s := place(t).Open(t, w.options())
	a := begin(t, s, "r")
	for range 10 {
		w.advance(-time.Hour)
		a.must(a.change("note", note(`{}`)))
	}
	all := lines(t, s, "r")
	if len(all) != 11 || !all[10].At.Before(all[0].At) {
		t.Fatalf("%d lines, last at %v", len(all), all[len(all)-1].At)
	}
	sound(t, s)
}

// caseH37: a write that fails half-way does not poison the chain for the ones after it.
func caseH37(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	a := begin(t, s, "r")
	for i := range 10 {
		bad := a.born(specs.CallID(fmt.Sprintf("bad%d", i)), machine.CallAllow)
		bad.Reserve = []persistence.Reservation{{Call: "bad", Counter: "run/r/calls", Limit: 0, Amount: 1}}
		var budget *persistence.BudgetError
		if _, err := s.Apply(t.Context(), bad); !errors.As(err, &budget) {
			t.Fatalf("got %v", err)
		}
		a.must(a.change("good", note(`{}`)))
	}
	if n := len(lines(t, s, "r")); n != 11 {
		t.Errorf("%d lines, want 11", n)
	}
	sound(t, s)
}

// pagesOfTheJournal: pages by afterSeq and beforeSeq meet without loss or repeat.
func pagesOfTheJournal(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	for i := range 20 {
		c := a.change("note", note(fmt.Sprintf(`%d`, i)))
		if i%5 == 0 {
			c.Lines = append(c.Lines, persistence.Entry{Kind: persistence.KindGuidanceSubmitted, Cause: 1, Level: persistence.LevelWarn, Request: "req"})
		}
		a.must(c)
	}
	const all = 25
	get := func(q persistence.JournalQuery) (seqs []int64) {
		t.Helper()
		page, err := s.Journal(t.Context(), tenant, "r", q)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page {
			seqs = append(seqs, l.Seq)
		}
		return seqs
	}
	for _, c := range []struct {
		q           persistence.JournalQuery
		first, last int64
	}{
		{persistence.JournalQuery{}, 1, all},
		{persistence.JournalQuery{Limit: 5}, 1, 5},
		{persistence.JournalQuery{AfterSeq: 5, Limit: 5}, 6, 10},
		{persistence.JournalQuery{BeforeSeq: 20, Limit: 5}, 15, 19},
		{persistence.JournalQuery{BeforeSeq: 3, Limit: 5}, 1, 2},
		{persistence.JournalQuery{AfterSeq: 5, BeforeSeq: 20, Limit: 5}, 6, 10},
		{persistence.JournalQuery{AfterSeq: 22, BeforeSeq: 24}, 23, 23},
		{persistence.JournalQuery{AfterSeq: all}, 1, 0},
	} {
		var want []int64
		for seq := c.first; seq <= c.last; seq++ {
			want = append(want, seq)
		}
		if got := get(c.q); !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", c.q, got, want)
		}
	}
	if got := get(persistence.JournalQuery{Kinds: []string{persistence.KindGuidanceSubmitted, "run_created"}}); len(got) != 5 {
		t.Errorf("by kind: %v", got)
	}
	if _, err := s.Journal(t.Context(), tenant, "nobody", persistence.JournalQuery{}); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("a missing run: %v", err)
	}
	bad := a.change("cause", note(`{}`))
	bad.Lines[0].Cause = 26
	a.refused(bad, persistence.ErrInvalid)
}
