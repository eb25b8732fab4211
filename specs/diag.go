package specs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Severity tells an error, which stops the load, from a warning, which does not.
type Severity string

// Severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Diagnostic is one finding about an author's file.
type Diagnostic struct {
	Pos      Pos      `json:"pos"`
	Severity Severity `json:"severity"`
	// Code is a stable kebab-case name of the finding's kind, "unknown-key".
	Code    string `json:"code"`
	Message string `json:"message"` // one line, lower case, no full stop
	Hint    string `json:"hint,omitempty"`
	Source  string `json:"source,omitempty"` // the author's line, without its line end
	// SourceCol is where Pos.Col stands in Source when a very long line was cut; 0: at Pos.Col.
	SourceCol int `json:"sourceCol,omitempty"`
	// Width is how many characters the caret underlines, from Pos.Col; at least 1.
	Width int `json:"width,omitempty"`
}

// Diagnostics is every finding of one load, in file order.
type Diagnostics []Diagnostic

// Sort puts findings in file order (file, line, column, then text), dropping exact repeats.
func (ds *Diagnostics) Sort() {
	slices.SortStableFunc(*ds, func(a, b Diagnostic) int {
		switch {
		case a.Pos.Before(b.Pos):
			return -1
		case b.Pos.Before(a.Pos):
			return 1
		}
		return strings.Compare(a.Code+a.Message, b.Code+b.Message)
	})
	*ds = slices.CompactFunc(*ds, func(a, b Diagnostic) bool { return a == b })
}

// Errors gives the findings that stop a load.
func (ds Diagnostics) Errors() Diagnostics { return ds.only(Error) }

// Warnings gives the findings that do not.
func (ds Diagnostics) Warnings() Diagnostics { return ds.only(Warning) }

func (ds Diagnostics) only(s Severity) Diagnostics {
	var out Diagnostics
	for _, d := range ds {
		if d.Severity == s {
			out = append(out, d)
		}
	}
	return out
}

// Err is nil when nothing stops the load, else an error that unwraps to Diagnostics by errors.As.
func (ds Diagnostics) Err() error {
	if len(ds.Errors()) == 0 {
		return nil
	}
	return &InvalidError{Diagnostics: ds}
}

// InvalidError is what a load returns when the author's files cannot be used.
type InvalidError struct {
	Diagnostics Diagnostics
	cause       error
}

// Unwrap gives the error of the file system behind an unreadable bundle, if that was it.
func (e *InvalidError) Unwrap() error { return e.cause }

// Error is the whole text form; callers that print for people use Diagnostics.Text.
func (e *InvalidError) Error() string { return strings.TrimRight(e.Diagnostics.Text(), "\n") }

// AsDiagnostics gives the findings behind an error, if it has any.
func AsDiagnostics(err error) (Diagnostics, bool) {
	var inv *InvalidError
	if errors.As(err, &inv) {
		return inv.Diagnostics, true
	}
	return nil, false
}

// Text renders every finding: `file:line:col: message`, the source line, a caret, a hint.
func (ds Diagnostics) Text() string {
	var b strings.Builder
	for _, d := range ds {
		b.WriteString(d.Text())
	}
	return b.String()
}

// Text renders one finding.
func (d Diagnostic) Text() string {
	var b strings.Builder
	if !d.Pos.IsZero() {
		b.WriteString(seen(d.Pos.String()) + ": ")
	}
	if d.Severity == Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(seen(d.Message) + "\n")
	if d.Source != "" && d.Pos.Col > 0 {
		col := d.Pos.Col
		if d.SourceCol > 0 {
			col = d.SourceCol
		}
		line := []rune(strings.ReplaceAll(d.Source, "\t", " "))
		from := min(max(0, col-1), len(line))
		to := min(from+max(1, d.Width), len(line))
		before, at := utf8.RuneCountInString(seen(string(line[:from]))), utf8.RuneCountInString(seen(string(line[from:to])))
		b.WriteString("  " + seen(string(line)) + "\n")
		b.WriteString("  " + strings.Repeat(" ", before+max(0, col-1-from)) + strings.Repeat("^", at+max(1, d.Width)-(to-from)) + "\n")
	}
	if d.Hint != "" {
		b.WriteString("  hint: " + seen(d.Hint) + "\n")
	}
	return b.String()
}

// seen writes what would order or hide the text around it, or speak to a terminal, as an escape: a finding is read where the
// author's file must not have its way.
func seen(s string) string {
	hidden := func(r rune) bool {
		return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
	}
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, "\\u{%x}", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
