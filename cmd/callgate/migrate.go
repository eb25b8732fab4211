package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/postgres"
)

func (a *app) migrateVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Create the store's schema or bring it up to date",
		Long: `Creates or upgrades the schema of the store. An embedded store does this by itself whenever it is opened; a Postgres
database only by this command, with a role that may create tables. A store of a newer version is refused and left alone.`,
		Example: "  callgate migrate --store postgres://callgate@db/callgate", Args: words(), RunE: a.verb(a.migrate),
	}
	a.storeFlags(cmd)
	a.formatFlag(cmd)
	return cmd
}

func (a *app) migrate(ctx context.Context, _ []string) error {
	p, err := a.storePlace()
	if err != nil {
		return err
	}
	if p.postgres != "" {
		if err := postgres.Migrate(ctx, p.postgres); err != nil {
			return &failure{text: "store " + p.String(), err: err}
		}
	}
	return a.withStore(ctx, mayCreate, func(persistence.Store) error {
		if a.json() {
			return a.printJSON(map[string]any{"store": p.String(), "migrated": true})
		}
		a.printf("%s is up to date\n", p)
		return nil
	})
}
