package celpolicy

import (
	"encoding/json"
	"math"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// tri is a condition's answer while it is worked out.
type tri uint8

const (
	triNo tri = iota
	triYes
	triBad  // an error
	triOpen // hangs on what the evaluation may not see
)

func triOf(b bool) tri {
	if b {
		return triYes
	}
	return triNo
}

// val is a value of a lowered expression, unboxed. Lists and objects stay what the JSON decoder made of them.
type val struct {
	kind valKind
	n    int64 // whole number, 0 or 1, or the bits of a double
	s    string
	tree any // []any or map[string]any
}

type valKind uint8

const (
	vBad valKind = iota
	vOpen
	vNull
	vBool
	vInt
	vDouble
	vString
	vNumber // a JSON number that is no int64, as its text: its type is the schema's to say
	vList
	vMap
)

func textVal(s string) val { return val{kind: vString, s: s} }
func wholeVal(n int64) val { return val{kind: vInt, n: n} }
func doubleVal(f float64) val {
	return val{kind: vDouble, n: int64(math.Float64bits(f))}
}

func boolVal(b bool) val {
	if b {
		return val{kind: vBool, n: 1}
	}
	return val{kind: vBool}
}

func (t tri) val() val {
	switch t {
	case triYes:
		return boolVal(true)
	case triNo:
		return boolVal(false)
	case triOpen:
		return val{kind: vOpen}
	}
	return val{}
}

// tri reads a value as a condition; what is no bool is an error there.
func (v *val) tri() tri {
	switch v.kind {
	case vBool:
		return tri(v.n)
	case vOpen:
		return triOpen
	}
	return triBad
}

func (v *val) double() float64 { return math.Float64frombits(uint64(v.n)) }

// plain says that a value is a scalar with an answer.
func (v *val) plain() bool { return v.kind >= vNull && v.kind <= vString }

// valOf reads what the JSON decoder makes.
func valOf(v any) val {
	switch t := v.(type) {
	case nil:
		return val{kind: vNull}
	case bool:
		return boolVal(t)
	case string:
		return textVal(t)
	case int64:
		return wholeVal(t)
	case json.Number:
		return val{kind: vNumber, s: string(t)}
	case []any:
		return val{kind: vList, tree: t}
	case map[string]any:
		return val{kind: vMap, tree: t}
	}
	return val{}
}

// unbox reads a scalar of cel-go; false for anything else.
func unbox(v ref.Val) (val, bool) {
	switch t := v.(type) {
	case types.Bool:
		return boolVal(bool(t)), true
	case types.Int:
		return wholeVal(int64(t)), true
	case types.String:
		return textVal(string(t)), true
	case types.Double:
		return doubleVal(float64(t)), true
	case types.Null:
		return val{kind: vNull}, true
	}
	return val{}, false
}

// number gives a JSON number the type that the schema says it has, as box does.
func (v val) number(s *shape) val {
	switch {
	case v.kind == vNumber:
		if out, ok := unbox(boxNumber(v.s, s)); ok {
			return out
		}
		return val{}
	case s.kind == shapeDouble:
		if out, ok := unbox(exactDouble(v.n)); ok {
			return out
		}
		return val{}
	}
	return v
}

// weight is what weigh counts for a scalar.
func (v *val) weight() uint64 {
	if v.kind == vString {
		return weightOf(len(v.s))
	}
	return 1
}

func weightOf(bytes int) uint64 { return min(1+uint64(bytes)/10, CostPerExpression+1) }

// sameVal compares two scalars as cel-go's Equal does, with whole numbers and doubles compared exactly.
func sameVal(a, b *val) bool {
	if a.kind != b.kind {
		if c, ok := mixed(a, b); ok {
			return c == 0
		}
		return false
	}
	switch a.kind {
	case vString:
		return a.s == b.s
	case vDouble:
		return a.double() == b.double()
	case vNull:
		return true
	}
	return a.n == b.n
}

// mixed orders a whole number against a double.
func mixed(a, b *val) (int, bool) {
	switch {
	case a.kind == vInt && b.kind == vDouble && !math.IsNaN(b.double()):
		return compareIntDouble(a.n, b.double()), true
	case a.kind == vDouble && b.kind == vInt && !math.IsNaN(a.double()):
		return -compareIntDouble(b.n, a.double()), true
	}
	return 0, false
}

// orderVals orders two scalars; false when they have no order.
func orderVals(a, b *val) (int, bool) {
	if a.kind != b.kind {
		return mixed(a, b)
	}
	switch a.kind {
	case vInt, vBool:
		return compare(a.n, b.n), true
	case vDouble:
		x, y := a.double(), b.double()
		if math.IsNaN(x) || math.IsNaN(y) {
			return 0, false
		}
		return compare(x, y), true
	case vString:
		return compare(a.s, b.s), true
	}
	return 0, false
}

func compare[T int64 | float64 | string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// sizeVal is size(): characters of a text, elements of a list or object.
func sizeVal(v *val) (int64, bool) {
	switch v.kind {
	case vString:
		return int64(utf8.RuneCountInString(v.s)), true
	case vList:
		return int64(len(v.tree.([]any))), true
	case vMap:
		return int64(len(v.tree.(map[string]any))), true
	}
	return 0, false
}

// hasDouble says whether a whole number may become a double anywhere inside.
func (s *shape) hasDouble() bool {
	if s.kind == shapeDouble || s.elem != nil && s.elem.hasDouble() {
		return true
	}
	for _, f := range s.fields {
		if f.hasDouble() {
			return true
		}
	}
	return false
}
