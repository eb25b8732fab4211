package tools

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/callgate/callgate/specs"
)

// redacted stands where a tool's spec says that the journal must not look.
const redacted = "[redacted]"

func redactPointers(t *specs.Tool) []string {
	out := make([]string, 0, len(t.Redact))
	for _, p := range t.Redact {
		out = append(out, p.Value)
	}
	return out
}

// redactJSON replaces what the JSON pointers name, and says whether anything was there. Numbers keep their digits.
func redactJSON(raw json.RawMessage, pointers []string) (json.RawMessage, bool, error) {
	v, err := specs.DecodeJSON(raw, specs.JSONLimits{})
	if err != nil {
		return nil, false, err
	}
	cut := false
	for _, p := range pointers {
		var hit bool
		v, hit = redactAt(v, strings.Split(p, "/")[1:])
		cut = cut || hit
	}
	if !cut {
		return raw, false, nil
	}
	out, err := json.Marshal(v)
	return out, true, err
}

func redactAt(v any, path []string) (any, bool) {
	if len(path) == 0 {
		return redacted, true
	}
	key := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	switch v := v.(type) {
	case map[string]any:
		child, ok := v[key]
		if !ok {
			return v, false
		}
		out, hit := redactAt(child, path[1:])
		v[key] = out
		return v, hit
	case []any:
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(v) {
			return v, false
		}
		out, hit := redactAt(v[i], path[1:])
		v[i] = out
		return v, hit
	}
	return v, false
}
