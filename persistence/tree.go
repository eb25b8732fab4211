package persistence

import (
	"time"

	"github.com/callgate/callgate/specs"
)

// TreeID names a versioned tree of files: a run's workspace or a chat's stable persist/.
type TreeID string

// RunTree is the workspace of a run; ChatTree is what promoted persist/ files live in.
func RunTree(r specs.RunID) TreeID { return TreeID("run/" + string(r)) }
func ChatTree(chat string) TreeID  { return TreeID("chat/" + chat) }

// Tree is a manifest: every file of a version. What is not in it is absent.
type Tree struct {
	ID      TreeID
	Version int64
	Files   map[string]FileEntry // by logical path
}

// FileEntry is one file of a manifest.
type FileEntry struct {
	Digest specs.Digest `json:"digest"`
	Size   int64        `json:"size"`  // bytes
	Since  int64        `json:"since"` // version that wrote it
}

// TreeChange makes the next version of a tree.
type TreeChange struct {
	Tree       TreeID
	Base       int64 // the version the edits were made against; another newest one is ErrStale
	Edits      []TreeEdit
	Checkpoint Checkpoint // Version and At are set by the store
}

// TreeEdit writes or removes one file.
type TreeEdit struct {
	Path   string
	Digest specs.Digest // empty removes
	Size   int64
}

// Checkpoint names a version. Every mutation makes one by itself.
type Checkpoint struct {
	Version int64        `json:"version"`
	Label   string       `json:"label,omitempty"`
	Reason  string       `json:"reason"` // the tool or event that made it
	Call    specs.CallID `json:"call,omitempty"`
	At      time.Time    `json:"at"`
}
