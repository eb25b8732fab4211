package specs

import (
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// The documented defaults. The loader fills them in, so that a loaded bundle never leaves a limit open.
const (
	DefaultApprovalTTL             = 15 * time.Minute
	DefaultMaxRounds               = 80
	DefaultMaxCalls                = 80
	DefaultSkillCharsPerCall       = 20000
	DefaultSkillCharsPerRun        = 80000
	DefaultMaxResultTokens         = 4000
	DefaultSourceTimeout           = 60 * time.Second
	DefaultSourceConcurrency       = 4
	DefaultMaxArgsBytes            = 1 << 20
	DefaultMaxResultBytes          = 16 << 20
	DefaultUnknownCost             = 100
	DefaultDriftCapturePath        = "output/direct_output.md"
	DefaultTestNow                 = "2026-01-01T00:00:00Z"
	maxWhole                 int64 = 1 << 53
)

var sourceKinds = []SourceKind{SourceBuiltIn, SourceMCP, SourceExtension, SourceSkill}

// ---- Tool

var costShape = shape[Annotations]{
	read: func(r *reader, n *yaml.Node, a *Annotations) bool {
		if n.Kind == yaml.ScalarNode && n.Value == "unknown" {
			a.CostUnknown = true
			return true
		}
		return whole[int64](0, maxWhole).read(r, n, &a.Cost)
	},
	write: func(a *Annotations) any {
		if a.CostUnknown {
			return "unknown"
		}
		if a.Cost == 0 {
			return nil
		}
		return a.Cost
	},
	schema: func() map[string]any {
		return map[string]any{"anyOf": []any{whole[int64](0, maxWhole).schema(), map[string]any{"const": "unknown"}}}
	},
}

var annotationsShape = object(nil,
	key("sideEffect", "What the tool can touch; default none when readOnly, else network.", func(a *Annotations) *SideEffect { return &a.SideEffect },
		oneOf(SideNone, SideWorkspace, SideChat, SideNetwork, SideProcess)),
	key("readOnly", "The tool changes nothing.", func(a *Annotations) *bool { return &a.ReadOnly }, flag(false)),
	key("destructive", "The tool can destroy what was there. Default true for imported tools that are not readOnly, else false.", func(a *Annotations) *bool { return &a.Destructive }, flag(true)),
	key("idempotent", "The same call twice equals once; only such tools are retried by themselves.", func(a *Annotations) *bool { return &a.Idempotent }, flag(false)),
	key("openWorld", "The tool meets things outside this system.", func(a *Annotations) *bool { return &a.OpenWorld }, flag(false)),
	key("cancellable", "The tool stops when its call is cancelled.", func(a *Annotations) *bool { return &a.Cancellable }, flag(false)),
	key("reversible", "How its effect can be undone; default none.", func(a *Annotations) *Reversible { return &a.Reversible }, oneOf(ReversibleNone, ReversibleCheckpoint, ReversibleCompensate)),
	key("cost", "Price of a call in the tenant's smallest money unit, or unknown.", func(a *Annotations) *Annotations { return a }, costShape),
)

var visibilityWords = []VisibleTo{VisibleModel, VisibleUser, VisibleHidden}

var visibilityShape = shape[Visibility]{
	read: func(r *reader, n *yaml.Node, v *Visibility) bool {
		if r.isText(n) && !r.bad[n] {
			for _, w := range visibilityWords {
				if n.Value == string(w) {
					*v = Visibility{Word: w}
					return true
				}
			}
			if isEnvName(n.Value) { // a lone identifier is no condition, it is a misspelt word
				r.fail(n, "unknown-word", quoted(n.Value)+" is not one of "+joinWords(visibilityWords), didYouMean(n.Value, visibilityWords, "or write an expression that says whether the model sees the tool"))
				return false
			}
		}
		*v = Visibility{}
		return expression("one of "+joinWords(visibilityWords)+", or an expression").read(r, n, &v.Expr)
	},
	write: func(v *Visibility) any {
		switch {
		case !v.Expr.IsZero():
			return v.Expr.Value
		case v.Word == "":
			return nil
		}
		return string(v.Word)
	},
	schema: func() map[string]any {
		return map[string]any{"anyOf": []any{oneOf(visibilityWords...).schema(), map[string]any{"type": []any{"string", "boolean"}}}}
	},
}

var toolSourceObject = object(nil,
	key("kind", "What stands behind the tool.", func(s *ToolSource) *SourceKind { return &s.Kind }, oneOf(sourceKinds...)).must(),
	key("name", "The Source document.", func(s *ToolSource) *SourceName { return &s.Name }, pattern[SourceName](docNameRule)),
	key("tool", "The upstream's own name of the tool.", func(s *ToolSource) *string { return &s.Tool }, word[string]()),
	key("digest", "Digest of the definition that was accepted.", func(s *ToolSource) *Digest { return &s.Digest }, pattern[Digest](digestRule)),
)

var toolSourceShape = shape[ToolSource]{
	read: func(r *reader, n *yaml.Node, v *ToolSource) bool {
		*v = ToolSource{}
		ok := false
		if n.Kind == yaml.ScalarNode {
			ok = oneOf(sourceKinds...).read(r, n, &v.Kind)
		} else {
			ok = toolSourceObject.read(r, n, v)
		}
		v.Pos = r.pos(n)
		return ok
	},
	write: func(v *ToolSource) any {
		if v.Name == "" && v.Tool == "" && v.Digest == "" {
			return oneOf(sourceKinds...).write(&v.Kind)
		}
		return toolSourceObject.write(v)
	},
	schema: func() map[string]any {
		return map[string]any{"anyOf": []any{oneOf(sourceKinds...).schema(), toolSourceObject.schema()}}
	},
}

var toolShape = object(nil,
	key("title", "Name for people.", func(t *Tool) *string { return &t.Title }, word[string]()),
	key("description", "What the model reads about the tool.", func(t *Tool) *Text { return &t.Describe }, text()),
	key("inputSchema", "JSON Schema 2020-12 of the arguments; absent means an object without properties.", func(t *Tool) *Schema { return &t.InputSchema }, jsonValue("a JSON Schema (a mapping)", true)),
	key("outputSchema", "JSON Schema of the structured result; absent means free.", func(t *Tool) *Schema { return &t.OutputSchema }, jsonValue("a JSON Schema (a mapping)", true)),
	key("annotations", "Facts about the tool that policies read.", func(t *Tool) *Annotations { return &t.Annotations }, annotationsShape),
	key("visibility", "model (default), user, hidden, or CEL: true means model, false means hidden.", func(t *Tool) *Visibility { return &t.Visibility }, visibilityShape),
	key("permission", "The tool's own voice: allow (default; asks for no approval, grants nothing), approval, deny.", func(t *Tool) *Permission { return &t.Permission }, oneOf(PermissionAllow, PermissionApproval, PermissionDeny)),
	key("budget", "Limits per tool and run.", func(t *Tool) *Budget { return &t.Budget }, budgetShape),
	key("source", "built_in, mcp, extension, skill, or a mapping that also names the Source document.", func(t *Tool) *ToolSource { return &t.Source }, toolSourceShape).must(),
	key("errors", "Error codes the model may see as they are.", func(t *Tool) *[]string { return &t.Errors }, listOf(pattern[string](docNameRule))),
	key("redact", "JSON pointers into arguments and result that the journal must not hold.", func(t *Tool) *[]Text { return &t.Redact }, listOf(patternText(pointer))),
).then(func(r *reader, n *yaml.Node, t *Tool) {
	a := &t.Annotations
	said := func(what string) bool {
		notes := child(n, "annotations")
		return notes != nil && child(notes, what) != nil
	}
	if t.Source.Kind != SourceBuiltIn && !a.ReadOnly && !said("destructive") {
		a.Destructive = true
	}
	fillTool(t)
	t.memo = &toolMemo{}
	if a.ReadOnly && a.Destructive {
		r.fail(child(n, "annotations"), "contradiction", "a tool cannot be both readOnly and destructive", "drop one of them")
	}
})

func fillTool(t *Tool) {
	a := &t.Annotations
	if a.SideEffect == "" {
		a.SideEffect = SideNetwork
		if a.ReadOnly {
			a.SideEffect = SideNone
		}
	}
	if a.Reversible == "" {
		a.Reversible = ReversibleNone
	}
	if t.Visibility.Word == "" && t.Visibility.Expr.IsZero() {
		t.Visibility.Word = VisibleModel
	}
	if t.Permission == "" {
		t.Permission = PermissionAllow
	}
}

// ---- Policy

var effects = []Effect{EffectAllow, EffectApprove, EffectWaive, EffectDeny, EffectHide}

var policyLayers = []LayerName{LayerPlatform, LayerUser, LayerPlan, LayerProfile, LayerSource}

var matchShape = object(func(m *Match) *Pos { return &m.Pos },
	key("tenants", "Globs over tenants.", func(m *Match) **[]Text { return &m.Tenants }, optional(globs())),
	key("users", "Globs over people.", func(m *Match) **[]Text { return &m.Users }, optional(globs())),
	key("roles", "Globs over roles.", func(m *Match) **[]Text { return &m.Roles }, optional(globs())),
	key("profiles", "Globs over profiles.", func(m *Match) **[]Text { return &m.Profiles }, optional(globs())),
	key("nodes", "Globs over plan nodes.", func(m *Match) **[]Text { return &m.Nodes }, optional(globs())),
	key("sources", "Globs over Source documents.", func(m *Match) **[]Text { return &m.Sources }, optional(globs())),
)

// effectPos reads the effect and its place together.
var effectShape = shape[Rule]{
	read: func(r *reader, n *yaml.Node, v *Rule) bool {
		v.EffectPos = r.pos(n)
		return oneOf(effects...).read(r, n, &v.Effect)
	},
	write:  func(v *Rule) any { return oneOf(effects...).write(&v.Effect) },
	schema: oneOf(effects...).schema,
}

var ruleShape = object(func(r *Rule) *Pos { return &r.Pos },
	key("name", "Name of the rule: traces and tests call it <policy>/<name>.", func(r *Rule) *string { return &r.Name }, pattern[string](docNameRule)).must(),
	key("tools", "Globs over tool names; mcp:github.* narrows by source kind first; * crosses dots.", func(r *Rule) *[]Text { return &r.Tools }, toolGlobs()).must(),
	key("when", "CEL, bool; absent means always.", func(r *Rule) *Text { return &r.When }, expression("a condition (CEL)")),
	key("effect", "allow, approve (a person must agree), waive (clears asks), deny, hide.", func(r *Rule) *Rule { return r }, effectShape).must(),
	key("reason", "Why, for people: plain text, or a CEL string.", func(r *Rule) *Text { return &r.Reason }, filled(text())),
	key("message", "What the model may read when the rule refuses.", func(r *Rule) *Text { return &r.Message }, filled(text())),
	key("approval", "Who must agree; only with effect approve. Default: one person with the role approver, within 15 minutes.", func(r *Rule) **Approval { return &r.Approval }, pointerTo(approvalShape)),
	key("budget", "One counter shared by all tools the rule selects.", func(r *Rule) *Budget { return &r.Budget }, budgetShape),
	key("onDeny", "What a denial does to the run: result (default) or fail_run.", func(r *Rule) *OnDeny { return &r.OnDeny }, oneOf(OnDenyResult, OnDenyFailRun)),
).then(func(r *reader, n *yaml.Node, v *Rule) {
	if list := child(n, "tools"); len(v.Tools) == 0 && list != nil && list.Kind == yaml.SequenceNode && len(list.Content) == 0 {
		r.fail(list, "selects-nothing", "this rule selects no tool at all", `name a tool, or "*" for every tool`)
	}
	if v.Approval != nil && v.Effect != EffectApprove && v.Effect != "" {
		r.fail(child(n, "approval"), "approval-without-ask", "only a rule with effect approve can say who approves", "")
	}
	if v.OnDeny != "" && v.Effect != EffectDeny && v.Effect != EffectHide && v.Effect != EffectApprove && v.Effect != "" {
		r.fail(child(n, "onDeny"), "on-deny-without-deny", "only a rule that can refuse says what a refusal does", "")
	}
	fillRule(v)
})

func fillRule(r *Rule) {
	if r.OnDeny == "" && (r.Effect == EffectDeny || r.Effect == EffectHide || r.Effect == EffectApprove) {
		r.OnDeny = OnDenyResult
	}
}

var layerShape = shape[Policy]{
	read: func(r *reader, n *yaml.Node, p *Policy) bool {
		p.LayerPos = r.pos(n)
		ok := oneOf(policyLayers...).read(r, n, &p.Layer)
		if ok && p.Layer == LayerPlatform && r.level == TenantLevel {
			r.fail(n, "operator-only", "a platform layer can only be written by the operator", "use one of user, plan, profile, source")
			return false
		}
		return ok
	},
	write:  func(p *Policy) any { return oneOf(policyLayers...).write(&p.Layer) },
	schema: oneOf(policyLayers...).schema,
}

var policyShape = object(nil,
	key("layer", "Whose voice this is: platform, user, plan, profile or source.", func(p *Policy) *Policy { return p }, layerShape).must(),
	key("match", "For whom the rules hold; absent lists match everything, [] matches nothing.", func(p *Policy) *Match { return &p.Match }, matchShape),
	key("rules", "The rules; their order never matters.", func(p *Policy) *[]Rule { return &p.Rules }, listOf(ruleShape)).must(),
).then(func(r *reader, n *yaml.Node, p *Policy) {
	seen := map[string]Pos{}
	for i := range p.Rules {
		rule := &p.Rules[i]
		if p.Layer == LayerUser && rule.Effect == EffectAllow {
			r.report(Diagnostic{Pos: rule.EffectPos, Code: "user-layer-allow", Width: len("allow"),
				Message: "a user layer cannot allow: grants belong to a profile or a plan node",
				Hint:    "to stop being asked, use effect waive; to grant, put the rule in a policy of layer profile"})
		}
		if rule.Name == "" {
			continue
		}
		if first, twice := seen[rule.Name]; twice {
			r.report(Diagnostic{Pos: rule.Pos, Code: "duplicate-name", Width: 1,
				Message: "a rule named " + quoted(rule.Name) + " is already there, on line " + itoa(first.Line), Hint: "rename one of them"})
		} else {
			seen[rule.Name] = rule.Pos
		}
	}
})

// ---- Source

var sourceShape = object(nil,
	key("type", "mcp, extension, skill or built_in.", func(s *Source) *SourceKind { return &s.Type }, oneOf(sourceKinds...)).must(),
	key("transport", "How the source is reached (operator only).", func(s *Source) *Transport { return &s.Transport }, object(func(t *Transport) *Pos { return &t.Pos },
		key("command", "Program and arguments of a stdio server.", func(t *Transport) *[]string { return &t.Command }, listOf(word[string]())).operatorOnly(),
		key("env", "Environment of that program: plain texts, or env:NAME, file:PATH.", func(t *Transport) *map[string]string { return &t.Env }, mapOf(envRule, word[string]())).operatorOnly(),
		key("url", "Address of a streamable HTTP server.", func(t *Transport) *string { return &t.URL }, word[string]()).operatorOnly(),
		key("headers", "Headers by name; values are secret references.", func(t *Transport) *map[string]SecretRef { return &t.Headers }, mapOf(keyRule, pattern[SecretRef](secretRule))).operatorOnly(),
	).then(func(r *reader, n *yaml.Node, t *Transport) {
		if len(t.Command) > 0 && t.URL != "" {
			r.fail(n, "contradiction", "a transport is either a command or a url", "drop one of them")
		}
		if t.URL != "" && !strings.HasPrefix(t.URL, "http://") && !strings.HasPrefix(t.URL, "https://") {
			r.fail(child(n, "url"), "bad-url", quoted(t.URL)+" is not an http address", "start it with https://")
		}
	})),
	key("trust", "untrusted (default): hints never make a tool safer than the strict reading; trusted.", func(s *Source) *Trust { return &s.Trust }, oneOf(Untrusted, Trusted)),
	key("capabilities", "Globs over the source's tool names that are accepted; absent: none.", func(s *Source) *[]Text { return &s.Capabilities }, globs()),
	key("pins", "Digest of the accepted definition, by tool name.", func(s *Source) *map[string]Digest { return &s.Pins }, mapOf(toolNameRule, pattern[Digest](digestRule))),
	key("timeout", "How long a call may take; default 60s.", func(s *Source) *time.Duration { return &s.Timeout }, duration(1)),
	key("concurrency", "How many calls at once; default 4.", func(s *Source) *int { return &s.Concurrency }, whole[int](1, 1024)),
	key("root", "Folder of a skill source (operator only).", func(s *Source) *string { return &s.Root }, word[string]()).operatorOnly(),
).then(func(r *reader, n *yaml.Node, s *Source) {
	if s.Trust == "" {
		s.Trust = Untrusted
	}
	if s.Timeout == 0 {
		s.Timeout = DefaultSourceTimeout
	}
	if s.Concurrency == 0 {
		s.Concurrency = DefaultSourceConcurrency
	}
	if s.Root != "" && s.Type != SourceSkill {
		r.fail(child(n, "root"), "contradiction", "only a skill source has a root", "")
	}
})

func itoa(i int) string { return strconv.Itoa(i) }
