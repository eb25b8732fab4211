package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"
)

// printJSON writes one value to stdout.
func (a *app) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := a.Stdout.Write(b.Bytes())
	return err
}

// textWidth counts terminal cells: escape sequences take none, wide characters two.
func textWidth(s string) int {
	n, escape := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		case unicode.Is(unicode.Mn, r):
		default:
			n++
			if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
				n++
			}
		}
	}
	return n
}

// column breaks text at blanks for a column that begins behind `at` cells, so that a narrow terminal does not break words
// and alignment. Where nobody knows the width, or too little is left of it, text stays as it is.
func (a *app) column(at int, text string) string {
	const least = 20
	if !a.TerminalOut || a.Columns == nil {
		return text
	}
	room := a.Columns() - at
	if room < least {
		return text
	}
	var b strings.Builder
	used := 0
	for i, word := range strings.Split(text, " ") {
		n := textWidth(word)
		switch {
		case i == 0:
		case used+1+n > room:
			b.WriteString("\n" + strings.Repeat(" ", at))
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}

// Colours carry no meaning of their own: every coloured word is also a word.
func (a *app) paint(code, s string) string {
	if !a.colour() || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (a *app) good(s string) string { return a.paint("32", s) }
func (a *app) bad(s string) string  { return a.paint("31", s) }
func (a *app) wait(s string) string { return a.paint("33", s) }
func (a *app) dim(s string) string  { return a.paint("2", s) }
func (a *app) bold(s string) string { return a.paint("1", s) }

// plain makes text of unknown origin safe for a terminal and for the one line that it stands on: what would begin another
// line, move the cursor, reorder or hide text is written as an escape. A name that a model made up cannot become a line of
// the story.
func plain(s string) string { return escaped(s, false) }

// block is plain for text that has lines of its own, where nothing of ours follows on them.
func block(s string) string { return escaped(s, true) }

func escaped(s string, lines bool) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case lines && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case r == unicode.ReplacementChar, !unicode.IsPrint(r) && r != ' ', unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs):
			fmt.Fprintf(&b, "\\u{%x}", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// oneLine is plain text on one line, cut to at most n characters.
func oneLine(s string, n int) string {
	s = plain(strings.Join(strings.Fields(s), " "))
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func byteCount(n int64) string {
	switch {
	case n < 1<<10:
		return plural(int(n), "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// ago says how long ago, or in how long, in the one unit that matters.
func ago(d time.Duration) string {
	future := d < 0
	if future {
		d = -d
	}
	s := "now"
	switch {
	case d >= 48*time.Hour:
		s = fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= time.Hour:
		s = fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		s = fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d >= time.Second:
		s = fmt.Sprintf("%ds", int(d.Seconds()))
	default:
		return s
	}
	if future {
		return "in " + s
	}
	return s + " ago"
}

// short is the beginning of an id or digest that a person can still copy.
func short(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
