package specs

import (
	"strings"
	"unicode/utf8"
)

// sourceText is one author's file as lines, so that every finding can show the author's own words.
type sourceText struct {
	name  string
	lines []string // without line ends; line n is lines[n-1]
	runes map[int][]rune
}

func newSourceText(name string, text string) *sourceText {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return &sourceText{name: name, lines: strings.Split(text, "\n"), runes: map[int][]rune{}}
}

func (s *sourceText) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return s.lines[n-1]
}

// row gives line n as characters. Rows are kept: a file of one very long line would otherwise be
// decoded anew for each of its scalars.
func (s *sourceText) row(n int) []rune {
	if r, ok := s.runes[n]; ok {
		return r
	}
	r := []rune(s.line(n))
	s.runes[n] = r
	return r
}

// char gives the character at a place, or 0 at a line's end.
func (s *sourceText) char(line, col int) rune {
	r := s.row(line)
	if col < 1 || col > len(r) {
		return 0
	}
	return r[col-1]
}

// maxShown is how much of a line a finding shows; beyond it the line is cut around the place.
const maxShown = 240

// excerpt gives what a finding shows of a line, and the column of the place within it when the line was cut.
func excerpt(line string, col int) (string, int) {
	if len(line) <= maxShown {
		return line, 0
	}
	r := []rune(line)
	if len(r) <= maxShown {
		return line, 0
	}
	from := min(max(0, col-1-maxShown/2), len(r)-maxShown)
	return string(r[from : from+maxShown]), col - from
}

// badText finds the first byte sequence that has no place in a YAML file a person wrote, or "".
func badText(data []byte) (offset int, code, message, hint string) {
	for i := 0; i < len(data); {
		b := data[i]
		if b >= 0x20 && b < 0x7f || b == '\n' || b == '\t' {
			i++
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			return i, "not-utf8", "this is not UTF-8 text", "save the file as UTF-8"
		case r == '\r':
			if i+1 >= len(data) || data[i+1] != '\n' {
				return i, "control-character", "a carriage return stands alone", "end lines with \\n or \\r\\n"
			}
		case r == 0:
			return i, "control-character", "a NUL character, as in a binary file", "bundles are YAML text; in a text write \"\\0\""
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff:
			return i, "control-character", "the control character " + codePoint(r) + " cannot stand in a YAML file", "write it as an escape in a double-quoted text"
		}
		i += size
	}
	return -1, "", "", ""
}

func codePoint(r rune) string {
	const hex = "0123456789ABCDEF"
	out := []byte("U+")
	for shift := 12; shift >= 0; shift -= 4 {
		out = append(out, hex[r>>shift&15])
	}
	return string(out)
}

// placeOf turns a byte offset into line and column.
func placeOf(data []byte, offset int) (line, col int) {
	before := string(data[:offset])
	line = 1 + strings.Count(before, "\n")
	if i := strings.LastIndexByte(before, '\n'); i >= 0 {
		before = before[i+1:]
	}
	return line, 1 + utf8.RuneCountInString(before)
}
