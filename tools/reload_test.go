package tools_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/persistence/sqlite"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// edition is a bundle of several files that denies exactly the tools of its parity, in files of their own: a reader that saw half
// of one and half of another would find a tool allowed twice or denied twice.
func edition(t testing.TB, n int) *specs.Bundle {
	t.Helper()
	files := []specs.File{{Name: "house.yaml", Data: []byte(noAnchors(house))}}
	for i, tool := range []string{"act.once", "act.twice"} {
		files = append(files, specs.File{Name: fmt.Sprintf("p%d.yaml", i), Data: fmt.Appendf(nil, `
apiVersion: callgate/v1
kind: Policy
metadata: {name: p%d}
spec: {layer: platform, rules: [{name: e%d, tools: [%s], when: '%d == %d', effect: deny}]}
`, i, n, tool, n%2, i)})
	}
	b, err := specs.LoadFiles(files, specs.LoadOptions{Level: specs.PlatformLevel})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openStore(t testing.TB) persistence.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// denies says which of the two tools a compiled bundle denies.
func denies(c *tools.Compiled) (out [2]bool) {
	for i, tool := range []specs.ToolName{"act.once", "act.twice"} {
		d := c.Policy.Resolve(celpolicy.Input{Phase: celpolicy.PhaseCall, Tool: tool, Args: []byte(`{}`), Run: celpolicy.RunFacts{Profile: "worker"}})
		out[i] = !d.Callable
	}
	return out
}

// Whoever reads while policy is reloaded sees one edition, whole; and one that cannot be read whole is not read at all.
func TestCase_E25_ReadersSeeOneWholeEdition(t *testing.T) {
	t.Parallel()
	st := openStore(t)
	const editions = 6
	var digests [editions]specs.Digest
	whole := map[specs.Digest][2]bool{}
	for i := range editions {
		b := edition(t, i)
		if err := tools.ApplyBundle(t.Context(), st, ann, b); err != nil {
			t.Fatal(err)
		}
		digests[i], whole[b.Digest] = b.Digest, [2]bool{i%2 == 0, i%2 == 1}
	}
	if len(whole) != editions {
		t.Fatalf("%d editions", len(whole))
	}
	shared := tools.NewStoredPolicies(st)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				c, ok, err := shared.Live(t.Context(), tenant)
				if err != nil {
					t.Error(err)
					return
				}
				if ok && denies(c) != whole[c.Bundle.Digest] {
					t.Errorf("a mixture under %s: %v", c.Bundle.Digest, denies(c))
					return
				}
			}
		})
	}
	var inForce specs.Digest
	for i := range 3 * editions {
		next := digests[i%editions]
		if err := tools.ActivateBundle(t.Context(), st, ann, next, inForce); err != nil {
			t.Fatal(err)
		}
		inForce = next
	}
	close(done)
	readers.Wait()

	// A load with any mistake, in any one of its files, gives no bundle at all.
	good := edition(t, 0).Files
	for i := range good {
		files := append([]specs.File{}, good...)
		files[i].Data = append(append([]byte{}, files[i].Data...), "\n---\napiVersion: callgate/v1\nkind: Policy\nmetadata: {name: odd}\nspec: {layer: platform, rulez: []}\n"...)
		if b, err := specs.LoadFiles(files, specs.LoadOptions{Level: specs.PlatformLevel}); err == nil || b != nil {
			t.Errorf("a mistake in %s: %v, %v", files[i].Name, b, err)
		}
	}
	// And one that was stored half, by whatever means, is neither put together nor replaced by what was before: nothing is decided.
	torn := edition(t, 0)
	torn.Files = torn.Files[:len(torn.Files)-1]
	torn.Digest = "sha256:00000000000000000000000000000000000000000000000000000000000000ff"
	if err := tools.ApplyBundle(t.Context(), st, ann, torn); err != nil {
		t.Fatal(err)
	}
	if err := tools.ActivateBundle(t.Context(), st, ann, torn.Digest, inForce); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it is not remembered as complete either
		if c, ok, err := shared.Live(t.Context(), tenant); err == nil || ok || c != nil {
			t.Errorf("half a bundle is in force: %v %v %v", c, ok, err)
		}
	}
	if err := tools.ActivateBundle(t.Context(), st, ann, inForce, torn.Digest); err != nil {
		t.Fatal(err)
	}
	if c, ok, err := shared.Live(t.Context(), tenant); err != nil || !ok || c.Bundle.Digest != inForce {
		t.Errorf("after the way back: %v %v", ok, err)
	}
}

// A changed bundle can be put in force while the process runs, and what is listed as in force is what decides.
func TestCase_E26_AChangedBundleComesIntoForceAndIsListed(t *testing.T) {
	t.Parallel()
	st := openStore(t)
	policies := tools.NewStoredPolicies(st)
	if _, ok, err := policies.Live(t.Context(), tenant); ok || err != nil {
		t.Fatalf("before anything: %v %v", ok, err)
	}
	var before specs.Digest
	for i := range 3 {
		b := edition(t, i)
		if err := tools.ApplyBundle(t.Context(), st, ann, b); err != nil {
			t.Fatal(err)
		}
		if c, _, err := policies.Live(t.Context(), tenant); err != nil || c != nil && c.Bundle.Digest != before {
			t.Errorf("stored is not in force yet: %v %v", c, err)
		}
		if err := tools.ActivateBundle(t.Context(), st, ann, b.Digest, before); err != nil {
			t.Fatal(err)
		}
		if err := tools.ActivateBundle(t.Context(), st, ann, b.Digest, "sha256:another"); !errors.Is(err, persistence.ErrStale) {
			t.Errorf("somebody who saw another one in force: %v", err)
		}
		before = b.Digest
		c, ok, err := policies.Live(t.Context(), tenant)
		if err != nil || !ok || c.Bundle.Digest != b.Digest || denies(c) != [2]bool{i%2 == 0, i%2 == 1} {
			t.Fatalf("edition %d does not decide: %v %v", i, ok, err)
		}
		list, err := st.Bundles(t.Context(), tenant)
		if err != nil || len(list) != i+1 {
			t.Fatalf("%d bundles, %v", len(list), err)
		}
		for _, s := range list {
			if s.Active != (s.Digest == c.Policy.Digest()) {
				t.Errorf("%s is listed as active=%v, and %s decides", s.Digest, s.Active, c.Policy.Digest())
			}
		}
	}
	// What cannot be put in force is refused there and then.
	if err := tools.ActivateBundle(t.Context(), st, ann, "sha256:nobody", before); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("a bundle nobody stored: %v", err)
	}
}
