package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// size prints what the program weighs: its binary, its cold build, and the peak memory of a whole run.
func size(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "callgate-size-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "callgate")
	cmd := func(extra []string, name string, args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, name, args...)
		c.Dir, c.Env, c.Stdout, c.Stderr = dir, append(os.Environ(), extra...), io.Discard, os.Stderr
		return c
	}
	start := time.Now()
	build := cmd([]string{"GOCACHE=" + filepath.Join(dir, "cache")}, "go", "build", "-o", bin, "./cmd/callgate")
	build.Dir = ".."
	if err := build.Run(); err != nil {
		return err
	}
	cold := time.Since(start)
	info, err := os.Stat(bin)
	if err != nil {
		return err
	}
	studio, err := filepath.Abs("../testdata/tenants/studio")
	if err != nil {
		return err
	}
	start = time.Now()
	run := cmd(nil, bin, "run", studio, "--user", "ann", "--task", "Write a greeting.")
	var exit *exec.ExitError
	if err := run.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
		return err
	}
	took := time.Since(start)
	rss := run.ProcessState.SysUsage().(*syscall.Rusage).Maxrss * 1024
	fmt.Printf("binary          %6.1f MB\n", float64(info.Size())/1e6)
	fmt.Printf("cold build      %6.1f s (modules already fetched)\n", cold.Seconds())
	fmt.Printf("the studio run  %6.0f ms, to the approval\n", float64(took.Milliseconds()))
	fmt.Printf("its peak memory %6.1f MB\n", float64(rss)/1e6)
	result("memory/100MB", float64(rss)/1e8, "<=1", rss <= 1e8)
	return nil
}
