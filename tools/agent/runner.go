package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
)

// Dispatcher is what the loop needs of *tools.Dispatcher: it alone moves calls and approvals.
type Dispatcher interface {
	Propose(ctx context.Context, s tools.Scope, calls []tools.Call, rider tools.Rider) ([]tools.Proposal, error)
	ExecuteWith(ctx context.Context, s tools.Scope, id specs.CallID, h tools.Hooks) (tools.Result, error)
	StoredResult(ctx context.Context, c persistence.Call) (tools.Result, error)
	List(ctx context.Context, s tools.Scope) ([]celpolicy.Decision, *tools.Compiled, error)
	Facts(ctx context.Context, s tools.Scope) (celpolicy.Input, *tools.Compiled, error)
	Recover(ctx context.Context, s tools.Scope) error
	Sweep(ctx context.Context) (int, error)
	CancelRun(ctx context.Context, by tools.Principal, run specs.RunID) error
	ClosingEntries(ctx context.Context, t specs.TenantID, run specs.RunID, reason string) ([]persistence.Entry, []persistence.Settlement, error)
}

// Config is what a Runner is made of. Dispatcher, Store, Policies and Models are required.
type Config struct {
	Dispatcher Dispatcher
	Store      persistence.Store
	Policies   tools.Policies
	// Models gives the model that plays a profile. An error ends the run as model.unavailable.
	Models func(ctx context.Context, run persistence.Run, profile *specs.Profile) (provider.Model, error)
	// Owner names this process to others that want the same run.
	Owner string
	// LeaseTTL is how long a run stays taken when its process dies; 0 means 30 s.
	LeaseTTL time.Duration
	// Takeover says that a lease's holder is dead, so that nobody needs to wait for the TTL. Nil: never.
	Takeover func(holder string) bool
	Clock    func() time.Time // nil: time.Now
	// Poll is how often a running step looks whether somebody cancelled the run; 0 means 250 ms.
	Poll time.Duration
	// ModelTimeout bounds one model request; 0 means 10 min.
	ModelTimeout time.Duration
	// ModelRetries is how often a failed model request is repeated, with a growing wait from ModelBackoff on.
	// Nil means 2; 0 ModelBackoff means 500 ms.
	ModelRetries *int
	ModelBackoff time.Duration
}

// Runner moves runs on. It is safe for concurrent use.
type Runner struct{ c Config }

// New checks a Config.
func New(c Config) (*Runner, error) {
	switch {
	case c.Dispatcher == nil:
		return nil, errors.New("agent: Config.Dispatcher is missing")
	case c.Store == nil:
		return nil, errors.New("agent: Config.Store is missing")
	case c.Policies == nil:
		return nil, errors.New("agent: Config.Policies is missing")
	case c.Models == nil:
		return nil, errors.New("agent: Config.Models is missing")
	}
	if c.Owner == "" {
		c.Owner = "runner-" + newID()
	}
	if c.LeaseTTL <= 0 {
		c.LeaseTTL = 30 * time.Second
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Poll <= 0 {
		c.Poll = 250 * time.Millisecond
	}
	if c.ModelTimeout <= 0 {
		c.ModelTimeout = 10 * time.Minute
	}
	if c.ModelRetries == nil {
		twice := 2
		c.ModelRetries = &twice
	}
	if c.ModelBackoff <= 0 {
		c.ModelBackoff = 500 * time.Millisecond
	}
	return &Runner{c: c}, nil
}

// Outcome says where a run stands when Run returns.
type Outcome struct {
	State   machine.State
	Waiting []persistence.Approval // a person has to decide these
	Unknown []persistence.Call     // nobody knows whether these happened; a person has to say
	Reason  string                 // why it ended, for people
	// ErrorCode is set when the run did not complete; Retryable says that starting it again may help.
	ErrorCode string
	Retryable bool
}

// Ended says that the run is over.
func (o Outcome) Ended() bool { return machine.Run().IsFinal(o.State) }

// Run moves a run on until it ends or waits for a person. Errors: *persistence.HeldError when another live process
// works on it, persistence.ErrFenced when the lease was lost on the way, the context's error, or a failure of the
// store; the run then rests and can be taken up again.
func (r *Runner) Run(ctx context.Context, t specs.TenantID, id specs.RunID) (Outcome, error) {
	run, err := r.c.Store.Run(ctx, t, id)
	if err != nil {
		return Outcome{}, err
	}
	if machine.Run().IsFinal(run.State) {
		return ended(run), nil
	}
	lease, err := r.c.Store.Acquire(ctx, t, id, r.c.Owner, r.c.LeaseTTL, r.c.Takeover)
	if err != nil {
		return Outcome{State: run.State}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { r.keepLease(ctx, lease, cancel) })
	defer func() {
		cancel(nil)
		keeper.Wait()
		// The caller may be gone; the lease must not outlive the work all the same.
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer done()
		_ = r.c.Store.Release(ctx, lease) // a lease that cannot be given back runs out by itself
	}()
	s := &shift{Runner: r, tenant: t, id: id, fence: lease.Fence, hist: newHistory(r.c.Store, t, id),
		models: map[specs.ProfileName]provider.Model{}, results: map[specs.CallID]tools.Result{}}
	out, err := s.loop(ctx)
	if errors.Is(err, persistence.ErrFenced) {
		// The lease ends with the run, and its keeper may have noticed before the loop did.
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer done()
		if run, loadErr := s.load(ctx); loadErr == nil && machine.Run().IsFinal(run.State) {
			return ended(run), nil
		}
	}
	return out, err
}

// keepLease renews the lease until ctx ends, and ends ctx when the lease is lost.
func (r *Runner) keepLease(ctx context.Context, lease persistence.Lease, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(r.c.LeaseTTL / 3)
	defer tick.Stop()
	until := time.Now().Add(r.c.LeaseTTL)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		renewed, err := r.c.Store.Renew(ctx, lease, r.c.LeaseTTL)
		switch {
		case err == nil:
			lease, until = renewed, time.Now().Add(r.c.LeaseTTL)
		case ctx.Err() != nil:
			return
		case errors.Is(err, persistence.ErrFenced):
			cancel(err)
			return
		case time.Now().After(until):
			cancel(fmt.Errorf("%w: it could not be renewed: %w", persistence.ErrFenced, err))
			return
		}
	}
}

// shift is one process's work on one run, from taking the lease to giving it back. What it holds besides the
// fence is a cache of what the store says.
type shift struct {
	*Runner
	tenant  specs.TenantID
	id      specs.RunID
	fence   int64
	hist    *history
	models  map[specs.ProfileName]provider.Model
	results map[specs.CallID]tools.Result
}

// maxStale bounds how often in a row somebody else may be first before the shift gives up: two live
// processes that both believe to be right must not spin.
const maxStale = 25

func (s *shift) loop(ctx context.Context) (Outcome, error) {
	run, err := s.load(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if err := s.takeUp(ctx, run); err != nil {
		return Outcome{State: run.State}, ctxCause(ctx, err)
	}
	for stale := 0; ; {
		if run, err = s.load(ctx); err != nil {
			return Outcome{}, ctxCause(ctx, err)
		}
		if machine.Run().IsFinal(run.State) {
			return ended(run), nil
		}
		rest, err := s.step(ctx, run)
		var failed *failure
		var system *tools.SystemError
		switch {
		case err == nil && rest != nil:
			return *rest, nil
		case err == nil:
			stale = 0
			continue
		case ctx.Err() != nil:
			return Outcome{State: run.State}, ctxCause(ctx, err)
		case stale < maxStale && (errors.Is(err, persistence.ErrStale) || errors.Is(err, errIntervened) || errors.Is(err, tools.ErrRunEnded)):
			stale++ // somebody moved the run or its files: read again
			continue
		case errors.As(err, &failed):
		case errors.As(err, &system):
			failed = &failure{code: system.Code, reason: system.Error()}
		default:
			return Outcome{State: run.State}, err
		}
		if endErr := s.end(ctx, failed); endErr != nil {
			return Outcome{State: run.State}, ctxCause(ctx, errors.Join(failed, endErr))
		}
	}
}

// takeUp says in the journal that a run was found in the middle of something, and settles what a dead process left.
func (s *shift) takeUp(ctx context.Context, run persistence.Run) error {
	switch run.State {
	case machine.RunCreated:
		return nil
	case machine.RunAwaitingApproval: // at rest, so nothing broke off; a tool may have found out what it did not know
	default:
		_, err := s.apply(ctx, fmt.Sprintf("take-up/%d", s.fence), persistence.Change{Lines: []persistence.Entry{
			line(persistence.KindRunResumed, map[string]any{"state": run.State, "owner": s.c.Owner})}})
		if err != nil || run.State == machine.RunCancelling {
			return err
		}
	}
	err := s.c.Dispatcher.Recover(ctx, s.scope(run))
	var system *tools.SystemError
	if errors.As(err, &system) {
		return s.end(ctx, &failure{code: system.Code, reason: system.Error()})
	}
	return err
}

// step does the next thing that the run's state asks for. A non-nil Outcome means that the run waits.
func (s *shift) step(ctx context.Context, run persistence.Run) (*Outcome, error) {
	switch run.State {
	case machine.RunCreated, machine.RunInitializingWorkspace:
		return nil, s.initialize(ctx, run)
	case machine.RunAssemblingContext:
		return nil, s.turn(ctx, run, nil)
	case machine.RunCallingModel:
		// Found at rest: the process that asked is gone, and its reply with it.
		run.Round, run.NodeRounds = run.Round-1, max(0, run.NodeRounds-1)
		st := begin(run)
		st.move(machine.RunRetryModel, map[string]any{"turn": run.Round + 1, "why": "the reply was lost with the process that asked"})
		return nil, s.commit(ctx, st, persistence.Change{})
	case machine.RunDispatchingTool:
		return nil, s.dispatch(ctx, run)
	case machine.RunAwaitingApproval:
		return s.wait(ctx, run)
	case machine.RunAwaitingHostCommit:
		return nil, s.hostCommit(ctx, run)
	case machine.RunApplyingWorkspacePatch, machine.RunCreatingCheckpoint:
		// These are passed through within one Apply; at rest they mean only that the calls of the turn come next.
		event := machine.RunRefusePatch
		if run.State == machine.RunCreatingCheckpoint {
			event = machine.RunCheckpointed
		}
		st := begin(run)
		st.move(event, nil)
		return nil, s.commit(ctx, st, persistence.Change{})
	case machine.RunFinishing:
		return nil, s.finish(ctx, run)
	case machine.RunCancelling:
		return nil, s.close(ctx, run, machine.RunCancel, &failure{code: "run.cancelled", reason: cancelReason(run)}, closing{})
	}
	return nil, tools.Systemf("agent.unknown_state", "the loop does not know the state %q", run.State)
}

func (s *shift) load(ctx context.Context) (persistence.Run, error) {
	return s.c.Store.Run(ctx, s.tenant, s.id)
}

func (s *shift) scope(run persistence.Run) tools.Scope {
	return tools.Scope{Tenant: s.tenant, Run: s.id, Invocation: run.Root, Turn: run.Round, Fence: s.fence}
}

func (s *shift) apply(ctx context.Context, key string, c persistence.Change) (persistence.Applied, error) {
	c.Tenant, c.Run, c.Key, c.Fence = s.tenant, s.id, key, s.fence
	return s.c.Store.Apply(ctx, c)
}

// commit writes a story as one Change, keyed by the version of the run it starts from: the same step is written
// once, and the same kind of step from a later state is another.
func (s *shift) commit(ctx context.Context, st *story, c persistence.Change) error {
	if st.err != nil {
		return st.err
	}
	c.Lines = st.lines
	_, err := s.apply(ctx, fmt.Sprintf("run/%d/%s", st.version, st.last), c)
	return err
}

// failure ends the run; it is no failure of the program.
type failure struct {
	code, reason string
	retryable    bool
	lines        []persistence.Entry // evidence written with the end
	blobs        []persistence.Blob
}

func (f *failure) Error() string { return f.code + ": " + strings.TrimPrefix(f.reason, f.code+": ") }

// story collects the lines of one Change, moving a copy of the run along.
type story struct {
	run     persistence.Run
	version int64 // of the run as it was read
	lines   []persistence.Entry
	last    machine.Event
	err     error
}

func begin(run persistence.Run) *story { return &story{run: run, version: run.Version} }

// move fires an event of the run. The fields of st.run at this moment are what is stored.
func (st *story) move(ev machine.Event, payload any) {
	if st.err != nil {
		return
	}
	step, err := machine.Run().Fire(st.run.State, ev)
	if err != nil {
		st.err = tools.Systemf("agent.illegal_move", "run %s: %w", st.run.ID, err)
		return
	}
	record := st.run
	e := line(step.Journal, payload)
	e.Move = &persistence.Move{Step: step, Record: &record}
	if st.last == "" {
		e.Move.Version = st.version
	}
	st.lines, st.last, st.run.State = append(st.lines, e), ev, step.To
}

func (st *story) line(kind string, payload any) *persistence.Entry {
	st.lines = append(st.lines, line(kind, payload))
	return &st.lines[len(st.lines)-1]
}

// line makes a journal entry. Payloads are the loop's own texts, numbers and digests, which always marshal.
func line(kind string, payload any) persistence.Entry {
	e := persistence.Entry{Kind: kind}
	if payload != nil {
		e.Payload, _ = json.Marshal(payload)
	}
	return e
}

func ended(run persistence.Run) Outcome {
	return Outcome{State: run.State, Reason: run.Reason, ErrorCode: run.ErrorCode, Retryable: run.Retryable}
}

// ctxCause prefers the reason for which a context ended to the error that its end produced somewhere.
func ctxCause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

func cancelReason(run persistence.Run) string {
	if run.CancelledBy == "" {
		return "cancelled"
	}
	return fmt.Sprintf("cancelled by %s", run.CancelledBy)
}

// compiled is the bundle the run is pinned to. Without it nothing is decided and the run ends.
func (s *shift) compiled(ctx context.Context, run persistence.Run) (*tools.Compiled, *specs.Profile, error) {
	c, err := s.c.Policies.Pinned(ctx, s.tenant, run.Bundle)
	if err != nil {
		if ctx.Err() != nil || persistence.OutOfOrder(err) {
			return nil, nil, err
		}
		return nil, nil, tools.Systemf("policy.unavailable", "bundle %s: %w", run.Bundle, err)
	}
	profile := c.Bundle.Profile(run.Profile)
	if profile == nil {
		return nil, nil, tools.Systemf("policy.unavailable", "bundle %s has no profile %q", run.Bundle, run.Profile)
	}
	return c, profile, nil
}
