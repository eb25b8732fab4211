package celpolicy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
)

// shape is what a JSON Schema lets us promise about a value. Where the schema promises too little, the shape is
// dyn and says why: an expression on it is checked when it runs and not when it loads.
type shape struct {
	kind     shapeKind
	why      string            // dyn only
	nullable bool              // the value may also be null
	elem     *shape            // list and map
	fields   map[string]*shape // object only
	must     map[string]bool   // object only: the required fields
	open     bool              // object only: other properties may be there too
	odd      bool              // object only: some names cannot stand after a dot
	absent   bool              // stands in for an argument that only other tools of a rule have
	limits   *limits           // which values of its kind it takes; nil: any
}

type shapeKind string

const (
	shapeDyn    shapeKind = "dyn"
	shapeString shapeKind = "string"
	shapeInt    shapeKind = "int"
	shapeDouble shapeKind = "double"
	shapeBool   shapeKind = "bool"
	shapeNull   shapeKind = "null"
	shapeList   shapeKind = "list"
	shapeMap    shapeKind = "map"
	shapeObject shapeKind = "object"
)

func dyn(format string, args ...any) *shape {
	return &shape{kind: shapeDyn, why: fmt.Sprintf(format, args...)}
}

// loose says that not every member of an object can be had by its name after a dot.
func (s *shape) loose() bool { return s.kind == shapeObject && (s.open || s.odd) }

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// isIdentifier says whether a name can stand after a dot.
func isIdentifier(s string) bool {
	switch s {
	case "in", "true", "false", "null":
		return false
	}
	return identifier.MatchString(s)
}

// key writes a shape down; tools of equal shape share one CEL type.
func (s *shape) key() string {
	var b strings.Builder
	s.write(&b)
	return b.String()
}

func (s *shape) write(b *strings.Builder) {
	if s.absent {
		b.WriteString("absent")
		return
	}
	switch s.kind {
	case shapeList, shapeMap:
		b.WriteString(string(s.kind) + "<")
		s.elem.write(b)
		b.WriteString(">")
	case shapeObject:
		b.WriteString("{")
		for _, name := range slices.Sorted(maps.Keys(s.fields)) {
			b.WriteString(name)
			if !s.must[name] {
				b.WriteString("?")
			}
			b.WriteString(":")
			s.fields[name].write(b)
			b.WriteString(";")
		}
		if s.open {
			b.WriteString("...")
		}
		b.WriteString("}")
	default:
		b.WriteString(string(s.kind))
	}
	if s.nullable {
		b.WriteString("|null")
	}
}

// seenBy writes down only what an expression can see of a shape: the arguments it names. A thousand tools that
// all have a `path` are one check for a rule about paths.
func (s *shape) seenBy(paths [][]string, whole bool) string {
	if whole || s.kind != shapeObject {
		return s.key()
	}
	var b strings.Builder
	for _, p := range paths {
		at := s
		for _, name := range p {
			if at.kind != shapeObject {
				break
			}
			next, ok := at.fields[name]
			if !ok {
				b.WriteString("-")
				if at.open {
					b.WriteString("...")
				}
				at = nil
				break
			}
			if !at.must[name] {
				b.WriteString("?")
			}
			at = next
		}
		if at != nil {
			at.write(&b)
		}
		b.WriteString(";")
	}
	return b.String()
}

// at follows field names; it stops with the first shape that has no such field.
func (s *shape) at(path []string) *shape {
	for _, name := range path {
		switch s.kind {
		case shapeObject:
			next, ok := s.fields[name]
			if !ok {
				return s
			}
			s = next
		case shapeMap:
			s = s.elem
		default:
			return s
		}
	}
	return s
}

// argTypes makes CEL types of shapes, one for each distinct shape of a bundle.
type argTypes struct {
	provider *provider
	made     map[string]*types.Type
}

func (a *argTypes) cel(s *shape) *types.Type {
	switch s.kind {
	case shapeString:
		return orNullType(types.StringType, s.nullable)
	case shapeInt:
		return orNullType(types.IntType, s.nullable)
	case shapeDouble:
		return orNullType(types.DoubleType, s.nullable)
	case shapeBool:
		return orNullType(types.BoolType, s.nullable)
	case shapeNull:
		return types.NullType
	case shapeList:
		return types.NewListType(a.cel(s.elem))
	case shapeMap:
		return types.NewMapType(types.StringType, a.cel(s.elem))
	case shapeObject:
		return a.object(s)
	}
	return types.DynType
}

// orNullType lets a scalar be compared with null; CEL lets every object be.
func orNullType(t *types.Type, nullable bool) *types.Type {
	if nullable {
		return types.NewNullableType(t)
	}
	return t
}

func (a *argTypes) object(s *shape) *types.Type {
	key := s.key()
	if t, ok := a.made[key]; ok {
		return t
	}
	fields := make([]field, 0, len(s.fields))
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		fields = append(fields, field{name, a.cel(s.fields[name])})
	}
	t := newStructType(fmt.Sprintf("arguments#%d", len(a.made)+1), fields...)
	for _, acc := range t.access { // at run time an argument object is a map
		acc.IsSet, acc.GetFrom = nil, nil
	}
	t.open = s.open
	a.provider.structs[t.name] = t
	a.made[key] = t.cel
	return t.cel
}
