package specs

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// CanonicalDocument writes a document in one form whatever its author's file looked like: JSON with sorted
// keys, defaults filled in, rules by name. It reads back as the same document.
func CanonicalDocument(d Document) ([]byte, error) {
	return appendCanonical(nil, documentTree(d), "")
}

// documentTree is a document as maps and lists, without places.
func documentTree(d Document) map[string]any {
	head := d.Head()
	kind := kindOf(d)
	spec := documentShapes[kind].write(d)
	if spec == nil {
		spec = map[string]any{}
	}
	if kind == KindPolicy { // the order of rules means nothing
		if rules, ok := spec.(map[string]any)["rules"].([]any); ok {
			slices.SortStableFunc(rules, func(a, b any) int { return strings.Compare(ruleName(a), ruleName(b)) })
		} else {
			spec.(map[string]any)["rules"] = []any{}
		}
	}
	meta, _ := metadataShape.write(head).(map[string]any)
	return map[string]any{"apiVersion": APIVersion, "kind": string(kind), "metadata": meta, "spec": spec}
}

func ruleName(rule any) string {
	m, _ := rule.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

// kindOf tells a document's kind from its type, so that values made in code need not repeat it.
func kindOf(d Document) Kind {
	switch d.(type) {
	case *Tool:
		return KindTool
	case *Policy:
		return KindPolicy
	case *Profile:
		return KindProfile
	case *Plan:
		return KindPlan
	case *Source:
		return KindSource
	case *Machine:
		return KindMachine
	case *PolicyTest:
		return KindPolicyTest
	}
	return KindTenant
}

// digestDocuments names a set of documents: equal for every order, file layout and style, different as soon as
// any meaning differs.
func digestDocuments(docs []Document) Digest {
	digests := make([]string, 0, len(docs))
	for _, d := range docs {
		b, err := CanonicalDocument(d)
		if err != nil {
			b = []byte(err.Error()) // only a document that does not load; its bundle is never used
		}
		digests = append(digests, string(DigestOf(b)))
	}
	slices.Sort(digests)
	return DigestOf([]byte("callgate bundle 1\n" + strings.Join(digests, "\n")))
}

// Digest names the tool's definition: everything its document says.
func (t *Tool) Digest() Digest {
	b, err := CanonicalDocument(t)
	if err != nil {
		b = bytes.Join([][]byte{[]byte(err.Error()), t.InputSchema.Raw, t.OutputSchema.Raw}, []byte("\n"))
	}
	return DigestOf(b)
}

// DefinitionDigest names what an upstream server says about a tool, for pins: its own name, description and
// input schema. The error is a *JSONError about the schema.
func DefinitionDigest(name, description string, schema json.RawMessage) (Digest, error) {
	if len(schema) == 0 {
		schema = json.RawMessage(`{}`)
	}
	b, err := appendCanonical(nil, map[string]any{"name": name, "description": description, "inputSchema": schema}, "")
	if err != nil {
		return "", err
	}
	return DigestOf(b), nil
}
