package celpolicy

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/callgate/callgate/specs"
)

// checkLiterals reports comparisons that the schemas of the selected tools decide for good. What no tool can ever make
// useful is an error; what some can is a warning that names the others.
func (c *compiler) checkLiterals(u use, e *expr) {
	info := e.parsed.NativeRep().SourceInfo()
	for _, lit := range literalUses(e.parsed.NativeRep().Expr()) {
		offset := offsetOf(u.text.Value, info.GetStartLocation(lit.at))
		at := specs.Diagnostic{Pos: u.text.At(offset), Width: literalWidth(u.text.Value, offset), Severity: specs.Error}
		if text, ok := lit.literal.(string); ok && lit.op == "matches" && matchesNothing(text) {
			at.Code, at.Message = "matches-nothing", "no text matches this regular expression"
			at.Hint = "^ stands at the beginning and $ at the end; write \\\\^ or \\\\$ for the characters"
			c.report(at)
			continue
		}
		switch lit.subject.root {
		case "":
		case varArgs:
			c.checkLiteral(u, lit, at)
		default:
			if l, ok := lit.subject.limits(nil); ok {
				c.reportLiteral(lit, at, lit.judge(&l), &l, "")
			}
		}
	}
}

func (c *compiler) checkLiteral(u use, lit literalUse, at specs.Diagnostic) {
	var found [againstFormat + 1][]string
	var example [againstFormat + 1]limits
	known := 0
	for _, t := range u.tools {
		if lit.guardedOff(t) {
			continue
		}
		l, ok := lit.subject.limits(c.shapes[t.ToolName()])
		if !ok {
			if _, has := c.shapes[t.ToolName()].reach(lit.subject.steps); has {
				known++
			}
			continue
		}
		known++
		v := lit.judge(&l)
		if len(found[v]) == 0 {
			example[v] = l
		}
		found[v] = append(found[v], t.Name)
	}
	for v := alwaysFalse; v <= againstFormat; v++ {
		tools := found[v]
		if len(tools) == 0 {
			continue
		}
		d := at
		if len(tools) < known {
			d.Severity = specs.Warning
		}
		slices.Sort(tools)
		c.reportLiteral(lit, d, v, &example[v], forTools(tools, len(u.tools)))
	}
}

// reach says whether a tool has a value at the end of these steps, as far as its schema tells.
func (s *shape) reach(steps []step) (*shape, bool) {
	for _, st := range steps {
		switch {
		case s == nil || s.absent:
			return nil, false
		case s.kind == shapeObject && !st.elem:
			f, ok := s.fields[st.name]
			if !ok {
				return nil, s.open
			}
			s = f
		case s.kind == shapeMap && !st.elem, s.kind == shapeList && st.elem:
			s = s.elem
		default:
			return nil, true
		}
	}
	return s, true
}

// reportLiteral says in an author's words what a schema makes of a comparison.
func (c *compiler) reportLiteral(lit literalUse, d specs.Diagnostic, v verdict, l *limits, tools string) {
	what, shown := lit.subject.String(), shownLiteral(lit.literal)
	why := l.words(lit.literal)
	switch {
	case v == mayBeEither:
		return
	case v == againstFormat:
		d.Severity, d.Code = specs.Warning, "off-format"
		d.Message = fmt.Sprintf("%s is of the format %s, and %s is not%s", what, l.format, shown, tools)
		c.report(d)
		return
	case lit.op == operators.Equals || lit.op == operators.NotEquals || lit.op == operators.In:
		d.Code = "impossible-value"
		d.Message = fmt.Sprintf("%s is never %s%s", what, shown, tools)
		if lit.op == operators.NotEquals {
			d.Message += ", so this is always true"
		}
		if text, ok := lit.literal.(string); ok {
			if near := specs.Nearest(text, l.texts()); near != "" {
				d.Hint = fmt.Sprintf("did you mean %q? ", near)
			}
		}
	case mirrored[lit.op] != "":
		d.Code = "out-of-range"
		d.Message = fmt.Sprintf("this comparison of %s with %s is always %t%s", what, shown, v == alwaysTrue, tools)
		if v == alwaysTrue {
			d.Severity = specs.Warning
		}
	default:
		d.Code = "matches-nothing"
		d.Message = fmt.Sprintf("%s(%s) is never true of %s%s", lit.op, shown, what, tools)
	}
	d.Hint = strings.TrimSpace(d.Hint + why)
	if text, ok := lit.literal.(string); ok && lit.subject.unmakes(text) {
		d.Hint = "write it as " + lit.subject.then[len(lit.subject.then)-1].fn + "() leaves it"
	}
	c.report(d)
}

func (l *limits) texts() []string {
	var out []string
	for _, v := range l.values {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// words says what a value must be, as far as that speaks against a literal.
func (l *limits) words(literal any) string {
	if l.values != nil {
		shown := make([]string, 0, len(l.values))
		for _, v := range l.values {
			shown = append(shown, shownLiteral(v))
		}
		if len(shown) > 12 {
			shown = append(shown[:12], fmt.Sprintf("and %d more", len(l.values)-12))
		}
		return "the schema lists " + strings.Join(shown, ", ")
	}
	if k := kindOf(literal); k&l.kinds == 0 && (k&kindNumber == 0 || l.kinds&kindNumber == 0) {
		return "the schema says " + strings.Join(l.kinds.words(), " or ")
	}
	var out []string
	end := func(b *bound, word, open string) {
		if b == nil {
			return
		}
		if b.open {
			word = open
		}
		out = append(out, word+" "+shownRational(b.at))
	}
	if kindOf(literal)&kindNumber != 0 {
		end(l.low, "at least", "more than")
		end(l.high, "at most", "less than")
		if l.kinds&kindNumber == kindWhole && len(out) == 0 {
			out = append(out, "a whole number")
		}
	} else {
		if l.minSize > 0 {
			out = append(out, fmt.Sprintf("at least %d characters", l.minSize))
		}
		if l.maxSize >= 0 {
			out = append(out, fmt.Sprintf("at most %d characters", l.maxSize))
		}
		for _, re := range l.patterns {
			out = append(out, "the pattern "+re.String())
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "the schema says " + strings.Join(out, ", ")
}

func shownRational(n *big.Rat) string {
	if n.IsInt() {
		return n.Num().String()
	}
	f, _ := n.Float64()
	return shownLiteral(f)
}

func shownLiteral(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if r := []rune(string(b)); len(r) > 80 {
		return string(r[:77]) + "..."
	}
	return string(b)
}

// literalWidth is how many characters a literal takes in the author's text.
func literalWidth(text string, offset int) int {
	r := []rune(text)
	if offset < 0 || offset >= len(r) {
		return 1
	}
	i := offset
	for i < len(r) && strings.ContainsRune("rRbB", r[i]) && i < offset+2 {
		i++
	}
	if i >= len(r) || r[i] != '"' && r[i] != '\'' {
		i = offset
		for i < len(r) && (r[i] == '_' || r[i] == '.' || r[i] == '-' || r[i] == '+' || r[i] < utf8.RuneSelf && strings.ContainsRune("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", r[i])) {
			i++
		}
		return max(1, i-offset)
	}
	raw := i > offset
	for j := i + 1; j < len(r) && r[j] != '\n'; j++ {
		switch {
		case r[j] == '\\' && !raw:
			j++
		case r[j] == r[i]:
			return j + 1 - offset
		}
	}
	return 1
}

// guardedOff says that what stands beside a comparison is false for a tool, so that the comparison never matters there.
func (u *literalUse) guardedOff(t *specs.Tool) bool {
	return slices.ContainsFunc(u.guards, func(g ast.Expr) bool { return falseForTool(g, t) })
}

// falseForTool decides conditions on the tool's name and source, as rules over several tools use them.
func falseForTool(e ast.Expr, t *specs.Tool) bool {
	if e.Kind() != ast.CallKind {
		return false
	}
	c := e.AsCall()
	args := callOperands(c)
	switch c.FunctionName() {
	case operators.LogicalAnd:
		return slices.ContainsFunc(args, func(a ast.Expr) bool { return falseForTool(a, t) })
	case operators.LogicalOr:
		return !slices.ContainsFunc(args, func(a ast.Expr) bool { return !falseForTool(a, t) })
	}
	if len(args) != 2 {
		return false
	}
	have, ok := toolWord(args[0], t)
	if !ok {
		return false
	}
	if c.FunctionName() == operators.In && args[1].Kind() == ast.ListKind {
		return !slices.ContainsFunc(args[1].AsList().Elements(), func(x ast.Expr) bool {
			v, isLiteral := literalOf(x)
			return !isLiteral || v == have
		})
	}
	v, ok := literalOf(args[1])
	text, isText := v.(string)
	switch name := c.FunctionName(); {
	case !ok || !isText:
	case name == operators.Equals:
		return text != have
	case name == operators.NotEquals:
		return text == have
	case textTests[name]:
		return !holds(name, have, text)
	}
	return false
}

func toolWord(e ast.Expr, t *specs.Tool) (string, bool) {
	s, ok := subjectOf(e, nil)
	if !ok || s.root != varTool || len(s.then) > 0 {
		return "", false
	}
	switch s.String() {
	case "tool.name":
		return t.Name, true
	case "tool.source.name":
		return string(t.Source.Name), true
	}
	return "", false
}

// formats are tests that every text of a format passes. Nothing enforces a format, so a literal that fails is a warning.
var formats = map[string]*regexp.Regexp{
	"date-time": regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d`), "date": regexp.MustCompile(`^\d{4}-\d\d-\d\d$`), "time": regexp.MustCompile(`^\d\d:\d\d`),
	"duration": regexp.MustCompile(`^P`), "email": regexp.MustCompile(`@`), "idn-email": regexp.MustCompile(`@`), "hostname": regexp.MustCompile(`^[^\s/@:]+$`),
	"ipv4": regexp.MustCompile(`^\d+(\.\d+){3}$`), "ipv6": regexp.MustCompile(`:`), "uri": regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`),
	"uuid": regexp.MustCompile(`^[0-9A-Fa-f-]{36}$`), "json-pointer": regexp.MustCompile(`^/`),
}

// offFormat says that a text is provably not of a format. The empty text is left alone: it stands for nothing at all.
func offFormat(format, text string) bool {
	re := formats[format]
	return re != nil && text != "" && !re.MatchString(text)
}
