package importer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/callgate/callgate/specs"
)

const cerbosHead = "apiVersion: api.cerbos.dev/v1\n"

func cerbos(t testing.TB, opts Options, docs ...string) *Imported {
	t.Helper()
	got, err := Cerbos(cerbosDocs(docs...), opts)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func cerbosDocs(docs ...string) []specs.File {
	var files []specs.File
	for i, d := range docs {
		files = append(files, specs.File{Name: fmt.Sprintf("p%d.yaml", i), Data: []byte(cerbosHead + d)})
	}
	return files
}

type cerbosCase struct {
	kind, action, who string
	roles             string
	principal         map[string]any
	resource          map[string]any
	want              bool
}

func checkCerbos(t *testing.T, got *Imported, cases ...cerbosCase) {
	t.Helper()
	p := compiled(t, got)
	for _, c := range cases {
		var roles []specs.Role
		for r := range strings.FieldsSeq(c.roles) {
			roles = append(roles, specs.Role(r))
		}
		d := p.Resolve(request(t, c.kind, c.action, c.who, roles, c.principal, "r1", c.resource))
		if refused(d) == c.want {
			t.Errorf("%s %s on %s as %q %v %v: allowed %v, want %v (%s)", c.who, c.action, c.kind, c.roles, c.principal, c.resource, !refused(d), c.want, d.Reason)
		}
	}
}

type m = map[string]any

// Who a rule is for, which actions, and that nothing else is allowed.
func TestCerbosDefaultDeny(t *testing.T) {
	t.Parallel()
	got := cerbos(t, Options{}, `
resourcePolicy:
  resource: album
  version: default
  rules:
    - {actions: [view, "comment:*"], effect: EFFECT_ALLOW, roles: [user, guest]}
    - {actions: ["*"], effect: EFFECT_ALLOW, roles: [admin]}
    - {actions: [share], effect: EFFECT_ALLOW, roles: ["*"]}
    - {actions: ["comment:add", "comment:add:late", delete], effect: EFFECT_DENY, roles: [suspended]}
`, `
resourcePolicy:
  resource: album.raw
  version: default
  rules: [{actions: [view], effect: EFFECT_ALLOW, roles: [auditor]}]
`)
	checkCerbos(t, got,
		cerbosCase{"album", "view", "ann", "user", nil, nil, true},
		cerbosCase{"album", "view", "ann", "guest", nil, nil, true},
		cerbosCase{"album", "view", "ann", "", nil, nil, false},
		cerbosCase{"album", "comment:add", "ann", "user", nil, nil, true},
		cerbosCase{"album", "comment:add:late", "ann", "user", nil, nil, false}, // a star stops at a colon
		cerbosCase{"album", "delete", "ann", "user", nil, nil, false},
		cerbosCase{"album", "delete", "bob", "admin", nil, nil, true},
		cerbosCase{"album", "share", "eve", "", nil, nil, true},
		cerbosCase{"album", "comment:add", "ann", "user suspended", nil, nil, false},
		cerbosCase{"album.raw", "view", "bob", "admin", nil, nil, false}, // no kind is the beginning of another
		cerbosCase{"album.raw", "view", "ada", "auditor", nil, nil, true},
	)
}

// The three trees, with what is missing: an allow does not hold, a deny does.
func TestCerbosConditions(t *testing.T) {
	t.Parallel()
	rule := func(action, effect, match string) string {
		return fmt.Sprintf("    - actions: [%s]\n      effect: %s\n      roles: [user]\n      condition: {match: %s}\n", action, effect, match)
	}
	got := cerbos(t, Options{}, `
resourcePolicy:
  resource: doc
  version: default
  variables:
    local: {mine: R.attr.owner == P.id, limit_ok: 'R.attr.size < C.limit', both: V.mine && V.limit_ok}
  constants:
    local: {limit: 100, teams: [red, blue], kinds: {a: {deep: yes-it-is}}}
  rules:
    - {actions: [deny, deny2], effect: EFFECT_ALLOW, roles: [user]}
`+
		rule("all", "EFFECT_ALLOW", "{all: {of: [{expr: R.attr.a == 1}, {expr: R.attr.b == 2}]}}")+
		rule("any", "EFFECT_ALLOW", "{any: {of: [{expr: R.attr.a == 1}, {expr: R.attr.b == 2}]}}")+
		rule("none", "EFFECT_ALLOW", "{none: {of: [{expr: R.attr.a == 1}, {expr: R.attr.b == 2}]}}")+
		rule("vars", "EFFECT_ALLOW", "{expr: V.both}")+
		rule("list", "EFFECT_ALLOW", "{expr: P.attr.team in C.teams}")+
		rule("deep", "EFFECT_ALLOW", "{expr: 'constants.kinds.a.deep == request.resource.attr.x'}")+
		rule("flag", "EFFECT_ALLOW", "{expr: request.principal.attr.lead == true}")+
		rule("other", "EFFECT_ALLOW", "{expr: P.attr.team != \"red\"}")+
		rule("kind", "EFFECT_ALLOW", "{expr: R.kind == \"doc\" && R.id == \"r1\"}")+
		rule("net", "EFFECT_ALLOW", "{expr: P.attr.ip.inIPAddrRange(\"10.0.0.0/8\")}")+
		rule("time", "EFFECT_ALLOW", "{expr: now() > timestamp(\"1990-01-01T00:00:00Z\")}")+
		rule("has", "EFFECT_ALLOW", "{expr: has(R.attr.a) && has(P.attr.team)}")+
		rule("comment", "EFFECT_ALLOW", "{all: {of: [{expr: \"R.attr.a == 1 // one\"}, {expr: R.attr.b == 2}]}}")+
		rule("deny", "EFFECT_DENY", "{expr: R.attr.a == 1}")+
		rule("deny2", "EFFECT_DENY", "{none: {of: [{expr: P.attr.team != \"red\"}]}}"))
	user := func(action string, principal, resource m, want bool) cerbosCase {
		return cerbosCase{"doc", action, "ann", "user", principal, resource, want}
	}
	checkCerbos(t, got,
		user("all", nil, m{"a": 1, "b": 2}, true), user("all", nil, m{"a": 1, "b": 3}, false), user("all", nil, m{"a": 1}, false),
		user("any", nil, m{"a": 1}, true), user("any", nil, m{"b": 2}, true), user("any", nil, m{"a": 2}, false),
		user("none", nil, m{"a": 2, "b": 1}, true), user("none", nil, m{"a": 1, "b": 1}, false), user("none", nil, m{"a": 2}, false),
		user("vars", nil, m{"owner": "ann", "size": 5}, true), user("vars", nil, m{"owner": "ann", "size": 500}, false), user("vars", nil, m{"owner": "bob", "size": 5}, false),
		user("list", m{"team": "red"}, nil, true), user("list", m{"team": "green"}, nil, false), user("list", nil, nil, false),
		user("deep", nil, m{"x": "yes-it-is"}, true),
		user("flag", m{"lead": true}, nil, true), user("flag", m{"lead": false}, nil, false), user("flag", nil, nil, false),
		user("other", m{"team": "blue"}, nil, true), user("other", m{"team": "red"}, nil, false), user("other", nil, nil, false),
		user("kind", nil, nil, true), user("time", nil, nil, false), // no time is given, and none is made up
		user("net", m{"ip": "10.1.2.3"}, nil, true), user("net", m{"ip": "11.1.2.3"}, nil, false), user("net", m{"ip": "x"}, nil, false),
		user("has", m{"team": "x"}, m{"a": 0}, true), user("has", nil, m{"a": 0}, false),
		user("comment", nil, m{"a": 1, "b": 2}, true), user("comment", nil, m{"a": 1, "b": 3}, false),
		user("deny", nil, m{"a": 1}, false), user("deny", nil, m{"a": 2}, true), user("deny", nil, nil, false),
		user("deny2", m{"team": "red"}, nil, false), user("deny2", m{"team": "blue"}, nil, true), user("deny2", nil, nil, false),
	)
}

func TestCerbosDerivedRoles(t *testing.T) {
	t.Parallel()
	got := cerbos(t, Options{}, `
derivedRoles:
  name: common
  variables: {local: {mine: R.attr.owner == P.id}}
  definitions:
    - {name: owner, parentRoles: [user], condition: {match: {expr: V.mine}}}
    - {name: anyone, parentRoles: ["*"]}
    - {name: odd, parentRoles: [user], condition: {match: {expr: P.attr.n > 3}}}
`, `
resourcePolicy:
  resource: doc
  version: default
  importDerivedRoles: [common]
  rules:
    - {actions: [edit, lock], effect: EFFECT_ALLOW, derivedRoles: [owner], roles: [admin]}
    - {actions: [view, mark], effect: EFFECT_ALLOW, derivedRoles: [anyone]}
    - {actions: [run], effect: EFFECT_ALLOW, derivedRoles: [odd, unknown]}
    - {actions: [lock], effect: EFFECT_DENY, derivedRoles: [owner]}
    - {actions: [mark], effect: EFFECT_DENY, derivedRoles: [odd]}
`)
	checkCerbos(t, got,
		cerbosCase{"doc", "edit", "ann", "user", nil, m{"owner": "ann"}, true},
		cerbosCase{"doc", "edit", "ann", "user", nil, m{"owner": "bob"}, false},
		cerbosCase{"doc", "edit", "ann", "guest", nil, m{"owner": "ann"}, false},
		cerbosCase{"doc", "edit", "bob", "admin", nil, nil, true},
		cerbosCase{"doc", "view", "eve", "", nil, nil, true},
		cerbosCase{"doc", "lock", "ann", "user", nil, m{"owner": "ann"}, false},
		cerbosCase{"doc", "lock", "bob", "admin", nil, m{"owner": "ann"}, true},
		// A condition that cannot be written here allows nothing and denies whoever could have the role.
		cerbosCase{"doc", "run", "ann", "user", m{"n": "5"}, nil, false},
		cerbosCase{"doc", "mark", "ann", "user", m{"n": "1"}, nil, false},
		cerbosCase{"doc", "mark", "eve", "guest", nil, nil, true},
	)
}

// What a principal policy says comes before what resource policies say.
func TestCerbosPrincipalPolicies(t *testing.T) {
	t.Parallel()
	got := cerbos(t, Options{}, `
resourcePolicy:
  resource: doc
  version: default
  rules:
    - {actions: [view, edit], effect: EFFECT_ALLOW, roles: [user]}
    - {actions: [purge], effect: EFFECT_DENY, roles: ["*"]}
    - {actions: ["*"], effect: EFFECT_DENY, roles: [suspended]}
`, `
principalPolicy:
  principal: root
  version: default
  rules:
    - resource: doc
      actions:
        - {action: purge, effect: EFFECT_ALLOW, condition: {match: {expr: R.attr.dev == true}}}
        - {action: edit, effect: EFFECT_DENY}
    - resource: "*"
      actions: [{action: view, effect: EFFECT_ALLOW}]
`)
	checkCerbos(t, got,
		cerbosCase{"doc", "purge", "ann", "user", nil, m{"dev": true}, false},
		cerbosCase{"doc", "purge", "root", "", nil, m{"dev": true}, true},
		cerbosCase{"doc", "purge", "root", "", nil, m{"dev": false}, false},
		cerbosCase{"doc", "purge", "root", "", nil, nil, false},
		cerbosCase{"doc", "edit", "root", "user", nil, nil, false},
		cerbosCase{"doc", "view", "root", "", nil, nil, true},
		cerbosCase{"doc", "view", "root", "suspended", nil, nil, true},
		cerbosCase{"doc", "view", "ann", "user suspended", nil, nil, false},
	)
}

// A role policy is a ceiling over its role: its parents' permissions, as far as it lists them.
func TestCerbosRolePolicies(t *testing.T) {
	t.Parallel()
	got := cerbos(t, Options{}, `
resourcePolicy:
  resource: relic
  version: default
  rules: [{actions: [view, edit, move], effect: EFFECT_ALLOW, roles: [member]}]
`, `
resourcePolicy:
  resource: record
  version: default
  rules: [{actions: [view], effect: EFFECT_ALLOW, roles: [member]}]
`, `
rolePolicy:
  role: specialist
  parentRoles: [member]
  rules:
    - {resource: relic, allowActions: [view, burn]}
    - {resource: relic, allowActions: [move], condition: {match: {expr: R.attr.small == true}}}
`, `
rolePolicy:
  role: robot
  rules: [{resource: record, allowActions: [view]}]
`)
	checkCerbos(t, got,
		cerbosCase{"relic", "edit", "ann", "member", nil, nil, true},
		cerbosCase{"relic", "view", "bob", "specialist", nil, nil, true},
		cerbosCase{"relic", "edit", "bob", "specialist", nil, nil, false},
		cerbosCase{"relic", "burn", "bob", "specialist", nil, nil, false}, // its parent has not got it
		cerbosCase{"relic", "move", "bob", "specialist", nil, m{"small": true}, true},
		cerbosCase{"relic", "move", "bob", "specialist", nil, m{"small": false}, false},
		cerbosCase{"record", "view", "bob", "specialist", nil, nil, false},
		cerbosCase{"record", "view", "r2", "robot", nil, nil, true},
		cerbosCase{"relic", "view", "r2", "robot", nil, nil, false},
	)
}

// Scopes and versions are not known here: what is left out could only allow.
func TestCerbosScopesAndVersions(t *testing.T) {
	t.Parallel()
	got := cerbos(t, Options{}, `
resourcePolicy:
  resource: doc
  version: default
  rules: [{actions: [view, edit], effect: EFFECT_ALLOW, roles: [user]}]
`, `
resourcePolicy:
  resource: doc
  version: default
  scope: acme
  rules:
    - {actions: [edit], effect: EFFECT_DENY, roles: [user]}
    - {actions: [share], effect: EFFECT_ALLOW, roles: [user]}
`, `
resourcePolicy:
  resource: doc
  version: staging
  rules: [{actions: [purge], effect: EFFECT_ALLOW, roles: [user]}]
`, `
disabled: true
resourcePolicy:
  resource: other
  version: default
  rules: [{actions: [view], effect: EFFECT_ALLOW, roles: ["*"]}]
`)
	checkCerbos(t, got,
		cerbosCase{"doc", "view", "ann", "user", nil, nil, true},
		cerbosCase{"doc", "edit", "ann", "user", nil, nil, false},
		cerbosCase{"doc", "share", "ann", "user", nil, nil, false},
		cerbosCase{"doc", "purge", "ann", "user", nil, nil, false},
		cerbosCase{"other", "view", "ann", "user", nil, nil, false},
	)
	text := got.Remarks.Text()
	for _, want := range []string{
		"p1.yaml:6:10: warning: stricter: scope: acme", "p1.yaml:9:7: warning: left out: ALLOW share on doc: it is of a scope",
		"p2.yaml:5:12: warning: left out: version: staging", "p3.yaml:3:11: warning: left out: disabled: true",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no remark %q in\n%s", want, text)
		}
	}
}

// What could deny and is not understood is refused, or denies at least as much.
func TestCerbosRefuses(t *testing.T) {
	t.Parallel()
	const ok = "\nresourcePolicy:\n  resource: doc\n  version: default\n  rules: [{actions: [view], effect: EFFECT_ALLOW, roles: [user]}]\n"
	for _, c := range []struct{ doc, want string }{
		{"resourcePolicy: {resource: doc, version: default, rules: [{actions: [edit], effect: EFFECT_PERHAPS, roles: [user]}]}", "p1.yaml:2:59: refused: a rule on doc"},
		{"resourcePolicy: {resource: doc, version: default, rules: [{actions: [edit], effect: EFFECT_ALLOW, roles: [user], unless: x}]}", "refused: a rule on doc"},
		{"resourcePolicy: {resource: doc, version: default, rules: [{actions: [edit], effect: EFFECT_DENY}]}", "refused: a rule on doc"},
		{"resourcePolicy: {resource: doc, version: default, scope: a, scopePermissions: SCOPE_PERMISSIONS_REQUIRE_PARENTAL_CONSENT_FOR_ALLOWS, rules: []}", "refused: SCOPE_PERMISSIONS_REQUIRE"},
		{"principalPolicy: {principal: ann, version: default, rules: [{resource: doc, actions: [{action: view, effect: x}]}]}", "refused: an action for ann"},
		{"newPolicy: {}", "refused: a Cerbos document"},
	} {
		_, err := Cerbos(cerbosDocs(ok, c.doc), Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.doc, err, c.want)
		}
		checkCerbos(t, cerbos(t, Options{SkipInvalid: true}, ok, c.doc), cerbosCase{"doc", "view", "ann", "user", nil, nil, false})
	}
	for _, doc := range []string{"resourcePolicy: &a {resource: *a}", "a: 1\na: 2", "- [", "x: y", ""} {
		if _, err := Cerbos(cerbosDocs(doc), Options{}); err == nil {
			t.Errorf("%q was imported", doc)
		}
	}
}

// A foreign expression that names one of our own variables, or binds one of Cerbos' names, means something else by it.
func TestCerbosNamesAreNotMixedUp(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{
		`user.id == "ann"`, `args.a == 1`, `tool.name == "x"`, `[1].exists(P, P == 1)`, `[1].exists(R, R == 1)`, `R == P`, `request == 1`, `V.nothing`, `C.nothing`, `G.x == 1`,
		`request.aux_data.jwt.aud == "x"`, `"x" in runtime.effectiveDerivedRoles`, `R.attr == {}`, `P.attr.a.b == "x"`, `P.attr["a\"b"] == "x"`, `has(V.x)`, `"unfinished`, `1 +`, `foo()`,
	} {
		got, err := Cerbos(cerbosDocs("resourcePolicy:\n  resource: doc\n  version: default\n  rules:\n    - actions: [view]\n      effect: EFFECT_ALLOW\n      roles: [user]\n      condition:\n        match:\n          expr: |-\n            "+expr+"\n"), Options{})
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		if !strings.Contains(got.Remarks.Text(), "left out: ALLOW view on doc") {
			t.Errorf("%s was carried over:\n%s", expr, got.YAML)
		}
	}
	// Inside a text a name is no name.
	got := cerbos(t, Options{}, "resourcePolicy:\n  resource: doc\n  version: default\n  rules:\n    - actions: [view]\n      effect: EFFECT_ALLOW\n      roles: ['*']\n      condition: {match: {expr: 'R.attr.a == \"P.id\" && [1, 2].exists(x, x == 2) && R.attr[\"b\"] == r\"V.x\"'}}\n")
	checkCerbos(t, got, cerbosCase{"doc", "view", "ann", "", nil, m{"a": "P.id", "b": "V.x"}, true})
}

func FuzzCerbos(f *testing.F) {
	f.Add([]byte(cerbosHead + "variables: {a: P.attr.x == true}\nresourcePolicy:\n  resource: doc\n  version: default\n  rules:\n    - {actions: [\"a:*\"], effect: EFFECT_DENY, roles: [u], condition: {match: {none: {of: [{expr: V.a}, {expr: 'R.attr.b[0]'}]}}}}\n"))
	f.Add([]byte(cerbosHead + "principalPolicy:\n  principal: \"x y\"\n  rules: [{resource: \"*\", actions: [{action: \"*\", effect: EFFECT_ALLOW}]}]\n---\n" + cerbosHead + "rolePolicy: {role: r, parentRoles: [r], rules: [{resource: d, allowActions: [x]}]}\n"))
	f.Add([]byte(cerbosHead + "resourcePolicy: {resource: d, constants: {local: {c: [1, .inf, {a: b}]}}, rules: [{actions: [e], effect: EFFECT_ALLOW, roles: [r], condition: {match: {expr: C.c}}}]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, skip := range []bool{false, true} {
			got, err := Cerbos([]specs.File{{Name: "f.yaml", Data: data}}, Options{SkipInvalid: skip})
			loadsOrRefuses(t, got, err)
		}
	})
}
