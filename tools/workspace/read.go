package workspace

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/callgate/callgate/tools"
)

// Bounds of one read.
const (
	defaultLines = 200
	maxLines     = 2000
	// MaxReadChars is the most characters of a partial read.
	MaxReadChars = 80000
	// maxRangedBytes is the largest file that a partial read will load.
	maxRangedBytes = 64 << 20
)

// span says which part of a file was read. Lines count from 1, characters from 0; the ends are inclusive for lines
// and exclusive for characters.
type span struct {
	StartLine int `json:"start_line,omitempty"`
	EndLine   int `json:"end_line,omitempty"`
	StartChar int `json:"start_char,omitempty"`
	EndChar   int `json:"end_char,omitempty"`
}

// readFacts is the structured result of a read.
type readFacts struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`  // bytes of the file
	Chars  int    `json:"chars"` // characters of the file
	Lines  int    `json:"lines"` // lines of the file
	Full   bool   `json:"full"`
	Range  *span  `json:"range,omitempty"`
	More   bool   `json:"more"` // something follows behind the range
}

// readFile is workspace.read_file {path, start_line?, line_count? | start_char?, max_chars?}. Without a range it reads
// everything and remembers that it did; with one it never does, even when the range covers the file.
func readFile(ctx context.Context, c *call) (tools.Result, error) {
	path := c.need("path")
	startLine, byStart := c.whole("start_line", 1, 1, 1<<31)
	lineCount, byCount := c.whole("line_count", defaultLines, 1, 1<<31)
	startChar, byChar := c.whole("start_char", 0, 0, 1<<31)
	maxChars, byMax := c.whole("max_chars", MaxReadChars, 1, MaxReadChars)
	if err := c.done(); err != nil {
		return tools.Result{}, err
	}
	byLines, byChars := byStart || byCount, byChar || byMax
	if byLines && byChars {
		return tools.Result{}, refuse(CodeMixedRanges, "A read goes by lines (start_line, line_count) or by characters (start_char, max_chars), not both. Leave one pair out.")
	}
	path, err := c.target(path)
	if err != nil {
		return tools.Result{}, err
	}
	f, err := c.existing(path)
	if err != nil {
		return tools.Result{}, err
	}
	ranged := byLines || byChars
	switch {
	case !ranged && f.Size > MaxFileBytes:
		return tools.Result{}, refuse(CodeTooLarge, "%s has %d bytes; at most %d can be read at once. Read it in parts with start_line and line_count.", show(path), f.Size, MaxFileBytes)
	case f.Size > maxRangedBytes:
		return tools.Result{}, refuse(CodeTooLarge, "%s has %d bytes; that is too large to be read at all.", show(path), f.Size)
	}
	data, err := c.read(ctx, f)
	if err != nil {
		return tools.Result{}, err
	}
	if !utf8.Valid(data) {
		return tools.Result{}, refuse(CodeNotText, "%s is not UTF-8 text and cannot be read.", show(path))
	}
	text := string(data)
	facts := readFacts{Path: path, SHA256: hexOf(f.Digest), Size: f.Size, Chars: utf8.RuneCountInString(text), Lines: countLines(text)}

	part, what := text, plural(facts.Lines, "line", "lines")
	switch {
	case byLines:
		part, err = facts.byLines(text, int(startLine), int(min(lineCount, maxLines)))
		if err == nil {
			what = fmt.Sprintf("lines %d to %d of %d", facts.Range.StartLine, facts.Range.EndLine, facts.Lines)
		}
	case byChars:
		part, err = facts.byChars(text, int(startChar), int(maxChars))
		if err == nil {
			what = fmt.Sprintf("characters %d to %d of %d", facts.Range.StartChar, facts.Range.EndChar, facts.Chars)
		}
	default:
		facts.Full = true
		c.ws.Learn(path, f.Digest)
	}
	if err != nil {
		return tools.Result{}, err
	}
	if ranged {
		what += "; a partial read does not unlock replacing or patching the file"
	}
	r := tools.Text("%s (%s)", path, what)
	r.Content = append(r.Content, tools.Content{Type: tools.ContentText, Text: part, MediaType: mediaType(path), Name: path, Size: int64(len(part))})
	r.ResourceRefs = []tools.ResourceRef{fileRef(path, f.Digest, len(data))}
	return structured(r, facts)
}

// byLines cuts out count lines from start (1-based), with their line ends, and at most MaxReadChars characters.
func (f *readFacts) byLines(text string, start, count int) (string, error) {
	if start > max(1, f.Lines) {
		return "", refuse(CodeInvalidRange, "%s has %s; start_line %d lies behind the end.", show(f.Path), plural(f.Lines, "line", "lines"), start)
	}
	rest := text
	for range start - 1 {
		rest = rest[strings.IndexByte(rest, '\n')+1:]
	}
	end, chars, taken := 0, 0, 0
	for taken < count && end < len(rest) {
		n := strings.IndexByte(rest[end:], '\n') + 1
		if n == 0 {
			n = len(rest) - end
		}
		line := utf8.RuneCountInString(rest[end : end+n])
		if chars+line > MaxReadChars {
			if taken == 0 {
				return "", refuse(CodeInvalidRange, "Line %d of %s has %d characters, more than one read can give. Read it with start_char and max_chars.", start, show(f.Path), line)
			}
			break
		}
		end, chars, taken = end+n, chars+line, taken+1
	}
	f.Range = &span{StartLine: start, EndLine: start + max(taken, 1) - 1}
	f.More = end < len(rest)
	return rest[:end], nil
}

// byChars cuts out at most count characters from start (0-based).
func (f *readFacts) byChars(text string, start, count int) (string, error) {
	if start > 0 && start >= f.Chars {
		return "", refuse(CodeInvalidRange, "%s has %s; start_char %d lies behind the end.", show(f.Path), plural(f.Chars, "character", "characters"), start)
	}
	from := byteOf(text, start)
	to := from + byteOf(text[from:], count)
	f.Range = &span{StartChar: start, EndChar: min(f.Chars, start+count)}
	f.More = to < len(text)
	return text[from:to], nil
}

// byteOf gives the byte offset of character n, or the length.
func byteOf(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// countLines counts lines as people do: a line end at the very end opens no further line.
func countLines(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && s[len(s)-1] != '\n' {
		n++
	}
	return n
}
