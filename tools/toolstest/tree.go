package toolstest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// Tree is a run's files in memory, with every version, and what each invocation has read.
type Tree struct {
	mu       sync.Mutex
	versions []map[string]specs.Digest // versions[0] is the empty tree
	points   []tools.Checkpoint
	blobs    map[specs.Digest][]byte
	reads    map[string]map[string]specs.Digest // invocation -> path -> digest
}

// NewTree makes a tree whose version 1 holds files; with none it is empty at version 0.
func NewTree(files map[string]string) *Tree {
	t := &Tree{versions: []map[string]specs.Digest{{}}, blobs: map[specs.Digest][]byte{}, reads: map[string]map[string]specs.Digest{}}
	if len(files) > 0 {
		t.edit("seed", "", func(m map[string]specs.Digest) {
			for path, text := range files {
				m[path] = t.blob([]byte(text))
			}
		})
	}
	return t
}

// Put writes a file behind everybody's back, as another invocation would.
func (t *Tree) Put(path, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.edit("put", "", func(m map[string]specs.Digest) { m[path] = t.blob([]byte(text)) })
}

// Delete removes a file behind everybody's back.
func (t *Tree) Delete(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.edit("delete", "", func(m map[string]specs.Digest) { delete(m, path) })
}

// Text gives the newest content of a file, or "".
func (t *Tree) Text(path string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.blobs[t.newest()[path]])
}

// Files gives all newest files by path.
func (t *Tree) Files() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]string{}
	for path, d := range t.newest() {
		out[path] = string(t.blobs[d])
	}
	return out
}

// Version gives the newest version.
func (t *Tree) Version() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.versions) - 1)
}

// Lose makes the content of a digest unreadable, as a damaged store would.
func (t *Tree) Lose(d specs.Digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.blobs, d)
}

// Damage changes the content behind a digest without changing the digest.
func (t *Tree) Damage(d specs.Digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blobs[d] = append([]byte("damaged "), t.blobs[d]...)
}

func (t *Tree) newest() map[string]specs.Digest { return t.versions[len(t.versions)-1] }

func (t *Tree) blob(data []byte) specs.Digest {
	d := specs.DigestOf(data)
	t.blobs[d] = bytes.Clone(data)
	return d
}

func (t *Tree) edit(reason, label string, change func(map[string]specs.Digest)) {
	next := maps.Clone(t.newest())
	change(next)
	t.versions = append(t.versions, next)
	t.points = append(t.points, tools.Checkpoint{Version: int64(len(t.versions) - 1), Label: label, Reason: reason, At: time.Now().UTC().Truncate(time.Microsecond)})
}

func (t *Tree) manifest(m map[string]specs.Digest) []tools.File {
	out := make([]tools.File, 0, len(m))
	for path, d := range m {
		out = append(out, tools.File{Path: path, Size: int64(len(t.blobs[d])), Digest: d})
	}
	sortFiles(out)
	return out
}

func sortFiles(files []tools.File) {
	slices.SortFunc(files, func(a, b tools.File) int { return strings.Compare(a.Path, b.Path) })
}

// allRoots are visible and writable when Open is not told otherwise.
var allRoots = []string{"output", "plan", "persist", "scratch", "summaries"}

// Open gives an invocation's view of the newest version. Nil roots mean all five.
func (t *Tree) Open(invocation string, visible, writable []string) *MemoryWorkspace {
	if visible == nil {
		visible = allRoots
	}
	if writable == nil {
		writable = allRoots
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &MemoryWorkspace{
		tree: t, invocation: invocation, visible: visible, writable: writable, base: int64(len(t.versions) - 1),
		now: map[string]tools.File{}, edits: map[string][]byte{}, known: maps.Clone(t.reads[invocation]), learnt: map[string]specs.Digest{},
	}
	if w.known == nil {
		w.known = map[string]specs.Digest{}
	}
	for _, f := range t.manifest(t.newest()) {
		w.now[f.Path] = f
	}
	return w
}

// MemoryWorkspace is a view of a Tree. Like every tools.Workspace it belongs to one call and is not for concurrent use.
type MemoryWorkspace struct {
	tree              *Tree
	invocation        string
	visible, writable []string
	base              int64
	now               map[string]tools.File
	edits             map[string][]byte // nil content removes
	known, learnt     map[string]specs.Digest
	point             string
	checkpoint        bool
}

var _ tools.Workspace = (*MemoryWorkspace)(nil)

// Visible implements tools.Workspace.
func (w *MemoryWorkspace) Visible() []string { return w.visible }

// Writable implements tools.Workspace.
func (w *MemoryWorkspace) Writable() []string { return w.writable }

// List implements tools.Workspace.
func (w *MemoryWorkspace) List() []tools.File {
	out := slices.Collect(maps.Values(w.now))
	sortFiles(out)
	return out
}

// Stat implements tools.Workspace.
func (w *MemoryWorkspace) Stat(path string) (tools.File, bool) {
	f, ok := w.now[path]
	return f, ok
}

// Read implements tools.Workspace.
func (w *MemoryWorkspace) Read(ctx context.Context, path string) ([]byte, bool, error) {
	f, ok := w.now[path]
	if !ok {
		return nil, false, nil
	}
	if data := w.edits[path]; data != nil {
		return bytes.Clone(data), true, nil
	}
	data, err := w.ReadBlob(ctx, f.Digest)
	return data, err == nil, err
}

// Known implements tools.Workspace.
func (w *MemoryWorkspace) Known(path string) specs.Digest { return w.known[path] }

// Learn implements tools.Workspace.
func (w *MemoryWorkspace) Learn(path string, d specs.Digest) { w.known[path], w.learnt[path] = d, d }

// Write implements tools.Workspace.
func (w *MemoryWorkspace) Write(path string, data []byte) {
	w.edits[path] = append([]byte{}, data...)
	w.now[path] = tools.File{Path: path, Size: int64(len(data)), Digest: specs.DigestOf(data)}
}

// Remove implements tools.Workspace.
func (w *MemoryWorkspace) Remove(path string) {
	w.edits[path] = nil
	delete(w.now, path)
	w.Learn(path, "") // who removes a file knows no content of it any more
}

// Checkpoint implements tools.Workspace.
func (w *MemoryWorkspace) Checkpoint(label string) { w.checkpoint, w.point = true, label }

// Checkpoints implements tools.Workspace.
func (w *MemoryWorkspace) Checkpoints(context.Context) ([]tools.Checkpoint, error) {
	w.tree.mu.Lock()
	defer w.tree.mu.Unlock()
	return slices.Clone(w.tree.points[:w.base]), nil
}

// At implements tools.Workspace.
func (w *MemoryWorkspace) At(_ context.Context, version int64) ([]tools.File, bool, error) {
	if version < 1 || version > w.base {
		return nil, false, nil
	}
	w.tree.mu.Lock()
	defer w.tree.mu.Unlock()
	return w.tree.manifest(w.tree.versions[version]), true, nil
}

// ReadBlob implements tools.Workspace.
func (w *MemoryWorkspace) ReadBlob(_ context.Context, d specs.Digest) ([]byte, error) {
	w.tree.mu.Lock()
	defer w.tree.mu.Unlock()
	data, ok := w.tree.blobs[d]
	if !ok {
		return nil, fmt.Errorf("blob %s: %w", d, persistence.ErrNotFound)
	}
	return bytes.Clone(data), nil
}

// Version implements tools.Workspace.
func (w *MemoryWorkspace) Version() int64 { return w.base }

// Staged gives the paths of staged edits, sorted.
func (w *MemoryWorkspace) Staged() []string { return slices.Sorted(maps.Keys(w.edits)) }

// Commit writes what is staged, as a dispatcher does with a call's outcome: all or nothing, persistence.ErrStale when
// the tree has moved on. With edits or a checkpoint it makes a new version; what was learnt is remembered either way.
func (w *MemoryWorkspace) Commit(reason string) (int64, error) {
	t := w.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	mutates := len(w.edits) > 0 || w.checkpoint
	if mutates && w.base != int64(len(t.versions)-1) {
		return 0, fmt.Errorf("workspace at version %d, edits made against %d: %w", len(t.versions)-1, w.base, persistence.ErrStale)
	}
	if t.reads[w.invocation] == nil {
		t.reads[w.invocation] = map[string]specs.Digest{}
	}
	maps.Copy(t.reads[w.invocation], w.learnt)
	if mutates {
		t.edit(reason, w.point, func(m map[string]specs.Digest) {
			for path, data := range w.edits {
				if data == nil {
					delete(m, path)
				} else {
					m[path] = t.blob(data)
				}
			}
		})
	}
	return int64(len(t.versions) - 1), nil
}
