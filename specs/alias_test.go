package specs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"
)

var aliasForm = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// drawToolName favours names that sanitising would confuse.
func drawToolName() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("ab._-")), 1, 8, -1),
		rapid.StringOfN(rapid.RuneFrom([]rune("aB2_.-")), 60, 128, -1),
		rapid.Custom(func(t *rapid.T) string { // looks like a hashed alias already
			return strings.ReplaceAll(string(AliasOf(ToolName(rapid.StringOfN(rapid.RuneFrom([]rune("ab._")), 1, 80, -1).Draw(t, "of")))), "__", rapid.SampledFrom([]string{"__", "._", "_.", ".."}).Draw(t, "mark"))
		}),
	)
}

// TestP15_AliasesAreInjectiveAndFitEveryProvider over any set of names, in any order.
func TestP15_AliasesAreInjectiveAndFitEveryProvider(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(drawToolName(), 1, 30, rapid.ID[string]).Draw(t, "names")
		back := map[Alias]string{}
		for _, n := range names {
			a := AliasOf(ToolName(n))
			if !aliasForm.MatchString(string(a)) {
				t.Fatalf("%q has the alias %q", n, a)
			}
			if other, taken := back[a]; taken {
				t.Fatalf("%q and %q are both %q", n, other, a)
			}
			back[a] = n
			if name, ok := ToolNameOf(a); ok && string(name) != n {
				t.Fatalf("%q -> %q -> %q", n, a, name)
			}
		}
	})
}

func TestAliasForms(t *testing.T) {
	t.Parallel()
	for name, want := range map[ToolName]string{
		"workspace.apply_patch": "workspace_apply_patch", "github.get-issue": "github_get-issue", "ping": "ping",
	} {
		if got := AliasOf(name); string(got) != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for _, name := range []ToolName{"a.b.c", "a_b.c", "under_score", ToolName(strings.Repeat("x", 65))} {
		if got := AliasOf(name); !strings.Contains(string(got), "__") {
			t.Errorf("%s: %s bears no hash although something is lost", name, got)
		}
	}
}

// TestCase_P11_LongNamesDoNotCollide when cut to a provider's length.
func TestCase_P11_LongNamesDoNotCollide(t *testing.T) {
	t.Parallel()
	long := "server." + strings.Repeat("create_or_update_", 5)
	if a, b := AliasOf(ToolName(long+"x")), AliasOf(ToolName(long+"y")); a == b || len(a) > 64 {
		t.Errorf("%s %s", a, b)
	}
}

// TestCase_P12_H46_SanitisedNamesDoNotCollide: names that differ only in what providers forbid stay apart.
func TestCase_P12_H46_SanitisedNamesDoNotCollide(t *testing.T) {
	t.Parallel()
	seen := map[Alias]ToolName{}
	for _, n := range []ToolName{"a.b_c", "a_b.c", "a.b.c", "a_b_c"} {
		if other, taken := seen[AliasOf(n)]; taken {
			t.Errorf("%s and %s share an alias", n, other)
		}
		seen[AliasOf(n)] = n
	}
}

// TestCase_P13_AliasNeedsNoCompany: an alias depends on nothing but the name, so that load order cannot change it.
func TestCase_P13_AliasNeedsNoCompany(t *testing.T) {
	t.Parallel()
	tool := func(name string) string { return doc("Tool", name, "source: built_in") }
	names := []string{"a.b_c", "a_b.c", "a.b.c"}
	var files []File
	for _, n := range names {
		files = append(files, File{n + ".yaml", []byte(tool(n))})
	}
	all, err := LoadFiles(files, LoadOptions{NoCatalog: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		alone, err := LoadFiles(files[i:i+1], LoadOptions{NoCatalog: true})
		if err != nil {
			t.Fatal(err)
		}
		a := AliasOf(ToolName(n))
		if all.ToolByAlias(a) != all.Tool(ToolName(n)) || alone.ToolByAlias(a) != alone.Tool(ToolName(n)) || all.ToolByAlias(a) == nil {
			t.Errorf("%s is not found by its alias %s", n, a)
		}
	}
}

// TestImportedNamesComeBack: the upstream's own name is never lost, whatever characters it holds.
func TestImportedNamesComeBack(t *testing.T) {
	t.Parallel()
	if got := ImportedName("vectra", "Summarize Detection"); got != "vectra.Summarize--20Detection" {
		t.Errorf("got %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.StringOfN(rapid.RuneFrom([]rune("ab-.-_ /é文2D\x00")), 0, 20, -1)
		source := SourceName(rapid.SampledFrom([]string{"s", "s-", "s.t"}).Draw(t, "source"))
		names := rapid.SliceOfNDistinct(gen, 1, 10, rapid.ID[string]).Draw(t, "names")
		seen := map[ToolName]string{}
		for _, n := range names {
			name := ImportedName(source, n)
			if !isName(string(name)) {
				t.Fatalf("%q becomes %q", n, name)
			}
			if other, taken := seen[name]; taken {
				t.Fatalf("%q and %q both become %q", n, other, name)
			}
			seen[name] = n
			if back, ok := UpstreamName(source, name); len(name) < 128 && (!ok || back != n) {
				t.Fatalf("%q -> %q -> %q %v", n, name, back, ok)
			}
		}
	})
	long := strings.Repeat("長", 100)
	if a, b := ImportedName("s", long+"a"), ImportedName("s", long+"b"); a == b || len(a) > 128 {
		t.Errorf("%s %s", a, b)
	} else if _, ok := UpstreamName("s", a); ok {
		t.Error("a cut name claims to tell the upstream's")
	}
}

func TestGlob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"*", "a.b", true}, {"a.*", "a.b.c", true}, {"a.*", "ab", false}, {"*.read", "x.y.read", true},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "abbc", true}, {"a*b*c", "acb", false}, {"", "", true}, {"", "a", false},
		{"a.b", "a.b", true}, {"a.b", "aXb", false}, {"*ab*ab", "abab", true}, {"*ab*ab", "aab", false}, {"A", "a", false},
	} {
		if got := Glob(c.pattern, c.s); got != c.want {
			t.Errorf("Glob(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.StringOfN(rapid.RuneFrom([]rune("ab*.")), 0, 8, -1).Draw(t, "pattern")
		s := rapid.StringOfN(rapid.RuneFrom([]rune("ab.")), 0, 10, -1).Draw(t, "text")
		want := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*") + "$").MatchString(s)
		if Glob(p, s) != want {
			t.Fatalf("Glob(%q, %q) = %v", p, s, !want)
		}
	})
	Glob(strings.Repeat("a*", 5000)+"b", strings.Repeat("a", 100000)) // ends
}

// TestCase_E11_WildcardsCarryASourceScope: a selector for one kind of source leaves the others alone.
func TestCase_E11_WildcardsCarryASourceScope(t *testing.T) {
	t.Parallel()
	own := &Tool{Meta: Meta{Name: "github.get_issue"}, Source: ToolSource{Kind: SourceBuiltIn}}
	mcp := &Tool{Meta: Meta{Name: "github.get_issue"}, Source: ToolSource{Kind: SourceMCP, Name: "github"}}
	for _, c := range []struct {
		pattern  string
		own, mcp bool
	}{
		{"built_in:*", true, false}, {"mcp:*", false, true}, {"mcp:github.*", false, true}, {"mcp:gitlab.*", false, false},
		{"*", true, true}, {"github.*", true, true}, {"extension:*", false, false}, {"skill:*", false, false},
	} {
		if MatchTool(c.pattern, own) != c.own || MatchTool(c.pattern, mcp) != c.mcp {
			t.Errorf("%s: built-in %v, mcp %v", c.pattern, MatchTool(c.pattern, own), MatchTool(c.pattern, mcp))
		}
	}
}

// TestCase_S03_UnknownSpecifiersDoNotLoad: what looks narrower than a tool must not quietly mean the whole tool.
func TestCase_S03_UnknownSpecifiersDoNotLoad(t *testing.T) {
	t.Parallel()
	for _, sel := range []string{"shell.run(git:*)", "mpc:*", "mcp:", "workspace.read_file?", "[a]*", "mcp:a:b", "**", "workspace.**"} {
		ds := findings(t, doc("Profile", "p", "tools: {allow: [\""+sel+"\"]}"), LoadOptions{})
		if len(ds) != 1 || ds[0].Code != "bad-selector" || ds[0].Pos != (Pos{"a.yaml", 5, 19}) {
			t.Errorf("%s:\n%s", sel, ds.Text())
		}
	}
	wantOnly(t, findings(t, doc("Profile", "p", "tools: {allow: [\"mpc:*\"]}"), LoadOptions{}), "bad-selector", 5, 19, `did you mean "mcp"?`)
}

// TestCase_H41_SecretNamesAreNames: no pattern stands for secrets.
func TestCase_H41_SecretNamesAreNames(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		doc("Tenant", "t", "secrets: {\"**\": \"env:A\"}"), doc("Tenant", "t", "secrets: {a: \"env:*\"}"), doc("Tenant", "t", "secrets: {a: hunter2}"),
		doc("Source", "s", "type: mcp\ntransport: {url: \"https://x\", headers: {Authorization: Bearer abc}}"),
	} {
		ds := findings(t, text, LoadOptions{})
		if len(ds) != 1 || ds[0].Code != "bad-name" {
			t.Errorf("%s\n%s", text, ds.Text())
		}
	}
}

// TestCase_P14_SameNameOnTwoServers: tools of two sources stay two tools, and two documents of one name do not load.
func TestCase_P14_SameNameOnTwoServers(t *testing.T) {
	t.Parallel()
	if ImportedName("a", "search") == ImportedName("b", "search") {
		t.Error("two servers' tools are one")
	}
	tool := doc("Tool", "a.search", "source: extension")
	_, err := Load(fstest.MapFS{"x.yaml": {Data: []byte(tool)}, "y.yaml": {Data: []byte(tool)}}, LoadOptions{})
	ds, _ := AsDiagnostics(err)
	if len(ds) != 1 || ds[0].Code != "duplicate-name" || ds[0].Pos.File != "y.yaml" || !slices.ContainsFunc(ds, func(d Diagnostic) bool { return strings.Contains(d.Message, "x.yaml:3:18") }) {
		t.Errorf("got\n%s", ds.Text())
	}
}
