package tools

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/callgate/callgate/specs"
)

// defaultMaxArgs bounds the bytes of one call's arguments where the tenant says nothing.
const defaultMaxArgs = 1 << 20

func maxArgs(b *specs.Bundle) int64 {
	if t := b.Tenant; t != nil && t.Limits.MaxArgsBytes > 0 {
		return t.Limits.MaxArgsBytes
	}
	return defaultMaxArgs
}

// readArguments brings a call's arguments into the canonical form that everything after this sees: policy, people, digests,
// the tool. problem is what the model is told when they cannot be used; it is never repaired into something else.
// No arguments, or the empty string that some providers send in their place, mean {} where the schema accepts that.
func readArguments(tool *specs.Tool, raw json.RawMessage, limit int64) (args json.RawMessage, problem string, err error) {
	if int64(len(raw)) > limit {
		return nil, fmt.Sprintf("The arguments have %d bytes; at most %d are allowed. Send less, or in several calls.", len(raw), limit), nil
	}
	text := bytes.TrimSpace(raw)
	absent := len(text) == 0 || bytes.Equal(text, []byte(`""`))
	if absent {
		text = []byte("{}")
	}
	canonical, err := specs.CanonicalJSONWithin(text, specs.JSONLimits{Bytes: int(max(limit, 2))})
	if err != nil {
		return nil, fmt.Sprintf("The arguments are not valid JSON: %s. Nothing ran. Send them again, complete and as one JSON object.", clip(err.Error(), 300)), nil
	}
	if canonical[0] != '{' {
		return nil, "The arguments must be a JSON object. Nothing ran.", nil
	}
	v, err := tool.Args()
	if err != nil {
		return nil, "", Systemf("tool.schema", "the input schema of %s: %w", tool.Name, err)
	}
	if err := v.Validate(canonical); err != nil {
		if absent {
			return nil, fmt.Sprintf("There are no arguments, and the tool needs some: %s. Nothing ran.", clip(err.Error(), 300)), nil
		}
		return nil, fmt.Sprintf("The arguments do not fit the tool's schema: %s. Nothing ran; mend them and call again.", clip(err.Error(), 600)), nil
	}
	return canonical, "", nil
}
