package main_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// silent says what is missing from a package's introduction: what it is, what a reader most likely wants from it,
// one small example, the promises it keeps.
func silent(name, doc string) string {
	lead := "Package " + name + " "
	if name == "main" {
		lead = "Command "
	}
	switch {
	case strings.TrimSpace(doc) == "":
		return "has no package comment"
	case !strings.HasPrefix(doc, lead):
		return fmt.Sprintf("its comment does not start with %q", lead)
	case len(doc) < 200:
		return fmt.Sprintf("introduces itself in %d bytes; nobody learns what it is for from that", len(doc))
	case !strings.Contains(strings.ToLower(doc), "most likely want"):
		return `does not say what a reader "most likely wants" from it`
	case !strings.Contains(doc, "\n\t"):
		return "shows no example (an indented block)"
	case !strings.Contains(strings.ToLower(doc), "promise"):
		return "does not say what it promises"
	}
	return ""
}

func TestEveryPackageIntroducesItself(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		var docs []string
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Error(err)
				continue
			}
			if parsed.Doc != nil {
				docs = append(docs, parsed.Doc.Text())
			}
		}
		if len(docs) > 1 {
			t.Errorf("%s introduces itself in %d files", p.ImportPath, len(docs))
			continue
		}
		if missing := silent(p.Name, strings.Join(docs, "")); missing != "" {
			t.Errorf("%s %s", p.ImportPath, missing)
		}
	}
}

func TestASilentPackageIsNoticed(t *testing.T) {
	t.Parallel()
	good := "Package gate lets calls through.\n\n" + strings.Repeat("It is careful. ", 20) +
		"\n\nWhat you most likely want is Open:\n\n\tgate.Open()\n\nPromises: it closes again.\n"
	if missing := silent("gate", good); missing != "" {
		t.Errorf("a good introduction %s", missing)
	}
	for _, bad := range []string{
		"",
		"gate lets calls through.\n",
		"Package gate lets calls through.\n",
		strings.Replace(good, "most likely want", "need", 1),
		strings.Replace(good, "\n\t", "\n", 1),
		strings.Replace(good, "Promises", "Note", 1),
	} {
		if silent("gate", bad) == "" {
			t.Errorf("this was taken for an introduction:\n%s", bad)
		}
	}
}
