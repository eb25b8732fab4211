package specs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// CanonicalJSON writes one JSON value in the one form that RFC 8785 gives it, with one difference: whole
// numbers of the int64 range keep all their digits, because under the RFC 2^53 and 2^53+1 would share a digest.
// Whole numbers beyond int64 and numbers beyond the range of a double are refused. The error is a *JSONError.
func CanonicalJSON(raw []byte) ([]byte, error) {
	return CanonicalJSONWithin(raw, JSONLimits{})
}

// CanonicalJSONWithin is CanonicalJSON with limits of the caller's own.
func CanonicalJSONWithin(raw []byte, lim JSONLimits) ([]byte, error) {
	v, err := DecodeJSON(raw, lim)
	if err != nil {
		return nil, err
	}
	return appendCanonical(make([]byte, 0, len(raw)), v, "")
}

// DigestOf names bytes by their SHA-256.
func DigestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// DigestJSON names a JSON value by the digest of its canonical form.
func DigestJSON(raw []byte) (Digest, error) {
	b, err := CanonicalJSON(raw)
	if err != nil {
		return "", err
	}
	return DigestOf(b), nil
}

// appendCanonical writes maps, lists, strings, bools, nil, int64, json.Number and json.RawMessage.
func appendCanonical(out []byte, v any, at string) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(out, "null"...), nil
	case bool:
		return strconv.AppendBool(out, v), nil
	case int64:
		return strconv.AppendInt(out, v, 10), nil
	case string:
		return appendJSONString(out, v), nil
	case json.Number:
		return appendCanonicalNumber(out, string(v), at)
	case json.RawMessage:
		inner, err := DecodeJSON(v, JSONLimits{})
		if err != nil {
			return nil, err
		}
		return appendCanonical(out, inner, at)
	case []any:
		out = append(out, '[')
		var err error
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendCanonical(out, e, at+"/"+strconv.Itoa(i)); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	case map[string]any:
		out = append(out, '{')
		var err error
		for i, k := range sortedKeys(v) {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendJSONString(out, k), ':')
			if out, err = appendCanonical(out, v[k], at+"/"+pointerEscape(k)); err != nil {
				return nil, err
			}
		}
		return append(out, '}'), nil
	}
	return nil, &JSONError{Pointer: at, Msg: "not a JSON value"}
}

// sortedKeys orders keys by their UTF-16 code units, as RFC 8785 asks.
func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareUTF16)
	return keys
}

func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if x != y {
			return slices.Compare(utf16.AppendRune(nil, x), utf16.AppendRune(nil, y))
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

// appendCanonicalNumber writes a number as ECMAScript does, except that a whole number keeps its digits.
func appendCanonicalNumber(out []byte, word, at string) ([]byte, error) {
	if i, err := strconv.ParseInt(word, 10, 64); err == nil {
		return strconv.AppendInt(out, i, 10), nil
	}
	if !strings.ContainsAny(word, ".eE") {
		return nil, &JSONError{Pointer: at, Msg: "the whole number " + word + " does not fit in 64 bits"}
	}
	f, err := strconv.ParseFloat(word, 64)
	exact, ok := new(big.Rat).SetString(word) // small: the reader bounds digits and exponent
	if err != nil || math.IsInf(f, 0) || !ok {
		return nil, &JSONError{Pointer: at, Msg: "the number " + word + " is out of range"}
	}
	switch {
	case exact.IsInt() && exact.Num().IsInt64():
		return strconv.AppendInt(out, exact.Num().Int64(), 10), nil
	case !exact.IsInt() && f == math.Trunc(f) && f != 0:
		return nil, &JSONError{Pointer: at, Msg: "the number " + word + " has more digits than can be kept"}
	case exact.IsInt() && math.Abs(f) < 1e21:
		return appendExponent(out, f), nil // digits alone would read back as a whole number beyond int64
	}
	return appendDouble(out, f), nil
}

// appendDouble is Number::toString of ECMA-262, which RFC 8785 prescribes.
func appendDouble(out []byte, f float64) []byte {
	if f == 0 {
		return append(out, '0')
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(out, f, 'f', -1, 64)
	}
	return appendExponent(out, f)
}

func appendExponent(out []byte, f float64) []byte {
	mantissa, exp, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	return append(out, mantissa+"e"+exp[:1]+strings.TrimLeft(exp[1:], "0")...)
}

// appendJSONString writes a text with the escapes of RFC 8785 and no others. The text must be valid UTF-8.
func appendJSONString(out []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	out = append(out, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c >= 0x20:
			out = append(out, c)
		case c == '\b':
			out = append(out, '\\', 'b')
		case c == '\t':
			out = append(out, '\\', 't')
		case c == '\n':
			out = append(out, '\\', 'n')
		case c == '\f':
			out = append(out, '\\', 'f')
		case c == '\r':
			out = append(out, '\\', 'r')
		default:
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(out, '"')
}
