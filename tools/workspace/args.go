package workspace

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/callgate/callgate/tools"
)

// args reads the arguments by their exact names. They were validated against the tool's schema before; a bundle may
// have replaced that schema, so the limits that this family relies on are checked here again.
type args struct {
	fields map[string]json.RawMessage
	err    error // the first thing that was wrong
	asked  []string
}

func parseArgs(raw json.RawMessage) args {
	a := args{}
	if len(raw) == 0 {
		return a
	}
	if err := json.Unmarshal(raw, &a.fields); err != nil {
		a.err = refuse(tools.CodeInvalidArguments, "The arguments must be a JSON object.")
	}
	return a
}

func (a *args) fail(format string, rest ...any) {
	if a.err == nil {
		a.err = refuse(tools.CodeInvalidArguments, format, rest...)
	}
}

func (a *args) take(name string) (json.RawMessage, bool) {
	a.asked = append(a.asked, name)
	raw, ok := a.fields[name]
	return raw, ok
}

// done reports the first mistake, an argument nobody asked for included.
func (a *args) done() error {
	for _, name := range slices.Sorted(maps.Keys(a.fields)) {
		if !slices.Contains(a.asked, name) {
			a.fail("There is no argument %q here.", name)
		}
	}
	return a.err
}

// text reads a text; def stands for an absent one.
func (a *args) text(name, def string) string {
	raw, ok := a.take(name)
	if !ok {
		return def
	}
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		a.fail("%s must be a text.", name)
	}
	return s
}

// must says that an argument cannot be left out.
func (a *args) must(name string) {
	if _, ok := a.fields[name]; !ok {
		a.fail("The argument %s is missing.", name)
	}
}

// need reads a text that must be there; it may be empty.
func (a *args) need(name string) string {
	a.must(name)
	return a.text(name, "")
}

// short reads an optional text of at most most characters.
func (a *args) short(name string, most int) string {
	s := a.text(name, "")
	if n := utf8.RuneCountInString(s); n > most {
		a.fail("%s has %d characters; at most %d are possible.", name, n, most)
	}
	return s
}

// whole reads a whole number within bounds; given says that it was there.
func (a *args) whole(name string, def, low, high int64) (n int64, given bool) {
	raw, ok := a.take(name)
	if !ok {
		return def, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < low || n > high {
		a.fail("%s must be a whole number from %d to %d.", name, low, high)
		return def, true
	}
	return n, true
}

// flag reads true or false, absent meaning false.
func (a *args) flag(name string) bool {
	raw, ok := a.take(name)
	if !ok {
		return false
	}
	switch string(raw) {
	case "true":
		return true
	case "false":
		return false
	}
	a.fail("%s must be true or false.", name)
	return false
}

// oneOf reads a word from a list; the first is the default.
func (a *args) oneOf(name string, words ...string) string {
	s := a.text(name, words[0])
	if !slices.Contains(words, s) {
		a.fail("%s must be one of %q.", name, words)
	}
	return s
}
