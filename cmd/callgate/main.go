// Command callgate is the gate between an AI agent's model and its tools, from the command line.
//
// What you most likely want is, in this order:
//
//	callgate init my-gate            # a small bundle with comments that teach
//	callgate validate my-gate        # every mistake at once
//	callgate test my-gate            # the bundle's own expectations
//	callgate run my-gate             # a whole run: timeline, approval, result
//	callgate journal verify          # the proof that nobody touched it since
//
// Each file of this package is one family of verbs; house.go is the parts list, errors.go the one place where
// an error becomes a sentence and an exit code.
//
// Promises: reports are on stdout and diagnostics on stderr; with --format json nothing but one JSON value is on
// stdout; exit codes are 0 ok, 1 the answer is no, 2 usage, 3 waiting for a person, 4 system failure; colour and
// progress only on a terminal.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], processEnv())
	stop()
	os.Exit(code)
}
