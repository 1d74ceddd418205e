package elastic_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/elastic"
)

// ran adds an attempt of so many GPUs that said how long a step takes.
func ran(j *cluster.Job, gpus int, step time.Duration) {
	a := cluster.Attempt{No: uint32(len(j.Attempts) + 1), State: cluster.JobPreempted, Estimate: cluster.Estimate{GPUType: "T4"}, Progress: &cluster.Progress{Step: 7, StepTime: step}}
	a.Berth.GPUs = make([]cluster.GPUShare, gpus)
	j.Attempts = append(j.Attempts, a)
}

// TestCurveGoesThroughWhatRan: of whatever two runs said, the curve has the speeds of
// both, where any exchange gives them; and it depends on nothing but the job.
func TestCurveGoesThroughWhatRan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.IntRange(1, 15).Draw(t, "a")
		b := rapid.IntRange(a+1, 16).Draw(t, "b")
		exchange := rapid.Float64Range(0, 3).Draw(t, "exchange")
		scaling := rapid.SampledFrom([]cluster.BatchScaling{"", cluster.BatchLinear, cluster.BatchSqrt}).Draw(t, "batch")
		time1 := float64(rapid.IntRange(1, 100).Draw(t, "seconds")) * 1e9
		step := func(n int) time.Duration { // a step that is worth more takes longer
			return time.Duration(time1 * (1 + exchange*float64(n-1)) / float64(n) * scaling.Worth(n))
		}
		j := &cluster.Job{Spec: &cluster.Spec{BatchScaling: scaling}}
		ran(j, a, step(a))
		ran(j, b, step(b))
		if rapid.Bool().Draw(t, "the other way round") {
			slices.Reverse(j.Attempts)
		}
		c := elastic.CurveOf(j)
		for n := 1; n <= 16; n++ {
			if want := float64(n) / (1 + exchange*float64(n-1)); math.Abs(c.Speedup(n)/want-1) > 1e-3 {
				t.Fatalf("%d GPUs are %g times one, want %g", n, c.Speedup(n), want)
			}
		}
	})
}

// TestCurveOfOddRuns: what cannot be makes no curve that cannot be.
func TestCurveOfOddRuns(t *testing.T) {
	t.Parallel()
	of := func(add func(*cluster.Job)) elastic.Curve {
		j := &cluster.Job{Spec: &cluster.Spec{}}
		add(j)
		return elastic.CurveOf(j)
	}
	common := of(func(*cluster.Job) {})
	for name, c := range map[string]struct {
		add  func(*cluster.Job)
		four float64 // the speed of four
	}{
		"one run":            {func(j *cluster.Job) { ran(j, 2, time.Second) }, common.Speedup(4)},
		"twice the same":     {func(j *cluster.Job) { ran(j, 2, time.Second); ran(j, 2, 2*time.Second) }, common.Speedup(4)},
		"nothing is said":    {func(j *cluster.Job) { ran(j, 1, time.Second); ran(j, 2, 0) }, common.Speedup(4)},
		"no faster":          {func(j *cluster.Job) { ran(j, 1, time.Second); ran(j, 4, time.Second) }, 1},
		"faster than can be": {func(j *cluster.Job) { ran(j, 1, time.Second); ran(j, 2, time.Millisecond) }, 4},
		"much slower":        {func(j *cluster.Job) { ran(j, 1, time.Millisecond); ran(j, 2, time.Hour) }, 0.4},
		"on another type": {func(j *cluster.Job) {
			ran(j, 1, time.Second)
			ran(j, 4, time.Second)
			j.Attempts[1].Estimate.GPUType = "A100"
		}, common.Speedup(4)},
	} {
		if got := of(c.add).Speedup(4); math.Abs(got-c.four) > 1e-9 {
			t.Errorf("%s: four are %g times one, want %g", name, got, c.four)
		}
	}
}

// TestWhatRunsShowIsUsed: who was no faster with more GPUs gets the least, leaves the
// others to who gains, and one that has them gives them up; with a batch that grows the
// same times mean that it gains.
func TestWhatRunsShowIsUsed(t *testing.T) {
	t.Parallel()
	alone := world(4)
	ran(waits(alone, 1, 4, time.Hour), 1, time.Second)
	ran(alone.Waiting[0], 4, time.Second)
	if got := (elastic.Rules{}).Sizes(alone); len(got) > 0 {
		t.Errorf("who gains nothing has sizes %v", got)
	}
	s := world(4)
	flat, other := waits(s, 1, 4, time.Hour), waits(s, 1, 4, time.Hour)
	ran(flat, 1, time.Second)
	ran(flat, 4, time.Second)
	if got := (elastic.Rules{}).Sizes(s); got[flat.ID].Units != 0 || got[other.ID].Units != 3 {
		t.Errorf("sizes %v", got)
	}
	flat.Spec.BatchScaling = cluster.BatchLinear
	if got := (elastic.Rules{}).Sizes(s); got[flat.ID].Units < 2 {
		t.Errorf("with a batch that grows: sizes %v", got)
	}
	for _, c := range []struct {
		scaling cluster.BatchScaling
		two     time.Duration
		want    string
	}{
		{"", time.Second, "its steps took no longer with 2"},
		{"", 1099 * time.Millisecond, "its steps took no longer with 2"},
		{"", 1101 * time.Millisecond, ""},
		{cluster.BatchLinear, time.Second, ""},
	} {
		s := world(0)
		r := runs(s, "n0", 4, time.Hour)
		r.Spec.BatchScaling = c.scaling
		live := r.Attempts[0]
		r.Attempts = nil
		ran(r, 2, c.two)
		live.Berth.GPUs, live.Progress = make([]cluster.GPUShare, 4), &cluster.Progress{Step: 7, StepTime: time.Second}
		r.Attempts = append(r.Attempts, live)
		got := ""
		for _, p := range (elastic.Rules{}).Restarts(s, s.Ledger, &dispatch.Plan{}) {
			got = p.Why
		}
		if (got == "") != (c.want == "") || !strings.HasSuffix(got, c.want) {
			t.Errorf("two in %s, batch %q: %q, want %q", c.two, c.scaling, got, c.want)
		}
	}
}
