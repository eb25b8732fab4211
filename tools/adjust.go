package tools

import (
	"context"
	"fmt"
	"strings"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// AdjustBudget corrects what a counter says was spent, by a signed amount that the journal of the run tells with its reason and
// who made it; with run "" the tenant's own journal does. What was charged at a wrong price is mended so, and nothing else about
// the calls that were charged changes. A correction holds from the next decision on, also in a run that has ended. Counters are
// named as persistence.Store lists them.
// Errors: persistence.ErrNotFound for a run, or for a counter that was never charged or is another run's; persistence.ErrInvalid
// for a delta of 0, one that would bring what was spent below 0 or beyond int64, no reason, or nobody who made it.
func (d *Dispatcher) AdjustBudget(ctx context.Context, by Principal, run specs.RunID, counter persistence.CounterKey, delta int64, reason string) error {
	if !correctable(counter, by.Tenant, run) {
		return fmt.Errorf("counter %s of run %s: %w", counter, run, persistence.ErrNotFound)
	}
	counters, err := d.store.Counters(ctx, by.Tenant, string(counter))
	if err != nil {
		return err
	}
	if len(counters) == 0 || counters[0].Key != counter { // sorted, so the whole key is before all that it begins
		return fmt.Errorf("counter %s: %w", counter, persistence.ErrNotFound)
	}
	a := persistence.Adjustment{Counter: counter, Delta: delta, Reason: clip(strings.TrimSpace(reason), 2000)}
	s := &story{}
	s.write(persistence.Entry{Kind: persistence.KindBudgetAdjusted, Level: persistence.LevelWarn}, a.Note(by.User))
	if s.err != nil {
		return s.err
	}
	_, err = d.store.Apply(ctx, persistence.Change{Tenant: by.Tenant, Run: run, Key: uniqueKey("adjust", ""), Lines: s.lines,
		Adjust: []persistence.Adjustment{a}})
	return err
}

// correctable says whether a counter may be corrected on a run's journal: its own, and those that no single run owns.
func correctable(counter persistence.CounterKey, t specs.TenantID, run specs.RunID) bool {
	scope, _, _ := strings.Cut(string(counter), "/")
	switch scope {
	case "run", "invocation", "turn":
		return run != "" && strings.HasPrefix(string(counter), string(joinKey(scope, string(t), string(run)))+"/")
	}
	return true
}
