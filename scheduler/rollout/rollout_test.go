package rollout_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

const a100 = "A100-SXM4-80GB"

// TestAPassLooksAhead: of few jobs, one joins a GPU that is overcommitted by it only
// if all are predicted to end sooner so.
func TestAPassLooksAhead(t *testing.T) {
	t.Parallel()
	long := func(id cluster.JobID, d time.Duration, mib int64) *cluster.Job {
		return Job(id, Predict(a100, mib, 600, d))
	}
	more := func(n int, option JobOption, jobs ...*cluster.Job) []*cluster.Job {
		for id := range cluster.JobID(n) {
			jobs = append(jobs, Job(id+100, option))
		}
		return jobs
	}
	plain := func(j *cluster.Job) { j.Spec.GPUs, j.Spec.CPUMilli, j.Spec.MemMiB = 0, 10, 1 }
	for name, c := range map[string]struct {
		running, waiting []*cluster.Job
		starts           []cluster.JobID
	}{
		"as no GPU is free for hours": {
			running: []*cluster.Job{long(1, 4*time.Hour, 9000), long(2, 4*time.Hour, 75_000)},
			waiting: []*cluster.Job{long(3, 4*time.Hour, 9000)}, starts: []cluster.JobID{3},
		},
		"not as one is free in a minute": {
			running: []*cluster.Job{long(1, 4*time.Hour, 9000), long(2, time.Minute, 75_000)},
			waiting: []*cluster.Job{long(3, 4*time.Hour, 9000)},
		},
		"but a short job does not wait for that": {
			running: []*cluster.Job{long(1, 4*time.Hour, 9000), long(2, time.Minute, 75_000)},
			waiting: []*cluster.Job{long(3, 4*time.Second, 9000)}, starts: []cluster.JobID{3},
		},
		"nor does any look ahead where many run": {
			running: more(63, plain, long(1, 4*time.Hour, 9000), long(2, time.Minute, 75_000)),
			waiting: []*cluster.Job{long(3, 4*time.Hour, 9000)}, starts: []cluster.JobID{3},
		},
		"nor where many wait": {
			running: []*cluster.Job{long(1, 4*time.Hour, 9000), long(2, time.Minute, 75_000)},
			waiting: more(17, Type("T4"), long(3, 4*time.Hour, 9000)), starts: []cluster.JobID{3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pol := scheduler.Default()
			pol.OvercommitMilli = 1250
			w := NewWorld([]*cluster.Node{Node("n1", 2, a100)}, c.running...)
			p := scheduler.Schedule(w.Snapshot(), pol)
			w.Apply(&p)
			for _, j := range c.waiting {
				w.Submit(j)
			}
			p = scheduler.Schedule(w.Snapshot(), pol)
			var starts []cluster.JobID
			for i := range p.Starts {
				starts = append(starts, p.Starts[i].Job)
			}
			if d := cmp.Diff(c.starts, starts); d != "" {
				t.Errorf("starts (-want +got):\n%s", d)
			}
		})
	}
}

// BenchmarkLookAhead is a pass over as many jobs and GPUs as are played out at most.
// One of the jobs never starts, so that each end of another one has its pass.
func BenchmarkLookAhead(b *testing.B) {
	var jobs []*cluster.Job
	for id := range cluster.JobID(64) {
		jobs = append(jobs, Job(id+1, Predict(a100, 60_000, 600, time.Hour+time.Duration(id)*time.Minute)))
	}
	for name, look := range map[string]int{"off": 0, "on": 16} {
		b.Run(name, func(b *testing.B) {
			pol := scheduler.Default()
			pol.OvercommitMilli = 1250
			w := NewWorld([]*cluster.Node{Node("n1", 16, a100), Node("n2", 16, a100), Node("n3", 16, a100), Node("n4", 16, a100)}, jobs...)
			p := scheduler.Schedule(w.Snapshot(), pol)
			w.Apply(&p)
			for id := range cluster.JobID(15) {
				w.Submit(Job(id+100, Predict(a100, 40_000, 600, 2*time.Hour)))
			}
			w.Submit(Job(200, Type("T4")))
			snap := w.Snapshot()
			pol.LookAhead = look
			for b.Loop() {
				scheduler.Schedule(snap, pol)
			}
		})
	}
}

// TestAnExplanationLooksAheadToo: a job that waits since all end sooner so is told
// the amounts by which the pass decided, and when.
func TestAnExplanationLooksAheadToo(t *testing.T) {
	t.Parallel()
	pol := scheduler.Default()
	pol.OvercommitMilli = 1250
	w := NewWorld([]*cluster.Node{Node("n1", 2, a100)}, Job(1, Predict(a100, 9000, 600, 4*time.Hour)), Job(2, Predict(a100, 75_000, 600, time.Minute)))
	p := scheduler.Schedule(w.Snapshot(), pol)
	w.Apply(&p)
	w.Submit(Job(3, Predict(a100, 9000, 600, 4*time.Hour)))
	var why []string
	for _, e := range scheduler.Explain(w.Snapshot(), w.Jobs[3], pol) {
		why = append(why, e.Reason.Detail)
	}
	f, _ := scheduler.ForecastStart(w.Snapshot(), w.Jobs[3], pol)
	why = append(why, f.P50.Sub(Now).String())
	want := []string{
		"GPU 0 of n1 (A100-SXM4-80GB): 4.9 GiB free, needs 8.8 GiB; 1 job there, it ends in ~1 min",
		"GPU 1 of n1 (A100-SXM4-80GB): 52 % of its compute free, needs 60 %; 1 job there, it ends in ~4 h",
		time.Minute.String(),
	}
	if d := cmp.Diff(want, why); d != "" {
		t.Errorf("told (-want +got):\n%s", d)
	}
}
