//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// limitFiles lets this process make no file longer than n bytes, which is what a full disk looks like to a program that is
// about to append.
func limitFiles(n uint64) {
	signal.Ignore(syscall.SIGXFSZ)
	_ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n})
}
