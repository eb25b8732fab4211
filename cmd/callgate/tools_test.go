package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the list says of a tool is what some call of it would meet: no word is said that no arguments lead to.
func TestToolsSaysWhatArgumentsCouldStillChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rules, want string }{
		"every call is free":         {`{name: a, effect: allow}`, "free"},
		"every call waits":           {`{name: a, effect: allow}, {name: b, effect: approve, approval: &`, "asks"},
		"some wait":                  {`{name: a, effect: allow}, {name: b, effect: approve, when: 'args.path == "x"', approval: &`, "may ask"},
		"some do not wait":           {`{name: a, effect: allow}, {name: w, effect: waive, when: 'args.path == "x"'}, {name: b, effect: approve, approval: &`, "may ask"},
		"a waive of nothing":         {`{name: a, effect: allow}, {name: w, effect: waive, when: 'args.path == "x"'}`, "free"},
		"some are denied":            {`{name: a, effect: allow}, {name: d, effect: deny, when: 'args.path == "x"'}`, "may be refused"},
		"some are hidden":            {`{name: a, effect: allow}, {name: d, effect: hide, when: 'args.path == "x"'}`, "may be refused"},
		"some are granted":           {`{name: a, effect: allow, when: 'args.path == "x"'}`, "may be refused"},
		"granted anyhow":             {`{name: a, effect: allow, when: 'args.path == "x"'}, {name: b, effect: allow}`, "free"},
		"some are denied, all wait":  {`{name: a, effect: allow}, {name: d, effect: deny, when: 'args.path == "x"'}, {name: b, effect: approve, approval: &`, "asks, may be refused"},
		"some are denied, some wait": {`{name: a, effect: allow}, {name: d, effect: deny, when: 'args.path == "x"'}, {name: b, effect: approve, when: 'args.path == "y"', approval: &`, "may ask, may be refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTerminal(t)
			rules := regexp.MustCompile(`effect:`).ReplaceAllString(c.rules, "tools: [workspace.write_file], effect:")
			rules = regexp.MustCompile(`&$`).ReplaceAllString(rules, "{approvers: {users: [bob]}}}")
			text := "apiVersion: callgate/v1\nkind: Profile\nmetadata: {name: p}\nspec: {instructions: x, model: {provider: scripted}}\n---\n" +
				"apiVersion: callgate/v1\nkind: Policy\nmetadata: {name: q}\nspec:\n  layer: profile\n  rules: [" + rules + "]\n"
			if err := os.WriteFile(filepath.Join(w.dir, "gate.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			screen, code := w.types(t, "", "tools", ".", "--profile", "p")
			said := regexp.MustCompile(`(?m)^workspace\.write_file +\S+ +(.*?)  `).FindStringSubmatch(screen)
			if code != exitOK || said == nil || said[1] != c.want {
				t.Errorf("exit %d, want %q:\n%s", code, c.want, screen)
			}
		})
	}
}

// Whoever names no profile is shown the agent that would run: the only one there is, and none where there are several.
func TestTheAgentExplainedIsTheOneThatRuns(t *testing.T) {
	t.Parallel()
	profile := func(name string) string {
		return "apiVersion: callgate/v1\nkind: Profile\nmetadata: {name: " + name + "}\n" +
			"spec: {instructions: x, model: {provider: scripted}, tools: {allow: [workspace.list_files]}}\n---\n"
	}
	for text, found := range map[string]bool{profile("one"): true, profile("one") + profile("two"): false} {
		w := newTerminal(t)
		if err := os.WriteFile(filepath.Join(w.dir, "gate.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ args, want, not string }{
			{"tools .", "workspace.list_files", "no profile is named"},
			{"explain . --tool workspace.list_files", "callable yes", "callable no"},
			{"call . --tool workspace.list_files", "", "no default profile"},
		} {
			want, not := c.want, c.not
			if !found {
				want, not = not, want
			}
			screen, _ := w.types(t, "", strings.Fields(c.args)...)
			if !strings.Contains(screen, want) || not != "" && strings.Contains(screen, not) {
				t.Errorf("%s with the only profile %t: want %q and not %q:\n%s", c.args, found, want, not, screen)
			}
		}
	}
}
