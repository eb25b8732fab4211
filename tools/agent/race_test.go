//go:build race

package agent_test

// stride: the race detector makes a life on disk ten times as long, and crash points are no question of races. With it every
// third point is tried, without it every one.
const stride = 3
