package tools

import (
	"context"
	"fmt"

	"github.com/callgate/callgate/persistence"
)

// RevokeGrant takes a remembered yes back: calls that it answered for are asked about again, also those that are ready and have not
// started. The grant's row stays, marked, and the tenant's journal says who took it back. Revoking twice is revoking once.
// An id that the tenant does not have is persistence.ErrNotFound.
func (d *Dispatcher) RevokeGrant(ctx context.Context, by Principal, grant string) error {
	missing := fmt.Errorf("grant %q: %w", clip(grant, 100), persistence.ErrNotFound)
	if grant == "" || len(grant) > 200 || by.User == "" {
		return missing
	}
	s := &story{}
	s.write(persistence.Entry{Kind: persistence.KindGrantRevoked, Related: grant}, map[string]any{"grant": grant, "by": by.User})
	if s.err != nil {
		return s.err
	}
	// The key is the grant's own, so the second time writes nothing.
	_, err := d.store.Apply(ctx, persistence.Change{Tenant: by.Tenant, Key: "revoke/" + grant, Lines: s.lines, Revoke: []string{grant}})
	return err
}
