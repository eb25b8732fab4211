package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

// gate is the key of the advisory lock under which one process migrates and others wait ("callgate").
const gate = 0x63616c6c67617465

// Migrate makes the schema, or brings it up to date, and fills the law from the machine room. It is safe to call from
// several processes at once. Errors: ErrNewerStore, ErrNotAStore, ErrRefused, ErrUnavailable.
func Migrate(ctx context.Context, dsn string) error {
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	pool, err := pgxpool.ParseConfig(dsn) // the same address serves Open, which may hold settings of the pool
	if err != nil {
		return translate(err)
	}
	cfg := pool.ConnConfig
	settings(cfg)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return translate(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	files, err := sqlstore.Migrations(migrations)
	if err != nil {
		return err
	}
	return translate(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(gate)); err != nil {
			return err
		}
		version, err := schemaVersion(ctx, tx)
		switch {
		case errors.Is(err, persistence.ErrNotMigrated):
			if _, err := tx.Exec(ctx, `CREATE SCHEMA callgate; CREATE TABLE schema_version (version BIGINT PRIMARY KEY, name TEXT NOT NULL)`); err != nil {
				return err
			}
		case err != nil:
			return err
		}
		if newest := files[len(files)-1].Version; version > newest {
			return newer(version, newest)
		}
		for _, m := range files {
			if m.Version <= version {
				continue
			}
			if _, err := tx.Exec(ctx, m.SQL); err != nil {
				return fmt.Errorf("migration %s: %w", m.Name, err)
			}
			if _, err := tx.Exec(ctx, `INSERT INTO schema_version (version, name) VALUES ($1, $2)`, m.Version, m.Name); err != nil {
				return err
			}
		}
		return law(ctx, tx)
	}))
}

func newer(version, newest int64) error {
	return fmt.Errorf("%w: its schema is %d, this program knows %d", persistence.ErrNewerStore, version, newest)
}

// law adds the edges that the database does not hold yet. Edges that are not known any more stay: what happened
// under them was lawful then. One whose target or journal kind is another now gives way, unless lines refer to it: then
// the foreign key stops us, and the change needs a migration of its own.
func law(ctx context.Context, tx pgx.Tx) error {
	edges := sqlstore.Law()
	col := func(text func(machine.Step) string) []string { return texts(edges, text) }
	args := []any{col(func(s machine.Step) string { return s.Machine }), col(func(s machine.Step) string { return string(s.From) }),
		col(func(s machine.Step) string { return string(s.Event) }), col(func(s machine.Step) string { return string(s.To) }),
		col(func(s machine.Step) string { return s.Journal })}
	const rows = `unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])`
	_, err := tx.Exec(ctx, `DELETE FROM transitions t USING `+rows+` AS n (machine, from_state, event, to_state, journal)
		WHERE t.machine = n.machine AND t.from_state = n.from_state AND t.event = n.event AND (t.to_state <> n.to_state OR t.journal <> n.journal)`, args...)
	if err == nil {
		_, err = tx.Exec(ctx, `INSERT INTO transitions (machine, from_state, event, to_state, journal) SELECT * FROM `+rows+` ON CONFLICT DO NOTHING`, args...)
	}
	if err != nil {
		return fmt.Errorf("the law, which may have changed where lines were already written under it: %w", err)
	}
	return nil
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// schemaVersion reads the version of the store; ErrNotMigrated when there is none, ErrNotAStore when something
// else has the schema's name.
func schemaVersion(ctx context.Context, q querier) (int64, error) {
	var schema, table bool
	err := q.QueryRow(ctx, `SELECT to_regnamespace('callgate') IS NOT NULL, to_regclass('callgate.schema_version') IS NOT NULL`).Scan(&schema, &table)
	switch {
	case err != nil:
		return 0, translate(err)
	case !schema:
		return 0, persistence.ErrNotMigrated
	case !table:
		return 0, fmt.Errorf("%w: the schema callgate has no schema_version", persistence.ErrNotAStore)
	}
	var version int64
	if err := q.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM callgate.schema_version`).Scan(&version); err != nil {
		return 0, translate(err)
	}
	return version, nil
}

// migrated refuses to work on a schema that is not exactly the one this program knows, or that lacks a part of the law.
func (s *Store) migrated(ctx context.Context) error {
	version, err := schemaVersion(ctx, s.pool)
	if err != nil {
		return err
	}
	files, err := sqlstore.Migrations(migrations)
	if err != nil {
		return err
	}
	newest := files[len(files)-1].Version
	switch {
	case version > newest:
		return newer(version, newest)
	case version < newest:
		return fmt.Errorf("%w: its schema is %d, this program needs %d", persistence.ErrNotMigrated, version, newest)
	}
	missing, _, err := s.MissingTransitions(ctx)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%w: the law lacks %s %v and %d more", persistence.ErrNotMigrated, missing[0].Machine, missing[0], len(missing)-1)
	}
	return err
}
