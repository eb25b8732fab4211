package celpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"unsafe"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/callgate/callgate/specs"
)

// MaxArgsBytes is the largest argument text that policy reads. A larger one is refused like one that is
// not JSON: what cannot be looked at is not allowed.
const MaxArgsBytes = 2 << 20

// Args is a call's arguments, read once for every decision about the call. It never changes.
type Args struct {
	raw     json.RawMessage
	members map[string]any
	few     []member // the same members when they are few: a short walk is quicker than a map
}

type member struct {
	name string
	v    val
}

// maxFew is how many members a walk is still quicker for.
const maxFew = 8

// ParseArgs reads a call's arguments: strict JSON, an object; absent ones are {}. Give them to Input.Parsed where one call
// is decided more than once. The bytes must not change while they are in use.
func ParseArgs(raw json.RawMessage) (*Args, error) {
	a := &Args{raw: raw}
	if len(raw) == 0 {
		return a, nil
	}
	v, err := specs.DecodeJSON(raw, specs.JSONLimits{Bytes: MaxArgsBytes})
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errNotObject
	}
	a.members = m
	if len(m) <= maxFew {
		a.few = make([]member, 0, len(m))
		for _, name := range slices.Sorted(maps.Keys(m)) {
			a.few = append(a.few, member{name, valOf(m[name])})
		}
	}
	return a, nil
}

var errNotObject = errors.New("the arguments are not a JSON object")

// of says whether these arguments were read from exactly this text.
func (a *Args) of(raw json.RawMessage) bool {
	return len(a.raw) == len(raw) && unsafe.SliceData(a.raw) == unsafe.SliceData(raw)
}

// member finds a top-level argument.
func (a *Args) member(name string) (val, bool) {
	for i := range a.few {
		if a.few[i].name == name {
			return a.few[i].v, true
		}
	}
	if len(a.members) <= maxFew {
		return val{}, false
	}
	v, ok := a.members[name]
	if !ok {
		return val{}, false
	}
	return valOf(v), true
}

func boxObject(m map[string]any, s *shape) ref.Val {
	r := &record{m: make(map[string]ref.Val, len(m))}
	for name, v := range m {
		r.m[name] = box(v, s.member(name))
	}
	return r
}

// member is the shape of an object's or map's value under a name.
func (s *shape) member(name string) *shape {
	switch s.kind {
	case shapeMap:
		return s.elem
	case shapeObject:
		if f, ok := s.fields[name]; ok {
			return f
		}
	}
	return untyped
}

var untyped = dyn("")

func box(v any, s *shape) ref.Val {
	switch t := v.(type) {
	case nil:
		return types.NullValue
	case bool:
		return types.Bool(t)
	case string:
		return types.String(t)
	case int64:
		if s.kind == shapeDouble {
			return exactDouble(t)
		}
		return types.Int(t)
	case json.Number:
		return boxNumber(string(t), s)
	case []any:
		elem := untyped
		if s.kind == shapeList {
			elem = s.elem
		}
		out := make([]ref.Val, len(t))
		for i, e := range t {
			out[i] = box(e, elem)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, out)
	case map[string]any:
		return boxObject(t, s)
	}
	return types.NewErr("not a JSON value")
}

func exactDouble(i int64) ref.Val {
	f := float64(i)
	if f >= 1<<63 || int64(f) != i {
		return types.NewErr("the whole number %d cannot be a double without rounding", i)
	}
	return types.Double(f)
}

func boxNumber(word string, s *shape) ref.Val {
	f, err := strconv.ParseFloat(word, 64)
	if err != nil || math.IsInf(f, 0) {
		return types.NewErr("the number %s is out of range", word)
	}
	if !isFractional(word) {
		return types.NewErr("the whole number %s does not fit in 64 bits", word)
	}
	if s.kind == shapeInt {
		if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return types.NewErr("the number %s is not a whole number of 64 bits", word)
		}
		return types.Int(f)
	}
	return types.Double(f)
}

func isFractional(word string) bool {
	for i := range len(word) {
		switch word[i] {
		case '.', 'e', 'E':
			return true
		}
	}
	return false
}

// record is a JSON object as a CEL map whose keys iterate in order, whatever Go's map seed is.
type record struct {
	m map[string]ref.Val
}

func (r *record) Type() ref.Type { return types.MapType }
func (r *record) Value() any     { return r }

func (r *record) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("arguments have no native form %v", t)
}

func (r *record) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.TypeType:
		return types.MapType
	case types.MapType:
		return r
	}
	return types.NewErr("type conversion error from map to %s", t.TypeName())
}

func (r *record) Find(key ref.Val) (ref.Val, bool) {
	if name, ok := key.(types.String); ok {
		v, ok := r.m[string(name)]
		return v, ok
	}
	return nil, false
}

func (r *record) Get(key ref.Val) ref.Val {
	if v, ok := r.Find(key); ok {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

func (r *record) Contains(key ref.Val) ref.Val {
	_, ok := r.Find(key)
	return types.Bool(ok)
}

func (r *record) Size() ref.Val     { return types.Int(len(r.m)) }
func (r *record) IsZeroValue() bool { return len(r.m) == 0 }

func (r *record) Iterator() traits.Iterator {
	return &keyIterator{keys: slices.Sorted(maps.Keys(r.m))}
}

func (r *record) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Mapper)
	if !ok {
		return types.False
	}
	if n, ok := o.Size().(types.Int); !ok || int(n) != len(r.m) {
		return types.False
	}
	for _, name := range slices.Sorted(maps.Keys(r.m)) {
		v, ok := o.Find(types.String(name))
		if !ok {
			return types.False
		}
		if eq := types.Equal(r.m[name], v); eq != types.True {
			return eq
		}
	}
	return types.True
}
