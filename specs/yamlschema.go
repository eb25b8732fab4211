package specs

// YAMLSchema gives the JSON Schema (draft 2020-12) of one kind of document. It is made from the same tables
// that the loader reads by; specs/schema has it as files for editors.
func YAMLSchema(k Kind) map[string]any {
	s, ok := documentShapes[k]
	if !ok {
		return nil
	}
	meta := metadataShape.schema()
	name := meta["properties"].(map[string]any)["name"].(map[string]any)
	name["pattern"] = s.name.pattern
	spec := s.schema()
	spec["description"] = s.doc
	return map[string]any{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "callgate " + string(k),
		"description":          s.doc,
		"type":                 "object",
		"additionalProperties": false,
		"required":             []any{"apiVersion", "kind", "metadata", "spec"},
		"properties": map[string]any{
			"apiVersion": map[string]any{"const": APIVersion, "description": "The version of this form."},
			"kind":       map[string]any{"const": string(k), "description": s.doc},
			"metadata":   meta,
			"spec":       spec,
		},
	}
}
