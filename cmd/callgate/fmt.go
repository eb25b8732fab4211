package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/callgate/callgate/specs"
)

func (a *app) fmtVerb() *cobra.Command {
	var check, diff bool
	cmd := &cobra.Command{
		Use:   "fmt DIR|FILE...",
		Short: "One layout for the YAML, with every comment where it was",
		Long: `Writes the YAML files of a bundle in one layout: two blanks a level, lists inside their key, one blank after a
dash and a colon, no trailing blanks, one empty line at most. Nothing but white space changes; keys keep their
order, texts their quotes.

A file is replaced at once or not at all, and only after what will be written was read again and says the
same. What is not understood well enough is left as it is and named. The names of changed files are printed.`,
		Example: "  callgate fmt my-gate --check",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.RunE = a.verb(func(_ context.Context, args []string) error { return a.fmt(args, check, diff) })
	cmd.Flags().BoolVar(&check, "check", false, "write nothing; print what would change, and exit with 1 if anything would")
	cmd.Flags().BoolVar(&diff, "diff", false, "write nothing; print what would change as a diff")
	return cmd
}

// yamlFile is one file to format: where it is, and its name there and for people.
type yamlFile struct {
	dir         *folder
	name, shown string
}

func (a *app) fmt(args []string, check, diff bool) error {
	var files []yamlFile
	for _, arg := range args {
		dir, found, err := a.yamlFiles(arg)
		if err != nil {
			return err
		}
		defer dir.close()
		files = append(files, found...)
	}
	var found specs.Diagnostics
	changed := 0
	for _, f := range files {
		old, out, err := f.format()
		var left *specs.FormatError
		if ds, ok := specs.AsDiagnostics(err); ok {
			found = append(found, ds...)
			continue
		} else if errors.As(err, &left) {
			a.note("%s\n", plain(left.Error()))
			continue
		} else if err != nil {
			return err
		}
		if bytes.Equal(old, out) {
			continue
		}
		changed++
		switch {
		case diff:
			a.printf("%s", udiff.Unified(f.shown, f.shown, string(old), string(out)))
		case check:
			a.printf("%s\n", f.shown)
		default:
			if err := f.replace(old, out); err != nil {
				return err
			}
			a.printf("%s\n", f.shown)
		}
	}
	if len(found) > 0 {
		return &specs.InvalidError{Diagnostics: found}
	}
	if check && changed > 0 {
		return quiet(exitNo)
	}
	return nil
}

// yamlFiles finds what an argument names: one file, or those that belong to a bundle.
func (a *app) yamlFiles(arg string) (*folder, []yamlFile, error) {
	info, err := os.Stat(a.path(arg))
	if link, lerr := os.Lstat(a.path(arg)); err == nil && !info.IsDir() && lerr == nil && !link.Mode().IsRegular() {
		return nil, nil, nof("%s is a link or no regular file", arg).withHint("format the file that it leads to")
	}
	if err == nil && !info.IsDir() {
		dir, err := a.openFolder(filepath.Dir(arg))
		return dir, []yamlFile{{dir, filepath.Base(arg), arg}}, err
	}
	dir, err := a.openFolder(arg)
	if err != nil {
		return nil, nil, err
	}
	var files []yamlFile
	err = fs.WalkDir(dir.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(path.Base(name), "."), name == "scripts" && entry.IsDir():
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.Type()&fs.ModeSymlink != 0:
			a.note("%s: left as it is: it is a link\n", plain(path.Join(filepath.ToSlash(arg), name)))
		case !entry.IsDir() && (path.Ext(name) == ".yaml" || path.Ext(name) == ".yml"):
			files = append(files, yamlFile{dir, name, path.Join(filepath.ToSlash(arg), name)})
		}
		return nil
	})
	if err != nil {
		dir.close()
		return nil, nil, err
	}
	return dir, files, nil
}

func (f yamlFile) format() (old, out []byte, err error) {
	file, err := f.dir.root.Open(f.name)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	if old, err = readSmall(file, f.shown); err != nil {
		return nil, nil, err
	}
	out, err = specs.Format(f.shown, old)
	return old, out, err
}

// replace puts a new text in a file's place at once. Whatever happens, the file holds the old text or the new one.
func (f yamlFile) replace(old, out []byte) error {
	root := f.dir.root
	info, err := root.Lstat(f.name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nof("%s is no regular file any more", f.shown)
	}
	beside := path.Join(path.Dir(filepath.ToSlash(f.name)), "."+path.Base(filepath.ToSlash(f.name))+"."+rand.Text()[:8])
	defer root.Remove(beside)
	if err := writeWhole(root, beside, out, info.Mode().Perm()); err != nil {
		return err
	}
	if now, err := root.ReadFile(f.name); err != nil || !bytes.Equal(now, old) {
		return nof("%s was changed by somebody else meanwhile", f.shown).withHint("run it again")
	}
	return root.Rename(beside, f.name)
}

// writeWhole writes a new file, makes sure that it is on disk, and reads it back.
func writeWhole(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	if back, err := root.ReadFile(name); err != nil || !bytes.Equal(back, data) {
		return errors.Join(fmt.Errorf("%s does not hold what was written", name), err)
	}
	return nil
}
