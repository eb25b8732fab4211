package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// call is one execution: the arguments, and the workspace as this profile may see it.
type call struct {
	args
	req     tools.Request
	ws      tools.Workspace
	visible []string
	files   []tools.File // visible ones, sorted by path; loaded by list
	listed  bool
}

func begin(req tools.Request) (*call, error) {
	if req.Workspace == nil {
		return nil, tools.Systemf("workspace.missing", "%s was called without a workspace", req.Call)
	}
	return &call{args: parseArgs(req.Args), req: req, ws: req.Workspace, visible: req.Workspace.Visible()}, nil
}

// refusal is how a helper deep in a tool answers the model; end turns it into the result.
type refusal struct{ result tools.Result }

func (r *refusal) Error() string { return r.result.ErrorCode }

func refuse(code, format string, args ...any) error {
	return &refusal{tools.Recoverable(code, format, args...)}
}

// end keeps the two meanings apart: what the model can mend is a result, everything else stops the run.
func (c *call) end(r tools.Result, err error) (tools.Result, error) {
	var system *tools.SystemError
	if errors.As(err, &system) { // also one that wraps a PathError: an impossible path inside the store
		return tools.Result{}, err
	}
	var no *refusal
	if errors.As(err, &no) {
		return no.result, nil
	}
	var path *PathError
	if errors.As(err, &path) {
		return tools.Recoverable(path.Code, "%s", path.Error()), nil
	}
	if err != nil {
		return tools.Result{}, err
	}
	return r, nil
}

// list gives the visible files. A name in the store that could not have come in through Clean means that somebody
// wrote around the gate: that is no mistake of the model.
func (c *call) list() ([]tools.File, error) {
	if c.listed {
		return c.files, nil
	}
	for _, f := range c.ws.List() {
		if err := sound(f.Path); err != nil {
			return nil, err
		}
		if withinAny(f.Path, c.visible) {
			c.files = append(c.files, f)
		}
	}
	c.listed = true
	return c.files, nil
}

// sound fails the run for a stored path that leads out of the workspace.
func sound(path string) error {
	if _, err := Clean(path); err != nil {
		return tools.Systemf("workspace.escape", "the store holds a file under an impossible path: %w", err)
	}
	return nil
}

// target checks the path of a file the model names: its text, that it may be seen, that it is no folder. The file
// need not exist.
func (c *call) target(path string) (string, error) {
	path, err := Clean(path)
	if err != nil {
		return "", err
	}
	folder, err := c.folder(path)
	switch {
	case err != nil:
		return "", err
	case folder:
		return "", refuse(CodePathIsDirectory, "%s is a folder. Use workspace_list_files to see what is in it, and name a file.", show(path))
	case !withinAny(path, c.visible):
		return "", c.notVisible(path)
	}
	return path, nil
}

// folder says whether a path is a folder: a visible prefix, a way to one, or something that files lie in.
func (c *call) folder(path string) (bool, error) {
	if _, isFile := c.ws.Stat(path); isFile {
		return false, nil
	}
	for _, p := range c.visible {
		if Within(p, path) {
			return true, nil
		}
	}
	files, err := c.list()
	if err != nil {
		return false, err
	}
	at, _ := slices.BinarySearchFunc(files, path+"/", func(f tools.File, s string) int { return strings.Compare(f.Path, s) })
	return at < len(files) && strings.HasPrefix(files[at].Path, path+"/"), nil
}

func (c *call) notVisible(path string) error {
	hint := ""
	root, rest, _ := strings.Cut(path, "/")
	for _, r := range Roots() {
		if root != r && strings.EqualFold(root, r) {
			hint = fmt.Sprintf(" Upper and lower case differ: %s/ is not %s/; did you mean %s?", root, r, show(strings.TrimSuffix(r+"/"+rest, "/")))
		}
	}
	return refuse(CodeNotVisible, "%s is outside the folders you can see.%s You can see %s.", show(path), hint, folders(c.visible))
}

// writable checks that the model may write a path that target has accepted, and that no part of it is a file.
func (c *call) writable(path string) error {
	if w := c.ws.Writable(); !withinAny(path, w) {
		return refuse(CodeNotWritable, "%s can be read but not written. You can write in %s.", show(path), folders(w))
	}
	for i, b := range []byte(path) {
		if b != '/' {
			continue
		}
		if _, isFile := c.ws.Stat(path[:i]); isFile {
			return refuse(CodeParentIsFile, "%s is a file, so nothing can lie below it. Choose another path.", show(path[:i]))
		}
	}
	return nil
}

// existing gives a file that must be there.
func (c *call) existing(path string) (tools.File, error) {
	f, ok := c.ws.Stat(path)
	if !ok {
		return f, refuse(CodeNotFound, "There is no file %s. Use workspace_list_files to see what there is.", show(path))
	}
	return f, nil
}

// read gives the bytes of a file that Stat has shown.
func (c *call) read(ctx context.Context, f tools.File) ([]byte, error) {
	data, ok, err := c.ws.Read(ctx, f.Path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	case !ok:
		return nil, tools.Systemf("workspace.unreadable", "%s is listed but cannot be read", f.Path)
	}
	return data, nil
}

// current refuses unless this invocation knows the present content of an existing file. What names the deed.
func (c *call) current(f tools.File, what string) error {
	switch c.ws.Known(f.Path) {
	case f.Digest:
		return nil
	case "":
		return refuse(CodeUnreadFile, "You have not read the whole of %s yet. Read it with workspace_read_file without a range, then %s.", show(f.Path), what)
	}
	return refuse(CodeStaleFile, "%s was changed since you last read or wrote it. Read it again with workspace_read_file without a range, then %s.", show(f.Path), what)
}

// point is the id of the checkpoint that this call's edits will make: they commit on top of this very version or not at all.
func (c *call) point() string { return strconv.FormatInt(c.ws.Version()+1, 10) }

// put stages a file's new content, bounded.
func (c *call) put(path string, data []byte) (specs.Digest, error) {
	if len(data) > MaxFileBytes {
		return "", refuse(CodeTooLarge, "%s would have %d bytes; a file can have at most %d. Split it into several files.", show(path), len(data), MaxFileBytes)
	}
	c.ws.Write(path, data)
	return specs.DigestOf(data), nil
}

// folders lists prefixes for a message.
func folders(prefixes []string) string {
	if len(prefixes) == 0 {
		return "nothing"
	}
	out := make([]string, len(prefixes))
	for i, p := range prefixes {
		out[i] = p + "/"
	}
	return strings.Join(out, ", ")
}

// fileRef is the reference a person or a later call can follow.
func fileRef(path string, d specs.Digest, size int) tools.ResourceRef {
	return tools.ResourceRef{Ref: "workspace:" + path, MediaType: mediaType(path), Digest: d, Size: int64(size)}
}

func mediaType(path string) string {
	if strings.HasSuffix(path, ".md") {
		return "text/markdown; charset=utf-8"
	}
	return "text/plain; charset=utf-8"
}

// hexOf is a digest as tools show it: 64 hex digits.
func hexOf(d specs.Digest) string { return strings.TrimPrefix(string(d), "sha256:") }

// answer makes a success of a text and facts.
func answer(facts any, format string, args ...any) (tools.Result, error) {
	r := tools.Text(format, args...)
	return structured(r, facts)
}

func structured(r tools.Result, facts any) (tools.Result, error) {
	raw, err := json.Marshal(facts)
	if err != nil {
		return tools.Result{}, tools.Systemf("workspace.serialisation", "%w", err)
	}
	r.Structured = raw
	return r, nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
