package elastic_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/scheduler/elastic"
)

func TestParseSizing(t *testing.T) {
	t.Parallel()
	for _, s := range elastic.Sizings() {
		if got, err := elastic.ParseSizing(string(s)); got != s || err != nil {
			t.Errorf("%s is %s: %v", s, got, err)
		}
	}
	if s, err := elastic.ParseSizing(""); s != elastic.Marginal || err != nil {
		t.Errorf("nothing is %s: %v", s, err)
	}
	if _, err := elastic.ParseSizing("themis"); err == nil || !strings.Contains(err.Error(), `is "themis", want one of afs, marginal, none, optimus, pollux, sia`) {
		t.Errorf("themis: %v", err)
	}
}

// shown gives a job the curve of an exchange, as two runs of it show.
func shown(j *cluster.Job, exchange float64) {
	j.Attempts = nil
	for i, n := range []int{1, 2} {
		j.Attempts = append(j.Attempts, cluster.Attempt{No: uint32(i + 1), State: cluster.JobFailed, Estimate: cluster.Estimate{GPUType: "T4"},
			Berth:    cluster.Berth{GPUs: make([]cluster.GPUShare, n)},
			Progress: &cluster.Progress{StepTime: time.Duration(float64(time.Second) * (1 + exchange*float64(n-1)) / float64(n))}})
	}
}

// TestSizingsDiffer: of two jobs of 1 to 8 GPUs on two nodes of four each sizing gives more
// to another one. The first is short and slows down by exchanges, the second long.
func TestSizingsDiffer(t *testing.T) {
	t.Parallel()
	const idle = 4
	for _, tc := range []struct {
		sizing       elastic.Sizing
		short, long  time.Duration
		one, other   float64 // exchange of each
		gets, leaves int
	}{
		{elastic.Marginal, time.Hour, time.Hour, 0.1, 0.1, 2, 2},
		{elastic.Marginal, time.Hour, 100 * time.Hour, 0.5, 0, 1, 3},
		{elastic.None, time.Hour, time.Hour, 0.1, 0.1, 1, 1},
		{elastic.Optimus, time.Hour, 100 * time.Hour, 0.1, 0.1, 1, 3}, // there is most to win
		{elastic.Optimus, time.Hour, time.Hour, 0.1, 0.1, 2, 2},
		{elastic.AFS, time.Hour, 100 * time.Hour, 0, 0, 3, 1},        // the short one is first, and sped up as much
		{elastic.AFS, 100 * time.Hour, time.Hour, 0, 0, 1, 3},        // whichever that is
		{elastic.AFS, time.Hour, 100 * time.Hour, 0.6, 0, 1, 3},      // the long one is sped up more
		{elastic.AFS, time.Hour, 100 * time.Hour, 0.02, 0.6, 3, 1},   // the short one is, and first
		{elastic.Pollux, time.Hour, 100 * time.Hour, 0.1, 0.1, 2, 2}, // how long they are plays no part
		{elastic.Pollux, time.Hour, time.Hour, 0.5, 0, 1, 3},
		{elastic.Sia, time.Hour, 100 * time.Hour, 0.1, 0.1, 2, 2}, // nor here
		{elastic.Sia, time.Hour, time.Hour, 0.6, 0, 1, 3},
	} {
		s := world(idle)
		a, b := waits(s, 1, 8, time.Hour), waits(s, 1, 8, time.Minute)
		a.Estimates[0].Duration, b.Estimates[0].Duration = tc.short, tc.long
		shown(a, tc.one)
		shown(b, tc.other)
		got := elastic.Rules{Sizing: tc.sizing}.Sizes(s)
		if x, y := max(1, got[a.ID].Units), max(1, got[b.ID].Units); x != tc.gets || y != tc.leaves {
			t.Errorf("%s, %s and %s, exchanges %g and %g: %d and %d, want %d and %d", tc.sizing, tc.short, tc.long, tc.one, tc.other, x, y, tc.gets, tc.leaves)
		}
	}
}

// TestExchanges: where nobody waits and nothing is idle, a running job gives GPUs to one
// that is to gain more, by the sizings that weigh those that run; not for little, nor just
// after it began.
func TestExchanges(t *testing.T) {
	t.Parallel()
	const long, hour = 20 * time.Minute, time.Hour
	for name, tc := range map[string]struct {
		rest    [2]time.Duration // of the one with three GPUs, and of the one with one
		since   time.Duration
		sizings map[elastic.Sizing]bool
	}{
		"one is much longer":    {[2]time.Duration{2 * hour, 100 * hour}, long, map[elastic.Sizing]bool{elastic.Optimus: true, elastic.Pollux: true, elastic.AFS: true, elastic.Sia: true}},
		"both are as long":      {[2]time.Duration{50 * hour, 50 * hour}, long, map[elastic.Sizing]bool{elastic.Optimus: true, elastic.Pollux: true, elastic.AFS: true, elastic.Sia: true}},
		"it is as it should be": {[2]time.Duration{100 * hour, 2 * hour}, long, map[elastic.Sizing]bool{elastic.Pollux: true, elastic.Sia: true}},
		"both began":            {[2]time.Duration{50 * hour, 50 * hour}, time.Minute, nil},
	} {
		for _, sizing := range elastic.Sizings() {
			s := world(0)
			for i, n := range []int{3, 1} {
				j := runs(s, "n0", n, tc.since)
				j.Submitted = now.Add(-10 * hour)
				j.Estimates = []cluster.Estimate{{GPUType: "T4", Duration: tc.rest[i]}}
			}
			got := elastic.Rules{Sizing: sizing}.Restarts(s, s.Ledger.Clone(), &dispatch.Plan{})
			if want := tc.sizings[sizing]; len(got) > 1 || (len(got) == 1) != want {
				t.Errorf("%s, %s: %+v, want one: %t", name, sizing, got, want)
			}
			if len(got) == 1 && (got[0].Job != 1 || got[0].For != 0 || !strings.Contains(got[0].Why, "begins again with fewer GPUs than 3: job 2 gains more from them ("+string(sizing)+")")) {
				t.Errorf("%s, %s: %+v", name, sizing, got[0])
			}
		}
	}
}

// TestWhoLosesLeastMakesRoom: of two that could make room for a job that waits, the
// sizings that weigh jobs take the one that loses less by it, others the first.
func TestWhoLosesLeastMakesRoom(t *testing.T) {
	t.Parallel()
	for _, sizing := range elastic.Sizings() {
		s := world(0)
		for _, rest := range []time.Duration{100 * time.Hour, 2 * time.Hour} {
			runs(s, "n0", 2, time.Hour).Estimates = []cluster.Estimate{{GPUType: "T4", Duration: rest}}
		}
		waits(s, 1, 1, time.Hour)
		got := elastic.Rules{Sizing: sizing}.Restarts(s, s.Ledger.Clone(), &dispatch.Plan{})
		want := cluster.JobID(1)
		if sizing == elastic.Optimus || sizing == elastic.AFS {
			want = 2
		}
		if len(got) != 1 || got[0].Job != want || got[0].For != 3 {
			t.Errorf("%s: %+v, want job %d for job 3", sizing, got, want)
		}
	}
}

// TestNoiseOfGradients: with a batch that grows, samples are worth less the smaller the
// noise of gradients is, and so are GPUs; of a batch that stays the noise says nothing.
func TestNoiseOfGradients(t *testing.T) {
	t.Parallel()
	of := func(metric string, noise float64, scaling cluster.BatchScaling) elastic.Curve {
		return elastic.CurveOf(&cluster.Job{Spec: &cluster.Spec{BatchScaling: scaling, Study: &study.Study{Metric: metric}},
			Attempts: []cluster.Attempt{{Progress: &cluster.Progress{Seen: &study.Seen{Last: noise}}}}})
	}
	common := elastic.CurveOf(&cluster.Job{Spec: &cluster.Spec{}})
	for _, tc := range []struct {
		metric  string
		noise   float64
		scaling cluster.BatchScaling
		part    float64 // of the speedup of four GPUs
	}{
		{elastic.NoiseMetric, 1, cluster.BatchLinear, 2. / 5}, {elastic.NoiseMetric, 8, cluster.BatchLinear, 9. / 12}, {elastic.NoiseMetric, -1, cluster.BatchLinear, 1},
		{elastic.NoiseMetric, 1, "", 1}, {elastic.NoiseMetric, 1, cluster.BatchSqrt, 1}, {"loss", 1, cluster.BatchLinear, 1},
	} {
		c := of(tc.metric, tc.noise, tc.scaling)
		if got, want := c.Speedup(4), common.Speedup(4)*tc.part; got < want-1e-9 || got > want+1e-9 || c.Speedup(1) != 1 {
			t.Errorf("%+v: four are %g times as fast as one, want %g", tc, got, want)
		}
	}
}
