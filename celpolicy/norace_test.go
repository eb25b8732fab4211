//go:build !race

package celpolicy

const raceEnabled = false
