package provider

import (
	"context"
	"encoding/json"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// Model plays one turn.
type Model interface {
	// Next answers a request. It must return when ctx ends. An error means that no reply was had; the loop decides whether to ask again.
	Next(ctx context.Context, req Request) (Reply, error)
}

// Request is one model request, assembled from storage.
type Request struct {
	Run        specs.RunID
	Invocation specs.InvocationID
	Turn       int64 // from 1
	System     string
	Messages   []Message
	Tools      []Tool // sorted by canonical name; exactly the visible ones
}

// Role is who speaks.
type Role string

// Roles.
const (
	RoleUser      Role = "user"      // the task, guidance, reminders
	RoleAssistant Role = "assistant" // the model's text and calls
	RoleTool      Role = "tool"      // results, in the order of the calls
)

// Message is one entry of the history.
type Message struct {
	Role     Role            `json:"role"`
	Text     string          `json:"text,omitempty"`
	Calls    []tools.Call    `json:"calls,omitempty"`
	Results  []ToolResult    `json:"results,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Kind     string          `json:"kind,omitempty"` // task, guidance, reminder, plan
}

// ToolResult pairs a result with the provider's id of its call.
type ToolResult struct {
	ProviderID string         `json:"providerId"`
	Tool       specs.ToolName `json:"tool"`
	Result     tools.Result   `json:"result"`
	// Edited says that a person changed the arguments; EditedArgs are those that ran.
	Edited     bool            `json:"edited,omitempty"`
	EditedArgs json.RawMessage `json:"editedArgs,omitempty"`
}

// Tool is a tool as the model is shown it.
type Tool struct {
	Name        specs.ToolName
	Alias       specs.Alias
	Title       string
	Description string
	InputSchema json.RawMessage
}

// Reply is what the model said.
type Reply struct {
	Text     string          `json:"text,omitempty"`
	Calls    []tools.Call    `json:"calls,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Usage    Usage           `json:"usage"`
	// Stop ends the run without workspace.finish; only models that are not models set it (`callgate call`).
	Stop bool `json:"stop,omitempty"`
}

// Usage is what the provider says the turn used.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
}
