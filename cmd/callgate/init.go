package main

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed starter
var starter embed.FS

func (a *app) initVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "A small bundle that validates, tests and runs, with comments that teach",
		Long: `Writes a bundle of three short files into DIR: an agent that may write drafts, rules that refuse one thing and ask a
person about another, tests of those rules, and a script so that it runs without a network. Nothing that is already
there is overwritten.`,
		Example: "  callgate init my-gate && callgate run my-gate",
		Args:    oneDir,
		RunE:    a.verb(a.initialise),
	}
}

// simpleUser is a name that can stand as a key in YAML without quotes, and is not one of the examples.
var simpleUser = regexp.MustCompile(`^[a-z_][a-z0-9_.-]{0,62}[a-z0-9]$`)

func (a *app) initialise(_ context.Context, args []string) error {
	dir := a.path(args[0])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	files := map[string][]byte{}
	var names []string
	err = fs.WalkDir(starter, "starter", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := starter.ReadFile(name)
		if err != nil {
			return err
		}
		below := strings.TrimPrefix(name, "starter/")
		files[below] = []byte(a.addressed(string(data)))
		names = append(names, below)
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := root.Lstat(name); err == nil {
			return nof("%s is already there; nothing was written", path.Join(args[0], name)).withHint("choose another folder")
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range names {
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(files[name])
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		a.printf("%s\n", path.Join(args[0], name))
	}
	a.note("\nnext:\n  callgate validate %[1]s\n  callgate test %[1]s --coverage\n  callgate run %[1]s\n", args[0])
	return nil
}

// addressed puts whoever runs init among the users, so that they can answer the first question the gate asks.
func (a *app) addressed(text string) string {
	line := "    @USER@: {roles: [author, approver], displayName: You}\n"
	user := orElse(a.Getenv("CALLGATE_USER"), a.User)
	switch user {
	case "ann", "bob", "yes", "no", "on", "off", "true", "false", "null":
		user = ""
	}
	if !simpleUser.MatchString(user) {
		return strings.ReplaceAll(text, line, "")
	}
	return strings.ReplaceAll(text, "@USER@", user)
}
