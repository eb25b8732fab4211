package specs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// A shape is the one description of a YAML form that everything else is made from: how it is read with good
// errors, how it is written canonically (for digests and generated files), and how editors see it.
//
// Shapes are built by the functions below and composed into the eight kinds in shapes_*.go.
type shape[V any] struct {
	// read fills v from n and reports what is wrong; false means v is not usable.
	read func(r *reader, n *yaml.Node, v *V) bool
	// write gives maps, lists, strings, int64 and bool; nil means "absent".
	write func(v *V) any
	// schema gives the JSON Schema of the form.
	schema func() map[string]any
}

// reader is what reading one document needs to know.
type reader struct {
	*strictness
	level Level
}

func (r *reader) pos(n *yaml.Node) Pos { return Pos{r.src.name, n.Line, n.Column} }

// wrongType is the usual complaint.
func (r *reader) wrongType(n *yaml.Node, want, hint string) bool {
	if !r.bad[n] {
		r.fail(n, "wrong-type", fmt.Sprintf("expected %s, got %s", want, describe(n)), hint)
	}
	return false
}

// then adds a check that runs after a successful read.
func (s shape[V]) then(check func(r *reader, n *yaml.Node, v *V)) shape[V] {
	read := s.read
	s.read = func(r *reader, n *yaml.Node, v *V) bool {
		ok := read(r, n, v)
		if ok {
			check(r, n, v)
		}
		return ok
	}
	return s
}

// with adds facts to the JSON Schema.
func (s shape[V]) with(facts map[string]any) shape[V] {
	schema := s.schema
	s.schema = func() map[string]any {
		out := schema()
		maps.Copy(out, facts)
		return out
	}
	return s
}

// ---- scalars

func (r *reader) isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (!isPlain(n) || resolvePlain(n.Value) == scalarText)
}

func (r *reader) readText(n *yaml.Node, want string) (string, bool) {
	if r.bad[n] {
		return "", false
	}
	if r.isText(n) {
		return n.Value, true
	}
	hint := ""
	if n.Kind == yaml.ScalarNode && n.Value != "" {
		hint = "quote it: " + quoted(n.Value)
	}
	return "", r.wrongType(n, want, hint)
}

// text is a free text that keeps its places.
func text() shape[Text] {
	return shape[Text]{
		read: func(r *reader, n *yaml.Node, v *Text) bool {
			s, ok := r.readText(n, "a text")
			if ok {
				*v = Text{Value: s, Pos: r.pos(n), places: mapText(r.src, n)}
			}
			return ok
		},
		write:  writeText,
		schema: func() map[string]any { return map[string]any{"type": "string"} },
	}
}

func writeText(v *Text) any {
	if v.IsZero() {
		return nil
	}
	return v.Value
}

// filled refuses blank texts.
func filled(s shape[Text]) shape[Text] {
	return s.then(func(r *reader, n *yaml.Node, v *Text) {
		if strings.TrimSpace(v.Value) == "" {
			r.fail(n, "empty-text", "this text is empty", "leave the key out if there is nothing to say")
		}
	}).with(map[string]any{"minLength": int64(1)})
}

// expression is CEL: a text, or a bare true or false.
func expression(what string) shape[Text] {
	return shape[Text]{
		read: func(r *reader, n *yaml.Node, v *Text) bool {
			if isPlain(n) && !r.bad[n] && resolvePlain(n.Value) == scalarBool {
				*v = Text{Value: strings.ToLower(n.Value), Pos: r.pos(n), places: mapText(r.src, n)}
				return true
			}
			if n.Kind == yaml.ScalarNode && n.Value != "" && !r.isText(n) { // a number: quoted it would be as wrong
				return r.wrongType(n, what, "")
			}
			s, ok := r.readText(n, what)
			if ok && strings.TrimSpace(s) == "" {
				r.fail(n, "empty-expression", "this expression is empty", "leave the key out: an absent condition holds always")
				return false
			}
			if ok {
				*v = Text{Value: s, Pos: r.pos(n), places: mapText(r.src, n)}
			}
			return ok
		},
		write:  writeText,
		schema: func() map[string]any { return map[string]any{"type": []any{"string", "boolean"}} },
	}
}

// word is a plain string that need not remember its place.
func word[S ~string]() shape[S] {
	return shape[S]{
		read: func(r *reader, n *yaml.Node, v *S) bool {
			s, ok := r.readText(n, "a text")
			*v = S(s)
			return ok
		},
		write: func(v *S) any {
			if *v == "" {
				return nil
			}
			return string(*v)
		},
		schema: func() map[string]any { return map[string]any{"type": "string"} },
	}
}

// pattern checks a word against a named rule for names.
func pattern[S ~string](rule nameRule) shape[S] {
	return word[S]().then(func(r *reader, n *yaml.Node, v *S) {
		if !rule.ok(string(*v)) {
			r.fail(n, "bad-name", fmt.Sprintf("%s is not %s", quoted(string(*v)), rule.what), rule.hint)
		}
	}).with(map[string]any{"pattern": rule.pattern})
}

// patternText is pattern for texts that keep their places.
func patternText(rule nameRule) shape[Text] {
	return text().then(func(r *reader, n *yaml.Node, v *Text) {
		if !rule.ok(v.Value) {
			r.fail(n, "bad-name", fmt.Sprintf("%s is not %s", quoted(v.Value), rule.what), rule.hint)
		}
	}).with(map[string]any{"pattern": rule.pattern})
}

// oneOf is a word from a fixed list.
func oneOf[S ~string](known ...S) shape[S] {
	return shape[S]{
		read: func(r *reader, n *yaml.Node, v *S) bool {
			s, ok := r.readText(n, "one of "+joinWords(known))
			if !ok {
				return false
			}
			if !slices.Contains(known, S(s)) {
				r.fail(n, "unknown-word", fmt.Sprintf("%s is not one of %s", quoted(s), joinWords(known)), didYouMean(s, known, ""))
				return false
			}
			*v = S(s)
			return true
		},
		write: func(v *S) any {
			if *v == "" {
				return nil
			}
			return string(*v)
		},
		schema: func() map[string]any {
			words := make([]any, len(known))
			for i, k := range known {
				words[i] = string(k)
			}
			return map[string]any{"type": "string", "enum": words}
		},
	}
}

func joinWords[S ~string](words []S) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}

// whole is a whole number within bounds.
func whole[I ~int | ~int64](low, high int64) shape[I] {
	return shape[I]{
		read: func(r *reader, n *yaml.Node, v *I) bool {
			if n.Kind != yaml.ScalarNode || !isPlain(n) || r.bad[n] || resolvePlain(n.Value) != scalarInt {
				hint := ""
				if n.Kind == yaml.ScalarNode && !isPlain(n) && allDigits(n.Value) {
					hint = "write it without quotes"
				}
				return r.wrongType(n, "a whole number", hint)
			}
			i, err := parsePlainInt(n.Value)
			if err != nil || i < low || i > high {
				r.fail(n, "out-of-range", fmt.Sprintf("%s is out of range", n.Value), fmt.Sprintf("use a number from %d to %d", low, high))
				return false
			}
			*v = I(i)
			return true
		},
		write: func(v *I) any {
			if *v == 0 {
				return nil
			}
			return int64(*v)
		},
		schema: func() map[string]any {
			return map[string]any{"type": "integer", "minimum": low, "maximum": high}
		},
	}
}

// flag is true or false. Written false is absent unless always.
func flag(always bool) shape[bool] {
	return shape[bool]{
		read: func(r *reader, n *yaml.Node, v *bool) bool {
			if !isPlain(n) || r.bad[n] || resolvePlain(n.Value) != scalarBool {
				return r.wrongType(n, "true or false", "")
			}
			*v = strings.EqualFold(n.Value, "true")
			return true
		},
		write: func(v *bool) any {
			if !*v && !always {
				return nil
			}
			return *v
		},
		schema: func() map[string]any { return map[string]any{"type": "boolean"} },
	}
}

const durationHint = "write a number and a unit: 500ms, 10s, 15m, 24h"

// readDuration reads the text of a duration; a bare number lacks its unit, not its quotes.
func (r *reader) readDuration(n *yaml.Node, want string) (string, bool) {
	if n.Kind == yaml.ScalarNode && !r.isText(n) {
		return "", r.wrongType(n, want, durationHint)
	}
	return r.readText(n, want)
}

// duration is a constant span of time.
func duration(low time.Duration) shape[time.Duration] {
	return shape[time.Duration]{
		read: func(r *reader, n *yaml.Node, v *time.Duration) bool {
			s, ok := r.readDuration(n, `a duration such as "10s"`)
			if !ok {
				return false
			}
			d, err := ParseDuration(s)
			if err != nil {
				r.fail(n, "bad-duration", err.Error(), durationHint)
				return false
			}
			if d < low {
				r.fail(n, "out-of-range", fmt.Sprintf("%s is too short", s), "use at least "+low.String())
				return false
			}
			*v = d
			return true
		},
		write: func(v *time.Duration) any {
			if *v == 0 {
				return nil
			}
			return v.String()
		},
		schema: func() map[string]any { return map[string]any{"type": "string", "pattern": durationPattern} },
	}
}

// ---- collections

// listOf is a list; an absent one is nil, an empty one is not.
func listOf[V any](item shape[V]) shape[[]V] {
	return shape[[]V]{
		read: func(r *reader, n *yaml.Node, v *[]V) bool {
			if n.Kind != yaml.SequenceNode {
				hint := ""
				if isPlain(n) && n.Value == "" {
					hint = "write [] for an empty list"
				} else if n.Kind == yaml.ScalarNode {
					hint = "put it in brackets: [" + quoted(n.Value) + "]"
				}
				return r.wrongType(n, "a list", hint)
			}
			out := make([]V, 0, len(n.Content))
			for _, c := range n.Content {
				var one V
				if item.read(r, c, &one) {
					out = append(out, one)
				}
			}
			*v = out
			return true
		},
		write: func(v *[]V) any {
			if len(*v) == 0 {
				return nil
			}
			return writeList(item, *v)
		},
		schema: func() map[string]any {
			return map[string]any{"type": "array", "items": item.schema()}
		},
	}
}

func writeList[V any](item shape[V], list []V) any {
	out := make([]any, 0, len(list))
	for i := range list {
		out = append(out, item.write(&list[i]))
	}
	return out
}

// optional turns a shape into one whose absence differs from its zero value.
func optional[V any](s shape[V]) shape[*V] {
	return shape[*V]{
		read: func(r *reader, n *yaml.Node, v **V) bool {
			var one V
			if !s.read(r, n, &one) {
				return false
			}
			*v = &one
			return true
		},
		write: func(v **V) any {
			if *v == nil {
				return nil
			}
			if out := s.write(*v); out != nil {
				return out
			}
			switch any(**v).(type) { // the zero value of a present thing is said aloud
			case bool:
				return false
			case int64, int:
				return int64(0)
			case []Text:
				return []any{}
			}
			return ""
		},
		schema: s.schema,
	}
}

// mapOf is a mapping with free keys.
func mapOf[V any](key nameRule, value shape[V]) shape[map[string]V] {
	return shape[map[string]V]{
		read: func(r *reader, n *yaml.Node, v *map[string]V) bool {
			if n.Kind != yaml.MappingNode {
				return r.wrongType(n, "a mapping", "")
			}
			out := make(map[string]V, len(n.Content)/2)
			for i := 0; i+1 < len(n.Content); i += 2 {
				k := n.Content[i]
				if r.bad[k] {
					continue
				}
				if !key.ok(k.Value) {
					r.fail(k, "bad-name", fmt.Sprintf("%s is not %s", quoted(k.Value), key.what), key.hint)
					continue
				}
				var one V
				if value.read(r, n.Content[i+1], &one) {
					out[k.Value] = one
				}
			}
			*v = out
			return true
		},
		write: func(v *map[string]V) any {
			if len(*v) == 0 {
				return nil
			}
			out := make(map[string]any, len(*v))
			for k, one := range *v {
				w := value.write(&one)
				if w == nil {
					w = emptyOf(any(one))
				}
				out[k] = w
			}
			return out
		},
		schema: func() map[string]any {
			out := map[string]any{"type": "object", "additionalProperties": value.schema()}
			if key.pattern != "" {
				out["propertyNames"] = map[string]any{"pattern": key.pattern}
			}
			return out
		},
	}
}

// emptyOf is what a present but empty value of a free mapping is written as.
func emptyOf(v any) any {
	switch v.(type) {
	case string, Text, SecretRef, Digest:
		return ""
	case int64:
		return int64(0)
	}
	return map[string]any{}
}

// ---- objects

// field is one key of an object.
type field[T any] struct {
	name, doc          string
	required, operator bool
	read               func(r *reader, n *yaml.Node, t *T)
	write              func(t *T) any
	schema             func() map[string]any
}

// key ties a YAML key to a Go field.
func key[T, V any](name, doc string, get func(*T) *V, s shape[V]) field[T] {
	return field[T]{
		name: name, doc: doc,
		read:   func(r *reader, n *yaml.Node, t *T) { s.read(r, n, get(t)) },
		write:  func(t *T) any { return s.write(get(t)) },
		schema: s.schema,
	}
}

// must makes a key required.
func (f field[T]) must() field[T] { f.required = true; return f }

// operatorOnly makes a key an error in a tenant's own bundle.
func (f field[T]) operatorOnly() field[T] { f.operator = true; return f }

// object is a mapping with known keys. place, when not nil, receives where the mapping starts.
func object[T any](place func(*T) *Pos, fields ...field[T]) shape[T] {
	names := make([]string, len(fields))
	index := make(map[string]int, len(fields))
	for i, f := range fields {
		names[i] = f.name
		index[f.name] = i
	}
	return shape[T]{
		read: func(r *reader, n *yaml.Node, t *T) bool {
			if n.Kind != yaml.MappingNode {
				return r.wrongType(n, "a mapping with the keys "+strings.Join(names, ", "), "")
			}
			if place != nil {
				*place(t) = r.pos(n)
			}
			present := make([]bool, len(fields))
			for i := 0; i+1 < len(n.Content); i += 2 {
				k := n.Content[i]
				at, known := index[k.Value]
				if known {
					present[at] = true
				}
				if k.Value == "<<" { // a merge key may have meant any of them
					for j := range present {
						present[j] = true
					}
				}
				if r.bad[k] {
					continue
				}
				if !known {
					if meant, near := index[nearest(k.Value, names)]; near {
						present[meant] = true // a misspelt key is not missing too
					}
					r.fail(k, "unknown-key", "unknown key "+quoted(k.Value), didYouMean(k.Value, names, "known here: "+strings.Join(names, ", ")))
					continue
				}
				f := fields[at]
				if f.operator && r.level == TenantLevel {
					r.fail(k, "operator-only", fmt.Sprintf("%s can only be set by the operator, in a document of the platform", quoted(k.Value)), "ask the operator for a source of this name and refer to it")
					continue
				}
				f.read(r, n.Content[i+1], t)
			}
			for i, f := range fields {
				if f.required && !present[i] {
					r.report(Diagnostic{Pos: r.pos(n), Code: "missing-key", Width: widthOf(r.src, n),
						Message: "the key " + quoted(f.name) + " is missing", Hint: f.doc})
				}
			}
			return true
		},
		write: func(t *T) any {
			out := map[string]any{}
			for _, f := range fields {
				if v := f.write(t); v != nil {
					out[f.name] = v
				}
			}
			if len(out) == 0 {
				return nil
			}
			return out
		},
		schema: func() map[string]any {
			props := map[string]any{}
			var required []any
			for _, f := range fields {
				s := f.schema()
				if f.doc != "" {
					s["description"] = f.doc
				}
				props[f.name] = s
				if f.required {
					required = append(required, f.name)
				}
			}
			out := map[string]any{"type": "object", "additionalProperties": false, "properties": props}
			if required != nil {
				out["required"] = required
			}
			return out
		},
	}
}

// child gives the value of a key of a mapping, or nil.
func child(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
