package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// StartRequest is a task for an agent.
type StartRequest struct {
	Tenant  specs.TenantID
	Bundle  specs.Digest      // the run is pinned to it
	Profile specs.ProfileName // empty: the tenant's default profile
	Plan    string            // empty: the bundle's plan for this profile, if it has one
	Task    string
	User    tools.Principal // who starts the run; its tenant is the request's
	Labels  map[string]string
	Chat    string // the chat that the run answers in; empty: none, and persist/ is the run's alone
	Model   string // provider:name; empty: the profile's
	// Files are put into the workspace before the first turn, by logical path below one of the five roots.
	Files map[string][]byte
	// Blobs are stored with the run, content that Model refers to for example.
	Blobs []persistence.Blob
}

// RequestError says what is wrong with a request to the runner. Nothing was written.
type RequestError struct{ Field, Why string }

func (e *RequestError) Error() string { return e.Field + ": " + e.Why }

// Bounds of what a person may hand in.
const (
	MaxTaskBytes     = 1 << 20
	MaxGuidanceBytes = 64 << 10
	maxLabels        = 64
)

// Start writes a new run down. No worker has it yet: Run moves it on. Errors: *RequestError, an error of Policies, or one of
// the store.
func (r *Runner) Start(ctx context.Context, q StartRequest) (persistence.Run, error) {
	if err := q.check(); err != nil {
		return persistence.Run{}, err
	}
	c, err := r.c.Policies.Pinned(ctx, q.Tenant, q.Bundle)
	if err != nil {
		return persistence.Run{}, fmt.Errorf("bundle %s: %w", q.Bundle, err)
	}
	profile := c.Bundle.DefaultProfile()
	if q.Profile != "" {
		profile = c.Bundle.Profile(q.Profile)
	}
	if profile == nil {
		return persistence.Run{}, &RequestError{Field: "profile", Why: noProfile(c.Bundle, q.Profile)}
	}
	name := specs.ProfileName(profile.Name)
	plan, err := choosePlan(c.Bundle, q.Plan, name)
	if err != nil {
		return persistence.Run{}, err
	}
	run := persistence.Run{ID: specs.RunID(newID()), Root: specs.InvocationID(newID()), Profile: name, Task: q.Task,
		User: q.User.User, Roles: q.User.Roles, Labels: q.Labels, Chat: q.Chat, Model: q.Model, Bundle: q.Bundle}
	run.Tenant, run.Run = q.Tenant, run.ID
	root := persistence.Invocation{ID: run.Root, Kind: persistence.InvocationRoot, Profile: name}
	root.Tenant, root.Run = q.Tenant, run.ID

	change := persistence.Change{Tenant: q.Tenant, Run: run.ID, Key: "start", Blobs: slices.Clone(q.Blobs)}
	st := begin(run)
	if plan != nil {
		st.run.Plan = plan.Name
		node := nodeOf(plan, plan.Initial)
		if node == nil && len(plan.Nodes) > 0 {
			node = &plan.Nodes[0]
		}
		if node == nil {
			return persistence.Run{}, &RequestError{Field: "plan", Why: fmt.Sprintf("plan %q has no nodes", plan.Name)}
		}
		change.Blobs = append(change.Blobs, enter(st, plan.Name, node, name)...)
	}
	run = st.run
	born := line(machine.Run().Birth().Journal, map[string]any{"profile": name, "plan": run.Plan, "bundle": run.Bundle,
		"user": run.User, "chat": run.Chat, "model": run.Model})
	born.Move = &persistence.Move{Step: machine.Run().Birth(), Record: &run}
	invoked := line(machine.Invocation().Birth().Journal, map[string]any{"kind": root.Kind, "profile": name})
	invoked.Invocation = root.ID
	invoked.Move = &persistence.Move{Step: machine.Invocation().Birth(), Record: &root}
	change.Lines = append([]persistence.Entry{born, invoked}, st.lines...)
	if len(q.Files) > 0 {
		tree := persistence.TreeChange{Tree: persistence.RunTree(run.ID), Checkpoint: persistence.Checkpoint{Reason: "start"}}
		for _, path := range slices.Sorted(maps.Keys(q.Files)) {
			blob := persistence.BlobOf("", q.Files[path])
			change.Blobs = append(change.Blobs, blob)
			tree.Edits = append(tree.Edits, persistence.TreeEdit{Path: path, Digest: blob.Digest, Size: int64(len(blob.Data))})
		}
		payload, blobs, err := tools.CheckpointPayload(tree)
		if err != nil {
			return persistence.Run{}, err
		}
		change.Trees, change.Blobs = append(change.Trees, tree), append(change.Blobs, blobs...)
		change.Lines = append(change.Lines, line(persistence.KindCheckpoint, payload))
	}
	if _, err := r.c.Store.Apply(ctx, change); err != nil {
		return persistence.Run{}, err
	}
	return r.c.Store.Run(ctx, q.Tenant, run.ID)
}

func (q StartRequest) check() error {
	wrong := func(field, why string, args ...any) error {
		return &RequestError{Field: field, Why: fmt.Sprintf(why, args...)}
	}
	switch {
	case q.Tenant == "":
		return wrong("tenant", "missing")
	case q.User.User == "":
		return wrong("user", "missing: a run belongs to whoever starts it")
	case q.User.Tenant != q.Tenant:
		return wrong("user", "%s belongs to tenant %q, the run to %q", q.User.User, q.User.Tenant, q.Tenant)
	case q.Bundle == "":
		return wrong("bundle", "missing")
	case len(q.Task) > MaxTaskBytes:
		return wrong("task", "%d bytes; at most %d", len(q.Task), MaxTaskBytes)
	case len(q.Labels) > maxLabels:
		return wrong("labels", "%d labels; at most %d", len(q.Labels), maxLabels)
	}
	texts := map[string]string{"task": q.Task, "plan": q.Plan, "chat": q.Chat, "model": q.Model}
	for k, v := range q.Labels {
		if len(k) > 256 || len(v) > 1024 {
			return wrong("labels", "a label is longer than 256 bytes, or its value than 1024")
		}
		texts["labels"] += k + v
	}
	for _, field := range slices.Sorted(maps.Keys(texts)) {
		if !utf8.ValidString(texts[field]) {
			return wrong(field, "not UTF-8")
		}
		if field != "task" && field != "labels" && len(texts[field]) > 1024 {
			return wrong(field, "longer than 1024 bytes")
		}
	}
	for path := range q.Files {
		root, _, below := strings.Cut(path, "/")
		if !below || !slices.Contains(roots, root) || !cleanPath(path) {
			return wrong("files", "%q is no clean path below one of %s", path, strings.Join(roots, "/, ")+"/")
		}
	}
	return nil
}

// cleanPath refuses what no workspace path looks like. Whoever starts a run is a person or a program of theirs, so there is
// nothing to mend here, only to refuse.
func cleanPath(path string) bool {
	if len(path) > 1024 || !utf8.ValidString(path) {
		return false
	}
	for _, part := range strings.Split(path, "/") {
		if part == "" || part == "." || part == ".." || len(part) > 255 {
			return false
		}
	}
	return !strings.ContainsFunc(path, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' || r == ':' })
}

func noProfile(b *specs.Bundle, name specs.ProfileName) string {
	if name == "" {
		return "none was named and the tenant has no default profile"
	}
	var have []string
	for _, p := range b.Profiles {
		have = append(have, p.Name)
	}
	return fmt.Sprintf("the bundle has no profile %q; it has: %s", name, strings.Join(have, ", "))
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// initialize lays out the workspace and begins: the chat's stable persist/ is projected into the run's tree, the root
// invocation starts, and the first request can be put together; all in one Apply.
func (s *shift) initialize(ctx context.Context, run persistence.Run) error {
	var change persistence.Change
	tree, err := s.c.Store.Tree(ctx, s.tenant, persistence.RunTree(s.id), 0)
	if err != nil {
		return err
	}
	project := persistence.TreeChange{Tree: tree.ID, Base: tree.Version, Checkpoint: persistence.Checkpoint{Reason: "initialize"}}
	if project.Tree == "" {
		project.Tree = persistence.RunTree(s.id)
	}
	if run.Chat != "" {
		stable, err := s.c.Store.Tree(ctx, s.tenant, persistence.ChatTree(run.Chat), 0)
		if err != nil {
			return err
		}
		run.PersistBase = stable.Version
		for _, path := range slices.Sorted(maps.Keys(stable.Files)) {
			f := stable.Files[path]
			if tree.Files[path].Digest != f.Digest {
				project.Edits = append(project.Edits, persistence.TreeEdit{Path: path, Digest: f.Digest, Size: f.Size})
			}
		}
	}
	root, err := s.c.Store.Invocation(ctx, s.tenant, s.id, run.Root)
	if err != nil {
		return err
	}
	st := begin(run)
	if run.State == machine.RunCreated {
		st.move(machine.RunInitialize, nil)
	}
	if root.State == machine.InvocationCreated {
		st.invocation(root, machine.InvocationStart)
	}
	if len(project.Edits) > 0 {
		payload, blobs, err := tools.CheckpointPayload(project)
		if err != nil {
			return err
		}
		change.Trees, change.Blobs = append(change.Trees, project), append(change.Blobs, blobs...)
		st.line(persistence.KindCheckpoint, payload)
	}
	st.move(machine.RunAssemble, map[string]any{"persistBase": run.PersistBase, "files": len(tree.Files) + len(project.Edits)})
	return s.commit(ctx, st, change)
}

// invocation fires an event of an invocation.
func (st *story) invocation(inv persistence.Invocation, ev machine.Event) {
	if st.err != nil {
		return
	}
	step, err := machine.Invocation().Fire(inv.State, ev)
	if err != nil {
		st.err = tools.Systemf("agent.illegal_move", "invocation %s: %w", inv.ID, err)
		return
	}
	e := line(step.Journal, nil)
	e.Invocation = inv.ID
	e.Move = &persistence.Move{Step: step, Record: &inv, Version: inv.Version}
	st.lines = append(st.lines, e)
}
