package celpolicy

import (
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

// literalUse is one comparison of a value that a schema describes with a literal.
type literalUse struct {
	subject subject
	op      string
	literal any
	at      int64      // the literal's node
	guards  []ast.Expr // what must be true for the comparison to matter
}

// verdict is what a schema lets a comparison come to.
type verdict uint8

const (
	mayBeEither verdict = iota
	alwaysFalse
	alwaysTrue
	againstFormat
)

// literalUses finds the comparisons of an expression that a schema may decide.
func literalUses(e ast.Expr) []literalUse {
	r := literalReader{}
	r.visit(e, scope{}, nil)
	return r.found
}

type literalReader struct{ found []literalUse }

var mirrored = map[string]string{operators.Equals: operators.Equals, operators.NotEquals: operators.NotEquals,
	operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals,
	operators.Greater: operators.Less, operators.GreaterEquals: operators.LessEquals}

var textTests = map[string]bool{"startsWith": true, "endsWith": true, "contains": true, "matches": true, "glob": true, "path.within": true}

func (r *literalReader) visit(e ast.Expr, in scope, guards []ast.Expr) {
	switch e.Kind() {
	case ast.SelectKind:
		r.visit(e.AsSelect().Operand(), in, guards)
	case ast.ListKind:
		for _, x := range e.AsList().Elements() {
			r.visit(x, in, guards)
		}
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			r.visit(x.AsMapEntry().Key(), in, guards)
			r.visit(x.AsMapEntry().Value(), in, guards)
		}
	case ast.ComprehensionKind:
		r.loop(e.AsComprehension(), in, guards)
	case ast.CallKind:
		r.call(e.AsCall(), in, guards)
	}
}

// loop binds a loop's variable to the elements of the list that it walks.
func (r *literalReader) loop(c ast.ComprehensionExpr, in scope, guards []ast.Expr) {
	r.visit(c.IterRange(), in, guards)
	inner := scope{}
	for name, s := range in {
		inner[name] = s
	}
	inner[c.IterVar()], inner[c.AccuVar()], inner[c.IterVar2()] = subject{}, subject{}, subject{}
	if s, ok := subjectOf(c.IterRange(), in); ok && c.IterVar2() == "" && len(s.then) == 0 {
		inner[c.IterVar()] = s.to(step{elem: true})
	}
	r.visit(c.AccuInit(), in, guards)
	r.visit(c.LoopCondition(), inner, guards)
	r.visit(c.LoopStep(), inner, guards)
	r.visit(c.Result(), inner, guards)
}

func (r *literalReader) call(c ast.CallExpr, in scope, guards []ast.Expr) {
	args := callOperands(c)
	name := c.FunctionName()
	switch {
	case name == operators.LogicalAnd:
		for i, a := range args {
			others := guards[:len(guards):len(guards)]
			for j, b := range args {
				if i != j {
					others = append(others, b)
				}
			}
			r.visit(a, in, others)
		}
		return
	case name == operators.Conditional:
		r.visit(args[0], in, guards)
		r.visit(args[1], in, append(guards[:len(guards):len(guards)], args[0]))
		r.visit(args[2], in, guards)
		return
	case mirrored[name] != "" && len(args) == 2:
		r.compare(name, args[0], args[1], in, guards)
		r.compare(mirrored[name], args[1], args[0], in, guards)
	case name == operators.In:
		r.member(args[0], args[1], in, guards)
	case textTests[name] && len(args) == 2:
		r.compare(name, args[0], args[1], in, guards)
	}
	for _, a := range args {
		r.visit(a, in, guards)
	}
}

func (r *literalReader) compare(op string, left, right ast.Expr, in scope, guards []ast.Expr) {
	v, ok := literalOf(right)
	if !ok {
		return
	}
	s, ok := subjectOf(left, in)
	if !ok {
		if _, text := v.(string); op != "matches" || !text {
			return
		}
		s = subject{} // the pattern itself may be senseless
	}
	r.found = append(r.found, literalUse{s, op, v, right.ID(), guards})
}

// member takes `x in [literals]` and `literal in x` apart.
func (r *literalReader) member(left, right ast.Expr, in scope, guards []ast.Expr) {
	if s, ok := subjectOf(left, in); ok && right.Kind() == ast.ListKind {
		for _, x := range right.AsList().Elements() {
			if v, ok := literalOf(x); ok {
				r.found = append(r.found, literalUse{s, operators.In, v, x.ID(), guards})
			}
		}
		return
	}
	if v, ok := literalOf(left); ok {
		if s, ok := subjectOf(right, in); ok && len(s.then) == 0 {
			r.found = append(r.found, literalUse{s.to(step{elem: true}), operators.In, v, left.ID(), guards})
		}
	}
}

// judge says what a comparison comes to where a subject has these limits.
func (u *literalUse) judge(l *limits) verdict {
	switch u.op {
	case operators.Equals, operators.NotEquals, operators.In:
		text, isText := u.literal.(string)
		switch {
		case !l.takes(u.literal) || isText && u.subject.unmakes(text):
			if u.op == operators.NotEquals {
				return alwaysTrue
			}
			return alwaysFalse
		case isText && len(u.subject.then) == 0 && offFormat(l.format, text):
			return againstFormat
		}
		return mayBeEither
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		if n := rational(u.literal); n != nil && l.kinds&kindNumber != 0 {
			return l.order(u.op, n)
		}
		return mayBeEither
	}
	if text, ok := u.literal.(string); ok && l.kinds&kindString != 0 && u.neverHolds(l, text) {
		return alwaysFalse
	}
	return mayBeEither
}

// order compares a range with a number. A comparison at the very end of the range is left alone: it says in the rule what
// the schema says too.
func (l *limits) order(op string, n *big.Rat) verdict {
	if l.values != nil {
		return l.orderEach(op, n)
	}
	less, lessOrSame := l.low != nil && l.low.at.Cmp(n) >= 0, l.below(n) // nothing is < n, or <= n
	more, moreOrSame := l.high != nil && l.high.at.Cmp(n) <= 0, l.above(n)
	beyond := l.high != nil && n.Cmp(l.high.at) > 0 // n lies over the whole range
	under := l.low != nil && n.Cmp(l.low.at) < 0
	switch {
	case op == operators.Less && less, op == operators.LessEquals && lessOrSame, op == operators.Greater && more, op == operators.GreaterEquals && moreOrSame:
		return alwaysFalse
	case beyond && (op == operators.Less || op == operators.LessEquals), under && (op == operators.Greater || op == operators.GreaterEquals):
		return alwaysTrue
	}
	return mayBeEither
}

func (l *limits) orderEach(op string, n *big.Rat) verdict {
	yes, no := 0, 0
	for _, v := range l.values {
		m := rational(v)
		if m == nil {
			continue
		}
		if orderHolds(op, m.Cmp(n)) == types.True {
			yes++
		} else {
			no++
		}
	}
	switch {
	case yes == 0 && no > 0:
		return alwaysFalse
	case no == 0 && yes > 0:
		return alwaysTrue
	}
	return mayBeEither
}

// neverHolds says that a test of a text is false for every text within limits.
func (u *literalUse) neverHolds(l *limits, text string) bool {
	if l.values != nil {
		return !slices.ContainsFunc(l.values, func(v any) bool {
			s, ok := v.(string)
			return ok && holds(u.op, s, text)
		})
	}
	switch u.op {
	case "startsWith", "endsWith", "contains":
		return u.subject.unmakes(text) || l.kinds&^(kindString|kindNull) == 0 && l.maxSize >= 0 && int64(utf8.RuneCountInString(text)) > l.maxSize
	}
	return false
}

// holds does a text test as the program will.
func holds(op, s, text string) bool {
	switch op {
	case "startsWith":
		return strings.HasPrefix(s, text)
	case "endsWith":
		return strings.HasSuffix(s, text)
	case "contains":
		return strings.Contains(s, text)
	case "glob":
		return specs.Glob(text, s)
	case "path.within":
		return pathWithin(s, text)
	}
	re := compilePattern(text)
	return re == nil || re.MatchString(s)
}
