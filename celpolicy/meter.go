package celpolicy

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// Cost is counted in steps: a node of an expression evaluated once, or the like amount of work inside one
// function. A step takes well under 100 ns, so that a decision at its limit stays below 50 ms.
//
// The count is our own and not cel-go's. That one is taken after a call, when a single replace() on a megabyte is
// already over; it is silently dropped under some evaluation options; and its own bookkeeping grows with the square
// of a loop. Ours is taken before the work, from nodes that are part of the program under any option.
const (
	// CostPerExpression is what one condition, reason or budget may spend.
	CostPerExpression = 150_000
	// CostPerDecision is what all expressions of one decision may spend together.
	CostPerDecision = 200_000
)

// programOptions are the only options any program of ours is made with.
func programOptions() []cel.ProgramOption {
	return []cel.ProgramOption{cel.EvalOptions(cel.OptPartialEval), cel.CustomDecoratorV2(meter)}
}

// The names by which a program's nodes reach the evaluation they run in. No author can write them.
const (
	varMeter = "@meter"
	fnTick   = "@tick"
)

// tickFunction declares the node that counts a loop's turns; meter replaces it by one that does.
func tickFunction() cel.EnvOption {
	return cel.Function(fnTick, cel.Overload("tick_int", []*cel.Type{cel.IntType}, cel.BoolType,
		cel.UnaryBinding(func(ref.Val) ref.Val { return types.NewErr("unmetered loop") })))
}

// metered gives a copy of a checked expression in which every loop counts its turns, and the number of nodes.
func metered(a *ast.AST) (*ast.AST, uint64) {
	out := ast.Copy(a)
	next := ast.MaxID(out)
	make := ast.NewExprFactory()
	nodes := uint64(0)
	var loops []ast.Expr
	walk(out.Expr(), func(e ast.Expr) {
		nodes++
		if e.Kind() == ast.ComprehensionKind {
			loops = append(loops, e)
		}
	})
	for _, e := range loops {
		c := e.AsComprehension()
		turn := uint64(1)
		count := func(ast.Expr) { turn++ }
		walk(c.LoopCondition(), count)
		walk(c.LoopStep(), count)
		cond := c.LoopCondition()
		tick := make.NewCall(next+1, fnTick, make.NewLiteral(next+2, types.Int(turn)))
		cond.SetKindCase(make.NewCall(next+3, operators.LogicalAnd, tick, make.CopyExpr(cond)))
		next += 3
	}
	return out, nodes
}

// errCostLimit aborts an evaluation; Eval turns it into an error.
func errCostLimit(where string) interpreter.EvalCancelledError {
	return interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "cost limit exceeded " + where}
}

// spend charges the evaluation that a frame belongs to. Without one, nothing may run.
func spend(frame *interpreter.ExecutionFrame, cost uint64, where string) {
	v, _ := frame.ResolveName(varMeter)
	ev, ok := v.(*evaluation)
	if !ok || !ev.spend(cost) {
		panic(errCostLimit(where))
	}
}

// spend pays, or says that it cannot: then nothing is taken, because nothing is done.
func (ev *evaluation) spend(cost uint64) bool {
	if cost > CostPerDecision-ev.spent || cost > CostPerExpression-ev.spentHere {
		return false
	}
	ev.spent += cost
	ev.spentHere += cost
	return true
}

// meter replaces every node whose work grows with its arguments by one that pays first: priced functions, deep
// equality, matches() with a constant pattern (compiled here once), the turns of a loop. Comparisons of whole
// numbers with doubles are made exact on the way.
func meter(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	name := call.Function()
	switch {
	case name == fnTick:
		turn, ok := call.Args()[0].(interpreter.InterpretableConst)
		if !ok {
			return nil, fmt.Errorf("a loop without a price")
		}
		cost, ok := turn.Value().(types.Int)
		if !ok || cost <= 0 {
			return nil, fmt.Errorf("a loop without a price")
		}
		return &tick{InterpretableCall: call, cost: uint64(cost)}, nil
	case name == operators.Equals || name == operators.NotEquals:
		want := name == operators.Equals
		return &paidCall{InterpretableCall: call, price: equalPrice, impl: func(args ...ref.Val) ref.Val { return equal(args, want) }}, nil
	case name == "matches" && len(call.Args()) == 2:
		if n, ok, err := constantMatch(call); ok || err != nil {
			return n, err
		}
	}
	price, priced := prices[name]
	if !priced && !isOrder(name) {
		return i, nil
	}
	table, err := bindings()
	if err != nil {
		return nil, err
	}
	impl := table[call.OverloadID()]
	if impl == nil {
		impl = table[name]
	}
	if impl == nil {
		return nil, fmt.Errorf("%s has no implementation to pay for", name)
	}
	n := &paidCall{InterpretableCall: call, price: price, impl: impl}
	if isOrder(name) {
		n.price = nil
		n.impl = func(args ...ref.Val) ref.Val {
			if c, mixed := exactCompare(args[0], args[1]); mixed {
				return orderHolds(name, c)
			}
			return impl(args...)
		}
	}
	return n, nil
}

// bindings gives the implementation of every function that meter replaces, by overload and by name.
var bindings = sync.OnceValues(func() (map[string]functions.FunctionOp, error) {
	env, err := shared()
	if err != nil {
		return nil, err
	}
	out := map[string]functions.FunctionOp{}
	for name, fn := range env.Functions() {
		if _, priced := prices[name]; !priced && !isOrder(name) {
			continue
		}
		bound, err := fn.Bindings()
		if err != nil {
			return nil, err
		}
		for _, o := range bound {
			out[o.Operator] = varargs(o)
		}
	}
	return out, nil
})

func varargs(o *functions.Overload) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		switch {
		case o.OperandTrait != 0 && !args[0].Type().HasTrait(o.OperandTrait):
			return types.MaybeNoSuchOverloadErr(args[0])
		case len(args) == 1 && o.Unary != nil:
			return o.Unary(args[0])
		case len(args) == 2 && o.Binary != nil:
			return o.Binary(args[0], args[1])
		case o.Function != nil:
			return o.Function(args...)
		}
		return types.MaybeNoSuchOverloadErr(args[0])
	}
}

// tick is true, and costs one turn of its loop.
type tick struct {
	interpreter.InterpretableCall
	cost uint64
}

func (t *tick) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	spend(frame, t.cost, "in a loop")
	return types.True
}

func (t *tick) Eval(a interpreter.Activation) ref.Val { return t.Exec(interpreter.AsFrame(a)) }

// paidCall evaluates its arguments, pays, and then calls. A nil price is free.
type paidCall struct {
	interpreter.InterpretableCall
	price func([]ref.Val) uint64
	impl  functions.FunctionOp
}

func (c *paidCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	nodes := c.Args()
	var few [2]ref.Val
	args := few[:0]
	var unknown *types.Unknown
	for _, n := range nodes {
		v := n.Exec(frame)
		if types.IsError(v) {
			return v
		}
		unknown, _ = types.MaybeMergeUnknowns(v, unknown)
		args = append(args, v)
	}
	if unknown != nil {
		return unknown
	}
	if c.price != nil {
		spend(frame, c.price(args), "before calling "+c.Function())
	}
	return types.LabelErrNode(c.ID(), c.impl(args...))
}

func (c *paidCall) Eval(a interpreter.Activation) ref.Val { return c.Exec(interpreter.AsFrame(a)) }

func equal(args []ref.Val, want bool) ref.Val {
	if c, mixed := exactCompare(args[0], args[1]); mixed {
		return types.Bool((c == 0) == want)
	}
	eq := types.Equal(args[0], args[1])
	if b, ok := eq.(types.Bool); ok {
		return types.Bool(bool(b) == want)
	}
	return eq
}

func equalPrice(args []ref.Val) uint64 { return min(weigh(args[0]), weigh(args[1])) }

// constantMatch compiles a pattern that stands in the expression itself.
func constantMatch(call interpreter.InterpretableCall) (interpreter.InterpretableV2, bool, error) {
	c, ok := call.Args()[1].(interpreter.InterpretableConst)
	if !ok {
		return nil, false, nil
	}
	pattern, ok := c.Value().(types.String)
	if !ok {
		return nil, false, nil
	}
	size, err := regexSize(string(pattern))
	if err != nil {
		return nil, false, fmt.Errorf("%q is not a regular expression of RE2: %w", string(pattern), err)
	}
	if size > maxRegexProgram {
		return nil, false, fmt.Errorf("the regular expression %q has about %d states, at most %d; count to less", string(pattern), size, maxRegexProgram)
	}
	re, err := regexp.Compile(string(pattern))
	if err != nil {
		return nil, false, fmt.Errorf("%q is not a regular expression of RE2: %w", string(pattern), err)
	}
	return &paidCall{InterpretableCall: call, price: constantMatchPrice(size), impl: func(args ...ref.Val) ref.Val {
		s, ok := args[0].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		return types.Bool(re.MatchString(string(s)))
	}}, true, nil
}
