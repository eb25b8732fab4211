package scripted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
)

// Model plays a script. It is safe for concurrent use by many runs.
type Model struct {
	script *script

	mu     sync.Mutex
	failed map[failure]bool // fails that were already played
}

type failure struct {
	run        specs.RunID
	invocation specs.InvocationID
	turn       int64
	at         int
}

var _ provider.Model = (*Model)(nil)

// Load reads a script. Name is what errors call the file. The error, if any, has every mistake in file order
// (specs.AsDiagnostics).
func Load(name string, data []byte) (*Model, error) {
	s, err := readScript(name, data)
	if err != nil {
		return nil, err
	}
	return &Model{script: s, failed: map[failure]bool{}}, nil
}

// UnexpectedError says that a request is not as the script expects.
type UnexpectedError struct {
	Pos  specs.Pos // of the expectation
	Turn int64     // of the request
	What string
}

func (e *UnexpectedError) Error() string {
	return fmt.Sprintf("%s: turn %d: %s", e.Pos, e.Turn, e.What)
}

// EndedError says that a turn was asked for behind the script's last one.
type EndedError struct {
	Script string
	Turns  int   // in the script
	Turn   int64 // of the request
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("%s: the script ends after %d turns and has nothing to play for turn %d of the run", e.Script, e.Turns, e.Turn)
}

// ErrFailed is what a fail in the script answers, wrapped with its text.
var ErrFailed = errors.New("the scripted provider failed")

// ErrLost says that the history's last reply does not carry the place in the script any more.
var ErrLost = errors.New("the history does not say where the script stands")

// place is what a reply's metadata carries.
type place struct {
	Script string `json:"script"`
	Next   int    `json:"next"` // index of the next turn
}

// Next implements provider.Model.
func (m *Model) Next(ctx context.Context, req provider.Request) (provider.Reply, error) {
	at, err := m.next(req)
	if err != nil {
		return provider.Reply{}, err
	}
	results := lastResults(req)
	for ; at < len(m.script.turns); at++ {
		t := &m.script.turns[at]
		if t.when != nil && !slices.ContainsFunc(results, t.when.matches) {
			continue
		}
		if t.fail != "" && !m.failNow(failure{req.Run, req.Invocation, req.Turn, at}) {
			continue
		}
		if t.expect != nil {
			if err := t.expect.check(req, results); err != nil {
				return provider.Reply{}, err
			}
		}
		if err := sleep(ctx, t.sleep); err != nil {
			return provider.Reply{}, err
		}
		if t.fail != "" {
			return provider.Reply{}, fmt.Errorf("%w: %s (%s)", ErrFailed, t.fail, t.pos)
		}
		if t.speaks {
			return m.reply(t, at, req)
		}
	}
	return provider.Reply{}, &EndedError{Script: m.script.name, Turns: len(m.script.turns), Turn: req.Turn}
}

// next finds where the script stands: behind the turn that made the last reply of the history.
func (m *Model) next(req provider.Request) (int, error) {
	for _, msg := range slices.Backward(req.Messages) {
		if msg.Role != provider.RoleAssistant {
			continue
		}
		var p place
		if json.Unmarshal(msg.Metadata, &p) != nil || p.Next < 1 {
			return 0, fmt.Errorf("%s: turn %d: %w", m.script.name, req.Turn, ErrLost)
		}
		return p.Next, nil
	}
	return 0, nil
}

// failNow says whether a fail is still to be played, and remembers that it was.
func (m *Model) failNow(f failure) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed[f] {
		return false
	}
	m.failed[f] = true
	return true
}

func (m *Model) reply(t *turn, at int, req provider.Request) (provider.Reply, error) {
	meta, err := json.Marshal(place{m.script.name, at + 1})
	if err != nil {
		return provider.Reply{}, err
	}
	r := provider.Reply{Text: t.text, Metadata: meta}
	for i, c := range t.calls {
		id := fmt.Sprintf("t%dc%d", req.Turn, i+1)
		if c.id != nil {
			id = *c.id
		}
		r.Calls = append(r.Calls, tools.Call{ID: id, Name: aliasOf(req, c.tool), Arguments: slices.Clone(c.bytes)})
	}
	r.Usage = usage(req, r)
	return r, nil
}

// aliasOf writes a tool's name as the model was shown it; a tool that was not shown keeps the name the script gives.
func aliasOf(req provider.Request, name string) string {
	for _, t := range req.Tools {
		if string(t.Name) == name {
			return string(t.Alias)
		}
	}
	return name
}

// usage estimates tokens as bytes/4, so that token budgets can be tried without a network.
func usage(req provider.Request, r provider.Reply) provider.Usage {
	in, out := len(req.System), len(r.Text)
	for _, msg := range req.Messages {
		in += len(msg.Text)
		for _, c := range msg.Calls {
			in += len(c.Arguments)
		}
		for _, res := range msg.Results {
			in += len(resultText(res.Result))
		}
	}
	for _, c := range r.Calls {
		out += len(c.Arguments)
	}
	return provider.Usage{InputTokens: int64(in+3) / 4, OutputTokens: int64(out+3) / 4}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// heard is a result with the name that its call asked for: a tool nobody knows has no other.
type heard struct {
	provider.ToolResult
	asked string
}

// lastResults gives the results that came after the last reply.
func lastResults(req provider.Request) []heard {
	var out []heard
	asked := map[string]string{}
	for _, msg := range req.Messages {
		switch msg.Role {
		case provider.RoleAssistant:
			out = nil
			for _, c := range msg.Calls {
				asked[c.ID] = c.Name
			}
		case provider.RoleTool:
			for _, r := range msg.Results {
				out = append(out, heard{r, asked[r.ProviderID]})
			}
		}
	}
	return out
}

// of says whether the result is of a tool, named canonically or by alias.
func (h heard) of(name specs.ToolName) bool {
	alias := string(specs.AliasOf(name))
	return h.Tool == name || h.asked == string(name) || h.asked == alias || h.Tool != "" && string(specs.AliasOf(h.Tool)) == string(name)
}

// matches says whether a result is as described.
func (l *like) matches(r heard) bool {
	code := ""
	if r.Result.IsError {
		code = r.Result.ErrorCode
	}
	switch {
	case l.tool != "" && !r.of(l.tool):
		return false
	case l.errorIs != nil && (*l.errorIs != code || *l.errorIs == "" && r.Result.IsError):
		return false
	}
	return strings.Contains(resultText(r.Result), l.contains)
}

func (l *like) String() string {
	var parts []string
	if l.tool != "" {
		parts = append(parts, "of "+string(l.tool))
	}
	if l.errorIs != nil && *l.errorIs == "" {
		parts = append(parts, "without an error")
	} else if l.errorIs != nil {
		parts = append(parts, "with the error "+*l.errorIs)
	}
	if l.contains != "" {
		parts = append(parts, fmt.Sprintf("that contains %q", l.contains))
	}
	return strings.Join(parts, " ")
}

func resultText(r tools.Result) string {
	var parts []string
	for _, c := range r.Content {
		parts = append(parts, c.Text, string(c.JSON))
	}
	parts = append(parts, string(r.Structured))
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n")
}

// check compares a request with what the script expects. Results are paired one to one, in the script's order.
func (e *expectation) check(req provider.Request, results []heard) error {
	shown := func(name specs.ToolName) bool {
		return slices.ContainsFunc(req.Tools, func(t provider.Tool) bool { return t.Name == name || string(t.Alias) == string(name) })
	}
	for _, n := range e.tools {
		if !shown(n.name) {
			return &UnexpectedError{n.pos, req.Turn, fmt.Sprintf("%s should be shown to the model, shown are %s", n.name, toolNames(req))}
		}
	}
	for _, n := range e.not {
		if shown(n.name) {
			return &UnexpectedError{n.pos, req.Turn, fmt.Sprintf("%s should not be shown to the model", n.name)}
		}
	}
	left := slices.Clone(results)
	for _, want := range e.results {
		i := slices.IndexFunc(left, want.matches)
		if i < 0 {
			return &UnexpectedError{want.pos, req.Turn, fmt.Sprintf("there should be a result %s, there is %s", want.String(), resultList(left))}
		}
		left = slices.Delete(left, i, i+1)
	}
	return nil
}

func toolNames(req provider.Request) string {
	if len(req.Tools) == 0 {
		return "none"
	}
	names := make([]string, len(req.Tools))
	for i, t := range req.Tools {
		names[i] = string(t.Name)
	}
	return strings.Join(names, ", ")
}

func resultList(results []heard) string {
	if len(results) == 0 {
		return "none"
	}
	out := make([]string, len(results))
	for i, r := range results {
		code := "ok"
		if r.Result.IsError {
			code = r.Result.ErrorCode
		}
		text := []rune(resultText(r.Result))
		if len(text) > 120 {
			text = append(text[:117], '.', '.', '.')
		}
		out[i] = fmt.Sprintf("%s (%s: %q)", cmp.Or(string(r.Tool), r.asked), code, string(text))
	}
	return strings.Join(out, ", ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
