// Package apply is the thinking half of persistence.Store.Apply, shared by every adapter and free of I/O.
//
// What you most likely want, when you write an adapter, is three calls. [Prepare] checks a Change as far as that can be done without looking anything
// up, and says in [Needs] what has to be looked up. The adapter reads that within its transaction, after it has
// locked the chain, and hands it over as [Facts]. [Plan.Decide] answers with an error or with [Writes]: rows that the
// adapter only has to put down.
//
//	plan, err := apply.Prepare(change)
//	facts, err := load(ctx, tx, plan.Needs())
//	applied, writes, err := plan.Decide(facts)
//	err = write(ctx, tx, writes) // nil writes: the key was applied before
//
// The promises: Prepare and Decide are deterministic but for the ids of lines (UUIDv7); Decide changes neither
// the Change nor the Facts; nothing in a Change can make them panic. Locks are to be taken in the order of the Needs,
// which is the same for every Change, so that two of them never wait for each other: the run's chain, the tenant's
// chain, counters by key, trees by id.
package apply
