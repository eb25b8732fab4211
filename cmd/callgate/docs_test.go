package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every command that the documentation shows is run here, in order, one folder per page. The pages follow four rules:
//
//   - a block marked `console` holds commands ("$ callgate ...") and what they print; "…" stands for anything, and a
//     line of output must be found in what the command printed, in order;
//   - "# exits 3" after a command says that it does; without it the command must exit 0;
//   - a block marked `sh` is a line for a reader's own terminal: its callgate commands run too, and a run may wait there;
//   - a block marked `yaml` whose first line is "# file: NAME" is written to that file.
func TestDocsCommandsRun(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../README.md")
	ran := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := docBlocks(string(text))
		for _, b := range blocks {
			ran += len(b.steps)
		}
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			runPage(t, blocks)
		})
	}
	if ran < 20 {
		t.Errorf("only %d commands found in the documentation: is the marking of blocks still as this test expects?", ran)
	}
}

type docBlock struct {
	line  int
	file  string // yaml: write body here
	body  string
	steps []docStep
}

type docStep struct {
	line int
	args string
	exit int
	rest bool // may end waiting for a person, who would be asked on a terminal
	want []string
}

func docBlocks(text string) []docBlock {
	var blocks []docBlock
	var in *docBlock
	var kind string
	for i, line := range strings.Split(text, "\n") {
		switch {
		case in == nil && (line == "```console" || line == "```yaml" || line == "```sh"):
			kind, in = line[3:], &docBlock{line: i + 1}
		case in != nil && line == "```":
			if name, rest, ok := strings.Cut(in.body, "\n"); kind == "yaml" && ok && strings.HasPrefix(name, "# file: ") {
				in.file, in.body = strings.TrimPrefix(name, "# file: "), rest
				blocks = append(blocks, *in)
			} else if kind != "yaml" {
				blocks = append(blocks, *in)
			}
			in = nil
		case in != nil && kind == "yaml":
			in.body += line + "\n"
		case in != nil && kind == "sh":
			for part := range strings.SplitSeq(line, " && ") {
				if args, ok := strings.CutPrefix(part, "./"); ok {
					in.steps = append(in.steps, docStep{line: i + 1, args: args, rest: true})
				}
			}
		case in != nil && strings.HasPrefix(line, "$ "):
			in.steps = append(in.steps, docStep{line: i + 1, args: line[2:]})
		case in != nil && strings.HasPrefix(line, "# exits ") && len(in.steps) > 0:
			fmt.Sscanf(line, "# exits %d", &in.steps[len(in.steps)-1].exit)
		case in != nil && len(in.steps) > 0 && strings.TrimSpace(line) != "" && strings.TrimSpace(line) != "…":
			s := &in.steps[len(in.steps)-1]
			s.want = append(s.want, line)
		}
	}
	return blocks
}

func runPage(t *testing.T, blocks []docBlock) {
	dir := t.TempDir()
	for _, b := range blocks {
		if b.file != "" {
			name := filepath.Join(dir, filepath.FromSlash(b.file))
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(b.body), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, s := range b.steps {
			args := splitShell(s.args)
			if len(args) == 0 || args[0] != "callgate" {
				continue // cd, go build, psql: not this program's
			}
			var out bytes.Buffer
			code := run(context.Background(), args[1:], env{
				Stdin: bufio.NewReader(strings.NewReader("")), Stdout: &out, Stderr: &out, Dir: dir, User: "you",
				Getenv: func(k string) string { return map[string]string{"HOME": dir}[k] },
			})
			got := out.String()
			if code != s.exit && (!s.rest || code != exitWaiting) {
				t.Errorf("line %d: %s\nexits %d, the page says %d; it printed\n%s", s.line, s.args, code, s.exit, got)
			}
			rest := squeeze(got)
			for _, want := range s.want {
				for _, piece := range strings.Split(want, "…") {
					piece = squeeze(piece)
					at := strings.Index(rest, piece)
					if at < 0 {
						t.Errorf("line %d: %s\nthe page shows %q, the command printed\n%s", s.line, s.args, want, got)
						rest = ""
						break
					}
					rest = rest[at+len(piece):]
				}
			}
		}
	}
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// splitShell splits a command line at blanks, with single and double quotes as a shell has them.
func splitShell(line string) []string {
	var out []string
	var cur strings.Builder
	var quote rune
	open := false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			cur.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ' || r == '\t':
			if open || cur.Len() > 0 {
				out = append(out, cur.String())
			}
			cur.Reset()
			open = false
		default:
			cur.WriteRune(r)
		}
	}
	if open || cur.Len() > 0 {
		out = append(out, cur.String())
	}
	return out
}
