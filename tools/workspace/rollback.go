package workspace

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

const (
	maxLabelChars  = 200
	maxReasonChars = 2000
	maxNamed       = 20 // paths named in a message; the structured result has all
)

// createCheckpoint is workspace.create_checkpoint {label?}.
func createCheckpoint(_ context.Context, c *call) (tools.Result, error) {
	label := c.short("label", maxLabelChars)
	if _, isID := pointID(label); isID || strings.TrimSpace(label) != label || strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) }) {
		c.fail("label must be words: not only digits, no spaces at its ends, no line breaks or invisible characters.")
	}
	if err := c.done(); err != nil {
		return tools.Result{}, err
	}
	c.ws.Checkpoint(label)
	called := ""
	if label != "" {
		called = ", called " + show(label)
	}
	return answer(struct {
		Checkpoint string `json:"checkpoint"`
		Label      string `json:"label,omitempty"`
	}{c.point(), label}, "The workspace as it is now is checkpoint %s%s. workspace_rollback can return to it.", c.point(), called)
}

// pointID reads the id of a checkpoint: its version, in digits.
func pointID(s string) (version int64, ok bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	version, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		version = 0 // out of range: an id that no checkpoint has
	}
	return version, true
}

// rollback is workspace.rollback {checkpoint, reason?}; the checkpoint is named by id or by label. What this profile may write
// is covered: it becomes exactly as the checkpoint has it, files and absences. What it may not write stays, and is named
// where it differs.
//
// Every old file is read and checked before anything is staged: a checkpoint of which one blob is gone changes nothing.
func rollback(ctx context.Context, c *call) (tools.Result, error) {
	c.must("checkpoint")
	name := c.short("checkpoint", maxLabelChars)
	c.short("reason", maxReasonChars) // for the person who decides; shown with the arguments
	if err := c.done(); err != nil {
		return tools.Result{}, err
	}
	version, isID := pointID(name)
	if !isID {
		v, err := c.labelled(ctx, name)
		if err != nil {
			return tools.Result{}, err
		}
		version = v
	}
	then, ok, err := c.ws.At(ctx, version)
	switch {
	case err != nil:
		return tools.Result{}, fmt.Errorf("read checkpoint %d: %w", version, err)
	case !ok:
		return tools.Result{}, c.noCheckpoint(ctx, fmt.Sprintf("There is no checkpoint %s.", clip(name, 20)))
	}
	p, err := c.compare(then)
	if err != nil {
		return tools.Result{}, err
	}
	contents := make([][]byte, len(p.restore))
	for i, f := range p.restore {
		if err := ctx.Err(); err != nil {
			return tools.Result{}, err
		}
		data, err := c.ws.ReadBlob(ctx, f.Digest)
		if err != nil {
			return tools.Result{}, fmt.Errorf("checkpoint %d: read %s: %w", version, f.Path, err)
		}
		if specs.DigestOf(data) != f.Digest {
			return tools.Result{}, tools.Systemf("workspace.checkpoint_damaged", "checkpoint %d: %s does not match its digest", version, f.Path)
		}
		contents[i] = bytes.Clone(data)
	}

	for _, path := range p.remove {
		c.ws.Remove(path)
	}
	restored := []string{}
	for i, f := range p.restore {
		c.ws.Write(f.Path, contents[i])
		restored = append(restored, f.Path)
	}

	text := fmt.Sprintf("The workspace is back at checkpoint %d.%s%s", version, named("Restored", restored), named("Removed, because they did not exist then", p.remove))
	if len(restored)+len(p.remove) == 0 {
		text = fmt.Sprintf("Everything you can write is already as it was at checkpoint %d.", version)
	}
	text += named("Left as they are, because you cannot write them", p.untouched)
	r, err := answer(struct {
		Checkpoint string   `json:"checkpoint"` // gone back to
		Restored   []string `json:"restored"`
		Removed    []string `json:"removed"`
		Untouched  []string `json:"untouched"` // differ from the checkpoint and are not covered
		Hidden     int      `json:"hidden"`    // how many more of these this profile cannot see
	}{strconv.FormatInt(version, 10), restored, p.remove, p.untouched, p.hidden}, "%s", text)
	r.Signal, r.RolledBack = tools.SignalRolledBack, version
	return r, err
}

// plan is what a rollback would do. All lists are sorted by path.
type plan struct {
	restore           []tools.File
	remove, untouched []string
	hidden            int
}

// compare finds the differences between the present files and a manifest.
func (c *call) compare(then []tools.File) (plan, error) {
	p := plan{remove: []string{}, untouched: []string{}}
	writable := c.ws.Writable()
	old := make(map[string]specs.Digest, len(then))
	for _, f := range then {
		if err := sound(f.Path); err != nil {
			return plan{}, err
		}
		old[f.Path] = f.Digest
	}
	differs := func(path string) bool { // and is not covered
		seen := withinAny(path, c.visible)
		switch {
		case seen && withinAny(path, writable):
			return false
		case seen:
			p.untouched = append(p.untouched, path)
		default:
			p.hidden++
		}
		return true
	}
	now := make(map[string]specs.Digest)
	for _, f := range c.ws.List() {
		if err := sound(f.Path); err != nil {
			return plan{}, err
		}
		now[f.Path] = f.Digest
		if _, was := old[f.Path]; !was && !differs(f.Path) {
			p.remove = append(p.remove, f.Path)
		}
	}
	for _, f := range then {
		if now[f.Path] != f.Digest && !differs(f.Path) {
			p.restore = append(p.restore, f)
		}
	}
	slices.Sort(p.remove)
	slices.Sort(p.untouched)
	slices.SortFunc(p.restore, func(a, b tools.File) int { return strings.Compare(a.Path, b.Path) })
	return p, nil
}

// labelled finds the newest checkpoint of a label.
func (c *call) labelled(ctx context.Context, label string) (int64, error) {
	points, err := c.ws.Checkpoints(ctx)
	if err != nil {
		return 0, fmt.Errorf("list checkpoints: %w", err)
	}
	for i := len(points) - 1; i >= 0; i-- {
		if points[i].Label == label && label != "" {
			return points[i].Version, nil
		}
	}
	return 0, c.noCheckpoint(ctx, fmt.Sprintf("No checkpoint is called %s.", show(label)))
}

// noCheckpoint refuses and lists the newest checkpoints there are.
func (c *call) noCheckpoint(ctx context.Context, what string) error {
	points, err := c.ws.Checkpoints(ctx)
	if err != nil {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	if len(points) == 0 {
		return refuse(CodeNoCheckpoint, "%s There are none yet; every change makes one.", what)
	}
	var b strings.Builder
	for i := len(points) - 1; i >= max(0, len(points)-10); i-- {
		fmt.Fprintf(&b, "\n%d", points[i].Version)
		if points[i].Label != "" {
			fmt.Fprintf(&b, " %s", show(points[i].Label))
		}
		if points[i].Reason != "" {
			fmt.Fprintf(&b, " (%s)", points[i].Reason)
		}
	}
	return refuse(CodeNoCheckpoint, "%s The newest are:%s", what, b.String())
}

// named lists paths behind a title, or gives nothing.
func named(title string, paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	more := ""
	if len(paths) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(paths)-maxNamed)
		paths = paths[:maxNamed]
	}
	return fmt.Sprintf("\n%s: %s%s.", title, strings.Join(paths, ", "), more)
}
