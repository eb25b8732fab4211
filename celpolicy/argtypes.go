package celpolicy

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

// shape is what a JSON Schema lets us promise about a value. Where the schema promises too little, the shape is
// dyn and says why: an expression on it is checked when it runs and not when it loads.
type shape struct {
	kind   shapeKind
	why    string            // dyn only
	elem   *shape            // list and map
	fields map[string]*shape // object only
	must   map[string]bool   // object only: the required fields
	absent bool              // stands in for an argument that only other tools of a rule have
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

// maxSchemaDepth bounds nesting and $ref chains.
const maxSchemaDepth = 16

// shapeOf reads a tool's inputSchema. A schema that is not JSON is the loader's finding, not ours: it is dyn here.
func shapeOf(s specs.Schema) *shape {
	if s.IsZero() {
		return &shape{kind: shapeObject, fields: map[string]*shape{}, must: map[string]bool{}}
	}
	v, err := specs.DecodeJSON(s.Raw, specs.JSONLimits{})
	if err != nil {
		return dyn("the schema cannot be read")
	}
	root := schemaReader{root: v}
	return root.read(v, 0, nil)
}

type schemaReader struct{ root any }

func (r schemaReader) read(v any, depth int, refs []string) *shape {
	if depth > maxSchemaDepth {
		return dyn("the schema nests deeper than %d", maxSchemaDepth)
	}
	s, ok := v.(map[string]any)
	if !ok {
		return dyn("the schema says nothing about it")
	}
	if ref, ok := s["$ref"].(string); ok {
		if slices.Contains(refs, ref) {
			return dyn("$ref %s is recursive", ref)
		}
		target, ok := r.resolve(ref)
		if !ok {
			return dyn("$ref %s is not a local definition", ref)
		}
		if len(s) > 1 && !onlyNotes(s, "$ref") {
			return dyn("$ref %s has constraints beside it", ref)
		}
		return r.read(target, depth+1, append(slices.Clip(refs), ref))
	}
	if _, ok := s["$dynamicRef"]; ok {
		return dyn("$dynamicRef")
	}
	kind, why := typeOf(s)
	if why != "" {
		return dyn("%s", why)
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		if branches, ok := s[word].([]any); ok && (kind == "" || branchesAdd(branches) && !isFalse(s["additionalProperties"])) {
			return dyn("%s", word)
		}
	}
	switch kind {
	case "string":
		return &shape{kind: shapeString}
	case "integer":
		return &shape{kind: shapeInt}
	case "number":
		return &shape{kind: shapeDouble}
	case "boolean":
		return &shape{kind: shapeBool}
	case "null":
		return &shape{kind: shapeNull}
	case "array":
		if items, ok := s["items"]; ok && s["prefixItems"] == nil {
			return &shape{kind: shapeList, elem: r.read(items, depth+1, refs)}
		}
		return &shape{kind: shapeList, elem: dyn("the schema does not type the items")}
	case "object":
		return r.object(s, depth, refs)
	}
	return dyn("the schema gives no type")
}

func (r schemaReader) object(s map[string]any, depth int, refs []string) *shape {
	props, _ := s["properties"].(map[string]any)
	extra, hasExtra := s["additionalProperties"]
	if pattern, ok := s["patternProperties"].(map[string]any); ok && len(pattern) > 0 {
		return dyn("patternProperties")
	}
	if len(props) == 0 {
		switch t := extra.(type) {
		case map[string]any:
			if len(t) == 0 {
				return dyn("an open object: any property may be there")
			}
			return &shape{kind: shapeMap, elem: r.read(t, depth+1, refs)}
		case bool:
			if !t {
				return &shape{kind: shapeObject, fields: map[string]*shape{}, must: map[string]bool{}}
			}
		}
		return dyn("an open object: any property may be there")
	}
	if hasExtra && !isFalse(extra) {
		return dyn("an open object: additionalProperties lets other properties in")
	}
	out := &shape{kind: shapeObject, fields: map[string]*shape{}, must: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if !isIdentifier(name) {
			return dyn("the property %q is not a CEL identifier; use %s", name, `args["`+name+`"]`)
		}
		out.fields[name] = r.read(props[name], depth+1, refs)
	}
	if req, ok := s["required"].([]any); ok {
		for _, n := range req {
			if name, ok := n.(string); ok {
				out.must[name] = true
			}
		}
	}
	return out
}

func (r schemaReader) resolve(ref string) (any, bool) {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	at := r.root
	if path == "" {
		return at, true
	}
	if !strings.HasPrefix(path, "/") {
		return nil, false // an anchor
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		m, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = m[part]; !ok {
			return nil, false
		}
	}
	return at, true
}

// typeOf gives the one JSON type a schema allows, "" when it does not say, or why there is no single one.
func typeOf(s map[string]any) (kind, why string) {
	switch t := s["type"].(type) {
	case string:
		return t, ""
	case []any:
		if len(t) == 1 {
			if one, ok := t[0].(string); ok {
				return one, ""
			}
		}
		words := make([]string, len(t))
		for i, w := range t {
			words[i] = fmt.Sprint(w)
		}
		return "", "a union of " + strings.Join(words, ", ")
	}
	if values, ok := s["enum"].([]any); ok {
		for i, v := range values {
			k := jsonKind(v)
			if i > 0 && k != kind {
				return "", "an enum of several types"
			}
			kind = k
		}
		return kind, ""
	}
	if v, ok := s["const"]; ok {
		return jsonKind(v), ""
	}
	if _, ok := s["properties"]; ok {
		return "object", ""
	}
	return "", ""
}

func jsonKind(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case int64:
		return "integer"
	case json.Number:
		return "number"
	case bool:
		return "boolean"
	case nil:
		return "null"
	case []any:
		return "array"
	}
	return "object"
}

// branchesAdd says whether a combination names properties of its own; one that only narrows (`required`, `not`)
// leaves the declared types true.
func branchesAdd(branches []any) bool {
	for _, b := range branches {
		m, ok := b.(map[string]any)
		if !ok {
			continue
		}
		for word := range m {
			switch word {
			case "required", "not", "title", "description", "$comment", "minProperties", "maxProperties", "dependentRequired":
			default:
				return true
			}
		}
	}
	return false
}

// onlyNotes says whether a schema has nothing but annotations beside one keyword.
func onlyNotes(s map[string]any, keyword string) bool {
	for word := range s {
		switch word {
		case keyword, "title", "description", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly":
		default:
			return false
		}
	}
	return true
}

func isFalse(v any) bool { b, ok := v.(bool); return ok && !b }

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
	switch s.kind {
	case shapeList, shapeMap:
		return string(s.kind) + "<" + s.elem.key() + ">"
	case shapeObject:
		var b strings.Builder
		b.WriteString("{")
		for _, name := range slices.Sorted(maps.Keys(s.fields)) {
			b.WriteString(name)
			if !s.must[name] {
				b.WriteString("?")
			}
			b.WriteString(":" + s.fields[name].key() + ";")
		}
		return b.String() + "}"
	}
	if s.absent {
		return "absent"
	}
	return string(s.kind)
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
				at = nil
				break
			}
			if !at.must[name] {
				b.WriteString("?")
			}
			at = next
		}
		if at != nil {
			b.WriteString(at.key())
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
		return types.StringType
	case shapeInt:
		return types.IntType
	case shapeDouble:
		return types.DoubleType
	case shapeBool:
		return types.BoolType
	case shapeNull:
		return types.NullType
	case shapeList:
		return types.NewListType(a.cel(s.elem))
	case shapeMap:
		return types.NewMapType(types.StringType, a.cel(s.elem))
	case shapeObject:
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
		a.provider.structs[t.name] = t
		a.made[key] = t.cel
		return t.cel
	}
	return types.DynType
}
