package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/callgate/callgate/specs"
)

// claudeTool is what is known about a tool of Claude Code itself.
type claudeTool struct {
	name, pathArg string
	optional      bool // the path argument may be absent
	group         string
	asks          bool // in the default mode a call needs a person or an allow rule
	args          [][2]string
	annotations   string
	describe      string
}

// The groups of tools. Rules about Read hold for every tool that reads files, rules about Edit for every one that writes them.
const (
	reads, edits, execs, nets, inner = "read", "edit", "exec", "net", "inner"

	readingNotes  = "{sideEffect: none, readOnly: true}"
	changingNotes = "{sideEffect: process, readOnly: false, destructive: true}"
	fetchingNotes = "{sideEffect: network, readOnly: true, openWorld: true}"
)

var claudeTools = []claudeTool{
	{name: "Bash", group: execs, asks: true, args: [][2]string{{"command", "string"}}, annotations: changingNotes, describe: "Runs a shell command."},
	{name: "Edit", pathArg: "file_path", group: edits, asks: true, args: [][2]string{{"file_path", "string"}}, annotations: changingNotes, describe: "Changes a file."},
	{name: "MultiEdit", pathArg: "file_path", group: edits, asks: true, args: [][2]string{{"file_path", "string"}}, annotations: changingNotes, describe: "Changes a file in several places."},
	{name: "Write", pathArg: "file_path", group: edits, asks: true, args: [][2]string{{"file_path", "string"}}, annotations: changingNotes, describe: "Writes a file."},
	{name: "NotebookEdit", pathArg: "notebook_path", group: edits, asks: true, args: [][2]string{{"notebook_path", "string"}}, annotations: changingNotes, describe: "Changes a notebook."},
	{name: "Read", pathArg: "file_path", group: reads, args: [][2]string{{"file_path", "string"}}, annotations: readingNotes, describe: "Reads a file."},
	{name: "Glob", pathArg: "path", optional: true, group: reads, args: [][2]string{{"path", "string"}, {"pattern", "string"}}, annotations: readingNotes, describe: "Finds files by name."},
	{name: "Grep", pathArg: "path", optional: true, group: reads, args: [][2]string{{"path", "string"}, {"pattern", "string"}}, annotations: readingNotes, describe: "Searches in files."},
	{name: "WebFetch", group: nets, asks: true, args: [][2]string{{"url", "string"}}, annotations: fetchingNotes, describe: "Fetches a page."},
	{name: "WebSearch", group: nets, asks: true, args: [][2]string{{"query", "string"}}, annotations: fetchingNotes, describe: "Searches the web."},
	{name: "Task", group: inner, annotations: readingNotes, describe: "Hands work to a subagent."},
	{name: "TodoWrite", group: inner, annotations: readingNotes, describe: "Keeps a list of steps."},
	{name: "Skill", group: inner, asks: true, annotations: readingNotes, describe: "Reads a skill."},
}

// claudeImport is one settings file on its way.
type claudeImport struct {
	*findings
	opts    Options
	source  string
	tools   []claudeTool
	mode    string
	modeAt  specs.Pos
	dirs    []string // absolute additionalDirectories
	denies  []rule
	asks    []rule
	allows  []claudeAllow
	always  map[string]*jsonNode // tools that ask each time, and the value that makes them
	servers []string             // MCP servers that rules name
}

// claudeAllow is one allow line for one tool.
type claudeAllow struct {
	tool string // in the bundle; for MCP the server's glob
	when string
	text string
	at   specs.Pos
}

// Claude reads a settings.json of Claude Code. Deny comes before ask, and ask before allow, as there. Its tools become
// stand-ins of a Source, its lines rules about them that hold for one Profile.
func Claude(name string, data []byte, opts Options) (*Imported, error) {
	c := &claudeImport{findings: newFindings(opts.SkipInvalid), opts: opts, source: docName(string(opts.Source), "claude"),
		tools: slices.Clone(claudeTools), always: map[string]*jsonNode{}, mode: "default"}
	c.checkRoots(name)
	root := parseJSON(c.findings, name, data)
	if err := c.err(); err != nil {
		return nil, err
	}
	if root.kind != '{' {
		c.fail(root.pos, "this is not a settings file: it is no JSON object", "")
		return nil, c.err()
	}
	for _, f := range root.fields {
		c.key(f)
	}
	if p := root.get("permissions"); p != nil {
		c.permissions(p)
	}
	docs := c.documents(name)
	head := fmt.Sprintf("Imported from %s. Every rule names its line. Deny comes before ask, ask before allow.\n"+
		"The tools are stand-ins: Claude Code's own, described as far as the rules look at them.\n"+
		"%s-allow speaks for the platform layer, because the file lets these calls run without asking; delete it to be asked each time.", name, c.source)
	return c.finish(c.source, head, docs)
}

func (c *claudeImport) checkRoots(name string) {
	for _, p := range []string{c.opts.Root, c.opts.Home} {
		if p != "" && (!strings.HasPrefix(p, "/") || strings.Contains(p, "..") || strings.ContainsAny(p, "\n\x00")) {
			c.fail(specs.Pos{File: name}, fmt.Sprintf("the root %q is not an absolute path without ..", p), "")
		}
	}
}

// key looks at everything beside permissions: what could deny is not lost.
func (c *claudeImport) key(f jsonField) {
	switch f.key {
	case "permissions":
	case "hooks":
		c.hooks(f)
	case "sandbox":
		if on := f.node.get("enabled"); on == nil || on.value != false {
			c.always["Bash"] = f.node
			c.stricter(f.pos, "sandbox", "a sandbox holds what a command does, which a gate cannot: every Bash call asks", "isolate the process that runs the tool, then take the rule out")
		}
	case "disabledMcpjsonServers":
		for _, n := range f.node.list {
			c.denyServer(n, n)
		}
	case "deniedMcpServers":
		for _, n := range f.node.list {
			c.denyServer(n, n.get("serverName"))
		}
	case "allowedMcpServers":
		c.onlyServers(f)
	case "enabledMcpjsonServers", "enableAllProjectMcpServers":
		c.leftOut(f.pos, f.key, "a server is not allowed by name here", "callgate import mcp takes its tools; a profile grants them")
	case "$schema", "description":
	default:
		c.leftOut(f.pos, f.key, "says nothing about permissions", "")
	}
}

func (c *claudeImport) hooks(f jsonField) {
	for _, event := range f.node.fields {
		if event.key != "PreToolUse" && event.key != "PermissionRequest" {
			c.leftOut(event.pos, "hooks."+event.key, "an import never runs a hook, and this one cannot refuse a call", "")
			continue
		}
		for _, h := range event.node.list {
			matcher, ok := h.get("matcher").text()
			c.stricter(h.pos, "hooks."+event.key+" "+matcher, "an import never runs a hook, and this one could refuse calls: the tools it is for ask each time", "write what it refuses as a deny, then take the rule out")
			re, err := regexp.Compile("^(?:" + cmp.Or(strings.ReplaceAll(matcher, "*", ".*"), ".*") + ")$")
			for _, t := range c.tools {
				if !ok || err != nil || matcher == "" || re.MatchString(t.name) {
					c.always[t.name] = h
				}
			}
			if !ok || err != nil || matcher == "" || strings.Contains(matcher, "mcp") || strings.Contains(matcher, ".") || strings.Contains(matcher, "*") {
				c.always["mcp"] = h
			}
		}
		if event.node.kind != '[' {
			c.refuse(event.pos, "hooks."+event.key, "is not a list", "")
			c.denyAll(event.pos, "hooks."+event.key)
		}
	}
}

func (c *claudeImport) denyServer(at, named *jsonNode) {
	name, ok := named.text()
	if !ok || name == "" {
		c.refuse(at.pos, "an MCP server without a name", "which tools it has cannot be told", "")
		c.denies = append(c.denies, rule{name: "deny-mcp", tools: []string{"mcp:*"}, effect: specs.EffectDeny, from: at.pos, text: "an MCP server without a name"})
		return
	}
	c.denies = append(c.denies, rule{name: "deny-server-" + name, tools: []string{serverName(name) + ".*"}, effect: specs.EffectDeny,
		reason: "denied server: " + name, from: at.pos, text: name})
}

func (c *claudeImport) onlyServers(f jsonField) {
	var conds []string
	for _, n := range f.node.list {
		name, ok := n.get("serverName").text()
		if !ok {
			c.stricter(n.pos, "allowedMcpServers", "a server that is not named by serverName is not among the allowed ones", "")
			continue
		}
		conds = append(conds, "tool.name.startsWith("+celString(serverName(name)+".")+")")
	}
	c.denies = append(c.denies, rule{name: "only-allowed-servers", tools: []string{"mcp:*"}, when: "!(" + anyOf(conds) + ")", effect: specs.EffectDeny,
		reason: "not among the allowed MCP servers", from: f.pos, text: "allowedMcpServers"})
}

func (c *claudeImport) denyAll(at specs.Pos, text string) {
	c.denies = append(c.denies, rule{name: "deny-everything", tools: []string{"*"}, effect: specs.EffectDeny, from: at, text: text})
}

func (c *claudeImport) permissions(p *jsonNode) {
	if p.kind != '{' {
		c.refuse(p.pos, "permissions", "is not an object", "")
		c.denyAll(p.pos, "permissions")
		return
	}
	for _, f := range p.fields {
		switch f.key {
		case "defaultMode":
			c.defaultMode(f)
		case "additionalDirectories":
			c.directories(f)
		case "disableBypassPermissionsMode", "disableAutoMode":
			c.note(f.pos, f.key, "there is no such mode here to be disabled", "")
		case "allow", "ask", "deny":
		default:
			c.refuse(f.pos, "permissions."+f.key, "is not known, and could deny", "")
			c.denyAll(f.pos, "permissions."+f.key)
		}
	}
	for _, key := range []string{"deny", "ask", "allow"} {
		n := p.get(key)
		if n == nil {
			continue
		}
		if n.kind != '[' {
			c.refuse(n.pos, "permissions."+key, "is not a list", "")
			c.denyAll(n.pos, "permissions."+key)
			continue
		}
		for _, line := range n.list {
			c.line(key, line)
		}
	}
}

func (c *claudeImport) defaultMode(f jsonField) {
	mode, _ := f.node.text()
	switch mode {
	case "default", "acceptEdits", "plan", "dontAsk":
		c.mode, c.modeAt = mode, f.pos
		if mode == "acceptEdits" {
			c.stricter(f.pos, "defaultMode: acceptEdits", "only the tools that edit files are free inside the project; shell commands that change files ask", "")
		}
	case "bypassPermissions", "auto":
		c.stricter(f.pos, "defaultMode: "+mode, "what no line allows asks a person here", "to let everything run, write a waive of the platform layer yourself")
	default:
		c.stricter(f.pos, "defaultMode: "+mode, "is not known: what no line allows asks", "")
	}
}

func (c *claudeImport) directories(f jsonField) {
	for _, n := range f.node.list {
		dir, _ := n.text()
		if rest, ok := strings.CutPrefix(dir, "~/"); ok && c.opts.Home != "" {
			dir = strings.TrimSuffix(c.opts.Home, "/") + "/" + rest
		}
		if !strings.HasPrefix(dir, "/") || strings.Contains(dir, "..") || strings.Trim(dir, "/") == "" {
			c.leftOut(n.pos, "additionalDirectories: "+dir, "is no absolute path", "calls outside the project ask")
			continue
		}
		c.dirs = append(c.dirs, strings.TrimRight(dir, "/"))
	}
}

var claudeRule = regexp.MustCompile(`(?s)^([A-Za-z_*][A-Za-z0-9_*.-]*)(?:\((.*)\))?$`)

// line reads one entry of a list.
func (c *claudeImport) line(list string, n *jsonNode) {
	text, ok := n.text()
	m := claudeRule.FindStringSubmatch(text)
	switch {
	case !ok || m == nil:
		c.badLine(list, n, text)
	case strings.HasPrefix(m[1], "mcp__"):
		c.mcpLine(list, n, text, m[1])
	default:
		spec := m[2]
		if !strings.Contains(text, "(") || spec == "*" || spec == "" && list != "allow" {
			c.wholeTool(list, n, text, m[1])
			return
		}
		if spec == "" {
			c.leftOut(n.pos, text, "the parentheses are empty", "")
			return
		}
		c.narrowed(list, n, text, m[1], spec)
	}
}

// badLine is a line that is no rule: it denies the tool that it seems to name, or is refused.
func (c *claudeImport) badLine(list string, n *jsonNode, text string) {
	if list == "allow" {
		c.leftOut(n.pos, cmp.Or(text, "an entry that is no text"), "is not a rule", `a rule is Tool or Tool(pattern)`)
		return
	}
	word := regexp.MustCompile(`^[A-Za-z]+`).FindString(text)
	if word == "" {
		c.refuse(n.pos, cmp.Or(text, "an entry that is no text"), "is not a rule, and could "+list, "")
		c.denyAll(n.pos, text)
		return
	}
	c.stricter(n.pos, text, "is not a rule: all of "+word+" is refused", `a rule is Tool or Tool(pattern)`)
	c.add("deny", n, text, word, "")
}

// wholeTool is a rule without a pattern.
func (c *claudeImport) wholeTool(list string, n *jsonNode, text, tool string) {
	switch {
	case strings.Contains(tool, "*") && list == "allow":
		c.leftOut(n.pos, text, "a pattern over tools allows nothing here", "name the tools")
		return
	case strings.Contains(tool, "*"):
		for _, t := range c.tools {
			if specs.Glob(tool, t.name) {
				c.add(list, n, text, t.name, "")
			}
		}
		if strings.HasPrefix(tool, "*") || strings.HasPrefix("mcp__", strings.SplitN(tool, "*", 2)[0]) {
			c.ruleFor(list, n, text, []string{"mcp:*"}, "")
		}
		return
	case tool == "Edit" && list != "allow":
		for _, t := range c.tools {
			if t.group == edits {
				c.add(list, n, text, t.name, "")
			}
		}
		return
	}
	c.add(list, n, text, tool, "")
}

// narrowed is a rule with a pattern.
func (c *claudeImport) narrowed(list string, n *jsonNode, text, tool, spec string) {
	t := c.tool(tool)
	switch {
	case tool == "Bash":
		c.bash(list, n, text, spec)
	case tool == "WebFetch" && strings.HasPrefix(spec, "domain:"):
		c.domain(list, n, text, strings.TrimPrefix(spec, "domain:"))
	case t != nil && (t.group == reads || t.group == edits):
		c.path(list, n, text, *t, spec)
	case list == "allow":
		c.leftOut(n.pos, text, "what the pattern of "+tool+" means is not known here", "")
	default:
		c.stricter(n.pos, text, "what the pattern of "+tool+" means is not known here: it holds for every call of "+tool, "")
		c.add(list, n, text, tool, "")
	}
}

func (c *claudeImport) tool(name string) *claudeTool {
	if i := slices.IndexFunc(c.tools, func(t claudeTool) bool { return t.name == name }); i >= 0 {
		return &c.tools[i]
	}
	return nil
}

// add makes a rule about one of Claude's own tools. One that nobody knows becomes a stand-in that asks.
func (c *claudeImport) add(list string, n *jsonNode, text, tool, when string) {
	if c.tool(tool) == nil {
		if len(tool) > 64 {
			c.refuse(n.pos, text, "the tool's name is too long", "")
			c.denyAll(n.pos, text)
			return
		}
		c.tools = append(c.tools, claudeTool{name: tool, group: inner, asks: true, annotations: changingNotes, describe: "A tool that the settings name."})
	}
	c.ruleFor(list, n, text, []string{c.name(tool)}, when)
}

func (c *claudeImport) ruleFor(list string, n *jsonNode, text string, tools []string, when string) {
	r := rule{name: fmt.Sprintf("%s-%d", list, n.pos.Line), tools: tools, when: when, from: n.pos, text: list + " " + text}
	switch list {
	case "deny":
		r.effect, r.reason = specs.EffectDeny, "denied by "+text
		c.denies = append(c.denies, r)
	case "ask":
		if c.mode == "dontAsk" { // nobody is asked: what would have to be is refused
			r.effect, r.reason = specs.EffectDeny, "asked for by "+text+", and the mode asks nobody"
			c.denies = append(c.denies, r)
			return
		}
		r.effect, r.reason = specs.EffectApprove, "asked for by "+text
		c.asks = append(c.asks, r)
	default:
		c.allows = append(c.allows, claudeAllow{tools[0], when, text, n.pos})
	}
}

// name gives the canonical name of one of Claude's own tools.
func (c *claudeImport) name(tool string) string {
	return string(specs.ImportedName(specs.SourceName(c.source), tool))
}

// serverName is the source that `callgate import mcp` suggests for a server.
func serverName(s string) string { return strings.ToLower(docName(s, "imported")) }

func (c *claudeImport) mcpLine(list string, n *jsonNode, text, name string) {
	server, tool, _ := strings.Cut(strings.TrimPrefix(name, "mcp__"), "__")
	source := serverName(server)
	switch {
	case strings.Contains(text, "(") && list == "allow":
		c.leftOut(n.pos, text, "a pattern over an MCP tool's arguments is not known here", "")
		return
	case server == "" || strings.Contains(server, "*"):
		if list == "allow" {
			c.leftOut(n.pos, text, "a pattern over servers allows nothing here", "name the server")
			return
		}
		c.stricter(n.pos, text, "it holds for the tools of every MCP server", "")
		c.ruleFor(list, n, text, []string{"mcp:*"}, "")
		return
	}
	if !slices.Contains(c.servers, source) {
		c.servers = append(c.servers, source)
	}
	glob := source + "." + strings.ReplaceAll(tool, "**", "*")
	if tool == "" {
		glob = source + ".*"
	}
	if exact, globbed := string(specs.ImportedName(specs.SourceName(source), tool)), strings.Contains(tool, "*"); tool != "" && !globbed {
		glob = exact
	}
	if list != "allow" {
		c.ruleFor(list, n, text, []string{glob}, "")
		return
	}
	// A selector that names a tool must find it; a glob may wait for the import of the server's tools.
	when := ""
	if glob != source+".*" {
		when = "glob(tool.name, " + celString(glob) + ")"
	}
	c.ruleFor(list, n, text, []string{"mcp:" + source + ".*"}, when)
}
