package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// asFlag is for verbs by which a person decides something.
func (a *app) asFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.user, "as", "", "who you are (default $CALLGATE_USER, else your login name)")
}

// whoami is the name of whoever runs this command.
func (a *app) whoami() (specs.UserID, error) {
	u := orElse(a.user, orElse(a.Getenv("CALLGATE_USER"), a.User))
	if u == "" {
		return "", usagef("nobody knows who you are: name yourself with --as or CALLGATE_USER")
	}
	return specs.UserID(u), nil
}

// person is somebody who does something to a run or a bundle; what they may do is not asked here, because whoever can
// open the store from a command line can do all of it.
func (a *app) person() (tools.Principal, error) {
	id, err := a.whoami()
	return tools.Principal{Tenant: a.tenantID(), User: id}, err
}

// approver is a person with the roles that the tenant gives them now: those of the bundle in force, or, where none is,
// of the bundle the run is pinned to. Roles of the command line are never believed.
func (a *app) approver(ctx context.Context, h *house, run specs.RunID) (tools.Principal, error) {
	p, err := a.person()
	if err != nil {
		return p, err
	}
	users, err := h.users(ctx, run)
	if err != nil {
		return p, err
	}
	known, ok := users[string(p.User)]
	if !ok {
		return p, nof("nobody called %q is a user of tenant %s, so they cannot decide", p.User, p.Tenant).
			withHint("declare them in a Tenant document of the bundle, users: {%s: {roles: [approver]}}, and apply it; or say who you are with --as", p.User)
	}
	p.Roles = known.Roles
	return p, nil
}

func (h *house) users(ctx context.Context, id specs.RunID) (map[string]specs.TenantUser, error) {
	live, ok, err := h.policies.Live(ctx, h.tenant)
	if err != nil {
		return nil, err
	}
	if ok && live.Bundle.Tenant != nil && len(live.Bundle.Tenant.Users) > 0 {
		return live.Bundle.Tenant.Users, nil
	}
	run, err := h.store.Run(ctx, h.tenant, id)
	if errors.Is(err, persistence.ErrNotFound) {
		return nil, nof("there is no run %s", id)
	}
	if err != nil {
		return nil, err
	}
	pinned, err := h.policies.Pinned(ctx, h.tenant, run.Bundle)
	if err != nil {
		return nil, err
	}
	if pinned.Bundle.Tenant == nil {
		return nil, nil
	}
	return pinned.Bundle.Tenant.Users, nil
}
