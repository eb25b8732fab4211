package chat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// Bounds.
const (
	// MaxChatBytes is the largest chat file that is read or written.
	MaxChatBytes = 64 << 20
	// LockWait is how long a commit waits for other processes that write to the same chat.
	LockWait = 30 * time.Second
)

// Sentinels.
var (
	// ErrNoChat says that the run answers in no chat.
	ErrNoChat = errors.New("the run answers in no chat")
	// ErrBusy says that other processes held the chat for LockWait.
	ErrBusy = errors.New("the chat is being written by another process")
	// ErrTooLarge says that the chat would pass MaxChatBytes.
	ErrTooLarge = errors.New("the chat is too large")
	// ErrNotAFile says that something else than a regular file is where the chat should be.
	ErrNotAFile = errors.New("not a regular file")
)

// FileHost is a folder of chats, Dir/<tenant>/<chat>.jsonl. It is safe for concurrent use by many processes on one machine.
type FileHost struct {
	Dir string // made when it does not exist
	// Clock dates new messages; nil: time.Now.
	Clock func() time.Time
}

var _ tools.Host = FileHost{}

// Path gives the file of a chat.
func (h FileHost) Path(tenant specs.TenantID, chat string) string {
	return filepath.Join(h.Dir, filepath.FromSlash(chatFile(tenant, chat)))
}

// Commit implements tools.Host.
func (h FileHost) Commit(ctx context.Context, c tools.Commit) (receipt tools.Receipt, err error) {
	if c.Chat == "" {
		return receipt, ErrNoChat
	}
	if c.Key == "" {
		return receipt, errors.New("a commit needs a key")
	}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return receipt, fmt.Errorf("chats: %w", err)
	}
	root, err := os.OpenRoot(h.Dir)
	if err != nil {
		return receipt, fmt.Errorf("chats: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name := chatFile(c.Tenant, c.Chat)
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return receipt, fmt.Errorf("chat %s: %w", name, err)
	}
	unlock, err := lock(ctx, root, name+".lock")
	if err != nil {
		return receipt, fmt.Errorf("chat %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()

	data, err := readChat(root, name)
	if err != nil {
		return receipt, fmt.Errorf("chat %s: %w", name, err)
	}
	log := parseChat(data)
	if r, done := log.receipt(c.Key); done {
		return r, nil
	}
	receipt, err = log.commit(c, h.now())
	if err != nil {
		return tools.Receipt{}, fmt.Errorf("chat %s: %w", name, err)
	}
	out := log.bytes()
	if len(out) > MaxChatBytes {
		return tools.Receipt{}, fmt.Errorf("chat %s: %w", name, ErrTooLarge)
	}
	if err := ctx.Err(); err != nil { // the last moment at which nothing has happened
		return tools.Receipt{}, err
	}
	if err := replaceFile(root, name, out); err != nil {
		return tools.Receipt{}, fmt.Errorf("chat %s: %w", name, err)
	}
	return receipt, nil
}

// Confirm implements tools.Host. It looks into the tenant's own folder and no other. A commit that another process is just
// writing counts: Confirm waits for it.
func (h FileHost) Confirm(ctx context.Context, tenant specs.TenantID, chat, key string) (r tools.Receipt, happened bool, err error) {
	if chat == "" {
		return r, false, nil // no commit can have happened there
	}
	root, err := os.OpenRoot(h.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("chats: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name := chatFile(tenant, chat)
	if _, err := root.Lstat(name + ".lock"); errors.Is(err, fs.ErrNotExist) {
		return r, false, nil // nobody has ever committed there
	}
	unlock, err := lock(ctx, root, name+".lock")
	if err != nil {
		return r, false, fmt.Errorf("chat %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	data, err := readChat(root, name)
	if err != nil {
		return r, false, fmt.Errorf("chat %s: %w", name, err)
	}
	r, happened = parseChat(data).receipt(key)
	return r, happened, nil
}

func (h FileHost) now() time.Time {
	if h.Clock != nil {
		return h.Clock()
	}
	return time.Now()
}

func chatFile(tenant specs.TenantID, chat string) string {
	return path.Join(escape(string(tenant)), escape(chat)+".jsonl")
}

// escape makes a file name of an id, one to one: lower-case letters, digits, "-" and "_" stay, every other byte becomes
// %XX. Upper-case letters are escaped too, because some file systems take them for the lower ones. A long id is cut and
// told apart by its digest.
func escape(id string) string {
	const most = 150
	var b bytes.Buffer
	for _, c := range []byte(id) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	switch {
	case b.Len() == 0:
		return "%" // no id escapes to this
	case b.Len() <= most:
		return b.String()
	}
	sum := sha256.Sum256([]byte(id))
	return string(b.Bytes()[:most-70]) + "%~" + hex.EncodeToString(sum[:])
}

// readChat reads a chat file; one that does not exist is empty. It opens regular files only and never waits on a pipe.
func readChat(root *os.Root, name string) (data []byte, err error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNotAFile
	}
	f, err := root.OpenFile(name, os.O_RDONLY|openNoWait, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, ErrNotAFile)
	}
	data, err = io.ReadAll(io.LimitReader(f, MaxChatBytes+1))
	if err == nil && len(data) > MaxChatBytes {
		err = ErrTooLarge
	}
	return data, err
}

// replaceFile puts new content in place of a file, all or nothing. The caller holds the chat's lock, so the temporary
// name is his alone; what a killed process left under it is overwritten.
func replaceFile(root *os.Root, name string, data []byte) error {
	temp := name + ".new"
	if err := root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	if err := root.Rename(temp, name); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return syncFolder(root, path.Dir(name))
}

// lock takes the chat's lock file for this process and this call.
func lock(ctx context.Context, root *os.Root, name string) (unlock func() error, err error) {
	if info, err := root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, ErrNotAFile
	}
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|openNoWait, 0o600)
	if err != nil {
		return nil, err
	}
	giveUp := time.NewTimer(LockWait)
	defer giveUp.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		got, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if got {
			return f.Close, nil // closing the file gives the lock back; the file stays, because others may wait on it
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-giveUp.C:
			return nil, errors.Join(ErrBusy, f.Close())
		case <-time.After(pause):
		}
	}
}

// encode writes JSON as the other programs that use these files do: without escaping < > &.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
