package sqlite

import (
	"fmt"
	"testing"
)

// Limit makes the disk as large as so many pages.
func (s *Store) Limit(t testing.TB, pages int) {
	t.Helper()
	tx, err := s.write.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx.end()
	if _, err := s.write.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
		t.Fatal(err)
	}
}
