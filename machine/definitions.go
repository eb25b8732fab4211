package machine

import (
	"embed"
	"fmt"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/callgate/callgate/specs"
)

//go:embed definitions/*.yaml
var definitions embed.FS

var (
	callTable       = sync.OnceValue(func() *Table { return shipped("call") })
	approvalTable   = sync.OnceValue(func() *Table { return shipped("approval") })
	invocationTable = sync.OnceValue(func() *Table { return shipped("invocation") })
	runTable        = sync.OnceValue(func() *Table { return shipped("run") })
)

// Call is the lifecycle of one tool call, definitions/call.yaml.
func Call() *Table { return callTable() }

// Approval is the lifecycle of one request for approval, definitions/approval.yaml.
func Approval() *Table { return approvalTable() }

// Invocation is the lifecycle of one agent's turn of duty, definitions/invocation.yaml.
func Invocation() *Table { return invocationTable() }

// Run is the lifecycle of one run, definitions/run.yaml.
func Run() *Table { return runTable() }

// All lists the shipped tables by name: approval, call, invocation, run.
func All() []*Table { return []*Table{Approval(), Call(), Invocation(), Run()} }

// shipped makes a table of a document that is part of this program. A fault in one is a fault of the
// build, not of anybody's input, and no answer on it would be safe: the program must not go on.
func shipped(name string) *Table {
	file := "definitions/" + name + ".yaml"
	data, err := definitions.ReadFile(file)
	if err != nil {
		panic(err)
	}
	doc, err := decode(file, data)
	if err != nil {
		panic(err)
	}
	table, err := New(doc)
	if err != nil {
		panic(fmt.Errorf("shipped machine %s: %w", name, err))
	}
	return table
}

func decode(file string, data []byte) (*specs.Machine, error) {
	var raw struct {
		Metadata struct{ Name string }
		Spec     struct {
			Initial, Birth string
			States, Final  []string
			Waiting        []struct{ State, Owner, Timer string }
			Events         []struct {
				Name, To, Journal, Description string
				From                           []string
			}
			Invariants []struct{ Name, Check string }
		}
	}
	if err := yaml.Unmarshal(data, &raw); err != nil {
		return nil, err
	}
	texts := func(list []string) (out []specs.Text) {
		for _, s := range list {
			out = append(out, specs.TextOf(s))
		}
		return out
	}
	doc := &specs.Machine{Initial: specs.TextOf(raw.Spec.Initial), Birth: raw.Spec.Birth,
		Final: texts(raw.Spec.Final), States: texts(raw.Spec.States)}
	doc.Meta = specs.Meta{Kind: specs.KindMachine, Name: raw.Metadata.Name, Pos: specs.Pos{File: file}, Shipped: true}
	for _, w := range raw.Spec.Waiting {
		doc.Waiting = append(doc.Waiting, specs.MachineWait{State: specs.TextOf(w.State), Owner: w.Owner, Timer: w.Timer})
	}
	for _, e := range raw.Spec.Events {
		doc.Events = append(doc.Events, specs.MachineEvent{Name: specs.TextOf(e.Name), From: texts(e.From),
			To: specs.TextOf(e.To), Journal: e.Journal, Describe: e.Description})
	}
	for _, i := range raw.Spec.Invariants {
		doc.Invariants = append(doc.Invariants, specs.MachineInvariant{Name: i.Name, Check: specs.TextOf(i.Check)})
	}
	return doc, nil
}
