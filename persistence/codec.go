package persistence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// MetaOf gives the part of a record that the store fills in. Adapters need it; others read the record's fields.
func MetaOf(r Record) *RecordMeta { return r.meta() }

// EncodeRecord gives the bytes under which a record is stored. They are never a database's own JSON type,
// which refuses NUL and lone surrogates and rewrites numbers. Raw JSON inside a record (a provider's metadata,
// an approval's card) goes through byte for byte. Text that is not UTF-8 is ErrInvalid, never altered.
func EncodeRecord(r Record) ([]byte, error) {
	var shape any
	switch v := r.(type) {
	case *Call:
		shape = callShape{Call: v, Metadata: v.Metadata}
	case *Approval:
		shape = approvalShape{Approval: v, Shown: v.Shown}
	default:
		shape = r
	}
	return encodeJSON(shape)
}

// DecodeRecord fills r from the bytes of EncodeRecord. The RecordMeta is not among them.
func DecodeRecord(body []byte, r Record) error {
	var err error
	switch v := r.(type) {
	case *Call:
		shape := callShape{Call: v}
		if err = json.Unmarshal(body, &shape); err == nil && shape.Metadata != nil {
			v.Metadata = shape.Metadata
		}
	case *Approval:
		shape := approvalShape{Approval: v}
		if err = json.Unmarshal(body, &shape); err == nil && shape.Shown != nil {
			v.Shown = shape.Shown
		}
	default:
		err = json.Unmarshal(body, r)
	}
	if err != nil {
		name, id := r.Subject()
		return fmt.Errorf("%w: %s %s: %w", ErrCorrupt, name, id, err)
	}
	return nil
}

// The outer field hides the embedded one of the same JSON name, so that raw JSON is stored as base64:
// encoding/json would drop its white space and escape its angle brackets, and a provider that gets its own
// metadata back changed refuses the turn.
type callShape struct {
	*Call
	Metadata []byte `json:"metadata,omitempty"`
}

type approvalShape struct {
	*Approval
	Shown []byte `json:"shown,omitempty"`
}

func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	out := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if replacedBytes(out) {
		return nil, fmt.Errorf("%w: text that is not UTF-8", ErrInvalid)
	}
	return out, nil
}

// replacedBytes says whether encoding/json put a replacement for bytes that are no UTF-8. It writes that one as
// the escape \ufffd, and a U+FFFD that was in the text as its three bytes.
func replacedBytes(out []byte) bool {
	for i := 0; ; {
		n := bytes.Index(out[i:], []byte(`\ufffd`))
		if n < 0 {
			return false
		}
		slashes := 0
		for j := i + n; j >= 0 && out[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 1 {
			return true
		}
		i += n + 1
	}
}

// Micros is how a time is stored and hashed: microseconds since 1970, UTC; 0 for the zero time. Both databases
// keep it exactly, which is why a hash over it can be checked later.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromMicros undoes Micros.
func FromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

var tablesByName = sync.OnceValue(func() map[string]*machine.Table {
	out := map[string]*machine.Table{}
	for _, t := range machine.All() {
		out[t.Name()] = t
	}
	return out
})

// TableOf gives the lifecycle of a machine that a record can have; false for any other name.
func TableOf(name string) (*machine.Table, bool) {
	t, ok := tablesByName()[name]
	return t, ok
}

// Refs are the digests of the blobs that a record names, without the empty ones. Each must resolve.
func Refs(r Record) []specs.Digest {
	var all []specs.Digest
	switch v := r.(type) {
	case *Call:
		all = []specs.Digest{v.Args, v.RawArgs, v.Result}
	case *Approval:
		all = []specs.Digest{v.NewArgs}
	}
	return slices.DeleteFunc(all, func(d specs.Digest) bool { return d == "" })
}
