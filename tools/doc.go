// Package tools does it: it takes a call that a model wrote, asks policy, waits for people, runs the tool
// once, and keeps what came of it.
//
// What you most likely want is a [Dispatcher]. The walk of one call:
//
//	native reply -> provider/<vendor>.Decode -> Call
//	Dispatcher.Propose   Fire(request); arguments against the schema; Policy.Resolve; Fire(allow|ask|deny)
//	                     one Store.Apply: states, journal, decision input
//	Dispatcher.Decide    a person answers; Fire(approve|reject|answer); two people at once: one wins
//	Dispatcher.Execute   Resolve again; spend the approval, reserve the budget, Fire(start):
//	                     one Apply, committed before the side effect
//	                     run the tool with its timeout and idempotency key
//	                     Fire(complete|fail|...); settle the budget; result blob: one Apply
//	agent.Runner         results enter the next model request if policy lets them
//
// Beside the walk: Recover takes up what a dead process left, Reconcile records what a person found out about a call whose
// outcome is unknown, Sweep ends questions whose time is over, CancelRun and CancelCall take back, and ClosingEntries lets the
// run's last Change settle everything that is open. RevokeGrant takes a remembered yes back, AdjustBudget corrects what was spent.
//
//	d, err := tools.New(tools.Config{Store: store, Registry: registry, Policies: tools.NewStoredPolicies(store)})
//	ps, err := d.Propose(ctx, scope, reply.Calls, tools.Rider{StartFirst: true})
//	for _, p := range ps {
//		result, err := d.Execute(ctx, scope, p.Call.ID) // ErrWaiting: a person is asked
//	}
//
// The promises: a call runs only after "started" is durable; each call gets exactly one result; a tool that is
// neither read-only nor idempotent never runs twice; nobody but the dispatcher moves a call.
//
// A tool is an [Executor]. Its error means that the run cannot go on (a system failure); what the model should
// read and recover from is a [Result] with IsError, made by [Recoverable].
package tools
