package specs

// Machine is a lifecycle as a table. The machine room verifies it before anything runs on it.
type Machine struct {
	Meta
	Initial    Text
	Birth      string // journal kind of the line that creates one in its initial state; default <machine>_created
	Final      []Text
	Waiting    []MachineWait // states that may rest
	States     []Text        // optional: every state by name, so that a typo is an error and not a new state
	Events     []MachineEvent
	Invariants []MachineInvariant
}

// MachineWait is a state that may rest because somebody or something will move it on. In YAML it is a
// name, or {state, owner, timer}; a bare name is owned by "person".
type MachineWait struct {
	State Text
	Owner string // person, host, worker, model
	Timer string // the event that fires when the deadline passes; empty: none
}

// MachineEvent is one row of the table: several from-states, one to-state.
type MachineEvent struct {
	Name     Text
	From     []Text
	To       Text
	Journal  string // journal kind written when this edge is taken; default <machine>_<event>
	Describe string
	Pos      Pos
}

// MachineInvariant is a CEL bool over `state` and `history` (list of event names), with count(history, "event").
type MachineInvariant struct {
	Name  string
	Check Text
	Pos   Pos
}
