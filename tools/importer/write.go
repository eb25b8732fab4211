package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/callgate/callgate/specs"
)

// document is one document that an import makes. Only the fields of its kind are read.
type document struct {
	kind specs.Kind
	name string
	note string // a comment above it

	layer    specs.LayerName  // Policy
	profiles []string         // Policy: match.profiles
	sources  []string         // Policy: match.sources
	rules    []rule           // Policy
	allow    []string         // Profile: tools.allow
	tool     *standIn         // Tool
	source   specs.SourceName // Tool: the Source it belongs to
}

// rule is one rule with the line that it comes from.
type rule struct {
	name   string
	tools  []string
	when   string // CEL; "" is always
	effect specs.Effect
	reason string // for people
	from   specs.Pos
	text   string // the author's own, for the comment above the rule
}

// standIn is a tool that rules speak about and whose definition is not part of the input.
type standIn struct {
	upstream    string
	description string
	args        [][2]string // name and JSON type; the object stays open
	required    []string
	annotations string // YAML flow mapping
}

// writeDocuments writes YAML that the loader reads as it stands.
func writeDocuments(head string, docs []document) []byte {
	var b bytes.Buffer
	comment(&b, "", head)
	for i, d := range docs {
		if i > 0 {
			b.WriteString("---\n")
		}
		comment(&b, "", d.note)
		fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nmetadata: {name: %s}\n", specs.APIVersion, d.kind, quote(d.name))
		switch d.kind {
		case specs.KindPolicy:
			d.policy(&b)
		case specs.KindProfile:
			b.WriteString("spec:\n  instructions: \"\"\n  tools:\n    allow: " + list(d.allow) + "\n")
		case specs.KindSource:
			b.WriteString("spec: {type: extension, trust: trusted, capabilities: [\"*\"]}\n")
		case specs.KindTool:
			d.standIn(&b)
		}
	}
	return b.Bytes()
}

func (d document) policy(b *bytes.Buffer) {
	fmt.Fprintf(b, "spec:\n  layer: %s\n", d.layer)
	if d.profiles != nil {
		b.WriteString("  match: {profiles: " + list(d.profiles) + "}\n")
	}
	if d.sources != nil {
		b.WriteString("  match: {sources: " + list(d.sources) + "}\n")
	}
	if len(d.rules) == 0 {
		b.WriteString("  rules: []\n")
		return
	}
	b.WriteString("  rules:\n")
	taken := map[string]bool{}
	for _, r := range d.rules {
		name := docName(r.name, "rule")
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s-%d", docName(r.name, "rule"), n)
		}
		taken[name] = true
		if r.text != "" {
			comment(b, "    ", strings.TrimPrefix(fmt.Sprintf("%s:%d  %s", path.Base(r.from.File), r.from.Line, short(r.text)), ":0  "))
		}
		fmt.Fprintf(b, "    - name: %s\n      tools: %s\n", quote(name), list(r.tools))
		if r.when != "" {
			b.WriteString("      when: " + block(r.when, "        ") + "\n")
		}
		fmt.Fprintf(b, "      effect: %s\n", r.effect)
		if r.reason != "" {
			b.WriteString("      reason: " + quote(celText(r.reason)) + "\n")
		}
	}
}

func (d document) standIn(b *bytes.Buffer) {
	t := d.tool
	fmt.Fprintf(b, "spec:\n  description: %s\n", quote(t.description))
	fmt.Fprintf(b, "  source: {kind: extension, name: %s, tool: %s}\n", quote(string(d.source)), quote(t.upstream))
	b.WriteString("  annotations: " + t.annotations + "\n  inputSchema:\n    type: object\n    additionalProperties: true\n")
	if len(t.required) > 0 {
		b.WriteString("    required: " + list(t.required) + "\n")
	}
	if len(t.args) > 0 {
		b.WriteString("    properties:\n")
		for _, a := range t.args {
			fmt.Fprintf(b, "      %s: {type: %s}\n", quote(a[0]), a[1])
		}
	}
}

// comment writes lines of `#`; whatever they hold stays on them.
func comment(b *bytes.Buffer, indent, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		line = strings.Map(func(r rune) rune {
			if r == unicode.ReplacementChar || r == 0xfeff || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cn) {
				return ' '
			}
			return r
		}, line)
		b.WriteString(strings.TrimRight(indent+"# "+line, " ") + "\n")
	}
}

func list(items []string) string {
	out := make([]string, len(items))
	for i, s := range items {
		out[i] = quote(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

var plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// quote writes a text so that every reader takes it for one: plain only where no reader could take it for anything else.
func quote(s string) string {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan":
	default:
		if plainWord.MatchString(s) {
			return s
		}
	}
	var enc bytes.Buffer
	e := json.NewEncoder(&enc)
	e.SetEscapeHTML(false)
	if e.Encode(strings.ToValidUTF8(s, "\ufffd")) != nil {
		return `""`
	}
	var b strings.Builder
	for _, r := range strings.TrimSuffix(enc.String(), "\n") {
		if r >= 0x7f && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			fmt.Fprintf(&b, `\U%08X`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// block writes CEL as a literal block, which has no escapes of its own, or quotes it where a block could not hold it.
func block(s, indent string) string {
	unsafe := func(r rune) bool {
		return r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == unicode.ReplacementChar || r >= 0xfff0 && r <= 0xffff || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
	}
	if s == "" || s[0] == ' ' || s[0] == '\n' || strings.HasSuffix(s, "\n") || strings.HasSuffix(s, " ") || strings.Contains(s, " \n") || strings.ContainsFunc(s, unsafe) {
		return quote(s)
	}
	return "|-\n" + indent + strings.ReplaceAll(s, "\n", "\n"+indent)
}

// celText makes a reason that is text and cannot be taken for an expression.
func celText(s string) string { return celString(short(s)) }

// celString writes a CEL string literal.
func celString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < ' ' || r >= 0x7f && r < 0xa0 || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r >= 0xfff0 && r <= 0xffff:
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// anyOf joins conditions by ||; an empty list is false.
func anyOf(conds []string) string {
	switch conds = unique(conds); len(conds) {
	case 0:
		return "false"
	case 1:
		return conds[0]
	}
	return "(" + strings.Join(conds, ") || (") + ")"
}

// allOf joins conditions by &&, leaving out those that always hold; an empty list is "": always.
func allOf(conds ...string) string {
	conds = unique(slices.DeleteFunc(slices.Clone(conds), func(c string) bool { return c == "" }))
	if len(conds) < 2 {
		return strings.Join(conds, "")
	}
	return "(" + strings.Join(conds, ") && (") + ")"
}

func unique(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
