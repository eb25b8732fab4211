package celpolicy

import "regexp/syntax"

// matchesNothing says that a regular expression certainly matches no text at all: `a^`, `$x`, `[^\s\S]`. False means
// that it may match something.
func matchesNothing(pattern string) bool {
	if size, err := regexSize(pattern); err != nil || size > maxRegexProgram {
		return false // the pattern itself is refused
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return false
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return false
	}
	w := emptyWalk{prog: prog, seen: map[emptyState]bool{}}
	return !w.reaches(emptyState{pc: uint32(prog.Start)})
}

// emptyState is a place in a program with what the way there has used up.
type emptyState struct {
	pc    uint32
	begun bool // a character was read: the text's begin lies behind
	ended bool // the text's end was asked for: no character can follow
}

type emptyWalk struct {
	prog *syntax.Prog
	seen map[emptyState]bool
}

// reaches says whether some text leads from a state to a match. Word boundaries and line ends count as possible.
func (w *emptyWalk) reaches(start emptyState) bool {
	ahead := []emptyState{start}
	for len(ahead) > 0 {
		s := ahead[len(ahead)-1]
		ahead = ahead[:len(ahead)-1]
		if w.seen[s] {
			continue
		}
		w.seen[s] = true
		inst := &w.prog.Inst[s.pc]
		next := emptyState{inst.Out, s.begun, s.ended}
		switch inst.Op {
		case syntax.InstMatch:
			return true
		case syntax.InstFail:
			continue
		case syntax.InstAlt, syntax.InstAltMatch:
			ahead = append(ahead, emptyState{inst.Arg, s.begun, s.ended})
		case syntax.InstEmptyWidth:
			op := syntax.EmptyOp(inst.Arg)
			if op&syntax.EmptyBeginText != 0 && s.begun {
				continue
			}
			next.ended = s.ended || op&syntax.EmptyEndText != 0
		case syntax.InstRune, syntax.InstRune1:
			if s.ended || len(inst.Rune) == 0 {
				continue
			}
			next.begun = true
		case syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if s.ended {
				continue
			}
			next.begun = true
		}
		ahead = append(ahead, next)
	}
	return false
}
