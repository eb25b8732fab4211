package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

func (a *app) workspaceVerb() *cobra.Command {
	const id = "the run's id, its beginning, or last"
	var at int64
	atFlag := func(c *cobra.Command) {
		c.Flags().Int64Var(&at, "at", 0, "in the version of this number (default: the newest)")
	}
	ls := &cobra.Command{Use: "ls RUN [PATH]", Short: "Files of a run", Example: "  callgate workspace ls last output", Args: between(id, 1)}
	ls.RunE = a.verb(func(ctx context.Context, args []string) error { return a.workspaceList(ctx, args, at) })
	cat := &cobra.Command{Use: "cat RUN PATH", Short: "One file of a run", Example: "  callgate workspace cat last output/main.md", Args: words(id, "the file's path")}
	cat.RunE = a.verb(func(ctx context.Context, args []string) error { return a.workspaceCat(ctx, args[0], args[1], at) })
	var from, to int64
	diff := &cobra.Command{Use: "diff RUN [PATH]", Short: "What changed between two versions", Example: "  callgate workspace diff last --from 2 --to 5",
		Long: "Shows the files that differ. Without --from the version before --to, without --to the newest.", Args: between(id, 1)}
	diff.RunE = a.verb(func(ctx context.Context, args []string) error { return a.workspaceDiff(ctx, args, from, to) })
	diff.Flags().Int64Var(&from, "from", -1, "older version; 0 is the empty workspace")
	diff.Flags().Int64Var(&to, "to", 0, "newer version (default: the newest)")
	points := &cobra.Command{Use: "checkpoints RUN", Short: "Versions of the workspace, and what made them", Example: "  callgate workspace checkpoints last",
		Args: words(id), RunE: a.verb(a.workspaceCheckpoints)}
	rollback := &cobra.Command{Use: "rollback RUN VERSION", Short: "Make the workspace what it was",
		Long: `Restores exactly the files of a version, and the absence of those it did not have, as a new version. Only for a run that
is not over and that nobody is working on at this moment; what the agent knew of changed files counts as stale
afterwards.`,
		Example: "  callgate workspace rollback last 3 --as bob", Args: words(id, "the version's number"), RunE: a.verb(a.workspaceRollback)}
	var force bool
	export := &cobra.Command{Use: "export RUN DIR", Short: "Write the files into a folder", Example: "  callgate workspace export last ./out",
		Args: words(id, "the folder to write into")}
	export.RunE = a.verb(func(ctx context.Context, args []string) error {
		return a.workspaceExport(ctx, args[0], args[1], at, force)
	})
	export.Flags().BoolVar(&force, "force", false, "replace files that are already there")
	all := []*cobra.Command{ls, cat, diff, points, rollback, export}
	for _, c := range all {
		a.storeFlags(c)
	}
	for _, c := range []*cobra.Command{ls, cat, export} {
		atFlag(c)
	}
	for _, c := range []*cobra.Command{ls, diff, points, rollback, export} {
		a.formatFlag(c)
	}
	a.asFlag(rollback)
	return a.group("workspace", "Files of a run: ls, cat, diff, checkpoints, rollback, export", "  callgate workspace ls last", all...)
}

// between allows one required name and up to n more.
func between(name string, n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s needs %s", cmd.CommandPath(), name)
		}
		if len(args) > 1+n {
			return usagef("%s: %q is one argument too many", cmd.CommandPath(), args[1+n])
		}
		return nil
	}
}

// tree reads a version of a run's files.
func (h *house) tree(ctx context.Context, run specs.RunID, version int64) (persistence.Tree, error) {
	id := persistence.RunTree(run)
	newest, err := h.store.Tree(ctx, h.tenant, id, 0)
	if err != nil || version == 0 || version == newest.Version {
		return newest, err
	}
	if version < 0 || version > newest.Version {
		return newest, nof("the workspace has no version %d", version).withHint("it has 1 to %d: callgate workspace checkpoints %s", newest.Version, run)
	}
	return h.store.Tree(ctx, h.tenant, id, version)
}

func (a *app) workspaceList(ctx context.Context, args []string, at int64) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		tree, err := h.tree(ctx, run.ID, at)
		if err != nil {
			return err
		}
		below := ""
		if len(args) > 1 {
			below = args[1]
		}
		type file struct {
			Path   string       `json:"path"`
			Size   int64        `json:"size"`
			Digest specs.Digest `json:"digest"`
			Since  int64        `json:"since"`
		}
		files := []file{}
		for _, p := range paths(tree, below) {
			f := tree.Files[p]
			files = append(files, file{p, f.Size, f.Digest, f.Since})
		}
		if a.json() {
			return a.printJSON(map[string]any{"run": run.ID, "version": tree.Version, "files": files})
		}
		if len(files) == 0 {
			a.note("no files in version %d\n", tree.Version)
			return nil
		}
		var rows [][]string
		for _, f := range files {
			rows = append(rows, []string{plain(f.Path), byteCount(f.Size), a.dim(short(string(f.Digest))), a.dim(fmt.Sprintf("since version %d", f.Since))})
		}
		table(a.Stdout, rows)
		return nil
	})
}

// paths lists the files at or below a path, sorted.
func paths(t persistence.Tree, below string) []string {
	below = strings.Trim(below, "/")
	var out []string
	for p := range t.Files {
		if below == "" || p == below || strings.HasPrefix(p, below+"/") {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

func (a *app) workspaceCat(ctx context.Context, word, file string, at int64) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, word)
		if err != nil {
			return err
		}
		tree, err := h.tree(ctx, run.ID, at)
		if err != nil {
			return err
		}
		f, ok := tree.Files[file]
		if !ok {
			if len(paths(tree, file)) > 0 {
				return nof("%s is a folder", plain(file)).withHint("callgate workspace ls %s %s", word, file)
			}
			return nof("version %d has no file %s", tree.Version, plain(file))
		}
		data, err := h.store.Blob(ctx, h.tenant, f.Digest)
		if err != nil {
			return err
		}
		if a.TerminalOut {
			data = []byte(block(string(data)))
		}
		_, err = a.Stdout.Write(data)
		return err
	})
}

func (a *app) workspaceDiff(ctx context.Context, args []string, from, to int64) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		newer, err := h.tree(ctx, run.ID, to)
		if err != nil {
			return err
		}
		if from < 0 {
			from = max(0, newer.Version-1)
		}
		older := persistence.Tree{}
		if from > 0 {
			if older, err = h.tree(ctx, run.ID, from); err != nil {
				return err
			}
		}
		below := ""
		if len(args) > 1 {
			below = args[1]
		}
		names := append(paths(older, below), paths(newer, below)...)
		slices.Sort(names)
		type change struct {
			Path string `json:"path"`
			What string `json:"what"` // added, removed, changed
			Diff string `json:"diff,omitempty"`
		}
		changes := []change{}
		for _, p := range slices.Compact(names) {
			was, had := older.Files[p]
			is, has := newer.Files[p]
			if had && has && was.Digest == is.Digest {
				continue
			}
			c := change{Path: p, What: "changed"}
			switch {
			case !had:
				c.What = "added"
			case !has:
				c.What = "removed"
			}
			before, err := h.content(ctx, was, had)
			if err != nil {
				return err
			}
			after, err := h.content(ctx, is, has)
			if err != nil {
				return err
			}
			if utf8.ValidString(before) && utf8.ValidString(after) {
				c.Diff = udiff.Unified(fmt.Sprintf("%s (version %d)", p, older.Version), fmt.Sprintf("%s (version %d)", p, newer.Version), before, after)
			}
			changes = append(changes, c)
		}
		if a.json() {
			return a.printJSON(map[string]any{"run": run.ID, "from": older.Version, "to": newer.Version, "changes": changes})
		}
		for _, c := range changes {
			if c.Diff == "" {
				a.printf("%s %s (not text)\n", c.What, plain(c.Path))
				continue
			}
			a.printf("%s", a.paintDiff(block(c.Diff)))
		}
		if len(changes) == 0 {
			a.note("versions %d and %d have the same files\n", older.Version, newer.Version)
		}
		return nil
	})
}

func (a *app) paintDiff(s string) string {
	if !a.colour() {
		return s
	}
	lines := strings.SplitAfter(s, "\n")
	for i, l := range lines {
		switch {
		case strings.HasPrefix(l, "+"):
			lines[i] = a.good(strings.TrimSuffix(l, "\n")) + "\n"
		case strings.HasPrefix(l, "-"):
			lines[i] = a.bad(strings.TrimSuffix(l, "\n")) + "\n"
		}
	}
	return strings.Join(lines, "")
}

func (h *house) content(ctx context.Context, f persistence.FileEntry, there bool) (string, error) {
	if !there {
		return "", nil
	}
	data, err := h.store.Blob(ctx, h.tenant, f.Digest)
	return string(data), err
}

func (a *app) workspaceCheckpoints(ctx context.Context, args []string) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		points, err := h.store.Checkpoints(ctx, h.tenant, persistence.RunTree(run.ID))
		if err != nil {
			return err
		}
		if a.json() {
			return a.printJSON(map[string]any{"run": run.ID, "checkpoints": orEmpty(points)})
		}
		if len(points) == 0 {
			a.note("no versions yet\n")
			return nil
		}
		rows := [][]string{{a.dim("VERSION"), a.dim("AT"), a.dim("MADE BY"), a.dim("CALL"), a.dim("LABEL")}}
		for _, p := range points {
			rows = append(rows, []string{fmt.Sprint(p.Version), p.At.Local().Format("15:04:05.000"), plain(p.Reason), plain(string(p.Call)), plain(p.Label)})
		}
		table(a.Stdout, rows)
		return nil
	})
}

func (a *app) workspaceRollback(ctx context.Context, args []string) error {
	var version int64
	if _, err := fmt.Sscanf(args[1], "%d", &version); err != nil || version < 1 || fmt.Sprint(version) != args[1] {
		return usagef("%q is no version's number", args[1])
	}
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, args[0])
		if err != nil {
			return err
		}
		if machine.Run().IsFinal(run.State) {
			return fmt.Errorf("run %s is %s: %w", run.ID, run.State, tools.ErrRunEnded)
		}
		who, err := a.person()
		if err != nil {
			return err
		}
		lease, err := h.store.Acquire(ctx, h.tenant, run.ID, processName(), 30*time.Second, processIsGone)
		if err != nil {
			return err
		}
		restored, err := tools.RollbackRun(ctx, h.store, lease, who, version)
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := errors.Join(err, h.store.Release(release, lease)); err != nil {
			return err
		}
		if a.json() {
			return a.printJSON(map[string]any{"run": run.ID, "restored": version, "version": restored.Version,
				"written": orEmpty(restored.Written), "removed": orEmpty(restored.Removed)})
		}
		for _, f := range restored.Written {
			a.printf("restored %s\n", plain(f))
		}
		for _, f := range restored.Removed {
			a.printf("removed  %s\n", plain(f))
		}
		a.printf("version %d has the files of version %d again\n", restored.Version, version)
		return nil
	})
}

func (a *app) workspaceExport(ctx context.Context, word, dir string, at int64, force bool) error {
	return a.withHouse(ctx, func(h *house) error {
		run, err := h.findRun(ctx, word)
		if err != nil {
			return err
		}
		tree, err := h.tree(ctx, run.ID, at)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(a.path(dir), 0o755); err != nil {
			return err
		}
		// Whatever links are in the folder, nothing is written outside it.
		root, err := os.OpenRoot(a.path(dir))
		if err != nil {
			return err
		}
		defer root.Close()
		names := paths(tree, "")
		if !force {
			for _, p := range names {
				if _, err := root.Lstat(filepath.FromSlash(p)); err == nil {
					return nof("%s is already there; nothing was written", path.Join(dir, p)).withHint("--force replaces files")
				} else if !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
		for _, p := range names {
			data, err := h.store.Blob(ctx, h.tenant, tree.Files[p].Digest)
			if err != nil {
				return err
			}
			name := filepath.FromSlash(p)
			if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return err
			}
			if err := root.WriteFile(name, data, 0o644); err != nil {
				return err
			}
		}
		if a.json() {
			return a.printJSON(map[string]any{"run": run.ID, "version": tree.Version, "dir": dir, "files": orEmpty(names)})
		}
		for _, p := range names {
			a.printf("%s\n", plain(path.Join(dir, p)))
		}
		if len(names) == 0 {
			a.note("version %d has no files\n", tree.Version)
		}
		return nil
	})
}
