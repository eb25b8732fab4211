package persistence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// Store is the system of record. Every method is safe for concurrent use by many goroutines and processes.
// Every read names its tenant; a foreign id and a missing id give the same ErrNotFound.
type Store interface {
	// Apply writes a Change, all or nothing. Errors: ErrStale, ErrFenced, ErrExpired, *BudgetError, ErrConflict,
	// ErrNotFound, ErrInvalid, ErrFull; anything else is a failure of the store itself, after which the caller must
	// not act on the change (an ambiguous commit has already been settled by re-reading with the Change's Key).
	Apply(ctx context.Context, c Change) (Applied, error)

	// Run, Call, Invocation and Approval read one record.
	Run(ctx context.Context, t specs.TenantID, id specs.RunID) (Run, error)
	Call(ctx context.Context, t specs.TenantID, run specs.RunID, id specs.CallID) (Call, error)
	Invocation(ctx context.Context, t specs.TenantID, run specs.RunID, id specs.InvocationID) (Invocation, error)
	Approval(ctx context.Context, t specs.TenantID, id specs.ApprovalID) (Approval, error)

	// Runs and Approvals list newest first. Next is empty on the last page.
	Runs(ctx context.Context, t specs.TenantID, q Query) (rs []Run, next Cursor, err error)
	Approvals(ctx context.Context, t specs.TenantID, q Query) (as []Approval, next Cursor, err error)
	// Calls and Invocations list all of one run, in order of birth.
	Calls(ctx context.Context, t specs.TenantID, run specs.RunID) ([]Call, error)
	Invocations(ctx context.Context, t specs.TenantID, run specs.RunID) ([]Invocation, error)
	// Due lists records of any tenant whose deadline has passed by the store's clock and whose state waits on a timer, oldest first.
	Due(ctx context.Context, limit int) ([]Due, error)

	// Journal pages through a run's lines (run "" is the tenant's own journal). Head gives the last number and hash.
	Journal(ctx context.Context, t specs.TenantID, run specs.RunID, q JournalQuery) ([]Line, error)
	Head(ctx context.Context, t specs.TenantID, run specs.RunID) (Head, error)
	// Decision reads what policy said of a call: phase "call" or the newest of phase "dispatch".
	Decisions(ctx context.Context, t specs.TenantID, run specs.RunID, call specs.CallID) ([]DecisionRecord, error)

	// Blob reads content by digest and verifies it; a mismatch is ErrCorrupt.
	Blob(ctx context.Context, t specs.TenantID, d specs.Digest) ([]byte, error)
	// Artifact reads the digest behind a name such as tool-args/call_0011223344556677.json.
	Artifact(ctx context.Context, t specs.TenantID, run specs.RunID, name string) (specs.Digest, error)
	// Artifacts lists all of a run, by name.
	Artifacts(ctx context.Context, t specs.TenantID, run specs.RunID) ([]Artifact, error)

	// Tree reads a manifest; version 0 asks for the newest. A tree nobody wrote to is empty at version 0.
	Tree(ctx context.Context, t specs.TenantID, id TreeID, version int64) (Tree, error)
	Checkpoints(ctx context.Context, t specs.TenantID, id TreeID) ([]Checkpoint, error)
	// ReadStates gives, by path, the digest of what an invocation has fully read or written itself.
	ReadStates(ctx context.Context, t specs.TenantID, run specs.RunID, inv specs.InvocationID) (map[string]specs.Digest, error)

	// Counter reads a budget counter; one never reserved against is zero. Counters lists by key prefix.
	Counter(ctx context.Context, t specs.TenantID, key CounterKey) (Counter, error)
	Counters(ctx context.Context, t specs.TenantID, prefix string) ([]Counter, error)
	// Reservations lists the open ones of a run.
	Reservations(ctx context.Context, t specs.TenantID, run specs.RunID) ([]Reservation, error)
	// Grants lists remembered grants that are neither revoked nor expired: with a run those that hold in it (its own and
	// those without a run), with run "" all of the tenant.
	Grants(ctx context.Context, t specs.TenantID, run specs.RunID) ([]Grant, error)

	// Bundle, Bundles and ActiveBundle read what `bundle apply` and `activate` wrote. Bundles is newest first.
	Bundle(ctx context.Context, t specs.TenantID, d specs.Digest) (StoredBundle, error)
	Bundles(ctx context.Context, t specs.TenantID) ([]StoredBundle, error)
	// ActiveBundle answers ErrNotFound when none was ever activated.
	ActiveBundle(ctx context.Context, t specs.TenantID) (StoredBundle, error)

	// Acquire takes the run's lease for ttl or answers *HeldError. A lease that has run out, or whose holder
	// takeover says is dead, is taken over; the new fence is greater than every earlier one.
	Acquire(ctx context.Context, t specs.TenantID, run specs.RunID, owner string, ttl time.Duration, takeover func(holder string) bool) (Lease, error)
	// Renew extends a lease; ErrFenced when somebody else holds it now.
	Renew(ctx context.Context, l Lease, ttl time.Duration) (Lease, error)
	// Release gives it back; releasing a lost lease is not an error.
	Release(ctx context.Context, l Lease) error

	// Now is the store's clock, which decides expiry.
	Now(ctx context.Context) (time.Time, error)
	// Transitions reads the law as the database holds it, to be compared with the machine room's tables.
	Transitions(ctx context.Context) ([]machine.Step, error)
	// Doctor reports what is wrong with the database: version, missing triggers or keys, settings. Empty means well.
	Doctor(ctx context.Context) ([]Ailment, error)
	Close() error
}

// Sentinels. Adapters wrap them with what and where; match with errors.Is.
var (
	ErrNotFound    = errors.New("not found")
	ErrStale       = errors.New("somebody was first: the state is no longer what this change expects")
	ErrFenced      = errors.New("the lease on this run has passed to another process")
	ErrExpired     = errors.New("the time to decide has passed")
	ErrConflict    = errors.New("the name is taken by other content")
	ErrInvalid     = errors.New("the change contradicts itself") // a bug of the caller; nothing was written
	ErrIllegal     = errors.New("the move is not in the table")
	ErrCorrupt     = errors.New("stored content does not match its digest")
	ErrFull        = errors.New("the disk is full")
	ErrLocked      = errors.New("the store is locked by another process")
	ErrNewerStore  = errors.New("the store was written by a newer version")
	ErrNotMigrated = errors.New("the store has not been migrated")
	ErrNotAStore   = errors.New("this is not a callgate store")
	ErrUnavailable = errors.New("the store cannot be reached")
	ErrRefused     = errors.New("access to the store is refused") // waiting does not help: address, login, rights
	ErrDamaged     = errors.New("the store is damaged")           // below its rows: the database itself cannot read it
)

// OutOfOrder says that err is about the store as a whole and tells nothing about what it holds: whoever wanted to read or
// write can do so later, when people have mended it.
func OutOfOrder(err error) bool {
	for _, kind := range []error{ErrUnavailable, ErrLocked, ErrFull, ErrRefused, ErrDamaged} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// HeldError says who works on a run.
type HeldError struct {
	Owner string
	Until time.Time
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("the run is held by %s until %s", e.Owner, e.Until.UTC().Format(time.RFC3339))
}

// BudgetError says which counter could not pay. Nothing of the Change was written.
type BudgetError struct {
	Counter                       CounterKey
	Limit, Spent, Reserved, Asked int64
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("budget %s: %d asked, %d left of %d", e.Counter, e.Asked, max(0, e.Limit-e.Spent-e.Reserved), e.Limit)
}

// Ailment is one finding of Doctor.
type Ailment struct {
	What string `json:"what"`
	Fix  string `json:"fix"` // a command or SQL statement
}

// Query selects runs or approvals.
type Query struct {
	States []machine.State // empty: any
	Run    specs.RunID     // approvals only: of this run
	After  Cursor
	Limit  int // default 50, at most 500
}

// Cursor is an opaque place in a listing.
type Cursor string

// Due is a record whose deadline has passed.
type Due struct {
	Tenant  specs.TenantID
	Run     specs.RunID
	Machine string
	ID      string
	State   machine.State
}

// Lease is the right to move a run on.
type Lease struct {
	Tenant specs.TenantID
	Run    specs.RunID
	Owner  string
	Fence  int64 // grows with each holder; goes into every Change of the holder
	Until  time.Time
}
