package faulttest

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/soaktest"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestSoakFailpoints has the agent die at each step of the life of a job, and
// come back: the job runs once, its end is what it was, and nothing stays.
func TestSoakFailpoints(t *testing.T) {
	for _, runs := range []struct {
		name       string
		containers bool
	}{{"processes", false}, {"containers", true}} {
		t.Run(runs.name, func(t *testing.T) {
			s := newSite(t, runs.containers)
			times := soaktest.Times(t, 1, 50)
			crashes, double, leaks, wrong := 0, 0, 0, 0
			for _, step := range steps {
				for range times {
					if !s.crashAt(step) {
						wrong++
					}
					crashes++
					if n := s.runs(lastJob(s)); n > 1 {
						double++
						t.Errorf("crash %s: the job ran %d times", step, n)
					}
				}
				s.start("") // who may have been killed while it cleared up
				left := append(s.leftovers(), s.records()...)
				leaks += len(left)
				for _, l := range left {
					t.Errorf("after crashes %s: left behind: %s", step, l)
				}
			}
			t.Logf("soak: %d crashes at %d steps: %d double starts, %d leaks, %d wrong ends", crashes, len(steps), double, leaks, wrong)
		})
	}
}

func lastJob(s *site) cluster.AttemptID {
	return cluster.AttemptID{Job: cluster.JobID(s.jobs), No: 1}
}

// crashAt runs one job with an agent that crashes at a step and another one
// after it, and reports whether it ended as it was to.
func (s *site) crashAt(step string) bool {
	s.Helper()
	s.start(step)
	defer s.kill()
	var id cluster.AttemptID
	cancelled := strings.Contains(step, "signal") // only those are told to end
	if cancelled {
		id = s.assign("trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done", 0)
		s.until("the job to set its trap", func() bool {
			text, err := os.ReadFile(s.output(id))
			return err == nil && strings.Contains(string(text), "ready\n")
		})
		s.cancel(id)
	} else {
		id = s.assign("exit 42", 0)
	}
	if err := s.crashed(); err != nil {
		s.Errorf("crash %s: %v", step, err)
		return false
	}
	s.start("")
	s.until("the end of the job after a crash "+step, func() bool { return s.ended(id) != nil })
	s.until("the end of the attempt after a crash "+step, func() bool { return len(s.tasks()) == 0 })
	r := s.ended(id)
	if cancelled {
		// An agent that finds it ended reports how; the leader knows that it was
		// to be cancelled.
		byItself := r.State == nodev1.AttemptState_ATTEMPT_STATE_FAILED && r.GetExit().GetCode() == 5
		if r.State != nodev1.AttemptState_ATTEMPT_STATE_CANCELLED && !byItself || s.runs(id) != 1 {
			s.Errorf("crash %s: cancelled, and ended as %v after %d runs", step, r, s.runs(id))
			return false
		}
		return true
	}
	if r.State != nodev1.AttemptState_ATTEMPT_STATE_FAILED || r.GetExit().GetCode() != 42 || s.runs(id) != 1 {
		s.Errorf("crash %s: ended as %v after %d runs, want exit code 42 after 1", step, r, s.runs(id))
		return false
	}
	return true
}

// cancel asks for the end of a job.
func (s *site) cancel(id cluster.AttemptID) {
	s.leader.Assign(&nodev1.Assignment{Job: uint64(id.Job), Attempt: id.No, Token: 100 + uint64(id.Job), Uid: user, Gid: user, User: "nobody", Dir: []byte("/"), Stop: true})
}
