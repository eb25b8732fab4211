package celpolicy

import (
	"math"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

// term is a lowered scalar, and what bounds its size.
type term struct {
	fn       termFn
	constant bool
	value    val    // when constant
	origin   origin // when not
}

// origin says where a value that is no constant comes from, for the bound on what an expression can cost.
type origin uint8

const (
	fromElsewhere origin = iota // its size is not bounded by anything known
	fromTool                    // a word of the tool's own document
	fromArgs                    // inside the arguments
	fromNumber                  // no text
)

func constantTerm(v val) term {
	return term{fn: func(*evaluation) val { return v }, constant: true, value: v}
}

func (l *lowerer) term(e ast.Expr) term {
	switch e.Kind() {
	case ast.LiteralKind:
		v, ok := unbox(e.AsLiteral())
		if !ok {
			panic(unsupported("a literal of type %s", e.AsLiteral().Type().TypeName()))
		}
		return constantTerm(v)
	case ast.IdentKind, ast.SelectKind:
		return l.path(e)
	case ast.CallKind:
		return l.termCall(e)
	}
	panic(unsupported("an expression of kind %d", e.Kind()))
}

func (l *lowerer) termCall(e ast.Expr) term {
	c := e.AsCall()
	args := callOperands(c)
	switch name := c.FunctionName(); name {
	case operators.Index:
		return l.path(e)
	case operators.Conditional:
		return l.choice(args)
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		return l.arithmetic(name, args[0], args[1])
	case operators.Negate:
		return l.negate(args[0])
	case "size":
		return l.size(args[0])
	case "orValue":
		return l.orValue(args[0], args[1])
	}
	if fn := l.condCall(c); fn != nil {
		return term{fn: func(ev *evaluation) val { return fn(ev).val() }, origin: fromNumber}
	}
	panic(unsupported("%s", c.FunctionName()))
}

func (l *lowerer) choice(args []ast.Expr) term {
	c, x, y := l.cond(args[0]), l.term(args[1]), l.term(args[2])
	return term{fn: func(ev *evaluation) val {
		switch t := c(ev); t {
		case triYes:
			return x.fn(ev)
		case triNo:
			return y.fn(ev)
		default:
			return t.val()
		}
	}}
}

// arithmetic is for whole numbers; + joins texts too. Doubles stay with cel-go.
func (l *lowerer) arithmetic(name string, a, b ast.Expr) term {
	x, y := l.term(a), l.term(b)
	kind := fromNumber
	if name == operators.Add {
		kind = fromElsewhere
		l.cost.sum(&x, &y)
	}
	return term{origin: kind, fn: func(ev *evaluation) val {
		v, w, t := ev.both(x.fn, y.fn)
		if t != triYes {
			return t.val()
		}
		if name == operators.Add && !ev.pay(1+uint64(len(v.s))/10+uint64(len(w.s))/10) {
			return val{}
		}
		switch {
		case v.kind == vInt && w.kind == vInt:
			n, ok := whole(name, v.n, w.n)
			if !ok {
				return val{}
			}
			return wholeVal(n)
		case v.kind == vString && w.kind == vString && name == operators.Add:
			return textVal(v.s + w.s)
		case v.kind == vDouble || w.kind == vDouble:
			return ev.pass()
		}
		return val{}
	}}
}

// whole computes with whole numbers; what does not fit is an error, as is a division by zero.
func whole(op string, a, b int64) (int64, bool) {
	switch op {
	case operators.Add:
		c := a + b
		return c, (c > a) == (b > 0)
	case operators.Subtract:
		c := a - b
		return c, (c < a) == (b > 0)
	case operators.Multiply:
		if a == 0 || b == 0 {
			return 0, true
		}
		c := a * b
		return c, c/b == a && !(a == -1 && b == math.MinInt64) && !(b == -1 && a == math.MinInt64)
	case operators.Divide:
		if b == 0 || a == math.MinInt64 && b == -1 {
			return 0, false
		}
		return a / b, true
	case operators.Modulo:
		if b == 0 || a == math.MinInt64 && b == -1 {
			return 0, false
		}
		return a % b, true
	}
	return 0, false
}

func (l *lowerer) negate(a ast.Expr) term {
	x := l.term(a)
	return term{origin: fromNumber, fn: func(ev *evaluation) val {
		v := x.fn(ev)
		switch {
		case v.kind == vInt && v.n != math.MinInt64:
			return wholeVal(-v.n)
		case v.kind == vBad || v.kind == vOpen:
			return v
		}
		return ev.pass()
	}}
}

func (l *lowerer) size(a ast.Expr) term {
	if e := userRoles(a); e {
		return term{origin: fromNumber, fn: func(ev *evaluation) val {
			if ev.sees < seesSubject {
				return val{kind: vOpen}
			}
			return wholeVal(int64(len(ev.in.User.Roles)))
		}}
	}
	x := l.term(a)
	return term{origin: fromNumber, fn: func(ev *evaluation) val {
		v := x.fn(ev)
		if v.kind == vBad || v.kind == vOpen {
			return v
		}
		n, ok := sizeVal(&v)
		if !ok {
			return val{}
		}
		return wholeVal(n)
	}}
}

// orValue is args.?a.?b.orValue(literal).
func (l *lowerer) orValue(a, b ast.Expr) term {
	path, ok := l.optional(a)
	if !ok {
		panic(unsupported("an optional that is no path of arguments"))
	}
	other := l.term(b)
	if !other.constant {
		panic(unsupported("orValue() of what is no literal"))
	}
	l.cost.reads()
	l.cost.base += other.value.weight()
	return term{origin: fromElsewhere, fn: func(ev *evaluation) val {
		v, found, t := ev.maybe(path)
		switch {
		case t != triYes:
			return t.val()
		case found:
			return v
		}
		return other.value
	}}
}

// optional gives the names of a chain args.?a.?b.
func (l *lowerer) optional(e ast.Expr) ([]string, bool) {
	if e.Kind() == ast.IdentKind {
		return nil, e.AsIdent() == varArgs
	}
	if e.Kind() != ast.CallKind {
		return nil, false
	}
	switch c := e.AsCall(); c.FunctionName() {
	case operators.OptSelect, operators.OptIndex:
		name, ok := textLiteral(c.Args()[1])
		if !ok {
			return nil, false
		}
		path, ok := l.optional(c.Args()[0])
		return append(path, name), ok
	}
	return nil, false
}

func textLiteral(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// maybe follows an optional path: found is false where any step is missing.
func (ev *evaluation) maybe(path []string) (v val, found bool, t tri) {
	if ev.sees < seesAll {
		return v, false, triOpen
	}
	v, found = ev.argument(path[0])
	for i := 1; i < len(path) && found; i++ {
		m, ok := v.tree.(map[string]any)
		if !ok {
			return ev.pass(), false, triBad
		}
		next, ok := m[path[i]]
		v, found = valOf(next), ok
	}
	if ev.argsErr != nil {
		return val{}, false, triBad
	}
	if !found {
		return v, false, triYes
	}
	if v = ev.typed(v, path); v.kind == vBad {
		return v, true, triBad
	}
	return v, true, triYes
}

// argument finds a top-level argument, unseen or unreadable ones not being there.
func (ev *evaluation) argument(name string) (val, bool) {
	a := ev.read()
	if a == nil {
		return val{}, false
	}
	return a.member(name)
}

// typed gives a number the type of its place in the tool's schema.
func (ev *evaluation) typed(v val, path []string) val {
	if v.kind != vNumber && (v.kind != vInt || ev.entry == nil || !ev.entry.doubles) {
		return v
	}
	s := untyped
	if ev.entry != nil {
		s = ev.entry.shape
		for _, name := range path {
			s = s.member(name)
		}
	}
	return v.number(s)
}

// path lowers a chain of names, args.a.b or tool.annotations.cost.
func (l *lowerer) path(e ast.Expr) term {
	root, path, ok := chain(e)
	if !ok {
		panic(unsupported("a selection from what is no variable"))
	}
	if root != varArgs {
		return l.fact(root, path)
	}
	if len(path) == 0 {
		panic(unsupported("args as a whole"))
	}
	l.cost.reads()
	if len(path) == 1 {
		name := path[0]
		return term{origin: fromArgs, fn: func(ev *evaluation) val {
			if ev.sees < seesAll {
				return val{kind: vOpen}
			}
			v, _ := ev.argument(name) // absent: an error
			if v.kind == vInt || v.kind == vNumber {
				return ev.typed(v, path)
			}
			return v
		}}
	}
	return term{origin: fromArgs, fn: func(ev *evaluation) val {
		v, _ := ev.follow(path)
		return v
	}}
}

// follow walks a path of arguments; a missing step is an error, and found says that only the last one is missing.
func (ev *evaluation) follow(path []string) (v val, onlyLast bool) {
	if ev.sees < seesAll {
		return val{kind: vOpen}, false
	}
	v, found := ev.argument(path[0])
	for i := 1; i < len(path); i++ {
		if !found {
			return val{}, false
		}
		m, ok := v.tree.(map[string]any)
		if !ok {
			return ev.pass(), false
		}
		next, ok := m[path[i]]
		v, found = valOf(next), ok
	}
	if !found {
		return val{}, ev.argsErr == nil
	}
	return ev.typed(v, path), false
}

// chain takes apart root.a["b"].c.
func chain(e ast.Expr) (root string, path []string, ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent(), nil, true
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			root, path, ok = chain(s.Operand())
			return root, append(path, s.FieldName()), ok
		}
	case ast.CallKind:
		if c := e.AsCall(); c.FunctionName() == operators.Index {
			if name, isText := textLiteral(c.Args()[1]); isText {
				root, path, ok = chain(c.Args()[0])
				return root, append(path, name), ok
			}
		}
	}
	return "", nil, false
}

// fact lowers a variable that is not args.
func (l *lowerer) fact(root string, path []string) term {
	name := root + "." + strings.Join(path, ".")
	if root == varTool {
		return l.toolFact(name, path)
	}
	if len(path) == 2 && path[0] == varLabels {
		return l.label(root, path[1])
	}
	if f, ok := stateFacts[name]; ok {
		l.stateful = l.stateful || f.sight == seesState
		return term{fn: func(ev *evaluation) val {
			if ev.sees < f.sight {
				return val{kind: vOpen}
			}
			return f.get(ev)
		}, origin: f.origin}
	}
	panic(unsupported("%s", name))
}

func (l *lowerer) toolFact(name string, path []string) term {
	at, ok := memberPath(toolType, path)
	if !ok {
		panic(unsupported("%s", name))
	}
	return term{origin: fromTool, fn: func(ev *evaluation) val {
		if ev.entry == nil {
			return val{}
		}
		o := ev.entry.value
		for _, i := range at[:len(at)-1] {
			o = o.vals[i].(*object)
		}
		v, _ := unbox(o.vals[at[len(at)-1]])
		return v
	}}
}

// place gives the indices of a scalar member inside nested objects.
func memberPath(t *structType, path []string) ([]int, bool) {
	var at []int
	for n, name := range path {
		i, ok := t.index[name]
		if !ok {
			return nil, false
		}
		at = append(at, i)
		member := t.fields[i].typ
		if n == len(path)-1 {
			return at, member == types.StringType || member == types.BoolType || member == types.IntType
		}
		next := structOf(member)
		if next == nil {
			return nil, false
		}
		t = next
	}
	return nil, false
}

func structOf(t *types.Type) *structType {
	for _, s := range fixedTypes() {
		if s.cel == t {
			return s
		}
	}
	return nil
}

const varLabels = "labels"

func (l *lowerer) label(root, name string) term {
	labels := labelsOf(root)
	if labels == nil {
		panic(unsupported("%s has no labels", root))
	}
	return term{fn: func(ev *evaluation) val {
		if ev.sees < seesSubject {
			return val{kind: vOpen}
		}
		return textVal(labels(ev.in)[name])
	}}
}

func labelsOf(root string) func(*Input) map[string]string {
	switch root {
	case varRun:
		return func(in *Input) map[string]string { return in.Run.Labels }
	case varUser:
		return func(in *Input) map[string]string { return in.User.Labels }
	case varTenant:
		return func(in *Input) map[string]string { return in.Tenant.Labels }
	}
	return nil
}

// present lowers has().
func (l *lowerer) present(s ast.SelectExpr) condFn {
	root, path, ok := chain(s.Operand())
	if !ok {
		panic(unsupported("has() of what is no variable"))
	}
	path = append(path, s.FieldName())
	switch {
	case root == varArgs && len(path) == 1:
		l.cost.reads()
		name := path[0]
		return func(ev *evaluation) tri {
			if ev.sees < seesAll {
				return triOpen
			}
			v, found := ev.argument(name)
			if !found {
				if ev.argsErr != nil {
					return triBad
				}
				return triNo
			}
			if v = ev.typed(v, path); v.kind == vBad {
				return triBad // a number out of range is an error even to ask about
			}
			return triYes
		}
	case root == varArgs:
		l.cost.reads()
		return func(ev *evaluation) tri {
			v, onlyLast := ev.follow(path)
			switch {
			case onlyLast:
				return triNo
			case v.kind == vOpen:
				return triOpen
			case v.kind == vBad:
				ev.beyond = true // there with a number out of range, or not there at all: cel-go knows
				return triBad
			}
			return triYes
		}
	case root != varTool && len(path) == 2 && path[0] == varLabels && labelsOf(root) != nil:
		labels, name := labelsOf(root), path[1]
		return func(ev *evaluation) tri {
			if ev.sees < seesSubject {
				return triOpen
			}
			_, found := labels(ev.in)[name]
			return triOf(found)
		}
	}
	t := l.fact(root, path)
	return func(ev *evaluation) tri {
		v := t.fn(ev)
		switch v.kind {
		case vString:
			return triOf(v.s != "")
		case vInt, vBool:
			return triOf(v.n != 0)
		}
		return ev.strange(&v)
	}
}

// stateFact is a scalar of the environment, and the sight it takes to read it.
type stateFact struct {
	sight  sight
	origin origin
	get    func(*evaluation) val
}

var stateFacts = map[string]stateFact{
	"run.profile":              {seesTool, fromElsewhere, func(ev *evaluation) val { return textVal(string(ev.profile)) }},
	"run.plan":                 {seesTool, fromElsewhere, func(ev *evaluation) val { return textVal(ev.in.Run.Plan) }},
	"run.node":                 {seesTool, fromElsewhere, func(ev *evaluation) val { return textVal(string(ev.in.Run.Node)) }},
	"run.id":                   {seesSubject, fromElsewhere, func(ev *evaluation) val { return textVal(string(ev.in.Run.ID)) }},
	"run.depth":                {seesSubject, fromNumber, func(ev *evaluation) val { return wholeVal(ev.in.Run.Depth) }},
	"user.id":                  {seesSubject, fromElsewhere, func(ev *evaluation) val { return textVal(string(ev.in.User.ID)) }},
	"tenant.id":                {seesSubject, fromElsewhere, func(ev *evaluation) val { return textVal(string(ev.in.Tenant.ID)) }},
	"run.round":                {seesState, fromNumber, func(ev *evaluation) val { return wholeVal(ev.in.Run.Round) }},
	"run.nodeRounds":           {seesState, fromNumber, func(ev *evaluation) val { return wholeVal(ev.in.Run.NodeRounds) }},
	"run.commits":              {seesState, fromNumber, func(ev *evaluation) val { return wholeVal(ev.in.Run.Commits) }},
	"run.calls":                {seesState, fromNumber, func(ev *evaluation) val { return wholeVal(ev.in.Run.Calls) }},
	"call.sequence":            {seesState, fromNumber, func(ev *evaluation) val { return wholeVal(ev.in.Call.Sequence) }},
	"call.repeat":              {seesState, fromNumber, func(ev *evaluation) val { return wholeVal(ev.in.Call.Repeat) }},
	"budget.used.calls":        usedFact(keyCalls),
	"budget.used.outputTokens": usedFact(keyTokens),
	"budget.used.cost":         usedFact(keyCost),
}

func usedFact(key string) stateFact {
	return stateFact{seesState, fromNumber, func(ev *evaluation) val { return wholeVal(ev.in.Budget.Used[key]) }}
}

// userRoles says whether an expression is user.roles.
func userRoles(e ast.Expr) bool {
	root, path, ok := chain(e)
	return ok && root == varUser && len(path) == 1 && path[0] == "roles"
}

// rolesWeight is what weigh counts for user.roles.
func (ev *evaluation) rolesWeight() uint64 {
	if ev.roles == 0 {
		ev.roles = weighRoles(ev.in.User.Roles)
	}
	return ev.roles
}

func weighRoles(roles []specs.Role) uint64 {
	n := uint64(1)
	for _, r := range roles {
		n += 1 + uint64(len(r))/10
	}
	return min(n, CostPerExpression+1)
}
