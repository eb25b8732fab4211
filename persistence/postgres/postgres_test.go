package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/persistencetest"
	"github.com/callgate/callgate/persistence/postgres"
	"github.com/callgate/callgate/specs"
)

// birth is the smallest change there is.
func birth(run string) persistence.Change {
	r := &persistence.Run{ID: specs.RunID(run)}
	return persistence.Change{Tenant: "acme", Run: r.ID, Key: "create",
		Lines: []persistence.Entry{{Move: &persistence.Move{Step: machine.Run().Birth(), Record: r}}}}
}

func note(run, key string) persistence.Change {
	return persistence.Change{Tenant: "acme", Run: specs.RunID(run), Key: key, Lines: []persistence.Entry{{Kind: persistence.KindNote}}}
}

func open(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func exec(t *testing.T, dsn, q string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), strings.Replace(dsn, "&pool_max_conns=8", "", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), q); err != nil {
		t.Fatal(err)
	}
}

func plain(dsn string) string { return strings.Replace(dsn, "&pool_max_conns=8", "", 1) }

func TestOpenRefusesWhatIsNotMigrated(t *testing.T) {
	t.Parallel()
	dsn := persistencetest.EmptyPostgres(t)
	if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); !errors.Is(err, persistence.ErrNotMigrated) {
		t.Errorf("an empty database: %v", err)
	}
	// Several processes migrate at once; each finds a migrated store afterwards.
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := postgres.Migrate(t.Context(), plain(dsn)); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	all.Wait()
	s := open(t, dsn)
	if _, err := s.Apply(t.Context(), birth("r")); err != nil {
		t.Fatal(err)
	}
	exec(t, dsn, `DELETE FROM callgate.transitions WHERE machine = 'call' AND event = 'allow'`)
	if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); !errors.Is(err, persistence.ErrNotMigrated) {
		t.Errorf("a law with a hole: %v", err)
	}
	if err := postgres.Migrate(t.Context(), plain(dsn)); err != nil {
		t.Errorf("migrating again: %v", err)
	}
	open(t, dsn)
	exec(t, dsn, `DELETE FROM callgate.schema_version; INSERT INTO callgate.schema_version VALUES (99, 'tomorrow')`)
	if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); !errors.Is(err, persistence.ErrNewerStore) {
		t.Errorf("a newer store: %v", err)
	}
	if err := postgres.Migrate(t.Context(), plain(dsn)); !errors.Is(err, persistence.ErrNewerStore) {
		t.Errorf("migrating a newer store: %v", err)
	}
	exec(t, dsn, `DROP TABLE callgate.schema_version`)
	if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); !errors.Is(err, persistence.ErrNotAStore) {
		t.Errorf("somebody else's schema: %v", err)
	}
	if err := postgres.Migrate(t.Context(), plain(dsn)); !errors.Is(err, persistence.ErrNotAStore) {
		t.Errorf("migrating somebody else's schema: %v", err)
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://nobody@127.0.0.1:1/x?connect_timeout=2", "postgres://x@/x?host=" + t.TempDir()} {
		if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); !errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("%s: %v", dsn, err)
		}
		if err := postgres.Migrate(t.Context(), dsn); !errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("migrate %s: %v", dsn, err)
		}
	}
}

// What no waiting mends is told apart from a server that is away: an address that is none, a database or a user that does not
// exist, and rights that are missing.
func TestAccessThatIsRefused(t *testing.T) {
	t.Parallel()
	dsn := persistencetest.Postgres(t)
	role := fmt.Sprintf("reader_%d", time.Now().UnixNano())
	exec(t, dsn, `CREATE ROLE `+role+` LOGIN`)
	defer exec(t, dsn, `DROP OWNED BY `+role+`; DROP ROLE `+role)
	as := func(user, database string) string {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(user)
		if database != "" {
			u.Path = "/" + database
		}
		return u.String()
	}
	for _, bad := range []string{"this is no dsn", "postgres://%zz", as("callgate", "no_such_database"), as("no_such_user", ""), as(role, "")} {
		if _, err := postgres.Open(t.Context(), bad, postgres.Options{}); !errors.Is(err, persistence.ErrRefused) || errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("%s: %v", bad, err)
		}
		if err := postgres.Migrate(t.Context(), bad); !errors.Is(err, persistence.ErrRefused) || errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("migrate %s: %v", bad, err)
		}
	}
	exec(t, dsn, `GRANT USAGE ON SCHEMA callgate TO `+role+`; GRANT SELECT ON ALL TABLES IN SCHEMA callgate TO `+role)
	s := open(t, as(role, ""))
	if _, _, err := s.Runs(t.Context(), "acme", persistence.Query{}); err != nil {
		t.Errorf("reading: %v", err)
	}
	if _, err := s.Apply(t.Context(), birth("r")); !errors.Is(err, persistence.ErrRefused) {
		t.Errorf("writing: %v", err)
	}
	ills, err := s.Doctor(t.Context())
	if err != nil || !slices.ContainsFunc(ills, func(i persistence.Ailment) bool {
		return strings.Contains(i.What, role+" can read but not write") && i.Fix != ""
	}) {
		t.Errorf("nobody says that it can only be read: %v, %v", ills, err)
	}
}

// A server that accepts a connection and then says nothing is away, however the caller bounded the wait.
func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	dsn := "postgres://x@" + l.Addr().String() + "/x?sslmode=disable"
	for name, try := range map[string]func(context.Context) error{
		"open":    func(ctx context.Context) error { _, err := postgres.Open(ctx, dsn, postgres.Options{}); return err },
		"migrate": func(ctx context.Context) error { return postgres.Migrate(ctx, dsn) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if err := try(ctx); !errors.Is(err, persistence.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func TestConnectionsThatAreCutAreReplaced(t *testing.T) {
	t.Parallel()
	dsn := persistencetest.Postgres(t)
	s := open(t, dsn)
	if _, err := s.Apply(t.Context(), birth("r")); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var cutter sync.WaitGroup
	cutter.Go(func() {
		conn, err := pgx.Connect(context.Background(), plain(dsn))
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		for {
			select {
			case <-stop:
				return
			case <-time.After(15 * time.Millisecond):
				_, _ = conn.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
			}
		}
	})
	acked, failed := int64(0), 0
	for i := range 60 {
		got, err := s.Apply(t.Context(), note("r", fmt.Sprint(i)))
		switch {
		case err == nil && got.Duplicate:
			t.Errorf("change %d: a first answer says that it is a repetition", i)
		case err == nil:
			acked++
		case errors.Is(err, persistence.ErrUnavailable):
			failed++ // five cuts in a row
		default:
			t.Errorf("change %d: %v", i, err)
		}
	}
	close(stop)
	cutter.Wait()
	head, err := open(t, dsn).Head(t.Context(), "acme", "r")
	if err != nil || head.Seq != 1+acked {
		t.Errorf("%d acknowledged, %d failed, the chain ends with %d: %v", acked, failed, head.Seq, err)
	}
	if acked == 0 {
		t.Error("nothing got through")
	}
	if report, err := persistence.Verify(t.Context(), open(t, dsn), "acme", "r"); err != nil || !report.OK() {
		t.Errorf("%+v, %v", report, err)
	}
}

// proxy stands between a store and its server, and loses what it is told to.
type proxy struct {
	dir    string
	server string
	lose   atomic.Bool // the next commit is carried out and its answer lost
	lost   atomic.Int64
	l      net.Listener
	conns  sync.Map
}

func newProxy(t *testing.T, dsn string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{dir: t.TempDir()}
	q := u.Query()
	p.server = filepath.Join(q.Get("host"), ".s.PGSQL.5432")
	if p.l, err = net.Listen("unix", filepath.Join(p.dir, ".s.PGSQL.5432")); err != nil {
		t.Fatal(err)
	}
	q.Set("host", p.dir)
	u.RawQuery = q.Encode()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := p.l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		p.l.Close()
		p.cut()
		all.Wait()
	})
	return p, u.String()
}

// cut ends every connection.
func (p *proxy) cut() {
	p.conns.Range(func(c, _ any) bool {
		c.(net.Conn).Close()
		return true
	})
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.conns.Store(client, true)
	defer p.conns.Delete(client)
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		// The server's answer to a commit ends the transaction: "COMMIT\0", then ready and idle.
		if strings.Contains(string(buf[:n]), "COMMIT\x00") && p.lose.CompareAndSwap(true, false) {
			p.lost.Add(1)
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func TestLostCommitAnswerIsSettled(t *testing.T) {
	t.Parallel()
	p, dsn := newProxy(t, persistencetest.Postgres(t))
	s := open(t, dsn)
	if _, err := s.Apply(t.Context(), birth("r")); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		p.lose.Store(true)
		c := note("r", fmt.Sprint(i))
		got, err := s.Apply(t.Context(), c)
		if err != nil || got.Duplicate || len(got.Seqs) != 1 || got.Seqs[0] != int64(i+2) {
			t.Errorf("the answer to commit %d was lost: %+v, %v", i, got, err)
		}
		again, err := s.Apply(t.Context(), c)
		if err != nil || !again.Duplicate || again.Seqs[0] != got.Seqs[0] {
			t.Errorf("asked again: %+v, %v", again, err)
		}
	}
	if p.lost.Load() != 5 {
		t.Fatalf("%d answers were lost: the test shows nothing", p.lost.Load())
	}
	// A birth too: there the chain's row itself is not there before.
	p.lose.Store(true)
	if got, err := s.Apply(t.Context(), birth("r2")); err != nil || got.Duplicate {
		t.Errorf("a birth whose answer was lost: %+v, %v", got, err)
	}
	if report, err := persistence.VerifyAll(t.Context(), s, "acme"); err != nil || !report.OK() || report.Lines != 9 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	direct := persistencetest.Postgres(t)
	p, dsn := newProxy(t, direct)
	s := open(t, dsn)
	if _, err := s.Apply(t.Context(), birth("r")); err != nil {
		t.Fatal(err)
	}
	p.l.Close()
	p.cut()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := s.Apply(ctx, note("r", "away")); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("apply: %v", err)
	}
	if _, err := s.Run(ctx, "acme", "r"); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("read: %v", err)
	}
	if _, err := s.Acquire(ctx, "acme", "r", "me", time.Minute, nil); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("acquire: %v", err)
	}
	if head, err := open(t, direct).Head(t.Context(), "acme", "r"); err != nil || head.Seq != 1 {
		t.Errorf("what was written: %v, %v", head, err)
	}
}

func TestFrozenWriterIsWaitedForAndNotForever(t *testing.T) {
	t.Parallel()
	dsn := persistencetest.Postgres(t)
	s := open(t, dsn)
	if _, err := s.Apply(t.Context(), birth("r")); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), plain(dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `BEGIN; SELECT 1 FROM callgate.heads WHERE run = 'r' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if _, err := s.Apply(ctx, note("r", "1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the chain is locked: %v", err)
	}
	if _, err := s.Apply(t.Context(), birth("r2")); err != nil {
		t.Errorf("another run must not wait: %v", err)
	}
	if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Apply(t.Context(), note("r", "1")); err != nil || got.Duplicate || got.Seqs[0] != 2 {
		t.Errorf("after the lock: %+v, %v", got, err)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	dsn := persistencetest.Postgres(t)
	s := open(t, dsn)
	whats := func() (out []string) {
		t.Helper()
		ills, err := s.Doctor(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, ill := range ills {
			if ill.Fix == "" {
				t.Errorf("no remedy for %q", ill.What)
			}
			if !strings.HasPrefix(ill.What, "fsync") && !strings.HasPrefix(ill.What, "full_page_writes") { // so in tests
				out = append(out, ill.What)
			}
		}
		return out
	}
	if ills := whats(); len(ills) != 0 {
		t.Errorf("a healthy store: %v", ills)
	}
	exec(t, dsn, `SET search_path = callgate; DROP TRIGGER journal_delete ON journal; ALTER TABLE journal DISABLE TRIGGER journal_update;
		ALTER TABLE subjects DROP CONSTRAINT subjects_machine_from_state_event_state_fkey;
		INSERT INTO transitions VALUES ('call', 'completed', 'revive', 'requested', 'note')`)
	ills := strings.Join(whats(), "\n")
	for _, want := range []string{"journal_delete is missing", "journal_update is switched off", "from subjects to transitions is missing", "does not know: call completed --revive"} {
		if !strings.Contains(ills, want) {
			t.Errorf("nobody says %q: %s", want, ills)
		}
	}
}

// The search path, not the statement, says where the tables are; a role's or database's own must not matter.
func TestSettingsOfTheDatabaseDoNotMatter(t *testing.T) {
	t.Parallel()
	dsn := persistencetest.Postgres(t)
	exec(t, dsn, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = pg_catalog', current_database());
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database());
		EXECUTE format('ALTER DATABASE %I SET standard_conforming_strings = off', current_database());
		EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Kolkata''', current_database()); END $$`)
	s := open(t, dsn)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if _, err := s.Apply(t.Context(), birth(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if report, err := persistence.VerifyAll(t.Context(), s, "acme"); err != nil || !report.OK() || report.Runs != 4 {
		t.Errorf("%+v, %v", report, err)
	}
}
