package apply

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
)

// outcome is what is kept under a change's key.
type outcome struct {
	Seqs     []int64 `json:"seqs"`
	At       int64   `json:"at"`
	Versions []int64 `json:"versions,omitempty"`
	Nonce    string  `json:"nonce"`
}

// Decide says whether the change may be written on top of these facts, and what to write. Nil Writes and no
// error mean that its key was applied before. Errors, in the order in which they are looked for: ErrNotFound (the run),
// ErrFenced, ErrStale, ErrExpired, ErrNotFound and ErrConflict (what it names), *BudgetError, ErrInvalid.
func (p *Plan) Decide(f Facts) (persistence.Applied, *Writes, error) {
	if f.Prior != nil {
		return p.again(f.Prior)
	}
	f.Now = f.Now.UTC().Truncate(time.Microsecond)
	d := decider{Plan: p, f: f, w: &Writes{Tenant: p.change.Tenant, Run: p.change.Run, Key: p.change.Key, At: f.Now, Blobs: p.blobs}}
	for _, part := range []func() error{
		d.fence, d.lines, d.moves, d.references, d.budget, d.trees, d.grants, d.decisions, d.bundle, d.end,
	} {
		if err := part(); err != nil {
			return persistence.Applied{}, nil, err
		}
	}
	d.w.Artifacts, d.w.Reads = p.change.Artifacts, p.change.Reads
	kept, err := json.Marshal(outcome{d.applied.Seqs, persistence.Micros(f.Now), d.applied.Versions, p.nonce})
	if err != nil {
		return persistence.Applied{}, nil, err
	}
	d.w.Applied = kept
	d.applied.At = f.Now
	return d.applied, d.w, nil
}

// again answers as the first time. An answer with this plan's own nonce is this very attempt, of which the adapter
// did not hear whether it had been committed.
func (p *Plan) again(prior []byte) (persistence.Applied, *Writes, error) {
	var o outcome
	if err := json.Unmarshal(prior, &o); err != nil {
		return persistence.Applied{}, nil, fmt.Errorf("%w: what change %q did: %w", persistence.ErrCorrupt, p.change.Key, err)
	}
	return persistence.Applied{Seqs: o.Seqs, At: persistence.FromMicros(o.At), Versions: o.Versions, Duplicate: o.Nonce != p.nonce}, nil, nil
}

// Told fills the records of the change with what is now stored: state, version, times. Adapters call it after the
// commit, so that memory is never ahead of the store.
func (p *Plan) Told(w *Writes) {
	at := map[SubjectKey]SubjectRow{}
	for _, wave := range w.Waves {
		for _, row := range wave {
			at[row.SubjectKey] = row
		}
	}
	for _, e := range p.change.Lines {
		if e.Move == nil {
			continue
		}
		kind, id := e.Move.Record.Subject()
		row, ok := at[SubjectKey{kind, id}]
		if !ok {
			continue
		}
		meta := persistence.MetaOf(e.Move.Record)
		meta.Tenant, meta.Run = w.Tenant, w.Run
		meta.State, meta.Version, meta.Created, meta.Updated = row.State, row.Version, row.Created, row.Updated
	}
}

type decider struct {
	*Plan
	f       Facts
	w       *Writes
	applied persistence.Applied
	now     map[SubjectKey]Subject // states as moved so far
	sealed  []persistence.Line     // the change's own lines
}

func (d *decider) fence() error {
	c := d.change
	if c.Run != "" && d.f.Head == nil && !d.needs.RunBorn {
		return fmt.Errorf("run %s: %w", c.Run, persistence.ErrNotFound)
	}
	if c.Fence == 0 {
		return nil
	}
	if l := d.f.Lease; l == nil || l.Owner == "" || l.Fence != c.Fence {
		return fmt.Errorf("run %s, fence %d: %w", c.Run, c.Fence, persistence.ErrFenced)
	}
	return nil
}

// lines seals the change's lines, and the anchors of a run's birth and end on the tenant's own chain.
func (d *decider) lines() error {
	head := d.f.TenantHead
	if d.change.Run != "" {
		head = persistence.Head{}
		if d.f.Head != nil {
			head = *d.f.Head
		}
	}
	d.sealed = slices.Clone(d.Plan.lines)
	birth := persistence.Head{}
	for i := range d.sealed {
		l := &d.sealed[i]
		l.At = d.f.Now
		if l.Cause > head.Seq {
			return invalid("line %d is caused by line %d, which is not before it", head.Seq+1, l.Cause)
		}
		persistence.Seal(l, &head)
		d.applied.Seqs = append(d.applied.Seqs, l.Seq)
		if l.Machine == machine.RunName && l.From == "" {
			birth = head
		}
	}
	d.w.Lines = slices.Clone(d.sealed)
	d.w.Heads = []HeadRow{{d.change.Run, head}}
	if d.change.Run == "" {
		return nil
	}
	tenant := d.f.TenantHead
	if d.needs.RunBorn {
		if err := d.anchor(persistence.KindRunOpened, birth, &tenant); err != nil {
			return err
		}
	}
	if d.needs.RunEnds {
		if err := d.anchor(persistence.KindRunClosed, head, &tenant); err != nil {
			return err
		}
	}
	if d.needs.TenantChain {
		d.w.Heads = append(d.w.Heads, HeadRow{"", tenant})
	}
	return nil
}

func (d *decider) anchor(kind string, at persistence.Head, tenant *persistence.Head) error {
	payload, err := json.Marshal(persistence.Anchor{Run: d.change.Run, Head: at})
	if err != nil {
		return err
	}
	if payload, err = persistence.CanonicalPayload(payload, nil); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("%w: no randomness: %w", persistence.ErrUnavailable, err)
	}
	l := persistence.Line{Tenant: d.change.Tenant, ID: id.String(), At: d.f.Now, Level: persistence.LevelInfo, Kind: kind,
		Payload: payload, Related: string(d.change.Run)}
	persistence.Seal(&l, tenant)
	d.w.Lines = append(d.w.Lines, l)
	return nil
}

// moves lays the moves into waves: the n-th move of each record goes into the n-th wave, so that each wave is one
// statement and the database sees every single edge.
func (d *decider) moves() error {
	d.now = map[SubjectKey]Subject{}
	depth := map[SubjectKey]int{}
	run := SubjectKey{machine.RunName, string(d.change.Run)}
	for i, l := range d.sealed {
		m := d.change.Lines[i].Move
		if m == nil {
			continue
		}
		key := SubjectKey{l.Machine, l.Subject}
		table, _ := persistence.TableOf(l.Machine)
		before, known := d.now[key]
		if !known {
			before, known = d.f.Subjects[key]
			if known && m.Version != 0 && m.Version != before.Version {
				return fmt.Errorf("%s %s is at version %d, not %d: %w", key.Machine, key.ID, before.Version, m.Version, persistence.ErrStale)
			}
		}
		switch {
		case l.From == "" && known:
			return fmt.Errorf("%s %s exists: %w", key.Machine, key.ID, persistence.ErrStale)
		case l.From != "" && !known:
			return fmt.Errorf("%s %s: %w", key.Machine, key.ID, persistence.ErrNotFound)
		case l.From != before.State:
			return fmt.Errorf("%s %s is %s, not %s: %w", key.Machine, key.ID, before.State, l.From, persistence.ErrStale)
		case m.OnTime && !before.Deadline.IsZero() && !d.f.Now.Before(before.Deadline):
			return fmt.Errorf("%s %s had until %s: %w", key.Machine, key.ID, before.Deadline.Format(time.RFC3339), persistence.ErrExpired)
		}
		if l.From == "" && key != run {
			if err := d.alive(run); err != nil {
				return fmt.Errorf("%s %s cannot begin: %w", key.Machine, key.ID, err)
			}
		}
		deadline := persistence.FromMicros(persistence.Micros(m.Record.Due()))
		row := SubjectRow{SubjectKey: key, From: l.From, Event: l.Event, State: l.To, Version: before.Version + 1,
			Deadline: deadline, Ended: table.IsFinal(l.To), Created: before.Created, Updated: d.f.Now, Seq: l.Seq, Body: d.bodies[i]}
		if l.From == "" {
			row.Created = d.f.Now
		}
		if _, timer := table.Waiting(l.To); timer != "" {
			row.Due = deadline
		}
		n := depth[key]
		if n == len(d.w.Waves) {
			d.w.Waves = append(d.w.Waves, nil)
		}
		d.w.Waves[n] = append(d.w.Waves[n], row)
		depth[key]++
		d.now[key] = Subject{State: row.State, Version: row.Version, Deadline: deadline, Created: row.Created}
	}
	return nil
}

// alive refuses births in a run that has ended, or that is not there.
func (d *decider) alive(run SubjectKey) error {
	s, ok := d.now[run]
	if !ok {
		s, ok = d.f.Subjects[run]
	}
	table, _ := persistence.TableOf(machine.RunName)
	switch {
	case !ok:
		return fmt.Errorf("run %s: %w", run.ID, persistence.ErrNotFound)
	case table.IsFinal(s.State):
		return fmt.Errorf("run %s is %s: %w", run.ID, s.State, persistence.ErrStale)
	}
	return nil
}

// references checks that everything the change names exists, and that no artifact changes its content.
func (d *decider) references() error {
	for _, digest := range d.needs.Digests {
		if !d.f.Digests[digest] {
			return invalid("blob %s is referred to and neither stored nor part of the change", digest)
		}
	}
	for _, a := range d.change.Artifacts {
		if was, ok := d.f.Artifacts[a.Name]; ok && was != a.Digest {
			return fmt.Errorf("artifact %s: %w", a.Name, persistence.ErrConflict)
		}
	}
	return nil
}

// budget settles and corrects first, so that what a change gives back can pay for what it reserves.
func (d *decider) budget() error {
	counters := map[persistence.CounterKey]persistence.Counter{}
	read := func(k persistence.CounterKey) persistence.Counter {
		if c, ok := counters[k]; ok {
			return c
		}
		c := d.f.Counters[k]
		c.Key = k
		return c
	}
	gone := map[ReservationKey]bool{}
	for _, s := range d.change.Settle {
		key := ReservationKey{s.Call, s.Counter}
		amount, open := d.f.Reservations[key]
		switch {
		case !open:
			return fmt.Errorf("call %s holds no reservation on %s: %w", s.Call, s.Counter, persistence.ErrStale)
		case s.Spent > amount:
			return invalid("call %s spent %d of %d reserved on %s", s.Call, s.Spent, amount, s.Counter)
		}
		c := read(s.Counter)
		if c.Reserved < amount {
			return fmt.Errorf("counter %s: %d reserved, %d to settle: %w", s.Counter, c.Reserved, amount, persistence.ErrCorrupt)
		}
		c.Reserved -= amount
		c.Spent += s.Spent // at most what was reserved, so the sum stays within the limit
		counters[s.Counter] = c
		gone[key] = true
		d.w.Settle = append(d.w.Settle, key)
	}
	for _, a := range d.change.Adjust {
		c := read(a.Counter)
		// Spent and reserved are within 0 and the limit, so none of these differences overflows.
		if a.Delta < -c.Spent || a.Delta > math.MaxInt64-c.Spent-c.Reserved {
			return invalid("%d spent on %s cannot be corrected by %d", c.Spent, a.Counter, a.Delta)
		}
		c.Spent += a.Delta
		c.Limit = max(c.Limit, c.Spent+c.Reserved)
		counters[a.Counter] = c
	}
	for _, r := range d.change.Reserve {
		key := ReservationKey{r.Call, r.Counter}
		if _, open := d.f.Reservations[key]; open && !gone[key] {
			return fmt.Errorf("call %s already holds a reservation on %s: %w", r.Call, r.Counter, persistence.ErrConflict)
		}
		c := read(r.Counter)
		// used cannot overflow: the database holds spent + reserved <= limit. The subtraction cannot either.
		used := c.Spent + c.Reserved
		if used > r.Limit || r.Amount > r.Limit-used {
			return &persistence.BudgetError{Counter: r.Counter, Limit: r.Limit, Spent: c.Spent, Reserved: c.Reserved, Asked: r.Amount}
		}
		c.Limit, c.Reserved = r.Limit, c.Reserved+r.Amount
		counters[r.Counter] = c
		d.w.Reserve = append(d.w.Reserve, r)
	}
	for _, k := range d.needs.Counters {
		if c, ok := counters[k]; ok {
			c.Left = c.Limit - c.Spent - c.Reserved
			d.w.Counters = append(d.w.Counters, c)
		}
	}
	return nil
}

func (d *decider) trees() error {
	for _, t := range d.change.Trees {
		if newest := d.f.Trees[t.Tree]; newest != t.Base {
			return fmt.Errorf("tree %s is at version %d, not %d: %w", t.Tree, newest, t.Base, persistence.ErrStale)
		}
		row := TreeRow{Tree: t.Tree, Version: t.Base + 1, Edits: slices.Clone(t.Edits), Checkpoint: t.Checkpoint}
		slices.SortFunc(row.Edits, func(a, b persistence.TreeEdit) int { return cmp.Compare(a.Path, b.Path) })
		row.Checkpoint.Version, row.Checkpoint.At = row.Version, d.f.Now
		d.applied.Versions = append(d.applied.Versions, row.Version)
		d.w.Trees = append(d.w.Trees, row)
	}
	return nil
}

func (d *decider) grants() error {
	own := map[string]bool{}
	for _, g := range d.change.Grants {
		if d.f.Grants[g.ID] {
			return fmt.Errorf("grant %s: %w", g.ID, persistence.ErrConflict)
		}
		if g.Created.IsZero() {
			g.Created = d.f.Now
		}
		own[g.ID] = true
		d.w.Grants = append(d.w.Grants, g)
	}
	for _, id := range d.change.Revoke {
		if !d.f.Grants[id] && !own[id] {
			return fmt.Errorf("grant %s: %w", id, persistence.ErrNotFound)
		}
	}
	d.w.Revoke = d.change.Revoke
	return nil
}

func (d *decider) decisions() error {
	for _, r := range d.change.Decisions {
		if d.f.Decisions[DecisionKey{r.Call, r.Phase, r.Attempt}] {
			return fmt.Errorf("decision on call %s: phase %q, attempt %d: %w", r.Call, r.Phase, r.Attempt, persistence.ErrConflict)
		}
		r.Seq = d.sealed[d.decisionLine(r)].Seq
		d.w.Decisions = append(d.w.Decisions, r)
	}
	return nil
}

func (d *decider) bundle() error {
	b := d.change.Bundle
	if b == nil {
		return nil
	}
	if b.Store != nil && !d.f.Bundles[b.Store.Digest] {
		stored := *b.Store
		if stored.Applied.IsZero() {
			stored.Applied = d.f.Now
		}
		d.w.Bundle = &stored
	}
	if b.Activate == "" {
		return nil
	}
	if !d.f.Bundles[b.Activate] && (b.Store == nil || b.Store.Digest != b.Activate) {
		return fmt.Errorf("bundle %s: %w", b.Activate, persistence.ErrNotFound)
	}
	if d.f.ActiveBundle != b.Expect {
		return fmt.Errorf("bundle %q is active, not %q: %w", d.f.ActiveBundle, b.Expect, persistence.ErrStale)
	}
	d.w.Activate, d.w.Previous = b.Activate, d.f.ActiveBundle
	return nil
}

// end holds the law that nothing of a run outlives it.
func (d *decider) end() error {
	if !d.needs.RunEnds {
		return nil
	}
	var open []SubjectKey
	for _, key := range d.f.Open {
		if _, moved := d.now[key]; !moved {
			open = append(open, key)
		}
	}
	for key, s := range d.now {
		if table, _ := persistence.TableOf(key.Machine); !table.IsFinal(s.State) {
			open = append(open, key)
		}
	}
	if len(open) > 0 {
		first := slices.MinFunc(open, func(a, b SubjectKey) int { return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.ID, b.ID)) })
		return invalid("run %s ends while %s %s has not", d.change.Run, first.Machine, first.ID)
	}
	settled := map[ReservationKey]bool{}
	for _, key := range d.w.Settle {
		settled[key] = true
	}
	for _, r := range d.w.Reserve {
		return invalid("run %s ends and reserves %s for call %s", d.change.Run, r.Counter, r.Call)
	}
	for _, key := range d.f.Reserved {
		if !settled[key] {
			return invalid("run %s ends while call %s holds a reservation on %s", d.change.Run, key.Call, key.Counter)
		}
	}
	d.w.ReleaseLease = true
	return nil
}
