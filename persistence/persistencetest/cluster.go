package persistencetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/callgate/callgate/persistence/postgres"
)

// Postgres gives the dsn, a postgres:// URL, of a fresh and migrated database in this test binary's private server.
func Postgres(t testing.TB) string {
	t.Helper()
	return database(t, template)
}

// EmptyPostgres gives the dsn of a database that nobody has migrated.
func EmptyPostgres(t testing.TB) string {
	t.Helper()
	return database(t, "template0")
}

// Main runs the tests and then stops the server, if one was started. It is what TestMain calls. Without it the
// server ends by itself a moment after the test binary.
func Main(m *testing.M) {
	if os.Getenv(crashPlace) != "" {
		fmt.Fprintln(os.Stderr, crashChild())
		os.Exit(1)
	}
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

const (
	template = "callgate_template"
	starting = 60 * time.Second
	fetching = 5 * time.Minute
)

// cluster is a private server; a test binary has one.
type cluster struct {
	once    sync.Once
	err     error
	durable bool
	dir     string
	keeper  *exec.Cmd
	leash   io.WriteCloser // the keeper ends the server when this closes
	count   atomic.Int64
}

// Server is a private server for programs that measure rather than test: it writes as a server in earnest does, to disk.
type Server struct{ c cluster }

// StartServer starts one. The caller owes a Stop; should the process die first, the server ends by itself.
func StartServer() (*Server, error) {
	s := &Server{c: cluster{durable: true}}
	if err := s.c.start(); err != nil {
		return nil, errors.Join(err, s.c.stop())
	}
	return s, nil
}

// Database makes an empty database and gives its dsn; postgres.Migrate is the caller's to call.
func (s *Server) Database(ctx context.Context) (string, error) {
	name := fmt.Sprintf("d%d", s.c.count.Add(1))
	if err := s.c.admin(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", err
	}
	return s.c.dsn(name), nil
}

// Stop ends the server and removes its folder.
func (s *Server) Stop() error { return s.c.stop() }

var shared cluster

func database(t testing.TB, from string) string {
	t.Helper()
	shared.once.Do(func() { shared.err = shared.start() })
	if shared.err != nil {
		t.Fatalf("no Postgres to test with: %v", shared.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), starting)
	defer cancel()
	name := fmt.Sprintf("t%d", shared.count.Add(1))
	if err := shared.admin(ctx, "CREATE DATABASE "+name+" TEMPLATE "+from); err != nil {
		t.Fatalf("a fresh database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), starting)
		defer cancel()
		if err := shared.admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return shared.dsn(name)
}

func (c *cluster) dsn(database string) string {
	q := url.Values{"host": {c.dir}, "sslmode": {"disable"}, "pool_max_conns": {"8"}}
	return (&url.URL{Scheme: "postgres", User: url.User("callgate"), Path: "/" + database, RawQuery: q.Encode()}).String()
}

func (c *cluster) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, strings.Replace(c.dsn("postgres"), "&pool_max_conns=8", "", 1))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// start makes and starts the server. A shell keeps it: it waits for the end of its standard input, which comes when
// this process closes the pipe or dies in any way, and then stops the server and removes the folder.
func (c *cluster) start() error {
	bin, err := binaries()
	if err != nil {
		return err
	}
	who, err := unprivileged()
	if err != nil {
		return err
	}
	if c.dir, err = folder(!c.durable); err != nil {
		return err
	}
	data, log := filepath.Join(c.dir, "data"), filepath.Join(c.dir, "log")
	if who != nil {
		if err := os.Chown(c.dir, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), starting)
	defer cancel()
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "callgate", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = c.dir, &syscall.SysProcAttr{Credential: who}
	if out, err := initdb.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("initdb: %w\n%s", err, out), os.RemoveAll(c.dir))
	}
	const script = `trap '' INT TERM HUP
dir=$1 log=$2; shift 2
"$@" >"$log" 2>&1 &
read -r _
kill -QUIT $! ; wait $! ; cd / ; rm -rf "$dir"`
	args := []string{"-c", script, "keeper", c.dir, log, filepath.Join(bin, "postgres"), "-D", data, "-k", c.dir}
	settings := []string{"listen_addresses=", "max_connections=200", "log_min_messages=warning"}
	if c.durable {
		settings = append(settings, "shared_buffers=256MB", "max_wal_size=2GB")
	} else {
		// fsync is off: nothing here pulls the plug of the machine. Everything else is as in earnest.
		settings = append(settings, "fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_wal_size=256MB", "autovacuum=off")
	}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	c.keeper = exec.Command("/bin/sh", args...)
	c.keeper.Dir, c.keeper.SysProcAttr = c.dir, &syscall.SysProcAttr{Credential: who, Setsid: true}
	if c.leash, err = c.keeper.StdinPipe(); err != nil {
		return err
	}
	if err := c.keeper.Start(); err != nil {
		return err
	}
	for {
		err := c.admin(ctx, "SELECT 1")
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			said, _ := os.ReadFile(log)
			return errors.Join(fmt.Errorf("the server does not answer: %w\n%s", err, said), c.stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := c.admin(ctx, "CREATE DATABASE "+template); err != nil {
		return err
	}
	return postgres.Migrate(ctx, strings.Replace(c.dsn(template), "&pool_max_conns=8", "", 1))
}

// folder makes the server's folder, in memory where it may be and there is room: a fresh database is a thousand small files.
func folder(inMemory bool) (string, error) {
	const memory, room = "/dev/shm", 2 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); inMemory && err == nil && fs.Bavail*uint64(fs.Bsize) > room {
		if dir, err := os.MkdirTemp(memory, "callgate-pg-"); err == nil {
			return dir, nil
		}
	}
	root := os.TempDir()
	if len(root) > 60 {
		root = "/tmp" // a socket's path has at most 108 bytes
	}
	return os.MkdirTemp(root, "callgate-pg-")
}

// stop ends the server and waits for it, at most ten seconds.
func (c *cluster) stop() error {
	if c.keeper == nil || c.keeper.Process == nil {
		return nil
	}
	timer := time.AfterFunc(10*time.Second, func() { _ = c.keeper.Process.Kill() })
	defer timer.Stop()
	err := errors.Join(c.leash.Close(), c.keeper.Wait())
	c.keeper = nil
	return err
}

// unprivileged is the user to run the server as, nil for ourselves: Postgres refuses root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("running as root, and there is neither a user postgres nor nobody; fix: useradd --system postgres")
}

// binaries finds the folder with initdb and postgres, and installs them where that can be done without asking.
func binaries() (string, error) {
	if dir := findBinaries(); dir != "" {
		return dir, nil
	}
	const fix = "apt-get install -y postgresql   (or put a folder with initdb and postgres on the PATH)"
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return "", errors.New("neither initdb nor postgres was found; fix: " + fix)
	}
	// Test binaries run side by side: one of them installs, the others wait for it.
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "callgate-install-postgres.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if dir := findBinaries(); dir != "" {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetching)
	defer cancel()
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, apt, append([]string{"-o", "DPkg::Lock::Timeout=120"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		return cmd.CombinedOutput()
	}
	install := []string{"install", "-y", "--no-install-recommends", "postgresql"}
	if _, err := run(install...); err != nil {
		// A fresh machine has no package lists, or old ones.
		updated, _ := run("update")
		if out, err := run(install...); err != nil {
			return "", fmt.Errorf("installing it failed: %w\n%s%s\nfix: apt-get update && %s", err, updated, out, fix)
		}
	}
	if dir := findBinaries(); dir != "" {
		return dir, nil
	}
	return "", errors.New("installed, and still neither initdb nor postgres was found; fix: " + fix)
}

func findBinaries() string {
	var dirs []string
	if path, err := exec.LookPath("pg_config"); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), starting)
		defer cancel()
		if out, err := exec.CommandContext(ctx, path, "--bindir").Output(); err == nil {
			dirs = append(dirs, strings.TrimSpace(string(out)))
		}
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(versions, func(a, b string) int { return versionOf(b) - versionOf(a) })
	dirs = append(append(filepath.SplitList(os.Getenv("PATH")), dirs...), versions...)
	for _, dir := range dirs {
		if runnable(filepath.Join(dir, "initdb")) && runnable(filepath.Join(dir, "postgres")) {
			return dir
		}
	}
	return ""
}

// versionOf reads the 15 of /usr/lib/postgresql/15/bin.
func versionOf(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

func runnable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
