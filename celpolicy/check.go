package celpolicy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

var errEnvironment = errors.New("celpolicy: the shared environment has lost its types")

// use is one expression at its place in a document.
type use struct {
	text   specs.Text
	what   string // "a condition"
	want   *types.Type
	tools  []*specs.Tool // each is checked against its own arguments
	rule   *specs.Rule   // nil outside of rules
	hint   string
	forbid map[string]string // variable -> why it is not known here
}

// check compiles an expression and reports what is wrong with it; nil when it cannot be used.
func (c *compiler) check(u use) *expr {
	e := c.expression(u.text.Value)
	before := len(c.diags)
	for _, iss := range e.issues {
		c.reportIssue(u, e, iss, nil, nil)
		if e.parsed == nil {
			break // the rest of a text that does not parse is guesswork
		}
	}
	if e.ast == nil || len(e.issues) > 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(u.forbid)) {
		if e.uses[name] {
			c.report(specs.Diagnostic{Pos: u.text.At(identOffset(e, name)), Severity: specs.Error, Code: "not-known-here",
				Message: fmt.Sprintf("%s cannot use %s: %s", u.what, name, u.forbid[name]), Width: len(name)})
		}
	}
	c.checkType(u, e.out, nil, len(u.tools))
	if e.usesArgs && len(c.diags) == before {
		c.checkTools(u, e)
	}
	if c.diags[before:].Errors() == nil {
		c.checkLiterals(u, e)
	}
	if c.diags[before:].Errors() != nil {
		return nil
	}
	return e
}

func (c *compiler) checkType(u use, out *types.Type, tools []string, of int) bool {
	if out.IsExactType(u.want) || out.Kind() == types.DynKind || out.Kind() == types.AnyKind {
		return true
	}
	hint := u.hint
	if hint == "" && u.want == types.BoolType {
		hint = "compare it with something: a condition is true or false"
	}
	c.report(specs.Diagnostic{Pos: u.text.At(0), Severity: specs.Error, Code: "wrong-type",
		Message: fmt.Sprintf("%s must be %s, this is %s%s", u.what, article(typeName(u.want)), article(typeName(out)), forTools(tools, of)),
		Hint:    hint, Width: firstLine(u.text.Value)})
	return false
}

// group is some of a rule's tools whose arguments look alike to one expression.
type group struct {
	shape *shape
	tools []string
}

// checkTools checks an expression against the arguments of each tool its rule selects. The same mistake in
// several tools is one finding that names them.
func (c *compiler) checkTools(u use, e *expr) {
	groups := map[string]*group{}
	paths, whole := argPaths(e.parsed.NativeRep().Expr()), usesWhole(e.parsed.NativeRep().Expr())
	for _, t := range u.tools {
		s := c.shapes[t.ToolName()]
		key := s.seenBy(paths, whole)
		g := groups[key]
		if g == nil {
			g = &group{shape: s}
			groups[key] = g
		}
		g.tools = append(g.tools, t.Name)
	}
	type mistake struct {
		iss    *common.Error
		shape  *shape
		tools  []string
		out    *types.Type
		absent string
	}
	found := map[string]*mistake{}
	add := func(key string, m mistake, tools []string) {
		if found[key] == nil {
			found[key] = &m
		}
		found[key].tools = append(found[key].tools, tools...)
	}
	optional := map[string]*mistake{}
	unnamed := unnamedUses(e.parsed.NativeRep().Expr())
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		s := c.withAbsent(g.shape, groups, e).loosened(unnamed)
		checked, iss := c.envFor(s).Check(e.parsed)
		if iss.Err() != nil {
			for _, i := range iss.Errors() {
				add(fmt.Sprintf("%d:%d %s", i.Location.Line(), i.Location.Column(), i.Message), mistake{iss: i, shape: g.shape}, g.tools)
			}
			continue
		}
		if out := checked.OutputType(); !out.IsExactType(u.want) && out.Kind() != types.DynKind {
			add("type "+out.String(), mistake{out: out}, g.tools)
		}
		for _, use := range unguarded(e.parsed.NativeRep().Expr(), s) {
			loc := e.parsed.NativeRep().SourceInfo().GetStartLocation(use.id)
			i := common.NewError(use.id, "", loc)
			at := fmt.Sprintf("%d:%d", loc.Line(), loc.Column())
			if use.absent {
				add("absent "+at, mistake{iss: i, shape: g.shape, absent: use.path[len(use.path)-1]}, g.tools)
				continue
			}
			if optional[at] == nil {
				optional[at] = &mistake{iss: i, absent: strings.Join(use.path, ".")}
			}
			optional[at].tools = append(optional[at].tools, g.tools...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		m := found[key]
		slices.Sort(m.tools)
		if m.out != nil {
			c.checkType(u, m.out, m.tools, len(u.tools))
			continue
		}
		c.reportIssue(u, e, m.iss, m.tools, m.shape)
	}
	for _, key := range slices.Sorted(maps.Keys(optional)) {
		m := optional[key]
		slices.Sort(m.tools)
		c.reportOptional(u, e, m.iss, m.absent, m.tools)
	}
}

// withAbsent lets a rule over several tools ask has(args.x) although some of them have no x: as long as one
// of them has it, it is no typo. Any other use of such an x stays an error.
func (c *compiler) withAbsent(s *shape, groups map[string]*group, e *expr) *shape {
	if s.kind != shapeObject || len(groups) < 2 {
		return s
	}
	out := s
	for _, p := range argPaths(e.parsed.NativeRep().Expr()) {
		if _, ok := s.fields[p[0]]; ok {
			continue
		}
		for _, g := range groups {
			if _, ok := g.shape.fields[p[0]]; !ok {
				continue
			}
			if out == s {
				clone := *s
				clone.fields = maps.Clone(s.fields)
				out = &clone
			}
			out.fields[p[0]] = &shape{kind: shapeDyn, absent: true, why: "this tool has no such argument"}
		}
	}
	return out
}

// envFor gives the environment in which args has a tool's own type.
func (c *compiler) envFor(s *shape) *cel.Env {
	t := c.args.cel(s)
	if s.kind == shapeDyn {
		return c.open
	}
	key := s.key()
	if env, ok := c.envs[key]; ok {
		return env
	}
	env, err := c.core.Extend(cel.Variable(varArgs, t))
	if err != nil {
		return c.open
	}
	c.envs[key] = env
	return env
}

// reportIssue says in an author's words what cel-go found, at the author's own line.
func (c *compiler) reportIssue(u use, e *expr, iss *common.Error, tools []string, s *shape) {
	d := specs.Diagnostic{Severity: specs.Error, Code: "expression", Hint: u.hint,
		Message: nullableType.ReplaceAllString(strings.ReplaceAll(iss.Message, " (in container '')", ""), "$1")}
	offset := offsetOf(u.text.Value, iss.Location)
	d.Pos = u.text.At(offset)
	if e.parsed == nil {
		d.Code = "expression-syntax"
		var hint string
		if d.Message, hint = syntaxWords(d.Message, u.text.Value, offset); hint != "" {
			d.Hint = hint
		}
		c.report(d)
		return
	}
	x := find(e.parsed.NativeRep().Expr(), iss.ExprID)
	switch name, owner, ok := c.unknownField(x, e, s); {
	case ok:
		d.Code = "unknown-field"
		d.Pos = u.text.At(nameOffset(u.text.Value, offset, name))
		d.Width = utf8.RuneCountInString(name)
		d.Message = fmt.Sprintf("%s has no %q%s", owner.name, name, forTools(tools, len(u.tools)))
		d.Hint = suggestion(name, owner.known)
		if len(tools) > 0 && len(tools) < len(u.tools) {
			guard := "narrow `tools`, or guard it with has(args." + name + ") where a tool lacks it"
			if specs.Nearest(name, owner.known) != "" {
				guard = d.Hint + " otherwise " + guard
			}
			d.Hint = guard // what the first of several different tools knows would mislead
		}
	case x != nil && x.Kind() == ast.IdentKind:
		d.Code = "unknown-variable"
		d.Width = utf8.RuneCountInString(x.AsIdent())
		d.Message = fmt.Sprintf("there is no variable %q", x.AsIdent())
		d.Hint = "a text stands in quotes; an expression may use " + strings.Join(variables, ", ")
		if specs.Nearest(x.AsIdent(), variables) != "" {
			d.Hint = suggestion(x.AsIdent(), variables)
		}
	case x != nil && x.Kind() == ast.CallKind:
		name := x.AsCall().FunctionName()
		if !c.hasFunction(name) {
			d.Code = "unknown-function"
			d.Message = fmt.Sprintf("there is no function %q", name)
			d.Hint = cmp.Or(foreign[name], suggestion(name, c.functionNames()))
			break
		}
		if mixedNumbers(d.Message) != "" {
			d.Code = "mixed-numbers"
		}
		var hint string
		if d.Message, hint = c.overloadWords(d.Message, x.AsCall()); hint != "" {
			d.Hint = hint
		}
		d.Message += forTools(tools, len(u.tools))
	default:
		d.Message += forTools(tools, len(u.tools))
	}
	c.report(d)
}

// nullableType is how cel-go writes a scalar that may be null.
var nullableType = regexp.MustCompile(`wrapper\((\w+)\)`)

// owner is a thing that has named members.
type owner struct {
	name  string
	known []string
}

// unknownField says whether a finding is about a member that its owner does not have, and who the owner is.
func (c *compiler) unknownField(x ast.Expr, e *expr, s *shape) (string, owner, bool) {
	if x == nil {
		return "", owner{}, false
	}
	var operand ast.Expr
	var name string
	switch x.Kind() {
	case ast.SelectKind:
		operand, name = x.AsSelect().Operand(), x.AsSelect().FieldName()
	case ast.CallKind:
		call := x.AsCall()
		if call.FunctionName() != operators.OptSelect || call.Args()[1].Kind() != ast.LiteralKind {
			return "", owner{}, false
		}
		text, ok := call.Args()[1].AsLiteral().(types.String)
		if !ok {
			return "", owner{}, false
		}
		operand, name = call.Args()[0], string(text)
	default:
		return "", owner{}, false
	}
	if path, ok := argPath(operand); ok && s != nil {
		at := s.at(path)
		if at.kind != shapeObject {
			return "", owner{}, false
		}
		if _, has := at.fields[name]; has {
			return "", owner{}, false
		}
		return name, owner{strings.Join(append([]string{varArgs}, path...), "."), slices.Sorted(maps.Keys(at.fields))}, true
	}
	t := fixedTypeOf(operand)
	if t == nil {
		return "", owner{}, false
	}
	if _, has := t.index[name]; has {
		return "", owner{}, false
	}
	known := make([]string, len(t.fields))
	for i, f := range t.fields {
		known[i] = f.name
	}
	return name, owner{strings.TrimPrefix(t.name, "callgate."), known}, true
}

// fixedTypeOf gives the environment's own type behind a chain such as tool.source, or nil.
func fixedTypeOf(e ast.Expr) *structType {
	switch e.Kind() {
	case ast.IdentKind:
		return map[string]*structType{varTool: toolType, varRun: runType, varUser: userType, varTenant: tenantType,
			varBudget: budgetType, varCall: callType}[e.AsIdent()]
	case ast.SelectKind:
		t := fixedTypeOf(e.AsSelect().Operand())
		if t == nil {
			return nil
		}
		i, ok := t.index[e.AsSelect().FieldName()]
		if !ok {
			return nil
		}
		for _, f := range fixedTypes() {
			if f.cel == t.fields[i].typ {
				return f
			}
		}
	}
	return nil
}

// mixedNumbers explains a comparison of a whole number with a double, which is refused because it rounds.
func mixedNumbers(message string) string {
	if !strings.Contains(message, "(double, int)") && !strings.Contains(message, "(int, double)") {
		return ""
	}
	return "a JSON `number` is a double and an `integer` an int: write 5.0 beside a double and 5 beside an int"
}

func (c *compiler) reportOptional(u use, e *expr, iss *common.Error, name string, tools []string) {
	then := "this expression fails"
	if u.rule != nil && u.what == "a condition" {
		then = map[specs.Effect]string{
			specs.EffectAllow: "this rule does not allow", specs.EffectWaive: "this rule does not waive",
			specs.EffectDeny: "this rule denies", specs.EffectHide: "this rule hides", specs.EffectApprove: "this rule asks",
		}[u.rule.Effect]
	} else if u.what == "a budget" {
		then = "the limit is 0"
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	c.report(specs.Diagnostic{
		Pos: u.text.At(nameOffset(u.text.Value, offsetOf(u.text.Value, iss.Location), last)), Severity: specs.Warning,
		Code: "optional-unguarded", Width: utf8.RuneCountInString(last),
		Message: fmt.Sprintf("args.%s is optional: when it is absent, %s%s", name, then, forTools(tools, len(u.tools))),
		Hint:    fmt.Sprintf("say what you want: has(args.%s) && ..., !has(args.%s) || ..., or args.%s.orValue(...)", name, name, optionalPath(name)),
	})
}

func optionalPath(name string) string {
	i := strings.LastIndexByte(name, '.') + 1
	return name[:i] + "?" + name[i:]
}

// report adds a finding with the author's line.
func (c *compiler) report(d specs.Diagnostic) { c.diags = append(c.diags, c.b.Show(d)) }

func forTools(tools []string, of int) string {
	switch {
	case len(tools) == 0:
		return ""
	case len(tools) == of && of > 3:
		return fmt.Sprintf(" (all %d selected tools)", of)
	case len(tools) == of || of == 0:
		return " (" + strings.Join(tools, ", ") + ")"
	}
	shown := tools
	more := ""
	if len(shown) > 5 {
		shown, more = shown[:5], fmt.Sprintf(" and %d more", len(tools)-5)
	}
	return fmt.Sprintf(" (%d of %d selected tools: %s%s)", len(tools), of, strings.Join(shown, ", "), more)
}

func suggestion(name string, known []string) string {
	if near := specs.Nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(known) > 0 && len(known) <= 12 {
		return "known: " + strings.Join(known, ", ")
	}
	return ""
}

func (c *compiler) hasFunction(name string) bool {
	_, ok := c.open.Functions()[name]
	return ok
}

func (c *compiler) functionNames() []string {
	var out []string
	for name := range c.open.Functions() {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.") == "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func find(root ast.Expr, id int64) ast.Expr {
	var found ast.Expr
	walk(root, func(e ast.Expr) {
		if e.ID() == id {
			found = e
		}
	})
	return found
}

func identOffset(e *expr, name string) int {
	at := -1
	info := e.parsed.NativeRep().SourceInfo()
	walk(e.parsed.NativeRep().Expr(), func(x ast.Expr) {
		if at < 0 && x.Kind() == ast.IdentKind && x.AsIdent() == name {
			at = offsetOf(e.text, info.GetStartLocation(x.ID()))
		}
	})
	return at
}

// nameOffset moves from the dot, where cel-go places a selection, to the name behind it.
func nameOffset(text string, offset int, name string) int {
	runes := []rune(text)
	want := []rune(name)
	for i := max(0, offset); i+len(want) <= len(runes); i++ {
		if string(runes[i:i+len(want)]) == name {
			return i
		}
	}
	return offset
}

func typeName(t *types.Type) string {
	if strings.HasPrefix(t.TypeName(), "arguments#") {
		return "object"
	}
	return strings.TrimPrefix(nullableType.ReplaceAllString(t.String(), "$1"), "callgate.")
}

func article(s string) string {
	if s != "" && strings.ContainsRune("aeiou", rune(s[0])) {
		return "an " + s
	}
	return "a " + s
}

func firstLine(s string) int {
	line, _, _ := strings.Cut(s, "\n")
	return utf8.RuneCountInString(line)
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
