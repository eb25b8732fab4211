package toolstest_test

import (
	"testing"

	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/toolstest"
)

func TestMemoryWorkspace(t *testing.T) {
	t.Parallel()
	toolstest.RunWorkspace(t, func(*testing.T) toolstest.WorkspaceUnderTest {
		tree := toolstest.NewTree(nil)
		return toolstest.WorkspaceUnderTest{
			Open: func(_ *testing.T, invocation string) tools.Workspace { return tree.Open(invocation, nil, nil) },
			Commit: func(_ *testing.T, ws tools.Workspace) error {
				_, err := ws.(*toolstest.MemoryWorkspace).Commit("test")
				return err
			},
		}
	})
}
