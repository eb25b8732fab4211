// Package mcp turns what an MCP server says about its tools into documents of a bundle.
//
// What you most likely want is [Import]: the text of a `tools/list` result in, Tool documents and one Source
// document with pinned digests out, as YAML that loads.
//
//	got, err := mcp.Import(data, mcp.Options{Source: "github"})
//	os.WriteFile("github.yaml", got.YAML(), 0o644)
//
// Promises:
//   - Nothing is allowed by importing: the documents grant nothing, and the Source accepts no tool.
//   - Hints are read the careful way. A tool is destructive and open to the world unless the server says that it is
//     not; a server's word makes nothing safer until the operator trusts the source.
//   - Schemas are taken over as they are, numbers exact. One that cannot be checked is refused with the tool's name
//     and a JSON pointer; all of a file's mistakes come at once.
//   - Names are escaped reversibly, and the upstream's own name is kept. Equal input gives equal bytes.
package mcp
