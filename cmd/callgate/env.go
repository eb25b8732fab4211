package main

import (
	"bufio"
	"io"
	"os"
	"os/user"
	"path/filepath"

	"golang.org/x/term"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// env is everything of the outside world that a verb may look at, so that a test can be the world.
type env struct {
	Stdin          *bufio.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	// TerminalIn and TerminalOut say that a person types and reads: only then there are prompts, colour, progress.
	TerminalIn, TerminalOut bool
	Columns                 func() int // how wide the terminal is at this moment; nil or 0 where nobody knows
	Dir                     string     // what relative paths on the command line are relative to
	User                    string     // the operating system's word for who runs this
	// Executors run further tools, for a program or a test that brings its own.
	Executors map[specs.ToolName]tools.Executor
}

func processEnv() env {
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	e := env{
		Stdin: bufio.NewReader(os.Stdin), Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		TerminalIn:  term.IsTerminal(int(os.Stdin.Fd())),
		TerminalOut: term.IsTerminal(int(os.Stdout.Fd())),
		Dir:         dir,
	}
	e.Columns = func() int {
		n, _, err := term.GetSize(int(os.Stdout.Fd()))
		if err != nil {
			return 0
		}
		return n
	}
	if u, err := user.Current(); err == nil {
		e.User = u.Username
	}
	return e
}

// path makes a path of the command line absolute.
func (e env) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(e.Dir, p)
}

// colour says whether escape sequences help the reader.
func (e env) colour() bool {
	return e.TerminalOut && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"
}
