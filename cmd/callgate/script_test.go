package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	_ "modernc.org/sqlite"

	"github.com/callgate/callgate/persistence/persistencetest"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// The plays in testdata/scripts are conversations with the program as a user has them. Each runs in a folder and with a
// home of its own; one that says "# stores: both" runs once on each store.

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"callgate": func() {
			if n, err := strconv.ParseUint(os.Getenv("CALLGATE_TEST_FILE_LIMIT"), 10, 64); err == nil {
				limitFiles(n)
			}
			os.Exit(run(context.Background(), os.Args[1:], processEnv()))
		},
		// At a terminal where somebody has typed what stdin holds and now sits and thinks.
		"callgate-terminal": func() {
			e := processEnv()
			e.TerminalIn, e.TerminalOut = true, true
			e.Stdin = bufio.NewReader(io.MultiReader(os.Stdin, thinking{}))
			os.Exit(run(context.Background(), os.Args[1:], e))
		},
		// With tools that leave a mark in the world outside and take their time about it.
		"callgate-pay": func() {
			e := processEnv()
			e.Executors = map[specs.ToolName]tools.Executor{"shop.pay": payment{}, "shop.look": payment{}}
			os.Exit(run(context.Background(), os.Args[1:], e))
		},
	})
}

type thinking struct{}

func (thinking) Read([]byte) (int, error) { select {} }

// payment writes one line per effect to $WORK/ledger, then waits as long as $WORK/hold exists.
type payment struct{}

func (payment) Execute(ctx context.Context, req tools.Request) (tools.Result, error) {
	f, err := os.OpenFile("ledger", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return tools.Result{}, err
	}
	_, err = fmt.Fprintf(f, "%s %s\n", req.Tool.Name, req.IdempotencyKey)
	if err = errors.Join(err, f.Close()); err != nil {
		return tools.Result{}, err
	}
	for {
		if _, err := os.Stat("hold"); err != nil {
			return tools.Text("paid"), nil
		}
		select {
		case <-ctx.Done():
			return tools.Result{}, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "scripts", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no plays: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		stores := []string{"sqlite"}
		if bytes.Contains(text, []byte("# stores: both")) {
			stores = append(stores, "postgres")
		}
		for _, store := range stores {
			t.Run(name+"/"+store, func(t *testing.T) {
				t.Parallel()
				play(t, file, string(text), store)
			})
		}
	}
}

func play(t *testing.T, file, text, store string) {
	vars := map[string]string{"CALLGATE_STORE": "", "CALLGATE_USER": "tess", "TZ": "UTC", "CALLGATE_DEBUG": "1",
		// The race detector keeps a process for a second after it has exited, to hear of late goroutines. The program waits for
		// none: what has not happened by then happens to no user either.
		"GORACE": "atexit_sleep_ms=10"}
	if store == "postgres" {
		vars["CALLGATE_STORE"] = persistencetest.Postgres(t)
	}
	if strings.Contains(text, "$POSTGRES_EMPTY") {
		vars["POSTGRES_EMPTY"] = persistencetest.EmptyPostgres(t)
	}
	if strings.Contains(text, "$POSTGRES_READY") {
		vars["POSTGRES_READY"] = persistencetest.Postgres(t)
	}
	tenants, err := filepath.Abs(filepath.Join("..", "..", "testdata", "tenants"))
	if err != nil {
		t.Fatal(err)
	}
	vars["TENANTS"] = tenants
	testscript.Run(t, testscript.Params{
		Files: []string{file},
		Setup: func(e *testscript.Env) error {
			for k, v := range vars {
				e.Setenv(k, v)
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": cmdExits, "grab": cmdGrab, "json": cmdJSON, "until": cmdUntil, "race": cmdRace, "both": cmdBoth, "sql": cmdSQL, "big": cmdBig, "shorten": cmdShorten,
			"deep": cmdDeep, "binary": cmdBinary, "lines": cmdLines, "unguard": cmdUnguard, "newer": cmdNewer, "full": cmdFull, "hold": cmdHold, "letgo": cmdLetGo, "cut": cmdCut, "mend": cmdMend,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "sqlite", "postgres":
				return cond == store, nil
			case "root":
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// exits CODE command...: runs it and wants exactly this exit code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE command...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if s := ts.ReadFile("stderr"); strings.Contains(s, "goroutine ") || strings.Contains(s, "a fault in the program") {
		ts.Fatalf("the program fell over")
	}
}

// grab NAME 'regexp (group)': keeps what the last command printed as $NAME.
func cmdGrab(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: grab NAME regexp")
	}
	m := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("nothing on stdout matches %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// json [path value]: stdout is exactly one JSON value, in which the dotted path has the value.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		ts.Fatalf("stdout is not JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		ts.Fatalf("stdout holds more than one JSON value")
	}
	if len(args) == 0 {
		return
	}
	for _, key := range strings.Split(args[0], ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any:
			if key == "len" {
				v = len(x)
				break
			}
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(x) {
				ts.Fatalf("%s: no element %s of %d", args[0], key, len(x))
			}
			v = x[i]
		default:
			v = nil
		}
	}
	if got := fmt.Sprint(v); (got == args[1]) == neg {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
}

// until command...: repeats it until it exits 0, for at most ten seconds.
func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: until command...")
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("it never came to pass: %v", err)
		}
	}
}

// race command... -- command...: starts both at once. One must exit 0 and one 1; the loser's words are the file loser.
func cmdRace(ts *testscript.TestScript, neg bool, args []string) {
	codes, words := atOnce(ts, args)
	if codes[0]+codes[1] != 1 || codes[0]*codes[1] != 0 {
		ts.Fatalf("exit codes %v, want one 0 and one 1\n%s\n%s", codes, words[0], words[1])
	}
	loser := words[0]
	if codes[1] == 1 {
		loser = words[1]
	}
	ts.Check(os.WriteFile(ts.MkAbs("loser"), []byte(loser), 0o600))
}

// both command... -- command...: starts both at once. Each must exit 0, or 1 because somebody else was at it.
func cmdBoth(ts *testscript.TestScript, neg bool, args []string) {
	codes, words := atOnce(ts, args)
	for i := range codes {
		if codes[i] != 0 && !(codes[i] == 1 && strings.Contains(words[i], "is held by")) {
			ts.Fatalf("exit codes %v\n%s\n%s", codes, words[0], words[1])
		}
	}
}

func atOnce(ts *testscript.TestScript, args []string) (codes [2]int, words [2]string) {
	cut := slices.Index(args, "--")
	if cut < 1 {
		ts.Fatalf("usage: command... -- command...")
	}
	var wg sync.WaitGroup
	for i, line := range [][]string{args[:cut], args[cut+1:]} {
		wg.Go(func() {
			var errs bytes.Buffer
			bin, err := lookPath(ts, line[0])
			if err != nil {
				codes[i], words[i] = -1, err.Error()
				return
			}
			cmd := exec.Command(bin, line[1:]...)
			cmd.Dir, cmd.Env, cmd.Stderr = ts.MkAbs("."), environ(ts), &errs
			if err := cmd.Run(); cmd.ProcessState == nil {
				codes[i], words[i] = -1, err.Error()
				return
			}
			codes[i], words[i] = cmd.ProcessState.ExitCode(), errs.String()
		})
	}
	wg.Wait()
	return codes, words
}

func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, name); isFile(p) {
			return p, nil
		}
	}
	return "", fmt.Errorf("no %s on the path", name)
}

func isFile(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.Mode().IsRegular()
}

func environ(ts *testscript.TestScript) []string {
	var out []string
	for _, k := range []string{"PATH", "HOME", "CALLGATE_STORE", "CALLGATE_USER", "TZ", "WORK", "GORACE"} {
		out = append(out, k+"="+ts.Getenv(k))
	}
	return out
}

// sql STATEMENT: changes the play's store past the program. A refusal fails the play, or, with !, is what it wants; the
// database's words are then $WORK/refusal.
func cmdSQL(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: sql STATEMENT")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	if dsn := ts.Getenv("CALLGATE_STORE"); strings.HasPrefix(dsn, "postgres") {
		cfg, bad := pgxpool.ParseConfig(dsn)
		ts.Check(bad)
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // several statements at once
		conn, bad := pgx.ConnectConfig(ctx, cfg.ConnConfig)
		ts.Check(bad)
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "SET search_path = callgate; "+args[0])
	} else {
		var db *sql.DB
		db, err = sql.Open("sqlite", ts.MkAbs(".callgate/callgate.db")+"?_pragma=foreign_keys(ON)")
		if err == nil {
			_, err = db.ExecContext(ctx, args[0])
			db.Close()
		}
	}
	if (err != nil) != neg {
		ts.Fatalf("sql: %v", err)
	}
	if err != nil {
		ts.Check(os.WriteFile(ts.MkAbs("refusal"), []byte(err.Error()), 0o600))
	}
}

// unguard takes the store's triggers away, as somebody with the file or the owner's role could.
func cmdUnguard(ts *testscript.TestScript, _ bool, _ []string) {
	if strings.HasPrefix(ts.Getenv("CALLGATE_STORE"), "postgres") {
		cmdSQL(ts, false, []string{"ALTER TABLE journal DISABLE TRIGGER USER; ALTER TABLE subjects DISABLE TRIGGER USER"})
		return
	}
	db, err := sql.Open("sqlite", ts.MkAbs(".callgate/callgate.db"))
	ts.Check(err)
	defer db.Close()
	rows, err := db.Query("SELECT name FROM sqlite_master WHERE type = 'trigger'")
	ts.Check(err)
	var names []string
	for rows.Next() {
		var name string
		ts.Check(rows.Scan(&name))
		names = append(names, name)
	}
	ts.Check(rows.Err())
	for _, name := range names {
		_, err := db.Exec("DROP TRIGGER " + name)
		ts.Check(err)
	}
}

// cut takes the play's Postgres away: those connected are thrown out, nobody gets in. mend brings it back.
func cmdCut(ts *testscript.TestScript, _ bool, _ []string)  { admit(ts, false) }
func cmdMend(ts *testscript.TestScript, _ bool, _ []string) { admit(ts, true) }

func admit(ts *testscript.TestScript, yes bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cfg, err := pgxpool.ParseConfig(ts.Getenv("CALLGATE_STORE"))
	ts.Check(err)
	name := cfg.ConnConfig.Database
	cfg.ConnConfig.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	ts.Check(err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t", pgx.Identifier{name}.Sanitize(), yes))
	ts.Check(err)
	if !yes {
		_, err = conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
		ts.Check(err)
	}
}

// newer makes the embedded store one of a version to come.
func cmdNewer(ts *testscript.TestScript, _ bool, _ []string) {
	db, err := sql.Open("sqlite", ts.MkAbs(".callgate/callgate.db"))
	ts.Check(err)
	defer db.Close()
	for _, s := range []string{"INSERT INTO schema_version (version, name) VALUES (9999, 'from the future')"} {
		_, err := db.Exec(s)
		ts.Check(err)
	}
}

// full on|off: the program's next processes can make no file longer than the store is now. A sparse quota of this process's
// children stands in for a disk without room.
func cmdFull(ts *testscript.TestScript, _ bool, args []string) {
	if args[0] == "off" {
		ts.Setenv("CALLGATE_TEST_FILE_LIMIT", "")
		return
	}
	info, err := os.Stat(ts.MkAbs(".callgate/callgate.db"))
	ts.Check(err)
	ts.Setenv("CALLGATE_TEST_FILE_LIMIT", fmt.Sprint(info.Size()/2))
}

// hold opens a write transaction on the embedded store and keeps it until letgo, or the end of the play.
func cmdHold(ts *testscript.TestScript, _ bool, _ []string) {
	db, err := sql.Open("sqlite", ts.MkAbs(".callgate/callgate.db"))
	ts.Check(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec("BEGIN IMMEDIATE")
	ts.Check(err)
	held.Store(ts.Getenv("WORK"), db)
	ts.Defer(func() { letGo(ts.Getenv("WORK")) })
}

func cmdLetGo(ts *testscript.TestScript, _ bool, _ []string) { letGo(ts.Getenv("WORK")) }

var held sync.Map // of *sql.DB, by the folder of the play

func letGo(work string) {
	if db, ok := held.LoadAndDelete(work); ok {
		db.(*sql.DB).Close()
	}
}

// big FILE BYTES: a text file of that size.
func cmdBig(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(f.Truncate(n))
	ts.Check(f.Close())
}

// shorten FILE BYTES: what is behind them is lost.
func cmdShorten(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// deep FILE LEVELS: a document that nests so deep.
func cmdDeep(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte("a: "+strings.Repeat("[", n)+strings.Repeat("]", n)+"\n"), 0o600))
}

// binary FILE: bytes that are no text.
func cmdBinary(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte{0x7f, 'E', 'L', 'F', 0, 1, 2, 0xff, 0xfe, '\n', 0, 0x80}, 0o600))
}

// lines FILE N: the file has N lines.
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); (got == want) == neg {
		ts.Fatalf("%s has %d lines, want %d", args[0], got, want)
	}
}

// Every verb shows one example of itself.
func TestEveryVerbHasHelpWithAnExample(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{env: env{Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }}}
	for _, c := range walkVerbs(a.root()) {
		for line := range strings.Lines(c.Long) {
			if textWidth(line) > 121 {
				t.Errorf("%s: a line of the help is wider than the others: %q", c.CommandPath(), line)
			}
		}
		if c.Short == "" || !strings.Contains(c.Example, "  callgate ") {
			t.Errorf("%s: short %q, example %q", c.CommandPath(), c.Short, c.Example)
		}
		if c.HasParent() && !strings.Contains(c.Example, c.CommandPath()+" ") && c.CommandPath() != strings.TrimSpace(c.Example) && !c.HasSubCommands() {
			t.Errorf("the example of %s shows something else: %q", c.CommandPath(), c.Example)
		}
	}
}

func walkVerbs(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		out = append(out, walkVerbs(sub)...)
	}
	return out
}
