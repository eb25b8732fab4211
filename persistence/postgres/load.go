package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/apply"
	"github.com/callgate/callgate/specs"
)

// load begins the transaction, takes the locks and reads what Decide has to know, in one round trip. Every
// statement sees what was committed before it began, so what is read after the lock on the chain is as new as the lock.
func (s *Store) load(ctx context.Context, conn *pgx.Conn, n apply.Needs) (apply.Facts, error) {
	tenant, run := string(n.Tenant), string(n.Run)
	f := apply.Facts{
		Subjects: map[apply.SubjectKey]apply.Subject{}, Counters: map[persistence.CounterKey]persistence.Counter{},
		Reservations: map[apply.ReservationKey]int64{}, Trees: map[persistence.TreeID]int64{}, Digests: map[specs.Digest]bool{},
		Artifacts: map[string]specs.Digest{}, Grants: map[string]bool{}, Decisions: map[apply.DecisionKey]bool{}, Bundles: map[specs.Digest]bool{},
	}
	var b pgx.Batch
	b.Queue("begin isolation level read committed")
	// A row that may be missing is made first: only then there is something to lock, and of two changes that
	// begin the same chain one waits for the other.
	const make, lock = `INSERT INTO heads (tenant, run, seq, hash) VALUES ($1, $2, 0, '') ON CONFLICT DO NOTHING`,
		`SELECT seq, hash FROM heads WHERE tenant = $1 AND run = $2 FOR UPDATE`
	if run != "" {
		if n.RunBorn {
			b.Queue(make, tenant, run)
		}
		b.Queue(lock, tenant, run).Query(func(r pgx.Rows) error {
			return each(r, func() error {
				f.Head = &persistence.Head{}
				return r.Scan(&f.Head.Seq, &f.Head.Hash)
			})
		})
	}
	if n.TenantChain {
		b.Queue(make, tenant, "")
		b.Queue(lock, tenant, "").Query(func(r pgx.Rows) error {
			return each(r, func() error { return r.Scan(&f.TenantHead.Seq, &f.TenantHead.Hash) })
		})
	}
	b.Queue(`SELECT applied FROM changes WHERE tenant = $1 AND run = $2 AND key = $3`, tenant, run, n.Key).Query(func(r pgx.Rows) error {
		return each(r, func() error { return r.Scan(&f.Prior) })
	})
	if run != "" {
		b.Queue(leaseOf, tenant, run).Query(func(r pgx.Rows) error {
			return each(r, func() (err error) {
				f.Lease, err = scanLease(n.Tenant, n.Run, r)
				return err
			})
		})
	}
	loadSubjects(&b, n, &f)
	loadBudget(&b, n, &f)
	loadTrees(&b, n, &f)
	loadNames(&b, n, &f)
	if s.now == nil {
		b.Queue(clock).QueryRow(func(r pgx.Row) error { return r.Scan(&f.Now) })
	}
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return f, translate(err)
	}
	if s.now != nil {
		f.Now = s.now()
	}
	return f, nil
}

func each(r pgx.Rows, row func() error) error {
	for r.Next() {
		if err := row(); err != nil {
			return err
		}
	}
	return r.Err()
}

// texts makes what pgx sends as text[].
func texts[T any](list []T, text func(T) string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = text(v)
	}
	return out
}

func plain[T ~string](s T) string { return string(s) }

func loadSubjects(b *pgx.Batch, n apply.Needs, f *apply.Facts) {
	if len(n.Subjects) > 0 {
		b.Queue(`SELECT s.machine, s.id, s.state, s.version, s.deadline, s.created FROM unnest($3::text[], $4::text[]) AS k (machine, id)
			JOIN subjects s ON s.tenant = $1 AND s.run = $2 AND s.machine = k.machine AND s.id = k.id`, string(n.Tenant), string(n.Run),
			texts(n.Subjects, func(k apply.SubjectKey) string { return k.Machine }),
			texts(n.Subjects, func(k apply.SubjectKey) string { return k.ID })).Query(func(r pgx.Rows) error {
			return each(r, func() error {
				var k apply.SubjectKey
				var v apply.Subject
				var deadline, created int64
				err := r.Scan(&k.Machine, &k.ID, &v.State, &v.Version, &deadline, &created)
				v.Deadline, v.Created = persistence.FromMicros(deadline), persistence.FromMicros(created)
				f.Subjects[k] = v
				return err
			})
		})
	}
	if n.RunEnds {
		b.Queue(`SELECT machine, id FROM subjects WHERE tenant = $1 AND run = $2 AND ended = 0`, string(n.Tenant), string(n.Run)).Query(func(r pgx.Rows) error {
			return each(r, func() error {
				var k apply.SubjectKey
				err := r.Scan(&k.Machine, &k.ID)
				f.Open = append(f.Open, k)
				return err
			})
		})
		b.Queue(`SELECT call, counter FROM reservations WHERE tenant = $1 AND run = $2`, string(n.Tenant), string(n.Run)).Query(func(r pgx.Rows) error {
			return each(r, func() error {
				var k apply.ReservationKey
				err := r.Scan(&k.Call, &k.Counter)
				f.Reserved = append(f.Reserved, k)
				return err
			})
		})
	}
}

func loadBudget(b *pgx.Batch, n apply.Needs, f *apply.Facts) {
	if len(n.Counters) == 0 {
		return
	}
	keys := texts(n.Counters, plain)
	b.Queue(`INSERT INTO counters (tenant, key, lim, spent, reserved) SELECT $1, k, 0, 0, 0 FROM unnest($2::text[]) AS k ON CONFLICT DO NOTHING`,
		string(n.Tenant), keys)
	b.Queue(`SELECT key, lim, spent, reserved FROM counters WHERE tenant = $1 AND key = ANY ($2::text[]) ORDER BY key FOR UPDATE`,
		string(n.Tenant), keys).Query(func(r pgx.Rows) error {
		return each(r, func() error {
			var c persistence.Counter
			err := r.Scan(&c.Key, &c.Limit, &c.Spent, &c.Reserved)
			f.Counters[c.Key] = c
			return err
		})
	})
	b.Queue(`SELECT r.call, r.counter, r.amount FROM unnest($3::text[], $4::text[]) AS k (call, counter)
		JOIN reservations r ON r.tenant = $1 AND r.run = $2 AND r.call = k.call AND r.counter = k.counter`, string(n.Tenant), string(n.Run),
		texts(n.Reservations, func(k apply.ReservationKey) string { return string(k.Call) }),
		texts(n.Reservations, func(k apply.ReservationKey) string { return string(k.Counter) })).Query(func(r pgx.Rows) error {
		return each(r, func() error {
			var k apply.ReservationKey
			var amount int64
			err := r.Scan(&k.Call, &k.Counter, &amount)
			f.Reservations[k] = amount
			return err
		})
	})
}

func loadTrees(b *pgx.Batch, n apply.Needs, f *apply.Facts) {
	if len(n.Trees) == 0 {
		return
	}
	ids := texts(n.Trees, plain)
	b.Queue(`INSERT INTO trees (tenant, tree, version) SELECT $1, k, 0 FROM unnest($2::text[]) AS k ON CONFLICT DO NOTHING`, string(n.Tenant), ids)
	b.Queue(`SELECT tree, version FROM trees WHERE tenant = $1 AND tree = ANY ($2::text[]) ORDER BY tree FOR UPDATE`,
		string(n.Tenant), ids).Query(func(r pgx.Rows) error {
		return each(r, func() error {
			var id persistence.TreeID
			var version int64
			err := r.Scan(&id, &version)
			f.Trees[id] = version
			return err
		})
	})
}

// loadNames looks up what the change names: blobs, artifacts, grants, decisions, bundles.
func loadNames(b *pgx.Batch, n apply.Needs, f *apply.Facts) {
	tenant, run := string(n.Tenant), string(n.Run)
	if len(n.Digests) > 0 {
		b.Queue(`SELECT digest FROM blobs WHERE tenant = $1 AND digest = ANY ($2::text[])`, tenant, texts(n.Digests, plain)).Query(present(f.Digests))
	}
	if len(n.Artifacts) > 0 {
		b.Queue(`SELECT name, digest FROM artifacts WHERE tenant = $1 AND run = $2 AND name = ANY ($3::text[])`, tenant, run, n.Artifacts).
			Query(func(r pgx.Rows) error {
				return each(r, func() error {
					var name string
					var d specs.Digest
					err := r.Scan(&name, &d)
					f.Artifacts[name] = d
					return err
				})
			})
	}
	if len(n.Grants) > 0 {
		b.Queue(`SELECT id FROM grants WHERE tenant = $1 AND id = ANY ($2::text[])`, tenant, n.Grants).Query(present(f.Grants))
	}
	if len(n.Decisions) > 0 {
		b.Queue(`SELECT call, phase, attempt FROM decisions WHERE tenant = $1 AND run = $2 AND call = ANY ($3::text[])`, tenant, run,
			texts(n.Decisions, func(k apply.DecisionKey) string { return string(k.Call) })).Query(func(r pgx.Rows) error {
			return each(r, func() error {
				var k apply.DecisionKey
				err := r.Scan(&k.Call, &k.Phase, &k.Attempt)
				f.Decisions[k] = true
				return err
			})
		})
	}
	if len(n.Bundles) > 0 {
		b.Queue(`SELECT digest FROM bundles WHERE tenant = $1 AND digest = ANY ($2::text[])`, tenant, texts(n.Bundles, plain)).Query(present(f.Bundles))
	}
	if n.ActiveBundle {
		b.Queue(`SELECT digest FROM activations WHERE tenant = $1 ORDER BY seq DESC LIMIT 1`, tenant).Query(func(r pgx.Rows) error {
			return each(r, func() error { return r.Scan(&f.ActiveBundle) })
		})
	}
}

// present notes every key of a one-column answer.
func present[K comparable](set map[K]bool) func(pgx.Rows) error {
	return func(r pgx.Rows) error {
		return each(r, func() error {
			var k K
			err := r.Scan(&k)
			set[k] = true
			return err
		})
	}
}
