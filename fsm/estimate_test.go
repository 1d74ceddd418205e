package fsm

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// estimated is a group of jobs and what is predicted of them.
func estimated(es []cluster.Estimate, ids ...cluster.JobID) *logv1.EstimatedJobs {
	g := &logv1.EstimatedJobs{Estimates: conv.EstimatesToLog(es)}
	for _, id := range ids {
		g.Jobs = append(g.Jobs, uint64(id))
	}
	return g
}

func estimateCmd(groups ...*logv1.EstimatedJobs) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_EstimateJobs{EstimateJobs: &logv1.EstimateJobs{Groups: groups}}}
}

// TestEstimatesAnew: jobs that wait get what is predicted now, tasks of an array that
// wait together, too, and all who come of them; jobs that run or are not there do not;
// and a replica that is restored has the same.
func TestEstimatesAnew(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "boot1", 4)))
	runs, waits, queued := m.submit(spec(1)), m.submit(spec(1)), m.submit(spec(1))
	s := spec(1)
	s.Array, _ = cluster.ParseArray("0-9")
	array := m.submit(s)
	m.must(holdCmd(array+2, 1000, false)) // one by itself
	before := m.job(runs).Estimates
	m.start(runs, share1("n1-g0", 8000, 300))
	m.enqueue(queued, "n1-g0", 1)

	one := []cluster.Estimate{{GPUType: "A100", GPUMemMiB: 3000, ConfidenceMilli: 990, Source: "history"}, {GPUType: "T4", GPUMemMiB: 2900, Duration: time.Minute}}
	other := []cluster.Estimate{{GPUType: "T4", GPUMemMiB: 700}}
	at := m.f.Now()
	fold := array + 9
	m.must(estimateCmd(estimated(one, runs, waits, queued, 4711), estimated(other, fold)))
	check := func(m *machine) {
		t.Helper()
		if got := m.job(runs); !slices.Equal(got.Estimates, before) || got.Estimated != 0 {
			t.Errorf("the job that runs: %+v", got.Estimates)
		}
		for _, id := range []cluster.JobID{waits, queued} {
			if got := m.job(id); !cmp.Equal(got.Estimates, one) || got.Estimated < at {
				t.Errorf("job %d: %+v at %d", id, got.Estimates, got.Estimated)
			}
		}
		if got := m.job(queued); got.State != cluster.JobQueued || got.Queue != "n1-g0" {
			t.Errorf("the job in a queue is %s in %q now", got.State, got.Queue)
		}
		for rank := range cluster.JobID(10) {
			switch got := m.job(array + rank); {
			case rank == 2 && (got.Estimated != 0 || cmp.Equal(got.Estimates, other)):
				t.Errorf("task 2, which was not named: %+v", got.Estimates)
			case rank != 2 && !cmp.Equal(got.Estimates, other):
				t.Errorf("task %d: %+v", rank, got.Estimates)
			}
		}
	}
	check(m)
	m.must(holdCmd(array+5, 1000, false)) // comes of those that were named
	check(m)
	again := &machine{t: t, f: restored(t, snapshotOf(t, m.f))}
	if string(again.f.Hash()) != string(m.f.Hash()) {
		t.Error("a restored replica has another hash")
	}
	check(again)

	m.refused(cluster.CodeInvalid, estimateCmd(estimated(one, waits), estimated([]cluster.Estimate{{GPUType: "T4"}, {GPUType: "A100"}}, queued)))
	check(m)
}
