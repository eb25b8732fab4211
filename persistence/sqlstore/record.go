package sqlstore

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

const recordColumns = `SELECT run, id, state, version, created, updated, deadline, body FROM subjects `

// record is a pointer type that is a persistence.Record.
type record[T any] interface {
	*T
	persistence.Record
}

func scanRecord[T any, P record[T]](t specs.TenantID, scan func(...any) error) (T, error) {
	var rec T
	var run, id, state string
	var version, created, updated, deadline int64
	var body []byte
	if err := scan(&run, &id, &state, &version, &created, &updated, &deadline, &body); err != nil {
		return rec, err
	}
	if err := persistence.DecodeRecord(body, P(&rec)); err != nil {
		return rec, err
	}
	if kind, own := P(&rec).Subject(); own != id {
		return rec, fmt.Errorf("%w: %s %s says that it is %s", persistence.ErrCorrupt, kind, id, own)
	}
	*persistence.MetaOf(P(&rec)) = persistence.RecordMeta{Tenant: t, Run: specs.RunID(run), State: machine.State(state), Version: version,
		Created: persistence.FromMicros(created), Updated: persistence.FromMicros(updated), Deadline: persistence.FromMicros(deadline)}
	return rec, nil
}

func oneRecord[T any, P record[T]](ctx context.Context, r Reads, t specs.TenantID, where string, args ...any) (T, error) {
	var rec T
	found := false
	err := r.each(ctx, recordColumns+where, args, func(scan func(...any) error) (err error) {
		found = true
		rec, err = scanRecord[T, P](t, scan)
		return err
	})
	if err == nil && !found {
		kind, _ := P(&rec).Subject()
		err = fmt.Errorf("%s %s: %w", kind, args[len(args)-1], persistence.ErrNotFound)
	}
	return rec, err
}

const byID = `WHERE tenant = $1 AND run = $2 AND machine = $3 AND id = $4`

// Run implements persistence.Store.
func (r Reads) Run(ctx context.Context, t specs.TenantID, id specs.RunID) (persistence.Run, error) {
	return oneRecord[persistence.Run](ctx, r, t, byID, string(t), string(id), machine.RunName, string(id))
}

// Call implements persistence.Store.
func (r Reads) Call(ctx context.Context, t specs.TenantID, run specs.RunID, id specs.CallID) (persistence.Call, error) {
	return oneRecord[persistence.Call](ctx, r, t, byID, string(t), string(run), machine.CallName, string(id))
}

// Invocation implements persistence.Store.
func (r Reads) Invocation(ctx context.Context, t specs.TenantID, run specs.RunID, id specs.InvocationID) (persistence.Invocation, error) {
	return oneRecord[persistence.Invocation](ctx, r, t, byID, string(t), string(run), machine.InvocationName, string(id))
}

// Approval implements persistence.Store.
func (r Reads) Approval(ctx context.Context, t specs.TenantID, id specs.ApprovalID) (persistence.Approval, error) {
	return oneRecord[persistence.Approval](ctx, r, t, `WHERE tenant = $1 AND machine = 'approval' AND id = $2`, string(t), string(id))
}

// Calls implements persistence.Store.
func (r Reads) Calls(ctx context.Context, t specs.TenantID, run specs.RunID) ([]persistence.Call, error) {
	return ofRun[persistence.Call](ctx, r, t, run, machine.CallName)
}

// Invocations implements persistence.Store.
func (r Reads) Invocations(ctx context.Context, t specs.TenantID, run specs.RunID) ([]persistence.Invocation, error) {
	return ofRun[persistence.Invocation](ctx, r, t, run, machine.InvocationName)
}

func ofRun[T any, P record[T]](ctx context.Context, r Reads, t specs.TenantID, run specs.RunID, kind string) ([]T, error) {
	var out []T
	err := r.each(ctx, recordColumns+`WHERE tenant = $1 AND run = $2 AND machine = $3 ORDER BY born`, []any{string(t), string(run), kind},
		func(scan func(...any) error) error {
			rec, err := scanRecord[T, P](t, scan)
			out = append(out, rec)
			return err
		})
	if err == nil && len(out) == 0 {
		_, err = r.Head(ctx, t, run)
	}
	return out, err
}

// Runs implements persistence.Store.
func (r Reads) Runs(ctx context.Context, t specs.TenantID, q persistence.Query) ([]persistence.Run, persistence.Cursor, error) {
	q.Run = ""
	return page[persistence.Run](ctx, r, t, machine.RunName, q)
}

// Approvals implements persistence.Store.
func (r Reads) Approvals(ctx context.Context, t specs.TenantID, q persistence.Query) ([]persistence.Approval, persistence.Cursor, error) {
	return page[persistence.Approval](ctx, r, t, machine.ApprovalName, q)
}

func page[T any, P record[T]](ctx context.Context, r Reads, t specs.TenantID, kind string, q persistence.Query) (out []T, next persistence.Cursor, err error) {
	limit := Limit(q.Limit, 50, 500)
	a := arguments{string(t), kind}
	where := `WHERE tenant = $1 AND machine = $2`
	if q.Run != "" {
		where += ` AND run = ` + a.add(string(q.Run))
	}
	if len(q.States) > 0 {
		where += ` AND state IN (` + addAll(&a, q.States) + `)`
	}
	if q.After != "" {
		created, id, err := openCursor(q.After)
		if err != nil {
			return nil, "", err
		}
		where += ` AND (created, id) < (` + a.add(created) + `, ` + a.add(id) + `)`
	}
	where += ` ORDER BY created DESC, id DESC LIMIT ` + a.add(limit+1)
	err = r.each(ctx, recordColumns+where, a, func(scan func(...any) error) error {
		rec, err := scanRecord[T, P](t, scan)
		out = append(out, rec)
		return err
	})
	if err == nil && len(out) > limit {
		out = out[:limit]
		last := P(&out[limit-1])
		_, id := last.Subject()
		next = cursor(persistence.MetaOf(last).Created, id)
	}
	return out, next, err
}

func cursor(created time.Time, id string) persistence.Cursor {
	return persistence.Cursor(base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d/%s", persistence.Micros(created), id)))
}

func openCursor(c persistence.Cursor) (created int64, id string, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(string(c))
	if err == nil {
		var us string
		us, id, _ = strings.Cut(string(raw), "/")
		created, err = strconv.ParseInt(us, 10, 64)
	}
	if err != nil {
		return 0, "", fmt.Errorf("%w: cursor %q", persistence.ErrInvalid, string(c))
	}
	return created, id, nil
}

// Due implements persistence.Store.
func (r Reads) Due(ctx context.Context, limit int) ([]persistence.Due, error) {
	now, err := r.DB.Now(ctx)
	if err != nil {
		return nil, err
	}
	var out []persistence.Due
	err = r.each(ctx, `SELECT tenant, run, machine, id, state FROM subjects WHERE due > 0 AND due <= $1 ORDER BY due, tenant, run, id LIMIT $2`,
		[]any{persistence.Micros(now), Limit(limit, 100, 5000)}, func(scan func(...any) error) error {
			var d persistence.Due
			err := scan(&d.Tenant, &d.Run, &d.Machine, &d.ID, &d.State)
			out = append(out, d)
			return err
		})
	return out, err
}

// Limit bounds what a caller asks for.
func Limit(asked, usual, most int) int {
	if asked <= 0 {
		return usual
	}
	return min(asked, most)
}

// arguments collects a statement's arguments and gives their placeholders.
type arguments []any

func (a *arguments) add(v any) string {
	*a = append(*a, v)
	return "$" + strconv.Itoa(len(*a))
}

func addAll[T ~string](a *arguments, list []T) string {
	marks := make([]string, 0, len(list))
	for _, v := range slices.Compact(slices.Sorted(slices.Values(list))) {
		marks = append(marks, a.add(string(v)))
	}
	return strings.Join(marks, ", ")
}
