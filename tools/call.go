package tools

import (
	"encoding/json"

	"github.com/callgate/callgate/specs"
)

// Call is what a model asked for, in canonical form. Arguments are the model's bytes, untouched.
type Call struct {
	ID        string          `json:"id"`   // the provider's, opaque; never empty
	Name      string          `json:"name"` // alias or canonical name, as the model wrote it
	Arguments json.RawMessage `json:"arguments"`
	// Metadata is the provider's own (thinking signatures and the like), replayed byte for byte.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Synthetic says that the adapter made ID because the provider gave none (Gemini only).
	Synthetic bool `json:"synthetic,omitempty"`
}

// Principal is who acts: established by the door he came through, never by a body's content.
type Principal struct {
	Tenant specs.TenantID
	User   specs.UserID
	Roles  []specs.Role
}
