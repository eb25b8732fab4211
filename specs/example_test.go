package specs_test

import (
	"fmt"
	"testing/fstest"

	"github.com/callgate/callgate/specs"
)

// A mistake is shown with its line, a caret and a hint.
func ExampleLoad() {
	_, err := specs.Load(fstest.MapFS{"acme.yaml": {Data: []byte(`apiVersion: callgate/v1
kind: Profile
metadata: {name: reader}
spec:
  tools: {alow: ["workspace.read_file"]}
`)}}, specs.LoadOptions{})
	fmt.Println(err)
	// Output:
	// acme.yaml:5:11: unknown key "alow"
	//     tools: {alow: ["workspace.read_file"]}
	//             ^^^^
	//   hint: did you mean "allow"?
}

// A model is told what is wrong with its arguments.
func ExampleTool_Args() {
	bundle, err := specs.Load(fstest.MapFS{"acme.yaml": {Data: []byte("apiVersion: callgate/v1\nkind: Profile\nmetadata: {name: reader}\nspec: {}\n")}}, specs.LoadOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	args, err := bundle.Tool("workspace.read_file").Args()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(args.Validate([]byte(`{"pth": "output/main.md", "max_chars": "all"}`)))
	// Output:
	// the property "path" is missing (string); unknown property "pth"; did you mean "path"?; /max_chars: expected integer, got "all"
}
