// Package provider is the seam between the run loop and whoever plays the model.
//
// What you most likely want is [Model]: one method, one turn. Adapters live below (scripted plays a YAML file without
// a network). Requests name tools by alias; replies carry calls in canonical form with the model's argument bytes untouched.
//
//	reply, err := model.Next(ctx, provider.Request{Turn: 1, System: "...", Messages: history, Tools: visible})
//	for _, call := range reply.Calls { // to Dispatcher.Propose, all of a turn at once
//	}
//
// Promises: a Request is complete (nothing is remembered between turns), and equal stored history gives equal bytes.
package provider
