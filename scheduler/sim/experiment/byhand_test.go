package experiment

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

func close(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

// TestReportByHand: the mean of a variant over its seeds, half of the 95 % interval
// (of 1, 2, 3: 4.303 * 1 / sqrt 3), by how much one variant differs from another, and
// claims that are met to the figure. What no result knows has no mean.
func TestReportByHand(t *testing.T) {
	t.Parallel()
	rep := &Report{Columns: []string{"makespan_s", "ooms", "energy_kwh", "rejected", "decision_us"}}
	rep.add("a", []*sim.Result{{Makespan: new(1.0), OOMs: 4}, {Makespan: new(2.0), OOMs: 4}, {Makespan: new(3.0), OOMs: 4, EnergyKWh: new(7.0)}})
	rep.add("b", []*sim.Result{{Makespan: new(5.0), RejectedPods: new(2), DecisionsPerS: new(4000.0)}})
	for _, c := range []struct {
		variant, name string
		mean, half    float64
	}{
		{"a", "makespan_s", 2, 4.303 / math.Sqrt(3)}, {"a", "ooms", 4, 0}, {"a", "energy_kwh", 7, 0},
		{"b", "makespan_s", 5, 0}, {"b", "rejected", 2, 0}, {"b", "decision_us", 250, 0},
	} {
		i := slices.IndexFunc(rep.Lines, func(l Line) bool { return l.Variant == c.variant })
		if got, half := rep.mean(c.variant, c.name), rep.Lines[i].CI95[c.name]; !close(got, c.mean) || !close(half, c.half) {
			t.Errorf("%s of %s: %g ± %g, want %g ± %g", c.name, c.variant, got, half, c.mean, c.half)
		}
	}
	if rep.Lines[0].Seeds != 3 || rep.Lines[1].Seeds != 1 || len(rep.Results) != 4 || rep.Results[2].Policy != "a" || rep.Results[3].Policy != "b" {
		t.Errorf("lines %+v of %d results", rep.Lines, len(rep.Results))
	}
	if v := rep.change("a", "b", "makespan_s"); !close(v, 150) {
		t.Errorf("5 is %g %% more than 2", v)
	}
	if v := rep.change("b", "a", "makespan_s"); !close(v, -60) {
		t.Errorf("2 is %g %% more than 5", v)
	}
	for _, v := range []float64{rep.mean("c", "makespan_s"), rep.mean("b", "energy_kwh"), rep.mean("a", "mean_jct_s")} {
		if !math.IsNaN(v) {
			t.Errorf("a figure that there is not is %g", v)
		}
	}
	for _, c := range []struct {
		claim Claim
		met   bool
	}{
		{atLeast("", 2, 2), true}, {atLeast("", 2, 1.99), false}, {atLeast("", 2, 3), true}, {atLeast("", 2, math.NaN()), false},
		{atMost("", 2, 2), true}, {atMost("", 2, 2.01), false}, {atMost("", 2, -3), true}, {atMost("", 2, math.NaN()), false},
	} {
		if c.claim.Met != c.met || c.claim.Want != 2 {
			t.Errorf("%+v: met %t, want %t", c.claim, c.claim.Met, c.met)
		}
	}
}

// TestGapByHand: of optima of 10, 10, 20 and 40 and bounds of 8, 10, 10 and 20 the
// results 10, 11, 30 and 44 are 0, 10, 50 and 10 % above the optimum (mean 17.5, half
// of them at most 10, a quarter optimal), 25, 10, 200 and 120 % above the bound, which
// is 20, 0, 50 and 50 % under the optimum.
func TestGapByHand(t *testing.T) {
	t.Parallel()
	var g gaps
	for _, x := range [][3]float64{{10, 10, 8}, {11, 10, 10}, {30, 20, 10}, {44, 40, 20}} {
		g.add(x[0], x[1], x[2])
	}
	l := g.line("v")
	want := map[string]float64{
		"gap_pct": 17.5, "gap_median_pct": 10, "gap_p95_pct": 50, "gap_max_pct": 50, "optimal_pct": 25, "gap_bound_pct": 88.75, "bound_under_optimum_pct": 30,
	}
	for _, name := range gapColumns() {
		if !close(l.Mean[name], want[name]) {
			t.Errorf("%s is %g, want %g", name, l.Mean[name], want[name])
		}
	}
	if len(want) != len(gapColumns()) || l.Seeds != 4 || l.Variant != "v" {
		t.Errorf("line %+v", l)
	}
}

// TestGapInstances: what the report says of them, of 200.
func TestGapInstances(t *testing.T) {
	t.Parallel()
	few, three := 0, 0
	for seed := range uint64(200) {
		w, gpus := gapWorkload(seed)
		again, _ := gapWorkload(seed)
		if len(w.Jobs) < 8 || len(w.Jobs) > 10 || gpus < 2 || gpus > 3 {
			t.Fatalf("%d jobs on %d cards", len(w.Jobs), gpus)
		}
		for i := range w.Jobs {
			j := &w.Jobs[i]
			if j.Submit != 0 || j.GPUs != 1 || j.Duration < 2*time.Minute || j.Duration > 2*time.Hour || j.UsedMilli < 200 || j.UsedMilli > 820 || j.MemMiB < 1<<10 || j.MemMiB >= 12<<10 {
				t.Fatalf("job %+v", *j)
			}
			if o := &again.Jobs[i]; o.Duration != j.Duration || o.MemMiB != j.MemMiB || o.UsedMilli != j.UsedMilli {
				t.Fatal("one seed gives two instances")
			}
		}
		if len(w.Jobs) == 8 {
			few++
		}
		if gpus == 3 {
			three++
		}
	}
	if few < 40 || few > 95 || three < 70 || three > 130 { // a third and a half, within four deviations
		t.Errorf("%d of 200 have 8 jobs, %d have 3 cards", few, three)
	}
}

// TestFirstCards: only those of attempts that began at the start, each once.
func TestFirstCards(t *testing.T) {
	t.Parallel()
	f := firstCards{}
	f.Attempt("a", []int{1, 2}, 0, time.Hour, cluster.JobCompleted)
	f.Attempt("b", []int{2}, 0, time.Hour, cluster.JobCompleted)
	f.Attempt("c", []int{3}, time.Microsecond, time.Hour, cluster.JobCompleted)
	if len(f) != 2 {
		t.Errorf("cards %v, want 1 and 2", f)
	}
}

// TestSizesOfVirtualClusters: 20 nodes by GPU time of 6, 3, 1 and 0 of 10 hours are
// 12, 6 and 2 nodes, and one for whom there would be none.
func TestSizesOfVirtualClusters(t *testing.T) {
	t.Parallel()
	job := func(vc string, gpus int, d time.Duration) workload.Job {
		return workload.Job{Group: vc, GPUs: gpus, Duration: d}
	}
	w := &workload.Workload{Jobs: []workload.Job{job("a", 2, 2*time.Hour), job("b", 1, 3*time.Hour), job("a", 4, 30*time.Minute), job("c", 8, 450*time.Second), job("d", 1, time.Second)}}
	got := NodesOf(w, 20)
	if len(got) != 4 || got["a"] != 12 || got["b"] != 6 || got["c"] != 2 || got["d"] != 1 {
		t.Errorf("nodes %v", got)
	}
}

// TestSharedByHand: two virtual clusters. Jobs a1 and a2 came at 0 and 100 s for 60 s
// each and ended at 60 and 900 s: delays 0 and 740 s, mean 370. Job b1 came at 200 s
// for 100 s and ended at 300 s: delay 0. In their private clusters a2 ended at 200 s:
// delay 40 s, mean 20. So a2 is 700 s later, more than ten minutes; the mean of a is
// more than 1 % and a minute above 20 s, and the ratio is (370+60)/(20+60). Until the
// last arrival, 200 s, one node of 8 cards had a1 on 2 for 60 s, and a2 on 4 from 150 s:
// 320 of 1600 GPU seconds, a fifth.
func TestSharedByHand(t *testing.T) {
	t.Parallel()
	s := func(n int) time.Duration { return time.Duration(n) * time.Second }
	w := &workload.Workload{Jobs: []workload.Job{
		{ID: "a1", Group: "a", Duration: s(60)}, {ID: "a2", Group: "a", Submit: s(100), Duration: s(60)}, {ID: "b1", Group: "b", Submit: s(200), Duration: s(100)},
	}}
	got, private := newShared(w), newShared(w)
	got.Attempt("a1", []int{0, 1}, 0, s(60), cluster.JobCompleted)
	got.Attempt("a2", []int{0, 1, 2, 3}, s(150), s(840), cluster.JobFailed)
	got.Attempt("a2", []int{0, 1, 2, 3}, s(860), s(900), cluster.JobCompleted)
	got.Attempt("b1", []int{4}, s(200), s(300), cluster.JobCompleted)
	private.Attempt("a1", []int{0}, 0, s(60), cluster.JobCompleted)
	private.Attempt("a2", []int{0}, s(140), s(200), cluster.JobCompleted)
	private.Attempt("b1", []int{0}, s(200), s(300), cluster.JobCompleted)
	got.preemptions = 1
	l := got.line("x", private, 1)
	for name, want := range map[string]float64{
		"mean_delay_s": 740.0 / 3, "worst_ratio": 430.0 / 80, "vcs_worse": 1, "late_jobs": 1, "late_mean_s": 700, "preemptions": 1, "busy_pct": 20,
	} {
		if !close(l.Mean[name], want) {
			t.Errorf("%s is %g, want %g", name, l.Mean[name], want)
		}
	}
	if own := private.line("private", private, 1); own.Mean["vcs_worse"] != 0 || own.Mean["late_jobs"] != 0 || own.Mean["worst_ratio"] != 1 {
		t.Errorf("against itself: %v", own.Mean)
	}
	if names := got.names(); !slices.Equal(names, []string{"a", "b"}) || len(got.of("a")) != 2 || !close(got.meanOf("a"), 370) || got.meanOf("b") != 0 {
		t.Errorf("virtual clusters %v, means %g and %g", names, got.meanOf("a"), got.meanOf("b"))
	}
}

// TestFleetByHand: 3 jobs of 8 cards that take an hour each, within two hours: the
// mean demand is trace.Demand's; the widest job has room; a list of nothing has a node.
func TestFleetByHand(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Jobs: []workload.Job{{GPUs: 1, Duration: time.Hour}, {GPUs: 17, Submit: 1000 * time.Hour, Duration: time.Second}}}
	f := fleetAt(w, 0.85)
	if f.GPUs() != 24 || !f.Pool || passEvery(f) != time.Second {
		t.Errorf("%d cards for a job of 17, a pass every %s", f.GPUs(), passEvery(f))
	}
	if every := passEvery(workload.Homogeneous(17, 8, "V100", 1)); every != time.Minute {
		t.Errorf("136 cards: a pass every %s", every)
	}
	if every := passEvery(workload.Homogeneous(16, 8, "V100", 1)); every != time.Second {
		t.Errorf("128 cards: a pass every %s", every)
	}
	// 16 cards without a pause for 1000 h are a demand of 16; at a load of a half
	// that is 32 cards, four nodes.
	busy := &workload.Workload{}
	for i := range 1000 {
		busy.Jobs = append(busy.Jobs, workload.Job{GPUs: 16, Submit: time.Duration(i) * time.Hour, Duration: time.Hour})
	}
	if f = fleetAt(busy, 0.5); f.GPUs() < 32 || f.GPUs() > 40 {
		t.Errorf("%d cards for a demand of 16 at a half", f.GPUs())
	}
}

// TestCut: arrivals from the first instant to before the last, which begin at 0; all
// where there would be none.
func TestCut(t *testing.T) {
	t.Parallel()
	at := func(hours ...int) *workload.Workload {
		w := &workload.Workload{}
		for _, h := range hours {
			w.Jobs = append(w.Jobs, workload.Job{Submit: time.Duration(h) * time.Hour})
		}
		return w
	}
	for _, c := range []struct{ in, want *workload.Workload }{
		{at(0, 9, 10, 15, 19, 20, 21), at(0, 5, 9)}, {at(1, 2), at(1, 2)}, {at(20), at(20)}, {at(10), at(0)},
	} {
		cut(c.in, 10*time.Hour, 20*time.Hour)
		if !slices.EqualFunc(c.in.Jobs, c.want.Jobs, func(a, b workload.Job) bool { return a.Submit == b.Submit }) {
			t.Errorf("%+v, want %+v", c.in.Jobs, c.want.Jobs)
		}
	}
}

// TestSeedsAndNames: the quick form has few seeds, the whole one all; a trace that is
// missing is named, and so are the experiments to somebody who asks for another.
func TestSeedsAndNames(t *testing.T) {
	t.Parallel()
	if q, all := (&Config{Quick: true}).seeds(10, 2), (&Config{}).seeds(10, 2); q != 2 || all != 10 {
		t.Errorf("%d seeds quickly, %d in all", q, all)
	}
	if _, err := (&Config{Traces: t.TempDir()}).trace("venus"); err == nil || !strings.Contains(err.Error(), "venus") {
		t.Errorf("a trace that is missing: %v", err)
	}
	if _, err := (&Config{}).trace("."); err == nil {
		t.Error("without a folder of traces the working directory is one")
	}
	names := map[string]bool{}
	_, err := ByName("nobel")
	for _, x := range All() {
		got, _ := ByName(x.Name)
		if names[x.Name] || got.About != x.About || !strings.Contains(err.Error(), x.Name) {
			t.Errorf("experiment %s: found %q, told %v", x.Name, got.About, err)
		}
		names[x.Name] = true
	}
	if names["gap"] && (Experiment{Name: "gap"}).NeedsTraces() || !(Experiment{Name: "yeung"}).NeedsTraces() {
		t.Error("which experiments need traces")
	}
}
