package specs

import (
	"time"

	"gopkg.in/yaml.v3"
)

// ---- Profile

var profileShape = object(nil,
	key("displayName", "Name for people.", func(p *Profile) *string { return &p.DisplayName }, word[string]()),
	key("instructions", "What the agent is told.", func(p *Profile) *string { return &p.Instructions }, word[string]()),
	key("model", "The model that plays this profile.", func(p *Profile) *ModelBinding { return &p.Model }, object(nil,
		key("provider", "scripted, openai, openai-responses, anthropic or gemini.", func(m *ModelBinding) *string { return &m.Provider }, oneOf("scripted", "openai", "openai-responses", "anthropic", "gemini")).must(),
		key("name", "The provider's name of the model.", func(m *ModelBinding) *string { return &m.Name }, word[string]()),
		key("script", "scripted only: path inside the bundle folder; default scripts/<profile>.yaml.", func(m *ModelBinding) *string { return &m.Script }, word[string]()),
	)),
	key("tools", "What the profile grants.", func(p *Profile) *ProfileTools { return &p.Tools }, profileToolsShape),
	key("skills", "What skill tools show.", func(p *Profile) *ProfileSkills { return &p.Skills }, object(nil,
		key("visible", "Globs over skills.", func(s *ProfileSkills) *[]Text { return &s.Visible }, globs()),
		key("deny", "Globs over skills that are never shown.", func(s *ProfileSkills) *[]Text { return &s.Deny }, globs()),
		key("maxReadCharsPerCall", "Default 20000.", func(s *ProfileSkills) *int64 { return &s.MaxReadCharsPerCall }, whole[int64](1, 1<<30)),
		key("maxReadCharsPerRun", "Default 80000.", func(s *ProfileSkills) *int64 { return &s.MaxReadCharsPerRun }, whole[int64](1, 1<<30)),
	)),
	key("workspace", "Which of the roots output, scratch, plan, summaries, persist the agent sees and writes.", func(p *Profile) *ProfileWorkspace { return &p.Workspace }, object(nil,
		key("visible", "Absent: all five.", func(w *ProfileWorkspace) **[]Text { return &w.Visible }, optional(listOf(rootText()))),
		key("writable", "Absent: all five.", func(w *ProfileWorkspace) **[]Text { return &w.Writable }, optional(listOf(rootText()))),
	)),
	key("delegation", "Whom the agent may hand work to.", func(p *Profile) *Delegation { return &p.Delegation }, object(nil,
		key("mayDelegateTo", "Globs over profiles.", func(d *Delegation) *[]Text { return &d.MayDelegateTo }, globs()),
		key("mayHandOffTo", "Globs over profiles.", func(d *Delegation) *[]Text { return &d.MayHandOffTo }, globs()),
		key("mayBeCalledBy", "Globs over profiles.", func(d *Delegation) *[]Text { return &d.MayBeCalledBy }, globs()),
		key("delegableTools", "Globs over tools that may be passed on at most; absent: none.", func(d *Delegation) **[]Text { return &d.DelegableTools }, optional(toolGlobs())),
		key("maxDepth", "How deep delegation may nest.", func(d *Delegation) *int { return &d.MaxDepth }, whole[int](0, 64)),
	)),
	key("output", "What a run should leave behind.", func(p *Profile) *Output { return &p.Output }, object(nil,
		key("artifacts", "Expected files.", func(o *Output) *[]Artifact { return &o.Artifacts }, artifacts),
	)),
	key("run", "Limits of a run.", func(p *Profile) *RunLimits { return &p.Run }, object(func(l *RunLimits) *Pos { return &l.Pos },
		key("presentation", "foreground (default; must commit before it finishes) or background.", func(l *RunLimits) *Presentation { return &l.Presentation }, oneOf(Foreground, Background)),
		key("maxRounds", "Model turns; default 80.", func(l *RunLimits) *int64 { return &l.MaxRounds }, whole[int64](1, 100000)),
		key("maxCalls", "Tool calls; default 80.", func(l *RunLimits) *int64 { return &l.MaxCalls }, whole[int64](1, 1000000)),
		key("driftRecoveries", "How often a turn without a tool call is answered with a reminder; default 1.", func(l *RunLimits) **int64 { return &l.DriftRecoveries }, optional(whole[int64](0, 100))),
		key("maxCost", "Money, in the tenant's smallest unit.", func(l *RunLimits) **int64 { return &l.MaxCost }, optional(whole[int64](0, maxWhole))),
	)),
	key("drift", "What happens with a plain-text answer.", func(p *Profile) *Drift { return &p.Drift }, object(nil,
		key("capturePath", "Default output/direct_output.md.", func(d *Drift) *string { return &d.CapturePath }, word[string]()),
		key("reminder", "What the model is told.", func(d *Drift) *string { return &d.Reminder }, word[string]()),
	)),
	key("context", "How tool results enter the next model request.", func(p *Profile) *ContextPolicy { return &p.Context }, object(nil,
		key("toolResults", "whole (default), excerpt or hidden.", func(c *ContextPolicy) *ResultView { return &c.ToolResults }, oneOf(ResultWhole, ResultExcerpt, ResultHidden)),
		key("maxResultTokens", "Per result; default 4000.", func(c *ContextPolicy) *int64 { return &c.MaxResultTokens }, whole[int64](1, 1<<30)),
	)),
).then(func(_ *reader, _ *yaml.Node, p *Profile) { fillProfile(p) })

func fillProfile(p *Profile) {
	fill(&p.Skills.MaxReadCharsPerCall, DefaultSkillCharsPerCall)
	fill(&p.Skills.MaxReadCharsPerRun, DefaultSkillCharsPerRun)
	fill(&p.Run.Presentation, Foreground)
	fill(&p.Run.MaxRounds, DefaultMaxRounds)
	fill(&p.Run.MaxCalls, DefaultMaxCalls)
	if p.Run.DriftRecoveries == nil {
		once := int64(1)
		p.Run.DriftRecoveries = &once
	}
	fill(&p.Drift.CapturePath, DefaultDriftCapturePath)
	fill(&p.Context.ToolResults, ResultWhole)
	fill(&p.Context.MaxResultTokens, DefaultMaxResultTokens)
	for i := range p.Output.Artifacts {
		fill(&p.Output.Artifacts[i].Target, "none")
	}
}

// fill puts a default where nothing was said.
func fill[V comparable](v *V, value V) {
	var zero V
	if *v == zero {
		*v = value
	}
}

// WorkspaceRoots are the five top folders of a workspace.
var workspaceRoots = []string{"output", "scratch", "plan", "summaries", "persist"}

// rootText is a workspace root or a path below one.
func rootText() shape[Text] {
	return filled(text()).then(func(r *reader, n *yaml.Node, v *Text) {
		root := v.Value
		for i := range len(root) {
			if root[i] == '/' {
				root = root[:i]
				break
			}
		}
		for _, known := range workspaceRoots {
			if root == known {
				return
			}
		}
		if !r.bad[n] {
			r.fail(n, "unknown-root", quoted(v.Value)+" is below none of the roots "+joinWords(workspaceRoots), didYouMean(root, workspaceRoots, ""))
		}
	})
}

// ---- Plan

var planShape = object(nil,
	key("mode", "free (default), strict or hybrid.", func(p *Plan) *PlanMode { return &p.Mode }, oneOf(PlanFree, PlanStrict, PlanHybrid)),
	key("initial", "Where a run starts; default the first node.", func(p *Plan) *NodeID { return &p.Initial }, pattern[NodeID](docNameRule)),
	key("profiles", "Globs over profiles for which the plan holds; absent: only runs that name it.", func(p *Plan) *[]Text { return &p.Profiles }, globs()),
	key("nodes", "The steps.", func(p *Plan) *[]PlanNode { return &p.Nodes }, listOf(object(func(n *PlanNode) *Pos { return &n.Pos },
		key("id", "Name of the node.", func(n *PlanNode) *NodeID { return &n.ID }, pattern[NodeID](docNameRule)).must(),
		key("title", "Name for people.", func(n *PlanNode) *string { return &n.Title }, word[string]()),
		key("profile", "Who plays the node; absent: the run's own profile.", func(n *PlanNode) *ProfileName { return &n.Profile }, pattern[ProfileName](docNameRule)),
		key("tools", "What the node grants; its allows replace the profile's while it is active.", func(n *PlanNode) *ProfileTools { return &n.Tools }, profileToolsShape),
		key("visible", "Workspace roots or paths the node shows.", func(n *PlanNode) **[]Text { return &n.Visible }, optional(listOf(rootText()))),
		key("maxRounds", "Model turns in this node.", func(n *PlanNode) *int64 { return &n.MaxRounds }, whole[int64](1, 100000)),
		key("artifacts", "Files the node should leave behind.", func(n *PlanNode) *[]Artifact { return &n.Artifacts }, artifacts),
		key("approval", "Who must agree before the node starts.", func(n *PlanNode) **Approval { return &n.Approval }, pointerTo(approvalShape)),
		key("locked", "In a hybrid plan: the node is strict.", func(n *PlanNode) *bool { return &n.Locked }, flag(false)),
		key("guidance", "What the agent is told in this node.", func(n *PlanNode) *string { return &n.Guidance }, word[string]()),
	))).must(),
	key("transitions", "Edges between nodes.", func(p *Plan) *[]PlanTransition { return &p.Transitions }, listOf(object(func(t *PlanTransition) *Pos { return &t.Pos },
		key("from", "A node.", func(t *PlanTransition) *NodeID { return &t.From }, pattern[NodeID](docNameRule)).must(),
		key("to", "A node.", func(t *PlanTransition) *NodeID { return &t.To }, pattern[NodeID](docNameRule)).must(),
		key("when", "CEL, bool, over run, user, tenant, budget; absent: always.", func(t *PlanTransition) *Text { return &t.When }, expression("a condition (CEL)")),
	))),
).then(func(r *reader, n *yaml.Node, p *Plan) {
	fill(&p.Mode, PlanFree)
	if list := child(n, "nodes"); list != nil && list.Kind == yaml.SequenceNode && len(list.Content) == 0 {
		r.fail(list, "no-nodes", "a plan needs at least one node", "")
	}
	if p.Initial == "" && len(p.Nodes) > 0 {
		p.Initial = p.Nodes[0].ID
	}
	for i := range p.Nodes {
		for j := range p.Nodes[i].Artifacts {
			fill(&p.Nodes[i].Artifacts[j].Target, "none")
		}
	}
})

// ---- Machine

var waitOwners = []string{"person", "host", "worker", "model"}

var waitObject = object(nil,
	key("state", "The state that may rest.", func(w *MachineWait) *Text { return &w.State }, patternText(docNameRule)).must(),
	key("owner", "Who moves it on: person, host, worker or model.", func(w *MachineWait) *string { return &w.Owner }, oneOf(waitOwners...)),
	key("timer", "The event that fires when the deadline passes.", func(w *MachineWait) *string { return &w.Timer }, pattern[string](docNameRule)),
)

var waitShape = shape[MachineWait]{
	read: func(r *reader, n *yaml.Node, v *MachineWait) bool {
		if n.Kind == yaml.ScalarNode {
			v.Owner = "person"
			return patternText(docNameRule).read(r, n, &v.State)
		}
		return waitObject.read(r, n, v)
	},
	write: func(v *MachineWait) any {
		if v.Owner == "person" && v.Timer == "" {
			return v.State.Value
		}
		return waitObject.write(v)
	},
	schema: func() map[string]any {
		return map[string]any{"anyOf": []any{patternText(docNameRule).schema(), waitObject.schema()}}
	},
}

var machineShape = object(nil,
	key("initial", "The first state.", func(m *Machine) *Text { return &m.Initial }, patternText(docNameRule)).must(),
	key("birth", "Journal kind of the line that creates one in its first state; default <machine>_created.", func(m *Machine) *string { return &m.Birth }, pattern[string](docNameRule)),
	key("final", "States without an exit.", func(m *Machine) *[]Text { return &m.Final }, listOf(patternText(docNameRule))).must(),
	key("waiting", "States that may rest: a name (a person moves it on), or {state, owner, timer}.", func(m *Machine) *[]MachineWait { return &m.Waiting }, listOf(waitShape)),
	key("states", "Every state by name, so that a typo is an error and not a new state.", func(m *Machine) *[]Text { return &m.States }, listOf(patternText(docNameRule))),
	key("events", "The rows of the table.", func(m *Machine) *[]MachineEvent { return &m.Events }, listOf(object(func(e *MachineEvent) *Pos { return &e.Pos },
		key("name", "Name of the event.", func(e *MachineEvent) *Text { return &e.Name }, patternText(docNameRule)).must(),
		key("from", "The states it can leave.", func(e *MachineEvent) *[]Text { return &e.From }, listOf(patternText(docNameRule))).must(),
		key("to", "The state it reaches.", func(e *MachineEvent) *Text { return &e.To }, patternText(docNameRule)).must(),
		key("journal", "Journal kind of the edge; default <machine>_<event>.", func(e *MachineEvent) *string { return &e.Journal }, pattern[string](docNameRule)),
		key("description", "For people.", func(e *MachineEvent) *string { return &e.Describe }, word[string]()),
	))).must(),
	key("invariants", "What must hold after every event.", func(m *Machine) *[]MachineInvariant { return &m.Invariants }, listOf(object(func(i *MachineInvariant) *Pos { return &i.Pos },
		key("name", "What is promised, in words.", func(i *MachineInvariant) *string { return &i.Name }, word[string]()).must(),
		key("check", `CEL, bool, over state and history; count(history, "event").`, func(i *MachineInvariant) *Text { return &i.Check }, expression("a condition (CEL)")).must(),
	))),
)

// ---- Tenant

var tenantShape = object(nil,
	key("defaultProfile", "The profile of runs that name none.", func(t *Tenant) *Text { return &t.DefaultProfile }, patternText(docNameRule)),
	key("labels", "Facts that policies read as tenant.labels.", func(t *Tenant) *map[string]string { return &t.Labels }, labels),
	key("limits", "What the tenant can use.", func(t *Tenant) *TenantLimits { return &t.Limits }, object(nil,
		key("maxRuns", "Runs at once.", func(l *TenantLimits) *int64 { return &l.MaxRuns }, whole[int64](1, maxWhole)),
		key("callsPerSecond", "Calls a second.", func(l *TenantLimits) *int64 { return &l.CallsPerSecond }, whole[int64](1, maxWhole)),
		key("storageBytes", "Bytes stored.", func(l *TenantLimits) *int64 { return &l.StorageBytes }, whole[int64](1, maxWhole)),
		key("maxArgsBytes", "Bytes of one call's arguments; default 1 MiB.", func(l *TenantLimits) *int64 { return &l.MaxArgsBytes }, whole[int64](1, 1<<30)),
		key("maxResultBytes", "Bytes of one result; default 16 MiB.", func(l *TenantLimits) *int64 { return &l.MaxResultBytes }, whole[int64](1, 1<<32)),
	)),
	key("users", "People, for stores without an identity provider.", func(t *Tenant) *map[string]TenantUser { return &t.Users }, mapOf(keyRule, object(nil,
		key("roles", "admin, author, operator, approver, auditor, agent, or the tenant's own words.", func(u *TenantUser) *[]Role { return &u.Roles }, roles),
		key("displayName", "Name for people.", func(u *TenantUser) *string { return &u.DisplayName }, word[string]()),
		key("labels", "Facts that policies read as user.labels.", func(u *TenantUser) *map[string]string { return &u.Labels }, labels),
	))),
	key("retention", "How long closed runs stay.", func(t *Tenant) *Retention { return &t.Retention }, object(nil,
		key("runs", `A duration: "720h".`, func(x *Retention) *time.Duration { return &x.Runs }, duration(time.Minute)),
	)),
	key("redact", "JSON pointers redacted in every journal payload.", func(t *Tenant) *[]Text { return &t.Redact }, listOf(patternText(pointer))),
	key("secrets", "Secrets by reference (operator only): env:NAME or file:PATH.", func(t *Tenant) *map[string]SecretRef { return &t.Secrets }, mapOf(docNameRule, pattern[SecretRef](secretRule))).operatorOnly(),
	key("unknownCost", "What a call of unknown price is charged; default 100.", func(t *Tenant) **int64 { return &t.UnknownCost }, optional(whole[int64](1, maxWhole))),
).then(func(_ *reader, _ *yaml.Node, t *Tenant) {
	fill(&t.Limits.MaxArgsBytes, DefaultMaxArgsBytes)
	fill(&t.Limits.MaxResultBytes, DefaultMaxResultBytes)
	if t.UnknownCost == nil {
		cost := int64(DefaultUnknownCost)
		t.UnknownCost = &cost
	}
})

// ---- PolicyTest

var (
	testBudget      = mapOf(testBudgetRule, optionalInt)
	testBudgetRule  = nameRule{"a budget dimension", "use maxCalls, maxOutputTokens, maxCost or timeout", `^(maxCalls|maxOutputTokens|maxCost|timeout)$`, isDimension}
	optionalInt     = whole[int64](0, maxWhole)
	testPhases      = []string{"list", "call", "dispatch"}
	testUserShape   = object(nil, key("roles", "Roles of the person.", func(u *TestUser) *[]Role { return &u.Roles }, roles), key("labels", "user.labels", func(u *TestUser) *map[string]string { return &u.Labels }, labels))
	testTenantShape = object(nil, key("labels", "tenant.labels", func(t *TestTenant) *map[string]string { return &t.Labels }, labels))
)

func isDimension(s string) bool {
	return s == "maxCalls" || s == "maxOutputTokens" || s == "maxCost" || s == "timeout"
}

var policyTestShape = object(nil,
	key("users", "The people of the suite.", func(t *PolicyTest) *map[string]TestUser { return &t.Users }, mapOf(keyRule, testUserShape)),
	key("tenants", "Tenants to try; default the bundle's own.", func(t *PolicyTest) *map[string]TestTenant { return &t.Tenants }, mapOf(keyRule, testTenantShape)),
	key("cases", "Calls and what should be decided about them.", func(t *PolicyTest) *[]TestCase { return &t.Cases }, listOf(object(func(c *TestCase) *Pos { return &c.Pos },
		key("name", "What the case shows.", func(c *TestCase) *string { return &c.Name }, word[string]()).must(),
		key("tool", "The tool that is called.", func(c *TestCase) *Text { return &c.Tool }, patternText(toolNameRule)).must(),
		key("as", "Who calls, and where.", func(c *TestCase) *TestSubject { return &c.As }, object(nil,
			key("user", "A person of the suite.", func(s *TestSubject) *string { return &s.User }, word[string]()),
			key("profile", "A profile.", func(s *TestSubject) *string { return &s.Profile }, word[string]()),
			key("node", "The active plan node.", func(s *TestSubject) *string { return &s.Node }, word[string]()),
			key("tenant", "A tenant of the suite.", func(s *TestSubject) *string { return &s.Tenant }, word[string]()),
			key("labels", "run.labels", func(s *TestSubject) *map[string]string { return &s.Labels }, labels),
			key("round", "run.round", func(s *TestSubject) *int64 { return &s.Round }, whole[int64](0, maxWhole)),
			key("depth", "run.depth", func(s *TestSubject) *int64 { return &s.Depth }, whole[int64](0, 64)),
		)),
		key("args", "The arguments; leave out in a list-phase case.", func(c *TestCase) *Schema { return &c.Args }, jsonValue("arguments", false)),
		key("phase", "list, call (default) or dispatch.", func(c *TestCase) *string { return &c.Phase }, oneOf(testPhases...)),
		key("budget", "Used so far, by dimension.", func(c *TestCase) *map[string]int64 { return &c.Budget }, testBudget),
		key("call", "The call's place in the run.", func(c *TestCase) *TestCall { return &c.Call }, object(nil,
			key("sequence", "call.sequence", func(c *TestCall) *int64 { return &c.Sequence }, whole[int64](0, maxWhole)),
			key("repeat", "call.repeat", func(c *TestCall) *int64 { return &c.Repeat }, whole[int64](0, maxWhole)),
		)),
		key("now", "RFC 3339; default 2026-01-01T00:00:00Z.", func(c *TestCase) *string { return &c.Now }, word[string]().then(func(r *reader, n *yaml.Node, v *string) {
			if _, err := time.Parse(time.RFC3339, *v); err != nil {
				r.fail(n, "bad-time", quoted(*v)+" is not a time", "write it like 2026-01-01T00:00:00Z")
			}
		})),
		key("expect", "What must be so; absent keys are not looked at.", func(c *TestCase) *TestExpect { return &c.Expect }, object(func(e *TestExpect) *Pos { return &e.Pos },
			key("visible", "The model sees the tool.", func(e *TestExpect) **bool { return &e.Visible }, optional(flag(true))),
			key("callable", "The call may be made.", func(e *TestExpect) **bool { return &e.Callable }, optional(flag(true))),
			key("approvalRequired", "A person must agree.", func(e *TestExpect) **bool { return &e.ApprovalRequired }, optional(flag(true))),
			key("rule", "The voice that decides: <policy>/<rule>, or another such as <profile>/tools.deny or <tool>/permission.", func(e *TestExpect) *Text { return &e.Rule }, filled(text())),
			key("reason", "The reason, whole.", func(e *TestExpect) **string { return &e.Reason }, optional(word[string]())),
			key("message", "What the model reads.", func(e *TestExpect) **string { return &e.Message }, optional(word[string]())),
			key("budget", "Limits by dimension; timeout in nanoseconds.", func(e *TestExpect) *map[string]int64 { return &e.Budget }, testBudget),
		)).must(),
	))).must(),
).then(func(r *reader, n *yaml.Node, t *PolicyTest) {
	for i := range t.Cases {
		fill(&t.Cases[i].Phase, "call")
		fill(&t.Cases[i].Now, DefaultTestNow)
	}
})
