package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// roots are the five places that a workspace has.
var roots = []string{"output", "scratch", "plan", "summaries", "persist"}

// view is one call's Workspace: a manifest at one version, what its invocation knows of it, and the edits that are to
// commit with the call's outcome. It belongs to one attempt and one goroutine.
type view struct {
	store             persistence.Store
	tenant            specs.TenantID
	run               specs.RunID
	visible, writable []string
	tree              persistence.Tree
	known             map[string]specs.Digest

	files   map[string]File   // as the call sees them
	data    map[string][]byte // staged content by path
	removed map[string]bool
	learned map[string]specs.Digest // empty digest: forgotten
	label   string
	keep    bool // a checkpoint even without edits
}

var _ Workspace = (*view)(nil)

// newView takes the newest version.
func (d *Dispatcher) newView(ctx context.Context, sc *scene) (*view, error) {
	tree, err := d.store.Tree(ctx, sc.Tenant, persistence.RunTree(sc.Run), 0)
	if err != nil {
		return nil, err
	}
	known, err := d.store.ReadStates(ctx, sc.Tenant, sc.Run, sc.Invocation)
	if err != nil {
		return nil, err
	}
	v := &view{store: d.store, tenant: sc.Tenant, run: sc.Run, tree: tree, known: known,
		files: map[string]File{}, data: map[string][]byte{}, removed: map[string]bool{}, learned: map[string]specs.Digest{}}
	for path, f := range tree.Files {
		v.files[path] = File{Path: path, Size: f.Size, Digest: f.Digest}
	}
	v.visible, v.writable = roots, roots
	if p := sc.profile; p != nil {
		v.visible, v.writable = narrow(roots, p.Workspace.Visible), narrow(roots, p.Workspace.Writable)
	}
	if node := planNode(sc); node != nil {
		v.visible = meet(v.visible, narrow(roots, node.Visible))
	}
	v.writable = meet(v.writable, v.visible) // nobody writes what they may not see
	return v, nil
}

func planNode(sc *scene) *specs.PlanNode {
	if sc.run.Plan == "" || sc.run.Node == "" {
		return nil
	}
	for _, p := range sc.pinned.Bundle.Plans {
		if p.Name != sc.run.Plan {
			continue
		}
		for i := range p.Nodes {
			if p.Nodes[i].ID == sc.run.Node {
				return &p.Nodes[i]
			}
		}
	}
	return nil
}

// narrow gives the prefixes of a list that lie within the universe; a nil list says nothing.
func narrow(universe []string, list *[]specs.Text) []string {
	if list == nil {
		return universe
	}
	own := make([]string, 0, len(*list))
	for _, t := range *list {
		own = append(own, strings.Trim(t.Value, "/"))
	}
	return meet(own, universe)
}

// meet gives the prefixes that lie within both sets, by whole path components.
func meet(a, b []string) []string {
	both := map[string]bool{}
	for _, x := range a {
		for _, y := range b {
			switch {
			case within(x, y):
				both[x] = true
			case within(y, x):
				both[y] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(both))
}

func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

func (v *view) Visible() []string  { return slices.Clone(v.visible) }
func (v *view) Writable() []string { return slices.Clone(v.writable) }
func (v *view) Version() int64     { return v.tree.Version }

func (v *view) List() []File {
	out := slices.Collect(maps.Values(v.files))
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func (v *view) Stat(path string) (File, bool) {
	f, ok := v.files[path]
	return f, ok
}

func (v *view) Read(ctx context.Context, path string) ([]byte, bool, error) {
	if data, ok := v.data[path]; ok {
		return slices.Clone(data), true, nil
	}
	f, ok := v.files[path]
	if !ok {
		return nil, false, nil
	}
	data, err := v.ReadBlob(ctx, f.Digest)
	return data, err == nil, err
}

// ReadBlob reads content by digest. Content that is missing or damaged is a failure of the store, not of the call.
func (v *view) ReadBlob(ctx context.Context, digest specs.Digest) ([]byte, error) {
	data, err := v.store.Blob(ctx, v.tenant, digest)
	if errors.Is(err, persistence.ErrCorrupt) || errors.Is(err, persistence.ErrNotFound) {
		return nil, &SystemError{Code: "workspace.content_lost", Err: err}
	}
	return data, err
}

func (v *view) Known(path string) specs.Digest {
	if d, ok := v.learned[path]; ok {
		return d
	}
	return v.known[path]
}

func (v *view) Learn(path string, d specs.Digest) { v.learned[path] = d }

func (v *view) Write(path string, data []byte) {
	v.data[path] = slices.Clone(data)
	delete(v.removed, path)
	v.files[path] = File{Path: path, Size: int64(len(data)), Digest: specs.DigestOf(data)}
}

func (v *view) Remove(path string) {
	delete(v.data, path)
	delete(v.files, path)
	v.removed[path] = true
	v.learned[path] = ""
}

func (v *view) Checkpoint(label string) { v.label, v.keep = label, true }

func (v *view) Checkpoints(ctx context.Context) ([]Checkpoint, error) {
	list, err := v.store.Checkpoints(ctx, v.tenant, persistence.RunTree(v.run))
	if err != nil {
		return nil, err
	}
	out := make([]Checkpoint, 0, len(list))
	for _, c := range list {
		out = append(out, Checkpoint{Version: c.Version, Label: c.Label, Reason: c.Reason, At: c.At})
	}
	return out, nil
}

func (v *view) At(ctx context.Context, version int64) ([]File, bool, error) {
	if version < 1 || version > v.tree.Version {
		return nil, false, nil
	}
	tree, err := v.store.Tree(ctx, v.tenant, persistence.RunTree(v.run), version)
	if errors.Is(err, persistence.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	out := make([]File, 0, len(tree.Files))
	for path, f := range tree.Files {
		out = append(out, File{Path: path, Size: f.Size, Digest: f.Digest})
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, true, nil
}

// edited says whether the call staged anything that makes a new version.
func (v *view) edited() bool { return v != nil && (v.keep || len(v.data)+len(v.removed) > 0) }

// change gives what commits with the outcome: the next version, the content it needs, what the invocation now knows.
// The tree is nil when there is no new version.
func (v *view) change(reason string, call specs.CallID, inv specs.InvocationID) (*persistence.TreeChange, []persistence.Blob, []persistence.ReadState) {
	var reads []persistence.ReadState
	for _, path := range slices.Sorted(maps.Keys(v.learned)) {
		reads = append(reads, persistence.ReadState{Invocation: inv, Path: path, Digest: v.learned[path]})
	}
	if !v.edited() {
		return nil, nil, reads
	}
	t := &persistence.TreeChange{Tree: persistence.RunTree(v.run), Base: v.tree.Version,
		Checkpoint: persistence.Checkpoint{Label: v.label, Reason: reason, Call: call}}
	var blobs []persistence.Blob
	for _, path := range slices.Sorted(maps.Keys(v.data)) {
		b := persistence.BlobOf("application/octet-stream", v.data[path])
		if old, ok := v.tree.Files[path]; ok && old.Digest == b.Digest {
			continue // the same content again
		}
		blobs = append(blobs, b)
		t.Edits = append(t.Edits, persistence.TreeEdit{Path: path, Digest: b.Digest, Size: int64(len(b.Data))})
	}
	for _, path := range slices.Sorted(maps.Keys(v.removed)) {
		if _, ok := v.tree.Files[path]; ok {
			t.Edits = append(t.Edits, persistence.TreeEdit{Path: path})
		}
	}
	return t, blobs, reads
}

// checkpointNote is the payload of checkpoint_created: which version, and the digest of every file that it changed.
type checkpointNote struct {
	Version  int64            `json:"version"`
	Label    string           `json:"label,omitempty"`
	Reason   string           `json:"reason"`
	Call     specs.CallID     `json:"call,omitempty"`
	Files    []checkpointFile `json:"files,omitempty"`
	More     int              `json:"more,omitempty"`     // files that did not fit here
	Manifest specs.Digest     `json:"manifest,omitempty"` // content with all of Files, when some did not fit
}

type checkpointFile struct {
	Path    string `json:"path"`
	SHA256  string `json:"sha256,omitempty"`
	Size    int64  `json:"size,omitempty"`
	Removed bool   `json:"removed,omitempty"`
}

// maxCheckpointFiles keeps the line below the journal's limit, at the longest paths.
const maxCheckpointFiles = 16

func noteCheckpoint(t *persistence.TreeChange) (checkpointNote, *persistence.Blob, error) {
	n := checkpointNote{Version: t.Base + 1, Label: clip(t.Checkpoint.Label, 200), Reason: t.Checkpoint.Reason, Call: t.Checkpoint.Call}
	files := make([]checkpointFile, 0, len(t.Edits))
	for _, e := range t.Edits {
		files = append(files, checkpointFile{Path: e.Path, SHA256: strings.TrimPrefix(string(e.Digest), "sha256:"), Size: e.Size, Removed: e.Digest == ""})
	}
	n.Files = files[:min(len(files), maxCheckpointFiles)]
	if n.More = len(files) - len(n.Files); n.More == 0 {
		return n, nil, nil
	}
	raw, err := marshal(files)
	if err != nil {
		return n, nil, fmt.Errorf("checkpoint: %w", err)
	}
	b := persistence.BlobOf("application/json", raw)
	n.Manifest = b.Digest
	return n, &b, nil
}
