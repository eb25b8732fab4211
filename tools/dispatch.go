package tools

import (
	"context"
	"encoding/json"
	"time"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Compiled is a bundle with its policy.
type Compiled struct {
	Bundle *specs.Bundle
	Policy *celpolicy.Policy
}

// Policies finds the policy a run is pinned to, and the one now in force.
type Policies interface {
	// Pinned gives the bundle of this digest. An error stops the run: nothing is decided without its policy.
	Pinned(ctx context.Context, t specs.TenantID, d specs.Digest) (*Compiled, error)
	// Live gives the tenant's active bundle; its denies hold for running calls too. ok is false when none is active.
	Live(ctx context.Context, t specs.TenantID) (c *Compiled, ok bool, err error)
}

// Config is what a Dispatcher is made of.
type Config struct {
	Store    persistence.Store
	Registry *Registry
	Policies Policies
	Host     Host             // nil: workspace.commit answers tool.source_unavailable
	Clock    func() time.Time // nil: time.Now; expiry is always decided by the store's clock
}

// Scope says where a call is made.
type Scope struct {
	Tenant     specs.TenantID
	Run        specs.RunID
	Invocation specs.InvocationID
	Turn       int64 // model turns of the whole run so far, this one included: unique in the run, whichever invocation took it
	Fence      int64 // of the run's lease
}

// Rider is what the caller wants written in the same Apply: the model turn that made the calls, the run's own moves.
type Rider struct {
	Before, After []persistence.Entry // lines before and after the dispatcher's own
	Blobs         []persistence.Blob
	Artifacts     []persistence.Artifact
	Trees         []persistence.TreeChange
	// StartFirst lets Propose start the first call of the turn in the same Apply when nobody has to be asked and the tool does
	// not write to the chat: a call that needs no approval then commits twice in all. Execute runs it at once.
	StartFirst bool
}

// Hooks are what the run loop wants written together with a call's own steps. Either may be nil. They may be called
// again when somebody else moved the run meanwhile, so they must read what they need and change nothing.
type Hooks struct {
	// Start is asked before the start is committed, for example to move the run to awaiting_host_commit.
	Start func(persistence.Call) Rider
	// Done is asked before the outcome is committed, also when the call is refused or asked about again instead of started.
	// A checkpoint_created line without payload in the Rider receives the checkpoint's payload; the dispatcher then writes none of its own.
	Done func(Ending) Rider
}

// Ending is what the dispatcher is about to write about a call.
type Ending struct {
	Call    persistence.Call // with its new content; Call.State is still the state it leaves
	Tool    *specs.Tool
	Event   machine.Event // complete, fail, time_out, cancel, lose, deny, invalidate, reask
	Result  Result        // zero for lose and reask
	Started bool          // the tool ran
	// Tree is the workspace change that commits with the outcome; nil when the call changes no file and keeps no checkpoint.
	Tree *persistence.TreeChange
}

// Proposal is what became of one proposed call.
type Proposal struct {
	Call     persistence.Call
	Decision celpolicy.Decision
	Result   *Result // set when the call has already ended: denied, invalid, answered from memory
	Approval *persistence.Approval
}

// Ballot is a person's decision about an approval.
type Ballot struct {
	Approval specs.ApprovalID
	By       Principal
	Verdict  BallotVerdict
	Args     json.RawMessage // approve with other arguments: validated and resolved again
	Answer   *Result         // verdict answer
	Reason   string          // required to reject; the model reads it
	Scope    GrantScope      // default once
	// AnyArgs makes a remembered grant match any arguments; without it the grant pins these arguments.
	AnyArgs bool
	// GrantFor bounds a remembered grant; 0 means 24 h.
	GrantFor time.Duration
	Request  string // id of the outside request, for the journal
}

// BallotVerdict is what a person may say.
type BallotVerdict string

// Verdicts.
const (
	BallotApprove BallotVerdict = "approve"
	BallotReject  BallotVerdict = "reject"
	BallotAnswer  BallotVerdict = "answer"
)

// GrantScope is how far an approval reaches.
type GrantScope string

// Scopes.
const (
	ScopeOnce  GrantScope = "once"
	ScopeRun   GrantScope = "run"
	ScopeGrant GrantScope = "grant"
)
