package persistence_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Every field of a line counts: changing any one of them changes the hash, and no text can move from one field
// into its neighbour.
func TestJ5_EveryFieldIsHashed(t *testing.T) {
	t.Parallel()
	base := persistence.Line{Tenant: "t", Run: "r", Seq: 3, ID: "id", At: time.UnixMicro(5).UTC(), Level: "info", Kind: "note", Payload: []byte(`{}`), Cause: 1,
		Request: "q", Invocation: "i", Call: "c", Related: "x", Machine: "call", Subject: "s", From: "a", Event: "e", To: "b", Prev: "sha256:0"}
	sum := base.Sum()
	v := reflect.ValueOf(base)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name == "Hash" {
			continue
		}
		changed := base
		switch f := reflect.ValueOf(&changed).Elem().Field(i); f.Interface().(type) {
		case time.Time:
			f.Set(reflect.ValueOf(time.UnixMicro(6).UTC()))
		case int64:
			f.SetInt(f.Int() + 1)
		case json.RawMessage:
			f.SetBytes([]byte(`{ }`))
		default:
			f.SetString(f.String() + "x")
		}
		if changed.Sum() == sum {
			t.Errorf("%s is not hashed", name)
		}
	}
	for _, c := range [][2]func(*persistence.Line){
		{func(l *persistence.Line) { l.Request, l.Invocation = "ab", "c" }, func(l *persistence.Line) { l.Request, l.Invocation = "a", "bc" }},
		{func(l *persistence.Line) { l.Call, l.Related = "ab", "" }, func(l *persistence.Line) { l.Call, l.Related = "", "ab" }},
		{func(l *persistence.Line) { l.Seq, l.ID = 1, "2x" }, func(l *persistence.Line) { l.Seq, l.ID = 12, "x" }},
	} {
		a, b := base, base
		c[0](&a)
		c[1](&b)
		if a.Sum() == b.Sum() {
			t.Error("two different lines have one hash")
		}
	}
	// Time counts as stored: what the databases cut off is not hashed.
	finer := base
	finer.At = base.At.Add(999 * time.Nanosecond).In(time.FixedZone("east", 3600))
	if finer.Sum() != sum {
		t.Error("nanoseconds or the time zone are hashed")
	}
}

func TestSealMovesTheHead(t *testing.T) {
	t.Parallel()
	var head persistence.Head
	var before persistence.Line
	for i := range int64(4) {
		l := persistence.Line{Tenant: "t", Kind: "note"}
		persistence.Seal(&l, &head)
		if l.Seq != i+1 || l.Prev != before.Hash || l.Hash != l.Sum() || head.Seq != l.Seq || head.Hash != l.Hash {
			t.Fatalf("%+v, head %+v", l, head)
		}
		before = l
	}
}

// Redaction takes away exactly what the pointers name, whatever the text looks like, and the outcome is canonical.
func TestCase_D17_RedactionTakesExactlyWhatIsNamed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		value := tree(rt, 3)
		raw, err := json.Marshal(value)
		if err != nil {
			rt.Fatal(err)
		}
		var pointers []string
		want := redact(rt, value, "", &pointers)
		got, err := persistence.CanonicalPayload(raw, append(pointers, "/nothing/here", "/0/0/0/0/0"))
		if err != nil {
			rt.Fatal(err)
		}
		plain, err := json.Marshal(want)
		if err != nil {
			rt.Fatal(err)
		}
		canonical, err := specs.CanonicalJSON(plain)
		if err != nil {
			rt.Fatal(err)
		}
		if string(got) != string(canonical) {
			rt.Fatalf("%s without %q is %s, want %s", raw, pointers, got, canonical)
		}
		if strings.Contains(string(got), "s3cr3t") {
			rt.Fatalf("the secret is still there: %s", got)
		}
	})
}

// tree draws a JSON value whose secrets are the text s3cr3t.
func tree(rt *rapid.T, depth int) any {
	kinds := []string{"secret", "text", "number", "null"}
	if depth > 0 {
		kinds = append(kinds, "list", "map", "map")
	}
	switch rapid.SampledFrom(kinds).Draw(rt, "kind") {
	case "secret":
		return "s3cr3t"
	case "text":
		return rapid.SampledFrom([]string{"", `"`, "\\", "a/b~c", "}", "\u2028", "é"}).Draw(rt, "text")
	case "number":
		return rapid.Int64().Draw(rt, "number")
	case "list":
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(rt, "n") {
			out = append(out, tree(rt, depth-1))
		}
		return out
	case "map":
		out := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(rt, "n") {
			out[rapid.SampledFrom([]string{"a", "b/c", "d~e", "", `"`, "0"}).Draw(rt, "key")] = tree(rt, depth-1)
		}
		return out
	}
	return nil
}

// redact is the dumb twin: it works on the decoded value, and collects pointers to every secret.
func redact(rt *rapid.T, value any, at string, pointers *[]string) any {
	switch v := value.(type) {
	case string:
		if v == "s3cr3t" {
			*pointers = append(*pointers, at)
			return "[redacted]"
		}
	case []any:
		out := []any{}
		for i, e := range v {
			out = append(out, redact(rt, e, at+"/"+string(rune('0'+i)), pointers))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = redact(rt, e, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(k), pointers)
		}
		return out
	}
	return value
}

func TestCanonicalPayloadRefuses(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`{`, `{"a":1,"a":2}`, `{"a":1}{}`, "\"\xff\"", strings.Repeat("[", 100000), `"` + strings.Repeat("x", persistence.MaxPayload) + `"`} {
		if _, err := persistence.CanonicalPayload([]byte(raw), nil); !errors.Is(err, persistence.ErrInvalid) {
			t.Errorf("%.20q: %v", raw, err)
		}
		if _, err := persistence.CanonicalPayload([]byte(raw), []string{"/a/b", "/0/0"}); !errors.Is(err, persistence.ErrInvalid) {
			t.Errorf("%.20q with redaction: %v", raw, err)
		}
	}
	if got, err := persistence.CanonicalPayload(nil, []string{"/a"}); err != nil || got != nil {
		t.Errorf("no payload: %s, %v", got, err)
	}
}

func FuzzCanonicalPayload(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"c"}]}`), "/a/1/b")
	f.Add([]byte(`{"a~b":"\ud800"}`), "/a~0b")
	f.Add([]byte(`[[[`), "/0/0/0")
	f.Fuzz(func(t *testing.T, raw []byte, pointer string) {
		got, err := persistence.CanonicalPayload(raw, []string{pointer})
		if err != nil {
			return
		}
		again, err := persistence.CanonicalPayload(got, nil)
		if err != nil || string(again) != string(got) {
			t.Errorf("%s is not canonical: %s, %v", got, again, err)
		}
	})
}

// A record comes back as it was; what JSON would change is refused.
func TestJ9_RecordsComeBack(t *testing.T) {
	t.Parallel()
	call := &persistence.Call{ID: "c", Metadata: json.RawMessage("{ \"a\": \"\\ud800<\" }\n"), Reason: `\ufffd \\ufffd ` + "\ufffd\x00"}
	body, err := persistence.EncodeRecord(call)
	if err != nil {
		t.Fatal(err)
	}
	var back persistence.Call
	if err := persistence.DecodeRecord(body, &back); err != nil || !reflect.DeepEqual(&back, call) {
		t.Errorf("%+v, %v", back, err)
	}
	for _, r := range []persistence.Record{&persistence.Run{Reason: "a\xffb"}, &persistence.Call{Asked: "\xc3"}, &persistence.Run{Labels: map[string]string{"\xff": ""}}} {
		if _, err := persistence.EncodeRecord(r); !errors.Is(err, persistence.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := persistence.DecodeRecord([]byte(`{"id":`), &back); !errors.Is(err, persistence.ErrCorrupt) {
		t.Errorf("half a record: %v", err)
	}
}
