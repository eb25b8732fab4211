package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
)

// Exit codes. Scripts rely on them.
const (
	exitOK      = 0
	exitNo      = 1 // invalid, test failed, denied, not found, verify failed
	exitUsage   = 2
	exitWaiting = 3 // for a person
	exitSystem  = 4
)

// failure is an error that knows its sentence, its hint and its exit code.
type failure struct {
	code int
	text string // empty, with err nil too: everything was already said
	hint string
	err  error // with code 0 it also decides the code
}

func (f *failure) Error() string {
	switch {
	case f.text != "" && f.err != nil:
		return f.text + ": " + f.err.Error()
	case f.err != nil:
		return f.err.Error()
	}
	return f.text
}
func (f *failure) Unwrap() error { return f.err }

func usagef(format string, args ...any) error {
	return &failure{code: exitUsage, text: fmt.Sprintf(format, args...)}
}

func nof(format string, args ...any) *failure {
	return &failure{code: exitNo, text: fmt.Sprintf(format, args...)}
}

func systemf(format string, args ...any) *failure {
	return &failure{code: exitSystem, text: fmt.Sprintf(format, args...)}
}

func (f *failure) withHint(format string, args ...any) *failure {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

// quiet ends the program with a code when everything has been said.
func quiet(code int) error { return &failure{code: code} }

func asUsage(err error, cmd *cobra.Command) error {
	var f *failure
	if errors.As(err, &f) {
		return err
	}
	return &failure{code: exitUsage, err: err, hint: cmd.CommandPath() + " --help shows how"}
}

// report says what went wrong on stderr and gives the exit code.
func (a *app) report(err error) int {
	if ds, ok := specs.AsDiagnostics(err); ok {
		a.note("%s%s\n", ds.Text(), countFindings(ds))
		if errors.Is(err, fs.ErrPermission) {
			return exitSystem // the machine's no, not the bundle's
		}
		return exitNo
	}
	code, text, hint := judge(err)
	if text != "" {
		a.note("callgate: %s\n", block(strings.TrimRight(text, "\n")))
	}
	if hint != "" {
		a.note("  hint: %s\n", hint)
	}
	return code
}

// judge is the one place where an error becomes an exit code, a sentence and a hint.
func judge(err error) (code int, text, hint string) {
	var (
		f       *failure
		decided *tools.DecidedError
		notYou  *tools.NotApproverError
		held    *persistence.HeldError
		illegal *machine.IllegalError
		request *agent.RequestError
		edit    *tools.EditError
		path    *fs.PathError
	)
	text = err.Error()
	if errors.As(err, &f) {
		if f.code != exitOK {
			return f.code, f.Error(), f.hint
		}
		hint = f.hint
	}
	switch {
	case errors.As(err, &decided):
		return exitNo, text, hint
	case errors.As(err, &notYou):
		return exitNo, text, hint
	case errors.As(err, &held):
		return exitNo, text, orElse(hint, "that process is at work on it: callgate journal tail shows how it goes on")
	case errors.Is(err, tools.ErrRunEnded):
		return exitNo, text, orElse(hint, "callgate journal show tells how it ended")
	case errors.Is(err, tools.ErrBallot), errors.Is(err, tools.ErrWaiting), errors.As(err, &edit):
		return exitNo, text, hint
	case errors.Is(err, tools.ErrParked):
		return exitNo, text, orElse(hint, "callgate approvals reask puts it anew")
	case errors.As(err, &request):
		return exitUsage, text, hint
	case errors.Is(err, persistence.ErrNotFound):
		return exitNo, text, hint
	case errors.Is(err, persistence.ErrExpired):
		return exitNo, text, orElse(hint, "callgate runs resume settles it and says how the run goes on")
	case errors.Is(err, persistence.ErrStale):
		return exitNo, text, orElse(hint, "look again, then decide again")
	case errors.As(err, &illegal):
		return exitNo, text, hint
	case errors.Is(err, persistence.ErrNotMigrated):
		return exitSystem, text, orElse(hint, "callgate migrate --store ... creates or upgrades the schema")
	case errors.Is(err, persistence.ErrNewerStore):
		return exitSystem, text, orElse(hint, "use the callgate version that wrote it, or a later one; nothing was changed")
	case errors.Is(err, persistence.ErrNotAStore):
		return exitSystem, text, orElse(hint, "name another file with --store sqlite:PATH; nothing was changed")
	case errors.Is(err, persistence.ErrFull):
		return exitSystem, text, orElse(hint, "free some space, then callgate runs resume; what was stored is safe")
	case errors.Is(err, persistence.ErrLocked):
		return exitSystem, text, orElse(hint, "another process holds the store; try again when it is done")
	case errors.Is(err, persistence.ErrUnavailable):
		return exitSystem, text, orElse(hint, "when the database answers again, callgate runs resume goes on; callgate doctor looks for the cause")
	case errors.Is(err, persistence.ErrRefused):
		return exitSystem, text, orElse(hint, "mend the address, the login or the rights that it names; callgate doctor says when all is well")
	case errors.Is(err, persistence.ErrDamaged):
		return exitSystem, text, orElse(hint, "put a backup in its place and keep the damaged one; callgate journal verify says whether the backup is whole")
	case errors.Is(err, persistence.ErrCorrupt):
		return exitSystem, text, orElse(hint, "callgate journal verify says what was touched")
	case errors.Is(err, context.Canceled):
		return exitWaiting, "interrupted", hint
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &path):
		return exitSystem, fmt.Sprintf("%s cannot be read or written: permission denied", path.Path), hint
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &path):
		return exitUsage, path.Path + " does not exist", hint
	}
	return exitSystem, text, hint
}

func countFindings(ds specs.Diagnostics) string {
	e, w := len(ds.Errors()), len(ds.Warnings())
	switch {
	case e > 0 && w > 0:
		return plural(e, "error") + ", " + plural(w, "warning")
	case e > 0:
		return plural(e, "error")
	case w > 0:
		return plural(w, "warning")
	}
	return "no findings"
}
