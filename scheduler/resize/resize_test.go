package resize

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// TestWhoYields: the newest on the card that can save its state, one at a time.
func TestWhoYields(t *testing.T) {
	t.Parallel()
	const now = cluster.Time(3_600_000_000)
	on := func(id cluster.JobID, gpu cluster.GPUID, started cluster.Time, change func(j *cluster.Job)) *cluster.Job {
		j := &cluster.Job{ID: id, State: cluster.JobRunning, Spec: &cluster.Spec{GPUs: 1, Checkpoint: cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}},
			Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Placed: started, Started: started, Berth: cluster.Berth{GPUs: []cluster.GPUShare{{GPU: gpu}}}}}}
		if change != nil {
			change(j)
		}
		return j
	}
	grows := on(1, "a", 1, func(j *cluster.Job) { j.Last().Resize = &cluster.ResizeMark{At: 4} })
	for _, c := range []struct {
		name string
		jobs []*cluster.Job
		want cluster.JobID
	}{
		{"nobody beside it", []*cluster.Job{grows}, 0},
		{"the newest", []*cluster.Job{grows, on(2, "a", 5, nil), on(3, "a", 7, nil), on(4, "a", 6, nil)}, 3},
		{"not who was there before the cut", []*cluster.Job{grows, on(2, "a", 3, nil)}, 0},
		{"not on another card", []*cluster.Job{grows, on(2, "a", 5, nil), on(3, "b", 7, nil)}, 2},
		{"not without a hook", []*cluster.Job{grows, on(2, "a", 5, nil), on(3, "a", 7, func(j *cluster.Job) { j.Spec.Checkpoint = cluster.Checkpoint{} })}, 2},
		{"not with a deadline", []*cluster.Job{grows, on(2, "a", 5, func(j *cluster.Job) { j.Spec.Deadline = 1 })}, 0},
		{"one leaves already", []*cluster.Job{grows, on(2, "a", 5, nil), on(3, "a", 7, func(j *cluster.Job) { j.Last().Preempt = &cluster.PreemptRequest{} })}, 0},
		{"one is cancelled", []*cluster.Job{grows, on(2, "a", 5, func(j *cluster.Job) { j.Cancel = &cluster.CancelRequest{} }), on(3, "a", 7, nil)}, 0},
		{"who leaves another card does not count", []*cluster.Job{grows, on(2, "a", 5, nil), on(3, "b", 7, func(j *cluster.Job) { j.Last().Preempt = &cluster.PreemptRequest{} })}, 2},
	} {
		got := cluster.JobID(0)
		if j := WhoYields(c.jobs, grows, now); j != nil {
			got = j.ID
		}
		if got != c.want {
			t.Errorf("%s: job %d, want %d", c.name, got, c.want)
		}
	}
}

// TestCutShort: who waits since it met what was left to it, for a while.
func TestCutShort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		want   bool
		change func(j *cluster.Job, a *cluster.Attempt)
	}{
		{"it is", true, func(*cluster.Job, *cluster.Attempt) {}},
		{"it never ran", false, func(j *cluster.Job, _ *cluster.Attempt) { j.Attempts = nil }},
		{"it had all that it was granted", false, func(_ *cluster.Job, a *cluster.Attempt) { a.Resize.Was = nil }},
		{"it was never cut", false, func(_ *cluster.Job, a *cluster.Attempt) { a.Resize = nil }},
		{"it made room", false, func(_ *cluster.Job, a *cluster.Attempt) { a.Usage.GPUOOM = false }},
		{"it is held", false, func(j *cluster.Job, _ *cluster.Attempt) { j.Hold = &cluster.Hold{} }},
		{"long ago", false, func(_ *cluster.Job, a *cluster.Attempt) { a.Ended = 0 }},
	} {
		j := &cluster.Job{Attempts: []cluster.Attempt{{Ended: 60_000_000, Usage: cluster.Usage{GPUOOM: true}, Resize: &cluster.ResizeMark{Was: make([]cluster.GPUShare, 1)}}}}
		c.change(j, j.Last())
		if got := CutShort(j, cluster.Time(TakeBack.Microseconds())); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestSteady: a peak is steady since it rose last, and use is what came after that.
func TestSteady(t *testing.T) {
	t.Parallel()
	s := &Steady{}
	for _, u := range []Use{{At: 10, PeakMiB: 100, BusyMs: 1000, KnownMs: 1}, {At: 20, PeakMiB: 300, BusyMs: 4000, KnownMs: 10}, {At: 30, PeakMiB: 300, BusyMs: 9000, KnownMs: 20}} {
		s.Add(u)
	}
	last := Use{At: 30, PeakMiB: 300, BusyMs: 9000, KnownMs: 20}
	if s.peak != 300 || s.at.At != 20 || s.milli(last, 1) != 500 || s.milli(last, 2) != 250 {
		t.Errorf("%+v: uses %d and %d", s, s.milli(last, 1), s.milli(last, 2))
	}
	if got := s.milli(Use{KnownMs: 10}, 1); got != cluster.WholeGPU {
		t.Errorf("unknown use counts as %d", got)
	}
	s.Add(Use{At: 40, PeakMiB: 50, KnownMs: 1}) // its node's agent began anew
	if s.peak != 50 || s.at.At != 40 {
		t.Errorf("after a new beginning %+v", s)
	}
}

// TestHasRoom: what others hold of the same card counts, and nothing else.
func TestHasRoom(t *testing.T) {
	t.Parallel()
	n := &cluster.Node{ID: "n", GPUs: []cluster.GPU{{ID: "a", SellableMiB: 1000}, {ID: "b", SellableMiB: 1000}}}
	on := func(id cluster.JobID, gpu cluster.GPUID, mem, milli int64) *cluster.Job {
		return &cluster.Job{ID: id, State: cluster.JobRunning, Spec: &cluster.Spec{GPUs: 1}, Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning,
			Berth: cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: gpu, Share: cluster.Share{MemMiB: mem, Milli: milli}}}}}}}
	}
	ended := on(5, "a", 900, 900)
	ended.State, ended.Attempts[0].State = cluster.JobCompleted, cluster.JobCompleted
	grows := on(1, "a", 100, 100)
	for _, c := range []struct {
		gpu        cluster.GPUID
		mem, milli int64
		others     []*cluster.Job
		want       bool
	}{
		{"a", 1000, 1000, nil, true},
		{"a", 1001, 100, nil, false},
		{"a", 100, 1001, nil, false},
		{"a", 600, 500, []*cluster.Job{grows, on(2, "a", 400, 500), on(3, "b", 900, 900), ended}, true},
		{"a", 601, 500, []*cluster.Job{grows, on(2, "a", 400, 500)}, false},
		{"a", 600, 501, []*cluster.Job{grows, on(2, "a", 300, 300), on(4, "a", 100, 200)}, false},
		{"gone", 1, 1, nil, false},
	} {
		to := []cluster.GPUShare{{GPU: c.gpu, Share: cluster.Share{MemMiB: c.mem, Milli: c.milli}}}
		if got := HasRoom(n, c.others, grows, to); got != c.want {
			t.Errorf("%d MiB and %d of %s beside %d: %t", c.mem, c.milli, c.gpu, len(c.others), got)
		}
	}
}
