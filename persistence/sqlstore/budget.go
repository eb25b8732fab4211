package sqlstore

import (
	"context"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Counter implements persistence.Store.
func (r Reads) Counter(ctx context.Context, t specs.TenantID, key persistence.CounterKey) (persistence.Counter, error) {
	c := persistence.Counter{Key: key}
	_, err := r.one(ctx, `SELECT lim, spent, reserved FROM counters WHERE tenant = $1 AND key = $2`, []any{string(t), string(key)},
		&c.Limit, &c.Spent, &c.Reserved)
	c.Left = c.Limit - c.Spent - c.Reserved
	return c, err
}

// Counters implements persistence.Store. The prefix is compared as text: % and _ are only themselves.
func (r Reads) Counters(ctx context.Context, t specs.TenantID, prefix string) ([]persistence.Counter, error) {
	var out []persistence.Counter
	err := r.each(ctx, `SELECT key, lim, spent, reserved FROM counters
		WHERE tenant = $1 AND key >= $2 AND substr(key, 1, length($2)) = $2 ORDER BY key`, []any{string(t), prefix},
		func(scan func(...any) error) error {
			var c persistence.Counter
			err := scan(&c.Key, &c.Limit, &c.Spent, &c.Reserved)
			c.Left = c.Limit - c.Spent - c.Reserved
			out = append(out, c)
			return err
		})
	return out, err
}

// Reservations implements persistence.Store.
func (r Reads) Reservations(ctx context.Context, t specs.TenantID, run specs.RunID) ([]persistence.Reservation, error) {
	var out []persistence.Reservation
	err := r.each(ctx, `SELECT call, counter, lim, amount, lease_until FROM reservations WHERE tenant = $1 AND run = $2 ORDER BY call, counter`,
		[]any{string(t), string(run)}, func(scan func(...any) error) error {
			var v persistence.Reservation
			var until int64
			err := scan(&v.Call, &v.Counter, &v.Limit, &v.Amount, &until)
			v.LeaseUntil = persistence.FromMicros(until)
			out = append(out, v)
			return err
		})
	return out, err
}
