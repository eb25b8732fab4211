package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/apply"
	"github.com/callgate/callgate/persistence/sqlstore"
	"github.com/callgate/callgate/specs"
)

// lease reads a run's lease; nil when nobody ever held it.
func (t *tx) lease(tenant specs.TenantID, run specs.RunID) *persistence.Lease {
	l := persistence.Lease{Tenant: tenant, Run: run}
	var until int64
	if !t.one(`SELECT owner, fence, until FROM leases WHERE tenant = $1 AND run = $2`, []any{string(tenant), string(run)}, &l.Owner, &l.Fence, &until) {
		return nil
	}
	l.Until = persistence.FromMicros(until)
	return &l
}

// Acquire implements persistence.Store.
func (s *Store) Acquire(ctx context.Context, tenant specs.TenantID, run specs.RunID, owner string, ttl time.Duration,
	takeover func(holder string) bool) (persistence.Lease, error) {
	dead := int64(0) // the fence of the holder that takeover called dead
	return apply.Acquire(takeover, &dead, func() (persistence.Lease, *persistence.Lease, error) {
		ctx, cancel := sqlstore.Bound(ctx)
		defer cancel()
		t, err := s.write.begin(ctx)
		if err != nil {
			return persistence.Lease{}, nil, err
		}
		defer t.end()
		var ended int
		if !t.one(`SELECT ended FROM subjects WHERE tenant = $1 AND run = $2 AND machine = 'run' AND id = $2`, []any{string(tenant), string(run)}, &ended) && t.err == nil {
			return persistence.Lease{}, nil, fmt.Errorf("run %s: %w", run, persistence.ErrNotFound)
		}
		held := t.lease(tenant, run)
		if t.err != nil {
			return persistence.Lease{}, nil, t.err
		}
		next, err := apply.Lease(held, ended == 1, dead, s.clock(), owner, ttl)
		if err != nil {
			return persistence.Lease{}, held, err
		}
		next.Tenant, next.Run = tenant, run
		t.exec(`INSERT INTO leases (tenant, run, owner, fence, until) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (tenant, run) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, until = excluded.until`,
			string(tenant), string(run), next.Owner, next.Fence, persistence.Micros(next.Until))
		return next, held, t.commit()
	})
}

// Renew implements persistence.Store.
func (s *Store) Renew(ctx context.Context, l persistence.Lease, ttl time.Duration) (persistence.Lease, error) {
	until := s.clock().Add(ttl).Truncate(time.Microsecond)
	n, err := s.mine(ctx, l, `UPDATE leases SET until = $5 WHERE tenant = $1 AND run = $2 AND owner = $3 AND fence = $4 RETURNING fence`, persistence.Micros(until))
	if err == nil && n == 0 {
		err = fmt.Errorf("run %s, fence %d: %w", l.Run, l.Fence, persistence.ErrFenced)
	}
	if err != nil {
		return persistence.Lease{}, err
	}
	l.Until = until
	return l, nil
}

// Release implements persistence.Store.
func (s *Store) Release(ctx context.Context, l persistence.Lease) error {
	_, err := s.mine(ctx, l, `UPDATE leases SET owner = '', until = $5 WHERE tenant = $1 AND run = $2 AND owner = $3 AND fence = $4 RETURNING fence`, 0)
	return err
}

// mine changes a lease that is still held by l's owner under l's fence, and says how many rows that were.
func (s *Store) mine(ctx context.Context, l persistence.Lease, q string, until int64) (int, error) {
	if l.Owner == "" {
		return 0, nil
	}
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	t, err := s.write.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer t.end()
	n := 0
	t.each(q, []any{string(l.Tenant), string(l.Run), l.Owner, l.Fence, until}, func(scan func(...any) error) error {
		n++
		return scan(new(int64))
	})
	return n, t.commit()
}
