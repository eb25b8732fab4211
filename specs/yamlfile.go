package specs

import (
	"fmt"
	"maps"

	"gopkg.in/yaml.v3"
)

// YAMLFile is a YAML file that is no part of a bundle, such as the script of a scripted model, read by the same strict
// rules and with the same kind of findings. Whoever knows what the file should say walks Roots and calls Report.
type YAMLFile struct {
	Name  string
	Roots []*yaml.Node // one for each document that is not empty

	load *loader
	r    *reader
}

// ReadYAML parses a file of at most 8 MiB. It never fails by itself: Err gives what was found.
func ReadYAML(name string, data []byte) *YAMLFile {
	f := &YAMLFile{Name: name, load: newLoader(LoadOptions{})}
	if int64(len(data)) > f.load.opts.MaxFileBytes {
		f.load.report(Diagnostic{Pos: Pos{File: name}, Code: "too-large",
			Message: fmt.Sprintf("this file of %d bytes is larger than the %d that are read", len(data), f.load.opts.MaxFileBytes)})
		return f
	}
	src := openText(File{Name: name, Data: data}, f.load.report)
	if src == nil {
		return f
	}
	f.load.sources[name] = src
	roots := parseYAML(src, f.load.report)
	f.r = &reader{strictness: &strictness{src: src, report: f.load.report, bad: map[*yaml.Node]bool{}}}
	for _, doc := range roots {
		maps.Copy(f.r.bad, doc.bad)
		if f.r.check(doc.root, 0) {
			f.Roots = append(f.Roots, doc.root)
		}
	}
	return f
}

// Report adds a finding about a node. Code is kebab-case; the message is one line, lower case, without a full stop. A
// node that was reported before is not reported again.
func (f *YAMLFile) Report(n *yaml.Node, code, message, hint string) {
	if !f.r.bad[n] {
		f.r.fail(n, code, message, hint)
	}
}

// ReportKey reports a key that is not one of the known ones, with the one that was most likely meant.
func (f *YAMLFile) ReportKey(key *yaml.Node, known []string) {
	f.Report(key, "unknown-key", "unknown key "+quoted(key.Value), didYouMean(key.Value, known, "known here: "+joinWords(known)))
}

// Expect reports that a node is not what was wanted ("a list", "a text").
func (f *YAMLFile) Expect(n *yaml.Node, want, hint string) {
	f.r.wrongType(n, want, hint)
}

// Pos gives the place of a node.
func (f *YAMLFile) Pos(n *yaml.Node) Pos { return Pos{f.Name, n.Line, n.Column} }

// Bad says that a node was reported.
func (f *YAMLFile) Bad(n *yaml.Node) bool { return f.r.bad[n] }

// Text reads a text: a quoted or block scalar, or a plain one that no YAML reader takes for something else. False means
// that it was reported.
func (f *YAMLFile) Text(n *yaml.Node) (string, bool) { return f.r.readText(n, "a text") }

// JSON writes a node as JSON: keys in the order of the file, whole numbers digit by digit, nothing rounded. False means
// that something in it was reported.
func (f *YAMLFile) JSON(n *yaml.Node) ([]byte, bool) {
	w := &jsonWriter{r: f.r, places: map[string]Pos{}}
	w.value(n, "")
	return w.out, !w.failed
}

// Err is nil when nothing was found, else an error whose findings AsDiagnostics gives, in file order.
func (f *YAMLFile) Err() error {
	f.load.found.Sort()
	return f.load.found.Err()
}
