package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/apply"
	"github.com/callgate/callgate/persistence/sqlstore"
)

const (
	// attempts is how often a change is tried that Postgres asks to repeat or that meets a dead connection.
	attempts = 5
	// settling bounds the second round trip, and finding out what became of it.
	settling = 10 * time.Second
)

// errAmbiguous marks a commit of which the answer was not heard.
var errAmbiguous = errors.New("the connection was lost while the change was being committed")

// Apply implements persistence.Store.
func (s *Store) Apply(ctx context.Context, c persistence.Change) (persistence.Applied, error) {
	plan, err := apply.Prepare(c)
	if err != nil {
		return persistence.Applied{}, err
	}
	ctx, cancel := sqlstore.Bound(ctx)
	defer cancel()
	applied, writes, err := s.commit(ctx, plan)
	if err != nil {
		return persistence.Applied{}, fmt.Errorf("change %q: %w", c.Key, err)
	}
	if writes != nil {
		plan.Told(writes)
	}
	return applied, nil
}

// commit tries until there is a clear answer, or the attempts are used up.
func (s *Store) commit(ctx context.Context, plan *apply.Plan) (persistence.Applied, *apply.Writes, error) {
	for attempt := 1; ; attempt++ {
		applied, writes, err := s.once(ctx, plan)
		if errors.Is(err, errAmbiguous) {
			var found bool
			if applied, found, err = s.settle(ctx, plan, err); err != nil || found {
				return applied, writes, err
			}
			err = errRepeat // it is certain that nothing was written
		}
		again := errors.Is(err, errRepeat) || errors.Is(err, persistence.ErrUnavailable)
		switch {
		case err == nil || !again:
			return applied, writes, err
		case ctx.Err() != nil:
			return applied, nil, translate(ctx.Err())
		case attempt == attempts:
			if errors.Is(err, errRepeat) {
				err = fmt.Errorf("%w: %w", persistence.ErrUnavailable, err)
			}
			return applied, nil, err
		}
		if err := pause(ctx, attempt); err != nil {
			return applied, nil, translate(err)
		}
	}
}

// pause waits longer from attempt to attempt: 10, 40, 90, ... ms.
func pause(ctx context.Context, attempt int) error {
	timer := time.NewTimer(time.Duration(attempt*attempt) * 10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once is the change in two round trips: begin, lock and read; write and commit.
func (s *Store) once(ctx context.Context, plan *apply.Plan) (persistence.Applied, *apply.Writes, error) {
	var none persistence.Applied
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return none, nil, translate(err)
	}
	defer release(conn)
	facts, err := s.load(ctx, conn.Conn(), plan.Needs())
	if err != nil {
		return none, nil, err
	}
	applied, writes, err := plan.Decide(facts)
	if err != nil || writes == nil {
		return applied, nil, err
	}
	if err := ctx.Err(); err != nil {
		return none, nil, err
	}
	// From here on the caller's context does not count: a commit that is half-way has no clear answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	var b pgx.Batch
	write(&b, writes)
	var tag pgconn.CommandTag
	b.Queue("commit").Exec(func(t pgconn.CommandTag) error { tag = t; return nil })
	err = conn.Conn().SendBatch(ctx, &b).Close()
	var pg *pgconn.PgError
	switch {
	case err == nil && tag.String() == "COMMIT":
		return applied, writes, nil
	case err == nil:
		return none, nil, fmt.Errorf("%w: commit answered %s", persistence.ErrUnavailable, tag)
	case errors.As(err, &pg) && pg.Severity == "ERROR":
		return none, nil, translate(err) // the server refused a statement, so it cannot have committed
	}
	return none, writes, fmt.Errorf("%w: %w", errAmbiguous, err)
}

// release gives a connection back without a transaction on it. A lock that somebody waits for ends here.
func release(conn *pgxpool.Conn) {
	c := conn.Conn()
	if !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.Background(), settling)
		defer cancel()
		if _, err := c.Exec(ctx, "rollback"); err != nil {
			_ = c.Close(ctx)
		}
	}
	conn.Release()
}

// settle finds out whether a change was committed whose commit was not answered. The old backend may still be at it,
// and then it holds the chain's lock: whoever gets that lock knows that the matter is decided.
func (s *Store) settle(ctx context.Context, plan *apply.Plan, cause error) (persistence.Applied, bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	needs := plan.Needs()
	needs = apply.Needs{Tenant: needs.Tenant, Run: needs.Run, Key: needs.Key, RunBorn: needs.RunBorn, TenantChain: needs.TenantChain}
	for attempt := 1; ; attempt++ {
		facts, err := s.look(ctx, needs)
		if err == nil {
			if facts.Prior == nil {
				return persistence.Applied{}, false, nil
			}
			applied, _, err := plan.Decide(facts)
			return applied, true, err
		}
		cause = errors.Join(cause, err)
		if pause(ctx, attempt) != nil {
			return persistence.Applied{}, false, fmt.Errorf("%w; whether the change was written is not known, ask again with the same key: %w",
				persistence.ErrUnavailable, cause)
		}
	}
}

func (s *Store) look(ctx context.Context, n apply.Needs) (apply.Facts, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return apply.Facts{}, translate(err)
	}
	defer release(conn)
	return s.load(ctx, conn.Conn(), n)
}
