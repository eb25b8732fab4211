// Package scripted is a model that plays a YAML file, without a network. It is for first runs, tests and plays: what it
// says depends only on the script and on the request.
//
// What you most likely want is [Load]:
//
//	model, err := scripted.Load("scripts/writer.yaml", data)
//
// and, for a single call made by a person, [Once].
//
// A script is a list of turns. Each model request takes the next turn that applies:
//
//	turns:
//	  - say: I will look first.               # text beside the calls
//	    calls:
//	      - {tool: workspace.list_files}      # canonical name or alias; args default to {}
//	      - {id: c2, tool: workspace.read_file, args: {path: output/main.md}}
//	  - expect:                               # checked before the turn is played
//	      tools: [workspace.read_file]        # shown to the model
//	      not: [workspace.rollback]           # not shown
//	      results:                            # among the results of the turn before, each matched by another one
//	        - {tool: workspace.read_file, error: workspace.not_found}
//	        - {tool: workspace.list_files, error: none, contains: "0 files"}
//	    calls:
//	      - {tool: workspace.write_file, args: {path: output/main.md, content: "Once."}}
//	  - when: {error: policy.denied}          # played only if a result of the turn before is like this; else skipped
//	    calls: [{tool: workspace.finish}]
//	  - calls:
//	      - {id: "", tool: x, raw: '{"a":'}   # hostile: no id, arguments as these very bytes
//	  - fail: connection reset                # the provider does not answer; asked again, the next turn is played
//	  - sleep: 50ms                           # takes time; alone, or before what the turn does
//	  - drift: Here is your story.            # a text without calls
//
// An id that is left out becomes t<turn>c<n>, as in t2c1. Files are read as strictly as bundles: unknown keys and wrong
// types are findings with file, line and column (specs.AsDiagnostics).
//
// The promises:
//
//   - Nothing is remembered between turns. Where the script stands is written into the reply's metadata, which the history
//     carries; a process that resumes a run goes on at the right turn. Only a fail is remembered, by the model's value: a
//     new process fails there once again.
//   - A request that is not as the script expects is an [UnexpectedError] naming the turn's place in the file; behind
//     the last turn it is an [EndedError]. A script never makes up a turn.
//   - Arguments are exact: whole numbers keep every digit, the order of keys is the file's.
package scripted
