package tools

import (
	"fmt"
	"maps"
	"sync"

	"github.com/callgate/callgate/specs"
)

// Registry knows who runs a tool: an executor for one tool by its canonical name, else one for its source by name,
// else one for the source's kind. It is filled when a program starts and safe for concurrent use.
type Registry struct {
	mu      sync.RWMutex
	tools   map[specs.ToolName]Executor
	sources map[specs.SourceName]Executor
	kinds   map[specs.SourceKind]Executor
}

// NewRegistry makes a Registry of executors by tool name, such as a family's Executors().
func NewRegistry(families ...map[specs.ToolName]Executor) (*Registry, error) {
	r := &Registry{
		tools:   map[specs.ToolName]Executor{},
		sources: map[specs.SourceName]Executor{},
		kinds:   map[specs.SourceKind]Executor{},
	}
	for _, family := range families {
		for name, e := range maps.All(family) {
			if err := r.Add(name, e); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// Add says who runs one tool. A second executor for the same tool is an error: which of the two would run?
func (r *Registry) Add(name specs.ToolName, e Executor) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return put(r.tools, name, e, "tool")
}

// AddSource says who runs the tools of one source, by the name of its Source document.
func (r *Registry) AddSource(name specs.SourceName, e Executor) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return put(r.sources, name, e, "source")
}

// AddKind says who runs the tools of every source of a kind that has no executor of its own.
func (r *Registry) AddKind(kind specs.SourceKind, e Executor) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return put(r.kinds, kind, e, "source kind")
}

func put[K ~string](m map[K]Executor, key K, e Executor, what string) error {
	if e == nil || key == "" {
		return fmt.Errorf("registry: %s %q without an executor", what, key)
	}
	if _, taken := m[key]; taken {
		return fmt.Errorf("registry: %s %q has an executor already", what, key)
	}
	m[key] = e
	return nil
}

// Lookup finds who runs a tool. False means that nothing is connected that could.
func (r *Registry) Lookup(t *specs.Tool) (Executor, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e, ok := r.tools[t.ToolName()]; ok {
		return e, true
	}
	if e, ok := r.sources[t.Source.Name]; ok && t.Source.Name != "" {
		return e, true
	}
	e, ok := r.kinds[t.Source.Kind]
	return e, ok
}

// FindTool resolves a name as a model writes it, alias or canonical, to a tool of the bundle. Nil means that there is none.
// The alias is what models are shown, so it wins where one tool's alias is another's name. It says nothing about whether the
// model may know of the tool.
func FindTool(b *specs.Bundle, name string) *specs.Tool {
	for _, t := range b.Tools {
		if string(specs.AliasOf(t.ToolName())) == name {
			return t
		}
	}
	return b.Tool(specs.ToolName(name))
}
