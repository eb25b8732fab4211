package specs

// Profile is an agent: what it is told, what it may touch, how long it may go on.
type Profile struct {
	Meta
	DisplayName  string
	Instructions string
	Model        ModelBinding
	Tools        ProfileTools
	Skills       ProfileSkills
	Workspace    ProfileWorkspace
	Delegation   Delegation
	Output       Output
	Run          RunLimits
	Drift        Drift
	Context      ContextPolicy
}

// ModelBinding names the model that plays this profile.
type ModelBinding struct {
	Provider string // scripted, openai, openai-responses, anthropic, gemini
	Name     string
	Script   string // scripted only: path inside the bundle folder; default scripts/<profile>.yaml
}

// ProfileTools is the profile's grant. A nil Allow says nothing, an empty one allows nothing.
type ProfileTools struct {
	Allow    *[]Text // globs
	Deny     []Text  // globs
	Describe map[string]Text
	// Parameters overrides descriptions of parameters: tool name -> parameter name -> text.
	Parameters map[string]map[string]Text
	Pos        Pos
}

// ProfileSkills narrows what skill tools show.
type ProfileSkills struct {
	Visible, Deny       []Text // globs
	MaxReadCharsPerCall int64  // default 20000
	MaxReadCharsPerRun  int64  // default 80000
}

// ProfileWorkspace narrows the five roots. Nil means all five visible, and all five writable.
type ProfileWorkspace struct {
	Visible, Writable *[]Text
}

// Delegation says whom this agent may hand work to, and what it can pass on at most.
type Delegation struct {
	MayDelegateTo  []Text
	MayHandOffTo   []Text
	MayBeCalledBy  []Text
	DelegableTools *[]Text // the delegable ceiling; nil: nothing may be passed on
	MaxDepth       int
}

// Presentation says whether the run answers in a chat (foreground) or works silently.
type Presentation string

// Presentations. A foreground run must commit at least once before it finishes.
const (
	Foreground Presentation = "foreground"
	Background Presentation = "background"
)

// RunLimits bounds a run of this profile.
type RunLimits struct {
	Presentation Presentation // default foreground
	MaxRounds    int64        // model turns; default 80
	MaxCalls     int64        // default 80
	// DriftRecoveries is how often a turn without a tool call is answered with a reminder; default 1.
	DriftRecoveries *int64
	MaxCost         *int64 // in the tenant's smallest money unit
	Pos             Pos
}

// Drift says where a captured plain-text answer goes.
type Drift struct {
	CapturePath string // default output/direct_output.md
	Reminder    string // default: the program's own text
}

// Output lists what the run should leave behind.
type Output struct {
	Artifacts []Artifact
}

// Artifact is one expected file.
type Artifact struct {
	ID       string
	Path     string
	Target   string // messageBody or none
	Required bool
	Pos      Pos
}

// ContextPolicy says how tool results enter the next model request.
type ContextPolicy struct {
	ToolResults     ResultView // default whole
	MaxResultTokens int64      // per result; default 4000, the rest is left behind a reference
}

// ResultView is how much of a result the model sees.
type ResultView string

// Views.
const (
	ResultWhole   ResultView = "whole"
	ResultExcerpt ResultView = "excerpt"
	ResultHidden  ResultView = "hidden"
)
