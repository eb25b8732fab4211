package tools

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// newApproval makes the question about a call: what is shown, who may answer, until when, and what it is bound to. Approvals are
// made here and in no other place; nothing that a model writes becomes one.
func (d *Dispatcher) newApproval(ctx context.Context, sc *scene, c *persistence.Call, tool *specs.Tool, args json.RawMessage, dec celpolicy.Decision) (*persistence.Approval, error) {
	id, err := newID()
	if err != nil {
		return nil, err
	}
	targets, err := d.targets(ctx, sc, tool, args)
	if err != nil {
		return nil, err
	}
	def := sc.definition(tool)
	card, err := newCard(sc, tool, def, args, dec, targets)
	if err != nil {
		return nil, err
	}
	shown, err := json.Marshal(card)
	if err != nil {
		return nil, Systemf("serialise.card", "approval of call %s: %w", c.ID, err)
	}
	a := &persistence.Approval{
		RecordMeta: persistence.RecordMeta{Tenant: sc.Tenant, Run: sc.Run, Deadline: card.Expires},
		ID:         specs.ApprovalID(id), Call: c.ID, Invocation: c.Invocation, Tool: tool.ToolName(),
		ArgsDigest: card.ArgsDigest, ToolDigest: def, Policy: card.PolicyDigest, Shown: shown, ShownDigest: specs.DigestOf(shown),
		Requester: sc.run.User, Asks: asksOf(dec.Asks), OnExpire: card.OnExpire,
	}
	a.Bound, err = bind(sc, c.ID, tool.ToolName(), def, card.ArgsDigest, targets)
	return a, err
}

// binding is everything that an approval is good for, and for nothing else.
type binding struct {
	Tenant  specs.TenantID    `json:"tenant"`
	Run     specs.RunID       `json:"run"`
	Call    specs.CallID      `json:"call"`
	Tool    specs.ToolName    `json:"tool"`
	Spec    specs.Digest      `json:"spec"`
	Args    specs.Digest      `json:"args"`
	Policy  specs.Digest      `json:"policy"`
	Targets map[string]string `json:"targets"`
}

func bind(sc *scene, call specs.CallID, tool specs.ToolName, def, args specs.Digest, targets map[string]string) (specs.Digest, error) {
	raw, err := json.Marshal(binding{sc.Tenant, sc.Run, call, tool, def, args, sc.pinned.Bundle.Digest, targets})
	if err != nil {
		return "", err
	}
	return specs.DigestJSON(raw)
}

// definition is the digest of the tool as it is defined now: by the bundle in force where that has the tool, else by the
// run's own. A definition that was swapped under a running call no longer fits a yes that was given for the old one.
func (sc *scene) definition(tool *specs.Tool) specs.Digest {
	if sc.live != nil {
		if t := sc.live.Bundle.Tool(tool.ToolName()); t != nil {
			return celpolicy.DefinitionDigest(t)
		}
	}
	return celpolicy.DefinitionDigest(tool)
}

// targets is what a call would act on, in the version of this moment: the file that its path argument (or that argument's
// default) names, else the whole workspace. Tools that act elsewhere have none that the gate could see.
func (d *Dispatcher) targets(ctx context.Context, sc *scene, tool *specs.Tool, args json.RawMessage) (map[string]string, error) {
	if e := tool.Annotations.SideEffect; e != specs.SideWorkspace && e != specs.SideChat {
		return nil, nil
	}
	tree, err := d.store.Tree(ctx, sc.Tenant, persistence.RunTree(sc.Run), 0)
	if err != nil {
		return nil, err
	}
	path := pathArgument(tool, args)
	if path == "" {
		return map[string]string{"workspace": fmt.Sprintf("version %d", tree.Version)}, nil
	}
	version := "absent"
	if f, ok := tree.Files[path]; ok {
		version = string(f.Digest)
	}
	return map[string]string{path: version}, nil
}

// pathArgument reads with the one strict reader, so that "Path" is not taken for "path".
func pathArgument(tool *specs.Tool, args json.RawMessage) string {
	if path, ok := stringAt(args, "path"); ok {
		return path
	}
	path, _ := stringAt(tool.InputSchema.Raw, "properties", "path", "default")
	return path
}

func stringAt(raw json.RawMessage, keys ...string) (string, bool) {
	v, err := specs.DecodeJSON(raw, specs.JSONLimits{})
	if err != nil {
		return "", false
	}
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return "", false
		}
		v = m[k]
	}
	s, ok := v.(string)
	return s, ok
}

// unreachable names an ask that nobody can answer in a run of the requester, or "". Who has a role is not known here, so an ask of
// a role can always be answered.
func unreachable(asks []celpolicy.Ask, requester specs.UserID) specs.RuleID {
	for _, a := range asks {
		people := map[specs.UserID]bool{}
		for _, u := range a.Approval.Approvers.Users {
			if !a.Approval.NotRequester || u != requester {
				people[u] = true // the same person named twice is one person
			}
		}
		if a.Approval.Quorum < 1 || len(a.Approval.Approvers.Roles) == 0 && len(people) < a.Approval.Quorum {
			return a.Rule
		}
	}
	if len(asks) == 0 {
		return "an approval without an ask"
	}
	return ""
}

// askNote is the payload of approval_requested. The card itself is in the record; its digest ties the two.
type askNote struct {
	Call        specs.CallID   `json:"call"`
	Tool        specs.ToolName `json:"tool"`
	Bound       specs.Digest   `json:"bound"`
	ArgsDigest  specs.Digest   `json:"argsDigest"`
	ToolDigest  specs.Digest   `json:"toolDigest"`
	Policy      specs.Digest   `json:"policy"`
	ShownDigest specs.Digest   `json:"shownDigest"`
	Rules       []specs.RuleID `json:"rules"`
	Expires     string         `json:"expires"`
	OnExpire    specs.OnExpire `json:"onExpire"`
	Why         string         `json:"why,omitempty"` // why it is asked anew
}

func approvalNote(a *persistence.Approval) askNote {
	n := askNote{Call: a.Call, Tool: a.Tool, Bound: a.Bound, ArgsDigest: a.ArgsDigest, ToolDigest: a.ToolDigest, Policy: a.Policy,
		ShownDigest: a.ShownDigest, Expires: a.Deadline.UTC().Format("2006-01-02T15:04:05Z"), OnExpire: a.OnExpire}
	for _, ask := range a.Asks[:min(len(a.Asks), 50)] {
		n.Rules = append(n.Rules, ask.Rule)
	}
	return n
}
