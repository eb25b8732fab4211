package importer

import (
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// cerbosEnv is what the names of an expression mean in one policy.
type cerbosEnv struct {
	kind   string // of the resource; "" when the expression may meet any
	vars   map[string]*yaml.Node
	consts map[string]*yaml.Node
}

// maxExpression keeps what variables expand to under what one expression may be.
const maxExpression = 12 << 10

var errLong = errors.New("with its variables written out the expression is too long")

// environments reads the variables and constants of each policy, its own and those that it imports.
func (c *cerbosImport) environments() {
	for i, p := range c.policies {
		c.policies[i].env = c.environment(p)
	}
	for name, p := range c.sets {
		p.env = c.environment(p)
		c.sets[name] = p
	}
}

func (c *cerbosImport) environment(p cerbosPolicy) *cerbosEnv {
	env := &cerbosEnv{kind: scalar(get(p.body, "resource")), vars: map[string]*yaml.Node{}, consts: map[string]*yaml.Node{}}
	for what, into := range map[string]map[string]*yaml.Node{"variables": env.vars, "constants": env.consts} {
		if what == "variables" {
			for k, v := range pairs(get(p.root, "variables")) { // the older form
				into[k] = v
			}
		}
		imports, _ := scalars(get(p.body, what, "import"))
		for _, name := range imports {
			for k, v := range c.exports[what+"/"+name] {
				into[k] = v
			}
		}
		for k, v := range pairs(get(p.body, what, "local")) {
			into[k] = v
		}
	}
	return env
}

// translate rewrites one expression. Variables are written out, constants are literals.
func (e *cerbosEnv) translate(text string, within []string) (string, error) {
	if strings.Contains(text, "runtime.") || len(text) > maxExpression {
		return "", errors.New("what it reads is not known here")
	}
	text, err := rewriteCEL(text, func(u celUse) (string, bool, error) { return e.resolve(u, within) })
	if err == nil && len(text) > maxExpression {
		err = errLong
	}
	return strings.TrimSpace(text), err
}

func (e *cerbosEnv) resolve(u celUse, within []string) (string, bool, error) {
	path := u.path
	unknown := func() (string, bool, error) {
		return "", false, fmt.Errorf("%s is not known here", strings.Join(u.path, "."))
	}
	switch path[0] {
	case "request":
		if len(path) < 2 || path[1] != "principal" && path[1] != "resource" {
			return unknown()
		}
		path = append([]string{map[string]string{"principal": "P", "resource": "R"}[path[1]]}, path[2:]...)
	case "variables":
		path = append([]string{"V"}, path[1:]...)
	case "constants":
		path = append([]string{"C"}, path[1:]...)
	}
	if len(path) == 1 {
		if path[0] == "P" || path[0] == "R" || path[0] == "V" || path[0] == "C" || path[0] == "G" || path[0] == "globals" || path[0] == "runtime" {
			return unknown()
		}
		return "", false, nil
	}
	switch path[0] + "." + path[1] {
	case "P.id":
		return selectCEL("user.id", path[2:]), true, nil
	case "P.roles":
		return selectCEL("user.roles", path[2:]), true, nil
	case "P.attr":
		if len(path) != 3 {
			return unknown()
		}
		out, err := label(path[2], u.has)
		return out, true, err
	case "R.id":
		return selectCEL("args.id", path[2:]), true, nil
	case "R.kind":
		if e.kind == "" || e.kind == "*" || u.has {
			return unknown()
		}
		return celString(e.kind), true, nil
	case "R.attr":
		if len(path) < 3 {
			return unknown()
		}
		return selectCEL("args", path[2:]), true, nil
	}
	switch path[0] {
	case "V":
		return e.variable(path[1], path[2:], u.has, within)
	case "C":
		n := e.consts[path[1]]
		if n == nil || u.has {
			return unknown()
		}
		lit, err := celLiteral(n, 0)
		return selectCEL(lit, path[2:]), true, err
	case "P", "R", "G", "globals", "runtime":
		return unknown()
	}
	return "", false, nil
}

func (e *cerbosEnv) variable(name string, rest []string, has bool, within []string) (string, bool, error) {
	n := e.vars[name]
	if scalar(n) == "" || has {
		return "", false, fmt.Errorf("the variable %s is not known here", name)
	}
	for _, w := range within {
		if w == name {
			return "", false, fmt.Errorf("the variable %s needs itself", name)
		}
	}
	if len(within) > 40 {
		return "", false, errLong
	}
	text, err := e.translate(n.Value, append(within[:len(within):len(within)], name))
	return selectCEL("("+text+")", rest), true, err
}

// celLiteral writes a YAML value as CEL.
func celLiteral(n *yaml.Node, depth int) (string, error) {
	if depth > 8 {
		return "", errLong
	}
	switch n.Kind {
	case yaml.SequenceNode:
		out := make([]string, len(n.Content))
		for i, c := range n.Content {
			var err error
			if out[i], err = celLiteral(c, depth+1); err != nil {
				return "", err
			}
		}
		return "[" + strings.Join(out, ", ") + "]", nil
	case yaml.MappingNode:
		var out []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := celLiteral(n.Content[i+1], depth+1)
			if err != nil {
				return "", err
			}
			out = append(out, celString(n.Content[i].Value)+": "+v)
		}
		return "{" + strings.Join(out, ", ") + "}", nil
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!bool", "!!null":
			return strings.ToLower(n.Value), nil
		case "!!int", "!!float":
			if strings.Trim(n.Value, "0123456789.-") == "" {
				return n.Value, nil
			}
			return "", fmt.Errorf("the number %s is not read here", n.Value)
		}
		return celString(n.Value), nil
	}
	return "", errors.New("a constant is no value")
}

// condition reads {match: {expr | all | any | none}}; "" when there is none.
func (e *cerbosEnv) condition(n *yaml.Node) (string, error) {
	if n == nil {
		return "", nil
	}
	match := get(n, "match")
	if match == nil || len(n.Content) != 2 {
		return "", errors.New("a condition that is no match is not known here")
	}
	return e.match(match, 0)
}

func (e *cerbosEnv) match(n *yaml.Node, depth int) (string, error) {
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 || depth > 20 {
		return "", errors.New("this is not one of expr, all, any, none")
	}
	key, value := n.Content[0].Value, n.Content[1]
	if key == "expr" {
		if scalar(value) == "" {
			return "", errors.New("the expression is empty")
		}
		return e.translate(value.Value, nil)
	}
	of := get(value, "of")
	if of == nil || of.Kind != yaml.SequenceNode || len(of.Content) == 0 || key != "all" && key != "any" && key != "none" {
		return "", errors.New("this is not one of expr, all, any, none")
	}
	var parts []string
	for _, c := range of.Content {
		part, err := e.match(c, depth+1)
		if err != nil {
			return "", err
		}
		// A comment at the end of an expression would swallow what follows on its line.
		parts = append(parts, strings.TrimSpace(part)+map[bool]string{true: "\n"}[strings.Contains(part, "//")])
	}
	joined := "(" + strings.Join(parts, map[bool]string{true: ") && (", false: ") || ("}[key == "all"]) + ")"
	if key == "none" {
		joined = "!(" + joined + ")"
	}
	return joined, nil
}
