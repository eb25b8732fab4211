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
	"github.com/callgate/callgate/tools/provider"
)

// storyteller turns journal lines into sentences. It remembers what earlier lines said about a call, so that later ones can
// name it; give it the lines of one run in order.
type storyteller struct {
	a       *app
	store   persistence.Store
	tenant  specs.TenantID
	all     bool // every line by its kind, none left out
	start   time.Time
	calls   map[specs.CallID]*toldCall
	last    int64
	silence bool // keep track, print nothing
}

type toldCall struct {
	name    string
	started time.Time
}

func (a *app) storyteller(h *house) *storyteller {
	return &storyteller{a: a, store: h.store, tenant: h.tenant, calls: map[specs.CallID]*toldCall{}}
}

// note is every field that a payload of ours may have; kinds use different ones.
type note struct {
	Turn       int64           `json:"turn"`
	Calls      int64           `json:"calls"`
	Response   specs.Digest    `json:"response"`
	Tool       string          `json:"tool"`
	Asked      string          `json:"asked"`
	Args       json.RawMessage `json:"args"`
	Rule       string          `json:"rule"`
	Rules      []string        `json:"rules"`
	Reason     string          `json:"reason"`
	Message    string          `json:"message"`
	Code       string          `json:"code"`
	ErrorCode  string          `json:"errorCode"`
	Error      string          `json:"error"`
	Why        string          `json:"why"`
	By         string          `json:"by"`
	Expires    string          `json:"expires"`
	Profile    string          `json:"profile"`
	User       string          `json:"user"`
	Version    int64           `json:"version"`
	Counter    string          `json:"counter"`
	Delta      int64           `json:"delta"`
	Path       string          `json:"path"`
	Text       specs.Digest    `json:"text"`
	Component  string          `json:"component"`
	Node       string          `json:"node"`
	Attempt    int64           `json:"attempt"`
	Limit      int64           `json:"limit"`
	Remembered string          `json:"remembered"`
	Grants     []string        `json:"grants"`
	Digest     string          `json:"digest"`
	Files      json.RawMessage `json:"files"`
	Chat       string          `json:"chat"`
}

func (l note) files() []string {
	var list []struct {
		Path    string `json:"path"`
		Removed bool   `json:"removed"`
	}
	if json.Unmarshal(l.Files, &list) != nil {
		return nil
	}
	var out []string
	for _, f := range list {
		if f.Removed {
			f.Path += " (removed)"
		}
		out = append(out, plain(f.Path))
	}
	return out
}

// tell prints a line's sentence, if it has one.
func (s *storyteller) tell(ctx context.Context, l persistence.Line) {
	if s.start.IsZero() {
		s.start = l.At
	}
	s.last = l.Seq
	mark, what, text := s.sentence(ctx, l)
	if s.all {
		if text == "" {
			text = oneLine(string(l.Payload), 100)
		}
		mark, what = orElse(mark, "·"), l.Kind
	}
	if what == "" || s.silence {
		return
	}
	clock := l.At.Sub(s.start).Round(time.Millisecond)
	width := 10
	if s.all {
		width = 30
	}
	s.a.printf("%s %s  %s %s %s\n", s.a.dim(fmt.Sprintf("%4d", l.Seq)), s.a.dim(fmt.Sprintf("%9s", "+"+clockText(clock))),
		s.mark(mark), pad(what, width), s.a.column(19+width, text))
}

func clockText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.3fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%04.1fs", int(d.Minutes()), (d % time.Minute).Seconds())
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-textWidth(s)))
}

func (s *storyteller) mark(m string) string {
	switch m {
	case "✓":
		return s.a.good(m)
	case "✗":
		return s.a.bad(m)
	case "?":
		return s.a.wait(m)
	}
	return m
}

// sentence gives a mark (✓ done, ✗ refused or failed, ? waits, · else), what it is about, and the text. An empty `what`
// means that the line is bookkeeping that a reader of the story does not miss.
func (s *storyteller) sentence(ctx context.Context, l persistence.Line) (mark, what, text string) {
	var n note
	_ = json.Unmarshal(l.Payload, &n) // a payload of another shape tells less
	switch l.Machine {
	case machine.CallName:
		return s.callSentence(l, n)
	case machine.ApprovalName:
		return s.approvalSentence(l, n)
	case machine.RunName:
		return s.runSentence(l, n)
	case machine.InvocationName:
		return "", "", ""
	}
	switch l.Kind {
	case persistence.KindModelTurn:
		said := s.reply(ctx, n.Response)
		if n.Calls > 0 {
			said += s.a.dim(" (" + plural(int(n.Calls), "call") + ")")
		}
		return "·", fmt.Sprintf("turn %d", n.Turn), said
	case persistence.KindModelFailed:
		return "✗", "model", "did not answer: " + oneLine(n.Error, 100)
	case persistence.KindResultStored:
		return "", "", ""
	case persistence.KindLateResult:
		return "·", "late", s.name(l.Call) + ": an answer came after the call had ended; ignored"
	case persistence.KindCallEdited:
		return "·", "edited", s.name(l.Call) + " gets other arguments" + by(n.By)
	case persistence.KindCheckpoint:
		return "·", "saved", "version " + fmt.Sprint(n.Version) + withComma(n.files())
	case persistence.KindRolledBack:
		return "·", "restored", "workspace is again as in version " + fmt.Sprint(n.Version) + by(n.By)
	case persistence.KindCommitted:
		return "✓", "published", s.name(l.Call) + " is in the chat" + by2(" ", n.Chat)
	case persistence.KindDirectOutput:
		return "·", "captured", "plain text kept as " + plain(n.Path)
	case persistence.KindDriftRecovery:
		return "·", "reminded", fmt.Sprintf("the model wrote text and called nothing (%d of %d)", n.Attempt, n.Limit)
	case persistence.KindGuidanceSubmitted:
		return "·", "guidance", quoteText(s.blob(ctx, n.Text)) + by(n.By)
	case persistence.KindGuidanceApplied:
		return "·", "guidance", "given to the model"
	case persistence.KindPersistPromoted:
		return "✓", "kept", "persist/ is kept for the next run" + withComma(n.files())
	case persistence.KindContextSkipped:
		return "·", "left out", plain(n.Component) + ": " + oneLine(n.Reason, 80)
	case persistence.KindNodeEntered:
		return "·", "plan", "now at " + plain(n.Node)
	case persistence.KindRunResumed:
		return "·", "resumed", "another process takes the run up"
	case persistence.KindGrantCreated:
		return "·", "granted", "remembered" + by(n.By) + ": calls like this one are not asked about again"
	case persistence.KindGrantRevoked:
		return "·", "revoked", "a remembered yes" + by(n.By)
	case persistence.KindBudgetAdjusted:
		return "·", "corrected", fmt.Sprintf("%+d spent on %s", n.Delta, plain(n.Counter)) + by(n.By) + quoted(n.Reason)
	case persistence.KindBundleApplied:
		return "·", "bundle", short(n.Digest) + " applied" + by(n.By)
	case persistence.KindBundleActivated:
		return "✓", "bundle", short(n.Digest) + " is in force" + by(n.By)
	case persistence.KindRunOpened:
		return "·", "run", shortID(l.Related) + " opened"
	case persistence.KindRunClosed:
		return "·", "run", shortID(l.Related) + " closed"
	}
	return "·", l.Kind, oneLine(string(l.Payload), 100)
}

func (s *storyteller) callSentence(l persistence.Line, n note) (mark, what, text string) {
	if l.From == "" {
		s.calls[l.Call] = &toldCall{name: nameCall(n)}
		return "", "", ""
	}
	name := s.name(l.Call)
	switch machine.Event(l.Event) {
	case machine.CallDeny:
		if n.Remembered != "" {
			return "✗", "denied", name + ": answered from memory, the same call was refused before"
		}
		return "✗", "denied", name + because(n)
	case machine.CallInvalidate:
		return "✗", "failed", name + asRead(n)
	case machine.CallAllow:
		if len(n.Grants) > 0 {
			return "✓", "allowed", name + ": a remembered yes answers for it"
		}
		return "", "", ""
	case machine.CallApprove:
		return "✓", "approved", name + by(n.By)
	case machine.CallReject:
		return "✗", "rejected", name + by(n.By) + quoted(n.Reason)
	case machine.CallExpire:
		return "✗", "expired", name + ": nobody decided in time"
	case machine.CallAnswer:
		return "✓", "answered", name + by(n.By) + ", in the tool's place"
	case machine.CallReask:
		return "?", "asks again", name + because(n)
	case machine.CallStart, machine.CallRetry:
		if c := s.calls[l.Call]; c != nil {
			c.started = l.At
		}
		if l.Event == machine.CallRetry {
			return "·", "again", name + ": safe to repeat, so it is started once more"
		}
		return "", "", ""
	case machine.CallComplete:
		return "✓", "done", name + s.took(l)
	case machine.CallFail:
		return "✗", "failed", name + asRead(n) + s.took(l)
	case machine.CallTimeOut:
		return "✗", "timed out", name + s.took(l)
	case machine.CallCancel:
		return "·", "cancelled", name
	case machine.CallLose:
		return "?", "unknown", name + ": nobody can say whether it happened"
	case machine.CallReconcileCompleted:
		return "✓", "settled", name + ": it happened" + by(n.By)
	case machine.CallReconcileFailed:
		return "·", "settled", name + ": it did not happen" + by(n.By)
	case machine.CallAbandon:
		return "?", "unresolved", name + ": the run ended before anybody could say"
	}
	return "", "", ""
}

func (s *storyteller) approvalSentence(l persistence.Line, n note) (mark, what, text string) {
	switch machine.Event(l.Event) {
	case machine.Create:
		call := l.Call
		until := ""
		if t, err := time.Parse(time.RFC3339, n.Expires); err == nil {
			until = ", until " + t.Local().Format("15:04")
		}
		return "?", "asks", s.name(call) + ": " + plain(strings.Join(n.Rules, ", ")) + s.a.dim(" (approval "+shortID(l.Subject)+until+")")
	case machine.ApprovalVote:
		return "·", "vote", "one yes" + by(n.By) + ", more are needed"
	case machine.ApprovalPark:
		return "?", "parked", "nobody decided in time; it waits on, but must be asked again"
	}
	return "", "", ""
}

func (s *storyteller) runSentence(l persistence.Line, n note) (mark, what, text string) {
	switch machine.Event(l.Event) {
	case machine.Create:
		return "·", "run", plain(n.Profile) + " starts" + by2(" for ", n.User)
	case machine.RunAwaitApproval:
		return "?", "waits", "for a person"
	case machine.RunHostFailed:
		if n.Code == "" { // found after a crash: nobody knows, or it did not happen; the call's own line says which
			return "✗", "chat", "the host has not confirmed the commit"
		}
		return "✗", "chat", "the host did not take the commit: " + plain(n.Code)
	case machine.RunCapture:
		return "·", "captured", "plain text kept as " + plain(n.Path)
	case machine.RunCheckpointed, machine.RunCaptured:
		if n.Version > 0 {
			return "·", "saved", fmt.Sprintf("version %d%s", n.Version, withComma(n.files()))
		}
	case machine.RunRequestCancel:
		return "·", "cancel", "asked for" + by(n.By)
	}
	if machine.Run().IsFinal(l.To) {
		mark := "✗"
		if l.To == machine.RunCompleted {
			mark = "✓"
		}
		return mark, "run", strings.ReplaceAll(string(l.To), "_", " ") + because(n)
	}
	return "", "", ""
}

// nameCall is what a call is called in the story: the tool, and the one argument that tells most.
func nameCall(n note) string {
	name := plain(orElse(n.Tool, n.Asked))
	var args map[string]json.RawMessage
	if json.Unmarshal(n.Args, &args) != nil || len(args) == 0 {
		return name
	}
	for _, key := range []string{"path", "query", "label", "name"} {
		var s string
		if raw, ok := args[key]; ok && json.Unmarshal(raw, &s) == nil {
			return name + " " + oneLine(s, 60)
		}
	}
	var reason string
	if raw, ok := args["reason"]; ok && len(args) == 1 && json.Unmarshal(raw, &reason) == nil {
		return name + " " + quoteText(reason)
	}
	return name + " " + oneLine(string(n.Args), 60)
}

func (s *storyteller) name(id specs.CallID) string {
	if c := s.calls[id]; c != nil {
		return c.name
	}
	return "call " + string(id)
}

func (s *storyteller) took(l persistence.Line) string {
	c := s.calls[l.Call]
	if c == nil || c.started.IsZero() || l.At.Sub(c.started) < 100*time.Millisecond {
		return ""
	}
	return s.a.dim(" (" + l.At.Sub(c.started).Round(10*time.Millisecond).String() + ")")
}

// reply is what the model said in a turn.
func (s *storyteller) reply(ctx context.Context, d specs.Digest) string {
	var r provider.Reply
	if json.Unmarshal([]byte(s.blob(ctx, d)), &r) != nil || r.Text == "" {
		return s.a.dim("(says nothing)")
	}
	return quoteText(r.Text)
}

func (s *storyteller) blob(ctx context.Context, d specs.Digest) string {
	if d == "" || s.silence {
		return ""
	}
	data, err := s.store.Blob(ctx, s.tenant, d)
	if err != nil {
		return ""
	}
	return string(data)
}

func quoteText(s string) string { return "“" + oneLine(s, 100) + "”" }

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return ": " + quoteText(s)
}

func because(n note) string {
	why := orElse(n.Reason, orElse(n.Message, orElse(n.Why, n.Error)))
	label := orElse(n.Rule, orElse(n.ErrorCode, n.Code))
	switch {
	case label != "" && why != "":
		return ": " + plain(label) + ": " + oneLine(why, 100)
	case label != "" || why != "":
		return ": " + oneLine(label+why, 100)
	}
	return ""
}

// asRead is what the model reads of a failure.
func asRead(n note) string {
	return because(note{ErrorCode: orElse(n.ErrorCode, n.Code), Message: orElse(n.Message, n.Error)})
}

func by(user string) string { return by2(" by ", user) }

func by2(word, user string) string {
	if user == "" {
		return ""
	}
	return word + plain(user)
}

func withComma(list []string) string {
	if len(list) == 0 {
		return ""
	}
	if len(list) > 4 {
		return fmt.Sprintf(": %s and %d more", strings.Join(list[:4], ", "), len(list)-4)
	}
	return ": " + strings.Join(list, ", ")
}
