package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlstore"
)

// writer is the one connection that writes. turn holds its user's token: SQLite has one writer at a time, and
// queueing here is fair and ends with the context, where waiting for the file lock is neither.
type writer struct {
	db    *sql.DB
	path  string
	file  os.FileInfo // what was opened
	turn  chan struct{}
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// tx is a transaction on the writer. It remembers its first error, so that a row of statements reads straight.
type tx struct {
	w   *writer
	ctx context.Context // the caller's; asked once more before the commit
	// sql is what statements run under: the caller's context while the file lock is waited for, and then one that
	// does not end. From there on everything is local and short, and watching a context costs two goroutines a statement.
	sql context.Context
	err error
}

// begin takes the turn and the file's write lock. The caller must call end or commit.
func (w *writer) begin(ctx context.Context) (*tx, error) {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: waiting for the writer: %w", persistence.ErrLocked, ctx.Err())
	}
	if err := w.present(); err != nil {
		<-w.turn
		return nil, err
	}
	t := &tx{w: w, ctx: ctx, sql: ctx}
	if w.conn == nil {
		conn, err := w.db.Conn(ctx)
		if err != nil {
			<-w.turn
			return nil, translate(err)
		}
		w.conn, w.stmts = conn, map[string]*sql.Stmt{}
	}
	if t.exec("BEGIN IMMEDIATE"); t.err != nil {
		err := t.err
		t.end()
		return nil, err
	}
	t.sql = context.WithoutCancel(ctx)
	return t, nil
}

// present says whether the file is still where it was opened. The system would let us write on to one that was removed, where
// nobody finds it again, and beside one that was put in its place, whose log we share.
func (w *writer) present() error {
	now, err := os.Stat(w.path)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", reason(err), err)
	case !os.SameFile(w.file, now):
		return fmt.Errorf("%w: another file was put in the place of %s", persistence.ErrUnavailable, w.path)
	}
	return nil
}

// end undoes whatever was not committed and gives the turn back. It works under a context of its own: the caller's
// may be the reason why we are here.
func (t *tx) end() {
	if t.w == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sqlstore.StatementTimeout)
	defer cancel()
	w := t.w
	t.w = nil
	if _, err := w.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		// Either there is no transaction any more, which SQLite sees to itself when the disk is full, or the
		// connection is beyond repair. A new one is right in both cases.
		w.drop()
	}
	<-w.turn
}

// commit makes the transaction true, unless the caller has given up. It is not interrupted half-way: after it there
// is always a clear answer.
func (t *tx) commit() error {
	if t.err == nil {
		t.err = t.ctx.Err()
	}
	t.exec("COMMIT")
	if t.err != nil {
		err := t.err
		t.end()
		return err
	}
	w := t.w
	t.w = nil
	<-w.turn
	return nil
}

// drop closes the connection; the next begin makes a new one.
func (w *writer) drop() {
	for _, s := range w.stmts {
		_ = s.Close()
	}
	_ = w.conn.Close()
	// database/sql would hand the same connection out again.
	w.db.SetMaxIdleConns(0)
	w.db.SetMaxIdleConns(1)
	w.conn, w.stmts = nil, nil
}

func (w *writer) close() error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	if w.conn != nil {
		w.drop()
	}
	return w.db.Close()
}

func (t *tx) prepared(q string) *sql.Stmt {
	if s, ok := t.w.stmts[q]; ok {
		return s
	}
	s, err := t.w.conn.PrepareContext(t.sql, q)
	if err != nil {
		t.err = translate(err)
		return nil
	}
	t.w.stmts[q] = s
	return s
}

func (t *tx) exec(q string, args ...any) {
	if t.err != nil {
		return
	}
	if s := t.prepared(q); s != nil {
		if _, err := s.ExecContext(t.sql, args...); err != nil {
			t.err = translate(err)
		}
	}
}

// one reads at most one row and says whether there was one.
func (t *tx) one(q string, args []any, dest ...any) bool {
	found := false
	t.each(q, args, func(scan func(...any) error) error {
		found = true
		return scan(dest...)
	})
	return found && t.err == nil
}

func (t *tx) each(q string, args []any, row func(scan func(...any) error) error) {
	if t.err != nil {
		return
	}
	s := t.prepared(q)
	if s == nil {
		return
	}
	rows, err := s.QueryContext(t.sql, args...)
	if err != nil {
		t.err = translate(err)
		return
	}
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			t.err = translate(err)
			break
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil && t.err == nil {
		t.err = translate(err)
	}
}
