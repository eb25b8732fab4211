// Package celpolicy decides: may this call be seen, made, approved, paid for?
//
// What you most likely want: Compile a bundle once, then ask the Policy. Resolve decides about one tool or call,
// List about every tool a model could be shown, Explain says why in full, RunSuite runs the authors' tests.
//
//	bundle, err := specs.Load(os.DirFS("policies"), specs.LoadOptions{})
//	policy, err := celpolicy.Compile(bundle) // every mistake at its line and column
//	decision := policy.Resolve(celpolicy.Input{
//		Phase: celpolicy.PhaseCall, Tool: "workspace.write_file", Args: raw,
//		Run: celpolicy.RunFacts{Profile: "writer"}, User: celpolicy.UserFacts{ID: "ann"},
//	})
//	if decision.Callable && !decision.ApprovalRequired { ... }
//
// # How layers combine
//
//  1. Denies are a union. A deny of any layer is final; nothing lifts it. When several deny, the reason names one in
//     the order user, platform, plan, profile, source, spec, budget; DeniedBy names all.
//  2. Allows must be spoken, by the profile (tools.allow, or an allow rule of its layer) or by the active plan node.
//     Nobody named, nothing granted.
//  3. While a plan node is active and speaks about allows, its allows replace the profile's. Its denies add to
//     everyone's.
//  4. A platform layer with any allow rule is a ceiling over everything, a source layer with any over that source's
//     tools. A ceiling grants nothing.
//  5. An approve rule asks; it neither grants nor denies. All asks must be met. A waive rule clears asks of its own
//     layer and of layers below (platform, user, plan, profile, source, spec); a remembered grant clears an ask that
//     is grantable, for exactly its tool, definition, person, run and arguments.
//  6. Limits meet: the smallest of every dimension applies, and every counter behind a limit is charged. 0 means
//     none; absent everywhere means the Default constants.
//  7. What cannot be decided goes to the strict side of its own effect: a deny denies, a hide hides, an approve
//     asks, an allow and a waive do nothing, a limit is 0. So do an exceeded cost, a panic, arguments that are not
//     strict JSON, and a layer that could not be read.
//  8. At list time arguments are unknown: certainly denied is hidden, possibly allowed is visible.
//  9. Visible is about the tool: a call that only its arguments forbid leaves the tool on the model's list. The
//     text a model reads about unknown, hidden and denied tools is one and the same unless a rule has a message.
//
// # Promises
//
// A decision is a pure function of policy digest and Input: no clock, no I/O, no goroutine, no order of files,
// rules or map keys. A Policy never changes and may be asked from any number of goroutines. Every decision ends:
// its expressions together are bounded by CostPerDecision. Whole numbers stay exact. Resolve never panics and never
// fails open; what it cannot decide, it refuses, and the trace says why.
package celpolicy
