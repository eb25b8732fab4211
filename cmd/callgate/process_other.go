//go:build !unix

package main

// isGone never knows here: whoever wants the run waits until the lease runs out.
func isGone(int) bool { return false }
