package tools

import (
	"context"
	"encoding/json"
	"time"

	"github.com/callgate/callgate/specs"
)

// Executor runs one tool, or all tools of one source.
type Executor interface {
	// Execute does the tool's work once. The context ends at the tool's timeout or when the call is cancelled. An error is a
	// system failure and fails the run; anything that the model can read and mend is a Result made by Recoverable. An error
	// that wraps ErrOutcomeUnknown says that the effect may or may not have happened: the call then waits for a person.
	// Args were validated against the tool's input schema.
	Execute(ctx context.Context, req Request) (Result, error)
}

// ExecutorFunc lets a function be an Executor.
type ExecutorFunc func(ctx context.Context, req Request) (Result, error)

// Execute implements Executor.
func (f ExecutorFunc) Execute(ctx context.Context, req Request) (Result, error) { return f(ctx, req) }

// Transactional is an Executor whose only effects are the staged edits of Request.Workspace: they commit together with the
// call's outcome or not at all, so such a call can always be started again after a crash.
type Transactional interface {
	Executor
	Transactional()
}

// Reconciler is an Executor that can say later what became of a call, by its idempotency key.
type Reconciler interface {
	Executor
	// Reconcile answers (result, true, nil) when the effect happened, (_, false, nil) when it certainly did not,
	// and an error when it cannot tell.
	Reconcile(ctx context.Context, req Request) (Result, bool, error)
}

// Request is everything an executor is handed about one call.
type Request struct {
	Tenant     specs.TenantID
	Run        specs.RunID
	Invocation specs.InvocationID
	Call       specs.CallID
	Tool       *specs.Tool
	Args       json.RawMessage // canonical JSON object
	Attempt    int64           // 1 for the first start
	// IdempotencyKey is the same for every attempt of the call; pass it to whatever can use it.
	IdempotencyKey string
	Deadline       time.Time
	Profile        *specs.Profile
	Chat           string // the chat this run answers in
	Commits        int64  // confirmed so far in this run
	Workspace      Workspace
	Host           Host
}

// Host is the application the run answers in. It alone writes chat messages.
type Host interface {
	// Commit publishes content. The host remembers Key: the same key again answers with the first receipt and writes nothing.
	Commit(ctx context.Context, c Commit) (Receipt, error)
	// Confirm says whether a commit with this key happened in this tenant's chat. Two tenants may have chats of the same name;
	// the one's commits are never the other's.
	Confirm(ctx context.Context, tenant specs.TenantID, chat, key string) (Receipt, bool, error)
}

// CommitMode is how content lands in the chat.
type CommitMode string

// Modes. Append creates the run's message when there is none, and then always extends that one.
const (
	CommitReplace CommitMode = "replace"
	CommitAppend  CommitMode = "append"
)

// Commit is one publication of a workspace file.
type Commit struct {
	Tenant  specs.TenantID `json:"tenant"`
	Run     specs.RunID    `json:"run"`
	Chat    string         `json:"chat"`
	Key     string         `json:"key"`
	Path    string         `json:"path"`
	Mode    CommitMode     `json:"mode"`
	Content string         `json:"content"`
	Reason  string         `json:"reason,omitempty"`
}

// Receipt is the host's word that a commit is in the chat.
type Receipt struct {
	Message string       `json:"message"` // the host's id of the message
	Digest  specs.Digest `json:"digest"`  // of the whole message after the commit
}

// Workspace is one invocation's view of the run's files: a snapshot to read, and edits staged for the call's outcome.
// Paths are logical and already cleaned (tools/workspace does that). Nothing is written until the dispatcher commits.
type Workspace interface {
	// Roots are the visible and writable prefixes, each a clean path.
	Visible() []string
	Writable() []string
	// List gives every file, sorted by path, staged edits included; visibility is the caller's to apply.
	List() []File
	// Stat gives one file. Read gives its bytes. Both see staged edits. ok is false when there is no such file.
	Stat(path string) (f File, ok bool)
	Read(ctx context.Context, path string) (data []byte, ok bool, err error)
	// Known is the digest this invocation has fully read or written itself; "" when none.
	Known(path string) specs.Digest
	// Learn records a full read (or an own write) in the read-state; it commits with the outcome.
	Learn(path string, d specs.Digest)
	// Write and Remove stage an edit; Remove also forgets what was learnt of the file.
	Write(path string, data []byte)
	Remove(path string)
	// Checkpoint stages a checkpoint with a label even when nothing was edited.
	Checkpoint(label string)
	// Checkpoints lists the run's checkpoints, oldest first; At reads the manifest of one, ok false when there is no such version.
	Checkpoints(ctx context.Context) ([]Checkpoint, error)
	At(ctx context.Context, version int64) (files []File, ok bool, err error)
	// ReadAt reads a file of an older version by its digest.
	ReadBlob(ctx context.Context, d specs.Digest) ([]byte, error)
	// Version is the version of the snapshot.
	Version() int64
}

// File is one workspace file.
type File struct {
	Path   string
	Size   int64 // bytes
	Digest specs.Digest
}

// Checkpoint names a version of the workspace.
type Checkpoint struct {
	Version int64
	Label   string
	Reason  string
	At      time.Time
}
