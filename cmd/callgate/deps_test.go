package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The house: six rooms in a line. A room imports only the rooms that are named behind it.
var mayImport = map[string][]string{
	"specs":       {},
	"celpolicy":   {"specs"},
	"machine":     {"specs"},
	"persistence": {"specs", "machine"},
	"tools":       {"specs", "celpolicy", "machine", "persistence"},
	"cmd":         {"specs", "celpolicy", "machine", "persistence", "tools"},
}

// families are the tools themselves. The tools room hands them a workspace, a chat or a view of the skills,
// so that none of them can reach a store on its own.
var families = []string{"workspace", "chat", "worldinfo", "skill", "dice", "delegation"}

// onlyIn holds each engine in the one room that knows how to use it safely. A value with a slash at its
// end means the packages below that room and not its root.
var onlyIn = map[string]string{
	"github.com/google/cel-go":                 "celpolicy",
	"github.com/looplab/fsm":                   "machine",
	"github.com/santhosh-tekuri/jsonschema/v6": "specs",
	"github.com/spf13/cobra":                   "cmd",
	"database/sql":                             "persistence/",
	"github.com/jackc/pgx/v5":                  "persistence/",
	"modernc.org/sqlite":                       "persistence/",
}

// pure rooms decide and do not do: what they are asked twice they answer twice the same.
var (
	pure       = []string{"specs", "celpolicy", "machine"}
	notForPure = []string{"os", "net", "net/http", "os/exec", "math/rand", "math/rand/v2"}
)

const module = "github.com/callgate/callgate"

type listed struct {
	ImportPath, Name, Dir string
	GoFiles, Imports      []string
}

// packages asks the go command, once, for every package of the module with what it imports outside tests. It
// does not compile anything.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Dir,GoFiles,Imports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var list []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			list = append(list, p)
		}
	}
	if len(list) < len(mayImport) {
		t.Fatalf("only %d packages found", len(list))
	}
	return list
}

// wrongImports gives one sentence for every import that the house does not allow.
func wrongImports(list []listed) []string {
	var wrong []string
	for _, p := range list {
		path, ours := strings.CutPrefix(p.ImportPath, module+"/")
		room, below, _ := strings.Cut(path, "/")
		allowed, known := mayImport[room]
		if !ours || !known {
			wrong = append(wrong, fmt.Sprintf("%s is in none of the six rooms", p.ImportPath))
			continue
		}
		for _, imp := range p.Imports {
			say := func(why string) { wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", path, imp, why)) }
			if other, ours := strings.CutPrefix(imp, module+"/"); ours {
				otherRoom, _, _ := strings.Cut(other, "/")
				switch {
				case otherRoom != room && !slices.Contains(allowed, otherRoom):
					say(room + " may not know " + otherRoom)
				case otherRoom == room && below == "":
					say("a room's root is its vocabulary and imports none of its own sub-packages")
				case room == "tools" && slices.Contains(families, firstOf(below)) && otherRoom == "persistence":
					say("a tool family never reaches a store")
				case strings.HasSuffix(other, "test") && !strings.HasSuffix(path, "test"):
					say("a kit for tests is not for programs")
				}
				continue
			}
			for lib, home := range onlyIn {
				if imp != lib && !strings.HasPrefix(imp, lib+"/") {
					continue
				}
				homeRoom, subOnly := strings.CutSuffix(home, "/")
				if room != homeRoom || subOnly && below == "" {
					say("it lives in " + home + " alone")
				}
			}
			if slices.Contains(pure, room) && slices.Contains(notForPure, imp) {
				say(room + " does no I/O")
			}
			if (imp == "testing" || imp == "pgregory.net/rapid") && !strings.HasSuffix(p.Name, "test") {
				say("only a package whose name ends in test may")
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func firstOf(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()
	for _, w := range wrongImports(packages(t)) {
		t.Error(w)
	}
}

// A wrong import of every sort is noticed, and the right ones are not.
func TestAWrongImportIsNoticed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, imp, want string }{
		{"specs", module + "/machine", "specs may not know machine"},
		{"celpolicy", module + "/persistence", "celpolicy may not know persistence"},
		{"machine", module + "/celpolicy", "machine may not know celpolicy"},
		{"machine/machinetest", module + "/tools", "machine may not know tools"},
		{"persistence/sqlite", module + "/celpolicy", "persistence may not know celpolicy"},
		{"persistence", module + "/tools", "persistence may not know tools"},
		{"tools/agent", module + "/cmd/callgate", "tools may not know cmd"},
		{"tools", module + "/tools/workspace", "a room's root is its vocabulary and imports none of its own sub-packages"},
		{"tools/workspace", module + "/persistence", "a tool family never reaches a store"},
		{"tools/skill/index", module + "/persistence", "a tool family never reaches a store"},
		{"tools/agent", module + "/tools/toolstest", "a kit for tests is not for programs"},
		{"tools", "github.com/google/cel-go/cel", "it lives in celpolicy alone"},
		{"persistence", "github.com/looplab/fsm", "it lives in machine alone"},
		{"tools", "github.com/santhosh-tekuri/jsonschema/v6", "it lives in specs alone"},
		{"persistence", "database/sql", "it lives in persistence/ alone"},
		{"tools", "github.com/jackc/pgx/v5/pgxpool", "it lives in persistence/ alone"},
		{"cmd/callgate", "modernc.org/sqlite", "it lives in persistence/ alone"},
		{"machine", "os", "machine does no I/O"},
		{"celpolicy", "net/http", "celpolicy does no I/O"},
		{"tools", "testing", "only a package whose name ends in test may"},
		{"util", "fmt", "is in none of the six rooms"},

		{"celpolicy", module + "/specs", ""},
		{"celpolicy", "github.com/google/cel-go/cel", ""},
		{"persistence/postgres", "github.com/jackc/pgx/v5", ""},
		{"persistence/postgres", module + "/persistence", ""},
		{"tools/agent", module + "/persistence", ""},
		{"tools/workspace", module + "/tools", ""},
		{"machine/machinetest", "testing", ""},
		{"cmd/internal/console", module + "/tools/agent", ""},
	} {
		_, name, _ := strings.Cut(c.from, "/")
		if name == "" {
			name = c.from
		}
		got := wrongImports([]listed{{ImportPath: module + "/" + c.from, Name: name, Imports: []string{c.imp}}})
		switch {
		case c.want == "" && len(got) > 0:
			t.Errorf("%s importing %s is right, got %q", c.from, c.imp, got)
		case c.want != "" && (len(got) != 1 || !strings.HasSuffix(got[0], c.want)):
			t.Errorf("%s importing %s: got %q, want %q", c.from, c.imp, got, c.want)
		}
	}
}
