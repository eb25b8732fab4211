// Package persistence says what must survive a crash, and how it is written: one door, all or nothing.
//
// What you most likely want is [Store.Apply]. A [Change] carries everything one step of a run does: the
// journal lines in the order in which they are to be read, the state each line moves, budget reserved or
// settled, workspace files edited, blobs the lines refer to. Apply writes all of it in one transaction
// or none of it. The second of two callers who expected the same old state gets [ErrStale] and has
// changed nothing.
//
//	step, err := machine.Call().Fire(call.State, machine.CallStart)
//	...
//	_, err = store.Apply(ctx, persistence.Change{
//		Tenant: call.Tenant, Run: call.Run, Key: "start/" + string(call.ID),
//		Lines: []persistence.Entry{{Kind: step.Journal, Move: &persistence.Move{Step: step, Record: &call}}},
//	})
//
// The promises, which the suite in persistencetest proves for each adapter:
//
//   - Order. A run's lines are numbered 1..n without gap or repeat, in commit order.
//   - Durability. When Apply returns nil, every process that opens the store reads the change, also after
//     kill -9 and a power cut (as far as the disk keeps its word).
//   - Idempotency. A Change with a Key that was applied before changes nothing and answers as it did then.
//   - Law. A state moves only along an edge of the machine room's tables, which the database holds too: a
//     foreign key refuses an illegal move even by raw SQL. Journal lines cannot be updated or deleted.
//   - Evidence. Lines are chained by hash; [Verify] tells edit, gap, fork and truncation apart.
//
// Adapters live in the sub-packages sqlite and postgres, which share the thinking (apply) and the reads (sqlstore).
// SQL is written in sqlite, postgres and sqlstore and nowhere else. persistencetest proves an adapter and lends tests a Postgres.
package persistence
