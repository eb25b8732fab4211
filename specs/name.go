package specs

// The names of this field, typed. A bare string never crosses a room: a function that takes a
// ToolName cannot be handed a RunID by mistake.
type (
	// ToolName is the canonical name of a tool, `family.verb`: at most 128 of [A-Za-z0-9_.-].
	ToolName string
	// Alias is the name a model provider sees for a tool: ^[a-zA-Z0-9_-]{1,64}$.
	Alias string
	// TenantID names the owner of bundles, runs and everything stored. It is the first part of every key.
	TenantID string
	// UserID names a person or a service that starts runs and decides approvals.
	UserID string
	// Role is what a user may do: admin, author, operator, approver, auditor, agent, or a tenant's own word.
	Role string
	// ProfileName names an agent profile.
	ProfileName string
	// NodeID names a node of a plan.
	NodeID string
	// SourceName names where tools come from.
	SourceName string
	// RunID, InvocationID, ApprovalID are UUIDv7 texts made by the gate.
	RunID        string
	InvocationID string
	ApprovalID   string
	// CallID is the gate's own key of a call: unique in its run. The provider's id is kept beside it,
	// opaque, because providers reuse ids between turns.
	CallID string
	// RuleID is `<document name>/<rule name>`, the way authors, traces and tests name a rule.
	RuleID string
	// Digest is "sha256:" and 64 lower-case hex digits, of canonical bytes.
	Digest string
)

// LayerName is one of the voices that a decision hears.
type LayerName string

// The layers, in the order of the seed document. Budget is the run's own limits speaking.
const (
	LayerPlatform LayerName = "platform"
	LayerUser     LayerName = "user"
	LayerPlan     LayerName = "plan"
	LayerProfile  LayerName = "profile"
	LayerSource   LayerName = "source"
	LayerSpec     LayerName = "spec"
	LayerBudget   LayerName = "budget"
)

// Kind is the `kind:` of a document.
type Kind string

// The eight kinds.
const (
	KindTool       Kind = "Tool"
	KindPolicy     Kind = "Policy"
	KindProfile    Kind = "Profile"
	KindPlan       Kind = "Plan"
	KindSource     Kind = "Source"
	KindMachine    Kind = "Machine"
	KindPolicyTest Kind = "PolicyTest"
	KindTenant     Kind = "Tenant"
)

// Kinds lists them in the order the documentation uses.
func Kinds() []Kind {
	return []Kind{KindTool, KindPolicy, KindProfile, KindPlan, KindSource, KindMachine, KindPolicyTest, KindTenant}
}

// APIVersion is the only value of `apiVersion:` that this release reads.
const APIVersion = "callgate/v1"
