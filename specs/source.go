package specs

import "time"

// Source says where tools come from and how far they are trusted. Documents that name a command, a URL,
// a secret or a root are the operator's: in a tenant's bundle those keys are errors.
type Source struct {
	Meta
	Type         SourceKind
	Transport    Transport
	Trust        Trust
	Capabilities []Text            // globs over the source's tool names that are accepted; nil: none
	Pins         map[string]Digest // canonical tool name -> digest of the accepted definition
	Timeout      time.Duration     // default 60s
	Concurrency  int               // default 4
	Root         string            // skill sources: a folder (operator only)
}

// Transport is how a source is reached.
type Transport struct {
	Command []string          // stdio (operator only)
	Env     map[string]string // values are secret references or plain text (operator only)
	URL     string            // streamable HTTP (operator only)
	Headers map[string]SecretRef
	Pos     Pos
}

// SecretRef names a secret and never holds it: env:NAME or file:PATH.
type SecretRef string

// Trust says how the annotations of a source's tools are read.
type Trust string

// Untrusted sources' hints are shown but never make a tool safer than the strict reading.
const (
	Untrusted Trust = "untrusted"
	Trusted   Trust = "trusted"
)
