// Package machine holds lifecycles as tables: what is lawful next for a tool call, a run, an invocation,
// an approval, or anything else that a team writes down as a Machine document.
//
// What you most likely want is [Table.Fire], on one of the four shipped tables:
//
//	step, err := machine.Call().Fire(machine.CallReady, machine.CallStart)
//	// step.To is machine.CallStarted, step.Journal is "tool_call_started"
//
// or, for a document of your own, [New], which refuses a table that can get stuck before anything runs
// on it, and [Verify], which says why with the shortest way into the trouble.
//
// Fire answers a question; it keeps nothing. The state lives in a store, and a step becomes true when the
// store commits it. That is why nothing here takes a context, reads a clock, does I/O or starts a
// goroutine, and why an error leaves nothing to repair.
//
// Promises:
//   - Only edges of the table are ever answered; everything else is an [*IllegalError] that lists what
//     would have been legal. No text, however odd, makes it panic.
//   - A table that exists is sound: every state is reachable, every rest has an owner, every state that is
//     not final can still reach a final one, no final state has an exit, no edge is said twice.
//   - A Table never changes and is safe for concurrent use. Its lists are in the document's order or
//     sorted, as each method says, and are the same in every process.
//
// [Explore] checks several tables against each other, [Table.Mermaid] and [Table.Dot] draw them, and the
// sub-package machinetest proves a table of yours the way the shipped ones are proven.
package machine
