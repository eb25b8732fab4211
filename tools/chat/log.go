package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// log is a chat file as lines. A line is kept as its bytes unless a commit changes it.
type log struct {
	lines [][]byte // without line ends; the first may be the header
	own   []owned  // lines that hold a message of a run, in file order
}

// owned is a message that a run wrote.
type owned struct {
	line int
	run  specs.RunID
	id   string
	done []receipt
}

// receipt is one commit, kept inside the message it went into.
type receipt struct {
	Key    string       `json:"key"`
	Digest specs.Digest `json:"digest"` // of the whole message after it
}

// message is what this package reads of a line. Everything else stays as it was.
type message struct {
	Mes   *string `json:"mes"`
	Extra struct {
		Callgate *mark `json:"callgate"`
	} `json:"extra"`
}

// mark is what makes a message a run's: it lies in extra.callgate.
type mark struct {
	Run     specs.RunID `json:"run"`
	ID      string      `json:"id"`
	Commits []receipt   `json:"commits"`
}

// parseChat never fails: a line that is no message of ours, or no JSON at all, is somebody else's and is kept.
func parseChat(data []byte) *log {
	l := &log{}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		var m message
		if json.Unmarshal(line, &m) == nil && m.Mes != nil && m.Extra.Callgate != nil {
			c := m.Extra.Callgate
			l.own = append(l.own, owned{len(l.lines), c.Run, c.ID, c.Commits})
		}
		l.lines = append(l.lines, line)
	}
	for len(l.lines) > 0 && len(l.lines[len(l.lines)-1]) == 0 {
		l.lines = l.lines[:len(l.lines)-1]
	}
	return l
}

func (l *log) bytes() []byte {
	return append(bytes.Join(l.lines, []byte("\n")), '\n')
}

// receipt finds what an earlier commit with this key was answered.
func (l *log) receipt(key string) (tools.Receipt, bool) {
	for _, o := range l.own {
		for _, r := range o.done {
			if r.Key == key {
				return tools.Receipt{Message: o.id, Digest: r.Digest}, true
			}
		}
	}
	return tools.Receipt{}, false
}

// commit changes the run's message, or makes it behind all others.
func (l *log) commit(c tools.Commit, now time.Time) (tools.Receipt, error) {
	if len(l.lines) == 0 {
		header, err := encode(map[string]any{"user_name": "unused", "character_name": "unused", "chat_metadata": map[string]any{}})
		if err != nil {
			return tools.Receipt{}, err
		}
		l.lines = append(l.lines, header)
	}
	text, line, m := c.Content, len(l.lines), mark{Run: c.Run, ID: "run-" + string(c.Run)}
	fields := map[string]json.RawMessage{}
	extra := map[string]json.RawMessage{}
	if o, ok := l.of(c.Run); ok {
		line, m.Commits = o.line, o.done
		if err := json.Unmarshal(l.lines[line], &fields); err != nil {
			return tools.Receipt{}, err
		}
		if err := json.Unmarshal(fields["extra"], &extra); err != nil {
			return tools.Receipt{}, err
		}
		if c.Mode == tools.CommitAppend {
			var old string
			if err := json.Unmarshal(fields["mes"], &old); err != nil {
				return tools.Receipt{}, err
			}
			text = old + text
		}
	} else {
		for key, value := range map[string]any{"name": "callgate", "is_user": false, "is_system": false, "send_date": now.UTC().Format("2006-01-02T15:04:05.000Z")} {
			if err := set(fields, key, value); err != nil {
				return tools.Receipt{}, err
			}
		}
	}
	digest := specs.DigestOf([]byte(text))
	m.Commits = append(m.Commits, receipt{c.Key, digest})
	if err := set(extra, "callgate", m); err != nil {
		return tools.Receipt{}, err
	}
	if err := set(fields, "extra", extra); err != nil {
		return tools.Receipt{}, err
	}
	if err := set(fields, "mes", text); err != nil {
		return tools.Receipt{}, err
	}
	if err := swipe(fields, text); err != nil {
		return tools.Receipt{}, err
	}
	raw, err := encode(fields)
	if err != nil {
		return tools.Receipt{}, err
	}
	if line == len(l.lines) {
		l.lines = append(l.lines, nil)
	}
	l.lines[line] = raw
	return tools.Receipt{Message: m.ID, Digest: digest}, nil
}

// of finds a run's message.
func (l *log) of(run specs.RunID) (owned, bool) {
	for _, o := range l.own {
		if o.run == run {
			return o, true
		}
	}
	return owned{}, false
}

// swipe keeps the shown variant of a message equal to its text, where a chat program has given it variants.
func swipe(fields map[string]json.RawMessage, text string) error {
	var variants []json.RawMessage
	var shown int
	if json.Unmarshal(fields["swipes"], &variants) != nil || json.Unmarshal(fields["swipe_id"], &shown) != nil || shown < 0 || shown >= len(variants) {
		return nil
	}
	raw, err := encode(text)
	if err != nil {
		return err
	}
	variants[shown] = raw
	return set(fields, "swipes", variants)
}

func set(fields map[string]json.RawMessage, key string, value any) error {
	raw, err := encode(value)
	if err != nil {
		return fmt.Errorf("message: %w", err)
	}
	fields[key] = raw
	return nil
}
