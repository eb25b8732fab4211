package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/callgate/callgate/celpolicy"
	"github.com/callgate/callgate/specs"
)

// Options says how to import. The zero value is the careful one.
type Options struct {
	// Source names the Source document (and for Claude the Profile) that the rules are about, and is the first part of
	// each tool's name. Empty: a name that the format suggests.
	Source specs.SourceName
	// SkipInvalid imports the rest of an input that would be refused. What could deny becomes a deny all the same.
	SkipInvalid bool
	// Root and Home are the absolute paths that the project and `~` stood for; only Claude's path rules read them. Without
	// them a path rule that allows holds for relative paths alone, and one that denies holds wherever its tail is found.
	Root, Home string
}

// Imported is what an import makes.
type Imported struct {
	Name    string // of the file: policy-SOURCE.yaml
	YAML    []byte
	Remarks specs.Diagnostics // warnings about the input, in file order
	Rules   int               // how many rules the documents hold
	Denies  int               // how many of them deny
}

// The codes of remarks.
const (
	codeLeftOut  = "left-out" // not carried over; it could only have allowed
	codeStricter = "stricter" // carried over, and refuses or asks more than it did
	codeNote     = "note"     // carried over, and worth knowing
	codeRefused  = "refused"  // could deny, and cannot be carried over
)

// maxInput bounds one import; real policies stay under a hundredth of it.
const maxInput = 8 << 20

var notName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// docName makes a document name of any text.
func docName(s, fallback string) string {
	s = strings.Trim(notName.ReplaceAllString(s, "-"), "-")
	if len(s) > 48 {
		s = strings.Trim(s[:48], "-")
	}
	return cmp.Or(s, fallback)
}

// findings collects what there is to say about the input.
type findings struct {
	texts map[string][]string // lines by file, for carets
	all   specs.Diagnostics
	skip  bool
}

func newFindings(skip bool) *findings { return &findings{texts: map[string][]string{}, skip: skip} }

// open keeps a file's lines, so that a finding can show them.
func (f *findings) open(name string, data []byte) {
	f.texts[name] = strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
}

// say adds a finding about a text; the caret goes below all of it where the line holds it as it is.
func (f *findings) say(at specs.Pos, sev specs.Severity, code, message, hint, text string) {
	d := specs.Diagnostic{Pos: at, Severity: sev, Code: code, Message: message, Hint: hint, Width: 1}
	if lines := f.texts[at.File]; at.Line > 0 && at.Line <= len(lines) && len(lines[at.Line-1]) <= 240 {
		d.Source = lines[at.Line-1]
		r := []rune(d.Source)
		rest := string(r[min(max(0, at.Col-1), len(r)):])
		bare := strings.TrimLeft(rest, `"`)
		if quotes := len(rest) - len(bare); text != "" && strings.HasPrefix(bare, text) {
			d.Width = len([]rune(text)) + 2*quotes
		}
	}
	f.all = append(f.all, d)
}

func (f *findings) leftOut(at specs.Pos, text, why, hint string) {
	f.say(at, specs.Warning, codeLeftOut, fmt.Sprintf("left out: %s: %s", short(text), why), hint, text)
}

func (f *findings) stricter(at specs.Pos, text, why, hint string) {
	f.say(at, specs.Warning, codeStricter, fmt.Sprintf("stricter: %s: %s", short(text), why), hint, text)
}

func (f *findings) note(at specs.Pos, text, why, hint string) {
	f.say(at, specs.Warning, codeNote, fmt.Sprintf("note: %s: %s", short(text), why), hint, text)
}

// refuse stops the import, unless the rest was asked for: then the caller denies instead, and the remark says so.
func (f *findings) refuse(at specs.Pos, text, why, hint string) {
	if f.skip {
		f.say(at, specs.Warning, codeRefused, fmt.Sprintf("denied instead: %s: %s", short(text), why), hint, text)
		return
	}
	f.fail(at, fmt.Sprintf("refused: %s: %s", short(text), why),
		cmp.Or(hint, "--skip-invalid imports the rest and denies instead"))
}

// fail is an error that no option turns into a remark.
func (f *findings) fail(at specs.Pos, message, hint string) {
	f.say(at, specs.Error, codeRefused, message, hint, "")
}

func (f *findings) err() error {
	f.all.Sort()
	return f.all.Err()
}

// short is a text of the input on one line, as a finding quotes it.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 100 {
		return string(r[:99]) + "…"
	}
	return s
}

// finish writes the documents and holds them against the loader and the compiler: what is handed out can be used.
func (f *findings) finish(name string, head string, docs []document) (*Imported, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	got := &Imported{Name: "policy-" + name + ".yaml", Remarks: f.all}
	for _, d := range docs {
		got.Rules += len(d.rules)
		for _, r := range d.rules {
			if r.effect == specs.EffectDeny || r.effect == specs.EffectHide {
				got.Denies++
			}
		}
	}
	got.YAML = writeDocuments(head, docs)
	b, err := specs.LoadFiles([]specs.File{{Name: got.Name, Data: got.YAML}}, specs.LoadOptions{})
	if err == nil {
		_, err = celpolicy.Compile(b)
	}
	if err != nil {
		return nil, err
	}
	return got, nil
}

// carries says which of some rules' conditions compile against the tools of some documents, by index; the error text is why not.
// One compile for all of them: an environment costs more than a condition.
func carries(rules []rule) map[int]string {
	bad := map[int]string{}
	pol := &specs.Policy{Meta: specs.Meta{Name: "candidates"}, Layer: specs.LayerProfile}
	for i, r := range rules {
		if r.when == "" {
			continue
		}
		pol.Rules = append(pol.Rules, specs.Rule{Name: fmt.Sprintf("r%d", i), Tools: []specs.Text{specs.TextOf("*")}, Effect: specs.EffectDeny,
			When: specs.Text{Value: r.when, Pos: specs.Pos{File: fmt.Sprintf("r%d", i), Line: 1, Col: 1}}})
	}
	tool := &specs.Tool{Meta: specs.Meta{Name: "candidate"}, InputSchema: specs.Schema{Raw: []byte(`{"type":"object","additionalProperties":true}`)}}
	_, err := celpolicy.Compile(&specs.Bundle{Tools: []*specs.Tool{tool}, Policies: []*specs.Policy{pol}})
	if err == nil {
		return bad
	}
	ds, _ := specs.AsDiagnostics(err)
	for i := range rules {
		if at := slices.IndexFunc(ds, func(d specs.Diagnostic) bool {
			return d.Severity == specs.Error && d.Pos.File == fmt.Sprintf("r%d", i)
		}); at >= 0 {
			bad[i] = ds[at].Message
		}
	}
	if len(bad) == 0 { // an error without a place of ours: nothing can be said to carry
		for i := range rules {
			bad[i] = err.Error()
		}
	}
	return bad
}
