package machine

// The states of one tool call. "Who moves it on" names the only part of the system that may.
const (
	// CallRequested: the model's request is stored, nothing is decided. The dispatcher moves it on in the
	// same transaction as a rule, so it is seen at rest only after a crash between two turns. Not final.
	CallRequested State = "requested"
	// CallAwaitingApproval: a layer asked for a person. A person moves it on, or the clock when the approval's
	// time is over. It may rest for days; a run that waits here is never reaped. Not final.
	CallAwaitingApproval State = "awaiting_approval"
	// CallApproved: everybody who had to say yes did, and the approval is not spent yet. A worker moves it on
	// after asking the policy once more; the clock ends it if no worker comes. Not final.
	CallApproved State = "approved"
	// CallReady: policy lets it run without a person. A worker moves it on after asking the policy once more.
	// Not final.
	CallReady State = "ready"
	// CallStarted: committed before the side effect begins, so from here on the outside world may have changed.
	// The worker that started it moves it on; after a crash, the one that recovers the run. Not final.
	CallStarted State = "started"
	// CallOutcomeUnknown: nobody can say whether the side effect happened. A person moves it on, or a status
	// query of the tool, or, for a tool that may be repeated, a worker that starts it again with the same
	// idempotency key. Not final.
	CallOutcomeUnknown State = "outcome_unknown"
	// CallCompleted: it has a result, from the tool or from a person in its place. Final.
	CallCompleted State = "completed"
	// CallFailed: the tool answered with an error, or arguments or tool were unusable and nothing ran. The model
	// reads why. Final.
	CallFailed State = "failed"
	// CallDenied: policy refused, at the call or again at dispatch. Nothing ran. Final.
	CallDenied State = "denied"
	// CallRejected: a person refused. Nothing ran, and no later approval can bring it back. Final.
	CallRejected State = "rejected"
	// CallExpired: the approval's time was over before anybody decided, or before a worker used it. Nothing
	// ran. Final.
	CallExpired State = "expired"
	// CallTimedOut: a tool that is safe to leave alone gave no answer in time. A late one is journaled and
	// ignored. Final.
	CallTimedOut State = "timed_out"
	// CallCancelled: the run or a person took it back. A late answer is journaled and ignored. Final.
	CallCancelled State = "cancelled"
	// CallUnresolved: the run ended while the outcome was unknown. Nobody will be asked any more; the journal
	// keeps saying that it is not known. Final.
	CallUnresolved State = "unresolved"
)

// The events of one tool call.
const (
	// CallAllow: policy lets the call run without a person.
	CallAllow Event = "allow"
	// CallAsk: a layer requires approval and nothing waives it.
	CallAsk Event = "ask"
	// CallDeny: policy refuses, at the call or at dispatch.
	CallDeny Event = "deny"
	// CallInvalidate: arguments or tool turned out unusable before anything ran.
	CallInvalidate Event = "invalidate"
	// CallApprove: the last approval that was needed is given.
	CallApprove Event = "approve"
	// CallReject: a person refuses.
	CallReject Event = "reject"
	// CallExpire: the approval's deadline passes.
	CallExpire Event = "expire"
	// CallAnswer: a person gives the result in the tool's place.
	CallAnswer Event = "answer"
	// CallReask: definition, policy, arguments or target changed since the question was put, so the old yes no
	// longer fits and people are asked anew.
	CallReask Event = "reask"
	// CallStart: the side effect may begin once this is committed.
	CallStart Event = "start"
	// CallComplete: the tool answered.
	CallComplete Event = "complete"
	// CallFail: the tool answered with an error.
	CallFail Event = "fail"
	// CallTimeOut: no answer in time, from a tool that is safe to leave alone. One that is not is lost instead.
	CallTimeOut Event = "time_out"
	// CallCancel: the run or a person takes it back.
	CallCancel Event = "cancel"
	// CallLose: crash, lost connection, or time over while a side effect may have happened.
	CallLose Event = "lose"
	// CallRetry: start again after an unknown outcome; only for a tool that is read-only, idempotent or
	// transactional.
	CallRetry Event = "retry"
	// CallReconcileCompleted: a person or a status query found that it happened.
	CallReconcileCompleted Event = "reconcile_completed"
	// CallReconcileFailed: a person or a status query found that it did not happen.
	CallReconcileFailed Event = "reconcile_failed"
	// CallAbandon: the run ended before anybody could say.
	CallAbandon Event = "abandon"
)
