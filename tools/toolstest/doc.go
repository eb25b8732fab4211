// Package toolstest is for tests of tools and of agents: files in memory, a host that forgets to answer, tools that are
// slow or fail, and a recorder that remembers what really happened even when the process is killed.
//
// What you most likely want is [New], a whole gate of a bundle, on a store that goes away with the test:
//
//	gate := toolstest.New(t, bundleYAML, toolstest.WithFake("mail.send"))
//	result := gate.Call("mail.send", map[string]string{"to": "bob"})
//	run, outcome := gate.Play(scriptYAML)
//
// To test a tool of your own without a gate around it:
//
//	tree := toolstest.NewTree(map[string]string{"output/main.md": "hello"})
//	ws := tree.Open("root", nil, nil)
//	result, err := myTool.Execute(ctx, tools.Request{Workspace: ws, Args: json.RawMessage(`{"path":"output/main.md"}`)})
//	_, err = ws.Commit("my.tool")
//
// [RunWorkspace] proves an implementation of tools.Workspace; the memory one here and the one on the store both pass it.
//
// The promises: nothing here touches a network; everything is safe for concurrent use unless it says otherwise; a
// [FileRecorder] counts an effect before the tool that made it can answer.
package toolstest
