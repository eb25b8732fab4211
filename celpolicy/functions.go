package celpolicy

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/callgate/callgate/specs"
)

// ownFunctions are the functions that cel-go does not bring.
func ownFunctions() []cel.EnvOption {
	str := []*cel.Type{cel.StringType}
	two := []*cel.Type{cel.StringType, cel.StringType}
	sem := semverValueType
	part := func(name string, get func(semver) uint64) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("semver_"+name, []*cel.Type{sem}, cel.IntType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.Int(get(v.(semver))) })))
	}
	order := func(name string, ok func(int) bool) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("semver_"+name, []*cel.Type{sem, sem}, cel.BoolType,
			cel.BinaryBinding(func(a, b ref.Val) ref.Val { return types.Bool(ok(a.(semver).compare(b.(semver)))) })))
	}
	return []cel.EnvOption{
		cel.Function("glob", cel.Overload("glob_string_string", two, cel.BoolType,
			cel.BinaryBinding(func(s, pattern ref.Val) ref.Val {
				return types.Bool(specs.Glob(string(pattern.(types.String)), string(s.(types.String))))
			}))),
		cel.Function("path.within", cel.Overload("path_within_string_string", two, cel.BoolType,
			cel.BinaryBinding(func(p, root ref.Val) ref.Val {
				return types.Bool(pathWithin(string(p.(types.String)), string(root.(types.String))))
			}))),
		cel.Function("semver", cel.Overload("string_to_semver", str, sem, cel.UnaryBinding(func(v ref.Val) ref.Val {
			s, ok := parseSemver(string(v.(types.String)))
			if !ok {
				return types.NewErr("%q is not a semantic version", string(v.(types.String)))
			}
			return s
		}))),
		cel.Function("isSemver", cel.Overload("is_semver_string", str, cel.BoolType, cel.UnaryBinding(func(v ref.Val) ref.Val {
			_, ok := parseSemver(string(v.(types.String)))
			return types.Bool(ok)
		}))),
		part("major", func(s semver) uint64 { return s.num[0] }),
		part("minor", func(s semver) uint64 { return s.num[1] }),
		part("patch", func(s semver) uint64 { return s.num[2] }),
		order("isLessThan", func(c int) bool { return c < 0 }),
		order("isGreaterThan", func(c int) bool { return c > 0 }),
		cel.Function("compareTo", cel.MemberOverload("semver_compareTo", []*cel.Type{sem, sem}, cel.IntType,
			cel.BinaryBinding(func(a, b ref.Val) ref.Val { return types.Int(a.(semver).compare(b.(semver))) }))),
	}
}

// pathWithin says whether a logical workspace path lies at or below a root, component by component:
// "output-secret" is not within "output". A path the workspace would refuse (absolute, a drive, a
// backslash, NUL, a climb above its start) is within nothing, so a deny must not rely on a false answer alone.
func pathWithin(path, root string) bool {
	if !isLogicalPath(path) || !isLogicalPath(root) {
		return false
	}
	for {
		var want, have string
		if want, root = nextComponent(root); want == "" {
			return true
		}
		if have, path = nextComponent(path); have != want {
			return false
		}
	}
}

// isLogicalPath says whether the workspace would take a path. A ".." is refused even when it would stay inside: the
// workspace refuses it too.
func isLogicalPath(s string) bool {
	if s == "" || strings.HasPrefix(s, "/") || strings.ContainsAny(s, "\\\x00") || !utf8.ValidString(s) {
		return false
	}
	if len(s) >= 2 && s[1] == ':' {
		return false
	}
	for s != "" {
		var part string
		if part, s = nextComponent(s); part == ".." {
			return false
		}
	}
	return true
}

// nextComponent takes the first component off a path; "." and empty ones vanish. It is "" at the end.
func nextComponent(s string) (part, rest string) {
	for s != "" {
		if part, s, _ = strings.Cut(s, "/"); part != "" && part != "." {
			return part, s
		}
	}
	return "", ""
}

var semverValueType = cel.OpaqueType("semver")

// semver is a semantic version 2.0.0: three numbers and a pre-release; build metadata does not order.
type semver struct {
	num [3]uint64
	pre string
	// ref.Val's conversions are never reached: the type offers none to authors.
	ref.Val
}

func (s semver) Type() ref.Type { return semverValueType }
func (s semver) Value() any     { return s.num }
func (s semver) Equal(o ref.Val) ref.Val {
	t, ok := o.(semver)
	return types.Bool(ok && s.compare(t) == 0)
}

func (s semver) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return semverValueType
	}
	return types.NewErr("a semver cannot become %s", t.TypeName())
}

func parseSemver(s string) (semver, bool) {
	var v semver
	s, build, hasBuild := strings.Cut(s, "+")
	if hasBuild && !identifiers(build, false) {
		return v, false
	}
	core, pre, hasPre := strings.Cut(s, "-")
	if hasPre && !identifiers(pre, true) {
		return v, false
	}
	v.pre = pre
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 62)
		if err != nil || len(p) > 1 && p[0] == '0' {
			return v, false
		}
		v.num[i] = n
	}
	return v, true
}

// identifiers checks a dotted list of [0-9A-Za-z-]; strict forbids numbers with a leading zero.
func identifiers(s string, strict bool) bool {
	for id := range strings.SplitSeq(s, ".") {
		if id == "" || strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			return false
		}
		if strict && len(id) > 1 && id[0] == '0' && isDigits(id) {
			return false
		}
	}
	return true
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

func (s semver) compare(t semver) int {
	for i := range s.num {
		if s.num[i] != t.num[i] {
			if s.num[i] < t.num[i] {
				return -1
			}
			return 1
		}
	}
	switch {
	case s.pre == t.pre:
		return 0
	case s.pre == "":
		return 1
	case t.pre == "":
		return -1
	}
	a, b := strings.Split(s.pre, "."), strings.Split(t.pre, ".")
	for i := 0; i < len(a) && i < len(b); i++ {
		if c := compareIdentifier(a[i], b[i]); c != 0 {
			return c
		}
	}
	return min(1, max(-1, len(a)-len(b)))
}

func compareIdentifier(a, b string) int {
	switch na, nb := isDigits(a), isDigits(b); {
	case na && nb && len(a) != len(b):
		return min(1, max(-1, len(a)-len(b)))
	case na && !nb:
		return -1
	case !na && nb:
		return 1
	}
	return strings.Compare(a, b)
}
