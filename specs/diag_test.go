package specs

import (
	"strings"
	"testing"
)

// A finding shows the author's line without letting it speak to the terminal or turn the text around, and the caret still
// stands below the place.
func TestFindingsShowNoHiddenCharacters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		d    Diagnostic
		want string
	}{
		"before the place": {
			Diagnostic{Pos: Pos{"a\x1b.yaml", 1, 5}, Width: 3, Source: "x\u202ey\tbad z", Message: "no \u009b", Hint: "say\u200b so"},
			"a\\u{1b}.yaml:1:5: no \\u{9b}\n  x\\u{202e}y bad z\n             ^^^\n  hint: say\\u{200b} so\n"},
		"at the place": {
			Diagnostic{Pos: Pos{"a", 1, 1}, Width: 2, Source: "b\u2066 c", Message: "m"},
			"a:1:1: m\n  b\\u{2066} c\n  ^^^^^^^^^\n"},
		"past the end": {
			Diagnostic{Pos: Pos{"a", 1, 4}, Width: 1, Source: "ab", Message: "m"},
			"a:1:4: m\n  ab\n     ^\n"},
	} {
		if got := c.d.Text(); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
	_, err := LoadFiles([]File{{Name: "b.yaml", Data: []byte("apiVersion: callgate/v1\nkind: Policy\nmetadata: {name: \"x\u202egnp\"}\nspec: {}\n")}}, LoadOptions{})
	if ds, ok := AsDiagnostics(err); !ok || strings.ContainsRune(ds.Text(), '\u202e') || !strings.Contains(ds.Text(), `x\u{202e}gnp`) {
		t.Errorf("the loader's findings: %v", err)
	}
}
