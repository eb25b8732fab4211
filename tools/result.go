package tools

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/callgate/callgate/specs"
)

// Result is what came of a call. Each call of a turn has exactly one.
type Result struct {
	CallID       specs.CallID    `json:"call_id"`
	Content      []Content       `json:"content"`
	Structured   json.RawMessage `json:"structured,omitempty"` // validated against the tool's outputSchema
	IsError      bool            `json:"is_error"`
	ErrorCode    string          `json:"error_code,omitempty"`
	Retryable    bool            `json:"retryable,omitempty"` // the model may try again with other arguments; false for denials
	ResourceRefs []ResourceRef   `json:"resource_refs,omitempty"`
	Usage        Usage           `json:"usage"`

	// Signal tells the dispatcher what the result means for the run; it is not stored.
	Signal Signal `json:"-"`
	// RolledBack is, with SignalRolledBack, the version of the workspace that was gone back to; not stored here but told in the journal.
	RolledBack int64 `json:"-"`
}

// Signal is a control tool's word to the run.
type Signal int

// Signals.
const (
	SignalNone       Signal = iota
	SignalFinish            // workspace.finish succeeded: the run goes on to finishing
	SignalCommitted         // the host confirmed a commit
	SignalRolledBack        // the workspace is again as it was in Result.RolledBack
)

// ContentType is the kind of one block of content.
type ContentType string

// Content types.
const (
	ContentText        ContentType = "text"
	ContentJSON        ContentType = "json"
	ContentImageRef    ContentType = "image_ref"
	ContentAudioRef    ContentType = "audio_ref"
	ContentFileRef     ContentType = "file_ref"
	ContentResourceRef ContentType = "resource_ref"
	ContentDiffRef     ContentType = "diff_ref"
)

// Content is one block. Text and JSON are inline; the others refer to stored content or to a place outside.
type Content struct {
	Type      ContentType     `json:"type"`
	Text      string          `json:"text,omitempty"`
	JSON      json.RawMessage `json:"json,omitempty"`
	Ref       string          `json:"ref,omitempty"` // blob:sha256:..., workspace:<path>, or a URI
	MediaType string          `json:"media_type,omitempty"`
	Name      string          `json:"name,omitempty"`
	Size      int64           `json:"size,omitempty"` // bytes
	// Data carries bytes on the way into the store: the dispatcher stores them and sets Ref. Never marshalled.
	Data []byte `json:"-"`
}

// ResourceRef is a reference a person or a later call can follow.
type ResourceRef struct {
	Ref       string       `json:"ref"`
	MediaType string       `json:"media_type,omitempty"`
	Digest    specs.Digest `json:"digest,omitempty"`
	Size      int64        `json:"size,omitempty"`
}

// Usage is what the call cost.
type Usage struct {
	Elapsed      time.Duration `json:"elapsed_ns"`
	OutputTokens int64         `json:"output_tokens"` // of what the model will read, estimated as bytes/4
	Cost         int64         `json:"cost"`          // smallest money unit
}

// Text makes a successful result of one text.
func Text(format string, args ...any) Result {
	return Result{Content: []Content{{Type: ContentText, Text: fmt.Sprintf(format, args...)}}}
}

// Recoverable makes an error result that the model can read and mend. Code is a dotted name such as "workspace.stale_file".
func Recoverable(code, format string, args ...any) Result {
	r := Text(format, args...)
	r.IsError, r.ErrorCode, r.Retryable = true, code, true
	return r
}
