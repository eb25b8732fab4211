//go:build !race

package agent_test

const stride = 1
