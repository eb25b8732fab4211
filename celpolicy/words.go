package celpolicy

import (
	"regexp"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// The findings of cel-go speak the language of its parser. Here they are put into the words of somebody who writes
// rules, with the way out of the mistakes that people who come from other languages make.

var (
	unexpected  = regexp.MustCompile(`^(?:mismatched input|extraneous input|no viable alternative at input|token recognition error at:) '(.*)'$`)
	noOverload  = regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '(.*)'$`)
	ownTypeName = regexp.MustCompile(`arguments#\d+|callgate\.`)
	nameAtEnd   = regexp.MustCompile(`([A-Za-z]+)\s*$`)
)

// foreign gives the CEL of what other languages call otherwise.
var foreign = map[string]string{
	"=": "write == to compare", "===": "write == to compare", "!==": "write != to compare", "<>": "write != to compare", "is": "write == to compare",
	"and": "write && for and", "&": "write && for and", "or": "write || for or", "|": "write || for or", "not": "write ! for not",
	";":  "a condition is one expression: join its parts with && or ||",
	"if": "write CONDITION ? THIS : THAT", "then": "write CONDITION ? THIS : THAT", "else": "write CONDITION ? THIS : THAT",
	"like": `write glob(text, "pattern*"), or text.matches("regular expression")`,
	"“":    "write straight quotes", "”": "write straight quotes", "‘": "write straight quotes", "’": "write straight quotes",
	"len": "did you mean \"size\"?", "length": "did you mean \"size\"?", "count": "did you mean \"size\"?", "isEmpty": "write size(x) == 0",
	"includes": "did you mean \"contains\"?", "match": "did you mean \"matches\"?", "regex": "did you mean \"matches\"?",
	"lower": "did you mean \"lowerAscii\"?", "toLowerCase": "did you mean \"lowerAscii\"?", "upper": "did you mean \"upperAscii\"?", "toUpperCase": "did you mean \"upperAscii\"?",
	"hour": "did you mean \"getHours\"?", "minute": "did you mean \"getMinutes\"?", "year": "did you mean \"getFullYear\"?", "weekday": "did you mean \"getDayOfWeek\"?",
}

// syntaxWords rewrites a finding of the parser about the text at an offset, and gives its hint.
func syntaxWords(message, text string, offset int) (string, string) {
	message, _, _ = strings.Cut(message, "\n")
	message, _, _ = strings.Cut(message, " expecting ") // the whole alphabet of CEL
	message = strings.TrimPrefix(message, "Syntax error: ")
	runes := []rune(text)
	offset = max(0, min(offset, len(runes)))
	before, at := string(runes[:offset]), string(runes[offset:])
	if name, ok := strings.CutPrefix(message, "reserved identifier: "); ok {
		return quoted(name) + " is a reserved word of CEL", foreign[name]
	}
	message = lowerFirst(message)
	m := unexpected.FindStringSubmatch(message)
	if m == nil {
		return strings.ReplaceAll(message, "'<EOF>'", "the end"), ""
	}
	what := strings.TrimSpace(m[1])
	message = "unexpected " + quoted(what)
	if what == "<EOF>" {
		message = "the expression ends too early"
	}
	for _, word := range []string{operatorAround(before, at), firstWord(at)} {
		if hint := foreign[word]; hint != "" {
			return message, hint
		}
	}
	if last := nameAtEnd.FindStringSubmatch(before); last != nil && foreign[last[1]] != "" { // not args.x == 1
		return message, foreign[last[1]]
	}
	if strings.HasPrefix(at, `"`) || strings.HasPrefix(at, "'") {
		return "this quote is never closed", "add " + at[:1]
	}
	return message, ""
}

// operatorAround gives the run of operator signs at a place.
func operatorAround(before, at string) string {
	const signs = "=!<>&|;"
	head := before[len(strings.TrimRight(before, signs)):]
	return head + at[:len(at)-len(strings.TrimLeft(at, signs))]
}

func firstWord(s string) string {
	for i, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			if i == 0 {
				return string(r)
			}
			return s[:i]
		}
	}
	return s
}

func quoted(s string) string { return `"` + s + `"` }

// overloadWords rewrites a finding about an operator or function that does not take what it is given.
func (c *compiler) overloadWords(message string, call ast.CallExpr) (string, string) {
	m := noOverload.FindStringSubmatch(message)
	if m == nil {
		return message, ""
	}
	name, given := m[1], ownTypeName.ReplaceAllStringFunc(m[2], func(s string) string {
		if strings.HasPrefix(s, "arguments") {
			return "object"
		}
		return ""
	})
	shown := name
	if sign, ok := operators.FindReverse(name); ok && sign != "" {
		shown = strings.TrimSpace(sign)
	}
	if name == operators.Index || name == operators.OptIndex {
		shown = "[ ]"
	}
	message = shown + " cannot take " + given
	if owner, args, member := strings.Cut(given, ".("); member {
		message = owner + "." + name + "(...) cannot take (" + args
	}
	return message, c.overloadHint(name, given, call)
}

func (c *compiler) overloadHint(name, given string, call ast.CallExpr) string {
	if h := mixedNumbers(given); h != "" {
		return h
	}
	compares := name == operators.Equals || name == operators.NotEquals
	switch {
	case compares && strings.Contains(given, "null"):
		return "an argument that may be absent is asked for with has(args.name)"
	case compares && strings.HasPrefix(given, "(list(") || name == "contains" && strings.HasPrefix(given, "list("):
		return `to look into a list write "x" in list`
	case compares && (given == "(int, string)" || given == "(string, int)" || given == "(double, string)" || given == "(string, double)"):
		return "write a number without quotes and a text with them; string(x) and int(x) convert"
	case compares && (given == "(bool, string)" || given == "(string, bool)"):
		return "write true and false without quotes"
	case compares:
		return "both sides must be of one type"
	case name == operators.In:
		return "what is looked for must be of the type of the list's values"
	case name == operators.LogicalAnd || name == operators.LogicalOr || name == operators.LogicalNot:
		return "each side must be true or false: compare it with something"
	case name == operators.Index && strings.HasPrefix(given, "(object, "):
		return `write args.name, without brackets`
	case name == operators.Add && strings.Contains(given, "string"):
		return "string(x) makes a text of it"
	case !call.IsMemberFunction() && len(call.Args()) > 1 && c.isMemberFunction(name):
		return "it is called on a value: x." + name + "(...)"
	}
	return ""
}

// isMemberFunction says that a function is only known behind a dot.
func (c *compiler) isMemberFunction(name string) bool {
	f := c.open.Functions()[name]
	if f == nil {
		return false
	}
	for _, o := range f.OverloadDecls() {
		if !o.IsMemberFunction() {
			return false
		}
	}
	return true
}
