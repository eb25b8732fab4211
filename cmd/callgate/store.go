package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/postgres"
	"github.com/callgate/callgate/persistence/sqlite"
	"github.com/callgate/callgate/specs"
)

const defaultStore = "sqlite:.callgate/callgate.db"

func (a *app) storeFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.store, "store", "", "sqlite:PATH or postgres://... (default $CALLGATE_STORE, else "+defaultStore+")")
	cmd.Flags().StringVar(&a.tenant, "tenant", "default", "whose bundles and runs")
}

// place is where the store is, as the command line or the environment says.
type place struct {
	sqlite   string // path of the file; empty for Postgres
	postgres string // address; empty for sqlite
}

func (a *app) storePlace() (place, error) {
	s := orElse(a.store, orElse(a.Getenv("CALLGATE_STORE"), defaultStore))
	switch {
	case strings.HasPrefix(s, "postgres://"), strings.HasPrefix(s, "postgresql://"):
		return place{postgres: s}, nil
	case strings.HasPrefix(s, "sqlite:") && len(s) > len("sqlite:"):
		return place{sqlite: a.path(strings.TrimPrefix(s, "sqlite:"))}, nil
	}
	return place{}, (&failure{code: exitUsage, text: "--store is sqlite:PATH or postgres://..., not " + hidePassword(s)})
}

func (p place) String() string {
	if p.postgres != "" {
		return hidePassword(p.postgres)
	}
	return "sqlite:" + p.sqlite
}

// hidePassword keeps the secret of an address out of messages: the one before the host, and those among the settings. It
// reads the address by hand, because one that cannot be read has secrets too.
func hidePassword(address string) string {
	address = secretSetting.ReplaceAllString(address, "$1***")
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		return address
	}
	slashes := ""
	if strings.HasPrefix(rest, "//") {
		slashes, rest = "//", rest[2:]
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return address
	}
	user, _, secret := strings.Cut(rest[:at], ":")
	if !secret {
		return address
	}
	return scheme + ":" + slashes + user + ":***" + rest[at:]
}

// secretSetting finds the settings of a Postgres address that are secrets, as keys of a URL or as words of their own.
var secretSetting = regexp.MustCompile(`(?i)((?:^|[?&\s])(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]*)`)

// mode says what opening a store may do to it.
type mode int

const (
	mustExist mode = iota // verbs that look: an empty new store would only hide a typing mistake
	mayCreate             // verbs that write
)

// openStore opens the store that the command line names.
func (a *app) openStore(ctx context.Context, m mode) (persistence.Store, error) {
	p, err := a.storePlace()
	if err != nil {
		return nil, err
	}
	if p.postgres != "" {
		s, err := postgres.Open(ctx, p.postgres, postgres.Options{})
		if err != nil {
			return nil, &failure{text: "store " + p.String(), err: err}
		}
		return s, nil
	}
	if m == mustExist {
		if _, err := os.Stat(p.sqlite); errors.Is(err, fs.ErrNotExist) {
			return nil, systemf("there is no store at %s", a.shown(p.sqlite)).
				withHint("callgate run DIR makes one; --store or CALLGATE_STORE names another")
		}
	} else if err := os.MkdirAll(filepath.Dir(p.sqlite), 0o700); err != nil {
		return nil, err
	}
	s, err := sqlite.Open(ctx, p.sqlite, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// shown makes a path short again for people.
func (a *app) shown(path string) string {
	if rel, err := filepath.Rel(a.Dir, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

func (a *app) tenantID() specs.TenantID { return specs.TenantID(orElse(a.tenant, "default")) }
