package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// EditError says why other arguments would not be let through. Nothing was decided.
type EditError struct {
	Approval specs.ApprovalID
	Why      string
	Decision *celpolicy.Decision // set when policy refuses
}

func (e *EditError) Error() string {
	return fmt.Sprintf("approval %s cannot be given with these arguments: %s", e.Approval, e.Why)
}

func (x *box) scene(ctx context.Context) (*scene, *specs.Tool, error) {
	sc, err := x.d.scene(ctx, Scope{Tenant: x.call.Tenant, Run: x.call.Run, Invocation: x.call.Invocation, Turn: x.call.Turn})
	if err != nil {
		return nil, nil, err
	}
	t := sc.pinned.Bundle.Tool(x.call.Tool)
	if t == nil {
		return nil, nil, Systemf("tool.missing", "tool %s of call %s is not in bundle %s", x.call.Tool, x.call.ID, sc.run.Bundle)
	}
	return sc, t, nil
}

// edit puts a person's arguments in place of the model's: validated, resolved again, and bound anew. The votes of others were for
// other arguments and do not count. When the person alone cannot give the yes that the new arguments need, the question is
// asked anew, with their vote in it. False means that the arguments are those that were asked about.
func (x *box) edit(ctx context.Context) (bool, error) {
	sc, tool, err := x.scene(ctx)
	if err != nil {
		return false, err
	}
	args, problem, err := readArguments(tool, x.b.Args, maxArgs(sc.pinned.Bundle))
	if err != nil {
		return false, err
	}
	if problem != "" {
		return false, &EditError{Approval: x.a.ID, Why: problem}
	}
	digest := specs.DigestOf(args)
	if digest == x.call.Args {
		return false, nil
	}
	in := sc.input(celpolicy.PhaseCall, x.call.Tool, args, x.call.Sequence, sc.repeats(x.call.Tool, digest, x.call.Sequence))
	dec := sc.decide(in)
	if !dec.Visible || !dec.Callable {
		return false, &EditError{Approval: x.a.ID, Why: dec.Reason, Decision: &dec}
	}
	if dec.ApprovalRequired {
		if who := unreachable(dec.Asks, sc.run.User); who != "" {
			return false, &EditError{Approval: x.a.ID, Why: fmt.Sprintf("nobody can answer %s", who)}
		}
	}
	if !dec.ApprovalRequired && x.a.Scope != string(ScopeOnce) {
		return false, fmt.Errorf("%w: nobody is asked about these arguments, so there is no yes to remember", ErrBallot)
	}
	fresh, err := x.d.newApproval(ctx, sc, &x.call, tool, args, dec)
	if err != nil {
		return false, err
	}
	n, err := x.d.dispatches(ctx, &x.call)
	if err != nil {
		return false, err
	}
	rec, err := sc.record(x.call.ID, celpolicy.PhaseDispatch, n, in, dec, tool)
	if err != nil {
		return false, err
	}
	x.ch.Decisions = append(x.ch.Decisions, rec)
	if err := x.replace(sc, args, digest); err != nil {
		return false, err
	}
	if len(fresh.Asks) > 0 {
		x.rules, err = mayDecide(*fresh, x.b.By)
		var not *NotApproverError
		if err != nil && !errors.As(err, &not) {
			return false, err
		}
		vote := persistence.Vote{User: x.b.By.User, Rules: x.rules, At: sc.now}
		if missing(fresh.Asks, []persistence.Vote{vote}) > 0 {
			return true, x.askAnew(fresh, vote)
		}
		x.a.Asks = fresh.Asks
		if err := x.scope(); err != nil {
			return false, err
		}
	}
	x.a.Bound, x.a.ArgsDigest, x.a.ToolDigest, x.a.Policy = fresh.Bound, fresh.ArgsDigest, fresh.ToolDigest, fresh.Policy
	x.a.Shown, x.a.ShownDigest, x.a.NewArgs, x.a.Votes = fresh.Shown, fresh.ShownDigest, digest, nil
	if len(fresh.Asks) == 0 { // these arguments need nobody; the person's yes to the question that was put is enough
		x.a.Asks = slices.Clone(x.a.Asks)
		for i := range x.a.Asks {
			x.a.Asks[i].Quorum = 1
		}
		x.rules = nil
		for _, ask := range x.a.Asks {
			x.rules = append(x.rules, ask.Rule)
		}
	}
	return true, x.yes(ctx)
}

// replace writes the new arguments down.
func (x *box) replace(sc *scene, args []byte, digest specs.Digest) error {
	x.next.Args, x.next.Edited, x.next.EditedBy = digest, true, x.b.By.User
	b, err := marshal(argsFile{x.call.ID, x.call.ProviderID, x.call.Turn, x.call.Asked, x.call.Tool, args, x.call.RawArgs, 0})
	if err != nil {
		return err
	}
	file := persistence.BlobOf("application/json", b)
	x.ch.Blobs = append(x.ch.Blobs, persistence.BlobOf("application/json", args), file)
	x.ch.Artifacts = append(x.ch.Artifacts, persistence.Artifact{
		Name:   fmt.Sprintf("%s-edited-%d.json", strings.TrimSuffix(ArgsArtifact(&x.call, sc.calls), ".json"), x.call.Approvals),
		Digest: file.Digest,
	})
	x.s.write(about(persistence.KindCallEdited, &x.call), map[string]any{"by": x.b.By.User, "from": x.call.Args, "to": digest, "approval": x.a.ID})
	return nil
}

// askAnew cancels the question that was put and puts the new one.
func (x *box) askAnew(fresh *persistence.Approval, vote persistence.Vote) error {
	old := x.a
	x.s.move(machine.Approval(), x.old.State, machine.ApprovalCancel, &old, map[string]any{"call": x.call.ID, "why": "the arguments were edited"})
	x.s.last().Move.Version, x.s.last().Move.OnTime = x.old.Version, true
	if len(vote.Rules) > 0 {
		fresh.Votes, fresh.Scope, fresh.GrantFor = []persistence.Vote{vote}, x.a.Scope, x.a.GrantFor
	}
	x.next.Approval, x.next.Approvals = fresh.ID, x.call.Approvals+1
	x.moveCall(machine.CallReask, map[string]any{"approval": fresh.ID, "by": x.b.By.User, "why": "the arguments were edited, and others must agree to them"})
	n := approvalNote(fresh)
	n.Why = "the arguments were edited"
	x.s.birth(machine.Approval(), fresh, n)
	x.a = *fresh
	return nil
}

// args gives the canonical arguments that the approval is for, when they are in this change, else "".
func (x *box) args(ctx context.Context) ([]byte, error) {
	for _, b := range x.ch.Blobs {
		if b.Digest == x.next.Args {
			return b.Data, nil
		}
	}
	return x.d.store.Blob(ctx, x.call.Tenant, x.next.Args)
}

// Reask puts a question anew whose time is over and that was parked: a fresh approval with a fresh time, for the same call.
// Whoever could decide it may ask, and whoever started the run.
func (d *Dispatcher) Reask(ctx context.Context, by Principal, id specs.ApprovalID) (persistence.Approval, error) {
	a, err := d.store.Approval(ctx, by.Tenant, id)
	if err != nil {
		return a, err
	}
	if a.State != machine.ApprovalParked {
		return a, &DecidedError{Approval: id, State: a.State, By: a.DecidedBy}
	}
	if by.User != a.Requester {
		if _, err := mayDecide(a, by); err != nil {
			return a, err
		}
	}
	call, err := d.store.Call(ctx, by.Tenant, a.Run, a.Call)
	if err != nil {
		return a, err
	}
	x := &box{d: d, b: Ballot{By: by}, old: a, a: a, call: call, next: call, s: &story{}}
	sc, tool, err := x.scene(ctx)
	if err != nil {
		return a, err
	}
	args, err := d.StoredArgs(ctx, call)
	if err != nil {
		return a, err
	}
	end := settled{event: machine.CallReask, approval: &a, why: "asked anew by " + string(by.User), tool: tool}
	end.in = sc.input(celpolicy.PhaseCall, call.Tool, args, call.Sequence, sc.repeats(call.Tool, call.Args, call.Sequence))
	dec := sc.decide(end.in)
	end.dec = &dec
	if !dec.Visible || !dec.Callable || unreachable(dec.Asks, sc.run.User) != "" {
		return a, &EditError{Approval: id, Why: "policy would not let it through now: " + dec.Reason, Decision: &dec}
	}
	if end.attempt, err = d.dispatches(ctx, &call); err != nil {
		return a, err
	}
	if end.next, err = d.newApproval(ctx, sc, &call, tool, args, dec); err != nil {
		return a, err
	}
	if _, _, err := d.conclude(ctx, sc, &call, end, Hooks{}); !errors.Is(err, ErrWaiting) {
		return a, err
	}
	return d.store.Approval(ctx, by.Tenant, end.next.ID)
}

// sentence ends a text as one.
func sentence(s string) string {
	if s = strings.TrimSpace(s); s == "" || strings.ContainsAny(s[len(s)-1:], ".!?") {
		return s
	}
	return s + "."
}

func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("no randomness: %w", err)
	}
	return id.String(), nil
}
