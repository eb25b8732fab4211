// Command bench measures callgate against the floor that a careful Go programmer would reach by hand, in the same
// minutes on the same machine, and prints ratios.
//
//	cd bench && go run . policy      decision time against hand-written closures
//	cd bench && go run . load        1,000 tool specs and 500 rules, from YAML to a compiled policy
//	cd bench && go run . lifecycle   durable calls a second on SQLite and Postgres, against two bare commits
//	cd bench && go run . size        binary size, cold build time, peak memory of a whole run
//	cd bench && go run . all         all of them
//
// The last lines are `RESULT <name> <ratio> <aim> <verdict>`. Answers are checked to be equal before anything is timed.
// Machines are noisy: use the ratios.
package main
