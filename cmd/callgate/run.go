package main

import (
	"context"
	"encoding/json"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
	"github.com/callgate/callgate/tools/provider/scripted"
)

// runFlags are what a run can be started with.
type runFlags struct {
	profile, plan, model, task, chat, user, answerAs string
	roles, labels                                    []string
}

func (f *runFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.profile, "profile", "", "the agent (default: the tenant's default profile, or the only one)")
	s.StringVar(&f.chat, "chat", "default", "the chat that the run answers in")
	s.StringArrayVar(&f.labels, "label", nil, "a label that policies can read, key=value; may be repeated")
	s.StringVar(&f.user, "user", "", "who starts it (default $CALLGATE_USER, else your login name)")
	s.StringArrayVar(&f.roles, "role", nil, "a role of that user; may be repeated (default: the roles the bundle's Tenant gives)")
}

func (a *app) runVerb() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run DIR",
		Short: "A whole run, with a live timeline",
		Long: `Stores the bundle of DIR, starts a run of an agent with it and moves the run on until it ends or a person has to decide.
On a terminal it shows the question and takes the answer; elsewhere it exits with 3 and prints the commands that go on.
The run lives in the store: any process that reaches it can go on with callgate runs resume.

Without --model the profile's own model plays; a scripted one plays scripts/PROFILE.yaml of DIR.`,
		Example: "  callgate run my-gate --task 'Write to the reader' --user ann",
		Args:    oneDir,
	}
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error { return a.run(ctx, args[0], f) })
	f.add(cmd)
	s := cmd.Flags()
	s.StringVar(&f.task, "task", "", "what the agent is to do")
	s.StringVar(&f.plan, "plan", "", "the plan to follow (default: the bundle's plan for this profile)")
	s.StringVar(&f.model, "model", "", "scripted:FILE plays a script in place of the profile's model")
	s.StringVar(&f.answerAs, "as", "", "who answers questions at this terminal (default: --user)")
	a.storeFlags(cmd)
	a.levelFlag(cmd)
	a.formatFlag(cmd)
	return cmd
}

func (a *app) run(ctx context.Context, dir string, f runFlags) error {
	folder, err := a.openFolder(dir)
	if err != nil {
		return err
	}
	defer folder.close()
	c, err := a.compile(folder)
	if err != nil {
		return err
	}
	profile, err := mustChooseProfile(c.Bundle, f.profile)
	if err != nil {
		return err
	}
	script, err := a.script(folder, profile, f.model)
	if err != nil {
		return err
	}
	h, err := a.openHouse(ctx, mayCreate)
	if err != nil {
		return err
	}
	defer h.close()
	blob := persistence.BlobOf("application/yaml", script)
	run, err := a.start(ctx, h, c, profile, f, modelScript+string(blob.Digest), blob)
	if err != nil {
		return err
	}
	a.user = orElse(f.answerAs, string(run.User))
	return a.drive(ctx, h, run, 0)
}

// start stores the bundle and writes the run down.
func (a *app) start(ctx context.Context, h *house, c *tools.Compiled, p *specs.Profile, f runFlags, model string, content persistence.Blob) (persistence.Run, error) {
	a.user = f.user
	who, err := a.person()
	if err != nil {
		return persistence.Run{}, err
	}
	who.Roles = userFacts(c.Bundle, who.User, f.roles).Roles
	labels, err := keyValues("--label", f.labels)
	if err != nil {
		return persistence.Run{}, err
	}
	if err := tools.ApplyBundle(ctx, h.store, who, c.Bundle); err != nil {
		return persistence.Run{}, err
	}
	return h.runner.Start(ctx, agent.StartRequest{
		Tenant: h.tenant, Bundle: c.Bundle.Digest, Profile: specs.ProfileName(p.Name), Plan: f.plan, Task: f.task, User: who,
		Labels: labels, Chat: f.chat, Model: model, Blobs: []persistence.Blob{content},
	})
}

// chooseProfile gives the agent that a command line means, so that what is explained is what would run: the named one, else
// the tenant's default, else the only one there is, else nil.
func chooseProfile(b *specs.Bundle, name string) (*specs.Profile, error) {
	if name != "" {
		if p := b.Profile(specs.ProfileName(name)); p != nil {
			return p, nil
		}
		return nil, noProfile(b, name)
	}
	if p := b.DefaultProfile(); p != nil {
		return p, nil
	}
	if len(b.Profiles) == 1 {
		return b.Profiles[0], nil
	}
	return nil, nil
}

func mustChooseProfile(b *specs.Bundle, name string) (*specs.Profile, error) {
	p, err := chooseProfile(b, name)
	if p == nil && err == nil {
		err = nof("the bundle names no default profile").withHint("--profile NAME, or defaultProfile in a Tenant document")
	}
	return p, err
}

// script gives the text of the script that plays the run, checked.
func (a *app) script(f *folder, p *specs.Profile, model string) ([]byte, error) {
	var (
		name string
		data []byte
		err  error
	)
	if kind, file, given := strings.Cut(model, ":"); model != "" {
		if !given || kind != "scripted" || file == "" {
			return nil, usagef("--model is scripted:FILE in this version, not %q", model)
		}
		name = file
		data, err = a.readFile(file)
	} else {
		if p.Model.Provider != "scripted" && p.Model.Provider != "" {
			return nil, nof("profile %s is played by %s, and this version plays scripts only", p.Name, p.Model.Provider).
				withHint("--model scripted:FILE plays a script in its place")
		}
		below := orElse(p.Model.Script, path.Join("scripts", p.Name+".yaml"))
		name = path.Join(f.name, below)
		data, err = f.read(below)
	}
	if err != nil {
		return nil, err
	}
	if _, err := scripted.Load(name, data); err != nil {
		return nil, err
	}
	return data, nil
}

func (a *app) callVerb() *cobra.Command {
	var (
		f              runFlags
		tool, args, id string
	)
	cmd := &cobra.Command{
		Use:   "call DIR --tool NAME",
		Short: "One call through the whole gate",
		Long: `Makes a run of its own for one call: policy decides, a person is asked if need be, the tool runs, the journal keeps it.
Prints the result as the model would get it. Exit 1 when the call is refused or fails, 3 when it waits for a person;
callgate runs resume goes on then.`,
		Example: `  callgate call my-gate --tool workspace.write_file --args '{"path":"output/a.md","content":"hello"}'`,
		Args:    oneDir,
	}
	cmd.RunE = a.verb(func(ctx context.Context, dirs []string) error { return a.call(ctx, dirs[0], f, tool, args, id) })
	s := cmd.Flags()
	s.StringVar(&tool, "tool", "", "name of the tool, canonical or alias")
	s.StringVar(&args, "args", "", "the arguments, a JSON object")
	s.StringVar(&id, "call-id", "call_1", "the id the model would give it")
	f.add(cmd)
	a.storeFlags(cmd)
	a.levelFlag(cmd)
	a.formatFlag(cmd)
	return cmd
}

func (a *app) call(ctx context.Context, dir string, f runFlags, tool, args, id string) error {
	if tool == "" {
		return usagef("call needs --tool NAME")
	}
	// Arguments go in as they are written, mistakes included: judging them is the gate's work, and the point of this verb.
	// Only what could not even be stored as a call is refused here.
	content, err := json.Marshal(onceCall{ID: id, Name: tool, Arguments: []byte(args)})
	if err != nil {
		return usagef("the call cannot be written down: %v", err)
	}
	folder, err := a.openFolder(dir)
	if err != nil {
		return err
	}
	defer folder.close()
	c, err := a.compile(folder)
	if err != nil {
		return err
	}
	profile, err := mustChooseProfile(c.Bundle, f.profile)
	if err != nil {
		return err
	}
	h, err := a.openHouse(ctx, mayCreate)
	if err != nil {
		return err
	}
	defer h.close()
	blob := persistence.BlobOf("application/json", content)
	run, err := a.start(ctx, h, c, profile, f, modelOnce+string(blob.Digest), blob)
	if err != nil {
		return err
	}
	out, err := h.runner.Run(ctx, h.tenant, run.ID)
	if err != nil {
		return a.interrupted(run.ID, err)
	}
	return a.reportCall(ctx, h, run.ID, out)
}

// onceCall is a call with its arguments as bytes, because they need not be JSON.
type onceCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments []byte `json:"arguments"`
}
