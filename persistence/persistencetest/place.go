package persistencetest

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/postgres"
	"github.com/callgate/callgate/persistence/sqlite"
)

// Place is one database. It can be opened several times, as several processes would, and reached past the store.
type Place interface {
	// Open gives a store on the place and closes it when the test ends.
	Open(t testing.TB, o persistence.Options) persistence.Store
	// Exec runs SQL past the store, with placeholders $1, $2, ...
	Exec(t testing.TB, statement string, args ...any) error
	// Disarm takes away everything with which the database defends itself: triggers, foreign keys, checks.
	Disarm(t testing.TB)
	// Name lets a child process open the same place: sqlite:PATH or postgres://...
	Name() string
}

// Make gives a new, empty place.
type Make func(t testing.TB) Place

// SQLite makes a store in a temporary file.
func SQLite(t testing.TB) Place {
	t.Helper()
	return sqlitePlace(filepath.Join(t.TempDir(), "store.db"))
}

// OnPostgres makes a store in a fresh database of the private server.
func OnPostgres(t testing.TB) Place {
	t.Helper()
	return postgresPlace(Postgres(t))
}

// OpenNamed opens a place by the Name of another process.
func OpenNamed(ctx context.Context, name string) (persistence.Store, error) {
	if path, ok := strings.CutPrefix(name, "sqlite:"); ok {
		return sqlite.Open(ctx, path, sqlite.Options{})
	}
	return postgres.Open(ctx, name, postgres.Options{})
}

type sqlitePlace string

func (p sqlitePlace) Name() string { return "sqlite:" + string(p) }

func (p sqlitePlace) Open(t testing.TB, o persistence.Options) persistence.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), string(p), o)
	return opened(t, s, err)
}

func opened(t testing.TB, s persistence.Store, err error) persistence.Store {
	t.Helper()
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func (p sqlitePlace) raw(t testing.TB, work func(context.Context, *sql.DB) error) error {
	t.Helper()
	db, err := sql.Open("sqlite", string(p)+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return work(ctx, db)
}

func (p sqlitePlace) Exec(t testing.TB, statement string, args ...any) error {
	t.Helper()
	return p.raw(t, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement, args...)
		return err
	})
}

// Disarm drops the triggers. Foreign keys are off on every connection that does not ask for them, and a table's
// CHECKs bind no tamperer that the tests play.
func (p sqlitePlace) Disarm(t testing.TB) {
	t.Helper()
	err := p.raw(t, func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, `SELECT name FROM sqlite_schema WHERE type = 'trigger'`)
		if err != nil {
			return err
		}
		var names []string
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			names = append(names, name)
		}
		if err := rows.Close(); err != nil {
			return err
		}
		for _, name := range names {
			if _, err := db.ExecContext(ctx, "DROP TRIGGER "+name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

type postgresPlace string

func (p postgresPlace) Name() string { return string(p) }

func (p postgresPlace) Open(t testing.TB, o persistence.Options) persistence.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), string(p), o)
	return opened(t, s, err)
}

func (p postgresPlace) Exec(t testing.TB, statement string, args ...any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, strings.Replace(string(p), "&pool_max_conns=8", "", 1)+"&search_path=callgate")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement, args...)
	return err
}

func (p postgresPlace) Disarm(t testing.TB) {
	t.Helper()
	err := p.Exec(t, `DO $$
DECLARE r record;
BEGIN
	FOR r IN SELECT conrelid::regclass AS tab, conname FROM pg_constraint WHERE contype IN ('f', 'c') AND connamespace = 'callgate'::regnamespace LOOP
		EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', r.tab, r.conname);
	END LOOP;
	FOR r IN SELECT tgrelid::regclass AS tab, tgname FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
		WHERE c.relnamespace = 'callgate'::regnamespace AND NOT tgisinternal LOOP
		EXECUTE format('DROP TRIGGER %I ON %s', r.tgname, r.tab);
	END LOOP;
END $$`)
	if err != nil {
		t.Fatal(fmt.Errorf("disarm: %w", err))
	}
}
