package tools

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// Card is what a person is shown before they decide: exactly this, at every door. An approval is bound to its digest.
type Card struct {
	Title string         `json:"title"`
	Tool  specs.ToolName `json:"tool"`
	// Arguments is the canonical JSON of the arguments with every character that cannot be seen written as a \u escape,
	// so that reading it as JSON gives the arguments that will run.
	Arguments string `json:"arguments"`
	// Truncated says that Arguments is only the beginning of ArgumentsBytes bytes.
	Truncated      bool     `json:"truncated,omitempty"`
	ArgumentsBytes int      `json:"argumentsBytes"`
	Redacted       bool     `json:"redacted,omitempty"` // the tool's spec hides part of the arguments from people and journal
	Warnings       []string `json:"warnings,omitempty"`

	SideEffect  specs.SideEffect `json:"sideEffect"`
	ReadOnly    bool             `json:"readOnly"`
	Destructive bool             `json:"destructive"`
	Idempotent  bool             `json:"idempotent"`
	Reversible  specs.Reversible `json:"reversible,omitempty"`
	Cost        int64            `json:"cost"` // what it may cost at most, in the smallest money unit
	CostUnknown bool             `json:"costUnknown,omitempty"`
	Source      specs.SourceKind `json:"source"`
	SourceName  specs.SourceName `json:"sourceName,omitempty"`

	Reasons []CardReason      `json:"reasons"`
	Targets map[string]string `json:"targets,omitempty"` // what it acts on, as it is now
	// Envelope is, for a delegated call, the profiles on the way from the root agent to the one that calls.
	Envelope  []specs.ProfileName `json:"envelope,omitempty"`
	Profile   specs.ProfileName   `json:"profile,omitempty"`
	Requester specs.UserID        `json:"requester"`

	ArgsDigest   specs.Digest   `json:"argsDigest"`
	ToolDigest   specs.Digest   `json:"toolDigest"`
	PolicyDigest specs.Digest   `json:"policyDigest"`
	TTL          string         `json:"ttl"`
	Expires      time.Time      `json:"expires"`
	OnExpire     specs.OnExpire `json:"onExpire"`
}

// CardReason is one rule's demand, in its own words.
type CardReason struct {
	Rule   specs.RuleID    `json:"rule"`
	Layer  specs.LayerName `json:"layer"`
	Reason string          `json:"reason,omitempty"`
	Roles  []specs.Role    `json:"roles,omitempty"`
	Users  []specs.UserID  `json:"users,omitempty"`
	Quorum int             `json:"quorum"`
}

// maxShown is the most bytes of arguments that a card shows.
const maxShown = 64 << 10

func newCard(sc *scene, tool *specs.Tool, toolDigest specs.Digest, args json.RawMessage, dec celpolicy.Decision, targets map[string]string) (Card, error) {
	ann, ok := sc.pinned.Policy.Annotations(tool.ToolName()) // as policy reads them: strictly where the source is not trusted
	if !ok {
		ann = tool.Annotations
	}
	c := Card{
		Title: Visible(tool.Title), Tool: tool.ToolName(), ArgumentsBytes: len(args),
		SideEffect: ann.SideEffect, ReadOnly: ann.ReadOnly, Destructive: ann.Destructive, Idempotent: ann.Idempotent, Reversible: ann.Reversible,
		CostUnknown: ann.CostUnknown, Source: tool.Source.Kind, SourceName: tool.Source.Name,
		Targets: targets, Profile: sc.profileName(), Requester: sc.run.User,
		ArgsDigest: specs.DigestOf(args), ToolDigest: toolDigest, PolicyDigest: sc.pinned.Bundle.Digest,
	}
	if c.Title == "" {
		c.Title = tool.Name
	}
	c.Cost, _ = sc.price(tool)
	for _, e := range sc.envelopes {
		c.Envelope = append(c.Envelope, e.Profile)
	}
	shown, cutOut, err := redactJSON(args, redactPointers(tool))
	if err != nil {
		return c, err
	}
	if cutOut {
		c.Redacted = true
		c.Warnings = append(c.Warnings, "Part of the arguments is hidden because the tool's spec says so.")
		if shown, err = specs.CanonicalJSON(shown); err != nil {
			return c, err
		}
	}
	if n := countInvisible(string(shown)); n > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("The arguments hold %d characters that cannot be seen or that change the direction of the text; they are shown as \\u escapes.", n))
	}
	c.Arguments = Visible(string(shown))
	if len(c.Arguments) > maxShown {
		c.Arguments, c.Truncated = strings.TrimSuffix(clip(c.Arguments, maxShown), "…"), true
		c.Warnings = append(c.Warnings, fmt.Sprintf("The arguments are too long to be shown whole: this is the beginning of %d bytes.", len(args)))
	}
	ttl, onExpire := askTerms(dec.Asks)
	c.TTL, c.Expires, c.OnExpire = ttl.String(), sc.now.Add(ttl), onExpire
	for _, a := range dec.Asks {
		c.Reasons = append(c.Reasons, CardReason{a.Rule, a.Layer, Visible(a.Reason), a.Approval.Approvers.Roles, a.Approval.Approvers.Users, a.Approval.Quorum})
	}
	return c, nil
}

// askTerms joins the terms of several asks: the shortest time, and reject as soon as one of them says so.
func askTerms(asks []celpolicy.Ask) (time.Duration, specs.OnExpire) {
	ttl, onExpire := time.Duration(0), specs.OnExpirePark
	for _, a := range asks {
		t := a.Approval.TTL
		if t <= 0 {
			t = defaultTTL
		}
		if ttl == 0 || t < ttl {
			ttl = t
		}
		if a.Approval.OnExpire != specs.OnExpirePark {
			onExpire = specs.OnExpireReject
		}
	}
	if ttl == 0 {
		ttl = defaultTTL
	}
	return ttl, onExpire
}

// defaultTTL is how long a question stands where no rule says.
const defaultTTL = 15 * time.Minute

// Visible writes every character that a person could not see, or that would move others around, as a JSON \u escape: control and
// format characters (bidirectional ones among them), separators other than the plain space, private and unassigned code
// points, and the letters that are drawn as nothing. In a JSON text such characters stand only within strings, where the
// escape means the same.
func Visible(s string) string {
	if countInvisible(s) == 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !invisible(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func countInvisible(s string) int {
	n := 0
	for _, r := range s {
		if invisible(r) {
			n++
		}
	}
	return n
}

func invisible(r rune) bool {
	switch {
	case r == ' ':
		return false
	case r < 0x20, r == 0x7F:
		return true
	case r < 0x7F:
		return false
	case blank(r):
		return true
	}
	return !unicode.IsGraphic(r) || unicode.Is(unicode.Z, r)
}

// blank are graphic characters that are drawn as nothing: fillers, joiners, variation selectors, the braille blank.
func blank(r rune) bool {
	switch {
	case r == 0x034F, r == 0x115F, r == 0x1160, r == 0x17B4, r == 0x17B5, r == 0x2800, r == 0x3164, r == 0xFFA0,
		r >= 0x180B && r <= 0x180F, r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0100 && r <= 0xE01EF:
		return true
	}
	return false
}

func asksOf(asks []celpolicy.Ask) []persistence.Ask {
	out := make([]persistence.Ask, 0, len(asks))
	for _, a := range asks {
		out = append(out, persistence.Ask{Rule: a.Rule, Layer: a.Layer, Reason: clip(a.Reason, 1000), Roles: a.Approval.Approvers.Roles,
			Users: a.Approval.Approvers.Users, Quorum: a.Approval.Quorum, NotRequester: a.Approval.NotRequester, Grantable: a.Grantable})
	}
	return out
}
