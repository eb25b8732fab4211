package toolstest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// WorkspaceUnderTest is one run's empty workspace, as an implementation offers it.
type WorkspaceUnderTest struct {
	// Open gives a view of the newest version for an invocation, every root visible and writable.
	Open func(t *testing.T, invocation string) tools.Workspace
	// Commit writes what is staged in a view, as a call's outcome would.
	Commit func(t *testing.T, ws tools.Workspace) error
}

// RunWorkspace proves an implementation of tools.Workspace. Open is called for each case and gives a fresh run.
func RunWorkspace(t *testing.T, open func(t *testing.T) WorkspaceUnderTest) {
	t.Helper()
	ctx := context.Background()
	for name, test := range map[string]func(t *testing.T, k *workspaceKit){
		"an empty workspace is at version 0": func(t *testing.T, k *workspaceKit) {
			ws := k.open("a")
			if ws.Version() != 0 || len(ws.List()) != 0 {
				t.Errorf("version %d with files %v", ws.Version(), ws.List())
			}
			if points, err := ws.Checkpoints(ctx); err != nil || len(points) != 0 {
				t.Errorf("checkpoints %v, %v", points, err)
			}
		},
		"staged edits are read back before they are written": func(t *testing.T, k *workspaceKit) {
			ws := k.open("a")
			ws.Write("output/b.md", []byte("b"))
			ws.Write("output/a.md", []byte("a1"))
			ws.Write("output/a.md", []byte("a22"))
			k.expect(ws, map[string]string{"output/a.md": "a22", "output/b.md": "b"})
			if ws.Version() != 0 {
				t.Errorf("staging moved the version to %d", ws.Version())
			}
			k.expect(k.open("a"), map[string]string{})
			ws.Remove("output/b.md")
			k.expect(ws, map[string]string{"output/a.md": "a22"})
		},
		"a commit makes one version of all edits": func(t *testing.T, k *workspaceKit) {
			k.write("a", map[string]string{"output/a.md": "1", "plan/p.md": ""})
			ws := k.open("b")
			k.expect(ws, map[string]string{"output/a.md": "1", "plan/p.md": ""})
			if ws.Version() != 1 {
				t.Errorf("version %d, want 1", ws.Version())
			}
		},
		"a view is a snapshot": func(t *testing.T, k *workspaceKit) {
			k.write("a", map[string]string{"output/a.md": "old"})
			early := k.open("a")
			k.write("b", map[string]string{"output/a.md": "new", "output/b.md": "b"})
			k.expect(early, map[string]string{"output/a.md": "old"})
			if _, ok, err := early.At(ctx, 2); ok || err != nil {
				t.Errorf("a view of version 1 sees version 2 (%v, %v)", ok, err)
			}
		},
		"the second of two writers is refused and writes nothing": func(t *testing.T, k *workspaceKit) {
			one, two := k.open("a"), k.open("b")
			one.Write("output/a.md", []byte("one"))
			two.Write("output/b.md", []byte("two"))
			if err := k.Commit(t, one); err != nil {
				t.Fatal(err)
			}
			if err := k.Commit(t, two); err == nil {
				t.Error("edits made against an old version were written")
			}
			k.expect(k.open("c"), map[string]string{"output/a.md": "one"})
		},
		"removed files are gone, and are there in the old version": func(t *testing.T, k *workspaceKit) {
			k.write("a", map[string]string{"output/a.md": "a", "output/b.md": "b"})
			ws := k.open("a")
			ws.Remove("output/a.md")
			k.commit(ws)
			ws = k.open("a")
			k.expect(ws, map[string]string{"output/b.md": "b"})
			files, ok, err := ws.At(ctx, 1)
			if err != nil || !ok || len(files) != 2 || files[0].Path != "output/a.md" || files[1].Path != "output/b.md" {
				t.Fatalf("version 1 holds %v, %v, %v", files, ok, err)
			}
			if data, err := ws.ReadBlob(ctx, files[0].Digest); err != nil || string(data) != "a" {
				t.Errorf("the old file reads %q, %v", data, err)
			}
		},
		"a removed file is no longer known": func(t *testing.T, k *workspaceKit) {
			k.write("a", map[string]string{"output/a.md": "a"})
			ws := k.open("a")
			ws.Learn("output/a.md", specs.DigestOf([]byte("a")))
			k.commit(ws)
			ws = k.open("a")
			ws.Remove("output/a.md")
			if got := ws.Known("output/a.md"); got != "" {
				t.Errorf("still known: %s", got)
			}
			k.commit(ws)
			if got := k.open("a").Known("output/a.md"); got != "" {
				t.Errorf("known again after the commit: %s", got)
			}
		},
		"versions that do not exist are not found": func(t *testing.T, k *workspaceKit) {
			k.write("a", map[string]string{"output/a.md": "a"})
			ws := k.open("a")
			for _, v := range []int64{-1, 0, 2, 1 << 60} {
				if files, ok, err := ws.At(ctx, v); ok || err != nil {
					t.Errorf("At(%d) gives %v, %v, %v", v, files, ok, err)
				}
			}
		},
		"content nobody stored is an error": func(t *testing.T, k *workspaceKit) {
			if data, err := k.open("a").ReadBlob(ctx, specs.DigestOf([]byte("never stored"))); err == nil {
				t.Errorf("got %q", data)
			}
		},
		"read-state belongs to one invocation and commits": func(t *testing.T, k *workspaceKit) {
			k.write("a", map[string]string{"output/a.md": "a"})
			ws := k.open("a")
			d := specs.DigestOf([]byte("a"))
			if got := ws.Known("output/a.md"); got != "" {
				t.Errorf("known before it was learnt: %s", got)
			}
			ws.Learn("output/a.md", d)
			if got := ws.Known("output/a.md"); got != d {
				t.Errorf("not known at once: %q", got)
			}
			if got := k.open("a").Known("output/a.md"); got != "" {
				t.Errorf("known to another view before the commit: %s", got)
			}
			k.commit(ws)
			if got := k.open("a").Known("output/a.md"); got != d {
				t.Errorf("forgotten after the commit: %q", got)
			}
			if got := k.open("b").Known("output/a.md"); got != "" {
				t.Errorf("another invocation knows it: %s", got)
			}
			if v := k.open("a").Version(); v != 1 {
				t.Errorf("a read made version %d", v)
			}
		},
		"every mutation is a checkpoint, and one can be asked for": func(t *testing.T, k *workspaceKit) {
			k.write("a", map[string]string{"output/a.md": "a"})
			ws := k.open("a")
			ws.Checkpoint("before the rewrite")
			k.commit(ws)
			k.write("a", map[string]string{"output/a.md": "b"})
			ws = k.open("a")
			points, err := ws.Checkpoints(ctx)
			if err != nil || len(points) != 3 {
				t.Fatalf("checkpoints %v, %v", points, err)
			}
			for i, p := range points {
				if p.Version != int64(i+1) || p.At.IsZero() {
					t.Errorf("checkpoint %d is %+v", i, p)
				}
			}
			if points[1].Label != "before the rewrite" || points[0].Label != "" {
				t.Errorf("labels %q, %q", points[0].Label, points[1].Label)
			}
		},
		"odd names and bytes are kept": func(t *testing.T, k *workspaceKit) {
			files := map[string]string{"output/a b'\"%_.md": "\x00\xff\r\n", "scratch/日本語/é.txt": "😀", "plan/empty": ""}
			k.write("a", files)
			k.expect(k.open("a"), files)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &workspaceKit{t, open(t)})
		})
	}
}

type workspaceKit struct {
	t *testing.T
	WorkspaceUnderTest
}

func (k *workspaceKit) open(invocation string) tools.Workspace {
	k.t.Helper()
	return k.Open(k.t, invocation)
}

func (k *workspaceKit) commit(ws tools.Workspace) {
	k.t.Helper()
	if err := k.Commit(k.t, ws); err != nil {
		k.t.Fatalf("commit: %v", err)
	}
}

func (k *workspaceKit) write(invocation string, files map[string]string) {
	k.t.Helper()
	ws := k.open(invocation)
	for path, text := range files {
		ws.Write(path, []byte(text))
	}
	k.commit(ws)
}

// expect compares everything a view says about its files with what they should be.
func (k *workspaceKit) expect(ws tools.Workspace, files map[string]string) {
	k.t.Helper()
	list := ws.List()
	if !slices.IsSortedFunc(list, func(a, b tools.File) int { return strings.Compare(a.Path, b.Path) }) {
		k.t.Errorf("the list is not sorted: %v", list)
	}
	if len(list) != len(files) {
		k.t.Errorf("the list has %v, want %d files", list, len(files))
	}
	for path, text := range files {
		f, ok := ws.Stat(path)
		want := tools.File{Path: path, Size: int64(len(text)), Digest: specs.DigestOf([]byte(text))}
		if !ok || f != want || !slices.Contains(list, want) {
			k.t.Errorf("%s: stat %+v, %v; want %+v", path, f, ok, want)
		}
		data, ok, err := ws.Read(context.Background(), path)
		if err != nil || !ok || string(data) != text {
			k.t.Errorf("%s reads %q, %v, %v; want %q", path, data, ok, err, text)
		}
	}
	if f, ok := ws.Stat("output/never-there.md"); ok {
		k.t.Errorf("a file nobody wrote: %+v", f)
	}
	if _, ok, err := ws.Read(context.Background(), "output/never-there.md"); ok || err != nil {
		k.t.Errorf("a file nobody wrote reads %v, %v", ok, err)
	}
}
