package machine

// The states of one run. Every state that is not final can be found at rest after a crash, and storage
// alone says how to go on from it.
const (
	// RunCreated: the run is written down and no worker has it yet. A worker moves it on. Not final.
	RunCreated State = "created"
	// RunInitializingWorkspace: the first tree is being laid out. A worker moves it on. Not final.
	RunInitializingWorkspace State = "initializing_workspace"
	// RunAssemblingContext: the next model request is being put together; guidance enters here. A worker moves
	// it on. Not final.
	RunAssemblingContext State = "assembling_context"
	// RunCallingModel: the request is out. The model's reply moves it on; after a crash the turn is asked again.
	// Not final.
	RunCallingModel State = "calling_model"
	// RunDispatchingTool: the calls of this turn are being seen to. A worker moves it on. Not final.
	RunDispatchingTool State = "dispatching_tool"
	// RunAwaitingApproval: nothing is left to do until a person decides. A person moves it on; it may take days,
	// and nobody reaps it meanwhile. Not final.
	RunAwaitingApproval State = "awaiting_approval"
	// RunApplyingWorkspacePatch: a tool's change is being laid onto the tree. A worker moves it on. Not final.
	RunApplyingWorkspacePatch State = "applying_workspace_patch"
	// RunCreatingCheckpoint: the tree is being kept. A worker moves it on; the line that leaves here on the good
	// way is checkpoint_created. Not final.
	RunCreatingCheckpoint State = "creating_checkpoint"
	// RunAwaitingHostCommit: the host is asked to take a commit into the chat. The host moves it on. Not final.
	RunAwaitingHostCommit State = "awaiting_host_commit"
	// RunFinishing: the root agent is done; children are being settled and persist/ promoted. A worker moves it
	// on. Not final.
	RunFinishing State = "finishing"
	// RunCancelling: somebody wants it to stop; calls, approvals and children are being settled, and nothing is
	// committed any more. A worker moves it on. Not final.
	RunCancelling State = "cancelling"
	// RunCompleted: finished as the agent meant it. Final.
	RunCompleted State = "completed"
	// RunPartialSuccess: a commit reached the chat and a later step failed. Final.
	RunPartialSuccess State = "partial_success"
	// RunFailed: it could not go on and nothing reached the chat. Final.
	RunFailed State = "failed"
	// RunCancelled: stopped on request. Workspace and checkpoints stay. Final.
	RunCancelled State = "cancelled"
)

// The events of one run.
const (
	// RunInitialize: a worker takes the run.
	RunInitialize Event = "initialize"
	// RunAssemble: the workspace stands, the first request is being put together.
	RunAssemble Event = "assemble"
	// RunCallModel: the request is complete and goes out.
	RunCallModel Event = "call_model"
	// RunRetryModel: the reply was lost (crash, transport), so the turn is asked again.
	RunRetryModel Event = "retry_model"
	// RunDispatch: the reply holds tool calls.
	RunDispatch Event = "dispatch"
	// RunAwaitApproval: every call of the turn that could go on has, and one needs a person.
	RunAwaitApproval Event = "await_approval"
	// RunResumeDispatch: a person decided.
	RunResumeDispatch Event = "resume_dispatch"
	// RunApplyPatch: a tool changes the workspace.
	RunApplyPatch Event = "apply_patch"
	// RunRefusePatch: the change did not fit (stale, unread, no match) and nothing was written.
	RunRefusePatch Event = "refuse_patch"
	// RunCheckpoint: the tree is about to be kept, after a change or because a tool asked.
	RunCheckpoint Event = "checkpoint"
	// RunCheckpointed: it is kept; back to the calls of this turn.
	RunCheckpointed Event = "checkpointed"
	// RunCapture: the model answered with text instead of a call; the text goes into the workspace.
	RunCapture Event = "capture"
	// RunCaptured: the text is kept; on to the reminder turn.
	RunCaptured Event = "captured"
	// RunAwaitHost: the host is asked to take a commit.
	RunAwaitHost Event = "await_host"
	// RunHostCommitted: the host has it.
	RunHostCommitted Event = "host_committed"
	// RunHostFailed: the host refused or did not answer.
	RunHostFailed Event = "host_failed"
	// RunNextTurn: every call of the turn has its one result.
	RunNextTurn Event = "next_turn"
	// RunFinish: the root agent says it is done.
	RunFinish Event = "finish"
	// RunComplete: promoted and closed.
	RunComplete Event = "complete"
	// RunFail: it cannot go on and nothing reached the chat.
	RunFail Event = "fail"
	// RunSucceedPartially: it cannot go on, but a commit already reached the chat.
	RunSucceedPartially Event = "succeed_partially"
	// RunRequestCancel: somebody wants it to stop.
	RunRequestCancel Event = "request_cancel"
	// RunCancel: everything below it is settled.
	RunCancel Event = "cancel"
)
