package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/callgate/callgate/specs"
)

// jsonNode is a JSON value with its place.
type jsonNode struct {
	pos    specs.Pos
	value  any // string, bool, json.Number or nil; unset for lists and objects
	list   []*jsonNode
	fields []jsonField
	kind   byte // '{', '[', '"', 't', '0', 'n'
}

type jsonField struct {
	key  string
	pos  specs.Pos
	node *jsonNode
}

func (n *jsonNode) get(key string) *jsonNode {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.key == key {
			return f.node
		}
	}
	return nil
}

func (n *jsonNode) text() (string, bool) {
	if n == nil {
		return "", false
	}
	s, ok := n.value.(string)
	return s, ok
}

// parseJSON reads one strict JSON value with places. What the strict reader refuses (two equal keys, for one) is a finding.
func parseJSON(f *findings, name string, data []byte) *jsonNode {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	f.open(name, data)
	if len(data) > maxInput {
		f.fail(specs.Pos{File: name}, "this file is larger than a settings file can be", "")
		return nil
	}
	if err := specs.CheckJSON(data, specs.JSONLimits{}); err != nil {
		at, message := specs.Pos{File: name, Line: 1, Col: 1}, err.Error()
		if bad := (*specs.JSONError)(nil); errors.As(err, &bad) {
			at = placeAt(name, data, bad.Offset)
		}
		f.fail(at, "this is not strict JSON: "+message, "")
		return nil
	}
	p := &jsonPlaces{name: name, data: data, dec: json.NewDecoder(bytes.NewReader(data)), line: 1}
	p.dec.UseNumber()
	n, err := p.value()
	if err != nil {
		f.fail(specs.Pos{File: name, Line: 1, Col: 1}, "this is not strict JSON: "+err.Error(), "")
		return nil
	}
	return n
}

type jsonPlaces struct {
	name            string
	data            []byte
	dec             *json.Decoder
	seen, line, bol int // how far lines were counted, the line there, and where it begins
}

// next gives a token and the place where it starts.
func (p *jsonPlaces) next() (json.Token, specs.Pos, error) {
	start := int(p.dec.InputOffset())
	for start < len(p.data) && bytes.IndexByte([]byte(" \t\r\n,:"), p.data[start]) >= 0 {
		start++
	}
	for ; p.seen < start; p.seen++ {
		if p.data[p.seen] == '\n' {
			p.line, p.bol = p.line+1, p.seen+1
		}
	}
	tok, err := p.dec.Token()
	return tok, specs.Pos{File: p.name, Line: p.line, Col: 1 + utf8.RuneCount(p.data[p.bol:start])}, err
}

func (p *jsonPlaces) value() (*jsonNode, error) {
	tok, at, err := p.next()
	if err != nil {
		return nil, err
	}
	n := &jsonNode{pos: at}
	switch v := tok.(type) {
	case json.Delim:
		n.kind = byte(v)
		for p.dec.More() {
			if v == '[' {
				child, err := p.value()
				if err != nil {
					return nil, err
				}
				n.list = append(n.list, child)
				continue
			}
			key, at, err := p.next()
			if err != nil {
				return nil, err
			}
			child, err := p.value()
			if err != nil {
				return nil, err
			}
			name, _ := key.(string)
			n.fields = append(n.fields, jsonField{name, at, child})
		}
		_, _, err = p.next()
	case string:
		n.kind, n.value = '"', v
	case bool:
		n.kind, n.value = 't', v
	case json.Number:
		n.kind, n.value = '0', v
	default:
		n.kind = 'n'
	}
	return n, err
}

// placeAt turns a byte offset into a place.
func placeAt(name string, data []byte, offset int) specs.Pos {
	before := data[:max(0, min(offset, len(data)))]
	bol := bytes.LastIndexByte(before, '\n') + 1
	return specs.Pos{File: name, Line: 1 + bytes.Count(before, []byte("\n")), Col: 1 + utf8.RuneCount(before[bol:])}
}
