package tools

import (
	"encoding/json"

	"github.com/callgate/callgate/persistence"
)

// CheckpointPayload is what a checkpoint_created line says about a tree change: the version it makes and the digest of every file
// that it touches. The blobs, if any, belong into the same Change: a list too long for a line is kept as content.
func CheckpointPayload(t persistence.TreeChange) (json.RawMessage, []persistence.Blob, error) {
	n, manifest, err := noteCheckpoint(&t)
	if err != nil {
		return nil, nil, err
	}
	raw, err := marshal(n)
	if manifest == nil || err != nil {
		return raw, nil, err
	}
	return raw, []persistence.Blob{*manifest}, nil
}
