package persistence

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/callgate/callgate/specs"
)

// Holds is what a line holds fast of the rows beside the journal that were written with it: a name, and the digest of the row.
// It is hashed with the line, so that nobody changes such a row unseen.
type Holds map[string]specs.Digest

// Names of what a line holds.
const (
	HoldsRecord = "record" // the record that the line moves, as the move left it
	HoldsActive = "active" // the bundle that the line puts in force; its own digest

	holdsArtifact = "artifact/"
	holdsBundle   = "bundle/"
	holdsDecision = "decision/"
	holdsGrant    = "grant/"
	holdsRevoked  = "revoked/"
	holdsTree     = "tree/"
)

// HoldsDecision names a decision on the line's call.
func HoldsDecision(phase string, attempt int64) string {
	return holdsDecision + phase + "/" + strconv.FormatInt(attempt, 10)
}

// HoldsGrant names a remembered yes, HoldsRevoked its end.
func HoldsGrant(id string) string   { return holdsGrant + id }
func HoldsRevoked(id string) string { return holdsRevoked + id }

// HoldsArtifact names content of the run, HoldsBundle a bundle that was stored.
func HoldsArtifact(name string) string       { return holdsArtifact + name }
func HoldsBundle(digest specs.Digest) string { return holdsBundle + string(digest) }

// HoldsTree names what a version of a tree wrote, HoldsGone a file that it took away.
func HoldsTree(id TreeID, version int64) string {
	return holdsTree + url.QueryEscape(string(id)) + "/" + strconv.FormatInt(version, 10)
}

func HoldsGone(id TreeID, version int64, path string) string {
	return HoldsTree(id, version) + "/" + path
}

// Held reads what a line holds.
func (l *Line) Held() (Holds, error) {
	if len(l.Holds) == 0 {
		return nil, nil
	}
	var h Holds
	err := json.Unmarshal(l.Holds, &h)
	return h, err
}

// RecordDigest is of a record's stored body and of the time until which its state holds.
func RecordDigest(body []byte, due time.Time) specs.Digest {
	return specs.DigestOf(fmt.Appendf(nil, "%d\n%s", Micros(due), body))
}

// Digest is of everything in the record but the line that it belongs to.
func (d *DecisionRecord) Digest() specs.Digest {
	return specs.DigestOf(fmt.Appendf(nil, "%s\n%t\n%d\n%s%s", d.PolicyDigest, d.Replayable, len(d.Input), d.Input, d.Output))
}

// Digest is of everything in the grant but when it was made, which the store may set.
func (g Grant) Digest() specs.Digest {
	g.Created = time.Time{}
	out, _ := json.Marshal(g) // texts, times and a map of texts: nothing that JSON cannot say
	return specs.DigestOf(out)
}

// EditsDigest is of what a version wrote, in any order; what it took away has names of its own.
func EditsDigest(edits []TreeEdit) specs.Digest {
	written := []TreeEdit{}
	for _, e := range edits {
		if e.Digest != "" {
			written = append(written, e)
		}
	}
	slices.SortFunc(written, func(a, b TreeEdit) int { return strings.Compare(a.Path, b.Path) })
	out, _ := json.Marshal(written)
	return specs.DigestOf(out)
}

// made says whether a version of a tree is what its line wrote on top of the one before it.
func (h Holds) made(before, after Tree) bool {
	gone := func(path string) bool {
		_, ok := h[HoldsGone(after.ID, after.Version, path)]
		return ok
	}
	var written []TreeEdit
	for path, f := range after.Files {
		if f.Since == after.Version {
			written = append(written, TreeEdit{path, f.Digest, f.Size})
		} else if was, ok := before.Files[path]; !ok || was != f {
			return false
		}
		if gone(path) {
			return false
		}
	}
	for path := range before.Files {
		if _, still := after.Files[path]; !still && !gone(path) {
			return false
		}
	}
	return h[HoldsTree(after.ID, after.Version)] == EditsDigest(written)
}
