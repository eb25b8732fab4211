// Package postgres keeps a store in a Postgres database that many processes on many machines share.
//
// What you most likely want is [Migrate] once per release, by whoever may change the schema, and [Open] in every process:
//
//	if err := postgres.Migrate(ctx, dsn); err != nil { ... }
//	store, err := postgres.Open(ctx, dsn, postgres.Options{})
//	if err != nil { ... }
//	defer store.Close()
//
// The promises are those of package persistence. A change costs two round trips, the second of which carries the commit.
// When the connection is lost in the middle of that, Apply finds out on a fresh one whether the change was committed,
// before it answers. Time is the server's, so that processes agree on who is late. Everything is in the schema "callgate".
package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlstore"
)

// Options are persistence.Options; the zero value is what a program wants.
type Options = persistence.Options

// Store implements persistence.Store. Make one with Open.
type Store struct {
	sqlstore.Reads
	pool *pgxpool.Pool
	now  func() time.Time // nil: the server's clock
}

var _ persistence.Store = (*Store)(nil)

// Open connects to a migrated store. The dsn is what libpq takes, a URL or key=value words; pool_max_conns and
// its like are pgx's. Errors: ErrNotMigrated, ErrNewerStore, ErrNotAStore, ErrRefused, ErrUnavailable.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, translate(err)
	}
	settings(cfg.ConnConfig)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, translate(err)
	}
	s := &Store{pool: pool, now: o.Now}
	s.Reads = sqlstore.Reads{DB: reading{s}}
	if err := s.migrated(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// settings are what every connection of ours has.
func settings(c *pgx.ConnConfig) {
	c.RuntimeParams["search_path"] = "callgate"
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "callgate"
	}
	// A process that is frozen between two round trips would hold a run's lock until TCP gives up.
	c.RuntimeParams["idle_in_transaction_session_timeout"] = "60000"
}

// Close ends all connections, after the statements under way.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

const clock = `SELECT clock_timestamp()`

// Now implements persistence.Store: the server's clock, or Options.Now.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if s.now != nil {
		return s.now().UTC().Truncate(time.Microsecond), nil
	}
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	var now time.Time
	err := s.pool.QueryRow(ctx, clock).Scan(&now)
	return now.UTC(), translate(err)
}

// reading lets sqlstore read from the pool.
type reading struct{ s *Store }

func (r reading) Query(ctx context.Context, q string, args ...any) (sqlstore.Rows, error) {
	found, err := r.s.pool.Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	return rows{found}, nil
}
func (r reading) Err(err error) error                        { return translate(err) }
func (r reading) Now(ctx context.Context) (time.Time, error) { return r.s.Now(ctx) }

// rows gives pgx's rows the Close of database/sql.
type rows struct{ pgx.Rows }

func (r rows) Close() error {
	r.Rows.Close()
	return nil
}
