package celpolicy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/callgate/callgate/specs"
)

// shapeOf reads a tool's inputSchema. A schema that is not JSON is the loader's finding, not ours: it is dyn here.
func shapeOf(s specs.Schema) *shape {
	if s.IsZero() {
		return &shape{kind: shapeObject, fields: map[string]*shape{}, must: map[string]bool{}}
	}
	v, err := specs.DecodeJSON(s.Raw, specs.JSONLimits{})
	if err != nil {
		return dyn("the schema cannot be read")
	}
	r := schemaReader{index: indexSchema(v)}
	f := r.read(target{v, ownBase}, 0, nil)
	f.kinds &= kindObject // arguments are always an object
	return f.shape(inObject)
}

// form is a schema while it is put together: what it says of each kind of value that it takes. Where nothing is said, a
// form is as wide as JSON. Both laws hold of its limits: no value that the schema takes is left out, and combinations
// (allOf, anyOf) never forget that.
type form struct {
	limits
	why    string           // why there is no type, when that is not clear from the kinds
	fields map[string]*form // nil: no properties are declared
	must   map[string]bool
	extra  *form // what other properties hold; nil: nobody says
	closed extraRule
	elem   *form // nil: nobody says
	isBare bool
}

// extraRule is what is known about properties that are not declared.
type extraRule uint8

const (
	extraUnsaid extraRule = iota // read as none, when some are declared
	extraNone
	extraSome
)

func wide() *form { return &form{limits: anything()} }

func opaque(format string, args ...any) *form {
	f := wide()
	f.why = fmt.Sprintf(format, args...)
	return f
}

// maxForms bounds what one schema unfolds to: definitions that use each other twice a level double at each.
const maxForms = 4_000

type schemaReader struct {
	index *schemaIndex
	forms int
}

// chainLink is one $ref that is being followed.
type chainLink struct{ resource, fragment string }

func (r *schemaReader) read(t target, depth int, refs []chainLink) *form {
	if r.forms++; r.forms > maxForms {
		return opaque("the schema unfolds to more than %d parts", maxForms)
	}
	if depth > maxSchemaDepth {
		return opaque("the schema nests deeper than %d", maxSchemaDepth)
	}
	s, ok := t.schema.(map[string]any)
	if !ok {
		if isFalse(t.schema) {
			return &form{limits: limits{maxSize: -1}, why: "the schema takes no value"}
		}
		return wide()
	}
	base := r.index.baseOf(s, t.base)
	in := func(v any) *form { return r.read(target{v, base}, depth+1, refs) }
	var out *form
	if ref, ok := s["$ref"].(string); ok {
		if out = r.follow(ref, base, depth, refs); r.index.old {
			return out
		}
	}
	for _, word := range []string{"$dynamicRef", "$recursiveRef"} {
		if _, ok := s[word]; ok {
			return opaque("%s", word)
		}
	}
	own := r.own(s, in)
	if out == nil {
		out = own
	} else {
		out = out.both(own)
	}
	for _, b := range list(s["allOf"]) {
		out = out.both(in(b))
	}
	for _, word := range []string{"anyOf", "oneOf"} {
		if branches := list(s[word]); len(branches) > 0 {
			out = out.both(r.oneOf(branches, in))
		}
	}
	if _, ok := s["if"]; ok {
		out = out.both(part(s, "then", in).either(part(s, "else", in)))
	}
	for _, word := range []string{"dependentSchemas", "dependencies"} {
		deps, _ := s[word].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(deps)) {
			if _, ok := deps[name].(map[string]any); ok {
				out = out.both(wide().either(in(deps[name])))
			}
		}
	}
	return out
}

func part(s map[string]any, word string, in func(any) *form) *form {
	if v, ok := s[word]; ok {
		return in(v)
	}
	return wide()
}

func (r *schemaReader) oneOf(branches []any, in func(any) *form) *form {
	out := in(branches[0])
	for _, b := range branches[1:] {
		out = out.either(in(b))
	}
	return out
}

func (r *schemaReader) follow(ref, base string, depth int, refs []chainLink) *form {
	var link chainLink
	link.resource, link.fragment = splitRef(ref, base)
	if slices.Contains(refs, link) {
		return opaque("$ref %s is recursive", ref)
	}
	t, ok := r.index.resolve(ref, base)
	if !ok {
		return opaque("$ref %s is not a local definition", ref)
	}
	return r.read(t, depth+1, append(slices.Clip(refs), link))
}

// own reads the words of one schema that speak about a value directly.
func (r *schemaReader) own(s map[string]any, in func(any) *form) *form {
	f := wide()
	f.kinds = declaredKinds(s["type"])
	if v, ok := s["const"]; ok {
		f.list([]any{v})
	}
	if values, ok := s["enum"].([]any); ok {
		f.list(values)
	}
	f.numbers(s)
	f.sizes(s)
	f.format, _ = s["format"].(string)
	r.array(f, s, in)
	r.object(f, s, in)
	return f
}

func declaredKinds(v any) kinds {
	out := kinds(0)
	for _, name := range append(list(v), v) {
		if word, ok := name.(string); ok {
			out |= kindsOf[word]
		}
	}
	if out == 0 {
		return kindAny
	}
	return out
}

// list narrows a form to values that the schema counts up.
func (f *form) list(values []any) {
	l := anything()
	l.values, l.kinds = []any{}, 0
	for _, v := range values {
		l.values = append(l.values, v)
		l.kinds |= kindOf(v)
	}
	if l.kinds&kindFraction != 0 {
		l.kinds |= kindWhole
	}
	f.limits = f.limits.both(l)
}

func (f *form) numbers(s map[string]any) {
	end := func(word, exclusive string) *bound {
		n := rational(s[word])
		open, _ := s[exclusive].(bool) // draft 4
		if n == nil {
			return nil
		}
		return &bound{n, open}
	}
	f.low, f.high = end("minimum", "exclusiveMinimum"), end("maximum", "exclusiveMaximum")
	if n := rational(s["exclusiveMinimum"]); n != nil {
		f.low = tighterEnd(f.low, &bound{n, true}, 1)
	}
	if n := rational(s["exclusiveMaximum"]); n != nil {
		f.high = tighterEnd(f.high, &bound{n, true}, -1)
	}
}

// sizes reads bounds on length. They are of texts or of lists; a form of both kinds keeps none.
func (f *form) sizes(s map[string]any) {
	least, most := "minLength", "maxLength"
	switch f.kinds & (kindString | kindArray) {
	case kindString:
		if text, ok := s["pattern"].(string); ok {
			if re := compilePattern(text); re != nil {
				f.patterns = []*regexp.Regexp{re}
			}
		}
	case kindArray:
		least, most = "minItems", "maxItems"
	default:
		return
	}
	if n, ok := s[least].(int64); ok && n > 0 {
		f.minSize = n
	}
	if n, ok := s[most].(int64); ok && n >= 0 {
		f.maxSize = n
	}
}

// compilePattern reads a schema's pattern, nil when it means something else in JSON Schema than in Go, or costs too much.
func compilePattern(text string) *regexp.Regexp {
	size, err := regexSize(text)
	if err != nil || size > maxRegexProgram {
		return nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil
	}
	return re
}

func (r *schemaReader) array(f *form, s map[string]any, in func(any) *form) {
	if f.kinds&kindArray == 0 {
		return
	}
	tuple, rest := list(s["prefixItems"]), s["items"]
	if old := list(s["items"]); old != nil {
		tuple, rest = old, s["additionalItems"]
	}
	if rest == nil && tuple == nil {
		return
	}
	for i, v := range tuple {
		if e := in(v); i == 0 {
			f.elem = e
		} else {
			f.elem = f.elem.either(e)
		}
	}
	switch {
	case isFalse(rest) && tuple != nil:
	case rest == nil:
		f.elem = nil // anything may follow
	case f.elem == nil:
		f.elem = in(rest)
	default:
		f.elem = f.elem.either(in(rest))
	}
}

func (r *schemaReader) object(f *form, s map[string]any, in func(any) *form) {
	if f.kinds&kindObject == 0 {
		return
	}
	if props, ok := s["properties"].(map[string]any); ok && len(props) > 0 {
		f.fields = make(map[string]*form, len(props))
		for _, name := range slices.Sorted(maps.Keys(props)) {
			f.fields[name] = in(props[name])
		}
	}
	for _, n := range list(s["required"]) {
		if name, ok := n.(string); ok {
			if f.must == nil {
				f.must = map[string]bool{}
			}
			f.must[name] = true
		}
	}
	patterns, _ := s["patternProperties"].(map[string]any)
	extra, said := s["additionalProperties"]
	if !said {
		extra, said = s["unevaluatedProperties"]
	}
	switch t := extra.(type) {
	case map[string]any:
		f.closed = extraSome
		if len(t) > 0 {
			f.extra = in(t)
		}
	case bool:
		f.closed = extraNone
		if t {
			f.closed = extraSome
		}
	}
	if len(patterns) == 0 {
		return
	}
	var every *form
	for _, p := range slices.Sorted(maps.Keys(patterns)) {
		if e := in(patterns[p]); every == nil {
			every = e
		} else {
			every = every.either(e)
		}
	}
	if said && f.closed == extraSome {
		if f.extra == nil {
			every = nil
		} else {
			every = every.either(f.extra)
		}
	}
	if !said {
		every = every.bare() // a name that no pattern is for may hold anything
	}
	f.extra, f.closed = every, extraSome
}

func list(v any) []any { l, _ := v.([]any); return l }

func isFalse(v any) bool { b, ok := v.(bool); return ok && !b }

// words for the reasons of a dyn shape.
const (
	whyNoType = "the schema gives no type"
	whyOpen   = "an open object: any property may be there"
	whyItems  = "the schema does not type the items"
)

// union names kinds that cannot be one CEL type.
func (f *form) union() string {
	if f.values != nil {
		return "an enum of several types"
	}
	return "a union of " + strings.Join(f.kinds.words(), ", ")
}
