package specs

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// mend is how a text that is no YAML can be made YAML, so that one mistake does not hide those after it. Nothing is ever
// decided by mended text: what was wrong was reported, and what stands in its place is bad.
type mend struct {
	line, col int  // where the broken value begins; col is 0-based
	indent    int  // following lines that are indented deeper belong to it
	replace   bool // an empty text takes the value's place
	move      int  // or: the line goes so many columns to the right
}

// maxMends bounds how many mistakes of one document are looked for: each costs another reading of it.
const maxMends = 20

// hole stands for what cannot be read.
const hole = `""`

// mended is a text with mends in it, and what brings its places back to the author's.
type mended struct {
	src      *sourceText // a copy
	from, to int
	moved    map[int]int // by line: columns to the right
	holes    map[place]bool
}

// parseMended reports every syntax mistake that it can get past, beginning with the one behind err, and gives the rest
// of the document and the nodes in it that stand for mistakes; nil when it cannot be mended.
func parseMended(src *sourceText, from, to int, err error, report func(Diagnostic)) (*yaml.Node, map[*yaml.Node]bool) {
	m := &mended{src: &sourceText{name: src.name, lines: slices.Clone(src.lines), runes: map[int][]rune{}}, from: from, to: to,
		moved: map[int]int{}, holes: map[place]bool{}}
	var last Pos
	for range maxMends {
		d, fix := locateSyntax(m.src, from, to, err)
		d.Pos.Col -= m.moved[d.Pos.Line]
		if d.Pos == last || d.Code == "yaml-syntax" && fix == (mend{}) && last != (Pos{}) {
			return nil, nil // what a mend did is no mistake of the author's
		}
		report(d)
		last = d.Pos
		if !fix.replace && fix.move == 0 {
			return nil, nil
		}
		m.apply(fix)
		var node *yaml.Node
		if node, err = decodeYAML(strings.Join(m.src.lines[from-1:to-1], "\n")); err == nil {
			bad := map[*yaml.Node]bool{}
			if node != nil {
				shiftLines(node, from-1)
				m.restore(node, bad)
				if len(node.Content) > 0 {
					bad[node] = true // the document as a whole, also when only lines were moved
				}
			}
			return node, bad
		}
	}
	return nil, nil
}

func (m *mended) apply(fix mend) {
	if fix.replace {
		m.holes[place{int32(fix.line), int32(fix.col + 1)}] = true
		m.set(fix.line, string(m.src.row(fix.line)[:fix.col])+hole)
	} else {
		m.shift(fix.line, fix.move)
	}
	for ln := fix.line + 1; ln < m.to; ln++ {
		row := m.src.row(ln)
		switch {
		case isBlankRow(row):
		case spacesOf(row) <= fix.indent:
			return
		case fix.replace:
			m.set(ln, "")
		default:
			m.shift(ln, fix.move)
		}
	}
}

func (m *mended) set(ln int, line string) {
	m.src.lines[ln-1] = line
	delete(m.src.runes, ln)
}

func (m *mended) shift(ln, by int) {
	line := m.src.lines[ln-1]
	if by > 0 {
		m.set(ln, strings.Repeat(" ", by)+line)
	} else {
		m.set(ln, line[min(-by, len(line)):])
	}
	m.moved[ln] += by
}

// restore gives nodes the places that their text has in the author's file, and finds those that stand for mistakes.
func (m *mended) restore(n *yaml.Node, bad map[*yaml.Node]bool) {
	if n.Kind == yaml.ScalarNode && m.holes[place{int32(n.Line), int32(n.Column)}] {
		bad[n] = true
	}
	n.Column -= m.moved[n.Line]
	for _, c := range n.Content {
		m.restore(c, bad)
	}
}
