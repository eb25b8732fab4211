// Package sqlstore is what the two adapters have in common: every read of persistence.Store, in SQL that both
// databases understand. What you most likely want is one of the packages sqlite and postgres; this one has no driver
// and cannot open anything. An adapter embeds [Reads]:
//
//	reads := sqlstore.Reads{DB: db} // db: two methods over a driver
//	run, err := reads.Run(ctx, tenant, id)
//
// The promises: every statement names its tenant (but for Due, which is the system's own), is bounded in time
// even when the context is not, and that what a user typed is only ever an argument, never SQL and never a pattern.
package sqlstore

import (
	"context"
	"time"
)

// DB runs one statement outside of any transaction. Placeholders are $1, $2, ...
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (Rows, error)
	// Err turns a driver's error into one of package persistence's; nil stays nil.
	Err(err error) error
	// Now is the store's clock.
	Now(ctx context.Context) (time.Time, error)
}

// Rows is the part of database/sql.Rows that reading needs.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// StatementTimeout bounds a statement whose context has no deadline.
const StatementTimeout = 30 * time.Second

// Bound gives a context that ends at the latest after StatementTimeout.
func Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, StatementTimeout)
}

// Reads answers the reading half of persistence.Store.
type Reads struct{ DB DB }

// each runs a query and hands every row to scan.
func (r Reads) each(ctx context.Context, sql string, args []any, scan func(scan func(...any) error) error) error {
	ctx, cancel := Bound(ctx)
	defer cancel()
	rows, err := r.DB.Query(ctx, sql, args...)
	if err != nil {
		return r.DB.Err(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows.Scan); err != nil {
			return r.DB.Err(err)
		}
	}
	return r.DB.Err(rows.Err())
}

// one runs a query that answers at most one row, and says whether it did.
func (r Reads) one(ctx context.Context, sql string, args []any, dest ...any) (bool, error) {
	found := false
	err := r.each(ctx, sql, args, func(scan func(...any) error) error {
		found = true
		return scan(dest...)
	})
	return found, err
}
