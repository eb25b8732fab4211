package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Grants implements persistence.Store.
func (r Reads) Grants(ctx context.Context, t specs.TenantID, run specs.RunID) ([]persistence.Grant, error) {
	now, err := r.DB.Now(ctx)
	if err != nil {
		return nil, err
	}
	var out []persistence.Grant
	err = r.each(ctx, `SELECT id, body FROM grants WHERE tenant = $1 AND ($2 = '' OR run = '' OR run = $2)
		AND revoked = 0 AND (expires = 0 OR expires > $3) ORDER BY created, id`, []any{string(t), string(run), persistence.Micros(now)},
		func(scan func(...any) error) error {
			var id string
			var body []byte
			if err := scan(&id, &body); err != nil {
				return err
			}
			var g persistence.Grant
			if err := json.Unmarshal(body, &g); err != nil {
				return fmt.Errorf("%w: grant %s: %w", persistence.ErrCorrupt, id, err)
			}
			out = append(out, g)
			return nil
		})
	return out, err
}
