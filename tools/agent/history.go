package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
)

// history is what the journal says about the conversation, read once and then followed. It is a cache: a new one
// made from the same journal is the same.
type history struct {
	store  persistence.Store
	tenant specs.TenantID
	run    specs.RunID

	seq     int64 // last line read
	entries []entry
	// pending is guidance that was submitted and not yet applied, oldest first.
	pending []guidance
	// failures counts the model requests that failed since the last reply.
	failures int
	// skipped is the last reason given for leaving a component out, so that one is not given again every turn.
	skipped map[string]string
}

// entry is one thing the model said or was told, in journal order.
type entry struct {
	turn  int64          // of reply
	reply provider.Reply // when turn > 0
	kind  string         // of a message to the model: guidance, reminder, plan
	text  string
}

type guidance struct {
	seq  int64
	text specs.Digest
	by   specs.UserID
}

// Payloads of lines that carry a text for the model. The text is a blob, so that a line stays small.
type (
	guidancePayload struct {
		Text      specs.Digest `json:"text"`
		By        specs.UserID `json:"by,omitempty"`
		Submitted int64        `json:"submitted,omitempty"` // seq of the guidance_submitted line
	}
	driftPayload struct {
		Turn     int64        `json:"turn"`
		Attempt  int64        `json:"attempt"`
		Limit    int64        `json:"limit"`
		Reminder specs.Digest `json:"reminder"`
	}
	nodePayload struct {
		Plan     string       `json:"plan"`
		Node     specs.NodeID `json:"node"`
		Title    string       `json:"title,omitempty"`
		From     specs.NodeID `json:"from,omitempty"`
		Guidance specs.Digest `json:"guidance,omitempty"`
	}
	skippedPayload struct {
		Component string `json:"component"`
		Reason    string `json:"reason"`
	}
	modelFailedPayload struct {
		Turn    int64  `json:"turn"`
		Attempt int    `json:"attempt"`
		Error   string `json:"error"`
	}
)

func newHistory(store persistence.Store, t specs.TenantID, run specs.RunID) *history {
	return &history{store: store, tenant: t, run: run, skipped: map[string]string{}}
}

var conversation = []string{
	persistence.KindModelTurn, persistence.KindModelFailed, persistence.KindGuidanceSubmitted, persistence.KindGuidanceApplied,
	persistence.KindDriftRecovery, persistence.KindNodeEntered, persistence.KindContextSkipped,
}

// follow reads what was added since it last read.
func (h *history) follow(ctx context.Context) error {
	const page = 500
	for {
		lines, err := h.store.Journal(ctx, h.tenant, h.run, persistence.JournalQuery{AfterSeq: h.seq, Kinds: conversation, Limit: page})
		if err != nil {
			return err
		}
		for _, l := range lines {
			if err := h.add(ctx, l); err != nil {
				return err
			}
			h.seq = l.Seq
		}
		if len(lines) < page {
			return nil
		}
	}
}

func (h *history) add(ctx context.Context, l persistence.Line) error {
	switch l.Kind {
	case persistence.KindModelTurn:
		turn, reply, err := ReadTurn(ctx, h.store, l)
		if err != nil {
			return lost(ctx, err)
		}
		h.entries = append(h.entries, entry{turn: turn, reply: reply})
		h.failures = 0
	case persistence.KindModelFailed:
		h.failures++
	case persistence.KindGuidanceSubmitted:
		var p guidancePayload
		if err := payload(l, &p); err != nil {
			return err
		}
		h.pending = append(h.pending, guidance{seq: l.Seq, text: p.Text, by: p.By})
	case persistence.KindGuidanceApplied:
		var p guidancePayload
		if err := payload(l, &p); err != nil {
			return err
		}
		rest := h.pending[:0]
		for _, g := range h.pending {
			if g.seq != p.Submitted {
				rest = append(rest, g)
			}
		}
		h.pending = rest
		return h.say(ctx, "guidance", p.Text)
	case persistence.KindDriftRecovery:
		var p driftPayload
		if err := payload(l, &p); err != nil {
			return err
		}
		return h.say(ctx, "reminder", p.Reminder)
	case persistence.KindNodeEntered:
		var p nodePayload
		if err := payload(l, &p); err != nil {
			return err
		}
		if p.Guidance != "" {
			return h.say(ctx, "plan", p.Guidance)
		}
	case persistence.KindContextSkipped:
		var p skippedPayload
		if err := payload(l, &p); err != nil {
			return err
		}
		h.skipped[p.Component] = p.Reason
	}
	return nil
}

func (h *history) say(ctx context.Context, kind string, text specs.Digest) error {
	data, err := h.store.Blob(ctx, h.tenant, text)
	if err != nil {
		return lost(ctx, fmt.Errorf("text of a %s: %w", kind, err))
	}
	h.entries = append(h.entries, entry{kind: kind, text: string(data)})
	return nil
}

// lost makes a system failure of content that the store no longer has or that is no longer what it was: a request
// built without it would be another one. A store that cannot be reached is not that.
func lost(ctx context.Context, err error) error {
	if ctx.Err() == nil && (errors.Is(err, persistence.ErrNotFound) || errors.Is(err, persistence.ErrCorrupt)) {
		return tools.Systemf("provider.metadata_lost", "the history cannot be rebuilt: %w", err)
	}
	return err
}

func payload(l persistence.Line, into any) error {
	if err := json.Unmarshal(l.Payload, into); err != nil {
		return tools.Systemf("journal.unreadable", "line %d (%s): %w", l.Seq, l.Kind, err)
	}
	return nil
}
