package specs

// Plan is a declarative workflow over a run.
type Plan struct {
	Meta
	Mode        PlanMode // default free
	Initial     NodeID   // default: the first node
	Nodes       []PlanNode
	Transitions []PlanTransition
	// Match says for which profiles the plan holds; empty: none unless a run names it.
	Profiles []Text
}

// PlanMode says how strictly the plan binds the model.
type PlanMode string

// Modes. Free: the plan guides and its nodes' allows replace the profile's while a node is active; the run moves
// to the next node when a transition's condition holds. Strict: only the plan's order is possible.
// Hybrid: locked nodes are strict.
const (
	PlanFree   PlanMode = "free"
	PlanStrict PlanMode = "strict"
	PlanHybrid PlanMode = "hybrid"
)

// PlanNode is one step.
type PlanNode struct {
	ID        NodeID
	Title     string
	Profile   ProfileName // empty: the run's own
	Tools     ProfileTools
	Visible   *[]Text // workspace roots or prefixes
	MaxRounds int64   // 0: no limit of its own
	Artifacts []Artifact
	Approval  *Approval // to enter the node
	Locked    bool
	Guidance  string
	Pos       Pos
}

// PlanTransition is an edge guarded by CEL over the run's facts.
type PlanTransition struct {
	From, To NodeID
	When     Text // CEL, bool, over run, user, tenant, budget; absent: always
	Pos      Pos
}
