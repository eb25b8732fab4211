package persistence

import "github.com/callgate/callgate/specs"

// Adjustment corrects what a counter says was spent, up or down: a price turned out to be wrong, a call was never billed.
// It is a signed entry beside what was spent, never a rewritten one, so that the journal shows both the mistake and its
// correction. A correction beyond the limit raises the counter's stored limit to what is then spent and reserved; the
// next reservation is measured against the limit that its own decision gives, as always.
//
// The change must have a line of KindBudgetAdjusted for each adjustment, in the same order, whose payload is an
// AdjustmentNote that says the same. Spent + Delta below 0 or beyond int64, and a Delta of 0, are ErrInvalid.
type Adjustment struct {
	Counter CounterKey
	Delta   int64 // units of the counter's dimension, added to Spent
	Reason  string
}

// AdjustmentNote is the payload of a KindBudgetAdjusted line.
type AdjustmentNote struct {
	Counter CounterKey   `json:"counter"`
	Delta   int64        `json:"delta"`
	Reason  string       `json:"reason"`
	By      specs.UserID `json:"by"`
}

// Note is what the journal has to say about the adjustment when by made it.
func (a Adjustment) Note(by specs.UserID) AdjustmentNote {
	return AdjustmentNote{Counter: a.Counter, Delta: a.Delta, Reason: a.Reason, By: by}
}
