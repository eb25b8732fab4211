// Package specs is what a platform team writes, as Go values that remember where they were written: tools,
// policies, profiles, plans, sources, machines, policy tests and tenants, in YAML.
//
// You most likely want [Load], which reads a folder and gives a [Bundle], or every mistake in it at once:
//
//	bundle, err := specs.Load(os.DirFS("acme"), specs.LoadOptions{})
//	if ds, ok := specs.AsDiagnostics(err); ok {
//		fmt.Print(ds.Text()) // acme.yaml:7:19: there is no tool "workspace.raed_file", the line, a caret, a hint
//	}
//
// The smallest document that does something grants an agent one tool:
//
//	apiVersion: callgate/v1
//	kind: Profile
//	metadata: {name: reader}
//	spec:
//	  tools: {allow: ["workspace.read_file"]}
//
// Every field of every kind stands, with its meaning, in the types below and in the JSON Schemas of
// specs/schema; they come from the same tables that the loader reads by (shapes_*.go), so none can say more
// than another.
//
// # What the YAML must be
//
// YAML that all readers read alike: no anchors, aliases, merge keys or tags; no plain yes, no, on, off, y or n; no
// number that YAML 1.1 reads differently; no key twice; no tab as indentation; no whole number outside int64. An
// unknown key is an error, at every depth: nothing that is written is ignored.
//
// # What else is here
//
//   - [Text] knows the place of each of its characters, for errors inside expressions.
//   - [MatchTool] and [Glob] are the only matchers of tool selectors.
//   - [DecodeJSON], [CheckJSON] and [CanonicalJSON] are the only readers of JSON that a policy, a person, a
//     digest or a tool reads: exact case, exact numbers, no duplicate keys, bounded.
//   - [Tool.Args] checks arguments against a tool's schema, with errors a model can act on.
//   - [AliasOf] and [ImportedName] map names to what providers accept, and back.
//   - [Catalog] is what ships with the program: the built-in tools and the default platform layer.
//
// # Promises
//
// A bundle is immutable and safe for concurrent readers. Loading is all or nothing (unless LoadOptions.Partial is
// set, and then what could not be read denies). Equal documents give an equal digest, whatever their files,
// order, style, comments or line ends; any other meaning gives another. Findings come in file order and are the same every time. No input makes
// the loader panic, follow a reference, or use more than a bounded multiple of the input's size.
package specs
