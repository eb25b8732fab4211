package specs

import (
	"cmp"
	"slices"
	"strings"
)

// Bundle is everything one tenant's documents say, together with the shipped catalog. It is immutable
// once loaded, safe for concurrent readers, and named by its digest.
type Bundle struct {
	Tools      []*Tool       // shipped and own, by canonical name
	Policies   []*Policy     // by layer (platform first), then name
	Profiles   []*Profile    // by name
	Plans      []*Plan       // by name
	Sources    []*Source     // by name
	Machines   []*Machine    // by name; the tenant's own, not the four shipped lifecycles
	Tests      []*PolicyTest // by name
	Tenant     *Tenant       // nil when the bundle has none
	Digest     Digest        // of the canonical form of every document, tests excluded
	Files      []File        // what was read, sorted by name: enough to load the bundle again
	Unreadable []LayerName   // layers whose documents could not be read; they deny (only with LoadOptions.Partial)
	Warnings   Diagnostics   // with LoadOptions.Partial the errors too

	tools    map[ToolName]*Tool
	profiles map[ProfileName]*Profile
	plans    map[string]*Plan
	sources  map[SourceName]*Source
	aliases  map[Alias]*Tool
	texts    map[string]*sourceText
}

// File is one file of a bundle, by its slash-separated name below the bundle's folder.
type File struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// Tool gives a tool by its canonical name, or nil.
func (b *Bundle) Tool(name ToolName) *Tool { return b.tools[name] }

// ToolByAlias gives the tool that a provider knows by an alias, or nil.
func (b *Bundle) ToolByAlias(alias Alias) *Tool { return b.aliases[alias] }

// Profile gives a profile by name, or nil.
func (b *Bundle) Profile(name ProfileName) *Profile { return b.profiles[name] }

// Plan gives a plan by name, or nil.
func (b *Bundle) Plan(name string) *Plan { return b.plans[name] }

// Source gives a source by name, or nil.
func (b *Bundle) Source(name SourceName) *Source { return b.sources[name] }

// DefaultProfile gives the profile of runs that name none, or nil: then nothing is granted.
func (b *Bundle) DefaultProfile() *Profile {
	if b.Tenant == nil {
		return nil
	}
	return b.profiles[ProfileName(b.Tenant.DefaultProfile.Value)]
}

// Node gives a node of the plan, or nil.
func (p *Plan) Node(id NodeID) *PlanNode {
	for i := range p.Nodes {
		if p.Nodes[i].ID == id {
			return &p.Nodes[i]
		}
	}
	return nil
}

// RedactFor gives the JSON pointers that the journal must not hold for calls of a tool: the tool's own and the
// tenant's. An unknown tool has the tenant's.
func (b *Bundle) RedactFor(name ToolName) []string {
	var out []string
	if t := b.tools[name]; t != nil {
		for _, p := range t.Redact {
			out = append(out, p.Value)
		}
	}
	if b.Tenant != nil {
		for _, p := range b.Tenant.Redact {
			out = append(out, p.Value)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SourceLine gives the author's line at a place, or "" when the place is in no file of the bundle.
func (b *Bundle) SourceLine(p Pos) string {
	if src := b.texts[p.File]; src != nil {
		return src.line(p.Line)
	}
	if src := shippedTexts()[p.File]; src != nil {
		return src.line(p.Line)
	}
	return ""
}

// Show fills a finding's source line, for findings that other rooms make about this bundle.
func (b *Bundle) Show(d Diagnostic) Diagnostic {
	if d.Severity == "" {
		d.Severity = Error
	}
	d.Source, d.SourceCol = excerpt(b.SourceLine(d.Pos), d.Pos.Col)
	d.Width = max(1, min(d.Width, maxShown))
	return d
}

// LayerRank orders layers from the strongest: platform 0, user, plan, profile, source, spec. A layer's asks
// can be waived by a layer of the same or a lower rank.
func LayerRank(l LayerName) int {
	return slices.Index([]LayerName{LayerPlatform, LayerUser, LayerPlan, LayerProfile, LayerSource, LayerSpec, LayerBudget}, l)
}

// build makes the bundle from the documents and reports what does not fit together.
func (l *loader) build() *Bundle {
	b := &Bundle{
		tools: map[ToolName]*Tool{}, profiles: map[ProfileName]*Profile{}, plans: map[string]*Plan{},
		sources: map[SourceName]*Source{}, texts: l.sources, Files: l.files,
	}
	var docs []Document
	if !l.opts.NoCatalog {
		docs = append(docs, shippedDocuments()...)
	}
	own := l.unique(docs, l.docs)
	replaced := map[string]bool{}
	for _, d := range own {
		if t, ok := d.(*Tool); ok {
			replaced[t.Name] = true
		}
	}
	for _, d := range docs {
		if t, ok := d.(*Tool); !ok || !replaced[t.Name] {
			b.add(d)
		}
	}
	for _, d := range own {
		b.add(d)
	}
	b.sort()
	l.crossCheck(b)
	if l.opts.Partial {
		b.withoutBroken(l)
	}
	b.Digest = digestDocuments(b.documents())
	for _, src := range l.sources {
		src.runes = nil // only needed while reading
	}
	return b
}

func (b *Bundle) add(d Document) {
	switch d := d.(type) {
	case *Tool:
		b.Tools = append(b.Tools, d)
		b.tools[d.ToolName()] = d
	case *Policy:
		b.Policies = append(b.Policies, d)
	case *Profile:
		b.Profiles = append(b.Profiles, d)
		b.profiles[ProfileName(d.Name)] = d
	case *Plan:
		b.Plans = append(b.Plans, d)
		b.plans[d.Name] = d
	case *Source:
		b.Sources = append(b.Sources, d)
		b.sources[SourceName(d.Name)] = d
	case *Machine:
		b.Machines = append(b.Machines, d)
	case *PolicyTest:
		b.Tests = append(b.Tests, d)
	case *Tenant:
		b.Tenant = d
	}
}

func (b *Bundle) sort() {
	byName(b.Tools)
	byName(b.Profiles)
	byName(b.Plans)
	byName(b.Sources)
	byName(b.Machines)
	byName(b.Tests)
	slices.SortStableFunc(b.Policies, func(x, y *Policy) int {
		return cmp.Or(cmp.Compare(LayerRank(x.Layer), LayerRank(y.Layer)), strings.Compare(x.Name, y.Name))
	})
}

func byName[D Document](docs []D) {
	slices.SortStableFunc(docs, func(x, y D) int { return strings.Compare(x.Head().Name, y.Head().Name) })
}

// documents lists everything again, for the digest and for writers.
func (b *Bundle) documents() []Document {
	var out []Document
	for _, d := range b.Tools {
		out = append(out, d)
	}
	for _, d := range b.Policies {
		out = append(out, d)
	}
	for _, d := range b.Profiles {
		out = append(out, d)
	}
	for _, d := range b.Plans {
		out = append(out, d)
	}
	for _, d := range b.Sources {
		out = append(out, d)
	}
	for _, d := range b.Machines {
		out = append(out, d)
	}
	if b.Tenant != nil {
		out = append(out, b.Tenant)
	}
	return out
}

// unique drops documents whose name is taken, and says so with both places.
func (l *loader) unique(shipped, docs []Document) []Document {
	type id struct {
		kind Kind
		name string
	}
	first := map[id]Document{}
	for _, d := range shipped {
		first[id{d.Head().Kind, d.Head().Name}] = d
	}
	var tenant Document
	var out []Document
	for _, d := range docs {
		head := d.Head()
		if head.Kind == KindTenant {
			if tenant != nil {
				l.report(Diagnostic{Pos: head.Pos, Code: "duplicate-name", Width: 1, Message: "a bundle has one Tenant document, the first is at " + tenant.Head().Pos.String()})
				continue
			}
			tenant = d
		}
		if head.Name == "" {
			out = append(out, d)
			continue
		}
		other, taken := first[id{head.Kind, head.Name}]
		switch {
		case !taken:
			first[id{head.Kind, head.Name}] = d
			out = append(out, d)
		case other.Head().Shipped && head.Kind == KindTool && l.opts.Level == PlatformLevel:
			first[id{head.Kind, head.Name}] = d
			out = append(out, d)
			l.report(Diagnostic{Pos: head.NamePos, Severity: Warning, Code: "replaces-built-in", Width: len(head.Name),
				Message: "this replaces what the program says about its built-in tool " + quoted(head.Name), Hint: "to change only what the model reads, use tools.describe in a profile"})
		case other.Head().Shipped:
			l.report(Diagnostic{Pos: head.NamePos, Code: "shipped-name", Width: len(head.Name),
				Message: "the " + string(head.Kind) + " " + quoted(head.Name) + " is built in and cannot be defined again",
				Hint:    "choose another name; a profile can give a built-in tool another description under tools.describe"})
		default:
			l.report(Diagnostic{Pos: head.NamePos, Code: "duplicate-name", Width: len(head.Name),
				Message: "a " + string(head.Kind) + " named " + quoted(head.Name) + " is already there, at " + other.Head().NamePos.String(), Hint: "rename one of them"})
		}
	}
	return out
}

// withoutBroken leaves out documents with mistakes and marks the layers they may have spoken for.
func (b *Bundle) withoutBroken(l *loader) {
	kept := &Bundle{
		tools: map[ToolName]*Tool{}, profiles: map[ProfileName]*Profile{}, plans: map[string]*Plan{},
		sources: map[SourceName]*Source{}, texts: b.texts, Files: b.Files,
	}
	docs := b.documents()
	for _, t := range b.Tests {
		docs = append(docs, t)
	}
	for _, d := range docs {
		if !l.broken[d] {
			kept.add(d)
			continue
		}
		switch d := d.(type) {
		case *Policy:
			if d.Layer == "" {
				l.unreadable(l.anyLayer())
			} else {
				l.unreadable(d.Layer)
			}
		case *Profile:
			l.unreadable(LayerProfile)
		case *Plan:
			l.unreadable(LayerPlan)
		case *Source:
			l.unreadable(LayerSource)
		case *Tenant:
			l.unreadable(l.anyLayer())
		}
	}
	*b = *kept
	b.sort()
}
