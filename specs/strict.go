package specs

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// strictness walks a document before its meaning is read and refuses what different YAML readers understand
// differently. Nodes it has reported are left alone by everything that follows.
type strictness struct {
	src    *sourceText
	report func(Diagnostic)
	bad    map[*yaml.Node]bool
}

func (s *strictness) fail(n *yaml.Node, code, message, hint string) {
	s.bad[n] = true
	s.report(Diagnostic{Pos: Pos{s.src.name, n.Line, n.Column}, Code: code, Message: message, Hint: hint, Width: widthOf(s.src, n)})
}

// check walks the tree; it gives false when the tree nests too deep to be looked at further.
func (s *strictness) check(n *yaml.Node, depth int) bool {
	if depth > maxNesting {
		s.fail(n, "too-deep", fmt.Sprintf("this nests deeper than %d levels", maxNesting), "")
		return false
	}
	s.indentation(n)
	switch {
	case n.Kind == yaml.AliasNode:
		s.fail(n, "yaml-alias", "aliases are not used in bundles", "write the value out")
		return true
	case n.Anchor != "" || s.src.char(n.Line, n.Column) == '&' && isPlain(n):
		s.fail(n, "yaml-anchor", "anchors are not used in bundles", "delete &"+n.Anchor+" and write the value out where it is needed")
	case n.Style&yaml.TaggedStyle != 0 || isPlain(n) && s.src.char(n.Line, n.Column) == '!':
		hint := "delete " + n.Tag + "; quote a value to make it a text"
		if n.Kind == yaml.ScalarNode && n.Value == "" { // when: !tool.annotations.readOnly
			hint = "quote the text: " + quoted(n.Tag)
		}
		s.fail(n, "yaml-tag", "tags are not used in bundles", hint)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return s.mapping(n, depth)
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if !s.check(c, depth+1) {
				return false
			}
		}
	case yaml.ScalarNode:
		s.scalar(n)
	}
	return true
}

func (s *strictness) mapping(n *yaml.Node, depth int) bool {
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind == yaml.ScalarNode && isPlain(key) && key.Value == "<<":
			s.fail(key, "yaml-merge", "merge keys are not used in bundles", "write the keys out")
		case key.Kind != yaml.ScalarNode && key.Kind != yaml.AliasNode:
			s.fail(key, "key-not-text", "a key must be a text", "")
		default:
			if !s.check(key, depth+1) {
				return false
			}
			if !s.bad[key] && isPlain(key) && resolvePlain(key.Value) != scalarText {
				s.fail(key, "key-not-text", fmt.Sprintf("a key must be a text, this is %s", describe(key)), "quote it: "+quoted(key.Value))
			}
			if first, twice := seen[key.Value]; twice && !s.bad[key] {
				s.fail(key, "duplicate-key", fmt.Sprintf("the key %s is here a second time, first on line %d", quoted(key.Value), first.Line), "keep one of them")
			} else if !twice {
				seen[key.Value] = key
			}
		}
		if !s.check(value, depth+1) {
			return false
		}
	}
	return true
}

func (s *strictness) scalar(n *yaml.Node) {
	if !isPlain(n) || s.bad[n] {
		return
	}
	if s.src.char(n.Line, n.Column-1) == '?' { // {?a: b}: the key is "?a" to others and "a" to this library
		s.fail(n, "yaml-unclear", "YAML readers disagree about a text behind a question mark", "quote it")
		return
	}
	switch resolvePlain(n.Value) {
	case scalarOldBool:
		s.fail(n, "yaml-1.1-boolean", fmt.Sprintf("a plain %s is a boolean to some YAML readers and a text to others", n.Value),
			fmt.Sprintf("write true or false, or quote the text: %s", quoted(n.Value)))
	case scalarBigInt:
		s.fail(n, "integer-range", "this whole number does not fit in 64 bits", "quote it if it is a text")
	case scalarOctal:
		s.fail(n, "ambiguous-number", fmt.Sprintf("a leading zero makes %s an octal number to some YAML readers", n.Value), "drop the zero, or quote it if it is a text")
	case scalarInfinity:
		s.fail(n, "not-a-number", fmt.Sprintf("%s is not a number that JSON knows", n.Value), "quote it if it is a text")
	case scalarText:
		if oldNumber(n.Value) {
			s.fail(n, "ambiguous-number", fmt.Sprintf("%s is a number to some YAML readers and a text to others", n.Value), "quote it: "+quoted(n.Value))
		}
	}
}

// oldNumber finds texts that YAML 1.1 reads as numbers: 1_000, 0b11, 12:30:00.
func oldNumber(s string) bool {
	body := strings.TrimLeft(s, "+-")
	if body == "" || body[0] < '0' || body[0] > '9' || len(s)-len(body) > 1 {
		return false
	}
	if strings.HasPrefix(body, "0b") && strings.Trim(body[2:], "01_") == "" && len(body) > 2 {
		return true
	}
	if strings.Contains(body, "_") && strings.Trim(body, "0123456789_") == "" {
		return true
	}
	parts := strings.Split(body, ":")
	if len(parts) < 2 || parts[0] == "" {
		return false
	}
	for _, p := range parts {
		if !allDigits(p) {
			return false
		}
	}
	for _, p := range parts[1:] {
		if len(p) > 2 || len(p) == 2 && p[0] > '5' {
			return false
		}
	}
	return true
}

// indentation refuses tabs before the first thing of a line.
func (s *strictness) indentation(n *yaml.Node) {
	row := s.src.row(n.Line)
	for i := 0; i < len(row) && i < n.Column-1; i++ {
		if row[i] == '\t' {
			s.report(Diagnostic{Pos: Pos{s.src.name, n.Line, i + 1}, Code: "tab-indent", Width: 1,
				Message: "a tab stands in the indentation", Hint: "indent with spaces"})
			return
		}
		if row[i] != ' ' {
			return
		}
	}
}

// widthOf says how many characters of the first line a node takes.
func widthOf(src *sourceText, n *yaml.Node) int {
	row := src.row(n.Line)
	rest := max(1, len(row)-n.Column+1)
	if n.Kind != yaml.ScalarNode {
		return 1
	}
	width := utf8.RuneCountInString(n.Value)
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return 1
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		quote := src.char(n.Line, n.Column)
		for i := n.Column; i < len(row); i++ {
			switch {
			case row[i] == '\\' && quote == '"':
				i++
			case row[i] == quote && quote == '\'' && i+1 < len(row) && row[i+1] == '\'':
				i++
			case row[i] == quote:
				return i - n.Column + 2
			}
		}
		return rest
	}
	return max(1, min(width, rest))
}

func quoted(s string) string {
	if utf8.RuneCountInString(s) > 60 {
		s = string([]rune(s)[:57]) + "..."
	}
	return `"` + s + `"`
}

// describe names what an author wrote, in an author's words.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if !isPlain(n) {
		return "a text"
	}
	switch resolvePlain(n.Value) {
	case scalarNull:
		return "nothing"
	case scalarBool:
		return n.Value
	case scalarInt, scalarBigInt, scalarOctal:
		return "the whole number " + n.Value
	case scalarFloat, scalarInfinity:
		return "the number " + n.Value
	}
	return "a text"
}
