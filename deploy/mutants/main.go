// Command mutants plants bugs, one at a time, and reports which tests catch each.
//
// The bugs are patches of a few lines in the *.mutants files in this directory, in the
// tradition of mutation analysis (DeMillo, Lipton and Sayward, "Hints on Test Data Selection",
// IEEE Computer 11(4), 1978), but chosen by hand: each is a mistake that somebody could make. A
// bug that no test catches identifies a promise that is not tested.
//
// Bugs in the bodies of functions share one binary per package; one that changes anything else
// is compiled separately. A bug then costs one test: the one that caught it the last time,
// according to the file "caught", which -note writes. If that passes now, or there is none, all
// tests of its packages run until one fails.
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

// options are the command-line options.
type options struct {
	dir     string         // of the *.mutants files
	only    *regexp.Regexp // ids
	check   bool           // only whether they apply and compile
	all     bool           // all of their tests, even after one has failed
	note    bool           // record which tests caught them
	workers int
	least   float64 // fraction of them that must be caught
	timeout time.Duration
}

func parse(args []string) (options, error) {
	fs := flag.NewFlagSet("mutants", flag.ContinueOnError)
	var o options
	only := fs.String("run", "", "plant only those whose id matches this regular expression")
	fs.StringVar(&o.dir, "dir", "deploy/mutants", "folder with the *.mutants files")
	fs.BoolVar(&o.check, "check", false, "see only whether each still applies and compiles")
	fs.BoolVar(&o.all, "all", false, "run all tests of its packages, and name each that fails, not the first alone")
	fs.BoolVar(&o.note, "note", false, "write down which test caught each, to be tried first the next time")
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
	now, err := plant(ctx, o, chosen)
	if o.note && now != nil {
		err = errors.Join(err, note(o.dir, all, now))
	}
	return err
}

// check reports those that no longer apply to the working tree, or do not compile there.
func check(ctx context.Context, ms []mutant) error {
	var errs []error
	err := inCopy(ctx, func(dir string) {
		_, err := compiling(ctx, dir, ms, func(_ mutant, v verdict) { errs = append(errs, v.err) })
		errs = append(errs, err)
	})
	if errs = append(errs, err); errors.Join(errs...) == nil {
		fmt.Printf("%d planted bugs apply and compile\n", len(ms))
	}
	return errors.Join(errs...)
}

// plant tries each in a copy of the working tree, several in parallel, prints each verdict as
// soon as it is known, and returns them all.
func plant(ctx context.Context, o options, ms []mutant) (map[string]verdict, error) {
	began := time.Now()
	var mu sync.Mutex
	found := map[string]verdict{}
	say := func(m mutant, v verdict) {
		mu.Lock()
		defer mu.Unlock()
		found[m.id] = v
		fmt.Printf("%-8s %-6s %5.1fs  %s: %s\n", m.id, v.word(), v.took.Seconds(), m.what, v.detail())
	}
	rest, err := together(ctx, o, ms, say)
	if err == nil {
		err = apart(ctx, o, rest, say)
	}
	errs := []error{err, ctx.Err(), sum(ms, found, o.least, time.Since(began))}
	return found, errors.Join(errs...)
}

// apart tries each separately, in a worker's own copy of the tree.
func apart(ctx context.Context, o options, ms []mutant, say func(mutant, verdict)) error {
	work := make(chan mutant)
	var (
		mu   sync.Mutex
		errs []error
		wg   sync.WaitGroup
	)
	for range min(o.workers, len(ms)) {
		wg.Go(func() {
			err := inCopy(ctx, func(dir string) {
				for m := range work {
					say(m, try(ctx, dir, m, o))
				}
			})
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
				for range work { // let the other workers end
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
	return errors.Join(errs...)
}

// sum prints how many were caught and which were not, and returns an error if that is not
// enough.
func sum(ms []mutant, found map[string]verdict, least float64, took time.Duration) error {
	caught := 0
	var missed []mutant
	var errs []error
	for _, m := range ms {
		switch v, tried := found[m.id]; {
		case v.err != nil:
			errs = append(errs, v.err)
		case v.caught():
			caught++
		case tried:
			missed = append(missed, m)
		}
	}
	part := float64(caught) / float64(len(ms))
	fmt.Printf("\n%d of %d planted bugs caught (%.0f %%) in %s\n", caught, len(ms), 100*part, took.Round(time.Second))
	for _, m := range missed {
		fmt.Printf("missed: %s, %s\n", m.id, m.what)
	}
	if part < least && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("at least %.0f %% must be caught", 100*least))
	}
	return errors.Join(errs...)
}
