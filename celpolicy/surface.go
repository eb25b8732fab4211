package celpolicy

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/callgate/callgate/specs"
)

// Visible gives the tools to show a model, in canonical order: those whose List decision says Visible.
func (p *Policy) Visible(in Input) []specs.ToolName {
	in.Phase, in.Args, in.Parsed, in.Trace = PhaseList, nil, nil, false
	ev := p.evaluation(&in, seesState)
	defer ev.release()
	ev.memo = slices.Grow(ev.memo[:0], p.texts)[:p.texts]
	clear(ev.memo)
	out := make([]specs.ToolName, 0, len(p.names))
	for _, e := range p.entries {
		if ev.shows(e) {
			out = append(out, e.tool.ToolName())
		}
	}
	return out
}

// shows says whether a model may see a tool, by the residual where one can tell.
func (ev *evaluation) shows(e *toolEntry) bool {
	ev.entry = e
	r := ev.p.residual(e, ev)
	if r == nil || r.hard || len(ev.in.Envelopes) > 0 || r.cost.most(0, r.rolesOf(ev)) > CostPerExpression {
		return ev.decide(e).Visible
	}
	ev.args, ev.ledger = nil, ledger{}
	return r.shows(ev)
}

// shows answers for a listing: a tool that nothing certainly refuses, and that each layer that must allow may allow.
func (r *residual) shows(ev *evaluation) bool {
	if r.against.order != 0 || r.granter.never {
		return false
	}
	for i := range r.denies {
		if o := &r.denies[i]; !o.args {
			if t := ev.ask(o); t == triYes || t == triBad {
				return false
			}
		}
	}
	if r.shown {
		if ev.test(r.entry.visibility) != triYes {
			return false
		}
	}
	if !r.mayAllow(ev, &r.granter) {
		return false
	}
	for i := range r.ceilings {
		if !r.mayAllow(ev, &r.ceilings[i]) {
			return false
		}
	}
	return true
}

func (r *residual) mayAllow(ev *evaluation, c *ceiling) bool {
	if c.at <= listPlace {
		return true
	}
	for i := range r.allows {
		o := &r.allows[i]
		if o.policy.doc.Layer != c.layer {
			continue
		}
		if o.args {
			return true
		}
		if t := ev.ask(o); t == triYes || t == triOpen {
			return true
		}
	}
	return false
}

// Surface is a Policy as one run's invocation meets it: its profile, node, person and tenant are settled, so that what they
// decide is decided once. It is a memo: it answers as the Policy does for an Input of the same facts. Any number of
// goroutines may ask it. Make a new one when the node or any of the person's facts change.
type Surface struct {
	p       *Policy
	in      Input
	profile specs.ProfileName
	seats   []atomic.Pointer[residual] // by the place of the tool's name
	visible atomic.Pointer[[]specs.ToolName]
}

// Moment is what changes from call to call.
type Moment struct {
	Args       json.RawMessage
	Parsed     *Args // what ParseArgs made of Args, or nil
	Call       CallFacts
	Budget     BudgetFacts
	Now        time.Time
	Grants     []Grant
	Round      int64
	NodeRounds int64
	Commits    int64
	Calls      int64
	Artifacts  []string
}

// Surface settles an invocation's facts: Run's id, labels, profile, plan, node and depth, User, Tenant and Envelopes. The
// rest of the input is taken from each Moment. The Surface keeps the maps and slices of the input; they must not change.
func (p *Policy) Surface(in Input) *Surface {
	in.Trace = false
	s := &Surface{p: p, in: in, profile: in.Run.Profile, seats: make([]atomic.Pointer[residual], len(p.entries))}
	if s.profile == "" {
		s.profile = p.tenant.profile
	}
	return s
}

// Check answers about one call, as Policy.Check does.
func (s *Surface) Check(tool specs.ToolName, m *Moment) Answer {
	e := s.p.tools[tool]
	if e == nil {
		return Answer{Code: CodeUnknownTool}
	}
	r := s.seat(e)
	if r == nil {
		in := s.input(tool, m)
		return s.p.Check(&in)
	}
	if r.fixed && len(m.Grants) == 0 && len(s.in.Envelopes) == 0 && m.Parsed != nil && m.Parsed.of(m.Args) {
		return r.lasting(s.p, m)
	}
	ev := evaluations.Get().(*evaluation)
	if ev.own == nil {
		ev.own = new(Input)
	}
	*ev.own = s.in
	m.fill(ev.own, tool)
	ev.in, ev.p, ev.entry, ev.profile, ev.sees = ev.own, s.p, e, s.profile, seesAll
	a, ok := Answer{}, false
	if !r.beyond(ev) {
		a, ok = r.check(ev)
	}
	if !ok {
		a = s.p.slowly(ev.own)
	}
	ev.release()
	return a
}

// lasting is a fixed answer, as long as the run's budget lasts.
func (r *residual) lasting(p *Policy, m *Moment) Answer {
	if !r.decided.Callable && r.decided.Code != CodeBudgetExhausted {
		return r.decided
	}
	broke := r.broke
	if r.runsOut(p, &m.Budget, &broke); broke.set {
		return broke.answer()
	}
	return r.decided
}

// seat gives the tool's residual for this surface, made at the first question.
func (s *Surface) seat(e *toolEntry) *residual {
	at := &s.seats[e.at]
	if r := at.Load(); r != nil {
		return r
	}
	ev := s.p.evaluation(&s.in, seesSubject)
	defer ev.release()
	if _, err := s.p.activeNode(s.in.Run.Plan, s.in.Run.Node); err != nil {
		return nil
	}
	r := ev.residual(e)
	at.Store(r)
	return r
}

// Visible gives the tools to show the model at this moment, as Policy.Visible does. When nothing that changes from call to
// call decides about it, it is worked out once; do not change the slice.
func (s *Surface) Visible(m *Moment) []specs.ToolName {
	if kept := s.visible.Load(); kept != nil {
		return *kept
	}
	out := s.p.Visible(s.input("", m))
	if len(s.in.Envelopes) == 0 && !slices.ContainsFunc(s.p.entries, func(e *toolEntry) bool {
		r := s.seat(e)
		return r == nil || r.hard || r.stateful
	}) {
		s.visible.Store(&out)
	}
	return out
}

func (s *Surface) input(tool specs.ToolName, m *Moment) Input {
	in := s.in
	m.fill(&in, tool)
	return in
}

func (m *Moment) fill(in *Input, tool specs.ToolName) {
	in.Phase, in.Tool, in.Args, in.Parsed = PhaseCall, tool, m.Args, m.Parsed
	in.Call, in.Budget, in.Now, in.Grants = m.Call, m.Budget, m.Now, m.Grants
	in.Run.Round, in.Run.NodeRounds, in.Run.Commits, in.Run.Calls, in.Run.Artifacts = m.Round, m.NodeRounds, m.Commits, m.Calls, m.Artifacts
}
