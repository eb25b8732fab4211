package tools_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/tools"
)

// A wrong price is corrected by a person, in the journal's sight, and calls that it kept out are let through again.
func TestCase_B05_AWrongPriceIsCorrectedAndSaid(t *testing.T) {
	t.Parallel()
	r := newRig(t, purse)
	r.execute(r.one("act.guess", `{}`)) // charged the maximum, 100 of 120
	refused := r.execute(r.one("act.guess", `{"num":2}`))
	wantCode(t, &refused, tools.CodeBudgetExhausted)
	money := r.counter("purse%2Fmoney/maxCost")

	r.must(r.d.AdjustBudget(r.ctx, ann, r.scope.Run, money.Key, -93, "the invoice says 7"))
	if c := r.counter("purse%2Fmoney/maxCost"); c.Spent != 7 || c.Left != 113 || c.Limit != 120 {
		t.Errorf("after the correction: %+v", c)
	}
	if res := r.execute(r.one("act.guess", `{"num":3}`)); res.IsError {
		t.Errorf("what the wrong price kept out is still kept out: %+v", res)
	}
	// And upward, beyond what was left: then nothing more is let through.
	r.must(r.d.AdjustBudget(r.ctx, ann, r.scope.Run, money.Key, 50, "and a fee"))
	if c := r.counter("purse%2Fmoney/maxCost"); c.Spent != 157 || c.Limit != 157 || c.Left != 0 {
		t.Errorf("after the fee: %+v", c)
	}
	late := r.execute(r.one("act.pay", `{}`))
	wantCode(t, &late, tools.CodeBudgetExhausted)

	var told []persistence.AdjustmentNote
	for _, l := range r.journal() {
		if l.Kind == persistence.KindBudgetAdjusted {
			var n persistence.AdjustmentNote
			r.must(json.Unmarshal(l.Payload, &n))
			told = append(told, n)
		}
	}
	if len(told) != 2 || told[0] != (persistence.AdjustmentNote{Counter: money.Key, Delta: -93, Reason: "the invoice says 7", By: ann.User}) || told[1].Delta != 50 {
		t.Errorf("the journal tells %+v", told)
	}

	run, err := r.store.Run(r.ctx, tenant, r.scope.Run)
	r.must(err)
	other := r.newRun(run.Bundle)
	stranger := tools.Principal{Tenant: "elsewhere", User: "eve"}
	for name, c := range map[string]struct {
		err, want error
	}{
		"below nothing":      {r.d.AdjustBudget(r.ctx, ann, r.scope.Run, money.Key, -158, "x"), persistence.ErrInvalid},
		"overflow":           {r.d.AdjustBudget(r.ctx, ann, r.scope.Run, money.Key, math.MaxInt64, "x"), persistence.ErrInvalid},
		"no reason":          {r.d.AdjustBudget(r.ctx, ann, r.scope.Run, money.Key, 1, "  "), persistence.ErrInvalid},
		"nobody":             {r.d.AdjustBudget(r.ctx, tools.Principal{Tenant: tenant}, r.scope.Run, money.Key, 1, "x"), persistence.ErrInvalid},
		"no such counter":    {r.d.AdjustBudget(r.ctx, ann, r.scope.Run, money.Key+"x", 1, "x"), persistence.ErrNotFound},
		"a beginning of one": {r.d.AdjustBudget(r.ctx, ann, r.scope.Run, money.Key[:len(money.Key)-1], 1, "x"), persistence.ErrNotFound},
		"another run's":      {r.d.AdjustBudget(r.ctx, ann, other.Run, money.Key, 1, "x"), persistence.ErrNotFound},
		"another tenant":     {r.d.AdjustBudget(r.ctx, stranger, r.scope.Run, money.Key, 1, "x"), persistence.ErrNotFound},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	if c := r.counter("purse%2Fmoney/maxCost"); c.Spent != 157 {
		t.Errorf("a refused correction counted: %+v", c)
	}
	r.verify()
}
