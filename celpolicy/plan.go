package celpolicy

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

type compiledPlan struct {
	doc         *specs.Plan
	nodes       map[specs.NodeID]*planNode
	transitions []compiledTransition
}

type planNode struct {
	plan string
	node *specs.PlanNode
}

type compiledTransition struct {
	from, to specs.NodeID
	when     *expr // nil: always
}

func (c *compiler) compilePlan(doc *specs.Plan) *compiledPlan {
	out := &compiledPlan{doc: doc, nodes: map[specs.NodeID]*planNode{}}
	for i := range doc.Nodes {
		n := &doc.Nodes[i]
		out.nodes[n.ID] = &planNode{plan: doc.Name, node: n}
	}
	why := "a plan moves between calls, by the run's facts"
	for _, t := range doc.Transitions {
		ct := compiledTransition{from: t.From, to: t.To}
		if t.When.Value != "" || !t.When.Pos.IsZero() {
			ct.when = c.check(use{text: t.When, what: "a transition", want: types.BoolType,
				forbid: map[string]string{varArgs: why, varTool: why, varCall: why}})
		}
		out.transitions = append(out.transitions, ct)
	}
	return out
}

// NextNode gives the node that a plan moves to from in.Run.Node (from nowhere: its initial node), and false
// when it stays. Transitions are tried in the order they are written; the first whose condition holds wins. A
// condition that errors does not move the plan: the error says which, and the caller journals it.
func (p *Policy) NextNode(plan string, in Input) (specs.NodeID, bool, error) {
	c, ok := p.plans[plan]
	if !ok {
		return "", false, fmt.Errorf("no plan %q in this bundle", plan)
	}
	if in.Run.Node == "" {
		start := c.doc.Initial
		if start == "" && len(c.doc.Nodes) > 0 {
			start = c.doc.Nodes[0].ID
		}
		return start, start != "", nil
	}
	if c.nodes[in.Run.Node] == nil {
		return "", false, fmt.Errorf("plan %q has no node %q", plan, in.Run.Node)
	}
	ev := p.evaluation(&in, seesAll)
	defer ev.release()
	for _, t := range c.transitions {
		if t.from != in.Run.Node {
			continue
		}
		if t.when == nil {
			return t.to, true, nil
		}
		switch got, err := ev.condition(t.when); got {
		case Matched:
			return t.to, true, nil
		case Errored:
			return "", false, fmt.Errorf("plan %q, %s to %s: %w", plan, t.from, t.to, err)
		}
	}
	return "", false, nil
}

// activeNode finds the plan node that a run is in. A node that no plan has is an error: its denies cannot be
// read. A bare node id is enough while only one plan has it; "plan/node" always is.
func (p *Policy) activeNode(plan string, id specs.NodeID) (*planNode, error) {
	if id == "" {
		return nil, nil
	}
	if name, node, ok := strings.Cut(string(id), "/"); ok && plan == "" {
		plan, id = name, specs.NodeID(node)
	}
	if plan != "" {
		c, ok := p.plans[plan]
		if !ok {
			return nil, fmt.Errorf("there is no plan %q in this bundle", plan)
		}
		if n := c.nodes[id]; n != nil {
			return n, nil
		}
		return nil, fmt.Errorf("plan %q has no node %q", plan, id)
	}
	switch found := p.nodes[id]; len(found) {
	case 0:
		return nil, fmt.Errorf("no plan of this bundle has a node %q", id)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("several plans have a node %q: name the plan", id)
}
