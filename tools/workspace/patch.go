package workspace

import (
	"context"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/callgate/callgate/tools"
)

const (
	diffContext = 3   // unchanged lines that a diff shows around a change
	maxCounted  = 100 // matches that are counted for a message; overlapping ones could be as many as characters
)

// applyPatch is workspace.apply_patch {path, old_string, new_string, replace_all?}: exact replacement in one file.
func applyPatch(ctx context.Context, c *call) (tools.Result, error) {
	path := c.need("path")
	before := c.need("old_string")
	after := c.need("new_string")
	all := c.flag("replace_all")
	if before == "" {
		c.fail("old_string is empty. Write the text to replace; to add to a file use workspace_write_file with mode append.")
	}
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
	f, ok := c.ws.Stat(path)
	if !ok {
		return tools.Result{}, refuse(CodeNotFound, "There is no file %s to patch. Create it with workspace_write_file.", show(path))
	}
	if err := c.current(f, "patch it"); err != nil {
		return tools.Result{}, err
	}
	if before == after {
		return tools.Result{}, refuse(CodePatchNoChange, "old_string and new_string are equal, so the patch would change nothing.")
	}
	data, err := c.read(ctx, f)
	if err != nil {
		return tools.Result{}, err
	}
	text := string(data)
	edits, err := findPlaces(path, text, before, after, all)
	if err != nil {
		return tools.Result{}, err
	}
	// The size is known before the text is built, so that many replacements cannot exhaust memory.
	if size := len(text) + len(edits)*(len(after)-len(before)); size > MaxFileBytes {
		return tools.Result{}, refuse(CodeTooLarge, "%s would have %d bytes; a file can have at most %d. Split it into several files.", show(path), size, MaxFileBytes)
	}
	changed, err := udiff.Apply(text, edits)
	if err != nil {
		return tools.Result{}, tools.Systemf("workspace.patch_failed", "%w", err)
	}
	diff, err := udiff.ToUnified("a/"+path, "b/"+path, text, coarser(text, changed, edits), diffContext)
	if err != nil {
		return tools.Result{}, tools.Systemf("workspace.patch_failed", "%w", err)
	}
	digest, err := c.put(path, []byte(changed))
	if err != nil {
		return tools.Result{}, err
	}
	c.ws.Learn(path, digest)
	r, err := wrote(writeFacts{Path: path, Size: len(changed), SHA256: hexOf(digest), Replacements: len(edits), Checkpoint: c.point()}, digest)
	if err != nil {
		return tools.Result{}, err
	}
	r.Content = append(r.Content, tools.Content{Type: tools.ContentDiffRef, MediaType: "text/x-diff; charset=utf-8", Name: path + ".diff", Size: int64(len(diff)), Data: []byte(diff)})
	return r, nil
}

// coarser gives edits that cost no more than the text to draw: drawing takes time quadratic in their number, so many
// become the one that spans them all.
func coarser(text, changed string, edits []udiff.Edit) []udiff.Edit {
	const fine = 200
	if len(edits) <= fine {
		return edits
	}
	start, end := edits[0].Start, edits[len(edits)-1].End
	return []udiff.Edit{{Start: start, End: end, New: changed[start : len(changed)-(len(text)-end)]}}
}

// findPlaces gives the edits of a patch, or says why there are none. Matches that overlap count separately: in "aaa" the
// text "aa" is found twice, so replacing "it" would be a guess.
func findPlaces(path, text, before, after string, all bool) ([]udiff.Edit, error) {
	var edits []udiff.Edit
	var lines []int
	found := 0
	for at := 0; all || found < maxCounted; {
		i := strings.Index(text[at:], before)
		if i < 0 {
			break
		}
		at += i
		found++
		if len(edits) == 0 || edits[len(edits)-1].End <= at {
			edits = append(edits, udiff.Edit{Start: at, End: at + len(before), New: after})
		}
		if len(lines) < 5 {
			lines = append(lines, 1+strings.Count(text[:at], "\n"))
		}
		if all {
			at += len(before)
		} else {
			at++
		}
	}
	switch {
	case found == 0:
		return nil, refuse(CodePatchNoMatch, "old_string does not occur in %s. %s", show(path), nearMiss(text, before))
	case found > 1 && !all:
		times, more := fmt.Sprint(found), ""
		if found == maxCounted {
			times += " or more"
		}
		if found > len(lines) {
			more = " and more"
		}
		return nil, refuse(CodePatchAmbiguous, "old_string occurs %s times in %s (lines %s%s). Add surrounding text until it occurs once, or set replace_all.",
			times, show(path), strings.Trim(fmt.Sprint(lines), "[]"), more)
	}
	return edits, nil
}

// nearMiss names the usual reasons for a text not to be found.
func nearMiss(text, before string) string {
	const again = "Read the file again and copy the text exactly."
	flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	switch {
	case strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), strings.ReplaceAll(before, "\r\n", "\n")):
		return `The line ends differ: write \r\n or \n as the file does.`
	case flat(before) != "" && strings.Contains(flat(text), flat(before)):
		return "It occurs with other spaces or line breaks. " + again
	case strings.Contains(strings.ToLower(text), strings.ToLower(before)):
		return "It occurs in other upper and lower case. " + again
	}
	return again
}
