package specs

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// yamlLine splits what the YAML library says; it offers its line in no other form.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// locateSyntax turns the YAML library's complaint about lines [from, to) into a finding at the true place, and says how
// the text could be mended. The library often names the line where it gave up, or the one before; the scan looks for
// what a person did wrong.
func locateSyntax(src *sourceText, from, to int, err error) (Diagnostic, mend) {
	if errors.Is(err, errSecondDocument) {
		return Diagnostic{Pos: Pos{src.name, from, 1}, Code: "yaml-syntax", Width: 1, Message: "several documents stand here without a line of --- between them", Hint: "start every document with ---"}, mend{}
	}
	s := &syntaxScan{src: src}
	for ln := from; ln < to && s.found == nil; ln++ {
		s.line(ln)
	}
	if s.found == nil {
		s.end()
	}
	if s.found != nil {
		return *s.found, s.mend
	}
	m := yamlLine.FindStringSubmatch(err.Error())
	line := from
	if n, bad := strconv.Atoi(m[1]); bad == nil {
		line = from + n - 1
	}
	line = max(from, min(line, to-1))
	return Diagnostic{Pos: Pos{src.name, line, indentOf(src.row(line)) + 1}, Code: "yaml-syntax", Width: 1,
		Message: "this is not YAML, near here: " + m[2]}, mend{}
}

// syntaxScan reads YAML the way a careful person does: indentation, brackets, quotes, block texts. It only runs
// on text that is known to be broken, and stops at the first thing that explains it.
type syntaxScan struct {
	src   *sourceText
	ln    int // the line being read
	found *Diagnostic

	open  []opened // flow brackets not yet closed
	quote *opened  // the quote not yet closed

	block       bool // inside a block text
	blockIndent int  // indentation of the line that opened it

	indents []int // columns at which block collections are open
	ended   ending

	value mend // the value being read, in block context
	mend  mend // what would take the found mistake away
}

// ending says what the last line of block context came to.
type ending int

const (
	endsOpen   ending = iota // with a key or a dash: what belongs to it stands on the next lines
	endsPlain                // with a plain text, which may go on
	endsClosed               // with anything else
)

// startsEntry finds lines that begin a key or an item of a list, which no text that goes on looks like.
var startsEntry = regexp.MustCompile(`^(- +)?[\pL_][\pL\d_./-]*:( |$)`)

// opened is a bracket or quote and its place.
type opened struct {
	char      rune
	line, col int
}

func (s *syntaxScan) fail(line, col int, message, hint string) {
	if s.found == nil {
		s.found = &Diagnostic{Pos: Pos{s.src.name, line, col}, Code: "yaml-syntax", Message: message, Hint: hint, Width: 1}
		s.mend = s.value
	}
}

func (s *syntaxScan) line(ln int) {
	s.ln = ln
	row := s.src.row(ln)
	indent := spacesOf(row)
	if s.block {
		if isBlankRow(row) || indent > s.blockIndent {
			return
		}
		s.block = false
	}
	if isBlankRow(row) {
		return
	}
	if s.quote != nil {
		s.tokens(ln, row, 0)
		return
	}
	if row[indent] == '\t' {
		if after := indentOf(row); row[after] != '#' {
			s.found = &Diagnostic{Pos: Pos{s.src.name, ln, indent + 1}, Code: "tab-indent", Width: 1, Message: "a tab stands in the indentation", Hint: "indent with spaces"}
		}
		return
	}
	if row[indent] == '#' {
		return
	}
	if len(s.open) == 0 && !strings.HasPrefix(string(row), "---") {
		if top := s.top(); indent > top && s.ended != endsOpen {
			if s.ended == endsPlain && !startsEntry.MatchString(string(row[indent:])) {
				return // the text goes on
			}
			s.fail(ln, indent+1, "this line is indented deeper than the one it belongs to", fmt.Sprintf("align it with the lines above: %d spaces", max(0, top)))
			s.mend = mend{line: ln, indent: indent, move: max(0, top) - indent}
			return
		}
		s.indentation(ln, indent)
		if s.found != nil {
			return
		}
	}
	s.tokens(ln, row, indent)
	if indent == 0 && isDocumentStart(string(row)) {
		s.ended = endsOpen
	}
}

// top is the innermost column at which a block collection is open, -1 for none.
func (s *syntaxScan) top() int {
	if len(s.indents) == 0 {
		return -1
	}
	return s.indents[len(s.indents)-1]
}

// indentation checks that a line stands under one that is open.
func (s *syntaxScan) indentation(ln, indent int) {
	for s.top() > indent {
		deeper := s.top()
		s.indents = s.indents[:len(s.indents)-1]
		if s.top() < indent {
			s.fail(ln, indent+1, "this line stands under none of the lines above it", "align it with the line it belongs to")
			s.mend = mend{line: ln, indent: indent, move: deeper - indent}
			if up := indent - s.top(); s.top() >= 0 && (up < s.mend.move || up == s.mend.move && s.src.row(ln)[indent] == '-') {
				s.mend.move = -up
			}
			return
		}
	}
	if s.top() < indent {
		s.indents = append(s.indents, indent)
	}
}

// tokens walks one line from a column.
func (s *syntaxScan) tokens(ln int, row []rune, at int) {
	start := true    // a value or key may begin here
	keyAt := at      // where the entry begins whose value is read
	owner := at - 1  // what is indented deeper belongs to the value
	keySeen := 0     // "key: " seen so far in block context on this line
	plainAt := -1    // where a plain text began
	lineIndent := at // moves right behind "- "
	defer func() {
		switch {
		case start:
			s.ended = endsOpen
		case plainAt >= 0:
			s.ended = endsPlain
		default:
			s.ended = endsClosed
		}
	}()
	for i := at; i < len(row); i++ {
		c := row[i]
		if s.quote != nil {
			i = s.insideQuote(row, i)
			start = false
			continue
		}
		blankNext := i+1 >= len(row) || isBlank(row[i+1])
		if start && len(s.open) == 0 && !isBlank(c) && !((c == '-' || c == '?') && blankNext) && keySeen < 2 {
			s.value = mend{line: ln, col: i, indent: owner, replace: keySeen > 0 || owner >= at}
			if keySeen == 0 {
				keyAt = i
			}
		}
		switch {
		case isBlank(c):
			continue
		case c == '#' && (i == 0 || isBlank(row[i-1])):
			return
		case start && (c == '"' || c == '\''):
			s.quote = &opened{c, ln, i + 1}
			plainAt = -1
		case (start || len(s.open) > 0 && plainAt < 0) && (c == '[' || c == '{'):
			s.open = append(s.open, opened{c, ln, i + 1})
			start, plainAt = true, -1
			continue
		case len(s.open) > 0 && (c == ']' || c == '}'):
			s.close(ln, i, c)
			if s.found != nil {
				return
			}
			start, plainAt = false, -1
			continue
		case len(s.open) > 0 && c == ',':
			start, plainAt = true, -1
			continue
		case len(s.open) == 0 && start && (c == '-' || c == '?') && blankNext:
			lineIndent = i + 2
			for lineIndent < len(row) && row[lineIndent] == ' ' {
				lineIndent++
			}
			owner = i
			if lineIndent < len(row) && row[lineIndent] != '#' && c == '-' {
				s.indents = append(s.indents, lineIndent)
			}
			continue
		case c == ':' && (blankNext || len(s.open) > 0 && !start && i > 0 && (row[i-1] == '"' || row[i-1] == '\'')):
			if len(s.open) == 0 {
				if keySeen++; keySeen > 1 && plainAt >= 0 {
					s.fail(ln, i+1, "a second \": \" in one line makes this a mapping inside a text", "quote the text: it holds a colon followed by a space")
					return
				}
			}
			start, plainAt = true, -1
			if len(s.open) == 0 {
				owner = keyAt
			}
			continue
		case start && len(s.open) == 0 && (c == '|' || c == '>') && isBlockHeader(row[i:]):
			s.block = true
			s.blockIndent = min(indentBefore(row, lineIndent), lineIndent)
			return
		case start && (c == '@' || c == '`'):
			s.fail(ln, i+1, fmt.Sprintf("a plain text cannot start with %q", c), "quote the text")
			return
		case start && c == '%' && len(s.open) == 0:
			s.fail(ln, i+1, "a plain text cannot start with '%'", "quote the text")
			return
		case start && c == '*' && (blankNext || len(s.open) > 0 && i+1 < len(row) && strings.ContainsRune(",]}", row[i+1])):
			s.fail(ln, i+1, "a plain * is an alias to YAML", `quote it: "*"`)
			return
		case start && (c == '*' || c == '&') && !blankNext:
			s.fail(ln, i+1, fmt.Sprintf("a plain text cannot start with %q: to YAML that is an alias or an anchor", c), "quote the text")
			return
		case start && c == '!':
			s.fail(ln, i+1, "a plain text cannot start with '!': to YAML that is a tag", "quote the text")
			return
		case start && (c == ']' || c == '}'):
			s.fail(ln, i+1, fmt.Sprintf("this %c closes nothing", c), "")
			return
		default:
			if !start && plainAt < 0 && i > 0 {
				prev := lastNonBlank(row[:i])
				switch prev {
				case '"', '\'':
					s.fail(ln, i+1, "something follows the closing quote", "inside a text write \\\" between double quotes, '' between single ones")
					return
				case ']', '}':
					s.fail(ln, i+1, fmt.Sprintf("something follows the closing %c", prev), "")
					return
				}
			}
			if plainAt < 0 {
				plainAt = i
			}
		}
		start = false
	}
}

// indentBefore is the column of the entry a block text belongs to.
func indentBefore(row []rune, lineIndent int) int {
	indent := spacesOf(row)
	for indent < len(row) && indent < lineIndent && row[indent] == '-' {
		next := indent + 1
		for next < len(row) && row[next] == ' ' {
			next++
		}
		if next > lineIndent {
			break
		}
		indent = next
	}
	return indent
}

func lastNonBlank(row []rune) rune {
	for i := len(row) - 1; i >= 0; i-- {
		if !isBlank(row[i]) {
			return row[i]
		}
	}
	return 0
}

// insideQuote goes on inside a quoted text and gives the index of the last character it took.
func (s *syntaxScan) insideQuote(row []rune, i int) int {
	for ; i < len(row); i++ {
		switch {
		case row[i] == '\\' && s.quote.char == '"':
			if i+1 < len(row) {
				if _, width := unescape(row[i+1:]); width == 0 {
					s.fail(s.ln, i+1, "unknown escape in a double-quoted text", `write \\ for a backslash, or put the text in single quotes`)
					return len(row)
				}
			}
			i++
		case row[i] == s.quote.char && s.quote.char == '\'' && i+1 < len(row) && row[i+1] == '\'':
			i++
		case row[i] == s.quote.char:
			s.quote = nil
			return i
		}
	}
	return i
}

func (s *syntaxScan) close(ln, i int, c rune) {
	last := s.open[len(s.open)-1]
	want := map[rune]rune{'[': ']', '{': '}'}[last.char]
	if c != want {
		s.fail(last.line, last.col, fmt.Sprintf("this %c is never closed: a %c comes first, on line %d", last.char, c, ln), fmt.Sprintf("add %c", want))
		return
	}
	s.open = s.open[:len(s.open)-1]
}

func (s *syntaxScan) end() {
	switch {
	case s.quote != nil:
		s.fail(s.quote.line, s.quote.col, "this quote is never closed", fmt.Sprintf("add %c", s.quote.char))
	case len(s.open) > 0:
		o := s.open[len(s.open)-1]
		s.fail(o.line, o.col, fmt.Sprintf("this %c is never closed", o.char), fmt.Sprintf("add %c", map[rune]rune{'[': ']', '{': '}'}[o.char]))
	}
}

// isBlockHeader: | or >, then at most an indentation digit and a chomping sign, then nothing but a comment.
func isBlockHeader(rest []rune) bool {
	i := 1
	for i < len(rest) && i < 3 && (rest[i] == '+' || rest[i] == '-' || rest[i] >= '1' && rest[i] <= '9') {
		i++
	}
	for i < len(rest) && isBlank(rest[i]) {
		i++
	}
	return i == len(rest) || rest[i] == '#'
}
