package tools

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// story gathers the journal lines of one change in the order in which they are to be read. The first error sticks.
type story struct {
	lines []persistence.Entry
	err   error
}

// move fires an event and writes its line. It answers the state that the record will be in.
func (s *story) move(t *machine.Table, from machine.State, ev machine.Event, rec persistence.Record, payload any) machine.State {
	step, err := t.Fire(from, ev)
	if err != nil {
		s.fail(err)
		return from
	}
	s.write(persistence.Entry{Kind: step.Journal, Move: &persistence.Move{Step: step, Record: rec}}, payload)
	return step.To
}

// birth writes the first line of a record.
func (s *story) birth(t *machine.Table, rec persistence.Record, payload any) machine.State {
	step := t.Birth()
	s.write(persistence.Entry{Kind: step.Journal, Move: &persistence.Move{Step: step, Record: rec}}, payload)
	return step.To
}

// write adds a line.
func (s *story) write(e persistence.Entry, payload any) {
	if payload != nil {
		raw, err := json.Marshal(payload)
		if err != nil {
			s.fail(err)
			return
		}
		e.Payload = raw
	}
	s.lines = append(s.lines, e)
}

func (s *story) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// last gives the line just written, to add to it. After an error it is a line that nobody will read.
func (s *story) last() *persistence.Entry {
	if len(s.lines) == 0 {
		return &persistence.Entry{Move: &persistence.Move{}}
	}
	return &s.lines[len(s.lines)-1]
}

// about gives a line that moves nothing its place.
func about(kind string, c *persistence.Call) persistence.Entry {
	return persistence.Entry{Kind: kind, Call: c.ID, Invocation: c.Invocation}
}

// requestNote is the payload of tool_call_requested: the one line that says what the model wrote. Small arguments are in
// it, larger ones are behind their digest.
type requestNote struct {
	Turn       int64           `json:"turn"`
	Index      int64           `json:"index"`
	Sequence   int64           `json:"sequence"`
	ProviderID string          `json:"providerId"`
	Asked      string          `json:"asked"`
	Tool       specs.ToolName  `json:"tool,omitempty"`
	ToolDigest specs.Digest    `json:"toolDigest,omitempty"`
	Args       json.RawMessage `json:"args,omitempty"`
	ArgsDigest specs.Digest    `json:"argsDigest,omitempty"`
	RawDigest  specs.Digest    `json:"rawDigest,omitempty"`
	RawBytes   int             `json:"rawBytes"`
}

// inlineArgs is the size up to which arguments are told in the journal itself.
const inlineArgs = 1 << 10

// decisionNote is the payload of the line that a decision leads to.
type decisionNote struct {
	Phase        celpolicy.Phase `json:"phase"`
	Callable     bool            `json:"callable"`
	Code         string          `json:"code,omitempty"`
	Rule         specs.RuleID    `json:"rule,omitempty"`
	Layer        specs.LayerName `json:"layer,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	Asks         []specs.RuleID  `json:"asks,omitempty"`
	Grants       []string        `json:"grants,omitempty"`
	PolicyDigest specs.Digest    `json:"policyDigest,omitempty"`
	ErrorCode    string          `json:"errorCode,omitempty"` // what the model reads
	Message      string          `json:"message,omitempty"`
	Remembered   specs.CallID    `json:"remembered,omitempty"` // the earlier call that this one repeats
}

func noteOf(dec celpolicy.Decision, res *Result) decisionNote {
	n := decisionNote{Phase: dec.Phase, Callable: dec.Callable, Code: dec.Code, Rule: dec.Rule, Layer: dec.Layer,
		Reason: clip(dec.Reason, 500), PolicyDigest: dec.PolicyDigest}
	for _, a := range dec.Asks[:min(len(dec.Asks), 20)] {
		n.Asks = append(n.Asks, a.Rule)
	}
	n.Grants = dec.Grants[:min(len(dec.Grants), 20)]
	if res != nil {
		n.ErrorCode, n.Message = res.ErrorCode, clip(textOf(*res), 500)
	}
	return n
}

// textOf is the text of a result that the gate itself wrote.
func textOf(r Result) string {
	for _, c := range r.Content {
		if c.Type == ContentText {
			return c.Text
		}
	}
	return ""
}

// clip cuts a text to at most n bytes, at a rune, and says so.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// marshal is json.Marshal with the failure that it is: something of ours that cannot be written down.
func marshal(v any) (json.RawMessage, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, &SystemError{Code: "serialise", Err: err}
	}
	return raw, nil
}
