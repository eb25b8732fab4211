package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// subject is who asks, in the flags of explain and tools.
type subject struct {
	profile, node, user, plan string
	roles, labels             []string
}

func (s *subject) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.profile, "profile", "", "the agent (default: the tenant's default profile, or the only one)")
	f.StringVar(&s.plan, "plan", "", "the plan that is being followed")
	f.StringVar(&s.node, "node", "", "the plan node that is active")
	f.StringVar(&s.user, "user", "", "who started the run")
	f.StringArrayVar(&s.roles, "role", nil, "a role of that user; may be repeated (default: the roles the bundle's Tenant gives)")
	f.StringArrayVar(&s.labels, "label", nil, "a label of the run, key=value; may be repeated")
}

// input makes the decision input that these flags describe.
func (s *subject) input(c *tools.Compiled, phase celpolicy.Phase) (celpolicy.Input, error) {
	in := celpolicy.Input{Phase: phase, Trace: true, Now: time.Now().UTC().Truncate(time.Second)}
	in.Tenant.ID = "default"
	if t := c.Bundle.Tenant; t != nil {
		in.Tenant.Labels = t.Labels
	}
	profile, err := chooseProfile(c.Bundle, s.profile)
	if err != nil {
		return in, err
	}
	if profile != nil {
		in.Run.Profile = specs.ProfileName(profile.Name)
	}
	labels, err := keyValues("--label", s.labels)
	if err != nil {
		return in, err
	}
	plan, err := s.activePlan(c.Bundle, in.Run.Profile)
	if err != nil {
		return in, err
	}
	in.Run.Labels, in.Run.Plan, in.Run.Node, in.Run.Round = labels, plan, specs.NodeID(s.node), 1
	in.Call.Sequence = 1
	in.User = userFacts(c.Bundle, specs.UserID(s.user), s.roles)
	return in, nil
}

// activePlan finds the plan that a node's name means: the one that was named, else the only one that has such a node, of those
// for the profile first.
func (s *subject) activePlan(b *specs.Bundle, profile specs.ProfileName) (string, error) {
	if s.plan != "" {
		p := b.Plan(s.plan)
		if p == nil {
			return "", nof("the bundle has no plan %q", s.plan)
		}
		if s.node != "" && p.Node(specs.NodeID(s.node)) == nil {
			return "", nof("plan %s has no node %q", s.plan, s.node)
		}
		return s.plan, nil
	}
	if s.node == "" {
		return "", nil
	}
	var all, own []string
	for _, p := range b.Plans {
		if p.Node(specs.NodeID(s.node)) == nil {
			continue
		}
		all = append(all, p.Name)
		if slices.ContainsFunc(p.Profiles, func(g specs.Text) bool { return specs.Glob(g.Value, string(profile)) }) {
			own = append(own, p.Name)
		}
	}
	if len(own) > 0 {
		all = own
	}
	switch len(all) {
	case 1:
		return all[0], nil
	case 0:
		return "", nof("no plan of the bundle has a node %q", s.node)
	}
	return "", nof("%d plans have a node %q", len(all), s.node).withHint("--plan names one: %s", strings.Join(all, ", "))
}

// userFacts is a person as the bundle's Tenant describes them, with roles of the command line in their place.
func userFacts(b *specs.Bundle, id specs.UserID, roles []string) celpolicy.UserFacts {
	u := celpolicy.UserFacts{ID: id}
	if b.Tenant != nil {
		if known, ok := b.Tenant.Users[string(id)]; ok {
			u.Roles, u.Labels = known.Roles, known.Labels
		}
	}
	if len(roles) > 0 {
		u.Roles = nil
		for _, r := range roles {
			u.Roles = append(u.Roles, specs.Role(r))
		}
	}
	return u
}

func noProfile(b *specs.Bundle, name string) error {
	var names []string
	for _, p := range b.Profiles {
		names = append(names, p.Name)
	}
	f := nof("the bundle has no profile %q", name)
	if len(names) > 0 {
		return f.withHint("it has %s", strings.Join(names, ", "))
	}
	return f
}

func keyValues(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usagef("%s wants key=value, not %q", flag, kv)
		}
		m[k] = v
	}
	return m, nil
}

func (a *app) explainVerb() *cobra.Command {
	var (
		s                 subject
		tool, args, phase string
	)
	cmd := &cobra.Command{
		Use:   "explain DIR --tool NAME",
		Short: "Why a call may or may not be made: every layer's voice",
		Long: `Decides about one call and shows why: what each layer said, which rule won and where it stands, and what would
change the answer. Without --args the arguments are those of an empty call, unless --phase list leaves them unknown.

The report is JSON unless it goes to a terminal.`,
		Example: `  callgate explain my-gate --tool workspace.write_file --args '{"path":"persist/notes.md","content":"x"}' --user ann`,
		Args:    oneDir,
	}
	cmd.RunE = a.verb(func(_ context.Context, dirs []string) error {
		if !cmd.Flags().Changed("format") && !a.TerminalOut {
			a.format = "json"
		}
		return a.explain(dirs[0], s, tool, args, phase)
	})
	f := cmd.Flags()
	f.StringVar(&tool, "tool", "", "canonical name of the tool, workspace.write_file")
	f.StringVar(&args, "args", "", "the call's arguments, a JSON object")
	f.StringVar(&phase, "phase", "call", "list (arguments unknown), call, or dispatch")
	s.flags(cmd)
	a.formatFlag(cmd)
	a.levelFlag(cmd)
	return cmd
}

func (a *app) explain(dir string, s subject, tool, args, phase string) error {
	if tool == "" {
		return usagef("explain needs --tool NAME")
	}
	ph := celpolicy.Phase(phase)
	if ph != celpolicy.PhaseList && ph != celpolicy.PhaseCall && ph != celpolicy.PhaseDispatch {
		return usagef("--phase is list, call or dispatch, not %q", phase)
	}
	if args != "" && ph == celpolicy.PhaseList {
		return usagef("in the list phase arguments are unknown; leave --args away")
	}
	if args == "" {
		args = "{}"
	}
	raw, err := jsonObject("--args", args)
	if err != nil {
		return err
	}
	c, err := a.compileDir(dir)
	if err != nil {
		return err
	}
	in, err := s.input(c, ph)
	if err != nil {
		return err
	}
	in.Tool = specs.ToolName(tool)
	if ph != celpolicy.PhaseList {
		in.Args = raw
	}
	x := celpolicy.Explain(c.Policy, in)
	if a.json() {
		return a.printJSON(x)
	}
	a.printf("%s", x.Text())
	return nil
}

// jsonObject checks JSON of the command line as strictly as a model's.
func jsonObject(flag, text string) (json.RawMessage, error) {
	raw := json.RawMessage(text)
	if err := specs.CheckJSON(raw, specs.JSONLimits{}); err != nil {
		return nil, usagef("%s: %v", flag, err)
	}
	if t := strings.TrimSpace(text); !strings.HasPrefix(t, "{") {
		return nil, usagef("%s must be a JSON object", flag)
	}
	return raw, nil
}
