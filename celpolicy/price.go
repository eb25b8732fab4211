package celpolicy

import (
	"math"
	"regexp/syntax"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// prices gives the cost of functions whose work grows with their arguments.
var prices = map[string]func([]ref.Val) uint64{
	"matches":               matchPrice,
	"replace":               replacePrice,
	"split":                 splitPrice,
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
	operators.Add:           addPrice,
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
	// A pattern that is only known now is compiled now, and nobody has looked at how it walks.
	reading := 32 * bytesOf(args[1])
	if reading > CostPerExpression {
		return reading
	}
	pattern, _ := args[1].(types.String)
	size, err := regexSize(string(pattern))
	if err != nil {
		return reading // the call itself says what is wrong
	}
	if size > maxRegexProgram {
		return math.MaxUint64
	}
	return addCost(reading, addCost(32*size, mulCost(1+bytesOf(args[0]), size)/16))
}

// constantMatchPrice is for patterns compiled at load. Go's engine walks, in the worst case, every state for every
// character.
func constantMatchPrice(size uint64) func([]ref.Val) uint64 {
	return func(args []ref.Val) uint64 { return mulCost(1+bytesOf(args[0]), size) / 64 }
}

// regexSize is about how many states a pattern has. A counted repetition has its body's states as often as it counts, so
// that a short pattern may be a large one. cel-go's own count panics at such repetitions, so it is not used.
func regexSize(pattern string) (uint64, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	return addCost(3, statesOf(re)), nil
}

func statesOf(re *syntax.Regexp) uint64 {
	n := uint64(1)
	switch re.Op {
	case syntax.OpLiteral:
		n = uint64(len(re.Rune))
	case syntax.OpCharClass:
		n = 1 + uint64(len(re.Rune))/16
	case syntax.OpCapture:
		n = 2
	case syntax.OpRepeat:
		n = 0
	}
	for _, sub := range re.Sub {
		n = addCost(n, statesOf(sub))
	}
	if re.Op == syntax.OpRepeat {
		n = mulCost(n, uint64(max(1, re.Min, re.Max)))
	}
	return n
}

// splitPrice counts the pieces that a short separator may cut a text into.
func splitPrice(args []ref.Val) uint64 { return bytesOf(args[0])/2 + 1 }

func replacePrice(args []ref.Val) uint64 {
	if len(args) < 3 {
		return sumPrice(args)
	}
	in, old, with := bytesOf(args[0]), bytesOf(args[1]), bytesOf(args[2])
	hits := in/max(1, old) + 1
	return addCost(in/10, mulCost(hits, with+1)/10)
}

// addPrice is for texts: lists are joined without copying.
func addPrice(args []ref.Val) uint64 {
	n := uint64(1)
	for _, a := range args {
		switch t := a.(type) {
		case types.String:
			n += uint64(len(t)) / 10
		case types.Bytes:
			n += uint64(len(t)) / 10
		}
	}
	return n
}

// joinPrice counts the separator once for each element, beside the elements themselves.
func joinPrice(args []ref.Val) uint64 {
	if len(args) == 2 {
		return addCost(weigh(args[0]), mulCost(1+sizeOf(args[0]), 1+bytesOf(args[1]))/10)
	}
	return sumPrice(args)
}

func globPrice(args []ref.Val) uint64 {
	if len(args) != 2 {
		return sumPrice(args)
	}
	return mulCost(1+bytesOf(args[0])/16, 1+bytesOf(args[1])/8)
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
	return mulCost(n, n) / 8
}

func productPrice(args []ref.Val) uint64 {
	if len(args) != 2 {
		return sumPrice(args)
	}
	return mulCost(weigh(args[0]), weigh(args[1])) / 8
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

func bytesOf(v ref.Val) uint64 {
	s, _ := v.(types.String)
	return uint64(len(s))
}

func sizeOf(v ref.Val) uint64 {
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
