package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/callgate/callgate/tools"
)

// Bounds of one listing.
const (
	defaultDepth = 2
	maxDepth     = 4
	maxEntries   = 500
)

// entry is a line of a listing: a file, or a folder with the number of files anywhere below it.
type entry struct {
	Path     string `json:"path"`
	Type     string `json:"type"` // file or folder
	Size     int64  `json:"size,omitempty"`
	SHA256   string `json:"sha256,omitempty"`
	Files    int    `json:"files,omitempty"`
	Writable bool   `json:"writable"`
}

// listFiles is workspace.list_files {path?, depth?}. Depth 1 shows what lies directly in the folder; what is deeper
// is counted. Without a path it starts at the visible folders themselves, which are shown also when they are empty.
func listFiles(_ context.Context, c *call) (tools.Result, error) {
	path := c.text("path", "")
	depth, _ := c.whole("depth", defaultDepth, 1, maxDepth)
	if err := c.done(); err != nil {
		return tools.Result{}, err
	}
	path, err := cleanFolder(path)
	if err != nil {
		return tools.Result{}, err
	}
	files, err := c.within(path)
	if err != nil {
		return tools.Result{}, err
	}

	out := listing{writable: c.ws.Writable(), at: map[string]int{}}
	if path == "" {
		for _, p := range c.visible {
			out.folder(p, 0)
		}
	}
	for _, f := range files {
		out.add(f, path, int(depth))
	}

	slices.SortFunc(out.entries, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })

	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s", plural(len(files), "file", "files"), orWhole(path))
	for _, e := range out.entries {
		switch {
		case e.Type == "file":
			fmt.Fprintf(&b, "\n%s (%d bytes)", e.Path, e.Size)
		case e.Files == 0:
			fmt.Fprintf(&b, "\n%s/ (empty)", e.Path)
		default:
			fmt.Fprintf(&b, "\n%s/ (%s)", e.Path, plural(e.Files, "file", "files"))
		}
	}
	if out.left > 0 {
		fmt.Fprintf(&b, "\n... and %d more entries; name a path to see fewer at a time.", out.left)
	}
	if path == "" && len(c.visible) > 0 {
		fmt.Fprintf(&b, "\nYou can write in %s.", folders(c.ws.Writable()))
	}
	return answer(struct {
		Path      string  `json:"path"`
		Depth     int64   `json:"depth"`
		Entries   []entry `json:"entries"`
		Total     int     `json:"total"` // files, shown or not
		Truncated bool    `json:"truncated"`
	}{path, depth, append([]entry{}, out.entries...), len(files), out.left > 0}, "%s", b.String())
}

func orWhole(path string) string {
	if path == "" {
		return "the workspace"
	}
	return path
}

// within gives the visible files at or below a path that may be a folder; "" means all. A path that is neither a file
// nor a folder is refused: an empty answer would look like an empty folder.
func (c *call) within(path string) ([]tools.File, error) {
	files, err := c.list()
	if err != nil || path == "" {
		return files, err
	}
	var out []tools.File
	for _, f := range files {
		if Within(f.Path, path) {
			out = append(out, f)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	folder, err := c.folder(path)
	switch {
	case err != nil:
		return nil, err
	case folder:
		return nil, nil
	case !withinAny(path, c.visible):
		return nil, c.notVisible(path)
	}
	return nil, refuse(CodeNotFound, "There is nothing at %s. Use workspace_list_files without a path to see what there is.", show(path))
}

// listing gathers entries in path order, folders before what lies in them.
type listing struct {
	writable []string
	entries  []entry
	at       map[string]int // folder -> place in entries, -1 when it did not fit
	left     int
}

func (l *listing) push(e entry) int {
	if len(l.entries) >= maxEntries {
		l.left++
		return -1
	}
	e.Writable = withinAny(e.Path, l.writable)
	l.entries = append(l.entries, e)
	return len(l.entries) - 1
}

// folder counts files below a folder, showing it when it is new.
func (l *listing) folder(path string, files int) {
	i, seen := l.at[path]
	if !seen {
		i = l.push(entry{Path: path, Type: "folder"})
		l.at[path] = i
	}
	if i >= 0 {
		l.entries[i].Files += files
	}
}

// add enters a file, or the folder at the edge of the depth in its place.
func (l *listing) add(f tools.File, under string, depth int) {
	rest := f.Path
	if under != "" {
		rest = strings.TrimPrefix(strings.TrimPrefix(f.Path, under), "/")
	}
	parts := strings.Split(rest, "/")
	at := under
	for i, p := range parts[:len(parts)-1] {
		if i == depth {
			return
		}
		if at != "" {
			at += "/"
		}
		at += p
		l.folder(at, 1)
	}
	if len(parts) <= depth {
		l.push(entry{Path: f.Path, Type: "file", Size: f.Size, SHA256: hexOf(f.Digest)})
	}
}
