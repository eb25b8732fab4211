package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the knobs that all measurements share.
type settings struct {
	round  time.Duration // length of one timed round
	rounds int           // rounds; the median counts
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	var s settings
	fs.DurationVar(&s.round, "round", 400*time.Millisecond, "length of one timed round")
	fs.IntVar(&s.rounds, "rounds", 5, "rounds; the median counts")
	all := []string{"policy", "load", "lifecycle", "size"}
	if len(args) == 0 {
		return fmt.Errorf("say what to measure: one of %v or all", all)
	}
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	what := args[:1]
	if what[0] == "all" {
		what = all
	}
	for _, w := range what {
		if !slices.Contains(all, w) {
			return fmt.Errorf("no measurement %q: one of %v or all", w, all)
		}
		fmt.Printf("\n# %s\n", w)
		var err error
		switch w {
		case "policy":
			err = policy(s)
		case "load":
			err = load(s)
		case "lifecycle":
			err = lifecycle(ctx, s)
		case "size":
			err = size(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	return nil
}

// perOp runs f again and again for s.rounds rounds and gives the median nanoseconds of one.
func (s settings) perOp(f func(i int)) float64 {
	var ns []float64
	for range s.rounds {
		n, start := 0, time.Now()
		for time.Since(start) < s.round {
			for range 64 {
				f(n)
				n++
			}
		}
		ns = append(ns, float64(time.Since(start).Nanoseconds())/float64(n))
	}
	return median(ns)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// result prints one line for machines to read. aim is text such as "<=17".
func result(name string, ratio float64, aim string, ok bool) {
	verdict := "ok"
	if !ok {
		verdict = "short"
	}
	fmt.Printf("RESULT %s %.2f %s %s\n", name, ratio, aim, verdict)
}
