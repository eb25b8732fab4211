package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/callgate/callgate/specs"
)

// Definition is one tool as its server describes it.
type Definition struct {
	Name         string // the server's own
	Title        string
	Description  string
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage // nil when absent
	Hints        Hints
	Digest       specs.Digest // of name, description and input schema: what a Source pins
}

// Hints are the annotations of a definition; nil means that the server said nothing.
type Hints struct {
	ReadOnly, Destructive, Idempotent, OpenWorld *bool
}

// Server is one server's tools.
type Server struct {
	Name  string // as the file calls it; empty when it does not
	Tools []Definition
}

// Problem is one thing that cannot be imported.
type Problem struct {
	Tool    string `json:"tool,omitempty"`
	Pointer string `json:"pointer,omitempty"` // JSON pointer into the tool's definition
	Message string `json:"message"`
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Tool != "" {
		fmt.Fprintf(&b, "tool %q: ", p.Tool)
	}
	if p.Pointer != "" {
		b.WriteString(p.Pointer + ": ")
	}
	return b.String() + p.Message
}

// ImportError holds every problem of a file.
type ImportError struct{ Problems []Problem }

func (e *ImportError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func problem(format string, args ...any) error {
	return &ImportError{Problems: []Problem{{Message: fmt.Sprintf(format, args...)}}}
}

// object is a JSON object whose members are still text.
type object map[string]json.RawMessage

// reader collects the tools of one file.
type reader struct {
	servers  []*Server
	current  string // name of the server whose reply was read last
	problems []Problem
	notes    []string
	more     bool // the last page read said that there is another
	lists    int
}

// read finds every tool list in a file: a tools/list result, the JSON-RPC reply around it, {"tools": []}, a bare array, a
// capture that holds several replies (as one object with `pages`, or one message a line), one server a line with its tools.
func read(data []byte) (*reader, error) {
	r := &reader{}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	dec := json.NewDecoder(bytes.NewReader(data))
	for n := 0; ; n++ {
		var value json.RawMessage
		err := dec.Decode(&value)
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return nil, problem("the file is empty")
			}
			break
		}
		if err != nil {
			return nil, problem("this is not JSON: %s near byte %d", strings.TrimPrefix(err.Error(), "json: "), dec.InputOffset())
		}
		if err := specs.CheckJSON(value, specs.JSONLimits{}); err != nil {
			return nil, problem("%v", err)
		}
		r.value(value)
	}
	if r.lists == 0 && len(r.problems) == 0 {
		return nil, problem(`there is no tool list in this file; expected a tools/list result such as {"tools": [...]}, the reply around it, or a bare array of tools`)
	}
	if r.more {
		r.notes = append(r.notes, "the last page names a nextCursor: the server has more tools than this file")
	}
	return r, nil
}

func (r *reader) value(raw json.RawMessage) {
	switch first(raw) {
	case '[':
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return
		}
		if !slices.ContainsFunc(items, func(i json.RawMessage) bool { _, ok := objectOf(i)["name"]; return !ok }) {
			r.list(items)
			return
		}
		for _, i := range items {
			r.value(i)
		}
	case '{':
		r.message(objectOf(raw))
	}
}

func (r *reader) message(o object) {
	for _, key := range []string{"serverInfo", "key", "server"} {
		if raw, ok := o[key]; ok {
			name := text(raw)
			if name == "" {
				name = text(objectOf(raw)["name"])
			}
			if name != "" {
				r.current = name
				break
			}
		}
	}
	if raw, ok := o["tools"]; ok && first(raw) == '[' {
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) == nil {
			r.list(items)
			r.more = text(o["nextCursor"]) != ""
		}
		return
	}
	// Wrappers, in the order in which a capture tells its story.
	for _, key := range []string{"initialize", "msg", "result", "pages"} {
		if raw, ok := o[key]; ok {
			r.value(raw)
		}
	}
}

func (r *reader) list(items []json.RawMessage) {
	r.lists++
	i := slices.IndexFunc(r.servers, func(s *Server) bool { return s.Name == r.current })
	if i < 0 {
		i, r.servers = len(r.servers), append(r.servers, &Server{Name: r.current})
	}
	s := r.servers[i]
	for n, item := range items {
		def, ok := r.definition(n, item)
		if !ok {
			continue
		}
		if j := slices.IndexFunc(s.Tools, func(d Definition) bool { return d.Name == def.Name }); j >= 0 {
			// A capture may hold the same list twice; two meanings of one name are something else.
			if s.Tools[j].Digest != def.Digest {
				r.fail(def.Name, "", "the file defines this name twice, differently")
			}
			continue
		}
		s.Tools = append(s.Tools, def)
	}
}

func (r *reader) fail(tool, pointer, format string, args ...any) {
	r.problems = append(r.problems, Problem{Tool: tool, Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) definition(n int, raw json.RawMessage) (Definition, bool) {
	o := objectOf(raw)
	d := Definition{Name: text(o["name"])}
	if d.Name == "" {
		r.fail("", fmt.Sprintf("/tools/%d/name", n), "a tool needs a name, a text")
		return d, false
	}
	before := len(r.problems)
	d.Description = orElse(text(o["description"]), text(o["modelDescription"]))
	hints := objectOf(o["annotations"])
	d.Title = orElse(orElse(text(o["title"]), text(hints["title"])), text(o["displayName"]))
	d.Hints = Hints{ReadOnly: r.flag(d.Name, hints, "readOnlyHint"), Destructive: r.flag(d.Name, hints, "destructiveHint"),
		Idempotent: r.flag(d.Name, hints, "idempotentHint"), OpenWorld: r.flag(d.Name, hints, "openWorldHint")}
	d.InputSchema = r.inputSchema(d.Name, o)
	if out, ok := o["outputSchema"]; ok && first(out) != 'n' {
		d.OutputSchema = out
		r.checkSchema(d.Name, "/outputSchema", out)
	}
	if len(r.problems) > before {
		return d, false
	}
	sum, err := specs.DefinitionDigest(d.Name, d.Description, d.InputSchema)
	if err != nil {
		r.fail(d.Name, "/inputSchema", "%v", err)
		return d, false
	}
	d.Digest = sum
	return d, true
}

func (r *reader) flag(tool string, hints object, key string) *bool {
	switch string(bytes.TrimSpace(hints[key])) {
	case "true":
		return ptr(true)
	case "false":
		return ptr(false)
	case "", "null":
		return nil
	}
	r.fail(tool, "/annotations/"+key, "expected true or false")
	return nil
}

// inputSchema finds the arguments' schema under the names that tool lists use for it.
func (r *reader) inputSchema(tool string, o object) json.RawMessage {
	for _, key := range []string{"inputSchema", "input_schema", "parameters"} {
		raw, ok := o[key]
		if !ok || first(raw) == 'n' {
			continue
		}
		if first(raw) != '{' {
			r.fail(tool, "/"+key, "a schema is a JSON object")
			return nil
		}
		r.checkSchema(tool, "/"+key, raw)
		return raw
	}
	if raw, ok := o["arguments"]; ok && first(raw) != 'n' {
		return r.fromArguments(tool, raw)
	}
	r.notes = append(r.notes, fmt.Sprintf("tool %q has no inputSchema: it is taken to have no arguments", tool))
	return json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
}

// fromArguments makes a schema of a registry's list of {name, type, desc, optional, items}.
func (r *reader) fromArguments(tool string, raw json.RawMessage) json.RawMessage {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		r.fail(tool, "/arguments", "expected a list of {name, type, desc}")
		return nil
	}
	var props bytes.Buffer
	var required []string
	seen := map[string]bool{}
	for i, item := range items {
		at := fmt.Sprintf("/arguments/%d", i)
		o := objectOf(item)
		name := text(o["name"])
		switch {
		case name == "":
			r.fail(tool, at+"/name", "an argument needs a name")
			continue
		case seen[name]:
			r.fail(tool, at+"/name", "argument %q is there twice", name)
			continue
		}
		for key := range o {
			if !slices.Contains([]string{"name", "type", "desc", "description", "optional", "items"}, key) {
				r.fail(tool, at+"/"+key, "this key of an argument list is not known, so its meaning would be lost")
			}
		}
		seen[name] = true
		schema := map[string]any{"type": text(o["type"])}
		if desc := orElse(text(o["desc"]), text(o["description"])); desc != "" {
			schema["description"] = desc
		}
		if sub, ok := o["items"]; ok {
			schema["items"] = sub
		}
		if props.Len() > 0 {
			props.WriteByte(',')
		}
		fmt.Fprintf(&props, "%s:%s", mustJSON(name), mustJSON(schema))
		r.checkSchema(tool, at, mustJSON(schema))
		if string(bytes.TrimSpace(o["optional"])) != "true" {
			required = append(required, name)
		}
	}
	r.notes = append(r.notes, fmt.Sprintf("tool %q: its schema is made from the registry's list of arguments, which knows less than the server", tool))
	schema := `{"type":"object","properties":{` + props.String() + `}`
	if len(required) > 0 {
		schema += `,"required":` + string(mustJSON(required))
	}
	return json.RawMessage(schema + "}")
}

// checkSchema holds a schema against what the gate can check arguments with.
func (r *reader) checkSchema(tool, at string, raw json.RawMessage) {
	if pointer, word := unknownType(raw, at); word != "" {
		r.fail(tool, pointer, "%q is not a type of JSON Schema; it has %s", word, strings.Join(schemaTypes, ", "))
		return
	}
	if _, err := (specs.Schema{Raw: raw}).Compile(); err != nil {
		r.fail(tool, at, "%v", err)
	}
}

var schemaTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// unknownType looks for a type word that JSON Schema does not have, which is the commonest way for a foreign shape to
// look like a schema. It walks only where schemas stand.
func unknownType(raw json.RawMessage, at string) (pointer, word string) {
	o := objectOf(raw)
	if o == nil {
		return "", ""
	}
	var one string
	var many []string
	if json.Unmarshal(o["type"], &one) == nil && one != "" {
		many = []string{one}
	} else {
		_ = json.Unmarshal(o["type"], &many)
	}
	for _, t := range many {
		if !slices.Contains(schemaTypes, t) {
			return at + "/type", t
		}
	}
	for _, key := range []string{"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"} {
		if pointer, word = unknownType(o[key], at+"/"+key); word != "" {
			return pointer, word
		}
	}
	for _, key := range []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"} {
		subs := objectOf(o[key])
		for _, name := range sortedKeys(subs) {
			if pointer, word = unknownType(subs[name], at+"/"+key+"/"+escapePointer(name)); word != "" {
				return pointer, word
			}
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf", "prefixItems"} {
		var subs []json.RawMessage
		_ = json.Unmarshal(o[key], &subs)
		for i, sub := range subs {
			if pointer, word = unknownType(sub, fmt.Sprintf("%s/%s/%d", at, key, i)); word != "" {
				return pointer, word
			}
		}
	}
	return "", ""
}

func sortedKeys(o object) []string {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func escapePointer(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

func first(raw json.RawMessage) byte {
	if t := bytes.TrimSpace(raw); len(t) > 0 {
		return t[0]
	}
	return 0
}

// objectOf is nil for anything but an object.
func objectOf(raw json.RawMessage) object {
	var o object
	if first(raw) != '{' || json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

// text is empty for anything but a JSON string.
func text(raw json.RawMessage) string {
	var s string
	if first(raw) != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// mustJSON is for values this package makes of texts and parsed JSON: they cannot fail to marshal.
func mustJSON(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSpace(b.Bytes())
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func ptr[T any](v T) *T { return &v }
