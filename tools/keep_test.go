package tools_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/tools"
)

func TestResultsOfEveryKindAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	png := []byte("\x89PNG\x00\xff")
	r.on("act.look", func(ctxT, tools.Request) (tools.Result, error) {
		return tools.Result{
			Content: []tools.Content{
				{Type: tools.ContentText, Text: "é <b>"}, {Type: tools.ContentJSON, JSON: json.RawMessage(`{"big":9007199254740993}`)},
				{Type: tools.ContentImageRef, Data: png, MediaType: "image/png", Name: "a.png"}, {Type: tools.ContentAudioRef, Data: []byte{1}},
				{Type: tools.ContentFileRef, Ref: "workspace:output/a.md"}, {Type: tools.ContentResourceRef, Ref: "https://example.org"},
				{Type: tools.ContentDiffRef, Data: []byte("--- a\n"), MediaType: "text/x-diff"},
			},
			Structured: json.RawMessage(`{"ok":true}`),
		}, nil
	})
	p := r.one("act.look", `{}`)
	r.execute(p)
	res, err := r.dispatcher().Execute(r.ctx, r.scope, p.Call.ID) // as another process reads it
	r.must(err)
	if len(res.Content) != 7 || string(res.Structured) != `{"ok":true}` || res.CallID != p.Call.ID {
		t.Fatalf("%+v", res)
	}
	if string(res.Content[1].JSON) != `{"big":9007199254740993}` || res.Content[0].Text != "é <b>" {
		t.Errorf("%+v", res.Content[:2])
	}
	img := res.Content[2]
	if img.Size != int64(len(png)) || !strings.HasPrefix(img.Ref, "blob:sha256:") || img.MediaType != "image/png" {
		t.Errorf("%+v", img)
	}
	data, err := r.store.Blob(r.ctx, tenant, digestOf(img.Ref))
	if err != nil || string(data) != string(png) {
		t.Errorf("%q %v", data, err)
	}
	r.verify()
}

func TestLargeResultsGoByReference(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	big := strings.Repeat("日本語 ", 30_000)
	r.on("act.look", func(ctxT, tools.Request) (tools.Result, error) { return tools.Text("%s", big), nil })
	p := r.one("act.look", `{}`)
	res := r.execute(p)
	if res.Usage.OutputTokens > tools.MaxOutputPerCall || len(text(res)) > tools.MaxOutputPerCall*4 || len(res.ResourceRefs) != 1 {
		t.Errorf("%d tokens, %d bytes, %v", res.Usage.OutputTokens, len(text(res)), res.ResourceRefs)
	}
	full, err := r.store.Blob(r.ctx, tenant, res.ResourceRefs[0].Digest)
	if err != nil || string(full) != big {
		t.Errorf("the whole is kept: %d bytes, %v", len(full), err)
	}
	stored := false
	for _, l := range r.journal() {
		stored = stored || l.Kind == persistence.KindResultStored
		if len(l.Payload) > 2000 {
			t.Errorf("a line of %d bytes", len(l.Payload))
		}
	}
	if !stored {
		t.Error("no line says that a result went by reference")
	}
	r.verify()
}

func TestResultsThatBreakTheirWord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, res := range map[string]tools.Result{
		"structured against the schema": {Structured: json.RawMessage(`{"ok":"yes"}`)},
		"structured that is not JSON":   {Structured: json.RawMessage(`{"ok":`)},
		"duplicate keys":                {Structured: json.RawMessage(`{"ok":true,"ok":false}`)},
		"a JSON block that is not JSON": {Content: []tools.Content{{Type: tools.ContentJSON, JSON: json.RawMessage(`nope`)}}},
		"text that is not UTF-8":        tools.Text("\xff\xfe"),
		"an unknown kind":               {Content: []tools.Content{{Type: "video"}}},
		"far too much":                  tools.Text("%s", strings.Repeat("x", 17<<20)),
	} {
		r.on("act.look", func(ctxT, tools.Request) (tools.Result, error) { return res, nil })
		p := r.one("act.look", `{}`)
		got := r.execute(p)
		if !got.IsError || got.ErrorCode != tools.CodeInvalidResult {
			t.Errorf("%s: %+v", name, got)
		}
		r.state(p, machine.CallFailed)
	}
	r.verify()
}

// TestJ9_BytesInAreBytesOut: what is accepted comes back as it went in.
func TestJ9_BytesInAreBytesOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i, s := range []string{"", "\x00", "a\u2028b", "\U0010ffff", `\u0000`, "é", "<&>", "9007199254740993", strings.Repeat("x", 9000)} {
		args, err := json.Marshal(map[string]any{"to": s, "num": 9007199254740993})
		r.must(err)
		raw := []byte("  " + string(args) + "\n")
		r.on("act.once", func(_ ctxT, req tools.Request) (tools.Result, error) {
			var in struct{ To string }
			if err := json.Unmarshal(req.Args, &in); err != nil {
				return tools.Result{}, err
			}
			return tools.Text("%s", in.To), nil
		})
		p := r.propose(tools.Call{ID: fmt.Sprint(i), Name: "act.once", Arguments: raw})[0]
		if p.Result != nil {
			t.Fatalf("%q: %+v", s, p.Result)
		}
		if got := text(r.execute(p)); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
		back, err := r.store.Blob(r.ctx, tenant, p.Call.RawArgs)
		if err != nil || string(back) != string(raw) {
			t.Errorf("raw %q, %v", back, err)
		}
	}
	r.verify()
}

func TestRedactedArgumentsReachNoLineAndNoCard(t *testing.T) {
	t.Parallel()
	const canary = "s3cr3t-canary"
	r := newRig(t, `
apiVersion: callgate/v1
kind: Policy
metadata: {name: ask}
spec: {layer: platform, rules: [{name: ask, tools: [act.must], when: 'args.to == "ask"', effect: approve}]}
`)
	for _, to := range []string{"x", "ask"} {
		p := r.one("act.must", fmt.Sprintf(`{"to":%q,"secret":%q}`, to, canary))
		if p.Approval != nil {
			if strings.Contains(string(p.Approval.Shown), canary) {
				t.Error("the card shows it")
			}
			var card tools.Card
			r.must(json.Unmarshal(p.Approval.Shown, &card))
			if !card.Redacted {
				t.Error("the card does not say that something is hidden")
			}
			r.decide(p, bob, tools.BallotApprove)
		}
		r.execute(p)
		records, err := r.store.Decisions(r.ctx, tenant, r.scope.Run, p.Call.ID)
		r.must(err)
		for _, rec := range records {
			if strings.Contains(string(rec.Input)+string(rec.Output), canary) || rec.Replayable {
				t.Errorf("decision input %s", rec.Input)
			}
		}
	}
	for _, l := range r.journal() {
		if strings.Contains(string(l.Payload), canary) {
			t.Errorf("line %d: %s", l.Seq, l.Payload)
		}
	}
}

func TestCase_E35_EveryOutcomeHasARecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, `
apiVersion: callgate/v1
kind: Policy
metadata: {name: broken}
spec: {layer: platform, rules: [{name: broken, tools: [act.once], when: 'has(args.num) && 10 / (args.num - 5) > 100', effect: deny}]}
`)
	p := r.one("act.once", `{"num":5}`)
	if p.Result == nil || p.Call.State != machine.CallDenied {
		t.Fatalf("a deny that cannot be decided denies: %+v", p.Call.State)
	}
	records, err := r.store.Decisions(r.ctx, tenant, r.scope.Run, p.Call.ID)
	r.must(err)
	if len(records) != 1 || !strings.Contains(string(records[0].Output), "policy_error") {
		t.Errorf("%+v", records)
	}
	if !hasKind(r.journal(), "tool_call_denied") {
		t.Error("no line")
	}
}
