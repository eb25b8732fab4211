package workspace_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/toolstest"
	"github.com/callgate/callgate/tools/workspace"
)

var executors = workspace.Executors()

// failer is what testing.T and rapid.T share.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// desk is one agent at one workspace, without the gate in between.
type desk struct {
	failer
	tree              *toolstest.Tree
	invocation        string
	visible, writable []string
	req               tools.Request // what every call carries: host, chat, profile, commits
}

func newDesk(t failer, files map[string]string) *desk {
	return &desk{failer: t, tree: toolstest.NewTree(files), invocation: "root"}
}

// colleague is another invocation at the same workspace.
func (d *desk) colleague(name string) *desk {
	c := *d
	c.invocation = name
	return &c
}

type obj = map[string]any

// try calls a tool and commits what it staged, as the dispatcher does. A failed tool must have staged nothing.
func (d *desk) try(name specs.ToolName, args obj) (tools.Result, error) {
	d.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		d.Fatalf("arguments: %v", err)
	}
	ws := d.tree.Open(d.invocation, d.visible, d.writable)
	req := d.req
	req.Args, req.Workspace = raw, ws
	if req.IdempotencyKey == "" {
		req.IdempotencyKey = "key"
	}
	r, err := executors[name].Execute(context.Background(), req)
	if err != nil || r.IsError {
		if staged := ws.Staged(); len(staged) > 0 {
			d.Errorf("%s %s failed and had staged %v", name, raw, staged)
		}
		return r, err
	}
	if _, err := ws.Commit(string(name)); err != nil {
		d.Fatalf("%s: commit: %v", name, err)
	}
	return r, nil
}

// call is try for tools that must not break the run.
func (d *desk) call(name specs.ToolName, args obj) tools.Result {
	d.Helper()
	r, err := d.try(name, args)
	if err != nil {
		d.Fatalf("%s %v broke the run: %v", name, args, err)
	}
	return r
}

// ok is call for tools that must succeed.
func (d *desk) ok(name specs.ToolName, args obj) tools.Result {
	d.Helper()
	r := d.call(name, args)
	if r.IsError {
		d.Fatalf("%s %v: %s: %s", name, args, r.ErrorCode, text(r))
	}
	return r
}

// refused is call for tools that must answer with this code, in words that hold all of says.
func (d *desk) refused(name specs.ToolName, args obj, code string, says ...string) {
	d.Helper()
	r := d.call(name, args)
	if !r.IsError || r.ErrorCode != code {
		d.Errorf("%s %v: %q %q, want %s", name, args, r.ErrorCode, text(r), code)
		return
	}
	if !r.Retryable || len(r.Content) == 0 {
		d.Errorf("%s %v: the model is not told that it can try again: %+v", name, args, r)
	}
	for _, s := range says {
		if !strings.Contains(text(r), s) {
			d.Errorf("%s %v says\n%s\nwithout %q", name, args, text(r), s)
		}
	}
}

// broken is try for tools that must stop the run with this code.
func (d *desk) broken(name specs.ToolName, args obj, code string) {
	d.Helper()
	r, err := d.try(name, args)
	var sys *tools.SystemError
	if !errors.As(err, &sys) || sys.Code != code {
		d.Errorf("%s %v: %v, %+v; want the system failure %s", name, args, err, r, code)
	}
}

func (d *desk) read(path string) { d.Helper(); d.ok(workspace.ReadFile, obj{"path": path}) }

func (d *desk) content(path, want string) {
	d.Helper()
	if got := d.tree.Text(path); got != want {
		d.Errorf("%s holds %q, want %q", path, got, want)
	}
}

func text(r tools.Result) string {
	var parts []string
	for _, c := range r.Content {
		parts = append(parts, c.Text)
	}
	return strings.Join(parts, "\n")
}

// facts reads the structured part.
func facts[T any](t failer, r tools.Result) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(r.Structured, &v); err != nil {
		t.Fatalf("structured %s: %v", r.Structured, err)
	}
	return v
}

func newT(t *testing.T, files map[string]string) *desk {
	t.Helper()
	t.Parallel()
	return newDesk(t, files)
}
