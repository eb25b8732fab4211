package persistence

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/callgate/callgate/specs"
)

// Redacted stands in a payload where a value was removed before the line was hashed.
const Redacted = `"[redacted]"`

// CanonicalPayload makes a payload ready for its line: first the values that the JSON pointers name are replaced
// by Redacted, then the rest is put into canonical form. A pointer that meets nothing is no error, because the
// same list serves payloads of many shapes. Errors are ErrInvalid: bad JSON, a malformed pointer, more than
// MaxPayload bytes.
func CanonicalPayload(raw json.RawMessage, redact []string) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	for _, pointer := range redact {
		if pointer != "" && !strings.HasPrefix(pointer, "/") {
			return nil, fmt.Errorf("%w: redact %q is not a JSON pointer", ErrInvalid, pointer)
		}
		var err error
		if raw, err = redactOne(raw, pointer); err != nil {
			return nil, fmt.Errorf("%w: payload: %w", ErrInvalid, err)
		}
	}
	out, err := specs.CanonicalJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: payload: %w", ErrInvalid, err)
	}
	if len(out) > MaxPayload {
		return nil, fmt.Errorf("%w: payload of %d bytes, at most %d; larger content goes by reference", ErrInvalid, len(out), MaxPayload)
	}
	return out, nil
}

// redactOne replaces what pointer names. It works on the text, so that everything else keeps its bytes:
// decoding and encoding again would lose lone surrogates.
func redactOne(raw json.RawMessage, pointer string) (json.RawMessage, error) {
	if pointer == "" {
		return json.RawMessage(Redacted), nil
	}
	first, rest := pointer[1:], ""
	if i := strings.IndexByte(first, '/'); i >= 0 {
		first, rest = first[:i], first[i:]
	}
	first = strings.ReplaceAll(strings.ReplaceAll(first, "~1", "/"), "~0", "~")

	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := open.(json.Delim)
	if !ok {
		return raw, nil
	}
	out, copied := make(json.RawMessage, 0, len(raw)), 0
	for i := 0; dec.More(); i++ {
		name := strconv.Itoa(i)
		if delim == '{' {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			name, _ = key.(string)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		if name != first {
			continue
		}
		inner, err := redactOne(value, rest)
		if err != nil {
			return nil, err
		}
		end := int(dec.InputOffset())
		out = append(append(out, raw[copied:end-len(value)]...), inner...)
		copied = end
	}
	return append(out, raw[copied:]...), nil
}

// Seal puts a line at the end of a chain: it gives the line its number and the hash of the line before, hashes
// it, and moves head on to it. Everything else about the line must be final.
func Seal(l *Line, head *Head) {
	l.Seq, l.Prev = head.Seq+1, head.Hash
	l.Hash = l.Sum()
	*head = Head{Seq: l.Seq, Hash: l.Hash}
}

// Sum is the hash that a line with this content must have: SHA-256 over every field but Hash itself, each with its
// length before it, so that no two different lines have the same bytes. Time counts in microseconds, as stored.
func (l *Line) Sum() specs.Digest {
	h := sha256.New()
	field(h, "callgate line 1")
	for _, s := range []string{
		string(l.Tenant), string(l.Run), strconv.FormatInt(l.Seq, 10), l.ID, strconv.FormatInt(Micros(l.At), 10),
		string(l.Level), l.Kind, string(l.Payload), strconv.FormatInt(l.Cause, 10), l.Request, string(l.Invocation),
		string(l.Call), l.Related, l.Machine, l.Subject, string(l.From), string(l.Event), string(l.To), string(l.Holds), string(l.Prev),
	} {
		field(h, s)
	}
	return specs.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

func field(h hash.Hash, s string) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(s)))
	h.Write(size[:])
	h.Write([]byte(s))
}
