package machine

import (
	"embed"
	"fmt"
	"sync"

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
	// The same strict reading that a user's own document gets.
	bundle, err := specs.LoadFiles([]specs.File{{Name: file, Data: data}}, specs.LoadOptions{NoCatalog: true})
	if err != nil {
		panic(fmt.Errorf("shipped machine %s: %w", name, err))
	}
	doc := bundle.Machines[0]
	doc.Shipped = true
	table, err := New(doc)
	if err != nil {
		panic(fmt.Errorf("shipped machine %s: %w", name, err))
	}
	return table
}
