package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
)

// turnPayload is the payload of a model_turn_completed line.
type turnPayload struct {
	Turn     int64          `json:"turn"`
	Response specs.Digest   `json:"response"` // blob of the reply, see ReadTurn
	Calls    int            `json:"calls"`
	Usage    provider.Usage `json:"usage"`
}

// ReadTurn gives what the model said in the turn that a model_turn_completed line is about, for people and tools that
// show a run. Errors are the store's, or *tools.SystemError when the stored reply cannot be read.
func ReadTurn(ctx context.Context, store persistence.Store, line persistence.Line) (turn int64, reply provider.Reply, err error) {
	var p turnPayload
	if err := json.Unmarshal(line.Payload, &p); err != nil {
		return 0, provider.Reply{}, tools.Systemf("provider.metadata_lost", "line %d: %w", line.Seq, err)
	}
	data, err := store.Blob(ctx, line.Tenant, p.Response)
	if err != nil {
		return p.Turn, provider.Reply{}, fmt.Errorf("reply of turn %d: %w", p.Turn, err)
	}
	reply, err = decodeReply(data)
	if err != nil {
		return p.Turn, provider.Reply{}, tools.Systemf("provider.metadata_lost", "reply of turn %d: %w", p.Turn, err)
	}
	return p.Turn, reply, nil
}

// storedReply is a reply as a blob. Arguments and metadata are bytes, not JSON within JSON: encoding/json would
// drop their white space and escape their angle brackets, and hostile arguments are no JSON at all.
type storedReply struct {
	Text     string         `json:"text,omitempty"`
	Calls    []storedCall   `json:"calls,omitempty"`
	Metadata exact          `json:"metadata,omitempty"`
	Usage    provider.Usage `json:"usage"`
	Stop     bool           `json:"stop,omitempty"`
}

type storedCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments exact  `json:"arguments,omitempty"`
	Metadata  exact  `json:"metadata,omitempty"`
	Synthetic bool   `json:"synthetic,omitempty"`
}

// exact is bytes kept as they are: a JSON text when they are UTF-8, which a person can read, else base64.
type exact []byte

func (e exact) MarshalJSON() ([]byte, error) {
	if utf8.Valid(e) {
		return json.Marshal(string(e))
	}
	return json.Marshal(map[string][]byte{"base64": e})
}

func (e *exact) UnmarshalJSON(data []byte) error {
	if strings.HasPrefix(string(data), "{") {
		var m struct {
			Base64 []byte `json:"base64"`
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		*e = m.Base64
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	*e = exact(s)
	return nil
}

// encodeReply gives the blob of a reply. Text and names that are not UTF-8 are mended, ids included: they are keys.
func encodeReply(r provider.Reply) (persistence.Blob, error) {
	s := storedReply{Text: r.Text, Metadata: exact(r.Metadata), Usage: r.Usage, Stop: r.Stop}
	for _, c := range r.Calls {
		s.Calls = append(s.Calls, storedCall{ID: c.ID, Name: c.Name, Arguments: exact(c.Arguments), Metadata: exact(c.Metadata), Synthetic: c.Synthetic})
	}
	data, err := json.Marshal(s)
	if err != nil {
		return persistence.Blob{}, err
	}
	return persistence.BlobOf("application/json", data), nil
}

func decodeReply(data []byte) (provider.Reply, error) {
	var s storedReply
	if err := json.Unmarshal(data, &s); err != nil {
		return provider.Reply{}, err
	}
	r := provider.Reply{Text: s.Text, Metadata: json.RawMessage(s.Metadata), Usage: s.Usage, Stop: s.Stop}
	for _, c := range s.Calls {
		r.Calls = append(r.Calls, tools.Call{ID: c.ID, Name: c.Name, Arguments: json.RawMessage(c.Arguments), Metadata: json.RawMessage(c.Metadata), Synthetic: c.Synthetic})
	}
	return r, nil
}

// mend replaces what is not UTF-8 in the texts of a reply, so that what is stored, shown and sent back is one thing.
// Arguments and metadata stay as they are.
func mend(r provider.Reply) provider.Reply {
	r.Text = strings.ToValidUTF8(r.Text, "\uFFFD")
	calls := make([]tools.Call, len(r.Calls))
	for i, c := range r.Calls {
		c.ID, c.Name = strings.ToValidUTF8(c.ID, "\uFFFD"), strings.ToValidUTF8(c.Name, "\uFFFD")
		calls[i] = c
	}
	if len(calls) > 0 {
		r.Calls = calls
	}
	return r
}
