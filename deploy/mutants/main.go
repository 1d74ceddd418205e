// Command mutants plants bugs, one at a time, and says which tests catch each.
//
// The bugs are patches of a few lines in the *.mutants files beside this one, in
// the tradition of mutation analysis (DeMillo, Lipton and Sayward, "Hints on Test
// Data Selection", IEEE Computer 11(4), 1978), but chosen by hand: each is a
// mistake that somebody could make. One that no test catches names a promise
// that is not tested.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	dir     string         // of the *.mutants files
	only    *regexp.Regexp // ids
	check   bool           // whether they apply, nothing more
	workers int
	least   float64 // part of them that must be caught
	timeout time.Duration
}

func parse(args []string) (options, error) {
	fs := flag.NewFlagSet("mutants", flag.ContinueOnError)
	var o options
	only := fs.String("run", "", "plant only those whose id matches this regular expression")
	fs.StringVar(&o.dir, "dir", "deploy/mutants", "folder with the *.mutants files")
	fs.BoolVar(&o.check, "check", false, "see only whether each still applies")
	fs.IntVar(&o.workers, "j", 2, "how many to try at once")
	fs.Float64Var(&o.least, "least", 0.95, "fail when a smaller part than this is caught")
	fs.DurationVar(&o.timeout, "timeout", 5*time.Minute, "for the tests of one; one that hangs is caught")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.workers < 1 {
		return o, fmt.Errorf("-j: want at least 1, got %d", o.workers)
	}
	re, err := regexp.Compile(*only)
	if err != nil {
		return o, fmt.Errorf("-run: %w", err)
	}
	o.only = re
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	all, err := read(o.dir)
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if o.only.MatchString(m.id) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return errors.New("no planted bug has such an id")
	}
	if o.check {
		return check(ctx, chosen)
	}
	return plant(ctx, o, chosen)
}

// check reports those that no longer apply to the working tree.
func check(ctx context.Context, ms []mutant) error {
	var errs []error
	for _, m := range ms {
		if err := apply(ctx, ".", m, "--check"); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		fmt.Printf("%d planted bugs apply\n", len(ms))
	}
	return errors.Join(errs...)
}

// plant tries each in a copy of the working tree, several at once, and prints
// what became of each as it is known.
func plant(ctx context.Context, o options, ms []mutant) error {
	began := time.Now()
	work := make(chan mutant)
	var (
		mu     sync.Mutex
		caught int
		missed []mutant
		errs   []error
		wg     sync.WaitGroup
	)
	for range o.workers {
		wg.Go(func() {
			err := inCopy(ctx, func(dir string) {
				for m := range work {
					v := try(ctx, dir, m, o.timeout)
					mu.Lock()
					switch {
					case v.err != nil:
						errs = append(errs, v.err)
					case v.caught():
						caught++
					default:
						missed = append(missed, m)
					}
					fmt.Printf("%-8s %-6s %5.1fs  %s: %s\n", m.id, v.word(), v.took.Seconds(), m.what, v.detail())
					mu.Unlock()
				}
			})
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
				for range work { // let the others end
				}
			}
		})
	}
	for _, m := range ms {
		if ctx.Err() != nil {
			break
		}
		work <- m
	}
	close(work)
	wg.Wait()
	part := float64(caught) / float64(len(ms))
	fmt.Printf("\n%d of %d planted bugs caught (%.0f %%) in %s\n", caught, len(ms), 100*part, time.Since(began).Round(time.Second))
	for _, m := range missed {
		fmt.Printf("missed: %s, %s\n", m.id, m.what)
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	if part < o.least {
		return fmt.Errorf("at least %.0f %% must be caught", 100*o.least)
	}
	return nil
}
