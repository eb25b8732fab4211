// Package importer turns policies that people already have into documents of a bundle.
//
// What you most likely want is one of [Claude] (a settings.json of Claude Code), [Cerbos] (a folder of Cerbos policies) and
// [Agentgateway] (a configuration or an AgentgatewayPolicy): text in, Policy, Profile and Tool documents out, as YAML that
// loads and compiles.
//
//	got, err := importer.Claude("settings.json", data, importer.Options{})
//	os.WriteFile(got.Name, got.YAML, 0o644)
//	fmt.Print(got.Remarks.Text()) // what is not as it was, line by line
//
// Promises:
//   - Nothing fails open. What is not understood and could deny becomes a deny that is at least as wide, or the import is
//     refused. What is not understood and could only allow is left out.
//   - Nothing is dropped silently: each line that is not carried over as it stands is a remark with its place, the author's
//     text, why, and what to do.
//   - The order of each engine is kept (deny before ask before allow; default deny); where the two differ, the stricter holds.
//   - Nothing of a file is executed, fetched or followed. Equal input gives equal bytes.
//   - An error is a *specs.InvalidError that holds every finding of the input; the documents of a nil error load and compile.
package importer
