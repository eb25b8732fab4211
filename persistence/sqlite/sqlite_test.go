package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlite"
	"github.com/callgate/callgate/specs"
)

// birth is the smallest change there is.
func birth(run string) persistence.Change {
	r := &persistence.Run{ID: specs.RunID(run)}
	return persistence.Change{Tenant: "acme", Run: r.ID, Key: "create",
		Lines: []persistence.Entry{{Move: &persistence.Move{Step: machine.Run().Birth(), Record: r}}}}
}

func open(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	return db
}

func exec(t *testing.T, db *sql.DB, q string) {
	t.Helper()
	if _, err := db.Exec(q); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := filepath.Join(dir, "foreign.db")
	exec(t, raw(t, foreign), `CREATE TABLE journal (x)`)
	marked := filepath.Join(dir, "marked.db")
	exec(t, raw(t, marked), `PRAGMA application_id = 42`)
	named := filepath.Join(dir, "named.db")
	exec(t, raw(t, named), fmt.Sprintf(`PRAGMA application_id = %d`, 0x63676174))
	exec(t, raw(t, named), `CREATE TABLE other (x)`)
	newer := filepath.Join(dir, "newer.db")
	if s := open(t, newer); s.Close() != nil {
		t.Fatal("close")
	}
	exec(t, raw(t, newer), `INSERT INTO schema_version (version, name) VALUES (99, 'tomorrow')`)

	for _, c := range []struct {
		name, path string
		want       error
	}{
		{"text", write("text.db", "this is no database, but it is long enough to look like one to a hasty reader"), persistence.ErrNotAStore},
		{"binary", write("binary.db", strings.Repeat("\x00\xff\x13", 5000)), persistence.ErrNotAStore},
		{"another program's database", foreign, persistence.ErrNotAStore},
		{"marked by another program", marked, persistence.ErrNotAStore},
		{"our mark and not our tables", named, persistence.ErrNotAStore},
		{"a folder", dir, persistence.ErrNotAStore},
		{"a newer version", newer, persistence.ErrNewerStore},
		{"a missing folder", filepath.Join(dir, "none", "x.db"), fs.ErrNotExist},
	} {
		before, _ := os.ReadFile(c.path)
		_, err := sqlite.Open(t.Context(), c.path, sqlite.Options{})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v, want %v with the path", c.name, err, c.want)
		}
		if after, _ := os.ReadFile(c.path); string(after) != string(before) {
			t.Errorf("%s: the file was touched", c.name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder was made")
	}
	if s := open(t, write("empty.db", "")); s == nil {
		t.Error("an empty file is a fine place for a store")
	}
}

func TestOpenMakesAPrivateFileWithAnyName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain.db", "a b%20?x=1#y&.db", "ü'\".db", ":memory:"} {
		path := filepath.Join(t.TempDir(), name)
		s := open(t, path)
		if _, err := s.Apply(t.Context(), birth("1")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", name, info.Mode())
		}
		if again := open(t, path); again != nil {
			if _, err := again.Run(t.Context(), "acme", birth("1").Run); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestManyOpenANewFileAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer s.Close()
			if _, err := s.Apply(t.Context(), birth(fmt.Sprint(i))); err != nil {
				t.Errorf("apply: %v", err)
			}
		})
	}
	all.Wait()
	report, err := persistence.VerifyAll(t.Context(), open(t, path), "acme")
	if err != nil || !report.OK() || report.Runs != 6 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestLockedByAnotherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, path)
	other := raw(t, path)
	exec(t, other, `BEGIN IMMEDIATE`)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := s.Apply(ctx, birth("1")); !errors.Is(err, persistence.ErrLocked) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while locked, with a deadline: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the deadline was missed by %v", took)
	}
	if _, _, err := s.Runs(t.Context(), "acme", persistence.Query{}); err != nil {
		t.Errorf("reading while another process writes: %v", err)
	}
	if _, err := open(t, path).ActiveBundle(t.Context(), "acme"); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("opening while another process writes: %v", err)
	}
	_, err := s.Apply(t.Context(), birth("1"))
	if !errors.Is(err, persistence.ErrLocked) {
		t.Errorf("while locked: %v", err)
	}
	exec(t, other, `ROLLBACK`)
	if _, err := s.Apply(t.Context(), birth("1")); err != nil {
		t.Errorf("after the lock: %v", err)
	}
}

func TestFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, path)
	if _, err := s.Apply(t.Context(), birth("1")); err != nil {
		t.Fatal(err)
	}
	s.Limit(t, 80) // pages
	run := birth("1").Run
	data := make([]byte, 64<<10)
	written := 0
	var err error
	for i := 0; err == nil; i++ {
		if i > 100 {
			t.Fatal("the disk is never full")
		}
		data[0] = byte(i)
		_, err = s.Apply(t.Context(), persistence.Change{Tenant: "acme", Run: run, Key: fmt.Sprint(i),
			Lines: []persistence.Entry{{Kind: persistence.KindNote}}, Blobs: []persistence.Blob{persistence.BlobOf("", data)}})
		if err == nil {
			written++
		}
	}
	if !errors.Is(err, persistence.ErrFull) {
		t.Errorf("a full disk says %v", err)
	}
	head, err := s.Head(t.Context(), "acme", run)
	if err != nil || head.Seq != int64(1+written) {
		t.Errorf("%d changes were acknowledged, the chain ends with %d: %v", written, head.Seq, err)
	}
	s.Limit(t, 100000)
	if _, err := s.Apply(t.Context(), persistence.Change{Tenant: "acme", Run: run, Key: "after", Lines: []persistence.Entry{{Kind: persistence.KindNote}}}); err != nil {
		t.Errorf("after there was room again: %v", err)
	}
	if report, err := persistence.VerifyAll(t.Context(), open(t, path), "acme"); err != nil || !report.OK() {
		t.Errorf("%+v, %v", report, err)
	}
}

// A file whose pages are damaged is told apart from content that was changed in it: the second has a journal to ask, the
// first needs a backup.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2*4096); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, persistence.ErrDamaged) || errors.Is(err, persistence.ErrCorrupt) {
		t.Errorf("a truncated file: %v", err)
	}
}

// A system that keeps a removed file alive for whoever has it open would let us acknowledge what nobody can ever read.
func TestFileThatIsTakenAway(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be taken away here")
	}
	for name, take := range map[string]func(path string) error{
		"removed": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".away") },
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".other", nil, 0o600), os.Rename(path+".other", path))
		},
	} {
		path := filepath.Join(t.TempDir(), "x.db")
		s := open(t, path)
		if _, err := s.Apply(t.Context(), birth("1")); err != nil {
			t.Fatal(err)
		}
		if err := take(path); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(t.Context(), birth("2")); !errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("%s: a change was acknowledged: %v", name, err)
		}
		_, _, _ = s.Runs(t.Context(), "acme", persistence.Query{})
		if _, err := os.Stat(path); name != "replaced" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a new file was made in its place: %v", name, err)
		}
		if name != "moved" {
			continue
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(t.Context(), birth("2")); err != nil {
			t.Errorf("back in its place: %v", err)
		}
	}
}

// A file that may be read and not written serves readers, and both the writer and the doctor say what it lacks.
func TestFileThatCanOnlyBeRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	// The file's mode would not stop root. A write version of the future in its header stops everybody.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{3}, 18)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if _, _, err := s.Runs(t.Context(), "acme", persistence.Query{}); err != nil {
		t.Errorf("reading: %v", err)
	}
	if _, err := s.Apply(t.Context(), birth("2")); !errors.Is(err, persistence.ErrRefused) {
		t.Errorf("writing: %v", err)
	}
	ills, err := s.Doctor(t.Context())
	if err != nil || len(ills) != 1 || !strings.Contains(ills[0].What, "not written") || ills[0].Fix == "" {
		t.Errorf("%v, %v", ills, err)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, path)
	if ills, err := s.Doctor(t.Context()); err != nil || len(ills) != 0 {
		t.Errorf("a healthy store: %v, %v", ills, err)
	}
	db := raw(t, path)
	exec(t, db, `DROP TRIGGER journal_delete`)
	exec(t, db, `DROP TRIGGER journal_update`)
	exec(t, db, `CREATE TRIGGER journal_update BEFORE UPDATE ON journal BEGIN SELECT 1; END`)
	exec(t, db, `INSERT INTO transitions VALUES ('call', 'completed', 'revive', 'requested', 'note')`)
	exec(t, db, `DELETE FROM transitions WHERE machine = 'call' AND event = 'allow'`)
	exec(t, db, `INSERT INTO artifacts VALUES ('t', 'r', 'n', 'sha256:nowhere')`)
	ills, err := s.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"journal_delete is missing", "journal_update was changed", "does not know: call completed --revive", "lacks the edge call requested --allow", "a row of artifacts"} {
		found := false
		for _, ill := range ills {
			found = found || strings.Contains(ill.What, want) && ill.Fix != ""
		}
		if !found {
			t.Errorf("nobody says %q: %v", want, ills)
		}
	}
	if len(ills) != 5 {
		t.Errorf("%d findings: %v", len(ills), ills)
	}
	// Opening it again brings the missing edge back.
	again := open(t, path)
	if missing, _, err := again.MissingTransitions(t.Context()); err != nil || len(missing) != 0 {
		t.Errorf("still missing %v, %v", missing, err)
	}
}

func TestCloseWaitsForTheWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, path)
	var all sync.WaitGroup
	acked := make(chan string, 100)
	for i := range 4 {
		all.Go(func() {
			for n := range 20 {
				id := fmt.Sprintf("%d-%d", i, n)
				if _, err := s.Apply(context.Background(), birth(id)); err != nil {
					return // closed
				}
				acked <- id
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	close(acked)
	again := open(t, path)
	for id := range acked {
		if _, err := again.Run(t.Context(), "acme", birth(id).Run); err != nil {
			t.Errorf("acknowledged and gone: %v", err)
		}
	}
	if _, err := s.Apply(t.Context(), birth("late")); err == nil {
		t.Error("a closed store wrote")
	}
}
