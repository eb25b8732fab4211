package importer

import (
	"regexp"
	"slices"
	"strings"

	"github.com/callgate/callgate/specs"
)

// documents makes the bundle: who may ask for the tools, what is denied, what is asked about, and what need not be asked.
func (c *claudeImport) documents(file string) []document {
	allow := []string{}
	for _, t := range c.tools {
		allow = append(allow, c.name(t.name))
	}
	for _, s := range c.servers {
		allow = append(allow, "mcp:"+s+".*")
	}
	me := []string{c.source}
	asks := append(c.asks, c.alwaysAsked()...)
	defaults, denies := c.byDefault()
	docs := []document{
		{kind: specs.KindProfile, name: c.source, allow: allow, note: "Who the rules are for. Give it instructions and a model, or name your own profile in their match."},
		{kind: specs.KindPolicy, name: c.source + "-deny", layer: specs.LayerProfile, profiles: me, rules: append(c.denies, denies...), note: "What the file denies. A deny is final."},
		{kind: specs.KindPolicy, name: c.source + "-ask", layer: specs.LayerProfile, profiles: me, rules: append(asks, defaults...), note: "What asks a person: the file's own lines, and what the default mode asks about."},
		{kind: specs.KindPolicy, name: c.source + "-allow", layer: specs.LayerPlatform, profiles: me, rules: c.waives(asks), note: "What need not be asked: the file's allow lines, where none of its ask lines holds."},
		{kind: specs.KindSource, name: c.source},
	}
	for _, t := range c.tools {
		var required []string
		if len(t.args) > 0 && !t.optional {
			required = []string{t.args[0][0]}
		}
		docs = append(docs, document{kind: specs.KindTool, name: c.name(t.name), source: specs.SourceName(c.source),
			tool: &standIn{upstream: t.name, description: t.describe, args: t.args, required: required, annotations: t.annotations}})
	}
	return docs
}

// alwaysAsked makes the asks that no line of the file lifts.
func (c *claudeImport) alwaysAsked() []rule {
	var out []rule
	for _, t := range c.tools {
		if n := c.always[t.name]; n != nil {
			out = append(out, rule{name: "always-" + t.name, tools: []string{c.name(t.name)}, effect: specs.EffectApprove, from: n.pos,
				reason: "what refused some of these calls could not be carried over", text: "could refuse some calls of " + t.name})
		}
	}
	if n := c.always["mcp"]; n != nil && len(c.servers) > 0 {
		out = append(out, rule{name: "always-mcp", tools: []string{"mcp:*"}, effect: specs.EffectApprove, from: n.pos,
			reason: "what refused some of these calls could not be carried over", text: "could refuse some calls of MCP tools"})
	}
	return out
}

// byDefault says what holds for calls that no line speaks about, which is what the mode says.
func (c *claudeImport) byDefault() (asks, denies []rule) {
	for _, t := range c.tools {
		tool, why := []string{c.name(t.name)}, "no line of the settings allows it"
		switch {
		case t.group == edits && c.mode == "plan", t.group == execs && c.mode == "plan":
			denies = append(denies, rule{name: "plan-mode-" + t.name, tools: tool, effect: specs.EffectDeny, reason: "the plan mode changes nothing"})
		case t.asks && c.mode == "dontAsk":
			var conds []string
			for _, a := range c.allows {
				if a.tool == tool[0] {
					conds = append(conds, orTrue(a.when))
				}
			}
			denies = append(denies, rule{name: "not-allowed-" + t.name, tools: tool, when: "!(" + anyOf(conds) + ")", effect: specs.EffectDeny, reason: why})
		case t.asks && t.group == edits && c.mode == "acceptEdits":
			c.allows = append(c.allows, claudeAllow{tool[0], c.inside(t), "defaultMode: acceptEdits", c.modeAt})
			asks = append(asks, rule{name: "default-" + t.name, tools: tool, when: "!(" + c.inside(t) + ")", effect: specs.EffectApprove, reason: why})
		case t.asks:
			asks = append(asks, rule{name: "default-" + t.name, tools: tool, effect: specs.EffectApprove, reason: why})
		case t.group == reads:
			asks = append(asks, rule{name: "outside-" + t.name, tools: tool, when: "!(" + c.inside(t) + ")", effect: specs.EffectApprove, reason: "outside the project"})
		}
	}
	for _, s := range c.servers {
		r := rule{name: "default-" + s, tools: []string{"mcp:" + s + ".*"}, effect: specs.EffectApprove, reason: "no line of the settings allows it"}
		if c.mode == "dontAsk" || c.mode == "plan" {
			var conds []string
			for _, a := range c.allows {
				if a.tool == r.tools[0] {
					conds = append(conds, orTrue(a.when))
				}
			}
			r.effect, r.when = specs.EffectDeny, "!("+anyOf(conds)+")"
			denies = append(denies, r)
			continue
		}
		asks = append(asks, r)
	}
	return asks, denies
}

func orTrue(when string) string {
	if when == "" {
		return "true"
	}
	return when
}

// inside says that a tool's path lies in the project or in a folder that the settings add.
func (c *claudeImport) inside(t claudeTool) string {
	arg := t.argument()
	roots := []string{`(?:\./)?[^/~].*`, `\.`}
	for _, dir := range append([]string{strings.TrimRight(c.opts.Root, "/")}, c.dirs...) {
		if dir != "" {
			roots = append(roots, regexp.QuoteMeta(dir)+"(?:/.*)?")
		}
	}
	return allOf(arg+".matches("+celString("^(?:"+strings.Join(roots, "|")+")$")+")", "!"+arg+`.contains("..")`)
}

// maxWaive keeps a condition under what one expression may be.
const maxWaive = 12 << 10

// waives turns allow lines into rules that clear the asks of the default, and of no line that asks.
func (c *claudeImport) waives(asks []rule) []rule {
	var out []rule
	for _, a := range c.allows {
		var conds []string
		first := ""
		for _, k := range asks {
			if !slices.ContainsFunc(k.tools, func(g string) bool { return overlaps(g, a.tool) }) {
				continue
			}
			if k.when == "" && slices.ContainsFunc(k.tools, func(g string) bool { return covers(g, a.tool) }) {
				first = k.text
				break
			}
			conds = append(conds, c.asked(k, a.tool))
		}
		when := a.when
		if len(conds) > 0 {
			when = allOf(a.when, "!("+anyOf(conds)+")")
		}
		switch {
		case first != "":
			c.leftOut(a.at, a.text, "an ask holds for every call of it and comes first: "+first, "")
		case len(when) > maxWaive:
			c.leftOut(a.at, a.text, "with all that asks about the same tool the condition is too long", "")
		default:
			out = append(out, rule{name: "allow-" + nameOfLine(a), tools: []string{a.tool}, when: when, effect: specs.EffectWaive, from: a.at, text: "allow " + a.text})
		}
	}
	return out
}

func nameOfLine(a claudeAllow) string {
	return strings.TrimPrefix(docName(a.tool+"-"+a.text, "line"), "mcp-")
}

// asked is the condition under which an ask holds for a tool of an allow line.
func (c *claudeImport) asked(k rule, tool string) string {
	if strings.HasSuffix(tool, "*") { // the allow is about a server's tools, the ask about some of them
		var names []string
		for _, g := range k.tools {
			names = append(names, "glob(tool.name, "+celString(strings.TrimPrefix(g, "mcp:"))+")")
		}
		return allOf(anyOf(names), k.when)
	}
	return k.when
}

// overlaps says whether two selectors can select the same tool; covers, whether the first selects all that the second does.
func overlaps(a, b string) bool {
	if strings.HasPrefix(a, "mcp:") != strings.HasPrefix(b, "mcp:") && (a == "mcp:*" || b == "mcp:*") {
		return false // Claude's own tools are not of that kind
	}
	a, b = strings.TrimPrefix(a, "mcp:"), strings.TrimPrefix(b, "mcp:")
	return a == "*" || b == "*" || specs.Glob(a, b) || specs.Glob(b, a) || strings.HasPrefix(a, strings.SplitN(b, "*", 2)[0]) || strings.HasPrefix(b, strings.SplitN(a, "*", 2)[0])
}

func covers(a, b string) bool {
	if !overlaps(a, b) {
		return false
	}
	a, b = strings.TrimPrefix(a, "mcp:"), strings.TrimPrefix(b, "mcp:")
	return a == "*" || a == b || strings.HasSuffix(a, ".*") && strings.Count(a, "*") == 1 && strings.HasPrefix(b, strings.TrimSuffix(a, "*"))
}
