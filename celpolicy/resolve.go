package celpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/callgate/callgate/specs"
)

// Tools whose place in a delegation is fixed.
const (
	toolReturn   specs.ToolName = "task.return" // every child has it, no profile can give it
	toolRollback specs.ToolName = "workspace.rollback"
)

// neverPassedOn are tools that only the root of a run has.
var neverPassedOn = []specs.ToolName{"workspace.commit", "workspace.finish", "agent.delegate"}

// costOfListing is what is left for asking a second time, with arguments unknown, whether a refused call's tool
// still stands on the list.
const costOfListing = CostPerDecision / 4

// ModelMessageUnavailable is what a model reads about a tool that is unknown, hidden or denied: the same text
// for all three, so that a name cannot be probed.
func ModelMessageUnavailable(tool specs.ToolName) string {
	return fmt.Sprintf("The tool %s is not available.", tool)
}

// Resolve decides about one tool. It is total: whatever the input, there is an answer, and what cannot be
// decided goes to the strict side.
func (p *Policy) Resolve(in Input) Decision {
	e := p.tools[in.Tool]
	if e == nil {
		return p.unknownTool(&in)
	}
	ev := p.evaluation(&in, sightOf(in.Phase))
	defer ev.release()
	return ev.decide(e)
}

// List decides about every tool of the bundle, in PhaseList and in the order of canonical names. The tools to
// show a model are those whose decision says Visible.
func (p *Policy) List(in Input) []Decision {
	in.Phase, in.Args = PhaseList, nil
	ev := p.evaluation(&in, seesState)
	defer ev.release()
	out := make([]Decision, 0, len(p.names))
	for _, name := range p.names {
		in.Tool = name
		out = append(out, ev.decide(p.tools[name]))
	}
	return out
}

func (p *Policy) unknownTool(in *Input) Decision {
	return Decision{
		Tool: in.Tool, Phase: in.Phase, Code: CodeUnknownTool, Reason: fmt.Sprintf("there is no tool %q in this bundle", in.Tool),
		Message: ModelMessageUnavailable(in.Tool), Budget: p.defaultLimits(), Verdicts: silence(), PolicyDigest: p.digest,
	}
}

func silence() map[specs.LayerName]Verdict {
	out := make(map[specs.LayerName]Verdict, len(voiceOrder))
	for _, l := range voiceOrder {
		out[l] = VerdictNone
	}
	return out
}

// decide answers in the evaluation's phase. Visible is about the tool and not about one call's arguments: a
// call that its arguments forbid does not take the tool off the model's list.
func (ev *evaluation) decide(e *toolEntry) Decision {
	ev.at(e)
	d := ev.once(e)
	if !ev.unknown() && !d.Callable && !d.Visible {
		ev.at(e)
		ev.spent = CostPerDecision - costOfListing
		ev.sees = seesState
		listed := ev.once(e)
		ev.sees = seesAll
		d.Visible, d.VisibleToUser = listed.Visible, listed.VisibleToUser
	}
	return d
}

// hearing collects what every layer says about one tool.
type hearing struct {
	ev       *evaluation
	entry    *toolEntry
	node     *planNode
	child    bool
	voices   []Voice
	refusals []refusal
	asks     []*ask
	waives   []*compiledRule
	paying   []*compiledRule // matched rules with a budget
	verdicts map[specs.LayerName]Verdict
	allowed  map[specs.LayerName]*grantVoice // who allowed, by layer
	open     bool                            // some answer still hangs on arguments
	limits   limitSet
	grants   []string
	quiet    bool // nobody will read reasons
}

// refusal is one reason against.
type refusal struct {
	layer   specs.LayerName
	rule    specs.RuleID
	code    string
	text    string
	weight  int           // denies before errors before hides before what nobody said
	r       *compiledRule // nil when a list, a document or silence refuses
	onlyMe  bool          // refuses the model only; people still see the tool
	missing bool          // nobody spoke: not a deny
	voice   int           // index of the voice, or -1
}

type grantVoice struct {
	rule   specs.RuleID
	list   bool
	unsure bool // hangs on arguments nobody knows yet
}

type ask struct {
	Ask
	rank  int
	voice int
}

func (ev *evaluation) hearing(e *toolEntry) *hearing {
	return &hearing{ev: ev, entry: e, child: len(ev.in.Envelopes) > 0, verdicts: silence(),
		allowed: map[specs.LayerName]*grantVoice{}}
}

func (ev *evaluation) once(e *toolEntry) Decision {
	h := ev.hearing(e)
	h.hearUnreadable()
	h.hearNode()
	h.hearLists()
	h.hearRules()
	h.hearDocument()
	h.hearVisibility()
	h.hearEnvelopes()
	h.hearArguments()
	h.grant()
	h.waive()
	h.budgets()
	return h.decision()
}

// say keeps a voice for the trace, and gives its index: -1 when nobody asked for a trace.
func (h *hearing) say(v Voice) int {
	if !h.ev.in.Trace {
		return -1
	}
	h.voices = append(h.voices, v)
	return len(h.voices) - 1
}

// refuse records a deny, a hide or a missing grant.
func (h *hearing) refuse(r refusal) {
	h.refusals = append(h.refusals, r)
	if r.missing {
		return
	}
	verdict := VerdictDeny
	if r.code == CodePolicyError {
		verdict = VerdictError
	}
	h.verdict(r.layer, verdict)
}

// verdict keeps a layer's strongest word.
func (h *hearing) verdict(l specs.LayerName, v Verdict) {
	if strength(v) > strength(h.verdicts[l]) {
		h.verdicts[l] = v
	}
}

func strength(v Verdict) int {
	return slices.Index([]Verdict{VerdictNone, VerdictAllow, VerdictAsk, VerdictError, VerdictDeny}, v)
}

func (h *hearing) hearUnreadable() {
	for _, l := range h.ev.p.bundle.Unreadable {
		i := h.say(Voice{Layer: l, Rule: specs.RuleID(l), Effect: specs.EffectDeny, Outcome: Errored, Error: "the layer could not be read"})
		h.refuse(refusal{layer: l, rule: specs.RuleID(l), code: CodeLayerUnreadable, voice: i,
			text: fmt.Sprintf("the %s layer could not be read", l)})
	}
}

func (h *hearing) hearNode() {
	run := &h.ev.in.Run
	node, err := h.ev.p.activeNode(run.Plan, run.Node)
	if err != nil {
		id := specs.RuleID(run.Node)
		i := h.say(Voice{Layer: specs.LayerPlan, Rule: id, Effect: specs.EffectDeny, Outcome: Errored, Error: err.Error()})
		h.refuse(refusal{layer: specs.LayerPlan, rule: id, code: CodeLayerUnreadable, text: err.Error(), voice: i})
	}
	h.node = node
}

// hearLists hears tools.allow and tools.deny of the profile and of the active node.
func (h *hearing) hearLists() {
	t := h.entry.tool
	if name := h.ev.profile; name != "" {
		prof := h.ev.p.profiles[name]
		if prof == nil {
			err := fmt.Sprintf("there is no profile %q in this bundle", name)
			i := h.say(Voice{Layer: specs.LayerProfile, Rule: specs.RuleID(name), Effect: specs.EffectDeny, Outcome: Errored, Error: err})
			h.refuse(refusal{layer: specs.LayerProfile, rule: specs.RuleID(name), code: CodeLayerUnreadable, text: err, voice: i})
		} else {
			h.hearList(specs.LayerProfile, string(name), &prof.Tools, t)
		}
	}
	if h.node != nil {
		h.hearList(specs.LayerPlan, h.node.plan+"/"+string(h.node.node.ID), &h.node.node.Tools, t)
	}
}

func (h *hearing) hearList(layer specs.LayerName, owner string, lists *specs.ProfileTools, t *specs.Tool) {
	if g, ok := listed(lists.Deny, t); ok {
		h.listDeny(layer, owner, g, "")
	}
	if lists.Allow == nil {
		return
	}
	v := Voice{Layer: layer, Rule: specs.VoiceOf(owner, specs.VoiceAllowList), File: lists.Pos.File, Line: lists.Pos.Line,
		Effect: specs.EffectAllow, Outcome: Unmatched}
	if g, ok := listed(*lists.Allow, t); ok {
		v.Outcome, v.File, v.Line = Matched, g.Pos.File, g.Pos.Line
		h.allow(layer, &grantVoice{rule: v.Rule, list: true})
	}
	h.say(v)
}

func (h *hearing) listDeny(layer specs.LayerName, owner string, g specs.Text, note string) {
	id := specs.VoiceOf(owner, specs.VoiceDenyList)
	i := h.say(Voice{Layer: layer, Rule: id, File: g.Pos.File, Line: g.Pos.Line, Effect: specs.EffectDeny, Outcome: Matched, Note: note})
	h.refuse(refusal{layer: layer, rule: id, code: CodeDenied, text: fmt.Sprintf("%s denies %s", id, g.Value), voice: i})
}

// allow remembers who allows for a layer: a certain voice before an unsure one, a rule before a list, the first
// of several.
func (h *hearing) allow(l specs.LayerName, g *grantVoice) {
	have := h.allowed[l]
	if have == nil || have.unsure && !g.unsure || have.unsure == g.unsure && have.list && !g.list {
		h.allowed[l] = g
	}
	h.verdict(l, VerdictAllow)
}

func (h *hearing) hearRules() {
	for _, r := range h.entry.rules {
		if h.ev.applies(r.policy, h.ev.profile, h.ev.in.Run.Node) {
			h.hearRule(r, "")
		}
	}
}

// applies says whether a policy speaks about this input at all.
func (ev *evaluation) applies(pol *compiledPolicy, profile specs.ProfileName, node specs.NodeID) bool {
	if pol.doc.Layer == specs.LayerPlan && node == "" {
		return false
	}
	m := &pol.doc.Match
	return globbed(m.Tenants, string(ev.in.Tenant.ID)) && globbed(m.Users, string(ev.in.User.ID)) &&
		globbedAny(m.Roles, ev.in.User.Roles) && globbed(m.Profiles, string(profile)) && matchNode(m.Nodes, ev.in.Run.Plan, node)
}

func globbed(globs *[]specs.Text, s string) bool {
	return globs == nil || slices.ContainsFunc(*globs, func(g specs.Text) bool { return specs.Glob(g.Value, s) })
}

func globbedAny(globs *[]specs.Text, all []specs.Role) bool {
	return globs == nil || slices.ContainsFunc(all, func(r specs.Role) bool { return globbed(globs, string(r)) })
}

func matchNode(globs *[]specs.Text, plan string, node specs.NodeID) bool {
	if globs == nil {
		return true
	}
	if node == "" {
		return false
	}
	return globbed(globs, string(node)) || plan != "" && globbed(globs, plan+"/"+string(node))
}

// hearRule asks one rule and sends an error to the strict side of the rule's own effect.
func (h *hearing) hearRule(r *compiledRule, note string) {
	outcome := Matched
	var err error
	if r.when != nil {
		outcome, err = h.ev.condition(r.when)
	}
	h.heard(r, outcome, err, note)
}

// heard takes in what a rule said.
func (h *hearing) heard(r *compiledRule, outcome Outcome, err error, note string) {
	v := Voice{Layer: r.policy.doc.Layer, Rule: r.id, File: r.rule.Pos.File, Line: r.rule.Pos.Line, Effect: r.rule.Effect,
		Outcome: outcome, Note: note}
	if err != nil {
		v.Error = place(r.rule.When) + err.Error()
	}
	i := h.say(v)
	layer := v.Layer
	switch r.rule.Effect {
	case specs.EffectDeny, specs.EffectHide:
		h.hearDeny(r, v, i)
	case specs.EffectApprove:
		switch v.Outcome {
		case Matched, Errored:
			h.asks = append(h.asks, h.askOf(r, i))
			if v.Outcome == Errored {
				h.verdict(layer, VerdictError)
			}
			h.verdict(layer, VerdictAsk)
			h.pay(r)
		case Unknown:
			h.open = true
		}
	case specs.EffectAllow:
		switch v.Outcome {
		case Matched:
			h.allow(layer, &grantVoice{rule: r.id})
			h.pay(r)
		case Unknown:
			h.open = true
			h.allow(layer, &grantVoice{rule: r.id, unsure: true})
		case Errored:
			h.verdict(layer, VerdictError)
		}
	case specs.EffectWaive:
		switch v.Outcome {
		case Matched:
			h.waives = append(h.waives, r)
			h.pay(r)
		case Unknown:
			h.open = true
		case Errored:
			h.verdict(layer, VerdictError)
		}
	}
}

func (h *hearing) hearDeny(r *compiledRule, v Voice, i int) {
	ref := refusal{layer: v.Layer, rule: r.id, code: CodeDenied, r: r, voice: i}
	if r.rule.Effect == specs.EffectHide {
		ref.code, ref.onlyMe, ref.weight = CodeHidden, true, 2
	}
	switch v.Outcome {
	case Matched:
		h.refuse(ref)
	case Errored:
		ref.code, ref.text, ref.weight = CodePolicyError, "its condition could not be decided: "+v.Error, 1
		h.refuse(ref)
	case Unknown:
		h.open = true
	}
}

func place(t specs.Text) string {
	if t.Pos.IsZero() {
		return ""
	}
	return t.Pos.String() + ": "
}

func (h *hearing) pay(r *compiledRule) {
	if len(r.budget.amounts) > 0 || r.budget.timeout != nil {
		h.paying = append(h.paying, r)
	}
}

// hearDocument hears the tool's own document: its permission, and whether its definition is accepted.
func (h *hearing) hearDocument() {
	t := h.entry.tool
	pos := t.Pos
	if q := h.entry.quarantine; q != nil {
		i := h.say(Voice{Layer: specs.LayerSource, Rule: q.rule, File: q.pos.File, Line: q.pos.Line, Effect: specs.EffectDeny, Outcome: Matched})
		h.refuse(refusal{layer: specs.LayerSource, rule: q.rule, code: CodeDenied, text: q.reason, voice: i})
	}
	id := specs.VoiceOf(t.Name, specs.VoicePermission)
	switch t.Permission {
	case specs.PermissionDeny:
		i := h.say(Voice{Layer: specs.LayerSpec, Rule: id, File: pos.File, Line: pos.Line, Effect: specs.EffectDeny, Outcome: Matched})
		h.refuse(refusal{layer: specs.LayerSpec, rule: id, code: CodeDenied, text: "the tool's own permission is deny", voice: i})
	case specs.PermissionApproval:
		i := h.say(Voice{Layer: specs.LayerSpec, Rule: id, File: pos.File, Line: pos.Line, Effect: specs.EffectApprove, Outcome: Matched})
		h.asks = append(h.asks, &ask{Ask: Ask{Rule: id, Layer: specs.LayerSpec, Reason: "the tool itself asks for approval",
			Approval: filled(nil), Grantable: h.entry.grantable(nil)}, rank: specs.LayerRank(specs.LayerSpec), voice: i})
		h.verdict(specs.LayerSpec, VerdictAsk)
	}
}

func (h *hearing) hearVisibility() {
	t := h.entry.tool
	v := Voice{Layer: specs.LayerSpec, Rule: specs.VoiceOf(t.Name, specs.VoiceVisibility), File: t.Pos.File, Line: t.Pos.Line,
		Effect: specs.EffectHide, Outcome: Matched}
	ref := refusal{layer: v.Layer, rule: v.Rule, code: CodeHidden, weight: 2}
	switch {
	case t.Visibility.Expr.Value != "":
		v.File, v.Line = t.Visibility.Expr.Pos.File, t.Visibility.Expr.Pos.Line
		shown, err := h.ev.condition(h.entry.visibility)
		switch {
		case err != nil:
			v.Outcome, v.Error = Errored, place(t.Visibility.Expr)+err.Error()
			ref.code, ref.weight, ref.text = CodePolicyError, 1, "its visibility could not be decided: "+v.Error
		case shown == Matched:
			v.Outcome = Unmatched // the hide did not match
			h.say(v)
			return
		default:
			ref.text = "the tool's visibility condition is false"
		}
	case t.Visibility.Word == specs.VisibleUser:
		ref.onlyMe, ref.text = true, "the tool is for people, not for a model"
	case t.Visibility.Word == specs.VisibleHidden:
		ref.text = "the tool is hidden"
	default:
		return
	}
	ref.voice = h.say(v)
	h.refuse(ref)
}

// hearArguments refuses a call whose arguments are not strict JSON, whatever the rules say about them: what a
// rule cannot look at must not run.
func (h *hearing) hearArguments() {
	if h.ev.unknown() {
		return
	}
	if h.ev.read(); h.ev.argsErr == nil {
		return
	}
	id := specs.VoiceOf(h.entry.tool.Name, specs.VoiceArguments)
	text := "the arguments cannot be read: " + h.ev.argsErr.Error()
	i := h.say(Voice{Layer: specs.LayerSpec, Rule: id, Effect: specs.EffectDeny, Outcome: Errored, Error: text})
	h.refuse(refusal{layer: specs.LayerSpec, rule: id, code: CodePolicyError, text: text, weight: 1, voice: i})
}

// hearEnvelopes holds a child inside what every caller on the path may pass on, and under all their denies.
func (h *hearing) hearEnvelopes() {
	t := h.entry.tool
	name := t.ToolName()
	if !h.child {
		return
	}
	outside := func(rule specs.RuleID, text string) {
		i := h.say(Voice{Layer: specs.LayerProfile, Rule: rule, Effect: specs.EffectDeny, Outcome: Matched, Note: text})
		h.refuse(refusal{layer: specs.LayerProfile, rule: rule, code: CodeEnvelope, text: text, voice: i})
	}
	if slices.Contains(neverPassedOn, name) {
		outside("delegation", fmt.Sprintf("%s stays with the root of a run", name))
	}
	for _, env := range h.ev.in.Envelopes {
		prof := h.ev.p.profiles[env.Profile]
		if prof == nil {
			outside(specs.RuleID(env.Profile), fmt.Sprintf("there is no profile %q on the path in this bundle", env.Profile))
			continue
		}
		if name != toolReturn {
			var ok bool
			if prof.Delegation.DelegableTools != nil {
				_, ok = listed(*prof.Delegation.DelegableTools, t)
			}
			if !ok {
				outside(specs.RuleID(prof.Name+"/delegation.delegableTools"), fmt.Sprintf("%s may not pass %s on", prof.Name, name))
			}
		}
		h.hearPath(env, prof)
	}
}

// hearPath hears the denies and hides of one caller on the path.
func (h *hearing) hearPath(env Envelope, prof *specs.Profile) {
	t := h.entry.tool
	note := "on the path: " + prof.Name
	if g, ok := listed(prof.Tools.Deny, t); ok {
		h.listDeny(specs.LayerProfile, prof.Name, g, note)
	}
	if env.Node != "" && env.Node != h.ev.in.Run.Node {
		n, err := h.ev.p.activeNode(h.ev.in.Run.Plan, env.Node)
		if err != nil {
			i := h.say(Voice{Layer: specs.LayerPlan, Rule: specs.RuleID(env.Node), Effect: specs.EffectDeny, Outcome: Errored, Error: err.Error(), Note: note})
			h.refuse(refusal{layer: specs.LayerPlan, rule: specs.RuleID(env.Node), code: CodeLayerUnreadable, text: err.Error(), voice: i})
		} else if g, ok := listed(n.node.Tools.Deny, t); ok {
			h.listDeny(specs.LayerPlan, n.plan+"/"+string(n.node.ID), g, note)
		}
	}
	node := cmp.Or(env.Node, h.ev.in.Run.Node)
	for _, r := range h.entry.rules {
		if r.rule.Effect != specs.EffectDeny && r.rule.Effect != specs.EffectHide {
			continue
		}
		if h.ev.applies(r.policy, env.Profile, node) && !h.ev.applies(r.policy, h.ev.profile, h.ev.in.Run.Node) {
			h.hearRule(r, note)
		}
	}
}

// grant says who could have allowed the tool and did not.
func (h *hearing) grant() {
	name := h.entry.tool.ToolName()
	if name == toolReturn {
		if h.child {
			h.allow(specs.LayerProfile, &grantVoice{rule: "delegation"})
		} else {
			h.missing(specs.LayerProfile, "", "only a delegated task can return")
		}
		return
	}
	granter := specs.LayerProfile
	if h.ev.planSpeaks(h.node, h.child) == triYes {
		granter = specs.LayerPlan
	}
	switch {
	case granter == specs.LayerProfile && h.ev.profile == "":
		h.missing(granter, "", "no profile is named and the tenant has no default profile, so nothing is granted")
	case h.allowed[granter] == nil && granter == specs.LayerPlan:
		h.missing(granter, "", fmt.Sprintf("the active plan node %s does not allow it", h.ev.in.Run.Node))
	case h.allowed[granter] == nil:
		h.missing(granter, "", fmt.Sprintf("the profile %s does not allow it", h.ev.profile))
	}
	for _, l := range []specs.LayerName{specs.LayerPlatform, specs.LayerSource} {
		if ceiling := h.ceiling(l); ceiling != "" && h.allowed[l] == nil {
			h.refusals = append(h.refusals, refusal{layer: l, code: CodeCeiling, weight: 3, missing: true, voice: -1,
				text: fmt.Sprintf("the ceiling of the %s layer (%s) leaves it out", l, ceiling)})
		}
	}
}

func (h *hearing) missing(l specs.LayerName, rule specs.RuleID, text string) {
	h.refusals = append(h.refusals, refusal{layer: l, rule: rule, code: CodeNotAllowed, text: text, weight: 3, missing: true, voice: -1})
}

// planSpeaks says whether the active node speaks about allows: then its allows replace the profile's. A plan leads
// the root of a run; a child has what its own profile grants, and of the plan only the denies.
func (ev *evaluation) planSpeaks(node *planNode, child bool) tri {
	if ev.in.Run.Node == "" || child {
		return triNo
	}
	if node != nil && node.node.Tools.Allow != nil {
		return triYes
	}
	out := triNo
	for _, pol := range ev.p.policies {
		if pol.doc.Layer != specs.LayerPlan || !pol.hasAllow {
			continue
		}
		switch ev.speaks(pol) {
		case triYes:
			return triYes
		case triOpen:
			out = triOpen
		}
	}
	return out
}

// ceiling names the policies of a layer that have any allow rule and so leave out whatever they do not allow.
func (h *hearing) ceiling(l specs.LayerName) string {
	var names []string
	for _, pol := range h.ev.p.policies {
		if pol.doc.Layer != l || !pol.hasAllow || !h.ev.applies(pol, h.ev.profile, h.ev.in.Run.Node) {
			continue
		}
		if l == specs.LayerSource && !matchSource(pol.doc.Match, h.entry.tool) {
			continue
		}
		names = append(names, pol.doc.Name)
	}
	return strings.Join(names, ", ")
}
