package machine_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
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

// The journal kinds that other programs may rely on.
func TestJournalKinds(t *testing.T) {
	t.Parallel()
	kinds := func(table *machine.Table) []string {
		var list []string
		for _, step := range table.Edges() {
			list = append(list, step.Journal)
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	want := []string{"tool_call_approved", "tool_call_awaiting_approval", "tool_call_cancelled", "tool_call_completed",
		"tool_call_denied", "tool_call_expired", "tool_call_failed", "tool_call_outcome_unknown", "tool_call_ready",
		"tool_call_reconciled", "tool_call_requested", "tool_call_started", "tool_call_timed_out"}
	if got := kinds(machine.Call()); !slices.Equal(got, want) {
		t.Errorf("call writes %q", got)
	}
	for _, kind := range []string{"run_created", "run_completed", "run_failed", "run_partial_success", "run_cancelled",
		"checkpoint_created", "direct_output_captured"} {
		if !slices.Contains(kinds(machine.Run()), kind) {
			t.Errorf("run never writes %s", kind)
		}
	}
}

// Whoever reads a journal may take the end of a run or a call from its line alone: a kind that ends something never also moves it to a state that is not an end.
func TestAKindThatEndsAlwaysEnds(t *testing.T) {
	t.Parallel()
	for _, table := range machine.All() {
		ends := map[string]bool{}
		for _, step := range table.Edges() {
			final := table.IsFinal(step.To)
			if before, ok := ends[step.Journal]; ok && before != final {
				t.Errorf("%s: %s sometimes ends it and sometimes not", table.Name(), step.Journal)
			}
			ends[step.Journal] = final
		}
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

// constants lists the typed constants of a file, and fails for one without a comment of its own.
func constants(t *testing.T, file string) (states, events []string) {
	t.Helper()
	for word, meaning := range meanings(t, file) {
		if len(meaning) < 10 {
			t.Errorf("%s %q has no comment", file, word)
		}
		if state, ok := strings.CutPrefix(word, "State "); ok {
			states = append(states, state)
		} else {
			events = append(events, strings.TrimPrefix(word, "Event "))
		}
	}
	return states, events
}

// meanings reads the comments of the typed constants: by "State x" or "Event x", on one line, without the
// constant's own name.
func meanings(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
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
			comment := strings.Join(strings.Fields(value.Doc.Text()), " ")
			comment = strings.TrimSpace(strings.TrimPrefix(comment, value.Names[0].Name+":"))
			word := value.Type.(*ast.Ident).Name + " " + text
			if _, twice := found[word]; twice {
				t.Errorf("%s: %q is said by two constants", file, word)
			}
			found[word] = comment
		}
	}
	return found
}
