package celpolicy

import (
	"testing"

	"github.com/callgate/callgate/specs"
)

// TestPlanMoves: a plan's conditions read the run's facts and stay where they cannot be decided.
func TestPlanMoves(t *testing.T) {
	t.Parallel()
	plan := func(when string) []string {
		return []string{toolDoc("w.write", openSchema), doc("Plan", "draft", `
  nodes: [{id: write}, {id: review}, {id: done}]
  transitions:
    - {from: write, to: review, when: '`+when+`'}
    - {from: write, to: done, when: run.round > 5}
    - {from: review, to: done}`)}
	}
	p := compile(t, plan(`"main" in run.artifacts && run.commits > 0`)...)
	for _, c := range []struct {
		run  RunFacts
		to   specs.NodeID
		move bool
	}{
		{RunFacts{}, "write", true}, {RunFacts{Node: "write"}, "", false}, {RunFacts{Node: "write", Artifacts: []string{"main"}, Commits: 1}, "review", true},
		{RunFacts{Node: "write", Round: 6}, "done", true}, {RunFacts{Node: "review"}, "done", true}, {RunFacts{Node: "done"}, "", false},
	} {
		to, move, err := p.NextNode("draft", Input{Run: c.run})
		if err != nil || to != c.to || move != c.move {
			t.Errorf("%+v: %s %v %v", c.run, to, move, err)
		}
	}
	if _, move, err := compile(t, plan(`run.round / (run.depth - run.depth) > 0`)...).NextNode("draft", Input{Run: RunFacts{Node: "write", Round: 9}}); move || err == nil {
		t.Errorf("an error moved the plan: %v %v", move, err)
	}
	if _, _, err := p.NextNode("nope", Input{}); err == nil {
		t.Error("an unknown plan")
	}
	for _, when := range []string{`has(args.mode)`, `tool.name == "x"`, `run.round`} {
		if ds := findings(t, plan(when)...).Errors(); len(ds) == 0 {
			t.Errorf("%s loads", when)
		}
	}
}

// TestInvariants of Machine documents.
func TestInvariants(t *testing.T) {
	t.Parallel()
	f, err := CompileInvariant(specs.TextOf(`count(history, "spend") <= 1 && (state != "spent" || "approve" in history)`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		state   string
		history []string
		want    bool
	}{{"pending", nil, true}, {"spent", []string{"approve", "spend"}, true}, {"spent", []string{"spend"}, false}, {"x", []string{"spend", "spend"}, false}} {
		if got, err := f(c.state, c.history); err != nil || got != c.want {
			t.Errorf("%s %v: %v %v", c.state, c.history, got, err)
		}
	}
	for _, bad := range []string{`count(history)`, `state`, `count(history, "x"`, `args.x == 1`, ``} {
		if _, err := CompileInvariant(specs.TextOf(bad)); err == nil {
			t.Errorf("%q compiles", bad)
		} else if _, ok := specs.AsDiagnostics(err); !ok {
			t.Errorf("%q: %v has no place", bad, err)
		}
	}
	f, err = CompileInvariant(specs.TextOf(`1 / (size(history) - 1) > 0`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f("x", []string{"a"}); err == nil {
		t.Error("an invariant that cannot be decided held")
	}
}
