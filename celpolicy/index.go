package celpolicy

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/callgate/callgate/specs"
)

// toolEntry is all that a bundle says about one tool, found once at compile.
type toolEntry struct {
	tool        *specs.Tool
	shape       *shape
	doubles     bool    // some argument is a double
	value       *object // `tool` in an expression
	annotations specs.Annotations
	digest      specs.Digest
	rules       []*compiledRule // every rule that selects it, in the order of voices, then by id
	visibility  *expr
	budget      compiledBudget // the spec's own
	quarantine  *quarantine
	at          int // its place among the names
	residuals   atomic.Pointer[[]seat]
}

// quarantine is why an imported definition is not accepted.
type quarantine struct {
	rule   specs.RuleID
	reason string
	pos    specs.Pos
}

func (c *compiler) index(p *Policy, t *specs.Tool) *toolEntry {
	e := &toolEntry{tool: t, shape: c.shapes[t.ToolName()], digest: DefinitionDigest(t)}
	e.doubles = e.shape.hasDouble()
	src := p.sources[t.Source.Name]
	e.annotations = effectiveAnnotations(t, src)
	e.quarantine = quarantined(t, src)
	for _, pol := range p.policies {
		if pol.doc.Layer == specs.LayerSource && !matchSource(pol.doc.Match, t) {
			continue
		}
		for _, r := range pol.rules {
			if selects(r.rule, t) {
				e.rules = append(e.rules, r)
			}
		}
	}
	slices.SortStableFunc(e.rules, func(x, y *compiledRule) int {
		return cmp.Or(cmp.Compare(voiceRank(x.policy.doc.Layer), voiceRank(y.policy.doc.Layer)), cmp.Compare(x.id, y.id))
	})
	if v := t.Visibility.Expr; v.Value != "" {
		e.visibility = c.check(use{text: v, what: "a visibility", want: types.BoolType, tools: []*specs.Tool{t},
			forbid: map[string]string{varArgs: "a tool is listed before anyone knows the arguments", varCall: "a tool is listed before there is a call"},
			hint:   "write model, user, hidden, or a condition"})
	}
	e.budget = c.compileBudget(t.Budget, []*specs.Tool{t}, nil)
	e.value = toolValue(e, src)
	return e
}

func toolValue(e *toolEntry, src *specs.Source) *object {
	t, a := e.tool, e.annotations
	accepted := t.Source.Kind == "" || t.Source.Kind == specs.SourceBuiltIn
	trust := specs.Trusted
	if !accepted {
		trust = specs.Untrusted
		if src != nil {
			accepted = e.quarantine == nil && src.Pins[t.Name] != "" && src.Pins[t.Name] == t.Source.Digest
			trust = cmp.Or(src.Trust, specs.Untrusted)
		}
	}
	kind := cmp.Or(t.Source.Kind, specs.SourceBuiltIn)
	source := &object{sourceType, []ref.Val{types.String(kind), types.String(t.Source.Name),
		types.String(cmp.Or(t.Source.Tool, t.Name)), types.String(t.Source.Digest), types.Bool(accepted), types.String(trust)}}
	notes := &object{annotationsType, []ref.Val{types.String(a.SideEffect), types.Bool(a.ReadOnly), types.Bool(a.Destructive),
		types.Bool(a.Idempotent), types.Bool(a.OpenWorld), types.Bool(a.Cancellable), types.String(a.Reversible),
		types.Int(a.Cost), types.Bool(a.CostUnknown)}}
	return &object{toolType, []ref.Val{types.String(t.Name), source, notes,
		types.String(cmp.Or(t.Permission, specs.PermissionAllow))}}
}

// effectiveAnnotations reads hints of an untrusted source strictly: they may make a tool more dangerous than
// it says, never safer.
func effectiveAnnotations(t *specs.Tool, src *specs.Source) specs.Annotations {
	a := t.Annotations
	if a.SideEffect == "" {
		a.SideEffect = specs.SideNetwork
		if a.ReadOnly {
			a.SideEffect = specs.SideNone
		}
	}
	a.Reversible = cmp.Or(a.Reversible, specs.ReversibleNone)
	if src == nil || t.Source.Kind == specs.SourceBuiltIn || t.Source.Kind == "" || src.Trust == specs.Trusted {
		return a
	}
	a.ReadOnly, a.Idempotent = false, false
	a.Destructive, a.OpenWorld = true, true
	a.Reversible = specs.ReversibleNone
	if a.SideEffect == specs.SideNone {
		a.SideEffect = specs.SideNetwork
	}
	return a
}

// quarantined says why a tool from outside is neither listed nor callable. A tool whose source has no document is
// not quarantined: nothing of it is pinned, and nobody has allowed it unless a person wrote so.
func quarantined(t *specs.Tool, src *specs.Source) *quarantine {
	if src == nil || t.Source.Kind == specs.SourceBuiltIn || t.Source.Kind == "" {
		return nil
	}
	if !slices.ContainsFunc(src.Capabilities, func(g specs.Text) bool {
		return specs.Glob(g.Value, t.Source.Tool) || specs.Glob(g.Value, t.Name)
	}) {
		return &quarantine{specs.VoiceOf(src.Name, specs.VoiceCapabilities), "the source's capabilities do not accept this tool", src.Pos}
	}
	pin, ok := src.Pins[t.Name]
	if !ok && t.Source.Kind != specs.SourceMCP && t.Source.Digest == "" {
		return nil // skills and extensions are the operator's own; they are pinned only where someone asks for it
	}
	switch {
	case !ok:
		return &quarantine{specs.VoiceOf(src.Name, specs.VoicePins), "this definition is new and nobody has accepted it yet", src.Pos}
	case pin != t.Source.Digest:
		return &quarantine{specs.VoiceOf(src.Name, specs.VoicePins), "this definition differs from the one that was accepted", src.Pos}
	}
	return nil
}

// DefinitionDigest names what a person agrees to when they agree to a tool: its name, texts, schemas,
// annotations and source. A remembered grant holds for one such digest.
func DefinitionDigest(t *specs.Tool) specs.Digest {
	raw, err := json.Marshal(struct {
		Name, Title, Description string
		Input, Output            json.RawMessage
		Annotations              specs.Annotations
		Kind, Source, Tool       string
		Digest                   specs.Digest
	}{t.Name, t.Title, t.Describe.Value, orNull(t.InputSchema.Raw), orNull(t.OutputSchema.Raw), t.Annotations,
		string(t.Source.Kind), string(t.Source.Name), t.Source.Tool, t.Source.Digest})
	if err != nil {
		return ""
	}
	d, err := specs.DigestJSON(raw)
	if err != nil {
		return specs.DigestOf(raw) // a schema with numbers that have no canonical form is still one definition
	}
	return d
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// ToolDigest gives DefinitionDigest of a tool, "" when the bundle has none of that name.
func (p *Policy) ToolDigest(name specs.ToolName) specs.Digest {
	if e := p.tools[name]; e != nil {
		return e.digest
	}
	return ""
}

// Annotations gives a tool's annotations as policy reads them: strictly where its source is not trusted.
func (p *Policy) Annotations(name specs.ToolName) (specs.Annotations, bool) {
	e := p.tools[name]
	if e == nil {
		return specs.Annotations{}, false
	}
	return e.annotations, true
}

func matchSource(m specs.Match, t *specs.Tool) bool {
	if m.Sources == nil {
		return true
	}
	name := string(t.Source.Name)
	kind := string(cmp.Or(t.Source.Kind, specs.SourceBuiltIn))
	return slices.ContainsFunc(*m.Sources, func(g specs.Text) bool {
		return name != "" && specs.Glob(g.Value, name) || g.Value == kind
	})
}

func listed(globs []specs.Text, t *specs.Tool) (specs.Text, bool) {
	for _, g := range globs {
		if specs.MatchTool(g.Value, t) {
			return g, true
		}
	}
	return specs.Text{}, false
}
