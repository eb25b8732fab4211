package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/callgate/callgate/persistence"
)

// triggers and keys without which the database would not repeat the law.
var guards = []string{"subjects_birth", "subjects_move", "subjects_law_birth", "subjects_law_move",
	"journal_update", "journal_delete", "journal_replace", "journal_law"}

// Doctor implements persistence.Store.
func (s *Store) Doctor(ctx context.Context) ([]persistence.Ailment, error) {
	var out []persistence.Ailment
	ill := func(what, fix string) { out = append(out, persistence.Ailment{What: what, Fix: fix}) }

	t, err := s.write.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer t.end()
	t.each(`PRAGMA quick_check(5)`, nil, func(scan func(...any) error) error {
		var line string
		err := scan(&line)
		if err == nil && line != "ok" {
			ill("the file is damaged: "+line, "restore it from a backup, or salvage what is left: sqlite3 "+s.path+" .recover")
		}
		return err
	})
	t.each(`PRAGMA foreign_key_check`, nil, func(scan func(...any) error) error {
		var table, parent string
		var row, key any
		err := scan(&table, &row, &parent, &key)
		if err == nil {
			ill(fmt.Sprintf("a row of %s refers to a row of %s that is not there", table, parent), "find out who wrote it by hand: callgate journal verify")
		}
		return err
	})
	for _, name := range guards {
		var sql string
		if !t.one(`SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = $1`, []any{name}, &sql) {
			ill("trigger "+name+" is missing, so the file does not defend itself", "create it again as persistence/sqlite/migrations/0001_store.sql does")
		}
	}
	for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got string
		if t.one(`PRAGMA `+name, nil, &got) && !strings.EqualFold(got, want) {
			ill(fmt.Sprintf("%s is %s, not %s", name, got, want), "PRAGMA "+name+" = "+want)
		}
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
