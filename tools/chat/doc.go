// Package chat keeps chats as files: one JSONL file each, a header line and then one line a message, in the form that
// SillyTavern reads and writes.
//
// What you most likely want is [FileHost], a tools.Host for one machine:
//
//	dispatcher, err := tools.NewDispatcher(tools.Config{Host: chat.FileHost{Dir: "chats"}, ...})
//
// A run's commits become one message of its chat. Lines that the host did not write stay as they are, byte for byte.
//
// The promises:
//
//   - A commit is on disk when Commit returns, or not there at all: the file is written beside, synced, and put in place
//     by a rename. A kill at any moment leaves the old or the new chat.
//   - A key is written once, whatever processes try: the receipt is kept inside the message, so what Confirm says and
//     what the chat holds cannot differ.
//   - Chat ids come from outside and are escaped; no id leads out of Dir, through a link either.
//   - Waiting for another process ends with the context, and after LockWait at the latest.
package chat
