package apply

import (
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Needs is what has to be read for a Change, and locked where it says so. Every list is sorted and without repeats.
type Needs struct {
	Tenant specs.TenantID
	Run    specs.RunID
	Key    string
	// RunBorn: the run's chain begins with this change; its head row is to be made first.
	RunBorn bool
	// TenantChain: the tenant's own chain gets a line too; lock its head after the run's.
	TenantChain bool
	// RunEnds: read everything of the run that is not final yet, and its open reservations.
	RunEnds      bool
	Subjects     []SubjectKey
	Counters     []persistence.CounterKey // lock
	Reservations []ReservationKey
	Trees        []persistence.TreeID // lock
	Digests      []specs.Digest       // blobs that must be there already
	Artifacts    []string
	Grants       []string
	Decisions    []DecisionKey
	Bundles      []specs.Digest
	ActiveBundle bool
}

// SubjectKey names a record within the run.
type SubjectKey struct{ Machine, ID string }

// ReservationKey names a reservation within the run.
type ReservationKey struct {
	Call    specs.CallID
	Counter persistence.CounterKey
}

// DecisionKey names a decision within the run.
type DecisionKey struct {
	Call    specs.CallID
	Phase   string
	Attempt int64
}

// Facts is what was found. What is not in a map does not exist.
type Facts struct {
	Now          time.Time         // the store's clock, read after the locks were taken
	Prior        []byte            // what Writes.Applied held when Key was applied; nil: never
	Head         *persistence.Head // nil: the chain does not exist
	TenantHead   persistence.Head
	Lease        *persistence.Lease // nil: never taken; Owner "" when released
	Subjects     map[SubjectKey]Subject
	Open         []SubjectKey     // not final, when Needs.RunEnds
	Reserved     []ReservationKey // open, when Needs.RunEnds
	Counters     map[persistence.CounterKey]persistence.Counter
	Reservations map[ReservationKey]int64 // amount
	Trees        map[persistence.TreeID]int64
	Digests      map[specs.Digest]bool
	Artifacts    map[string]specs.Digest
	Grants       map[string]bool
	Decisions    map[DecisionKey]bool
	Bundles      map[specs.Digest]bool
	ActiveBundle specs.Digest
}

// Subject is what Decide has to know of a stored record.
type Subject struct {
	State    machine.State
	Version  int64
	Deadline time.Time
	Created  time.Time
	Born     int64 // seq of the line of its birth
}

// Writes is what is to be put down, in the order of the fields. Lists are sorted where two changes could
// otherwise wait for each other.
type Writes struct {
	Tenant  specs.TenantID
	Run     specs.RunID
	Key     string
	Applied []byte
	At      time.Time

	Blobs     []persistence.Blob // those that exist already are to be left alone
	Lines     []persistence.Line
	Heads     []HeadRow
	Waves     [][]SubjectRow // no subject twice in a wave; births are inserts, the rest updates
	Decisions []persistence.DecisionRecord
	Counters  []persistence.Counter // new values; insert or replace
	Reserve   []persistence.Reservation
	Settle    []ReservationKey // remove
	Artifacts []persistence.Artifact
	Trees     []TreeRow
	Reads     []persistence.ReadState
	Grants    []persistence.Grant
	Revoke    []string
	Bundle    *persistence.StoredBundle // nil: none to store
	Activate  specs.Digest              // "": leave as is
	Previous  specs.Digest              // what was active before
	// ReleaseLease ends the run's lease: the run is over.
	ReleaseLease bool
}

// HeadRow is a chain's new end.
type HeadRow struct {
	Run specs.RunID
	persistence.Head
}

// SubjectRow is a record's row after one move.
type SubjectRow struct {
	SubjectKey
	From     machine.State // "" at birth: insert
	Event    machine.Event
	State    machine.State
	Version  int64
	Deadline time.Time // as the record has it
	Due      time.Time // Deadline when State waits on a timer, else zero
	Ended    bool      // State is final
	Created  time.Time
	Updated  time.Time
	Seq      int64  // of the line that makes the move
	Body     []byte // empty when a later wave of the same change fills it
}

// TreeRow is a tree's next version.
type TreeRow struct {
	Tree       persistence.TreeID
	Version    int64
	Edits      []persistence.TreeEdit // sorted by path
	Checkpoint persistence.Checkpoint
}
