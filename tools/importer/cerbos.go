package importer

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/callgate/callgate/specs"
)

// cerbosImport is a folder of Cerbos policies on its way.
type cerbosImport struct {
	*findings
	source   string
	policies []cerbosPolicy
	sets     map[string]cerbosPolicy          // derivedRoles by name
	exports  map[string]map[string]*yaml.Node // "variables/NAME" and "constants/NAME"
	heirs    map[string][]string              // a role's children by rolePolicy.parentRoles
	tools    map[[2]string]bool               // kind, action: literal ones
	allows   []rule
	denies   []rule
	yes      []cerbosYes // what principal policies allow, which comes before what resource policies deny
}

// cerbosPolicy is one document.
type cerbosPolicy struct {
	file string
	kind string // resourcePolicy, principalPolicy, rolePolicy, derivedRoles
	root *yaml.Node
	body *yaml.Node
	env  *cerbosEnv
}

// cerbosYes is an allow of a principal policy.
type cerbosYes struct {
	tools string // a selector
	when  string // who and under what condition
}

const cerbosVersion = "api.cerbos.dev/v1"

// Cerbos reads a folder of Cerbos policies. Action A on a resource of kind K becomes the tool SOURCE.K.A; the rules are the
// ceiling of that source, so that what no rule allows is denied, as there. Attributes of the resource are read from the call's
// arguments, those of the principal from the user's labels.
func Cerbos(files []specs.File, opts Options) (*Imported, error) {
	c := &cerbosImport{findings: newFindings(opts.SkipInvalid), source: docName(string(opts.Source), "cerbos"), sets: map[string]cerbosPolicy{},
		exports: map[string]map[string]*yaml.Node{}, heirs: map[string][]string{}, tools: map[[2]string]bool{}}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b specs.File) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range files {
		c.read(f)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	if len(c.policies) == 0 {
		where := specs.Pos{}
		if len(files) > 0 {
			where.File = files[0].Name
		}
		c.fail(where, "there is no Cerbos policy that could be imported", "expected documents with apiVersion: "+cerbosVersion+" and a resourcePolicy, principalPolicy or rolePolicy")
		return nil, c.err()
	}
	c.environments()
	c.inherit()
	for _, kind := range []string{"principalPolicy", "resourcePolicy", "rolePolicy"} {
		for _, p := range c.policies {
			if p.kind == kind {
				c.policy(p)
			}
		}
	}
	if len(c.allows) == 0 {
		c.denies = append(c.denies, rule{name: "nothing-is-allowed", tools: []string{c.source + ".*"}, effect: specs.EffectDeny, reason: "no policy allows anything"})
	}
	return c.finish(c.source, c.head(), c.documents())
}

func (c *cerbosImport) head() string {
	return "Imported Cerbos policies. Action A on a resource of kind K is the tool " + c.source + ".K.A, and what no rule allows is denied.\n" +
		"R.attr.x is the argument x of the call, R.id the argument id: the model writes them, so whoever runs the tool must check that they are true.\n" +
		"P.attr.x is the label x of the user, a text. What is missing there or here makes an allow not hold and a deny hold.\n" +
		"A deny is final here, also one for a role when another role of the same user is allowed."
}

// documents makes the bundle: a profile that grants what the ceiling leaves, the ceiling, and the tools.
func (c *cerbosImport) documents() []document {
	me := []string{c.source}
	docs := []document{
		{kind: specs.KindProfile, name: c.source, allow: []string{c.source + ".*"}, note: "Grants what the ceiling below leaves. Give it instructions and a model, or grant the tools in your own profile."},
		{kind: specs.KindPolicy, name: c.source + "-ceiling", layer: specs.LayerSource, sources: me, rules: append(c.denies, c.allows...)},
		{kind: specs.KindSource, name: c.source},
	}
	var keys [][2]string
	for k := range c.tools {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return strings.Compare(a[0]+"\x00"+a[1], b[0]+"\x00"+b[1]) })
	for _, k := range keys {
		docs = append(docs, document{kind: specs.KindTool, name: c.name(k[0], k[1]), source: specs.SourceName(c.source),
			tool: &standIn{upstream: k[1], description: fmt.Sprintf("The action %s on a %s.", k[1], k[0]), annotations: changingNotes}})
	}
	return docs
}

// escaped writes a kind or an action as a part of a tool's name; stars stay. A dot is an escape too, so that no kind is the
// beginning of another.
func (c *cerbosImport) escaped(s string) string {
	parts := strings.Split(s, "*")
	for i, p := range parts {
		if p != "" {
			name := strings.TrimPrefix(string(specs.ImportedName("k", p)), "k.")
			parts[i] = strings.ReplaceAll(name, ".", "--2E")
		}
	}
	return strings.Join(parts, "*")
}

// name gives the tool, or the selector of tools, of an action on a kind.
func (c *cerbosImport) name(kind, action string) string {
	if kind == "*" && action == "*" {
		return c.source + ".*"
	}
	return c.source + "." + c.escaped(kind) + "." + c.escaped(action)
}

// read takes the documents of a file apart.
func (c *cerbosImport) read(f specs.File) {
	if strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(f.Name, ".yaml"), ".yml"), "_test") {
		c.open(f.Name, f.Data)
		c.leftOut(specs.Pos{File: f.Name, Line: 1, Col: 1}, f.Name, "is a test suite", "")
		return
	}
	for _, root := range parseYAML(c.findings, f.Name, f.Data) {
		at := place(f.Name, root)
		if v := scalar(get(root, "apiVersion")); v != cerbosVersion {
			if strings.HasPrefix(v, "api.cerbos.dev/") {
				c.refuse(at, v, "is not a version that is read here", "")
				c.denies = append(c.denies, rule{name: "unknown-version", tools: []string{c.source + ".*"}, effect: specs.EffectDeny, from: at, text: v})
				continue
			}
			c.leftOut(at, f.Name, "is no Cerbos policy", "")
			continue
		}
		c.classify(f.Name, root)
	}
}

func (c *cerbosImport) classify(file string, root *yaml.Node) {
	at := place(file, root)
	if scalar(get(root, "disabled")) == "true" {
		c.leftOut(place(file, get(root, "disabled")), "disabled: true", "the policy is off", "")
		return
	}
	for _, kind := range []string{"resourcePolicy", "principalPolicy", "rolePolicy", "derivedRoles", "exportVariables", "exportConstants"} {
		body := get(root, kind)
		if body == nil {
			continue
		}
		p := cerbosPolicy{file: file, kind: kind, root: root, body: body}
		name := scalar(get(body, "name"))
		switch kind {
		case "derivedRoles":
			if _, twice := c.sets[name]; twice {
				c.fail(place(file, body), fmt.Sprintf("derived roles %q are defined twice", name), "")
			}
			c.sets[name] = p
		case "exportVariables":
			c.exports["variables/"+name] = pairs(get(body, "definitions"))
		case "exportConstants":
			c.exports["constants/"+name] = pairs(get(body, "definitions"))
		default:
			c.policies = append(c.policies, p)
		}
		return
	}
	c.refuse(at, "a Cerbos document", "is of no kind that is read here", "")
	c.denies = append(c.denies, rule{name: "unknown-document", tools: []string{c.source + ".*"}, effect: specs.EffectDeny, from: at, text: "a document of an unknown kind"})
}

func pairs(n *yaml.Node) map[string]*yaml.Node {
	out := map[string]*yaml.Node{}
	if n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			out[n.Content[i].Value] = n.Content[i+1]
		}
	}
	return out
}

// inherit finds whose permissions a role of a role policy has: those of its parents, narrowed.
func (c *cerbosImport) inherit() {
	for _, p := range c.policies {
		if p.kind != "rolePolicy" || scalar(get(p.body, "scope")) != "" {
			continue
		}
		parents, _ := scalars(get(p.body, "parentRoles"))
		for _, parent := range parents {
			c.heirs[parent] = append(c.heirs[parent], scalar(get(p.body, "role")))
		}
	}
}

// holds is the condition that a user has one of some roles, or one that inherits from it; "" for `*`.
func (c *cerbosImport) holds(roles []string) string {
	if slices.Contains(roles, "*") {
		return ""
	}
	roles = slices.Clone(roles)
	for i := 0; i < len(roles); i++ {
		for _, heir := range c.heirs[roles[i]] {
			if !slices.Contains(roles, heir) {
				roles = append(roles, heir)
			}
		}
	}
	texts := make([]string, len(roles))
	for i, r := range roles {
		texts[i] = celString(r)
	}
	if len(texts) == 1 {
		return texts[0] + " in user.roles"
	}
	return "sets.intersects(user.roles, [" + strings.Join(texts, ", ") + "])"
}

// chosen says whether a policy is of the version that holds for a request that names none.
func (c *cerbosImport) chosen(p cerbosPolicy, subject string) bool {
	version := func(q cerbosPolicy) string {
		if v := scalar(get(q.body, "version")); v != "" {
			return v
		}
		return "default"
	}
	mine, want := version(p), ""
	for _, q := range c.policies {
		if q.kind == p.kind && scalar(get(q.body, subjectKey[p.kind])) == subject {
			if v := version(q); want == "" || v == "default" || want != "default" && v < want {
				want = v
			}
		}
	}
	if mine != want {
		c.leftOut(place(p.file, get(p.body, "version")), "version: "+mine, "there are no versions here, and a request that names none gets "+want, "")
	} else if mine != "default" {
		c.note(place(p.file, get(p.body, "version")), "version: "+mine, "there are no versions here: it holds for every call", "")
	}
	return mine == want
}

var subjectKey = map[string]string{"resourcePolicy": "resource", "principalPolicy": "principal", "rolePolicy": "role"}
