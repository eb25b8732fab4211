package tools

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/callgate/callgate/specs"
)

// A source says how many of its tools' calls may run at once, and this process keeps to it, for each tenant by itself: whoever
// comes first takes a seat, the others wait in their order. They wait before their start is committed, so that `started` always
// means that the tool is about to run, a tool's timeout counts only its own time, and nothing is set aside for those who wait.
// Nobody waits longer than the call's own timeout. Whoever had to wait is judged anew: policy, budget and approval are those of
// the moment at which there is a seat. A tool that does not come back keeps its seat until it does. Calls that take their turn's
// first commit along (Rider.StartFirst) cannot wait, so tools with seats start with their own. Recover does not wait either: what it
// starts again takes its seat when it is executed, before the tool is called. The same source in other processes is not counted.

// source is whose seats a call needs.
type source struct {
	tenant specs.TenantID
	name   specs.SourceName
}

// room is the seats of one source. The dispatcher's lock guards it.
type room struct {
	taken   int
	waiting []*waiter // first come, first served
}

type waiter struct {
	limit int
	seat  chan struct{} // closed when the seat is theirs
}

// seat is one call's claim on a source; the zero value with d set holds none. Its methods other than leave are for one goroutine.
type seat struct {
	d     *Dispatcher
	held  bool
	kept  bool // the tool's goroutine leaves, whenever it comes back
	at    source
	leave sync.Once
}

// errBusy says that no seat became free within the call's own timeout.
var errBusy = errors.New("the source has as many calls as it takes")

// seats is how many calls of the tool's source may run at once: what the run's bundle says, or less where the bundle in force
// does. 0 means that nobody limits it.
func (sc *scene) seats(t *specs.Tool) int {
	limit := 0
	for _, c := range []*Compiled{sc.pinned, sc.live} {
		if c == nil || t.Source.Name == "" {
			continue
		}
		if s := c.Bundle.Source(t.Source.Name); s != nil && s.Concurrency > 0 && (limit == 0 || s.Concurrency < limit) {
			limit = s.Concurrency
		}
	}
	return limit
}

// take gets the call a seat, and says whether it had to wait for it. A call that has one keeps it. Errors: errBusy, ErrClosed, and
// the context's.
func (s *seat) take(ctx context.Context, sc *scene, t *specs.Tool, patience time.Duration) (waited bool, err error) {
	limit := sc.seats(t)
	if s == nil || s.held || limit == 0 {
		return false, nil
	}
	s.at = source{sc.Tenant, t.Source.Name}
	w := s.d.enter(s.at, limit)
	if w == nil {
		s.held = true
		return false, nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.seat:
		s.held = true
		return true, nil
	case <-timer.C:
		err = errBusy
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.d.base.Done():
		err = ErrClosed
	}
	s.d.giveUp(s.at, w)
	return true, err
}

// free gives the seat back, once. It may be called from the tool's own goroutine.
func (s *seat) free() {
	if s.held {
		s.leave.Do(func() { s.d.vacate(s.at) })
	}
}

// done is what the call says at its end.
func (s *seat) done() {
	if !s.kept {
		s.free()
	}
}

// enter takes a seat at once, which is nil, or queues.
func (d *Dispatcher) enter(at source, limit int) *waiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.rooms[at]
	if r == nil {
		r = &room{}
		d.rooms[at] = r
	}
	if r.taken < limit && len(r.waiting) == 0 {
		r.taken++
		return nil
	}
	w := &waiter{limit: limit, seat: make(chan struct{})}
	r.waiting = append(r.waiting, w)
	return w
}

// giveUp leaves the queue, or the seat that was given in the same moment.
func (d *Dispatcher) giveUp(at source, w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.rooms[at]
	if i := slices.Index(r.waiting, w); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
	} else {
		r.taken--
	}
	d.seatNext(at, r)
}

func (d *Dispatcher) vacate(at source) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.rooms[at]
	r.taken--
	d.seatNext(at, r)
}

// seatNext gives free seats to those who wait, and forgets a room that nobody is in. The caller holds the lock.
func (d *Dispatcher) seatNext(at source, r *room) {
	for len(r.waiting) > 0 && r.taken < r.waiting[0].limit {
		r.taken++
		close(r.waiting[0].seat)
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
	if r.taken == 0 && len(r.waiting) == 0 {
		delete(d.rooms, at)
	}
}

// busy is what the model reads when there was no seat in time.
func busy(t *specs.Tool, waited time.Duration) Result {
	return Recoverable(CodeSourceBusy, "The source of %s had as many calls as it takes for %s. Nothing ran; you can try again.", t.Name, waited)
}
