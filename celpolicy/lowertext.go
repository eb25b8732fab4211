package celpolicy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"

	"github.com/callgate/callgate/specs"
)

// in lowers membership in user.roles, in a list of literals, and in a list argument.
func (l *lowerer) in(a, b ast.Expr) condFn {
	x := l.term(a)
	switch {
	case userRoles(b):
		return l.inRoles(x)
	case b.Kind() == ast.ListKind:
		return l.inLiterals(x, b.AsList())
	}
	panic(unsupported("membership in what is no list of literals"))
}

func (l *lowerer) inRoles(x term) condFn {
	l.cost.weighs(&x)
	l.cost.roles++
	return func(ev *evaluation) tri {
		v := x.fn(ev)
		switch {
		case v.kind == vBad:
			return triBad
		case v.kind == vOpen || ev.sees < seesSubject:
			return triOpen
		case !v.plain():
			return ev.strange(&v)
		}
		roles := ev.in.User.Roles
		if !ev.pay(v.weight() + ev.rolesWeight()) {
			return triBad
		}
		return triOf(v.kind == vString && slices.Contains(roles, specs.Role(v.s)))
	}
}

func (l *lowerer) inLiterals(x term, list ast.ListExpr) condFn {
	l.cost.weighs(&x)
	set := make([]val, 0, list.Size())
	weight := uint64(1)
	for _, e := range list.Elements() {
		v, ok := literal(e)
		if !ok || list.IsOptional(int32(len(set))) {
			panic(unsupported("a list of what are no literals"))
		}
		weight += v.weight()
		set = append(set, v)
	}
	weight = min(weight, CostPerExpression+1)
	l.cost.base += weight
	return func(ev *evaluation) tri {
		v := x.fn(ev)
		if !v.plain() {
			return ev.strange(&v)
		}
		if !ev.pay(v.weight() + weight) {
			return triBad
		}
		for i := range set {
			if set[i].kind == v.kind && sameVal(&set[i], &v) {
				return triYes
			}
			if set[i].kind != v.kind && numeric(&set[i]) && numeric(&v) {
				ev.beyond = true // cel-go compares a whole number with a double in its own way here
				return triBad
			}
		}
		return triNo
	}
}

func numeric(v *val) bool { return v.kind == vInt || v.kind == vDouble }

func literal(e ast.Expr) (val, bool) {
	if e.Kind() != ast.LiteralKind {
		return val{}, false
	}
	return unbox(e.AsLiteral())
}

// textTest lowers the questions about two texts. Each pays for what it may read before it reads.
func (l *lowerer) textTest(name string, args []ast.Expr) condFn {
	if len(args) != 2 {
		panic(unsupported("%s of %d arguments", name, len(args)))
	}
	x := l.term(args[0])
	if name == "matches" {
		return l.match(x, args[1])
	}
	y := l.term(args[1])
	var ask func(s, t string) bool
	switch name {
	case "contains":
		ask = strings.Contains
	case "startsWith":
		ask = strings.HasPrefix
	case "endsWith":
		ask = strings.HasSuffix
	case "path.within":
		ask = pathWithin
	case "glob":
		ask = func(s, pattern string) bool { return specs.Glob(pattern, s) }
		l.cost.product(&x, &y)
	}
	walks := name == "glob"
	if !walks {
		l.cost.sum(&x, &y)
	}
	return func(ev *evaluation) tri {
		v, w, t := ev.both(x.fn, y.fn)
		if t != triYes {
			return t
		}
		price := v.weight() + w.weight()
		if walks {
			price = mulCost(1+uint64(len(v.s))/16, 1+uint64(len(w.s))/8)
		}
		switch {
		case !ev.pay(price):
			return triBad
		case v.kind != vString || w.kind != vString:
			return triBad
		}
		return triOf(ask(v.s, w.s))
	}
}

// match lowers matches() with a pattern that stands in the expression.
func (l *lowerer) match(x term, pattern ast.Expr) condFn {
	text, ok := textLiteral(pattern)
	if !ok {
		panic(unsupported("matches() with a pattern that is no literal"))
	}
	size, err := regexSize(text)
	if err != nil || size > maxRegexProgram {
		panic(unsupported("the regular expression %q", text))
	}
	re, err := regexp.Compile(text)
	if err != nil {
		panic(unsupported("the regular expression %q", text))
	}
	l.cost.scan(&x, size)
	return func(ev *evaluation) tri {
		v := x.fn(ev)
		switch {
		case !v.plain():
			return ev.strange(&v)
		case !ev.pay(mulCost(1+uint64(len(v.s)), size) / 64):
			return triBad
		case v.kind != vString:
			return triBad
		}
		return triOf(re.MatchString(v.s))
	}
}
