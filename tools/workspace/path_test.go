package workspace_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools/toolstest"
	"github.com/callgate/callgate/tools/workspace"
)

// attacks are path texts that must never mean a file. says is what the model must find in the answer.
var attacks = []struct{ name, path, code, says string }{
	{"empty", "", workspace.CodeInvalidPath, "output/main.md"},
	{"parent", "../etc/passwd", workspace.CodeInvalidPath, "upwards"},
	{"parent below a root", "output/../../etc/passwd", workspace.CodeInvalidPath, "upwards"},
	{"parent that stays inside", "output/../persist/MEMORY.md", workspace.CodeInvalidPath, "upwards"},
	{"parent at the end", "output/..", workspace.CodeInvalidPath, "upwards"},
	{"dot", "./output/main.md", workspace.CodeInvalidPath, "Leave the . out"},
	{"dot only", ".", workspace.CodeInvalidPath, ""},
	{"absolute", "/etc/passwd", workspace.CodeInvalidPath, "leading slash"},
	{"absolute root", "/output/main.md", workspace.CodeInvalidPath, "leading slash"},
	{"slash", "/", workspace.CodeInvalidPath, ""},
	{"NUL", "output/main.md\x00.png", workspace.CodeInvalidPath, "NUL"},
	{"NFD", "output/cafe\u0301.md", workspace.CodeInvalidPath, "output/caf\u00e9.md"},
	{"backslash", `output\..\..\secret`, workspace.CodeInvalidPath, "backslash"},
	{"UNC", `\\server\share`, workspace.CodeInvalidPath, "backslash"},
	{"drive", "C:/Windows/win.ini", workspace.CodeInvalidPath, "drive"},
	{"drive relative", "c:output/main.md", workspace.CodeInvalidPath, "drive"},
	{"URI", "file:///etc/passwd", workspace.CodeInvalidPath, "empty part"},
	{"reference", "workspace:output/main.md#L1-L2", workspace.CodeInvalidPath, "output/main.md"},
	{"double slash", "output//main.md", workspace.CodeInvalidPath, "empty part"},
	{"line break", "output/a\nb", workspace.CodeInvalidPath, "U+000A"},
	{"bidi override", "output/\u202egnp.md", workspace.CodeInvalidPath, "U+202E"},
	{"zero width", "output/ma\u200bin.md", workspace.CodeInvalidPath, "U+200B"},
	{"replacement character", "output/\ufffd.md", workspace.CodeInvalidPath, "UTF-8"},
	{"very long", "output/" + strings.Repeat("a/", 600) + "a", workspace.CodeInvalidPath, "1024"},
	{"very long name", "output/" + strings.Repeat("é", 128), workspace.CodeInvalidPath, "255"},
	{"case", "Output/main.md", workspace.CodeNotVisible, "output/main.md"},
	{"case of a whole word", "PERSIST/MEMORY.md", workspace.CodeNotVisible, "persist/MEMORY.md"},
	{"neighbour of a root", "output-secret/main.md", workspace.CodeNotVisible, "output/"},
	{"arguments of calls", "tool-args/call_0011223344556677.json", workspace.CodeNotVisible, "output/"},
	{"results of calls", "tool-results/call_0011223344556677.json", workspace.CodeNotVisible, "output/"},
	{"the prompt", "input/prompt.json", workspace.CodeNotVisible, "output/"},
	{"the journal", "events.jsonl", workspace.CodeNotVisible, "output/"},
	{"home", "~/.ssh/id_rsa", workspace.CodeNotVisible, "output/"},
}

// withPath are the tools that take a path, with what else they need.
var withPath = map[specs.ToolName]obj{
	workspace.ListFiles:   {},
	workspace.SearchFiles: {"query": "secret"},
	workspace.ReadFile:    {},
	workspace.WriteFile:   {"content": "owned"},
	workspace.ApplyPatch:  {"old_string": "secret", "new_string": "owned"},
	workspace.Commit:      {},
}

func with(args obj, path string) obj {
	out := obj{"path": path}
	for k, v := range args {
		out[k] = v
	}
	return out
}

// Files that exist below hidden stores: no path text may reach them.
var hiddenFiles = map[string]string{
	"output/main.md": "draft", "persist/MEMORY.md": "memory",
	"tool-args/call_0011223344556677.json": "secret", "tool-results/call_0011223344556677.json": "secret",
	"input/prompt.json": "secret", "events.jsonl": "secret", "output-secret/main.md": "secret",
}

func TestPathAttacksAreRecoverableOnEveryTool(t *testing.T) {
	t.Parallel()
	for name, args := range withPath {
		for _, a := range attacks {
			if a.path == "" && (name == workspace.ListFiles || name == workspace.SearchFiles) {
				continue // there it stands for everything that is visible
			}
			t.Run(string(name)+"/"+a.name, func(t *testing.T) {
				d := newT(t, hiddenFiles)
				host := &toolstest.FakeHost{}
				d.req.Host = host
				d.refused(name, with(args, a.path), a.code, a.says)
				if got := d.tree.Files(); len(got) != len(hiddenFiles) || d.tree.Version() != 1 {
					t.Errorf("the workspace changed: %v", got)
				}
				if len(host.Messages("")) > 0 {
					t.Error("something was committed")
				}
			})
		}
	}
}

// The remaining tools take no path; what looks like one is only a label or an unknown argument.
func TestPathAttacksOnToolsWithoutPath(t *testing.T) {
	t.Parallel()
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			d := newT(t, hiddenFiles)
			for name, args := range map[specs.ToolName]obj{workspace.CreateCheckpoint: {}, workspace.Rollback: {"checkpoint": "1"}, workspace.Finish: {}} {
				d.refused(name, with(args, a.path), "tool.invalid_arguments", "path")
			}
			if r := d.call(workspace.Rollback, obj{"checkpoint": a.path}); !r.IsError {
				t.Errorf("rolled back to %q", a.path)
			}
			if got := d.tree.Files(); len(got) != len(hiddenFiles) || d.tree.Version() != 1 {
				t.Errorf("the workspace changed: %v", got)
			}
		})
	}
}

func TestFoldersAreNotFiles(t *testing.T) {
	for name, args := range withPath {
		if name == workspace.ListFiles || name == workspace.SearchFiles {
			continue
		}
		t.Run(string(name), func(t *testing.T) {
			d := newT(t, map[string]string{"output/notes/a.md": "a"})
			d.visible = []string{"output", "persist/long/term"}
			for _, path := range []string{"output", "output/", "output/notes", "output/notes/", "persist", "persist/long"} {
				d.refused(name, with(args, path), workspace.CodePathIsDirectory, "workspace_list_files")
			}
		})
	}
}

// W7: what is wrong with the text of a path is always the model's to mend.
func TestW7_AnyPathTextIsRecoverable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(t, hiddenFiles)
		d.visible, d.writable = []string{"output", "plan"}, []string{"output"}
		path := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`(output|plan|persist|input|Output|\.\.?|C:)?[/\\]{0,2}[a-z.\x00é]{0,6}[/\\]{0,2}`),
			rapid.SampledFrom(attacks2paths()),
		).Draw(t, "path")
		for name, args := range withPath {
			r := d.call(name, with(args, path)) // fails the test when the run breaks
			if r.IsError {
				continue
			}
			if path == "" && (name == workspace.ListFiles || name == workspace.SearchFiles) {
				continue
			}
			if !workspace.Within(strings.TrimSuffix(path, "/"), "output") && !workspace.Within(strings.TrimSuffix(path, "/"), "plan") {
				t.Fatalf("%s accepted the path %q", name, path)
			}
		}
	})
}

func attacks2paths() []string {
	var out []string
	for _, a := range attacks {
		out = append(out, a.path)
	}
	return out
}

// W7: a path that cannot have come in through a tool, found inside the store, is nobody's mistake to mend.
func TestW7_EscapeFoundInTheStoreBreaksTheRun(t *testing.T) {
	for _, bad := range []string{"../outside", "/etc/passwd", "output/../x", "output\\x", "output/a\x00", "output/e\u0301"} {
		t.Run(bad, func(t *testing.T) {
			d := newT(t, map[string]string{"output/main.md": "x"})
			d.read("output/main.md")
			d.tree.Put(bad, "planted")
			d.tree.Put("output/main.md", "x")
			for _, name := range []specs.ToolName{workspace.ListFiles, workspace.SearchFiles} {
				d.broken(name, with(withPath[name], "output"), "workspace.escape")
			}
			d.broken(workspace.Rollback, obj{"checkpoint": "1"}, "workspace.escape")
			d.tree.Delete(bad)
			d.broken(workspace.Rollback, obj{"checkpoint": "2"}, "workspace.escape")
			d.content("output/main.md", "x")
		})
	}
}

func TestCleanAcceptsWhatPeopleWrite(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"output/main.md", "output/Kapitel 1/Straße (neu).md", "scratch/日本語/メモ.txt", "plan/caf\u00e9.md", "persist/.hidden", "output/a..b",
		"output/...", "summaries/x:y", "output/😀.md", "output/" + strings.Repeat("a", 255), "output/" + strings.Repeat("a/", 508) + "b",
	} {
		if got, err := workspace.Clean(path); got != path || err != nil {
			t.Errorf("Clean(%q) = %q, %v", path, got, err)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, a := range attacks {
		f.Add(a.path)
	}
	f.Add("output/main.md")
	f.Fuzz(func(t *testing.T, path string) {
		got, err := workspace.Clean(path)
		if err != nil {
			var bad *workspace.PathError
			if !errors.As(err, &bad) || bad.Why == "" {
				t.Fatalf("Clean(%q) gives the error %v", path, err)
			}
			if !utf8.ValidString(err.Error()) || strings.ContainsRune(err.Error(), 0) {
				t.Fatalf("the message for %q cannot be shown: %q", path, err)
			}
			return
		}
		if got != path {
			t.Fatalf("Clean(%q) repaired it to %q", path, got)
		}
		if !utf8.ValidString(path) || !norm.NFC.IsNormalString(path) || len(path) > workspace.MaxPathBytes || path == "" {
			t.Fatalf("Clean accepted %q", path)
		}
		for _, seg := range strings.Split(path, "/") {
			if seg == "" || seg == "." || seg == ".." || len(seg) > workspace.MaxSegmentBytes || strings.ContainsAny(seg, "\\\x00\n\r\x7f") {
				t.Fatalf("Clean accepted %q with the part %q", path, seg)
			}
		}
	})
}

// H16, H18, H19, W-05, W-06: containment is by whole parts, for paths that exist and for those that do not yet.
func TestCase_W05_W06_H16_H18_ContainmentIsByParts(t *testing.T) {
	d := newT(t, map[string]string{"output/share/a.md": "a", "output/share-secret/a.md": "s", "output/sharea.md": "s"})
	d.visible, d.writable = []string{"output/share"}, []string{"output/share/mine"}
	d.read("output/share/a.md")
	for _, path := range []string{"output/share-secret/a.md", "output/share-secret/new.md", "output/sharea.md", "output/other/new.md", "scratch/new.md"} {
		d.refused(workspace.ReadFile, obj{"path": path}, workspace.CodeNotVisible, "output/share/")
		d.refused(workspace.WriteFile, obj{"path": path, "content": "x"}, workspace.CodeNotVisible)
	}
	d.refused(workspace.WriteFile, obj{"path": "output/share/mine-not.md", "content": "x"}, workspace.CodeNotWritable, "output/share/mine/")
	d.ok(workspace.WriteFile, obj{"path": "output/share/mine/a.md", "content": "x"})
	if r := d.ok(workspace.SearchFiles, obj{"query": "s"}); strings.Contains(text(r), "secret") {
		t.Errorf("the search shows %s", text(r))
	}
}

// H19: an agent cannot widen its own rights by writing files that the gate reads.
func TestCase_H19_SettingsAreNotWritable(t *testing.T) {
	d := newT(t, map[string]string{"profiles/writer.yaml": "kind: Profile", ".callgate/policy.yaml": "x"})
	for _, path := range []string{"profiles/writer.yaml", ".callgate/policy.yaml", "policy.yaml", ".vscode/settings.json"} {
		d.refused(workspace.WriteFile, obj{"path": path, "content": "allow: ['*']"}, workspace.CodeNotVisible)
		d.refused(workspace.ReadFile, obj{"path": path}, workspace.CodeNotVisible)
	}
	d.content("profiles/writer.yaml", "kind: Profile")
	// Roots that a profile names beyond the five are still not files of the workspace.
	d.visible, d.writable = []string{"profiles", "output"}, []string{"profiles", "output"}
	d.refused(workspace.WriteFile, obj{"path": "profiles/writer.yaml", "content": "x"}, workspace.CodeNotVisible)
}

func TestNothingLiesBelowAFile(t *testing.T) {
	d := newT(t, map[string]string{"output/a": "file"})
	d.refused(workspace.WriteFile, obj{"path": "output/a/b.md", "content": "x"}, workspace.CodeParentIsFile, "output/a")
	d.refused(workspace.WriteFile, obj{"path": "output/a/b/c.md", "content": "x"}, workspace.CodeParentIsFile, "output/a")
	d.refused(workspace.ReadFile, obj{"path": "output/a/b.md"}, workspace.CodeNotFound)
	d.ok(workspace.WriteFile, obj{"path": "output/ab/b.md", "content": "x"})
}
