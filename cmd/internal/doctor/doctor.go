// Package doctor examines a machine and reports problems for Berth, one per
// line, each with its fix. It changes nothing. A check queries the machine
// through a Host, so that tests use recorded ones; each has a deadline, since
// a broken component often does not answer.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// Status is what a check found.
type Status string

// The findings. A warning needs a person's judgement; a failure keeps jobs
// from running, or a node from being safe.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Line is one finding.
type Line struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Text   string `json:"text"`
	// Fix is what to do about it, "" if nothing is needed.
	Fix string `json:"fix,omitempty"`
	// Key names an unsafe condition with which the agent refuses to run; its
	// configuration may list it under unsafe, and then it is a warning.
	Key string `json:"key,omitempty"`
}

func ok(format string, args ...any) []Line {
	return []Line{{Status: OK, Text: fmt.Sprintf(format, args...)}}
}

func warn(fix, format string, args ...any) []Line {
	return []Line{{Status: Warn, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

func fail(fix, format string, args ...any) []Line {
	return []Line{{Status: Fail, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

// unsafe returns a failure that the agent's configuration can accept under key.
func unsafe(key, fix, format string, args ...any) []Line {
	return []Line{{Status: Fail, Text: fmt.Sprintf(format, args...), Fix: fix, Key: key}}
}

// Role is what a machine does for a cluster; it may have several.
type Role string

// The roles.
const (
	Login       Role = "login"
	Coordinator Role = "coordinator"
	Agent       Role = "agent"
)

// Subject is what is examined: the configurations of the daemons that the
// machine runs, and the sockets that its users use.
type Subject struct {
	// Agent and Coordinator are nil if absent, or invalid, which AgentErr and
	// CoordinatorErr then report.
	Agent                    *config.Agent
	Coordinator              *config.Coordinator
	AgentErr, CoordinatorErr error
	// Sockets are those of coordinators, for users of a login node.
	Sockets []string
	Roles   []Role
}

func (s *Subject) is(r Role) bool { return slices.Contains(s.Roles, r) }

// check is one check.
type check struct {
	name  string
	roles []Role
	run   func(context.Context, *Host, *Subject) []Line
}

// checks returns the checks in display order.
func checks() []check {
	every := []Role{Login, Coordinator, Agent}
	daemons := []Role{Coordinator, Agent}
	node := []Role{Agent}
	return []check{
		{"configuration", daemons, configuration},
		{"kernel", every, kernel},
		{"cgroup", node, controlGroups},
		{"swap", node, swap},
		{"clock", every, clocks},
		{"ports", every, ports},
		{"certificate", daemons, certificates},
		{"keys", daemons, keys},
		{"data", daemons, dataDirs},
		{"scripts", node, scripts},
		{"users", node, users},
		{"homes", node, homes},
		{"containerd", node, containerd},
		{"runc", node, runc},
		{"images", node, images},
		{"driver", node, driver},
		{"toolkit", node, toolkit},
		{"cdi", node, deviceSpecs},
		{"daemon-reload", node, daemonReload},
		{"stuck", daemons, stuck},
	}
}

// Deadline bounds each check.
const Deadline = 5 * time.Second

// Examine runs every check of the subject's roles concurrently and returns
// their lines in a fixed order. It takes little more than Deadline: a check
// that does not answer by then is a failure, and is abandoned.
func Examine(ctx context.Context, h *Host, s *Subject) []Line {
	return examine(ctx, h, s, checks(), Deadline)
}

func examine(ctx context.Context, h *Host, s *Subject, list []check, deadline time.Duration) []Line {
	results := make([][]Line, len(list))
	var wg sync.WaitGroup
	for i, c := range list {
		if !slices.ContainsFunc(c.roles, s.is) {
			continue
		}
		wg.Go(func() { results[i] = within(ctx, h, s, c, deadline) })
	}
	wg.Wait()
	var out []Line
	for i, lines := range results {
		for _, l := range lines {
			l.Check = list[i].name
			l.Text, l.Fix = oneLine(l.Text), oneLine(l.Fix)
			if l.Key != "" && s.Agent != nil && slices.Contains(s.Agent.Unsafe, l.Key) {
				l.Status = Warn
				l.Text += " (accepted: unsafe has " + l.Key + ")"
			}
			out = append(out, l)
		}
	}
	return out
}

// within runs one check with a deadline. A hung file system holds its
// goroutine until the process ends.
func within(ctx context.Context, h *Host, s *Subject, c check, deadline time.Duration) []Line {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	done := make(chan []Line, 1)
	go func() { done <- c.run(ctx, h, s) }()
	select {
	case lines := <-done:
		return lines
	case <-ctx.Done():
		return fail("check what hangs: a file server, a name service, a disk", "no answer within %s", deadline)
	}
}

// Refusals returns what keeps the agent from starting: failures with a key
// that its configuration does not accept.
func Refusals(ctx context.Context, h *Host, cfg *config.Agent) []Line {
	s := &Subject{Agent: cfg, Roles: []Role{Agent}}
	list := slices.DeleteFunc(checks(), func(c check) bool {
		return !slices.Contains([]string{"runc", "containerd", "toolkit", "data"}, c.name)
	})
	return slices.DeleteFunc(examine(ctx, h, s, list, Deadline), func(l Line) bool { return l.Key == "" || l.Status != Fail })
}

// Failed reports whether a line is a failure.
func Failed(lines []Line) bool {
	return slices.ContainsFunc(lines, func(l Line) bool { return l.Status == Fail })
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// configuration says whether the daemons' configurations are usable.
func configuration(_ context.Context, _ *Host, s *Subject) []Line {
	var out []Line
	for _, d := range []struct {
		role Role
		err  error
	}{{Coordinator, s.CoordinatorErr}, {Agent, s.AgentErr}} {
		if !s.is(d.role) {
			continue
		}
		if d.err == nil {
			out = append(out, ok("%s: sound", d.role)...)
			continue
		}
		for line := range strings.Lines(d.err.Error()) {
			out = append(out, fail(fmt.Sprintf("berth config print %s --config FILE lists every problem", d.role), "%s: %s", d.role, line)...)
		}
	}
	if s.Agent != nil {
		for _, w := range s.Agent.Warnings() {
			out = append(out, warn("", "agent: %s", w)...)
		}
	}
	return out
}
