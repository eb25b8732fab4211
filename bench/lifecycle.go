package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/persistencetest"
	"github.com/callgate/callgate/persistence/postgres"
	"github.com/callgate/callgate/persistence/sqlite"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// lifecycle times durable governed calls: requested, decided and started in one commit, the outcome in a second. The floor is
// what the same database does with two bare commits of the same rows.
func lifecycle(ctx context.Context, s settings) error {
	dir, err := os.MkdirTemp("", "callgate-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := persistencetest.StartServer()
	if err != nil {
		return err
	}
	defer server.Stop()

	fmt.Printf("%-10s %8s %12s %12s %8s %10s %10s\n", "store", "callers", "floor/s", "callgate/s", "ratio", "p50", "p99")
	for _, kind := range []string{"sqlite", "postgres"} {
		for _, n := range []int{1, 8, 32} {
			var floor bare
			var store persistence.Store
			switch kind {
			case "sqlite":
				if floor, err = bareSQLite(filepath.Join(dir, fmt.Sprintf("floor%d.db", n))); err == nil {
					store, err = sqlite.Open(ctx, filepath.Join(dir, fmt.Sprintf("gate%d.db", n)), sqlite.Options{})
				}
			default:
				var dsn string
				if dsn, err = server.Database(ctx); err == nil {
					if floor, err = barePostgres(ctx, dsn); err == nil {
						if dsn, err = server.Database(ctx); err == nil {
							if err = postgres.Migrate(ctx, dsn); err == nil {
								store, err = postgres.Open(ctx, dsn, postgres.Options{})
							}
						}
					}
				}
			}
			if err != nil {
				return err
			}
			f, g, lat, err := compare(ctx, s, n, floor, store)
			if err := errors.Join(err, floor.Close(), store.Close()); err != nil {
				return err
			}
			slices.Sort(lat)
			fmt.Printf("%-10s %8d %12.0f %12.0f %8.2f %10s %10s\n", kind, n, f, g, g/f,
				lat[len(lat)/2].Round(10*time.Microsecond), lat[len(lat)*99/100].Round(10*time.Microsecond))
			result(fmt.Sprintf("calls/%s/%d", kind, n), g/f, ">0.1", g/f > 0.1)
		}
	}
	return nil
}

// bare makes a call's two commits with nothing around them.
type bare interface {
	call(ctx context.Context, id int64) error
	Close() error
}

// compare runs floor and gate by turns, n callers each, and gives calls a second and the gate's latencies.
func compare(ctx context.Context, s settings, n int, floor bare, store persistence.Store) (f, g float64, lat []time.Duration, err error) {
	gate, err := newGate(ctx, store, n)
	if err != nil {
		return 0, 0, nil, err
	}
	defer gate.d.Close(ctx)
	var fs, gs []float64
	var next int64
	for range s.rounds {
		base := next
		next += 1 << 32
		r, _, err := drive(ctx, n, s.round, func(ctx context.Context, caller int, i int64) error {
			return floor.call(ctx, base+int64(caller)<<24+i)
		})
		if err != nil {
			return 0, 0, nil, fmt.Errorf("floor: %w", err)
		}
		fs = append(fs, r)
		r, l, err := drive(ctx, n, s.round, func(ctx context.Context, caller int, _ int64) error { return gate.call(ctx, caller) })
		if err != nil {
			return 0, 0, nil, fmt.Errorf("callgate: %w", err)
		}
		gs, lat = append(gs, r), append(lat, l...)
	}
	return median(fs), median(gs), lat, nil
}

func drive(ctx context.Context, n int, d time.Duration, f func(ctx context.Context, caller int, i int64) error) (float64, []time.Duration, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all []time.Duration
	var errs []error
	start := time.Now()
	for c := range n {
		wg.Go(func() {
			var mine []time.Duration
			var err error
			for i := int64(0); err == nil && time.Since(start) < d; i++ {
				t := time.Now()
				err = f(ctx, c, i)
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, mine...), append(errs, err)
		})
	}
	wg.Wait()
	return float64(len(all)) / time.Since(start).Seconds(), all, errors.Join(errs...)
}

// gate is the whole product around a tool that does nothing.
type gate struct {
	d      *tools.Dispatcher
	store  persistence.Store
	bundle *specs.Bundle
	scopes []tools.Scope // one run per caller
}

const gateYAML = `apiVersion: callgate/v1
kind: Tool
metadata: {name: payments.send}
spec:
  description: Does nothing, durably.
  source: built_in
  inputSchema:
    type: object
    additionalProperties: false
    required: [amount, to]
    properties: {amount: {type: integer}, currency: {type: string}, to: {type: string}, note: {type: string}}
  annotations: {sideEffect: process, readOnly: false, idempotent: false}
---
apiVersion: callgate/v1
kind: Profile
metadata: {name: p}
spec:
  instructions: Work.
  model: {provider: scripted}
  tools: {allow: ["payments.*"]}
  run: {maxCalls: 1000000}
`

const gateArgs = `{"amount":1200,"currency":"EUR","to":"acct_0000000000000001","note":"invoice 2231"}`

type fixed struct{ c *tools.Compiled }

func (f fixed) Pinned(context.Context, specs.TenantID, specs.Digest) (*tools.Compiled, error) {
	return f.c, nil
}
func (f fixed) Live(context.Context, specs.TenantID) (*tools.Compiled, bool, error) {
	return nil, false, nil
}

func newGate(ctx context.Context, store persistence.Store, n int) (*gate, error) {
	b, err := specs.LoadFiles([]specs.File{{Name: "gate.yaml", Data: []byte(gateYAML)}}, specs.LoadOptions{})
	if err != nil {
		return nil, err
	}
	p, err := celpolicy.Compile(b)
	if err != nil {
		return nil, err
	}
	reg, err := tools.NewRegistry(map[specs.ToolName]tools.Executor{"payments.send": tools.ExecutorFunc(
		func(context.Context, tools.Request) (tools.Result, error) { return tools.Text("sent"), nil })})
	if err != nil {
		return nil, err
	}
	d, err := tools.New(tools.Config{Store: store, Registry: reg, Policies: fixed{&tools.Compiled{Bundle: b, Policy: p}}})
	if err != nil {
		return nil, err
	}
	g := &gate{d: d, store: store, bundle: b, scopes: make([]tools.Scope, n)}
	for c := range n {
		if err := g.open(ctx, c, 0); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// open gives a caller a fresh run.
func (g *gate) open(ctx context.Context, caller, n int) error {
	id := fmt.Sprintf("%d-%d", caller, n)
	run := persistence.Run{ID: specs.RunID("r" + id), Profile: "p", User: "u", Bundle: g.bundle.Digest, Root: specs.InvocationID("i" + id)}
	inv := persistence.Invocation{ID: run.Root, Kind: persistence.InvocationRoot, Profile: "p"}
	_, err := g.store.Apply(ctx, persistence.Change{Tenant: "t", Run: run.ID, Key: "open", Lines: []persistence.Entry{
		{Move: &persistence.Move{Step: machine.Run().Birth(), Record: &run}},
		{Move: &persistence.Move{Step: machine.Invocation().Birth(), Record: &inv}},
	}})
	g.scopes[caller] = tools.Scope{Tenant: "t", Run: run.ID, Invocation: run.Root}
	return err
}

// callsPerRun is how long a run gets before its caller starts the next one.
const callsPerRun = 40

func (g *gate) call(ctx context.Context, caller int) error {
	s := &g.scopes[caller]
	if s.Turn > 0 && s.Turn%callsPerRun == 0 {
		turn := s.Turn
		if err := g.open(ctx, caller, int(turn)); err != nil {
			return err
		}
		s.Turn = turn
	}
	s.Turn++
	ps, err := g.d.Propose(ctx, *s, []tools.Call{{ID: "c", Name: "payments_send", Arguments: json.RawMessage(gateArgs)}}, tools.Rider{StartFirst: true})
	if err != nil {
		return err
	}
	if ps[0].Result != nil {
		return fmt.Errorf("refused: %s: %s", ps[0].Result.ErrorCode, ps[0].Decision.Reason)
	}
	res, err := g.d.Execute(ctx, *s, ps[0].Call.ID)
	if err == nil && res.IsError {
		err = errors.New(res.ErrorCode)
	}
	return err
}

// ---- the floors

const schema = `CREATE TABLE journal (run bigint, seq int, kind int, payload text, PRIMARY KEY (run, seq));
CREATE TABLE state (id bigint PRIMARY KEY, state int, version int);`

type liteFloor struct{ db *sql.DB }

func bareSQLite(path string) (bare, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(schema)
	return liteFloor{db}, err
}

func (f liteFloor) Close() error { return f.db.Close() }
func (f liteFloor) call(ctx context.Context, id int64) error {
	commit := func(stmts ...string) error {
		tx, err := f.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for _, q := range stmts {
			if _, err := tx.Exec(q, id, gateArgs); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
	return errors.Join(
		commit(`INSERT INTO journal VALUES (?1,1,1,?2),(?1,2,2,?2),(?1,3,3,?2)`, `INSERT INTO state SELECT ?1,3,3 WHERE ?2<>''`),
		commit(`INSERT INTO journal VALUES (?1,4,4,?2)`, `UPDATE state SET state=4, version=4 WHERE id=?1 AND version=3 AND ?2<>''`))
}

type pgFloor struct{ p *pgxpool.Pool }

func barePostgres(ctx context.Context, dsn string) (bare, error) {
	p, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	_, err = p.Exec(ctx, schema)
	return pgFloor{p}, err
}

func (f pgFloor) Close() error { f.p.Close(); return nil }
func (f pgFloor) call(ctx context.Context, id int64) error {
	if _, err := f.p.Exec(ctx, `WITH j AS (INSERT INTO journal VALUES ($1,1,1,$2),($1,2,2,$2),($1,3,3,$2)) INSERT INTO state VALUES ($1,3,3)`, id, gateArgs); err != nil {
		return err
	}
	_, err := f.p.Exec(ctx, `WITH j AS (INSERT INTO journal VALUES ($1,4,4,$2)) UPDATE state SET state=4, version=4 WHERE id=$1 AND version=3`, id, gateArgs)
	return err
}
