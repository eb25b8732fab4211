package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
)

// drive moves a run on and shows what happens, until it ends or waits for somebody who is not here.
func (a *app) drive(ctx context.Context, h *house, run persistence.Run, afterSeq int64) error {
	teller := a.storyteller(h)
	teller.silence = a.json()
	if err := a.catchUp(ctx, teller, run.ID, afterSeq); err != nil {
		return err
	}
	if !a.json() {
		a.printf("%s %s  %s as %s\n", a.bold("run"), a.bold(shortID(run.ID)), run.Profile, plain(string(run.User)))
		if run.Task != "" {
			a.printf("%s\n", a.dim("task: "+oneLine(run.Task, 100)))
		}
	}
	for {
		out, err := a.step(ctx, h, run.ID, teller)
		if err != nil {
			return a.interrupted(run.ID, err)
		}
		if len(out.Waiting) > 0 && len(out.Unknown) == 0 && a.TerminalIn && a.TerminalOut && !a.json() {
			goOn, err := a.ask(ctx, h, out.Waiting)
			if err != nil {
				return a.interrupted(run.ID, err)
			}
			if goOn {
				continue
			}
		}
		return a.conclude(ctx, h, run.ID, out)
	}
}

// catchUp reads what was told before, so that later lines can refer to it.
func (a *app) catchUp(ctx context.Context, t *storyteller, run specs.RunID, until int64) error {
	if until == 0 {
		return nil
	}
	silence := t.silence
	t.silence = true
	defer func() { t.silence = silence }()
	return eachLine(ctx, t.store, t.tenant, run, 0, func(l persistence.Line) error {
		if l.Seq <= until {
			t.tell(ctx, l)
		}
		return nil
	})
}

// step runs until the run rests, with its lines told as they are written.
func (a *app) step(ctx context.Context, h *house, run specs.RunID, t *storyteller) (agent.Outcome, error) {
	follow, stop := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() {
		// Whatever it misses when it is stopped, or fails to read, is told below.
		_ = agent.Follow(follow, h.store, h.tenant, run, t.last, func(l persistence.Line) error {
			t.tell(follow, l)
			return nil
		})
	})
	out, err := h.runner.Run(ctx, h.tenant, run)
	stop()
	teller.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	rest := eachLine(ctx, h.store, h.tenant, run, t.last, func(l persistence.Line) error {
		t.tell(ctx, l)
		return nil
	})
	if err == nil {
		err = rest
	}
	return out, err
}

// eachLine gives every line of a run behind afterSeq.
func eachLine(ctx context.Context, store persistence.Store, t specs.TenantID, run specs.RunID, afterSeq int64, fn func(persistence.Line) error) error {
	const page = 1000
	for {
		lines, err := store.Journal(ctx, t, run, persistence.JournalQuery{AfterSeq: afterSeq, Limit: page})
		if err != nil {
			return err
		}
		for _, l := range lines {
			if err := fn(l); err != nil {
				return err
			}
			afterSeq = l.Seq
		}
		if len(lines) < page {
			return nil
		}
	}
}

// interrupted says how a run that was left in the middle goes on.
func (a *app) interrupted(run specs.RunID, err error) error {
	var held *persistence.HeldError
	if errors.As(err, &held) {
		return err
	}
	return &failure{err: err, hint: fmt.Sprintf("the run is in the store; callgate runs resume %s goes on with it", a.ref(run))}
}

// ref is an id as part of a command that can be copied, with the flags that find the same store again.
func (a *app) ref(run specs.RunID) string { return string(run) + a.sameStore() }

func (a *app) sameStore() string {
	s := ""
	if a.store != "" {
		s += " --store " + shellWord(a.store)
	}
	if a.tenant != "" && a.tenant != "default" {
		s += " --tenant " + shellWord(a.tenant)
	}
	return s
}

func shellWord(s string) string {
	if strings.ContainsAny(s, " '\"$&?*\\;|<>()`!#~") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

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
		a.printf("\n%s\n%s\n", a.dim("in the chat:"), indent(plain(strings.TrimRight(r.Message, "\n"))))
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

// ask shows each open question on the terminal. It says whether the run can go on now.
func (a *app) ask(ctx context.Context, h *house, waiting []persistence.Approval) (bool, error) {
	decided := false
	for _, w := range waiting {
		if w.State != machine.ApprovalPending {
			continue
		}
		done, err := a.askOne(ctx, h, w)
		if err != nil {
			return false, err
		}
		decided = decided || done
	}
	return decided, nil
}

func (a *app) askOne(ctx context.Context, h *house, w persistence.Approval) (bool, error) {
	who, err := a.approver(ctx, h, w.Run)
	if err != nil {
		_, text, hint := judge(err)
		a.note("\n%s\n  hint: %s\n", text, hint)
		return false, nil
	}
	now, err := h.store.Now(ctx)
	if err != nil {
		return false, err
	}
	a.printf("\n%s\n", a.card(w, now))
	for {
		a.printf("%s as %s: [a]pprove  [r]eject  [e]dit arguments  [q]uit and leave it open > ", a.bold("decide"), plain(string(who.User)))
		line, err := a.readLine(ctx)
		if errors.Is(err, io.EOF) {
			a.printf("\n")
			return false, nil
		}
		if err != nil {
			return false, err
		}
		b := tools.Ballot{Approval: w.ID, By: who, Verdict: tools.BallotApprove, Scope: tools.ScopeOnce}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "a", "approve", "y", "yes":
		case "r", "reject", "n", "no":
			b.Verdict = tools.BallotReject
			a.printf("reason, for the model to read > ")
			if b.Reason, err = a.readLine(ctx); err != nil && !errors.Is(err, io.EOF) {
				return false, err
			}
			b.Reason = strings.TrimSpace(b.Reason)
		case "e", "edit":
			a.printf("arguments as one line of JSON > ")
			text, err := a.readLine(ctx)
			if err != nil && !errors.Is(err, io.EOF) {
				return false, err
			}
			b.Args = json.RawMessage(strings.TrimSpace(text))
		case "q", "quit":
			return false, nil
		default:
			continue
		}
		_, err = h.dispatcher.Decide(ctx, h.tenant, b)
		if err == nil {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		code, text, hint := judge(err)
		if code == exitSystem {
			return false, err
		}
		a.printf("%s\n", a.bad(text))
		if hint != "" {
			a.printf("  hint: %s\n", hint)
		}
		var decided *tools.DecidedError
		if errors.As(err, &decided) || errors.Is(err, persistence.ErrExpired) {
			return true, nil
		}
	}
}

// readLine reads a line that a person types, or ends with ctx. The reader goroutine then ends with the next line or the
// end of the input, which is the process's own.
func (a *app) readLine(ctx context.Context) (string, error) {
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		line, err := a.Stdin.ReadString('\n')
		if line != "" && errors.Is(err, io.EOF) {
			err = nil
		}
		got <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case x := <-got:
		return strings.TrimRight(x.line, "\r\n"), x.err
	}
}

// card is the question as it was stored, whole.
func (a *app) card(w persistence.Approval, now time.Time) string {
	var c tools.Card
	var b strings.Builder
	if err := json.Unmarshal(w.Shown, &c); err != nil {
		return indent(plain(string(w.Shown)))
	}
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %s %s\n", a.dim(pad(name, 11)), fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "%s %s\n", a.wait("?"), a.bold(plain(c.Title)))
	row("tool", "%s (%s)", c.Tool, plain(orElse(string(c.SourceName), string(c.Source))))
	row("asked by", "%s, for %s", orElse(string(c.Profile), "an agent"), plain(string(c.Requester)))
	for _, r := range c.Reasons {
		why := plain(string(r.Rule))
		if r.Reason != "" {
			why += ": " + plain(r.Reason)
		}
		row("because", "%s", why)
		row("who decides", "%s", whoDecides(r))
	}
	row("effect", "%s", effects(c))
	row("arguments", "%s", strings.TrimSpace(strings.ReplaceAll(readable(c.Arguments, c.Truncated), "\n", "\n"+strings.Repeat(" ", 14))))
	for path, version := range c.Targets {
		row("acts on", "%s (%s)", plain(path), short(plain(version)))
	}
	for _, warning := range c.Warnings {
		row("warning", "%s", a.bad(warning))
	}
	row("until", "%s (%s), then %s", w.Deadline.Local().Format("2006-01-02 15:04:05"), ago(now.Sub(w.Deadline)), onExpire(c.OnExpire))
	row("digests", "%s", a.dim(fmt.Sprintf("arguments %s  tool %s  policy %s  card %s", short(string(c.ArgsDigest)), short(string(c.ToolDigest)), short(string(c.PolicyDigest)), short(string(w.ShownDigest)))))
	row("approval", "%s", w.ID)
	if len(w.Votes) > 0 {
		var names []string
		for _, v := range w.Votes {
			names = append(names, plain(string(v.User)))
		}
		row("yes so far", "%s", strings.Join(names, ", "))
	}
	if w.State != machine.ApprovalPending {
		row("state", "%s%s", w.State, by(string(w.DecidedBy)))
	}
	return strings.TrimRight(b.String(), "\n")
}

func onExpire(e specs.OnExpire) string {
	if e == specs.OnExpirePark {
		return "it stays waiting"
	}
	return "it is rejected"
}

func whoDecides(r tools.CardReason) string {
	var parts []string
	for _, role := range r.Roles {
		parts = append(parts, "role "+plain(string(role)))
	}
	for _, u := range r.Users {
		parts = append(parts, plain(string(u)))
	}
	s := strings.Join(parts, " or ")
	if r.Quorum > 1 {
		s = fmt.Sprintf("%d of: %s", r.Quorum, s)
	}
	return s
}

func effects(c tools.Card) string {
	parts := []string{string(c.SideEffect)}
	if c.ReadOnly {
		parts = append(parts, "changes nothing")
	}
	if c.Destructive {
		parts = append(parts, "can destroy")
	}
	if c.Reversible != "" && c.Reversible != specs.ReversibleNone {
		parts = append(parts, "can be undone by "+string(c.Reversible))
	}
	switch {
	case c.CostUnknown:
		parts = append(parts, fmt.Sprintf("price unknown, counted as %d", c.Cost))
	case c.Cost > 0:
		parts = append(parts, fmt.Sprintf("costs %d", c.Cost))
	}
	return strings.Join(parts, ", ")
}

// readable breaks JSON into lines without changing a character of its values; what was cut off stays as it is.
func readable(args string, truncated bool) string {
	var b bytes.Buffer
	if truncated || json.Indent(&b, []byte(args), "", "  ") != nil {
		return args
	}
	return b.String()
}

// candidates gives the name to put into the command that decides: somebody who may, so that it can be copied as it is.
func (h *house) candidates(ctx context.Context, run specs.RunID) func(persistence.Approval) string {
	users, err := h.users(ctx, run)
	return func(w persistence.Approval) string {
		if err == nil {
			for _, name := range slices.Sorted(maps.Keys(users)) {
				if mayDecide(w, specs.UserID(name), users[name].Roles) {
					return shellWord(name)
				}
			}
		}
		return "USER"
	}
}

// mayDecide guesses from the stored question; the dispatcher alone knows.
func mayDecide(w persistence.Approval, user specs.UserID, roles []specs.Role) bool {
	for _, ask := range w.Asks {
		role := slices.ContainsFunc(roles, func(r specs.Role) bool { return slices.Contains(ask.Roles, r) })
		if !role && !slices.Contains(ask.Users, user) || ask.NotRequester && user == w.Requester {
			return false
		}
	}
	return !slices.ContainsFunc(w.Votes, func(v persistence.Vote) bool { return v.User == user })
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
			a.printf("%s\n", plain(strings.TrimRight(c.Text, "\n")))
		case len(c.JSON) > 0:
			a.printf("%s\n", readable(string(c.JSON), false))
		case c.Ref != "":
			a.printf("%s %s (%s, %s)\n", c.Type, plain(c.Ref), orElse(c.MediaType, "bytes"), byteCount(c.Size))
		}
	}
	if len(r.Content) == 0 && len(r.Structured) > 0 {
		a.printf("%s\n", readable(string(r.Structured), false))
	}
}
