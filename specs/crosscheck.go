package specs

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// crossCheck reports what does not fit together between documents.
func (l *loader) crossCheck(b *Bundle) {
	c := &crossChecker{loader: l, b: b}
	for _, t := range b.Tools {
		c.names = append(c.names, t.ToolName())
	}
	for _, p := range b.Profiles {
		c.profiles = append(c.profiles, ProfileName(p.Name))
	}
	c.schemas()
	c.aliases()
	for _, t := range b.Tools {
		if c.doc = t; !t.Shipped {
			c.toolSource(t)
		}
	}
	for _, p := range b.Policies {
		if c.doc = p; !p.Shipped {
			c.policy(p)
		}
	}
	for _, p := range b.Profiles {
		c.doc = p
		c.profile(p)
	}
	for _, p := range b.Plans {
		c.doc = p
		c.plan(p)
	}
	for _, s := range b.Sources {
		c.doc = s
		c.source(s)
	}
	for _, t := range b.Tests {
		c.doc = t
		c.test(t)
	}
	c.doc = b.Tenant
	if t := b.Tenant; t != nil && t.DefaultProfile.Value != "" && b.Profile(ProfileName(t.DefaultProfile.Value)) == nil {
		c.err(t.DefaultProfile, "unknown-profile", "the default profile "+quoted(t.DefaultProfile.Value)+" does not exist", didYouMean(t.DefaultProfile.Value, c.profiles, known("profiles", c.profiles)))
	}
}

type crossChecker struct {
	*loader
	b        *Bundle
	doc      Document // the one being checked
	names    []ToolName
	profiles []ProfileName
}

func (c *crossChecker) err(t Text, code, message, hint string) {
	c.fault(t.Pos, widthOfText(t), code, message, hint)
}

// widthOfText is how much a text takes in its line, quotes included.
func widthOfText(t Text) int {
	width := utf8.RuneCountInString(t.Value)
	if t.Exact() && t.At(0) != t.Pos {
		width += 2
	}
	return width
}

func (c *crossChecker) fault(at Pos, width int, code, message, hint string) {
	if c.doc != nil {
		c.broken[c.doc] = true
	}
	c.report(Diagnostic{Pos: at, Severity: Error, Code: code, Message: message, Hint: hint, Width: width})
}

func (c *crossChecker) warn(at Pos, width int, code, message, hint string) {
	c.report(Diagnostic{Pos: at, Severity: Warning, Code: code, Message: message, Hint: hint, Width: width})
}

// known is the hint when no name is near.
func known[S ~string](what string, names []S) string {
	switch {
	case len(names) == 0:
		return "there are no " + what + " in this bundle"
	case len(names) > 12:
		return fmt.Sprintf("this bundle has %d %s", len(names), what)
	}
	return "known " + what + ": " + joinWords(names)
}

// ---- tools

// schemas compiles every schema of the bundle's own tools, on all processors: it is half of a load's time.
func (c *crossChecker) schemas() {
	var own []*Tool
	for _, t := range c.b.Tools {
		if !t.Shipped {
			own = append(own, t)
		}
	}
	errs := make([][2]error, len(own))
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(own))
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(own); i += workers {
				_, errs[i][0] = own[i].Args()
				_, errs[i][1] = own[i].Result()
			}
		})
	}
	wg.Wait()
	for i, t := range own {
		c.doc = t
		c.schema(t.InputSchema, errs[i][0], "inputSchema")
		c.schema(t.OutputSchema, errs[i][1], "outputSchema")
	}
}

func (c *crossChecker) schema(s Schema, err error, name string) {
	if err == nil {
		return
	}
	var bad *SchemaError
	if !errors.As(err, &bad) {
		bad = &SchemaError{Msg: err.Error()}
	}
	c.fault(s.At(bad.Pointer), 1, "bad-schema", name+": "+bad.Msg, bad.Hint)
}

// At gives the place of the value at a JSON pointer of the schema, or of the nearest value around it.
func (s Schema) At(pointer string) Pos {
	for {
		if p, ok := s.KeyPos[pointer]; ok {
			return p
		}
		cut := strings.LastIndexByte(pointer, '/')
		if cut < 0 {
			return s.Pos
		}
		pointer = pointer[:cut]
	}
}

func (c *crossChecker) aliases() {
	c.b.aliases = make(map[Alias]*Tool, len(c.b.Tools))
	for _, t := range c.b.Tools {
		c.doc = t
		alias := AliasOf(t.ToolName())
		if other := c.b.aliases[alias]; other != nil {
			c.fault(t.NamePos, len(t.Name), "alias-collision",
				fmt.Sprintf("%s and %s would both be %s to a model provider", quoted(other.Name), quoted(t.Name), quoted(string(alias))), "rename one of them")
			continue
		}
		c.b.aliases[alias] = t
	}
}

func (c *crossChecker) toolSource(t *Tool) {
	src := t.Source
	if src.Name == "" {
		return
	}
	doc := c.b.Source(src.Name)
	if doc == nil {
		names := make([]SourceName, 0, len(c.b.Sources))
		for _, s := range c.b.Sources {
			names = append(names, SourceName(s.Name))
		}
		if len(names) == 0 {
			c.warn(src.Pos, 1, "unknown-source", "there is no Source document "+quoted(string(src.Name)), "calls of this tool are answered with tool.source_unavailable until there is one")
			return
		}
		c.fault(src.Pos, 1, "unknown-source", "there is no Source document "+quoted(string(src.Name)), didYouMean(string(src.Name), names, known("sources", names)))
		return
	}
	if doc.Type != "" && src.Kind != "" && doc.Type != src.Kind {
		c.fault(src.Pos, 1, "source-kind", fmt.Sprintf("the source %s is of type %s, not %s", quoted(doc.Name), doc.Type, src.Kind), "")
	}
}

func (c *crossChecker) source(s *Source) {
	names := make([]string, 0, len(s.Pins))
	for name := range s.Pins {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t := c.b.Tool(ToolName(name))
		switch {
		case t == nil:
			c.warn(s.Pos, 1, "unknown-pin", fmt.Sprintf("the source %s pins %s, which is not a tool of this bundle", quoted(s.Name), quoted(name)), didYouMean(name, c.names, ""))
		case t.Source.Name != SourceName(s.Name):
			c.warn(s.Pos, 1, "foreign-pin", fmt.Sprintf("the source %s pins %s, which is a tool of another source", quoted(s.Name), quoted(name)), "")
		}
	}
}

// ---- selectors

// selects says whether any tool matches.
func (c *crossChecker) selects(pattern string) bool {
	if name, plain := SelectorName(pattern); plain {
		t := c.b.Tool(name)
		return t != nil && MatchTool(pattern, t)
	}
	return slices.ContainsFunc(c.b.Tools, func(t *Tool) bool { return MatchTool(pattern, t) })
}

// grant checks selectors that should select something now: those of allow and waive rules and of profiles.
func (c *crossChecker) grant(list []Text, where string) {
	for _, s := range list {
		if checkToolGlob(s.Value) != "" || c.selects(s.Value) {
			continue
		}
		name, plain := SelectorName(s.Value)
		if !plain {
			c.warn(s.Pos, widthOfText(s), "selects-nothing", quoted(s.Value)+" selects no tool"+where, "")
			continue
		}
		c.unknownTool(s, name)
	}
}

func (c *crossChecker) unknownTool(s Text, name ToolName) {
	if t := c.b.Tool(name); t != nil {
		c.err(s, "unknown-tool", fmt.Sprintf("%s selects no tool: %s is of kind %s", quoted(s.Value), name, t.Source.Kind), "")
		return
	}
	c.err(s, "unknown-tool", "there is no tool "+quoted(string(name)), didYouMean(string(name), c.names, "callgate tools lists what there is"))
}

// guard checks selectors of deny and approve rules, which may speak about tools that are not there yet.
func (c *crossChecker) guard(list []Text) {
	for _, s := range list {
		name, plain := SelectorName(s.Value)
		if !plain || checkToolGlob(s.Value) != "" || c.selects(s.Value) {
			continue
		}
		if near := nearest(string(name), c.names); near != "" {
			c.warn(s.Pos, widthOfText(s), "unknown-tool", "there is no tool "+quoted(string(name)), "did you mean "+quoted(string(near))+"?")
		}
	}
}

func (c *crossChecker) policy(p *Policy) {
	for i := range p.Rules {
		r := &p.Rules[i]
		switch r.Effect {
		case EffectAllow, EffectWaive:
			c.grant(r.Tools, "")
		case EffectDeny, EffectApprove, EffectHide:
			c.guard(r.Tools)
		}
	}
	plainNames(c, p.Match.Profiles, "profile", c.profiles)
	if p.Match.Sources != nil {
		names := make([]SourceName, 0, len(c.b.Sources))
		for _, s := range c.b.Sources {
			names = append(names, SourceName(s.Name))
		}
		plainNames(c, p.Match.Sources, "source", names)
	}
	if p.Match.Nodes != nil {
		var ids []NodeID
		for _, plan := range c.b.Plans {
			for _, n := range plan.Nodes {
				ids = append(ids, n.ID)
			}
		}
		plainNames(c, p.Match.Nodes, "plan node", ids)
	}
}

// plainNames warns about names in a match that nothing bears. The rule would simply never speak.
func plainNames[S ~string](c *crossChecker, list *[]Text, what string, names []S) {
	if list == nil {
		return
	}
	for _, s := range *list {
		if !strings.Contains(s.Value, "*") && !slices.Contains(names, S(s.Value)) {
			c.warn(s.Pos, widthOfText(s), "match-nothing", fmt.Sprintf("there is no %s %s", what, quoted(s.Value)), didYouMean(s.Value, names, ""))
		}
	}
}

// ---- profiles and plans

func (c *crossChecker) profile(p *Profile) {
	c.profileTools(&p.Tools)
	if p.Delegation.DelegableTools != nil {
		c.grant(*p.Delegation.DelegableTools, " that could be passed on")
	}
	for _, list := range [][]Text{p.Delegation.MayDelegateTo, p.Delegation.MayHandOffTo, p.Delegation.MayBeCalledBy} {
		plainNames(c, &list, "profile", c.profiles)
	}
}

// runtimeOnly names the tools that the runtime itself gives to invocations.
const runtimeOnly = "task.return"

func (c *crossChecker) profileTools(t *ProfileTools) {
	if t.Allow != nil {
		c.grant(*t.Allow, "")
		for _, s := range *t.Allow {
			if name, plain := SelectorName(s.Value); plain && name == runtimeOnly {
				c.err(s, "runtime-only", runtimeOnly+" is given to delegated work by the runtime and cannot be granted", "delete it")
			}
		}
	}
	c.guard(t.Deny)
	for name, s := range t.Describe {
		if c.b.Tool(ToolName(name)) == nil {
			c.err(s, "unknown-tool", "there is no tool "+quoted(name)+" to describe", didYouMean(name, c.names, ""))
		}
	}
	for name, params := range t.Parameters {
		tool := c.b.Tool(ToolName(name))
		for param, s := range params {
			if tool == nil {
				c.err(s, "unknown-tool", "there is no tool "+quoted(name)+" to describe", didYouMean(name, c.names, ""))
				continue
			}
			if props, ok := propertyNames(tool.InputSchema); ok && !slices.Contains(props, param) {
				c.err(s, "unknown-parameter", fmt.Sprintf("the tool %s has no parameter %s", name, quoted(param)), didYouMean(param, props, known("parameters", props)))
			}
		}
	}
}

// propertyNames lists the top-level properties of a schema; false when it does not list them plainly.
func propertyNames(s Schema) ([]string, bool) {
	if s.IsZero() {
		return nil, true
	}
	root, err := DecodeJSON(s.Raw, JSONLimits{})
	obj, _ := root.(map[string]any)
	if err != nil || obj["$ref"] != nil || obj["allOf"] != nil || obj["anyOf"] != nil || obj["oneOf"] != nil {
		return nil, false
	}
	props, _ := obj["properties"].(map[string]any)
	return sortedKeys(props), true
}

func (c *crossChecker) plan(p *Plan) {
	ids := make([]NodeID, 0, len(p.Nodes))
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.ID != "" && slices.Contains(ids, n.ID) {
			c.fault(n.Pos, 1, "duplicate-name", "a node named "+quoted(string(n.ID))+" is already in this plan, on line "+itoa(p.Node(n.ID).Pos.Line), "rename one of them")
		}
		ids = append(ids, n.ID)
		c.profileTools(&n.Tools)
		if n.Profile != "" && c.b.Profile(n.Profile) == nil {
			c.fault(n.Pos, 1, "unknown-profile", fmt.Sprintf("the node %s names the profile %s, which does not exist", quoted(string(n.ID)), quoted(string(n.Profile))), didYouMean(string(n.Profile), c.profiles, known("profiles", c.profiles)))
		}
	}
	plainNames(c, &p.Profiles, "profile", c.profiles)
	sound := true
	if p.Initial != "" && !slices.Contains(ids, p.Initial) && len(ids) > 0 {
		c.fault(p.Pos, 1, "unknown-node", fmt.Sprintf("the plan starts at %s, which is not one of its nodes", quoted(string(p.Initial))), didYouMean(string(p.Initial), ids, known("nodes", ids)))
		sound = false
	}
	next := map[NodeID][]NodeID{}
	for _, t := range p.Transitions {
		for _, end := range []NodeID{t.From, t.To} {
			if end != "" && !slices.Contains(ids, end) {
				sound = false
				c.fault(t.Pos, 1, "unknown-node", "there is no node "+quoted(string(end))+" in this plan", didYouMean(string(end), ids, known("nodes", ids)))
			}
		}
		next[t.From] = append(next[t.From], t.To)
	}
	if !sound {
		return
	}
	reached := map[NodeID]bool{p.Initial: true}
	for queue := []NodeID{p.Initial}; len(queue) > 0; queue = queue[1:] {
		for _, to := range next[queue[0]] {
			if !reached[to] {
				reached[to] = true
				queue = append(queue, to)
			}
		}
	}
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.ID != "" && !reached[n.ID] {
			c.warn(n.Pos, 1, "unreachable-node", fmt.Sprintf("no transition leads to the node %s", quoted(string(n.ID))), "")
		}
	}
}

// ---- tests

// nodeNames gives the nodes of all plans, alone and behind their plan's name.
func (c *crossChecker) nodeNames() []string {
	var out []string
	for _, p := range c.b.Plans {
		for _, n := range p.Nodes {
			out = append(out, string(n.ID), p.Name+"/"+string(n.ID))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// testArgs warns about arguments with which no call comes as far as a rule: the case then shows nothing of its rules.
func (c *crossChecker) testArgs(tc *TestCase) {
	t := c.b.Tool(ToolName(tc.Tool.Value))
	if tc.Args.IsZero() || t == nil {
		return
	}
	v, err := t.Args()
	if err != nil {
		return // the schema was reported
	}
	var bad *ArgError
	if err := v.Validate(tc.Args.Raw); errors.As(err, &bad) {
		for _, m := range append([]ArgError{*bad}, bad.More...) {
			c.warn(tc.Args.At(m.Pointer), 1, "unfit-arguments", fmt.Sprintf("a call of %s with these arguments is refused before any rule is asked: %s", t.Name, m.Msg), "")
		}
	}
}

// nearestVoice is the hint for a voice that nobody has: often only the policy's name is left out.
func (c *crossChecker) nearestVoice(name string, voices []RuleID) string {
	for _, v := range voices {
		if strings.HasSuffix(string(v), "/"+name) {
			return didYouMean(string(v), []RuleID{v}, "")
		}
	}
	return didYouMean(name, voices, "a rule is named <policy>/<rule>; other voices are such as <profile>/tools.deny and <tool>/permission")
}

// namesUnnamed says that a rule is looked for in a policy with a rule whose name was reported: one mistake is enough.
func (c *crossChecker) namesUnnamed(rule string) bool {
	policy, _, _ := strings.Cut(rule, "/")
	for _, p := range c.b.Policies {
		if p.Name == policy && slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Name == "" }) {
			return true
		}
	}
	return false
}

func (c *crossChecker) test(t *PolicyTest) {
	voices, nodes := c.b.Voices(), c.nodeNames()
	seen := map[string]bool{}
	for i := range t.Cases {
		tc := &t.Cases[i]
		if tc.Name != "" && seen[tc.Name] {
			c.fault(tc.Pos, 1, "duplicate-name", "a case named "+quoted(tc.Name)+" is already in this suite", "rename one of them")
		}
		seen[tc.Name] = true
		if tc.Tool.Value != "" && c.b.Tool(ToolName(tc.Tool.Value)) == nil {
			c.unknownTool(tc.Tool, ToolName(tc.Tool.Value))
		}
		if tc.As.Node != "" && !slices.Contains(nodes, tc.As.Node) {
			c.fault(tc.Pos, 1, "unknown-node", fmt.Sprintf("the case %s is in the plan node %s, which does not exist", quoted(tc.Name), quoted(tc.As.Node)), didYouMean(tc.As.Node, nodes, known("nodes", nodes)))
		}
		c.testArgs(tc)
		if tc.As.Profile != "" && c.b.Profile(ProfileName(tc.As.Profile)) == nil {
			c.fault(tc.Pos, 1, "unknown-profile", fmt.Sprintf("the case %s names the profile %s, which does not exist", quoted(tc.Name), quoted(tc.As.Profile)), didYouMean(tc.As.Profile, c.profiles, known("profiles", c.profiles)))
		}
		if r := tc.Expect.Rule; r.Value != "" && !slices.Contains(voices, RuleID(r.Value)) && !c.namesUnnamed(r.Value) {
			c.err(r, "unknown-rule", "there is no rule "+quoted(r.Value), c.nearestVoice(r.Value, voices))
		}
		if tc.As.User != "" {
			if _, ok := t.Users[tc.As.User]; !ok && (c.b.Tenant == nil || len(c.b.Tenant.Users[tc.As.User].Roles) == 0) {
				c.warn(tc.Pos, 1, "unknown-user", fmt.Sprintf("the case %s is called as %s, whom neither the suite nor the tenant knows", quoted(tc.Name), quoted(tc.As.User)), "")
			}
		}
		if tc.As.Tenant != "" {
			if _, ok := t.Tenants[tc.As.Tenant]; !ok {
				c.fault(tc.Pos, 1, "unknown-tenant", fmt.Sprintf("the case %s names the tenant %s, which the suite does not describe", quoted(tc.Name), quoted(tc.As.Tenant)), "describe it under tenants")
			}
		}
	}
}
