package workspace

import (
	"context"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// finish is workspace.finish {reason?}: the agent's word that the run is done. A run in the foreground must have
// answered in its chat; what the profile promises to leave behind must be there.
func finish(_ context.Context, c *call) (tools.Result, error) {
	reason := c.short("reason", maxReasonChars)
	if err := c.done(); err != nil {
		return tools.Result{}, err
	}
	if c.foreground() && c.req.Commits < 1 {
		return tools.Result{}, refuse(CodeCommitRequired, "Nothing was committed to the chat yet. Use workspace_commit, then workspace_finish.")
	}
	if missing := c.missing(); len(missing) > 0 {
		return tools.Result{}, refuse(CodeArtifactMissing, "The run has to leave more behind before it can finish.%s\nWrite it with workspace_write_file, then finish.", named("Missing", missing))
	}
	r, err := answer(struct {
		Finished bool   `json:"finished"`
		Reason   string `json:"reason,omitempty"`
	}{true, reason}, "The run is finished.")
	r.Signal = tools.SignalFinish
	return r, err
}

// foreground is also the careful reading of a run without a profile.
func (c *call) foreground() bool {
	return c.req.Profile == nil || c.req.Profile.Run.Presentation != specs.Background
}

// missing gives the paths of required artifacts that do not exist.
func (c *call) missing() []string {
	if c.req.Profile == nil {
		return nil
	}
	var out []string
	for _, a := range c.req.Profile.Output.Artifacts {
		if _, ok := c.ws.Stat(a.Path); a.Required && !ok {
			out = append(out, a.Path)
		}
	}
	return out
}
