package chat_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/chat"
)

const writerEnv = "CALLGATE_TEST_CHAT_WRITER"

// TestMain also plays the other process of the crash test: it appends key after key and says so, until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		host := chat.FileHost{Dir: dir}
		for i := range 1000 {
			c := tools.Commit{Tenant: "t", Run: "r", Chat: "c", Key: fmt.Sprintf("k%d", i), Mode: tools.CommitAppend, Content: fmt.Sprintf("[%d]", i)}
			if _, err := host.Commit(context.Background(), c); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println(c.Key)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newHost(t *testing.T) chat.FileHost {
	t.Helper()
	t.Parallel()
	return chat.FileHost{Dir: filepath.Join(t.TempDir(), "chats"), Clock: func() time.Time { return time.Date(2026, 12, 1, 2, 3, 4, 5e6, time.UTC) }}
}

func commit(key, run string, mode tools.CommitMode, content string) tools.Commit {
	return tools.Commit{Tenant: "t", Run: specs.RunID(run), Chat: "c", Key: key, Mode: mode, Content: content}
}

func write(t *testing.T, h chat.FileHost, c tools.Commit) tools.Receipt {
	t.Helper()
	r, err := h.Commit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// messages reads the texts of a chat as any program would.
func messages(t *testing.T, h chat.FileHost) []string {
	t.Helper()
	data, err := os.ReadFile(h.Path("t", "c"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("line %d: %v\n%s", i+1, err, line)
		}
		if mes, ok := m["mes"].(string); ok {
			out = append(out, mes)
		} else if i > 0 {
			t.Fatalf("line %d is no message: %s", i+1, line)
		}
	}
	return out
}

func TestCommitsBecomeOneMessageARun(t *testing.T) {
	h := newHost(t)
	first := write(t, h, commit("k1", "r1", tools.CommitAppend, "One <b> & 漢字"))
	write(t, h, commit("k2", "r1", tools.CommitAppend, "\nTwo"))
	write(t, h, commit("k3", "r2", tools.CommitReplace, "Other run"))
	write(t, h, commit("k4", "r2", tools.CommitReplace, "Other run, better"))
	if got := messages(t, h); len(got) != 2 || got[0] != "One <b> & 漢字\nTwo" || got[1] != "Other run, better" {
		t.Errorf("the chat holds %q", got)
	}
	if again := write(t, h, commit("k1", "r1", tools.CommitAppend, "something else")); again != first {
		t.Errorf("the same key answers %+v, first %+v", again, first)
	}
	if r, ok, err := h.Confirm(t.Context(), "t", "c", "k1"); !ok || err != nil || r != first || r.Digest != specs.DigestOf([]byte("One <b> & 漢字")) {
		t.Errorf("confirm: %+v, %v, %v", r, ok, err)
	}
	for _, c := range [][2]string{{"c", "k9"}, {"other", "k1"}, {"", "k1"}} {
		if r, ok, err := h.Confirm(t.Context(), "t", c[0], c[1]); ok || err != nil {
			t.Errorf("confirm %v: %+v, %v, %v", c, r, ok, err)
		}
	}
	data, err := os.ReadFile(h.Path("t", "c"))
	if err != nil || !strings.HasPrefix(string(data), `{"character_name":"unused"`) || !strings.Contains(string(data), `"send_date":"2026-12-01T02:03:04.005Z"`) || !strings.Contains(string(data), "<b> &") {
		t.Errorf("%v\n%s", err, data)
	}
}

// Two tenants may use the same names for a chat and a key. What the one published is not the other's.
func TestConfirmStaysWithItsTenant(t *testing.T) {
	h := newHost(t)
	first := write(t, h, commit("k1", "r1", tools.CommitReplace, "mine"))
	if r, ok, err := h.Confirm(t.Context(), "u", "c", "k1"); ok || err != nil {
		t.Fatalf("another tenant's commit is confirmed: %+v, %v", r, err)
	}
	theirs := commit("k1", "r1", tools.CommitReplace, "theirs")
	theirs.Tenant = "u"
	second := write(t, h, theirs)
	for tenant, want := range map[specs.TenantID]tools.Receipt{"t": first, "u": second} {
		if r, ok, err := h.Confirm(t.Context(), tenant, "c", "k1"); !ok || err != nil || r != want {
			t.Errorf("%s: %+v, %v, %v; want %+v", tenant, r, ok, err, want)
		}
	}
	if first.Digest == second.Digest {
		t.Error("one tenant's text is in the other's chat")
	}
}

func TestConfirmBeforeAnyChat(t *testing.T) {
	h := newHost(t)
	if _, ok, err := h.Confirm(t.Context(), "t", "c", "k"); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	if _, err := os.Stat(h.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("asking made a folder: %v", err)
	}
}

// What other programs wrote stays as it is, byte for byte, with and without a header.
func TestForeignLinesStay(t *testing.T) {
	for name, before := range map[string]string{
		"header":    `{"user_name":"Ann","character_name":"Aria", "chat_metadata":{"n":9007199254740993}}` + "\n" + `{"name":"Ann", "is_user":true,"mes":"Hi","extra":{}}`,
		"no header": `{"name":"Ann","mes":"Hi"}` + "\r\n" + `not json at all` + "\n" + `{"mes":"x","extra":{"callgate":"odd"}}` + "\n",
		"own field": `{"mes":"x","extra":null}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			file := h.Path("t", "c")
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			write(t, h, commit("k1", "r", tools.CommitReplace, "mine"))
			write(t, h, commit("k2", "r", tools.CommitAppend, "+more"))
			after, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.TrimSuffix(strings.ReplaceAll(before, "\r\n", "\n"), "\n") + "\n"
			rest, ok := strings.CutPrefix(string(after), want)
			if !ok || strings.Count(rest, "\n") != 1 || !strings.Contains(rest, `"mes":"mine+more"`) {
				t.Errorf("the file is now\n%s", after)
			}
		})
	}
}

// A chat program that has touched the message keeps its fields, and its variants follow the text.
func TestFieldsOfOtherProgramsStay(t *testing.T) {
	h := newHost(t)
	write(t, h, commit("k1", "r", tools.CommitReplace, "one"))
	file := h.Path("t", "c")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(data), `"mes":"one"`, `"force_avatar":"A.png","swipes":["zero","one"],"swipe_id":1,"mes":"one!"`, 1)
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, h, commit("k2", "r", tools.CommitAppend, "+two"))
	data, err = os.ReadFile(file)
	if err != nil || !strings.Contains(string(data), `"swipes":["zero","one!+two"]`) || !strings.Contains(string(data), `"force_avatar":"A.png"`) || messages(t, h)[0] != "one!+two" {
		t.Errorf("%v\n%s", err, data)
	}
}

// No id leads out of the folder, and no two ids share a file.
func TestIDsAreEscapedOneToOne(t *testing.T) {
	t.Parallel()
	seen := map[string][2]string{}
	id := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", ".", "..", "../../x", "/etc/passwd", "a/b", "A", "a", "%41", "%", "x\x00", "con", strings.Repeat("ä", 200), strings.Repeat("ä", 201)}))
	rapid.Check(t, func(t *rapid.T) {
		ids := [2]string{id.Draw(t, "tenant"), id.Draw(t, "chat")}
		file := chat.FileHost{Dir: "/chats"}.Path(specs.TenantID(ids[0]), ids[1])
		if filepath.Dir(filepath.Dir(file)) != filepath.FromSlash("/chats") || strings.ContainsAny(filepath.Base(file), "\x00\\:*?\"<>|") || len(filepath.Base(file)) > 240 {
			t.Fatalf("%q lies at %q", ids, file)
		}
		lower := strings.ToLower(strings.ReplaceAll(file, "%", "\x00")) // as a file system sees it that takes A for a
		if other, taken := seen[lower]; taken && other != ids {
			t.Fatalf("%q and %q share %q", ids, other, file)
		}
		seen[lower] = ids
	})
}

func TestTenantsDoNotShareChats(t *testing.T) {
	h := newHost(t)
	a, b := commit("ka", "r", tools.CommitAppend, "a"), commit("kb", "r", tools.CommitAppend, "b")
	b.Tenant = "u"
	write(t, h, a)
	write(t, h, b)
	if got := messages(t, h); len(got) != 1 || got[0] != "a" {
		t.Errorf("tenant t reads %q", got)
	}
	for _, c := range []tools.Commit{a, b} {
		for _, tenant := range []specs.TenantID{"t", "u"} {
			if _, ok, err := h.Confirm(t.Context(), tenant, "c", c.Key); ok != (tenant == c.Tenant) || err != nil {
				t.Errorf("confirm %s in %s: %v, %v", c.Key, tenant, ok, err)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	h := newHost(t)
	none := commit("k", "r", tools.CommitReplace, "x")
	none.Chat = ""
	if _, err := h.Commit(t.Context(), none); !errors.Is(err, chat.ErrNoChat) {
		t.Errorf("no chat: %v", err)
	}
	if _, err := h.Commit(t.Context(), commit("", "r", tools.CommitReplace, "x")); err == nil {
		t.Error("a commit without a key was taken")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Commit(gone, commit("k", "r", tools.CommitReplace, "x")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, ok, err := h.Confirm(t.Context(), "t", "c", "k"); ok || err != nil {
		t.Errorf("after refusals: %v, %v", ok, err)
	}
	if err := os.MkdirAll(h.Path("t", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Commit(t.Context(), commit("k", "r", tools.CommitReplace, "x")); !errors.Is(err, chat.ErrNotAFile) {
		t.Errorf("a folder in its place: %v", err)
	}
}

// W-04, H16: a link where a file should be is refused at once, and nothing outside is touched.
func TestCase_W04_H16_LinksAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege there")
	}
	h := newHost(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("sentinel"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := h.Path("t", "c")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{file, file + ".lock", file + ".new"} {
		if err := os.RemoveAll(place); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, place); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := h.Commit(t.Context(), commit("k", "r", tools.CommitReplace, "x"))
		if place != file+".new" && !errors.Is(err, chat.ErrNotAFile) { // a link left under the temporary name is only removed
			t.Errorf("%s: %v", place, err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s took %v", place, took)
		}
		if err := os.RemoveAll(place); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Commit(t.Context(), commit("k", "r", tools.CommitReplace, "x")); err == nil {
		t.Error("a tenant's folder that leads outside was followed")
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "sentinel" {
		t.Errorf("outside: %q, %v", data, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(outside)); err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

func TestConcurrentCommitsAllLand(t *testing.T) {
	h := newHost(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 5 {
				if _, err := h.Commit(t.Context(), commit(fmt.Sprint("k", (i+j)%10), "r", tools.CommitAppend, "x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := messages(t, h); len(got) != 1 || got[0] != strings.Repeat("x", 10) {
		t.Errorf("the chat holds %q, want one x for each of ten keys", got)
	}
}

// Processes that write the same keys and are killed at any moment: every acknowledged key is there, none twice.
func TestKillsLoseNothingAndDoubleNothing(t *testing.T) {
	h := newHost(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	for round := range 4 {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), writerEnv+"="+h.Dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 15+10*round && lines.Scan(); n++ {
			acknowledged = max(acknowledged, n+1)
		}
		time.Sleep(time.Duration(round) * 700 * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) {
			t.Fatalf("the writer was to be killed: %v", err)
		}
		got := messages(t, h)
		if len(got) != 1 {
			t.Fatalf("%d messages", len(got))
		}
		n := strings.Count(got[0], "[")
		want := ""
		for i := range n {
			want += fmt.Sprintf("[%d]", i)
		}
		if got[0] != want || n < acknowledged {
			t.Fatalf("%d were acknowledged, the message is %q", acknowledged, got[0])
		}
		for i := range n {
			if _, ok, err := h.Confirm(t.Context(), "t", "c", fmt.Sprint("k", i)); !ok || err != nil {
				t.Fatalf("confirm k%d: %v, %v", i, ok, err)
			}
		}
	}
	if acknowledged < 40 {
		t.Fatalf("only %d were acknowledged", acknowledged)
	}
}

func FuzzForeignChat(f *testing.F) {
	f.Add([]byte(`{"user_name":"x"}` + "\n" + `{"mes":"x","extra":{"callgate":{"run":"r","id":"i","commits":[{"key":"k"}]}}}`))
	f.Add([]byte("\n\n{}\n"))
	f.Add([]byte(`{"mes":"x","extra":{"callgate":{"run":"r"}},"swipes":[],"swipe_id":0}`))
	f.Fuzz(func(t *testing.T, before []byte) {
		h := chat.FileHost{Dir: t.TempDir()}
		file := h.Path("t", "c")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, before, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := h.Commit(t.Context(), commit("new", "r", tools.CommitAppend, "+"))
		if err != nil {
			if after, readErr := os.ReadFile(file); readErr != nil || string(after) != string(before) {
				t.Fatalf("refused with %v, and the file changed", err)
			}
			return
		}
		if got, ok, err := h.Confirm(t.Context(), "t", "c", "new"); !ok || err != nil || got != r {
			t.Fatalf("written, and confirmed as %+v, %v, %v", got, ok, err)
		}
	})
}
