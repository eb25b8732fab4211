package celpolicy

import (
	"maps"
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

// expr is one compiled expression. Equal texts share one: a program does not know where it stands.
type expr struct {
	text     string
	program  cel.Program
	uses     map[string]bool // variables it names
	usesArgs bool
	usesTool bool
	out      *types.Type // against untyped arguments
	parsed   *cel.Ast
	ast      *ast.AST
	issues   []*common.Error
	nodes    uint64 // what one evaluation without loops costs
	lowered  condFn // nil: only cel-go answers it
	cost     expense
	stateful bool // it reads what changes from call to call
	onlyArgs bool // it reads nothing but the tool and arguments
	place    int  // among the compiled texts, from 0
}

// constant gives the value of an expression that is a literal true or false.
func (e *expr) constant() (value, ok bool) {
	if e.ast == nil || e.ast.Expr().Kind() != ast.LiteralKind {
		return false, false
	}
	b, ok := e.ast.Expr().AsLiteral().(types.Bool)
	return bool(b), ok
}

// expression parses, checks and plans a text once. Its issues are not findings yet: they have no place.
func (c *compiler) expression(text string) *expr {
	if e, ok := c.memo[text]; ok {
		return e
	}
	e := &expr{text: text, uses: map[string]bool{}, place: len(c.memo), cost: expense{steep: true}, stateful: true}
	c.memo[text] = e
	parsed, iss := c.open.Parse(text)
	if iss.Err() != nil {
		e.issues = iss.Errors()
		return e
	}
	e.parsed = parsed
	walk(parsed.NativeRep().Expr(), func(x ast.Expr) {
		if x.Kind() == ast.IdentKind {
			e.uses[strings.TrimPrefix(x.AsIdent(), ".")] = true
		}
	})
	e.usesArgs, e.usesTool = e.uses[varArgs], e.uses[varTool]
	checked, iss := c.open.Check(parsed)
	if iss.Err() != nil {
		e.issues = iss.Errors()
		return e
	}
	e.ast, e.out = checked.NativeRep(), checked.OutputType()
	if bad := unordered(e.ast); bad != nil {
		e.issues = []*common.Error{bad}
		return e
	}
	runs, nodes := metered(e.ast)
	program, err := c.open.PlanProgram(runs, c.options...)
	if err != nil {
		e.issues = []*common.Error{common.NewError(0, err.Error(), common.NewLocation(1, 0))}
		return e
	}
	e.program, e.nodes = program, nodes
	e.lowered, e.cost, e.stateful = lower(e.ast)
	e.cost.base += nodes
	e.onlyArgs = e.lowered != nil && e.usesArgs && !slices.ContainsFunc(slices.Collect(maps.Keys(e.uses)), func(v string) bool { return v != varArgs && v != varTool })
	return e
}

// unordered finds a macro that walks a map written in the expression itself: such a map has no order, and a
// decision must not depend on Go's map seed.
func unordered(a *ast.AST) *common.Error {
	var bad *common.Error
	walk(a.Expr(), func(x ast.Expr) {
		if x.Kind() != ast.ComprehensionKind || bad != nil {
			return
		}
		walk(x.AsComprehension().IterRange(), func(y ast.Expr) {
			if y.Kind() == ast.MapKind && bad == nil {
				bad = common.NewError(y.ID(), "a map written here has no order to walk in; use a list",
					a.SourceInfo().GetStartLocation(y.ID()))
			}
		})
	})
	return bad
}

func walk(e ast.Expr, visit func(ast.Expr)) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(visit))
}

// offsetOf turns cel-go's line and column into the number of characters before them.
func offsetOf(text string, loc common.Location) int {
	line, offset := 1, 0
	for ; line < loc.Line(); line++ {
		i := strings.IndexByte(text, '\n')
		if i < 0 {
			break
		}
		offset += utf8.RuneCountInString(text[:i]) + 1
		text = text[i+1:]
	}
	return offset + max(0, loc.Column())
}

// argPaths gives every chain of names that an expression selects below `args`: args.a.b is [a b].
func argPaths(e ast.Expr) [][]string {
	var out [][]string
	walk(e, func(x ast.Expr) {
		if p, ok := argPath(x); ok && len(p) > 0 {
			out = append(out, p)
		}
	})
	return out
}

// usesWhole says whether an expression names `args` other than to select from it.
func usesWhole(e ast.Expr) bool {
	named, selected := 0, 0
	walk(e, func(x ast.Expr) {
		if x.Kind() == ast.IdentKind && x.AsIdent() == varArgs {
			named++
		}
		if p, ok := argPath(x); ok && len(p) == 1 {
			selected++
		}
	})
	return named != selected
}

// argPath gives the names of a chain that starts at args, and false for anything else.
func argPath(e ast.Expr) ([]string, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return nil, e.AsIdent() == varArgs
	case ast.SelectKind:
		if p, ok := argPath(e.AsSelect().Operand()); ok {
			return append(p, e.AsSelect().FieldName()), true
		}
	case ast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.OptSelect, operators.Index, operators.OptIndex:
			if p, ok := argPath(call.Args()[0]); ok && call.Args()[1].Kind() == ast.LiteralKind {
				if name, ok := call.Args()[1].AsLiteral().(types.String); ok {
					return append(p, string(name)), true
				}
			}
		}
	}
	return nil, false
}

// looksLikeCEL says whether a `reason` is an expression and not prose: it parses, and it names a variable or
// holds a text literal.
func (c *compiler) looksLikeCEL(t specs.Text) bool {
	text := strings.TrimSpace(t.Value)
	if text == "" {
		return false
	}
	parsed, iss := c.open.Parse(t.Value)
	if iss.Err() != nil {
		return text[0] == '"' || text[0] == '\''
	}
	found := false
	walk(parsed.NativeRep().Expr(), func(x ast.Expr) {
		switch x.Kind() {
		case ast.IdentKind:
			for _, v := range variables {
				found = found || x.AsIdent() == v
			}
		case ast.LiteralKind:
			_, isText := x.AsLiteral().(types.String)
			found = found || isText
		}
	})
	return found
}
