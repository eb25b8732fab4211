//go:build race

package main

// everyLine: with the race detector, which has nothing to find in reading YAML, a sample is enough.
const everyLine = 7
