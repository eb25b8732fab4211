package specs

import (
	"fmt"
	"slices"
	"strings"
)

// Glob says whether a whole text matches a pattern in which * stands for any characters, dots included, and
// everything else for itself. It takes time linear in the text for each star, and no regular expression.
func Glob(pattern, s string) bool {
	star := strings.IndexByte(pattern, '*')
	if star < 0 {
		return pattern == s
	}
	if !strings.HasPrefix(s, pattern[:star]) {
		return false
	}
	s, pattern = s[star:], pattern[star+1:]
	for {
		star = strings.IndexByte(pattern, '*')
		if star < 0 {
			return strings.HasSuffix(s, pattern)
		}
		at := strings.Index(s, pattern[:star])
		if at < 0 {
			return false
		}
		s, pattern = s[at+star:], pattern[star+1:]
	}
}

// MatchTool says whether a selector of a rule or a profile selects a tool. `mcp:*` selects by source kind
// first; a selector without a kind speaks about tools of every kind.
func MatchTool(pattern string, t *Tool) bool {
	kind, glob, scoped := strings.Cut(pattern, ":")
	if !scoped {
		return Glob(pattern, t.Name)
	}
	return string(t.Source.Kind) == kind && Glob(glob, t.Name)
}

// SelectorName gives the tool name that a selector spells out, and false for a glob.
func SelectorName(pattern string) (ToolName, bool) {
	if _, glob, scoped := strings.Cut(pattern, ":"); scoped {
		pattern = glob
	}
	return ToolName(pattern), !strings.Contains(pattern, "*")
}

// checkToolGlob says what is wrong with a tool selector, or "".
func checkToolGlob(s string) string {
	glob := s
	if kind, rest, scoped := strings.Cut(s, ":"); scoped {
		if !slices.Contains(sourceKinds, SourceKind(kind)) {
			return fmt.Sprintf("%s is not a kind of source", quoted(kind))
		}
		glob = rest
	}
	if glob == "" {
		return "this selector names no tool"
	}
	if strings.Contains(glob, "**") {
		return fmt.Sprintf("%s has two stars in a row; one crosses dots already", quoted(s))
	}
	for i := 0; i < len(glob); i++ {
		if glob[i] != '*' && !isNameByte(glob[i]) {
			return fmt.Sprintf("%s cannot stand in a tool selector", quoted(string([]rune(glob[i:])[:1])))
		}
	}
	return ""
}
