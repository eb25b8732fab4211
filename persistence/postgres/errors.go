package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/callgate/callgate/persistence"
)

// errRepeat marks what Postgres asks to be tried again: a serialisation failure or a deadlock.
var errRepeat = errors.New("the transaction must be repeated")

// translate turns an error of the driver into one of package persistence's. Errors that are ours already stay as they are,
// and so does the caller's own cancel. A time that ran out is a server that does not answer.
func translate(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, errRepeat), persistence.OutOfOrder(err):
		return err
	case errors.As(err, &pg):
		return fmt.Errorf("%w: %w", kindOf(pg), err)
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, persistence.ErrCorrupt), errors.Is(err, persistence.ErrNotMigrated),
		errors.Is(err, persistence.ErrNewerStore), errors.Is(err, persistence.ErrNotAStore):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: it did not answer in time: %w", persistence.ErrUnavailable, err)
	}
	var address *pgconn.ParseConfigError
	if errors.As(err, &address) {
		return fmt.Errorf("%w: %w", persistence.ErrRefused, err)
	}
	// Everything else that pgx reports is about the connection: refused, reset, closed, not there.
	return fmt.Errorf("%w: %w", persistence.ErrUnavailable, err)
}

func kindOf(e *pgconn.PgError) error {
	switch e.Code {
	case "40001", "40P01":
		return errRepeat
	case "53100":
		return persistence.ErrFull
	case "55P03":
		return persistence.ErrLocked
	case "42P01", "3F000", "42703":
		return persistence.ErrNotMigrated
	case "23503", "P0001": // no such edge; one of our triggers
		return persistence.ErrIllegal
	case "XX001", "XX002":
		return persistence.ErrDamaged
	case "42501", "3D000", "25006": // no right, no such database, read-only
		return persistence.ErrRefused
	}
	switch {
	case strings.HasPrefix(e.Code, "23"):
		return persistence.ErrConflict
	case strings.HasPrefix(e.Code, "28"): // user or password
		return persistence.ErrRefused
	}
	return persistence.ErrUnavailable
}
