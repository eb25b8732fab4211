//go:build race

package celpolicy

// raceEnabled says that the race detector slows everything down, so that times mean nothing.
const raceEnabled = true
