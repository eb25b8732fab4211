package celpolicy

import (
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/callgate/callgate/specs"
)

// subject is a value of an expression whose schema is known: a path from a variable, and what is done to the value there.
type subject struct {
	root  string // args, tool, run, call, budget
	steps []step
	then  []change
}

// step goes to a member, or to any element of a list.
type step struct {
	name string
	elem bool
}

// change is one thing done to a value on its way into a comparison.
type change struct {
	fn   string // lowerAscii, upperAscii, trim, size, orValue
	with any    // orValue's other value
}

// scope gives the subjects behind the variables of loops.
type scope map[string]subject

// subjectOf finds the schema's value behind an expression.
func subjectOf(e ast.Expr, in scope) (subject, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		if s, ok := in[e.AsIdent()]; ok {
			return s, s.root != ""
		}
		switch name := e.AsIdent(); name {
		case varArgs, varTool, varRun, varCall, varBudget:
			return subject{root: name}, true
		}
	case ast.SelectKind:
		if sel := e.AsSelect(); !sel.IsTestOnly() {
			s, ok := subjectOf(sel.Operand(), in)
			return s.to(step{name: sel.FieldName()}), ok && len(s.then) == 0
		}
	case ast.CallKind:
		return subjectOfCall(e.AsCall(), in)
	}
	return subject{}, false
}

func subjectOfCall(c ast.CallExpr, in scope) (subject, bool) {
	args := callOperands(c)
	if len(args) == 0 {
		return subject{}, false
	}
	s, ok := subjectOf(args[0], in)
	if !ok {
		return subject{}, false
	}
	switch name := c.FunctionName(); name {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		v, isValue := literalOf(args[1])
		text, isText := v.(string)
		if !isValue || len(s.then) > 0 {
			return subject{}, false
		}
		return s.to(step{name: text, elem: !isText}), true
	case "lowerAscii", "upperAscii", "trim", "size":
		return s.with(change{fn: name}), true
	case "value":
		return s, true
	case "orValue":
		v, isValue := literalOf(args[1])
		return s.with(change{fn: name, with: v}), isValue
	}
	return subject{}, false
}

func (s subject) to(next step) subject {
	s.steps = append(s.steps[:len(s.steps):len(s.steps)], next)
	return s
}

func (s subject) with(c change) subject {
	s.then = append(s.then[:len(s.then):len(s.then)], c)
	return s
}

// String writes a subject as its author did, more or less.
func (s subject) String() string {
	out := s.root
	for _, st := range s.steps {
		if st.elem {
			out = "an element of " + out
			continue
		}
		out += "." + st.name
	}
	for _, c := range s.then {
		if c.fn != "orValue" {
			out += "." + c.fn + "()"
		}
	}
	return out
}

// literalOf gives the JSON value of a literal.
func literalOf(e ast.Expr) (any, bool) {
	if e.Kind() == ast.CallKind {
		if c := e.AsCall(); c.FunctionName() == operators.Negate {
			v, ok := literalOf(c.Args()[0])
			switch n := v.(type) {
			case int64:
				return -n, ok
			case float64:
				return -n, ok
			}
		}
		return nil, false
	}
	if e.Kind() != ast.LiteralKind {
		return nil, false
	}
	return jsonOf(e.AsLiteral())
}

func jsonOf(v ref.Val) (any, bool) {
	switch t := v.(type) {
	case types.String:
		return string(t), true
	case types.Int:
		return int64(t), true
	case types.Double:
		return float64(t), true
	case types.Bool:
		return bool(t), true
	case types.Null:
		return nil, true
	}
	return nil, false
}

// limits gives what a tool's schema says about a subject; false where it says nothing, or the tool has no such value.
func (s subject) limits(args *shape) (limits, bool) {
	at := args
	if s.root != varArgs {
		at = factShapes[s.root]
	}
	for _, st := range s.steps {
		switch {
		case at == nil || at.absent:
			return limits{}, false
		case st.elem && at.kind == shapeList, !st.elem && at.kind == shapeMap:
			at = at.elem
		case !st.elem && at.kind == shapeObject:
			at = at.fields[st.name]
		default:
			return limits{}, false
		}
	}
	if at == nil || at.absent || at.limits == nil {
		return limits{}, false
	}
	l := *at.limits
	for _, c := range s.then {
		l = l.after(c)
	}
	return l, true
}

// after gives the limits of what a change makes of a value.
func (l limits) after(c change) limits {
	out := anything()
	switch c.fn {
	case "orValue":
		other := form{limits: anything()}
		other.list([]any{c.with})
		return l.either(other.limits)
	case "size":
		out.kinds = kindWhole
		least, most := l.minSize, l.maxSize
		for i, v := range l.values {
			text, ok := v.(string)
			if !ok {
				least, most = 0, -1
				break
			}
			n := int64(utf8.RuneCountInString(text))
			if i == 0 {
				least, most = n, n
			}
			least, most = min(least, n), max(most, n)
		}
		if l.kinds&^(kindString|kindNull) != 0 && l.kinds&^(kindArray|kindNull) != 0 {
			least, most = 0, -1
		}
		out.low = &bound{at: new(big.Rat).SetInt64(least)}
		if most >= 0 {
			out.high = &bound{at: new(big.Rat).SetInt64(most)}
		}
		return out
	}
	out.kinds = kindString
	if l.values == nil {
		return out
	}
	out.values = []any{}
	for _, v := range l.values {
		if text, ok := v.(string); ok {
			out.values = append(out.values, changed(c.fn, text))
		}
	}
	return out
}

func changed(fn, text string) string {
	switch fn {
	case "lowerAscii":
		return asciiOnly(text, strings.ToLower)
	case "upperAscii":
		return asciiOnly(text, strings.ToUpper)
	}
	return strings.TrimSpace(text)
}

func asciiOnly(s string, fold func(string) string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteString(fold(string(r)))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unmakes says that no text with a part in it can come out of a subject's last change: lowerAscii leaves no capital letter.
func (s subject) unmakes(part string) bool {
	if len(s.then) == 0 {
		return false
	}
	switch fn := s.then[len(s.then)-1].fn; fn {
	case "lowerAscii", "upperAscii":
		return changed(fn, part) != part
	}
	return false
}

// factShapes hold what is known about the environment's own values, in the form of arguments.
var factShapes = map[string]*shape{
	varTool: objectShape(map[string]*shape{
		"permission": wordShape(specs.PermissionAllow, specs.PermissionApproval, specs.PermissionDeny),
		"source": objectShape(map[string]*shape{
			"kind":  wordShape(specs.SourceBuiltIn, specs.SourceMCP, specs.SourceExtension, specs.SourceSkill),
			"trust": wordShape(specs.Trusted, specs.Untrusted)}),
		"annotations": objectShape(map[string]*shape{
			"sideEffect": wordShape(specs.SideNone, specs.SideWorkspace, specs.SideChat, specs.SideNetwork, specs.SideProcess),
			"reversible": wordShape(specs.ReversibleNone, specs.ReversibleCheckpoint, specs.ReversibleCompensate)})}),
	varRun:    counterShape("round", "nodeRounds", "depth", "commits", "calls"),
	varCall:   counterShape("sequence", "repeat"),
	varBudget: objectShape(map[string]*shape{"used": amountsShape, "limit": amountsShape, "left": amountsShape}),
}

var amountsShape = counterShape("calls", "outputTokens", "cost")

func objectShape(fields map[string]*shape) *shape { return &shape{kind: shapeObject, fields: fields} }

func wordShape[S ~string](words ...S) *shape {
	f := wide()
	values := make([]any, len(words))
	for i, w := range words {
		values[i] = string(w)
	}
	f.list(values)
	return f.shape(inObject)
}

// counterShape is an object of whole numbers that are never negative.
func counterShape(names ...string) *shape {
	out := objectShape(map[string]*shape{})
	for _, name := range names {
		f := wide()
		f.kinds, f.low = kindWhole, &bound{at: new(big.Rat)}
		out.fields[name] = f.shape(inObject)
	}
	return out
}
