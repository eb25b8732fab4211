package workspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/workspace"
)

func TestWriteCreatesReplacesAndAppends(t *testing.T) {
	d := newT(t, nil)
	r := d.ok(workspace.WriteFile, obj{"path": "output/main.md", "content": "one"})
	if !strings.Contains(text(r), "Created output/main.md") || strings.Contains(text(r), "one") {
		t.Errorf("the result says %q", text(r))
	}
	if len(r.ResourceRefs) != 1 || r.ResourceRefs[0].Ref != "workspace:output/main.md" || r.ResourceRefs[0].Digest != specs.DigestOf([]byte("one")) {
		t.Errorf("refs %+v", r.ResourceRefs)
	}
	d.ok(workspace.WriteFile, obj{"path": "output/main.md", "content": "two", "mode": "replace"}) // an own write needs no read
	d.ok(workspace.WriteFile, obj{"path": "output/main.md", "content": "+\nthree", "mode": "append"})
	d.content("output/main.md", "two+\nthree")
	d.ok(workspace.WriteFile, obj{"path": "output/new.md", "content": "\nx", "mode": "append"})
	d.content("output/new.md", "\nx")
	d.ok(workspace.WriteFile, obj{"path": "output/empty.md", "content": ""})
	d.content("output/empty.md", "")
	d.refused(workspace.WriteFile, obj{"path": "output/main.md", "content": "x", "mode": "overwrite"}, "tool.invalid_arguments", "replace", "append")
	d.refused(workspace.WriteFile, obj{"path": "output/main.md"}, "tool.invalid_arguments", "content")
	d.refused(workspace.WriteFile, obj{"path": "output/main.md", "content": "x", "Mode": "append"}, "tool.invalid_arguments", "Mode")
}

func TestFilesAreBounded(t *testing.T) {
	d := newT(t, map[string]string{"output/a.md": strings.Repeat("a", workspace.MaxFileBytes)})
	d.refused(workspace.WriteFile, obj{"path": "output/b.md", "content": strings.Repeat("a", workspace.MaxFileBytes+1)}, workspace.CodeTooLarge, "Split")
	d.refused(workspace.WriteFile, obj{"path": "output/a.md", "content": "a", "mode": "append"}, workspace.CodeTooLarge)
	d.read("output/a.md")
	d.refused(workspace.ApplyPatch, obj{"path": "output/a.md", "old_string": "a", "new_string": strings.Repeat("b", 1<<16), "replace_all": true}, workspace.CodeTooLarge)
}

func TestReplacingNeedsAFullRead(t *testing.T) {
	d := newT(t, map[string]string{"output/main.md": "first\nsecond\n"})
	d.refused(workspace.WriteFile, obj{"path": "output/main.md", "content": "x"}, workspace.CodeUnreadFile, "workspace_read_file")
	d.refused(workspace.ApplyPatch, obj{"path": "output/main.md", "old_string": "first", "new_string": "x"}, workspace.CodeUnreadFile, "workspace_read_file")
	for _, partial := range []obj{{"start_line": 1}, {"line_count": 2000}, {"start_char": 0}, {"max_chars": 80000}} {
		d.ok(workspace.ReadFile, with(partial, "output/main.md"))
		d.refused(workspace.WriteFile, obj{"path": "output/main.md", "content": "x"}, workspace.CodeUnreadFile)
	}
	d.read("output/main.md")
	other := d.colleague("other")
	other.refused(workspace.WriteFile, obj{"path": "output/main.md", "content": "x"}, workspace.CodeUnreadFile)
	other.read("output/main.md")
	other.ok(workspace.WriteFile, obj{"path": "output/main.md", "content": "changed"})
	d.refused(workspace.WriteFile, obj{"path": "output/main.md", "content": "x"}, workspace.CodeStaleFile, "again")
	d.refused(workspace.ApplyPatch, obj{"path": "output/main.md", "old_string": "changed", "new_string": "x"}, workspace.CodeStaleFile, "again")
	d.content("output/main.md", "changed")
	d.read("output/main.md")
	d.ok(workspace.WriteFile, obj{"path": "output/main.md", "content": "mine"})
}

// An append to a file that was never read must not count as knowing it.
func TestAppendDoesNotUnlockWhatWasNotRead(t *testing.T) {
	d := newT(t, map[string]string{"output/log.md": "unseen"})
	d.ok(workspace.WriteFile, obj{"path": "output/log.md", "content": "+mine", "mode": "append"})
	d.refused(workspace.WriteFile, obj{"path": "output/log.md", "content": "x"}, workspace.CodeUnreadFile)
	d.read("output/log.md")
	d.ok(workspace.WriteFile, obj{"path": "output/log.md", "content": "+more", "mode": "append"})
	d.ok(workspace.ApplyPatch, obj{"path": "output/log.md", "old_string": "more", "new_string": "less"})
	d.tree.Put("output/log.md", "theirs")
	d.ok(workspace.WriteFile, obj{"path": "output/log.md", "content": "+mine", "mode": "append"})
	d.refused(workspace.WriteFile, obj{"path": "output/log.md", "content": "x"}, workspace.CodeStaleFile)
	d.content("output/log.md", "theirs+mine")
}

// W3, against a twin that knows what each of two agents has seen.
func TestW3_ReplaceAndPatchNeedTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	paths := []string{"output/a.md", "scratch/b.md"}
	rapid.Check(t, func(t *rapid.T) {
		root := newDesk(t, map[string]string{"output/a.md": "seed"})
		agents := []*desk{root.colleague("a"), root.colleague("b")}
		now := map[string]string{"output/a.md": "seed"}
		type view struct {
			agent int
			path  string
		}
		known := map[view]string{}
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for path, want := range now {
					if got := root.tree.Text(path); got != want {
						t.Fatalf("%s holds %q, want %q", path, got, want)
					}
				}
			},
			"act": func(t *rapid.T) {
				n++
				who := rapid.IntRange(0, 1).Draw(t, "agent")
				path := rapid.SampledFrom(paths).Draw(t, "path")
				at := view{who, path}
				content, exists := now[path]
				seen, knows := known[at]
				mayWrite := !exists || knows && seen == content
				d := agents[who]
				d.failer = t
				next := fmt.Sprintf("content %d %d", n, rapid.IntRange(0, 1).Draw(t, "variant"))
				switch what := rapid.SampledFrom([]string{"read", "partial", "replace", "append", "patch", "outside", "gone"}).Draw(t, "what"); what {
				case "read":
					if r := d.call(workspace.ReadFile, obj{"path": path}); r.IsError == exists {
						t.Fatalf("read of %s (exists: %v): %s", path, exists, text(r))
					} else if exists {
						known[at] = content
					}
				case "partial":
					d.call(workspace.ReadFile, obj{"path": path, "line_count": 2000})
				case "replace":
					if r := d.call(workspace.WriteFile, obj{"path": path, "content": next}); r.IsError == mayWrite {
						t.Fatalf("replace allowed %v, want %v: %s", !r.IsError, mayWrite, text(r))
					} else if mayWrite {
						now[path], known[at] = next, next
					}
				case "append":
					d.ok(workspace.WriteFile, obj{"path": path, "content": next, "mode": "append"})
					now[path] = content + next
					if mayWrite {
						known[at] = now[path]
					}
				case "patch":
					may := exists && mayWrite && content != "" && content != next
					r := d.call(workspace.ApplyPatch, obj{"path": path, "old_string": content + map[bool]string{true: "x"}[content == ""], "new_string": next})
					if r.IsError == may {
						t.Fatalf("patch allowed %v, want %v: %s", !r.IsError, may, text(r))
					}
					if may {
						now[path], known[at] = next, next
					}
				case "outside":
					root.tree.Put(path, next)
					now[path] = next
				case "gone":
					root.tree.Delete(path)
					delete(now, path)
				}
			},
		})
	})
}

func TestPatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, old, new string
		all            bool
		want, code     string
		says           string
	}{
		"once":                       {file: "a b c", old: "b", new: "B", want: "a B c"},
		"delete":                     {file: "a b c", old: " b", new: "", want: "a c"},
		"over lines":                 {file: "a\nb\nc\n", old: "a\nb", new: "x", want: "x\nc\n"},
		"the whole file":             {file: "a", old: "a", new: "", want: ""},
		"all":                        {file: "b b b", old: "b", new: "bb", all: true, want: "bb bb bb"},
		"all is one":                 {file: "a b", old: "b", new: "c", all: true, want: "a c"},
		"all, overlapping":           {file: "aaa", old: "aa", new: "b", all: true, want: "ba"},
		"special characters":         {file: "$1 .* \\", old: ".*", new: "$0\\1", want: "$1 $0\\1 \\"},
		"no match":                   {file: "a b", old: "c", new: "d", code: workspace.CodePatchNoMatch, says: "does not occur"},
		"no match, all":              {file: "a b", old: "c", new: "d", all: true, code: workspace.CodePatchNoMatch},
		"line ends":                  {file: "a\r\nb\r\n", old: "a\nb", new: "d", code: workspace.CodePatchNoMatch, says: "line ends"},
		"spaces":                     {file: "a  b", old: "a b", new: "d", code: workspace.CodePatchNoMatch, says: "spaces"},
		"case":                       {file: "Alpha", old: "alpha", new: "d", code: workspace.CodePatchNoMatch, says: "upper and lower"},
		"several":                    {file: "b\n\nb\nb b", old: "b", new: "d", code: workspace.CodePatchAmbiguous, says: "occurs 4 times in \"output/f.md\" (lines 1 3 4 4)"},
		"overlapping are several":    {file: "aaa", old: "aa", new: "b", code: workspace.CodePatchAmbiguous, says: "2 times"},
		"very many":                  {file: strings.Repeat("a\n", 5000), old: "a", new: "b", code: workspace.CodePatchAmbiguous, says: "100 or more times"},
		"nothing changes":            {file: "a", old: "a", new: "a", code: workspace.CodePatchNoChange},
		"empty old_string":           {file: "a", old: "", new: "a", code: tools.CodeInvalidArguments, says: "append"},
		"composed is not decomposed": {file: "caf\u00e9", old: "cafe\u0301", new: "x", code: workspace.CodePatchNoMatch},
	} {
		t.Run(name, func(t *testing.T) {
			d := newT(t, map[string]string{"output/f.md": c.file})
			d.read("output/f.md")
			args := obj{"path": "output/f.md", "old_string": c.old, "new_string": c.new, "replace_all": c.all}
			if c.code != "" {
				d.refused(workspace.ApplyPatch, args, c.code, c.says)
				d.content("output/f.md", c.file)
				return
			}
			r := d.ok(workspace.ApplyPatch, args)
			d.content("output/f.md", c.want)
			checkDiff(t, r, c.file, c.want)
			d.ok(workspace.WriteFile, obj{"path": "output/f.md", "content": "patched files count as known"})
		})
	}
	t.Run("a file that is not there", func(t *testing.T) {
		d := newT(t, nil)
		d.refused(workspace.ApplyPatch, obj{"path": "output/f.md", "old_string": "a", "new_string": "b"}, workspace.CodeNotFound, "workspace_write_file")
	})
}

// checkDiff replays the diff that a patch hands over.
func checkDiff(t failer, r tools.Result, before, after string) {
	t.Helper()
	var diffs []tools.Content
	for _, c := range r.Content {
		if c.Type == tools.ContentDiffRef {
			diffs = append(diffs, c)
		}
	}
	if len(diffs) != 1 || int64(len(diffs[0].Data)) != diffs[0].Size || !strings.HasPrefix(diffs[0].MediaType, "text/x-diff") {
		t.Fatalf("diffs %+v", diffs)
	}
	if got := replay(t, string(diffs[0].Data), before); got != after {
		t.Errorf("the diff\n%s\nmakes %q of %q, want %q", diffs[0].Data, got, before, after)
	}
}

// replay applies a unified diff as patch(1) does.
func replay(t failer, diff, before string) string {
	t.Helper()
	old, at := strings.SplitAfter(before, "\n"), 0
	var out strings.Builder
	lines := strings.SplitAfter(diff, "\n")
	for i := 2; i < len(lines) && lines[i] != ""; i++ { // behind the two lines that name the files
		line := lines[i]
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], `\ No newline`) {
			line = strings.TrimSuffix(line, "\n")
		}
		switch line[0] {
		case '@':
			var from int
			if _, err := fmt.Sscanf(line, "@@ -%d", &from); err != nil {
				t.Fatalf("hunk %q: %v", line, err)
			}
			for ; at < from-1; at++ {
				out.WriteString(old[at])
			}
		case ' ', '-':
			if at >= len(old) || old[at] != line[1:] {
				t.Fatalf("line %d of the diff does not fit:\n%s\n%q", i, diff, before)
			}
			at++
		}
		if line[0] == ' ' || line[0] == '+' {
			out.WriteString(line[1:])
		}
	}
	return out.String() + strings.Join(old[at:], "")
}

// Many places in one file must not take time quadratic in their number.
func TestPatchOfManyPlacesIsQuick(t *testing.T) {
	file := strings.Repeat("a", 256<<10)
	d := newT(t, map[string]string{"output/one-line.md": file, "output/overlap.md": file})
	d.read("output/one-line.md")
	d.read("output/overlap.md")
	start := time.Now()
	d.ok(workspace.ApplyPatch, obj{"path": "output/one-line.md", "old_string": "a", "new_string": "b", "replace_all": true})
	d.refused(workspace.ApplyPatch, obj{"path": "output/overlap.md", "old_string": file[:128<<10], "new_string": "b"}, workspace.CodePatchAmbiguous)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzPatch(f *testing.F) {
	f.Add("a b c", "b", "d", false)
	f.Add("aaa", "aa", "b", true)
	f.Add("a\r\nb\n\nc", "\n", "\r\n", true)
	f.Add("no end of line\nhere", "here", "", false)
	f.Fuzz(func(t *testing.T, file, before, after string, all bool) {
		d := newDesk(t, map[string]string{"output/f.md": strings.ToValidUTF8(file, "?")})
		file, before, after = strings.ToValidUTF8(file, "?"), strings.ToValidUTF8(before, "?"), strings.ToValidUTF8(after, "?")
		d.read("output/f.md")
		r := d.call(workspace.ApplyPatch, obj{"path": "output/f.md", "old_string": before, "new_string": after, "replace_all": all})
		want := strings.Replace(file, before, after, 1)
		if all {
			want = strings.ReplaceAll(file, before, after)
		}
		once := before != "" && strings.Index(file, before) == strings.LastIndex(file, before)
		may := before != "" && before != after && strings.Contains(file, before) && (all || once) && len(want) <= workspace.MaxFileBytes
		if r.IsError == may {
			t.Fatalf("patch of %q: %q to %q, all %v: allowed %v, want %v (%s)", file, before, after, all, !r.IsError, may, text(r))
		}
		if !may {
			want = file
		}
		d.content("output/f.md", want)
		if may {
			checkDiff(t, r, file, want)
		}
	})
}

// W8, the part of this family: each mutation stages exactly the bytes whose digest it reports, and makes one version.
func TestW8_EveryMutationReportsTheDigestThatIsStored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(t, nil)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			path := rapid.SampledFrom([]string{"output/a.md", "plan/b.md"}).Draw(t, "path")
			before := d.tree.Version()
			content := rapid.String().Draw(t, "content")
			mode := rapid.SampledFrom([]string{"replace", "append"}).Draw(t, "mode")
			r := d.ok(workspace.WriteFile, obj{"path": path, "content": content, "mode": mode})
			got := facts[struct {
				SHA256, Checkpoint string
				Size               int
			}](t, r)
			stored := d.tree.Text(path)
			if "sha256:"+got.SHA256 != string(specs.DigestOf([]byte(stored))) || got.Size != len(stored) {
				t.Fatalf("the result says %+v, stored is %q", got, stored)
			}
			if d.tree.Version() != before+1 || got.Checkpoint != fmt.Sprint(before+1) {
				t.Fatalf("the version went from %d to %d, the result says %s", before, d.tree.Version(), got.Checkpoint)
			}
			ws := d.tree.Open("root", nil, nil)
			points, err := ws.Checkpoints(t.Context())
			if err != nil || len(points) == 0 || points[len(points)-1].Reason != string(workspace.WriteFile) {
				t.Fatalf("checkpoints %v, %v", points, err)
			}
		}
	})
}

// All but commit can be started again after a crash, because their effects commit with the call's outcome.
func TestOnlyCommitReachesOutside(t *testing.T) {
	t.Parallel()
	for name, ex := range executors {
		_, transactional := ex.(tools.Transactional)
		_, reconciles := ex.(tools.Reconciler)
		if want := name != workspace.Commit; transactional != want || reconciles == want {
			t.Errorf("%s: transactional %v, reconciles %v", name, transactional, reconciles)
		}
	}
	if len(executors) != 9 {
		t.Errorf("%d tools", len(executors))
	}
}
