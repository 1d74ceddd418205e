package cdi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Probe asks what a container can open that is given some devices.
type Probe struct {
	Root Root
	// Names are the qualified devices that it is given.
	Names []string
	// Open are paths in the container. Others are device nodes of this node
	// that are laid into the container by a mount, as no job's are, so that
	// nothing but the rules of its control group keeps it from them.
	Open, Others []string
}

// Prober runs containers as jobs are run.
type Prober interface {
	// ProbeDevices returns what opening each of p.Open and p.Others answered; 0
	// is success.
	ProbeDevices(ctx context.Context, p Probe) (map[string]syscall.Errno, error)
}

// passed reports whether an answer came from the device's driver, or because
// there is none: the rules let it through.
func passed(e syscall.Errno) bool {
	return e != syscall.EPERM && e != syscall.EACCES && e != syscall.ENOENT
}

// SelfTest proves, through the runtime that jobs run under, that a job with
// one card can open it and none of the others, with each kind of root. The
// cards are by UUID; with a single one a job without cards must not open it.
func (in *Injector) SelfTest(ctx context.Context, p Prober, cards []string, roots ...Root) error {
	if len(cards) == 0 {
		return nil
	}
	nodes := map[string][]string{}
	for _, c := range cards {
		var err error
		if nodes[c], err = in.Nodes(c); err != nil {
			return err
		}
	}
	for _, root := range roots {
		if err := in.probe(ctx, p, root, cards[:1], nodes); err != nil {
			return err
		}
		if len(cards) == 1 {
			if err := in.probe(ctx, p, root, nil, nodes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (in *Injector) probe(ctx context.Context, p Prober, root Root, granted []string, nodes map[string][]string) error {
	ask := Probe{Root: root}
	var own []string
	for _, c := range granted {
		ask.Names = append(ask.Names, Name(c))
		own = append(own, nodes[c]...)
	}
	for c, list := range nodes {
		for _, n := range list {
			ask.Open = append(ask.Open, in.inContainer(n))
			if !slices.Contains(granted, c) && !slices.Contains(own, n) && !slices.Contains(ask.Others, n) {
				ask.Others = append(ask.Others, n)
			}
		}
	}
	slices.Sort(ask.Open)
	ask.Open = slices.Compact(ask.Open)
	got, err := p.ProbeDevices(ctx, ask)
	if err != nil {
		return fmt.Errorf("self-test of GPU isolation, %s: %w", root, err)
	}
	var bad []string
	check := func(path string, want bool, what string) {
		e, ok := got[path]
		switch {
		case !ok:
			bad = append(bad, fmt.Sprintf("%s %s was not tried", what, path))
		case want && !passed(e):
			bad = append(bad, fmt.Sprintf("%s %s cannot be opened (%s)", what, path, e.Error()))
		case !want && passed(e):
			bad = append(bad, fmt.Sprintf("%s %s can be opened", what, path))
		}
	}
	for _, path := range ask.Open {
		if mine := slices.ContainsFunc(own, func(n string) bool { return in.inContainer(n) == path }); mine {
			check(path, true, "its own card")
		} else {
			check(path, false, "another card")
		}
	}
	for _, path := range ask.Others {
		check(path, false, "another card, put into its way,")
	}
	if len(bad) > 0 {
		return fmt.Errorf("self-test of GPU isolation: in %s with %d of %d cards %s", root, len(granted), len(nodes), strings.Join(bad, "; "))
	}
	return nil
}

// inContainer is the path of a device node in a container.
func (in *Injector) inContainer(n string) string {
	for _, root := range []string{in.cfg.DeviceDir, "/run/nvidia/driver/dev"} {
		if rest, ok := strings.CutPrefix(n, root+"/"); ok {
			return "/dev/" + rest
		}
	}
	return n
}

// String says it in words.
func (r Root) String() string {
	if r == ImageRoot {
		return "an image job"
	}
	return "a host job"
}

// Gate gives no card to jobs before the self-test has passed with the driver
// that runs. Its methods are safe for concurrent use; one of them may take as
// long as the test.
type Gate struct {
	in    *Injector
	test  func(context.Context) error
	again time.Duration

	mu     sync.Mutex
	tested string // the driver's release, with a mark that there was a test
	err    error
	at     time.Time
}

// testTime bounds a self-test: two containers.
const testTime = time.Minute

// NewGate makes a gate before in. test is the self-test; nil lets all through.
// One that failed is tried again after some time.
func NewGate(in *Injector, again time.Duration, test func(context.Context) error) *Gate {
	return &Gate{in: in, test: test, again: again}
}

// Grant is Injector.Grant, once the self-test has passed.
func (g *Gate) Grant(uuids []string) ([]string, error) {
	names, err := g.in.Grant(uuids)
	if err != nil || len(names) == 0 || g.test == nil {
		return names, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	mark := "driver " + g.in.DriverVersion()
	if g.tested != mark || g.err != nil && time.Since(g.at) > g.again {
		ctx, cancel := context.WithTimeout(context.Background(), testTime)
		defer cancel()
		g.err = g.test(ctx)
		g.tested, g.at = mark, time.Now()
		var known *Error
		if g.err != nil && !errors.As(g.err, &known) {
			g.err = &Error{Fault: Refused, Text: g.err.Error()}
		}
	}
	if g.err != nil {
		return nil, g.err
	}
	return names, nil
}
