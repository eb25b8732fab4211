package persistence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// FindingKind is one way in which a store can contradict itself.
type FindingKind string

// Findings. The first four are about a chain, which was then changed past the store: by raw SQL, by a backup that was
// put back, by a damaged disk.
const (
	FoundEdit        FindingKind = "edit"       // a line's content or hash is not what was written
	FoundGap         FindingKind = "gap"        // lines are missing between others
	FoundFork        FindingKind = "fork"       // a line follows another one than the line before it
	FoundTruncation  FindingKind = "truncation" // lines are missing at the end
	FoundIllegal     FindingKind = "illegal_transition"
	FoundState       FindingKind = "state_mismatch"  // a record is not where its lines lead to
	FoundAnchor      FindingKind = "anchor_mismatch" // the tenant's chain remembers the run differently
	FoundMissingBlob FindingKind = "missing_blob"    // content that is referred to is missing or changed
	FoundArtifact    FindingKind = "missing_artifact"
	FoundOrphan      FindingKind = "orphan" // a record or decision without its line
)

// Finding is one contradiction, in words.
type Finding struct {
	Kind FindingKind `json:"kind"`
	Run  specs.RunID `json:"run,omitempty"` // empty: the tenant's own chain
	Seq  int64       `json:"seq,omitempty"` // where; 0 when it is about no line
	Text string      `json:"text"`
}

// Report is what Verify found.
type Report struct {
	Tenant   specs.TenantID `json:"tenant"`
	Runs     int            `json:"runs"`  // chains of runs that were read
	Lines    int64          `json:"lines"` // lines that were read
	Head     Head           `json:"head"`  // of the chain that was asked for: its last line as found
	Findings []Finding      `json:"findings"`
}

// OK says that nothing was found.
func (r Report) OK() bool { return len(r.Findings) == 0 }

// Verify reads one chain from its first line to its last and checks every hash, every number, every move against
// the machine tables, every record, decision and file against the line that it was written with, and everything that they refer
// to. run "" is the tenant's own chain. It holds one page of lines in memory. The error is about reading; what was read and is wrong is a Finding.
//
// What it cannot see: a chain that was rewritten to its end together with its head, of a run that has not ended yet. Of
// one that has, the tenant's chain remembers the hash. A run that nobody knows is ErrNotFound.
func Verify(ctx context.Context, s Store, t specs.TenantID, run specs.RunID) (Report, error) {
	v := verifier{s: s, t: t, report: Report{Tenant: t}, grants: Holds{}, chats: map[TreeID]Holds{}}
	if run == "" {
		err := v.chain(ctx, "")
		if err == nil {
			err = v.inForce(ctx)
		}
		return v.sorted(), err
	}
	err := v.run(ctx, run)
	return v.sorted(), err
}

// VerifyAll verifies the tenant's own chain and every run that a record or an anchor knows of.
func VerifyAll(ctx context.Context, s Store, t specs.TenantID) (Report, error) {
	v := verifier{s: s, t: t, report: Report{Tenant: t}, grants: Holds{}, chats: map[TreeID]Holds{}}
	began, err := s.Now(ctx)
	if err != nil {
		return v.sorted(), err
	}
	v.began = began
	grants, err := s.Grants(ctx, t, "")
	if err != nil {
		return v.sorted(), err
	}
	if err := v.chain(ctx, ""); err != nil {
		return v.sorted(), err
	}
	if err := v.inForce(ctx); err != nil {
		return v.sorted(), err
	}
	head := v.report.Head
	seen := map[specs.RunID]bool{}
	once := func(run specs.RunID) error {
		if seen[run] {
			return nil
		}
		seen[run] = true
		err := v.run(ctx, run)
		if errors.Is(err, ErrNotFound) { // a record is all that is left of it
			v.found(FoundOrphan, run, 0, "run %s is stored and has no line", run)
			return nil
		}
		return err
	}
	for q := (Query{Limit: 500}); ; {
		runs, next, err := s.Runs(ctx, t, q)
		if err != nil {
			return v.sorted(), err
		}
		for _, r := range runs {
			if err := once(r.ID); err != nil {
				return v.sorted(), err
			}
		}
		if q.After = next; next == "" {
			break
		}
	}
	err = v.pages(ctx, "", JournalQuery{Kinds: []string{KindRunOpened}}, func(l Line) error {
		if l.Seq > head.Seq {
			return errEnough // a busy tenant opens runs faster than they can be verified
		}
		if a, err := anchorIn(l); err == nil { // otherwise an edited line, and reported as that
			return once(a.Run)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err == nil {
		err = v.remembrances(ctx, grants)
	}
	for id, held := range v.chats {
		if err == nil {
			err = v.tree(ctx, "", id, held)
		}
	}
	v.report.Head = head
	return v.sorted(), err
}

const verifyPage = 1000

var errEnough = errors.New("enough was read")

type verifier struct {
	s      Store
	t      specs.TenantID
	report Report
	// Of the chain that is being read:
	last   Line                        // Seq 0: none yet
	states map[[2]string]machine.State // machine and id -> where the lines lead to
	moves  map[[2]string]int64         // machine and id -> how many moves led there
	rows   Holds                       // what the lines hold; records by machine and id, decisions by call
	strays map[specs.Digest]int64      // a parent that is not the line before -> the line that named it
	broken bool                        // lines are missing, moved or changed: where they lead to says nothing any more
	// Of every chain that was read:
	began  time.Time
	grants Holds
	chats  map[TreeID]Holds // what became of chats' own files
}

func (v *verifier) sorted() Report {
	slices.SortStableFunc(v.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	if v.report.Findings == nil {
		v.report.Findings = []Finding{} // "findings": [] reads better than null
	}
	return v.report
}

func (v *verifier) found(kind FindingKind, run specs.RunID, seq int64, format string, args ...any) {
	v.report.Findings = append(v.report.Findings, Finding{Kind: kind, Run: run, Seq: seq, Text: fmt.Sprintf(format, args...)})
	v.broken = v.broken || slices.Contains([]FindingKind{FoundEdit, FoundGap, FoundFork, FoundTruncation}, kind)
}

// pages hands every line that q selects to each, page by page.
func (v *verifier) pages(ctx context.Context, run specs.RunID, q JournalQuery, each func(Line) error) error {
	q.Limit = verifyPage
	for {
		lines, err := v.s.Journal(ctx, v.t, run, q)
		if errors.Is(err, ErrNotFound) {
			return nil // no head: chain finds that out by itself
		}
		if err != nil {
			return err
		}
		for _, l := range lines {
			if err := each(l); err != nil {
				return err
			}
			q.AfterSeq = max(q.AfterSeq, l.Seq)
		}
		if len(lines) < verifyPage {
			return nil
		}
	}
}

// chain reads a chain from its first line. The head is read before the lines, because a run may be at work
// meanwhile: lines may be more than the head said, never fewer.
func (v *verifier) chain(ctx context.Context, run specs.RunID) error {
	v.last, v.states, v.strays, v.broken = Line{}, map[[2]string]machine.State{}, map[specs.Digest]int64{}, false
	v.moves, v.rows = map[[2]string]int64{}, Holds{}
	head, err := v.s.Head(ctx, v.t, run)
	lost := errors.Is(err, ErrNotFound)
	if err != nil && !lost {
		return err
	}
	if _, err := v.read(ctx, run); err != nil {
		return err
	}
	if err := v.forks(ctx, run); err != nil {
		return err
	}
	v.report.Head = Head{Seq: v.last.Seq, Hash: v.last.Hash}
	if lost {
		if v.last.Seq > 0 {
			v.found(FoundTruncation, run, v.last.Seq, "the note of where the chain ends is gone")
		}
		return nil
	}
	if v.last.Seq > head.Seq {
		if head, err = v.s.Head(ctx, v.t, run); err != nil {
			return err
		}
		if v.last.Seq < head.Seq {
			return nil // it is at work, and faster than we are
		}
	}
	switch {
	case head.Seq > v.last.Seq:
		v.found(FoundTruncation, run, v.last.Seq+1, "the chain ended with line %d; lines %d to %d are missing", head.Seq, v.last.Seq+1, head.Seq)
	case head.Seq < v.last.Seq:
		v.found(FoundFork, run, head.Seq+1, "the store wrote up to line %d; lines %d to %d came from somewhere else", head.Seq, head.Seq+1, v.last.Seq)
	case head.Hash != v.last.Hash:
		v.found(FoundEdit, run, v.last.Seq, "line %d has another hash than the store noted for the end of the chain", v.last.Seq)
	}
	return nil
}

// read reads the lines after the last one, and says how many they were.
func (v *verifier) read(ctx context.Context, run specs.RunID) (n int, err error) {
	err = v.pages(ctx, run, JournalQuery{AfterSeq: v.last.Seq}, func(l Line) error {
		n++
		v.report.Lines++
		before := v.last
		v.last = l
		switch missing := l.Seq - before.Seq - 1; {
		case missing == 1:
			v.found(FoundGap, run, before.Seq+1, "line %d is missing", before.Seq+1)
		case missing > 1:
			v.found(FoundGap, run, before.Seq+1, "lines %d to %d are missing", before.Seq+1, l.Seq-1)
		case missing < 0:
			v.found(FoundFork, run, l.Seq, "number %d is there twice", l.Seq)
		case l.Prev != before.Hash:
			v.strays[l.Prev] = l.Seq
		}
		if sum := l.Sum(); sum != l.Hash {
			v.found(FoundEdit, run, l.Seq, "line %d (%s) does not match its hash: it was changed after it was written", l.Seq, l.Kind)
		}
		v.fold(run, l)
		v.hold(run, &l)
		return nil
	})
	return n, err
}

// forks tells a fork from an edit: a line that names some earlier line as its parent stands on a fork; one that names
// a line nobody has shows that the line before it had another content when it was written. It reads the chain a second
// time, only when there are such lines.
func (v *verifier) forks(ctx context.Context, run specs.RunID) error {
	if len(v.strays) == 0 {
		return nil
	}
	parent := map[specs.Digest]int64{"": 0}
	err := v.pages(ctx, run, JournalQuery{}, func(l Line) error {
		if child, ok := v.strays[l.Hash]; ok && l.Seq < child {
			parent[l.Hash] = l.Seq
		}
		return nil
	})
	if err != nil {
		return err
	}
	for prev, seq := range v.strays {
		at, known := parent[prev]
		edited := slices.ContainsFunc(v.report.Findings, func(f Finding) bool { return f.Kind == FoundEdit && f.Run == run && (f.Seq == seq || f.Seq == seq-1) })
		switch {
		case known && prev == "":
			v.found(FoundFork, run, seq, "line %d says that it is the first", seq)
		case known:
			v.found(FoundFork, run, seq, "line %d follows line %d and not the one before it: the chain forks there", seq, at)
		case seq == 1:
			v.found(FoundTruncation, run, 1, "line 1 names a line before it")
		case !edited:
			v.found(FoundEdit, run, seq-1, "line %d has another hash than line %d remembers: it was written anew", seq-1, seq)
		}
	}
	return nil
}

// fold follows the moves.
func (v *verifier) fold(run specs.RunID, l Line) {
	if l.Machine == "" {
		return
	}
	key := [2]string{l.Machine, l.Subject}
	state, born := v.states[key]
	step := machine.Step{Machine: l.Machine, From: l.From, Event: l.Event, To: l.To, Journal: l.Kind}
	if !lawful(step) {
		v.found(FoundIllegal, run, l.Seq, "line %d moves %s %s by %v, which is no edge of its table", l.Seq, l.Machine, l.Subject, step)
	} else if !v.broken && (born != (l.From != "") || state != l.From) {
		v.found(FoundIllegal, run, l.Seq, "line %d moves %s %s from %q, but the lines before it led to %q", l.Seq, l.Machine, l.Subject, l.From, state)
	}
	v.states[key] = l.To
	v.moves[key]++
}

// hold gathers what the lines hold of the rows beside them.
func (v *verifier) hold(run specs.RunID, l *Line) {
	held, err := l.Held()
	if err != nil {
		v.found(FoundEdit, run, l.Seq, "line %d does not say readably what was written with it", l.Seq)
	}
	for name, digest := range held {
		switch {
		case name == HoldsRecord:
			v.rows[recordName(l.Machine, l.Subject)] = digest
		case strings.HasPrefix(name, holdsDecision):
			v.rows[string(l.Call)+" "+name] = digest
		case strings.HasPrefix(name, holdsGrant), strings.HasPrefix(name, holdsRevoked):
			v.grants[name] = digest
		default:
			v.rows[name] = digest
			if id, ok := chatTree(name); ok {
				if v.chats[id] == nil {
					v.chats[id] = Holds{}
				}
				v.chats[id][name] = digest
			}
		}
	}
}

// chatTree reads the tree out of a name of HoldsTree or HoldsGone, when it is a chat's.
func chatTree(name string) (TreeID, bool) {
	word, ok := strings.CutPrefix(name, holdsTree)
	word, _, _ = strings.Cut(word, "/")
	id, err := url.QueryUnescape(word)
	return TreeID(id), ok && err == nil && strings.HasPrefix(id, string(ChatTree("")))
}

func recordName(kind, id string) string { return HoldsRecord + " " + kind + " " + id }

func lawful(step machine.Step) bool {
	table, ok := TableOf(step.Machine)
	if !ok {
		return false
	}
	if step.From == "" {
		return step == table.Birth()
	}
	want, err := table.Fire(step.From, step.Event)
	return err == nil && step == want
}

func anchorIn(l Line) (Anchor, error) {
	var a Anchor
	err := json.Unmarshal(l.Payload, &a)
	return a, err
}

// anchorsOf reads what the tenant's chain remembers of a run.
func (v *verifier) anchorsOf(ctx context.Context, run specs.RunID) ([]Line, error) {
	var out []Line
	err := v.pages(ctx, "", JournalQuery{Kinds: []string{KindRunOpened, KindRunClosed}, Related: string(run)}, func(l Line) error {
		out = append(out, l)
		return nil
	})
	return out, err
}

// run checks a run's chain, and then what goes beyond it: anchors, records, and what they refer to. Anchors are read
// before the chain, for the same reason as heads are.
func (v *verifier) run(ctx context.Context, run specs.RunID) error {
	v.report.Runs++
	anchors, err := v.anchorsOf(ctx, run)
	if err != nil {
		return err
	}
	if err := v.chain(ctx, run); err != nil {
		return err
	}
	if v.last.Seq == 0 && len(anchors) == 0 {
		return fmt.Errorf("run %s: %w", run, ErrNotFound)
	}
	if err := v.anchors(ctx, run, anchors); err != nil {
		return err
	}
	if err := v.records(ctx, run); err != nil {
		return err
	}
	if err := v.remembered(ctx, run); err != nil {
		return err
	}
	return v.contents(ctx, run)
}

// anchors compares the chain with what the tenant's chain remembers of it.
func (v *verifier) anchors(ctx context.Context, run specs.RunID, anchors []Line) error {
	for _, l := range anchors {
		a, err := anchorIn(l)
		if err != nil || a.Run != run || l.Sum() != l.Hash {
			v.found(FoundAnchor, "", l.Seq, "line %d, which remembers run %s, was changed", l.Seq, run)
			continue
		}
		if a.Seq > v.last.Seq {
			v.found(FoundTruncation, run, v.last.Seq+1, "the run had line %d when %s was noted on the tenant's chain; the last one now is %d", a.Seq, l.Kind, v.last.Seq)
			continue
		}
		at, err := v.s.Journal(ctx, v.t, run, JournalQuery{AfterSeq: a.Seq - 1, Limit: 1})
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if len(at) == 1 && at[0].Seq == a.Seq && at[0].Hash != a.Hash {
			v.found(FoundAnchor, run, a.Seq, "line %d has another hash than the tenant's chain remembers of it: the chain was rewritten", a.Seq)
		}
	}
	return nil
}
