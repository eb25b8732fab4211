package toolstest

import (
	"context"
	"errors"
	"fmt"
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

// FakeHost is a chat in memory that keeps its promises: one message a run, each key once. Its zero value works.
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
	chats    map[string][]Message
	receipts map[[2]string]tools.Receipt
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
	if r, ok := h.receipts[[2]string{c.Chat, c.Key}]; ok {
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
		h.receipts = map[[2]string]tools.Receipt{}
	}
	h.receipts[[2]string{c.Chat, c.Key}] = receipt
	if h.LoseAcks > 0 {
		h.LoseAcks--
		return tools.Receipt{}, ErrLostAck
	}
	return receipt, nil
}

// message changes the run's message, or makes it.
func (h *FakeHost) message(c tools.Commit) Message {
	chat := h.chats[c.Chat]
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
		h.chats = map[string][]Message{}
	}
	h.chats[c.Chat] = append(chat, m)
	return m
}

// Confirm implements tools.Host.
func (h *FakeHost) Confirm(_ context.Context, chat, key string) (tools.Receipt, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Mute != nil {
		return tools.Receipt{}, false, h.Mute
	}
	r, ok := h.receipts[[2]string{chat, key}]
	return r, ok, nil
}

// Messages gives a chat's messages.
func (h *FakeHost) Messages(chat string) []Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Message{}, h.chats[chat]...)
}
