package celpolicy

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// schemaIndex finds what a $ref means inside one schema document: JSON pointers, anchors, and names relative to the
// nearest $id. Nothing outside the document is ever looked for.
type schemaIndex struct {
	root     any
	resource map[string]any    // by absolute $id
	anchor   map[string]target // by absolute $id + "#" + name
	old      bool              // draft-07 and before: $ref stands alone, and an $id of "#x" is an anchor
}

// target is a schema with the base that references inside it are relative to.
type target struct {
	schema any
	base   string
}

// ownBase stands for the place of a schema that has no $id of its own.
const ownBase = "callgate://own/schema"

func indexSchema(root any) *schemaIndex {
	x := &schemaIndex{root: root, resource: map[string]any{ownBase: root}, anchor: map[string]target{}}
	if m, ok := root.(map[string]any); ok {
		draft, _ := m["$schema"].(string)
		x.old = slices.ContainsFunc([]string{"draft-07", "draft-06", "draft-04"}, func(d string) bool { return strings.Contains(draft, d) })
	}
	x.walk(root, ownBase, 0)
	return x
}

// dataWords hold values and not schemas: an $id in there means nothing.
var dataWords = map[string]bool{"enum": true, "const": true, "default": true, "examples": true, "example": true}

// maxSchemaDepth bounds nesting and $ref chains; maxIndexDepth what is searched for anchors.
const (
	maxSchemaDepth = 16
	maxIndexDepth  = 64
)

func (x *schemaIndex) walk(v any, base string, depth int) {
	if depth > maxIndexDepth {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			x.walk(e, base, depth+1)
		}
	case map[string]any:
		base = x.baseOf(v, base)
		if _, known := x.resource[base]; !known {
			x.resource[base] = v
		}
		for _, word := range []string{"$anchor", "$dynamicAnchor"} {
			if name, ok := v[word].(string); ok {
				x.anchor[base+"#"+name] = target{v, base}
			}
		}
		if id, ok := v["$id"].(string); ok && x.old && strings.HasPrefix(id, "#") {
			x.anchor[base+id] = target{v, base}
		}
		for _, word := range slices.Sorted(maps.Keys(v)) {
			if !dataWords[word] {
				x.walk(v[word], base, depth+1)
			}
		}
	}
}

// baseOf gives the base inside a schema, which its $id may move.
func (x *schemaIndex) baseOf(schema map[string]any, base string) string {
	id, ok := schema["$id"].(string)
	if !ok || strings.HasPrefix(id, "#") {
		return base
	}
	if _, alone := schema["$ref"]; alone && x.old {
		return base
	}
	abs, _ := splitRef(id, base)
	return abs
}

// splitRef makes a reference absolute and cuts its fragment off.
func splitRef(ref, base string) (resource, fragment string) {
	b, err := url.Parse(base)
	if err != nil {
		return ref, ""
	}
	u, err := b.Parse(ref)
	if err != nil {
		return ref, ""
	}
	fragment = u.Fragment
	u.Fragment, u.RawFragment = "", ""
	return u.String(), fragment
}

// resolve finds the schema that a $ref names, false when it is not in the document.
func (x *schemaIndex) resolve(ref, base string) (target, bool) {
	resource, fragment := splitRef(ref, base)
	at, ok := x.resource[resource]
	if !ok {
		return target{}, false
	}
	if fragment != "" && !strings.HasPrefix(fragment, "/") {
		t, ok := x.anchor[resource+"#"+fragment]
		return t, ok
	}
	base = resource
	if fragment == "" {
		return target{at, base}, true
	}
	for part := range strings.SplitSeq(fragment[1:], "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch v := at.(type) {
		case map[string]any:
			if at, ok = v[part]; !ok {
				return target{}, false
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return target{}, false
			}
			at = v[i]
		default:
			return target{}, false
		}
		if m, ok := at.(map[string]any); ok {
			base = x.baseOf(m, base)
		}
	}
	return target{at, base}, true
}
