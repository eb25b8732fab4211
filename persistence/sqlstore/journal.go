package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

const lineColumns = `SELECT seq, id, at, level, kind, payload, cause, request, invocation, call, related,
	coalesce(machine, ''), coalesce(subject, ''), coalesce(from_state, ''), coalesce(event, ''), coalesce(to_state, ''), holds, prev, hash
	FROM journal `

// Journal implements persistence.Store.
func (r Reads) Journal(ctx context.Context, t specs.TenantID, run specs.RunID, q persistence.JournalQuery) ([]persistence.Line, error) {
	a := arguments{string(t), string(run)}
	where := `WHERE tenant = $1 AND run = $2`
	if q.AfterSeq > 0 {
		where += ` AND seq > ` + a.add(q.AfterSeq)
	}
	if q.BeforeSeq > 0 {
		where += ` AND seq < ` + a.add(q.BeforeSeq)
	}
	if len(q.Kinds) > 0 {
		where += ` AND kind IN (` + addAll(&a, q.Kinds) + `)`
	}
	if q.Related != "" {
		where += ` AND related = ` + a.add(q.Related)
	}
	backwards := q.BeforeSeq > 0 && q.AfterSeq <= 0
	order := ` ORDER BY seq LIMIT `
	if backwards {
		order = ` ORDER BY seq DESC LIMIT `
	}
	where += order + a.add(Limit(q.Limit, 200, 5000))
	var out []persistence.Line
	err := r.each(ctx, lineColumns+where, a, func(scan func(...any) error) error {
		l := persistence.Line{Tenant: t, Run: run}
		var at int64
		var payload []byte
		var holds string
		err := scan(&l.Seq, &l.ID, &at, &l.Level, &l.Kind, &payload, &l.Cause, &l.Request, &l.Invocation, &l.Call, &l.Related,
			&l.Machine, &l.Subject, &l.From, &l.Event, &l.To, &holds, &l.Prev, &l.Hash)
		l.At = persistence.FromMicros(at)
		if len(payload) > 0 {
			l.Payload = payload
		}
		if holds != "" {
			l.Holds = json.RawMessage(holds)
		}
		out = append(out, l)
		return err
	})
	if err != nil {
		return nil, err
	}
	if backwards {
		slices.Reverse(out)
	}
	if len(out) == 0 {
		_, err = r.Head(ctx, t, run)
	}
	return out, err
}

// Head implements persistence.Store.
func (r Reads) Head(ctx context.Context, t specs.TenantID, run specs.RunID) (persistence.Head, error) {
	var h persistence.Head
	found, err := r.one(ctx, `SELECT seq, hash FROM heads WHERE tenant = $1 AND run = $2`, []any{string(t), string(run)}, &h.Seq, &h.Hash)
	if err == nil && !found && run != "" {
		err = fmt.Errorf("run %s: %w", run, persistence.ErrNotFound)
	}
	return h, err
}

// Decisions implements persistence.Store: in the order in which they were made.
func (r Reads) Decisions(ctx context.Context, t specs.TenantID, run specs.RunID, call specs.CallID) ([]persistence.DecisionRecord, error) {
	var out []persistence.DecisionRecord
	err := r.each(ctx, `SELECT phase, attempt, policy_digest, input, output, replayable, seq FROM decisions
		WHERE tenant = $1 AND run = $2 AND call = $3 ORDER BY seq, phase, attempt`, []any{string(t), string(run), string(call)},
		func(scan func(...any) error) error {
			d := persistence.DecisionRecord{Call: call}
			var input, output []byte
			err := scan(&d.Phase, &d.Attempt, &d.PolicyDigest, &input, &output, &d.Replayable, &d.Seq)
			d.Input, d.Output = input, output
			out = append(out, d)
			return err
		})
	return out, err
}

// Transitions implements persistence.Store.
func (r Reads) Transitions(ctx context.Context) ([]machine.Step, error) {
	var out []machine.Step
	err := r.each(ctx, `SELECT machine, from_state, event, to_state, journal FROM transitions ORDER BY machine, from_state, event`, nil,
		func(scan func(...any) error) error {
			var s machine.Step
			err := scan(&s.Machine, &s.From, &s.Event, &s.To, &s.Journal)
			out = append(out, s)
			return err
		})
	return out, err
}

// MissingTransitions are edges of the machine room that the database does not hold, and foreign ones that it does.
func (r Reads) MissingTransitions(ctx context.Context) (missing, foreign []machine.Step, err error) {
	held, err := r.Transitions(ctx)
	if err != nil {
		return nil, nil, err
	}
	law := Law()
	for _, s := range law {
		if !slices.Contains(held, s) {
			missing = append(missing, s)
		}
	}
	for _, s := range held {
		if !slices.Contains(law, s) {
			foreign = append(foreign, s)
		}
	}
	return missing, foreign, nil
}

// Law is every edge of the shipped machines, births included.
func Law() []machine.Step {
	var out []machine.Step
	for _, t := range machine.All() {
		out = append(out, t.Edges()...)
	}
	return out
}
