package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID marks the file as ours in its header ("cgat").
const applicationID = 0x63676174

// migrate refuses what is not ours and brings what is ours up to date. Nothing is written before it is clear whose
// the file is.
func (w *writer) migrate(ctx context.Context) error {
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return translate(err)
	}
	current, err := inspect(ctx, conn)
	if err == nil {
		// Outside of any transaction, and kept by the file from then on.
		_, err = conn.ExecContext(ctx, `PRAGMA journal_mode = WAL`)
	}
	if closed := conn.Close(); err == nil {
		err = closed
	}
	if err != nil || current {
		return translate(err)
	}
	t, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer t.end()
	files, err := sqlstore.Migrations(migrations)
	if err != nil {
		return err
	}
	t.exec(fmt.Sprintf(`PRAGMA application_id = %d`, applicationID))
	t.exec(`CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT`)
	var version int64
	t.one(`SELECT coalesce(max(version), 0) FROM schema_version`, nil, &version)
	for _, m := range files {
		if m.Version > version && t.err == nil {
			if _, err := t.w.conn.ExecContext(ctx, m.SQL); err != nil {
				return fmt.Errorf("migration %s: %w", m.Name, translate(err))
			}
			t.exec(`INSERT INTO schema_version (version, name) VALUES ($1, $2)`, m.Version, m.Name)
		}
	}
	t.law()
	return t.commit()
}

// inspect says whether the file is a store of this version with the whole law in it, so that opening it needs no
// lock. It refuses what is not ours, and what a newer program wrote.
func inspect(ctx context.Context, conn *sql.Conn) (current bool, err error) {
	var id, tables int64
	if err := conn.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&id); err != nil {
		return false, err
	}
	if err := conn.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&tables); err != nil {
		return false, err
	}
	switch {
	case id != applicationID && (id != 0 || tables > 0):
		return false, persistence.ErrNotAStore
	case tables == 0:
		return false, nil
	}
	var version int64
	if err := conn.QueryRowContext(ctx, `SELECT max(version) FROM schema_version`).Scan(&version); err != nil {
		return false, fmt.Errorf("%w: %v", persistence.ErrNotAStore, err)
	}
	files, err := sqlstore.Migrations(migrations)
	if err != nil {
		return false, err
	}
	newest := files[len(files)-1].Version
	if version > newest {
		return false, fmt.Errorf("%w: its schema is %d, this program knows %d", persistence.ErrNewerStore, version, newest)
	}
	if version < newest {
		return false, nil
	}
	for _, s := range sqlstore.Law() {
		var held bool
		err := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM transitions WHERE machine = $1 AND from_state = $2 AND event = $3 AND to_state = $4 AND journal = $5)`,
			s.Machine, string(s.From), string(s.Event), string(s.To), s.Journal).Scan(&held)
		if err != nil || !held {
			return false, err
		}
	}
	return true, nil
}

// law brings the transitions table to what the machine room says. Edges that are not known any more stay: what
// happened under them was lawful then. One whose target or journal kind is another now gives way, unless lines refer to
// it: then the foreign key stops us, and the change needs a migration of its own.
func (t *tx) law() {
	held := map[machine.Step]bool{}
	t.each(`SELECT machine, from_state, event, to_state, journal FROM transitions`, nil, func(scan func(...any) error) error {
		var s machine.Step
		err := scan(&s.Machine, &s.From, &s.Event, &s.To, &s.Journal)
		held[s] = true
		return err
	})
	for _, s := range sqlstore.Law() {
		if held[s] || t.err != nil {
			continue
		}
		t.exec(`DELETE FROM transitions WHERE machine = $1 AND from_state = $2 AND event = $3`, s.Machine, string(s.From), string(s.Event))
		t.exec(`INSERT INTO transitions (machine, from_state, event, to_state, journal) VALUES ($1, $2, $3, $4, $5)`,
			s.Machine, string(s.From), string(s.Event), string(s.To), s.Journal)
		if t.err != nil {
			t.err = fmt.Errorf("the law has changed where lines were already written under it, at %s %v: %w", s.Machine, s, t.err)
		}
	}
}
