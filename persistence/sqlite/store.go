// Package sqlite keeps a store in one file, for one machine: no server, nothing to install. Several processes may have
// it open at once; they write one after the other and read side by side.
//
// What you most likely want is [Open], which makes the file when it is missing:
//
//	store, err := sqlite.Open(ctx, ".callgate/store.db", sqlite.Options{})
//	if err != nil { ... }
//	defer store.Close()
//
// The promises are those of package persistence. A change that Apply acknowledged is on the disk (write-ahead log,
// synchronous=FULL). A file that is something else, or that a newer version wrote, is refused and not touched. A writer
// waits at most five seconds for another process, then answers persistence.ErrLocked.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlstore"
)

// Options are persistence.Options; the zero value is what a program wants.
type Options = persistence.Options

// busy is how long a statement waits for another process.
const busy = 5 * time.Second

// Store implements persistence.Store. Make one with Open.
type Store struct {
	sqlstore.Reads
	path    string
	now     func() time.Time
	readers *sql.DB
	write   *writer
}

var _ persistence.Store = (*Store)(nil)

// Open opens the store at path, makes it when the file is missing or empty, and brings an older one up to date.
// The folder must exist. Errors: ErrNotAStore, ErrNewerStore, ErrLocked, ErrDamaged, ErrRefused and
// ErrUnavailable (which wrap what the system said).
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	fail := func(err error) (*Store, error) { return nil, fmt.Errorf("store %s: %w", path, err) }
	if err := usable(path); err != nil {
		return fail(err)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fail(err)
	}
	s := &Store{path: path, now: o.Now}
	if s.now == nil {
		s.now = time.Now
	}
	write, err := sql.Open("sqlite", dsn(abs, "synchronous(FULL)", "foreign_keys(ON)"))
	if err != nil {
		return fail(err)
	}
	write.SetMaxOpenConns(1)
	s.write = &writer{db: write, path: abs, turn: make(chan struct{}, 1)}
	if s.write.file, err = os.Stat(abs); err == nil {
		err = s.write.migrate(ctx)
	}
	if err != nil {
		return fail(errors.Join(err, s.write.close()))
	}
	if s.readers, err = sql.Open("sqlite", dsn(abs, "query_only(ON)")); err != nil {
		return fail(errors.Join(err, s.write.close()))
	}
	s.readers.SetMaxOpenConns(4)
	s.readers.SetMaxIdleConns(4)
	s.Reads = sqlstore.Reads{DB: reading{s}}
	return s, nil
}

func dsn(path string, pragmas ...string) string {
	q := url.Values{"mode": {"rw"}} // a connection made later must not make a new file where ours was
	for _, p := range append(pragmas, fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds())) {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}).String()
}

// usable explains what a user can get wrong about a path better than the driver does, and makes a missing file.
func usable(path string) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		// Made here and not by the driver, which would let everybody on the machine read it.
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("%w: %w", reason(err), err)
		}
		return f.Close()
	case err != nil:
		return fmt.Errorf("%w: %w", reason(err), err)
	case info.IsDir():
		return fmt.Errorf("%w: it is a folder", persistence.ErrNotAStore)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is no regular file", persistence.ErrNotAStore)
	}
	return nil
}

// reason is the kind of what the system said about the file.
func reason(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return persistence.ErrRefused
	}
	return persistence.ErrUnavailable
}

// Close gives the file back. Changes under way are finished first.
func (s *Store) Close() error {
	return errors.Join(s.readers.Close(), s.write.close())
}

// Now implements persistence.Store: this machine's clock, or Options.Now.
func (s *Store) Now(context.Context) (time.Time, error) {
	return s.clock(), nil
}

func (s *Store) clock() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// reading lets sqlstore read from the pool of readers.
type reading struct{ s *Store }

func (r reading) Query(ctx context.Context, q string, args ...any) (sqlstore.Rows, error) {
	return r.s.readers.QueryContext(ctx, q, args...)
}
func (r reading) Err(err error) error                        { return translate(err) }
func (r reading) Now(ctx context.Context) (time.Time, error) { return r.s.Now(ctx) }
