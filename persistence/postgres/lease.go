package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/apply"
	"github.com/callgate/callgate/persistence/sqlstore"
	"github.com/callgate/callgate/specs"
)

const leaseOf = `SELECT owner, fence, until FROM leases WHERE tenant = $1 AND run = $2`

func scanLease(tenant specs.TenantID, run specs.RunID, row pgx.Row) (*persistence.Lease, error) {
	l := persistence.Lease{Tenant: tenant, Run: run}
	var until int64
	err := row.Scan(&l.Owner, &l.Fence, &until)
	l.Until = persistence.FromMicros(until)
	return &l, err
}

// Acquire implements persistence.Store. It takes the lock of the run's chain first, as Apply does, so that a change
// under the old fence is either committed before the lease passes on or refused after it.
func (s *Store) Acquire(ctx context.Context, tenant specs.TenantID, run specs.RunID, owner string, ttl time.Duration,
	takeover func(holder string) bool) (persistence.Lease, error) {
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	dead := int64(0)
	return apply.Acquire(takeover, &dead, func() (got persistence.Lease, held *persistence.Lease, err error) {
		err = s.inTx(ctx, func(tx pgx.Tx) error {
			var ended int64
			err := tx.QueryRow(ctx, `SELECT s.ended FROM heads h JOIN subjects s ON s.tenant = h.tenant AND s.run = h.run AND s.machine = 'run' AND s.id = h.run
				WHERE h.tenant = $1 AND h.run = $2 FOR UPDATE OF h`, string(tenant), string(run)).Scan(&ended)
			if errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("run %s: %w", run, persistence.ErrNotFound)
			}
			if err != nil {
				return translate(err)
			}
			held, err = scanLease(tenant, run, tx.QueryRow(ctx, leaseOf, string(tenant), string(run)))
			if errors.Is(err, pgx.ErrNoRows) {
				held, err = nil, nil
			}
			if err != nil {
				return translate(err)
			}
			now, err := s.nowIn(ctx, tx)
			if err != nil {
				return translate(err)
			}
			if got, err = apply.Lease(held, ended == 1, dead, now, owner, ttl); err != nil {
				return err
			}
			got.Tenant, got.Run = tenant, run
			_, err = tx.Exec(ctx, `INSERT INTO leases (tenant, run, owner, fence, until) VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (tenant, run) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, until = excluded.until`,
				string(tenant), string(run), got.Owner, got.Fence, persistence.Micros(got.Until))
			return translate(err)
		})
		return got, held, err
	})
}

// inTx runs one short transaction. What work answers is final: it translates the database's errors itself.
func (s *Store) inTx(ctx context.Context, work func(pgx.Tx) error) error {
	var inner error
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		inner = work(tx)
		return inner
	})
	if inner != nil {
		return inner
	}
	return translate(err)
}

func (s *Store) nowIn(ctx context.Context, q querier) (time.Time, error) {
	if s.now != nil {
		return s.now().UTC().Truncate(time.Microsecond), nil
	}
	var now time.Time
	err := q.QueryRow(ctx, clock).Scan(&now)
	return now.UTC(), err
}

// Renew implements persistence.Store.
func (s *Store) Renew(ctx context.Context, l persistence.Lease, ttl time.Duration) (persistence.Lease, error) {
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	now, err := s.Now(ctx)
	if err != nil {
		return persistence.Lease{}, err
	}
	until := now.Add(ttl).Truncate(time.Microsecond)
	tag, err := s.pool.Exec(ctx, `UPDATE leases SET until = $5 WHERE tenant = $1 AND run = $2 AND owner = $3 AND fence = $4 AND owner <> ''`,
		string(l.Tenant), string(l.Run), l.Owner, l.Fence, persistence.Micros(until))
	switch {
	case err != nil:
		return persistence.Lease{}, translate(err)
	case tag.RowsAffected() == 0:
		return persistence.Lease{}, fmt.Errorf("run %s, fence %d: %w", l.Run, l.Fence, persistence.ErrFenced)
	}
	l.Until = until
	return l, nil
}

// Release implements persistence.Store.
func (s *Store) Release(ctx context.Context, l persistence.Lease) error {
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, `UPDATE leases SET owner = '', until = 0 WHERE tenant = $1 AND run = $2 AND owner = $3 AND fence = $4`,
		string(l.Tenant), string(l.Run), l.Owner, l.Fence)
	return translate(err)
}
