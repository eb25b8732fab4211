package machine

// The states of one invocation: an agent's turn of duty inside a run.
const (
	// InvocationCreated: it has a task and a tool surface and has not had a turn. A worker moves it on. Not final.
	InvocationCreated State = "created"
	// InvocationActive: it is having turns. A worker moves it on. Not final.
	InvocationActive State = "active"
	// InvocationWaiting: it has nothing to do until one of its children ends. A worker wakes it. Not final.
	InvocationWaiting State = "waiting"
	// InvocationReturned: a subagent gave its result to its caller. Final.
	InvocationReturned State = "returned"
	// InvocationHandedOff: control went to another agent for good. Final.
	InvocationHandedOff State = "handed_off"
	// InvocationFinished: the agent in control ended the run. Final.
	InvocationFinished State = "finished"
	// InvocationFailed: it could not go on. Final.
	InvocationFailed State = "failed"
	// InvocationCancelled: its caller or the run took it back. Final.
	InvocationCancelled State = "cancelled"
)

// The events of one invocation.
const (
	// InvocationStart: its first turn begins.
	InvocationStart Event = "start"
	// InvocationWait: it awaits a child.
	InvocationWait Event = "wait"
	// InvocationWake: a child ended.
	InvocationWake Event = "wake"
	// InvocationReturn: a subagent gives its result to its caller; never the root.
	InvocationReturn Event = "return"
	// InvocationHandOff: it passes control on; refused while children of its own are pending.
	InvocationHandOff Event = "hand_off"
	// InvocationFinish: the agent in control ends the run; never a subagent.
	InvocationFinish Event = "finish"
	// InvocationFail: it cannot go on.
	InvocationFail Event = "fail"
	// InvocationCancel: its caller or the run takes it back.
	InvocationCancel Event = "cancel"
)
