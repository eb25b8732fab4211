package celpolicy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
)

// Patterns that count their repetitions work, constant or not, and are weighed by what they unfold to: a short text may be a
// large program. Nothing that an author or a model writes as a pattern is more than an error.
func TestP11_CountedRepetitionsAreWeighedUnfolded(t *testing.T) {
	t.Parallel()
	policy := func(when string) (*Policy, error) {
		return Compile(&specs.Bundle{
			Tools: []*specs.Tool{{Meta: specs.Meta{Name: "t.one"}, Source: specs.ToolSource{Kind: specs.SourceBuiltIn},
				InputSchema: specs.Schema{Raw: json.RawMessage(`{"type":"object"}`)}}},
			Policies: []*specs.Policy{{Meta: specs.Meta{Name: "p"}, Layer: specs.LayerPlatform, Rules: []specs.Rule{
				{Name: "r", Tools: texts1("*"), Effect: specs.EffectDeny, When: specs.TextOf(when)}}}},
		})
	}
	outcome := func(t *testing.T, p *Policy, s, re string) Outcome {
		t.Helper()
		args, err := json.Marshal(map[string]string{"s": s, "re": re})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range p.Resolve(Input{Phase: PhaseCall, Tool: "t.one", Args: args, Trace: true}).Trace {
			if v.Rule == "p/r" {
				return v.Outcome
			}
		}
		t.Fatal("the rule has no voice")
		return ""
	}
	dynamic, err := policy("args.s.matches(args.re)")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ab", 50_000)
	for _, c := range []struct {
		pattern, text string
		want          Outcome // empty: too large to load, and an error as an argument
	}{
		{"^[a-z]{2,4}$", "abc", Matched},
		{"^[a-z]{2,4}$", "abcde", Unmatched},
		{"^(ab){3}$", "ababab", Matched},
		{"^(a{0,3}){0,3}$", "aaaa", Matched},
		{"x{1000}", "x", Unmatched},
		{"((a|b){30}){30}", long, ""},
		{"(a{1000})(b{1000})(c{1000})", "a", ""},
		{"((a{0,30}){0,30}){0,1}c", long, Errored},
	} {
		t.Run(c.pattern, func(t *testing.T) {
			t.Parallel()
			p, err := policy(fmt.Sprintf("args.s.matches('%s')", c.pattern))
			want := c.want
			if want == "" {
				if err == nil || !strings.Contains(err.Error(), "states") {
					t.Errorf("loads: %v", err)
				}
				want = Errored
			} else if err != nil {
				t.Fatal(err)
			} else if got := outcome(t, p, c.text, ""); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if got := outcome(t, dynamic, c.text, c.pattern); got != want {
				t.Errorf("as an argument %s, want %s", got, want)
			}
		})
	}
}
