package importer

import (
	"fmt"
	"strings"
)

// celToken is a piece of CEL text. White space and comments are tokens too, so that a rewritten text keeps its shape.
type celToken struct {
	kind byte // 'i' name, 's' string, 'n' number, 'o' operator, ' ' space or comment
	text string
}

// celTokens cuts CEL into tokens; what is none is an operator of one character, which the compiler will refuse.
func celTokens(s string) ([]celToken, error) {
	var out []celToken
	for i := 0; i < len(s); {
		n, kind := 1, byte('o')
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f':
			kind = ' '
		case strings.HasPrefix(s[i:], "//"):
			kind = ' '
			if n = strings.IndexByte(s[i:], '\n'); n < 0 {
				n = len(s) - i
			}
		case stringStart(s[i:]) >= 0:
			kind = 's'
			if n = stringEnd(s[i:]); n < 0 {
				return nil, fmt.Errorf("a text in it does not end")
			}
		case isNameStart(c):
			kind = 'i'
			for i+n < len(s) && (isNameStart(s[i+n]) || s[i+n] >= '0' && s[i+n] <= '9') {
				n++
			}
		case c >= '0' && c <= '9':
			kind = 'n'
			for i+n < len(s) && (isNameStart(s[i+n]) || s[i+n] >= '0' && s[i+n] <= '9' || s[i+n] == '.') {
				n++
			}
		case strings.HasPrefix(s[i:], "==") || strings.HasPrefix(s[i:], "!=") || strings.HasPrefix(s[i:], "<=") || strings.HasPrefix(s[i:], ">=") ||
			strings.HasPrefix(s[i:], "&&") || strings.HasPrefix(s[i:], "||"):
			n = 2
		}
		out = append(out, celToken{kind, s[i : i+n]})
		i += n
	}
	return out, nil
}

func isNameStart(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// stringStart gives the length of a string's prefix (r, b), or -1.
func stringStart(s string) int {
	for n := 0; n < 3 && n < len(s); n++ {
		if s[n] == '"' || s[n] == '\'' {
			return n
		}
		if !strings.ContainsRune("rRbB", rune(s[n])) {
			return -1
		}
	}
	return -1
}

func stringEnd(s string) int {
	from := stringStart(s)
	raw := strings.ContainsAny(s[:from], "rR")
	quote := s[from : from+1]
	if long := strings.Repeat(quote, 3); strings.HasPrefix(s[from:], long) {
		quote = long
	}
	for i := from + len(quote); i < len(s); i++ {
		switch {
		case s[i] == '\\' && !raw:
			i++
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote)
		case s[i] == '\n' && len(quote) == 1:
			return -1
		}
	}
	return -1
}

// celUse is a chain of names, a.b["c"], and what stands around it.
type celUse struct {
	path   []string
	has    bool   // has(a.b)
	method string // a.b.method(...)
	equals string // "true" or "false": a.b == true
}

// ownNames are the variables of our own expressions. A foreign text that names one means something else by it.
var ownNames = map[string]bool{"tool": true, "args": true, "run": true, "user": true, "tenant": true, "budget": true, "call": true}

// rewriteCEL replaces each chain of names that starts at a variable by what resolve says. A name that resolve does not know
// (ok false) stays; whether it is bound, the compiler says.
func rewriteCEL(text string, resolve func(celUse) (out string, ok bool, err error)) (string, error) {
	toks, err := celTokens(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	before := [2]string{} // the last two tokens that are not space
	for i := 0; i < len(toks); {
		t := toks[i]
		if t.kind != 'i' || before[1] == "." || t.text == "true" || t.text == "false" || t.text == "null" || t.text == "in" {
			b.WriteString(t.text)
			if t.kind != ' ' {
				before = [2]string{before[1], t.text}
			}
			i++
			continue
		}
		use, end := chainAt(toks, i)
		if len(use.path) == 0 { // a function
			b.WriteString(t.text)
			before = [2]string{before[1], t.text}
			i++
			continue
		}
		use.has = before == [2]string{"has", "("} && at(toks, end) == ")"
		eq := space(toks, end)
		if op := at(toks, eq); op == "==" || op == "!=" {
			if v := at(toks, eq+1); v == "true" || v == "false" {
				use.equals = v
			}
		}
		out, ok, err := resolve(use)
		switch {
		case err != nil:
			return "", err
		case !ok && ownNames[use.path[0]]:
			return "", fmt.Errorf("%s means something else here", use.path[0])
		case !ok:
			for ; i < end; i++ {
				b.WriteString(toks[i].text)
			}
			before = [2]string{"", use.path[0]}
			continue
		}
		i = end
		if use.method == "inIPAddrRange" {
			if cidr, next, ok := oneText(toks, end); ok {
				out, i = "cidr("+cidr+").containsIP("+out+")", next
			} else {
				return "", fmt.Errorf("inIPAddrRange needs a text here")
			}
		}
		b.WriteString(out)
		if use.equals != "" && strings.HasPrefix(out, labelPrefix) { // labels are texts
			fmt.Fprintf(&b, " %s %q", at(toks, eq), use.equals)
			i = space(toks, eq+1) + 1
		}
		before = [2]string{"", ")"}
	}
	return b.String(), nil
}

// chainAt reads a.b["c"] from a name on; it gives the index behind it. A name before "(" is a function or a method.
func chainAt(toks []celToken, i int) (celUse, int) {
	if at(toks, i+1) == "(" {
		return celUse{}, i
	}
	u, end := celUse{path: []string{toks[i].text}}, i+1
	for {
		dot := space(toks, end)
		switch at(toks, dot) {
		case ".":
			name := space(toks, dot+1)
			if name >= len(toks) || toks[name].kind != 'i' {
				return u, end
			}
			if at(toks, name+1) == "(" {
				if toks[name].text == "inIPAddrRange" {
					u.method, end = toks[name].text, name+1
				}
				return u, end
			}
			u.path, end = append(u.path, toks[name].text), name+1
		case "[":
			key := space(toks, dot+1)
			if key >= len(toks) || toks[key].kind != 's' || at(toks, key+1) != "]" {
				return u, end
			}
			plain := strings.Trim(toks[key].text, `"'`)
			if strings.ContainsAny(plain, "\\\"'\n") || len(plain)+2 != len(toks[key].text) {
				return u, end
			}
			u.path, end = append(u.path, plain), space(toks, key+1)+1
		default:
			return u, end
		}
	}
}

// oneText reads ("text") and gives the index behind it.
func oneText(toks []celToken, i int) (string, int, bool) {
	open := space(toks, i)
	text := space(toks, open+1)
	if at(toks, open) != "(" || text >= len(toks) || toks[text].kind != 's' || at(toks, text+1) != ")" {
		return "", i, false
	}
	return toks[text].text, space(toks, text+1) + 1, true
}

// space gives the index of the first token from i on that is not space; at, its text.
func space(toks []celToken, i int) int {
	for i < len(toks) && toks[i].kind == ' ' {
		i++
	}
	return i
}

func at(toks []celToken, i int) string {
	if i = space(toks, i); i < len(toks) {
		return toks[i].text
	}
	return ""
}

// labelPrefix starts every expression that reads a label.
const labelPrefix = "user.labels[?"

// label reads a label of whoever started the run. One that is not there is an error, as in the engines that rules come from,
// so that the rule goes to the strict side: the empty text that such a label reads as otherwise would satisfy a `!=`.
func label(name string, has bool) (string, error) {
	if !has {
		return labelPrefix + celString(name) + "].value()", nil
	}
	if out := selectCEL("user.labels", []string{name}); !strings.HasSuffix(out, "]") {
		return out, nil
	}
	return "", fmt.Errorf("has() of the label %q cannot be written", name)
}

// selectCEL writes base.a.b, with indexes where a name cannot stand behind a dot.
func selectCEL(base string, path []string) string {
	for _, p := range path {
		if p != "" && isNameStart(p[0]) && strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && p != "in" && p != "true" && p != "false" && p != "null" {
			base += "." + p
		} else {
			base += "[" + celString(p) + "]"
		}
	}
	return base
}
