package celpolicy

import (
	"maps"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// unnamedUses gives the paths below args that an expression uses other than by selecting a name from them: in brackets, in a
// loop, as a whole.
func unnamedUses(e ast.Expr) [][]string {
	named := map[int64]bool{}
	walk(e, func(x ast.Expr) {
		switch x.Kind() {
		case ast.SelectKind:
			named[x.AsSelect().Operand().ID()] = true
		case ast.CallKind:
			if c := x.AsCall(); c.FunctionName() == operators.OptSelect {
				named[c.Args()[0].ID()] = true
			}
		}
	})
	var out [][]string
	walk(e, func(x ast.Expr) {
		if path, ok := argPath(x); ok && !named[x.ID()] {
			out = append(out, path)
		}
	})
	return out
}

// loosened gives the shape that an expression is checked against: an object with properties that no name after a dot can
// reach is a map of anything wherever the expression treats it as one.
func (s *shape) loosened(uses [][]string) *shape {
	for _, path := range uses {
		s = s.loosenedAt(path)
	}
	return s
}

func (s *shape) loosenedAt(path []string) *shape {
	if s.kind != shapeObject {
		return s
	}
	if len(path) == 0 {
		if s.loose() {
			return &shape{kind: shapeMap, nullable: s.nullable, elem: dyn("an object that the expression uses as a whole")}
		}
		return s
	}
	f, ok := s.fields[path[0]]
	if !ok {
		return s
	}
	g := f.loosenedAt(path[1:])
	if g == f {
		return s
	}
	out := *s
	out.fields = maps.Clone(s.fields)
	out.fields[path[0]] = g
	return &out
}
