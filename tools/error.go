package tools

import (
	"errors"
	"fmt"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// SystemError is a failure after which the run cannot go on: an escape inside a store, a journal that cannot be
// written, a result that cannot be serialised, provider metadata that was lost.
type SystemError struct {
	Code string // "workspace.escape", "journal.append_failed", ...
	Err  error
}

func (e *SystemError) Error() string { return e.Code + ": " + e.Err.Error() }
func (e *SystemError) Unwrap() error { return e.Err }

// Systemf makes a SystemError.
func Systemf(code, format string, args ...any) error {
	return &SystemError{Code: code, Err: fmt.Errorf(format, args...)}
}

// DecidedError answers the second of two people: the approval was already decided.
type DecidedError struct {
	Approval specs.ApprovalID
	State    machine.State
	By       specs.UserID // who decided; empty when a timer or the run's end did
}

func (e *DecidedError) Error() string {
	if e.By == "" {
		return fmt.Sprintf("approval %s is already %s", e.Approval, e.State)
	}
	return fmt.Sprintf("approval %s is already %s, by %s", e.Approval, e.State, e.By)
}

// NotApproverError says why this person cannot decide.
type NotApproverError struct {
	Approval specs.ApprovalID
	User     specs.UserID
	Why      string
}

func (e *NotApproverError) Error() string {
	return fmt.Sprintf("%s cannot decide approval %s: %s", e.User, e.Approval, e.Why)
}

// Sentinels.
var (
	// ErrInvalidCall is a call that cannot even be recorded: no id, or the same id twice in one turn with other content.
	ErrInvalidCall = errors.New("model.invalid_tool_call")
	// ErrWaiting says that the call waits for a person.
	ErrWaiting = errors.New("the call waits for a person")
	// ErrOutcomeUnknown says that nobody can tell whether the call's effect happened; a person reconciles it.
	ErrOutcomeUnknown = errors.New("it is not known whether the call's effect happened")
	// ErrRunEnded says that the run is over.
	ErrRunEnded = errors.New("the run has ended")
)

// Error codes that the model may read in Result.ErrorCode.
const (
	CodeUnavailable       = "tool.unavailable" // unknown, hidden or denied: one text for all three
	CodeDenied            = "policy.denied"    // denied, with the rule's own message
	CodeInvalidArguments  = "tool.invalid_arguments"
	CodeSourceUnavailable = "tool.source_unavailable" // nothing is connected that could run it
	CodeSourceBusy        = "tool.source_busy"        // its source ran as many calls as it takes, for the call's whole timeout
	CodeTimedOut          = "tool.timed_out"
	CodeFailed            = "tool.failed"
	CodeInvalidResult     = "tool.invalid_result" // its structured output broke its own schema
	CodeOutcomeUnknown    = "tool.outcome_unknown"
	CodeCancelled         = "tool.cancelled"
	CodeRejected          = "approval.rejected"
	CodeApprovalExpired   = "approval.expired"
	CodeBudgetExhausted   = "budget.exhausted"
)
