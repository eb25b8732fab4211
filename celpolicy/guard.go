package celpolicy

import (
	"math"
	"regexp"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// Cost is counted in cel-go's units, roughly one operation or ten characters touched. A unit takes well
// under 100 ns, so that a decision at its limit stays below 50 ms with room for a busy machine.
const (
	// CostPerExpression is what one condition, reason or budget may spend.
	CostPerExpression = 100_000
	// CostPerDecision is what all expressions of one decision may spend together.
	CostPerDecision = 250_000
)

// programOptions are the only options any program of ours is made with. cel-go drops the cost limit when
// state tracking or exhaustive evaluation is on, so neither ever is; SelfTest proves the set in use.
func programOptions() ([]cel.ProgramOption, error) {
	g, err := guards()
	if err != nil {
		return nil, err
	}
	return []cel.ProgramOption{
		cel.EvalOptions(cel.OptPartialEval),
		cel.CostLimit(CostPerExpression),
		cel.CostTracking(callCost{}),
		cel.Functions(g...),
		cel.CustomDecoratorV2(decorate),
	}, nil
}

// guards wraps every function of the environment so that its price is known before it runs. cel-go counts a
// call after the fact: one replace() or one matches() on a megabyte would be over before it is cut off.
var guards = sync.OnceValues(func() ([]*functions.Overload, error) {
	env, err := shared()
	if err != nil {
		return nil, err
	}
	var out []*functions.Overload
	for name, fn := range env.Functions() {
		price, priced := prices[name]
		compares := isOrder(name)
		if !priced && !compares {
			continue
		}
		bound, err := fn.Bindings()
		if err != nil {
			return nil, err
		}
		for _, o := range bound {
			out = append(out, guarded(o, name, price, compares))
		}
	}
	return out, nil
})

func guarded(o *functions.Overload, name string, price func([]ref.Val) uint64, compares bool) *functions.Overload {
	check := func(args ...ref.Val) ref.Val {
		if price != nil && price(args) > CostPerExpression {
			return errTooExpensive(name)
		}
		if compares && len(args) == 2 {
			if c, mixed := exactCompare(args[0], args[1]); mixed {
				return orderHolds(name, c)
			}
		}
		return nil
	}
	g := *o
	if o.Unary != nil {
		g.Unary = func(v ref.Val) ref.Val {
			if err := check(v); err != nil {
				return err
			}
			return o.Unary(v)
		}
	}
	if o.Binary != nil {
		g.Binary = func(a, b ref.Val) ref.Val {
			if err := check(a, b); err != nil {
				return err
			}
			return o.Binary(a, b)
		}
	}
	if o.Function != nil {
		g.Function = func(args ...ref.Val) ref.Val {
			if err := check(args...); err != nil {
				return err
			}
			return o.Function(args...)
		}
	}
	return &g
}

func errTooExpensive(name string) ref.Val {
	return types.NewErr("cost limit exceeded before calling %s", name)
}

// decorate replaces the two nodes that do not go through a function table: equality, which is deep, and
// matches() with a constant pattern, which is compiled once.
func decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	switch call.Function() {
	case operators.Equals, operators.NotEquals:
		want := call.Function() == operators.Equals
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
			if addCost(weigh(args[0]), weigh(args[1])) > CostPerExpression {
				return errTooExpensive("==")
			}
			if c, mixed := exactCompare(args[0], args[1]); mixed {
				return types.Bool((c == 0) == want)
			}
			eq := types.Equal(args[0], args[1])
			if b, ok := eq.(types.Bool); ok && !want {
				return !b
			}
			return eq
		}), nil
	case "matches":
		args := call.Args()
		if len(args) != 2 {
			return i, nil
		}
		c, ok := args[1].(interpreter.InterpretableConst)
		if !ok {
			return i, nil
		}
		pattern, ok := c.Value().(types.String)
		if !ok {
			return i, nil
		}
		re, err := regexp.Compile(string(pattern))
		if err != nil {
			return nil, err
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), args, func(args ...ref.Val) ref.Val {
			s, ok := args[0].(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(args[0])
			}
			if matchPrice(args) > CostPerExpression {
				return errTooExpensive("matches")
			}
			return types.Bool(re.MatchString(string(s)))
		}), nil
	}
	return i, nil
}

// callCost prices, after the call, what prices priced before it.
type callCost struct{}

func (callCost) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	if function == operators.Equals || function == operators.NotEquals {
		c := addCost(1, min(weigh(args[0]), weigh(args[1])))
		return &c
	}
	if price, ok := prices[function]; ok {
		c := addCost(1, price(args))
		return &c
	}
	return nil
}

// prices gives the cost of functions whose work grows with their arguments.
var prices = map[string]func([]ref.Val) uint64{
	"matches":               matchPrice,
	"replace":               replacePrice,
	"split":                 sumPrice,
	"join":                  joinPrice,
	"format":                sumPrice,
	"strings.quote":         sumPrice,
	"lowerAscii":            sumPrice,
	"upperAscii":            sumPrice,
	"reverse":               sumPrice,
	"trim":                  sumPrice,
	"substring":             sumPrice,
	"charAt":                sumPrice,
	"indexOf":               sumPrice,
	"lastIndexOf":           sumPrice,
	"contains":              sumPrice,
	"startsWith":            sumPrice,
	"endsWith":              sumPrice,
	"glob":                  globPrice,
	"path.within":           sumPrice,
	"semver":                sumPrice,
	"isSemver":              sumPrice,
	operators.Add:           sumPrice,
	operators.In:            sumPrice,
	operators.OldIn:         sumPrice,
	"flatten":               sumPrice,
	"slice":                 sumPrice,
	"sort":                  sortPrice,
	"@sortByAssociatedKeys": sortPrice,
	"distinct":              squarePrice,
	"lists.range":           rangePrice,
	"sets.contains":         productPrice,
	"sets.equivalent":       productPrice,
	"sets.intersects":       productPrice,
	"math.@min":             sumPrice,
	"math.@max":             sumPrice,
	"bytes":                 sumPrice,
	"string":                sumPrice,
	"timestamp":             sumPrice,
	"duration":              sumPrice,
	"ip":                    sumPrice,
	"cidr":                  sumPrice,
	"isIP":                  sumPrice,
	"isCIDR":                sumPrice,
}

func matchPrice(args []ref.Val) uint64 {
	if len(args) != 2 {
		return sumPrice(args)
	}
	// Go's engine walks every state for every character in the worst case: 4 pattern characters are about one state.
	return mulCost(1+sizeOf(args[0])/10, 1+sizeOf(args[1])/4)
}

func replacePrice(args []ref.Val) uint64 {
	if len(args) < 3 {
		return sumPrice(args)
	}
	in, old, with := sizeOf(args[0]), sizeOf(args[1]), sizeOf(args[2])
	hits := in/max(1, old) + 1
	return addCost(in/10, mulCost(hits, with+1)/10)
}

// joinPrice counts the separator once for each element, beside the elements themselves.
func joinPrice(args []ref.Val) uint64 {
	if len(args) == 2 {
		return addCost(weigh(args[0]), mulCost(1+sizeOf(args[0]), 1+sizeOf(args[1]))/10)
	}
	return sumPrice(args)
}

func globPrice(args []ref.Val) uint64 {
	if len(args) != 2 {
		return sumPrice(args)
	}
	return mulCost(1+sizeOf(args[0])/10, 1+sizeOf(args[1])/8)
}

func sortPrice(args []ref.Val) uint64 {
	n := uint64(0)
	for _, a := range args {
		n = addCost(n, weigh(a))
	}
	return mulCost(n, 1+uint64(math.Log2(float64(n+1))))
}

func squarePrice(args []ref.Val) uint64 {
	n := uint64(0)
	for _, a := range args {
		n = addCost(n, weigh(a))
	}
	return mulCost(n, n)
}

func productPrice(args []ref.Val) uint64 {
	if len(args) != 2 {
		return sumPrice(args)
	}
	return mulCost(weigh(args[0]), weigh(args[1]))
}

func rangePrice(args []ref.Val) uint64 {
	if n, ok := args[0].(types.Int); ok && n > 0 {
		return uint64(n)
	}
	return 1
}

func sumPrice(args []ref.Val) uint64 {
	n := uint64(0)
	for _, a := range args {
		n = addCost(n, weigh(a))
	}
	return n
}

// weigh counts everything inside a value, lists within lists included, and stops once it is certainly too
// much. Sizes of containers alone would miss a short list that holds one long list a thousand times.
func weigh(v ref.Val) uint64 {
	budget := int64(CostPerExpression) + 1
	weighInto(v, &budget)
	return uint64(int64(CostPerExpression) + 1 - budget)
}

func weighInto(v ref.Val, budget *int64) {
	if *budget <= 0 {
		return
	}
	*budget--
	switch t := v.(type) {
	case types.String:
		*budget -= int64(len(t) / 10)
	case types.Bytes:
		*budget -= int64(len(t) / 10)
	case traits.Lister:
		n, _ := t.Size().(types.Int)
		for i := types.Int(0); i < n && *budget > 0; i++ {
			weighInto(t.Get(i), budget)
		}
	case traits.Mapper:
		for it := t.Iterator(); it.HasNext() == types.True && *budget > 0; {
			k := it.Next()
			weighInto(k, budget)
			if e, ok := t.Find(k); ok {
				weighInto(e, budget)
			}
		}
	case *labels:
		*budget -= int64(len(t.m))
	}
	*budget = max(*budget, 0)
}

func sizeOf(v ref.Val) uint64 {
	if s, ok := v.(types.String); ok {
		return uint64(len(s))
	}
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok && n > 0 {
			return uint64(n)
		}
	}
	return 1
}

func addCost(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func mulCost(a, b uint64) uint64 {
	if a != 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}

func isOrder(name string) bool {
	switch name {
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return true
	}
	return false
}

func orderHolds(name string, c int) ref.Val {
	switch name {
	case operators.Less:
		return types.Bool(c < 0)
	case operators.LessEquals:
		return types.Bool(c <= 0)
	case operators.Greater:
		return types.Bool(c > 0)
	}
	return types.Bool(c >= 0)
}

// exactCompare orders a whole number against a double without rounding either; cel-go would turn the whole
// number into a double, and 2^53+1 would equal 2^53. It says false for any other pair, NaN included.
func exactCompare(a, b ref.Val) (int, bool) {
	if i, ok := a.(types.Int); ok {
		if d, ok := b.(types.Double); ok && !math.IsNaN(float64(d)) {
			return compareIntDouble(int64(i), float64(d)), true
		}
	}
	if d, ok := a.(types.Double); ok && !math.IsNaN(float64(d)) {
		if i, ok := b.(types.Int); ok {
			return -compareIntDouble(int64(i), float64(d)), true
		}
	}
	return 0, false
}

func compareIntDouble(i int64, d float64) int {
	switch {
	case d >= 1<<63:
		return -1
	case d < -(1 << 63):
		return 1
	}
	whole := int64(math.Trunc(d))
	switch {
	case i < whole:
		return -1
	case i > whole:
		return 1
	}
	switch frac := d - math.Trunc(d); {
	case frac > 0:
		return -1
	case frac < 0:
		return 1
	}
	return 0
}
