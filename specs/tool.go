package specs

import "encoding/json"

// Tool says what one tool is: what the model reads, what its arguments look like, what it can do to
// the world, and its own, weakest voice about permission.
type Tool struct {
	Meta
	Title        string
	Describe     Text   // spec.description, what the model reads
	InputSchema  Schema // JSON Schema 2020-12 of the arguments; absent means an object without properties
	OutputSchema Schema // of `structured`; absent means free
	Annotations  Annotations
	Visibility   Visibility
	Permission   Permission
	Budget       Budget // per tool and run
	Source       ToolSource
	Errors       []string // error codes the model may see as they are; others are shown as tool.failed
	Redact       []Text   // JSON pointers into arguments and result that the journal must not hold

	memo *toolMemo // set by the loader; values made in code compile their schemas at every use
}

// ToolName gives the canonical name.
func (t *Tool) ToolName() ToolName { return ToolName(t.Name) }

// Schema is a JSON Schema as its author wrote it.
type Schema struct {
	Raw json.RawMessage // JSON, numbers exact; nil when absent
	Pos Pos
	// KeyPos gives the place of the value at a JSON pointer ("/properties/path"), for findings inside the schema.
	KeyPos map[string]Pos
}

// IsZero says that no schema was written.
func (s Schema) IsZero() bool { return len(s.Raw) == 0 }

// SideEffect says what a tool can touch.
type SideEffect string

// The side effects. Workspace effects are rows of the store and commit together with the call's
// outcome; chat, network and process effects happen outside and can be doubled by a careless retry.
const (
	SideNone      SideEffect = "none"
	SideWorkspace SideEffect = "workspace"
	SideChat      SideEffect = "chat"
	SideNetwork   SideEffect = "network"
	SideProcess   SideEffect = "process"
)

// Reversible says how an effect can be undone.
type Reversible string

// The ways to undo.
const (
	ReversibleNone       Reversible = "none"
	ReversibleCheckpoint Reversible = "checkpoint"
	ReversibleCompensate Reversible = "compensate"
)

// Annotations are facts about the tool that policies read. The zero value of each is the careful
// reading: not read-only, destructive unknown counts as not destructive only for built-in tools
// (an imported tool without the hint is destructive, as MCP says).
type Annotations struct {
	SideEffect  SideEffect // default: none when readOnly, else network
	ReadOnly    bool
	Destructive bool
	Idempotent  bool // the same call twice equals once; only these are retried by themselves
	OpenWorld   bool
	Cancellable bool // the tool watches its context; others are waited for up to their timeout
	Reversible  Reversible
	Cost        int64 // in the tenant's smallest money unit per call; 0 is free
	CostUnknown bool  // `cost: unknown`: a price nobody knows is the configured maximum, never 0
}

// VisibleTo says who may see a tool.
type VisibleTo string

// Visibility words. User leaves the tool to people (a deny for the model), hidden is for neither.
const (
	VisibleModel  VisibleTo = "model"
	VisibleUser   VisibleTo = "user"
	VisibleHidden VisibleTo = "hidden"
)

// Visibility is one of the three words, or a CEL bool: true means model, false means hidden.
type Visibility struct {
	Word VisibleTo // default model
	Expr Text      // when set, Word is empty
}

// Permission is the spec's own voice.
type Permission string

// Permissions. Allow grants nothing: it says that the tool itself asks for no approval.
const (
	PermissionAllow    Permission = "allow"
	PermissionApproval Permission = "approval"
	PermissionDeny     Permission = "deny"
)

// SourceKind says what stands behind a tool.
type SourceKind string

// The source kinds.
const (
	SourceBuiltIn   SourceKind = "built_in"
	SourceMCP       SourceKind = "mcp"
	SourceExtension SourceKind = "extension"
	SourceSkill     SourceKind = "skill"
)

// ToolSource is `built_in` (or another bare kind) or {kind, name, tool, digest}.
type ToolSource struct {
	Kind   SourceKind
	Name   SourceName // the Source document
	Tool   string     // the upstream's own name, unescaped
	Digest Digest     // of the upstream's name, description and schema when it was pinned
	Pos    Pos
}

// Per is the span over which a budget counts.
type Per string

// Spans. Days are UTC.
const (
	PerRun        Per = "run"
	PerInvocation Per = "invocation"
	PerTurn       Per = "turn"
	PerUserDay    Per = "user/day"
	PerTenantDay  Per = "tenant/day"
)

// Budget is a set of limits. An absent one says nothing; 0 means none at all.
type Budget struct {
	MaxCalls        IntValue
	MaxOutputTokens IntValue
	MaxCost         IntValue
	Timeout         DurationValue
	Per             Per // default run
	Pos             Pos
}
