package celpolicy

import (
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/callgate/callgate/specs"
)

// evaluation answers the expressions of one decision. It is the activation that cel-go reads variables from:
// each is boxed at most once, and only when an expression asks for it.
type evaluation struct {
	p       *Policy
	in      *Input
	entry   *toolEntry
	profile specs.ProfileName
	sees    sight
	ledger
	spentHere uint64 // by this expression
	beyond    bool   // a lowered expression met what only cel-go answers
	memo      []tri  // of a listing: answers that are the same for every tool, one up

	own                                  *Input // room for a Surface's moment
	roles                                uint64 // the weight of the person's roles, once known
	parsed                               *Args
	argsErr                              error
	args                                 ref.Val
	run, user, tenant, budget, call, now ref.Val
}

// ledger is what an evaluation has paid.
type ledger struct {
	spent   uint64 // by this decision
	readFor bool   // reading the arguments is paid
}

// sight is how much of an input an evaluation may look at. What lies beyond it is unknown.
type sight uint8

const (
	seesTool    sight = iota // the tool, and the profile and node it is asked in
	seesSubject              // and the run, its person and tenant
	seesState                // and what changes from call to call: counters, budget, time
	seesAll                  // and the arguments
)

func sightOf(phase Phase) sight {
	if phase == PhaseList {
		return seesState
	}
	return seesAll
}

var evaluations = sync.Pool{New: func() any { return new(evaluation) }}

func (p *Policy) evaluation(in *Input, sees sight) *evaluation {
	ev := evaluations.Get().(*evaluation)
	ev.p, ev.in, ev.sees, ev.profile = p, in, sees, in.Run.Profile
	if ev.profile == "" {
		ev.profile = p.tenant.profile
	}
	return ev
}

func (ev *evaluation) release() {
	*ev = evaluation{own: ev.own, memo: ev.memo[:0]}
	evaluations.Put(ev)
}

// at turns the evaluation to another tool. What one decision spent is not the next one's.
func (ev *evaluation) at(e *toolEntry) {
	ev.entry, ev.args, ev.ledger = e, nil, ledger{}
}

// unknown says that arguments are not known: PhaseList.
func (ev *evaluation) unknown() bool { return ev.sees < seesAll }

// Parent makes an evaluation an interpreter.Activation.
func (ev *evaluation) Parent() interpreter.Activation { return nil }

// ResolveName gives a variable's value.
func (ev *evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case varMeter:
		return ev, true
	case varTool:
		if ev.entry == nil {
			return nil, false
		}
		return ev.entry.value, true
	case varArgs:
		return ev.arguments(), true
	case varRun:
		if ev.run == nil {
			ev.run = boxRun(&ev.in.Run, ev.profile)
		}
		return ev.run, true
	case varUser:
		if ev.user == nil {
			u := &ev.in.User
			ev.user = &object{userType, []ref.Val{types.String(u.ID), boxStrings(u.Roles), &labels{u.Labels}}}
		}
		return ev.user, true
	case varTenant:
		if ev.tenant == nil {
			ev.tenant = &object{tenantType, []ref.Val{types.String(ev.in.Tenant.ID), &labels{ev.in.Tenant.Labels}}}
		}
		return ev.tenant, true
	case varBudget:
		if ev.budget == nil {
			ev.budget = boxBudget(ev.p.runLimits(ev.in, ev.profile), &ev.in.Budget)
		}
		return ev.budget, true
	case varCall:
		if ev.call == nil {
			ev.call = &object{callType, []ref.Val{types.Int(ev.in.Call.Sequence), types.Int(ev.in.Call.Repeat)}}
		}
		return ev.call, true
	case varNow:
		if ev.now == nil {
			ev.now = types.Timestamp{Time: ev.in.Now.UTC()}
		}
		return ev.now, true
	}
	return nil, false
}

// UnknownAttributePatterns and AsPartialActivation make arguments unknown in PhaseList: cel-go then answers
// true, false, or "unknown" when the answer hangs on them.
func (ev *evaluation) UnknownAttributePatterns() []*interpreter.AttributePattern { return unknownArgs }

// AsPartialActivation says whether anything is unknown.
func (ev *evaluation) AsPartialActivation() (interpreter.PartialActivation, bool) {
	return ev, ev.unknown()
}

var unknownArgs = []*interpreter.AttributePattern{interpreter.NewAttributePattern(varArgs)}

// arguments boxes the call's arguments at most once. What cannot be read is an error wherever it is used.
func (ev *evaluation) arguments() ref.Val {
	a := ev.read()
	if ev.args == nil {
		s := untyped
		if ev.entry != nil {
			s = ev.entry.shape
		}
		if ev.argsErr != nil {
			ev.args = types.WrapErr(ev.argsErr)
		} else {
			ev.args = boxObject(a.members, s)
		}
	}
	return ev.args
}

// read decodes the call's arguments at most once, and has each decision pay for it. It is nil when they cannot be read.
func (ev *evaluation) read() *Args {
	if !ev.readFor {
		ev.readFor = true
		ev.spent = min(CostPerDecision, ev.spent+uint64(len(ev.in.Args))/5)
	}
	if ev.parsed == nil && ev.argsErr == nil {
		if p := ev.in.Parsed; p != nil && p.of(ev.in.Args) {
			ev.parsed = p
		} else {
			ev.parsed, ev.argsErr = ParseArgs(ev.in.Args)
		}
	}
	return ev.parsed
}

func boxStrings[S ~string](in []S) ref.Val {
	out := make([]ref.Val, len(in))
	for i, s := range in {
		out[i] = types.String(s)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, out)
}

func boxRun(r *RunFacts, profile specs.ProfileName) ref.Val {
	return &object{runType, []ref.Val{types.String(r.ID), &labels{r.Labels}, types.String(profile), types.String(r.Plan),
		types.String(r.Node), types.Int(r.Round), types.Int(r.NodeRounds), types.Int(r.Depth), types.Int(r.Commits),
		types.Int(r.Calls), boxStrings(r.Artifacts)}}
}

func boxBudget(limit amounts, f *BudgetFacts) ref.Val {
	used := amounts{f.Used[keyCalls], f.Used[keyTokens], f.Used[keyCost]}
	left := amounts{max(0, limit.calls-used.calls), max(0, limit.tokens-used.tokens), max(0, limit.cost-used.cost)}
	box := func(a amounts) ref.Val {
		return &object{amountsType, []ref.Val{types.Int(a.calls), types.Int(a.tokens), types.Int(a.cost)}}
	}
	return &object{budgetType, []ref.Val{box(used), box(limit), box(left)}}
}

// Errors of an evaluation.
var (
	errCost     = errors.New("the decision's expressions cost too much together")
	errNoAnswer = errors.New("the expression could not be compiled")
)

// value runs an expression. unknown says that the answer hangs on arguments nobody knows yet. A panic, an
// exceeded cost and any error come back as err: the caller goes to the strict side.
func (ev *evaluation) value(e *expr) (v ref.Val, unknown bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, unknown, err = nil, false, fmt.Errorf("evaluation failed: %v", r)
		}
	}()
	if e == nil || e.program == nil {
		return nil, false, errNoAnswer
	}
	ev.spentHere = 0
	if !ev.spend(e.nodes) {
		return nil, false, errCost
	}
	out, _, err := e.program.Eval(ev)
	if err != nil {
		return nil, false, err
	}
	if types.IsUnknown(out) {
		if ev.unknown() {
			return nil, true, nil
		}
		return nil, false, errors.New("the expression has no answer")
	}
	return out, false, nil
}

// condition asks a bool expression. An error is always told in cel-go's words.
func (ev *evaluation) condition(e *expr) (Outcome, error) {
	before := ev.ledger
	switch ev.lowered(e) {
	case triYes:
		return Matched, nil
	case triNo:
		return Unmatched, nil
	case triOpen:
		return Unknown, nil
	}
	ev.ledger = before
	return ev.slowly(e)
}

// test is condition for those who need no words.
func (ev *evaluation) test(e *expr) tri {
	before := ev.ledger
	if t := ev.direct(e); !ev.beyond {
		return t
	}
	ev.ledger = before
	switch out, _ := ev.slowly(e); out {
	case Matched:
		return triYes
	case Unmatched:
		return triNo
	case Unknown:
		return triOpen
	}
	return triBad
}

// slowly asks cel-go.
func (ev *evaluation) slowly(e *expr) (Outcome, error) {
	v, unknown, err := ev.value(e)
	switch {
	case err != nil:
		return Errored, err
	case unknown:
		return Unknown, nil
	}
	b, ok := v.(types.Bool)
	if !ok {
		return Errored, fmt.Errorf("the condition gave %s, not bool", v.Type().TypeName())
	}
	if b {
		return Matched, nil
	}
	return Unmatched, nil
}

// text asks a string expression.
func (ev *evaluation) text(e *expr) (string, error) {
	v, unknown, err := ev.value(e)
	if err != nil {
		return "", err
	}
	if unknown {
		return "", errors.New("it depends on arguments that are not known yet")
	}
	s, ok := v.(types.String)
	if !ok {
		return "", fmt.Errorf("the reason gave %s, not string", v.Type().TypeName())
	}
	return string(s), nil
}
