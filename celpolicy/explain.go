package celpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/callgate/callgate/specs"
)

// Explanation is a decision with everything a person needs to understand it. Its JSON is stable.
type Explanation struct {
	Tool    specs.ToolName    `json:"tool"`
	Phase   Phase             `json:"phase"`
	Profile specs.ProfileName `json:"profile,omitempty"` // after the tenant's default
	Node    specs.NodeID      `json:"node,omitempty"`
	User    specs.UserID      `json:"user,omitempty"`

	Visible          bool            `json:"visible"`
	Callable         bool            `json:"callable"`
	ApprovalRequired bool            `json:"approvalRequired"`
	Unknown          bool            `json:"unknown,omitempty"`
	Code             string          `json:"code,omitempty"`
	Rule             specs.RuleID    `json:"rule,omitempty"`
	Layer            specs.LayerName `json:"layer,omitempty"`
	Reason           string          `json:"reason"`
	Message          string          `json:"message,omitempty"` // what the model reads
	DeniedBy         []specs.RuleID  `json:"deniedBy,omitempty"`
	Asks             []Ask           `json:"asks,omitempty"`
	Budget           Limits          `json:"budget"`
	Charges          []Charge        `json:"charges,omitempty"`
	PolicyDigest     specs.Digest    `json:"policyDigest"`

	Layers map[specs.LayerName]Verdict `json:"layers"`
	Trace  []Voice                     `json:"trace"`
	// Change says what would have to be different for another answer.
	Change []string `json:"change,omitempty"`
	// Notes says which arguments are not typed, and why.
	Notes []string `json:"notes,omitempty"`
	// Unselected are rules that select the tool but whose policy does not speak about this input.
	Unselected []Unselected `json:"unselected,omitempty"`
}

// Unselected is a rule that was not asked.
type Unselected struct {
	Rule specs.RuleID `json:"rule"`
	Why  string       `json:"why"`
}

// Explain decides and says why: every layer's voice, the deciding rule's file and line, and what would change
// the answer.
func Explain(p *Policy, in Input) Explanation {
	in.Trace = true
	d := p.Resolve(in)
	x := Explanation{
		Tool: d.Tool, Phase: in.Phase, Profile: cmp.Or(in.Run.Profile, p.tenant.profile), Node: in.Run.Node, User: in.User.ID,
		Visible: d.Visible, Callable: d.Callable, ApprovalRequired: d.ApprovalRequired, Unknown: d.Unknown, Code: d.Code,
		Rule: d.Rule, Layer: d.Layer, Reason: d.Reason, Message: d.Message, DeniedBy: d.DeniedBy, Asks: d.Asks,
		Budget: d.Budget, Charges: d.Charges, PolicyDigest: d.PolicyDigest, Layers: d.Verdicts, Trace: d.Trace,
	}
	if x.Trace == nil {
		x.Trace = []Voice{}
	}
	e := p.tools[in.Tool]
	if e == nil {
		if near := specs.Nearest(string(in.Tool), asStrings(p.names)); near != "" {
			x.Change = []string{fmt.Sprintf("did you mean %q?", near)}
		}
		return x
	}
	x.addNotes(p, e)
	x.addUnselected(p, e, &in)
	x.addChange(p, e)
	return x
}

func asStrings[S ~string](in []S) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}

func (x *Explanation) addNotes(p *Policy, e *toolEntry) {
	for i := range x.Trace {
		v := &x.Trace[i]
		r := p.byRule[v.Rule]
		if r == nil || r.when == nil {
			continue
		}
		for _, n := range dynNotes(r.when, e.shape) {
			if !slices.Contains(x.Notes, n) {
				x.Notes = append(x.Notes, n)
			}
			if v.Note != "" {
				v.Note += "; "
			}
			v.Note += n
		}
	}
}

// dynNotes says which arguments of an expression were checked only when it ran.
func dynNotes(e *expr, root *shape) []string {
	if e.ast == nil || !e.usesArgs {
		return nil
	}
	var out []string
	for _, path := range argPaths(e.parsed.NativeRep().Expr()) {
		s, name := root, varArgs
		for i := 0; s != nil; i++ {
			if s.kind == shapeDyn && s.why != "" {
				n := fmt.Sprintf("dyn: %s is not typed because of %s", name, s.why)
				if !slices.Contains(out, n) {
					out = append(out, n)
				}
				break
			}
			if i == len(path) {
				break
			}
			s, name = s.member(path[i]), name+"."+path[i]
		}
	}
	return out
}

func (x *Explanation) addUnselected(p *Policy, e *toolEntry, in *Input) {
	ev := p.evaluation(in, seesState)
	defer ev.release()
	for _, r := range e.rules {
		if slices.ContainsFunc(x.Trace, func(v Voice) bool { return v.Rule == r.id }) {
			continue
		}
		x.Unselected = append(x.Unselected, Unselected{r.id, ev.whyNot(r.policy)})
	}
}

// whyNot says which selector of a policy leaves this input out.
func (ev *evaluation) whyNot(pol *compiledPolicy) string {
	m := &pol.doc.Match
	list := func(what string, globs *[]specs.Text) string {
		if len(*globs) == 0 {
			return "its policy matches no " + what
		}
		names := make([]string, len(*globs))
		for i, g := range *globs {
			names[i] = g.Value
		}
		return "its policy is for " + what + " " + strings.Join(names, ", ")
	}
	switch {
	case pol.doc.Layer == specs.LayerPlan && ev.in.Run.Node == "":
		return "no plan node is active"
	case !globbed(m.Tenants, string(ev.in.Tenant.ID)):
		return list("tenants", m.Tenants)
	case !globbed(m.Users, string(ev.in.User.ID)):
		return list("users", m.Users)
	case !globbedAny(m.Roles, ev.in.User.Roles):
		return list("roles", m.Roles)
	case !globbed(m.Profiles, string(ev.profile)):
		return list("profiles", m.Profiles)
	case !matchNode(m.Nodes, ev.in.Run.Plan, ev.in.Run.Node):
		return list("nodes", m.Nodes)
	}
	return "its policy does not speak about this input"
}

func (x *Explanation) addChange(p *Policy, e *toolEntry) {
	where := func(id specs.RuleID) string {
		for _, v := range x.Trace {
			if v.Rule == id && v.File != "" {
				return fmt.Sprintf(" (%s:%d)", v.File, v.Line)
			}
		}
		return ""
	}
	say := func(format string, args ...any) { x.Change = append(x.Change, fmt.Sprintf(format, args...)) }
	for _, id := range x.DeniedBy {
		r := p.byRule[id]
		switch {
		case r != nil && r.usesArgs:
			say("other arguments, or a narrower %s%s", id, where(id))
		case r != nil && r.when != nil:
			say("its condition not holding, or a narrower %s%s", id, where(id))
		default:
			say("%s not saying so%s: no other rule can lift a deny", id, where(id))
		}
	}
	if len(x.DeniedBy) > 0 && !slices.ContainsFunc(x.Trace, func(v Voice) bool {
		return v.Effect == specs.EffectAllow && (v.Layer == specs.LayerProfile || v.Layer == specs.LayerPlan) && (v.Outcome == Matched || v.Outcome == Unknown)
	}) {
		say("and then a grant: neither the profile nor a plan node allows it")
	}
	switch x.Code {
	case CodeNotAllowed:
		switch {
		case x.Layer == specs.LayerPlan:
			say("tools.allow of the plan node %s, or an allow rule of the plan layer for it", x.Node)
		case x.Profile == "":
			say("a profile: name one, or set the tenant's defaultProfile")
		default:
			say("tools.allow of the profile %s, or an allow rule of the profile layer for it", x.Profile)
		}
	case CodeCeiling:
		say("an allow rule of the %s layer that selects %s: its ceiling leaves the tool out", x.Layer, x.Tool)
	case CodeBudgetExhausted:
		say("a higher limit in %s%s, or the next span of it", x.Rule, where(x.Rule))
	}
	if !x.Callable {
		return
	}
	for _, a := range x.Asks {
		how := fmt.Sprintf("a waive rule of the %s layer or above", a.Layer)
		if a.Layer == specs.LayerPlatform {
			how = "a waive rule of the platform layer"
		}
		if a.Grantable {
			how += ", or a remembered grant"
		}
		say("to call without asking: %s, for %s%s", how, a.Rule, where(a.Rule))
	}
	if x.Unknown {
		say("the arguments: some rule waits for them")
	}
}

// Text is the explanation for a person at a terminal.
func (x Explanation) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", x.Tool, x.headline())
	if x.Reason != "" {
		fmt.Fprintf(&b, "  %s\n", x.Reason)
	}
	if x.Message != "" {
		fmt.Fprintf(&b, "  The model reads: %s\n", x.Message)
	}
	fmt.Fprintf(&b, "\n  visible %s, callable %s, approval required %s\n", yes(x.Visible), yes(x.Callable), yes(x.ApprovalRequired))
	fmt.Fprintf(&b, "  %s\n", x.who())
	x.writeTrace(&b)
	x.writeLimits(&b)
	writeList(&b, "what would change it", x.Change)
	writeList(&b, "not typed at load", x.Notes)
	if len(x.Unselected) > 0 {
		lines := make([]string, len(x.Unselected))
		for i, u := range x.Unselected {
			lines[i] = fmt.Sprintf("%s: %s", u.Rule, u.Why)
		}
		writeList(&b, "not asked", lines)
	}
	fmt.Fprintf(&b, "\n  policy %s\n", x.PolicyDigest)
	return b.String()
}

func (x Explanation) headline() string {
	by := ""
	if x.Rule != "" {
		by = fmt.Sprintf(" by %s", x.Rule)
		for _, v := range x.Trace {
			if v.Won && v.File != "" {
				by += fmt.Sprintf(", %s:%d", v.File, v.Line)
				break
			}
		}
	}
	switch {
	case x.Code == CodeUnknownTool:
		return "unknown"
	case x.Code == CodeHidden:
		return "hidden" + by
	case x.Code == CodeNotAllowed:
		return "not allowed by anybody"
	case x.Code == CodeCeiling:
		return "outside the ceiling"
	case x.Code == CodeBudgetExhausted:
		return "budget used up" + by
	case !x.Callable:
		return "denied" + by
	case x.ApprovalRequired:
		return "needs approval" + by
	case x.Unknown:
		return "possibly allowed: the arguments will tell"
	}
	return "allowed" + by
}

func (x Explanation) who() string {
	parts := []string{"phase " + string(cmp.Or(x.Phase, PhaseCall))}
	if x.Profile != "" {
		parts = append(parts, "profile "+string(x.Profile))
	}
	if x.Node != "" {
		parts = append(parts, "plan node "+string(x.Node))
	}
	if x.User != "" {
		parts = append(parts, "user "+string(x.User))
	}
	return strings.Join(parts, ", ")
}

func (x Explanation) writeTrace(b *strings.Builder) {
	if len(x.Trace) == 0 {
		return
	}
	b.WriteString("\n  who said what\n")
	wide := 0
	for _, v := range x.Trace {
		wide = max(wide, len(v.Rule))
	}
	for _, v := range x.Trace {
		mark := " "
		if v.Won {
			mark = ">"
		}
		line := fmt.Sprintf("  %s %-8s  %-7s  %-9s  %-*s", mark, v.Layer, v.Effect, v.Outcome, min(wide, 48), v.Rule)
		if v.File != "" {
			line += fmt.Sprintf("  %s:%d", v.File, v.Line)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, more := range []string{v.Error, v.Note} {
			if more != "" {
				fmt.Fprintf(b, "      %s\n", more)
			}
		}
	}
}

func (x Explanation) writeLimits(b *strings.Builder) {
	b.WriteString("\n  limits\n")
	row := func(what string, l Limit) {
		if l.From != "" {
			fmt.Fprintf(b, "    %d %s per %s (%s)\n", l.Value, what, l.Per, l.From)
		}
	}
	row("calls", x.Budget.MaxCalls)
	row("output tokens", x.Budget.MaxOutputTokens)
	row("cost", x.Budget.MaxCost)
	fmt.Fprintf(b, "    %s per attempt (%s)\n", x.Budget.Timeout.Round(time.Millisecond), x.Budget.TimeoutFrom)
}

func writeList(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n  %s\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "    - %s\n", l)
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
