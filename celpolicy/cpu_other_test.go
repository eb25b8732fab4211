//go:build !linux

package celpolicy

import "time"

// threadTime falls back to the clock on the wall.
func threadTime(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}
