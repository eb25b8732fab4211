package celpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"

	"github.com/callgate/callgate/specs"
)

// ErrUnbounded means that an expensive expression was not cut off. A program that gets it must not decide anything.
var ErrUnbounded = errors.New("celpolicy: an expensive expression was not cut off")

// SelfTest proves, with the very options every policy is made with, that an expensive expression is cut off.
// Some releases of the CEL engine drop the limit under some options without a word. Call it at start; it takes
// some tens of milliseconds.
func SelfTest() error {
	c, err := newCompiler(&specs.Bundle{})
	if err != nil {
		return err
	}
	p := &Policy{bundle: c.b}
	big := strings.Repeat("a", 1<<20)
	args, err := json.Marshal(map[string]any{"s": big, "r": strings.Repeat("(a?)", 50)})
	if err != nil {
		return err
	}
	for _, text := range []string{
		"lists.range(10000).exists(i, lists.range(10000).exists(j, i + j < 0))", // many steps
		"args.s.matches('(a*)*b(a*)*c(a*)*d')",                                  // one step that takes long
		"args.s.matches(args.r)",
		"args.s.replace('', args.s) == ''", // one step that makes much
		"lists.range(1000).map(i, args.s).join('') == ''",
		"lists.range(1000).map(i, lists.range(1000)) == lists.range(1000).map(i, lists.range(1000))",
	} {
		for _, sees := range []sight{seesAll, seesState} {
			in := Input{Args: args}
			ev := p.evaluation(&in, sees)
			_, stillUnknown, err := ev.value(c.expression(text))
			ev.release()
			if err == nil && !stillUnknown {
				return fmt.Errorf("%w: %s", ErrUnbounded, text)
			}
			if stillUnknown && sees == seesAll {
				return fmt.Errorf("%w: %s gave no answer", ErrUnbounded, text)
			}
		}
	}
	in := Input{}
	ev := p.evaluation(&in, seesAll)
	defer ev.release()
	if v, _, err := ev.value(c.expression("lists.range(10).exists(i, i == 7)")); err != nil || v != types.True {
		return fmt.Errorf("celpolicy: a cheap expression gave %v: %w", v, err)
	}
	return nil
}
