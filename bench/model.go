package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
)

// fact is one call in the form a hand-written policy would take it.
type fact struct {
	tool                             string
	readOnly, destructive, openWorld bool
	cost                             int64
	args                             map[string]any
	tier, plan, region               string
	roles                            []string
}

// answer is what both engines must agree on.
type answer struct{ callable, ask bool }

// rule is one rule twice: as a Go closure, and as the YAML an author would write.
type rule struct {
	effect specs.Effect
	glob   string
	when   string
	fn     func(*fact) bool
}

func hasRole(roles []string, r string) bool {
	for _, x := range roles {
		if x == r {
			return true
		}
	}
	return false
}

func text(f *fact, k string) (string, bool) { s, ok := f.args[k].(string); return s, ok }
func whole(f *fact, k string) (int64, bool) { n, ok := f.args[k].(int64); return n, ok }

// rules makes 5 policies of 10 rules.
func rules() [5][]rule {
	var out [5][]rule
	for l := range out {
		admin, ops := fmt.Sprintf("admin%d", l), fmt.Sprintf("ops%d", l)
		ent, eu := fmt.Sprintf("enterprise%d", l), fmt.Sprintf("eu-%d", l)
		cmd, url := fmt.Sprintf("rm -rf /%d", l), fmt.Sprintf("https://api.%d.", l)
		lim, cost, del := int64(1000*(l+1)), int64(50*(l+1)), fmt.Sprintf("fs%d.*", l)
		out[l] = []rule{
			{specs.EffectDeny, del, fmt.Sprintf(`tool.annotations.destructive && !('%s' in user.roles)`, admin), func(f *fact) bool {
				return strings.HasPrefix(f.tool, del[:len(del)-1]) && f.destructive && !hasRole(f.roles, admin)
			}},
			{specs.EffectDeny, "shell.*", fmt.Sprintf(`has(args.command) && args.command.contains('%s')`, cmd), func(f *fact) bool {
				if !strings.HasPrefix(f.tool, "shell.") {
					return false
				}
				s, ok := text(f, "command")
				return ok && strings.Contains(s, cmd)
			}},
			{specs.EffectApprove, "*", fmt.Sprintf(`tool.annotations.destructive && tenant.labels.plan != '%s'`, ent), func(f *fact) bool { return f.destructive && f.plan != ent }},
			{specs.EffectApprove, "payments.*", fmt.Sprintf(`has(args.amount) && args.amount > %d`, lim), func(f *fact) bool {
				if !strings.HasPrefix(f.tool, "payments.") {
					return false
				}
				n, ok := whole(f, "amount")
				return ok && n > lim
			}},
			{specs.EffectDeny, "*", fmt.Sprintf(`tenant.labels.region == '%s' && tool.annotations.openWorld && has(args.region) && !(args.region in ['eu','eea','uk'])`, eu), func(f *fact) bool {
				if f.region != eu || !f.openWorld {
					return false
				}
				s, ok := text(f, "region")
				return ok && s != "eu" && s != "eea" && s != "uk"
			}},
			{specs.EffectAllow, "*", `tool.annotations.readOnly`, func(f *fact) bool { return f.readOnly }},
			{specs.EffectAllow, "http.*", fmt.Sprintf(`has(args.method) && args.method == 'GET' && has(args.url) && args.url.startsWith('%s')`, url), func(f *fact) bool {
				if !strings.HasPrefix(f.tool, "http.") {
					return false
				}
				m, ok := text(f, "method")
				if !ok || m != "GET" {
					return false
				}
				u, ok := text(f, "url")
				return ok && strings.HasPrefix(u, url)
			}},
			{specs.EffectDeny, "crm.admin.*", fmt.Sprintf(`!('%s' in user.roles)`, ops), func(f *fact) bool { return strings.HasPrefix(f.tool, "crm.admin.") && !hasRole(f.roles, ops) }},
			{specs.EffectApprove, "*", fmt.Sprintf(`tool.annotations.cost > %d`, cost), func(f *fact) bool { return f.cost > cost }},
			{specs.EffectAllow, "search.*", `user.labels.tier == 'gold'`, func(f *fact) bool { return strings.HasPrefix(f.tool, "search.") && f.tier == "gold" }},
		}
	}
	return out
}

// facts makes 400 calls: 100 tools by 4 people.
func facts() []fact {
	var out []fact
	for k := range 4 {
		for i := range 100 {
			f := fact{
				plan: []string{"enterprise1", "pro"}[k%2], region: []string{"eu-3", "us-1"}[k/2%2], tier: []string{"gold", "free"}[k%2],
				roles: [][]string{{"viewer", "admin0", "ops0", "ops1", "ops2", "ops3", "ops4", "admin1"}, {"viewer", "editor"}}[k/2%2],
				args:  map[string]any{"note": "hello world", "limit": int64(20)},
			}
			switch i % 10 {
			case 0:
				f.tool, f.destructive = fmt.Sprintf("fs%d.t%d.delete", i/10%5, i), true
			case 1:
				f.tool, f.openWorld = fmt.Sprintf("shell.t%d", i), true
				f.args["command"] = []string{"ls -la /tmp", "sudo rm -rf /4/x"}[i/10%2]
			case 2, 3:
				f.tool, f.openWorld = fmt.Sprintf("payments.t%d", i), true
				f.args["amount"], f.args["region"] = int64(i*60), []string{"eu", "us"}[i%2]
			case 4, 5:
				f.tool, f.openWorld = fmt.Sprintf("http.t%d", i), true
				f.args["method"], f.args["region"] = []string{"GET", "POST"}[i/10%2], []string{"eu", "us"}[i%2]
				f.args["url"] = fmt.Sprintf("https://api.%d.example.com/v1/x", i/10%5)
			case 6:
				f.tool, f.readOnly = fmt.Sprintf("crm.admin.t%d", i), i%20 == 6
			case 7:
				f.tool = fmt.Sprintf("search.t%d", i)
			default:
				f.tool, f.readOnly, f.cost = fmt.Sprintf("kb.read.t%d", i), true, int64(i)
			}
			out = append(out, f)
		}
	}
	return out
}

// byHand is the floor: closures in order, deny first, nothing else.
func byHand(ordered []rule, f *fact) answer {
	var a answer
	for i := range ordered {
		r := &ordered[i]
		switch r.effect {
		case specs.EffectDeny:
			if r.fn(f) {
				return answer{}
			}
		case specs.EffectApprove:
			if !a.ask && r.fn(f) {
				a.ask = true
			}
		default:
			if !a.callable && r.fn(f) {
				a.callable = true
			}
		}
	}
	if !a.callable {
		return answer{}
	}
	return a
}

// bundleYAML writes the same rules and tools as an author would.
func bundleYAML(rs [5][]rule, fs []fact) string {
	var b strings.Builder
	for _, f := range fs[:100] {
		fmt.Fprintf(&b, `---
apiVersion: callgate/v1
kind: Tool
metadata: {name: %s}
spec:
  description: A tool of the measurement.
  source: built_in
  inputSchema:
    type: object
    additionalProperties: false
    properties: {note: {type: string}, limit: {type: integer}, command: {type: string}, amount: {type: integer}, region: {type: string}, method: {type: string}, url: {type: string}}
  annotations: {sideEffect: none, readOnly: %v, destructive: %v, openWorld: %v, cost: %d}
`, f.tool, f.readOnly, f.destructive, f.openWorld, f.cost)
	}
	for l, layer := range rs {
		fmt.Fprintf(&b, "---\napiVersion: callgate/v1\nkind: Policy\nmetadata: {name: layer%d}\nspec:\n  layer: profile\n  rules:\n", l)
		for i, r := range layer {
			fmt.Fprintf(&b, "    - {name: r%d, tools: [%q], effect: %s, when: %q}\n", i, r.glob, r.effect, r.when)
		}
	}
	b.WriteString("---\napiVersion: callgate/v1\nkind: Profile\nmetadata: {name: p}\nspec:\n  instructions: Work.\n  model: {provider: scripted}\n")
	return b.String()
}

func inputs(fs []fact) ([]celpolicy.Input, error) {
	var out []celpolicy.Input
	for _, f := range fs {
		raw, err := json.Marshal(f.args)
		if err != nil {
			return nil, err
		}
		in := celpolicy.Input{
			Phase: celpolicy.PhaseCall, Tool: specs.ToolName(f.tool), Args: raw,
			Run:    celpolicy.RunFacts{ID: "r", Profile: "p", Round: 1},
			User:   celpolicy.UserFacts{ID: "u", Labels: map[string]string{"tier": f.tier}},
			Tenant: celpolicy.TenantFacts{ID: "t", Labels: map[string]string{"plan": f.plan, "region": f.region}},
		}
		for _, r := range f.roles {
			in.User.Roles = append(in.User.Roles, specs.Role(r))
		}
		out = append(out, in)
	}
	return out, nil
}
