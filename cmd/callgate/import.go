package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools/mcp"
)

func (a *app) importVerb() *cobra.Command {
	var (
		source, out string
		skip        bool
	)
	cmd := &cobra.Command{
		Use:   "mcp FILE",
		Short: "Tool documents from an MCP tools/list result",
		Long: `Reads a tools/list result (also the JSON-RPC reply around it, a bare array, a capture of several replies, a registry's
list) and writes Tool documents and a Source document with pinned digests. Nothing is allowed by importing: the Source
has to accept a tool and a profile to grant it before an agent sees it.

Without --out the YAML goes to stdout. All problems of the file are reported at once; --skip-invalid imports the rest.`,
		Example: "  callgate import mcp tools-list.json --source github --out my-gate",
		Args:    words("the file with the tool list"),
	}
	cmd.RunE = a.verb(func(_ context.Context, args []string) error { return a.importMCP(args[0], source, out, skip) })
	f := cmd.Flags()
	f.StringVar(&source, "source", "", "name of the source, first part of each tool's name (default: the server's or the file's name)")
	f.StringVar(&out, "out", "", "folder to write source-NAME.yaml into (default: stdout)")
	f.BoolVar(&skip, "skip-invalid", false, "leave out tools that cannot be imported and say which")
	return a.group("import", "Documents from elsewhere", "  callgate import mcp tools-list.json --source github", cmd,
		a.importClaudeVerb(), a.importCerbosVerb(), a.importAgentgatewayVerb())
}

func (a *app) importMCP(file, source, out string, skip bool) error {
	data, err := a.readFile(file)
	if err != nil {
		return err
	}
	base, _, _ := strings.Cut(filepath.Base(file), ".")
	got, err := mcp.Import(data, mcp.Options{Source: specs.SourceName(source), Fallback: base, SkipInvalid: skip})
	var bad *mcp.ImportError
	if errors.As(err, &bad) {
		for _, p := range bad.Problems {
			a.note("%s: %s\n", file, plain(p.String()))
		}
		if len(bad.Problems) > 1 {
			a.note("%s; nothing was imported\n", plural(len(bad.Problems), "problem"))
		}
		return quiet(exitNo)
	}
	if err != nil {
		return err
	}
	if err := importable(got); err != nil {
		return err
	}
	for _, p := range got.Skipped {
		a.note("%s: left out: %s\n", file, plain(p.String()))
	}
	for _, n := range got.Notes {
		a.note("%s: %s\n", file, plain(n))
	}
	if out == "" {
		_, err := a.Stdout.Write(got.YAML())
		return err
	}
	var files []specs.File
	for _, f := range got.Files() {
		files = append(files, specs.File{Name: f.Name, Data: f.Data})
	}
	if err := a.writeNew(out, files); err != nil {
		return err
	}
	for i, f := range files {
		a.printf("%s: %s, none allowed\n", filepath.Join(out, f.Name), plural(len(got.Sources[i].Tools), "tool"))
	}
	return nil
}

// writeNew writes files into a folder that it makes. One that is there and says something else is left as it is, and then
// nothing is written at all.
func (a *app) writeNew(dir string, files []specs.File) error {
	if err := os.MkdirAll(a.path(dir), 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(a.path(dir))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range files {
		if old, err := root.ReadFile(f.Name); err == nil && string(old) != string(f.Data) {
			return nof("%s is already there and says something else", filepath.Join(dir, f.Name)).
				withHint("compare the two before you replace it: a changed definition is how a trusted tool turns bad")
		}
	}
	for _, f := range files {
		if err := root.WriteFile(f.Name, f.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// importable holds the result against the loader: what is written must be readable.
func importable(got *mcp.Imported) error {
	var files []specs.File
	for _, f := range got.Files() {
		files = append(files, specs.File{Name: f.Name, Data: f.Data})
	}
	b, err := specs.LoadFiles(files, specs.LoadOptions{})
	if err != nil {
		return err
	}
	_, err = celpolicy.Compile(b)
	return err
}
