package apply

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Bounds on texts that become part of a key. Postgres cannot index more than about 2,700 bytes a row.
const (
	maxName = 512
	maxPath = 1024
	// maxReason bounds a text that goes into a line only.
	maxReason = 4096
)

// Plan is a Change that was checked as far as possible without looking anything up.
type Plan struct {
	change persistence.Change
	needs  Needs
	nonce  string // tells this attempt's own ambiguous commit from somebody else's
	lines  []persistence.Line
	bodies [][]byte // by line; nil without a move
	blobs  []persistence.Blob
}

// Needs says what Decide has to be told.
func (p *Plan) Needs() Needs { return p.needs }

// Prepare checks a Change and puts its payloads, records and blobs into the form in which they are stored. It
// does all the work that needs no lock. Errors: ErrInvalid, ErrIllegal.
func Prepare(c persistence.Change) (*Plan, error) {
	nonce, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("%w: no randomness: %w", persistence.ErrUnavailable, err)
	}
	p := &Plan{change: c, nonce: nonce.String(), needs: Needs{Tenant: c.Tenant, Run: c.Run, Key: c.Key}}
	for _, check := range []func() error{
		p.envelope, p.story, p.content, p.budget, p.adjust, p.trees, p.grants, p.decisions, p.bundle, p.holds,
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	p.sortNeeds()
	return p, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{persistence.ErrInvalid}, args...)...)
}

// name checks a text that becomes part of a key or a column.
func name[T ~string](what string, s T, max int) error {
	switch {
	case s == "":
		return invalid("%s is empty", what)
	default:
		return text(what, s, max)
	}
}

// text is name, but may be empty.
func text[T ~string](what string, s T, max int) error {
	switch {
	case len(s) > max:
		return invalid("%s has %d bytes, at most %d", what, len(s), max)
	case !utf8.ValidString(string(s)) || strings.IndexByte(string(s), 0) >= 0:
		return invalid("%s %q is not plain UTF-8 text", what, string(s))
	}
	return nil
}

func (p *Plan) envelope() error {
	c := &p.change
	if err := errors.Join(name("tenant", c.Tenant, maxName), text("run", c.Run, maxName), name("key", c.Key, maxName)); err != nil {
		return err
	}
	switch {
	case len(c.Lines) == 0:
		return invalid("change %q has no journal line", c.Key)
	case c.Fence < 0:
		return invalid("fence %d", c.Fence)
	case c.Fence > 0 && c.Run == "":
		return invalid("a lease belongs to a run")
	}
	return nil
}

// story checks the lines and the moves among them.
func (p *Plan) story() error {
	c := &p.change
	p.needs.TenantChain = c.Run == ""
	p.bodies = make([][]byte, len(c.Lines))
	state := map[SubjectKey]machine.State{}
	last := map[SubjectKey]int{}
	for i, e := range c.Lines {
		line, err := p.line(e)
		if err != nil {
			return fmt.Errorf("line %d: %w", i, err)
		}
		p.lines = append(p.lines, line)
		if e.Move == nil {
			continue
		}
		key := SubjectKey{line.Machine, line.Subject}
		if before, moved := state[key]; moved && before != line.From {
			return invalid("line %d moves %s %s from %s, where an earlier line left it in %s", i, key.Machine, key.ID, line.From, before)
		}
		state[key], last[key] = line.To, i
		table, _ := persistence.TableOf(line.Machine)
		if line.Machine == machine.RunName {
			p.needs.RunBorn = p.needs.RunBorn || line.From == ""
			p.needs.RunEnds = p.needs.RunEnds || table.IsFinal(line.To)
		} else if line.From == "" {
			// A birth asks whether the run still lives.
			p.needs.Subjects = append(p.needs.Subjects, SubjectKey{machine.RunName, string(c.Run)})
		}
		p.needs.Subjects = append(p.needs.Subjects, key)
		p.refer(e.Move.Record)
	}
	p.needs.TenantChain = p.needs.TenantChain || p.needs.RunBorn || p.needs.RunEnds
	for _, i := range last {
		body, err := persistence.EncodeRecord(c.Lines[i].Move.Record)
		if err != nil {
			return fmt.Errorf("line %d: %w", i, err)
		}
		p.bodies[i] = body
	}
	return nil
}

func (p *Plan) line(e persistence.Entry) (persistence.Line, error) {
	l := persistence.Line{Tenant: p.change.Tenant, Run: p.change.Run, Level: e.Level, Kind: e.Kind, Cause: e.Cause,
		Request: e.Request, Invocation: e.Invocation, Call: e.Call, Related: e.Related}
	if e.Move != nil {
		if err := p.move(e.Move, &l); err != nil {
			return l, err
		}
	}
	switch l.Level {
	case "":
		l.Level = persistence.LevelInfo
	case persistence.LevelDebug, persistence.LevelInfo, persistence.LevelWarn, persistence.LevelError:
	default:
		return l, invalid("level %q", l.Level)
	}
	if l.Cause < 0 {
		return l, invalid("cause %d", l.Cause)
	}
	if l.Kind == persistence.KindRunOpened || l.Kind == persistence.KindRunClosed {
		return l, invalid("lines of kind %s are the store's own", l.Kind)
	}
	if err := errors.Join(name("kind", l.Kind, maxName), text("request", l.Request, maxName), text("invocation", l.Invocation, maxName),
		text("call", l.Call, maxName), text("related", l.Related, maxName)); err != nil {
		return l, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return l, fmt.Errorf("%w: no randomness: %w", persistence.ErrUnavailable, err)
	}
	l.ID = id.String()
	l.Payload, err = persistence.CanonicalPayload(e.Payload, e.Redact)
	return l, err
}

// move checks one move against its table and against the record that it carries, and writes it into the line.
// Where the line does not say whom it is about, the record says it.
func (p *Plan) move(m *persistence.Move, l *persistence.Line) error {
	var call specs.CallID
	var invocation specs.InvocationID
	switch r := m.Record.(type) {
	case *persistence.Run:
		if r == nil {
			return invalid("a move without a record")
		}
		if r.ID != p.change.Run {
			return invalid("run %q within a change of run %q", r.ID, p.change.Run)
		}
	case *persistence.Call:
		if r == nil {
			return invalid("a move without a record")
		}
		call, invocation = r.ID, r.Invocation
	case *persistence.Invocation:
		if r == nil {
			return invalid("a move without a record")
		}
		invocation = r.ID
	case *persistence.Approval:
		if r == nil {
			return invalid("a move without a record")
		}
		call, invocation = r.Call, r.Invocation
		l.Related = cmp.Or(l.Related, string(r.ID))
	default:
		return invalid("a move without a record")
	}
	l.Call, l.Invocation = cmp.Or(l.Call, call), cmp.Or(l.Invocation, invocation)

	kind, id := m.Record.Subject()
	meta := persistence.MetaOf(m.Record)
	switch {
	case p.change.Run == "":
		return invalid("%s %s moves outside a run", kind, id)
	case kind != m.Step.Machine:
		return invalid("a step of machine %q for a %s", m.Step.Machine, kind)
	case meta.Tenant != "" && meta.Tenant != p.change.Tenant, meta.Run != "" && meta.Run != p.change.Run:
		return invalid("%s %s belongs to tenant %q, run %q", kind, id, meta.Tenant, meta.Run)
	case m.Version < 0:
		return invalid("version %d", m.Version)
	}
	if err := name(kind+" id", id, maxName); err != nil {
		return err
	}
	table, ok := persistence.TableOf(kind)
	if !ok {
		return invalid("no machine %q", kind)
	}
	want := table.Birth()
	if m.Step.From != "" || m.Step.Event != want.Event {
		var err error
		if want, err = table.Fire(m.Step.From, m.Step.Event); err != nil {
			return fmt.Errorf("%w: %w", persistence.ErrIllegal, err)
		}
	}
	if m.Step.To != want.To || m.Step.Journal != want.Journal {
		return fmt.Errorf("%w: %s: %v writing %q; the table says %v writing %q",
			persistence.ErrIllegal, kind, m.Step, m.Step.Journal, want, want.Journal)
	}
	if l.Kind = cmp.Or(l.Kind, want.Journal); l.Kind != want.Journal {
		return invalid("the move %v writes %q, not %q", want, want.Journal, l.Kind)
	}
	l.Machine, l.Subject, l.From, l.Event, l.To = kind, id, want.From, want.Event, want.To
	return nil
}

// refer notes the blobs that a record names.
func (p *Plan) refer(r persistence.Record) {
	p.needs.Digests = append(p.needs.Digests, persistence.Refs(r)...)
}

func (p *Plan) content() error {
	c := &p.change
	for _, b := range c.Blobs {
		if got := specs.DigestOf(b.Data); got != b.Digest {
			return invalid("blob %s has digest %s", b.Digest, got)
		}
		if err := text("media type", b.MediaType, maxName); err != nil {
			return err
		}
		if b.Data == nil {
			b.Data = []byte{}
		}
		p.blobs = append(p.blobs, b)
	}
	slices.SortFunc(p.blobs, func(a, b persistence.Blob) int { return cmp.Compare(a.Digest, b.Digest) })
	p.blobs = slices.CompactFunc(p.blobs, func(a, b persistence.Blob) bool { return a.Digest == b.Digest })

	names := map[string]bool{}
	for _, a := range c.Artifacts {
		if err := errors.Join(name("artifact", a.Name, maxPath), name("artifact digest", a.Digest, maxName)); err != nil {
			return err
		}
		switch {
		case c.Run == "":
			return invalid("artifact %q outside a run", a.Name)
		case names[a.Name]:
			return invalid("artifact %q twice", a.Name)
		}
		names[a.Name] = true
		p.needs.Artifacts = append(p.needs.Artifacts, a.Name)
		p.needs.Digests = append(p.needs.Digests, a.Digest)
	}
	reads := map[persistence.ReadState]bool{}
	for _, r := range c.Reads {
		if err := errors.Join(name("invocation", r.Invocation, maxName), name("path", r.Path, maxPath), text("digest", r.Digest, maxName)); err != nil {
			return err
		}
		r.Digest = ""
		switch {
		case c.Run == "":
			return invalid("read state of %q outside a run", r.Path)
		case reads[r]:
			return invalid("read state of %q twice", r.Path)
		}
		reads[r] = true
	}
	return nil
}

func (p *Plan) budget() error {
	c := &p.change
	seen := map[ReservationKey]bool{}
	add := func(what string, k ReservationKey) error {
		if err := errors.Join(name("call", k.Call, maxName), name("counter", k.Counter, maxName)); err != nil {
			return err
		}
		switch {
		case c.Run == "":
			return invalid("%s of %s outside a run", what, k.Counter)
		case seen[k]:
			return invalid("%s of %s for call %s twice", what, k.Counter, k.Call)
		}
		seen[k] = true
		p.needs.Reservations = append(p.needs.Reservations, k)
		p.needs.Counters = append(p.needs.Counters, k.Counter)
		return nil
	}
	for _, r := range c.Reserve {
		if r.Limit < 0 || r.Amount < 0 {
			return invalid("reservation of %d of %d on %s", r.Amount, r.Limit, r.Counter)
		}
		if err := add("reservation", ReservationKey{r.Call, r.Counter}); err != nil {
			return err
		}
	}
	clear(seen)
	for _, s := range c.Settle {
		if s.Spent < 0 {
			return invalid("settlement of %d on %s", s.Spent, s.Counter)
		}
		if err := add("settlement", ReservationKey{s.Call, s.Counter}); err != nil {
			return err
		}
	}
	return nil
}

// adjust holds every adjustment and its line together: neither is there without the other, and they say the same.
func (p *Plan) adjust() error {
	var notes []persistence.AdjustmentNote
	for _, l := range p.lines {
		if l.Kind != persistence.KindBudgetAdjusted {
			continue
		}
		var n persistence.AdjustmentNote
		if err := json.Unmarshal(l.Payload, &n); err != nil {
			return invalid("a line of kind %s whose payload is not its note: %v", l.Kind, err)
		}
		notes = append(notes, n)
	}
	if len(notes) != len(p.change.Adjust) {
		return invalid("%d adjustments and %d lines of kind %s", len(p.change.Adjust), len(notes), persistence.KindBudgetAdjusted)
	}
	seen := map[persistence.CounterKey]bool{}
	for i, a := range p.change.Adjust {
		if err := errors.Join(name("counter", a.Counter, maxName), name("reason of an adjustment", a.Reason, maxReason),
			name("who made an adjustment", notes[i].By, maxName)); err != nil {
			return err
		}
		switch {
		case a.Delta == 0:
			return invalid("an adjustment of %s by nothing", a.Counter)
		case notes[i] != a.Note(notes[i].By):
			return invalid("an adjustment of %s by %d, of which the journal says another thing: %+v", a.Counter, a.Delta, notes[i])
		case seen[a.Counter]:
			return invalid("%s adjusted twice", a.Counter)
		}
		seen[a.Counter] = true
		p.needs.Counters = append(p.needs.Counters, a.Counter)
	}
	return nil
}

func (p *Plan) trees() error {
	own := map[specs.Digest]int{}
	for _, b := range p.blobs {
		own[b.Digest] = len(b.Data)
	}
	seen := map[persistence.TreeID]bool{}
	for _, t := range p.change.Trees {
		if err := name("tree", t.Tree, maxName); err != nil {
			return err
		}
		if t.Base < 0 || seen[t.Tree] {
			return invalid("tree %s: base %d, or changed twice", t.Tree, t.Base)
		}
		seen[t.Tree] = true
		if err := errors.Join(text("label", t.Checkpoint.Label, maxPath), text("reason", t.Checkpoint.Reason, maxPath),
			text("call", t.Checkpoint.Call, maxName)); err != nil {
			return err
		}
		paths := map[string]bool{}
		for _, e := range t.Edits {
			if err := errors.Join(name("path", e.Path, maxPath), text("digest", e.Digest, maxName)); err != nil {
				return err
			}
			size, here := own[e.Digest]
			switch {
			case paths[e.Path]:
				return invalid("tree %s: %q edited twice", t.Tree, e.Path)
			case e.Size < 0, e.Digest == "" && e.Size != 0, here && int64(size) != e.Size:
				return invalid("tree %s: %q has size %d", t.Tree, e.Path, e.Size)
			}
			paths[e.Path] = true
			if e.Digest != "" {
				p.needs.Digests = append(p.needs.Digests, e.Digest)
			}
		}
		p.needs.Trees = append(p.needs.Trees, t.Tree)
	}
	return nil
}

func (p *Plan) grants() error {
	seen := map[string]bool{}
	for _, g := range p.change.Grants {
		if err := errors.Join(name("grant", g.ID, maxName), name("tool", g.Tool, maxName), text("run", g.Run, maxName)); err != nil {
			return err
		}
		if seen[g.ID] {
			return invalid("grant %s twice", g.ID)
		}
		seen[g.ID] = true
		p.needs.Grants = append(p.needs.Grants, g.ID)
	}
	for _, id := range p.change.Revoke {
		if err := name("grant", id, maxName); err != nil {
			return err
		}
		p.needs.Grants = append(p.needs.Grants, id)
	}
	return nil
}

func (p *Plan) decisions() error {
	seen := map[DecisionKey]bool{}
	for _, d := range p.change.Decisions {
		if err := errors.Join(name("call", d.Call, maxName), text("policy digest", d.PolicyDigest, maxName)); err != nil {
			return err
		}
		key := DecisionKey{d.Call, d.Phase, d.Attempt}
		switch {
		case p.change.Run == "":
			return invalid("a decision outside a run")
		case d.Phase != "call" && d.Phase != "dispatch", d.Attempt < 1:
			return invalid("decision on call %s: phase %q, attempt %d", d.Call, d.Phase, d.Attempt)
		case seen[key]:
			return invalid("decision on call %s: phase %q, attempt %d twice", d.Call, d.Phase, d.Attempt)
		case !json.Valid(d.Input), !json.Valid(d.Output):
			return invalid("decision on call %s: input or output is not JSON", d.Call)
		case p.decisionLine(d) < 0:
			return invalid("decision on call %s, of which no line speaks", d.Call)
		}
		seen[key] = true
		p.needs.Decisions = append(p.needs.Decisions, key)
	}
	return nil
}

// decisionLine finds the line that a decision belongs to: for the call phase the first one that moves the call on
// from its birth, for the dispatch phase the last one, and otherwise any that speaks of the call. -1: none.
func (p *Plan) decisionLine(d persistence.DecisionRecord) int {
	any, first, last := -1, -1, -1
	for i, l := range p.lines {
		if l.Call != d.Call {
			continue
		}
		if any < 0 {
			any = i
		}
		if l.Machine == machine.CallName && l.From != "" {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	switch {
	case first < 0:
		return any
	case d.Phase == "call":
		return first
	default:
		return last
	}
}

func (p *Plan) bundle() error {
	b := p.change.Bundle
	if b == nil {
		return nil
	}
	if p.change.Run != "" {
		return invalid("a bundle belongs to the tenant, not to run %s", p.change.Run)
	}
	if b.Store == nil && b.Activate == "" {
		return invalid("a bundle change that changes nothing")
	}
	if b.Store != nil {
		if err := errors.Join(name("bundle digest", b.Store.Digest, maxName), text("by", b.Store.By, maxName)); err != nil {
			return err
		}
		p.needs.Bundles = append(p.needs.Bundles, b.Store.Digest)
	}
	if b.Activate != "" {
		if err := name("bundle digest", b.Activate, maxName); err != nil {
			return err
		}
		p.needs.Bundles = append(p.needs.Bundles, b.Activate)
		p.needs.ActiveBundle = true
	}
	return nil
}

// holds has every line hold fast what is written with it and is not in it.
func (p *Plan) holds() error {
	c := &p.change
	all := make([]persistence.Holds, len(p.lines))
	hold := func(line int, name string, d specs.Digest) {
		if all[line] == nil {
			all[line] = persistence.Holds{}
		}
		all[line][name] = d
	}
	for i, body := range p.bodies {
		if body != nil {
			hold(i, persistence.HoldsRecord, persistence.RecordDigest(body, c.Lines[i].Move.Record.Due()))
		}
	}
	for i := range c.Decisions {
		d := &c.Decisions[i]
		hold(p.decisionLine(*d), persistence.HoldsDecision(d.Phase, d.Attempt), d.Digest())
	}
	for _, t := range c.Trees {
		hold(0, persistence.HoldsTree(t.Tree, t.Base+1), persistence.EditsDigest(t.Edits))
		for _, e := range t.Edits {
			if e.Digest == "" {
				hold(0, persistence.HoldsGone(t.Tree, t.Base+1, e.Path), "")
			}
		}
	}
	for _, a := range c.Artifacts {
		hold(0, persistence.HoldsArtifact(a.Name), a.Digest)
	}
	for _, g := range c.Grants {
		hold(0, persistence.HoldsGrant(g.ID), g.Digest())
	}
	for _, id := range c.Revoke {
		hold(0, persistence.HoldsRevoked(id), "")
	}
	if c.Bundle != nil && c.Bundle.Store != nil {
		hold(0, persistence.HoldsBundle(c.Bundle.Store.Digest), "")
	}
	if c.Bundle != nil && c.Bundle.Activate != "" {
		hold(0, persistence.HoldsActive, c.Bundle.Activate)
	}
	for i, h := range all {
		if h == nil {
			continue
		}
		var err error
		if p.lines[i].Holds, err = json.Marshal(h); err != nil {
			return err
		}
	}
	return nil
}

// sortNeeds brings every list into the one order in which locks are taken, and drops what the change brings itself.
func (p *Plan) sortNeeds() {
	n := &p.needs
	n.Subjects = sorted(n.Subjects, func(a, b SubjectKey) int { return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.ID, b.ID)) })
	n.Reservations = sorted(n.Reservations, func(a, b ReservationKey) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Counter, b.Counter))
	})
	n.Decisions = sorted(n.Decisions, func(a, b DecisionKey) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Attempt, b.Attempt))
	})
	n.Counters, n.Trees = sorted(n.Counters, cmp.Compare), sorted(n.Trees, cmp.Compare)
	n.Artifacts, n.Grants, n.Bundles = sorted(n.Artifacts, cmp.Compare), sorted(n.Grants, cmp.Compare), sorted(n.Bundles, cmp.Compare)
	missing := map[specs.Digest]bool{}
	for _, d := range n.Digests {
		missing[d] = true
	}
	for _, b := range p.blobs {
		delete(missing, b.Digest)
	}
	n.Digests = slices.Sorted(maps.Keys(missing))
}

func sorted[T comparable](list []T, order func(a, b T) int) []T {
	slices.SortFunc(list, order)
	return slices.Compact(list)
}
