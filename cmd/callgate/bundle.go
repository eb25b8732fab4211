package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

func (a *app) bundleVerb() *cobra.Command {
	var activate bool
	apply := &cobra.Command{
		Use: "apply DIR", Short: "Store a bundle, without putting it in force", Example: "  callgate bundle apply my-gate --activate", Args: oneDir,
		Long: "Checks the bundle of DIR and stores it under its digest. Runs can be pinned to it; --activate also puts it in force.",
	}
	apply.RunE = a.verb(func(ctx context.Context, args []string) error { return a.applyBundle(ctx, args[0], activate) })
	apply.Flags().BoolVar(&activate, "activate", false, "put it in force too")
	a.levelFlag(apply)
	list := &cobra.Command{Use: "list", Short: "Stored bundles, newest first", Example: "  callgate bundle list", Args: words(), RunE: a.verb(a.listBundles)}
	act := &cobra.Command{
		Use: "activate DIGEST", Short: "Put a stored bundle in force", Example: "  callgate bundle activate 3f2a", Args: words("the bundle's digest or its beginning"),
		Long: `From then on the bundle's denies hold for calls of running runs too; everything else a run does stays with the bundle it
was started with.`,
		RunE: a.verb(a.activateBundle),
	}
	back := &cobra.Command{Use: "rollback", Short: "Put the bundle before this one in force again", Example: "  callgate bundle rollback", Args: words(), RunE: a.verb(a.rollbackBundle)}
	for _, c := range []*cobra.Command{apply, list, act, back} {
		a.storeFlags(c)
		a.formatFlag(c)
	}
	for _, c := range []*cobra.Command{apply, act, back} {
		a.asFlag(c)
	}
	return a.group("bundle", "The tenant's bundle in the store: apply, list, activate, rollback", "  callgate bundle apply my-gate", apply, list, act, back)
}

func (a *app) withStore(ctx context.Context, m mode, do func(persistence.Store) error) error {
	s, err := a.openStore(ctx, m)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

func (a *app) applyBundle(ctx context.Context, dir string, activate bool) error {
	c, err := a.compileDir(dir)
	if err != nil {
		return err
	}
	who, err := a.person()
	if err != nil {
		return err
	}
	return a.withStore(ctx, mayCreate, func(s persistence.Store) error {
		if err := tools.ApplyBundle(ctx, s, who, c.Bundle); err != nil {
			return err
		}
		if activate {
			return a.putInForce(ctx, s, who, c.Bundle.Digest)
		}
		if a.json() {
			return a.printJSON(map[string]any{"digest": c.Bundle.Digest, "active": false})
		}
		a.printf("stored %s\n  callgate bundle activate %s%s\n", c.Bundle.Digest, short(string(c.Bundle.Digest)), a.sameStore())
		return nil
	})
}

func active(ctx context.Context, s persistence.Store, t specs.TenantID) (persistence.StoredBundle, error) {
	b, err := s.ActiveBundle(ctx, t)
	if errors.Is(err, persistence.ErrNotFound) {
		return persistence.StoredBundle{}, nil
	}
	return b, err
}

func (a *app) putInForce(ctx context.Context, s persistence.Store, who tools.Principal, d specs.Digest) error {
	now, err := active(ctx, s, who.Tenant)
	if err != nil {
		return err
	}
	if now.Digest != d {
		if err := tools.ActivateBundle(ctx, s, who, d, now.Digest); err != nil {
			return err
		}
	}
	if a.json() {
		return a.printJSON(map[string]any{"digest": d, "active": true, "previous": now.Digest})
	}
	if now.Digest == d {
		a.printf("%s is in force already\n", short(string(d)))
		return nil
	}
	a.printf("%s is in force\n", short(string(d)))
	return nil
}

func (a *app) listBundles(ctx context.Context, _ []string) error {
	return a.withStore(ctx, mustExist, func(s persistence.Store) error {
		list, err := s.Bundles(ctx, a.tenantID())
		if err != nil {
			return err
		}
		if a.json() {
			out := make([]map[string]any, 0, len(list))
			for _, b := range list {
				out = append(out, map[string]any{"digest": b.Digest, "by": b.By, "applied": b.Applied, "active": b.Active, "previous": b.Previous})
			}
			return a.printJSON(map[string]any{"bundles": out})
		}
		if len(list) == 0 {
			a.note("no bundles\n")
			return nil
		}
		now, err := s.Now(ctx)
		if err != nil {
			return err
		}
		rows := [][]string{{a.dim("BUNDLE"), "", a.dim("BY"), a.dim("APPLIED")}}
		for _, b := range list {
			force := ""
			if b.Active {
				force = a.good("in force")
			}
			rows = append(rows, []string{short(string(b.Digest)), force, plain(string(b.By)), ago(now.Sub(b.Applied))})
		}
		table(a.Stdout, rows)
		return nil
	})
}

func (a *app) activateBundle(ctx context.Context, args []string) error {
	who, err := a.person()
	if err != nil {
		return err
	}
	return a.withStore(ctx, mustExist, func(s persistence.Store) error {
		d, err := findBundle(ctx, s, who.Tenant, args[0])
		if err != nil {
			return err
		}
		return a.putInForce(ctx, s, who, d)
	})
}

func findBundle(ctx context.Context, s persistence.Store, t specs.TenantID, word string) (specs.Digest, error) {
	list, err := s.Bundles(ctx, t)
	if err != nil {
		return "", err
	}
	var found []specs.Digest
	for _, b := range list {
		if string(b.Digest) == word || strings.HasPrefix(strings.TrimPrefix(string(b.Digest), "sha256:"), strings.TrimPrefix(word, "sha256:")) {
			found = append(found, b.Digest)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", nof("there is no bundle %s", plain(word)).withHint("callgate bundle list shows them; callgate bundle apply DIR stores one")
	}
	return "", nof("%d bundles begin with %s", len(found), plain(word))
}

func (a *app) rollbackBundle(ctx context.Context, _ []string) error {
	who, err := a.person()
	if err != nil {
		return err
	}
	return a.withStore(ctx, mustExist, func(s persistence.Store) error {
		now, err := active(ctx, s, who.Tenant)
		if err != nil {
			return err
		}
		switch {
		case now.Digest == "":
			return nof("no bundle is in force")
		case now.Previous == "":
			return nof("no bundle was in force before %s", short(string(now.Digest)))
		}
		return a.putInForce(ctx, s, who, now.Previous)
	})
}
