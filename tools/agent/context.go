package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
)

// request is a model request with the lines that say what became of it.
type request struct {
	provider.Request
	applied []guidance        // guidance that this request is the first to carry
	skipped map[string]string // component -> reason, where it is news
}

// assemble builds the request of the turn that comes next from what the store says. Its components, in order: system,
// task, then the history (replies, results, reminders, plan steps and guidance as the journal has them, pending guidance
// last), and the workspace's files as the last word. Calls and their results are never separated.
func (s *shift) assemble(ctx context.Context, run persistence.Run, c *tools.Compiled, profile *specs.Profile) (request, error) {
	req := request{skipped: map[string]string{}}
	req.Run, req.Invocation, req.Turn = run.ID, run.Root, run.Round+1
	offered, err := s.offer(ctx, run, c.Bundle, profile)
	if err != nil {
		return req, err
	}
	req.Tools = offered
	req.System = systemPrompt(profile, offered)
	if run.Task != "" {
		req.Messages = append(req.Messages, provider.Message{Role: provider.RoleUser, Kind: "task", Text: run.Task})
	}
	history, err := s.conversation(ctx, profile, req.skipped)
	if err != nil {
		return req, err
	}
	req.Messages = append(req.Messages, history...)
	for _, g := range s.hist.pending {
		data, err := s.c.Store.Blob(ctx, s.tenant, g.text)
		if err != nil {
			return req, lost(ctx, fmt.Errorf("text of guidance: %w", err))
		}
		req.Messages = append(req.Messages, provider.Message{Role: provider.RoleUser, Kind: "guidance", Text: string(data)})
		req.applied = append(req.applied, g)
	}
	files, err := s.files(ctx, run, c.Bundle, profile, req.skipped)
	if err != nil {
		return req, err
	}
	if files != "" {
		req.Messages = append(req.Messages, provider.Message{Role: provider.RoleUser, Kind: "workspace", Text: files})
	}
	for component, reason := range req.skipped {
		if s.hist.skipped[component] == reason {
			delete(req.skipped, component)
		}
	}
	return req, nil
}

// systemPrompt is who the agent is and what its author tells it, then how this house works, as far as it may work here.
func systemPrompt(profile *specs.Profile, offered []provider.Tool) string {
	name := profile.DisplayName
	if name == "" {
		name = profile.Name
	}
	parts := []string{fmt.Sprintf("You are %s.", name)}
	if text := strings.TrimSpace(profile.Instructions); text != "" {
		parts = append(parts, text)
	}
	var house []string
	for _, t := range offered {
		switch t.Name {
		case toolCommit:
			house = append(house, fmt.Sprintf("Nothing you write as plain text reaches the reader: publish with %s.", t.Alias))
		case toolFinish:
			house = append(house, fmt.Sprintf("Every turn calls at least one tool; when all is done, call %s, alone or as the last call of the turn.", t.Alias))
		}
	}
	if len(house) > 0 {
		parts = append(parts, strings.Join(house, " "))
	}
	return strings.Join(parts, "\n\n")
}

// conversation gives the history as messages: each reply as the model gave it, followed by one result for each of its calls.
func (s *shift) conversation(ctx context.Context, profile *specs.Profile, skipped map[string]string) ([]provider.Message, error) {
	calls, err := s.c.Store.Calls(ctx, s.tenant, s.id)
	if err != nil {
		return nil, err
	}
	byID := make(map[specs.CallID]persistence.Call, len(calls))
	for _, c := range calls {
		byID[c.ID] = c
	}
	var out []provider.Message
	for _, e := range s.hist.entries {
		if e.turn == 0 {
			out = append(out, provider.Message{Role: provider.RoleUser, Kind: e.kind, Text: e.text})
			continue
		}
		said := provider.Message{Role: provider.RoleAssistant, Text: e.reply.Text, Metadata: e.reply.Metadata}
		heard := provider.Message{Role: provider.RoleTool}
		for _, c := range e.reply.Calls {
			id := tools.CallKey(e.turn, c.ID)
			if slices.ContainsFunc(said.Calls, func(o tools.Call) bool { return o.ID == c.ID }) {
				continue // the same call written twice in one turn is one call with one result
			}
			record, ok := byID[id]
			if !ok {
				return nil, tools.Systemf("tool.result_lost", "turn %d: call %q has no record", e.turn, c.ID)
			}
			result, err := s.result(ctx, record)
			if err != nil {
				return nil, err
			}
			said.Calls = append(said.Calls, c)
			shown, err := s.show(ctx, profile.Context, record, result, skipped)
			if err != nil {
				return nil, err
			}
			heard.Results = append(heard.Results, shown)
		}
		out = append(out, said)
		if len(heard.Results) > 0 {
			out = append(out, heard)
		}
	}
	return out, nil
}

// result reads the stored result of a call that has ended.
func (s *shift) result(ctx context.Context, c persistence.Call) (tools.Result, error) {
	if r, ok := s.results[c.ID]; ok {
		return r, nil
	}
	r, err := s.c.Dispatcher.StoredResult(ctx, c)
	if err != nil {
		return r, lost(ctx, err)
	}
	s.results[c.ID] = r // a call has one result, for ever
	return r, nil
}

// show gives a result as the model reads it. Where a person changed the arguments, the result begins by saying so, with
// the arguments that ran: a model that does not read that makes its first call again.
func (s *shift) show(ctx context.Context, policy specs.ContextPolicy, c persistence.Call, r tools.Result, skipped map[string]string) (provider.ToolResult, error) {
	shown, reason := view(policy, c, r)
	if reason != "" {
		skipped["tool_result:"+string(c.ID)] = reason
	}
	out := provider.ToolResult{ProviderID: c.ProviderID, Tool: c.Tool, Result: shown}
	if out.Tool == "" {
		out.Tool = specs.ToolName(c.Asked)
	}
	if !c.Edited {
		return out, nil
	}
	args, err := s.c.Store.Blob(ctx, s.tenant, c.Args)
	if err != nil {
		return out, lost(ctx, fmt.Errorf("edited arguments of call %s: %w", c.ID, err))
	}
	out.Edited, out.EditedArgs = true, json.RawMessage(args)
	notice := tools.Content{Type: tools.ContentText, Text: fmt.Sprintf("A person changed the arguments of this call before it ran. It ran with: %s", args)}
	out.Result.Content = append([]tools.Content{notice}, out.Result.Content...)
	return out, nil
}

// Bounds of the file list in a request.
const (
	maxListedFiles = 100
	maxListedBytes = 8 << 10
)

// files lists the workspace files that the agent can see.
func (s *shift) files(ctx context.Context, run persistence.Run, b *specs.Bundle, profile *specs.Profile, skipped map[string]string) (string, error) {
	tree, err := s.c.Store.Tree(ctx, s.tenant, persistence.RunTree(run.ID), 0)
	if err != nil {
		return "", err
	}
	var paths []string
	for path := range tree.Files {
		if sees(profile, planNode(b, run), path) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return "", nil
	}
	slices.Sort(paths)
	var text strings.Builder
	text.WriteString("Files in the workspace now:\n")
	for i, path := range paths {
		line := fmt.Sprintf("- %s (%d bytes)\n", path, tree.Files[path].Size)
		if i == maxListedFiles || text.Len()+len(line) > maxListedBytes {
			fmt.Fprintf(&text, "- and %d more; list them with a tool\n", len(paths)-i)
			skipped["workspace_files"] = fmt.Sprintf("truncate: more than %d files or %d bytes of names", maxListedFiles, maxListedBytes)
			break
		}
		text.WriteString(line)
	}
	return text.String(), nil
}

var roots = []string{"output", "scratch", "plan", "summaries", "persist"}

// sees says whether a path is below a root that the profile shows, and the plan node too if there is one.
func sees(profile *specs.Profile, node *specs.PlanNode, path string) bool {
	below := func(list []string) bool {
		return slices.ContainsFunc(list, func(root string) bool { return path == root || strings.HasPrefix(path, root+"/") })
	}
	texts := func(list *[]specs.Text) []string {
		if list == nil {
			return roots
		}
		var out []string
		for _, t := range *list {
			out = append(out, strings.TrimSuffix(t.Value, "/"))
		}
		return out
	}
	return below(roots) && below(texts(profile.Workspace.Visible)) && (node == nil || below(texts(node.Visible)))
}
