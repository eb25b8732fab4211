package workspace

import (
	"context"
	"fmt"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// writeFacts is the structured result of a write or patch.
type writeFacts struct {
	Path         string `json:"path"`
	Mode         string `json:"mode,omitempty"`
	Created      bool   `json:"created"`
	Size         int    `json:"size"` // bytes after the write
	SHA256       string `json:"sha256"`
	Replacements int    `json:"replacements,omitempty"`
	Checkpoint   string `json:"checkpoint"` // id of the checkpoint this write makes
}

// writeFile is workspace.write_file {path, content, mode?}.
func writeFile(ctx context.Context, c *call) (tools.Result, error) {
	path := c.need("path")
	content := c.need("content")
	mode := c.oneOf("mode", "replace", "append")
	if err := c.done(); err != nil {
		return tools.Result{}, err
	}
	path, err := c.target(path)
	if err != nil {
		return tools.Result{}, err
	}
	if err := c.writable(path); err != nil {
		return tools.Result{}, err
	}
	f, exists := c.ws.Stat(path)
	data := []byte(content)
	// Whoever appends to a file he has not read must not thereby count as knowing it: a later rewrite would
	// then throw away what he never saw.
	known := true
	switch {
	case !exists:
	case mode == "replace":
		if err := c.current(f, "write it"); err != nil {
			return tools.Result{}, err
		}
	default:
		old, err := c.read(ctx, f)
		if err != nil {
			return tools.Result{}, err
		}
		known = c.ws.Known(path) == f.Digest
		data = append(old[:len(old):len(old)], data...)
	}
	digest, err := c.put(path, data)
	if err != nil {
		return tools.Result{}, err
	}
	if known {
		c.ws.Learn(path, digest)
	}
	return wrote(writeFacts{Path: path, Mode: mode, Created: !exists, Size: len(data), SHA256: hexOf(digest), Checkpoint: c.point()}, digest)
}

func wrote(facts writeFacts, digest specs.Digest) (tools.Result, error) {
	deed := map[bool]string{true: "Created", false: "Replaced"}[facts.Created]
	switch {
	case facts.Replacements > 0:
		deed = "Patched"
	case facts.Mode == "append" && !facts.Created:
		deed = "Appended to"
	}
	where := ""
	if facts.Replacements > 1 {
		where = fmt.Sprintf(" in %d places", facts.Replacements)
	}
	r := tools.Text("%s %s%s; it has %d bytes now (checkpoint %s).", deed, facts.Path, where, facts.Size, facts.Checkpoint)
	r.ResourceRefs = []tools.ResourceRef{fileRef(facts.Path, digest, facts.Size)}
	return structured(r, facts)
}
