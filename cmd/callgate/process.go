package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"
)

// processName names this process to others that want the same run: where it runs, its number, and a word that no
// other process of that number has.
func processName() string {
	return fmt.Sprintf("%s pid %d %s", processSpace(), os.Getpid(), uuid.NewString()[:8])
}

// processSpace names the set of processes in which a number means one process: a host, and on Linux a pid namespace.
func processSpace() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		return host + " " + ns
	}
	return host
}

// processIsGone says that a lease's holder certainly runs no more. Anything else waits until the lease runs out.
func processIsGone(holder string) bool {
	var pid int
	space, rest, ok := strings.Cut(holder, " pid ")
	if !ok || space != processSpace() {
		return false
	}
	if _, err := fmt.Sscanf(rest, "%d", &pid); err != nil || pid <= 0 {
		return false
	}
	return isGone(pid)
}
