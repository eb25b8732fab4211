package workspace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/workspace"
)

type rollbackFacts struct {
	Checkpoint                   string
	Restored, Removed, Untouched []string
	Hidden                       int
}

func TestCheckpointsAndRollback(t *testing.T) {
	d := newT(t, nil)
	d.ok(workspace.WriteFile, obj{"path": "output/main.md", "content": "one"})
	r := d.ok(workspace.CreateCheckpoint, obj{"label": "before the rewrite"})
	if !strings.Contains(text(r), "checkpoint 2") || !strings.Contains(text(r), "before the rewrite") {
		t.Errorf("says %q", text(r))
	}
	d.ok(workspace.WriteFile, obj{"path": "output/main.md", "content": "two"})
	d.ok(workspace.WriteFile, obj{"path": "output/extra.md", "content": "x"})
	r = d.ok(workspace.Rollback, obj{"checkpoint": "before the rewrite", "reason": "the first was better"})
	got := facts[rollbackFacts](d, r)
	if got.Checkpoint != "2" || !slices.Equal(got.Restored, []string{"output/main.md"}) || !slices.Equal(got.Removed, []string{"output/extra.md"}) {
		t.Errorf("facts %+v", got)
	}
	d.content("output/main.md", "one")
	if _, still := d.tree.Files()["output/extra.md"]; still {
		t.Error("a file made after the checkpoint is still there")
	}
	// Going forward again works, because every state stays remembered.
	d.ok(workspace.Rollback, obj{"checkpoint": "4"})
	d.content("output/main.md", "two")
	d.content("output/extra.md", "x")
	if r = d.ok(workspace.Rollback, obj{"checkpoint": "4"}); !strings.Contains(text(r), "already as it was") {
		t.Errorf("the second time says %q", text(r))
	}
	for _, name := range []string{"0", "99", "99999999999999999999999", "Before the rewrite", "-1", "output/main.md"} {
		d.refused(workspace.Rollback, obj{"checkpoint": name}, workspace.CodeNoCheckpoint, "before the rewrite", "workspace.write_file")
	}
	d.refused(workspace.Rollback, obj{}, tools.CodeInvalidArguments, "checkpoint")
	for _, label := range []string{"12", " x", "a\nb", "a\u202eb", strings.Repeat("x", 201)} {
		d.refused(workspace.CreateCheckpoint, obj{"label": label}, tools.CodeInvalidArguments, "label")
	}
	newest := d.tree.Version()
	d.ok(workspace.CreateCheckpoint, obj{"label": "before the rewrite"})
	r = d.ok(workspace.Rollback, obj{"checkpoint": "before the rewrite"})
	if got := facts[rollbackFacts](d, r); got.Checkpoint != fmt.Sprint(newest+1) {
		t.Errorf("of two checkpoints with one label it took %s, not the newer %d", got.Checkpoint, newest+1)
	}
}

func TestRollbackWithoutCheckpoints(t *testing.T) {
	d := newT(t, nil)
	d.refused(workspace.Rollback, obj{"checkpoint": "x"}, workspace.CodeNoCheckpoint, "none yet")
}

// What was restored counts as read only when its very content was read before.
func TestRollbackDoesNotUnlockWhatWasNotRead(t *testing.T) {
	d := newT(t, map[string]string{"output/a.md": "first", "output/b.md": "first"})
	d.read("output/a.md")
	d.tree.Put("output/a.md", "second")
	d.tree.Put("output/b.md", "second")
	d.ok(workspace.Rollback, obj{"checkpoint": "1"})
	d.ok(workspace.ApplyPatch, obj{"path": "output/a.md", "old_string": "first", "new_string": "x"})
	d.refused(workspace.ApplyPatch, obj{"path": "output/b.md", "old_string": "first", "new_string": "x"}, workspace.CodeUnreadFile)
}

// W-01, W-02, H49: rollback restores files and absences of what the profile may write, keeps the rest and names it.
func TestCase_W01_W02_H49_RollbackTouchesOnlyWhatItCovers(t *testing.T) {
	d := newT(t, map[string]string{"output/main.md": "old", "plan/plan.md": "old", "persist/MEMORY.md": "old", "scratch/same.md": "same"})
	d.visible, d.writable = []string{"output", "plan"}, []string{"output"}
	for path, content := range map[string]string{
		"output/main.md": "new", "output/later.md": "later", "plan/plan.md": "new", "plan/later.md": strings.Repeat("big", 1<<20),
		"persist/MEMORY.md": "new", "persist/later.md": "later",
	} {
		d.tree.Put(path, content)
	}
	r := d.ok(workspace.Rollback, obj{"checkpoint": "1"})
	want := rollbackFacts{"1", []string{"output/main.md"}, []string{"output/later.md"}, []string{"plan/later.md", "plan/plan.md"}, 2}
	if got := facts[rollbackFacts](d, r); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("facts %+v, want %+v", got, want)
	}
	if !strings.Contains(text(r), "plan/later.md, plan/plan.md") || strings.Contains(text(r), "MEMORY") {
		t.Errorf("says %q", text(r))
	}
	d.content("output/main.md", "old")
	d.content("plan/plan.md", "new")
	d.content("persist/MEMORY.md", "new")
	d.content("scratch/same.md", "same")
	if _, there := d.tree.Files()["output/later.md"]; there {
		t.Error("W-02: a file made later is still there")
	}
	if _, there := d.tree.Files()["plan/later.md"]; !there {
		t.Error("W-01: a file outside what is covered was removed")
	}
}

// W-03, W-04: a checkpoint that cannot be read whole changes nothing and is reported.
func TestCase_W03_W04_RollbackOfADamagedCheckpointChangesNothing(t *testing.T) {
	for name, hurt := range map[string]func(d *desk){
		"content lost":    func(d *desk) { d.tree.Lose(specs.DigestOf([]byte("old z"))) },
		"content changed": func(d *desk) { d.tree.Damage(specs.DigestOf([]byte("old z"))) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newT(t, map[string]string{"output/a.md": "old a", "output/z.md": "old z"})
			d.tree.Put("output/a.md", "new a")
			d.tree.Put("output/z.md", "new z")
			d.tree.Put("output/later.md", "later")
			hurt(d)
			before := d.tree.Files()
			_, err := d.try(workspace.Rollback, obj{"checkpoint": "1"})
			var sys *tools.SystemError
			if !errors.Is(err, persistence.ErrNotFound) && !errors.As(err, &sys) || !strings.Contains(err.Error(), "output/z.md") {
				t.Errorf("the error is %v", err)
			}
			if !maps.Equal(d.tree.Files(), before) {
				t.Errorf("the workspace changed: %v", d.tree.Files())
			}
		})
	}
}

// W5, against a twin that remembers every version as a plain map.
func TestW5_RollbackGivesTheOldTreeForCoveredPaths(t *testing.T) {
	t.Parallel()
	paths := []string{"output/a.md", "output/sub/b.md", "plan/c.md", "persist/d.md", "scratch/e.md"}
	prefixes := []string{"output", "output/sub", "plan", "persist", "scratch"}
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(t, nil)
		history := []map[string]string{{}}
		change := func() {
			now := maps.Clone(history[len(history)-1])
			path := rapid.SampledFrom(paths).Draw(t, "path")
			if _, there := now[path]; there && rapid.Bool().Draw(t, "delete") {
				d.tree.Delete(path)
				delete(now, path)
			} else {
				now[path] = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "content")
				d.tree.Put(path, now[path])
			}
			history = append(history, now)
		}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			change()
		}
		d.visible = rapid.SliceOfDistinct(rapid.SampledFrom(prefixes), rapid.ID).Draw(t, "visible")
		d.writable = rapid.SliceOfDistinct(rapid.SampledFrom(prefixes), rapid.ID).Draw(t, "writable")
		in := func(path string, roots []string) bool {
			return slices.ContainsFunc(roots, func(r string) bool { return strings.HasPrefix(path+"/", r+"/") })
		}
		for range rapid.IntRange(1, 3).Draw(t, "rollbacks") {
			k := rapid.IntRange(1, len(history)-1).Draw(t, "k")
			now, then := history[len(history)-1], history[k]
			want, untouched, hidden := maps.Clone(now), []string{}, 0
			for _, path := range paths {
				a, has := now[path]
				b, had := then[path]
				if has == had && a == b {
					continue
				}
				switch {
				case in(path, d.visible) && in(path, d.writable):
					delete(want, path)
					if had {
						want[path] = b
					}
				case in(path, d.visible):
					untouched = append(untouched, path)
				default:
					hidden++
				}
			}
			slices.Sort(untouched)
			r := d.ok(workspace.Rollback, obj{"checkpoint": fmt.Sprint(k)})
			got := facts[rollbackFacts](d, r)
			if !maps.Equal(d.tree.Files(), want) || !slices.Equal(got.Untouched, untouched) || got.Hidden != hidden {
				t.Fatalf("rollback to %d of %v\n gives %v (%+v)\nwant %v, untouched %v, hidden %d", k, now, d.tree.Files(), got, want, untouched, hidden)
			}
			version := d.tree.Version()
			r = d.ok(workspace.Rollback, obj{"checkpoint": fmt.Sprint(k)}) // twice is once
			if got := facts[rollbackFacts](d, r); len(got.Restored)+len(got.Removed) != 0 || d.tree.Version() != version {
				t.Fatalf("the second rollback did %+v", got)
			}
			for int64(len(history)) <= d.tree.Version() {
				history = append(history, want)
			}
		}
	})
}

// A rollback that is cancelled halfway has done nothing.
func TestCancelledToolsStageNothing(t *testing.T) {
	d := newT(t, map[string]string{"output/a.md": "a"})
	d.read("output/a.md")
	d.tree.Put("output/b.md", "b")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, args := range withPath {
		ws := d.tree.Open("root", nil, nil)
		raw, err := json.Marshal(with(args, "output/a.md"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := executors[name].Execute(ctx, tools.Request{Workspace: ws, Args: raw}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if len(ws.Staged()) > 0 {
			t.Errorf("%s staged %v", name, ws.Staged())
		}
	}
}
