package workspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/workspace"
)

type readRange struct{ StartLine, EndLine, StartChar, EndChar int }

type rangeFacts struct {
	Path, SHA256       string
	Size, Chars, Lines int
	Full, More         bool
	Range              *struct {
		StartLine int `json:"start_line"`
		EndLine   int `json:"end_line"`
		StartChar int `json:"start_char"`
		EndChar   int `json:"end_char"`
	}
}

func body(r tools.Result) string { return r.Content[len(r.Content)-1].Text }

func TestReadFull(t *testing.T) {
	const content = "eins\r\nzwei\n\n漢字"
	d := newT(t, map[string]string{"output/main.md": content, "output/empty.md": "", "output/binary": "a\xff"})
	r := d.ok(workspace.ReadFile, obj{"path": "output/main.md"})
	if body(r) != content {
		t.Errorf("read %q, want %q", body(r), content)
	}
	got := facts[rangeFacts](d, r)
	if !got.Full || got.More || got.Range != nil || got.Lines != 4 || got.Chars != 14 || got.Size != len(content) || "sha256:"+got.SHA256 != string(specs.DigestOf([]byte(content))) {
		t.Errorf("facts %+v", got)
	}
	if r = d.ok(workspace.ReadFile, obj{"path": "output/empty.md"}); body(r) != "" || facts[rangeFacts](d, r).Lines != 0 {
		t.Errorf("the empty file reads %q", body(r))
	}
	d.refused(workspace.ReadFile, obj{"path": "output/binary"}, workspace.CodeNotText)
	d.refused(workspace.ReadFile, obj{"path": "output/none.md"}, workspace.CodeNotFound, "workspace_list_files")
	d.refused(workspace.ReadFile, obj{}, tools.CodeInvalidArguments, "path")
}

func TestReadRanges(t *testing.T) {
	const content = "one\ntwo\r\nthree\n四五六"
	for _, c := range []struct {
		args obj
		want string
		more bool
		at   readRange
	}{
		{obj{"start_line": 2, "line_count": 1}, "two\r\n", true, readRange{StartLine: 2, EndLine: 2}},
		{obj{"line_count": 2}, "one\ntwo\r\n", true, readRange{StartLine: 1, EndLine: 2}},
		{obj{"start_line": 3}, "three\n四五六", false, readRange{StartLine: 3, EndLine: 4}},
		{obj{"start_line": 4, "line_count": 1000000}, "四五六", false, readRange{StartLine: 4, EndLine: 4}},
		{obj{"start_char": 4, "max_chars": 3}, "two", true, readRange{StartChar: 4, EndChar: 7}},
		{obj{"max_chars": 1}, "o", true, readRange{EndChar: 1}},
		{obj{"start_char": 16}, "五六", false, readRange{StartChar: 16, EndChar: 18}},
		{obj{"start_char": 15, "max_chars": 2}, "四五", true, readRange{StartChar: 15, EndChar: 17}},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) {
			d := newT(t, map[string]string{"output/main.md": content})
			r := d.ok(workspace.ReadFile, with(c.args, "output/main.md"))
			got := facts[rangeFacts](d, r)
			if body(r) != c.want || got.Full || got.More != c.more || got.Range == nil || readRange(*got.Range) != c.at {
				t.Errorf("read %q, %+v; want %q, %+v", body(r), got, c.want, c)
			}
			if !strings.Contains(text(r), "does not unlock") {
				t.Errorf("says %q", text(r))
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		d := newT(t, map[string]string{"output/main.md": content, "output/empty.md": ""})
		at := func(args obj) obj { return with(args, "output/main.md") }
		d.refused(workspace.ReadFile, at(obj{"start_line": 1, "max_chars": 5}), workspace.CodeMixedRanges, "not both")
		d.refused(workspace.ReadFile, at(obj{"line_count": 1, "start_char": 0}), workspace.CodeMixedRanges)
		d.refused(workspace.ReadFile, at(obj{"start_line": 5}), workspace.CodeInvalidRange, "4 lines")
		d.refused(workspace.ReadFile, at(obj{"start_char": 18}), workspace.CodeInvalidRange, "18 characters")
		for _, args := range []obj{{"start_line": 0}, {"line_count": 0}, {"start_char": -1}, {"max_chars": 80001}, {"start_line": "1"}, {"start_line": 1.5}, {"max_chars": 0}} {
			d.refused(workspace.ReadFile, at(args), tools.CodeInvalidArguments, "whole number")
		}
		for _, args := range []obj{{"start_line": 1}, {"start_char": 0}} {
			if r := d.ok(workspace.ReadFile, with(args, "output/empty.md")); body(r) != "" {
				t.Errorf("the empty file reads %q", body(r))
			}
		}
		d.refused(workspace.ReadFile, obj{"path": "output/empty.md", "start_line": 2}, workspace.CodeInvalidRange, "0 lines")
	})
}

func TestReadOfLargeFilesIsBounded(t *testing.T) {
	d := newT(t, map[string]string{
		"output/lines.md": strings.Repeat("123456789\n", 60000), "output/line.md": strings.Repeat("x", 90000),
	})
	d.refused(workspace.ReadFile, obj{"path": "output/lines.md"}, workspace.CodeTooLarge, "start_line")
	r := d.ok(workspace.ReadFile, obj{"path": "output/lines.md", "line_count": 1 << 30})
	if got := facts[rangeFacts](d, r); len(body(r)) != 20000 || !got.More || got.Range.EndLine != 2000 {
		t.Errorf("read %d bytes, %+v", len(body(r)), got)
	}
	d.refused(workspace.ReadFile, obj{"path": "output/line.md", "start_line": 1}, workspace.CodeInvalidRange, "start_char")
	if r = d.ok(workspace.ReadFile, obj{"path": "output/line.md", "start_char": 1}); len(body(r)) != 80000 {
		t.Errorf("read %d bytes", len(body(r)))
	}
}

// Reading a file part by part gives exactly the file, by lines and by characters.
func TestReadInPartsIsWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.StringOf(rapid.SampledFrom([]rune("ab\n\r漢😀\x00"))).Draw(t, "content")
		d := newDesk(t, map[string]string{"output/f": content})
		byLine, step := rapid.Bool().Draw(t, "by line"), rapid.IntRange(1, 4).Draw(t, "step")
		var got strings.Builder
		for at := 0; ; at += step {
			args := obj{"path": "output/f", "start_char": at, "max_chars": step}
			if byLine {
				args = obj{"path": "output/f", "start_line": at + 1, "line_count": step}
			}
			r := d.ok(workspace.ReadFile, args)
			got.WriteString(body(r))
			if !facts[rangeFacts](d, r).More {
				break
			}
		}
		if got.String() != content {
			t.Fatalf("got %q, want %q", got.String(), content)
		}
	})
}

type listFacts struct {
	Entries []struct {
		Path, Type string
		Size       int
		Files      int
		Writable   bool
	}
	Total     int
	Truncated bool
}

func paths(f listFacts) []string {
	out := []string{}
	for _, e := range f.Entries {
		p := e.Path
		if e.Type == "folder" {
			p += fmt.Sprintf("/%d", e.Files)
		}
		out = append(out, p)
	}
	return out
}

func TestListFiles(t *testing.T) {
	files := map[string]string{
		"output/main.md": "12345", "output/a/b/c/d/e.md": "", "output/a/x.md": "", "scratch/s.md": "", "persist/hidden.md": "", "input/prompt.json": "",
	}
	for _, c := range []struct {
		args obj
		want []string
	}{
		{obj{}, []string{"output/3", "plan/0", "scratch/1", "output/a/2", "output/main.md", "scratch/s.md"}},
		{obj{"depth": 1}, []string{"output/3", "plan/0", "scratch/1"}},
		{obj{"path": "output"}, []string{"output/a/2", "output/a/b/1", "output/a/x.md", "output/main.md"}},
		{obj{"path": "output/", "depth": 1}, []string{"output/a/2", "output/main.md"}},
		{obj{"path": "output/a", "depth": 4}, []string{"output/a/b/1", "output/a/b/c/1", "output/a/b/c/d/1", "output/a/b/c/d/e.md", "output/a/x.md"}},
		{obj{"path": "output/main.md"}, []string{"output/main.md"}},
		{obj{"path": "plan"}, []string{}},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) {
			d := newT(t, files)
			d.visible, d.writable = []string{"output", "plan", "scratch"}, []string{"output"}
			r := d.ok(workspace.ListFiles, c.args)
			got := facts[listFacts](d, r)
			have, want := paths(got), slices.Clone(c.want)
			slices.Sort(have)
			slices.Sort(want)
			if !slices.Equal(have, want) {
				t.Errorf("lists %v, want %v\n%s", have, want, text(r))
			}
			for _, e := range got.Entries {
				if e.Writable != workspace.Within(e.Path, "output") {
					t.Errorf("%+v", e)
				}
			}
			if strings.Contains(text(r), "hidden") || strings.Contains(text(r), "prompt") {
				t.Errorf("shows\n%s", text(r))
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		d := newT(t, files)
		d.visible = []string{"output"}
		d.refused(workspace.ListFiles, obj{"path": "output/none"}, workspace.CodeNotFound)
		d.refused(workspace.ListFiles, obj{"path": "scratch"}, workspace.CodeNotVisible)
		d.refused(workspace.ListFiles, obj{"path": "outpu"}, workspace.CodeNotVisible)
		d.refused(workspace.ListFiles, obj{"depth": 5}, tools.CodeInvalidArguments, "1 to 4")
	})
	t.Run("many", func(t *testing.T) {
		many := map[string]string{}
		for i := range 700 {
			many[fmt.Sprintf("output/%03d.md", i)] = ""
		}
		d := newT(t, many)
		got := facts[listFacts](d, d.ok(workspace.ListFiles, obj{"path": "output"}))
		if len(got.Entries) != 500 || got.Total != 700 || !got.Truncated {
			t.Errorf("%d entries of %d, truncated %v", len(got.Entries), got.Total, got.Truncated)
		}
	})
}

type searchFacts struct {
	Hits []struct {
		Path, Snippet, SHA256, Ref string
		Score                      int
		StartLine                  int `json:"start_line"`
		EndLine                    int `json:"end_line"`
	}
	Total   int
	Skipped []struct{ Path, Why string }
}

func TestSearchFiles(t *testing.T) {
	d := newT(t, map[string]string{
		"output/main.md":    "one\ntwo\nThe Red Dragon\nfour\nfive\nsix\nseven\na dragon that is red\n",
		"plan/p.md":         "nothing here",
		"scratch/binary":    "dragon \xff",
		"persist/hidden.md": "red dragon",
		"summaries/s.md":    "紅い竜が来た。\r\nred\r\n",
	})
	d.visible = []string{"output", "plan", "scratch", "summaries"}
	r := d.ok(workspace.SearchFiles, obj{"query": "red dragon", "context_lines": 1})
	got := facts[searchFacts](d, r)
	if got.Total != 3 || len(got.Hits) != 3 || len(got.Skipped) != 1 || got.Skipped[0].Path != "scratch/binary" {
		t.Fatalf("facts %+v", got)
	}
	first := got.Hits[0]
	if first.Ref != "workspace:output/main.md#L2-L4" || first.Snippet != "two\nThe Red Dragon\nfour" || first.Score != 100 || first.StartLine != 2 || first.EndLine != 4 {
		t.Errorf("the first hit is %+v", first)
	}
	if "sha256:"+first.SHA256 != string(specs.DigestOf([]byte(d.tree.Text("output/main.md")))) {
		t.Errorf("sha256 %s", first.SHA256)
	}
	if got.Hits[1].Ref != "workspace:output/main.md#L7-L8" || got.Hits[1].Score != 90 || got.Hits[2].Score != 45 || got.Hits[2].Snippet != "紅い竜が来た。\nred" {
		t.Errorf("the others are %+v", got.Hits[1:])
	}
	if strings.Contains(text(r), "hidden.md") {
		t.Errorf("shows\n%s", text(r))
	}
	if read := d.ok(workspace.ReadFile, obj{"path": first.Path, "start_line": first.StartLine, "line_count": first.EndLine - first.StartLine + 1}); strings.TrimSuffix(body(read), "\n") != first.Snippet {
		t.Errorf("the range reads %q", body(read))
	}
	if got = facts[searchFacts](d, d.ok(workspace.SearchFiles, obj{"query": "竜が", "path": "summaries"})); got.Total != 1 || got.Hits[0].Score != 100 {
		t.Errorf("facts %+v", got)
	}
	r = d.ok(workspace.SearchFiles, obj{"query": "unicorn"})
	if r.IsError || facts[searchFacts](d, r).Total != 0 || !strings.Contains(text(r), "Nothing") {
		t.Errorf("no hit: %+v", r)
	}
	d.ok(workspace.SearchFiles, obj{"query": "x", "path": "plan/p.md"})
	d.refused(workspace.SearchFiles, obj{"query": "x", "path": "plan/none"}, workspace.CodeNotFound)
	d.refused(workspace.SearchFiles, obj{"query": " \n"}, tools.CodeInvalidArguments, "empty")
	d.refused(workspace.SearchFiles, obj{}, tools.CodeInvalidArguments, "query")
	d.refused(workspace.SearchFiles, obj{"query": "x", "limit": 51}, tools.CodeInvalidArguments, "50")
	d.refused(workspace.SearchFiles, obj{"query": "x", "context_lines": 6}, tools.CodeInvalidArguments, "5")
}

func TestSearchIsBounded(t *testing.T) {
	d := newT(t, map[string]string{
		"output/many.md": strings.Repeat("needle\n"+strings.Repeat("-\n", 20), 100), "output/long.md": strings.Repeat("needle ", 10000),
		"output/dense.md": strings.Repeat("needle\n", 1000),
	})
	got := facts[searchFacts](d, d.ok(workspace.SearchFiles, obj{"query": "needle"}))
	if len(got.Hits) != 20 || got.Total < 100 {
		t.Errorf("%d hits of %d", len(got.Hits), got.Total)
	}
	for _, h := range got.Hits {
		if len(h.Snippet) > 24*405 || h.EndLine-h.StartLine >= 30 {
			t.Errorf("a snippet of %d bytes, lines %d to %d", len(h.Snippet), h.StartLine, h.EndLine)
		}
	}
}

// Every line that holds the query is in some hit, and every hit holds it.
func TestSearchFindsEveryLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"", "x", "hit", "a hit b", "other"}), 0, 40).Draw(t, "lines")
		d := newDesk(t, map[string]string{"output/f": strings.Join(lines, "\n")})
		around := rapid.IntRange(0, 5).Draw(t, "context")
		got := facts[searchFacts](t, d.ok(workspace.SearchFiles, obj{"query": "hit", "limit": 50, "context_lines": around}))
		covered := make([]bool, len(lines))
		for _, h := range got.Hits {
			if want := strings.Join(lines[h.StartLine-1:h.EndLine], "\n"); h.Snippet != want || !strings.Contains(h.Snippet, "hit") {
				t.Fatalf("hit %+v, the lines are %q", h, want)
			}
			for i := h.StartLine - 1; i < h.EndLine; i++ {
				covered[i] = true
			}
		}
		for i, l := range lines {
			if strings.Contains(l, "hit") && !covered[i] {
				t.Fatalf("line %d of %q is in no hit: %+v", i+1, lines, got.Hits)
			}
		}
	})
}
