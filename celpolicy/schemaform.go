package celpolicy

import (
	"cmp"
	"maps"
)

// both gives the form of values that two forms take: what allOf means, and a schema beside its $ref.
func (f *form) both(g *form) *form {
	out := &form{limits: f.limits.both(g.limits), why: cmp.Or(f.why, g.why),
		fields: f.mergeFields(g, asItIs, (*form).both), extra: f.extra, elem: f.elem}
	if len(f.must)+len(g.must) > 0 {
		out.must = maps.Clone(f.must)
		if out.must == nil {
			out.must = map[string]bool{}
		}
		maps.Copy(out.must, g.must)
	}
	switch {
	case out.extra == nil:
		out.extra = g.extra
	case g.extra != nil:
		out.extra = f.extra.both(g.extra)
	}
	switch {
	case out.elem == nil:
		out.elem = g.elem
	case g.elem != nil:
		out.elem = f.elem.both(g.elem)
	}
	switch {
	case f.closed == extraNone || g.closed == extraNone:
		out.closed = extraNone
	case f.closed == extraSome || g.closed == extraSome:
		out.closed = extraSome
	}
	return out
}

// either gives the form of values that one of two forms takes: what anyOf and oneOf mean. A property that only one branch
// declares keeps the type which that branch gives it, but not its limits: the other branch lets any value in there, unless
// it takes no property that it does not declare. It is required only when every branch requires it.
func (f *form) either(g *form) *form {
	out := &form{limits: f.limits.either(g.limits), why: cmp.Or(f.why, g.why)}
	switch {
	case f.kinds&kindObject == 0:
		out.fields, out.must, out.extra, out.closed = g.fields, g.must, g.extra, g.closed
	case g.kinds&kindObject == 0:
		out.fields, out.must, out.extra, out.closed = f.fields, f.must, f.extra, f.closed
	default:
		out.fields = f.mergeFields(g, unlessClosed, (*form).either)
		for name := range f.must {
			if g.must[name] {
				if out.must == nil {
					out.must = map[string]bool{}
				}
				out.must[name] = true
			}
		}
		if f.extra != nil && g.extra != nil {
			out.extra = f.extra.either(g.extra)
		}
		free := func(h *form) bool { return h.kinds == kindObject && h.fields == nil && h.closed != extraNone }
		switch {
		case f.closed == extraSome || g.closed == extraSome || free(f) != free(g):
			out.closed = extraSome
		case f.closed == extraNone && g.closed == extraNone:
			out.closed = extraNone
		}
	}
	switch {
	case f.kinds&kindArray == 0:
		out.elem = g.elem
	case g.kinds&kindArray == 0:
		out.elem = f.elem
	case f.elem != nil && g.elem != nil:
		out.elem = f.elem.either(g.elem)
	}
	return out
}

// mergeFields joins the properties of two forms; alone is what becomes of one that only one of them declares.
func (f *form) mergeFields(g *form, alone func(v, other *form) *form, merge func(*form, *form) *form) map[string]*form {
	if len(f.fields)+len(g.fields) == 0 {
		return nil
	}
	out := make(map[string]*form, len(f.fields)+len(g.fields))
	for name, v := range f.fields {
		if w, ok := g.fields[name]; ok {
			out[name] = merge(v, w)
		} else {
			out[name] = alone(v, g)
		}
	}
	for name, w := range g.fields {
		if _, ok := f.fields[name]; !ok {
			out[name] = alone(w, f)
		}
	}
	return out
}

func asItIs(v, _ *form) *form { return v }

// unlessClosed is what a branch's property is where another branch does not declare it.
func unlessClosed(v, other *form) *form {
	if other.closed == extraNone {
		return v
	}
	return v.bare()
}

// bare is a form of the same types without their limits, all the way down.
func (f *form) bare() *form {
	if f == nil || f.isBare {
		return f
	}
	out := *f
	out.limits, out.isBare = anything(), true
	out.kinds = f.kinds
	if f.fields != nil {
		out.fields = make(map[string]*form, len(f.fields))
		for name, v := range f.fields {
			out.fields[name] = v.bare()
		}
	}
	out.extra, out.elem = f.extra.bare(), f.elem.bare()
	return &out
}

// position says where a value stands: an argument and its members are known by path, so that an object there can be typed
// although other properties may be in it; the elements of a list are only met in loops, where it could not be told
// how the object is used.
type position uint8

const (
	inObject position = iota
	inList
)

// shape settles a form: one CEL type where the kinds allow it.
func (f *form) shape(at position) *shape {
	s := &shape{limits: &f.limits, nullable: f.kinds&kindNull != 0 && f.kinds != kindNull}
	if f.limits.says() == nil {
		s.limits = nil
	}
	k := f.kinds &^ kindNull
	switch {
	case f.kinds == kindAny && f.values == nil:
		return f.guessed(s, at)
	case f.kinds == kindNull:
		s.kind = shapeNull
	case k == kindString:
		s.kind = shapeString
	case k == kindWhole:
		s.kind = shapeInt
	case k == kindNumber, k == kindFraction:
		s.kind = shapeDouble
	case k == kindBool:
		s.kind = shapeBool
	case k == kindArray:
		f.array(s)
	case k == kindObject:
		f.object(s, at)
	case f.kinds == 0:
		s.kind, s.why = shapeDyn, cmp.Or(f.why, "the schema takes no value")
	default:
		s.kind, s.why = shapeDyn, cmp.Or(f.why, f.union())
	}
	s.nullable = s.nullable && s.kind != shapeDyn
	return s
}

// guessed types what names properties or items without a type: no author of a tool means anything else by them.
func (f *form) guessed(s *shape, at position) *shape {
	s.nullable = false
	switch {
	case f.why != "":
		s.kind, s.why = shapeDyn, f.why
	case f.fields != nil || f.extra != nil:
		f.object(s, at)
	case f.elem != nil:
		f.array(s)
	default:
		s.kind, s.why = shapeDyn, whyNoType
	}
	return s
}

func (f *form) array(s *shape) {
	s.kind = shapeList
	if s.elem = dyn(whyItems); f.elem != nil {
		s.elem = f.elem.shape(inList)
	}
}

func (f *form) object(s *shape, at position) {
	switch {
	case f.fields != nil:
	case f.extra != nil && f.closed != extraNone:
		s.kind, s.elem = shapeMap, f.extra.shape(inList)
		return
	case f.closed == extraNone:
	default:
		s.kind, s.elem = shapeMap, dyn(whyOpen)
		return
	}
	s.kind, s.fields, s.must = shapeObject, make(map[string]*shape, len(f.fields)), map[string]bool{}
	for name, g := range f.fields {
		s.fields[name] = g.shape(at)
		s.must[name] = f.must[name]
		s.odd = s.odd || !isIdentifier(name)
		if !f.must[name] {
			delete(s.must, name)
		}
	}
	s.open = f.closed == extraSome
	if at == inList && s.loose() {
		s.kind, s.fields, s.must, s.elem = shapeMap, nil, nil, dyn("an open object inside a list or map")
		if s.odd && !s.open {
			s.elem = dyn("an object inside a list or map with a property that cannot stand after a dot")
		}
		s.open, s.odd = false, false
	}
}

// says gives the limits when they say anything, nil when every value passes.
func (l *limits) says() *limits {
	if l.kinds == kindAny && l.values == nil && l.low == nil && l.high == nil && l.minSize == 0 && l.maxSize < 0 && l.patterns == nil && l.format == "" {
		return nil
	}
	return l
}
