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

// remembrances compares the grants that hold with what the lines of all chains say. They were read before the chains, so that
// each has its line there.
func (v *verifier) remembrances(ctx context.Context, grants []Grant) error {
	now, err := v.s.Grants(ctx, v.t, "")
	if err != nil {
		return err
	}
	for _, g := range grants {
		held, told := v.grants[HoldsGrant(g.ID)]
		_, revoked := v.grants[HoldsRevoked(g.ID)]
		switch {
		case !told:
			v.found(FoundOrphan, g.Run, 0, "grant %s is stored and no line tells that somebody gave it", g.ID)
		case held != g.Digest():
			v.found(FoundState, g.Run, 0, "grant %s is stored with another content than it was given with", g.ID)
		case revoked && slices.ContainsFunc(now, func(n Grant) bool { return n.ID == g.ID }):
			v.found(FoundState, g.Run, 0, "grant %s holds, and a line says that it was revoked", g.ID)
		}
	}
	return nil
}

// inForce compares the bundle in force with what the tenant's chain says.
func (v *verifier) inForce(ctx context.Context) error {
	for range 10 {
		active, err := v.s.ActiveBundle(ctx, v.t)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		more, err := v.read(ctx, "")
		if err != nil {
			return err
		}
		if more > 0 {
			continue
		}
		if err := v.bundles(ctx); err != nil {
			return err
		}
		if active.Digest != v.rows[HoldsActive] && !v.broken {
			v.found(FoundState, "", 0, "bundle %q is in force; the lines put %q in force", active.Digest, v.rows[HoldsActive])
		}
		v.report.Head = Head{Seq: v.last.Seq, Hash: v.last.Hash}
		return nil
	}
	return nil
}

// bundles looks for the bundles that the tenant's chain tells of.
func (v *verifier) bundles(ctx context.Context) error {
	for name := range v.rows {
		digest, ok := strings.CutPrefix(name, holdsBundle)
		if !ok {
			continue
		}
		_, err := v.s.Bundle(ctx, v.t, specs.Digest(digest))
		switch {
		case errors.Is(err, ErrNotFound):
			v.found(FoundOrphan, "", 0, "a line tells of bundle %s, which is not stored", digest)
		case errors.Is(err, ErrCorrupt):
			v.found(FoundState, "", 0, "bundle %s cannot be read: %v", digest, err)
		case err != nil:
			return err
		}
	}
	return nil
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

// remembered checks that the tenant's chain knows of the run's birth and, when it has ended, of its end.
func (v *verifier) remembered(ctx context.Context, run specs.RunID) error {
	table, _ := TableOf(machine.RunName)
	state, born := v.states[[2]string{machine.RunName, string(run)}]
	anchors, err := v.anchorsOf(ctx, run)
	if err != nil || !born {
		return err
	}
	has := func(kind string) bool {
		return slices.ContainsFunc(anchors, func(l Line) bool { return l.Kind == kind })
	}
	if !has(KindRunOpened) {
		v.found(FoundAnchor, run, 0, "the tenant's chain does not know of the run's birth: its line there was removed, or the run was not written by the store")
	}
	if table.IsFinal(state) && !has(KindRunClosed) {
		v.found(FoundAnchor, run, v.last.Seq, "the run has ended and the tenant's chain does not know it")
	}
	return nil
}

// records compares every record with where its lines lead to. A run that is at work is read again until lines and
// records are of the same moment; one that never rests is left alone.
func (v *verifier) records(ctx context.Context, run specs.RunID) error {
	for range 10 {
		stored, all, err := v.stored(ctx, run)
		if errors.Is(err, ErrCorrupt) {
			v.found(FoundState, run, 0, "a record cannot be read: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
		more, err := v.read(ctx, run)
		if err != nil {
			return err
		}
		if more > 0 {
			continue
		}
		if !v.broken {
			v.compare(run, stored)
			v.bodies(run, all)
		}
		for _, r := range all {
			if err := v.refs(ctx, run, r); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

func (v *verifier) compare(run specs.RunID, stored map[[2]string]machine.State) {
	for key, state := range stored {
		led, born := v.states[key]
		switch {
		case !born:
			v.found(FoundOrphan, run, 0, "%s %s is stored and no line tells of its birth", key[0], key[1])
		case led != state:
			v.found(FoundState, run, 0, "%s %s is stored as %s; its lines lead to %s", key[0], key[1], state, led)
		}
	}
	for key, led := range v.states {
		if _, ok := stored[key]; !ok {
			v.found(FoundState, run, 0, "%s %s is not stored; its lines lead to %s", key[0], key[1], led)
		}
	}
}

// bodies compares what records hold with what their last moves wrote.
func (v *verifier) bodies(run specs.RunID, all []Record) {
	for _, r := range all {
		kind, id := r.Subject()
		key := [2]string{kind, id}
		if _, born := v.states[key]; !born {
			continue
		}
		body, err := EncodeRecord(r)
		switch {
		case err != nil || RecordDigest(body, r.Due()) != v.rows[recordName(kind, id)]:
			v.found(FoundState, run, 0, "%s %s is stored with another content than its last move wrote", kind, id)
		case r.meta().Version != v.moves[key]:
			v.found(FoundState, run, 0, "%s %s is stored at version %d; its lines move it %d times", kind, id, r.meta().Version, v.moves[key])
		}
	}
}

// stored reads all records of a run, and their states.
func (v *verifier) stored(ctx context.Context, run specs.RunID) (map[[2]string]machine.State, []Record, error) {
	stored := map[[2]string]machine.State{}
	var all []Record
	keep := func(r Record) {
		kind, id := r.Subject()
		stored[[2]string{kind, id}] = r.meta().State
		all = append(all, r)
	}
	r, err := v.s.Run(ctx, v.t, run)
	if err == nil {
		keep(&r)
	} else if !errors.Is(err, ErrNotFound) {
		return nil, nil, err
	}
	calls, err := v.s.Calls(ctx, v.t, run)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, nil, err
	}
	for i := range calls {
		keep(&calls[i])
	}
	invocations, err := v.s.Invocations(ctx, v.t, run)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, nil, err
	}
	for i := range invocations {
		keep(&invocations[i])
	}
	for q := (Query{Run: run, Limit: 500}); ; {
		approvals, next, err := v.s.Approvals(ctx, v.t, q)
		if err != nil {
			return nil, nil, err
		}
		for i := range approvals {
			keep(&approvals[i])
		}
		if q.After = next; next == "" {
			return stored, all, nil
		}
	}
}

func (v *verifier) decisions(ctx context.Context, run specs.RunID, call specs.CallID) error {
	list, err := v.s.Decisions(ctx, v.t, run, call)
	if err != nil {
		return err
	}
	for i := range list {
		d := &list[i]
		if d.Seq > v.last.Seq { // it may have been made meanwhile
			if _, err := v.read(ctx, run); err != nil {
				return err
			}
		}
		name := string(call) + " " + HoldsDecision(d.Phase, d.Attempt)
		held, told := v.rows[name]
		delete(v.rows, name)
		switch {
		case d.Seq < 1 || d.Seq > v.last.Seq:
			v.found(FoundOrphan, run, d.Seq, "a decision on call %s belongs to line %d, which is not there", call, d.Seq)
		case !told && !v.broken:
			v.found(FoundOrphan, run, d.Seq, "a decision on call %s (phase %s, attempt %d) is stored and no line tells of it", call, d.Phase, d.Attempt)
		case told && held != d.Digest():
			v.found(FoundState, run, d.Seq, "a decision on call %s (phase %s, attempt %d) is not what line %d says was decided", call, d.Phase, d.Attempt, d.Seq)
		}
	}
	for name := range v.rows {
		if strings.HasPrefix(name, string(call)+" "+holdsDecision) {
			v.found(FoundOrphan, run, 0, "a line tells of a decision on call %s (%s) that is not stored", call, strings.TrimPrefix(name, string(call)+" "))
			delete(v.rows, name)
		}
	}
	return nil
}

func (v *verifier) refs(ctx context.Context, run specs.RunID, r Record) error {
	for _, d := range Refs(r) {
		kind, id := r.Subject()
		if err := v.blob(ctx, FoundMissingBlob, run, d, kind+" "+id); err != nil {
			return err
		}
	}
	if c, ok := r.(*Call); ok {
		return v.decisions(ctx, run, c.ID)
	}
	return nil
}

// blob reads content to see that it is there and unchanged.
func (v *verifier) blob(ctx context.Context, kind FindingKind, run specs.RunID, d specs.Digest, who string) error {
	_, err := v.s.Blob(ctx, v.t, d)
	switch {
	case errors.Is(err, ErrNotFound):
		v.found(kind, run, 0, "%s refers to %s, which is not stored", who, d)
	case errors.Is(err, ErrCorrupt):
		v.found(kind, run, 0, "%s refers to %s, whose content was changed", who, d)
	default:
		return err
	}
	return nil
}

// contents checks the artifacts and every version of the workspace that a checkpoint names.
func (v *verifier) contents(ctx context.Context, run specs.RunID) error {
	artifacts, err := v.s.Artifacts(ctx, v.t, run)
	if err != nil {
		return err
	}
	for _, a := range artifacts {
		if err := v.blob(ctx, FoundArtifact, run, a.Digest, "artifact "+a.Name); err != nil {
			return err
		}
	}
	last := v.last.Seq
	if _, err := v.read(ctx, run); err != nil { // the lines of what was made meanwhile
		return err
	}
	v.artifacts(run, artifacts, last == v.last.Seq)
	return v.tree(ctx, run, RunTree(run), v.rows)
}

// artifacts compares names with the lines that gave them. Of a run at work some may have been given since they were listed.
func (v *verifier) artifacts(run specs.RunID, stored []Artifact, all bool) {
	if v.broken {
		return
	}
	there := map[string]bool{}
	for _, a := range stored {
		there[HoldsArtifact(a.Name)] = true
		if held, told := v.rows[HoldsArtifact(a.Name)]; !told || held != a.Digest {
			v.found(FoundState, run, 0, "artifact %s is not what its line says", a.Name)
		}
	}
	for name := range v.rows {
		if all && strings.HasPrefix(name, holdsArtifact) && !there[name] {
			v.found(FoundArtifact, run, 0, "a line tells of artifact %s, which is not stored", strings.TrimPrefix(name, holdsArtifact))
		}
	}
}

// tree checks every version of a tree against the line that wrote it, and that its files are there.
func (v *verifier) tree(ctx context.Context, run specs.RunID, id TreeID, rows Holds) error {
	points, err := v.s.Checkpoints(ctx, v.t, id)
	if err != nil {
		return err
	}
	broken, more := false, 0
	if run != "" {
		if more, err = v.read(ctx, run); err != nil { // the lines of versions that were made meanwhile
			return err
		}
		broken = v.broken
	}
	seen := map[specs.Digest]bool{}
	before := Tree{}
	for _, p := range points {
		if _, told := rows[HoldsTree(id, p.Version)]; !told && run == "" && p.At.After(v.began) {
			break // its line was written after its chain was read
		}
		tree, err := v.s.Tree(ctx, v.t, id, p.Version)
		if err != nil {
			return err
		}
		if !broken && !rows.made(before, tree) {
			v.found(FoundState, run, 0, "version %d of the files of %s is not what its line wrote", p.Version, id)
		}
		before = tree
		for path, f := range tree.Files {
			if seen[f.Digest] {
				continue
			}
			seen[f.Digest] = true
			if err := v.blob(ctx, FoundMissingBlob, run, f.Digest, fmt.Sprintf("%s at version %d", path, p.Version)); err != nil {
				return err
			}
		}
	}
	if _, told := rows[HoldsTree(id, before.Version+1)]; told && more == 0 && !broken {
		v.found(FoundState, run, 0, "a line tells of version %d of the files of %s, which is not stored", before.Version+1, id)
	}
	return nil
}
