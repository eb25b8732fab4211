package specs

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// This file's functions are the project's only JSON readers for bytes that a policy, a person, a digest or a
// tool reads: exact case, no duplicate keys, valid UTF-8, bounded depth, size and digits.

// JSONLimits bounds what is read. A zero field means the default.
type JSONLimits struct {
	Bytes    int // size of the whole text; default 16 MiB
	Depth    int // nesting of arrays and objects; default 128
	Digits   int // characters of one number; default 128
	Exponent int // absolute value of a decimal exponent; default 400
}

func (l JSONLimits) filled() JSONLimits {
	fill(&l.Bytes, 16<<20)
	fill(&l.Depth, 128)
	fill(&l.Digits, 128)
	fill(&l.Exponent, 400)
	return l
}

// JSONError says what is wrong with a JSON text and where.
type JSONError struct {
	Offset  int    // bytes from the start
	Pointer string // the value it is about, as a JSON pointer
	Msg     string
}

func (e *JSONError) Error() string {
	at := ""
	if e.Pointer != "" {
		at = " at " + e.Pointer
	}
	return fmt.Sprintf("%s%s (byte %d)", e.Msg, at, e.Offset)
}

// CheckJSON says whether raw is one JSON value within the limits. The error is a *JSONError.
func CheckJSON(raw []byte, lim JSONLimits) error {
	p := jsonParser{raw: raw, lim: lim.filled()}
	_, err := p.document(false)
	return err
}

// DecodeJSON reads one JSON value: objects as map[string]any, arrays as []any, numbers that are whole and fit
// as int64, all other numbers as json.Number, so that nothing is ever rounded. The error is a *JSONError.
func DecodeJSON(raw []byte, lim JSONLimits) (any, error) {
	p := jsonParser{raw: raw, lim: lim.filled()}
	return p.document(true)
}

type jsonParser struct {
	raw   []byte
	at    int
	depth int
	lim   JSONLimits
	path  []string
}

func (p *jsonParser) fail(format string, args ...any) *JSONError {
	return p.failAt(p.at, format, args...)
}

func (p *jsonParser) failAt(offset int, format string, args ...any) *JSONError {
	var pointer strings.Builder
	for _, part := range p.path {
		pointer.WriteString("/" + pointerEscape(part))
	}
	return &JSONError{Offset: offset, Pointer: pointer.String(), Msg: fmt.Sprintf(format, args...)}
}

func (p *jsonParser) document(build bool) (any, error) {
	if len(p.raw) > p.lim.Bytes {
		return nil, p.failAt(p.lim.Bytes, "the JSON text is larger than %d bytes", p.lim.Bytes)
	}
	p.space()
	v, err := p.value(build)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.at < len(p.raw) {
		return nil, p.fail("something follows the JSON value")
	}
	return v, nil
}

func (p *jsonParser) space() {
	for p.at < len(p.raw) {
		switch p.raw[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// value returns a nil *JSONError as a nil error of the concrete type: callers compare the pointer.
func (p *jsonParser) value(build bool) (any, *JSONError) {
	if p.at >= len(p.raw) {
		return nil, p.fail("the JSON text ends too early")
	}
	switch c := p.raw[p.at]; {
	case c == '{':
		return p.object(build)
	case c == '[':
		return p.array(build)
	case c == '"':
		return p.text(build)
	case c == '-' || c >= '0' && c <= '9':
		return p.number(build)
	case c == 't':
		return true, p.literal("true")
	case c == 'f':
		return false, p.literal("false")
	case c == 'n':
		return nil, p.literal("null")
	default:
		return nil, p.fail("expected a JSON value, got %s", shownByte(p.raw[p.at:]))
	}
}

func shownByte(rest []byte) string {
	r, size := utf8.DecodeRune(rest)
	if r == utf8.RuneError && size <= 1 {
		return fmt.Sprintf("byte 0x%02x", rest[0])
	}
	return strconv.QuoteRune(r)
}

func (p *jsonParser) literal(word string) *JSONError {
	if len(p.raw)-p.at < len(word) || string(p.raw[p.at:p.at+len(word)]) != word {
		return p.fail("expected a JSON value, got %s", shownByte(p.raw[p.at:]))
	}
	p.at += len(word)
	return nil
}

func (p *jsonParser) enter() *JSONError {
	if p.depth++; p.depth > p.lim.Depth {
		return p.fail("the JSON text nests deeper than %d levels", p.lim.Depth)
	}
	return nil
}

func (p *jsonParser) array(build bool) (any, *JSONError) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	var out []any
	if build {
		out = []any{}
	}
	p.at++
	p.space()
	if p.at < len(p.raw) && p.raw[p.at] == ']' {
		p.at++
		p.depth--
		return out, nil
	}
	for i := 0; ; i++ {
		p.path = append(p.path, strconv.Itoa(i))
		p.space()
		v, err := p.value(build)
		if err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
		if build {
			out = append(out, v)
		}
		p.space()
		if p.at >= len(p.raw) {
			return nil, p.fail("the JSON text ends inside an array")
		}
		switch p.raw[p.at] {
		case ',':
			p.at++
		case ']':
			p.at++
			p.depth--
			return out, nil
		default:
			return nil, p.fail("expected ',' or ']', got %s", shownByte(p.raw[p.at:]))
		}
	}
}

func (p *jsonParser) object(build bool) (any, *JSONError) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	var out map[string]any
	if build {
		out = map[string]any{}
	}
	var seen map[string]bool
	p.at++
	p.space()
	if p.at < len(p.raw) && p.raw[p.at] == '}' {
		p.at++
		p.depth--
		return out, nil
	}
	for {
		p.space()
		if p.at >= len(p.raw) || p.raw[p.at] != '"' {
			if p.at >= len(p.raw) {
				return nil, p.fail("the JSON text ends inside an object")
			}
			return nil, p.fail("expected a quoted key, got %s", shownByte(p.raw[p.at:]))
		}
		start := p.at
		k, err := p.text(true)
		if err != nil {
			return nil, err
		}
		name := k.(string)
		if seen[name] {
			return nil, p.failAt(start, "the key %q is there twice", name)
		}
		if seen == nil {
			seen = map[string]bool{}
		}
		seen[name] = true
		p.space()
		if p.at >= len(p.raw) || p.raw[p.at] != ':' {
			return nil, p.fail("expected ':' after the key %q", name)
		}
		p.at++
		p.space()
		p.path = append(p.path, name)
		v, err := p.value(build)
		if err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
		if build {
			out[name] = v
		}
		p.space()
		if p.at >= len(p.raw) {
			return nil, p.fail("the JSON text ends inside an object")
		}
		switch p.raw[p.at] {
		case ',':
			p.at++
		case '}':
			p.at++
			p.depth--
			return out, nil
		default:
			return nil, p.fail("expected ',' or '}', got %s", shownByte(p.raw[p.at:]))
		}
	}
}

func (p *jsonParser) text(build bool) (any, *JSONError) {
	start := p.at
	p.at++
	plain := true
	for {
		if p.at >= len(p.raw) {
			return nil, p.failAt(start, "this text is never closed")
		}
		c := p.raw[p.at]
		switch {
		case c == '"':
			p.at++
			if !build {
				return nil, nil
			}
			if plain {
				return string(p.raw[start+1 : p.at-1]), nil
			}
			return unescapeJSON(p.raw[start+1 : p.at-1]), nil
		case c == '\\':
			plain = false
			if err := p.escape(); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, p.fail("a control character stands unescaped in a text")
		case c < utf8.RuneSelf:
			p.at++
		default:
			r, size := utf8.DecodeRune(p.raw[p.at:])
			if r == utf8.RuneError && size <= 1 {
				return nil, p.fail("this is not valid UTF-8")
			}
			p.at += size
		}
	}
}

// escape passes one escape; both halves of a surrogate pair count as one.
func (p *jsonParser) escape() *JSONError {
	start := p.at
	if p.at+1 >= len(p.raw) {
		return p.fail("the JSON text ends inside an escape")
	}
	switch p.raw[p.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		p.at += 2
		return nil
	case 'u':
		r, ok := hex4(p.raw, p.at+2)
		if !ok {
			return p.fail("\\u needs four hex digits")
		}
		p.at += 6
		if r >= 0xdc00 && r < 0xe000 {
			return p.failAt(start, "half of a surrogate pair stands alone")
		}
		if r >= 0xd800 && r < 0xdc00 {
			low, ok := uint32(0), false
			if p.at+1 < len(p.raw) && p.raw[p.at] == '\\' && p.raw[p.at+1] == 'u' {
				low, ok = hex4(p.raw, p.at+2)
			}
			if !ok || low < 0xdc00 || low >= 0xe000 {
				return p.failAt(start, "half of a surrogate pair stands alone")
			}
			p.at += 6
		}
		return nil
	}
	return p.fail("unknown escape")
}

func hex4(b []byte, at int) (uint32, bool) {
	if at+4 > len(b) {
		return 0, false
	}
	var v uint32
	for _, c := range b[at : at+4] {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint32(c-'a'+10)
		case c >= 'A' && c <= 'F':
			v = v<<4 | uint32(c-'A'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// unescapeJSON decodes a text that escape has already approved.
func unescapeJSON(b []byte) string {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			out = append(out, b[i])
			i++
			continue
		}
		c := b[i+1]
		i += 2
		switch c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(b, i)
			i += 4
			if r >= 0xd800 && r < 0xdc00 {
				low, _ := hex4(b, i+2)
				i += 6
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
			}
			out = utf8.AppendRune(out, rune(r))
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

func (p *jsonParser) number(build bool) (any, *JSONError) {
	start := p.at
	if p.raw[p.at] == '-' {
		p.at++
	}
	digits := func() int {
		from := p.at
		for p.at < len(p.raw) && p.raw[p.at] >= '0' && p.raw[p.at] <= '9' {
			p.at++
		}
		return p.at - from
	}
	wholeAt := p.at
	n := digits()
	if n == 0 {
		return nil, p.failAt(start, "this is not a JSON number")
	}
	if n > 1 && p.raw[wholeAt] == '0' {
		return nil, p.failAt(start, "a JSON number has no leading zero")
	}
	isWhole := true
	if p.at < len(p.raw) && p.raw[p.at] == '.' {
		isWhole = false
		p.at++
		if digits() == 0 {
			return nil, p.failAt(start, "digits are missing after the decimal point")
		}
	}
	if p.at < len(p.raw) && (p.raw[p.at] == 'e' || p.raw[p.at] == 'E') {
		isWhole = false
		p.at++
		if p.at < len(p.raw) && (p.raw[p.at] == '+' || p.raw[p.at] == '-') {
			p.at++
		}
		expAt := p.at
		if digits() == 0 {
			return nil, p.failAt(start, "digits are missing in the exponent")
		}
		exp, err := strconv.Atoi(string(p.raw[expAt:min(p.at, expAt+10)]))
		if err != nil || p.at-expAt > 9 || exp > p.lim.Exponent {
			return nil, p.failAt(start, "the exponent of this number is larger than %d", p.lim.Exponent)
		}
	}
	if p.at-start > p.lim.Digits {
		return nil, p.failAt(start, "this number is longer than %d characters", p.lim.Digits)
	}
	if !build {
		return nil, nil
	}
	word := string(p.raw[start:p.at])
	if isWhole {
		if i, err := strconv.ParseInt(word, 10, 64); err == nil && word != "-0" {
			return i, nil
		}
	}
	return json.Number(word), nil
}
