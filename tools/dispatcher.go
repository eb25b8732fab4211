package tools

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Dispatcher moves calls, and nobody else does. It keeps nothing in memory that is not in the store, except which calls
// it is running at this moment. It is safe for concurrent use.
type Dispatcher struct {
	store    persistence.Store
	registry *Registry
	policies Policies
	host     Host
	clock    func() time.Time

	base context.Context // ends when Close gives up waiting
	stop context.CancelFunc
	own  sync.WaitGroup // calls in the air, and tools that were left running

	mu      sync.Mutex
	closed  bool
	started map[flightKey]*started // started by Propose, not yet run
	flights map[flightKey]*flight
	rooms   map[source]*room // who runs a call of a source with limited seats
}

type flightKey struct {
	tenant specs.TenantID
	run    specs.RunID
	call   specs.CallID
}

// flight is a call that this process is running now.
type flight struct {
	done   chan struct{} // closed when the call has landed
	err    error         // how it ended; read after done
	cancel context.CancelCauseFunc
}

// New makes a Dispatcher. Close it: it owns the goroutines of tools that do not listen.
func New(c Config) (*Dispatcher, error) {
	switch {
	case c.Store == nil:
		return nil, errors.New("tools: a dispatcher needs a store")
	case c.Registry == nil:
		return nil, errors.New("tools: a dispatcher needs a registry of executors")
	case c.Policies == nil:
		return nil, errors.New("tools: a dispatcher needs policies; without one nothing is decided")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	base, stop := context.WithCancel(context.Background())
	return &Dispatcher{
		store: c.Store, registry: c.Registry, policies: c.Policies, host: c.Host, clock: c.Clock,
		base: base, stop: stop,
		started: map[flightKey]*started{}, flights: map[flightKey]*flight{}, rooms: map[source]*room{},
	}, nil
}

// Close waits for the calls in the air and for tools that were left running, until ctx ends; then it cancels their contexts and answers ctx's error.
// Nothing can be executed afterwards.
func (d *Dispatcher) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	landed := make(chan struct{})
	go func() {
		d.own.Wait()
		close(landed)
	}()
	defer d.stop()
	select {
	case <-landed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrClosed says that the dispatcher was closed.
var ErrClosed = errors.New("the dispatcher is closed")

// takeOff claims a call for this process. When it is in the air already, the flight in progress is answered with false.
func (d *Dispatcher) takeOff(k flightKey, cancel context.CancelCauseFunc) (*flight, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, false, ErrClosed
	}
	if f, ok := d.flights[k]; ok {
		return f, false, nil
	}
	f := &flight{done: make(chan struct{}), cancel: cancel}
	d.flights[k] = f
	d.own.Add(1)
	return f, true, nil
}

func (d *Dispatcher) land(k flightKey, f *flight) {
	d.mu.Lock()
	delete(d.flights, k)
	d.mu.Unlock()
	close(f.done)
	d.own.Done()
}

// remember and recall keep what Propose started until Execute runs it. What is not recalled was started by somebody
// who is no longer there.
func (d *Dispatcher) remember(k flightKey, s *started) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started[k] = s
}

func (d *Dispatcher) recall(k flightKey) (*started, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.started[k]
	delete(d.started, k)
	return s, ok
}
