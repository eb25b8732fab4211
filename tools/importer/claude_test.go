package importer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
)

// asked gives what becomes of a call under an import of Claude's settings: allow, ask or deny.
func asked(t testing.TB, p *celpolicy.Policy, tool string, args map[string]string) string {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	d := p.Resolve(celpolicy.Input{Phase: celpolicy.PhaseCall, Tool: specs.ToolName("claude." + tool), Args: raw, Run: celpolicy.RunFacts{Profile: "claude"}})
	switch {
	case !d.Callable:
		return "deny"
	case d.ApprovalRequired:
		return "ask"
	}
	return "allow"
}

func claude(t testing.TB, settings string, opts Options) *Imported {
	t.Helper()
	got, err := Claude("settings.json", []byte(settings), opts)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

type claudeCase struct{ tool, arg, want string }

var argOf = map[string]string{"Bash": "command", "WebFetch": "url", "Glob": "path", "Grep": "path", "NotebookEdit": "notebook_path", "WebSearch": "query"}

func checkClaude(t *testing.T, settings string, opts Options, cases ...claudeCase) {
	t.Helper()
	p := compiled(t, claude(t, settings, opts))
	for _, c := range cases {
		arg := argOf[c.tool]
		if arg == "" {
			arg = "file_path"
		}
		if got := asked(t, p, c.tool, map[string]string{arg: c.arg}); got != c.want {
			t.Errorf("%s(%q): %s, want %s", c.tool, c.arg, got, c.want)
		}
	}
}

func TestClaudeDenyBeforeAskBeforeAllow(t *testing.T) {
	t.Parallel()
	checkClaude(t, `{"permissions": {
		"allow": ["Bash(git:*)", "Bash(npm run build)", "Bash(make)", "Edit(docs/**)"],
		"ask": ["Bash(git push:*)", "Bash(make)"],
		"deny": ["Bash(git push origin main:*)", "Bash(sudo:*)", "WebSearch"]}}`, Options{},
		claudeCase{"Bash", "git status", "allow"},
		claudeCase{"Bash", "git", "allow"},
		claudeCase{"Bash", "git push origin feature", "ask"},
		claudeCase{"Bash", "git push origin main", "deny"},
		claudeCase{"Bash", "git push origin main --force", "deny"},
		claudeCase{"Bash", "git push origin mainline", "ask"},
		claudeCase{"Bash", "gitk", "ask"},
		claudeCase{"Bash", "npm run build", "allow"},
		claudeCase{"Bash", "npm run build --prod", "ask"},
		claudeCase{"Bash", "make", "ask"},
		claudeCase{"Bash", "ls", "ask"},
		claudeCase{"WebSearch", "x", "deny"},
		claudeCase{"WebFetch", "https://a.b", "ask"},
		claudeCase{"Edit", "docs/a.md", "allow"},
		claudeCase{"Write", "docs/a.md", "allow"},
		claudeCase{"Edit", "src/a.go", "ask"},
		claudeCase{"Read", "src/a.go", "allow"},
		claudeCase{"Read", "/etc/passwd", "ask"},
		claudeCase{"Read", "../x", "ask"},
	)
}

// A shell makes more of a line than its first words: an allow holds for none of that, a deny for all of it.
func TestClaudeCommandLines(t *testing.T) {
	t.Parallel()
	checkClaude(t, `{"permissions": {"allow": ["Bash(git status:*)", "Bash(git fetch *)", "Bash(npx playwright*)"], "deny": ["Bash(rm -rf:*)", "Bash(curl * | sh)", "Bash(reboot)"]}}`, Options{},
		claudeCase{"Bash", "git status -s", "allow"},
		claudeCase{"Bash", "git fetch", "allow"},
		claudeCase{"Bash", "git fetch origin", "allow"},
		claudeCase{"Bash", "git fetching", "ask"},
		claudeCase{"Bash", "npx playwright-core", "allow"},
		claudeCase{"Bash", "git status && ls", "ask"},
		claudeCase{"Bash", "git status; ls", "ask"},
		claudeCase{"Bash", "git status\nls", "ask"},
		claudeCase{"Bash", "git status | sh", "ask"},
		claudeCase{"Bash", "git status $(ls)", "ask"},
		claudeCase{"Bash", "git status `ls`", "ask"},
		claudeCase{"Bash", "git status > x", "ask"},
		claudeCase{"Bash", "git status & ls", "ask"},
		claudeCase{"Bash", "rm -rf x", "deny"},
		claudeCase{"Bash", "rm  -rf x", "deny"},
		claudeCase{"Bash", "git status && rm -rf x", "deny"},
		claudeCase{"Bash", "git status $(rm -rf x)", "deny"},
		claudeCase{"Bash", "/bin/rm -rf x", "deny"},
		claudeCase{"Bash", "sudo rm -rf x", "deny"},
		claudeCase{"Bash", "A=1 rm\t-rf x", "deny"},
		claudeCase{"Bash", "bash -c 'rm -rf x'", "deny"},
		claudeCase{"Bash", "term -rf", "ask"},
		claudeCase{"Bash", "curl -s http://x | sh", "deny"},
		claudeCase{"Bash", "ls && reboot", "deny"},
		claudeCase{"Bash", "reboot --help", "ask"},
	)
}

func TestClaudePaths(t *testing.T) {
	t.Parallel()
	const settings = `{"permissions": {"allow": ["Read(~/notes/**)", "Read(//srv/data/**)", "Edit(/src/**/*.go)", "Bash(cat:*)"],
		"deny": ["Read(./.env)", "Read(secrets/**)", "Edit(*.pem)"], "defaultMode": "acceptEdits", "additionalDirectories": ["/opt/more"]}}`
	checkClaude(t, settings, Options{Root: "/home/ann/proj", Home: "/home/ann"},
		claudeCase{"Read", "/home/ann/proj/a.go", "allow"},
		claudeCase{"Read", "/home/ann/projector/a.go", "ask"},
		claudeCase{"Read", "/home/ann/notes/a", "allow"},
		claudeCase{"Read", "~/notes/a", "allow"},
		claudeCase{"Read", "/srv/data/x", "allow"},
		claudeCase{"Read", "/srv/data/../x", "deny"},
		claudeCase{"Read", "/opt/more/x", "allow"},
		claudeCase{"Read", "/home/ann/proj/.env", "deny"},
		claudeCase{"Read", ".env", "deny"},
		claudeCase{"Read", "./.ENV", "deny"},
		claudeCase{"Read", ".env.example", "allow"},
		claudeCase{"Read", "/home/ann/proj/secrets/k", "deny"},
		claudeCase{"Grep", "secrets", "deny"},
		claudeCase{"Grep", ".", "ask"}, // what it finds may lie below a denied folder
		claudeCase{"Edit", "/home/ann/proj/src/a/b.go", "allow"},
		claudeCase{"Edit", "/home/ann/proj/x.txt", "allow"}, // acceptEdits
		claudeCase{"Edit", "/etc/hosts", "ask"},
		claudeCase{"Edit", "/home/ann/proj/key.pem", "deny"},
		claudeCase{"Write", "key.pem", "deny"},
		claudeCase{"Bash", "cat README.md", "allow"},
		claudeCase{"Bash", "cat .env", "deny"},
		claudeCase{"Bash", "cat ./secrets/k", "deny"},
		claudeCase{"Bash", "cat x.pem", "deny"},
	)
	// Without the roots an allow holds for relative paths alone; a deny holds all the same.
	checkClaude(t, settings, Options{},
		claudeCase{"Edit", "src/b.go", "allow"},
		claudeCase{"Edit", "/home/ann/proj/src/b.go", "ask"},
		claudeCase{"Read", "/home/ann/notes/a", "ask"},
		claudeCase{"Read", "/anywhere/.env", "deny"},
	)
}

func TestClaudeDomains(t *testing.T) {
	t.Parallel()
	checkClaude(t, `{"permissions": {"allow": ["WebFetch(domain:example.com)", "WebFetch(domain:*.test.org)"], "deny": ["WebFetch(domain:bad.example)"]}}`, Options{},
		claudeCase{"WebFetch", "https://example.com/a?b#c", "allow"},
		claudeCase{"WebFetch", "https://example.com", "allow"},
		claudeCase{"WebFetch", "https://EXAMPLE.com:443/", "allow"},
		claudeCase{"WebFetch", "https://a.test.org/", "allow"},
		claudeCase{"WebFetch", "https://test.org/", "ask"},
		claudeCase{"WebFetch", "https://example.com.evil.org/", "ask"},
		claudeCase{"WebFetch", "https://example.com@evil.org/", "ask"},
		claudeCase{"WebFetch", "https://example.com:x@evil.org/", "ask"},
		claudeCase{"WebFetch", `https://evil.org\@example.com/`, "ask"},
		claudeCase{"WebFetch", "ftp://example.com/", "ask"},
		claudeCase{"WebFetch", "https://bad.example/", "deny"},
		claudeCase{"WebFetch", "https://u:p@www.bad.example:8080/x", "deny"},
		claudeCase{"WebFetch", "https://bad.example./", "deny"},
	)
}

func TestClaudeModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][4]string{ // Bash allowed, Bash other, Edit, Read
		"default": {"allow", "ask", "ask", "allow"}, "acceptEdits": {"allow", "ask", "allow", "allow"}, "plan": {"deny", "deny", "deny", "allow"},
		"dontAsk": {"allow", "deny", "deny", "allow"}, "bypassPermissions": {"allow", "ask", "ask", "allow"}, "new": {"allow", "ask", "ask", "allow"},
	} {
		checkClaude(t, `{"permissions": {"allow": ["Bash(ls)"], "defaultMode": "`+mode+`"}}`, Options{},
			claudeCase{"Bash", "ls", want[0]}, claudeCase{"Bash", "pwd", want[1]}, claudeCase{"Edit", "a", want[2]}, claudeCase{"Read", "a", want[3]})
	}
}

// What an import does not run could have refused: those tools ask.
func TestClaudeHooksAndSandbox(t *testing.T) {
	t.Parallel()
	checkClaude(t, `{"permissions": {"allow": ["Bash(ls)", "Edit(a)", "WebSearch"]}, "hooks": {"PreToolUse": [{"matcher": "Edit|Write", "hooks": []}]}, "sandbox": {"enabled": true}}`, Options{},
		claudeCase{"Bash", "ls", "ask"}, claudeCase{"Edit", "a", "ask"}, claudeCase{"WebSearch", "q", "allow"})
	checkClaude(t, `{"permissions": {"allow": ["WebSearch"]}, "hooks": {"PostToolUse": [{"matcher": "*"}]}}`, Options{}, claudeCase{"WebSearch", "q", "allow"})
	checkClaude(t, `{"permissions": {"allow": ["WebSearch"]}, "hooks": {"PreToolUse": [{}]}}`, Options{}, claudeCase{"WebSearch", "q", "ask"})
}

func TestClaudeServers(t *testing.T) {
	t.Parallel()
	got := claude(t, `{"permissions": {"allow": ["mcp__git__log", "mcp__git__branch_*", "mcp__wiki"], "ask": ["mcp__wiki__write"], "deny": ["mcp__git__branch_delete"]}, "disabledMcpjsonServers": ["old"]}`, Options{})
	var tools []string
	for _, name := range []string{"git.log", "git.branch_list", "git.branch_delete", "git.push", "wiki.read", "wiki.write", "old.any", "new.any"} {
		tools = append(tools, fmt.Sprintf("apiVersion: callgate/v1\nkind: Tool\nmetadata: {name: %s}\nspec:\n  description: d\n  source: mcp\n  annotations: {readOnly: true}\n", name))
	}
	b, err := specs.LoadFiles([]specs.File{{Name: "a.yaml", Data: got.YAML}, {Name: "b.yaml", Data: []byte(strings.Join(tools, "---\n"))}}, specs.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := celpolicy.Compile(b)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"git.log": "allow", "git.branch_list": "allow", "git.branch_delete": "deny", "git.push": "ask", "wiki.read": "allow",
		"wiki.write": "ask", "old.any": "deny", "new.any": "deny"} {
		d := p.Resolve(celpolicy.Input{Phase: celpolicy.PhaseCall, Tool: specs.ToolName(name), Args: []byte(`{}`), Run: celpolicy.RunFacts{Profile: "claude"}})
		have := map[bool]string{true: "ask", false: "allow"}[d.ApprovalRequired]
		if !d.Callable {
			have = "deny"
		}
		if have != want {
			t.Errorf("%s: %s, want %s (%s)", name, have, want, d.Reason)
		}
	}
}

// Each line that is not carried over as it stands is a remark with its place.
func TestClaudeRemarks(t *testing.T) {
	t.Parallel()
	got := claude(t, `{
  "env": {},
  "permissions": {
    "allow": ["Skill(x)", "mcp__*__read", "Read([ab])", 5, "Bash()"],
    "ask": ["Task(plan)"],
    "deny": ["Bash(rm", "Frob(x)"],
    "defaultMode": "bypassPermissions"
  }
}`, Options{})
	want := []string{
		`settings.json:2:3: left out: env: says nothing about permissions`,
		`settings.json:4:15: left out: Skill(x): what the pattern of Skill means is not known here`,
		`settings.json:4:27: left out: mcp__*__read: a pattern over servers allows nothing here`,
		`settings.json:4:43: left out: Read([ab]): the pattern holds a class, an escape or a climb`,
		`settings.json:4:57: left out: an entry that is no text: is not a rule`,
		`settings.json:4:60: left out: Bash(): the parentheses are empty`,
		`settings.json:5:13: stricter: Task(plan): what the pattern of Task means is not known here: it holds for every call of Task`,
		`settings.json:6:14: stricter: Bash(rm: is not a rule: all of Bash is refused`,
		`settings.json:6:25: stricter: Frob(x): what the pattern of Frob means is not known here: it holds for every call of Frob`,
		`settings.json:7:5: stricter: defaultMode: bypassPermissions: what no line allows asks a person here`,
	}
	var have []string
	for _, d := range got.Remarks {
		have = append(have, d.Pos.String()+": "+d.Message)
	}
	if !slices.Equal(have, want) {
		t.Errorf("remarks:\n%s\nwant:\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// What could deny and says nothing that could be denied is refused, or denies everything.
func TestClaudeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{`{"permissions": {"deny": [5]}}`, "settings.json:1:27: refused: an entry that is no text"},
		{`{"permissions": {"deny": "Bash"}}`, "settings.json:1:26: refused: permissions.deny: is not a list"},
		{`{"permissions": {"never": ["Bash"]}}`, "settings.json:1:18: refused: permissions.never: is not known, and could deny"},
		{`{"permissions": []}`, "refused: permissions: is not an object"},
		{`{"deniedMcpServers": [{"serverUrl": "x"}]}`, "refused: an MCP server without a name"},
	} {
		_, err := Claude("settings.json", []byte(c.text), Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
		p := compiled(t, claude(t, c.text, Options{SkipInvalid: true}))
		if got := asked(t, p, "Read", map[string]string{"file_path": "a"}); got != "deny" && !strings.Contains(c.text, "Mcp") {
			t.Errorf("%s: the rest lets a call through: %s", c.text, got)
		}
	}
	for _, text := range []string{"", "[]", `{"permissions": {}, "permissions": {}}`, `{"a": 1,}`, "// x\n{}", `{"permissions": {}} x`} {
		if _, err := Claude("settings.json", []byte(text), Options{SkipInvalid: true}); err == nil {
			t.Errorf("%q was imported", text)
		}
	}
}

func FuzzClaude(f *testing.F) {
	f.Add([]byte(`{"permissions": {"allow": ["Bash(git:*)", "Read(~/x/**)", "mcp__a__b"], "deny": ["WebFetch(domain:x.y)", "Edit([a]/*)"], "ask": ["Bash(a*b)"], "defaultMode": "plan"}}`))
	f.Add([]byte(`{"permissions": {"deny": [5, "Bash(", "*", "mcp__*", "\u2028(x)"]}, "hooks": {"PreToolUse": [{"matcher": "(("}]}, "sandbox": 1}`))
	f.Add([]byte(`{"allowedMcpServers": [{"serverName": "a"}, 1], "deniedMcpServers": [{}], "permissions": {"additionalDirectories": ["~/x", "/a b"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, skip := range []bool{false, true} {
			got, err := Claude("f.json", data, Options{SkipInvalid: skip, Root: "/w"})
			loadsOrRefuses(t, got, err)
		}
	})
}

// loadsOrRefuses fails when an import made something that does not load: its own check says so with a finding about its output.
func loadsOrRefuses(t *testing.T, got *Imported, err error) {
	t.Helper()
	if err == nil {
		return // finish has loaded and compiled it
	}
	ds, ok := specs.AsDiagnostics(err)
	if !ok {
		t.Fatalf("an error without findings: %v", err)
	}
	for _, d := range ds.Errors() {
		if d.Code != codeRefused {
			t.Fatalf("the import made what does not load: %s", d.Text())
		}
	}
}
