package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// planNode is the node the run is in; nil without a plan.
func planNode(b *specs.Bundle, run persistence.Run) *specs.PlanNode {
	if run.Plan == "" {
		return nil
	}
	return nodeOf(b.Plan(run.Plan), run.Node)
}

func nodeOf(p *specs.Plan, id specs.NodeID) *specs.PlanNode {
	if p == nil {
		return nil
	}
	for i := range p.Nodes {
		if p.Nodes[i].ID == id {
			return &p.Nodes[i]
		}
	}
	return nil
}

// choosePlan finds the plan of a new run: the one it names, else the first by name that says it holds for the profile.
func choosePlan(b *specs.Bundle, name string, profile specs.ProfileName) (*specs.Plan, error) {
	var p *specs.Plan
	if name != "" {
		if p = b.Plan(name); p == nil {
			return nil, &RequestError{Field: "plan", Why: fmt.Sprintf("the bundle has no plan %q", name)}
		}
	} else {
		i := slices.IndexFunc(b.Plans, func(p *specs.Plan) bool {
			return slices.ContainsFunc(p.Profiles, func(g specs.Text) bool { return specs.Glob(g.Value, string(profile)) })
		})
		if i < 0 {
			return nil, nil
		}
		p = b.Plans[i]
	}
	// A plan that promises more than this loop keeps is refused: to run it loosely would be to lie about it.
	if p.Mode != specs.PlanFree && p.Mode != "" {
		return nil, &RequestError{Field: "plan", Why: fmt.Sprintf("plan %q is %s; runs follow free plans only", p.Name, p.Mode)}
	}
	for _, n := range p.Nodes {
		if n.Approval != nil {
			return nil, &RequestError{Field: "plan", Why: fmt.Sprintf("node %q of plan %q asks for an approval before it starts, which runs do not do; put an approve rule on its tools", n.ID, p.Name)}
		}
	}
	return p, nil
}

// nextNode says where the plan goes from here, by its first transition whose condition holds.
func (s *shift) nextNode(ctx context.Context, run persistence.Run, c *tools.Compiled) (*specs.PlanNode, error) {
	if run.Plan == "" {
		return nil, nil
	}
	in, _, err := s.c.Dispatcher.Facts(ctx, s.scope(run))
	if err != nil {
		return nil, err
	}
	id, moves, err := c.Policy.NextNode(run.Plan, in)
	if err != nil {
		return nil, &failure{code: "plan.transition_failed", reason: err.Error()}
	}
	if !moves || id == run.Node {
		return nil, nil
	}
	node := nodeOf(c.Bundle.Plan(run.Plan), id)
	if node == nil {
		return nil, tools.Systemf("policy.unavailable", "plan %s has no node %q", run.Plan, id)
	}
	return node, nil
}

// enter puts the run into a node: the line, the guidance as a blob, and the fields of the run that the next move stores.
// A node with a profile of its own puts that profile in place of the run's; the root invocation keeps the run's own.
func enter(st *story, plan string, node *specs.PlanNode, own specs.ProfileName) []persistence.Blob {
	var blobs []persistence.Blob
	p := nodePayload{Plan: plan, Node: node.ID, Title: node.Title, From: st.run.Node}
	if text := nodeText(node); text != "" {
		blob := persistence.BlobOf("text/plain", []byte(text))
		blobs, p.Guidance = append(blobs, blob), blob.Digest
	}
	st.line(persistence.KindNodeEntered, p)
	st.run.Node, st.run.NodeRounds, st.run.Profile = node.ID, 0, own
	if node.Profile != "" {
		st.run.Profile = node.Profile
	}
	return blobs
}

// nodeText is what the model is told when a node begins.
func nodeText(n *specs.PlanNode) string {
	title := n.Title
	if title == "" {
		title = string(n.ID)
	}
	text := fmt.Sprintf("The plan is now at the step %q.", title)
	if n.Guidance != "" {
		text += "\n" + n.Guidance
	}
	for _, a := range n.Artifacts {
		text += fmt.Sprintf("\nThe step should leave behind %s.", a.Path)
	}
	return text
}
