package agent_test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// warned is an assignment whose warning is due at once, and its limit in an
// hour.
func warned(job uint64, w *nodev1.Warning) *nodev1.Assignment {
	as := assignment(job)
	as.TimeLimit, as.Warning = durationpb.New(time.Hour), w
	if w.Before == nil {
		w.Before = durationpb.New(time.Hour)
	}
	return as
}

// TestWhomAWarningReaches: all, or the first alone, and never the shell of a
// script that did not ask for it.
func TestWhomAWarningReaches(t *testing.T) {
	for name, c := range map[string]struct {
		w      *nodev1.Warning
		script bool
		want   string
	}{
		"a program":          {&nodev1.Warning{Signal: "USR1"}, false, "all-" + usr1},
		"a script":           {&nodev1.Warning{Signal: "USR1"}, true, "others-" + usr1},
		"a script's shell":   {&nodev1.Warning{Signal: "USR2", First: true}, true, syscall.SIGUSR2.String()},
		"the first process":  {&nodev1.Warning{Signal: "CONT", First: true}, false, syscall.SIGCONT.String()},
		"of a newer cluster": {&nodev1.Warning{Signal: "RTMIN"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := newRigWith(t, func(c *agent.Config) { c.Scripts = dir })
			for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT} {
				r.rt.Ignore(s)
			}
			as := warned(1, c.w)
			if c.script {
				script, err := plainconv.PackScript([]byte("#!/bin/sh\ntrue\n"))
				if err != nil {
					t.Fatal(err)
				}
				as.Script = script
				as.Uid, as.Gid = uint32(os.Getuid()), uint32(os.Getgid())
			}
			r.leader.Assign(as)
			r.reported(1, running)
			if c.want != "" {
				r.eventually("warned", func() bool { return len(r.signals(1)) > 0 })
			}
			r.rt.Exit(id(1), 0, true)
			r.reported(1, completed)
			want := []string{c.want}
			if c.want == "" {
				want = nil
			}
			if s := r.signals(1); !slices.Equal(s, want) {
				t.Errorf("signals %q, want %q", s, want)
			}
		})
	}
}

// TestThenComesTheLimit: once warned, then as ever.
func TestThenComesTheLimit(t *testing.T) {
	r := newRig(t)
	r.rt.Ignore(syscall.SIGUSR1)
	as := warned(1, &nodev1.Warning{Signal: "USR1", Before: durationpb.New(2900 * time.Millisecond)}) // at once, as good as
	as.TimeLimit = durationpb.New(3 * time.Second)
	r.leader.Assign(as)
	got := r.reported(1, timeout)
	if s := r.signals(1); !slices.Equal(s, []string{"all-" + usr1, term}) {
		t.Errorf("signals %q", s)
	}
	if d := got.Ended.AsTime().Sub(got.Started.AsTime()); d < 2900*time.Millisecond {
		t.Errorf("ended after %s, before its limit", d)
	}
}

// TestARestartDoesNotWarnAgain, also when the leader's word on the attempt
// changed between.
func TestARestartDoesNotWarnAgain(t *testing.T) {
	r := newRig(t)
	r.rt.Ignore(syscall.SIGUSR1)
	as := warned(1, &nodev1.Warning{Signal: "USR1"})
	r.leader.Assign(as)
	r.reported(1, running)
	r.eventually("warned", func() bool { return len(r.signals(1)) > 0 })
	for range 3 {
		r.stop()
		r.start()
		second := assignment(2)
		r.leader.Assign(second)
		r.reported(2, running) // the agent has the leader's word again
	}
	r.rt.Exit(id(1), 0, true)
	r.reported(1, completed)
	if s := r.signals(1); !slices.Equal(s, []string{"all-" + usr1}) {
		t.Errorf("signals %q", s)
	}
}

// TestAWarningThatIsLate: an agent that was away past the time sends it when
// it is back, and the limit still ends the job.
func TestAWarningThatIsLate(t *testing.T) {
	r := newRig(t)
	r.rt.Ignore(syscall.SIGUSR1)
	as := warned(1, &nodev1.Warning{Signal: "USR1", Before: durationpb.New(59*time.Minute + 59*time.Second + 500*time.Millisecond)})
	r.leader.Assign(as)
	started := r.reported(1, running).Started.AsTime()
	r.stop()
	r.eventually("the time has come", func() bool { return time.Since(started) > 600*time.Millisecond })
	r.start()
	r.eventually("warned", func() bool { return len(r.signals(1)) > 0 })
	r.rt.Exit(id(1), 0, true)
	r.reported(1, completed)
}

// TestNoWarningOnTheWayOut: a job that is being cancelled needs none.
func TestNoWarningOnTheWayOut(t *testing.T) {
	r := newRig(t)
	r.rt.IgnoreTERM()
	as := warned(1, &nodev1.Warning{Signal: "USR1", Before: durationpb.New(time.Minute)})
	r.leader.Assign(as)
	r.reported(1, running)
	stop := warned(1, &nodev1.Warning{Signal: "USR1", Before: durationpb.New(time.Hour)})
	stop.Stop = true
	r.leader.Assign(stop)
	r.reported(1, cancelled)
	if s := r.signals(1); slices.Contains(s, "all-"+usr1) {
		t.Errorf("signals %q", s)
	}
}
