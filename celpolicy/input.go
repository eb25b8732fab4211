package celpolicy

import (
	"encoding/json"
	"time"

	"github.com/callgate/callgate/specs"
)

// Phase is when a decision is made. One rule set serves all three.
type Phase string

// The phases. At list time arguments are unknown; a condition on them is neither true nor false.
const (
	PhaseList     Phase = "list"
	PhaseCall     Phase = "call"
	PhaseDispatch Phase = "dispatch"
)

// Input is everything a decision may depend on, and nothing else: policy does no I/O and reads no clock.
// It marshals to JSON and back without loss, so that a recorded decision can be replayed.
type Input struct {
	Phase Phase          `json:"phase"`
	Tool  specs.ToolName `json:"tool"`
	// Args is the call's arguments, strict JSON, an object. Ignored in PhaseList.
	Args json.RawMessage `json:"args,omitempty"`
	// Parsed is what ParseArgs made of Args, for a call that is decided more than once. Without it, or when it was made of
	// other bytes, Args are read again.
	Parsed *Args       `json:"-"`
	Run    RunFacts    `json:"run"`
	User   UserFacts   `json:"user"`
	Tenant TenantFacts `json:"tenant"`
	Call   CallFacts   `json:"call"`
	Budget BudgetFacts `json:"budget"`
	Now    time.Time   `json:"now"`
	// Grants are the remembered grants of this tenant, run and user that are in force now.
	Grants []Grant `json:"grants,omitempty"`
	// Envelopes are the delegable ceilings on the path from the root to this invocation, outermost first. Empty for the root.
	Envelopes []Envelope `json:"envelopes,omitempty"`
	// Trace asks for Decision.Trace; a decision without it costs less.
	Trace bool `json:"-"`
}

// RunFacts is `run` in an expression.
type RunFacts struct {
	ID         specs.RunID       `json:"id"`
	Labels     map[string]string `json:"labels,omitempty"`
	Profile    specs.ProfileName `json:"profile"`
	Plan       string            `json:"plan,omitempty"`
	Node       specs.NodeID      `json:"node,omitempty"`
	Round      int64             `json:"round"` // model turns so far, from 1 in the first turn
	NodeRounds int64             `json:"nodeRounds"`
	Depth      int64             `json:"depth"` // 0 for the root invocation
	Commits    int64             `json:"commits"`
	Calls      int64             `json:"calls"`
	Artifacts  []string          `json:"artifacts,omitempty"` // ids of expected artifacts that exist now
}

// UserFacts is `user`: who started the run.
type UserFacts struct {
	ID     specs.UserID      `json:"id"`
	Roles  []specs.Role      `json:"roles,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// TenantFacts is `tenant`.
type TenantFacts struct {
	ID     specs.TenantID    `json:"id"`
	Labels map[string]string `json:"labels,omitempty"`
}

// CallFacts is `call`.
type CallFacts struct {
	Sequence int64 `json:"sequence"` // place within the run, from 1
	Repeat   int64 `json:"repeat"`   // how often this tool was called with identical arguments before, in this run
}

// BudgetFacts is `budget`: the run's own limits. Dimensions are "calls", "outputTokens", "cost".
type BudgetFacts struct {
	Used  map[string]int64 `json:"used,omitempty"`
	Limit map[string]int64 `json:"limit,omitempty"`
}

// Grant is a remembered yes as policy sees it.
type Grant struct {
	ID         string            `json:"id"`
	Tool       specs.ToolName    `json:"tool"`
	ToolDigest specs.Digest      `json:"toolDigest"`
	Run        specs.RunID       `json:"run,omitempty"`
	User       specs.UserID      `json:"user,omitempty"`
	Args       map[string]string `json:"args,omitempty"` // JSON pointer -> canonical JSON; nil matches any
	Rules      []specs.RuleID    `json:"rules"`
	Expires    time.Time         `json:"expires,omitzero"`
}

// Envelope is what a parent may pass on: a call of the child must also be inside it.
type Envelope struct {
	Profile specs.ProfileName `json:"profile"` // the parent, whose denies hold too
	Node    specs.NodeID      `json:"node,omitempty"`
}
