package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// The active bundle is the one activated last; what was active before that activation is on its row.
const bundleColumns = `SELECT b.digest, b.files, b.author, b.applied,
	b.digest = coalesce((SELECT a.digest FROM activations a WHERE a.tenant = b.tenant ORDER BY a.seq DESC LIMIT 1), ''),
	coalesce((SELECT a.previous FROM activations a WHERE a.tenant = b.tenant AND a.digest = b.digest ORDER BY a.seq DESC LIMIT 1), '')
	FROM bundles b `

func (r Reads) bundles(ctx context.Context, where string, args ...any) ([]persistence.StoredBundle, error) {
	var out []persistence.StoredBundle
	err := r.each(ctx, bundleColumns+where, args, func(scan func(...any) error) error {
		var b persistence.StoredBundle
		var files []byte
		var applied int64
		if err := scan(&b.Digest, &files, &b.By, &applied, &b.Active, &b.Previous); err != nil {
			return err
		}
		b.Applied = persistence.FromMicros(applied)
		if err := json.Unmarshal(files, &b.Files); err != nil {
			return fmt.Errorf("%w: bundle %s: %w", persistence.ErrCorrupt, b.Digest, err)
		}
		out = append(out, b)
		return nil
	})
	return out, err
}

// Bundle implements persistence.Store.
func (r Reads) Bundle(ctx context.Context, t specs.TenantID, d specs.Digest) (persistence.StoredBundle, error) {
	return first("bundle " + string(d))(r.bundles(ctx, `WHERE b.tenant = $1 AND b.digest = $2`, string(t), string(d)))
}

// Bundles implements persistence.Store.
func (r Reads) Bundles(ctx context.Context, t specs.TenantID) ([]persistence.StoredBundle, error) {
	return r.bundles(ctx, `WHERE b.tenant = $1 ORDER BY b.seq DESC`, string(t))
}

// ActiveBundle implements persistence.Store.
func (r Reads) ActiveBundle(ctx context.Context, t specs.TenantID) (persistence.StoredBundle, error) {
	return first("active bundle")(r.bundles(ctx,
		`WHERE b.tenant = $1 AND b.digest = (SELECT a.digest FROM activations a WHERE a.tenant = $1 ORDER BY a.seq DESC LIMIT 1)`, string(t)))
}

func first(what string) func([]persistence.StoredBundle, error) (persistence.StoredBundle, error) {
	return func(list []persistence.StoredBundle, err error) (persistence.StoredBundle, error) {
		switch {
		case err != nil:
			return persistence.StoredBundle{}, err
		case len(list) == 0:
			return persistence.StoredBundle{}, fmt.Errorf("%s: %w", what, persistence.ErrNotFound)
		}
		return list[0], nil
	}
}
