package machine

// The names of the four shipped machines: the `machine` of a stored record and of a journal line.
const (
	RunName        = "run"
	CallName       = "call"
	InvocationName = "invocation"
	ApprovalName   = "approval"
)
