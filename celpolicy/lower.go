package celpolicy

import (
	"fmt"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// A checked expression of the common subset is lowered to Go closures over the evaluation: no boxing, no names looked
// up while it runs. cel-go stays the reference. What cannot be lowered runs there; what turns out at run time to be
// an error, or of a kind that only cel-go knows, is asked there again from the start; and every lowered construct is
// compared with cel-go on random expressions and inputs: answers, errors, unknowns, and cost.

// condition and term are lowered expressions: of bool, and of any scalar.
type (
	condFn func(*evaluation) tri
	termFn func(*evaluation) val
)

// lowered runs the lowered form of an expression. Where that has no last word, beyond says so, and cel-go has.
func (ev *evaluation) lowered(e *expr) (t tri) {
	defer func() {
		if recover() != nil {
			t, ev.beyond = triBad, true
		}
	}()
	return ev.direct(e)
}

// direct is lowered for those who recover themselves.
func (ev *evaluation) direct(e *expr) tri {
	ev.spentHere, ev.beyond = 0, false
	if e == nil || e.lowered == nil || !ev.spend(e.nodes) {
		ev.beyond = true
		return triBad
	}
	if t := e.lowered(ev); !ev.beyond {
		return t
	}
	return triBad
}

// pay spends, or ends the expression: an exceeded limit is not absorbed by any || beside it.
func (ev *evaluation) pay(cost uint64) bool {
	if ev.spend(cost) {
		return true
	}
	ev.beyond = true
	return false
}

// pass hands the whole expression to cel-go.
func (ev *evaluation) pass() val {
	ev.beyond = true
	return val{}
}

// lower gives the lowered form of a condition, nil when something in it stays with cel-go.
func lower(a *ast.AST) (fn condFn, cost expense, stateful bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(unlowered); !ok {
				panic(r)
			}
			fn, cost, stateful = nil, expense{steep: true}, true
		}
	}()
	l := &lowerer{}
	fn = l.cond(a.Expr())
	if l.cost.base|l.cost.slope|l.cost.roles >= 1<<32 {
		l.cost.steep = true
	}
	return fn, l.cost, l.stateful
}

// unlowered says which construct stays with cel-go.
type unlowered struct{ what string }

func (u unlowered) Error() string { return "not lowered: " + u.what }

func unsupported(format string, args ...any) unlowered {
	return unlowered{fmt.Sprintf(format, args...)}
}

type lowerer struct {
	cost     expense
	stateful bool
}

func (l *lowerer) cond(e ast.Expr) condFn {
	switch e.Kind() {
	case ast.LiteralKind:
		if b, ok := e.AsLiteral().(types.Bool); ok {
			t := triOf(bool(b))
			return func(*evaluation) tri { return t }
		}
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return l.present(e.AsSelect())
		}
	case ast.CallKind:
		if fn := l.condCall(e.AsCall()); fn != nil {
			return fn
		}
	}
	t := l.term(e)
	return func(ev *evaluation) tri {
		v := t.fn(ev)
		return v.tri()
	}
}

func (l *lowerer) condCall(c ast.CallExpr) condFn {
	args := callOperands(c)
	switch name := c.FunctionName(); name {
	case operators.LogicalAnd:
		return l.and(args)
	case operators.LogicalOr:
		return l.or(args)
	case operators.LogicalNot:
		x := l.cond(args[0])
		return func(ev *evaluation) tri {
			switch t := x(ev); t {
			case triYes:
				return triNo
			case triNo:
				return triYes
			default:
				return t
			}
		}
	case operators.Conditional:
		c, x, y := l.cond(args[0]), l.cond(args[1]), l.cond(args[2])
		return func(ev *evaluation) tri {
			switch t := c(ev); t {
			case triYes:
				return x(ev)
			case triNo:
				return y(ev)
			default:
				return t
			}
		}
	case operators.Equals:
		return l.equal(args[0], args[1], triYes, triNo)
	case operators.NotEquals:
		return l.equal(args[0], args[1], triNo, triYes)
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return l.order(name, args[0], args[1])
	case operators.In:
		return l.in(args[0], args[1])
	case "contains", "startsWith", "endsWith", "matches", "glob", "path.within":
		return l.textTest(name, args)
	case "hasValue":
		if path, ok := l.optional(args[0]); ok {
			l.cost.reads()
			return func(ev *evaluation) tri {
				_, found, t := ev.maybe(path)
				if t != triYes {
					return t
				}
				return triOf(found)
			}
		}
	}
	return nil
}

// operands are a call's arguments, the receiver first.
func callOperands(c ast.CallExpr) []ast.Expr {
	if c.IsMemberFunction() {
		return append([]ast.Expr{c.Target()}, c.Args()...)
	}
	return c.Args()
}

// and answers no as soon as one side does; else what is open beats an error, and an error beats yes.
func (l *lowerer) and(args []ast.Expr) condFn {
	terms := make([]condFn, len(args))
	for i, a := range args {
		terms[i] = l.cond(a)
	}
	if len(terms) == 2 {
		x, y := terms[0], terms[1]
		return func(ev *evaluation) tri {
			a := x(ev)
			if a == triNo {
				return triNo
			}
			b := y(ev)
			if b == triNo || a == triYes {
				return b
			}
			if a == triOpen || b == triOpen {
				return triOpen
			}
			return triBad
		}
	}
	return func(ev *evaluation) tri {
		out := triYes
		for _, t := range terms {
			switch a := t(ev); {
			case a == triNo:
				return triNo
			case a == triOpen || a == triBad && out == triYes:
				out = a
			}
		}
		return out
	}
}

func (l *lowerer) or(args []ast.Expr) condFn {
	terms := make([]condFn, len(args))
	for i, a := range args {
		terms[i] = l.cond(a)
	}
	return func(ev *evaluation) tri {
		out := triNo
		for _, t := range terms {
			switch a := t(ev); {
			case a == triYes:
				return triYes
			case a == triOpen || a == triBad && out == triNo:
				out = a
			}
		}
		return out
	}
}

// equal compares. The price is the lighter side's weight.
func (l *lowerer) equal(a, b ast.Expr, same, other tri) condFn {
	x, y := l.term(a), l.term(b)
	l.cost.lighter(&x, &y)
	if y.constant && y.value.kind == vString {
		want, weight := y.value.s, y.value.weight()
		return func(ev *evaluation) tri {
			v := x.fn(ev)
			switch {
			case v.kind == vString:
				if !ev.pay(min(weight, weightOf(len(v.s)))) {
					return triBad
				}
				if v.s == want {
					return same
				}
				return other
			case !v.plain():
				return ev.strange(&v)
			case !ev.pay(1):
				return triBad
			}
			return other
		}
	}
	return func(ev *evaluation) tri {
		v, w, t := ev.both(x.fn, y.fn)
		switch {
		case t != triYes:
			return t
		case !ev.pay(min(v.weight(), w.weight())):
			return triBad
		case sameVal(&v, &w):
			return same
		}
		return other
	}
}

// strange is the answer about a value that is no scalar: an error, an unknown, or a list or object that only cel-go
// compares.
func (ev *evaluation) strange(v *val) tri {
	switch v.kind {
	case vBad:
		return triBad
	case vOpen:
		return triOpen
	}
	ev.beyond = true
	return triBad
}

// both evaluates two operands as cel-go does: an error ends it, an unknown waits for the other side. The answer is triYes
// when both are scalars.
func (ev *evaluation) both(x, y termFn) (v, w val, t tri) {
	v = x(ev)
	if v.kind == vBad {
		return v, w, triBad
	}
	w = y(ev)
	switch {
	case w.kind == vBad:
		return v, w, triBad
	case v.kind == vOpen || w.kind == vOpen:
		return v, w, triOpen
	case !v.plain() || !w.plain():
		ev.beyond = true
		return v, w, triBad
	}
	return v, w, triYes
}

func (l *lowerer) order(name string, a, b ast.Expr) condFn {
	x, y := l.term(a), l.term(b)
	low, equal, high := triNo, triNo, triNo
	switch name {
	case operators.Less:
		low = triYes
	case operators.LessEquals:
		low, equal = triYes, triYes
	case operators.Greater:
		high = triYes
	case operators.GreaterEquals:
		high, equal = triYes, triYes
	}
	verdicts := [3]tri{low, equal, high}
	if y.constant && y.value.kind == vInt {
		bound := y.value.n
		return func(ev *evaluation) tri {
			v := x.fn(ev)
			if v.kind == vInt {
				return verdicts[1+compare(v.n, bound)]
			}
			if !v.plain() {
				return ev.strange(&v)
			}
			w := val{kind: vInt, n: bound}
			c, ok := orderVals(&v, &w)
			if !ok {
				return triBad
			}
			return verdicts[1+c]
		}
	}
	return func(ev *evaluation) tri {
		v, w, t := ev.both(x.fn, y.fn)
		if t != triYes {
			return t
		}
		c, ok := orderVals(&v, &w)
		if !ok {
			return triBad
		}
		return verdicts[1+c]
	}
}
