package specs

import (
	"fmt"
	"strings"
	"testing"
)

// thousand makes 1,000 tool documents of 44 lines each in 20 files.
func thousand() []File {
	var files []File
	for f := range 20 {
		var b strings.Builder
		for i := range 50 {
			fmt.Fprintf(&b, `---
apiVersion: callgate/v1
kind: Tool
metadata: {name: family%d.verb%d}
spec:
  title: Verb %d
  description: >-
    Do the thing number %d, carefully, and say what was
    done in one sentence.
  source: {kind: extension}
  inputSchema:
    type: object
    additionalProperties: false
    required: [path, content]
    properties:
      path:
        type: string
        minLength: 1
        maxLength: 1024
        description: Where it is.
      content:
        type: string
        description: What it is.
      mode:
        type: string
        enum: [replace, append]
        default: replace
      limit:
        type: integer
        minimum: 1
        maximum: 50
      entries:
        type: array
        maxItems: 20
        items:
          type: object
          additionalProperties: false
          required: [ref]
          properties:
            ref: {type: string}
            max_chars: {type: integer, minimum: 1, maximum: 8000}
  annotations: {sideEffect: none, readOnly: true, idempotent: true}
  visibility: run.round < 10
  permission: allow
  budget:
    maxCalls: "tenant.labels.tier == 'pro' ? 200 : 40"
    timeout: 10s
`, f, i, i, i)
		}
		files = append(files, File{fmt.Sprintf("f%02d.yaml", f), []byte(b.String())})
	}
	return files
}

func BenchmarkLoad1000(b *testing.B) {
	files := thousand()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := LoadFiles(files, LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCanonicalJSON(b *testing.B) {
	raw := []byte(`{"path":"output/main.md","content":"` + strings.Repeat("some words ", 50) + `","limit":20,"entries":[{"ref":"a","max_chars":8000}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CanonicalJSON(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	bundle, err := LoadFiles(thousand()[:1], LoadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	v, err := bundle.Tool("family0.verb0").Args()
	if err != nil {
		b.Fatal(err)
	}
	raw := []byte(`{"path":"output/main.md","content":"some words","limit":20,"entries":[{"ref":"a","max_chars":8000}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Validate(raw); err != nil {
			b.Fatal(err)
		}
	}
}
