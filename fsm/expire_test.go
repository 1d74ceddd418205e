package fsm

import (
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func expireCmd(ids ...cluster.JobID) *logv1.Command {
	c := &logv1.ExpireJobs{}
	for _, id := range ids {
		c.Jobs = append(c.Jobs, uint64(id))
	}
	return &logv1.Command{Kind: &logv1.Command_ExpireJobs{ExpireJobs: c}}
}

// TestExpireEndsWhatWaitsTooLong: and nothing else, whatever the command says.
func TestExpireEndsWhatWaitsTooLong(t *testing.T) {
	t.Parallel()
	m := lab(t)
	with := func(d time.Duration) cluster.JobID {
		s := spec(1)
		if d != 0 {
			s.Deadline = t0.Add(d)
		}
		return m.submit(s)
	}
	late, queued, runs, early, never := with(time.Minute), with(time.Minute), with(time.Minute), with(time.Hour), with(0)
	m.start(runs, share1("n1-g0", 1000, 100))
	m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{{Job: queued, GPU: "n1-g1", Rank: 1}}}))
	all := []cluster.JobID{late, queued, runs, early, never, 9999}
	if r := m.must(expireCmd(all...)); len(r.Jobs) > 0 {
		t.Fatalf("ended %v before their time", r.Jobs)
	}
	m.now = t0.Add(2 * time.Minute)
	got, next := m.f.Expired(m.now)
	if want := []cluster.JobID{late, queued}; !slices.Equal(got, want) || next != t0.Add(time.Hour) {
		t.Errorf("expired %v, want %v; the next at %v, want %v", got, want, next, t0.Add(time.Hour))
	}
	if r, want := m.must(expireCmd(all...)), []cluster.JobID{late, queued}; !slices.Equal(r.Jobs, want) {
		t.Errorf("ended %v, want %v", r.Jobs, want)
	}
	for _, id := range []cluster.JobID{late, queued} {
		if j, _ := m.f.Job(id); j.State != cluster.JobDeadline || j.Reason.Code != cluster.ReasonDeadline || j.Ended == 0 || j.Queue != "" {
			t.Errorf("job %d: %v %v, ended %d, queue %q", id, j.State, j.Reason, j.Ended, j.Queue)
		}
	}
	for id, want := range map[cluster.JobID]cluster.JobState{runs: cluster.JobStarting, early: cluster.JobPending, never: cluster.JobPending} {
		if j, _ := m.f.Job(id); j.State != want {
			t.Errorf("job %d is %v, want %v", id, j.State, want)
		}
	}
}

// TestGoalsNeedNewerEntries: coordinators that do not know deadlines and
// objectives would store jobs without them.
func TestGoalsNeedNewerEntries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster.Spec)
		want   uint32
	}{
		"plain":     {func(*cluster.Spec) {}, 1},
		"deadline":  {func(s *cluster.Spec) { s.Deadline = t0 }, 4},
		"objective": {func(s *cluster.Spec) { s.Objective = cluster.ObjectiveCost }, 4},
		"power":     {func(s *cluster.Spec) { s.MaxPowerW = 300 }, 4},
		"cost":      {func(s *cluster.Spec) { s.MaxCostMilli = 1 }, 4},
		"or cpu":    {func(s *cluster.Spec) { s.OrCPU = true }, 6},
	} {
		s := spec(1)
		c.change(s)
		if got := NeedsVersion(submitCmd(1, "0123456789abcdef", 1000, spec(1), s)); got != c.want {
			t.Errorf("%s: needs version %d, want %d", name, got, c.want)
		}
	}
	if got := NeedsVersion(expireCmd(1)); got != 4 {
		t.Errorf("expire needs version %d", got)
	}
}
