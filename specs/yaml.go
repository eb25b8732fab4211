package specs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// maxNesting is how deep a document may nest. People's documents stay under 20; input schemas of real tools
// under 40.
const maxNesting = 128

// parseYAML cuts a file into its documents and parses each by itself, so that a mistake in one does not hide
// those of the next. Lines of the nodes are the file's.
//
// A line that starts with "---" always starts a document (YAML forbids it inside texts), which makes the cut safe.
func parseYAML(src *sourceText, report func(Diagnostic)) []parsed {
	var docs []parsed
	start := 1
	var version, kind bool // the document has them already
	for n := 1; n <= len(src.lines)+1; n++ {
		if n <= len(src.lines) && (n == start || !isDocumentStart(src.lines[n-1])) {
			line := src.lines[n-1]
			again := strings.HasPrefix(line, "apiVersion:")
			if !again || !version || !kind {
				version, kind = version || again, kind || strings.HasPrefix(line, "kind:")
				continue
			}
			report(Diagnostic{Pos: Pos{src.name, n, 1}, Code: "no-separator", Width: len("apiVersion"),
				Message: "a second document starts here without a line of --- before it", Hint: "put --- on a line of its own above this one"})
		}
		if doc := parseDocument(src, start, n, report); doc.root != nil {
			docs = append(docs, doc)
		}
		start, version, kind = n, n <= len(src.lines) && strings.HasPrefix(src.lines[n-1], "apiVersion:"), false
	}
	return docs
}

// parsed is one document. Nodes that stand for what is no YAML were reported and are bad.
type parsed struct {
	root *yaml.Node
	bad  map[*yaml.Node]bool
}

func isDocumentStart(line string) bool {
	return strings.HasPrefix(line, "---") && (len(line) == 3 || line[3] == ' ' || line[3] == '\t')
}

// parseDocument parses lines [from, to) of a file. Its root is nil for an empty document and for one that was reported
// and could not be mended.
func parseDocument(src *sourceText, from, to int, report func(Diagnostic)) parsed {
	lines := src.lines[from-1 : to-1]
	for i, l := range lines {
		if strings.HasPrefix(l, "%") {
			report(Diagnostic{Pos: Pos{src.name, from + i, 1}, Code: "yaml-directive", Width: utf8.RuneCountInString(l),
				Message: "YAML directives are not used here", Hint: "delete this line"})
			return parsed{}
		}
		if strings.TrimSpace(l) != "" && !strings.HasPrefix(strings.TrimSpace(l), "#") {
			break // directives can only stand before the content
		}
	}
	if d, deep := tooDeep(src, from, to); deep {
		report(d)
		return parsed{}
	}
	node, err := decodeYAML(strings.Join(lines, "\n"))
	bad := map[*yaml.Node]bool{}
	if err != nil {
		node, bad = parseMended(src, from, to, err, report)
	} else if node != nil {
		shiftLines(node, from-1)
	}
	if node == nil || len(node.Content) == 0 {
		return parsed{}
	}
	root := node.Content[0]
	if root.Kind == yaml.ScalarNode && root.Value == "" && root.Style == 0 && root.Anchor == "" {
		return parsed{}
	}
	return parsed{root, bad}
}

// decodeYAML runs the YAML library, whose own faults come back as errors too.
func decodeYAML(text string) (node *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			node, err = nil, fmt.Errorf("%v", r)
		}
	}()
	dec := yaml.NewDecoder(strings.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, err
		}
		return nil, errSecondDocument
	}
	return &doc, nil
}

var errSecondDocument = errors.New(`a new document starts here without a "---" line`)

func shiftLines(n *yaml.Node, by int) {
	n.Line += by
	for _, c := range n.Content {
		shiftLines(c, by)
	}
}

// tooDeep looks for nesting that no person writes, before the recursive YAML library sees it. It counts flow
// brackets outside quotes and the dashes that open block lists on one line, so it errs only for texts full of unbalanced brackets.
func tooDeep(src *sourceText, from, to int) (Diagnostic, bool) {
	depth := 0
	for ln := from; ln < to; ln++ {
		line := src.lines[ln-1]
		if strings.IndexByte(line, '[') < 0 && strings.IndexByte(line, '{') < 0 && len(line) < 2*maxNesting {
			if strings.IndexByte(line, ']') < 0 && strings.IndexByte(line, '}') < 0 {
				continue
			}
		}
		dashes := 0
		opening := true
		for i := 0; i < len(line); i++ {
			switch line[i] {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			case '-', '?', ':':
				if opening && (i+1 == len(line) || line[i+1] == ' ') {
					dashes++
				}
			case ' ', '\t':
			default:
				opening = false
			}
			if depth > 4*maxNesting || dashes > maxNesting || opening && i > 8*maxNesting {
				return Diagnostic{Pos: Pos{src.name, ln, 1 + utf8.RuneCountInString(line[:i])}, Code: "too-deep", Width: 1,
					Message: fmt.Sprintf("this nests deeper than %d levels", maxNesting)}, true
			}
		}
	}
	return Diagnostic{}, false
}

// scalarKind is what a plain scalar means under the YAML 1.2 core schema, and under nothing else.
type scalarKind int

const (
	scalarText scalarKind = iota
	scalarNull
	scalarBool
	scalarInt
	scalarFloat
	scalarOldBool  // yes, no, on, off, y, n: a boolean to YAML 1.1 readers
	scalarBigInt   // outside int64
	scalarOctal    // 0777: seven hundred seventy-seven or five hundred eleven
	scalarInfinity // .inf, .nan: no JSON number
)

// resolvePlain says what an unquoted scalar is.
func resolvePlain(s string) scalarKind {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return scalarNull
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return scalarBool
	case ".nan", ".NaN", ".NAN":
		return scalarInfinity
	}
	switch asciiLower(s) {
	case "yes", "no", "on", "off", "y", "n":
		return scalarOldBool
	}
	body := s
	if body[0] == '-' || body[0] == '+' {
		body = body[1:]
	}
	switch {
	case body == "":
		return scalarText
	case body == ".inf" || body == ".Inf" || body == ".INF":
		return scalarInfinity
	case allDigits(body):
		if len(body) > 1 && body[0] == '0' {
			return scalarOctal
		}
		if _, err := strconv.ParseInt(s, 10, 64); err != nil {
			return scalarBigInt
		}
		return scalarInt
	case strings.HasPrefix(s, "0o") || strings.HasPrefix(s, "0x"):
		if _, err := strconv.ParseInt(s, 0, 64); err == nil && !strings.Contains(s, "_") {
			return scalarInt
		} else if errors.Is(err, strconv.ErrRange) {
			return scalarBigInt
		}
		return scalarText
	case isFloat(body):
		return scalarFloat
	}
	return scalarText
}

// isFloat: (\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?
func isFloat(s string) bool {
	i := 0
	digits := func() int {
		from := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i - from
	}
	whole := digits()
	if i < len(s) && s[i] == '.' {
		i++
		if digits() == 0 && whole == 0 {
			return false
		}
	} else if whole == 0 {
		return false
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if digits() == 0 {
			return false
		}
	}
	return i == len(s)
}

func allDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func asciiLower(s string) string {
	if len(s) > 3 {
		return s
	}
	return string(bytes.ToLower([]byte(s)))
}

// parsePlainInt reads what resolvePlain called scalarInt.
func parsePlainInt(s string) (int64, error) {
	if strings.HasPrefix(s, "0o") || strings.HasPrefix(s, "0x") {
		return strconv.ParseInt(s, 0, 64)
	}
	return strconv.ParseInt(s, 10, 64)
}

// isPlain says that a scalar was written without quotes and not as a block.
func isPlain(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode &&
		n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
}
