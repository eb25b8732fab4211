package specs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Validator checks JSON values against one schema. It is safe for concurrent use.
type Validator struct {
	schema *jsonschema.Schema
	root   any // the schema itself, to name the properties that it knows
	object bool

	mu    sync.Mutex // one validation at a time: the step counter sits inside the compiled schema
	steps *stepCounter
}

// SchemaError says what is wrong with a schema.
type SchemaError struct {
	Pointer string // where in the schema, as a JSON pointer
	Msg     string
	Hint    string // what to do about it, "" when the message says all
}

func (e *SchemaError) Error() string {
	if e.Pointer == "" {
		return e.Msg
	}
	return e.Msg + " at " + e.Pointer
}

// ArgError says what is wrong with a value, in words a model can act on.
type ArgError struct {
	Pointer string // where in the value, as a JSON pointer; "" is the whole
	Msg     string
	// More holds further mistakes in the same value.
	More []ArgError
	err  error
}

// Error gives every mistake, the first few in full.
func (e *ArgError) Error() string {
	var b strings.Builder
	b.WriteString(e.one())
	for i, m := range e.More {
		if i == 7 {
			fmt.Fprintf(&b, "; and %d more", len(e.More)-i)
			break
		}
		b.WriteString("; " + m.one())
	}
	return b.String()
}

func (e *ArgError) one() string {
	if e.Pointer == "" {
		return e.Msg
	}
	return e.Pointer + ": " + e.Msg
}

// Unwrap gives the *JSONError when the value was no acceptable JSON at all.
func (e *ArgError) Unwrap() error { return e.err }

// noArguments is what an absent inputSchema means.
const noArguments = `{"type":"object","properties":{},"additionalProperties":false}`

// schemaURL is where the one schema of a compiler lives; nothing is ever fetched from it.
const (
	schemaBase = "callgate://own/"
	schemaURL  = schemaBase + "schema"
)

// Steps bound one validation: so many, and so many more for each value inside the value. Real calls take a few per
// value; a schema whose parts refer to each other twice per level would take 2^depth.
const (
	baseSteps     = 100_000
	stepsPerValue = 50
)

// Compile makes a validator. Schemas are read as draft 2020-12 unless they say another draft in $schema; references
// outside the schema are refused, nothing is loaded. The error is a *SchemaError.
func (s Schema) Compile() (*Validator, error) { return s.compile(false) }

func (s Schema) compile(object bool) (v *Validator, err error) {
	defer func() {
		if r := recover(); r != nil { // the library's own fault on an odd schema
			v, err = nil, &SchemaError{Msg: fmt.Sprintf("this schema cannot be used: %v", r)}
		}
	}()
	raw := []byte(s.Raw)
	if s.IsZero() {
		raw = []byte(noArguments)
	}
	root, err := DecodeJSON(raw, JSONLimits{})
	if err != nil {
		var je *JSONError
		errors.As(err, &je)
		return nil, &SchemaError{Pointer: je.Pointer, Msg: je.Msg}
	}
	steps := &stepCounter{}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.AssertVocabs()
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL:     "callgate:steps",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return steps, nil },
	})
	if err := c.AddResource(schemaURL, root); err != nil {
		return nil, schemaError(err)
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, schemaError(err)
	}
	if object {
		if m, ok := root.(map[string]any); ok && m["type"] != nil && m["type"] != "object" {
			return nil, &SchemaError{Pointer: "/type", Msg: "arguments are always an object"}
		}
	}
	return &Validator{schema: schema, root: root, object: object, steps: steps}, nil
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, &outsideRefError{url} }

type outsideRefError struct{ url string }

func (e *outsideRefError) Error() string {
	return "the schema refers to " + quoted(strings.TrimPrefix(e.url, schemaBase)) + ", outside itself; references must stay inside the schema"
}

func (e *outsideRefError) schemaError() *SchemaError {
	return &SchemaError{Msg: e.Error(), Hint: "nothing is read from a file or an address: copy the other schema into $defs and refer to it as #/$defs/NAME"}
}

type stepCounter struct{ left int }

// errTooManySteps leaves a validation that has gone on for too long. The library offers no other way out.
var errTooManySteps = errors.New("this value takes too long to check against its schema")

// Validate counts one visit of one schema object.
func (c *stepCounter) Validate(*jsonschema.ValidatorContext, any) {
	if c.left--; c.left < 0 {
		panic(errTooManySteps)
	}
}

func countValues(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += countValues(e)
		}
	case []any:
		for _, e := range v {
			n += countValues(e)
		}
	}
	return n
}

// schemaError finds the place and the plain words in what the library says.
func schemaError(err error) *SchemaError {
	var outside *outsideRefError
	if errors.As(err, &outside) {
		return outside.schemaError()
	}
	var load *jsonschema.LoadURLError
	if errors.As(err, &load) {
		if errors.As(load.Err, &outside) {
			return outside.schemaError()
		}
		return (&outsideRefError{load.URL}).schemaError()
	}
	var meta *jsonschema.SchemaValidationError
	if errors.As(err, &meta) {
		var ve *jsonschema.ValidationError
		if errors.As(meta.Err, &ve) {
			leaf := deepest(ve)
			if f, ok := leaf.ErrorKind.(*kind.Format); ok && f.Want == "regex" {
				return &SchemaError{Pointer: joinPointer(leaf.InstanceLocation), Msg: unusablePattern(shown(f.Got))}
			}
			return &SchemaError{Pointer: joinPointer(leaf.InstanceLocation), Msg: "not a valid JSON Schema: " + plainWords(leaf)}
		}
	}
	var regex *jsonschema.InvalidRegexError
	if errors.As(err, &regex) {
		_, at, _ := strings.Cut(regex.URL, "#")
		return &SchemaError{Pointer: at, Msg: unusablePattern(quoted(regex.Regex))}
	}
	var missing *jsonschema.JSONPointerNotFoundError
	if errors.As(err, &missing) {
		_, at, _ := strings.Cut(missing.URL, "#")
		return &SchemaError{Msg: "the schema refers to " + quoted("#"+at) + ", which is not there"}
	}
	return &SchemaError{Msg: strings.ReplaceAll(err.Error(), schemaURL, "")}
}

// unusablePattern: patterns run in linear time, and so know less than those of some other languages.
func unusablePattern(pattern string) string {
	return "the pattern " + pattern + " cannot be used: it is no regular expression, or needs lookaround or back references, which are not supported"
}

// deepest gives the cause that is about the innermost value: the one a person should look at.
func deepest(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	best := e
	for _, c := range e.Causes {
		if d := deepest(c); len(best.Causes) > 0 || len(d.InstanceLocation) > len(best.InstanceLocation) {
			best = d
		}
	}
	return best
}

// Validate checks raw JSON, reading it with the default limits. The error is an *ArgError.
func (v *Validator) Validate(raw []byte) error {
	value, err := DecodeJSON(raw, JSONLimits{})
	if err != nil {
		return NotJSON(err)
	}
	return v.ValidateValue(value)
}

// NotJSON is the *ArgError for arguments that DecodeJSON refused.
func NotJSON(err error) error {
	var je *JSONError
	if errors.As(err, &je) {
		return &ArgError{Pointer: je.Pointer, Msg: fmt.Sprintf("not acceptable JSON: %s (byte %d)", je.Msg, je.Offset), err: je}
	}
	return &ArgError{Msg: "not acceptable JSON", err: err}
}

// ValidateValue checks a value that DecodeJSON made. The error is an *ArgError.
func (v *Validator) ValidateValue(value any) (err error) {
	if _, ok := value.(map[string]any); v.object && !ok {
		return &ArgError{Msg: "the arguments must be an object, got " + shown(value)}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.steps.left = baseSteps + stepsPerValue*countValues(value)
	defer func() {
		if r := recover(); r != nil {
			err = &ArgError{Msg: fmt.Sprint(r)}
		}
	}()
	failure := v.schema.Validate(value)
	if failure == nil {
		return nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(failure, &ve) {
		return &ArgError{Msg: failure.Error()}
	}
	var all []ArgError
	v.collect(ve, value, &all)
	if len(all) == 0 {
		return &ArgError{Msg: "the value does not fit the schema"}
	}
	slices.SortStableFunc(all, func(a, b ArgError) int { return strings.Compare(a.Pointer, b.Pointer) })
	all = slices.CompactFunc(all, func(a, b ArgError) bool { return a.Pointer == b.Pointer && a.Msg == b.Msg })
	first := all[0]
	first.More = all[1:]
	return &first
}

// collect turns the tree of causes into a flat list of mistakes.
func (v *Validator) collect(e *jsonschema.ValidationError, value any, out *[]ArgError) {
	at := joinPointer(e.InstanceLocation)
	add := func(format string, args ...any) {
		*out = append(*out, ArgError{Pointer: at, Msg: fmt.Sprintf(format, args...)})
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			add("the property %q is missing%s", name, v.typeOf(e.SchemaURL, name))
		}
	case *kind.AdditionalProperties:
		known := v.knownProperties(e.SchemaURL)
		for _, name := range k.Properties {
			hint := didYouMean(name, known, "")
			switch {
			case hint != "":
				add("unknown property %q; %s", name, hint)
			case len(known) == 0:
				add("unknown property %q; there are no properties here", name)
			default:
				add("unknown property %q; known: %s", name, joinWords(known))
			}
		}
	case *kind.FalseSchema:
		add("this is not allowed here")
	case *kind.Type:
		add("expected %s, got %s", strings.Join(k.Want, " or "), shown(valueAt(value, e.InstanceLocation)))
	case *kind.Enum:
		words := make([]string, 0, len(k.Want))
		for _, w := range k.Want {
			words = append(words, shown(w))
		}
		hint := ""
		if s, ok := k.Got.(string); ok {
			if near := nearest(shown(s), words); near != "" {
				hint = "; did you mean " + near + "?"
			}
		}
		add("expected one of %s, got %s%s", clip(strings.Join(words, ", "), 300), shown(k.Got), hint)
	case *kind.Const:
		add("expected %s, got %s", shown(k.Want), shown(k.Got))
	case *kind.AnyOf, *kind.OneOf:
		if one, ok := k.(*kind.OneOf); ok && len(e.Causes) == 0 && len(one.Subschemas) > 0 {
			add("fits more than one of the forms that exclude each other")
			return
		}
		var forms []string
		for _, c := range e.Causes {
			var inner []ArgError
			v.collect(c, value, &inner)
			if len(inner) > 0 {
				forms = append(forms, inner[0].one())
			}
		}
		add("fits none of the allowed forms: %s", clip(strings.Join(slices.Compact(forms), "; or "), 400))
	case *kind.Not:
		add("this value is excluded by the schema")
	default:
		if len(e.Causes) == 0 {
			add("%s", plainWords(e))
			return
		}
		for _, c := range e.Causes {
			v.collect(c, value, out)
		}
	}
}

// knownProperties lists the properties of the schema object at a location.
func (v *Validator) knownProperties(location string) []string {
	obj, _ := v.schemaAt(location).(map[string]any)
	props, _ := obj["properties"].(map[string]any)
	return sortedKeys(props)
}

// typeOf says what a property should be, as " (string)", or nothing.
func (v *Validator) typeOf(location, property string) string {
	obj, _ := v.schemaAt(location).(map[string]any)
	props, _ := obj["properties"].(map[string]any)
	prop, _ := props[property].(map[string]any)
	if t, ok := prop["type"].(string); ok {
		return " (" + t + ")"
	}
	return ""
}

func (v *Validator) schemaAt(location string) any {
	_, pointer, _ := strings.Cut(location, "#")
	at := v.root
	for _, tok := range splitPointer(pointer) {
		at = step(at, tok)
	}
	return at
}

func step(at any, tok string) any {
	switch at := at.(type) {
	case map[string]any:
		return at[tok]
	case []any:
		if i, err := strconv.Atoi(tok); err == nil && i >= 0 && i < len(at) {
			return at[i]
		}
	}
	return nil
}

func valueAt(v any, path []string) any {
	for _, tok := range path {
		v = step(v, tok)
	}
	return v
}

func splitPointer(p string) []string {
	if p == "" || p == "/" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for i, s := range parts {
		s = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
		parts[i] = percentDecode(s)
	}
	return parts
}

// percentDecode undoes the URL form in which the library gives locations.
func percentDecode(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if b, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(b))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

func joinPointer(path []string) string {
	var b strings.Builder
	for _, tok := range path {
		b.WriteString("/" + pointerEscape(tok))
	}
	return b.String()
}

// shown is a value as JSON, short enough for a sentence.
func shown(v any) string {
	b, err := appendCanonical(nil, v, "")
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip(string(b), 80)
}

func clip(s string, limit int) string {
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	return string(r[:limit-3]) + "..."
}

var english = message.NewPrinter(language.English)

// plainWords is the library's own sentence.
func plainWords(e *jsonschema.ValidationError) string {
	return e.ErrorKind.LocalizedString(english)
}

// toolMemo keeps what is made of a tool's schemas once.
type toolMemo struct {
	args, result sync.Once
	argsV        *Validator
	argsErr      error
	resultV      *Validator
	resultErr    error
}

// Args gives the validator of the tool's arguments. For a loaded tool it is made once and kept. The error is a
// *SchemaError, which a loaded tool never has.
func (t *Tool) Args() (*Validator, error) {
	if t.memo == nil {
		return t.InputSchema.compile(true)
	}
	t.memo.args.Do(func() { t.memo.argsV, t.memo.argsErr = t.InputSchema.compile(true) })
	return t.memo.argsV, t.memo.argsErr
}

// Result gives the validator of the tool's structured result, or nil when the tool promises nothing.
func (t *Tool) Result() (*Validator, error) {
	if t.OutputSchema.IsZero() {
		return nil, nil
	}
	if t.memo == nil {
		return t.OutputSchema.compile(false)
	}
	t.memo.result.Do(func() { t.memo.resultV, t.memo.resultErr = t.OutputSchema.compile(false) })
	return t.memo.resultV, t.memo.resultErr
}
