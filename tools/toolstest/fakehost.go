package toolstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// Message is one message of a FakeHost's chat.
type Message struct {
	ID   string
	Run  specs.RunID
	Text string
}

// FakeHost is a chat in memory that keeps its promises: one message a run, each key once, each tenant by itself. Its zero value
// works.
type FakeHost struct {
	// LoseAcks is how many commits are written and then answered with ErrLostAck.
	LoseAcks int
	// Refuse, when not nil, is the answer to every commit; nothing is written.
	Refuse error
	// Mute, when not nil, is the answer to every Confirm.
	Mute error
	// Recorder sees each commit that is written, when set.
	Recorder Recorder

	mu       sync.Mutex
	chats    map[place][]Message
	receipts map[receiptKey]tools.Receipt
}

type place struct {
	tenant specs.TenantID
	chat   string
}

type receiptKey struct {
	place
	key string
}

// ErrLostAck is what a caller gets when the host did its work and its answer was lost.
var ErrLostAck = errors.New("the connection to the chat broke")

// Commit implements tools.Host.
func (h *FakeHost) Commit(ctx context.Context, c tools.Commit) (tools.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return tools.Receipt{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := receiptKey{place{c.Tenant, c.Chat}, c.Key}
	if r, ok := h.receipts[key]; ok {
		return r, nil
	}
	if h.Refuse != nil {
		return tools.Receipt{}, h.Refuse
	}
	if h.Recorder != nil {
		if err := h.Recorder.Record(Effect{Tool: "workspace.commit", Run: c.Run, Key: c.Key}); err != nil {
			return tools.Receipt{}, err
		}
	}
	m := h.message(c)
	receipt := tools.Receipt{Message: m.ID, Digest: specs.DigestOf([]byte(m.Text))}
	if h.receipts == nil {
		h.receipts = map[receiptKey]tools.Receipt{}
	}
	h.receipts[key] = receipt
	if h.LoseAcks > 0 {
		h.LoseAcks--
		return tools.Receipt{}, ErrLostAck
	}
	return receipt, nil
}

// message changes the run's message, or makes it.
func (h *FakeHost) message(c tools.Commit) Message {
	at := place{c.Tenant, c.Chat}
	chat := h.chats[at]
	for i := range chat {
		if chat[i].Run == c.Run {
			if c.Mode == tools.CommitAppend {
				chat[i].Text += c.Content
			} else {
				chat[i].Text = c.Content
			}
			return chat[i]
		}
	}
	m := Message{ID: fmt.Sprintf("m%d", len(chat)+1), Run: c.Run, Text: c.Content}
	if h.chats == nil {
		h.chats = map[place][]Message{}
	}
	h.chats[at] = append(chat, m)
	return m
}

// Confirm implements tools.Host.
func (h *FakeHost) Confirm(_ context.Context, tenant specs.TenantID, chat, key string) (tools.Receipt, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Mute != nil {
		return tools.Receipt{}, false, h.Mute
	}
	r, ok := h.receipts[receiptKey{place{tenant, chat}, key}]
	return r, ok, nil
}

// Messages gives the messages of a chat, for tests with one tenant: where several have a chat of that name, one after the other.
func (h *FakeHost) Messages(chat string) []Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	var tenants []specs.TenantID
	for at := range h.chats {
		if at.chat == chat {
			tenants = append(tenants, at.tenant)
		}
	}
	slices.Sort(tenants)
	out := []Message{}
	for _, t := range tenants {
		out = append(out, h.chats[place{t, chat}]...)
	}
	return out
}

// MessagesOf gives the messages of one tenant's chat.
func (h *FakeHost) MessagesOf(tenant specs.TenantID, chat string) []Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.chats[place{tenant, chat}])
}
