package celpolicy

import (
	"encoding/json"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// kinds is a set of JSON types. A whole number is of both numeric kinds' first one, a fraction only of the second.
type kinds uint8

const (
	kindString kinds = 1 << iota
	kindWhole
	kindFraction
	kindBool
	kindArray
	kindObject
	kindNull

	kindNumber = kindWhole | kindFraction
	kindAny    = kindString | kindNumber | kindBool | kindArray | kindObject | kindNull
)

var kindsOf = map[string]kinds{"string": kindString, "integer": kindWhole, "number": kindNumber, "boolean": kindBool,
	"array": kindArray, "object": kindObject, "null": kindNull}

// words lists the types as JSON Schema names them.
func (k kinds) words() []string {
	var out []string
	for _, name := range []string{"string", "number", "integer", "boolean", "array", "object", "null"} {
		if set := kindsOf[name]; k&set == set && (name != "integer" || k&kindFraction == 0) {
			out = append(out, name)
		}
	}
	return out
}

// limits is what a schema says about a value beyond its type. It never leaves out a value that the schema takes: what
// cannot be said exactly is said wider.
type limits struct {
	kinds    kinds
	values   []any // enum and const; nil: any
	low      *bound
	high     *bound
	minSize  int64 // of a text in characters, of a list in elements
	maxSize  int64 // -1: no bound
	patterns []*regexp.Regexp
	format   string
}

// bound is an end of a range of numbers.
type bound struct {
	at   *big.Rat
	open bool // the end itself is outside
}

func anything() limits { return limits{kinds: kindAny, maxSize: -1} }

// both gives limits that hold where both hold.
func (l limits) both(m limits) limits {
	out := limits{kinds: l.kinds & m.kinds, low: tighterEnd(l.low, m.low, 1), high: tighterEnd(l.high, m.high, -1),
		minSize: max(l.minSize, m.minSize), maxSize: l.maxSize, format: l.format, patterns: append(slices.Clip(l.patterns), m.patterns...)}
	if m.maxSize >= 0 && (out.maxSize < 0 || m.maxSize < out.maxSize) {
		out.maxSize = m.maxSize
	}
	if out.format == "" {
		out.format = m.format
	}
	switch {
	case l.values == nil:
		out.values = m.values
	case m.values == nil:
		out.values = l.values
	default:
		out.values = []any{}
		for _, v := range l.values {
			if slices.ContainsFunc(m.values, func(w any) bool { return sameJSON(v, w) }) {
				out.values = append(out.values, v)
			}
		}
	}
	return out
}

// either gives limits that hold where one of the two holds.
func (l limits) either(m limits) limits {
	out := anything()
	out.kinds = l.kinds | m.kinds
	if a, b := l.listed(), m.listed(); a != nil && b != nil {
		out.values = slices.Clone(a)
		for _, v := range b {
			if !slices.ContainsFunc(out.values, func(w any) bool { return sameJSON(v, w) }) {
				out.values = append(out.values, v)
			}
		}
	}
	switch {
	case l.kinds&kindNumber == 0:
		out.low, out.high = m.low, m.high
	case m.kinds&kindNumber == 0:
		out.low, out.high = l.low, l.high
	default:
		out.low, out.high = widerEnd(l.low, m.low, 1), widerEnd(l.high, m.high, -1)
	}
	const sized = kindString | kindArray
	switch {
	case l.kinds&sized == 0:
		out.minSize, out.maxSize, out.patterns, out.format = m.minSize, m.maxSize, m.patterns, m.format
	case m.kinds&sized == 0:
		out.minSize, out.maxSize, out.patterns, out.format = l.minSize, l.maxSize, l.patterns, l.format
	default:
		out.minSize = min(l.minSize, m.minSize)
		if l.maxSize >= 0 && m.maxSize >= 0 {
			out.maxSize = max(l.maxSize, m.maxSize)
		}
		if l.format == m.format {
			out.format = l.format
		}
	}
	return out
}

// listed gives the values where they can be counted: null and the two bools can without an enum.
func (l limits) listed() []any {
	switch {
	case l.values != nil:
		return l.values
	case l.kinds == 0:
		return []any{}
	case l.kinds&^(kindNull|kindBool) != 0:
		return nil
	}
	out := []any{}
	if l.kinds&kindNull != 0 {
		out = append(out, nil)
	}
	if l.kinds&kindBool != 0 {
		out = append(out, false, true)
	}
	return out
}

// tighterEnd picks the bound that lets less through; sign is 1 for a lower end and -1 for an upper one.
func tighterEnd(a, b *bound, sign int) *bound {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	switch c := a.at.Cmp(b.at) * sign; {
	case c > 0 || c == 0 && a.open:
		return a
	}
	return b
}

func widerEnd(a, b *bound, sign int) *bound {
	if a == nil || b == nil {
		return nil
	}
	if tighterEnd(a, b, sign) == a {
		return b
	}
	return a
}

// takes says whether a scalar may be a value: false is certain, true is not.
func (l *limits) takes(v any) bool {
	if kindOf(v)&l.kinds == 0 {
		return false
	}
	if l.values != nil && !slices.ContainsFunc(l.values, func(w any) bool { return sameJSON(v, w) }) {
		return false
	}
	if n := rational(v); n != nil && (l.kinds&kindFraction == 0 && !n.IsInt() || l.below(n) || l.above(n)) {
		return false
	}
	if s, ok := v.(string); ok {
		size := int64(utf8.RuneCountInString(s))
		if size < l.minSize || l.maxSize >= 0 && size > l.maxSize {
			return false
		}
		return !slices.ContainsFunc(l.patterns, func(re *regexp.Regexp) bool { return !re.MatchString(s) })
	}
	return true
}

// below says that a number lies under the range, above that it lies over it.
func (l *limits) below(n *big.Rat) bool {
	if l.low == nil {
		return false
	}
	c := n.Cmp(l.low.at)
	return c < 0 || c == 0 && l.low.open
}

func (l *limits) above(n *big.Rat) bool {
	if l.high == nil {
		return false
	}
	c := n.Cmp(l.high.at)
	return c > 0 || c == 0 && l.high.open
}

func kindOf(v any) kinds {
	switch v := v.(type) {
	case string:
		return kindString
	case int64:
		return kindWhole
	case bool:
		return kindBool
	case nil:
		return kindNull
	case []any:
		return kindArray
	case map[string]any:
		return kindObject
	default:
		if n := rational(v); n != nil && n.IsInt() {
			return kindWhole
		}
		return kindFraction
	}
}

// maxRationalText bounds the text of a number that is compared exactly. A huge exponent would make a million digits of a
// few characters, so it must also be a number that a double comes near to.
const maxRationalText = 64

// rational reads a number exactly; nil for anything else.
func rational(v any) *big.Rat {
	switch v := v.(type) {
	case int64:
		return new(big.Rat).SetInt64(v)
	case float64:
		return new(big.Rat).SetFloat64(v)
	case json.Number:
		if near, err := v.Float64(); len(v) > maxRationalText || err != nil || near == 0 && strings.ContainsAny(string(v), "eE") {
			return nil
		}
		if n, ok := new(big.Rat).SetString(string(v)); ok {
			return n
		}
	}
	return nil
}

// sameJSON compares two values as JSON does: 1 and 1.0 are one number.
func sameJSON(a, b any) bool {
	if x, y := rational(a), rational(b); x != nil && y != nil {
		return x.Cmp(y) == 0
	}
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && a == b
	case string:
		b, ok := b.(string)
		return ok && a == b
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	case nil:
		return b == nil
	}
	x, y, ok := twoOf[[]any](a, b)
	if ok {
		return slices.EqualFunc(x, y, sameJSON)
	}
	m, n, ok := twoOf[map[string]any](a, b)
	return ok && maps.EqualFunc(m, n, sameJSON)
}

func twoOf[T any](a, b any) (x, y T, ok bool) {
	x, isX := a.(T)
	y, isY := b.(T)
	return x, y, isX && isY
}
