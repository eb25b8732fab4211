package celpolicy

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/callgate/callgate/specs"
)

// The long run is `go test ./celpolicy -run TestLowered -lower.cases 1000000000 -lower.seed 1`.
var (
	lowerCases = flag.Int("lower.cases", 20_000, "random cases of lowered expressions against cel-go")
	lowerSeed  = flag.Uint64("lower.seed", 20261203, "seed of these cases")
)

// exprGen writes random expressions, mostly of the lowered subset, with types that often fit and sometimes do not.
type exprGen struct{ *rand.Rand }

func (g exprGen) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g exprGen) cond(depth int) string {
	if depth <= 0 {
		return g.leaf()
	}
	switch g.IntN(10) {
	case 0, 1:
		return "(" + g.cond(depth-1) + " && " + g.cond(depth-1) + ")"
	case 2, 3:
		return "(" + g.cond(depth-1) + " || " + g.cond(depth-1) + ")"
	case 4:
		return "!(" + g.cond(depth-1) + ")"
	case 5:
		return "(" + g.cond(depth-1) + " ? " + g.cond(depth-1) + " : " + g.cond(depth-1) + ")"
	case 6:
		return "(" + g.cond(depth-1) + " && " + g.cond(depth-1) + " && " + g.cond(depth-1) + ")"
	}
	return g.leaf()
}

func (g exprGen) leaf() string {
	switch g.IntN(16) {
	case 0:
		return g.pick("true", "false", "tool.annotations.readOnly", "tool.annotations.destructive", "args.flag", "tool.source.accepted", "tool.annotations.costUnknown")
	case 1:
		return "has(" + g.pick("args.a", "args.n", "args.o", "args.o.a", "args.o.a.b", "args.zz", "user.labels.tier", "tenant.labels.a", "run.node", "tool.name", "tool.annotations.destructive", "run.depth", "run.labels.x") + ")"
	case 2, 3, 4:
		return g.value(2) + g.pick(" == ", " != ") + g.value(1)
	case 5, 6:
		return g.value(2) + g.pick(" < ", " <= ", " > ", " >= ") + g.value(1)
	case 7:
		return g.text(1) + " in user.roles"
	case 8:
		return g.value(1) + " in " + g.pick("['a', 'b', 'ann']", "[1, 2, 3]", "['a', 1, null]", "[1.0, 2.5]", "[]", "[true]")
	case 9, 10:
		return g.text(1) + "." + g.pick("contains", "startsWith", "endsWith") + "(" + g.text(1) + ")"
	case 11:
		return g.text(1) + ".matches(" + g.pick("'^a+$'", "'.*b'", "'a|b'", "'[0-9]{2,5}'", "''") + ")"
	case 12:
		return "glob(" + g.text(1) + ", " + g.pick("'a*'", "'*'", "'?b'", g.text(0)) + ")"
	case 13:
		return "path.within(" + g.text(1) + ", " + g.pick("'output'", "'a'", g.text(0)) + ")"
	case 14:
		return "args.?" + g.pick("a", "o.?a", "zz", "o.?a.?b", "n.?x") + ".hasValue()"
	}
	return g.pick("args.flag", "args.a", "args.n", "args.o", "user.id", "run.round == 3", "call.repeat > 1", "budget.used.calls < 5")
}

func (g exprGen) value(depth int) string {
	switch g.IntN(8) {
	case 0, 1, 2:
		return g.text(depth)
	case 3, 4:
		return g.number(depth)
	case 5:
		return g.pick("null", "true", "false", "1.5", "2.0", "-0.5", "9007199254740993", "9223372036854775807", "-1", "0")
	case 6:
		return g.pick("args.flag", "args.list", "args.o", "args.o.a", "args.o.a.b", `args["a"]`, `args["o"]["a"]`, "args.big", "args.d", "args.zz")
	}
	if depth <= 0 {
		return g.pick("args.a", "args.n")
	}
	return "(" + g.leaf() + " ? " + g.value(depth-1) + " : " + g.value(depth-1) + ")"
}

func (g exprGen) text(depth int) string {
	if depth > 0 && g.IntN(6) == 0 {
		return "(" + g.text(depth-1) + " + " + g.text(depth-1) + ")"
	}
	return g.pick("args.a", "args.b", "args.o.a", "args.?a.orValue('b')", "args.?o.?a.orValue('')", "args.n", "'a'", "'b'", "'ann'", "''", "'output/x'", "'aé中'", "user.id",
		"tenant.id", "user.labels.tier", `tenant.labels["a"]`, "run.labels.x", "tool.name", "tool.permission", "tool.source.kind", "tool.annotations.sideEffect", "run.profile", "run.node", "run.plan", "run.id", "args.long")
}

func (g exprGen) number(depth int) string {
	if depth > 0 && g.IntN(4) == 0 {
		return "(" + g.number(depth-1) + g.pick(" + ", " - ", " * ", " / ", " % ") + g.number(depth-1) + ")"
	}
	if depth > 0 && g.IntN(8) == 0 {
		return "-" + g.number(0)
	}
	return g.pick("args.n", "args.d", "args.big", "args.o.n", "size(args.a)", "size(args.list)", "args.list.size()", "size(user.roles)", "size(args.o)", "size('aé')", "0", "1", "2", "7", "-3",
		"9223372036854775807", "tool.annotations.cost", "run.round", "run.depth", "run.calls", "run.commits", "run.nodeRounds", "call.sequence", "call.repeat", "budget.used.cost", "args.?n.orValue(1)")
}

func (g exprGen) args() json.RawMessage {
	switch g.IntN(20) {
	case 0:
		return nil
	case 1:
		return json.RawMessage(g.pick(`[`, `[]`, `{"a":1,"a":2}`, `{"a":`, `nul`, "{\"a\":\"\xff\"}"))
	}
	var parts []string
	for _, name := range []string{"a", "b", "n", "d", "big", "flag", "list", "o", "long", "x1", "x2", "x3"} {
		if g.IntN(3) != 0 {
			parts = append(parts, fmt.Sprintf("%q:%s", name, g.json(name, 2)))
		}
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}")
}

func (g exprGen) json(name string, depth int) string {
	if g.IntN(5) == 0 {
		name = g.pick("a", "n", "d", "big", "flag", "list", "o", "null")
	}
	switch name {
	case "n":
		return g.pick("0", "1", "2", "7", "-3", "9223372036854775807", "-9223372036854775808")
	case "d":
		return g.pick("1.5", "2", "2.0", "1e3", "-0.0", "9007199254740993", "1e308", "0.5")
	case "big":
		return g.pick("9007199254740993", "1e400", "9223372036854775808", "1e19", "123456789012345678901234567890")
	case "flag":
		return g.pick("true", "false")
	case "null":
		return "null"
	case "list":
		return g.pick("[]", `["a"]`, `[1,2.5,"b"]`, `[[1],{}]`)
	case "long":
		return `"` + strings.Repeat(g.pick("a", "b", "é"), g.IntN(900)) + `"`
	case "o":
		if depth <= 0 {
			return "{}"
		}
		var parts []string
		for _, n := range []string{"a", "n", "b"} {
			if g.IntN(2) == 0 {
				parts = append(parts, fmt.Sprintf("%q:%s", n, g.json(g.pick(n, "o"), depth-1)))
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return g.pick(`"a"`, `"b"`, `""`, `"ann"`, `"aaa"`, `"output/x"`, `"../x"`, `"aé中"`, `"12345"`)
}

func (g exprGen) input() Input {
	labels := func() map[string]string {
		m := map[string]string{}
		for _, k := range []string{"tier", "a", "x"} {
			if g.IntN(2) == 0 {
				m[k] = g.pick("a", "b", "", "pro")
			}
		}
		return m
	}
	in := Input{Phase: PhaseCall, Tool: "t", Args: g.args(),
		Run: RunFacts{ID: "r1", Labels: labels(), Profile: specs.ProfileName(g.pick("p", "a")), Plan: g.pick("", "b"), Node: specs.NodeID(g.pick("", "n")), Round: g.Int64N(5), NodeRounds: g.Int64N(3),
			Depth: g.Int64N(2), Commits: g.Int64N(2), Calls: g.Int64N(9)},
		User: UserFacts{ID: specs.UserID(g.pick("ann", "bob")), Labels: labels()}, Tenant: TenantFacts{ID: "a", Labels: labels()},
		Call: CallFacts{Sequence: g.Int64N(4), Repeat: g.Int64N(3)}, Budget: BudgetFacts{Used: map[string]int64{"calls": g.Int64N(9), "cost": g.Int64N(3)}}, Now: time.Unix(0, 0).UTC()}
	for _, r := range []specs.Role{"a", "b", "ann", "author"} {
		if g.IntN(2) == 0 {
			in.User.Roles = append(in.User.Roles, r)
		}
	}
	if g.IntN(2) == 0 {
		in.Parsed, _ = ParseArgs(in.Args)
	}
	return in
}

// loweredTools have arguments of different types, so that the same text of a number is a whole number, a double or neither.
func loweredTools(t *testing.T) *Policy {
	b := load(t,
		toolDoc("open", `{type: object}`),
		toolDoc("whole", `{type: object, additionalProperties: false, properties: {a: {type: string}, "n": {type: integer}, big: {type: integer}, o: {type: object, additionalProperties: false, properties: {a: {type: string}, "n": {type: integer}}}}}`),
		toolDoc("double", `{type: object, additionalProperties: false, properties: {"n": {type: number}, d: {type: number}, big: {type: number}, o: {type: object, additionalProperties: false, properties: {"n": {type: number}}}, list: {type: array, items: {type: number}}}}`),
	)
	p, err := Compile(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLoweredAgreesWithCEL is the law of the lowered form: whatever cel-go answers, it answers, for the same price; where it
// has no answer it says so; and what it answers without seeing everything stays true when everything is seen.
func TestLoweredAgreesWithCEL(t *testing.T) {
	t.Parallel()
	p := loweredTools(t)
	const workers, inputs = 2, 64
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		total lowerTally
	)
	for w := range workers {
		wg.Go(func() {
			got := lowerTally{}
			c, err := newCompiler(p.bundle)
			if err != nil {
				t.Error(err)
				return
			}
			g := exprGen{rand.New(rand.NewPCG(*lowerSeed, uint64(w)))}
			for got.cases < *lowerCases/workers && !t.Failed() {
				got.add(compareLowered(t, p, c, g, inputs))
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(got)
		})
	}
	wg.Wait()
	t.Logf("seed %d: %d expressions, %d of them lowered, %d cases: %d true, %d false, %d unknown, %d errors, %d left to cel-go",
		*lowerSeed, total.expressions, total.lowered, total.cases, total.yes, total.no, total.open, total.bad, total.beyond)
	if total.lowered*10 < total.expressions*8 {
		t.Errorf("only %d of %d expressions of the subset were lowered", total.lowered, total.expressions)
	}
	if total.yes == 0 || total.no == 0 || total.open == 0 || total.bad == 0 || total.beyond*4 > total.cases {
		t.Error("the cases do not spread over all outcomes")
	}
}

type lowerTally struct{ expressions, lowered, cases, yes, no, open, bad, beyond int }

func (x *lowerTally) add(y lowerTally) {
	x.expressions += y.expressions
	x.lowered += y.lowered
	x.cases += y.cases
	x.yes += y.yes
	x.no += y.no
	x.open += y.open
	x.bad += y.bad
	x.beyond += y.beyond
}

// compareLowered compares one random expression on some random inputs.
func compareLowered(t *testing.T, p *Policy, c *compiler, g exprGen, inputs int) (n lowerTally) {
	n.expressions = 1
	text := g.cond(g.IntN(4))
	clear(c.memo)
	e := c.expression(text)
	if e.program == nil {
		return lowerTally{} // its types are wrong, and it does not load
	}
	if e.lowered == nil {
		return n
	}
	n.lowered = 1
	for range inputs {
		if t.Failed() {
			break
		}
		in := g.input()
		entry := p.tools[specs.ToolName(g.pick("open", "whole", "double"))]
		full := triBad
		for _, sees := range []sight{seesAll, seesState, seesSubject, seesTool} {
			ev := p.evaluation(&in, sees)
			ev.at(entry)
			got := ev.lowered(e)
			spent, beyond := ev.spent, ev.beyond
			ev.release()
			if beyond {
				n.beyond++
				if sees == seesAll {
					break
				}
				continue
			}
			if sees < seesState {
				if got != triOpen && got != full {
					t.Errorf("%s\nargs %.300s: at sight %d it is %d, with everything seen %d", text, in.Args, sees, got, full)
				}
				continue
			}
			if sees == seesAll {
				full = got
			}
			n.cases++
			compareOne(t, p, e, &in, entry, sees, got, spent, &n)
		}
	}
	return n
}

func compareOne(t *testing.T, p *Policy, e *expr, in *Input, entry *toolEntry, sees sight, got tri, spent uint64, n *lowerTally) {
	ev := p.evaluation(in, sees)
	defer ev.release()
	ev.at(entry)
	want, err := ev.slowly(e)
	var same bool
	switch got {
	case triYes:
		n.yes++
		same = want == Matched
	case triNo:
		n.no++
		same = want == Unmatched
	case triOpen:
		n.open++
		same = want == Unknown
	case triBad:
		n.bad++
		same = want == Errored
	}
	if !same {
		t.Errorf("%s\nargs %.300s, tool %s, sight %d: lowered %d, cel-go %s %v", e.text, in.Args, entry.tool.Name, sees, got, want, err)
		return
	}
	if got != triBad && ev.spent != spent {
		t.Errorf("%s\nargs %.300s, sight %d: lowered costs %d, cel-go %d", e.text, in.Args, sees, spent, ev.spent)
	}
	if most := e.cost.most(len(in.Args), weighRoles(in.User.Roles)); got != triBad && spent > most {
		t.Errorf("%s\nargs %.300s: it cost %d, at most %d were promised", e.text, in.Args, spent, most)
	}
}
