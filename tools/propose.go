package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// candidate is a proposed call on its way into the store.
type candidate struct {
	call       *persistence.Call
	tool       *specs.Tool     // nil: unknown
	args       json.RawMessage // canonical; nil when they cannot be used
	raw        json.RawMessage
	in         celpolicy.Input
	dec        celpolicy.Decision
	event      machine.Event // allow, ask, deny or invalidate
	result     *Result       // for deny and invalidate
	remembered specs.CallID
	approval   *persistence.Approval
	start      *started
	startIn    celpolicy.Input
}

// maxTries bounds how often a step is worked out anew because somebody else moved something meanwhile.
const maxTries = 5

// maxTurnCalls is the most calls that one turn may hold.
const maxTurnCalls = 128

// Propose records all calls of a turn, decides each, and says what became of it, in one Apply. The answers are in the order
// of the calls. The same turn again writes nothing and answers from the store.
//
// A call without an id, or one id with two contents in the same turn, is ErrInvalidCall before anything is written: such a
// reply cannot be answered. Everything else that a model can get wrong is a recorded call with a result.
func (d *Dispatcher) Propose(ctx context.Context, s Scope, calls []Call, rider Rider) ([]Proposal, error) {
	if err := checkIDs(calls); err != nil {
		return nil, err
	}
	refused := map[specs.CallID]*exhausted{}
	for try := 0; ; try++ {
		sc, err := d.scene(ctx, s)
		if err != nil {
			return nil, err
		}
		if before, ok, err := d.proposedBefore(ctx, sc, calls); ok || err != nil {
			return before, err
		}
		if sc.ending() {
			return nil, fmt.Errorf("run %s is %s: %w", s.Run, sc.run.State, ErrRunEnded)
		}
		cands, err := d.judgeAll(ctx, sc, calls, rider.StartFirst, refused)
		if err != nil {
			return nil, err
		}
		change, err := proposeChange(sc, cands, rider)
		if err != nil {
			return nil, err
		}
		applied, err := d.store.Apply(ctx, change)
		var budget *persistence.BudgetError
		switch {
		case err == nil && !applied.Duplicate:
			return d.proposed(sc, cands, calls), nil
		case err == nil && try < maxTries:
			continue // somebody else proposed this turn; it is in the store now
		case errors.As(err, &budget) && try < maxTries:
			// The counters moved since they were read. The started call is the only one that reserves.
			for _, c := range cands {
				if c.start != nil {
					refused[c.call.ID] = broke(sc, c.dec, budget)
				}
			}
			continue
		case errors.Is(err, persistence.ErrStale) && try == 0:
			continue // it may be this very turn that somebody else has just proposed
		case err == nil:
			return nil, persistence.ErrStale
		}
		return nil, appendFailed(ctx, err)
	}
}

// checkIDs refuses a reply that cannot be answered call by call.
func checkIDs(calls []Call) error {
	if len(calls) == 0 {
		return fmt.Errorf("%w: no calls", ErrInvalidCall)
	}
	if len(calls) > maxTurnCalls {
		return fmt.Errorf("%w: %d calls in one turn, at most %d", ErrInvalidCall, len(calls), maxTurnCalls)
	}
	seen := map[string]*Call{}
	for i := range calls {
		c := &calls[i]
		switch before := seen[c.ID]; {
		case c.ID == "":
			return fmt.Errorf("%w: call %d of the turn has no id", ErrInvalidCall, i+1)
		case len(c.ID) > 1024 || !utf8.ValidString(c.ID):
			return fmt.Errorf("%w: the id of call %d is too long or not UTF-8", ErrInvalidCall, i+1)
		case len(c.Metadata) > 0 && !json.Valid(c.Metadata):
			return fmt.Errorf("%w: the provider's metadata of call %d is not JSON", ErrInvalidCall, i+1)
		case before != nil && (before.Name != c.Name || string(before.Arguments) != string(c.Arguments)):
			return fmt.Errorf("%w: id %q is used twice in one turn for different calls", ErrInvalidCall, clip(c.ID, 80))
		}
		seen[c.ID] = c
	}
	return nil
}

// proposedBefore answers a turn that is in the store already.
func (d *Dispatcher) proposedBefore(ctx context.Context, sc *scene, calls []Call) ([]Proposal, bool, error) {
	stored := map[specs.CallID]*persistence.Call{}
	for i := range sc.calls {
		if c := &sc.calls[i]; c.Turn == sc.Turn && c.Invocation == sc.Invocation {
			stored[c.ID] = c
		}
	}
	if len(stored) == 0 {
		return nil, false, nil
	}
	ids := map[specs.CallID]bool{}
	out := make([]Proposal, 0, len(calls))
	for _, c := range calls {
		id := CallKey(sc.Turn, c.ID)
		ids[id] = true
		was, ok := stored[id]
		if !ok || was.Asked != askedName(c.Name) || was.RawArgs != "" && was.RawArgs != specs.DigestOf(c.Arguments) {
			return nil, true, fmt.Errorf("%w: turn %d was proposed with other calls", ErrInvalidCall, sc.Turn)
		}
		p := Proposal{Call: *was}
		var err error
		if p.Decision, err = d.recorded(ctx, sc.Tenant, sc.Run, id); err != nil {
			return nil, true, err
		}
		if p.Result, p.Approval, err = d.standing(ctx, was); err != nil {
			return nil, true, err
		}
		out = append(out, p)
	}
	if len(ids) != len(stored) {
		return nil, true, fmt.Errorf("%w: turn %d was proposed with %d calls, not %d", ErrInvalidCall, sc.Turn, len(stored), len(ids))
	}
	return out, true, nil
}

// recorded reads the decision of a call's first phase.
func (d *Dispatcher) recorded(ctx context.Context, t specs.TenantID, run specs.RunID, id specs.CallID) (celpolicy.Decision, error) {
	records, err := d.store.Decisions(ctx, t, run, id)
	if err != nil {
		return celpolicy.Decision{}, err
	}
	for _, r := range records {
		if r.Phase == string(celpolicy.PhaseCall) {
			var out decisionOutput
			if err := json.Unmarshal(r.Output, &out); err != nil {
				return out.Decision, Systemf("decision.unreadable", "decision on call %s: %w", id, err)
			}
			return out.Decision, nil
		}
	}
	return celpolicy.Decision{}, Systemf("decision.missing", "call %s has no decision", id)
}

// standing gives what a stored call has to show: its result when it ended, its question when it waits.
func (d *Dispatcher) standing(ctx context.Context, c *persistence.Call) (*Result, *persistence.Approval, error) {
	if machine.Call().IsFinal(c.State) {
		r, err := d.StoredResult(ctx, *c)
		return &r, nil, err
	}
	if c.Approval == "" {
		return nil, nil, nil
	}
	a, err := d.store.Approval(ctx, c.Tenant, c.Approval)
	return nil, &a, err
}

// judgeAll decides every distinct call of the turn.
func (d *Dispatcher) judgeAll(ctx context.Context, sc *scene, calls []Call, startFirst bool, refused map[specs.CallID]*exhausted) ([]*candidate, error) {
	var cands []*candidate
	seen := map[string]bool{}
	for i := range calls {
		if seen[calls[i].ID] {
			continue
		}
		seen[calls[i].ID] = true
		c, err := d.judge(ctx, sc, &calls[i], int64(i))
		if err != nil {
			return nil, err
		}
		if ex := refused[c.call.ID]; ex != nil && c.event == machine.CallAllow {
			c.refuse(machine.CallDeny, exhaustedResult(ex))
		}
		if startFirst && c.event == machine.CallAllow && c.tool.Annotations.SideEffect != specs.SideChat {
			if err := d.prepareStart(ctx, sc, c); err != nil {
				return nil, err
			}
			startFirst = c.start == nil
		}
		cands = append(cands, c)
		sc.calls = append(sc.calls, *c.call) // siblings count for what comes after
	}
	return cands, nil
}

// judge decides one call.
func (d *Dispatcher) judge(ctx context.Context, sc *scene, c *Call, index int64) (*candidate, error) {
	seq := int64(len(sc.calls)) + 1
	out := &candidate{raw: c.Arguments, tool: FindTool(sc.pinned.Bundle, c.Name), call: &persistence.Call{
		RecordMeta: persistence.RecordMeta{Tenant: sc.Tenant, Run: sc.Run},
		ID:         CallKey(sc.Turn, c.ID), ProviderID: c.ID, Synthetic: c.Synthetic, Metadata: c.Metadata, Invocation: sc.Invocation,
		Turn: sc.Turn, Index: index, Sequence: seq, Asked: askedName(c.Name), Policy: sc.pinned.Bundle.Digest,
	}}
	limit := maxArgs(sc.pinned.Bundle)
	if int64(len(c.Arguments)) <= limit {
		out.call.RawArgs = specs.DigestOf(c.Arguments)
	}
	if out.tool == nil {
		out.in = sc.input(celpolicy.PhaseCall, specs.ToolName(out.call.Asked), json.RawMessage("{}"), seq, 0)
		out.dec = sc.decide(out.in)
		out.refuse(machine.CallDeny, unavailable(out.call.Asked))
		return out, nil
	}
	out.call.Tool, out.call.ToolDigest = out.tool.ToolName(), celpolicy.DefinitionDigest(out.tool)
	args, problem, err := readArguments(out.tool, c.Arguments, limit)
	if err != nil {
		return nil, err
	}
	if problem != "" {
		// What cannot be read cannot be judged. Whether the model may know of the tool at all is decided without arguments.
		out.in = sc.input(celpolicy.PhaseList, out.call.Tool, nil, seq, 0)
		out.dec = sc.decide(out.in)
		if !out.dec.Visible {
			out.refuse(machine.CallDeny, denial(out.dec, out.call.Asked))
			return out, nil
		}
		out.refuse(machine.CallInvalidate, Recoverable(CodeInvalidArguments, "%s", problem))
		return out, nil
	}
	out.args, out.call.Args = args, specs.DigestOf(args)
	out.in = sc.input(celpolicy.PhaseCall, out.call.Tool, args, seq, sc.repeats(out.call.Tool, out.call.Args, seq))
	out.dec = sc.decide(out.in)
	return out, d.weigh(ctx, sc, out)
}

// weigh turns a decision about usable arguments into what happens.
func (d *Dispatcher) weigh(ctx context.Context, sc *scene, c *candidate) error {
	earlier, res, err := d.remembered(ctx, sc, c)
	if err != nil {
		return err
	}
	switch {
	case !c.dec.Visible || !c.dec.Callable && earlier == "":
		c.refuse(machine.CallDeny, denial(c.dec, c.call.Asked))
		return nil
	case earlier != "":
		c.remembered = earlier
		c.refuse(machine.CallDeny, res)
		return nil
	}
	if _, ok := d.registry.Lookup(c.tool); !ok {
		c.refuse(machine.CallInvalidate, sourceUnavailable(c.tool))
		return nil
	}
	if !c.dec.ApprovalRequired {
		c.event = machine.CallAllow
		return nil
	}
	if who := unreachable(c.dec.Asks, sc.run.User); who != "" {
		c.refuse(machine.CallDeny, denied("This call needs an approval that nobody can give."))
		c.dec.Reason = "nobody can answer " + string(who)
		return nil
	}
	// Nobody is asked about a call that could not be paid for.
	_, ex, err := d.allow(ctx, sc, c.call.ID, c.tool, c.dec)
	if err != nil {
		return err
	}
	if ex != nil {
		c.refuse(machine.CallDeny, exhaustedResult(ex))
		return nil
	}
	c.event = machine.CallAsk
	c.approval, err = d.newApproval(ctx, sc, c.call, c.tool, c.args, c.dec)
	return err
}

func (c *candidate) refuse(ev machine.Event, res Result) { c.event, c.result = ev, &res }

// remembered finds an earlier call with the same arguments that was denied or rejected in this run, under the same plan node:
// asking again does not change the answer. A used-up budget is not remembered, since its span may be over.
func (d *Dispatcher) remembered(ctx context.Context, sc *scene, c *candidate) (specs.CallID, Result, error) {
	for i := len(sc.calls) - 1; i >= 0; i-- {
		e := &sc.calls[i]
		if e.Tool != c.call.Tool || e.Args != c.call.Args || e.Result == "" || e.Sequence >= c.call.Sequence || e.ErrorCode == CodeBudgetExhausted {
			continue
		}
		if e.State != machine.CallRejected && (e.State != machine.CallDenied || e.Invocation != sc.Invocation) {
			continue
		}
		if e.State == machine.CallDenied {
			same, err := d.sameNode(ctx, sc, e)
			if err != nil {
				return "", Result{}, err
			}
			if !same {
				continue
			}
		}
		res, err := d.StoredResult(ctx, *e)
		if err != nil {
			return "", Result{}, err
		}
		res.Retryable = false
		return e.ID, res, nil
	}
	return "", Result{}, nil
}

func (d *Dispatcher) sameNode(ctx context.Context, sc *scene, e *persistence.Call) (bool, error) {
	records, err := d.store.Decisions(ctx, sc.Tenant, sc.Run, e.ID)
	if err != nil || len(records) == 0 {
		return false, err
	}
	var in celpolicy.Input
	if err := json.Unmarshal(records[len(records)-1].Input, &in); err != nil {
		return false, Systemf("decision.unreadable", "decision on call %s: %w", e.ID, err)
	}
	return in.Run.Node == sc.run.Node, nil
}

// askedName keeps the name that a model wrote, as far as it can be one.
func askedName(name string) string {
	return clip(strings.ReplaceAll(name, "\x00", "\uFFFD"), 256)
}

// unavailable is the one answer for unknown, hidden and denied tools.
func unavailable(asked string) Result {
	r := Recoverable(CodeUnavailable, "%s", celpolicy.ModelMessageUnavailable(specs.ToolName(asked)))
	r.Retryable = false
	return r
}

func denied(message string) Result {
	r := Recoverable(CodeDenied, "%s", message)
	r.Retryable = false
	return r
}

// denial is what the model reads of a decision against it: the policy's own words where it has some for the model, else
// nothing that tells denied from unknown.
func denial(dec celpolicy.Decision, asked string) Result {
	switch {
	case dec.Code == celpolicy.CodeBudgetExhausted && dec.Visible:
		return Recoverable(CodeBudgetExhausted, "The budget for this is used up: %s", clip(dec.Reason, 300))
	case dec.Message != "" && dec.Message != celpolicy.ModelMessageUnavailable(dec.Tool):
		return denied(dec.Message)
	}
	return unavailable(asked)
}

func exhaustedResult(ex *exhausted) Result {
	return Recoverable(CodeBudgetExhausted, "%s Nothing ran.", ex.text())
}

func sourceUnavailable(t *specs.Tool) Result {
	return Recoverable(CodeSourceUnavailable, "Nothing is connected that could run %s at the moment. Nothing ran.", t.Name)
}

// proposeChange puts a turn into one change.
func proposeChange(sc *scene, cands []*candidate, rider Rider) (persistence.Change, error) {
	ch := persistence.Change{Tenant: sc.Tenant, Run: sc.Run, Fence: sc.Fence,
		Key: fmt.Sprintf("propose/%s/%d", sc.Invocation, sc.Turn)}
	st := &story{}
	for _, c := range cands {
		if err := c.write(sc, st, &ch); err != nil {
			return ch, err
		}
	}
	addRider(&ch, rider, st.lines)
	return ch, st.err
}

// addRider puts the caller's own lines around the dispatcher's.
func addRider(ch *persistence.Change, r Rider, own []persistence.Entry) {
	ch.Lines = append(append(append(ch.Lines, r.Before...), own...), r.After...)
	ch.Blobs = append(ch.Blobs, r.Blobs...)
	ch.Artifacts = append(ch.Artifacts, r.Artifacts...)
	ch.Trees = append(ch.Trees, r.Trees...)
}

// write tells the story of one proposed call.
func (c *candidate) write(sc *scene, st *story, ch *persistence.Change) error {
	note := requestNote{Turn: c.call.Turn, Index: c.call.Index, Sequence: c.call.Sequence, ProviderID: clip(c.call.ProviderID, 200), Asked: c.call.Asked,
		Tool: c.call.Tool, ToolDigest: c.call.ToolDigest, ArgsDigest: c.call.Args, RawDigest: c.call.RawArgs, RawBytes: len(c.raw)}
	if len(c.args) <= inlineArgs {
		note.Args = c.args
	}
	at := st.birth(machine.Call(), c.call, note)
	if c.tool != nil && len(note.Args) > 0 {
		for _, p := range redactPointers(c.tool) {
			st.last().Redact = append(st.last().Redact, "/args"+p)
		}
	}
	if c.call.RawArgs != "" {
		ch.Blobs = append(ch.Blobs, persistence.BlobOf("application/octet-stream", c.raw))
	}
	if err := keepArguments(sc.calls, ch, c.call, c.args, c.raw); err != nil {
		return err
	}
	if c.approval != nil {
		c.call.Approval, c.call.Approvals = c.approval.ID, 1
	}
	if c.result != nil {
		if err := keepResult(sc.calls, ch, c.call, c.result); err != nil {
			return err
		}
		c.call.Reason = clip(c.dec.Reason, 500)
	}
	dn := noteOf(c.dec, c.result)
	dn.Remembered = c.remembered
	at = st.move(machine.Call(), at, c.event, c.call, dn)
	if c.result != nil {
		st.last().Level = persistence.LevelWarn
	}
	rec, err := sc.record(c.call.ID, celpolicy.PhaseCall, 1, c.in, c.dec, c.tool)
	if err != nil {
		return err
	}
	ch.Decisions = append(ch.Decisions, rec)
	if c.approval != nil {
		st.birth(machine.Approval(), c.approval, approvalNote(c.approval))
	}
	if c.start != nil {
		rec, err := sc.record(c.call.ID, celpolicy.PhaseDispatch, 1, c.startIn, c.start.dec, c.tool)
		if err != nil {
			return err
		}
		ch.Decisions = append(ch.Decisions, rec)
		c.start.write(st, ch, at, machine.CallStart, c.call)
	}
	return nil
}

// proposed gives the answers after the change was written, and keeps what was started for Execute.
func (d *Dispatcher) proposed(sc *scene, cands []*candidate, calls []Call) []Proposal {
	byID := map[string]Proposal{}
	for _, c := range cands {
		byID[c.call.ProviderID] = Proposal{Call: *c.call, Decision: c.dec, Result: c.result, Approval: c.approval}
		if c.start != nil {
			d.remember(flightKey{sc.Tenant, sc.Run, c.call.ID}, c.start)
		}
	}
	out := make([]Proposal, 0, len(calls))
	for _, c := range calls {
		out = append(out, byID[c.ID])
	}
	return out
}
