package specs

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// maxAlias is the length that every provider accepts.
const maxAlias = 64

// aliasMark parts a shortened name from its hash.
const aliasMark = "__"

// AliasOf gives the name under which model providers know a tool. It depends on the tool's own name alone: never on
// other tools, load order or a counter.
//
// A name of the usual form `family.verb` becomes `family_verb`. Every name for which that would lose
// something (several dots, an underscore in the family, more than 64 characters) carries 80 bits of a hash over
// the whole name instead. So two names never share an alias by form, and a hash that collides is a load error.
func AliasOf(name ToolName) Alias {
	plain := strings.ReplaceAll(string(name), ".", "_")
	if isPlainAlias(string(name)) {
		return Alias(plain)
	}
	sum := sha256.Sum256([]byte(name))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
	if room := maxAlias - len(aliasMark) - len(hash); len(plain) > room {
		plain = plain[:room]
	}
	return Alias(plain + aliasMark + hash)
}

// isPlainAlias says that replacing the dot loses nothing: the first underscore of the alias is the dot.
func isPlainAlias(name string) bool {
	if len(name) > maxAlias || looksHashed(name) {
		return false
	}
	family, verb, dotted := strings.Cut(name, ".")
	if !dotted {
		return !strings.Contains(name, "_")
	}
	return !strings.Contains(family, "_") && !strings.Contains(verb, ".")
}

// looksHashed keeps ordinary names out of the space of the hashed ones.
func looksHashed(name string) bool {
	at := len(name) - 16 - len(aliasMark)
	if at < 0 {
		return false
	}
	mark := strings.ReplaceAll(name[at:at+len(aliasMark)], ".", "_")
	return mark == aliasMark && strings.Trim(name[at+len(aliasMark):], "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// ToolNameOf undoes AliasOf where the alias alone tells the name; hashed aliases need the tools themselves
// (Bundle.ToolByAlias).
func ToolNameOf(alias Alias) (ToolName, bool) {
	family, verb, dotted := strings.Cut(string(alias), "_")
	name := family
	if dotted {
		name += "." + verb
	}
	return ToolName(name), AliasOf(ToolName(name)) == alias
}

// ImportedName gives the canonical name of a tool that a source offers under a name of its own: the source's
// name, a dot, and the upstream name in which every byte outside [A-Za-z0-9_.-] stands as `--` and two upper-case hex digits. A
// result longer than 128 is cut and carries a hash; then only ToolSource.Tool knows the upstream name.
func ImportedName(source SourceName, upstream string) ToolName {
	name := string(source) + "." + escapeName(upstream)
	if len(name) <= 128 {
		return ToolName(name)
	}
	sum := sha256.Sum256([]byte(upstream))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
	return ToolName(name[:128-len(cutMark)-len(hash)] + cutMark + hash)
}

// cutMark starts the hash of a name that was too long; no escape looks like it.
const cutMark = "--x"

// escapeName writes a dash as an escape too where it could be taken for the start of one.
func escapeName(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		plain := isNameByte(c)
		if c == '-' && i+1 < len(s) && (s[i+1] == '-' || !isNameByte(s[i+1])) {
			plain = false
		}
		if plain {
			b.WriteByte(c)
		} else {
			b.WriteString("--" + string(hexDigits[c>>4]) + string(hexDigits[c&15]))
		}
	}
	return b.String()
}

// UpstreamName undoes ImportedName; false when the name is not of that source or was cut.
func UpstreamName(source SourceName, name ToolName) (string, bool) {
	rest, ok := strings.CutPrefix(string(name), string(source)+".")
	if !ok {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		if rest[i] != '-' || i+1 == len(rest) || rest[i+1] != '-' {
			b.WriteByte(rest[i])
			continue
		}
		if i+3 >= len(rest) {
			return "", false
		}
		high, low := strings.IndexByte("0123456789ABCDEF", rest[i+2]), strings.IndexByte("0123456789ABCDEF", rest[i+3])
		if high < 0 || low < 0 {
			return "", false
		}
		b.WriteByte(byte(high<<4 | low))
		i += 3
	}
	return b.String(), true
}
