package main

import (
	"context"
	"os"
	"sort"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/specs/schema"
)

func (a *app) schemaVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema DIR",
		Short: "JSON Schemas of the YAML, so that an editor completes and checks while you type",
		Long: `Writes one JSON Schema per kind of document into DIR, and one for all of them. With the YAML extension of VS Code
(or any editor that speaks to yaml-language-server) put this line on top of a file:

  # yaml-language-server: $schema=schema/callgate.schema.json`,
		Example: "  callgate schema my-gate/schema",
		Args:    oneDir,
		RunE:    a.verb(a.writeSchemas),
	}
	a.formatFlag(cmd)
	return cmd
}

func (a *app) writeSchemas(_ context.Context, args []string) error {
	dir := a.path(args[0])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	files := schema.All()
	var names []string
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := root.WriteFile(name, files[name], 0o644); err != nil {
			return err
		}
	}
	if a.json() {
		return a.printJSON(map[string]any{"dir": args[0], "files": names})
	}
	for _, name := range names {
		a.printf("%s/%s\n", args[0], name)
	}
	return nil
}
