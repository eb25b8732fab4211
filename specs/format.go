package specs

import (
	"fmt"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// FormatError says why a file is left as it is: it holds something whose layout is not understood well enough to touch it.
type FormatError struct {
	Pos Pos
	Why string
}

func (e *FormatError) Error() string { return e.Pos.String() + ": left as it is: " + e.Why }

// Format gives a YAML file in one layout: two blanks for each level, lists inside their key, one blank after a dash and a
// colon, no trailing blanks, no two empty lines in a row, \n at line ends. Nothing but white space changes: keys keep their
// order, texts their quotes and line breaks, comments their words and neighbours. Formatting twice gives what formatting once gave.
//
// What comes out has been read again: the same nodes in the same styles, and the same documents by digest. The error is an
// *InvalidError for a file that is no YAML, and a *FormatError for one that is left as it is.
func Format(name string, data []byte) ([]byte, error) {
	before, src, err := readLayout(name, data)
	if err != nil {
		return nil, err
	}
	text, err := before.layOut(src)
	if err != nil {
		return nil, err
	}
	out := []byte(text)
	uncertain := &FormatError{Pos{File: name, Line: 1, Col: 1}, "its meaning would not be certain to stay"}
	after, src, err := readLayout(name, out)
	if err != nil || !before.same(after) || letters(string(data)) != letters(text) {
		return nil, uncertain
	}
	if again, err := after.layOut(src); err != nil || again != text {
		return nil, uncertain
	}
	return out, nil
}

// layOut writes a file again.
func (l layout) layOut(src *sourceText) (string, error) {
	f := &formatter{src: src, lines: make([]layoutLine, len(src.lines)+1)}
	for _, root := range l.roots {
		f.document(root)
	}
	if f.err != nil {
		return "", f.err
	}
	return f.text(), nil
}

// layout is what must not change.
type layout struct {
	roots  []*yaml.Node
	digest Digest // of the documents, as far as they can be read
}

func readLayout(name string, data []byte) (layout, *sourceText, error) {
	l := newLoader(LoadOptions{})
	if int64(len(data)) > l.opts.MaxFileBytes {
		l.tooLarge(name, int64(len(data)))
		return layout{}, nil, l.found.Err()
	}
	src := openText(File{Name: name, Data: data}, l.report)
	if src == nil {
		return layout{}, nil, l.found.Err()
	}
	l.sources[name] = src
	var out layout
	for _, doc := range parseYAML(src, l.report) {
		out.roots = append(out.roots, doc.root)
	}
	l.found.Sort()
	if err := l.found.Err(); err != nil {
		return layout{}, nil, err
	}
	out.digest = digestDocuments(readFile(File{Name: name, Data: data}, PlatformLevel).docs)
	return out, src, nil
}

func (l layout) same(m layout) bool {
	if len(l.roots) != len(m.roots) || l.digest != m.digest {
		return false
	}
	for i := range l.roots {
		if !sameNode(l.roots[i], m.roots[i]) {
			return false
		}
	}
	return true
}

func sameNode(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Style != b.Style || a.Tag != b.Tag || a.Value != b.Value || a.Anchor != b.Anchor || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !sameNode(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// letters is all of a text but its white space.
func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\ufeff' {
			return -1
		}
		return r
	}, s)
}

// lineKind says how a line is written again.
type lineKind int

const (
	lineOther     lineKind = iota // a comment, an empty line, a document marker
	lineStarts                    // a key, a dash, or a value on a line of its own
	lineContinues                 // goes on with a flow collection or a plain or quoted text
	lineBlock                     // is text of a literal or folded scalar
)

// layoutLine is what is known about a line of the file; lines count from 1.
type layoutLine struct {
	kind    lineKind
	indent  int      // the new one, in blanks; of lineBlock, that of its text
	text    int      // lineBlock only: where the text starts now, in blanks
	open    bool     // its end is inside quotes, so that trailing blanks may matter
	squeeze [][2]int // gaps to become one blank: from column, to column (0-based, exclusive)
}

type formatter struct {
	src   *sourceText
	lines []layoutLine // by line number
	next  []int        // by line number: the next line of the document that starts something, or 0
	prev  []int        // likewise before it
	err   error
}

func (f *formatter) fail(n *yaml.Node, format string, args ...any) {
	if f.err == nil {
		f.err = &FormatError{Pos{f.src.name, n.Line, n.Column}, fmt.Sprintf(format, args...)}
	}
}

// old gives the indentation that a line has.
func (f *formatter) old(line int) int { return indentOf(f.src.row(line)) }

func (f *formatter) starts(line, indent int) {
	f.lines[line].kind, f.lines[line].indent = lineStarts, indent
}

func (f *formatter) document(root *yaml.Node) {
	if isBlockCollection(root) {
		f.collection(root, 0)
		return
	}
	f.leaf(root, -2, -1)
}

func isBlockCollection(n *yaml.Node) bool {
	return (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && n.Style&yaml.FlowStyle == 0 && len(n.Content) > 0
}

// collection lays out a block mapping or sequence at an indentation.
func (f *formatter) collection(n *yaml.Node, indent int) {
	switch {
	case f.err != nil:
	case n.Anchor != "" || n.Style&yaml.TaggedStyle != 0:
		f.fail(n, "it has an anchor or a tag")
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content) && f.err == nil; i += 2 {
			f.pair(n.Content[i], n.Content[i+1], indent)
		}
	default:
		line := n.Line
		for _, c := range n.Content {
			if line = f.item(n, c, line, indent); f.err != nil {
				return
			}
		}
	}
}

func (f *formatter) pair(k, v *yaml.Node, indent int) {
	column := k.Column - 1
	if k.Kind != yaml.ScalarNode || k.Anchor != "" || k.Style&(yaml.TaggedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		f.fail(k, "a key is no plain or quoted text")
		return
	}
	if f.old(k.Line) == column {
		f.starts(k.Line, indent)
	}
	line, end := f.scalarEnd(k)
	row := f.src.row(k.Line)
	for end < len(row) && isBlank(row[end]) {
		end++
	}
	if line != k.Line || end >= len(row) || row[end] != ':' {
		f.fail(k, "a key does not stand on one line with its colon")
		return
	}
	f.value(v, k.Line, end+1, indent, column)
}

// value lays out what stands behind a colon or a dash that ends before a column of a line. indent and column are the new and
// the old indentation of the collection around it.
func (f *formatter) value(v *yaml.Node, line, end, indent, column int) {
	empty := v.Kind == yaml.ScalarNode && v.Value == "" && v.Style == 0
	switch {
	case v.Anchor != "" || v.Style&yaml.TaggedStyle != 0 || v.Kind == yaml.AliasNode:
		f.fail(v, "it has an anchor or a tag")
		return
	case empty:
		return
	case v.Line == line:
		f.lines[line].squeeze = append(f.lines[line].squeeze, [2]int{end, v.Column - 1})
	case !isBlockCollection(v):
		f.starts(v.Line, indent+2)
	}
	if isBlockCollection(v) {
		f.collection(v, indent+2)
		return
	}
	f.leaf(v, indent, column)
}

// item lays out one entry of a sequence, whose dash is looked for from a line on; it gives the line of the dash.
func (f *formatter) item(seq, c *yaml.Node, line, indent int) int {
	column := seq.Column - 1
	for ; line <= len(f.src.lines); line++ {
		row := f.src.row(line)
		first := indentOf(row) == column || line == seq.Line
		if f.lines[line].kind < lineContinues && first && column < len(row) && row[column] == '-' && (column+1 == len(row) || isBlank(row[column+1])) {
			break
		}
	}
	if line > len(f.src.lines) || c.Line < line && c.Value != "" {
		f.fail(c, "its dash was not found")
		return line
	}
	if f.old(line) == column {
		f.starts(line, indent)
	}
	f.value(c, line, column+1, indent, column)
	return line + 1
}

// text writes all lines. Empty ones that are no text come alone, and not at either end.
func (f *formatter) text() string {
	f.neighbours()
	last := len(f.src.lines)
	if f.src.line(last) == "" {
		last-- // what stands behind the last line end
	}
	var b strings.Builder
	gap := false
	for n := 1; n <= last; n++ {
		line := f.write(n)
		if line == "" && f.lines[n].kind == lineOther {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte('\n')
		}
		gap = false
		b.WriteString(line + "\n")
	}
	return b.String()
}

func (f *formatter) write(n int) string {
	row, l := f.src.row(n), &f.lines[n]
	if l.kind == lineBlock {
		if len(row) <= l.text {
			return ""
		}
		return strings.Repeat(" ", l.indent) + string(row[l.text:])
	}
	from := indentOf(row)
	if from == len(row) {
		return ""
	}
	var b strings.Builder
	switch {
	case l.kind != lineOther:
		b.WriteString(strings.Repeat(" ", l.indent))
	case row[from] == '#':
		b.WriteString(strings.Repeat(" ", f.commentIndent(n)))
	default:
		b.WriteString(string(row[:from]))
	}
	for _, gap := range l.squeeze {
		b.WriteString(string(row[from:gap[0]]) + " ")
		from = gap[1]
	}
	b.WriteString(string(row[min(from, len(row)):]))
	if l.open {
		return b.String()
	}
	return strings.TrimRightFunc(b.String(), unicode.IsSpace)
}

// commentIndent puts a comment on a line of its own where its neighbours went: with the line that follows when both started
// in the same column, else with the last line before it that is still open there.
func (f *formatter) commentIndent(n int) int {
	column := f.old(n)
	next := f.next[n]
	if next > 0 && f.old(next) == column {
		return f.lines[next].indent
	}
	for at := f.prev[n]; at > 0; at = f.prev[at] {
		if f.old(at) == column {
			return f.lines[at].indent
		}
		if f.old(at) < column {
			if next == 0 {
				return f.lines[at].indent
			}
			break
		}
	}
	if next > 0 {
		return f.lines[next].indent
	}
	return 0
}

// neighbours finds for each line the nearest ones of its document that start something.
func (f *formatter) neighbours() {
	count := len(f.src.lines)
	f.next, f.prev = make([]int, count+1), make([]int, count+1)
	see := func(n, near int) int {
		switch {
		case f.lines[n].kind == lineStarts:
			return n
		case f.lines[n].kind == lineOther && isDocumentStart(f.src.line(n)):
			return 0
		}
		return near
	}
	for n, near := 1, 0; n <= count; n++ {
		f.prev[n] = near
		near = see(n, near)
	}
	for n, near := count, 0; n >= 1; n-- {
		f.next[n] = near
		near = see(n, near)
	}
}
