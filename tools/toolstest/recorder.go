package toolstest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// Effect is one thing that really happened outside the gate.
type Effect struct {
	Tool    specs.ToolName  `json:"tool"`
	Run     specs.RunID     `json:"run"`
	Call    specs.CallID    `json:"call"`
	Key     string          `json:"key"` // the call's idempotency key
	Attempt int64           `json:"attempt"`
	Args    json.RawMessage `json:"args,omitempty"`
}

func effectOf(req tools.Request) Effect {
	e := Effect{Run: req.Run, Call: req.Call, Key: req.IdempotencyKey, Attempt: req.Attempt, Args: req.Args}
	if req.Tool != nil {
		e.Tool = req.Tool.ToolName()
	}
	return e
}

// Recorder stands outside the gate and sees effects. It never forgets and never merges: two effects of one key are two.
type Recorder interface {
	Record(e Effect) error
	Effects() ([]Effect, error)
}

// Count says how often an effect with this idempotency key was seen.
func Count(r Recorder, key string) (int, error) {
	effects, err := r.Effects()
	n := 0
	for _, e := range effects {
		if e.Key == key {
			n++
		}
	}
	return n, err
}

// MemoryRecorder records for one process.
type MemoryRecorder struct {
	mu      sync.Mutex
	effects []Effect
}

// Record implements Recorder.
func (r *MemoryRecorder) Record(e Effect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.effects = append(r.effects, e)
	return nil
}

// Effects implements Recorder.
func (r *MemoryRecorder) Effects() ([]Effect, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Effect{}, r.effects...), nil
}

// FileRecorder records into a file, one JSON line an effect, on disk before Record returns: what it saw is still there when
// the process is killed the next moment. Several processes may write to one file.
type FileRecorder struct{ Path string }

// Record implements Recorder.
func (r FileRecorder) Record(e Effect) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("record an effect: %w", err)
	}
	f, err := os.OpenFile(r.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("record an effect: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("record an effect: %w", err)
	}
	return nil
}

// Effects implements Recorder. A file nobody wrote to has none; a last line cut short by a kill is no effect.
func (r FileRecorder) Effects() ([]Effect, error) {
	data, err := os.ReadFile(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read effects: %w", err)
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	var out []Effect
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for lines.Scan() {
		var e Effect
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: effect %d: %w", r.Path, len(out)+1, err)
		}
		out = append(out, e)
	}
	return out, lines.Err()
}
