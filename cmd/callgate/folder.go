package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// folder is a bundle folder as the command line names it.
type folder struct {
	name string // as it was written, for messages
	root *os.Root
}

// openFolder opens DIR so that nothing a file in it links to can lead outside.
func (a *app) openFolder(dir string) (*folder, error) {
	info, err := os.Stat(a.path(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, (&failure{code: exitUsage, text: "there is no folder " + dir}).withHint("callgate init %s makes one", dir)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, (&failure{code: exitUsage, text: dir + " is a file"}).withHint("name the folder of the bundle: %s", filepath.Dir(dir))
	}
	root, err := os.OpenRoot(a.path(dir))
	if err != nil {
		return nil, err
	}
	return &folder{name: dir, root: root}, nil
}

func (f *folder) close() { f.root.Close() }

// load reads and checks the documents; findings name files the way the command line named the folder.
func (a *app) load(f *folder) (*specs.Bundle, error) {
	level := specs.PlatformLevel
	switch a.level {
	case "", "platform":
	case "tenant":
		level = specs.TenantLevel
	default:
		return nil, usagef("--level is platform or tenant, not %q", a.level)
	}
	b, err := specs.Load(f.root.FS(), specs.LoadOptions{Level: level})
	if err != nil {
		return nil, f.placed(err)
	}
	return b, nil
}

// compile also makes the policy.
func (a *app) compile(f *folder) (*tools.Compiled, error) {
	b, err := a.load(f)
	if err != nil {
		return nil, err
	}
	p, err := celpolicy.Compile(b)
	if err != nil {
		return nil, f.placed(err)
	}
	return &tools.Compiled{Bundle: b, Policy: p}, nil
}

// compileDir is compile for verbs that need nothing else of the folder.
func (a *app) compileDir(dir string) (*tools.Compiled, error) {
	f, err := a.openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer f.close()
	return a.compile(f)
}

// placed makes the places of findings clickable from where the user stands.
func (f *folder) placed(err error) error {
	ds, ok := specs.AsDiagnostics(err)
	if !ok {
		return err
	}
	return &specs.InvalidError{Diagnostics: f.place(ds)}
}

func (f *folder) place(ds specs.Diagnostics) specs.Diagnostics {
	out := make(specs.Diagnostics, len(ds))
	for i, d := range ds {
		if d.Pos.File != "" {
			d.Pos.File = path.Join(filepath.ToSlash(f.name), d.Pos.File)
		}
		out[i] = d
	}
	return out
}

// maxScript bounds what is read of a file that is not a bundle document.
const maxScript = 8 << 20

// readSmall reads a whole file, refusing one that is too big to be meant.
func readSmall(file *os.File, name string) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, usagef("%s is a folder, a file is needed", name)
	}
	if !info.Mode().IsRegular() {
		return nil, usagef("%s is not a regular file", name)
	}
	if info.Size() > maxScript {
		return nil, nof("%s has %s; at most %s are read", name, byteCount(info.Size()), byteCount(maxScript))
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(file); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// read reads a file of the folder that is no document.
func (f *folder) read(name string) ([]byte, error) {
	shown := path.Join(filepath.ToSlash(f.name), name)
	file, err := f.root.Open(filepath.FromSlash(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nof("there is no file %s", shown)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readSmall(file, shown)
}

// readFile reads a file the command line names.
func (a *app) readFile(name string) ([]byte, error) {
	file, err := os.Open(a.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("there is no file %s", name)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readSmall(file, name)
}

// oneDir is the argument check of verbs that take a bundle folder.
func oneDir(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("%s needs the bundle's folder", cmd.CommandPath())
	case len(args) > 1:
		return usagef("%s takes one folder, not %d arguments", cmd.CommandPath(), len(args))
	}
	return nil
}

// words is the argument check of verbs that take names.
func words(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usagef("%s needs %s", cmd.CommandPath(), names[len(args)])
		}
		if len(args) > len(names) {
			return usagef("%s: %q is one argument too many", cmd.CommandPath(), args[len(names)])
		}
		return nil
	}
}
