package persistence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/specs"
)

// What the rows of a store say is compared with what the lines of its chains say.

// remembrances compares the grants that hold with what the lines of all chains say. They were read before the chains, so that
// each has its line there.
func (v *verifier) remembrances(ctx context.Context, grants []Grant) error {
	now, err := v.s.Grants(ctx, v.t, "")
	if err != nil {
		return err
	}
	for _, g := range grants {
		held, told := v.grants[HoldsGrant(g.ID)]
		_, revoked := v.grants[HoldsRevoked(g.ID)]
		switch {
		case !told:
			v.found(FoundOrphan, g.Run, 0, "grant %s is stored and no line tells that somebody gave it", g.ID)
		case held != g.Digest():
			v.found(FoundState, g.Run, 0, "grant %s is stored with another content than it was given with", g.ID)
		case revoked && slices.ContainsFunc(now, func(n Grant) bool { return n.ID == g.ID }):
			v.found(FoundState, g.Run, 0, "grant %s holds, and a line says that it was revoked", g.ID)
		}
	}
	return nil
}

// inForce compares the bundle in force with what the tenant's chain says.
func (v *verifier) inForce(ctx context.Context) error {
	for range 10 {
		active, err := v.s.ActiveBundle(ctx, v.t)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		more, err := v.read(ctx, "")
		if err != nil {
			return err
		}
		if more > 0 {
			continue
		}
		if err := v.bundles(ctx); err != nil {
			return err
		}
		if active.Digest != v.rows[HoldsActive] && !v.broken {
			v.found(FoundState, "", 0, "bundle %q is in force; the lines put %q in force", active.Digest, v.rows[HoldsActive])
		}
		v.report.Head = Head{Seq: v.last.Seq, Hash: v.last.Hash}
		return nil
	}
	return nil
}

// bundles looks for the bundles that the tenant's chain tells of.
func (v *verifier) bundles(ctx context.Context) error {
	for name := range v.rows {
		digest, ok := strings.CutPrefix(name, holdsBundle)
		if !ok {
			continue
		}
		_, err := v.s.Bundle(ctx, v.t, specs.Digest(digest))
		switch {
		case errors.Is(err, ErrNotFound):
			v.found(FoundOrphan, "", 0, "a line tells of bundle %s, which is not stored", digest)
		case errors.Is(err, ErrCorrupt):
			v.found(FoundState, "", 0, "bundle %s cannot be read: %v", digest, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// remembered checks that the tenant's chain knows of the run's birth and, when it has ended, of its end.
func (v *verifier) remembered(ctx context.Context, run specs.RunID) error {
	table, _ := TableOf(machine.RunName)
	state, born := v.states[[2]string{machine.RunName, string(run)}]
	anchors, err := v.anchorsOf(ctx, run)
	if err != nil || !born {
		return err
	}
	has := func(kind string) bool {
		return slices.ContainsFunc(anchors, func(l Line) bool { return l.Kind == kind })
	}
	if !has(KindRunOpened) {
		v.found(FoundAnchor, run, 0, "the tenant's chain does not know of the run's birth: its line there was removed, or the run was not written by the store")
	}
	if table.IsFinal(state) && !has(KindRunClosed) {
		v.found(FoundAnchor, run, v.last.Seq, "the run has ended and the tenant's chain does not know it")
	}
	return nil
}

// records compares every record with where its lines lead to. A run that is at work is read again until lines and
// records are of the same moment; one that never rests is left alone.
func (v *verifier) records(ctx context.Context, run specs.RunID) error {
	for range 10 {
		stored, all, err := v.stored(ctx, run)
		if errors.Is(err, ErrCorrupt) {
			v.found(FoundState, run, 0, "a record cannot be read: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
		more, err := v.read(ctx, run)
		if err != nil {
			return err
		}
		if more > 0 {
			continue
		}
		if !v.broken {
			v.compare(run, stored)
			v.bodies(run, all)
		}
		for _, r := range all {
			if err := v.refs(ctx, run, r); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

func (v *verifier) compare(run specs.RunID, stored map[[2]string]machine.State) {
	for key, state := range stored {
		led, born := v.states[key]
		switch {
		case !born:
			v.found(FoundOrphan, run, 0, "%s %s is stored and no line tells of its birth", key[0], key[1])
		case led != state:
			v.found(FoundState, run, 0, "%s %s is stored as %s; its lines lead to %s", key[0], key[1], state, led)
		}
	}
	for key, led := range v.states {
		if _, ok := stored[key]; !ok {
			v.found(FoundState, run, 0, "%s %s is not stored; its lines lead to %s", key[0], key[1], led)
		}
	}
}

// bodies compares what records hold with what their last moves wrote.
func (v *verifier) bodies(run specs.RunID, all []Record) {
	for _, r := range all {
		kind, id := r.Subject()
		key := [2]string{kind, id}
		if _, born := v.states[key]; !born {
			continue
		}
		body, err := EncodeRecord(r)
		switch {
		case err != nil || RecordDigest(body, r.Due()) != v.rows[recordName(kind, id)]:
			v.found(FoundState, run, 0, "%s %s is stored with another content than its last move wrote", kind, id)
		case r.meta().Version != v.moves[key]:
			v.found(FoundState, run, 0, "%s %s is stored at version %d; its lines move it %d times", kind, id, r.meta().Version, v.moves[key])
		}
	}
}

// stored reads all records of a run, and their states.
func (v *verifier) stored(ctx context.Context, run specs.RunID) (map[[2]string]machine.State, []Record, error) {
	stored := map[[2]string]machine.State{}
	var all []Record
	keep := func(r Record) {
		kind, id := r.Subject()
		stored[[2]string{kind, id}] = r.meta().State
		all = append(all, r)
	}
	r, err := v.s.Run(ctx, v.t, run)
	if err == nil {
		keep(&r)
	} else if !errors.Is(err, ErrNotFound) {
		return nil, nil, err
	}
	calls, err := v.s.Calls(ctx, v.t, run)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, nil, err
	}
	for i := range calls {
		keep(&calls[i])
	}
	invocations, err := v.s.Invocations(ctx, v.t, run)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, nil, err
	}
	for i := range invocations {
		keep(&invocations[i])
	}
	for q := (Query{Run: run, Limit: 500}); ; {
		approvals, next, err := v.s.Approvals(ctx, v.t, q)
		if err != nil {
			return nil, nil, err
		}
		for i := range approvals {
			keep(&approvals[i])
		}
		if q.After = next; next == "" {
			return stored, all, nil
		}
	}
}

func (v *verifier) decisions(ctx context.Context, run specs.RunID, call specs.CallID) error {
	list, err := v.s.Decisions(ctx, v.t, run, call)
	if err != nil {
		return err
	}
	for i := range list {
		d := &list[i]
		if d.Seq > v.last.Seq { // it may have been made meanwhile
			if _, err := v.read(ctx, run); err != nil {
				return err
			}
		}
		name := string(call) + " " + HoldsDecision(d.Phase, d.Attempt)
		held, told := v.rows[name]
		delete(v.rows, name)
		switch {
		case d.Seq < 1 || d.Seq > v.last.Seq:
			v.found(FoundOrphan, run, d.Seq, "a decision on call %s belongs to line %d, which is not there", call, d.Seq)
		case !told && !v.broken:
			v.found(FoundOrphan, run, d.Seq, "a decision on call %s (phase %s, attempt %d) is stored and no line tells of it", call, d.Phase, d.Attempt)
		case told && held != d.Digest():
			v.found(FoundState, run, d.Seq, "a decision on call %s (phase %s, attempt %d) is not what line %d says was decided", call, d.Phase, d.Attempt, d.Seq)
		}
	}
	for name := range v.rows {
		if strings.HasPrefix(name, string(call)+" "+holdsDecision) {
			v.found(FoundOrphan, run, 0, "a line tells of a decision on call %s (%s) that is not stored", call, strings.TrimPrefix(name, string(call)+" "))
			delete(v.rows, name)
		}
	}
	return nil
}

func (v *verifier) refs(ctx context.Context, run specs.RunID, r Record) error {
	for _, d := range Refs(r) {
		kind, id := r.Subject()
		if err := v.blob(ctx, FoundMissingBlob, run, d, kind+" "+id); err != nil {
			return err
		}
	}
	if c, ok := r.(*Call); ok {
		return v.decisions(ctx, run, c.ID)
	}
	return nil
}

// blob reads content to see that it is there and unchanged.
func (v *verifier) blob(ctx context.Context, kind FindingKind, run specs.RunID, d specs.Digest, who string) error {
	_, err := v.s.Blob(ctx, v.t, d)
	switch {
	case errors.Is(err, ErrNotFound):
		v.found(kind, run, 0, "%s refers to %s, which is not stored", who, d)
	case errors.Is(err, ErrCorrupt):
		v.found(kind, run, 0, "%s refers to %s, whose content was changed", who, d)
	default:
		return err
	}
	return nil
}

// contents checks the artifacts and every version of the workspace that a checkpoint names.
func (v *verifier) contents(ctx context.Context, run specs.RunID) error {
	artifacts, err := v.s.Artifacts(ctx, v.t, run)
	if err != nil {
		return err
	}
	for _, a := range artifacts {
		if err := v.blob(ctx, FoundArtifact, run, a.Digest, "artifact "+a.Name); err != nil {
			return err
		}
	}
	last := v.last.Seq
	if _, err := v.read(ctx, run); err != nil { // the lines of what was made meanwhile
		return err
	}
	v.artifacts(run, artifacts, last == v.last.Seq)
	return v.tree(ctx, run, RunTree(run), v.rows)
}

// artifacts compares names with the lines that gave them. Of a run at work some may have been given since they were listed.
func (v *verifier) artifacts(run specs.RunID, stored []Artifact, all bool) {
	if v.broken {
		return
	}
	there := map[string]bool{}
	for _, a := range stored {
		there[HoldsArtifact(a.Name)] = true
		if held, told := v.rows[HoldsArtifact(a.Name)]; !told || held != a.Digest {
			v.found(FoundState, run, 0, "artifact %s is not what its line says", a.Name)
		}
	}
	for name := range v.rows {
		if all && strings.HasPrefix(name, holdsArtifact) && !there[name] {
			v.found(FoundArtifact, run, 0, "a line tells of artifact %s, which is not stored", strings.TrimPrefix(name, holdsArtifact))
		}
	}
}

// tree checks every version of a tree against the line that wrote it, and that its files are there.
func (v *verifier) tree(ctx context.Context, run specs.RunID, id TreeID, rows Holds) error {
	points, err := v.s.Checkpoints(ctx, v.t, id)
	if err != nil {
		return err
	}
	broken, more := false, 0
	if run != "" {
		if more, err = v.read(ctx, run); err != nil { // the lines of versions that were made meanwhile
			return err
		}
		broken = v.broken
	}
	seen := map[specs.Digest]bool{}
	before := Tree{}
	for _, p := range points {
		if _, told := rows[HoldsTree(id, p.Version)]; !told && run == "" && p.At.After(v.began) {
			break // its line was written after its chain was read
		}
		tree, err := v.s.Tree(ctx, v.t, id, p.Version)
		if err != nil {
			return err
		}
		if !broken && !rows.made(before, tree) {
			v.found(FoundState, run, 0, "version %d of the files of %s is not what its line wrote", p.Version, id)
		}
		before = tree
		for path, f := range tree.Files {
			if seen[f.Digest] {
				continue
			}
			seen[f.Digest] = true
			if err := v.blob(ctx, FoundMissingBlob, run, f.Digest, fmt.Sprintf("%s at version %d", path, p.Version)); err != nil {
				return err
			}
		}
	}
	if _, told := rows[HoldsTree(id, before.Version+1)]; told && more == 0 && !broken {
		v.found(FoundState, run, 0, "a line tells of version %d of the files of %s, which is not stored", before.Version+1, id)
	}
	return nil
}
