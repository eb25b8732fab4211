// Package schema gives the JSON Schemas of callgate's YAML documents, for editors.
//
// You most likely want All: it is what `callgate schema` writes into a folder. An editor that is told to use
// callgate.schema.json for a bundle's files completes keys, shows their meaning and marks mistakes:
//
//	# yaml-language-server: $schema=./callgate.schema.json
//	apiVersion: callgate/v1
//	kind: Profile
//
// Promises: the schemas are made from the tables by which specs.Load reads, so that they cannot fall behind it;
// equal programs give equal bytes. A schema is weaker than Load: what lies between documents, inside
// expressions and in the writing of scalars is Load's alone.
package schema

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/callgate/callgate/specs"
)

// For gives the schema of one kind as indented JSON, or nil for a kind that does not exist.
func For(kind specs.Kind) []byte {
	s := specs.YAMLSchema(kind)
	if s == nil {
		return nil
	}
	return encode(s)
}

// Combined gives one schema for files that hold documents of any kind.
func Combined() []byte {
	var kinds, branches []any
	for _, k := range specs.Kinds() {
		s := specs.YAMLSchema(k)
		delete(s, "$schema")
		kinds = append(kinds, string(k))
		branches = append(branches, map[string]any{
			"if":   map[string]any{"properties": map[string]any{"kind": map[string]any{"const": string(k)}}, "required": []any{"kind"}},
			"then": s,
		})
	}
	return encode(map[string]any{
		"$schema":    "https://json-schema.org/draft/2020-12/schema",
		"title":      "callgate",
		"type":       "object",
		"required":   []any{"apiVersion", "kind", "metadata", "spec"},
		"properties": map[string]any{"kind": map[string]any{"enum": kinds, "description": "What this document says."}},
		"allOf":      branches,
	})
}

// All gives every schema by file name: <kind>.schema.json in lower case, and callgate.schema.json for all kinds.
func All() map[string][]byte {
	out := map[string][]byte{"callgate.schema.json": Combined()}
	for _, k := range specs.Kinds() {
		out[strings.ToLower(string(k))+".schema.json"] = For(k)
	}
	return out
}

// encode writes keys in order and leaves < and > as they are: people read these texts.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil // maps, lists, strings, numbers and bools always encode
	}
	return b.Bytes()
}
