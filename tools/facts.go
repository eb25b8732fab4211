package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// scene is everything around a call, read from the store for one step. Nothing of it is kept for the next.
type scene struct {
	Scope
	run       persistence.Run
	inv       persistence.Invocation
	pinned    *Compiled
	live      *Compiled // nil when the tenant has no active bundle
	profile   *specs.Profile
	now       time.Time
	grants    []celpolicy.Grant
	calls     []persistence.Call
	used      map[celpolicy.Dimension]int64
	envelopes []celpolicy.Envelope
	artifacts []string
	seat      *seat // of the call that is being executed; nil in every other step
}

// scene loads what decisions in this scope depend on. Whoever the run belongs to comes from the run's record alone: nothing
// that a model wrote reaches it.
func (d *Dispatcher) scene(ctx context.Context, s Scope) (*scene, error) {
	sc := &scene{Scope: s}
	var err error
	if sc.run, err = d.store.Run(ctx, s.Tenant, s.Run); err != nil {
		return nil, err
	}
	if sc.pinned, err = d.policies.Pinned(ctx, s.Tenant, sc.run.Bundle); err != nil {
		return nil, fmt.Errorf("the policy %s of run %s: %w", sc.run.Bundle, s.Run, err)
	}
	live, ok, err := d.policies.Live(ctx, s.Tenant)
	if err != nil {
		return nil, fmt.Errorf("the policy in force: %w", err)
	}
	if ok && live.Bundle.Digest != sc.pinned.Bundle.Digest {
		sc.live = live
	}
	if sc.inv, err = d.store.Invocation(ctx, s.Tenant, s.Run, s.Invocation); err != nil {
		return nil, err
	}
	sc.profile = sc.pinned.Bundle.Profile(sc.profileName())
	if sc.now, err = d.store.Now(ctx); err != nil {
		return nil, err
	}
	if sc.calls, err = d.store.Calls(ctx, s.Tenant, s.Run); err != nil {
		return nil, err
	}
	if err := d.loadGrants(ctx, sc); err != nil {
		return nil, err
	}
	if err := d.loadUse(ctx, sc); err != nil {
		return nil, err
	}
	if err := d.loadEnvelopes(ctx, sc); err != nil {
		return nil, err
	}
	return sc, d.loadArtifacts(ctx, sc)
}

// profileName is who plays. The root plays as the run says, which is the plan node's profile while a node has one of its own.
func (sc *scene) profileName() specs.ProfileName {
	switch {
	case sc.inv.Kind == persistence.InvocationRoot && sc.run.Profile != "":
		return sc.run.Profile
	case sc.inv.Profile != "":
		return sc.inv.Profile
	case sc.run.Profile != "":
		return sc.run.Profile
	case sc.pinned.Bundle.Tenant != nil:
		return specs.ProfileName(sc.pinned.Bundle.Tenant.DefaultProfile.Value)
	}
	return ""
}

func (sc *scene) ended() bool  { return machine.Run().IsFinal(sc.run.State) }
func (sc *scene) ending() bool { return sc.run.State == machine.RunCancelling || sc.ended() }

func (d *Dispatcher) loadGrants(ctx context.Context, sc *scene) error {
	grants, err := d.store.Grants(ctx, sc.Tenant, sc.Run)
	if err != nil {
		return err
	}
	for _, g := range grants {
		if g.Run != "" && g.Run != sc.Run || g.User != "" && g.User != sc.run.User {
			continue
		}
		sc.grants = append(sc.grants, celpolicy.Grant{ID: g.ID, Tool: g.Tool, ToolDigest: g.ToolDigest, Run: g.Run, User: g.User,
			Args: g.Args, Rules: g.Rules, Expires: g.Expires})
	}
	slices.SortFunc(sc.grants, func(a, b celpolicy.Grant) int { return strings.Compare(a.ID, b.ID) })
	return nil
}

// loadUse reads what the run has used of its own limits.
func (d *Dispatcher) loadUse(ctx context.Context, sc *scene) error {
	counters, err := d.store.Counters(ctx, sc.Tenant, string(ownCounter(sc.Tenant, sc.Run, "")))
	if err != nil {
		return err
	}
	sc.used = map[celpolicy.Dimension]int64{}
	for _, dim := range []celpolicy.Dimension{celpolicy.DimCalls, celpolicy.DimOutputTokens, celpolicy.DimCost} {
		for _, c := range counters {
			if c.Key == ownCounter(sc.Tenant, sc.Run, dim) {
				sc.used[dim] = c.Spent + c.Reserved
			}
		}
	}
	return nil
}

// loadEnvelopes walks from the invocation to the root by the stored parents, never by names.
func (d *Dispatcher) loadEnvelopes(ctx context.Context, sc *scene) error {
	parent := sc.inv.Parent
	for hops := int64(0); parent != ""; hops++ {
		if hops > 64 {
			return Systemf("invocation.cycle", "invocation %s has no root", sc.inv.ID)
		}
		inv, err := d.store.Invocation(ctx, sc.Tenant, sc.Run, parent)
		if err != nil {
			return err
		}
		e := celpolicy.Envelope{Profile: inv.Profile}
		if inv.Parent == "" {
			e.Node = sc.run.Node
			if sc.run.Profile != "" {
				e.Profile = sc.run.Profile
			}
		}
		sc.envelopes = append(sc.envelopes, e)
		parent = inv.Parent
	}
	slices.Reverse(sc.envelopes)
	return nil
}

// loadArtifacts lists the expected artifacts that exist now.
func (d *Dispatcher) loadArtifacts(ctx context.Context, sc *scene) error {
	if sc.profile == nil || len(sc.profile.Output.Artifacts) == 0 {
		return nil
	}
	tree, err := d.store.Tree(ctx, sc.Tenant, persistence.RunTree(sc.Run), 0)
	if err != nil {
		return err
	}
	for _, a := range sc.profile.Output.Artifacts {
		if _, ok := tree.Files[a.Path]; ok {
			sc.artifacts = append(sc.artifacts, a.ID)
		}
	}
	return nil
}

// input says what policy may know. Seq is the call's place in the run, or the next one.
func (sc *scene) input(phase celpolicy.Phase, tool specs.ToolName, args json.RawMessage, seq, repeat int64) celpolicy.Input {
	in := celpolicy.Input{
		Phase: phase, Tool: tool, Args: args, Now: sc.now, Grants: sc.grants, Envelopes: sc.envelopes, Trace: true,
		Run: celpolicy.RunFacts{
			ID: sc.run.ID, Labels: sc.run.Labels, Profile: sc.profileName(), Plan: sc.run.Plan, Node: sc.run.Node,
			Round: max(sc.Turn, sc.run.Round), NodeRounds: sc.run.NodeRounds, Depth: sc.inv.Depth,
			Commits: sc.run.Commits, Calls: max(seq-1, 0), Artifacts: sc.artifacts,
		},
		User:   celpolicy.UserFacts{ID: sc.run.User, Roles: sc.run.Roles},
		Tenant: celpolicy.TenantFacts{ID: sc.Tenant},
		Call:   celpolicy.CallFacts{Sequence: seq, Repeat: repeat},
		Budget: celpolicy.BudgetFacts{Used: map[string]int64{
			"calls": sc.used[celpolicy.DimCalls], "outputTokens": sc.used[celpolicy.DimOutputTokens], "cost": sc.used[celpolicy.DimCost],
		}},
	}
	if t := sc.pinned.Bundle.Tenant; t != nil {
		in.Tenant.Labels = t.Labels
		in.User.Labels = t.Users[string(sc.run.User)].Labels
	}
	in.Budget.Limit = sc.runLimits()
	return in
}

// runLimits is what the whole run may use. The root's profile sets it; no profile on the way to a child raises it.
func (sc *scene) runLimits() map[string]int64 {
	root := sc.run.Profile
	if len(sc.envelopes) == 0 {
		root = sc.profileName()
	}
	limit := map[string]int64{"calls": celpolicy.DefaultMaxCalls, "cost": celpolicy.DefaultMaxCost}
	if p := sc.pinned.Bundle.Profile(root); p != nil {
		if p.Run.MaxCalls > 0 {
			limit["calls"] = p.Run.MaxCalls
		}
		if p.Run.MaxCost != nil {
			limit["cost"] = *p.Run.MaxCost
		}
	}
	for _, e := range sc.envelopes {
		if p := sc.pinned.Bundle.Profile(e.Profile); p != nil {
			if p.Run.MaxCalls > 0 {
				limit["calls"] = min(limit["calls"], p.Run.MaxCalls)
			}
			if p.Run.MaxCost != nil {
				limit["cost"] = min(limit["cost"], *p.Run.MaxCost)
			}
		}
	}
	return limit
}

// decide resolves with the policy that the run is pinned to, tightened by the denies now in force.
func (sc *scene) decide(in celpolicy.Input) celpolicy.Decision {
	if in.Parsed == nil && len(in.Args) > 0 {
		in.Parsed, _ = celpolicy.ParseArgs(in.Args) // what cannot be read is refused by each decision
	}
	dec := sc.pinned.Policy.Resolve(in)
	if sc.live != nil && !sc.live.Policy.Check(&in).Callable {
		dec = celpolicy.Tighten(dec, sc.live.Policy.Resolve(in))
	}
	return dec
}

// repeats counts earlier calls of the tool with the same arguments.
func (sc *scene) repeats(tool specs.ToolName, args specs.Digest, before int64) int64 {
	var n int64
	for i := range sc.calls {
		if c := &sc.calls[i]; c.Sequence < before && c.Tool == tool && c.Args == args {
			n++
		}
	}
	return n
}

// Facts gives the input that a decision in this scope would be made with, without a tool, and the policy that it would be made by.
func (d *Dispatcher) Facts(ctx context.Context, s Scope) (celpolicy.Input, *Compiled, error) {
	sc, err := d.scene(ctx, s)
	if err != nil {
		return celpolicy.Input{}, nil, err
	}
	return sc.input(celpolicy.PhaseList, "", nil, int64(len(sc.calls))+1, 0), sc.pinned, nil
}

// List decides, for every tool of the run's bundle, whether the model may see it now. Decisions are in the order of
// canonical names; those with Visible are exactly the tools to send to a provider.
func (d *Dispatcher) List(ctx context.Context, s Scope) ([]celpolicy.Decision, *Compiled, error) {
	sc, err := d.scene(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	in := sc.input(celpolicy.PhaseList, "", nil, int64(len(sc.calls))+1, 0)
	in.Trace = false
	list := sc.pinned.Policy.List(in)
	if sc.live != nil {
		shown := sc.live.Policy.Visible(in)
		for i := range list {
			one := in
			one.Tool = list[i].Tool
			if _, ok := slices.BinarySearch(shown, one.Tool); ok {
				continue // nothing in force denies or hides it
			}
			list[i] = celpolicy.Tighten(list[i], sc.live.Policy.Resolve(one))
		}
	}
	return list, sc.pinned, nil
}

// decisionOutput is a decision as it is recorded.
type decisionOutput struct {
	celpolicy.Decision
	BudgetSnapshot celpolicy.BudgetFacts `json:"budgetSnapshot"`
	LivePolicy     specs.Digest          `json:"livePolicy,omitempty"` // whose denies were added
}

// record makes the line of evidence about a decision. Redacted arguments are cut out, and the record says so.
func (sc *scene) record(call specs.CallID, phase celpolicy.Phase, attempt int64, in celpolicy.Input, dec celpolicy.Decision, tool *specs.Tool) (persistence.DecisionRecord, error) {
	r := persistence.DecisionRecord{Call: call, Phase: string(phase), Attempt: attempt, PolicyDigest: dec.PolicyDigest, Replayable: true}
	if tool != nil && len(tool.Redact) > 0 && len(in.Args) > 0 {
		args, cut, err := redactJSON(in.Args, redactPointers(tool))
		if err != nil {
			return r, err
		}
		in.Args, r.Replayable = args, !cut
	}
	out := decisionOutput{Decision: dec, BudgetSnapshot: in.Budget}
	if sc.live != nil {
		out.LivePolicy = sc.live.Bundle.Digest
	}
	var err, err2 error
	r.Input, err = json.Marshal(in)
	r.Output, err2 = json.Marshal(out)
	return r, errors.Join(err, err2)
}
