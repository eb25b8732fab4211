// Package workspace is the family of nine tools with which an agent works on its run's files: list, search, read,
// write, patch, checkpoint, rollback, commit to the chat, finish.
//
// What you most likely want is [Executors], to be put into a tools.Registry beside the shipped specs:
//
//	for name, ex := range workspace.Executors() {
//		registry.Register(name, ex)
//	}
//
// and [Clean], when a path comes from a person or a file and is to mean the same as one that a model wrote.
//
// The files are rows of the store, not files of a disk: a path is a name below one of five roots (output, scratch,
// plan, summaries, persist), narrowed by the profile. Nothing here opens the file system.
//
// The promises:
//
//   - A path is taken exactly as written or refused, never repaired: what policy looked at, what a person
//     approved and what is touched are the same bytes. What is wrong with the text of a path, the model reads
//     and can mend; a path that does not belong found inside the store fails the run (law W7).
//   - Replacing or patching an existing file needs the invocation's own full read or write of exactly the present
//     content (law W3). A partial read never counts.
//   - A failed tool has staged nothing. All but commit only stage edits, which the dispatcher writes together with
//     the call's outcome and a checkpoint, or not at all.
//   - Rollback restores files and absences of everything this profile may write, and names what it left alone (law W5).
//   - Messages are written for the agent that made the call and say what it can do next.
package workspace

import (
	"context"

	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// Names of the nine tools.
const (
	ListFiles        specs.ToolName = "workspace.list_files"
	SearchFiles      specs.ToolName = "workspace.search_files"
	ReadFile         specs.ToolName = "workspace.read_file"
	WriteFile        specs.ToolName = "workspace.write_file"
	ApplyPatch       specs.ToolName = "workspace.apply_patch"
	CreateCheckpoint specs.ToolName = "workspace.create_checkpoint"
	Rollback         specs.ToolName = "workspace.rollback"
	Commit           specs.ToolName = "workspace.commit"
	Finish           specs.ToolName = "workspace.finish"
)

// Error codes of this family. All are recoverable.
const (
	CodeInvalidPath     = "workspace.invalid_path"      // the text of the path
	CodePathIsDirectory = "workspace.path_is_directory" // a file was asked for, a folder named
	CodeNotVisible      = "workspace.not_visible"       // outside what the profile shows; says nothing about what is there
	CodeNotWritable     = "workspace.not_writable"
	CodeNotFound        = "workspace.not_found"
	CodeParentIsFile    = "workspace.parent_is_file" // a folder of the path is a file
	CodeNotText         = "workspace.not_text"       // not UTF-8
	CodeTooLarge        = "workspace.file_too_large"
	CodeMixedRanges     = "workspace.mixed_ranges"  // lines and characters in one read
	CodeInvalidRange    = "workspace.invalid_range" // starts behind the end
	CodeUnreadFile      = "workspace.unread_file"   // never read in full by this invocation
	CodeStaleFile       = "workspace.stale_file"    // changed since it was read
	CodePatchNoMatch    = "workspace.patch_no_match"
	CodePatchAmbiguous  = "workspace.patch_ambiguous"
	CodePatchNoChange   = "workspace.patch_no_change"
	CodeNoCheckpoint    = "workspace.no_checkpoint"
	CodeEmptyCommit     = "workspace.empty_commit"
	CodeCommitFailed    = "workspace.commit_failed" // the host said no, and confirmed that nothing was written
	CodeCommitRequired  = "agent.commit_required"   // finish before any commit
	CodeArtifactMissing = "agent.artifact_missing"  // finish before a required artifact exists
)

// MaxFileBytes is the most a tool will write into one file, read in full, or commit. Larger files can still be
// read in ranges and searched up to MaxSearchedBytes.
const MaxFileBytes = 512 << 10

// Executors gives a fresh executor for each of the nine tools. They hold no state and may be used concurrently.
func Executors() map[specs.ToolName]tools.Executor {
	return map[specs.ToolName]tools.Executor{
		ListFiles:        staged(listFiles),
		SearchFiles:      staged(searchFiles),
		ReadFile:         staged(readFile),
		WriteFile:        staged(writeFile),
		ApplyPatch:       staged(applyPatch),
		CreateCheckpoint: staged(createCheckpoint),
		Rollback:         staged(rollback),
		Commit:           committer{},
		Finish:           staged(finish),
	}
}

// staged is a tool whose only effects are what it stages in the workspace view.
type staged func(ctx context.Context, c *call) (tools.Result, error)

// Execute implements tools.Executor.
func (f staged) Execute(ctx context.Context, req tools.Request) (tools.Result, error) {
	if err := ctx.Err(); err != nil {
		return tools.Result{}, err
	}
	c, err := begin(req)
	if err != nil {
		return tools.Result{}, err
	}
	return c.end(f(ctx, c))
}

// Transactional implements tools.Transactional.
func (staged) Transactional() {}
