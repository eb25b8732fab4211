package celpolicy

import (
	"maps"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// bareUse is an argument that may be absent and is read without asking first.
type bareUse struct {
	id     int64
	path   []string
	absent bool // this tool never has it
}

// unguarded finds optional arguments that an expression reads where neither has() nor ?. protects it. It
// follows &&, ||, ! and ?: in both directions, as CEL does: a false side makes an error on the other harmless.
func unguarded(e ast.Expr, s *shape) []bareUse {
	g := &guardReader{root: s}
	g.visit(e, facts{})
	return g.found
}

// facts is the set of argument paths known to be present.
type facts map[string]bool

func (f facts) with(more facts) facts {
	if len(more) == 0 {
		return f
	}
	out := maps.Clone(f)
	maps.Copy(out, more)
	return out
}

type guardReader struct {
	root  *shape
	found []bareUse
}

func (g *guardReader) visit(e ast.Expr, known facts) {
	switch e.Kind() {
	case ast.SelectKind:
		sel := e.AsSelect()
		g.visit(sel.Operand(), known)
		if sel.IsTestOnly() || throughOptional(sel.Operand()) {
			return
		}
		if path, ok := argPath(e); ok {
			g.use(e.ID(), path, known)
		}
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		switch call.FunctionName() {
		case operators.LogicalAnd:
			for i, a := range args {
				k := known
				for j, b := range args {
					if i != j {
						k = k.with(whenTrue(b))
					}
				}
				g.visit(a, k)
			}
			return
		case operators.LogicalOr:
			for i, a := range args {
				k := known
				for j, b := range args {
					if i != j {
						k = k.with(whenFalse(b))
					}
				}
				g.visit(a, k)
			}
			return
		case operators.Conditional:
			g.visit(args[0], known)
			g.visit(args[1], known.with(whenTrue(args[0])))
			g.visit(args[2], known.with(whenFalse(args[0])))
			return
		}
		if call.IsMemberFunction() {
			g.visit(call.Target(), known)
		}
		for _, a := range args {
			g.visit(a, known)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		for _, part := range []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
			g.visit(part, known)
		}
	case ast.ListKind:
		for _, x := range e.AsList().Elements() {
			g.visit(x, known)
		}
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			g.visit(x.AsMapEntry().Key(), known)
			g.visit(x.AsMapEntry().Value(), known)
		}
	}
}

func (g *guardReader) use(id int64, path []string, known facts) {
	parent := g.root.at(path[:len(path)-1])
	name := path[len(path)-1]
	if parent.kind != shapeObject {
		return
	}
	member, ok := parent.fields[name]
	if !ok || parent.must[name] || known[pathKey(path)] {
		return
	}
	g.found = append(g.found, bareUse{id: id, path: path, absent: member.absent})
}

func pathKey(path []string) string { return strings.Join(path, "\x00") }

// throughOptional says whether a chain has passed a ?., after which nothing can be missing.
func throughOptional(e ast.Expr) bool {
	switch e.Kind() {
	case ast.SelectKind:
		return throughOptional(e.AsSelect().Operand())
	case ast.CallKind:
		switch e.AsCall().FunctionName() {
		case operators.OptSelect, operators.OptIndex:
			return true
		}
	}
	return false
}

// whenTrue gives the arguments that must be present for an expression to be true.
func whenTrue(e ast.Expr) facts {
	switch e.Kind() {
	case ast.SelectKind:
		if !e.AsSelect().IsTestOnly() {
			return nil
		}
		path, ok := argPath(e)
		if !ok {
			return nil
		}
		out := facts{}
		for i := range path {
			out[pathKey(path[:i+1])] = true
		}
		return out
	case ast.CallKind:
		switch args := e.AsCall().Args(); e.AsCall().FunctionName() {
		case operators.LogicalAnd:
			return inAny(args, whenTrue)
		case operators.LogicalOr:
			return inEvery(args, whenTrue)
		case operators.LogicalNot:
			return whenFalse(args[0])
		}
	}
	return nil
}

// whenFalse gives the arguments that must be present for an expression to be false.
func whenFalse(e ast.Expr) facts {
	if e.Kind() != ast.CallKind {
		return nil
	}
	switch args := e.AsCall().Args(); e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		return inEvery(args, whenFalse)
	case operators.LogicalOr:
		return inAny(args, whenFalse)
	case operators.LogicalNot:
		return whenTrue(args[0])
	}
	return nil
}

func inAny(args []ast.Expr, of func(ast.Expr) facts) facts {
	out := facts{}
	for _, a := range args {
		maps.Copy(out, of(a))
	}
	return out
}

func inEvery(args []ast.Expr, of func(ast.Expr) facts) facts {
	var out facts
	for i, a := range args {
		f := of(a)
		if i == 0 {
			out = maps.Clone(f)
			continue
		}
		maps.DeleteFunc(out, func(k string, _ bool) bool { return !f[k] })
	}
	return out
}
