package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
)

// However long a result is, what the model reads of it is within its tokens (and a notice), is UTF-8, and says when it is not all.
func TestView_IsWithinItsTokens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.Int64Range(1, 200).Draw(r, "tokens")
		var in tools.Result
		whole := 0
		for range rapid.IntRange(0, 4).Draw(r, "blocks") {
			text := strings.Repeat(rapid.SampledFrom([]string{"a", "ü", "漢", "😀"}).Draw(r, "rune"), rapid.IntRange(1, 400).Draw(r, "n"))
			c := tools.Content{Type: tools.ContentText, Text: text}
			if rapid.Bool().Draw(r, "json") {
				data, _ := json.Marshal(text)
				c = tools.Content{Type: tools.ContentJSON, JSON: data}
			}
			whole += len(c.Text) + len(c.JSON)
			in.Content = append(in.Content, c)
		}
		out, reason := view(specs.ContextPolicy{MaxResultTokens: limit}, persistence.Call{Result: "sha256:x"}, in)
		size, notice := 0, false
		for i, c := range out.Content {
			if i == len(out.Content)-1 && strings.HasPrefix(c.Text, "[") && strings.Contains(c.Text, "blob:sha256:x") {
				notice = true
				continue
			}
			size += len(c.Text) + len(c.JSON)
			if !utf8.ValidString(c.Text) || len(c.JSON) > 0 && !json.Valid(c.JSON) {
				r.Fatalf("a block was cut in the wrong place: %+v", c)
			}
		}
		if int64(size) > limit*bytesPerToken {
			r.Fatalf("%d bytes for %d tokens", size, limit)
		}
		if cut := size < whole; cut != notice || cut != (reason != "") {
			r.Fatalf("%d of %d bytes shown, notice %v, reason %q", size, whole, notice, reason)
		}
	})
}

// A reply comes back from the store with every byte it had, whatever a provider or a hostile model puts into it.
func TestJ9_AReplyComesBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Byte(), 1, 40)
		in := mend(provider.Reply{Text: string(bytes.Draw(r, "text")), Metadata: bytes.Draw(r, "metadata"), Usage: provider.Usage{InputTokens: 1 << 60},
			Calls: []tools.Call{{ID: string(bytes.Draw(r, "id")), Name: "a", Arguments: bytes.Draw(r, "args"), Metadata: bytes.Draw(r, "meta"), Synthetic: true}}})
		blob, err := encodeReply(in)
		if err != nil {
			r.Fatal(err)
		}
		out, err := decodeReply(blob.Data)
		if err != nil {
			r.Fatal(err)
		}
		if string(out.Metadata) != string(in.Metadata) || out.Text != in.Text || out.Usage != in.Usage || len(out.Calls) != 1 ||
			out.Calls[0].ID != in.Calls[0].ID || string(out.Calls[0].Arguments) != string(in.Calls[0].Arguments) ||
			string(out.Calls[0].Metadata) != string(in.Calls[0].Metadata) || !out.Calls[0].Synthetic {
			r.Fatalf("%+v came back as %+v", in, out)
		}
	})
}

// The wire list is asserted: an alias that two tools share, or a tool that the bundle does not have, stops the request.
func TestCase_E30_AWrongListIsNotSent(t *testing.T) {
	t.Parallel()
	b, err := specs.LoadFiles([]specs.File{{Name: "t.yaml", Data: []byte("apiVersion: callgate/v1\nkind: Tool\nmetadata: {name: a.b}\nspec: {description: x, source: built_in}\n")}}, specs.LoadOptions{Level: specs.PlatformLevel, NoCatalog: true})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := wire(b, &specs.Profile{}, nil, []specs.ToolName{"a.b"}); err != nil || len(list) != 1 || !json.Valid(list[0].InputSchema) {
		t.Errorf("a right list: %v, %v", list, err)
	}
	for _, visible := range [][]specs.ToolName{{"a.b", "a.c"}, {"a.b", "a.b"}} {
		if _, err := wire(b, &specs.Profile{}, nil, visible); err == nil {
			t.Errorf("%v was sent", visible)
		}
	}
}
