// Package agent is the run loop: model, calls, results, model, until the agent finishes, fails, is cancelled, or
// waits for a person.
//
// What you most likely want is [Runner.Start] and then [Runner.Run]:
//
//	runner, err := agent.New(agent.Config{Dispatcher: dispatcher, Store: store, Policies: policies, Models: models, Owner: "me"})
//	run, err := runner.Start(ctx, agent.StartRequest{Tenant: "default", Bundle: digest, Profile: "writer", Task: "...", User: ann})
//	outcome, err := runner.Run(ctx, "default", run.ID)
//	// outcome.Waiting: approvals a person has to decide; call Run again afterwards, here or in another process.
//
// The promises:
//
//   - The loop is a function of storage. Each step reads the records and the journal, does the next thing, and commits
//     it with one Apply; nothing is remembered that is not in the store. So resuming after a crash is the same function in
//     another process, and a finished step is never done again.
//   - One process at a time works on a run: it holds the run's lease, and its fence is in every change it makes.
//   - A request is rebuilt from journal lines, call records and blobs; equal history gives equal bytes. A provider's
//     metadata goes back byte for byte, and a run whose metadata was lost fails.
//   - The tools a model is offered are exactly those that policy shows.
//   - A run that waits for a person is left alone. Cancelling is an intent that any process may voice; whoever holds the
//     run sees it within [Config.Poll].
//   - An error of Run means that the store, the lease or the context failed; the run rests where it was and can be
//     taken up again. Whatever ends the run itself is in the [Outcome].
package agent
