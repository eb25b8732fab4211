package celpolicy_test

import (
	"fmt"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
)

const bundle = `
apiVersion: callgate/v1
kind: Tool
metadata: {name: notes.write}
spec:
  title: Write a note
  description: Writes one note.
  source: built_in
  inputSchema: {type: object, additionalProperties: false, required: [path], properties: {path: {type: string}}}
  annotations: {sideEffect: workspace}
---
apiVersion: callgate/v1
kind: Profile
metadata: {name: writer}
spec: {tools: {allow: ["notes.*"]}}
---
apiVersion: callgate/v1
kind: Policy
metadata: {name: drafts}
spec:
  layer: platform
  rules:
    - name: only-drafts
      tools: ["notes.*"]
      when: '!path.within(args.path, "drafts")'
      effect: approve
      reason: '"A person looks at " + args.path + " first."'
`

func Example() {
	b, err := specs.LoadFiles([]specs.File{{Name: "bundle.yaml", Data: []byte(bundle)}}, specs.LoadOptions{NoCatalog: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := celpolicy.Compile(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range []string{"drafts/a.md", "memory.md"} {
		d := policy.Resolve(celpolicy.Input{
			Phase: celpolicy.PhaseCall, Tool: "notes.write", Args: []byte(`{"path": "` + path + `"}`),
			Run: celpolicy.RunFacts{Profile: "writer"},
		})
		fmt.Println(d.Callable, d.ApprovalRequired, d.Reason)
	}
	// Output:
	// true false writer/tools.allow allows it
	// true true A person looks at memory.md first.
}

// A Surface is the policy as one run meets it. It is asked for the model's list once a turn and for a short answer before each
// call; Resolve gives the whole decision, with reasons and budgets, where that is wanted.
func ExamplePolicy_Surface() {
	b, err := specs.LoadFiles([]specs.File{{Name: "bundle.yaml", Data: []byte(bundle)}}, specs.LoadOptions{NoCatalog: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := celpolicy.Compile(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	surface := policy.Surface(celpolicy.Input{Run: celpolicy.RunFacts{ID: "run-1", Profile: "writer"}, User: celpolicy.UserFacts{ID: "ann"}})
	fmt.Println(surface.Visible(&celpolicy.Moment{}))
	for _, path := range []string{"drafts/a.md", "memory.md"} {
		raw := []byte(`{"path": "` + path + `"}`)
		args, err := celpolicy.ParseArgs(raw)
		if err != nil {
			fmt.Println(err)
			return
		}
		a := surface.Check("notes.write", &celpolicy.Moment{Args: raw, Parsed: args})
		fmt.Println(a.Callable, a.ApprovalRequired, a.Rule)
	}
	// Output:
	// [notes.write]
	// true false writer/tools.allow
	// true true drafts/only-drafts
}
