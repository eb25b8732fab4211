package specs

import (
	"math"
	"slices"

	"gopkg.in/yaml.v3"
)

// leaf lays out what follows the first line of a scalar or a flow collection. indent and column are the new and the old
// indentation of the block collection around it.
func (f *formatter) leaf(n *yaml.Node, indent, column int) {
	if f.err != nil {
		return
	}
	if n.Kind == yaml.ScalarNode && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		f.blockText(n, indent, column)
		return
	}
	first := f.old(n.Line)
	shift := f.lines[n.Line].indent - first
	var end int
	if n.Kind == yaml.ScalarNode {
		if end, _ = f.scalarEnd(n); end > n.Line && (n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle)) != 0 {
			for line := n.Line; line < end; line++ {
				f.lines[line].open = true
			}
		}
	} else if end = f.flowEnd(n); f.err != nil {
		return
	}
	for line := n.Line + 1; line <= end; line++ {
		l := &f.lines[line]
		l.kind, l.indent = lineContinues, max(0, indent+2)
		if n.Kind == yaml.ScalarNode {
			continue
		}
		row := f.src.row(line)
		least := indent + 2
		if at := indentOf(row); at < len(row) && (row[at] == ']' || row[at] == '}') {
			least = indent
		}
		l.indent = max(least, f.old(line)+shift, 0)
	}
}

// scalarEnd gives the line and the 0-based column behind a plain or quoted scalar.
func (f *formatter) scalarEnd(n *yaml.Node) (line, column int) {
	switch {
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		quote := '\''
		if n.Style&yaml.DoubleQuotedStyle != 0 {
			quote = '"'
		}
		line, column, ok := f.quoteEnd(n.Line, n.Column-1, quote)
		if !ok {
			f.fail(n, "the end of its text was not found")
		}
		return line, column
	case n.Value == "":
		return n.Line, n.Column - 1
	}
	places := mapText(f.src, n)
	if len(places) == 0 {
		f.fail(n, "the end of its text was not found")
		return n.Line, n.Column
	}
	last := places[len(places)-1]
	return int(last.line), int(last.col)
}

// quoteEnd finds the end of a quoted text that starts at a place.
func (f *formatter) quoteEnd(line, column int, quote rune) (int, int, bool) {
	if f.src.char(line, column+1) != quote {
		return line, column, false
	}
	for column++; line <= len(f.src.lines); line, column = line+1, 0 {
		row := f.src.row(line)
		for ; column < len(row); column++ {
			switch {
			case row[column] == '\\' && quote == '"':
				column++
			case row[column] == quote && quote == '\'' && column+1 < len(row) && row[column+1] == quote:
				column++
			case row[column] == quote:
				return line, column + 1, true
			}
		}
	}
	return line, column, false
}

// flowEnd finds the last line of a flow collection, and marks the lines on which a quoted text in it goes on.
func (f *formatter) flowEnd(n *yaml.Node) int {
	depth := 0
	line, column := n.Line, n.Column-1
	for ; line <= len(f.src.lines); line, column = line+1, 0 {
		row := f.src.row(line)
		for ; column < len(row); column++ {
			before := rune(' ')
			if column > 0 {
				before = row[column-1]
			}
			switch c := row[column]; {
			case c == '#' && isBlank(before):
				column = len(row)
			case (c == '"' || c == '\'') && (isBlank(before) || slices.Contains([]rune("[{,:?"), before)):
				from := line
				end, at, ok := f.quoteEnd(line, column, c)
				if !ok {
					f.fail(n, "the end of a text in it was not found")
					return line
				}
				for ; from < end; from++ {
					f.lines[from].open = true
				}
				if line != end {
					line, row = end, f.src.row(end)
				}
				column = at - 1
			case c == '[' || c == '{':
				depth++
			case c == ']' || c == '}':
				if depth--; depth == 0 {
					return line
				}
			}
		}
	}
	f.fail(n, "its end was not found")
	return n.Line
}

// blockText marks the lines of a literal or folded scalar.
func (f *formatter) blockText(n *yaml.Node, indent, column int) {
	header := f.src.row(n.Line)
	explicit, keep := 0, false
	for _, c := range header[min(n.Column-1, len(header)):] {
		switch {
		case c >= '1' && c <= '9':
			explicit = int(c - '0')
		case c == '+':
			keep = true
		}
		if isBlank(c) {
			break
		}
	}
	first := n.Line + 1
	for first <= len(f.src.lines) && isBlankRow(f.src.row(first)) {
		first++
	}
	text := column + explicit
	if explicit == 0 && first <= len(f.src.lines) {
		text = spacesOf(f.src.row(first))
	}
	if explicit == 0 && (first > len(f.src.lines) || text <= column) { // it is empty, or empty lines
		text = math.MaxInt
	}
	next := indent + 2
	if explicit > 0 {
		next = indent + explicit
	}
	last := n.Line
	for line := n.Line + 1; line <= len(f.src.lines); line++ {
		row := f.src.row(line)
		switch {
		case !isBlankRow(row) && spacesOf(row) < text:
			line = len(f.src.lines)
			continue
		case len(row) > text || keep && (line < len(f.src.lines) || len(row) > 0):
			last = line
		}
	}
	for line := n.Line + 1; line <= last; line++ {
		f.lines[line] = layoutLine{kind: lineBlock, indent: next, text: text}
	}
}
