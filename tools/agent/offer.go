package agent

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
)

// The tools whose calls move the run itself.
const (
	toolCommit specs.ToolName = "workspace.commit"
	toolFinish specs.ToolName = "workspace.finish"
)

// offer gives the tools of the next request: exactly those that policy shows, by canonical name.
func (s *shift) offer(ctx context.Context, run persistence.Run, b *specs.Bundle, profile *specs.Profile) ([]provider.Tool, error) {
	scope := s.scope(run)
	scope.Turn = run.Round + 1
	decisions, _, err := s.c.Dispatcher.List(ctx, scope)
	if err != nil {
		return nil, err
	}
	var visible []specs.ToolName
	for _, d := range decisions {
		if d.Visible {
			visible = append(visible, d.Tool)
		}
	}
	return wire(b, profile, planNode(b, run), visible)
}

// wire turns visible tools into what goes to the model, on copies: the descriptions that the profile and the plan node
// put in place of the author's own never reach the canonical specs. A list that is not exactly the visible one is a
// system failure, asserted here on every request.
func wire(b *specs.Bundle, profile *specs.Profile, node *specs.PlanNode, visible []specs.ToolName) ([]provider.Tool, error) {
	slices.Sort(visible)
	out := make([]provider.Tool, 0, len(visible))
	aliases := map[specs.Alias]specs.ToolName{}
	for _, name := range visible {
		t := b.Tool(name)
		if t == nil {
			return nil, tools.Systemf("tools.list_mismatch", "policy shows %s, which the bundle does not have", name)
		}
		p := provider.Tool{Name: name, Alias: specs.AliasOf(name), Title: t.Title, Description: t.Describe.Value, InputSchema: t.InputSchema.Raw}
		if other, taken := aliases[p.Alias]; taken {
			return nil, tools.Systemf("tools.list_mismatch", "%s and %s have one alias %s", other, name, p.Alias)
		}
		aliases[p.Alias] = name
		if len(p.InputSchema) == 0 {
			p.InputSchema = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
		}
		for _, o := range overrides(profile, node) {
			if text, ok := o.Describe[string(name)]; ok {
				p.Description = text.Value
			}
			schema, err := redescribe(p.InputSchema, o.Parameters[string(name)])
			if err != nil {
				return nil, tools.Systemf("tools.list_mismatch", "schema of %s: %w", name, err)
			}
			p.InputSchema = schema
		}
		out = append(out, p)
	}
	if !slices.EqualFunc(out, visible, func(t provider.Tool, n specs.ToolName) bool { return t.Name == n }) || len(aliases) != len(visible) {
		return nil, tools.Systemf("tools.list_mismatch", "the list for the model is not the visible one")
	}
	return out, nil
}

func overrides(profile *specs.Profile, node *specs.PlanNode) []specs.ProfileTools {
	if node == nil {
		return []specs.ProfileTools{profile.Tools}
	}
	return []specs.ProfileTools{profile.Tools, node.Tools}
}

// redescribe puts texts in place of the descriptions of top-level parameters. Everything else keeps its bytes.
func redescribe(schema json.RawMessage, texts map[string]specs.Text) (json.RawMessage, error) {
	if len(texts) == 0 {
		return schema, nil
	}
	var top, props map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil {
		return nil, err
	}
	if len(top["properties"]) == 0 {
		return schema, nil
	}
	if err := json.Unmarshal(top["properties"], &props); err != nil {
		return nil, err
	}
	for name, text := range texts {
		var prop map[string]json.RawMessage
		// A property that is `true` or absent has no description to put another in place of.
		if err := json.Unmarshal(props[name], &prop); err != nil || prop == nil {
			continue
		}
		prop["description"], _ = json.Marshal(text.Value)
		changed, err := json.Marshal(prop)
		if err != nil {
			return nil, err
		}
		props[name] = changed
	}
	var err error
	if top["properties"], err = json.Marshal(props); err != nil {
		return nil, err
	}
	return json.Marshal(top)
}
