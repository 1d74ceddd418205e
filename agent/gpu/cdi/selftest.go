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

// Probe asks what a container with certain devices can open.
type Probe struct {
	Root Root
	// Names are the qualified devices that it gets.
	Names []string
	// Open are paths in the container. Others are device nodes of this node that are mounted
	// into the container, unlike in any job, so that only its control group's rules deny them.
	Open, Others []string
}

// Prober runs containers in the same way as jobs.
type Prober interface {
	// ProbeDevices returns the result of opening each of p.Open and p.Others; 0 is success.
	ProbeDevices(ctx context.Context, p Probe) (map[string]syscall.Errno, error)
}

// passed reports whether a result came from the device's driver, or from the lack of one: the
// rules allowed access.
func passed(e syscall.Errno) bool {
	return e != syscall.EPERM && e != syscall.EACCES && e != syscall.ENOENT
}

// SelfTest proves, through the runtime that runs jobs, that a job with one GPU can open it and
// none of the others, with each kind of root. GPUs are given by UUID; with a single one, a job
// without GPUs must be unable to open it.
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

// inContainer returns the path of a device node in a container.
func (in *Injector) inContainer(n string) string {
	for _, root := range []string{in.cfg.DeviceDir, "/run/nvidia/driver/dev"} {
		if rest, ok := strings.CutPrefix(n, root+"/"); ok {
			return "/dev/" + rest
		}
	}
	return n
}

// String describes the root.
func (r Root) String() string {
	if r == ImageRoot {
		return "an image job"
	}
	return "a host job"
}

// Gate gives jobs no GPU until the self-test has passed with the running driver. Its methods
// are safe for concurrent use; any of them may take as long as the test.
type Gate struct {
	in    *Injector
	test  func(context.Context) error
	again time.Duration

	mu     sync.Mutex
	tested string // the driver's version, marked as tested
	err    error
	at     time.Time
}

// testTime bounds a self-test: two containers.
const testTime = time.Minute

// NewGate returns a gate in front of in. test is the self-test; nil lets everything through. A
// failed test is repeated after the time again.
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
