package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// StoredPolicies finds bundles in the store, so that a run can be taken up on any machine that reaches it. It compiles
// each bundle once and is safe for concurrent use.
type StoredPolicies struct {
	store persistence.Store

	mu       sync.Mutex
	compiled map[bundleKey]*Compiled
}

type bundleKey struct {
	tenant specs.TenantID
	digest specs.Digest
}

// NewStoredPolicies makes Policies of what `ApplyBundle` and `ActivateBundle` wrote.
func NewStoredPolicies(store persistence.Store) *StoredPolicies {
	return &StoredPolicies{store: store, compiled: map[bundleKey]*Compiled{}}
}

// Pinned implements Policies.
func (p *StoredPolicies) Pinned(ctx context.Context, t specs.TenantID, d specs.Digest) (*Compiled, error) {
	if c := p.known(bundleKey{t, d}); c != nil {
		return c, nil
	}
	stored, err := p.store.Bundle(ctx, t, d)
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", d, err)
	}
	return p.compile(t, stored)
}

// Live implements Policies.
func (p *StoredPolicies) Live(ctx context.Context, t specs.TenantID) (*Compiled, bool, error) {
	stored, err := p.store.ActiveBundle(ctx, t)
	if errors.Is(err, persistence.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if c := p.known(bundleKey{t, stored.Digest}); c != nil {
		return c, true, nil
	}
	c, err := p.compile(t, stored)
	return c, err == nil, err
}

func (p *StoredPolicies) known(k bundleKey) *Compiled {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.compiled[k]
}

// maxCompiled bounds the memory of a process that sees many bundles; the next use compiles again.
const maxCompiled = 64

// compile reads a stored bundle back. Whose documents they are was checked when they were applied, so they are read with the
// wider rights here; the digest says that they are the same.
func (p *StoredPolicies) compile(t specs.TenantID, stored persistence.StoredBundle) (*Compiled, error) {
	b, err := specs.LoadFiles(stored.Files, specs.LoadOptions{Level: specs.PlatformLevel})
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", stored.Digest, err)
	}
	if b.Digest != stored.Digest {
		return nil, fmt.Errorf("bundle %s reads as %s: it was applied by a program with another catalog: %w", stored.Digest, b.Digest, ErrOtherCatalog)
	}
	policy, err := celpolicy.Compile(b)
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", stored.Digest, err)
	}
	c := &Compiled{Bundle: b, Policy: policy}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.compiled) >= maxCompiled {
		clear(p.compiled)
	}
	p.compiled[bundleKey{t, stored.Digest}] = c
	return c, nil
}

// ErrOtherCatalog says that a stored bundle means something else to this program than to the one that applied it.
var ErrOtherCatalog = errors.New("apply the bundle again with this version")

// ApplyBundle stores a bundle without putting it in force. Storing it again changes nothing.
func ApplyBundle(ctx context.Context, store persistence.Store, by Principal, b *specs.Bundle) error {
	payload, err := json.Marshal(map[string]any{"digest": b.Digest, "by": by.User, "files": len(b.Files)})
	if err != nil {
		return err
	}
	_, err = store.Apply(ctx, persistence.Change{Tenant: by.Tenant, Key: "bundle/" + string(b.Digest),
		Lines:  []persistence.Entry{{Kind: persistence.KindBundleApplied, Payload: payload}},
		Bundle: &persistence.BundleChange{Store: &persistence.StoredBundle{Digest: b.Digest, Files: b.Files, By: by.User}}})
	return err
}

// ActivateBundle puts a stored bundle in force: from now on its denies hold for running calls too. Expect is the digest that
// the caller saw in force, "" for none; when another one is by now, persistence.ErrStale.
func ActivateBundle(ctx context.Context, store persistence.Store, by Principal, d, expect specs.Digest) error {
	payload, err := json.Marshal(map[string]any{"digest": d, "previous": expect, "by": by.User})
	if err != nil {
		return err
	}
	key, err := freshKey()
	if err != nil {
		return err
	}
	_, err = store.Apply(ctx, persistence.Change{Tenant: by.Tenant, Key: "activate/" + key,
		Lines:  []persistence.Entry{{Kind: persistence.KindBundleActivated, Payload: payload}},
		Bundle: &persistence.BundleChange{Activate: d, Expect: expect}})
	return err
}

func freshKey() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("no randomness: %w", err)
	}
	return id.String(), nil
}
