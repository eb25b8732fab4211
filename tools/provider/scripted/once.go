package scripted

import (
	"context"

	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/provider"
)

// Once gives a model that makes one call in its first turn and stops the run in the next. It is how a person's single
// call goes through the whole gate. The call is sent exactly as given; an empty ID becomes "call".
func Once(call tools.Call) provider.Model {
	if call.ID == "" {
		call.ID = "call"
	}
	return once{call}
}

type once struct{ call tools.Call }

// Next implements provider.Model. That the call was made is read from the history, so that a resumed run stops too.
func (o once) Next(ctx context.Context, req provider.Request) (provider.Reply, error) {
	if err := ctx.Err(); err != nil {
		return provider.Reply{}, err
	}
	for _, msg := range req.Messages {
		if msg.Role == provider.RoleAssistant {
			return provider.Reply{Stop: true}, nil
		}
	}
	call := o.call
	call.Name = aliasOf(req, call.Name)
	return provider.Reply{Calls: []tools.Call{call}}, nil
}
