package specs

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"deny", "approve", "built_in", "mcp", "or", "readOnly"}
	for word, want := range map[string]string{"dney": "deny", "DENY": "deny", "aprove": "approve", "built-in": "built_in", "BuiltIn": "built_in",
		"MCP": "mcp", "mpc": "mcp", "readonly": "readOnly", "read_only": "readOnly", "hour": "", "xyz": "", "r": "or"} {
		if got := nearest(word, known); got != want {
			t.Errorf("%s is near %q, want %q", word, got, want)
		}
	}
}
