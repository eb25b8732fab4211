package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/callgate/callgate/machine"
)

// errIntervened ends a watched step when somebody cancelled or ended the run meanwhile. The loop reads the run again.
var errIntervened = errors.New("the run was cancelled or ended by somebody else")

// watched runs one step that may take long, and ends its context when another process cancels the run. The watcher
// lives exactly as long as the step.
func (s *shift) watched(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(s.c.Poll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// An error here is the next step's to report: watching decides nothing.
			run, err := s.load(ctx)
			if err == nil && (run.State == machine.RunCancelling || machine.Run().IsFinal(run.State)) {
				cancel(errIntervened)
				return
			}
		}
	})
	err := step(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errIntervened) {
		err = errIntervened
	}
	cancel(nil)
	watcher.Wait()
	return err
}
