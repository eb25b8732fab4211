package specs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDecodeJSONKeepsNumbersExact(t *testing.T) {
	t.Parallel()
	v, err := DecodeJSON([]byte(` {"a":9007199254740993,"b":-9223372036854775808,"c":9223372036854775808,"d":1.10,"e":1e2,"f":-0,"g":[true,null,"\u0000\ud83d\ude00"]} `), JSONLimits{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"a": int64(9007199254740993), "b": int64(math.MinInt64), "c": json.Number("9223372036854775808"), "d": json.Number("1.10"),
		"e": json.Number("1e2"), "f": json.Number("-0"), "g": []any{true, nil, "\x00😀"},
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %#v", v)
	}
}

func TestJSONRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		raw     string
		offset  int
		pointer string
		words   string
	}{
		{`{"a":1,"a":2}`, 7, "", `the key "a" is there twice`},
		{`{"a":{"b":[1,{"c":1,"c":1}]}}`, 20, "/a/b/1", "twice"},
		{`{"a":1,"\u0061":2}`, 7, "", `the key "a" is there twice`},
		{`["\ud800"]`, 2, "/0", "surrogate"},
		{`["\udc00\ud800"]`, 2, "/0", "surrogate"},
		{`["\ud800\u0041"]`, 2, "/0", "surrogate"},
		{"[\"\xff\"]", 2, "/0", "UTF-8"},
		{"[\"\xed\xa0\x80\"]", 2, "/0", "UTF-8"},
		{"\ufeff{}", 0, "", "expected a JSON value"},
		{`[1e5000000]`, 1, "/0", "exponent"},
		{`[1e-99999999999999999999]`, 1, "/0", "exponent"},
		{"[" + strings.Repeat("1", 129) + "]", 1, "/0", "longer than 128"},
		{strings.Repeat("[", 129), 128, strings.Repeat("/0", 128), "deeper"},
		{``, 0, "", "too early"},
		{`{"a":1} x`, 8, "", "follows"},
		{`[01]`, 1, "/0", "leading zero"},
		{`[1,]`, 3, "/1", "expected a JSON value"},
		{`{'a':1}`, 1, "", "quoted key"},
		{"[\"a\nb\"]", 3, "/0", "control character"},
		{`[NaN]`, 1, "/0", "expected a JSON value"},
	} {
		_, err := DecodeJSON([]byte(c.raw), JSONLimits{})
		var je *JSONError
		if !errors.As(err, &je) || je.Offset != c.offset || je.Pointer != c.pointer || !strings.Contains(je.Msg, c.words) {
			t.Errorf("%.40s: got %#v, want byte %d, %q, %q", c.raw, err, c.offset, c.pointer, c.words)
		}
		if check := CheckJSON([]byte(c.raw), JSONLimits{}); check == nil || check.Error() != err.Error() {
			t.Errorf("%.40s: CheckJSON says %v", c.raw, check)
		}
	}
	if err := CheckJSON([]byte(`[[1]]`), JSONLimits{Depth: 1}); err == nil {
		t.Error("the caller's depth is not kept")
	}
	if err := CheckJSON([]byte(`[1,2,3]`), JSONLimits{Bytes: 6}); err == nil {
		t.Error("the caller's size is not kept")
	}
}

// TestCase_H7_ExactCase: a key that only folds to another is another key.
func TestCase_H7_ExactCase(t *testing.T) {
	t.Parallel()
	v, err := DecodeJSON([]byte(`{"path":1,"Path":2,"paſ":3,"\u017fs":4}`), JSONLimits{})
	if err != nil || len(v.(map[string]any)) != 4 {
		t.Fatalf("%v %v", v, err)
	}
	args, err := loadShipped(t).Tool("workspace.read_file").Args()
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{`{"Path":"output/a"}`, `{"path":"output/a","PATH":"x"}`, `{"path":"output/a","ſtart_line":1}`} {
		if args.Validate([]byte(raw)) == nil {
			t.Errorf("%s is taken", raw)
		}
	}
}

// TestCanonicalNumbers are the vectors of RFC 8785, appendix B, by their IEEE 754 bits.
func TestCanonicalNumbers(t *testing.T) {
	t.Parallel()
	for bits, want := range map[string]string{
		"0000000000000000": "0", "8000000000000000": "0", "0000000000000001": "5e-324", "8000000000000001": "-5e-324",
		"7fefffffffffffff": "1.7976931348623157e+308", "ffefffffffffffff": "-1.7976931348623157e+308",
		"4340000000000000": "9007199254740992", "c340000000000000": "-9007199254740992", "4430000000000000": "295147905179352830000",
		"44b52d02c7e14af5": "9.999999999999997e+22", "44b52d02c7e14af6": "1e+23", "44b52d02c7e14af7": "1.0000000000000001e+23",
		"444b1ae4d6e2ef4e": "999999999999999700000", "444b1ae4d6e2ef4f": "999999999999999900000", "444b1ae4d6e2ef50": "1e+21",
		"3eb0c6f7a0b5ed8c": "9.999999999999997e-7", "3eb0c6f7a0b5ed8d": "0.000001",
		"41b3de4355555553": "333333333.3333332", "41b3de4355555554": "333333333.33333325", "41b3de4355555555": "333333333.3333333",
		"41b3de4355555556": "333333333.3333334", "41b3de4355555557": "333333333.33333343", "becbf647612f3696": "-0.0000033333333333333333",
		"43143ff3c1cb0959": "1424953923781206.2",
	} {
		u, err := strconv.ParseUint(bits, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(appendDouble(nil, math.Float64frombits(u))); got != want {
			t.Errorf("%s: got %s, want %s", bits, got, want)
		}
	}
}

func TestCanonicalJSON(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		// RFC 8785, 3.2.2 and 3.2.3.
		`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`:                                        `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`: "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		// Whole numbers keep their digits.
		`[9007199254740992,9007199254740993,9007199254740993.0,-9223372036854775808,1.0,10e1,-0,-0.0]`: `[9007199254740992,9007199254740993,9007199254740993,-9223372036854775808,1,100,0,0]`,
		`1e20`:  `1e+20`,
		` [ ] `: `[]`,
	} {
		got, err := CanonicalJSON([]byte(raw))
		if err != nil || string(got) != want {
			t.Errorf("%s\n got %s %v\nwant %s", raw, got, err, want)
		}
	}
	for _, raw := range []string{`9223372036854775808`, `[-9223372036854775809]`, `{"a":1e400}`, `9007199254740993.5`, `1.00000000000000000001`} {
		_, err := CanonicalJSON([]byte(raw))
		var je *JSONError
		if !errors.As(err, &je) {
			t.Errorf("%s: %v, want a *JSONError", raw, err)
		}
	}
}

// TestCanonicalJSONLaws: one form for one value, and the form is its own form.
func TestCanonicalJSONLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := drawJSON(t, 3)
		a, err := CanonicalJSON(writeJSON(t, v))
		if err != nil {
			t.Fatal(err)
		}
		b, err := CanonicalJSON(writeJSON(t, v)) // another order of keys, other spaces and escapes
		if err != nil || !bytes.Equal(a, b) {
			t.Fatalf("two writings of one value:\n%s\n%s %v", a, b, err)
		}
		c, err := CanonicalJSON(a)
		if err != nil || !bytes.Equal(a, c) {
			t.Fatalf("not its own form:\n%s\n%s %v", a, c, err)
		}
		back, err := DecodeJSON(a, JSONLimits{})
		if err != nil || !reflect.DeepEqual(back, v) {
			t.Fatalf("%#v came back as %#v %v", v, back, err)
		}
	})
}

// drawJSON makes a value of maps, lists, int64, texts, bools and nil.
func drawJSON(t *rapid.T, depth int) any {
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.Int64().Draw(t, "int")
	case 1:
		return rapid.String().Draw(t, "text")
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return nil
	case 4:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			out = append(out, drawJSON(t, depth-1))
		}
		return out
	}
	out := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "n") {
		out[rapid.String().Draw(t, "key")] = drawJSON(t, depth-1)
	}
	return out
}

// writeJSON writes a value in one of many ways.
func writeJSON(t *rapid.T, v any) []byte {
	space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")
	var b bytes.Buffer
	switch v := v.(type) {
	case map[string]any:
		keys := rapid.Permutation(sortedKeys(v)).Draw(t, "order")
		b.WriteString("{" + space)
		for i, k := range keys {
			if i > 0 {
				b.WriteString("," + space)
			}
			b.Write(writeJSON(t, k))
			b.WriteString(space + ":" + space)
			b.Write(writeJSON(t, v[k]))
		}
		b.WriteString(space + "}")
	case []any:
		b.WriteString("[" + space)
		for i, e := range v {
			if i > 0 {
				b.WriteString(space + ",")
			}
			b.Write(writeJSON(t, e))
		}
		b.WriteString(space + "]")
	case string:
		if rapid.Bool().Draw(t, "ascii") {
			b.WriteString(strings.ReplaceAll(strconv.QuoteToASCII("")[1:1]+asciiJSON(v), "/", `\/`))
			break
		}
		b.Write(appendJSONString(nil, v))
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
		if rapid.Bool().Draw(t, "point") {
			b.WriteString(".0")
		}
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(raw)
	}
	return b.Bytes()
}

// asciiJSON escapes everything that is not ASCII.
func asciiJSON(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	var b strings.Builder
	for _, r := range string(raw) {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r < 0x10000:
			b.WriteString(`\u` + strconv.FormatInt(0x10000+int64(r), 16)[1:])
		default:
			r -= 0x10000
			b.WriteString(`\u` + strconv.FormatInt(0x10000+int64(0xd800+r>>10), 16)[1:] + `\u` + strconv.FormatInt(0x10000+int64(0xdc00+r&0x3ff), 16)[1:])
		}
	}
	return b.String()
}

// TestCase_Y05_LargeIntegers: two numbers that a double cannot tell apart have two digests, or an error.
func TestCase_Y05_LargeIntegers(t *testing.T) {
	t.Parallel()
	a, errA := DigestJSON([]byte(`{"id":9007199254740992}`))
	b, errB := DigestJSON([]byte(`{"id":9007199254740993}`))
	if errA != nil || errB != nil || a == b {
		t.Errorf("%s %s %v %v", a, b, errA, errB)
	}
	wantOnly(t, findings(t, doc("PolicyTest", "p", "cases: [{name: a, tool: workspace.finish, args: {id: 9223372036854775808}, expect: {}}]"), LoadOptions{}), "integer-range", 5, 56, "64 bits")
}

// TestJSONSuite: the public suite of parsing cases; n_ is refused, y_ taken, nothing hangs or panics.
func TestJSONSuite(t *testing.T) {
	t.Parallel()
	// Where this reader is stricter than the grammar asks, on purpose.
	stricter := map[string]string{
		"y_object_duplicated_key.json": "duplicate keys", "y_object_duplicated_key_and_value.json": "duplicate keys",
	}
	for _, line := range corpusLines(t, "7-yaml-json-torture/json-test-suite.jsonl") {
		var c struct{ Name, Expect, Base64 string }
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(c.Base64)
		if err != nil {
			t.Fatal(err)
		}
		err = CheckJSON(raw, JSONLimits{})
		switch {
		case strings.HasPrefix(c.Name, "n_") && err == nil:
			t.Errorf("%s is taken: %.60q", c.Name, raw)
		case strings.HasPrefix(c.Name, "y_") && err != nil && stricter[c.Name] == "":
			t.Errorf("%s: %v: %.60q", c.Name, err, raw)
		}
		if err == nil {
			if _, err := DecodeJSON(raw, JSONLimits{}); err != nil {
				t.Errorf("%s: checked but not decoded: %v", c.Name, err)
			}
		}
	}
}

func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"\ud83d\ude00",null,true]}`, `[1e5000000]`, `{"a":1,"a":2}`, "\"\xff\"", `-`, `[[[[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := DecodeJSON(raw, JSONLimits{})
		if check := CheckJSON(raw, JSONLimits{}); (err == nil) != (check == nil) {
			t.Fatalf("decode %v, check %v", err, check)
		}
		if err != nil {
			var je *JSONError
			if !errors.As(err, &je) || je.Offset < 0 || je.Offset > len(raw) {
				t.Fatalf("%#v", err)
			}
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("taken, but encoding/json refuses it: %q", raw)
		}
		_ = v
	})
}

func FuzzCanonicalJSON(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1.0,1e20,1e21,0.1]}`, `"\u0000\u007f€"`, `9007199254740993.0`, `1e-400`, `-0.0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := CanonicalJSON(raw)
		if err != nil {
			return
		}
		b, err := CanonicalJSON(a)
		if err != nil || !bytes.Equal(a, b) {
			t.Fatalf("%q -> %s -> %s %v", raw, a, b, err)
		}
	})
}
