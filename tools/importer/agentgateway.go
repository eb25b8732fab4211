package importer

import (
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/callgate/callgate/specs"
)

// gatewayImport is one agentgateway file on its way.
type gatewayImport struct {
	*findings
	file    string
	lists   [][]gatewayRule // one for each place that authorizes MCP calls
	targets []string
	denyAll []rule // what could deny and could not be carried over
}

// gatewayRule is one expression: allow, deny or require.
type gatewayRule struct {
	action string
	text   string
	at     specs.Pos
}

// Agentgateway reads the MCP authorization of an agentgateway configuration (mcpAuthorization) or of AgentgatewayPolicy
// resources (spec.backend.mcp.authorization). Each becomes rules about the tools of one source: a call is refused when a deny
// holds, when a require does not, and when there are allows and none holds. As a ceiling they grant nothing.
func Agentgateway(name string, data []byte, opts Options) (*Imported, error) {
	g := &gatewayImport{findings: newFindings(opts.SkipInvalid), file: name}
	for _, root := range parseYAML(g.findings, name, data) {
		kind := scalar(get(root, "kind"))
		switch {
		case kind == "AgentgatewayPolicy":
			g.resource(root)
		case kind != "":
			g.leftOut(place(name, get(root, "kind")), "kind: "+kind, "is no AgentgatewayPolicy", "")
		case get(root, "output") != nil || get(root, "status") != nil:
			g.leftOut(place(name, root), "output", "is what a controller made of a policy", "")
		default:
			g.walk(root, "")
		}
	}
	if err := g.err(); err != nil {
		return nil, err
	}
	if len(g.lists) == 0 && len(g.denyAll) == 0 {
		g.fail(specs.Pos{File: name}, "there is no MCP authorization in this file", "expected mcpAuthorization.rules, or an AgentgatewayPolicy with backend.mcp.authorization")
		return nil, g.err()
	}
	source := string(opts.Source)
	if source == "" && len(g.targets) == 1 {
		source = g.targets[0]
	}
	source = docName(source, "agentgateway")
	rules := g.denyAll
	for i, list := range g.lists {
		rules = append(rules, g.translate(list, i)...)
	}
	docs := []document{{kind: specs.KindPolicy, name: source + "-authorization", layer: specs.LayerSource, sources: []string{source}, rules: rules}}
	head := fmt.Sprintf("Imported from %s. A ceiling over the tools of the source %s: it grants nothing, a profile does.\n"+
		"callgate import mcp TOOLS.json --source %s brings the tools. jwt.sub is user.id, any other claim a label of the user,\n"+
		"with the names on the way to it joined by dots.", name, source, source)
	return g.finish(source, head, docs)
}

// resource reads an AgentgatewayPolicy.
func (g *gatewayImport) resource(root *yaml.Node) {
	spec := get(root, "spec")
	for i := 0; spec != nil && i+1 < len(spec.Content); i += 2 {
		key, value := spec.Content[i], spec.Content[i+1]
		switch key.Value {
		case "targetRefs", "targetSelectors":
		case "backend":
			for j := 0; j+1 < len(value.Content); j += 2 {
				if value.Content[j].Value != "mcp" {
					g.setting(value.Content[j], value.Content[j+1])
					continue
				}
				mcp := value.Content[j+1]
				for k := 0; k+1 < len(mcp.Content); k += 2 {
					if mcp.Content[k].Value == "authorization" {
						g.authorization(mcp.Content[k], mcp.Content[k+1])
					} else {
						g.setting(mcp.Content[k], mcp.Content[k+1])
					}
				}
			}
		case "traffic", "frontend":
			for j := 0; j+1 < len(value.Content); j += 2 {
				g.setting(value.Content[j], value.Content[j+1])
			}
		default:
			g.setting(key, value)
		}
	}
}

// authorization reads {action, policy: {matchExpressions}}.
func (g *gatewayImport) authorization(key, n *yaml.Node) {
	action := strings.ToLower(scalar(get(n, "action")))
	if action == "" {
		action = "allow"
	}
	list, ok := scalars(get(n, "policy", "matchExpressions"))
	if !ok || action != "allow" && action != "deny" && action != "require" {
		g.unread(key, "authorization", "is not {action, policy: {matchExpressions}} as it is known here")
		return
	}
	var rules []gatewayRule
	for i, text := range list {
		rules = append(rules, gatewayRule{action, text, place(g.file, get(n, "policy", "matchExpressions").Content[i])})
	}
	g.lists = append(g.lists, rules)
}

// walk looks through a configuration for mcpAuthorization and for what else could refuse a call.
func (g *gatewayImport) walk(n *yaml.Node, under string) {
	if n.Kind == yaml.SequenceNode {
		for _, c := range n.Content {
			g.walk(c, under)
		}
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Value == "mcpAuthorization":
			g.rules(key, value)
		case under == "policies":
			g.setting(key, value)
		case key.Value == "targets" && value.Kind == yaml.SequenceNode:
			for _, t := range value.Content {
				if name := scalar(get(t, "name")); name != "" {
					g.targets = append(g.targets, name)
				}
				g.walk(t, "")
			}
		default:
			g.walk(value, key.Value)
		}
	}
}

// rules reads mcpAuthorization: {rules: [...]}; a rule is CEL, or one of allow, deny and require with CEL.
func (g *gatewayImport) rules(key, n *yaml.Node) {
	list := get(n, "rules")
	if list == nil || list.Kind != yaml.SequenceNode || len(n.Content) != 2 {
		g.unread(key, "mcpAuthorization", "is not {rules: [...]} as it is known here")
		return
	}
	rules := []gatewayRule{}
	for _, c := range list.Content {
		switch {
		case scalar(c) != "":
			rules = append(rules, gatewayRule{"allow", c.Value, place(g.file, c)})
		case c.Kind == yaml.MappingNode && len(c.Content) == 2 && scalar(c.Content[1]) != "" &&
			(c.Content[0].Value == "allow" || c.Content[0].Value == "deny" || c.Content[0].Value == "require"):
			rules = append(rules, gatewayRule{c.Content[0].Value, c.Content[1].Value, place(g.file, c.Content[1])})
		default:
			g.unread(c, "a rule", "is neither CEL nor one of allow, deny and require with CEL")
		}
	}
	g.lists = append(g.lists, rules)
}

// setting judges a policy of another kind by whether it can refuse a call.
func (g *gatewayImport) setting(key, value *yaml.Node) {
	switch at, text := place(g.file, key), key.Value; text {
	case "jwtAuth", "jwtAuthentication", "mcpAuthentication", "apiKey", "apiKeyAuthentication", "basicAuth", "basicAuthentication", "oidc":
		g.note(at, text, "who calls is known here before a run starts: user.id and the user's labels", "")
	case "cors", "backendAuth", "auth", "backendTLS", "tls", "tcp", "http", "timeout", "timeouts", "retry", "requestHeaderModifier", "responseHeaderModifier", "headerModifiers",
		"urlRewrite", "requestMirror", "transformations", "transformation", "a2a", "tracing", "accessLog", "tunnel", "health", "phase":
		g.leftOut(at, text, "is about the connection, and refuses no tool", "")
	case "localRateLimit", "remoteRateLimit", "rateLimit":
		g.unread(key, text, "limits calls; here a rule's budget does")
	default:
		g.unread(key, text, "is not about tools, and could refuse a call")
	}
}

// unread is what could deny and cannot be read.
func (g *gatewayImport) unread(n *yaml.Node, text, why string) {
	at := place(g.file, n)
	g.refuse(at, text, why, "")
	g.denyAll = append(g.denyAll, rule{name: "could-refuse-" + text, tools: []string{"*"}, effect: specs.EffectDeny, from: at, text: text, reason: text + " could not be carried over"})
}

// translate makes rules of one list. Of several lists each has to let a call through: then an allow list is a deny of what
// none of it allows, since ceilings of one layer add up.
func (g *gatewayImport) translate(list []gatewayRule, index int) []rule {
	var cands []rule
	var from []gatewayRule
	allows := false
	for _, r := range list {
		allows = allows || r.action == "allow"
		text, err := rewriteCEL(r.text, gatewayName)
		switch {
		case errors.Is(err, errNoTool) && r.action != "require":
			g.leftOut(r.at, r.action+" "+r.text, "is about prompts or resources, which are no tools", "")
			continue
		case err != nil:
			g.cannot(&cands, &from, r, err.Error())
			continue
		}
		out := rule{name: fmt.Sprintf("%s-%d", r.action, r.at.Line), tools: []string{"*"}, when: text, effect: specs.EffectAllow, from: r.at, text: r.action + " " + r.text}
		switch r.action {
		case "deny":
			out.effect, out.reason = specs.EffectDeny, "a deny of the gateway"
		case "require":
			out.effect, out.when, out.reason = specs.EffectDeny, "!("+text+")", "the gateway requires otherwise"
		}
		cands, from = append(cands, out), append(from, r)
	}
	bad := carries(cands)
	var out []rule
	var allowed []string
	for i, r := range cands {
		if why, is := bad[i]; is {
			g.cannot(nil, nil, from[i], why)
			if r.effect == specs.EffectDeny {
				r.when = ""
				out = append(out, r)
			}
			continue
		}
		if r.effect == specs.EffectAllow {
			allowed = append(allowed, r.when)
			if len(g.lists) > 1 {
				continue
			}
		}
		out = append(out, r)
	}
	switch {
	case allows && len(g.lists) > 1:
		out = append(out, rule{name: fmt.Sprintf("unless-list-%d-allows", index+1), tools: []string{"*"}, when: "!(" + anyOf(allowed) + ")", effect: specs.EffectDeny, reason: "no allow of the gateway holds"})
	case len(list) == 0, allows && len(allowed) == 0:
		out = append(out, rule{name: "nothing-is-allowed", tools: []string{"*"}, effect: specs.EffectDeny, reason: "there is no allow of the gateway that could be carried over"})
	}
	return out
}

// cannot says that an expression cannot be carried over. A deny or a require becomes a deny of everything.
func (g *gatewayImport) cannot(cands *[]rule, from *[]gatewayRule, r gatewayRule, why string) {
	if r.action == "allow" {
		g.leftOut(r.at, "allow "+r.text, why, "")
		return
	}
	g.refuse(r.at, r.action+" "+r.text, why, "")
	if cands != nil {
		*cands = append(*cands, rule{name: fmt.Sprintf("%s-%d", r.action, r.at.Line), tools: []string{"*"}, effect: specs.EffectDeny, from: r.at, text: r.action + " " + r.text, reason: "could not be carried over"})
		*from = append(*from, r)
	}
}

var errNoTool = errors.New("this is no tool")

// gatewayName translates the gateway's variables.
func gatewayName(u celUse) (string, bool, error) {
	path := u.path
	under := func(n int, names ...string) bool {
		if len(path) < len(names) || n >= 0 && len(path) != n {
			return false
		}
		for i, name := range names {
			if path[i] != name {
				return false
			}
		}
		return true
	}
	switch {
	case under(-1, "mcp", "prompt"), under(-1, "mcp", "resource"):
		return "", false, errNoTool
	case under(3, "mcp", "tool", "name"):
		return "tool.source.tool", true, nil
	case under(3, "mcp", "tool", "target"):
		return "tool.source.name", true, nil
	case under(-1, "mcp", "tool", "arguments"):
		return selectCEL("args", path[3:]), true, nil
	case under(2, "mcp", "tool") && u.has:
		return "tool.name", true, nil
	case under(2, "jwt", "sub"):
		return "user.id", true, nil
	case under(-1, "jwt") && len(path) > 1:
		out, err := label(strings.Join(path[1:], "."), u.has)
		return out, true, err
	case path[0] == "mcp" || path[0] == "jwt" || path[0] == "request" || path[0] == "response" || path[0] == "source" || path[0] == "llm" || path[0] == "apiKey" || path[0] == "basicAuth" || path[0] == "extauthz" || path[0] == "extproc" || path[0] == "backend" || path[0] == "now":
		return "", false, fmt.Errorf("%s is not known here", strings.Join(path, "."))
	}
	return "", false, nil
}
