package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// app is one invocation of the program: its world and the flags that many verbs share.
type app struct {
	env
	format  string // text or json
	store   string
	tenant  string
	level   string
	user    string
	running bool // a verb's own code was reached: what fails before is the command line
}

// run is the whole program: arguments in, exit code out.
func run(ctx context.Context, args []string, e env) (code int) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(e.Stderr, "callgate: a fault in the program: %v\n", p)
			if e.Getenv("CALLGATE_DEBUG") != "" {
				e.Stderr.Write(debug.Stack())
			} else {
				fmt.Fprintln(e.Stderr, "  hint: nothing already stored is lost; CALLGATE_DEBUG=1 prints where it happened")
			}
			code = exitSystem
		}
	}()
	a := &app{env: e}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(e.Stdin)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !a.running {
		err = asUsage(err, cmd)
	}
	return a.report(err)
}

const (
	groupWrite   = "write"
	groupRun     = "run"
	groupPeople  = "people"
	groupOperate = "operate"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "callgate VERB",
		Short: "A gate between an agent's model and its tools",
		Long: `callgate decides, for each tool call that a model makes, whether it may be seen, made, and paid for, and whether
a person must agree first. It runs the call once and keeps a journal that proves it.

Exit codes: 0 ok, 1 the answer is no, 2 usage, 3 waiting for a person, 4 system failure.`,
		Example:       "  callgate init my-gate && callgate run my-gate",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddGroup(
		&cobra.Group{ID: groupWrite, Title: "Write a bundle:"},
		&cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupPeople, Title: "Decide and look:"},
		&cobra.Group{ID: groupOperate, Title: "Operate:"},
	)
	a.asGroup(root)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupWrite, a.initVerb(), a.validateVerb(), a.testVerb(), a.explainVerb(), a.toolsVerb(), a.schemaVerb(),
		a.machineVerb(), a.importVerb(), a.fmtVerb())
	add(groupRun, a.runVerb(), a.callVerb(), a.runsVerb())
	add(groupPeople, a.approvalsVerb(), a.journalVerb(), a.workspaceVerb())
	add(groupOperate, a.bundleVerb(), a.migrateVerb(), a.doctorVerb())
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() { // the library's own two answer like every other verb
		case "completion":
			c.Use, c.Short, c.Long = "completion VERB", "A script by which a shell completes verbs and flags", ""
			c.Example = "  callgate completion bash > ~/.local/share/bash-completion/completions/callgate"
			a.asGroup(c)
			for _, shell := range c.Commands() {
				shell.Example = "  callgate completion " + shell.Name()
			}
		case "help":
			c.Use, c.Short, c.Long = "help [VERB]...", "How a verb is used, like VERB --help", ""
			c.Example = "  callgate help runs resume"
			c.Run, c.RunE = nil, a.verb(func(_ context.Context, args []string) error {
				found, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 && found.HasSubCommands() {
					return found.RunE(found, rest)
				}
				if err != nil {
					return asUsage(err, root)
				}
				found.InitDefaultHelpFlag()
				return found.Help()
			})
		}
	}
	root.SetUsageTemplate(strings.NewReplacer(
		"{{if .Runnable}}\n  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}\n  {{.CommandPath}} [command]{{end}}", "\n  {{.UseLine}}",
		`Use "{{.CommandPath}} [command] --help" for more information about a command.`, `{{.CommandPath}} VERB --help shows a verb with an example.`,
		"Available Commands:", "Verbs:",
	).Replace(root.UsageTemplate()))
	root.SetHelpCommandGroupID(groupOperate)
	root.SetCompletionCommandGroupID(groupOperate)
	return root
}

// version is what the build knows of itself, for whoever reports a fault.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown origin"
	}
	return orElse(b.Main.Version, "(devel)") + " " + b.GoVersion
}

// verb wraps a verb's code so that the program knows that the command line itself was fine.
func (a *app) verb(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.running = true
		if a.format != "" && a.format != "text" && a.format != "json" {
			return usagef("--format is text or json, not %q", a.format)
		}
		return do(cmd.Context(), args)
	}
}

// asGroup makes a verb that only has verbs below it answer a wrong or missing one as a usage error.
func (a *app) asGroup(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			cmd.SetOut(a.Stderr)
			_ = cmd.Help()
			return quiet(exitUsage)
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "did you mean " + cmd.CommandPath() + " " + near[0] + "?"
		}
		return &failure{code: exitUsage, text: fmt.Sprintf("%s has no verb %q", cmd.CommandPath(), args[0]),
			hint: orElse(hint, cmd.CommandPath()+" --help lists them")}
	}
	cmd.SuggestionsMinimumDistance = 2
}

func (a *app) group(use, short, example string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use + " VERB", Short: short, Example: example}
	a.asGroup(cmd)
	cmd.AddCommand(verbs...)
	return cmd
}

func (a *app) formatFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.format, "format", "text", "how to report: text or json")
}

func (a *app) levelFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.level, "level", "platform",
		"whose documents these are: platform (the operator's) or tenant (operator-only keys are errors)")
}

func (a *app) json() bool { return a.format == "json" }

// printf writes to stdout.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.Stdout, format, args...) }

// note writes to stderr.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.Stderr, format, args...) }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func plural(n int, one string, many ...string) string {
	if n == 1 {
		return "1 " + one
	}
	if len(many) > 0 {
		return fmt.Sprintf("%d %s", n, many[0])
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// table writes rows with columns aligned, two spaces apart; the last column is never padded.
func table(w io.Writer, rows [][]string) {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], textWidth(c))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-textWidth(c)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
