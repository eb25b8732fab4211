package persistence

import (
	"encoding/json"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// Change is one step: everything in it is written together.
type Change struct {
	Tenant specs.TenantID
	Run    specs.RunID // "" when the change is the tenant's own (bundles, grants)
	// Key makes the change idempotent within tenant and run: the same key again writes nothing and answers
	// with the first Applied. Required. Use what the step is, "start/<call>/<attempt>".
	Key string
	// Fence is the holder's lease token; 0 means that the change needs no lease (an approval, a cancel).
	Fence int64

	Lines     []Entry // at least one; the story in reading order
	Decisions []DecisionRecord
	Reserve   []Reservation
	Settle    []Settlement
	Adjust    []Adjustment
	Blobs     []Blob     // content that lines, records and trees refer to; equal content is stored once
	Artifacts []Artifact // names for blobs within the run
	Trees     []TreeChange
	Reads     []ReadState
	Grants    []Grant
	Revoke    []string // grant ids
	Bundle    *BundleChange
}

// Applied says what Apply wrote.
type Applied struct {
	Seqs      []int64   // numbers given to Lines, in order
	At        time.Time // the store's clock, microseconds, UTC: the time of every line
	Versions  []int64   // new version of each tree of Change.Trees, in order
	Duplicate bool      // the Key was applied before; Seqs, At and Versions are those of that time
}

// Entry is a journal line to be written, and the state it moves, if any.
type Entry struct {
	Kind       string // a journal kind of the machine tables or of journal.go
	Level      Level  // default info
	Payload    json.RawMessage
	Redact     []string // JSON pointers into Payload replaced before hashing
	Cause      int64    // seq of the line that led to this one; 0: none
	Request    string   // id of the outside request, if any
	Invocation specs.InvocationID
	Call       specs.CallID
	Related    string // another subject's id
	Move       *Move
}

// Move moves one record along one edge, or gives birth to it (Step.From == "").
type Move struct {
	Step machine.Step
	// Record is a *Run, *Call, *Invocation or *Approval with its new content. After a commit Apply sets its State, Version,
	// Created and Updated to what is stored; a refused or repeated change leaves it alone. So two goroutines must not
	// apply changes that share a record.
	Record Record
	// Version is the version the caller read, checked when not 0; the state Step.From is always checked.
	Version int64
	// OnTime refuses the move with ErrExpired when the stored record's deadline has passed by the store's clock.
	OnTime bool
}

// Record is what has a lifecycle: *Run, *Call, *Invocation, *Approval.
type Record interface {
	// Subject gives the machine's name and the record's id, unique per tenant, run and machine.
	Subject() (machineName, id string)
	// Due is when the state's timer fires; zero: never.
	Due() time.Time
	meta() *RecordMeta
}

// Level is a journal line's weight.
type Level string

// Levels.
const (
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

// Reservation sets budget aside before a side effect.
type Reservation struct {
	Call       specs.CallID
	Counter    CounterKey
	Limit      int64 // as the decision gave it
	Amount     int64 // >= 0
	LeaseUntil time.Time
}

// Settlement turns a reservation into spending; what was reserved and not spent is released. Spent 0 releases it all.
type Settlement struct {
	Call    specs.CallID
	Counter CounterKey
	Spent   int64 // 0..reserved
}

// CounterKey names a budget counter: scope, owner, dimension, joined by "/".
type CounterKey string

// Counter is a budget's state. Limit = Spent + Reserved + Left, all >= 0.
type Counter struct {
	Key                          CounterKey
	Limit, Spent, Reserved, Left int64
}

// Blob is content by digest.
type Blob struct {
	Digest    specs.Digest // of Data; checked
	MediaType string
	Data      []byte
}

// BlobOf makes a Blob of its content.
func BlobOf(mediaType string, data []byte) Blob {
	return Blob{Digest: specs.DigestOf(data), MediaType: mediaType, Data: data}
}

// Artifact gives a blob a name within its run. The same name with other content is ErrConflict.
type Artifact struct {
	Name   string // tool-args/..., tool-results/..., summaries/...
	Digest specs.Digest
}

// ReadState remembers what an invocation knows of a file in full. An empty Digest forgets it.
type ReadState struct {
	Invocation specs.InvocationID
	Path       string
	Digest     specs.Digest
}

// Grant is a remembered yes: calls of the tool whose arguments match need not be asked again.
type Grant struct {
	ID         string
	Tool       specs.ToolName
	ToolDigest specs.Digest // the definition it was given for; another one is asked again
	Run        specs.RunID  // empty: every run of the tenant
	User       specs.UserID // whose runs; empty only for tenant-wide grants
	// Args is the argument pattern: JSON pointer -> canonical JSON text that must be equal. Nil matches any
	// arguments, which a person must have chosen in so many words.
	Args    map[string]string
	Rules   []specs.RuleID // the asks it answers
	By      specs.UserID
	Created time.Time
	Expires time.Time // zero: never
}

// DecisionRecord is what policy said, with the exact input, so that it can be replayed.
type DecisionRecord struct {
	Call         specs.CallID
	Phase        string // call or dispatch
	Attempt      int64  // 1.. within the phase
	PolicyDigest specs.Digest
	Input        json.RawMessage
	Output       json.RawMessage // the decision with its trace and budget snapshot
	Replayable   bool            // false when redaction removed part of the input
	Seq          int64           // set by the store: the line it belongs to
}

// BundleChange stores a bundle, activates one, or both.
type BundleChange struct {
	Store    *StoredBundle
	Activate specs.Digest // empty: leave as is
	// Expect is the active digest the caller saw ("" for none); another one is ErrStale. Checked only with Activate.
	Expect specs.Digest
}

// StoredBundle is a tenant's bundle as applied.
type StoredBundle struct {
	Digest  specs.Digest
	Files   []specs.File
	By      specs.UserID
	Applied time.Time
	Active  bool
	// Previous is what was active before this one was last activated; rollback goes there.
	Previous specs.Digest
}
