package persistence

import (
	"encoding/json"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// RecordMeta is what every record with a lifecycle carries. The store fills it on reading; writers set
// Tenant and Run and leave the rest.
type RecordMeta struct {
	Tenant  specs.TenantID `json:"-"`
	Run     specs.RunID    `json:"-"`
	State   machine.State  `json:"-"`
	Version int64          `json:"-"` // 1 at birth, +1 per move
	Created time.Time      `json:"-"`
	Updated time.Time      `json:"-"`
	// Deadline is when the present state's timer fires; zero: never.
	Deadline time.Time `json:"-"`
}

func (m *RecordMeta) meta() *RecordMeta { return m }

// Due implements Record.
func (m *RecordMeta) Due() time.Time { return m.Deadline }

// Run is one task given to one agent.
type Run struct {
	RecordMeta
	ID         specs.RunID        `json:"id"`
	Profile    specs.ProfileName  `json:"profile"`
	Plan       string             `json:"plan,omitempty"`
	Node       specs.NodeID       `json:"node,omitempty"`
	NodeRounds int64              `json:"nodeRounds,omitempty"` // rounds spent in Node
	Task       string             `json:"task,omitempty"`
	User       specs.UserID       `json:"user"`
	Roles      []specs.Role       `json:"roles,omitempty"`
	Labels     map[string]string  `json:"labels,omitempty"`
	Chat       string             `json:"chat,omitempty"`  // the chat it answers in; commits and persist/ belong to it
	Model      string             `json:"model,omitempty"` // provider:name as asked for on the command line; empty: the profile's
	Bundle     specs.Digest       `json:"bundle"`
	Root       specs.InvocationID `json:"root"`
	Round      int64              `json:"round"`  // model turns so far
	Calls      int64              `json:"calls"`  // calls requested so far
	Drifts     int64              `json:"drifts"` // drift recoveries so far
	Commits    int64              `json:"commits"`
	// PersistBase is the version of the chat's stable tree that persist/ was projected from.
	PersistBase int64        `json:"persistBase,omitempty"`
	Finished    bool         `json:"finished,omitempty"`  // workspace.finish succeeded
	Reason      string       `json:"reason,omitempty"`    // why it ended, for people
	ErrorCode   string       `json:"errorCode,omitempty"` // model.tool_call_required, agent.max_tool_rounds_exceeded, ...
	Retryable   bool         `json:"retryable,omitempty"` // a person may start it again with hope
	CancelledBy specs.UserID `json:"cancelledBy,omitempty"`
}

// Subject implements Record.
func (r *Run) Subject() (string, string) { return machine.RunName, string(r.ID) }

// InvocationKind is how an agent came to work on a run.
type InvocationKind string

// Invocation kinds.
const (
	InvocationRoot     InvocationKind = "root"
	InvocationSubagent InvocationKind = "subagent"
	InvocationHandoff  InvocationKind = "handoff"
)

// Invocation is one agent at work within a run.
type Invocation struct {
	RecordMeta
	ID      specs.InvocationID `json:"id"`
	Kind    InvocationKind     `json:"kind"`
	Parent  specs.InvocationID `json:"parent,omitempty"`
	Profile specs.ProfileName  `json:"profile"`
	Depth   int64              `json:"depth"`
	Reason  string             `json:"reason,omitempty"`
}

// Subject implements Record.
func (i *Invocation) Subject() (string, string) { return machine.InvocationName, string(i.ID) }

// Call is one tool call. Its arguments and result are blobs; the record holds their digests.
type Call struct {
	RecordMeta
	ID             specs.CallID       `json:"id"` // turn and provider id, see tools.CallKey
	ProviderID     string             `json:"providerId"`
	Synthetic      bool               `json:"synthetic,omitempty"` // the adapter made ProviderID
	Metadata       json.RawMessage    `json:"metadata,omitempty"`  // the provider's own, opaque
	Invocation     specs.InvocationID `json:"invocation"`
	Turn           int64              `json:"turn"`
	Index          int64              `json:"index"`          // place within the turn
	Sequence       int64              `json:"sequence"`       // place within the run, from 1
	Asked          string             `json:"asked"`          // the name as the model wrote it
	Tool           specs.ToolName     `json:"tool,omitempty"` // empty when unknown
	ToolDigest     specs.Digest       `json:"toolDigest,omitempty"`
	Args           specs.Digest       `json:"args,omitempty"`    // of the canonical arguments now in force
	RawArgs        specs.Digest       `json:"rawArgs,omitempty"` // of the bytes as the model wrote them
	Edited         bool               `json:"edited,omitempty"`  // a person changed the arguments
	EditedBy       specs.UserID       `json:"editedBy,omitempty"`
	Approval       specs.ApprovalID   `json:"approval,omitempty"`  // the live one
	Approvals      int64              `json:"approvals,omitempty"` // how many were asked for this call
	Attempt        int64              `json:"attempt,omitempty"`   // starts so far
	IdempotencyKey string             `json:"idempotencyKey,omitempty"`
	Policy         specs.Digest       `json:"policy,omitempty"` // pinned at the call phase
	Result         specs.Digest       `json:"result,omitempty"` // blob of tools.Result
	IsError        bool               `json:"isError,omitempty"`
	ErrorCode      string             `json:"errorCode,omitempty"`
	Reason         string             `json:"reason,omitempty"`
	// SystemFailure is the code of a failure after which the run cannot go on; whoever finds the run ends it.
	SystemFailure string `json:"systemFailure,omitempty"`
}

// Subject implements Record.
func (c *Call) Subject() (string, string) { return machine.CallName, string(c.ID) }

// Approval is a question to people about one call, bound to everything that could change under it.
type Approval struct {
	RecordMeta
	ID         specs.ApprovalID   `json:"id"`
	Call       specs.CallID       `json:"call"`
	Invocation specs.InvocationID `json:"invocation"`
	Tool       specs.ToolName     `json:"tool"`
	// Bound is the digest over tenant, run, call, tool, tool definition, arguments, policy and target versions.
	Bound       specs.Digest    `json:"bound"`
	ArgsDigest  specs.Digest    `json:"argsDigest"`
	ToolDigest  specs.Digest    `json:"toolDigest"`
	Policy      specs.Digest    `json:"policy"`
	ShownDigest specs.Digest    `json:"shownDigest"`
	Shown       json.RawMessage `json:"shown"` // the card exactly as it is to be shown
	Requester   specs.UserID    `json:"requester"`
	Asks        []Ask           `json:"asks"`
	Votes       []Vote          `json:"votes,omitempty"`
	DecidedBy   specs.UserID    `json:"decidedBy,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Scope       string          `json:"scope,omitempty"`    // once, run, grant
	GrantFor    time.Duration   `json:"grantFor,omitempty"` // how long a remembered yes holds
	NewArgs     specs.Digest    `json:"newArgs,omitempty"`  // the arguments a person put in place of the model's
	OnExpire    specs.OnExpire  `json:"onExpire"`
}

// Subject implements Record.
func (a *Approval) Subject() (string, string) { return machine.ApprovalName, string(a.ID) }

// Ask is one rule's demand. All asks of an approval must be met.
type Ask struct {
	Rule         specs.RuleID    `json:"rule"`
	Layer        specs.LayerName `json:"layer"`
	Reason       string          `json:"reason,omitempty"`
	Roles        []specs.Role    `json:"roles,omitempty"`
	Users        []specs.UserID  `json:"users,omitempty"`
	Quorum       int             `json:"quorum"`
	NotRequester bool            `json:"notRequester,omitempty"`
	Grantable    bool            `json:"grantable"`
}

// Vote is one person's yes. A person counts once in each ask that would have them.
type Vote struct {
	User  specs.UserID   `json:"user"`
	Rules []specs.RuleID `json:"rules"`
	At    time.Time      `json:"at"`
}
