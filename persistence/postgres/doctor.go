package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlstore"
)

// guards are the triggers without which the database would not repeat the law.
var guards = []string{"subjects_birth", "subjects_move", "journal_update", "journal_delete", "journal_truncate"}

// lawful are the tables that only a migration writes.
var lawful = []string{"schema_version", "transitions"}

// Doctor implements persistence.Store.
func (s *Store) Doctor(ctx context.Context) ([]persistence.Ailment, error) {
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	var out []persistence.Ailment
	ill := func(what, fix string) { out = append(out, persistence.Ailment{What: what, Fix: fix}) }

	on := map[string]string{}
	var b pgx.Batch
	b.Queue(`SELECT t.tgname, c.relname, t.tgenabled::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
		WHERE c.relnamespace = to_regnamespace('callgate') AND NOT t.tgisinternal`).Query(func(r pgx.Rows) error {
		return each(r, func() error {
			var name, table, enabled string
			err := r.Scan(&name, &table, &enabled)
			on[name] = enabled
			if enabled == "D" || enabled == "R" {
				ill("trigger "+name+" is switched off, so the database does not defend itself", fmt.Sprintf("ALTER TABLE callgate.%s ENABLE TRIGGER %s", table, name))
			}
			return err
		})
	})
	keys := map[string]bool{}
	b.Queue(`SELECT c.relname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
		WHERE k.contype = 'f' AND k.convalidated AND k.confrelid = to_regclass('callgate.transitions')`).Query(func(r pgx.Rows) error {
		return each(r, func() error {
			var table string
			err := r.Scan(&table)
			keys[table] = true
			return err
		})
	})
	for name, want := range map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"} {
		b.Queue(`SELECT current_setting($1)`, name).QueryRow(func(r pgx.Row) error {
			var got string
			err := r.Scan(&got)
			if err == nil && got == "off" {
				ill(fmt.Sprintf("%s is off: a change that was acknowledged can be lost", name), "ALTER SYSTEM SET "+name+" = "+want)
			}
			return err
		})
	}
	b.Queue(`SELECT current_user::text, coalesce(string_agg(c.relname, ', ' ORDER BY c.relname), ''), current_setting('transaction_read_only')
		FROM pg_class c WHERE c.relnamespace = to_regnamespace('callgate') AND c.relkind = 'r' AND c.relname <> ALL ($1)
		AND NOT has_table_privilege(c.oid, 'INSERT')`, lawful).QueryRow(func(r pgx.Row) error {
		var user, closed, readOnly string
		err := r.Scan(&user, &closed, &readOnly)
		if closed != "" {
			ill(fmt.Sprintf("%s can read but not write %s", user, closed), "GRANT INSERT, UPDATE, DELETE ON the tables TO "+pgx.Identifier{user}.Sanitize())
		}
		if readOnly == "on" {
			ill("the server takes no changes: it is a standby, or default_transaction_read_only is on", "name the server that takes changes")
		}
		return err
	})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, translate(err)
	}
	const again = "create it again as persistence/postgres/migrations/0001_store.sql does"
	for _, name := range guards {
		if _, ok := on[name]; !ok {
			ill("trigger "+name+" is missing, so the database does not defend itself", again)
		}
	}
	for _, table := range []string{"journal", "subjects"} {
		if !keys[table] {
			ill("the foreign key from "+table+" to transitions is missing", again)
		}
	}
	missing, foreign, err := s.MissingTransitions(ctx)
	for _, step := range missing {
		ill(fmt.Sprintf("the law lacks the edge %s %v", step.Machine, step), "callgate migrate")
	}
	for _, step := range foreign {
		ill(fmt.Sprintf("the law holds an edge that this program does not know: %s %v", step.Machine, step),
			"an older or newer program's edge may stay; otherwise find out who added it")
	}
	return out, err
}
