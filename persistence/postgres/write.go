package postgres

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/apply"
)

// write queues what Decide answered: one statement a table, however many rows.
func write(b *pgx.Batch, w *apply.Writes) {
	tenant, run := string(w.Tenant), string(w.Run)
	b.Queue(`INSERT INTO changes (tenant, run, key, applied) VALUES ($1, $2, $3, $4)`, tenant, run, w.Key, w.Applied)
	writeBlobs(b, w)
	writeLines(b, w)
	for _, wave := range w.Waves {
		writeWave(b, w, wave)
	}
	writeDecisions(b, w)
	writeBudget(b, w)
	if len(w.Artifacts) > 0 {
		b.Queue(`INSERT INTO artifacts (tenant, run, name, digest) SELECT $1, $2, * FROM unnest($3::text[], $4::text[]) ON CONFLICT DO NOTHING`, tenant, run,
			texts(w.Artifacts, func(a persistence.Artifact) string { return a.Name }),
			texts(w.Artifacts, func(a persistence.Artifact) string { return string(a.Digest) }))
	}
	for _, r := range w.Trees {
		writeTree(b, tenant, r)
	}
	writeReads(b, w)
	writeTenant(b, w)
	if w.ReleaseLease {
		b.Queue(`UPDATE leases SET owner = '', until = 0 WHERE tenant = $1 AND run = $2`, tenant, run)
	}
}

func writeBlobs(b *pgx.Batch, w *apply.Writes) {
	if len(w.Blobs) == 0 {
		return
	}
	// Sorted by digest: two changes that bring the same blobs must not wait for each other crosswise.
	b.Queue(`INSERT INTO blobs (tenant, digest, media_type, data) SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bytea[]) ON CONFLICT DO NOTHING`,
		string(w.Tenant), texts(w.Blobs, func(v persistence.Blob) string { return string(v.Digest) }),
		texts(w.Blobs, func(v persistence.Blob) string { return v.MediaType }), bytesOf(w.Blobs, func(v persistence.Blob) []byte { return v.Data }))
}

// bytesOf makes what pgx sends as bytea[], without NULLs.
func bytesOf[T any](list []T, data func(T) []byte) [][]byte {
	out := make([][]byte, len(list))
	for i, v := range list {
		if out[i] = data(v); out[i] == nil {
			out[i] = []byte{}
		}
	}
	return out
}

func numbers[T any](list []T, number func(T) int64) []int64 {
	out := make([]int64, len(list))
	for i, v := range list {
		out[i] = number(v)
	}
	return out
}

func writeLines(b *pgx.Batch, w *apply.Writes) {
	type line = persistence.Line
	l := w.Lines
	col := func(text func(line) string) []string { return texts(l, text) }
	b.Queue(`INSERT INTO journal (tenant, at, run, seq, id, level, kind, payload, cause, request, invocation, call, related,
			machine, subject, from_state, event, to_state, holds, prev, hash)
		SELECT $1, $2, run, seq, id, level, kind, payload, cause, request, invocation, call, related, nullif(machine, ''), nullif(subject, ''),
			CASE WHEN machine <> '' THEN from_state END, nullif(event, ''), nullif(to_state, ''), holds, prev, hash
		FROM unnest($3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::bigint[], $10::text[], $11::text[], $12::text[],
			$13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[])
		AS l (run, seq, id, level, kind, payload, cause, request, invocation, call, related, machine, subject, from_state, event, to_state, holds, prev, hash)`,
		string(w.Tenant), persistence.Micros(w.At),
		col(func(v line) string { return string(v.Run) }), numbers(l, func(v line) int64 { return v.Seq }),
		col(func(v line) string { return v.ID }), col(func(v line) string { return string(v.Level) }), col(func(v line) string { return v.Kind }),
		bytesOf(l, func(v line) []byte { return v.Payload }), numbers(l, func(v line) int64 { return v.Cause }),
		col(func(v line) string { return v.Request }), col(func(v line) string { return string(v.Invocation) }),
		col(func(v line) string { return string(v.Call) }), col(func(v line) string { return v.Related }),
		col(func(v line) string { return v.Machine }), col(func(v line) string { return v.Subject }),
		col(func(v line) string { return string(v.From) }), col(func(v line) string { return string(v.Event) }),
		col(func(v line) string { return string(v.To) }), col(func(v line) string { return string(v.Holds) }),
		col(func(v line) string { return string(v.Prev) }),
		col(func(v line) string { return string(v.Hash) }))
	b.Queue(`UPDATE heads h SET seq = n.seq, hash = n.hash FROM unnest($2::text[], $3::bigint[], $4::text[]) AS n (run, seq, hash)
		WHERE h.tenant = $1 AND h.run = n.run`, string(w.Tenant), texts(w.Heads, func(h apply.HeadRow) string { return string(h.Run) }),
		numbers(w.Heads, func(h apply.HeadRow) int64 { return h.Seq }), texts(w.Heads, func(h apply.HeadRow) string { return string(h.Hash) }))
}

func writeWave(b *pgx.Batch, w *apply.Writes, wave []apply.SubjectRow) {
	type row = apply.SubjectRow
	var born, moved []row
	for _, r := range wave {
		if r.From == "" {
			born = append(born, r)
		} else {
			moved = append(moved, r)
		}
	}
	common := func(l []row) []any {
		return []any{string(w.Tenant), string(w.Run), persistence.Micros(w.At),
			texts(l, func(r row) string { return r.Machine }), texts(l, func(r row) string { return r.ID }),
			texts(l, func(r row) string { return string(r.From) }), texts(l, func(r row) string { return string(r.Event) }),
			texts(l, func(r row) string { return string(r.State) }), numbers(l, func(r row) int64 { return r.Version }),
			numbers(l, func(r row) int64 { return persistence.Micros(r.Deadline) }), numbers(l, func(r row) int64 { return persistence.Micros(r.Due) }),
			numbers(l, func(r row) int64 {
				if r.Ended {
					return 1
				}
				return 0
			}), bytesOf(l, func(r row) []byte { return r.Body })}
	}
	const columns = `unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bytea[]`
	if len(born) > 0 {
		b.Queue(`INSERT INTO subjects (tenant, run, created, updated, machine, id, from_state, event, state, version, deadline, due, ended, body, born)
			SELECT $1, $2, $3, $3, * FROM `+columns+`, $14::bigint[])`, append(common(born), numbers(born, func(r row) int64 { return r.Seq }))...)
	}
	if len(moved) > 0 {
		b.Queue(`UPDATE subjects s SET from_state = n.from_state, event = n.event, state = n.state, version = n.version, deadline = n.deadline, due = n.due,
				ended = n.ended, body = n.body, updated = $3
			FROM `+columns+`) AS n (machine, id, from_state, event, state, version, deadline, due, ended, body)
			WHERE s.tenant = $1 AND s.run = $2 AND s.machine = n.machine AND s.id = n.id`, common(moved)...)
	}
}

func writeDecisions(b *pgx.Batch, w *apply.Writes) {
	type rec = persistence.DecisionRecord
	d := w.Decisions
	if len(d) == 0 {
		return
	}
	replayable := make([]bool, len(d))
	for i := range d {
		replayable[i] = d[i].Replayable
	}
	b.Queue(`INSERT INTO decisions (tenant, run, call, phase, attempt, seq, policy_digest, input, output, replayable)
		SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bytea[], $9::bytea[], $10::boolean[])`,
		string(w.Tenant), string(w.Run), texts(d, func(v rec) string { return string(v.Call) }), texts(d, func(v rec) string { return v.Phase }),
		numbers(d, func(v rec) int64 { return v.Attempt }), numbers(d, func(v rec) int64 { return v.Seq }),
		texts(d, func(v rec) string { return string(v.PolicyDigest) }), bytesOf(d, func(v rec) []byte { return v.Input }),
		bytesOf(d, func(v rec) []byte { return v.Output }), replayable)
}

func writeBudget(b *pgx.Batch, w *apply.Writes) {
	tenant, run := string(w.Tenant), string(w.Run)
	if c := w.Counters; len(c) > 0 {
		b.Queue(`UPDATE counters c SET lim = n.lim, spent = n.spent, reserved = n.reserved
			FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS n (key, lim, spent, reserved) WHERE c.tenant = $1 AND c.key = n.key`,
			tenant, texts(c, func(v persistence.Counter) string { return string(v.Key) }), numbers(c, func(v persistence.Counter) int64 { return v.Limit }),
			numbers(c, func(v persistence.Counter) int64 { return v.Spent }), numbers(c, func(v persistence.Counter) int64 { return v.Reserved }))
	}
	if s := w.Settle; len(s) > 0 {
		b.Queue(`DELETE FROM reservations r USING unnest($3::text[], $4::text[]) AS n (call, counter)
			WHERE r.tenant = $1 AND r.run = $2 AND r.call = n.call AND r.counter = n.counter`, tenant, run,
			texts(s, func(k apply.ReservationKey) string { return string(k.Call) }), texts(s, func(k apply.ReservationKey) string { return string(k.Counter) }))
	}
	if r := w.Reserve; len(r) > 0 {
		b.Queue(`INSERT INTO reservations (tenant, run, call, counter, lim, amount, lease_until)
			SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[])`, tenant, run,
			texts(r, func(v persistence.Reservation) string { return string(v.Call) }),
			texts(r, func(v persistence.Reservation) string { return string(v.Counter) }),
			numbers(r, func(v persistence.Reservation) int64 { return v.Limit }), numbers(r, func(v persistence.Reservation) int64 { return v.Amount }),
			numbers(r, func(v persistence.Reservation) int64 { return persistence.Micros(v.LeaseUntil) }))
	}
}

func writeTree(b *pgx.Batch, tenant string, r apply.TreeRow) {
	tree := string(r.Tree)
	b.Queue(`UPDATE trees SET version = $3 WHERE tenant = $1 AND tree = $2`, tenant, tree, r.Version)
	if len(r.Edits) > 0 {
		b.Queue(`UPDATE tree_files SET until = $4 WHERE tenant = $1 AND tree = $2 AND path = ANY ($3::text[]) AND until = 0`, tenant, tree,
			texts(r.Edits, func(e persistence.TreeEdit) string { return e.Path }), r.Version)
	}
	var kept []persistence.TreeEdit
	for _, e := range r.Edits {
		if e.Digest != "" {
			kept = append(kept, e)
		}
	}
	if len(kept) > 0 {
		b.Queue(`INSERT INTO tree_files (tenant, tree, since, until, path, digest, size)
			SELECT $1, $2, $3, 0, * FROM unnest($4::text[], $5::text[], $6::bigint[])`, tenant, tree, r.Version,
			texts(kept, func(e persistence.TreeEdit) string { return e.Path }), texts(kept, func(e persistence.TreeEdit) string { return string(e.Digest) }),
			numbers(kept, func(e persistence.TreeEdit) int64 { return e.Size }))
	}
	c := r.Checkpoint
	b.Queue(`INSERT INTO checkpoints (tenant, tree, version, label, reason, call, at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		tenant, tree, r.Version, c.Label, c.Reason, string(c.Call), persistence.Micros(c.At))
}

func writeReads(b *pgx.Batch, w *apply.Writes) {
	var known, forgotten []persistence.ReadState
	for _, r := range w.Reads {
		if r.Digest == "" {
			forgotten = append(forgotten, r)
		} else {
			known = append(known, r)
		}
	}
	invocation := func(r persistence.ReadState) string { return string(r.Invocation) }
	path := func(r persistence.ReadState) string { return r.Path }
	if len(known) > 0 {
		b.Queue(`INSERT INTO reads (tenant, run, invocation, path, digest) SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::text[])
			ON CONFLICT (tenant, run, invocation, path) DO UPDATE SET digest = excluded.digest`, string(w.Tenant), string(w.Run),
			texts(known, invocation), texts(known, path), texts(known, func(r persistence.ReadState) string { return string(r.Digest) }))
	}
	if len(forgotten) > 0 {
		b.Queue(`DELETE FROM reads r USING unnest($3::text[], $4::text[]) AS n (invocation, path)
			WHERE r.tenant = $1 AND r.run = $2 AND r.invocation = n.invocation AND r.path = n.path`, string(w.Tenant), string(w.Run),
			texts(forgotten, invocation), texts(forgotten, path))
	}
}

// writeTenant writes what belongs to the tenant and not to a run.
func writeTenant(b *pgx.Batch, w *apply.Writes) {
	tenant := string(w.Tenant)
	for _, g := range w.Grants {
		b.Queue(`INSERT INTO grants (tenant, id, run, created, expires, revoked, body) VALUES ($1, $2, $3, $4, $5, 0, $6)`,
			tenant, g.ID, string(g.Run), persistence.Micros(g.Created), persistence.Micros(g.Expires), body(g))
	}
	if len(w.Revoke) > 0 {
		b.Queue(`UPDATE grants SET revoked = 1 WHERE tenant = $1 AND id = ANY ($2::text[])`, tenant, w.Revoke)
	}
	if v := w.Bundle; v != nil {
		b.Queue(`INSERT INTO bundles (tenant, digest, seq, author, applied, files) VALUES ($1, $2, $3, $4, $5, $6)`,
			tenant, string(v.Digest), w.Lines[0].Seq, string(v.By), persistence.Micros(v.Applied), body(v.Files))
	}
	if w.Activate != "" {
		b.Queue(`INSERT INTO activations (tenant, seq, digest, previous) VALUES ($1, $2, $3, $4)`, tenant, w.Lines[0].Seq, string(w.Activate), string(w.Previous))
	}
}

// body encodes values whose types hold nothing that JSON cannot say.
func body(v any) []byte {
	out, _ := json.Marshal(v)
	return out
}
