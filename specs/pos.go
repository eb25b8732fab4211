package specs

import "fmt"

// Pos is a place in an author's file. Line and Col count from 1; Col counts characters (runes), as
// editors do. The zero Pos means "made by the program, not read from a file".
type Pos struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Col  int    `json:"col,omitempty"`
}

// String gives file:line:col, the form that terminals and editors make clickable.
func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// IsZero says that the place is unknown.
func (p Pos) IsZero() bool { return p == Pos{} }

// Before orders places by file, line, column.
func (p Pos) Before(q Pos) bool {
	if p.File != q.File {
		return p.File < q.File
	}
	if p.Line != q.Line {
		return p.Line < q.Line
	}
	return p.Col < q.Col
}

// Text is a scalar that remembers where each of its characters stands in the file, so that an error
// inside a CEL expression points at the author's own line whatever the scalar's style is.
type Text struct {
	Value string
	Pos   Pos
	// places[i] is the place of rune i of Value; nil when the source could not be mapped exactly,
	// in which case At answers with Pos.
	places []place
}

// At gives the place of rune number offset of the decoded value. An offset just behind the end answers with
// the column after the last character.
func (t Text) At(offset int) Pos {
	if offset < 0 || len(t.places) == 0 {
		return t.Pos
	}
	after := 0
	if offset >= len(t.places) {
		offset, after = len(t.places)-1, 1
	}
	p := t.places[offset]
	return Pos{File: t.Pos.File, Line: int(p.line), Col: int(p.col) + after}
}

// Exact says whether At knows the place of every character, or only where the text starts.
func (t Text) Exact() bool { return len(t.places) > 0 }

func (t Text) String() string { return t.Value }

// IsZero says that the author wrote nothing.
func (t Text) IsZero() bool { return t.Value == "" && t.Pos.IsZero() }

// TextOf makes a Text that was not read from a file.
func TextOf(s string) Text { return Text{Value: s} }

// IntValue is a whole number or a CEL expression that yields one (budget values).
type IntValue struct {
	Set   bool  // the author wrote something
	Const int64 // meaningful when Expr is zero
	Expr  Text  // CEL of type int; zero when constant
	Pos   Pos
}

// DurationValue is a duration ("10s", "15m", Go syntax) or a CEL expression of type duration.
type DurationValue struct {
	Set   bool
	Const int64 // nanoseconds
	Expr  Text
	Pos   Pos
}
