package importer

import (
	"regexp"
	"strings"
)

// pathPattern is a gitignore-like pattern of a path rule: `//x` is absolute, `~/x` is below a home, `/x`, `./x` and `x/y` are
// relative to the project, and a bare name is looked for at any depth.
type pathPattern struct {
	kind  byte // '/' absolute, '~' home, '.' project, '*' at any depth of the project
	body  string
	exact bool // no class or escape whose meaning had to be widened
}

func parsePath(spec string) pathPattern {
	p := pathPattern{exact: true}
	switch {
	case strings.HasPrefix(spec, "//"):
		p.kind, spec = '/', strings.TrimLeft(spec, "/")
	case strings.HasPrefix(spec, "~/"):
		p.kind, spec = '~', strings.TrimPrefix(spec, "~/")
	default:
		p.kind = '*'
		trimmed := strings.TrimPrefix(strings.TrimPrefix(spec, "./"), "/")
		if trimmed != spec || strings.Contains(strings.TrimSuffix(trimmed, "/"), "/") {
			p.kind = '.'
		}
		spec = trimmed
	}
	if strings.HasSuffix(spec, "/") {
		spec += "**"
	}
	p.body, p.exact = globRegexp(spec)
	return p
}

// globRegexp translates; exact is false where a character class or a climb was widened to anything.
func globRegexp(glob string) (out string, exact bool) {
	var b strings.Builder
	exact = true
	for i := 0; i < len(glob); {
		switch rest := glob[i:]; {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			i += 3
		case rest == "/**":
			b.WriteString("(?:/.*)?")
			i += 3
		case strings.HasPrefix(rest, "**"):
			b.WriteString(".*")
			i += 2
		case rest[0] == '*':
			b.WriteString("[^/]*")
			i++
		case rest[0] == '?':
			b.WriteString("[^/]")
			i++
		case rest[0] == '[', rest[0] == '\\', rest[0] == '!', rest[0] == '{', strings.HasPrefix(rest, ".."):
			b.WriteString(".*") // a class, an escape, a negation, a climb: anything from here on
			return b.String(), false
		default:
			n := strings.IndexAny(rest[1:], "*?[\\!{./") + 1
			if n == 0 {
				n = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:n]))
			i += n
		}
	}
	return b.String(), exact
}

// wide says that a pattern names nothing, so that a command line cannot be held against it.
func (p pathPattern) wide() bool {
	return !strings.ContainsFunc(strings.NewReplacer("(?:.*/)?", "", "(?:/.*)?", "").Replace(p.body), func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
	})
}

// allows gives the expression over a path that is inside, or "" where nobody can tell.
func (p pathPattern) allows(root, home string) string {
	root, home = strings.TrimRight(root, "/"), strings.TrimRight(home, "/")
	project := `(?:\./)?`
	if root != "" {
		project = "(?:" + regexp.QuoteMeta(root) + `/|\./)?`
	}
	switch {
	case !p.exact:
		return ""
	case p.kind == '/':
		return "^/" + p.body + "$"
	case p.kind == '~' && home == "":
		return "^~/" + p.body + "$"
	case p.kind == '~':
		return "^(?:~|" + regexp.QuoteMeta(home) + ")/" + p.body + "$"
	case p.kind == '*':
		return "^" + project + "(?:[^/].*/)?" + p.relative() + "$"
	}
	return "^" + project + p.relative() + "$"
}

// relative keeps a body that begins with a wildcard from swallowing the slash of an absolute path.
func (p pathPattern) relative() string {
	switch {
	case strings.HasPrefix(p.body, "(?:.*/)?"):
		return "(?:[^/].*/)?" + strings.TrimPrefix(p.body, "(?:.*/)?")
	case strings.HasPrefix(p.body, ".*"):
		return "[^/].*"
	}
	return p.body
}

// denies gives the expression that is looked for in a path: the pattern's tail wherever it stands, and all below it.
func (p pathPattern) denies() string { return "(?i)(?:^|/)" + p.body + "(?:/.*)?/*$" }

// deniesWord gives the expression that is looked for in a command line that names such a path.
func (p pathPattern) deniesWord() string {
	body := strings.NewReplacer("(?:.*/)?", `(?:\S*/)?`, "(?:/.*)?", `(?:/\S*)?`, ".*", `\S*`, "[^/]", `[^/\s]`).Replace(p.body)
	return `(?i)(?:^|[^A-Za-z0-9_.-])` + body + `(?:$|[^A-Za-z0-9_.-])`
}

// path reads a rule with a pattern over paths.
func (c *claudeImport) path(list string, n *jsonNode, text string, t claudeTool, spec string) {
	p := parsePath(spec)
	if list == "allow" {
		c.allowPath(n, text, t, p)
		return
	}
	if p.kind == '/' {
		c.stricter(n.pos, text, "a relative path cannot be held against an absolute one: it is refused or asked about as well", "give absolute paths to the tools")
	}
	if !p.exact {
		c.stricter(n.pos, text, "the pattern is read as far as its first class, escape or climb; everything behind is matched", "")
	}
	byArgument := map[string][]string{}
	var order []string
	for _, other := range c.tools {
		if other.group != t.group {
			continue
		}
		if list == "deny" && other.optional { // a search finds what lies below its folder
			c.always[other.name] = n
		}
		arg := other.argument()
		if byArgument[arg] == nil {
			order = append(order, arg)
		}
		byArgument[arg] = append(byArgument[arg], c.name(other.name))
	}
	for _, arg := range order {
		conds := []string{arg + ".matches(" + celString(p.denies()) + ")", arg + `.matches("(?:^|[/\\\\])\\.\\.(?:$|[/\\\\])")`}
		if p.kind == '/' {
			conds = append(conds, `!`+arg+`.startsWith("/")`)
		}
		c.ruleFor(list, n, text, byArgument[arg], anyOf(conds))
	}
	if p.wide() {
		c.always["Bash"] = n
		c.stricter(n.pos, text, "a command line cannot be held against it: every Bash call asks", "")
		return
	}
	c.add(list, n, text, "Bash", "args.command.matches("+celString(p.deniesWord())+")")
}

// argument gives the path in CEL; an absent optional one is the working directory.
func (t claudeTool) argument() string {
	if t.optional {
		return "args.?" + t.pathArg + `.orValue(".")`
	}
	return "args." + t.pathArg
}

func (c *claudeImport) allowPath(n *jsonNode, text string, t claudeTool, p pathPattern) {
	re := p.allows(c.opts.Root, c.opts.Home)
	switch {
	case re == "":
		c.leftOut(n.pos, text, "the pattern holds a class, an escape or a climb", "write it without")
		return
	case c.opts.Root == "" && p.kind != '/' && p.kind != '~':
		c.stricter(n.pos, text, "it holds for relative paths alone: where the project was is not known", "--root DIR says it")
	case c.opts.Home == "" && p.kind == '~':
		c.stricter(n.pos, text, "it holds for paths that are written with ~ alone: whose home that was is not known", "--home DIR says it")
	}
	for _, other := range c.tools {
		if other.name == t.name || t.name == "Edit" && other.group == edits || t.name == "Read" && other.group == reads {
			arg := other.argument()
			c.add("allow", n, text, other.name, allOf(arg+".matches("+celString(re)+")", `!`+arg+`.contains("..")`))
		}
	}
}
