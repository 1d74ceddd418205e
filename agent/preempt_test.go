package agent_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent/runtime"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const preempted = nodev1.AttemptState_ATTEMPT_STATE_PREEMPTED

// roomFor asks for an assignment's end with so much time to save its state.
func roomFor(job uint64, grace time.Duration) *nodev1.Assignment {
	as := assignment(job)
	as.Preempt = &nodev1.Preempt{Signal: "USR1", Grace: durationpb.New(grace)}
	return as
}

// signals lists the signals that were sent to a job's attempt.
func (r *rig) signals(job uint64) []string {
	var out []string
	for _, c := range r.rt.Calls() {
		if op, of, _ := strings.Cut(c, " j"); strings.HasSuffix(c, " "+id(job).String()) && of != "" {
			switch op {
			case "create", "start", "delete":
			default:
				out = append(out, op)
			}
		}
	}
	return out
}

var (
	usr1 = syscall.SIGUSR1.String()
	term = syscall.SIGTERM.String()
	kill = syscall.SIGKILL.String()
)

// TestAnAttemptSavesAndEnds: whatever its code, it is preempted, and gets no
// other signal.
func TestAnAttemptSavesAndEnds(t *testing.T) {
	for name, code := range map[string]int{"with code 0": 0, "with another code": 85} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.rt.Ignore(syscall.SIGUSR1)
			r.leader.Assign(assignment(1))
			r.reported(1, running)
			r.leader.Assign(roomFor(1, time.Hour))
			r.eventually("told to save", func() bool { return len(r.signals(1)) > 0 })
			r.rt.Exit(id(1), code, true)
			got := r.reported(1, preempted)
			if got.Exit.GetCode() != int32(code) || got.Reason != "Preempted" {
				t.Errorf("reported %v", got)
			}
			if s := r.signals(1); !slices.Equal(s, []string{usr1}) {
				t.Errorf("signals %q", s)
			}
		})
	}
}

// TestThenComesTermAndKill: for who does not end by itself, and for who has no
// handler.
func TestThenComesTermAndKill(t *testing.T) {
	for name, c := range map[string]struct {
		ignores []syscall.Signal
		grace   time.Duration
		want    []string
	}{
		"no handler":    {nil, time.Hour, []string{usr1}},
		"saves only":    {[]syscall.Signal{syscall.SIGUSR1}, 30 * time.Millisecond, []string{usr1, term}},
		"never listens": {[]syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM}, 30 * time.Millisecond, []string{usr1, term, kill}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, s := range c.ignores {
				r.rt.Ignore(s)
			}
			r.leader.Assign(assignment(1))
			r.reported(1, running)
			r.leader.Assign(roomFor(1, c.grace))
			r.reported(1, preempted)
			if s := r.signals(1); !slices.Equal(s, c.want) {
				t.Errorf("signals %q, want %q", s, c.want)
			}
		})
	}
}

// TestOtherEndsComeBeforeMakingRoom: a request to end it, and its time limit.
func TestOtherEndsComeBeforeMakingRoom(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		r := newRig(t)
		r.rt.Ignore(syscall.SIGUSR1)
		r.leader.Assign(assignment(1))
		r.reported(1, running)
		r.leader.Assign(roomFor(1, time.Hour))
		r.eventually("told to save", func() bool { return len(r.signals(1)) > 0 })
		stop := roomFor(1, time.Hour)
		stop.Stop = true
		r.leader.Assign(stop)
		r.reported(1, cancelled)
	})
	t.Run("out of time", func(t *testing.T) {
		r := newRig(t)
		r.rt.Ignore(syscall.SIGUSR1)
		r.leader.Assign(roomFor(1, time.Hour))
		r.eventually("told to save", func() bool { return len(r.signals(1)) > 0 })
		as := roomFor(1, time.Hour)
		as.TimeLimit = durationpb.New(time.Millisecond)
		r.leader.Assign(as)
		r.reported(1, timeout)
		if s := r.signals(1); !slices.Equal(s, []string{usr1, term}) {
			t.Errorf("signals %q", s)
		}
	})
	t.Run("out of memory while it saves", func(t *testing.T) {
		r := newRig(t)
		r.rt.Ignore(syscall.SIGUSR1)
		r.leader.Assign(assignment(1))
		r.reported(1, running)
		r.leader.Assign(roomFor(1, time.Hour))
		r.eventually("told to save", func() bool { return len(r.signals(1)) > 0 })
		r.rt.OOMKill(id(1))
		r.reported(1, oom)
	})
}

// TestARestartGoesOnSaving: one signal, one grace, and the same verdict,
// whether the attempt ends before the new agent looks or after.
func TestARestartGoesOnSaving(t *testing.T) {
	for name, whileAway := range map[string]bool{"it ended meanwhile": true, "it still saves": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.rt.Ignore(syscall.SIGUSR1)
			r.leader.Assign(assignment(1))
			r.reported(1, running)
			r.leader.Assign(roomFor(1, time.Hour))
			r.eventually("told to save", func() bool { return len(r.signals(1)) > 0 })
			r.stop() // which waits until that is on record
			if whileAway {
				r.rt.Exit(id(1), 0, false)
			}
			r.start()
			if !whileAway {
				r.leader.Assign(assignment(2))
				r.reported(2, running) // by now the agent went on with the first
				r.rt.Exit(id(1), 0, true)
			}
			r.reported(1, preempted)
			if s := r.signals(1); !slices.Equal(s, []string{usr1}) {
				t.Errorf("signals %q, want one", s)
			}
		})
	}
}

// TestTheGraceIsNotGivenTwice: an agent that was away for longer than the grace
// ends the attempt at once.
func TestTheGraceIsNotGivenTwice(t *testing.T) {
	r := newRig(t)
	r.rt.Ignore(syscall.SIGUSR1)
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	r.leader.Assign(roomFor(1, 300*time.Millisecond))
	r.eventually("told to save", func() bool { return len(r.signals(1)) > 0 })
	r.stop()
	r.start()
	r.reported(1, preempted)
	if s := r.signals(1); !slices.Equal(s, []string{usr1, term}) {
		t.Errorf("signals %q", s)
	}
}

// TestWhatEndedFirstIsNoPreemption: the agent was told, and found it over.
func TestWhatEndedFirstIsNoPreemption(t *testing.T) {
	r := newRig(t)
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	r.rt.Exit(id(1), 0, false) // nobody tells the agent
	r.leader.Assign(roomFor(1, time.Hour))
	r.reported(1, completed)
	if s := r.signals(1); len(s) > 0 {
		t.Errorf("signals %q", s)
	}
}

// TestRestartCount: jobs can tell that they ran before.
func TestRestartCount(t *testing.T) {
	r := newRig(t)
	again := assignment(1)
	again.Attempt = 3
	r.leader.Assign(again)
	at := id(1)
	at.No = 3
	r.eventually("runs", func() bool { return r.rt.Phase(at) == runtime.Running })
	if env := r.rt.Launch(at).Env; !slices.Contains(env, "BERTH_RESTART_COUNT=2") {
		t.Errorf("environment %q", env)
	}
}
