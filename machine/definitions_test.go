package machine_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/callgate/callgate/machine"
)

// The constants of call.go, run.go, ... and the words of the documents are the same sets: read from the
// sources, so that no list has to be kept by hand.
func TestConstantsAreTheDocumentsWords(t *testing.T) {
	t.Parallel()
	for _, table := range machine.All() {
		t.Run(table.Name(), func(t *testing.T) {
			t.Parallel()
			states, events := constants(t, table.Name()+".go")
			var wantStates, wantEvents []string
			for _, s := range table.States() {
				wantStates = append(wantStates, string(s))
			}
			for _, e := range table.Events() {
				wantEvents = append(wantEvents, string(e))
			}
			same(t, "states", states, wantStates)
			same(t, "events", events, wantEvents)
		})
	}
}

func same(t *testing.T, what string, constants, document []string) {
	t.Helper()
	slices.Sort(constants)
	slices.Sort(document)
	if len(document) == 0 || !slices.Equal(constants, document) {
		t.Errorf("%s: constants %q, document %q", what, constants, document)
	}
}

// constants reads the typed constants of a file, and fails for one without a comment of its own.
func constants(t *testing.T, file string) (states, events []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range parsed.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			value := spec.(*ast.ValueSpec)
			text, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if value.Doc.Text() == "" {
				t.Errorf("%s has no comment", value.Names[0].Name)
			}
			switch value.Type.(*ast.Ident).Name {
			case "State":
				states = append(states, text)
			case "Event":
				events = append(events, text)
			}
		}
	}
	return states, events
}
