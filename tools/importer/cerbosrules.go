package importer

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/callgate/callgate/specs"
)

// candidate is a rule that may not compile, with what stands in for it then.
type candidate struct {
	rule
	wide string // of a deny: its condition without what may not compile
	why  string // why it cannot be carried over, when that is known already
}

// policy makes the rules of one policy.
func (c *cerbosImport) policy(p cerbosPolicy) {
	subject := scalar(get(p.body, subjectKey[p.kind]))
	at := place(p.file, p.body)
	if subject == "" {
		c.refuse(at, p.kind, "names no "+subjectKey[p.kind], "")
		c.denyAll(at, p.kind)
		return
	}
	if !c.chosen(p, subject) {
		return
	}
	scope := scalar(get(p.body, "scope"))
	if perm := scalar(get(p.body, "scopePermissions")); scope != "" && strings.Contains(perm, "PARENTAL_CONSENT") {
		c.refuse(place(p.file, get(p.body, "scopePermissions")), perm, "a scope that narrows its parents is not known here", "")
		c.denyOf(p, subject, at)
		return
	}
	if scope != "" && p.kind != "rolePolicy" {
		c.stricter(place(p.file, get(p.body, "scope")), "scope: "+scope, "there are no scopes here: what it denies is denied everywhere, what it allows is left out", "")
	}
	rules := get(p.body, "rules")
	if rules == nil {
		return
	}
	if rules.Kind != yaml.SequenceNode {
		c.refuse(place(p.file, rules), "rules", "is no list", "")
		c.denyOf(p, subject, at)
		return
	}
	if p.kind == "rolePolicy" {
		c.rolePolicy(p, subject, rules)
		return
	}
	var cands []candidate
	for _, r := range rules.Content {
		if p.kind == "principalPolicy" {
			cands = append(cands, c.principalRule(p, subject, r)...)
		} else {
			cands = append(cands, c.resourceRule(p, subject, r)...)
		}
	}
	c.take(p, cands, scope != "")
}

func (c *cerbosImport) denyAll(at specs.Pos, text string) {
	c.denies = append(c.denies, rule{name: "deny-everything", tools: []string{c.source + ".*"}, effect: specs.EffectDeny, from: at, text: text})
}

// denyOf denies all that a policy is about.
func (c *cerbosImport) denyOf(p cerbosPolicy, subject string, at specs.Pos) {
	r := rule{name: "deny-" + subject, tools: []string{c.source + ".*"}, effect: specs.EffectDeny, from: at, text: p.kind + " " + subject, reason: "the policy could not be carried over"}
	switch p.kind {
	case "resourcePolicy":
		r.tools = []string{c.name(subject, "*")}
	case "principalPolicy":
		r.when = "user.id == " + celString(subject)
	case "rolePolicy":
		r.when = celString(subject) + " in user.roles"
	}
	c.denies = append(c.denies, r)
}

// take keeps the candidates that compile. An allow that does not is left out; a deny loses its condition.
func (c *cerbosImport) take(p cerbosPolicy, cands []candidate, scoped bool) {
	rules := make([]rule, len(cands))
	for i, k := range cands {
		if rules[i] = k.rule; k.why != "" {
			rules[i].when = ""
		}
	}
	bad := carries(rules)
	for i, k := range cands {
		why := k.why
		if why == "" {
			why = bad[i]
		}
		deny := k.effect == specs.EffectDeny
		switch {
		case scoped && !deny:
			c.leftOut(k.from, k.text, "it is of a scope", "")
			continue
		case why != "" && !deny:
			c.leftOut(k.from, k.text, why, "")
			continue
		case why != "":
			c.stricter(k.from, k.text, why+": it denies whatever the condition says", "")
			k.when = k.wide
		}
		if deny {
			c.denies = append(c.denies, k.rule)
		} else {
			c.allows = append(c.allows, k.rule)
		}
	}
	if p.kind != "principalPolicy" || scoped {
		return
	}
	for i, k := range cands {
		if k.effect == specs.EffectAllow && k.why == "" && bad[i] == "" {
			c.yes = append(c.yes, cerbosYes{tools: k.tools[0], when: k.when})
		}
	}
}

// selection gives the selector of an action on a kind, and the condition that narrows it to what the pattern means there: a
// star does not cross a colon, unless it stands alone.
func (c *cerbosImport) selection(kind, action string) (selector, when string, ok bool) {
	if strings.ContainsAny(kind+action, "?[]{}\\!\n") || strings.Contains(kind+action, "**") || strings.Contains(kind, "*") && kind != "*" || len(kind)+len(action) > 60 {
		return "", "", false
	}
	selector = c.name(kind, action)
	switch {
	case action == "*":
	case strings.Contains(action, "*"):
		parts := strings.Split(action, "*")
		for i, part := range parts {
			parts[i] = quoteMeta(part)
		}
		when = "tool.source.tool.matches(" + celString("^"+strings.Join(parts, "[^:]*")+"$") + ")"
	case kind == "*":
		selector, when = c.source+".*", "tool.source.tool == "+celString(action)
	default:
		c.tools[[2]string{kind, action}] = true
	}
	return selector, when, true
}

func quoteMeta(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(`\.+*?()|[]{}^$`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// each makes a candidate for every action of a rule.
func (c *cerbosImport) each(kind string, actions []string, base candidate) []candidate {
	var out []candidate
	for _, a := range actions {
		k := base
		selector, narrow, ok := c.selection(kind, a)
		switch {
		case !ok && k.effect == specs.EffectDeny:
			c.stricter(k.from, k.text, fmt.Sprintf("the pattern %q over %q is not known here: it denies every action", a, kind), "")
			k.tools, narrow = []string{c.name("*", "*")}, ""
			if !strings.ContainsAny(kind, "*?[]{}\\!\n") && len(kind) <= 60 {
				k.tools = []string{c.name(kind, "*")}
			}
		case !ok:
			c.leftOut(k.from, k.text, fmt.Sprintf("the pattern %q over %q is not known here", a, kind), "")
			continue
		default:
			k.tools = []string{selector}
		}
		if narrow != "" && (k.effect == specs.EffectAllow || kind == "*") {
			k.when, k.wide = allOf(k.when, narrow), allOf(k.wide, narrow)
		}
		out = append(out, k)
	}
	return out
}

var (
	resourceRuleKeys  = []string{"actions", "effect", "roles", "derivedRoles", "condition", "name", "output"}
	principalRuleKeys = []string{"action", "effect", "condition", "name", "output"}
)

// head reads what all rules have: the effect, and no key that is not known.
func (c *cerbosImport) ruleHead(p cerbosPolicy, r *yaml.Node, keys []string, text string) (candidate, bool) {
	k := candidate{rule: rule{from: place(p.file, r), text: text}}
	switch scalar(get(r, "effect")) {
	case "EFFECT_ALLOW":
		k.effect = specs.EffectAllow
	case "EFFECT_DENY":
		k.effect, k.reason = specs.EffectDeny, "denied by "+text
	default:
		return k, false
	}
	for i := 0; i+1 < len(r.Content); i += 2 {
		if !slices.Contains(keys, r.Content[i].Value) {
			return k, false
		}
	}
	if out := get(r, "output"); out != nil {
		c.leftOut(place(p.file, out), "output of "+text, "an output decides nothing", "")
	}
	return k, true
}

func (c *cerbosImport) resourceRule(p cerbosPolicy, kind string, r *yaml.Node) []candidate {
	actions, ok := scalars(get(r, "actions"))
	roles, _ := scalars(get(r, "roles"))
	derived, _ := scalars(get(r, "derivedRoles"))
	text := strings.TrimPrefix(scalar(get(r, "effect")), "EFFECT_") + " " + strings.Join(actions, ", ") + " on " + kind
	k, known := c.ruleHead(p, r, resourceRuleKeys, text)
	if !ok || !known || len(roles)+len(derived) == 0 {
		c.refuse(place(p.file, r), "a rule on "+kind, "is not as a rule is known here", "")
		c.denyOf(p, kind, place(p.file, r))
		return nil
	}
	k.name = scalar(get(r, "name"))
	if k.name == "" {
		k.name = fmt.Sprintf("%s-%s-%s", strings.ToLower(strings.TrimPrefix(string(k.effect), "EFFECT_")), kind, strings.Join(actions, "-"))
	}
	cond, err := p.env.condition(get(r, "condition"))
	if err != nil {
		k.why = err.Error()
	}
	if k.effect == specs.EffectDeny {
		if !slices.Contains(roles, "*") {
			c.stricter(k.from, text, "it denies whoever has the role, whatever other roles they have", "")
		}
	}
	var out []candidate
	add := func(who, wide, why string) {
		one := k
		if one.why == "" {
			one.why = why
		}
		one.when, one.wide = allOf(who, cond), wide
		if one.effect == specs.EffectDeny {
			out = append(out, c.unlessYes(kind, c.each(kind, actions, one))...)
			return
		}
		out = append(out, c.each(kind, actions, one)...)
	}
	if len(roles) > 0 {
		add(c.holds(roles), c.holds(roles), "")
	}
	for _, d := range derived {
		who, wide, why := c.derived(p, d, kind)
		add(who, wide, why)
	}
	return out
}

// derived gives the condition under which a user has a derived role, and the one that is certain to hold then.
func (c *cerbosImport) derived(p cerbosPolicy, name, kind string) (who, wide, why string) {
	imports, _ := scalars(get(p.body, "importDerivedRoles"))
	for _, set := range imports {
		q, ok := c.sets[set]
		if !ok {
			continue
		}
		defs := get(q.body, "definitions")
		if defs == nil {
			continue
		}
		for _, d := range defs.Content {
			if scalar(get(d, "name")) != name {
				continue
			}
			parents, ok := scalars(get(d, "parentRoles"))
			if !ok {
				return "", "", "the derived role " + name + " has no parents"
			}
			env := *q.env
			env.kind = kind
			cond, err := env.condition(get(d, "condition"))
			if err != nil {
				return "", c.holds(parents), "the derived role " + name + ": " + err.Error()
			}
			return allOf(c.holds(parents), cond), c.holds(parents), ""
		}
	}
	return "", "", "the derived role " + name + " is not among those that the policy imports"
}

// unlessYes takes from a deny of a resource policy what a principal policy allows, which comes first there.
func (c *cerbosImport) unlessYes(kind string, denies []candidate) []candidate {
	for i := range denies {
		var except []string
		for _, y := range c.yes {
			if overlaps(y.tools, denies[i].tools[0]) {
				except = append(except, allOf("glob(tool.name, "+celString(y.tools)+")", y.when))
			}
		}
		if len(except) > 0 {
			no := "!(" + anyOf(except) + ")"
			denies[i].when, denies[i].wide = allOf(denies[i].when, no), allOf(denies[i].wide, no)
		}
	}
	return denies
}

func (c *cerbosImport) principalRule(p cerbosPolicy, who string, r *yaml.Node) []candidate {
	kind := scalar(get(r, "resource"))
	actions := get(r, "actions")
	if kind == "" || actions == nil || actions.Kind != yaml.SequenceNode {
		c.refuse(place(p.file, r), "a rule for "+who, "is not as a rule is known here", "")
		c.denyOf(p, who, place(p.file, r))
		return nil
	}
	var out []candidate
	for _, a := range actions.Content {
		action := scalar(get(a, "action"))
		text := strings.TrimPrefix(scalar(get(a, "effect")), "EFFECT_") + " " + who + " " + action + " on " + kind
		k, known := c.ruleHead(p, a, principalRuleKeys, text)
		if action == "" || !known {
			c.refuse(place(p.file, a), "an action for "+who, "is not as an action is known here", "")
			c.denyOf(p, who, place(p.file, a))
			continue
		}
		k.name = scalar(get(a, "name"))
		if k.name == "" {
			k.name = fmt.Sprintf("%s-%s-%s-%s", k.effect, who, kind, action)
		}
		env := *p.env
		env.kind = kind
		cond, err := env.condition(get(a, "condition"))
		if err != nil {
			k.why = err.Error()
		}
		k.wide = "user.id == " + celString(who)
		k.when = allOf(k.wide, cond)
		out = append(out, c.each(kind, []string{action}, k)...)
	}
	return out
}

// rolePolicy makes a role policy's ceiling over whoever has the role: what it does not list is denied. A role without parents
// has what it lists; one with parents has what they have, as far as it lists it.
func (c *cerbosImport) rolePolicy(p cerbosPolicy, role string, rules *yaml.Node) {
	at := place(p.file, p.body)
	has := celString(role) + " in user.roles"
	var yes []candidate
	for _, r := range rules.Content {
		kind := scalar(get(r, "resource"))
		actions, ok := scalars(get(r, "allowActions"))
		text := fmt.Sprintf("%s may %s on %s", role, strings.Join(actions, ", "), kind)
		if kind == "" || !ok {
			c.stricter(place(p.file, r), "a rule of the role "+role, "is not as a rule is known here: what it allows is denied", "")
			continue
		}
		k := candidate{rule: rule{name: "allow-" + role + "-" + kind, effect: specs.EffectAllow, from: place(p.file, r), text: text}}
		env := *p.env
		env.kind = kind
		cond, err := env.condition(get(r, "condition"))
		if err != nil {
			c.stricter(k.from, text, err.Error()+": what it allows is denied", "")
			continue
		}
		k.when = cond
		yes = append(yes, c.each(kind, actions, k)...)
	}
	plain := make([]rule, len(yes))
	for i, k := range yes {
		plain[i] = k.rule
	}
	bad := carries(plain)
	var listed []string
	parents, _ := scalars(get(p.body, "parentRoles"))
	for i, k := range yes {
		if why, is := bad[i]; is {
			c.stricter(k.from, k.text, why+": what it allows is denied", "")
			continue
		}
		listed = append(listed, allOf("glob(tool.name, "+celString(k.tools[0])+")", k.when))
		if len(parents) == 0 && scalar(get(p.body, "scope")) == "" {
			k.when = allOf(has, k.when)
			c.allows = append(c.allows, k.rule)
		}
	}
	if scope := get(p.body, "scope"); scope != nil {
		c.stricter(place(p.file, scope), "scope: "+scalar(scope), "there are no scopes here: the role is held to its list everywhere", "")
	}
	when := allOf(has, "!("+anyOf(listed)+")")
	if len(when) > maxExpression {
		c.stricter(at, "rolePolicy "+role, "the list is too long for one expression: the role is denied everything", "")
		when = has
	}
	c.denies = append(c.denies, rule{name: "only-listed-" + role, tools: []string{c.source + ".*"}, when: when, effect: specs.EffectDeny,
		reason: "not listed by the role policy of " + role, from: at, text: "rolePolicy " + role})
}
