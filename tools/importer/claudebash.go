package importer

import (
	"regexp"
	"strings"
)

// How Bash patterns become regular expressions. The two sides are read differently on purpose: an allow holds for one simple
// command and for nothing that a shell would make more of; a deny or an ask is looked for wherever in the line a word starts.
const (
	shellSafe  = "[^;&|<>()$`\\\\\n\r]*"       // what a * may stand for in an allow
	shellWord  = "(?:^|[^A-Za-z0-9_.-])"       // before a denied command
	shellBound = "(?:$|[^A-Za-z0-9_-])"        // behind one that may go on with arguments
	shellEnd   = "\\s*(?:$|[;&|<>()\"'`\n\r])" // behind one that may not
)

// bashPattern is a pattern taken apart.
type bashPattern struct {
	parts  []string // literal texts between stars
	prefix bool     // `:*` or a single ` *` at the end: the command alone, or with arguments
}

func parseBash(spec string) bashPattern {
	p := bashPattern{}
	if head, ok := strings.CutSuffix(spec, ":*"); ok {
		spec, p.prefix = head, true
	} else if head, ok := strings.CutSuffix(spec, " *"); ok && !strings.Contains(head, "*") {
		spec, p.prefix = head, true
	}
	p.parts = strings.Split(spec, "*")
	return p
}

// allows gives the expression over a whole command that may run.
func (p bashPattern) allows() string {
	return "^" + p.join(regexp.QuoteMeta, shellSafe) + p.tail("(?: "+shellSafe+")?", "") + "$"
}

// denies gives the expression that is looked for in a command line.
func (p bashPattern) denies() string {
	loose := func(s string) string {
		words := strings.Fields(s)
		for i, w := range words {
			words[i] = regexp.QuoteMeta(w)
		}
		out := strings.Join(words, `\s+`)
		if out != "" && strings.HasPrefix(s, " ") {
			out = `\s+` + out
		}
		if strings.HasSuffix(s, " ") && out != "" {
			out += `\s*`
		}
		return out
	}
	return shellWord + p.join(loose, `(?s:.*)`) + p.tail(shellBound, shellEnd)
}

func (p bashPattern) join(literal func(string) string, star string) string {
	out := make([]string, len(p.parts))
	for i, s := range p.parts {
		out[i] = literal(s)
	}
	return strings.Join(out, star)
}

// tail ends an expression: for a prefix, and for an exact one. A star at the end needs none.
func (p bashPattern) tail(prefix, exact string) string {
	switch {
	case p.prefix:
		return prefix
	case p.parts[len(p.parts)-1] == "":
		return ""
	}
	return exact
}

func (c *claudeImport) bash(list string, n *jsonNode, text, spec string) {
	p := parseBash(spec)
	if strings.Trim(strings.Join(p.parts, ""), " ") == "" { // nothing but stars
		c.add(list, n, text, "Bash", "")
		return
	}
	if list != "allow" {
		c.add(list, n, text, "Bash", "args.command.matches("+celString(p.denies())+")")
		return
	}
	if len(p.parts) == 1 && !p.prefix {
		c.add(list, n, text, "Bash", "args.command == "+celString(spec))
		return
	}
	c.add(list, n, text, "Bash", "args.command.matches("+celString(p.allows())+")")
}

// domain reads WebFetch(domain:x). A deny holds for every address in which the name stands.
func (c *claudeImport) domain(list string, n *jsonNode, text, host string) {
	host = strings.ToLower(host)
	if !regexp.MustCompile(`^(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*$`).MatchString(host) {
		if list == "allow" {
			c.leftOut(n.pos, text, "is no domain", "")
			return
		}
		c.stricter(n.pos, text, "is no domain: it holds for every call of WebFetch", "")
		c.add(list, n, text, "WebFetch", "")
		return
	}
	name := regexp.QuoteMeta(strings.TrimPrefix(host, "*."))
	if list != "allow" {
		c.add(list, n, text, "WebFetch", "args.url.matches("+celString(`(?i)(?:^|[^a-z0-9-])`+name+`(?:$|[^a-z0-9-])`)+")")
		return
	}
	if strings.HasPrefix(host, "*.") {
		name = `(?:[a-z0-9-]+\.)+` + name
	}
	c.add(list, n, text, "WebFetch", "args.url.matches("+celString(`(?i)^https?://`+name+`(?::[0-9]+)?(?:[/?#][^\\\s]*)?$`)+")")
}
