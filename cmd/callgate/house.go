package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
	"github.com/callgate/callgate/tools"
	"github.com/callgate/callgate/tools/agent"
	"github.com/callgate/callgate/tools/chat"
	"github.com/callgate/callgate/tools/provider"
	"github.com/callgate/callgate/tools/provider/scripted"
	"github.com/callgate/callgate/tools/workspace"
)

// house is the parts list: what a process needs to move runs on.
type house struct {
	tenant     specs.TenantID
	store      persistence.Store
	policies   *tools.StoredPolicies
	dispatcher *tools.Dispatcher
	runner     *agent.Runner
	chats      string // folder of the chats that runs answer in
}

func (a *app) openHouse(ctx context.Context, m mode) (*house, error) {
	store, err := a.openStore(ctx, m)
	if err != nil {
		return nil, err
	}
	h := &house{tenant: a.tenantID(), store: store, policies: tools.NewStoredPolicies(store), chats: a.chatFolder()}
	registry, err := tools.NewRegistry(workspace.Executors(), a.Executors)
	if err == nil {
		h.dispatcher, err = tools.New(tools.Config{Store: store, Registry: registry, Policies: h.policies, Host: chat.FileHost{Dir: h.chats}})
	}
	if err == nil {
		h.runner, err = agent.New(agent.Config{
			Dispatcher: h.dispatcher, Store: store, Policies: h.policies, Models: h.model,
			Owner: processName(), Takeover: processIsGone,
		})
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// close waits a little for tools that do not listen, then lets go.
func (h *house) close() {
	if h.dispatcher != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_ = h.dispatcher.Close(ctx) // what still runs is found as outcome_unknown by whoever resumes
		cancel()
	}
	_ = h.store.Close()
}

// chatFolder is where the file host keeps chats: beside an embedded store, else in the working folder.
func (a *app) chatFolder() string {
	if dir := a.Getenv("CALLGATE_CHATS"); dir != "" {
		return a.path(dir)
	}
	if p, err := a.storePlace(); err == nil && p.sqlite != "" {
		return filepath.Join(filepath.Dir(p.sqlite), "chats")
	}
	return a.path(filepath.Join(".callgate", "chats"))
}

// A run remembers its model by content, not by path, so that any process can take it up: "scripted:<digest>" names a script
// in the store, "once:<digest>" a single call.
const (
	modelScript = "scripted:"
	modelOnce   = "once:"
)

func (h *house) model(ctx context.Context, run persistence.Run, _ *specs.Profile) (provider.Model, error) {
	kind, digest, _ := strings.Cut(run.Model, ":")
	data, err := h.store.Blob(ctx, run.Tenant, specs.Digest(digest))
	switch kind + ":" {
	case modelScript:
		if err != nil {
			return nil, fmt.Errorf("the run's script: %w", err)
		}
		return scripted.Load("script.yaml", data)
	case modelOnce:
		if err != nil {
			return nil, fmt.Errorf("the run's call: %w", err)
		}
		var c onceCall
		if err := json.Unmarshal(data, &c); err != nil {
			return nil, fmt.Errorf("the run's call: %w", err)
		}
		return scripted.Once(tools.Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments}), nil
	}
	return nil, fmt.Errorf("no adapter plays the model %q", run.Model)
}
