package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
)

// Codes of a run that did not complete.
const (
	CodeToolCallRequired = "model.tool_call_required"
	CodeModelUnavailable = "model.unavailable"
	CodeMaxRounds        = "agent.max_tool_rounds_exceeded"
	CodeToolAfterFinish  = "agent.tool_after_finish"
	CodeDeniedFailsRun   = "policy.denied"
	CodePersistConflict  = "persist.conflict"
)

// turn plays one model turn: the request goes out when the run is written down as calling_model, and the reply is written
// together with the calls it makes. Before is what the run does in the same Apply before the request, if anything.
func (s *shift) turn(ctx context.Context, run persistence.Run, before *story) error {
	c, profile, err := s.compiled(ctx, run)
	if err != nil {
		return err
	}
	if err := limits(run, c.Bundle, profile); err != nil {
		return err
	}
	if err := s.hist.follow(ctx); err != nil {
		return err
	}
	if s.hist.failures > 0 {
		if err := pause(ctx, s.c.ModelBackoff<<min(s.hist.failures-1, 10)); err != nil {
			return err
		}
	}
	model, err := s.model(ctx, run, profile)
	if err != nil {
		return err
	}
	req, err := s.assemble(ctx, run, c, profile)
	if err != nil {
		return err
	}
	st := before
	if st == nil {
		st = begin(run)
	}
	for _, g := range req.applied {
		st.line(persistence.KindGuidanceApplied, guidancePayload{Text: g.text, By: g.by, Submitted: g.seq}).Cause = g.seq
	}
	for _, component := range slices.Sorted(maps.Keys(req.skipped)) {
		st.line(persistence.KindContextSkipped, skippedPayload{Component: component, Reason: req.skipped[component]})
	}
	st.run.Round, st.run.NodeRounds = run.Round+1, run.NodeRounds+1
	st.move(machine.RunCallModel, map[string]any{"turn": req.Turn, "messages": len(req.Messages), "tools": len(req.Tools)})
	if err := s.commit(ctx, st, persistence.Change{}); err != nil {
		return err
	}
	if run, err = s.load(ctx); err != nil || run.State != machine.RunCallingModel {
		return err // somebody cancels it
	}
	reply, err := s.ask(ctx, model, req.Request)
	switch {
	case ctx.Err() != nil || errors.Is(err, errIntervened):
		return err
	case err != nil:
		return s.modelFailed(ctx, run, err)
	}
	return s.reply(ctx, run, c, profile, mend(reply))
}

// limits refuses a turn that the profile or the plan node does not grant.
func limits(run persistence.Run, b *specs.Bundle, profile *specs.Profile) error {
	rounds := profile.Run.MaxRounds
	if rounds <= 0 {
		rounds = specs.DefaultMaxRounds
	}
	if run.Round >= rounds {
		return &failure{code: CodeMaxRounds, reason: fmt.Sprintf("the agent did not finish within %d rounds", rounds)}
	}
	if n := planNode(b, run); n != nil && n.MaxRounds > 0 && run.NodeRounds >= n.MaxRounds {
		return &failure{code: CodeMaxRounds, reason: fmt.Sprintf("the step %q did not end within its %d rounds", n.ID, n.MaxRounds)}
	}
	return nil
}

func (s *shift) model(ctx context.Context, run persistence.Run, profile *specs.Profile) (provider.Model, error) {
	name := specs.ProfileName(profile.Name)
	if m := s.models[name]; m != nil {
		return m, nil
	}
	m, err := s.c.Models(ctx, run, profile)
	if err != nil {
		if ctx.Err() != nil || persistence.OutOfOrder(err) {
			return nil, err
		}
		return nil, &failure{code: CodeModelUnavailable, reason: err.Error(), retryable: true}
	}
	s.models[name] = m
	return m, nil
}

// ask puts a request to the model, within the time one request may take.
func (s *shift) ask(ctx context.Context, m provider.Model, req provider.Request) (reply provider.Reply, err error) {
	err = s.watched(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, s.c.ModelTimeout)
		defer cancel()
		reply, err = m.Next(ctx, req)
		return err
	})
	return reply, err
}

// modelFailed asks again after a while, or gives up. How often was asked is in the journal.
func (s *shift) modelFailed(ctx context.Context, run persistence.Run, cause error) error {
	attempt := s.hist.failures + 1
	failed := line(persistence.KindModelFailed, modelFailedPayload{Turn: run.Round, Attempt: attempt, Error: clip(strings.ToValidUTF8(cause.Error(), "\uFFFD"), 2000)})
	failed.Level = persistence.LevelWarn
	if attempt > *s.c.ModelRetries {
		return &failure{code: CodeModelUnavailable, retryable: true, lines: []persistence.Entry{failed},
			reason: fmt.Sprintf("the model did not answer, asked %d times: %s", attempt, clip(cause.Error(), 500))}
	}
	st := begin(run)
	st.lines = append(st.lines, failed)
	st.run.Round, st.run.NodeRounds = run.Round-1, max(0, run.NodeRounds-1)
	st.move(machine.RunRetryModel, map[string]any{"turn": run.Round, "attempt": attempt})
	return s.commit(ctx, st, persistence.Change{})
}

// reply writes a turn down, with what follows from it.
func (s *shift) reply(ctx context.Context, run persistence.Run, c *tools.Compiled, profile *specs.Profile, reply provider.Reply) error {
	blob, err := encodeReply(reply)
	if err != nil {
		return tools.Systemf("provider.unserialisable", "reply of turn %d: %w", run.Round, err)
	}
	said := line(persistence.KindModelTurn, turnPayload{Turn: run.Round, Response: blob.Digest, Calls: len(reply.Calls), Usage: reply.Usage})
	said.Invocation = run.Root
	st := begin(run)
	st.lines = append(st.lines, said)
	switch {
	case len(reply.Calls) > 0:
		return s.propose(ctx, st, blob, reply.Calls)
	case reply.Stop:
		st.move(machine.RunDispatch, map[string]any{"turn": run.Round, "calls": 0})
		st.run.Finished = true
		st.move(machine.RunFinish, map[string]any{"turn": run.Round, "by": "stop"})
		return s.commit(ctx, st, persistence.Change{Blobs: []persistence.Blob{blob}})
	}
	return s.drift(ctx, st, profile, planNode(c.Bundle, run), reply.Text, blob)
}

// propose hands the calls of a turn to the dispatcher; the turn's own lines and the run's move ride along.
func (s *shift) propose(ctx context.Context, st *story, blob persistence.Blob, calls []tools.Call) error {
	st.run.Calls += int64(len(calls))
	st.move(machine.RunDispatch, map[string]any{"turn": st.run.Round, "calls": len(calls)})
	if st.err != nil {
		return st.err
	}
	_, err := s.c.Dispatcher.Propose(ctx, s.scope(st.run), calls, tools.Rider{Before: st.lines, Blobs: []persistence.Blob{blob}, StartFirst: startable(calls)})
	if errors.Is(err, tools.ErrInvalidCall) {
		return &failure{code: tools.ErrInvalidCall.Error(), reason: err.Error(), lines: st.lines[:1], blobs: []persistence.Blob{blob}}
	}
	return err
}

// startable says whether the first call that may run can be started with the turn. One call of workspace.finish waits for
// those before it.
func startable(calls []tools.Call) bool {
	for i, c := range calls {
		if i > 0 && (c.Name == string(toolFinish) || c.Name == string(specs.AliasOf(toolFinish))) {
			return false
		}
	}
	return true
}

// drift answers a turn without a call: its text is kept as a file, and the model is reminded; as often as the profile allows,
// then the run cannot go on.
func (s *shift) drift(ctx context.Context, st *story, profile *specs.Profile, node *specs.PlanNode, text string, reply persistence.Blob) error {
	limit := int64(1)
	if profile.Run.DriftRecoveries != nil {
		limit = *profile.Run.DriftRecoveries
	}
	if st.run.Drifts >= limit {
		return &failure{code: CodeToolCallRequired, retryable: true, lines: st.lines, blobs: []persistence.Blob{reply},
			reason: "the model answered with text instead of a tool call, after " + times(st.run.Drifts, "reminder")}
	}
	tree, err := s.c.Store.Tree(ctx, s.tenant, persistence.RunTree(s.id), 0)
	if err != nil {
		return err
	}
	file := persistence.BlobOf("text/markdown", []byte(text))
	path := capturePath(profile)
	remind := profile.Drift.Reminder
	if remind == "" {
		remind = reminder(path, text)
	}
	told := persistence.BlobOf("text/plain", []byte(remind))
	kept := persistence.TreeChange{Tree: persistence.RunTree(s.id), Base: tree.Version, Checkpoint: persistence.Checkpoint{Reason: "drift"},
		Edits: []persistence.TreeEdit{{Path: path, Digest: file.Digest, Size: int64(len(file.Data))}}}

	note, blobs, err := tools.CheckpointPayload(kept)
	if err != nil {
		return err
	}
	st.run.Drifts++
	st.move(machine.RunCapture, map[string]any{"turn": st.run.Round, "path": path, "sha256": strings.TrimPrefix(string(file.Digest), "sha256:")})
	st.line(persistence.KindDriftRecovery, driftPayload{Turn: st.run.Round, Attempt: st.run.Drifts, Limit: limit, Reminder: told.Digest})
	st.move(machine.RunCaptured, note)
	return s.commit(ctx, st, persistence.Change{Trees: []persistence.TreeChange{kept}, Blobs: append(blobs, reply, file, told)})
}

// capturePath follows the root of the message body where the author named no other place.
func capturePath(profile *specs.Profile) string {
	path := profile.Drift.CapturePath
	if path != "" && path != specs.DefaultDriftCapturePath {
		return path
	}
	for _, a := range profile.Output.Artifacts {
		if root, _, ok := strings.Cut(a.Path, "/"); ok && a.Target == "messageBody" {
			return root + "/direct_output.md"
		}
	}
	return specs.DefaultDriftCapturePath
}

func reminder(path, text string) string {
	kept := fmt.Sprintf("Your last turn called no tool. What you wrote is kept in %s; nobody has read it.", path)
	if strings.TrimSpace(text) == "" {
		kept = "Your last turn called no tool and said nothing."
	}
	return kept + " Go on with tool calls: revise your files if they need it, commit what the reader should get, and then call the finish tool."
}

func times(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
