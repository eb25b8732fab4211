package persistencetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// treesRememberEveryVersion: random edits against maps; every old version reads exactly, and going back to one
// brings back its files and its absences.
func treesRememberEveryVersion(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	tree := persistence.RunTree("r")
	rnd := rand.New(rand.NewPCG(5, 6))
	paths := []string{"output/main.md", "scratch/a", "scratch/ü", "plan/x%_", "a"}
	versions := []map[string]specs.Digest{{}}
	read := func(v int64) map[string]specs.Digest {
		t.Helper()
		got, err := s.Tree(t.Context(), tenant, tree, v)
		if err != nil {
			t.Fatal(err)
		}
		if v > 0 && got.Version != v || v == 0 && got.Version != int64(len(versions)-1) {
			t.Fatalf("asked for version %d, got %d", v, got.Version)
		}
		out := map[string]specs.Digest{}
		for path, f := range got.Files {
			out[path] = f.Digest
			if f.Since < 1 || f.Since > got.Version || f.Size < 1 {
				t.Fatalf("%s: %+v", path, f)
			}
		}
		return out
	}
	write := func(want map[string]specs.Digest, blobs []persistence.Blob, edits []persistence.TreeEdit) {
		c := a.change("edit", note(`{}`))
		c.Blobs = blobs
		c.Trees = []persistence.TreeChange{{Tree: tree, Base: int64(len(versions) - 1), Edits: edits, Checkpoint: persistence.Checkpoint{Reason: "test", Label: fmt.Sprint(len(versions))}}}
		got := a.must(c)
		versions = append(versions, want)
		if !slices.Equal(got.Versions, []int64{int64(len(versions) - 1)}) {
			t.Fatalf("versions %v", got.Versions)
		}
		c.Key = a.key("stale")
		a.refused(c, persistence.ErrStale)
	}
	for range 12 {
		want := maps.Clone(versions[len(versions)-1])
		var blobs []persistence.Blob
		var edits []persistence.TreeEdit
		for _, path := range paths {
			switch rnd.IntN(4) {
			case 0:
				delete(want, path)
				edits = append(edits, persistence.TreeEdit{Path: path})
			case 1:
				b := persistence.BlobOf("text/plain", fmt.Appendf(nil, "%d", rnd.IntN(5)))
				blobs = append(blobs, b)
				want[path] = b.Digest
				edits = append(edits, persistence.TreeEdit{Path: path, Digest: b.Digest, Size: int64(len(b.Data))})
			}
		}
		write(want, blobs, edits)
	}
	for v, want := range versions[1:] {
		if got := read(int64(v + 1)); !maps.Equal(got, want) {
			t.Errorf("version %d: %v, want %v", v+1, got, want)
		}
	}
	// Back to version 3, twice: once and twice are the same.
	for range 2 {
		now, then := versions[len(versions)-1], versions[3]
		var edits []persistence.TreeEdit
		for path := range now {
			if _, ok := then[path]; !ok {
				edits = append(edits, persistence.TreeEdit{Path: path})
			}
		}
		for path, d := range then {
			if now[path] != d {
				edits = append(edits, persistence.TreeEdit{Path: path, Digest: d, Size: 1})
			}
		}
		write(then, nil, edits)
		if got := read(0); !maps.Equal(got, then) {
			t.Errorf("after going back: %v, want %v", got, then)
		}
	}
	points, err := s.Checkpoints(t.Context(), tenant, tree)
	if err != nil || len(points) != len(versions)-1 || points[2].Version != 3 || points[2].Label != "3" || points[2].Reason != "test" || points[2].At.IsZero() {
		t.Errorf("checkpoints %+v, %v", points, err)
	}
	if _, err := s.Tree(t.Context(), tenant, tree, 99); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("a version that is not: %v", err)
	}
	if empty, err := s.Tree(t.Context(), tenant, "chat/none", 0); err != nil || empty.Version != 0 || len(empty.Files) != 0 {
		t.Errorf("a tree nobody wrote to: %+v, %v", empty, err)
	}
	// Two runs promote to one chat at once: one wins.
	b := begin(t, s, "r2")
	errs := crowd(4, func(i int) error {
		who := []*author{a, b}[i%2]
		c := who.change(fmt.Sprint("promote", i), note(`{}`))
		c.Trees = []persistence.TreeChange{{Tree: persistence.ChatTree("chat")}}
		_, err := s.Apply(t.Context(), c)
		return err
	})
	if n := winners(t, errs, persistence.ErrStale); n != 1 {
		t.Errorf("%d promoted", n)
	}
	sound(t, s)
}

// readStates come and go by invocation and path.
func readStates(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	c := a.change("read", note(`{}`))
	c.Reads = []persistence.ReadState{{Invocation: "i1", Path: "a", Digest: "sha256:1"}, {Invocation: "i1", Path: "b", Digest: "sha256:2"}, {Invocation: "i2", Path: "a", Digest: "sha256:3"}}
	a.must(c)
	d := a.change("again", note(`{}`))
	d.Reads = []persistence.ReadState{{Invocation: "i1", Path: "a", Digest: "sha256:4"}, {Invocation: "i1", Path: "b"}, {Invocation: "i1", Path: "never"}}
	a.must(d)
	for inv, want := range map[specs.InvocationID]map[string]specs.Digest{"i1": {"a": "sha256:4"}, "i2": {"a": "sha256:3"}, "i3": {}} {
		if got, err := s.ReadStates(t.Context(), tenant, "r", inv); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", inv, got, err, want)
		}
	}
}

// bundlesAndActivation: stored once, activated by compare-and-set, rolled back to what was before.
func bundlesAndActivation(t *testing.T, place Make) {
	w := newWall()
	s := place(t).Open(t, w.options())
	a := &author{t: t, store: s}
	if _, err := s.ActiveBundle(t.Context(), tenant); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("before any: %v", err)
	}
	files := []specs.File{{Name: "a.yaml", Data: []byte("a: \x00\xff\n")}, {Name: "b/c.yaml", Data: []byte{}}}
	apply := func(store *persistence.StoredBundle, activate, expect specs.Digest) persistence.Change {
		c := a.change("bundle", persistence.Entry{Kind: persistence.KindBundleApplied})
		c.Bundle = &persistence.BundleChange{Store: store, Activate: activate, Expect: expect}
		return c
	}
	a.must(apply(&persistence.StoredBundle{Digest: "sha256:1", Files: files, By: "ada"}, "", ""))
	a.must(apply(&persistence.StoredBundle{Digest: "sha256:2", Files: files, By: "bob"}, "sha256:2", ""))
	a.refused(apply(nil, "sha256:1", ""), persistence.ErrStale)
	a.refused(apply(nil, "sha256:9", "sha256:2"), persistence.ErrNotFound)
	a.must(apply(nil, "sha256:1", "sha256:2"))
	got, err := s.ActiveBundle(t.Context(), tenant)
	if err != nil || got.Digest != "sha256:1" || !got.Active || got.Previous != "sha256:2" || got.By != "ada" || !got.Applied.Equal(w.now()) || !reflect.DeepEqual(got.Files, files) {
		t.Errorf("active: %+v, %v", got, err)
	}
	a.must(apply(nil, got.Previous, got.Digest))
	a.must(apply(&persistence.StoredBundle{Digest: "sha256:1", Files: nil, By: "eve"}, "", "")) // known: stays as it was
	all, err := s.Bundles(t.Context(), tenant)
	if err != nil || len(all) != 2 || all[0].Digest != "sha256:2" || !all[0].Active || all[1].Active || all[1].By != "ada" || len(all[1].Files) != 2 {
		t.Errorf("bundles: %+v, %v", all, err)
	}
	if b, err := s.Bundle(t.Context(), tenant, "sha256:1"); err != nil || b.Active {
		t.Errorf("bundle: %+v, %v", b, err)
	}
	if _, err := s.Bundle(t.Context(), "other", "sha256:1"); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("another tenant's: %v", err)
	}
	errs := crowd(4, func(i int) error {
		c := apply(nil, "sha256:1", "sha256:2")
		c.Key = fmt.Sprint("race", i)
		_, err := s.Apply(t.Context(), c)
		return err
	})
	if n := winners(t, errs, persistence.ErrStale); n != 1 {
		t.Errorf("activated %d times", n)
	}
	sound(t, s)
}

// grants are listed until they expire or are revoked.
func grants(t *testing.T, place Make) {
	w := newWall()
	s := place(t).Open(t, w.options())
	a := begin(t, s, "r")
	c := a.change("grant", persistence.Entry{Kind: persistence.KindGrantCreated})
	full := persistence.Grant{ID: "g1", Tool: "shell.run", ToolDigest: "sha256:1", Run: "r", User: "ada", Args: map[string]string{"/cmd": `"ls"`}, Rules: []specs.RuleID{"p/x"},
		By: "bob", Created: w.now(), Expires: w.now().Add(time.Minute)}
	c.Grants = []persistence.Grant{full, {ID: "g2", Tool: "x"}, {ID: "g3", Tool: "x", Run: "other"}}
	a.must(c)
	list := func(run specs.RunID) (ids []string) {
		t.Helper()
		gs, err := s.Grants(t.Context(), tenant, run)
		must(t, err)
		for _, g := range gs {
			ids = append(ids, g.ID)
			if g.ID == "g1" && !reflect.DeepEqual(g, full) {
				t.Errorf("%+v, want %+v", g, full)
			}
		}
		return ids
	}
	if all, own := list(""), list("r"); !slices.Equal(all, []string{"g1", "g2", "g3"}) || !slices.Equal(own, []string{"g1", "g2"}) {
		t.Errorf("all %v, of the run %v", all, own)
	}
	a.refused(func() persistence.Change { d := a.change("twice", note(`{}`)); d.Grants = c.Grants; return d }(), persistence.ErrConflict)
	w.advance(time.Minute)
	d := a.change("revoke", persistence.Entry{Kind: persistence.KindGrantRevoked})
	d.Revoke = []string{"g3"}
	a.must(d)
	if all := list(""); !slices.Equal(all, []string{"g2"}) {
		t.Errorf("later: %v", all)
	}
	d = a.change("nobody", note(`{}`))
	d.Revoke = []string{"g9"}
	a.refused(d, persistence.ErrNotFound)
}

// listings: newest first, in pages that meet.
func listings(t *testing.T, place Make) {
	w := newWall()
	s := place(t).Open(t, w.options())
	var want []specs.RunID
	for i := range 7 {
		if i%3 == 0 {
			w.advance(time.Second) // some share their microsecond
		}
		run := specs.RunID(fmt.Sprintf("r%d", i))
		a := begin(t, s, run)
		want = append(want, run)
		if i%2 == 0 {
			a.must(a.moveRun(machine.RunInitialize))
		}
		a.asked("c-"+specs.CallID(run), time.Time{})
	}
	slices.Reverse(want)
	var got []specs.RunID
	for q := (persistence.Query{Limit: 3}); ; {
		rs, next, err := s.Runs(t.Context(), tenant, q)
		must(t, err)
		for _, r := range rs {
			got = append(got, r.ID)
			if r.Run != r.ID || r.Tenant != tenant || r.User != "ada" {
				t.Errorf("%+v", r)
			}
		}
		if q.After = next; next == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("runs %v, want %v", got, want)
	}
	for state, n := range map[machine.State]int{machine.RunCreated: 3, "initializing_workspace": 4, "nonsense": 0} {
		if rs, _, err := s.Runs(t.Context(), tenant, persistence.Query{States: []machine.State{state, state}}); err != nil || len(rs) != n {
			t.Errorf("runs in %s: %d, %v", state, len(rs), err)
		}
	}
	if as, next, err := s.Approvals(t.Context(), tenant, persistence.Query{Run: "r3"}); err != nil || len(as) != 1 || as[0].Run != "r3" || next != "" {
		t.Errorf("approvals: %v, %v", as, err)
	}
	if _, _, err := s.Runs(t.Context(), tenant, persistence.Query{After: "%%%"}); !errors.Is(err, persistence.ErrInvalid) {
		t.Errorf("a cursor of nobody's: %v", err)
	}
	a := &author{t: t, store: s, run: "r0"}
	for _, id := range []specs.CallID{"z", "b", "y"} {
		a.must(a.born(id))
		b := &author{t: t, store: s, run: "r1"}
		b.must(b.born(id)) // ids of calls are their run's own
	}
	cs, err := s.Calls(t.Context(), tenant, "r0")
	must(t, err)
	if len(cs) != 4 || cs[1].ID != "z" || cs[2].ID != "b" || cs[3].ID != "y" {
		t.Errorf("calls are not in order of birth: %v", cs)
	}
}

// foreignIsMissing: what another tenant has reads exactly like what nobody has.
func foreignIsMissing(t *testing.T, place Make) {
	s := place(t).Open(t, persistence.Options{})
	a := begin(t, s, "r")
	ask := a.asked("c1", time.Time{})
	blob := persistence.BlobOf("text/plain", []byte("secret"))
	c := a.change("blob", note(`{}`))
	c.Blobs = []persistence.Blob{blob}
	c.Artifacts = []persistence.Artifact{{Name: "x", Digest: blob.Digest}}
	a.must(c)
	ctx := t.Context()
	for what, read := range map[string]func(tenant specs.TenantID, run specs.RunID) error{
		"run":   func(t specs.TenantID, r specs.RunID) error { _, err := s.Run(ctx, t, r); return err },
		"call":  func(t specs.TenantID, r specs.RunID) error { _, err := s.Call(ctx, t, r, "c1"); return err },
		"calls": func(t specs.TenantID, r specs.RunID) error { _, err := s.Calls(ctx, t, r); return err },
		"invs":  func(t specs.TenantID, r specs.RunID) error { _, err := s.Invocations(ctx, t, r); return err },
		"journal": func(t specs.TenantID, r specs.RunID) error {
			_, err := s.Journal(ctx, t, r, persistence.JournalQuery{})
			return err
		},
		"head":     func(t specs.TenantID, r specs.RunID) error { _, err := s.Head(ctx, t, r); return err },
		"artifact": func(t specs.TenantID, r specs.RunID) error { _, err := s.Artifact(ctx, t, r, "x"); return err },
		"lease": func(t specs.TenantID, r specs.RunID) error {
			_, err := s.Acquire(ctx, t, r, "o", time.Hour, nil)
			return err
		},
		"apply": func(t specs.TenantID, r specs.RunID) error {
			_, err := s.Apply(ctx, persistence.Change{Tenant: t, Run: r, Key: "k", Lines: []persistence.Entry{note(`{}`)}})
			return err
		},
	} {
		if what == "invs" || what == "lease" || what == "apply" {
			// for the owner these succeed or change something; only the foreign side counts
		} else if err := read(tenant, "r"); err != nil {
			t.Errorf("%s: the owner gets %v", what, err)
		}
		foreign := read("other", "r")
		missing := read("other", "s")
		if !errors.Is(foreign, persistence.ErrNotFound) || !errors.Is(missing, persistence.ErrNotFound) || len(foreign.Error()) != len(missing.Error()) {
			t.Errorf("%s: foreign %q, missing %q", what, foreign, missing)
		}
	}
	if _, err := s.Blob(ctx, "other", blob.Digest); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("blob: %v", err)
	}
	if _, err := s.Approval(ctx, "other", ask.ID); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("approval: %v", err)
	}
}
