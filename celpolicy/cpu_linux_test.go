package celpolicy

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is how long the processor worked on a function, however busy the machine is with others.
func threadTime(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &before)
	do()
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &after)
	return time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
}
