package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/callgate/callgate/specs"
)

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// maxYAMLDepth is how deep an input may nest; real policies stay under twenty.
const maxYAMLDepth = 100

// parseYAML reads the documents of a file. What the library accepts and two readers could read differently, such as two equal
// keys or an alias, is a finding.
func parseYAML(f *findings, name string, data []byte) (roots []*yaml.Node) {
	f.open(name, data)
	if len(data) > maxInput {
		f.fail(specs.Pos{File: name}, "this file is larger than a policy can be", "")
		return nil
	}
	bad := func(err error) {
		at, message := specs.Pos{File: name, Line: 1, Col: 1}, err.Error()
		if m := yamlLine.FindStringSubmatch(message); m != nil {
			at.Line, _ = strconv.Atoi(m[1])
			message = m[2]
		}
		f.fail(at, "this is not YAML: "+message, "")
	}
	defer func() {
		if r := recover(); r != nil { // the library's own faults are the file's
			bad(fmt.Errorf("%v", r))
			roots = nil
		}
	}()
	if deepText(data) {
		bad(errors.New("it nests too deep"))
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return roots
		}
		if err != nil {
			bad(err)
			return nil
		}
		if len(doc.Content) == 1 && f.sound(name, doc.Content[0], 0) && doc.Content[0].Kind == yaml.MappingNode {
			roots = append(roots, doc.Content[0])
		}
	}
}

// deepText looks for nesting before the recursive library sees it.
func deepText(data []byte) bool {
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		if bytes.Count(line, []byte("[")) > maxYAMLDepth || bytes.Count(line, []byte("{")) > maxYAMLDepth || bytes.Count(line, []byte("- ")) > maxYAMLDepth || bytes.Count(line, []byte("? ")) > maxYAMLDepth {
			return true
		}
	}
	return bytes.Count(data, []byte("[")) > 100*maxYAMLDepth || bytes.Count(data, []byte("{")) > 100*maxYAMLDepth
}

func (f *findings) sound(name string, n *yaml.Node, depth int) bool {
	at := specs.Pos{File: name, Line: n.Line, Col: n.Column}
	switch {
	case depth > maxYAMLDepth:
		f.fail(at, "this nests too deep", "")
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		f.fail(at, "an anchor or alias is not followed", "write the value out")
		return false
	}
	seen := map[string]bool{}
	ok := true
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if c.Kind != yaml.ScalarNode || seen[c.Value] || c.Value == "<<" {
				f.fail(specs.Pos{File: name, Line: c.Line, Col: c.Column}, fmt.Sprintf("the key %q is no plain key, or stands here twice", short(c.Value)), "")
				ok = false
			}
			seen[c.Value] = true
		}
		ok = f.sound(name, c, depth+1) && ok
	}
	return ok
}

// get gives the value of a key; nil when it is not there, or n is no mapping.
func get(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		var next *yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				next = n.Content[i+1]
			}
		}
		n = next
	}
	return n
}

// scalar gives a scalar's text, "" for what is none.
func scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

// scalars gives a list of texts; ok is false when it is something else.
func scalars(n *yaml.Node) (out []string, ok bool) {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil, false
	}
	for _, c := range n.Content {
		if scalar(c) == "" {
			return nil, false
		}
		out = append(out, c.Value)
	}
	return out, true
}

func place(file string, n *yaml.Node) specs.Pos {
	if n == nil {
		return specs.Pos{File: file}
	}
	return specs.Pos{File: file, Line: n.Line, Col: n.Column}
}
