package celpolicy

import (
	"encoding/json"
	"testing"

	"github.com/callgate/callgate/specs"
)

// FuzzResolveArgs throws bytes at a policy that looks at its arguments in every way: no panic, an answer each time,
// the same one twice, and never a yes for bytes that are not a strict JSON object.
func FuzzResolveArgs(f *testing.F) {
	for _, seed := range []string{`{}`, `{"path":"output/a","count":1,"price":1.5,"tags":["a"],"mode":"append"}`, `{"path":"../x"}`, `{"count":9223372036854775808}`,
		`{"where":{"host":"x","port":-1}}`, `{"env":{"a":1}}`, `{"loop":{"next":{"next":{}}}}`, `[`, `{"a":1,"a":2}`, "\xff", `{"price":1e400}`, `{"either":null,"free":{"x":[[[]]]}}`} {
		f.Add([]byte(seed))
	}
	b := load(f, toolDoc("w.write", writeSchema), doc("Profile", "p", "{tools: {allow: [w.write]}}"))
	for i, when := range []string{
		`path.within(args.path, "output")`, `args.count > 5 && args.price < 2.0`, `args.tags.exists(t, t.matches("^a+$"))`, `args.?mode.orValue("") == "append"`,
		`has(args.where) && has(args.where.port) && args.where.port / args.where.port == 1`, `has(args.env) && args.env.exists(k, args.env[k] == "x")`,
		`has(args.free) && args.free == {"x": [1, 2.5, "y", null]}`, `has(args.either) && args.either == 3`, `args.path.replace("a", args.path).size() > 3`,
		`has(args.loop) && args.loop.?next.?next.hasValue()`, `size(args.tags.distinct()) < size(args.tags)`,
	} {
		effect := []specs.Effect{specs.EffectDeny, specs.EffectApprove, specs.EffectAllow}[i%3]
		b.Policies = append(b.Policies, &specs.Policy{Meta: specs.Meta{Name: policyName(i)}, Layer: specs.LayerProfile,
			Rules: []specs.Rule{{Name: "one", Tools: texts1("*"), Effect: effect, When: specs.TextOf(when)}}})
	}
	p, err := Compile(b)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		in := Input{Phase: PhaseCall, Tool: "w.write", Args: json.RawMessage(args), Run: RunFacts{Profile: "p"}, Now: TestNow, Trace: true}
		d := p.Resolve(in)
		if d.PolicyDigest != p.Digest() || d.Tool != "w.write" || d.Callable == (d.Code != "") {
			t.Fatalf("%s", bytesOf1(t, d))
		}
		var object map[string]any
		if json.Unmarshal(args, &object) != nil && len(args) > 0 && d.Callable {
			t.Fatalf("%q is callable", args)
		}
		if bytesOf1(t, p.Resolve(in)) != bytesOf1(t, d) {
			t.Fatalf("%q decides otherwise the second time", args)
		}
	})
}

// FuzzCondition throws text at the compiler: every text is a policy that decides or a finding with a place, and a
// condition that loads gives one of its outcomes within its cost.
func FuzzCondition(f *testing.F) {
	for _, seed := range []string{`args.path == "x"`, `args.tags.exists(t, t == "a") ? true : false`, `has(args.where.port) && args.?where.port == optional.of(1)`, `{"a": [1, 2.0]}.a[0] == 1`,
		`"` + "\u0000" + `"`, `args["path"]`, `[1,2,3].map(x, x * 2).filter(y, y > 2).size() == 2`, `args.tags.map(t, args.tags.map(u, t + u)) != []`, `!`, `a.b.c.d(e)`, `@tick(1)`, `timestamp("2026-01-01T00:00:00Z") < now`,
		`args.path.matches(args.path)`, `'%d'.format([args.count]) == ""`, `b"\xff" == bytes(args.path)`, `args == {} || args.tags[9223372036854775807] == ""`} {
		f.Add(seed)
	}
	b := load(f, toolDoc("w.write", writeSchema), doc("Profile", "p", "{tools: {allow: [w.write]}}"))
	f.Fuzz(func(t *testing.T, when string) {
		bundle := &specs.Bundle{Tools: b.Tools, Profiles: b.Profiles, Policies: []*specs.Policy{{Meta: specs.Meta{Name: "pol"}, Layer: specs.LayerPlatform,
			Rules: []specs.Rule{{Name: "one", Tools: texts1("*"), Effect: specs.EffectDeny, When: specs.Text{Value: when, Pos: specs.Pos{File: "f", Line: 1, Col: 1}}}}}}}
		p, err := Compile(bundle)
		if err != nil {
			if ds, ok := specs.AsDiagnostics(err); !ok || len(ds) == 0 || ds[0].Pos.Line == 0 || ds[0].Message == "" {
				t.Fatalf("%q: %v", when, err)
			}
			return
		}
		for _, phase := range []Phase{PhaseList, PhaseCall} {
			d := p.Resolve(Input{Phase: phase, Tool: "w.write", Args: json.RawMessage(`{"path":"output/a","count":3,"price":1.5,"tags":["a","b"],"where":{"host":"h"}}`),
				Run: RunFacts{Profile: "p"}, Now: TestNow, Trace: true})
			v := d.Trace[0]
			if v.Outcome == Unknown && phase != PhaseList || v.Outcome == Matched && d.Callable || v.Outcome == Errored && d.Callable {
				t.Fatalf("%q in %s: %s and callable %v", when, phase, v.Outcome, d.Callable)
			}
		}
	})
}
