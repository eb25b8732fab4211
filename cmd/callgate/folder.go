package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
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

// findings is everything there is to say about a folder's documents.
type findings struct {
	bundle *specs.Bundle     // a draft when all has errors, nil when nothing could be read
	policy *celpolicy.Policy // nil when all has errors
	all    specs.Diagnostics // places are as the command line names the folder
	cause  error             // what the system said, when it was the system that said no
}

// examine reads a folder and looks for every mistake at once: those of the documents, those of the expressions in them, also
// in documents that have others, and those of the lifecycles.
func (a *app) examine(f *folder) (*findings, error) {
	level := specs.PlatformLevel
	switch a.level {
	case "", "platform":
	case "tenant":
		level = specs.TenantLevel
	default:
		return nil, usagef("--level is platform or tenant, not %q", a.level)
	}
	x := &findings{}
	var err error
	x.bundle, err = specs.Load(f.root.FS(), specs.LoadOptions{Level: level, Draft: true})
	ds, draft := specs.AsDiagnostics(err)
	switch {
	case draft:
		x.all = append(x.all, ds...)
		if errors.Is(err, fs.ErrPermission) {
			x.cause = fs.ErrPermission
		}
	case err != nil:
		return nil, err
	default:
		x.all = append(x.all, x.bundle.Warnings...)
	}
	if x.bundle != nil {
		p, err := celpolicy.Compile(x.bundle)
		if ds, ok := specs.AsDiagnostics(err); ok {
			x.add(ds, draft)
		} else if err != nil {
			return nil, err
		} else if !draft {
			x.policy = p
			x.add(p.Warnings(), false)
		}
		for _, doc := range x.bundle.Machines {
			x.add(machine.Verify(doc, machine.WithInvariants(invariantCompiler), machine.WithSource(x.bundle.SourceLine)).Diagnostics(), draft)
		}
	}
	x.all = f.place(x.all)
	x.all.Sort()
	return x, nil
}

// add takes up more findings. Of a draft only errors count, and only at places that nothing was said about yet: the rest may
// be nothing but the shadow of another mistake.
func (x *findings) add(ds specs.Diagnostics, draft bool) {
	for _, d := range ds {
		known := slices.ContainsFunc(x.all, func(e specs.Diagnostic) bool { return e.Pos == d.Pos })
		if !draft || d.Severity == specs.Error && d.Pos.Line > 0 && !known {
			x.all = append(x.all, d)
		}
	}
}

// err is nil when the bundle can be used.
func (x *findings) err() error {
	err := x.all.Err()
	if err != nil && x.cause != nil {
		return errors.Join(err, x.cause)
	}
	return err
}

// compile reads a bundle that can be used, with its policy.
func (a *app) compile(f *folder) (*tools.Compiled, error) {
	x, err := a.examine(f)
	if err == nil {
		err = x.err()
	}
	if err != nil {
		return nil, err
	}
	return &tools.Compiled{Bundle: x.bundle, Policy: x.policy}, nil
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

// place makes the places of findings clickable from where the user stands.
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
