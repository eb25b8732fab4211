package workspace

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// DefaultCommitPath is what workspace.commit publishes when no path is given.
const DefaultCommitPath = "output/main.md"

// committer is workspace.commit {path?, mode?, reason?}: the one tool of this family that reaches outside, and only
// through the host. The host knows the call's idempotency key, so that a retry and a reconcile find the first commit.
type committer struct{}

type commitFacts struct {
	Path    string           `json:"path"`
	Mode    tools.CommitMode `json:"mode"`
	Message string           `json:"message"` // the host's id
	SHA256  string           `json:"sha256"`  // of the whole message after the commit
}

// Execute implements tools.Executor.
func (committer) Execute(ctx context.Context, req tools.Request) (tools.Result, error) {
	if err := ctx.Err(); err != nil {
		return tools.Result{}, err
	}
	c, err := begin(req)
	if err != nil {
		return tools.Result{}, err
	}
	return c.end(c.commit(ctx))
}

// Reconcile implements tools.Reconciler: it asks the host whether the commit of this call happened.
func (committer) Reconcile(ctx context.Context, req tools.Request) (tools.Result, bool, error) {
	if req.Host == nil {
		return tools.Result{}, false, errors.New("no host is connected that could say what became of the commit")
	}
	c := &call{args: parseArgs(req.Args), req: req}
	what := c.commitArgs()
	if err := c.done(); err != nil {
		return tools.Result{}, false, err
	}
	receipt, happened, err := req.Host.Confirm(ctx, req.Tenant, req.Chat, req.IdempotencyKey)
	if err != nil || !happened {
		return tools.Result{}, false, err
	}
	r, err := committed(what, receipt)
	return r, err == nil, err
}

func (c *call) commitArgs() tools.Commit {
	return tools.Commit{
		Tenant: c.req.Tenant, Run: c.req.Run, Chat: c.req.Chat, Key: c.req.IdempotencyKey,
		Path:   c.text("path", DefaultCommitPath),
		Mode:   tools.CommitMode(c.oneOf("mode", string(tools.CommitReplace), string(tools.CommitAppend))),
		Reason: c.short("reason", maxReasonChars),
	}
}

func (c *call) commit(ctx context.Context) (tools.Result, error) {
	what := c.commitArgs()
	if err := c.done(); err != nil {
		return tools.Result{}, err
	}
	path, err := c.target(what.Path)
	if err != nil {
		return tools.Result{}, err
	}
	f, ok := c.ws.Stat(path)
	switch {
	case !ok:
		return tools.Result{}, refuse(CodeNotFound, "There is no file %s to commit. Write it first with workspace_write_file, or name another path.", show(path))
	case f.Size == 0:
		return tools.Result{}, refuse(CodeEmptyCommit, "%s is empty, so there is nothing to commit. Write it first with workspace_write_file.", show(path))
	case f.Size > MaxFileBytes:
		return tools.Result{}, refuse(CodeTooLarge, "%s has %d bytes; at most %d can be committed. Commit a shorter file.", show(path), f.Size, MaxFileBytes)
	}
	data, err := c.read(ctx, f)
	if err != nil {
		return tools.Result{}, err
	}
	if !utf8.Valid(data) {
		return tools.Result{}, refuse(CodeNotText, "%s is not UTF-8 text and cannot be committed.", show(path))
	}
	host := c.req.Host
	if host == nil {
		return tools.Result{}, refuse(tools.CodeSourceUnavailable, "No chat is connected to this run, so nothing can be committed now. Your files are kept.")
	}
	what.Content = string(data)
	receipt, err := host.Commit(ctx, what)
	if err != nil {
		if ctx.Err() != nil { // the host may still be at it: nobody can say yet what became of it
			return tools.Result{}, err
		}
		var happened bool
		cause := err
		if receipt, happened, err = host.Confirm(ctx, what.Tenant, what.Chat, what.Key); err != nil {
			return tools.Result{}, fmt.Errorf("commit %s: %w (%w; and asking whether it happened: %w)", path, tools.ErrOutcomeUnknown, cause, err)
		}
		if !happened {
			return tools.Result{}, refuse(CodeCommitFailed, "The chat did not take the commit (%s). Nothing was published; you can try again.", clip(cause.Error(), 200))
		}
	}
	r, err := committed(what, receipt)
	r.ResourceRefs = []tools.ResourceRef{fileRef(path, f.Digest, len(data))}
	return r, err
}

func committed(what tools.Commit, receipt tools.Receipt) (tools.Result, error) {
	r := tools.Text("Committed %s to the chat (%s). You can revise and commit again; when everything is done, end the run with workspace_finish.", what.Path, what.Mode)
	r.Signal = tools.SignalCommitted
	return structured(r, commitFacts{Path: what.Path, Mode: what.Mode, Message: receipt.Message, SHA256: hexOf(specs.Digest(receipt.Digest))})
}
