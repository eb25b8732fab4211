package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// card is the question as it was stored, whole.
func (a *app) card(w persistence.Approval, now time.Time) string {
	var c tools.Card
	var b strings.Builder
	if err := json.Unmarshal(w.Shown, &c); err != nil {
		return indent(block(string(w.Shown)))
	}
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %s %s\n", a.dim(pad(name, 11)), a.column(14, fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&b, "%s %s\n", a.wait("?"), a.bold(plain(c.Title)))
	row("tool", "%s (%s)", plain(string(c.Tool)), plain(orElse(string(c.SourceName), string(c.Source))))
	row("asked by", "%s, for %s", plain(orElse(string(c.Profile), "an agent")), plain(string(c.Requester)))
	for _, r := range c.Reasons {
		why := plain(string(r.Rule))
		if r.Reason != "" {
			why += ": " + plain(r.Reason)
		}
		row("because", "%s", why)
		row("who decides", "%s", whoDecides(r))
	}
	row("effect", "%s", effects(c))
	// Not a row: no line of the arguments may be broken by us.
	fmt.Fprintf(&b, "  %s %s\n", a.dim(pad("arguments", 11)),
		strings.TrimSpace(strings.ReplaceAll(block(readable(c.Arguments, c.Truncated)), "\n", "\n"+strings.Repeat(" ", 14))))
	for path, version := range c.Targets {
		row("acts on", "%s (%s)", plain(path), plain(short(version)))
	}
	for _, warning := range c.Warnings {
		row("warning", "%s", a.bad(plain(warning)))
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
