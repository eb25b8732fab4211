package specs

import (
	"strings"
	"time"
)

// nameRule says which texts are good names, for the reader and for the JSON Schema alike.
type nameRule struct {
	what, hint, pattern string
	ok                  func(string) bool
}

const nameChars = "letters, digits, '_', '.' and '-', at most 128"

var (
	toolNameRule = nameRule{"a tool name", "a tool name is " + nameChars, `^[A-Za-z0-9_.\-]{1,128}$`, isName}
	docNameRule  = nameRule{"a name", "a name is " + nameChars, `^[A-Za-z0-9_.\-]{1,128}$`, isName}
	keyRule      = nameRule{"a key", "a key is a text of at most 128 characters without line breaks", `^[^\n\r]{1,128}$`, func(s string) bool {
		return s != "" && len(s) <= 512 && !strings.ContainsAny(s, "\n\r")
	}}
	globRule = nameRule{"a glob over names", "write a name, with * for any characters", `^[^\s]{1,256}$`, func(s string) bool {
		return s != "" && len(s) <= 256 && !strings.ContainsAny(s, " \t\n\r")
	}}
	digestRule = nameRule{"a digest", `a digest is "sha256:" and 64 lower-case hex digits`, `^sha256:[0-9a-f]{64}$`, isDigest}
	secretRule = nameRule{"a secret reference", `write env:NAME or file:/path; a secret itself never stands in a bundle`, `^(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\n]+)$`, isSecretRef}
	envRule    = nameRule{"a name of an environment variable", "use letters, digits and _", `^[A-Za-z_][A-Za-z0-9_]*$`, isEnvName}
	pointer    = nameRule{"a JSON pointer", `a JSON pointer starts with "/": /properties/path`, `^(/([^~/]|~[01])*)*$`, isPointer}
)

func isName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !isNameByte(s[i]) {
			return false
		}
	}
	return true
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

func isEnvName(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !isNameByte(s[i]) || s[i] == '.' || s[i] == '-' {
			return false
		}
	}
	return true
}

func isSecretRef(s string) bool {
	if name, ok := strings.CutPrefix(s, "env:"); ok {
		return isEnvName(name)
	}
	path, ok := strings.CutPrefix(s, "file:")
	return ok && path != "" && !strings.ContainsAny(path, "\n\r\x00")
}

func isPointer(s string) bool {
	if s != "" && s[0] != '/' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			return false
		}
	}
	return true
}

const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

// ParseDuration reads "10s", "1m30s", "500ms": Go's units, no sign, no bare zero without a unit.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || s == "" || s[0] == '-' || s[0] == '+' || s == "0" || s[0] == '.' {
		return 0, &DurationError{Text: s}
	}
	return d, nil
}

// DurationError says that a text is no duration.
type DurationError struct{ Text string }

func (e *DurationError) Error() string { return quoted(e.Text) + " is not a duration" }
