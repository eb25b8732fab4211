package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlstore"
)

// triggers and keys without which the database would not repeat the law.
var guards = []string{"subjects_birth", "subjects_move", "subjects_law_birth", "subjects_law_move",
	"journal_update", "journal_delete", "journal_replace", "journal_law"}

// Doctor implements persistence.Store.
func (s *Store) Doctor(ctx context.Context) ([]persistence.Ailment, error) {
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	var out []persistence.Ailment
	ill := func(what, fix string) { out = append(out, persistence.Ailment{What: what, Fix: fix}) }
	if err := s.damage(ctx, ill); err != nil {
		return nil, err
	}
	if err := s.guarded(ctx, ill); err != nil {
		return nil, err
	}
	// Settings belong to a connection; the writer's are the ones that count.
	closed := func(err error) bool {
		if !errors.Is(err, persistence.ErrRefused) {
			return false
		}
		ill("it can be read but not written: "+err.Error(), fmt.Sprintf("give this user the right to write %s, %[1]s-wal, %[1]s-shm and their folder", s.path))
		return true
	}
	t, err := s.write.begin(ctx)
	if closed(err) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer t.end()
	for _, set := range []struct{ name, want string }{{"journal_mode", "wal"}, {"synchronous", "2"}, {"foreign_keys", "1"}} {
		var got string
		if t.one(`PRAGMA `+set.name, nil, &got) && !strings.EqualFold(got, set.want) {
			ill(fmt.Sprintf("%s is %s, not %s", set.name, got, set.want), "PRAGMA "+set.name+" = "+set.want)
		}
	}
	// A file that may only be read lets a transaction begin; the first write is refused. It is undone with the rest.
	if t.exec(`UPDATE schema_version SET version = version`); closed(t.err) {
		t.err = nil
	}
	if t.err != nil {
		return nil, t.err
	}
	missing, foreign, err := s.MissingTransitions(ctx)
	for _, step := range missing {
		ill(fmt.Sprintf("the law lacks the edge %s %v", step.Machine, step), "open the store with this program once more")
	}
	for _, step := range foreign {
		ill(fmt.Sprintf("the law holds an edge that this program does not know: %s %v", step.Machine, step),
			"an older program's edge may stay; otherwise find out who added it")
	}
	return out, err
}

// damage asks SQLite about the file, on a reader: a writer must not wait for it.
func (s *Store) damage(ctx context.Context, ill func(what, fix string)) error {
	rows, err := s.readers.QueryContext(ctx, `SELECT quick_check FROM pragma_quick_check() WHERE quick_check <> 'ok'
		UNION ALL SELECT 'a row of ' || "table" || ' refers to a row of ' || parent || ' that is not there' FROM pragma_foreign_key_check() LIMIT 20`)
	if err != nil {
		return translate(err)
	}
	defer rows.Close()
	for rows.Next() {
		var what string
		if err := rows.Scan(&what); err != nil {
			return translate(err)
		}
		ill("the file is damaged: "+what, "callgate journal verify; then restore a backup, or salvage what is left: sqlite3 "+s.path+" .recover")
	}
	return translate(rows.Err())
}

// guarded looks whether every trigger is there, and says what the migration made it say.
func (s *Store) guarded(ctx context.Context, ill func(what, fix string)) error {
	files, err := sqlstore.Migrations(migrations)
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, m := range files {
		all.WriteString(m.SQL)
	}
	for _, name := range guards {
		var text string
		err := s.readers.QueryRowContext(ctx, `SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = $1`, name).Scan(&text)
		const fix = "create it again as persistence/sqlite/migrations says"
		switch {
		case errors.Is(err, sql.ErrNoRows):
			ill("trigger "+name+" is missing, so the file does not defend itself", fix)
		case err != nil:
			return translate(err)
		case !strings.Contains(all.String(), text):
			ill("trigger "+name+" was changed, so the file does not defend itself", "DROP TRIGGER "+name+", and "+fix)
		}
	}
	return nil
}
