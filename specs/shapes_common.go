package specs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// The forms that several kinds share.

func globs() shape[[]Text] { return listOf(patternText(globRule)) }

// toolGlobs are globs over tools, where a source kind may come first: mcp:github.*
func toolGlobs() shape[[]Text] {
	return listOf(patternText(globRule).then(func(r *reader, n *yaml.Node, v *Text) {
		if err := checkToolGlob(v.Value); err != "" {
			prefix, _, _ := strings.Cut(v.Value, ":")
			r.fail(n, "bad-selector", err, didYouMean(prefix, sourceKinds, "a tool selector is NAME, GLOB, or one of "+joinWords(sourceKinds)+" before a colon"))
		}
	}))
}

var (
	labels    = mapOf(keyRule, word[string]())
	roles     = listOf(pattern[Role](docNameRule))
	artifacts = listOf(object(func(a *Artifact) *Pos { return &a.Pos },
		key("id", "Name of the artifact.", func(a *Artifact) *string { return &a.ID }, pattern[string](docNameRule)).must(),
		key("path", "Workspace path of the file.", func(a *Artifact) *string { return &a.Path }, word[string]()).must(),
		key("target", "Where the host puts it: messageBody, or none (default).", func(a *Artifact) *string { return &a.Target }, oneOf("messageBody", "none")),
		key("required", "Whether the run must leave it behind.", func(a *Artifact) *bool { return &a.Required }, flag(false)),
	))
)

// intValue is a whole number or CEL that yields one.
func intValue() shape[IntValue] {
	number := whole[int64](0, 1<<62)
	cel := expression("a whole number or an expression")
	return shape[IntValue]{
		read: func(r *reader, n *yaml.Node, v *IntValue) bool {
			*v = IntValue{Pos: r.pos(n)}
			if isPlain(n) && resolvePlain(n.Value) == scalarInt {
				v.Set = number.read(r, n, &v.Const)
				return v.Set
			}
			if isPlain(n) && resolvePlain(n.Value) == scalarBool {
				return r.wrongType(n, "a whole number or an expression", "")
			}
			v.Set = cel.read(r, n, &v.Expr)
			return v.Set
		},
		write: func(v *IntValue) any {
			switch {
			case !v.Set:
				return nil
			case !v.Expr.IsZero():
				return v.Expr.Value
			}
			return v.Const
		},
		schema: func() map[string]any {
			return map[string]any{"anyOf": []any{number.schema(), map[string]any{"type": "string"}}}
		},
	}
}

// durationValue is a duration or CEL that yields one. A text that starts with a digit is meant as a constant.
func durationValue() shape[DurationValue] {
	return shape[DurationValue]{
		read: func(r *reader, n *yaml.Node, v *DurationValue) bool {
			s, ok := r.readDuration(n, `a duration such as "10s", or an expression`)
			if !ok {
				return false
			}
			*v = DurationValue{Pos: r.pos(n)}
			if d, err := ParseDuration(s); err == nil {
				v.Set, v.Const = true, int64(d)
				return true
			}
			if s == "" || s[0] >= '0' && s[0] <= '9' && !strings.ContainsAny(s, "(?") || s[0] == '-' || s[0] == '+' {
				r.fail(n, "bad-duration", quoted(s)+" is not a duration", durationHint)
				return false
			}
			v.Set, v.Expr = true, Text{Value: s, Pos: r.pos(n), places: mapText(r.src, n)}
			return true
		},
		write: func(v *DurationValue) any {
			switch {
			case !v.Set:
				return nil
			case !v.Expr.IsZero():
				return v.Expr.Value
			}
			return time.Duration(v.Const).String()
		},
		schema: func() map[string]any { return map[string]any{"type": "string"} },
	}
}

var budgetShape = object(func(b *Budget) *Pos { return &b.Pos },
	key("maxCalls", "How many calls; 0 means none. A number, or CEL of type int.", func(b *Budget) *IntValue { return &b.MaxCalls }, intValue()),
	key("maxOutputTokens", "How many tokens of results. A number, or CEL of type int.", func(b *Budget) *IntValue { return &b.MaxOutputTokens }, intValue()),
	key("maxCost", "How much money, in the tenant's smallest unit. A number, or CEL of type int.", func(b *Budget) *IntValue { return &b.MaxCost }, intValue()),
	key("timeout", `How long one call may take: "10s", or CEL of type duration.`, func(b *Budget) *DurationValue { return &b.Timeout }, durationValue()),
	key("per", "The span over which the budget counts; default run. Days are UTC.", func(b *Budget) *Per { return &b.Per },
		oneOf(PerRun, PerInvocation, PerTurn, PerUserDay, PerTenantDay)),
).then(func(_ *reader, _ *yaml.Node, b *Budget) {
	if b.Per == "" {
		b.Per = PerRun
	}
})

var approvalShape = object(func(a *Approval) *Pos { return &a.Pos },
	key("approvers", "Who may decide.", func(a *Approval) *Approvers { return &a.Approvers }, object(nil,
		key("roles", "Anybody with one of these roles.", func(a *Approvers) *[]Role { return &a.Roles }, roles),
		key("users", "These people.", func(a *Approvers) *[]UserID { return &a.Users }, listOf(pattern[UserID](keyRule))),
	).then(func(r *reader, n *yaml.Node, a *Approvers) {
		wrong := slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return r.bad[c] }) // one mistake is enough
		if len(a.Roles) == 0 && len(a.Users) == 0 && !wrong {
			r.fail(n, "no-approvers", "nobody could approve this", "name at least one role or user")
		}
	})).must(),
	key("quorum", "How many different approvers must agree; default 1.", func(a *Approval) *int { return &a.Quorum }, whole[int](1, 100)),
	key("notRequester", "Whoever started the run cannot approve.", func(a *Approval) *bool { return &a.NotRequester }, flag(false)),
	key("ttl", "How long the question stands; default 15m.", func(a *Approval) *time.Duration { return &a.TTL }, duration(1)),
	key("onExpire", "What happens when nobody answers in time: reject (default) or park.", func(a *Approval) *OnExpire { return &a.OnExpire }, oneOf(OnExpireReject, OnExpirePark)),
	key("grantable", "Whether a remembered grant may answer; default true, but false for destructive tools and rollback.", func(a *Approval) **bool { return &a.Grantable }, optional(flag(true))),
).then(func(r *reader, n *yaml.Node, a *Approval) {
	fillApproval(a)
	if named := len(a.Approvers.Users); len(a.Approvers.Roles) == 0 && named > 0 && a.Quorum > named {
		r.fail(n, "quorum-too-high", fmt.Sprintf("a quorum of %d can never be met by %d named people", a.Quorum, named), "lower quorum or name more approvers")
	}
})

// fillApproval puts the documented defaults where the author was silent.
func fillApproval(a *Approval) {
	if a.Quorum == 0 {
		a.Quorum = 1
	}
	if a.TTL == 0 {
		a.TTL = DefaultApprovalTTL
	}
	if a.OnExpire == "" {
		a.OnExpire = OnExpireReject
	}
}

// pointerTo reads a shape into a pointer field; nil stays "absent".
func pointerTo[V any](s shape[V]) shape[*V] {
	return shape[*V]{
		read: func(r *reader, n *yaml.Node, v **V) bool {
			var one V
			ok := s.read(r, n, &one)
			if ok {
				*v = &one
			}
			return ok
		},
		write: func(v **V) any {
			if *v == nil {
				return nil
			}
			return s.write(*v)
		},
		schema: s.schema,
	}
}

var profileToolsShape = object(func(t *ProfileTools) *Pos { return &t.Pos },
	key("allow", "Globs over the tools this profile grants. Absent and [] both grant nothing.", func(t *ProfileTools) **[]Text { return &t.Allow }, optional(toolGlobs())),
	key("deny", "Globs over tools this profile never has.", func(t *ProfileTools) *[]Text { return &t.Deny }, toolGlobs()),
	key("describe", "Descriptions that replace the tools' own, by tool name.", func(t *ProfileTools) *map[string]Text { return &t.Describe }, mapOf(toolNameRule, filled(text()))),
	key("parameters", "Descriptions that replace those of parameters, by tool and parameter name.", func(t *ProfileTools) *map[string]map[string]Text { return &t.Parameters },
		mapOf(toolNameRule, mapOf(keyRule, filled(text())))),
)

// jsonValue keeps a YAML value as JSON, with the place of everything in it.
func jsonValue(what string, objectOnly bool) shape[Schema] {
	return shape[Schema]{
		read: func(r *reader, n *yaml.Node, v *Schema) bool {
			if objectOnly && n.Kind != yaml.MappingNode {
				return r.wrongType(n, what, "")
			}
			w := &jsonWriter{r: r, places: map[string]Pos{}}
			w.value(n, "")
			if w.failed {
				return false
			}
			*v = Schema{Raw: w.out, Pos: r.pos(n), KeyPos: w.places}
			return true
		},
		write: func(v *Schema) any {
			if v.IsZero() {
				return nil
			}
			return json.RawMessage(v.Raw)
		},
		schema: func() map[string]any {
			if objectOnly {
				return map[string]any{"type": "object"}
			}
			return map[string]any{}
		},
	}
}

// jsonWriter turns YAML nodes into JSON text, in the author's order and with numbers exact.
type jsonWriter struct {
	r      *reader
	out    []byte
	places map[string]Pos
	failed bool
}

func (w *jsonWriter) value(n *yaml.Node, at string) {
	w.places[at] = w.r.pos(n)
	if w.r.bad[n] {
		w.failed = true
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		w.out = append(w.out, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if w.r.bad[k] {
				w.failed = true
				continue
			}
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.out = appendJSONString(w.out, k.Value)
			w.out = append(w.out, ':')
			w.value(n.Content[i+1], at+"/"+pointerEscape(k.Value))
		}
		w.out = append(w.out, '}')
	case yaml.SequenceNode:
		w.out = append(w.out, '[')
		for i, c := range n.Content {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.value(c, fmt.Sprintf("%s/%d", at, i))
		}
		w.out = append(w.out, ']')
	case yaml.ScalarNode:
		w.scalar(n)
	}
}

func (w *jsonWriter) scalar(n *yaml.Node) {
	if !isPlain(n) {
		w.out = appendJSONString(w.out, n.Value)
		return
	}
	switch resolvePlain(n.Value) {
	case scalarNull:
		w.out = append(w.out, "null"...)
	case scalarBool:
		w.out = append(w.out, strings.ToLower(n.Value)...)
	case scalarInt:
		i, _ := parsePlainInt(n.Value)
		w.out = fmt.Appendf(w.out, "%d", i)
	case scalarFloat:
		num := jsonNumber(n.Value)
		if err := CheckJSON([]byte(num), JSONLimits{}); err != nil {
			w.r.fail(n, "number-range", fmt.Sprintf("%s is too large or too long a number", n.Value), "quote it if it is a text")
			w.failed = true
			return
		}
		w.out = append(w.out, num...)
	default:
		w.out = appendJSONString(w.out, n.Value)
	}
}

// jsonNumber rewrites what YAML allows and JSON does not: +1, .5, 1., 007.5
func jsonNumber(s string) string {
	sign := ""
	if s[0] == '-' || s[0] == '+' {
		if s[0] == '-' {
			sign = "-"
		}
		s = s[1:]
	}
	mantissa, exp := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exp = s[:i], s[i:]
	}
	whole, frac, _ := strings.Cut(mantissa, ".")
	whole = strings.TrimLeft(whole, "0")
	if whole == "" {
		whole = "0"
	}
	if frac != "" {
		frac = "." + frac
	}
	return sign + whole + frac + exp
}

func pointerEscape(s string) string {
	if !strings.ContainsAny(s, "~/") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}
