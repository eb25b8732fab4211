package specs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// TestSampleLoadsWithoutFindings: a whole small bundle of every kind.
func TestSampleLoadsWithoutFindings(t *testing.T) {
	t.Parallel()
	b, err := Load(os.DirFS("testdata/sample"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Warnings) > 0 {
		t.Errorf("warnings:\n%s", b.Warnings.Text())
	}
	writer := b.Profile("writer")
	if writer == nil || b.DefaultProfile() != writer {
		t.Fatal("the default profile is not the writer")
	}
	if writer.Context.MaxResultTokens != DefaultMaxResultTokens || writer.Drift.CapturePath != "output/direct_output.md" {
		t.Errorf("defaults are not filled in: %+v %+v", writer.Context, writer.Drift)
	}
	if b.Tool("shell.run").Annotations.Destructive != true || b.Tool("github.get_issue").Annotations.Destructive {
		t.Error("destructive: want true for the shell and false for a read-only tool")
	}
	plan := b.Plan("draft-then-publish")
	if plan.Initial != "draft" || plan.Node("publish").Approval.Quorum != 1 || plan.Node("publish").Approval.TTL != time.Hour {
		t.Errorf("plan: %+v", plan)
	}
	for _, p := range b.Policies {
		if p.Name == "writers" {
			if got := p.Rules[1].When.At(12); b.SourceLine(got) != `        path.within(args.path, "output") || path.within(args.path, "scratch")` || got.Col != 21 {
				t.Errorf("character 12 of the condition is at %v: %q", got, b.SourceLine(got))
			}
		}
	}
	if got := fmt.Sprint(b.RedactFor("shell.run")); got != "[/arguments/token]" {
		t.Errorf("redact: %s", got)
	}
	if wait := b.Machines[0].Waiting; wait[0].Owner != "person" || wait[1].Timer != "expire" {
		t.Errorf("waiting: %+v", wait)
	}
}

// TestBadFolders: what cannot be a bundle is said in one sentence, with the cause for programs.
func TestBadFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		fsys fs.FS
		code string
		is   error
	}{
		{"missing folder", os.DirFS(dir + "/none"), "no-folder", fs.ErrNotExist},
		{"empty folder", os.DirFS(dir), "no-yaml", nil},
		{"no YAML", fstest.MapFS{"a.txt": {}}, "no-yaml", nil},
		{"empty file", fstest.MapFS{"a.yaml": {}}, "no-documents", nil},
		{"only comments", fstest.MapFS{"a.yaml": {Data: []byte("# later\n---\n# more\n")}}, "no-documents", nil},
		{"binary file", fstest.MapFS{"a.yaml": {Data: []byte("\x7fELF\x02\x01\x01\x00")}}, "control-character", nil},
		{"UTF-16", fstest.MapFS{"a.yaml": {Data: []byte("\xff\xfea\x00")}}, "not-utf8", nil},
		{"invalid UTF-8", fstest.MapFS{"a.yaml": {Data: []byte("a: \xc3\x28")}}, "not-utf8", nil},
		{"a text as a document", fstest.MapFS{"a.yaml": {Data: []byte("hello")}}, "wrong-type", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, err := Load(c.fsys, LoadOptions{})
			ds, ok := AsDiagnostics(err)
			if b != nil || !ok || len(ds) != 1 || ds[0].Code != c.code {
				t.Fatalf("want %s, got %v (bundle %v)", c.code, err, b != nil)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("errors.Is does not find the cause")
			}
		})
	}
}

// hugeFS has one file that claims 100 MB and fails the test when it is read.
type hugeFS struct {
	fstest.MapFS
	t *testing.T
}

func (h hugeFS) Open(name string) (fs.File, error) {
	if name == "huge.yaml" {
		h.t.Error("the huge file was opened")
	}
	return h.MapFS.Open(name)
}

func (h hugeFS) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(h.MapFS, name)
	if name == "huge.yaml" {
		return hugeInfo{info}, err
	}
	return info, err
}

type hugeInfo struct{ fs.FileInfo }

func (hugeInfo) Size() int64 { return 100 << 20 }

func TestHugeFileIsRefusedUnread(t *testing.T) {
	t.Parallel()
	small := &fstest.MapFile{Data: []byte(doc("Profile", "p", "displayName: x"))}
	_, err := Load(hugeFS{fstest.MapFS{"huge.yaml": {}, "later.yaml": small}, t}, LoadOptions{})
	ds, _ := AsDiagnostics(err)
	if len(ds) != 1 || ds[0].Code != "too-large" || ds[0].Pos.File != "huge.yaml" {
		t.Errorf("got %v", err)
	}
}

// TestHostileYAMLIsRefusedQuickly: bombs end in an error, soon and in little memory.
func TestHostileYAMLIsRefusedQuickly(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ","))
	}
	var indent strings.Builder
	for i := range 2000 {
		indent.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for _, c := range []struct{ name, text string }{
		{"alias bomb", bomb},
		{"self alias", "a: &a [*a]\n"},
		{"20,000 brackets", strings.Repeat("[", 20000) + strings.Repeat("]", 20000)},
		{"20,000 open brackets", "a: " + strings.Repeat("[", 20000)},
		{"20,000 braces", strings.Repeat("{a: ", 20000) + strings.Repeat("}", 20000)},
		{"20,000 dashes", strings.Repeat("- ", 20000) + "a"},
		{"20,000 question marks", strings.Repeat("? ", 20000) + "a"},
		{"2,000 levels of indentation", indent.String()},
		{"a million unknown keys", doc("Profile", "p", strings.Repeat("x", 1<<20)+": 1")},
		{"many findings", doc("Profile", "p", strings.Repeat("? [a]\n: b\n", 20000))},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			_, err := load(c.text, LoadOptions{})
			ds, ok := AsDiagnostics(err)
			if !ok || len(ds.Errors()) == 0 {
				t.Fatal("it loads")
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if text := ds.Text(); len(text) > 1<<20 {
				t.Errorf("the report is %d bytes", len(text))
			}
		})
	}
}

// TestCRLFAndBOM: a file saved on another system means the same and has the same places.
func TestCRLFAndBOM(t *testing.T) {
	t.Parallel()
	text := doc("Policy", "p", "layer: user\nrules:\n  - name: r\n    tools: [\"*\"]\n    effect: deny\n    when: |\n      a &&\n      b\n    message: >-\n      one\n      two")
	unix, err := load(text, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dos, err := load("\ufeff"+strings.ReplaceAll(text, "\n", "\r\n"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if unix.Digest != dos.Digest {
		t.Error("line ends change the digest")
	}
	a, b := unix.Policies[1].Rules[0], dos.Policies[1].Rules[0]
	if b.When.Value != "a &&\nb\n" || b.When.At(5) != a.When.At(5) || b.When.At(5) != (Pos{"a.yaml", 12, 9}) || b.Message.At(4) != a.Message.At(4) {
		t.Errorf("%q: %v and %v", b.When.Value, a.When.At(5), b.When.At(5))
	}
}

// TestPartial: unusable documents are left out, and their layers deny.
func TestPartial(t *testing.T) {
	t.Parallel()
	good := doc("Profile", "p", "tools: {allow: [\"workspace.list_files\"]}")
	for _, c := range []struct {
		name, text string
		level      Level
		want       LayerName
	}{
		{"a policy with a bad rule", doc("Policy", "q", "layer: user\nrules: [{name: r, tools: [\"*\"], effect: dney}]"), PlatformLevel, LayerUser},
		{"a policy of no known layer", doc("Policy", "q", "layer: usr\nrules: []"), PlatformLevel, LayerPlatform},
		{"broken YAML", "a: [\n", PlatformLevel, LayerPlatform},
		{"broken YAML of a tenant", "a: [\n", TenantLevel, LayerUser},
		{"a profile that names an unknown tool", doc("Profile", "q", "tools: {allow: [\"workspace.lst_files\"]}"), PlatformLevel, LayerProfile},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			files := []File{{"a.yaml", []byte(good)}, {"b.yaml", []byte(c.text)}}
			if _, err := LoadFiles(files, LoadOptions{Level: c.level}); err == nil {
				t.Fatal("it loads without Partial")
			}
			b, err := LoadFiles(files, LoadOptions{Level: c.level, Partial: true})
			if err != nil {
				t.Fatal(err)
			}
			if b.Profile("p") == nil || b.Profile("q") != nil || len(b.Unreadable) != 1 || b.Unreadable[0] != c.want || len(b.Warnings.Errors()) == 0 {
				t.Errorf("unreadable %v, findings:\n%s", b.Unreadable, b.Warnings.Text())
			}
		})
	}
}

// TestTenantLevel: a tenant's own documents cannot reach outside, or speak for the platform.
func TestTenantLevel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		line, col  int
	}{
		{"a command", doc("Source", "s", "type: mcp\ntransport: {command: [sh]}"), 6, 15},
		{"an address", doc("Source", "s", "type: mcp\ntransport: {url: \"https://x\"}"), 6, 15},
		{"headers", doc("Source", "s", "type: mcp\ntransport: {headers: {A: \"env:B\"}}"), 6, 15},
		{"a folder", doc("Source", "s", "type: skill\nroot: /etc"), 6, 3},
		{"secrets", doc("Tenant", "t", "secrets: {a: \"env:B\"}"), 5, 3},
		{"the platform layer", doc("Policy", "p", "layer: platform\nrules: []"), 5, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if b, err := load(c.text, LoadOptions{}); err != nil || len(b.Warnings) > 0 {
				t.Errorf("the operator may not write it: %v", err)
			}
			wantOnly(t, findings(t, c.text, LoadOptions{Level: TenantLevel}), "operator-only", c.line, c.col, "operator")
		})
	}
}
