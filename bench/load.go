package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
)

// load times the way from YAML text to a compiled policy: 1,000 tool specs of 40-odd lines, 500 rules of 50 distinct texts.
func load(s settings) error {
	files := manyTools(1000, 500)
	var bytes int
	for _, f := range files {
		bytes += len(f.Data)
	}
	var loads, compiles []float64
	var before, after runtime.MemStats
	for range s.rounds {
		runtime.GC()
		runtime.ReadMemStats(&before)
		t0 := time.Now()
		b, err := specs.LoadFiles(files, specs.LoadOptions{})
		if err != nil {
			return err
		}
		t1 := time.Now()
		p, err := celpolicy.Compile(b)
		if err != nil {
			return err
		}
		loads, compiles = append(loads, t1.Sub(t0).Seconds()), append(compiles, time.Since(t1).Seconds())
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(p)
	}
	l, c := median(loads), median(compiles)
	fmt.Printf("%d files, %.1f MB of YAML\n", len(files), float64(bytes)/1e6)
	fmt.Printf("load %.0f ms, compile %.0f ms, together %.0f ms; %.1f MB live\n", l*1e3, c*1e3, (l+c)*1e3, float64(after.HeapAlloc-before.HeapAlloc)/1e6)
	result("load/second", l+c, "<=1", l+c <= 1)
	return nil
}

func manyTools(tools, rules int) []specs.File {
	var files []specs.File
	for i := range tools {
		files = append(files, specs.File{Name: fmt.Sprintf("tools/t%04d.yaml", i), Data: fmt.Appendf(nil, `apiVersion: callgate/v1
kind: Tool
metadata:
  name: payments.t%[1]d
spec:
  title: Payment tool %[1]d
  source: built_in
  description: Sends a payment to an account after the policy allows it.
  annotations:
    sideEffect: network
    readOnly: false
    destructive: true
    openWorld: true
    cost: %[2]d
  visibility: 'tenant.labels.plan != "trial"'
  permission: approval
  budget:
    maxCalls: 'tenant.labels.plan == "pro" ? 200 : 40'
    timeout: 10s
  inputSchema:
    type: object
    additionalProperties: false
    required: [amount, currency, to]
    properties:
      amount:
        type: integer
        minimum: 1
        maximum: %[3]d
      currency:
        type: string
        enum: [EUR, USD, GBP]
      to:
        type: string
        pattern: "^acct_[0-9]{16}$"
      note:
        type: string
        maxLength: 140
      tags:
        type: array
        maxItems: 8
        items:
          type: string
`, i, i%100, 1000+i)})
	}
	var b strings.Builder
	b.WriteString("apiVersion: callgate/v1\nkind: Policy\nmetadata: {name: many}\nspec:\n  layer: profile\n  rules:\n")
	for i := range rules {
		fmt.Fprintf(&b, "    - {name: r%d, tools: [\"payments.t%d\", \"payments.t%d\"], effect: approve, when: 'args.amount > %d && args.currency in [\"EUR\", \"USD\"]'}\n", i, i*2%tools, (i*2+1)%tools, 100*(i%50))
	}
	b.WriteString("---\napiVersion: callgate/v1\nkind: Profile\nmetadata: {name: p}\nspec:\n  instructions: Work.\n  model: {provider: scripted}\n  tools: {allow: [\"payments.*\"]}\n")
	return append(files, specs.File{Name: "policy.yaml", Data: []byte(b.String())})
}
