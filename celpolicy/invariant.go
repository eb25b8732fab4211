package celpolicy

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/callgate/callgate/specs"
)

// invariantEnv is what a Machine's invariant may use: `state`, `history` (the names of the events so far) and
// count(history, "event").
var invariantEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.ParserExpressionSizeLimit(maxExpressionRunes),
		cel.ParserRecursionLimit(maxNesting),
		cel.Variable("state", cel.StringType),
		cel.Variable("history", cel.ListType(cel.StringType)),
		cel.Function("count", cel.Overload("count_list_string", []*cel.Type{cel.ListType(cel.StringType), cel.StringType}, cel.IntType,
			cel.BinaryBinding(func(list, event ref.Val) ref.Val {
				n := types.Int(0)
				l, ok := list.(traits.Lister)
				if !ok {
					return types.MaybeNoSuchOverloadErr(list)
				}
				for it := l.Iterator(); it.HasNext() == types.True; {
					if it.Next().Equal(event) == types.True {
						n++
					}
				}
				return n
			}))),
	)
})

// CompileInvariant makes a Machine's invariant a function of the state and of the events that led to it. The
// function is safe for concurrent use; its error means that the invariant could not be decided. The error of
// CompileInvariant itself is a *specs.InvalidError at the author's line and column.
func CompileInvariant(t specs.Text) (func(state string, history []string) (bool, error), error) {
	env, err := invariantEnv()
	if err != nil {
		return nil, err
	}
	bad := func(offset int, message string) error {
		return specs.Diagnostics{{Pos: t.At(offset), Severity: specs.Error, Code: "invariant", Message: message, Width: 1,
			Hint: `an invariant is a condition over state and history: count(history, "spend") <= 1`}}.Err()
	}
	checked, iss := env.Compile(t.Value)
	if iss.Err() != nil {
		first := iss.Errors()[0]
		return nil, bad(offsetOf(t.Value, first.Location), lowerFirst(first.Message))
	}
	if !checked.OutputType().IsExactType(types.BoolType) {
		return nil, bad(0, "an invariant must be a bool, this is "+article(checked.OutputType().String()))
	}
	program, err := env.Program(checked, cel.CostLimit(CostPerExpression))
	if err != nil {
		return nil, bad(0, err.Error())
	}
	return func(state string, history []string) (bool, error) {
		out, _, err := program.Eval(map[string]any{"state": state, "history": history})
		if err != nil {
			return false, fmt.Errorf("%s: %w", t.Value, err)
		}
		holds, ok := out.(types.Bool)
		return bool(holds), boolOr(ok, out)
	}, nil
}

func boolOr(ok bool, v ref.Val) error {
	if ok {
		return nil
	}
	return fmt.Errorf("the invariant gave %s, not bool", v.Type().TypeName())
}
