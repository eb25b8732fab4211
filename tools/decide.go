package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Errors of ballots.
var (
	// ErrBallot is a ballot that says something impossible: a rejection without a reason, a grant that is not on offer.
	ErrBallot = errors.New("the ballot cannot be counted")
	// ErrParked answers a yes to a parked approval: it can be rejected, or asked for anew.
	ErrParked = errors.New("its time is over and it is parked: it can be rejected, or asked for anew")
)

// defaultGrant is how long a remembered yes holds when nobody says.
const defaultGrant = 24 * time.Hour

// Decide counts a person's ballot. It answers the approval as it then stands: still pending when the quorum needs more people.
// Errors: persistence.ErrNotFound (also for another tenant's approval), *NotApproverError, *DecidedError naming who was first,
// persistence.ErrExpired, ErrParked, ErrBallot, *EditError when other arguments would not be let through.
func (d *Dispatcher) Decide(ctx context.Context, t specs.TenantID, b Ballot) (persistence.Approval, error) {
	if b.By.Tenant != t || b.By.User == "" {
		return persistence.Approval{}, fmt.Errorf("approval %s: %w", b.Approval, persistence.ErrNotFound)
	}
	for try := 0; ; try++ {
		a, err := d.store.Approval(ctx, t, b.Approval)
		if err != nil {
			return a, err
		}
		next, err := d.count(ctx, a, b)
		switch {
		case err == nil:
			return next, nil
		case errors.Is(err, persistence.ErrStale) && try < 2*maxTries:
			continue // somebody voted or decided; look again
		case errors.Is(err, persistence.ErrExpired):
			if _, err := d.expireApproval(ctx, t, a.ID); err != nil {
				return a, err
			}
			// The store's own words name the change that was tried; whoever decides needs the question and its time.
			err = fmt.Errorf("approval %s had until %s: %w", a.ID, a.Deadline.Format(time.RFC3339), persistence.ErrExpired)
			return a, err
		}
		return a, err
	}
}

// count works out one ballot against the approval as it was read.
func (d *Dispatcher) count(ctx context.Context, a persistence.Approval, b Ballot) (persistence.Approval, error) {
	switch {
	case a.State == machine.ApprovalParked && b.Verdict != BallotReject:
		return a, ErrParked
	case a.State == machine.ApprovalExpired:
		return a, fmt.Errorf("approval %s: %w", a.ID, persistence.ErrExpired)
	case a.State != machine.ApprovalPending && a.State != machine.ApprovalParked:
		return a, &DecidedError{Approval: a.ID, State: a.State, By: a.DecidedBy}
	}
	rules, err := mayDecide(a, b.By)
	if err != nil {
		return a, err
	}
	call, err := d.store.Call(ctx, a.Tenant, a.Run, a.Call)
	if err != nil {
		return a, err
	}
	if call.Approval != a.ID || call.State != machine.CallAwaitingApproval {
		return a, persistence.ErrStale
	}
	key := ballotKey(b.Request)
	bx := &box{d: d, b: b, old: a, a: a, call: call, next: call, s: &story{}, rules: rules,
		ch: persistence.Change{Tenant: a.Tenant, Run: a.Run, Key: "decide/" + string(a.ID) + "/" + key}}
	switch b.Verdict {
	case BallotApprove:
		err = bx.approve(ctx)
	case BallotReject:
		err = bx.reject(ctx)
	case BallotAnswer:
		err = bx.answer(ctx)
	default:
		err = fmt.Errorf("%w: no verdict %q", ErrBallot, b.Verdict)
	}
	if err == nil {
		err = bx.s.err
	}
	if err != nil {
		return a, err
	}
	for i := range bx.s.lines {
		bx.s.lines[i].Request = b.Request
	}
	bx.ch.Lines = bx.s.lines
	if _, err := d.store.Apply(ctx, bx.ch); err != nil {
		return a, appendFailed(ctx, err)
	}
	return d.store.Approval(ctx, a.Tenant, bx.a.ID)
}

// ballotKey gives the request's own id, so that the same request twice is one ballot, or else a key that nobody shares.
func ballotKey(request string) string {
	if request != "" && len(request) <= 200 {
		return "request/" + request
	}
	return uuid.NewString()
}

// mayDecide gives the rules of an approval that this person can answer. Role and tenant are those of this moment, as the
// door established them.
func mayDecide(a persistence.Approval, by Principal) ([]specs.RuleID, error) {
	var rules []specs.RuleID
	why := "no rule of it names this person or one of their roles"
	for _, ask := range a.Asks {
		named := slices.Contains(ask.Users, by.User) || slices.ContainsFunc(ask.Roles, func(r specs.Role) bool { return slices.Contains(by.Roles, r) })
		switch {
		case !named || ask.Quorum < 1:
		case ask.NotRequester && by.User == a.Requester:
			why = "whoever started the run cannot approve its calls"
		default:
			rules = append(rules, ask.Rule)
		}
	}
	if len(rules) == 0 {
		return nil, &NotApproverError{Approval: a.ID, User: by.User, Why: why}
	}
	return rules, nil
}

// box is one ballot being counted.
type box struct {
	d     *Dispatcher
	b     Ballot
	old   persistence.Approval // as read
	a     persistence.Approval // as it will be
	call  persistence.Call     // as read
	next  persistence.Call     // as it will be
	rules []specs.RuleID       // those that this person answers
	s     *story
	ch    persistence.Change
}

// ballotNote is the payload of the lines that a ballot writes.
type ballotNote struct {
	Approval specs.ApprovalID `json:"approval"`
	By       specs.UserID     `json:"by"`
	Rules    []specs.RuleID   `json:"rules,omitempty"`
	Reason   string           `json:"reason,omitempty"`
	Scope    string           `json:"scope,omitempty"`
	Missing  int              `json:"missing,omitempty"` // people whose yes is still needed
	Bound    specs.Digest     `json:"bound,omitempty"`
	Result   specs.Digest     `json:"result,omitempty"`
}

func (x *box) note() ballotNote {
	return ballotNote{Approval: x.a.ID, By: x.b.By.User, Rules: x.rules[:min(len(x.rules), 50)], Reason: clip(x.b.Reason, 2000), Scope: x.a.Scope}
}

// decided moves the approval, in time and from the version that was read.
func (x *box) decided(ev machine.Event, note any) {
	x.s.move(machine.Approval(), x.old.State, ev, &x.a, note)
	x.s.last().Move.Version = x.old.Version
	x.s.last().Move.OnTime = x.old.State == machine.ApprovalPending
}

func (x *box) moveCall(ev machine.Event, note any) {
	x.s.move(machine.Call(), x.call.State, ev, &x.next, note)
	x.s.last().Move.Version = x.call.Version
}

func (x *box) reject(ctx context.Context) error {
	if x.b.Reason == "" {
		return fmt.Errorf("%w: a rejection needs a reason; the model reads it", ErrBallot)
	}
	x.a.DecidedBy, x.a.Reason = x.b.By.User, clip(x.b.Reason, 4000)
	r := Recoverable(CodeRejected, "A person rejected this call: %s Nothing ran. Do not repeat it unchanged.", sentence(clip(x.b.Reason, 2000)))
	r.Retryable = false
	x.next.Reason = clip(x.b.Reason, 500)
	if err := x.keep(ctx, &r); err != nil {
		return err
	}
	x.decided(machine.ApprovalReject, x.note())
	n := x.note()
	n.Result = x.next.Result
	x.moveCall(machine.CallReject, n)
	x.s.last().Level = persistence.LevelWarn
	return nil
}

func (x *box) answer(ctx context.Context) error {
	if x.b.Answer == nil {
		return fmt.Errorf("%w: an answer without a result", ErrBallot)
	}
	if left := missing(x.a.Asks, append(slices.Clone(x.a.Votes), x.vote())); left > 0 {
		return fmt.Errorf("%w: %d more people must agree before somebody may answer for the tool", ErrBallot, left)
	}
	sc, tool, err := x.scene(ctx)
	if err != nil {
		return err
	}
	k, err := tidy(sc, tool, *x.b.Answer, MaxOutputPerCall)
	if err != nil {
		return err
	}
	if k.result.ErrorCode == CodeInvalidResult && x.b.Answer.ErrorCode != CodeInvalidResult {
		return fmt.Errorf("%w: %s", ErrBallot, textOf(k.result))
	}
	x.ch.Blobs = append(x.ch.Blobs, k.blobs...)
	x.a.DecidedBy, x.a.Reason = x.b.By.User, clip(x.b.Reason, 4000)
	x.next.Reason = "answered by " + string(x.b.By.User) + " in the tool's place"
	if err := x.keep(ctx, &k.result); err != nil {
		return err
	}
	x.decided(machine.ApprovalAnswer, x.note())
	for _, digest := range k.stored {
		x.s.write(about(persistence.KindResultStored, &x.call), map[string]any{"digest": digest, "ref": "blob:" + string(digest)})
	}
	x.moveCall(machine.CallAnswer, endNote{IsError: k.result.IsError, ErrorCode: k.result.ErrorCode, Result: x.next.Result,
		OutputTokens: k.result.Usage.OutputTokens, By: x.b.By.User, Why: "a person answered in the tool's place"})
	return nil
}

func (x *box) keep(ctx context.Context, r *Result) error {
	siblings, err := x.d.store.Calls(ctx, x.call.Tenant, x.call.Run)
	if err != nil {
		return err
	}
	return keepResult(siblings, &x.ch, &x.next, r)
}

func (x *box) vote() persistence.Vote {
	return persistence.Vote{User: x.b.By.User, Rules: x.rules, At: time.Time{}}
}

// approve counts a yes.
func (x *box) approve(ctx context.Context) error {
	for _, v := range x.a.Votes {
		if v.User == x.b.By.User {
			return &NotApproverError{Approval: x.a.ID, User: x.b.By.User, Why: "they have agreed already, and a person counts once"}
		}
	}
	if err := x.scope(); err != nil {
		return err
	}
	if x.b.Args != nil {
		edited, err := x.edit(ctx)
		if err != nil || edited {
			return err
		}
	}
	return x.yes(ctx)
}

// yes adds the vote, and approves the call when it is the last one needed.
func (x *box) yes(ctx context.Context) error {
	now, err := x.d.store.Now(ctx)
	if err != nil {
		return err
	}
	v := x.vote()
	v.At = now
	x.a.Votes = append(slices.Clone(x.a.Votes), v)
	n := x.note()
	n.Bound = x.a.Bound
	if n.Missing = missing(x.a.Asks, x.a.Votes); n.Missing > 0 {
		x.decided(machine.ApprovalVote, n)
		return nil
	}
	x.a.DecidedBy, x.a.Reason = x.b.By.User, clip(x.b.Reason, 4000)
	x.decided(machine.ApprovalApprove, n)
	x.moveCall(machine.CallApprove, n)
	return x.grant(ctx, now)
}

// missing counts the people whose yes is still needed: one person may count for several rules, once in each.
func missing(asks []persistence.Ask, votes []persistence.Vote) int {
	most := 0
	for _, ask := range asks {
		people := map[specs.UserID]bool{}
		for _, v := range votes {
			if slices.Contains(v.Rules, ask.Rule) {
				people[v.User] = true
			}
		}
		most = max(most, max(ask.Quorum, 1)-len(people))
	}
	if len(asks) == 0 {
		return 1 // an approval that asks nobody is given by nobody
	}
	return most
}

// scope checks how far the yes is to reach and how long it is to be remembered, and keeps the narrowest wish of all who voted.
// Any arguments can be granted only by somebody who alone can answer every rule that asks.
func (x *box) scope() error {
	want := x.b.Scope
	if want == "" {
		want = ScopeOnce
	}
	if !slices.Contains([]GrantScope{ScopeOnce, ScopeRun, ScopeGrant}, want) {
		return fmt.Errorf("%w: no scope %q", ErrBallot, want)
	}
	if want != ScopeOnce {
		for _, ask := range x.a.Asks {
			if !ask.Grantable {
				return fmt.Errorf("%w: %s cannot be answered by a remembered grant", ErrBallot, ask.Rule)
			}
		}
		if x.b.AnyArgs && missing(x.a.Asks, []persistence.Vote{x.vote()}) > 0 {
			return fmt.Errorf("%w: any arguments cannot be granted where several people must agree", ErrBallot)
		}
		if x.b.GrantFor < 0 {
			return fmt.Errorf("%w: a grant of negative duration", ErrBallot)
		}
		lasts := cmp.Or(x.b.GrantFor, defaultGrant)
		if x.a.GrantFor == 0 || lasts < x.a.GrantFor {
			x.a.GrantFor = lasts
		}
	}
	width := map[GrantScope]int{ScopeOnce: 0, ScopeRun: 1, ScopeGrant: 2}
	if x.a.Scope == "" || width[want] < width[GrantScope(x.a.Scope)] {
		x.a.Scope = string(want)
	}
	return nil
}

// grant remembers the yes when everybody who had to agree wanted that. It pins these arguments exactly, unless a person chose
// in so many words that any will do.
func (x *box) grant(ctx context.Context, now time.Time) error {
	if x.a.Scope == string(ScopeOnce) {
		return nil
	}
	id, err := newID()
	if err != nil {
		return err
	}
	g := persistence.Grant{ID: id, Tool: x.a.Tool, ToolDigest: x.a.ToolDigest, User: x.a.Requester, By: x.b.By.User, Created: now}
	for _, ask := range x.a.Asks {
		g.Rules = append(g.Rules, ask.Rule)
	}
	g.Expires = now.Add(x.a.GrantFor)
	if x.a.Scope == string(ScopeRun) {
		g.Run = x.a.Run
	}
	if !x.b.AnyArgs {
		args, err := x.args(ctx)
		if err != nil {
			return err
		}
		g.Args = map[string]string{"": string(args)}
	}
	x.ch.Grants = append(x.ch.Grants, g)
	e := about(persistence.KindGrantCreated, &x.call)
	e.Related = g.ID
	x.s.write(e, map[string]any{"grant": g.ID, "tool": g.Tool, "scope": x.a.Scope, "rules": g.Rules[:min(len(g.Rules), 50)],
		"anyArgs": x.b.AnyArgs, "argsDigest": x.a.ArgsDigest, "expires": g.Expires, "by": g.By})
	return nil
}
