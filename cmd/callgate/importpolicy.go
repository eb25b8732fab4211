package main

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools/importer"
)

// policyImport is what the verbs that import policies share.
type policyImport struct {
	source, out, root, home string
	skip                    bool
}

func (p *policyImport) flags(cmd *cobra.Command, source string) {
	f := cmd.Flags()
	f.StringVar(&p.source, "source", "", "name of the source that the rules are about, first part of each tool's name (default: "+source+")")
	f.StringVar(&p.out, "out", "", "folder to write policy-NAME.yaml into (default: stdout)")
	f.BoolVar(&p.skip, "skip-invalid", false, "import the rest of an input that would be refused, and deny what its refused parts could deny")
}

func (p *policyImport) options() importer.Options {
	return importer.Options{Source: specs.SourceName(p.source), SkipInvalid: p.skip, Root: p.root, Home: p.home}
}

const remarksHelp = `Every line that is not carried over as it stands is told on stderr with its place, why, and what to do: left
out (it could only have allowed), stricter (it refuses or asks more than it did), denied instead. What could
deny and is not understood refuses the import.`

func (a *app) importClaudeVerb() *cobra.Command {
	p := &policyImport{}
	cmd := &cobra.Command{
		Use:   "claude-settings FILE",
		Short: "Rules from a settings.json of Claude Code",
		Long: `Reads the permissions of a settings file: deny before ask, ask before allow, and the default mode for the
rest. The tools of Claude Code become stand-ins of a source, its lines rules that hold for one profile.

` + remarksHelp,
		Example: "  callgate import claude-settings .claude/settings.json --root \"$PWD\" --home \"$HOME\" --out my-gate",
		Args:    words("the settings file"),
	}
	cmd.RunE = a.verb(func(_ context.Context, args []string) error {
		data, err := a.readFile(args[0])
		if err != nil {
			return err
		}
		got, err := importer.Claude(args[0], data, p.options())
		return a.imported(got, err, p.out)
	})
	p.flags(cmd, "claude")
	cmd.Flags().StringVar(&p.root, "root", "", "absolute path of the project; without it a path that is allowed is a relative one")
	cmd.Flags().StringVar(&p.home, "home", "", "absolute path that ~ stands for; without it an allowed ~/path is one that is written so")
	return cmd
}

func (a *app) importCerbosVerb() *cobra.Command {
	p := &policyImport{}
	cmd := &cobra.Command{
		Use:   "cerbos DIR",
		Short: "A ceiling from a folder of Cerbos policies",
		Long: `Reads resource, principal and role policies with their derived roles, variables and constants. Action A on a
resource of kind K becomes the tool SOURCE.K.A. What no rule allows is denied, as there; the rules grant
nothing beyond their source.

` + remarksHelp,
		Example: "  callgate import cerbos policies --out my-gate",
		Args:    words("the folder of policies"),
	}
	cmd.RunE = a.verb(func(_ context.Context, args []string) error {
		files, err := a.policyFiles(args[0])
		if err != nil {
			return err
		}
		got, err := importer.Cerbos(files, p.options())
		return a.imported(got, err, p.out)
	})
	p.flags(cmd, "cerbos")
	return cmd
}

func (a *app) importAgentgatewayVerb() *cobra.Command {
	p := &policyImport{}
	cmd := &cobra.Command{
		Use:   "agentgateway FILE",
		Short: "A ceiling from the MCP authorization of an agentgateway configuration",
		Long: `Reads mcpAuthorization rules of a configuration, or AgentgatewayPolicy resources. They become a ceiling over
the tools of one source, which callgate import mcp brings.

` + remarksHelp,
		Example: "  callgate import agentgateway config.yaml --source wiki --out my-gate",
		Args:    words("the configuration"),
	}
	cmd.RunE = a.verb(func(_ context.Context, args []string) error {
		data, err := a.readFile(args[0])
		if err != nil {
			return err
		}
		got, err := importer.Agentgateway(args[0], data, p.options())
		return a.imported(got, err, p.out)
	})
	p.flags(cmd, "the target's name")
	return cmd
}

// imported tells what an import made, or why there is none.
func (a *app) imported(got *importer.Imported, err error, out string) error {
	if err != nil {
		return err
	}
	a.note("%s", got.Remarks.Text())
	if n := len(got.Remarks); n > 0 {
		a.note("%s\n", plural(n, "remark"))
	}
	if out == "" {
		_, err := a.Stdout.Write(got.YAML)
		return err
	}
	if err := a.writeNew(out, []specs.File{{Name: got.Name, Data: got.YAML}}); err != nil {
		return err
	}
	a.printf("%s: %s, %d of them deny\n", filepath.Join(out, got.Name), plural(got.Rules, "rule"), got.Denies)
	return nil
}

// maxPolicyFiles bounds a folder; what holds more is not one of policies.
const maxPolicyFiles = 5000

// policyFiles reads the YAML and JSON files below a folder, or one file. A link that leads outside is not followed.
func (a *app) policyFiles(name string) ([]specs.File, error) {
	info, err := os.Stat(a.path(name))
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		data, err := a.readFile(name)
		return []specs.File{{Name: name, Data: data}}, err
	}
	f, err := a.openFolder(name)
	if err != nil {
		return nil, err
	}
	defer f.close()
	var files []specs.File
	err = fs.WalkDir(f.root.FS(), ".", func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case at != "." && strings.HasPrefix(path.Base(at), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		}
		switch path.Ext(at) {
		case ".yaml", ".yml", ".json":
		default:
			return nil
		}
		if len(files) == maxPolicyFiles {
			return usagef("%s holds more than %d files", name, maxPolicyFiles)
		}
		file, err := f.root.Open(at)
		if err != nil {
			return err
		}
		defer file.Close()
		data, err := readSmall(file, at)
		files = append(files, specs.File{Name: path.Join(filepath.ToSlash(name), at), Data: data})
		return err
	})
	return files, err
}
