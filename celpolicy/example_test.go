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
