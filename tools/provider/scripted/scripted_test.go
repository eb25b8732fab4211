package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
	"github.com/callgate/callgate/tools/provider/scripted"
)

func load(t *testing.T, text string) *scripted.Model {
	t.Helper()
	m, err := scripted.Load("scripts/test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// run is a conversation as the loop would keep it.
type run struct {
	t     *testing.T
	model provider.Model
	req   provider.Request
}

func start(t *testing.T, m provider.Model, shown ...specs.ToolName) *run {
	r := &run{t: t, model: m, req: provider.Request{Run: "r", Invocation: "i", Turn: 1}}
	r.req.Messages = []provider.Message{{Role: provider.RoleUser, Kind: "task", Text: "Write."}}
	for _, name := range shown {
		r.req.Tools = append(r.req.Tools, provider.Tool{Name: name, Alias: specs.AliasOf(name)})
	}
	return r
}

// next plays a turn and answers its calls with results, in order; missing ones are "done".
func (r *run) next(results ...tools.Result) provider.Reply {
	r.t.Helper()
	reply, err := r.model.Next(r.t.Context(), r.req)
	if err != nil {
		r.t.Fatal(err)
	}
	said := provider.Message{Role: provider.RoleAssistant, Text: reply.Text, Calls: reply.Calls, Metadata: reply.Metadata}
	back := provider.Message{Role: provider.RoleTool}
	for i, c := range reply.Calls {
		res := tools.Text("done")
		if i < len(results) {
			res = results[i]
		}
		name := specs.ToolName("") // as for a tool nobody knows
		for _, shown := range r.req.Tools {
			if string(shown.Alias) == c.Name {
				name = shown.Name
			}
		}
		back.Results = append(back.Results, provider.ToolResult{ProviderID: c.ID, Tool: name, Result: res})
	}
	r.req.Messages = append(r.req.Messages, said, back)
	r.req.Turn++
	return reply
}

func (r *run) fails() error {
	r.t.Helper()
	reply, err := r.model.Next(r.t.Context(), r.req)
	if err == nil {
		r.t.Fatalf("turn %d was played: %+v", r.req.Turn, reply)
	}
	return err
}

func names(r provider.Reply) string {
	var out []string
	for _, c := range r.Calls {
		out = append(out, c.ID+" "+c.Name+" "+string(c.Arguments))
	}
	return strings.Join(out, "; ")
}

const story = `
turns:
  - say: I will look first.
    calls:
      - {tool: workspace.list_files}
      - {id: own, tool: workspace_read_file, args: {path: output/main.md, big: 9007199254740993, list: [1.50, true, null, "1"], z: 1, a: 2}}
  - when: {error: workspace.not_found}
    expect:
      tools: [workspace.write_file]
      not: [workspace.rollback, shell.run]
      results:
        - {tool: workspace.read_file, error: workspace.not_found}
        - {tool: workspace_list_files, error: none, contains: "0 files"}
    calls:
      - {tool: workspace.write_file, args: {path: output/main.md}}
  - when: {tool: workspace.read_file, error: none}
    calls:
      - {tool: workspace.commit}
  - calls: [{tool: shell.run, raw: '{"a":'}, {id: "", tool: nobody, args: {}}]
  - drift: Here is your story.
`

func TestStory(t *testing.T) {
	t.Parallel()
	shown := []specs.ToolName{"workspace.list_files", "workspace.read_file", "workspace.write_file", "workspace.commit"}
	r := start(t, load(t, story), shown...)
	first := r.next(tools.Text("0 files"), tools.Recoverable("workspace.not_found", "no"))
	want := `t1c1 workspace_list_files {}; own workspace_read_file {"path":"output/main.md","big":9007199254740993,"list":[1.50,true,null,"1"],"z":1,"a":2}`
	if first.Text != "I will look first." || names(first) != want {
		t.Errorf("turn 1 says %q and calls\n%s\nwant\n%s", first.Text, names(first), want)
	}
	if got := names(r.next()); got != `t2c1 workspace_write_file {"path":"output/main.md"}` {
		t.Errorf("turn 2 calls %s", got)
	}
	// The third entry is skipped: the last result is of another tool.
	if got := names(r.next()); got != `t3c1 shell.run {"a":;  nobody {}` {
		t.Errorf("turn 3 calls %s", got)
	}
	if got := r.next(); got.Text != "Here is your story." || len(got.Calls) != 0 {
		t.Errorf("turn 4 is %+v", got)
	}
	var ended *scripted.EndedError
	if err := r.fails(); !errors.As(err, &ended) || ended.Turn != 5 || ended.Turns != 5 || !strings.Contains(err.Error(), "scripts/test.yaml") {
		t.Errorf("behind the end: %v", err)
	}

	other := start(t, load(t, story), shown...)
	other.next(tools.Text("1 file"), tools.Text("Once."))
	if got := names(other.next()); got != "t2c1 workspace_commit {}" {
		t.Errorf("the other branch calls %s", got)
	}
}

// A new process that knows only the history goes on where the old one was, whatever was skipped before.
func TestResumesFromTheHistoryAlone(t *testing.T) {
	t.Parallel()
	whole := start(t, load(t, story), "workspace.write_file", "workspace.list_files")
	parts := start(t, nil, "workspace.write_file", "workspace.list_files")
	for turn := range 4 {
		parts.model = load(t, story)
		results := []tools.Result{tools.Text("0 files"), tools.Recoverable("workspace.not_found", "no")}
		if a, b := whole.next(results...), parts.next(results...); cmp.Diff(a, b) != "" {
			t.Errorf("turn %d differs: %s", turn+1, cmp.Diff(a, b))
		}
		// Asked twice for one turn, it says the same.
		parts.req.Turn--
		saved := parts.req.Messages
		parts.req.Messages = saved[:len(saved)-2]
		parts.next(results...)
	}
	parts.req.Messages[len(parts.req.Messages)-2].Metadata = nil
	if err := parts.fails(); !errors.Is(err, scripted.ErrLost) {
		t.Errorf("without metadata: %v", err)
	}
}

func TestExpectationsNameTheirPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expect string
		says   []string
	}{
		"tool not shown":  {"tools: [workspace.read_file, workspace.rollback]", []string{":5:43: turn 2: ", "workspace.rollback should be shown"}},
		"tool shown":      {"not: [workspace.read_file]", []string{"should not be shown"}},
		"no such result":  {"results: [{error: policy.denied}]", []string{"with the error policy.denied", `workspace.read_file (ok: "the text")`}},
		"one result each": {"results: [{contains: text}, {contains: text}]", []string{`that contains "text"`, "there is none"}},
		"it did not fail": {"results: [{tool: workspace.read_file, error: tool.failed}]", []string{"of workspace.read_file with the error tool.failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, load(t, "turns:\n  - calls:\n      - {tool: workspace.read_file}\n  - say: x\n    expect: {"+c.expect+"}\n"), "workspace.read_file")
			r.next(tools.Text("the text"))
			err := r.fails()
			var unexpected *scripted.UnexpectedError
			if !errors.As(err, &unexpected) || unexpected.Pos.Line != 5 || unexpected.Turn != 2 {
				t.Fatalf("the error is %v", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error %q does not say %q", err, s)
				}
			}
		})
	}
}

func TestFailsOnceAndSleeps(t *testing.T) {
	t.Parallel()
	m := load(t, "turns:\n  - fail: connection reset\n  - {sleep: 1ms, fail: again}\n  - sleep: 1ms\n  - say: at last\n")
	r := start(t, m)
	for _, want := range []string{"connection reset", "again"} {
		if err := r.fails(); !errors.Is(err, scripted.ErrFailed) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v", err)
		}
	}
	other := start(t, m)
	other.req.Run = "another run"
	if err := other.fails(); !errors.Is(err, scripted.ErrFailed) {
		t.Errorf("another run: %v", err)
	}
	if got := r.next(); got.Text != "at last" {
		t.Errorf("says %q", got.Text)
	}

	slow := start(t, load(t, "turns: [{sleep: 1h, say: x}]"))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := slow.model.Next(ctx, slow.req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a sleep does not end with its context: %v", err)
	}
}

func TestManyRunsShareAModel(t *testing.T) {
	t.Parallel()
	m := load(t, "turns:\n  - fail: once\n  - say: hello\n")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r := start(t, m)
			r.req.Run = specs.RunID(fmt.Sprint(i))
			if _, err := m.Next(t.Context(), r.req); !errors.Is(err, scripted.ErrFailed) {
				t.Errorf("run %d: %v", i, err)
			}
			if reply, err := m.Next(t.Context(), r.req); err != nil || reply.Text != "hello" {
				t.Errorf("run %d: %+v, %v", i, reply, err)
			}
		})
	}
	wg.Wait()
}

func TestScriptsAreReadStrictly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, at, says, hint string }{
		"not a mapping":         {"- say: x\n", "s.yaml:1:1", "a mapping", ""},
		"no turns":              {"turn: []\n", "s.yaml:1:1", `unknown key "turn"`, `did you mean "turns"?`},
		"unknown key":           {"turns:\n  - sya: x\n", "s.yaml:2:5", `unknown key "sya"`, `did you mean "say"?`},
		"unknown key of a call": {"turns:\n  - calls:\n      - {tool: a, arg: {}}\n", "s.yaml:3:19", `unknown key "arg"`, `did you mean "args"?`},
		"turns is no list":      {"turns: {say: x}\n", "s.yaml:1:8", "expected a list, got a mapping", ""},
		"a call without a tool": {"turns:\n  - calls: [{id: a}]\n", "s.yaml:2:13", `the key "tool" is missing`, ""},
		"a number as text":      {"turns:\n  - say: 12\n", "s.yaml:2:10", "expected a text, got the whole number 12", `quote it: "12"`},
		"old boolean":           {"turns:\n  - say: yes\n", "s.yaml:2:10", "boolean", ""},
		"arguments as a list":   {"turns:\n  - calls: [{tool: a, args: [1]}]\n", "s.yaml:2:29", "expected a mapping, got a list", "raw"},
		"args and raw":          {"turns:\n  - calls: [{tool: a, args: {}, raw: x}]\n", "s.yaml:2:33", "cannot stand in one call", ""},
		"drift with calls":      {"turns:\n  - drift: x\n    calls: []\n", "s.yaml:3:5", "cannot stand in one turn", "two turns"},
		"empty turn":            {"turns:\n  - {}\n", "s.yaml:2:5", "does nothing", "say"},
		"empty condition":       {"turns:\n  - {say: x, when: {}}\n", "s.yaml:2:20", "any result", ""},
		"bad duration":          {"turns:\n  - sleep: fast\n", "s.yaml:2:12", "duration", "50ms"},
		"negative duration":     {"turns:\n  - sleep: -1s\n", "s.yaml:2:12", "duration", ""},
		"duplicate key":         {"turns:\n  - say: a\n    say: b\n", "s.yaml:3:5", "second time", ""},
		"alias":                 {"turns:\n  - &a {say: x}\n  - *a\n", "s.yaml:2:5", "anchors", ""},
		"big integer":           {"turns:\n  - calls: [{tool: a, args: {n: 99999999999999999999}}]\n", "s.yaml:2:33", "64 bits", "quote"},
		"broken":                {"turns:\n  - say: [x\n", "s.yaml:2", "", ""},
		"binary":                {"turns:\n\x00\xff", "s.yaml:2:1", "NUL", ""},
		"two documents":         {"turns: []\n---\nturns: []\n", "s.yaml:3:1", "one document", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := scripted.Load("s.yaml", []byte(c.text))
			found, ok := specs.AsDiagnostics(err)
			if !ok || len(found) == 0 {
				t.Fatalf("the error is %v", err)
			}
			for _, d := range found {
				if strings.HasPrefix(d.Pos.String(), c.at) && strings.Contains(d.Message, c.says) && strings.Contains(d.Hint, c.hint) {
					return
				}
			}
			t.Errorf("found\n%s\nwant %s: %s (%s)", found.Text(), c.at, c.says, c.hint)
		})
	}
	if _, err := scripted.Load("s.yaml", []byte("turns:\n  - sya: x\n  - drfit: later\n  - say: 1\n")); err == nil || strings.Count(err.Error(), "s.yaml:") != 3 {
		t.Errorf("not all mistakes at once: %v", err)
	}
	for _, empty := range []string{"", "# nothing\n", "turns: []\n"} {
		m, err := scripted.Load("s.yaml", []byte(empty))
		if err != nil {
			t.Errorf("%q: %v", empty, err)
			continue
		}
		var ended *scripted.EndedError
		if err := start(t, m).fails(); !errors.As(err, &ended) {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(story))
	f.Add([]byte("turns: [{calls: [{tool: a, args: {n: 1.0e400}}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := scripted.Load("s.yaml", data)
		if err != nil {
			if found, ok := specs.AsDiagnostics(err); !ok || len(found.Errors()) == 0 {
				t.Fatalf("an error without findings: %v", err)
			}
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		reply, err := m.Next(ctx, provider.Request{Turn: 1})
		if err == nil && len(reply.Metadata) == 0 {
			t.Fatal("a reply that does not say where the script stands")
		}
	})
}

func TestOnce(t *testing.T) {
	t.Parallel()
	args := json.RawMessage(`{ "n": 9007199254740993 }`)
	r := start(t, scripted.Once(tools.Call{Name: "workspace.read_file", Arguments: args}), "workspace.read_file")
	if got := r.next(); got.Stop || names(got) != "call workspace_read_file "+string(args) {
		t.Errorf("turn 1 is %+v", got)
	}
	if got := r.next(); !got.Stop || len(got.Calls) != 0 {
		t.Errorf("turn 2 is %+v", got)
	}
	again := start(t, scripted.Once(tools.Call{ID: "mine", Name: "unknown"}))
	again.req.Messages = r.req.Messages
	if got := again.next(); !got.Stop {
		t.Errorf("a resumed run calls again: %+v", got)
	}
}
