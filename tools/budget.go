package tools

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// MaxOutputPerCall is the most output tokens that one call may show the model, whatever its budget: a whole read of 80,000
// characters fits. What is longer is cut for the model and kept in full behind a reference.
const MaxOutputPerCall = 20_000

// defaultUnknownCost is what a tool of unknown price is charged where the tenant says nothing.
const defaultUnknownCost = 100

// settleMargin is how long after a tool's timeout its outcome may still be on its way into the store.
const settleMargin = 2 * time.Minute

// counterKey names the counter behind a charge. Every part is escaped, so that no name can reach another's counter.
func counterKey(sc *scene, c celpolicy.Charge) persistence.CounterKey {
	var scope []string
	day := sc.now.UTC().Format(time.DateOnly)
	switch c.Per {
	case specs.PerInvocation:
		scope = []string{"invocation", string(sc.Tenant), string(sc.Run), string(sc.Invocation)}
	case specs.PerTurn:
		scope = []string{"turn", string(sc.Tenant), string(sc.Run), fmt.Sprint(sc.Turn)}
	case specs.PerUserDay:
		scope = []string{"user", string(sc.Tenant), string(sc.run.User), day}
	case specs.PerTenantDay:
		scope = []string{"tenant", string(sc.Tenant), day}
	default:
		scope = []string{"run", string(sc.Tenant), string(sc.Run)}
	}
	return joinKey(append(scope, c.Owner, string(c.Dimension))...)
}

// ownCounter is the counter of the run's own limit; without a dimension, the prefix of them all.
func ownCounter(t specs.TenantID, run specs.RunID, dim celpolicy.Dimension) persistence.CounterKey {
	return joinKey("run", string(t), string(run), "run", string(dim))
}

func joinKey(parts ...string) persistence.CounterKey {
	for i, p := range parts {
		if parts[i] = url.PathEscape(p); len(parts[i]) > 90 { // keys have a bounded length
			parts[i] = "~" + strings.TrimPrefix(string(specs.DigestOf([]byte(p))), "sha256:")
		}
	}
	return persistence.CounterKey(strings.Join(parts, "/"))
}

// price is what one call costs: the declared price, or for a price that nobody knows the tenant's maximum; never 0 for unknown.
func (sc *scene) price(t *specs.Tool) (cost int64, known bool) {
	if !t.Annotations.CostUnknown {
		return max(t.Annotations.Cost, 0), true
	}
	if tenant := sc.pinned.Bundle.Tenant; tenant != nil && tenant.UnknownCost != nil && *tenant.UnknownCost > 0 {
		return *tenant.UnknownCost, false
	}
	return defaultUnknownCost, false
}

// allowance is what a call was given: its reservations, and how much output it may show.
type allowance struct {
	reserve []persistence.Reservation
	tokens  int64 // output tokens
}

// exhausted says which dimension of whose budget could not pay.
type exhausted struct {
	charge celpolicy.Charge
	left   int64
}

func (e *exhausted) text() string {
	return fmt.Sprintf("The budget %s of %s is used up for this %s: %d left of %d.", e.charge.Dimension, e.charge.Owner, perWord(e.charge.Per), e.left, e.charge.Limit)
}

func perWord(p specs.Per) string {
	switch p {
	case specs.PerInvocation:
		return "agent's turn of duty"
	case specs.PerTurn:
		return "turn"
	case specs.PerUserDay:
		return "user and day"
	case specs.PerTenantDay:
		return "day"
	}
	return "run"
}

// allow works out what a call has to set aside. The store decides: what is answered here may be too much by the time it is
// applied, and then nothing of the change is written.
func (d *Dispatcher) allow(ctx context.Context, sc *scene, call specs.CallID, tool *specs.Tool, dec celpolicy.Decision) (allowance, *exhausted, error) {
	a := allowance{tokens: MaxOutputPerCall}
	var tokens []int
	cost, _ := sc.price(tool)
	until := sc.now.Add(timeoutOf(dec) + settleMargin)
	for _, c := range dec.Charges {
		r := persistence.Reservation{Call: call, Counter: counterKey(sc, c), Limit: c.Limit, LeaseUntil: until}
		switch c.Dimension {
		case celpolicy.DimCalls:
			r.Amount = 1
		case celpolicy.DimCost:
			r.Amount = cost
		case celpolicy.DimOutputTokens:
			tokens = append(tokens, len(a.reserve))
		}
		left, err := d.left(ctx, sc.Tenant, r.Counter, c.Limit)
		if err != nil {
			return a, nil, err
		}
		if c.Dimension == celpolicy.DimOutputTokens {
			if left <= 0 {
				return a, &exhausted{c, 0}, nil
			}
			a.tokens = min(a.tokens, left)
		} else if left < r.Amount {
			return a, &exhausted{c, left}, nil
		}
		a.reserve = append(a.reserve, r)
	}
	for _, i := range tokens {
		a.reserve[i].Amount = a.tokens
	}
	return a, nil, nil
}

func (d *Dispatcher) left(ctx context.Context, t specs.TenantID, key persistence.CounterKey, limit int64) (int64, error) {
	c, err := d.store.Counter(ctx, t, key)
	if err != nil && !errors.Is(err, persistence.ErrNotFound) {
		return 0, err
	}
	return max(0, limit-c.Spent-c.Reserved), nil
}

// broke finds the charge behind a store's refusal to reserve.
func broke(sc *scene, dec celpolicy.Decision, e *persistence.BudgetError) *exhausted {
	for _, c := range dec.Charges {
		if counterKey(sc, c) == e.Counter {
			return &exhausted{c, max(0, e.Limit-e.Spent-e.Reserved)}
		}
	}
	return &exhausted{charge: celpolicy.Charge{Owner: string(e.Counter), Limit: e.Limit}, left: max(0, e.Limit-e.Spent-e.Reserved)}
}

// settle turns a call's open reservations into spending. Used gives output tokens and cost; the call itself is always spent,
// because it was made. What a reservation holds above that is released.
func settle(open []persistence.Reservation, used Usage) []persistence.Settlement {
	out := make([]persistence.Settlement, 0, len(open))
	for _, r := range open {
		s := persistence.Settlement{Call: r.Call, Counter: r.Counter}
		switch dimensionOf(r.Counter) {
		case celpolicy.DimCalls:
			s.Spent = r.Amount
		case celpolicy.DimOutputTokens:
			s.Spent = min(r.Amount, max(0, used.OutputTokens))
		case celpolicy.DimCost:
			s.Spent = min(r.Amount, max(0, used.Cost))
		}
		out = append(out, s)
	}
	return out
}

func dimensionOf(k persistence.CounterKey) celpolicy.Dimension {
	return celpolicy.Dimension(string(k)[strings.LastIndexByte(string(k), '/')+1:])
}

// reservations lists what one call holds.
func (d *Dispatcher) reservations(ctx context.Context, t specs.TenantID, run specs.RunID, call specs.CallID) ([]persistence.Reservation, error) {
	all, err := d.store.Reservations(ctx, t, run)
	if err != nil {
		return nil, err
	}
	var own []persistence.Reservation
	for _, r := range all {
		if r.Call == call {
			own = append(own, r)
		}
	}
	return own, nil
}

// timeoutOf is the time that one attempt gets. Every tool has one.
func timeoutOf(dec celpolicy.Decision) time.Duration {
	if dec.Budget.Timeout > 0 {
		return dec.Budget.Timeout
	}
	return defaultTimeout
}

// defaultTimeout holds where a decision names none.
const defaultTimeout = 60 * time.Second
