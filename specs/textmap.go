package specs

import (
	"strconv"

	"gopkg.in/yaml.v3"
)

// place is a compact Pos: every character of every text has one.
type place struct{ line, col int32 }

// textMapper walks a scalar's source and its decoded value side by side. It gives up, and the caller falls
// back to the scalar's start, as soon as the two disagree: a wrong place is worse than a coarse one.
type textMapper struct {
	src    *sourceText
	want   []rune
	places []place
	failed bool
}

// mapText gives the place of every character of a scalar's value, or nil when that is not certain.
func mapText(src *sourceText, n *yaml.Node) []place {
	m := &textMapper{src: src, want: []rune(n.Value)}
	if len(m.want) == 0 {
		return nil
	}
	m.places = make([]place, 0, len(m.want))
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		m.flow(n.Line, n.Column, '"')
	case n.Style&yaml.SingleQuotedStyle != 0:
		m.flow(n.Line, n.Column, '\'')
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		m.block(n.Line, n.Column, n.Style&yaml.FoldedStyle != 0)
	default:
		m.flow(n.Line, n.Column-1, 0)
	}
	if m.failed || len(m.places) != len(m.want) {
		return nil
	}
	return m.places
}

func (m *textMapper) done() bool { return m.failed || len(m.places) == len(m.want) }

// emit says that the value's next character is r and stands at line, col (0-based col).
func (m *textMapper) emit(r rune, line, col int) {
	if m.failed {
		return
	}
	if len(m.places) == len(m.want) || m.want[len(m.places)] != r {
		m.failed = true
		return
	}
	m.places = append(m.places, place{int32(line), int32(col + 1)})
}

// flow maps plain (quote 0) and quoted scalars. col is the 0-based column of the first content character.
func (m *textMapper) flow(line, col int, quote rune) {
	if quote != 0 && m.src.char(line, col) != quote {
		m.failed = true
		return
	}
	for !m.done() {
		if line > len(m.src.lines) {
			m.failed = true
			return
		}
		row := m.src.row(line)
		end := col
		for end < len(row) && isBlank(row[end]) {
			end++
		}
		if end >= len(row) { // the rest of the line is white: a fold
			line, col = m.fold(line, col)
			continue
		}
		if end > col {
			m.emit(row[col], line, col)
			col++
			continue
		}
		c := row[col]
		switch {
		case quote == '"' && c == '\\':
			if col+1 == len(row) {
				line, col = m.continued(line)
				continue
			}
			r, width := unescape(row[col+1:])
			if width == 0 {
				m.failed = true
				return
			}
			m.emit(r, line, col)
			col += 1 + width
		case quote == '\'' && c == '\'' && col+1 < len(row) && row[col+1] == '\'':
			m.emit('\'', line, col)
			col += 2
		case quote != 0 && c == quote:
			m.failed = true // closed before the value was complete
		default:
			m.emit(c, line, col)
			col++
		}
	}
}

// fold passes a line break: alone it is a space, with k empty lines after it, k line feeds.
func (m *textMapper) fold(line, col int) (int, int) {
	next := line + 1
	for next <= len(m.src.lines) && isBlankRow(m.src.row(next)) {
		m.emit('\n', next, 0)
		next++
	}
	if next == line+1 {
		m.emit(' ', line, col)
	}
	return next, indentOf(m.src.row(next))
}

// continued passes an escaped line break of a double-quoted text, which yields nothing.
func (m *textMapper) continued(line int) (int, int) {
	next := line + 1
	for next <= len(m.src.lines) && isBlankRow(m.src.row(next)) {
		m.emit('\n', next, 0)
		next++
	}
	return next, indentOf(m.src.row(next))
}

// block maps `|` and `>` scalars; the folding rules are those of the YAML specification, 8.1.3.
func (m *textMapper) block(line, col int, folded bool) {
	header := m.src.row(line)
	explicit := false
	for _, c := range header[min(col, len(header)):] {
		if c >= '1' && c <= '9' {
			explicit = true
		}
		if isBlank(c) {
			break
		}
	}
	first := line + 1
	for first <= len(m.src.lines) && isBlankRow(m.src.row(first)) {
		first++
	}
	indent := spacesOf(m.src.row(first))
	if explicit {
		if indent = m.explicitIndent(m.src.row(first)); indent < 0 {
			m.failed = true
			return
		}
	}
	var pending []place // line breaks read but not yet known to be spaces or line feeds
	var leading *place  // the break after the last text line
	leadingBlank := false
	for ln := line + 1; !m.done(); ln++ {
		if ln > len(m.src.lines) {
			break
		}
		row := m.src.row(ln)
		if len(row) <= indent || spacesOf(row) < indent {
			if !isBlankRow(row) {
				break // the scalar has ended
			}
			pending = append(pending, place{int32(ln), int32(min(len(row), indent))})
			continue
		}
		blank := isBlank(row[indent])
		if leading != nil {
			if folded && !leadingBlank && !blank {
				if len(pending) == 0 {
					m.emit(' ', int(leading.line), int(leading.col))
				}
			} else {
				m.emit('\n', int(leading.line), int(leading.col))
			}
		}
		for _, p := range pending {
			m.emit('\n', int(p.line), int(p.col))
		}
		pending = pending[:0]
		leadingBlank = blank
		for i, c := range row[indent:] {
			if m.done() {
				return
			}
			m.emit(c, ln, indent+i)
		}
		leading = &place{int32(ln), int32(len(row))}
	}
	if leading != nil && !m.done() {
		m.emit('\n', int(leading.line), int(leading.col))
	}
	for _, p := range pending {
		if m.done() {
			return
		}
		m.emit('\n', int(p.line), int(p.col))
	}
}

// explicitIndent finds the indentation that `|2` means by laying the value's first line over the source's.
func (m *textMapper) explicitIndent(row []rune) int {
	i := 0
	for i < len(m.want) && m.want[i] == '\n' {
		i++
	}
	j := i
	for j < len(m.want) && m.want[j] != '\n' {
		j++
	}
	return len(row) - (j - i)
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' }

func isBlankRow(row []rune) bool {
	for _, r := range row {
		if !isBlank(r) {
			return false
		}
	}
	return true
}

// indentOf counts leading blanks.
func indentOf(row []rune) int {
	i := 0
	for i < len(row) && isBlank(row[i]) {
		i++
	}
	return i
}

// spacesOf counts leading spaces: in a block text a tab is content.
func spacesOf(row []rune) int {
	i := 0
	for i < len(row) && row[i] == ' ' {
		i++
	}
	return i
}

// unescape reads what follows a backslash in a double-quoted text; width 0 means it is no escape.
func unescape(row []rune) (rune, int) {
	simple := map[rune]rune{
		'0': 0, 'a': 7, 'b': 8, 't': 9, '\t': 9, 'n': 10, 'v': 11, 'f': 12, 'r': 13, 'e': 27, ' ': ' ',
		'"': '"', '\'': '\'', '/': '/', '\\': '\\', 'N': 0x85, '_': 0xa0, 'L': 0x2028, 'P': 0x2029,
	}
	if r, ok := simple[row[0]]; ok {
		return r, 1
	}
	digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[row[0]]
	if digits == 0 || len(row) < 1+digits {
		return 0, 0
	}
	v, err := strconv.ParseUint(string(row[1:1+digits]), 16, 32)
	if err != nil {
		return 0, 0
	}
	return rune(v), 1 + digits
}
