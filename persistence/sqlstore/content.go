package sqlstore

import (
	"context"
	"fmt"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Blob implements persistence.Store.
func (r Reads) Blob(ctx context.Context, t specs.TenantID, d specs.Digest) ([]byte, error) {
	var data []byte
	found, err := r.one(ctx, `SELECT data FROM blobs WHERE tenant = $1 AND digest = $2`, []any{string(t), string(d)}, &data)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("blob %s: %w", d, persistence.ErrNotFound)
	case specs.DigestOf(data) != d:
		return nil, fmt.Errorf("blob %s: %w", d, persistence.ErrCorrupt)
	case data == nil:
		return []byte{}, nil
	}
	return data, nil
}

// Artifact implements persistence.Store.
func (r Reads) Artifact(ctx context.Context, t specs.TenantID, run specs.RunID, name string) (specs.Digest, error) {
	var d specs.Digest
	found, err := r.one(ctx, `SELECT digest FROM artifacts WHERE tenant = $1 AND run = $2 AND name = $3`, []any{string(t), string(run), name}, &d)
	if err == nil && !found {
		err = fmt.Errorf("artifact %s of run %s: %w", name, run, persistence.ErrNotFound)
	}
	return d, err
}

// Artifacts implements persistence.Store.
func (r Reads) Artifacts(ctx context.Context, t specs.TenantID, run specs.RunID) ([]persistence.Artifact, error) {
	var out []persistence.Artifact
	err := r.each(ctx, `SELECT name, digest FROM artifacts WHERE tenant = $1 AND run = $2 ORDER BY name`, []any{string(t), string(run)},
		func(scan func(...any) error) error {
			var a persistence.Artifact
			err := scan(&a.Name, &a.Digest)
			out = append(out, a)
			return err
		})
	return out, err
}

// Tree implements persistence.Store.
func (r Reads) Tree(ctx context.Context, t specs.TenantID, id persistence.TreeID, version int64) (persistence.Tree, error) {
	tree := persistence.Tree{ID: id, Files: map[string]persistence.FileEntry{}}
	if version < 0 {
		return tree, fmt.Errorf("tree %s version %d: %w", id, version, persistence.ErrNotFound)
	}
	// One statement, so that the version and its files are of the same moment. The tree's own row comes first
	// and has an empty path.
	err := r.each(ctx, `SELECT path, digest, size, since FROM (
			SELECT '' AS path, '' AS digest, 0 AS size, version AS since FROM trees WHERE tenant = $1 AND tree = $2
			UNION ALL
			SELECT f.path, f.digest, f.size, f.since FROM tree_files f, trees n
			WHERE n.tenant = $1 AND n.tree = $2 AND f.tenant = $1 AND f.tree = $2
				AND f.since <= CASE WHEN CAST($3 AS BIGINT) = 0 THEN n.version ELSE CAST($3 AS BIGINT) END
				AND (f.until = 0 OR f.until > CASE WHEN CAST($3 AS BIGINT) = 0 THEN n.version ELSE CAST($3 AS BIGINT) END)
		) AS manifest ORDER BY path`, []any{string(t), string(id), version},
		func(scan func(...any) error) error {
			var path string
			var e persistence.FileEntry
			if err := scan(&path, &e.Digest, &e.Size, &e.Since); err != nil {
				return err
			}
			if path == "" {
				tree.Version = e.Since
			} else {
				tree.Files[path] = e
			}
			return nil
		})
	if err != nil {
		return persistence.Tree{}, err
	}
	if version > tree.Version {
		return persistence.Tree{}, fmt.Errorf("tree %s version %d: %w", id, version, persistence.ErrNotFound)
	}
	if version > 0 {
		tree.Version = version
	}
	return tree, nil
}

// Checkpoints implements persistence.Store: oldest first.
func (r Reads) Checkpoints(ctx context.Context, t specs.TenantID, id persistence.TreeID) ([]persistence.Checkpoint, error) {
	var out []persistence.Checkpoint
	err := r.each(ctx, `SELECT version, label, reason, call, at FROM checkpoints WHERE tenant = $1 AND tree = $2 ORDER BY version`,
		[]any{string(t), string(id)}, func(scan func(...any) error) error {
			var c persistence.Checkpoint
			var at int64
			err := scan(&c.Version, &c.Label, &c.Reason, &c.Call, &at)
			c.At = persistence.FromMicros(at)
			out = append(out, c)
			return err
		})
	return out, err
}

// ReadStates implements persistence.Store.
func (r Reads) ReadStates(ctx context.Context, t specs.TenantID, run specs.RunID, inv specs.InvocationID) (map[string]specs.Digest, error) {
	out := map[string]specs.Digest{}
	err := r.each(ctx, `SELECT path, digest FROM reads WHERE tenant = $1 AND run = $2 AND invocation = $3`, []any{string(t), string(run), string(inv)},
		func(scan func(...any) error) error {
			var path string
			var d specs.Digest
			err := scan(&path, &d)
			out[path] = d
			return err
		})
	return out, err
}
