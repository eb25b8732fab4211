package workspace_test

import (
	"fmt"

	"github.com/callgate/callgate/tools/workspace"
)

func ExampleClean() {
	for _, path := range []string{"output/main.md", "../secret", `output\main.md`} {
		clean, err := workspace.Clean(path)
		fmt.Printf("%q %v\n", clean, err)
	}
	// Output:
	// "output/main.md" <nil>
	// "" The path "../secret" has the part "..". Workspace paths cannot lead upwards; write the whole path from its root, such as output/main.md.
	// "" The path "output\\main.md" holds a backslash. Write / between folders: output/main.md.
}
