package celpolicy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// field is one named, typed member of a structType.
type field struct {
	name string
	typ  *types.Type
}

// structType is a type whose members are known: one of the environment's own, or a tool's arguments.
type structType struct {
	name   string
	cel    *types.Type
	fields []field
	index  map[string]int
	// get holds the accessors that cel-go's planner binds once per expression; nil for argument types, whose
	// values are plain maps at run time.
	access []*types.FieldType
	open   bool // other members may be there too, of any type
}

func newStructType(name string, fields ...field) *structType {
	t := &structType{name: name, cel: types.NewObjectType(name, traits.IndexerType, traits.FieldTesterType),
		fields: fields, index: map[string]int{}}
	for i, f := range fields {
		t.index[f.name] = i
		t.access = append(t.access, &types.FieldType{
			Type:  f.typ,
			IsSet: func(v any) bool { o, ok := v.(*object); return ok && !o.isZero(i) },
			GetFrom: func(v any) (any, error) {
				if o, ok := v.(*object); ok && i < len(o.vals) {
					return o.vals[i], nil
				}
				return nil, fmt.Errorf("no such field: %s", f.name)
			},
		})
	}
	return t
}

// object is a value of a structType: members already boxed, in the order of the type.
type object struct {
	typ  *structType
	vals []ref.Val
}

func (o *object) isZero(i int) bool {
	z, ok := o.vals[i].(traits.Zeroer)
	return ok && z.IsZeroValue()
}

// The methods below make an object a CEL value.

func (o *object) Type() ref.Type { return o.typ.cel }
func (o *object) Value() any     { return o }
func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s has no native form", o.typ.name)
}
func (o *object) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return o.typ.cel
	}
	if t.TypeName() == o.typ.name {
		return o
	}
	return types.NewErr("type conversion error from %s to %s", o.typ.name, t.TypeName())
}

func (o *object) Equal(other ref.Val) ref.Val {
	p, ok := other.(*object)
	if !ok || p.typ != o.typ {
		return types.False
	}
	for i := range o.vals {
		if types.Equal(o.vals[i], p.vals[i]) != types.True {
			return types.False
		}
	}
	return types.True
}

func (o *object) Get(key ref.Val) ref.Val {
	if name, ok := key.(types.String); ok {
		if i, ok := o.typ.index[string(name)]; ok {
			return o.vals[i]
		}
	}
	return types.NewErr("no such field: %v", key)
}

func (o *object) IsSet(key ref.Val) ref.Val {
	if name, ok := key.(types.String); ok {
		if i, ok := o.typ.index[string(name)]; ok {
			return types.Bool(!o.isZero(i))
		}
	}
	return types.NewErr("no such field: %v", key)
}

// labels is a map whose absent keys read as "". It is deliberately no traits.Mapper: cel-go would then
// turn an absent key into an error before asking Get.
type labels struct{ m map[string]string }

func (l *labels) Type() ref.Type { return labelsType }
func (l *labels) Value() any     { return l }
func (l *labels) ConvertToNative(t reflect.Type) (any, error) {
	if t == reflect.TypeOf(l.m) {
		return maps.Clone(l.m), nil
	}
	return nil, fmt.Errorf("labels have no native form %v", t)
}
func (l *labels) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.TypeType:
		return types.MapType
	case types.MapType:
		return l
	}
	return types.NewErr("type conversion error from labels to %s", t.TypeName())
}

func (l *labels) Equal(other ref.Val) ref.Val {
	switch o := other.(type) {
	case *labels:
		return types.Bool(maps.Equal(l.m, o.m))
	case traits.Mapper:
		return o.Equal(l.asMap())
	}
	return types.False
}

func (l *labels) asMap() traits.Mapper {
	return types.NewStringStringMap(types.DefaultTypeAdapter, l.m)
}

func (l *labels) Get(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	return types.String(l.m[string(name)])
}

func (l *labels) IsSet(key ref.Val) ref.Val { return l.Contains(key) }

func (l *labels) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	_, found := l.m[string(name)]
	return types.Bool(found)
}

func (l *labels) Size() ref.Val     { return types.Int(len(l.m)) }
func (l *labels) IsZeroValue() bool { return len(l.m) == 0 }

// Iterator goes by key order, so that no expression can see Go's map seed.
func (l *labels) Iterator() traits.Iterator {
	return &keyIterator{keys: slices.Sorted(maps.Keys(l.m))}
}

type keyIterator struct {
	ref.Val
	keys []string
	next int
}

func (it *keyIterator) HasNext() ref.Val { return types.Bool(it.next < len(it.keys)) }
func (it *keyIterator) Next() ref.Val {
	if it.next >= len(it.keys) {
		return types.NewErr("no more labels")
	}
	it.next++
	return types.String(it.keys[it.next-1])
}

// provider tells cel-go about struct types: the environment's own and the arguments of a bundle's tools.
type provider struct {
	types.Provider
	structs map[string]*structType
}

func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if t, ok := p.structs[name]; ok {
		return types.NewTypeTypeWithParam(t.cel), true
	}
	return p.Provider.FindStructType(name)
}

func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	t, ok := p.structs[name]
	if !ok {
		return p.Provider.FindStructFieldNames(name)
	}
	names := make([]string, len(t.fields))
	for i, f := range t.fields {
		names[i] = f.name
	}
	return names, true
}

func (p *provider) FindStructFieldType(name, member string) (*types.FieldType, bool) {
	t, ok := p.structs[name]
	if !ok {
		return p.Provider.FindStructFieldType(name, member)
	}
	i, ok := t.index[member]
	if !ok {
		if t.open {
			return &types.FieldType{Type: types.DynType}, true
		}
		return nil, false
	}
	return t.access[i], true
}

// NewValue refuses: an author compares these values and never makes one.
func (p *provider) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if _, ok := p.structs[name]; ok {
		return types.NewErr("%s cannot be built in an expression", name)
	}
	return p.Provider.NewValue(name, fields)
}
