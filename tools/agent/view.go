package agent

import (
	"fmt"
	"unicode/utf8"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
)

// Tokens are estimated as bytes/4 here as everywhere in the project.
const (
	bytesPerToken = 4
	excerptTokens = 250
)

// view gives as much of a result as the profile wants the model to read, and why anything was left out. Errors and denials
// are shown whatever the profile says: a model that cannot read them repeats them.
func view(policy specs.ContextPolicy, c persistence.Call, r tools.Result) (shown tools.Result, reason string) {
	limit := policy.MaxResultTokens
	if limit <= 0 {
		limit = 4000
	}
	switch {
	case r.IsError:
	case policy.ToolResults == specs.ResultHidden:
		hidden := tools.Text("The call succeeded. Its result is kept as %s and is not shown to you.", reference(c, r))
		hidden.CallID, hidden.Usage = r.CallID, r.Usage
		return hidden, "hidden by the profile"
	case policy.ToolResults == specs.ResultExcerpt:
		limit = min(limit, excerptTokens)
	}
	if len(r.Content) == 0 && len(r.Structured) > 0 {
		r.Content = []tools.Content{{Type: tools.ContentJSON, JSON: r.Structured}}
	}
	left := int(min(limit, 1<<28)) * bytesPerToken
	shown = r
	shown.Content = nil
	// Structured repeats what the content says in another form; it is for programs, and the content is what the model reads.
	shown.Structured = nil
	cut := 0
	for _, block := range r.Content {
		size := len(block.Text) + len(block.JSON)
		switch {
		case size <= left:
			left -= size
		case block.Type == tools.ContentJSON:
			text := clip(string(block.JSON), left)
			cut += size - len(text)
			left, block = 0, tools.Content{Type: tools.ContentText, Text: text, Name: block.Name}
		default:
			text := clip(block.Text, left)
			cut += size - len(text)
			left, block.Text = 0, text
		}
		if size == 0 || block.Text != "" || len(block.JSON) > 0 {
			shown.Content = append(shown.Content, block)
		}
	}
	if cut == 0 {
		return shown, ""
	}
	shown.Content = append(shown.Content, tools.Content{Type: tools.ContentText,
		Text: fmt.Sprintf("[%d more bytes are not shown; the whole result is kept as %s]", cut, reference(c, r))})
	return shown, fmt.Sprintf("truncate: %d bytes over %d tokens", cut, limit)
}

// reference names where the whole result is.
func reference(c persistence.Call, r tools.Result) string {
	if len(r.ResourceRefs) > 0 {
		return r.ResourceRefs[0].Ref
	}
	return "blob:" + string(c.Result)
}

// clip cuts a text to at most n bytes without cutting a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
