package specs

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// documentShape is how one kind of document is read and written.
type documentShape struct {
	name   nameRule
	doc    string
	read   func(r *reader, spec *yaml.Node, head Meta) Document
	write  func(Document) any // nil for an empty spec
	schema func() map[string]any
}

func documentOf[T any](name nameRule, doc string, meta func(*T) *Meta, as func(*T) Document, back func(Document) *T, s shape[T]) documentShape {
	return documentShape{
		name: name, doc: doc,
		read: func(r *reader, spec *yaml.Node, head Meta) Document {
			v := new(T)
			*meta(v) = head
			if spec != nil {
				s.read(r, spec, v)
			}
			return as(v)
		},
		write:  func(d Document) any { return s.write(back(d)) },
		schema: s.schema,
	}
}

var documentShapes = map[Kind]documentShape{
	KindTool: documentOf(toolNameRule, "What one tool is.",
		func(t *Tool) *Meta { return &t.Meta }, func(t *Tool) Document { return t }, func(d Document) *Tool { return d.(*Tool) }, toolShape),
	KindPolicy: documentOf(docNameRule, "Rules that speak for one layer.",
		func(p *Policy) *Meta { return &p.Meta }, func(p *Policy) Document { return p }, func(d Document) *Policy { return d.(*Policy) }, policyShape),
	KindProfile: documentOf(docNameRule, "An agent: what it is told, what it may touch, how long it may go on.",
		func(p *Profile) *Meta { return &p.Meta }, func(p *Profile) Document { return p }, func(d Document) *Profile { return d.(*Profile) }, profileShape),
	KindPlan: documentOf(docNameRule, "A declarative workflow over a run.",
		func(p *Plan) *Meta { return &p.Meta }, func(p *Plan) Document { return p }, func(d Document) *Plan { return d.(*Plan) }, planShape),
	KindSource: documentOf(docNameRule, "Where tools come from and how far they are trusted.",
		func(s *Source) *Meta { return &s.Meta }, func(s *Source) Document { return s }, func(d Document) *Source { return d.(*Source) }, sourceShape),
	KindMachine: documentOf(docNameRule, "A lifecycle as a table.",
		func(m *Machine) *Meta { return &m.Meta }, func(m *Machine) Document { return m }, func(d Document) *Machine { return d.(*Machine) }, machineShape),
	KindPolicyTest: documentOf(docNameRule, "Calls and what should be decided about them.",
		func(t *PolicyTest) *Meta { return &t.Meta }, func(t *PolicyTest) Document { return t }, func(d Document) *PolicyTest { return d.(*PolicyTest) }, policyTestShape),
	KindTenant: documentOf(docNameRule, "A tenant's own settings.",
		func(t *Tenant) *Meta { return &t.Meta }, func(t *Tenant) Document { return t }, func(d Document) *Tenant { return d.(*Tenant) }, tenantShape),
}

var headKeys = []string{"apiVersion", "kind", "metadata", "spec"}

var metadataShape = object(nil,
	key("name", "Name of the document, unique among those of its kind.", func(m *Meta) *string { return &m.Name }, word[string]()).must(),
	key("description", "For people.", func(m *Meta) *string { return &m.Description }, word[string]()),
	key("labels", "For people and their tools.", func(m *Meta) *map[string]string { return &m.Labels }, labels),
)

// readDocument reads one document. It gives nil when not even the kind can be told; a document with
// mistakes inside is given as far as it was understood, and the mistakes were reported.
func readDocument(r *reader, root *yaml.Node) Document {
	if !r.check(root, 0) {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		r.wrongType(root, "a document with the keys "+strings.Join(headKeys, ", "), "")
		return nil
	}
	head := Meta{Pos: r.pos(root)}
	meant := map[string]bool{} // keys that are there, misspelt
	for i := 0; i+1 < len(root.Content); i += 2 {
		if k := root.Content[i]; !r.bad[k] && nearestExact(k.Value, headKeys) == "" {
			meant[nearest(k.Value, headKeys)] = true
			r.fail(k, "unknown-key", "unknown key "+quoted(k.Value), didYouMean(k.Value, headKeys, "known here: "+strings.Join(headKeys, ", ")))
		}
	}
	missing := func(name, hint string) {
		if meant[name] {
			return
		}
		r.report(Diagnostic{Pos: head.Pos, Code: "missing-key", Width: 1, Message: "the key " + quoted(name) + " is missing", Hint: hint})
	}
	if v := child(root, "apiVersion"); v == nil {
		missing("apiVersion", "start the document with apiVersion: "+APIVersion)
	} else if s, ok := r.readText(v, "a text"); ok && s != APIVersion {
		r.fail(v, "unknown-version", quoted(s)+" is not a version this program reads", "write "+APIVersion)
	}
	kindNode := child(root, "kind")
	if kindNode == nil {
		missing("kind", "one of "+joinWords(Kinds()))
		return nil
	}
	if !oneOf(Kinds()...).read(r, kindNode, &head.Kind) {
		return nil
	}
	kind := documentShapes[head.Kind]
	if meta := child(root, "metadata"); meta == nil {
		missing("metadata", "metadata: {name: ...}")
	} else if metadataShape.read(r, meta, &head) {
		if name := child(meta, "name"); name != nil {
			head.NamePos = r.pos(name)
			if head.Name != "" && !kind.name.ok(head.Name) || head.Name == "" && r.isText(name) && !r.bad[name] {
				r.fail(name, "bad-name", fmt.Sprintf("%s is not %s", quoted(head.Name), kind.name.what), kind.name.hint)
				head.Name = ""
			}
		}
	}
	spec := child(root, "spec")
	if spec == nil {
		missing("spec", "what the "+string(head.Kind)+" says stands under spec")
	}
	return kind.read(r, spec, head)
}

func nearestExact(word string, known []string) string {
	for _, k := range known {
		if k == word {
			return k
		}
	}
	return ""
}
