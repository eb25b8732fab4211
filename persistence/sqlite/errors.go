package sqlite

import (
	"context"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/callgate/callgate/persistence"
)

// translate turns an error of the driver into one of package persistence's.
func translate(err error) error {
	var e *driver.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	var kind error
	switch e.Code() & 0xff {
	case lib.SQLITE_FULL:
		kind = persistence.ErrFull
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		kind = persistence.ErrLocked
	case lib.SQLITE_NOTADB:
		kind = persistence.ErrNotAStore
	case lib.SQLITE_CORRUPT:
		kind = persistence.ErrDamaged
	case lib.SQLITE_INTERRUPT:
		kind = context.Canceled
	case lib.SQLITE_CONSTRAINT:
		// Decide has looked at everything first; the database repeats the law for those who come by another door.
		kind = persistence.ErrConflict
		if e.Code() == lib.SQLITE_CONSTRAINT_FOREIGNKEY || e.Code() == lib.SQLITE_CONSTRAINT_TRIGGER {
			kind = persistence.ErrIllegal
		}
	case lib.SQLITE_READONLY, lib.SQLITE_PERM, lib.SQLITE_CANTOPEN:
		kind = persistence.ErrRefused
	default: // IOERR, PROTOCOL, NOMEM, ...
		kind = persistence.ErrUnavailable
	}
	return fmt.Errorf("%w: %w", kind, err)
}
