package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
)

// runReport is the JSON report of run and runs resume.
type runReport struct {
	Run       specs.RunID   `json:"run"`
	State     machine.State `json:"state"`
	Reason    string        `json:"reason,omitempty"`
	ErrorCode string        `json:"errorCode,omitempty"`
	Retryable bool          `json:"retryable,omitempty"`
	Waiting   []waitReport  `json:"waiting,omitempty"`
	Unknown   []waitReport  `json:"unknown,omitempty"`
	Message   string        `json:"message,omitempty"` // what the run committed to the chat last
	Next      []string      `json:"next,omitempty"`    // commands that go on
}

type waitReport struct {
	Approval specs.ApprovalID `json:"approval,omitempty"`
	Call     specs.CallID     `json:"call"`
	Tool     specs.ToolName   `json:"tool"`
	Card     json.RawMessage  `json:"card,omitempty"`
	Expires  *time.Time       `json:"expires,omitempty"`
}

// conclude reports where a run stands, and turns it into an exit code.
func (a *app) conclude(ctx context.Context, h *house, id specs.RunID, out agent.Outcome) error {
	r := runReport{Run: id, State: out.State, Reason: out.Reason, ErrorCode: out.ErrorCode, Retryable: out.Retryable}
	who := h.candidates(ctx, id)
	for _, w := range out.Waiting {
		expires := w.Deadline
		r.Waiting = append(r.Waiting, waitReport{Approval: w.ID, Call: w.Call, Tool: w.Tool, Card: w.Shown, Expires: &expires})
		if w.State == machine.ApprovalParked {
			r.Next = append(r.Next, fmt.Sprintf("callgate approvals reask %s --as %s%s", w.ID, who(w), a.sameStore()))
		} else {
			r.Next = append(r.Next, fmt.Sprintf("callgate approvals approve %s --as %s%s", w.ID, who(w), a.sameStore()))
		}
	}
	for _, u := range out.Unknown {
		r.Unknown = append(r.Unknown, waitReport{Call: u.ID, Tool: u.Tool})
		r.Next = append(r.Next, fmt.Sprintf("callgate runs reconcile %s %s --happened yes|no --note TEXT%s", id, u.ID, a.sameStore()))
	}
	if !out.Ended() {
		r.Next = append(r.Next, "callgate runs resume "+a.ref(id))
	}
	r.Message = h.message(ctx, id)
	if a.json() {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		a.printConclusion(r, out)
	}
	switch {
	case !out.Ended():
		return quiet(exitWaiting)
	case out.State == machine.RunCompleted:
		return nil
	}
	return quiet(exitNo)
}

func (a *app) printConclusion(r runReport, out agent.Outcome) {
	a.printf("\n")
	switch {
	case len(r.Waiting)+len(r.Unknown) > 0:
		if n := len(r.Unknown); n > 0 {
			a.printf("Nobody can say whether %s happened: look, then tell.\n", plural(n, "call"))
			for _, c := range out.Unknown {
				a.printf("  %s: %s\n", plain(string(c.ID)), oneLine(c.Reason, 600))
			}
		}
		a.printf("%s for a person. To go on:\n", a.wait("waiting"))
	case !out.Ended():
		a.printf("%s in %s. To go on:\n", a.wait("resting"), r.State)
	default:
		word := strings.ReplaceAll(string(r.State), "_", " ")
		if r.State == machine.RunCompleted {
			word = a.good(word)
		} else {
			word = a.bad(word)
		}
		if why := orElse(r.Reason, r.ErrorCode); why != "" && r.State != machine.RunCompleted {
			word += ": " + oneLine(why, 200)
		}
		a.printf("%s\n", word)
	}
	for _, n := range r.Next {
		a.printf("  %s\n", n)
	}
	if r.Message != "" {
		a.printf("\n%s\n%s\n", a.dim("in the chat:"), indent(block(strings.TrimRight(r.Message, "\n"))))
	}
	a.printf("\n%s\n", a.dim("the whole story: callgate journal show "+a.ref(r.Run)))
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

// message is the text of the file that the run last committed to the chat, as it was then.
func (h *house) message(ctx context.Context, run specs.RunID) string {
	calls, err := h.store.Calls(ctx, h.tenant, run)
	if err != nil {
		return ""
	}
	for i := len(calls) - 1; i >= 0; i-- {
		c := calls[i]
		if c.Tool != "workspace.commit" || c.State != machine.CallCompleted || c.IsError {
			continue
		}
		text, err := h.committed(ctx, run, c)
		if err != nil {
			return ""
		}
		return text
	}
	return ""
}

// committed reads the file of a commit call as it was at the time of the call: a later write must not look published.
func (h *house) committed(ctx context.Context, run specs.RunID, c persistence.Call) (string, error) {
	args, err := h.store.Blob(ctx, h.tenant, c.Args)
	if err != nil {
		return "", err
	}
	var given struct {
		Path string `json:"path"`
	}
	_ = json.Unmarshal(args, &given)
	tree := persistence.RunTree(run)
	points, err := h.store.Checkpoints(ctx, h.tenant, tree)
	if err != nil {
		return "", err
	}
	version := int64(0)
	for _, p := range points {
		if !p.At.After(c.Updated) {
			version = max(version, p.Version)
		}
	}
	manifest, err := h.store.Tree(ctx, h.tenant, tree, version)
	if err != nil {
		return "", err
	}
	f, ok := manifest.Files[orElse(given.Path, "output/main.md")]
	if !ok {
		return "", persistence.ErrNotFound
	}
	data, err := h.store.Blob(ctx, h.tenant, f.Digest)
	return string(data), err
}

// reportCall prints what came of `callgate call`.
func (a *app) reportCall(ctx context.Context, h *house, run specs.RunID, out agent.Outcome) error {
	calls, err := h.store.Calls(ctx, h.tenant, run)
	if err != nil {
		return err
	}
	if len(calls) == 0 {
		return a.conclude(ctx, h, run, out)
	}
	c := calls[0]
	if !machine.Call().IsFinal(c.State) {
		return a.conclude(ctx, h, run, out)
	}
	result, err := h.dispatcher.StoredResult(ctx, c)
	if err != nil {
		return err
	}
	if a.json() {
		if err := a.printJSON(map[string]any{"run": run, "call": c.ID, "state": c.State, "result": result}); err != nil {
			return err
		}
	} else {
		a.printResult(result)
	}
	if result.IsError || c.State != machine.CallCompleted {
		if !a.json() {
			a.note("%s: %s\n", c.State, orElse(c.ErrorCode, result.ErrorCode))
		}
		return quiet(exitNo)
	}
	return nil
}

func (a *app) printResult(r tools.Result) {
	for _, c := range r.Content {
		switch {
		case c.Text != "":
			a.printf("%s\n", block(strings.TrimRight(c.Text, "\n")))
		case len(c.JSON) > 0:
			a.printf("%s\n", block(readable(string(c.JSON), false)))
		case c.Ref != "":
			a.printf("%s %s (%s, %s)\n", c.Type, plain(c.Ref), orElse(c.MediaType, "bytes"), byteCount(c.Size))
		}
	}
	if len(r.Content) == 0 && len(r.Structured) > 0 {
		a.printf("%s\n", block(readable(string(r.Structured), false)))
	}
}
