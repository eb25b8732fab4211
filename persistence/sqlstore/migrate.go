package sqlstore

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Migration is one embedded file, migrations/0001_what_it_does.sql. A file that was released is never changed.
type Migration struct {
	Version int64
	Name    string
	SQL     string
}

// Migrations reads the embedded files in order: numbered from 1 without a gap.
func Migrations(fsys fs.FS) ([]Migration, error) {
	names, err := fs.Glob(fsys, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var out []Migration
	for i, path := range names {
		text, err := fs.ReadFile(fsys, path)
		if err != nil {
			return nil, err
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(path, "migrations/"), ".sql"), "_")
		if version, err := strconv.Atoi(number); err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s is not number %d", path, i+1)
		}
		out = append(out, Migration{Version: int64(i + 1), Name: name, SQL: string(text)})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no migrations")
	}
	return out, nil
}
