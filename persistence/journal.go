package persistence

import (
	"encoding/json"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// Line is a journal line as stored. It is never changed.
type Line struct {
	Tenant     specs.TenantID     `json:"tenant"`
	Run        specs.RunID        `json:"run,omitempty"`
	Seq        int64              `json:"seq"` // 1..n within the run
	ID         string             `json:"id"`  // UUIDv7
	At         time.Time          `json:"at"`  // the store's clock, microseconds, UTC
	Level      Level              `json:"level"`
	Kind       string             `json:"kind"`
	Payload    json.RawMessage    `json:"payload,omitempty"` // canonical JSON, at most MaxPayload bytes
	Cause      int64              `json:"cause,omitempty"`
	Request    string             `json:"request,omitempty"`
	Invocation specs.InvocationID `json:"invocation,omitempty"`
	Call       specs.CallID       `json:"call,omitempty"`
	Related    string             `json:"related,omitempty"`
	// The move this line makes; all empty when it makes none.
	Machine string        `json:"machine,omitempty"`
	Subject string        `json:"subject,omitempty"`
	From    machine.State `json:"from,omitempty"`
	Event   machine.Event `json:"event,omitempty"`
	To      machine.State `json:"to,omitempty"`

	// Holds are the digests of what was written with the line beside it: JSON of the type Holds, empty for nothing.
	Holds json.RawMessage `json:"holds,omitempty"`

	Prev specs.Digest `json:"prev"` // hash of the line before; empty for the first
	Hash specs.Digest `json:"hash"`
}

// MaxPayload is the most bytes a line's payload may have; larger content goes by reference.
const MaxPayload = 32 << 10

// JournalQuery is a page. AfterSeq and BeforeSeq are exclusive; with neither, the page starts at 1. A page is always in
// ascending order; with only BeforeSeq it is the last Limit lines before it.
type JournalQuery struct {
	AfterSeq, BeforeSeq int64
	Kinds               []string // empty: any
	Related             string   // empty: any; on a tenant's own journal the run that a line speaks of
	Limit               int      // default 200, at most 5000
}

// Head is the end of a chain.
type Head struct {
	Seq  int64        `json:"seq"`
	Hash specs.Digest `json:"hash"`
}

// Kinds of lines that move no state. Lines that do take their kind from the machine tables.
const (
	KindModelTurn         = "model_turn_completed"  // payload: turn, response digest, calls, usage
	KindModelFailed       = "model_turn_failed"     // the provider did not answer
	KindResultStored      = "tool_result_stored"    // a result went by reference
	KindLateResult        = "tool_call_late_result" // came after the call had ended; ignored
	KindCallEdited        = "tool_call_edited"      // a person changed the arguments
	KindCheckpoint        = "checkpoint_created"    // payload: version, path, sha256
	KindRolledBack        = "workspace_rolled_back"
	KindCommitted         = "chat_committed"         // the host confirmed a commit
	KindDirectOutput      = "direct_output_captured" // drift: the text a model wrote in place of a call
	KindDriftRecovery     = "drift_recovery_attempted"
	KindGuidanceSubmitted = "guidance_submitted"
	KindGuidanceApplied   = "guidance_applied"
	KindPersistPromoted   = "persist_promoted"
	KindContextSkipped    = "context_component_skipped"
	KindNodeEntered       = "plan_node_entered"
	KindRunResumed        = "run_resumed"
	KindGrantCreated      = "grant_created"
	KindGrantRevoked      = "grant_revoked"
	KindBudgetAdjusted    = "budget_adjusted" // a person corrected what was spent; payload: AdjustmentNote
	KindBundleApplied     = "bundle_applied"
	KindBundleActivated   = "bundle_activated"
	KindRunOpened         = "run_opened" // tenant journal: a run was born
	KindRunClosed         = "run_closed" // tenant journal: it ended; payload: run, seq, hash
	KindNote              = "note"
)

// Anchor is the payload of a KindRunOpened or KindRunClosed line: how the run's own chain stood at its birth, and
// at its end. It stands on the tenant's chain, so that a run that was cut short or removed is missed.
type Anchor struct {
	Run specs.RunID `json:"run"`
	Head
}
