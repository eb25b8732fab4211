package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Sizes of results.
const (
	// referenceFrom is the size of one content block from which it is also kept as content of its own, with a resource
	// reference, so that people and later calls can fetch it whole.
	referenceFrom = 8 << 10
	// defaultMaxResult bounds the bytes of a whole result where the tenant says nothing.
	defaultMaxResult = 16 << 20
)

func maxResult(b *specs.Bundle) int64 {
	if t := b.Tenant; t != nil && t.Limits.MaxResultBytes > 0 {
		return t.Limits.MaxResultBytes
	}
	return defaultMaxResult
}

// argsFile is the content of tool-args/....json: the provider's id stands only in here.
type argsFile struct {
	Call       specs.CallID    `json:"call"`
	ProviderID string          `json:"providerId"`
	Turn       int64           `json:"turn"`
	Asked      string          `json:"asked"`
	Tool       specs.ToolName  `json:"tool,omitempty"`
	Arguments  json.RawMessage `json:"arguments,omitempty"` // canonical; absent when they cannot be used
	Raw        specs.Digest    `json:"raw,omitempty"`       // of the bytes as the model wrote them
	RawBytes   int             `json:"rawBytes"`
}

// keepArguments puts a call's arguments under their name in the run.
func keepArguments(siblings []persistence.Call, ch *persistence.Change, c *persistence.Call, args, raw json.RawMessage) error {
	if len(args) > 0 {
		ch.Blobs = append(ch.Blobs, persistence.BlobOf("application/json", args))
	}
	data, err := json.Marshal(argsFile{c.ID, c.ProviderID, c.Turn, c.Asked, c.Tool, args, c.RawArgs, len(raw)})
	if err != nil {
		return Systemf("serialise.args", "arguments of call %s: %w", c.ID, err)
	}
	b := persistence.BlobOf("application/json", data)
	ch.Blobs = append(ch.Blobs, b)
	ch.Artifacts = append(ch.Artifacts, persistence.Artifact{Name: ArgsArtifact(c, siblings), Digest: b.Digest})
	return nil
}

// resultFile is the content of tool-results/....json, which is also the blob of the call's result.
type resultFile struct {
	Result
	ProviderID string         `json:"provider_id"`
	Tool       specs.ToolName `json:"tool,omitempty"`
}

// keepResult puts a call's result under its name in the run and notes it in the record.
func keepResult(siblings []persistence.Call, ch *persistence.Change, c *persistence.Call, r *Result) error {
	r.CallID = c.ID
	if r.Content == nil {
		r.Content = []Content{}
	}
	data, err := json.Marshal(resultFile{*r, c.ProviderID, c.Tool})
	if err != nil {
		return Systemf("serialise.result", "result of call %s: %w", c.ID, err)
	}
	b := persistence.BlobOf("application/json", data)
	ch.Blobs = append(ch.Blobs, b)
	ch.Artifacts = append(ch.Artifacts, persistence.Artifact{Name: ResultArtifact(c, siblings), Digest: b.Digest})
	c.Result, c.IsError, c.ErrorCode = b.Digest, r.IsError, r.ErrorCode
	return nil
}

// StoredResult gives the one result of a call that has ended. A call that was closed together with its run has no blob; its
// record says what became of it.
func (d *Dispatcher) StoredResult(ctx context.Context, c persistence.Call) (Result, error) {
	if !machine.Call().IsFinal(c.State) {
		return Result{}, fmt.Errorf("call %s is %s and has no result yet", c.ID, c.State)
	}
	if c.Result == "" {
		code := c.ErrorCode
		if code == "" {
			code = CodeCancelled
		}
		r := Recoverable(code, "The call has no result: it is %s. %s", c.State, c.Reason)
		r.CallID, r.Retryable = c.ID, false
		return r, nil
	}
	data, err := d.store.Blob(ctx, c.Tenant, c.Result)
	if err != nil {
		return Result{}, fmt.Errorf("result of call %s: %w", c.ID, err)
	}
	var f resultFile
	if err := json.Unmarshal(data, &f); err != nil {
		return Result{}, Systemf("serialise.result", "result of call %s: %w", c.ID, err)
	}
	return f.Result, nil
}

// StoredArgs gives the canonical arguments now in force. A call whose arguments could not be used has none: nil.
func (d *Dispatcher) StoredArgs(ctx context.Context, c persistence.Call) (json.RawMessage, error) {
	if c.Args == "" {
		return nil, nil
	}
	return d.store.Blob(ctx, c.Tenant, c.Args)
}

// kept is a tool's result made fit for the store and for the model.
type kept struct {
	result Result
	blobs  []persistence.Blob
	stored []specs.Digest // content that went by reference
}

// tidy checks a tool's result and brings it into the form in which it is kept: bytes behind references, long content also
// behind a reference and cut for the model at the tokens that the call may show, structured output against its schema, error
// codes to those that the tool may show.
func tidy(sc *scene, t *specs.Tool, r Result, tokens int64) (kept, error) {
	k := kept{result: r}
	if problem := k.readable(r, maxResult(sc.pinned.Bundle)); problem != "" {
		k = kept{result: Recoverable(CodeInvalidResult, "The tool ran, but %s, so its result cannot be shown.", problem)}
		k.result.Signal, k.result.Usage.Cost = r.Signal, r.Usage.Cost
		return k, nil
	}
	if problem, err := structured(t, &k.result); err != nil {
		return k, err
	} else if problem != "" {
		cost, signal := r.Usage.Cost, r.Signal
		k = kept{result: Recoverable(CodeInvalidResult, "The tool ran, but its structured output breaks its own schema: %s", problem)}
		k.result.Signal, k.result.Usage.Cost = signal, cost
		return k, nil
	}
	k.errorCode(t)
	k.refer(tokens)
	return k, nil
}

// readable says why a result cannot be kept, or "".
func (k *kept) readable(r Result, limit int64) string {
	size := int64(len(r.Structured))
	for _, c := range r.Content {
		size += int64(len(c.Text)) + int64(len(c.JSON)) + int64(len(c.Data))
		switch {
		case !utf8.ValidString(c.Text + c.Name + c.Ref + c.MediaType):
			return "its text is not valid UTF-8"
		case len(c.JSON) > 0 && specs.CheckJSON(c.JSON, specs.JSONLimits{Bytes: int(limit)}) != nil:
			return "a JSON block of it is not valid JSON"
		case !knownContent(c.Type):
			return fmt.Sprintf("it has content of the unknown kind %q", clip(string(c.Type), 40))
		}
	}
	if size > limit {
		return fmt.Sprintf("its result has %d bytes and at most %d are kept", size, limit)
	}
	if len(r.Structured) > 0 && specs.CheckJSON(r.Structured, specs.JSONLimits{Bytes: int(limit)}) != nil {
		return "its structured output is not valid JSON"
	}
	return ""
}

func knownContent(t ContentType) bool {
	return slices.Contains([]ContentType{ContentText, ContentJSON, ContentImageRef, ContentAudioRef, ContentFileRef, ContentResourceRef, ContentDiffRef}, t)
}

func structured(t *specs.Tool, r *Result) (string, error) {
	if len(r.Structured) == 0 || r.IsError || t.OutputSchema.IsZero() {
		return "", nil
	}
	v, err := t.OutputSchema.Compile()
	if err != nil {
		return "", Systemf("tool.schema", "the output schema of %s: %w", t.Name, err)
	}
	if err := v.Validate(r.Structured); err != nil {
		return clip(err.Error(), 400), nil
	}
	return "", nil
}

// errorCode keeps other people's error codes to those their spec declares.
func (k *kept) errorCode(t *specs.Tool) {
	r := &k.result
	if !r.IsError {
		r.ErrorCode, r.Retryable = "", false
		return
	}
	if r.ErrorCode == "" || t.Source.Kind != specs.SourceBuiltIn && !slices.Contains(t.Errors, r.ErrorCode) && r.ErrorCode != CodeSourceUnavailable {
		r.ErrorCode = CodeFailed
	}
}

// refer moves bytes out of the result, keeps long blocks in full behind references, and cuts what the model reads.
func (k *kept) refer(tokens int64) {
	r := &k.result
	left := tokens * 4 // bytes
	var shown int64
	out := make([]Content, 0, len(r.Content))
	for _, c := range r.Content {
		if c.Data != nil {
			ref := k.keep(c.MediaType, c.Data)
			c.Ref, c.Size, c.Data = ref.Ref, ref.Size, nil
		}
		if n := len(c.Text) + len(c.JSON); n > referenceFrom || int64(n) > left {
			media, data := "text/plain; charset=utf-8", []byte(c.Text)
			if c.Type == ContentJSON {
				media, data = "application/json", c.JSON
			}
			ref := k.keep(media, data)
			r.ResourceRefs = append(r.ResourceRefs, ref)
			k.stored = append(k.stored, ref.Digest)
			if int64(n) > left {
				c = cut(c, data, left, ref)
			}
		}
		n := int64(len(c.Text) + len(c.JSON))
		left, shown = left-min(n, left), shown+n
		out = append(out, c)
	}
	if n := int64(len(r.Structured)); n > referenceFrom || n > left {
		ref := k.keep("application/json", r.Structured)
		r.ResourceRefs = append(r.ResourceRefs, ref)
		k.stored = append(k.stored, ref.Digest)
		if n > left {
			r.Structured = nil
		}
	}
	shown += int64(len(r.Structured))
	r.Content = out
	r.Usage.OutputTokens = min((shown+3)/4, tokens)
}

func (k *kept) keep(media string, data []byte) ResourceRef {
	if media == "" {
		media = "application/octet-stream"
	}
	b := persistence.BlobOf(media, data)
	k.blobs = append(k.blobs, b)
	return ResourceRef{Ref: "blob:" + string(b.Digest), MediaType: media, Digest: b.Digest, Size: int64(len(data))}
}

// cut shortens a block to at most left bytes. A cut JSON value is no JSON any more, so it becomes text.
func cut(c Content, data []byte, left int64, ref ResourceRef) Content {
	notice := fmt.Sprintf("\n[cut: %d bytes in all, kept as %s]", len(data), ref.Ref)
	room := max(0, left-int64(len(notice)))
	text := string(data)
	for room > 0 && !utf8.RuneStart(text[room]) {
		room--
	}
	text = text[:room] + notice
	if int64(len(text)) > left {
		text = ""
	}
	return Content{Type: ContentText, Text: text, Ref: ref.Ref, Size: ref.Size, MediaType: ref.MediaType, Name: c.Name}
}

// appendFailed says what a store's error means for the step. What somebody else did first, what the caller asked wrongly and
// what ended with the caller's own context is passed on; everything else is a journal that cannot be written.
func appendFailed(ctx context.Context, err error) error {
	var budget *persistence.BudgetError
	var sys *SystemError
	for _, known := range []error{persistence.ErrStale, persistence.ErrFenced, persistence.ErrExpired, persistence.ErrNotFound} {
		if errors.Is(err, known) {
			return err
		}
	}
	if ctx.Err() != nil || errors.As(err, &budget) || errors.As(err, &sys) {
		return err
	}
	return &SystemError{Code: "journal.append_failed", Err: err}
}
