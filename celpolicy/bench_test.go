package celpolicy

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/callgate/callgate/specs"
)

// benchPolicy is 50 rules in 5 layers over 100 tools, half of the rules over arguments.
func benchPolicy(b *testing.B) *Policy {
	b.Helper()
	bundle := &specs.Bundle{Digest: "sha256:bench"}
	schema := specs.Schema{Raw: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["path","amount"],"properties":{"path":{"type":"string"},"amount":{"type":"integer"},"url":{"type":"string"}}}`)}
	for i := range 100 {
		bundle.Tools = append(bundle.Tools, &specs.Tool{Meta: specs.Meta{Name: fmt.Sprintf("fam%d.tool%02d", i%5, i)}, InputSchema: schema,
			Source: specs.ToolSource{Kind: specs.SourceBuiltIn}, Annotations: specs.Annotations{ReadOnly: i%2 == 0, Destructive: i%7 == 0, Cost: int64(i)}})
	}
	for l, layer := range ruleLayers {
		pol := &specs.Policy{Meta: specs.Meta{Name: string(layer)}, Layer: layer}
		rule := func(name string, effect specs.Effect, tools, when string) {
			pol.Rules = append(pol.Rules, specs.Rule{Name: name, Effect: effect, Tools: texts1(tools), When: specs.TextOf(when)})
		}
		fam := fmt.Sprintf("fam%d.*", l)
		rule("r0", specs.EffectDeny, fam, fmt.Sprintf(`tool.annotations.destructive && !("admin%d" in user.roles)`, l))
		rule("r1", specs.EffectDeny, fam, fmt.Sprintf(`args.path.contains("/secret%d")`, l))
		rule("r2", specs.EffectApprove, fam, fmt.Sprintf(`args.amount > %d`, 1000*(l+1)))
		rule("r3", specs.EffectApprove, "*", fmt.Sprintf(`tool.annotations.cost > %d`, 90+l))
		rule("r4", specs.EffectDeny, "*", fmt.Sprintf(`tenant.labels.region == "x%d"`, l))
		rule("r5", specs.EffectDeny, fam, fmt.Sprintf(`has(args.url) && !args.url.startsWith("https://api%d.")`, l))
		rule("r6", specs.EffectApprove, fam, `!path.within(args.path, "output") && !tool.annotations.readOnly`)
		rule("r7", specs.EffectDeny, "fam9.*", `true`)
		rule("r8", specs.EffectWaive, fam, fmt.Sprintf(`"ops%d" in user.roles && args.amount < 10`, l))
		rule("r9", specs.EffectDeny, "*", `user.labels.blocked == "yes"`)
		bundle.Policies = append(bundle.Policies, pol)
	}
	all := texts1("*")
	bundle.Profiles = []*specs.Profile{{Meta: specs.Meta{Name: "p"}, Tools: specs.ProfileTools{Allow: &all}}}
	p, err := Compile(bundle)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func benchInput() Input {
	return Input{Phase: PhaseCall, Args: json.RawMessage(`{"path":"output/a.md","amount":50}`), Now: TestNow, Run: RunFacts{ID: "r", Profile: "p"},
		User: UserFacts{ID: "ann", Roles: []specs.Role{"author", "ops1"}}, Tenant: TenantFacts{ID: "acme", Labels: map[string]string{"region": "eu"}}}
}

func BenchmarkResolve(b *testing.B) {
	p := benchPolicy(b)
	in := benchInput()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.Tool = p.names[i%len(p.names)]
		p.Resolve(in)
	}
}

func BenchmarkResolveTraced(b *testing.B) {
	p := benchPolicy(b)
	in := benchInput()
	in.Trace = true
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.Tool = p.names[i%len(p.names)]
		p.Resolve(in)
	}
}

func BenchmarkList100(b *testing.B) {
	p := benchPolicy(b)
	in := benchInput()
	b.ReportAllocs()
	for b.Loop() {
		p.List(in)
	}
}

func BenchmarkCompile(b *testing.B) {
	bundle := benchPolicy(b).Bundle()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(bundle); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	p := benchPolicy(b)
	in := benchInput()
	in.Parsed, _ = ParseArgs(in.Args)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.Tool = p.names[i%len(p.names)]
		p.Check(&in)
	}
}

func BenchmarkSurfaceCheck(b *testing.B) {
	p := benchPolicy(b)
	in := benchInput()
	s := p.Surface(in)
	m := Moment{Args: in.Args, Now: in.Now}
	m.Parsed, _ = ParseArgs(in.Args)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Check(p.names[i%len(p.names)], &m)
	}
}

func BenchmarkVisible100(b *testing.B) {
	p := benchPolicy(b)
	in := benchInput()
	b.ReportAllocs()
	for b.Loop() {
		p.Visible(in)
	}
}
