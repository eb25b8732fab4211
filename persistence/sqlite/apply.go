package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/apply"
	"github.com/callgate/callgate/persistence/sqlstore"
	"github.com/callgate/callgate/specs"
)

// Apply implements persistence.Store.
func (s *Store) Apply(ctx context.Context, c persistence.Change) (persistence.Applied, error) {
	plan, err := apply.Prepare(c)
	if err != nil {
		return persistence.Applied{}, err
	}
	applied, writes, err := s.commit(ctx, plan)
	if err != nil {
		return persistence.Applied{}, fmt.Errorf("change %q: %w", c.Key, err)
	}
	if writes != nil {
		plan.Told(writes)
	}
	return applied, nil
}

func (s *Store) commit(ctx context.Context, plan *apply.Plan) (persistence.Applied, *apply.Writes, error) {
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	t, err := s.write.begin(ctx)
	if err != nil {
		return persistence.Applied{}, nil, err
	}
	defer t.end()
	facts := t.load(plan.Needs())
	if t.err != nil {
		return persistence.Applied{}, nil, t.err
	}
	facts.Now = s.clock()
	applied, writes, err := plan.Decide(facts)
	if err != nil || writes == nil {
		return applied, nil, err
	}
	t.write(writes)
	return applied, writes, t.commit()
}

// load reads what Decide has to know. The plus in `machine = +$3` keeps SQLite from looking at the value while it
// plans, to see whether it is the 'approval' of a partial index: it would plan anew for each value.
func (t *tx) load(n apply.Needs) apply.Facts {
	tenant, run := string(n.Tenant), string(n.Run)
	f := apply.Facts{
		Subjects: map[apply.SubjectKey]apply.Subject{}, Counters: map[persistence.CounterKey]persistence.Counter{},
		Reservations: map[apply.ReservationKey]int64{}, Trees: map[persistence.TreeID]int64{}, Digests: map[specs.Digest]bool{},
		Artifacts: map[string]specs.Digest{}, Grants: map[string]bool{}, Decisions: map[apply.DecisionKey]bool{}, Bundles: map[specs.Digest]bool{},
	}
	if t.one(`SELECT applied FROM changes WHERE tenant = $1 AND run = $2 AND key = $3`, []any{tenant, run, n.Key}, &f.Prior) {
		return f
	}
	const head = `SELECT seq, hash FROM heads WHERE tenant = $1 AND run = $2`
	var h persistence.Head
	if run != "" && t.one(head, []any{tenant, run}, &h.Seq, &h.Hash) {
		f.Head = &h
	}
	if n.TenantChain {
		t.one(head, []any{tenant, ""}, &f.TenantHead.Seq, &f.TenantHead.Hash)
	}
	f.Lease = t.lease(n.Tenant, n.Run)
	for _, k := range n.Subjects {
		var v apply.Subject
		var deadline, created int64
		if t.one(`SELECT state, version, deadline, created FROM subjects WHERE tenant = $1 AND run = $2 AND machine = +$3 AND id = $4`,
			[]any{tenant, run, k.Machine, k.ID}, &v.State, &v.Version, &deadline, &created) {
			v.Deadline, v.Created = persistence.FromMicros(deadline), persistence.FromMicros(created)
			f.Subjects[k] = v
		}
	}
	if n.RunEnds {
		t.each(`SELECT machine, id FROM subjects WHERE tenant = $1 AND run = $2 AND ended = 0`, []any{tenant, run}, func(scan func(...any) error) error {
			var k apply.SubjectKey
			err := scan(&k.Machine, &k.ID)
			f.Open = append(f.Open, k)
			return err
		})
		t.each(`SELECT call, counter FROM reservations WHERE tenant = $1 AND run = $2`, []any{tenant, run}, func(scan func(...any) error) error {
			var k apply.ReservationKey
			err := scan(&k.Call, &k.Counter)
			f.Reserved = append(f.Reserved, k)
			return err
		})
	}
	for _, k := range n.Counters {
		c := persistence.Counter{Key: k}
		if t.one(`SELECT lim, spent, reserved FROM counters WHERE tenant = $1 AND key = $2`, []any{tenant, string(k)}, &c.Limit, &c.Spent, &c.Reserved) {
			f.Counters[k] = c
		}
	}
	for _, k := range n.Reservations {
		var amount int64
		if t.one(`SELECT amount FROM reservations WHERE tenant = $1 AND run = $2 AND call = $3 AND counter = $4`,
			[]any{tenant, run, string(k.Call), string(k.Counter)}, &amount) {
			f.Reservations[k] = amount
		}
	}
	for _, k := range n.Trees {
		var version int64
		if t.one(`SELECT version FROM trees WHERE tenant = $1 AND tree = $2`, []any{tenant, string(k)}, &version) {
			f.Trees[k] = version
		}
	}
	var there int
	for _, k := range n.Digests {
		f.Digests[k] = t.one(`SELECT 1 FROM blobs WHERE tenant = $1 AND digest = $2`, []any{tenant, string(k)}, &there)
	}
	for _, k := range n.Artifacts {
		var d specs.Digest
		if t.one(`SELECT digest FROM artifacts WHERE tenant = $1 AND run = $2 AND name = $3`, []any{tenant, run, k}, &d) {
			f.Artifacts[k] = d
		}
	}
	for _, k := range n.Grants {
		f.Grants[k] = t.one(`SELECT 1 FROM grants WHERE tenant = $1 AND id = $2`, []any{tenant, k}, &there)
	}
	for _, k := range n.Decisions {
		f.Decisions[k] = t.one(`SELECT 1 FROM decisions WHERE tenant = $1 AND run = $2 AND call = $3 AND phase = $4 AND attempt = $5`,
			[]any{tenant, run, string(k.Call), k.Phase, k.Attempt}, &there)
	}
	for _, k := range n.Bundles {
		f.Bundles[k] = t.one(`SELECT 1 FROM bundles WHERE tenant = $1 AND digest = $2`, []any{tenant, string(k)}, &there)
	}
	if n.ActiveBundle {
		t.one(`SELECT digest FROM activations WHERE tenant = $1 ORDER BY seq DESC LIMIT 1`, []any{tenant}, &f.ActiveBundle)
	}
	return f
}

// write puts down what Decide answered.
func (t *tx) write(w *apply.Writes) {
	tenant, run := string(w.Tenant), string(w.Run)
	t.exec(`INSERT INTO changes (tenant, run, key, applied) VALUES ($1, $2, $3, $4)`, tenant, run, w.Key, w.Applied)
	for _, b := range w.Blobs {
		t.exec(`INSERT INTO blobs (tenant, digest, media_type, data) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
			tenant, string(b.Digest), b.MediaType, b.Data)
	}
	for _, l := range w.Lines {
		t.line(l)
	}
	for _, h := range w.Heads {
		t.exec(`INSERT INTO heads (tenant, run, seq, hash) VALUES ($1, $2, $3, $4)
			ON CONFLICT (tenant, run) DO UPDATE SET seq = excluded.seq, hash = excluded.hash`, tenant, string(h.Run), h.Seq, string(h.Hash))
	}
	for _, wave := range w.Waves {
		for _, r := range wave {
			t.subject(tenant, run, r)
		}
	}
	for _, d := range w.Decisions {
		t.exec(`INSERT INTO decisions (tenant, run, call, phase, attempt, seq, policy_digest, input, output, replayable)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, tenant, run, string(d.Call), d.Phase, d.Attempt, d.Seq, string(d.PolicyDigest),
			[]byte(d.Input), []byte(d.Output), d.Replayable)
	}
	for _, c := range w.Counters {
		t.exec(`INSERT INTO counters (tenant, key, lim, spent, reserved) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (tenant, key) DO UPDATE SET lim = excluded.lim, spent = excluded.spent, reserved = excluded.reserved`,
			tenant, string(c.Key), c.Limit, c.Spent, c.Reserved)
	}
	for _, k := range w.Settle {
		t.exec(`DELETE FROM reservations WHERE tenant = $1 AND run = $2 AND call = $3 AND counter = $4`, tenant, run, string(k.Call), string(k.Counter))
	}
	for _, r := range w.Reserve {
		t.exec(`INSERT INTO reservations (tenant, run, call, counter, lim, amount, lease_until) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			tenant, run, string(r.Call), string(r.Counter), r.Limit, r.Amount, persistence.Micros(r.LeaseUntil))
	}
	for _, a := range w.Artifacts {
		t.exec(`INSERT INTO artifacts (tenant, run, name, digest) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, tenant, run, a.Name, string(a.Digest))
	}
	for _, r := range w.Trees {
		t.tree(tenant, r)
	}
	for _, r := range w.Reads {
		if r.Digest == "" {
			t.exec(`DELETE FROM reads WHERE tenant = $1 AND run = $2 AND invocation = $3 AND path = $4`, tenant, run, string(r.Invocation), r.Path)
			continue
		}
		t.exec(`INSERT INTO reads (tenant, run, invocation, path, digest) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (tenant, run, invocation, path) DO UPDATE SET digest = excluded.digest`, tenant, run, string(r.Invocation), r.Path, string(r.Digest))
	}
	t.tenant(w)
	if w.ReleaseLease {
		t.exec(`UPDATE leases SET owner = '', until = 0 WHERE tenant = $1 AND run = $2`, tenant, run)
	}
}

func (t *tx) line(l persistence.Line) {
	var kind, subject, from, event, to any // NULL for a line that moves nothing
	if l.Machine != "" {
		kind, subject, from, event, to = l.Machine, l.Subject, string(l.From), string(l.Event), string(l.To)
	}
	t.exec(`INSERT INTO journal (tenant, run, seq, id, at, level, kind, payload, cause, request, invocation, call, related,
			machine, subject, from_state, event, to_state, holds, prev, hash)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`,
		string(l.Tenant), string(l.Run), l.Seq, l.ID, persistence.Micros(l.At), string(l.Level), l.Kind, bytesOf(l.Payload), l.Cause, l.Request,
		string(l.Invocation), string(l.Call), l.Related, kind, subject, from, event, to, string(l.Holds), string(l.Prev), string(l.Hash))
}

// bytesOf never gives nil, which the database would take for NULL.
func bytesOf[T ~[]byte](b T) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func (t *tx) subject(tenant, run string, r apply.SubjectRow) {
	ended := 0
	if r.Ended {
		ended = 1
	}
	if r.From == "" {
		t.exec(`INSERT INTO subjects (tenant, run, machine, id, from_state, event, state, version, deadline, due, ended, created, updated, born, body)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
			tenant, run, r.Machine, r.ID, string(r.From), string(r.Event), string(r.State), r.Version, persistence.Micros(r.Deadline),
			persistence.Micros(r.Due), ended, persistence.Micros(r.Created), persistence.Micros(r.Updated), r.Seq, bytesOf(r.Body))
		return
	}
	t.exec(`UPDATE subjects SET from_state = $5, event = $6, state = $7, version = $8, deadline = $9, due = $10, ended = $11, updated = $12, body = $13
		WHERE tenant = $1 AND run = $2 AND machine = +$3 AND id = $4`,
		tenant, run, r.Machine, r.ID, string(r.From), string(r.Event), string(r.State), r.Version, persistence.Micros(r.Deadline),
		persistence.Micros(r.Due), ended, persistence.Micros(r.Updated), bytesOf(r.Body))
}

func (t *tx) tree(tenant string, r apply.TreeRow) {
	tree := string(r.Tree)
	t.exec(`INSERT INTO trees (tenant, tree, version) VALUES ($1, $2, $3) ON CONFLICT (tenant, tree) DO UPDATE SET version = excluded.version`,
		tenant, tree, r.Version)
	for _, e := range r.Edits {
		t.exec(`UPDATE tree_files SET until = $4 WHERE tenant = $1 AND tree = $2 AND path = $3 AND until = 0`, tenant, tree, e.Path, r.Version)
		if e.Digest != "" {
			t.exec(`INSERT INTO tree_files (tenant, tree, path, since, until, digest, size) VALUES ($1, $2, $3, $4, 0, $5, $6)`,
				tenant, tree, e.Path, r.Version, string(e.Digest), e.Size)
		}
	}
	c := r.Checkpoint
	t.exec(`INSERT INTO checkpoints (tenant, tree, version, label, reason, call, at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		tenant, tree, r.Version, c.Label, c.Reason, string(c.Call), persistence.Micros(c.At))
}

// tenant writes what belongs to the tenant and not to a run.
func (t *tx) tenant(w *apply.Writes) {
	tenant := string(w.Tenant)
	for _, g := range w.Grants {
		body, err := json.Marshal(g)
		if err != nil {
			t.err = errors.Join(t.err, err)
			return
		}
		t.exec(`INSERT INTO grants (tenant, id, run, created, expires, revoked, body) VALUES ($1, $2, $3, $4, $5, 0, $6)`,
			tenant, g.ID, string(g.Run), persistence.Micros(g.Created), persistence.Micros(g.Expires), body)
	}
	for _, id := range w.Revoke {
		t.exec(`UPDATE grants SET revoked = 1 WHERE tenant = $1 AND id = $2`, tenant, id)
	}
	if b := w.Bundle; b != nil {
		files, err := json.Marshal(b.Files)
		if err != nil {
			t.err = errors.Join(t.err, err)
			return
		}
		t.exec(`INSERT INTO bundles (tenant, digest, seq, author, applied, files) VALUES ($1, $2, $3, $4, $5, $6)`,
			tenant, string(b.Digest), w.Lines[0].Seq, string(b.By), persistence.Micros(b.Applied), files)
	}
	if w.Activate != "" {
		t.exec(`INSERT INTO activations (tenant, seq, digest, previous) VALUES ($1, $2, $3, $4)`,
			tenant, w.Lines[0].Seq, string(w.Activate), string(w.Previous))
	}
}
