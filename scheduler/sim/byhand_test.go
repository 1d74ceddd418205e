package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestBoundsByHand: what no schedule can beat, worked out with a pencil.
func TestBoundsByHand(t *testing.T) {
	t.Parallel()
	job := func(id string, submit, lasts float64, gpus int, used int64) workload.Job {
		return workload.Job{ID: id, Submit: hours(submit), Duration: hours(lasts), GPUs: gpus, UsedMilli: used, MemMiB: 1000}
	}
	for _, c := range []struct {
		name                 string
		cards                int
		jobs                 []workload.Job
		world                slowdown.Interference
		alone, alonJCT, both float64 // hours: makespan alone, mean alone, makespan with sharing
	}{
		{"one job", 2, []workload.Job{job("a", 0, 3, 1, 500)}, slowdown.Free{}, 3, 3, 3},
		{"work over cards", 2, []workload.Job{job("a", 0, 3, 1, 500), job("b", 0, 3, 1, 500), job("c", 0, 2, 1, 500)}, slowdown.Free{}, 4, (2*1 + 1.5 + 2.5 + 4) / 3, 3},
		{"a gang is as many cards", 4, []workload.Job{job("a", 0, 3, 4, 500), job("b", 0, 1, 4, 500)}, slowdown.Free{}, 4, 2.5, 3},
		{"who comes late ends late", 2, []workload.Job{job("a", 0, 1, 1, 500), job("b", 5, 2, 1, 500)}, slowdown.Free{}, 7, 1.5, 7},
		{"what comes late needs its work from then on", 1, []workload.Job{job("a", 0, 1, 1, 500), job("b", 5, 2, 1, 500), job("c", 5, 2, 1, 500)}, slowdown.Free{}, 9, (1 + 2 + 4) / 3.0, 7},
		// Three at 800 thousandths each on one card that does one card's work.
		{"a card does a card's work", 1, []workload.Job{job("a", 0, 1, 1, 800), job("b", 0, 1, 1, 800), job("c", 0, 1, 1, 800)}, slowdown.Curve{Over: 1}, 3, 2, 2.4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := simulate(t, &workload.Workload{Name: c.name, Jobs: c.jobs}, workload.Homogeneous(1, c.cards, "T4", 16000), sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), World: c.world})
			about(t, "makespan, one to a card", r.LowerBoundAlone, 3600*c.alone, 1e-3)
			_ = c.alonJCT
			about(t, "makespan with sharing", r.LowerBoundMakespan, 3600*c.both, 1e-3)
		})
	}
}

// TestCurveByHand: 1 + beside·(k-1) + over·(what is asked of the card beyond all of
// it), for each of those there.
func TestCurveByHand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		curve slowdown.Curve
		milli []int64
		slow  float64
	}{
		{slowdown.Curve{Beside: 0.1}, []int64{300, 300}, 1.1},
		{slowdown.Curve{Beside: 0.1}, []int64{900, 900, 900}, 1.2},
		{slowdown.Curve{Over: 1}, []int64{500, 500}, 1},
		{slowdown.Curve{Over: 1}, []int64{450, 500}, 1},
		{slowdown.Curve{Over: 1}, []int64{700, 500}, 1.2},
		{slowdown.Curve{Over: 2, Beside: 0.05}, []int64{600, 600, 600}, 1 + 0.1 + 1.6},
	} {
		var loads []slowdown.Load
		for _, m := range c.milli {
			loads = append(loads, slowdown.Load{Milli: m})
		}
		out := make([]float64, len(loads))
		c.curve.Speeds("", loads, out)
		for i := range out {
			if math.Abs(1/out[i]-c.slow) > 1e-9 {
				t.Errorf("%v with %v: slowdown %g, want %g", c.curve, c.milli, 1/out[i], c.slow)
			}
		}
	}
}

// TestNeighbourThatLeaves: what is left of a job goes on as fast as alone from the
// moment on at which its neighbour ends, and an overhead is lost at full speed.
func TestNeighbourThatLeaves(t *testing.T) {
	t.Parallel()
	two := func(a, b float64) *workload.Workload {
		return &workload.Workload{Name: "two", Jobs: []workload.Job{
			{ID: "a", Duration: hours(a), GPUs: 1, MemMiB: 1000, UsedMilli: 300}, {ID: "b", Duration: hours(b), GPUs: 1, MemMiB: 1000, UsedMilli: 300},
		}}
	}
	f := workload.Homogeneous(1, 1, "T4", 16000)
	// At half speed b ends after 2 h; a did 1 h of 3 by then and ends after 4.
	r := simulate(t, two(3, 1), f, sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), World: slowdown.Linear{Beside: 1}})
	about(t, "makespan", r.Makespan, 4*3600, 1e-3)
	about(t, "mean completion", r.MeanJCT, 3*3600, 1e-3)
	about(t, "slowdown", r.MeanSlowdown, (4.0/3+2)/2, 1e-6)
	// With a minute that each start costs, both end a minute later.
	r = simulate(t, two(3, 1), f, sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), World: slowdown.Linear{Beside: 1}, Start: time.Minute})
	about(t, "makespan with overhead", r.Makespan, 4*3600+60, 1e-3)
	about(t, "mean completion with overhead", r.MeanJCT, 3*3600+60, 1e-3)
}

// TestGangGoesAsItsSlowestCard: one of two cards has a neighbour.
func TestGangGoesAsItsSlowestCard(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "gang", Jobs: []workload.Job{
		{ID: "a", Duration: hours(2), GPUs: 2, MemMiB: 1000, UsedMilli: 300}, {ID: "b", Duration: hours(0.5), GPUs: 1, MemMiB: 1000, UsedMilli: 300},
	}}
	r := simulate(t, w, workload.Homogeneous(1, 2, "T4", 16000), sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), World: slowdown.Linear{Beside: 1}, Declare: true})
	// b at half speed: an hour. a did half an hour by then, and has 1.5 h to go.
	about(t, "makespan", r.Makespan, 2.5*3600, 1e-3)
}

// TestCheckpoints: a job of a thousand minutes that writes one every ten loses less
// than that with each failure, and without any it begins anew.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "failures", Jobs: []workload.Job{{ID: "a", Duration: 1000 * time.Minute, GPUs: 1}}}
	for seed := range uint64(12) {
		d := &diary{}
		opt := sim.Options{Planner: policy(t, "slot+fifo", policies.Options{}), MTBF: hours(6), Repair: 20 * time.Minute, Seed: seed, Observe: d, Checkpoint: 10 * time.Minute}
		r := simulate(t, w, workload.Homogeneous(1, 1, "T4", 16000), opt)
		kept := time.Duration(0)
		for _, a := range d.attempts {
			ran := a.to - a.from
			if a.how == cluster.JobCompleted {
				kept += ran
				continue
			}
			kept += ran / (10 * time.Minute) * (10 * time.Minute) // of this attempt, whole ones
		}
		if got := kept - 1000*time.Minute; got < -time.Second || got > time.Second {
			t.Errorf("seed %d: %d failures, and checkpoints and the last attempt make %s of 1000 minutes", seed, r.NodeFailures, kept)
		}
		opt.Checkpoint, d.attempts = 0, nil
		r = simulate(t, w, workload.Homogeneous(1, 1, "T4", 16000), opt)
		if last := d.attempts[len(d.attempts)-1]; last.how != cluster.JobCompleted || last.to-last.from != 1000*time.Minute {
			t.Errorf("seed %d: without checkpoints the last of %d attempts ran for %s", seed, len(d.attempts), last.to-last.from)
		}
		for i := 1; i < len(d.attempts); i++ { // a node that broke is away for a while
			if gap := d.attempts[i].from - d.attempts[i-1].to; gap <= time.Millisecond {
				t.Errorf("seed %d: attempt %d began %s after the node broke", seed, i, gap)
			}
		}
		_ = r
	}
}

// TestQuantile is the nearest rank: of n sorted numbers the one at ⌈q·n⌉.
func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of   []float64
		q    float64
		want float64
	}{
		{[]float64{5}, 0.5, 5}, {[]float64{5}, 0.99, 5}, {[]float64{1, 2}, 0.5, 1}, {[]float64{1, 2}, 0.51, 2}, {[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{1, 2, 3, 4}, 0.25, 1}, {[]float64{1, 2, 3, 4}, 0, 1}, {[]float64{1, 2, 3, 4}, 1, 4},
	} {
		if got := sim.Quantile(c.of, c.q); got != c.want {
			t.Errorf("quantile %g of %v is %g, want %g", c.q, c.of, got, c.want)
		}
	}
}

// TestPredictionsOfOneJob: the error of a job is its own: it depends on nobody else
// in the workload, nor on the order of the rows.
func TestPredictionsOfOneJob(t *testing.T) {
	t.Parallel()
	seen := func(jobs ...workload.Job) map[string][]cluster.Estimate {
		spy := &watching{seen: map[string][]cluster.Estimate{}}
		f := workload.Fleet{Name: "two types", Nodes: []workload.NodeSpec{{Count: 1, GPUs: 4, GPUType: "T4", MemMiB: 16000}, {Count: 1, GPUs: 4, GPUType: "V100", MemMiB: 32000}}}
		simulate(t, &workload.Workload{Name: "errors", Jobs: jobs}, f, sim.Options{Planner: spy, Seed: 5, Errors: sim.Errors{Mem: 0.3, Util: 0.2, Duration: 0.5, MemMargin: 0.1}})
		return spy.seen
	}
	job := func(id string) workload.Job {
		return workload.Job{ID: id, Duration: time.Hour, GPUs: 1, MemMiB: 4000, UsedMilli: 400}
	}
	a, b, c := job("a"), job("b"), job("c")
	all, alone := seen(a, b, c), seen(b)
	if !slices.Equal(all["b"], alone["b"]) {
		t.Errorf("job b is predicted %+v beside others and %+v alone", all["b"], alone["b"])
	}
	if x, y, z := all["a"][0].GPUMemMiB, all["b"][0].GPUMemMiB, all["c"][0].GPUMemMiB; x == y || y == z || x == z {
		t.Errorf("jobs alike err alike: %d, %d and %d MiB", x, y, z)
	}
	for id, es := range all {
		if len(es) != 2 || es[0].GPUMemMiB != es[1].GPUMemMiB || es[0].Milli != es[1].Milli || es[0].Duration != es[1].Duration {
			t.Errorf("job %s errs apart on two types: %+v", id, es)
		}
		// The margin and the upper quantile of the error: 1.1·exp(1.6449·0.3).
		if want := float64(es[0].GPUMemMiB) * 1.1 * math.Exp(1.6449*0.3); math.Abs(float64(es[0].GPUMemP95MiB)-want) > 2 {
			t.Errorf("job %s: upper quantile %d of %d MiB, want %.0f", id, es[0].GPUMemP95MiB, es[0].GPUMemMiB, want)
		}
	}
}

// watching is the scheduler, and remembers what was predicted of whom.
type watching struct{ seen map[string][]cluster.Estimate }

func (w *watching) Name() string { return "watching" }

func (w *watching) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	for _, j := range snap.Waiting {
		w.seen[j.Spec.Name] = j.Estimates
	}
	return scheduler.Schedule(snap, scheduler.Default())
}

// TestFairnessByHand: two cards. Job a has two hours to run; after one of them four
// more come that take an hour each, and wait for each other.
func TestFairnessByHand(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "five", Jobs: []workload.Job{{ID: "a", Duration: hours(2), GPUs: 1}}}
	for _, id := range []string{"b", "c", "d", "e"} {
		w.Jobs = append(w.Jobs, workload.Job{ID: id, Submit: hours(1), Duration: hours(1), GPUs: 1})
	}
	r := simulate(t, w, workload.Homogeneous(1, 2, "T4", 16000), sim.Options{Planner: policy(t, "slot+fifo", policies.Options{})})
	// From hour to hour the cards are asked for 1 (half of them, which counts as
	// once), 2.5, 1.5 and 1 times over. So a takes 2 h of 2·1.75, b 1 of 2.5, c and d
	// 2 of 2, e 3 of 5/3.
	about(t, "fairness", r.FinishTimeFairness, (2/3.5+1/2.5+1+1+1.8)/5, 1e-6)
	about(t, "the worst", r.WorstFairness, 1.8, 1e-6)
	about(t, "mean wait", r.MeanWait, 3600*(0+0+1+1+2)/5.0, 1e-6)
}

// TestWideJobsByHand are those of more cards than a usual node has.
func TestWideJobsByHand(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "wide", Jobs: []workload.Job{{ID: "a", Duration: hours(3), GPUs: 8}, {ID: "b", Submit: hours(9), Duration: hours(2), GPUs: 9}}}
	r := simulate(t, w, workload.Homogeneous(1, 9, "T4", 16000), sim.Options{Planner: policy(t, "slot+fifo", policies.Options{})})
	about(t, "99th percentile of wide jobs", r.WideP99JCT, 2*3600, 1e-6)
}

// TestACardDoesACardsWork: two jobs with a declared third of a card that would each
// keep nine tenths of it busy keep all of it busy, and no more.
func TestACardDoesACardsWork(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "greedy"}
	for _, id := range []string{"a", "b"} {
		w.Jobs = append(w.Jobs, workload.Job{ID: id, Duration: hours(1), GPUs: 1, Milli: 300, UsedMilli: 900, MemMiB: 4000})
	}
	r := simulate(t, w, workload.Homogeneous(1, 1, "T4", 16000), sim.Options{Planner: policy(t, "firstfit", policies.Options{}), World: slowdown.Free{}})
	about(t, "makespan", r.Makespan, 3600, 1e-6)
	about(t, "allocation", r.AllocationPct, 60, 1e-6)
	about(t, "utilization", r.GPUUtilPct, 100, 1e-6)
	about(t, "fragments of what is free", r.FragmentationPct, 100, 1e-6)
}

// TestServiceByHand: what users had is the time of all of their cards, of attempts
// that ended and of those that run.
func TestServiceByHand(t *testing.T) {
	t.Parallel()
	spy := &serving{}
	w := &workload.Workload{Name: "users", Jobs: []workload.Job{
		{ID: "a", Duration: hours(2), GPUs: 4, User: "ann"}, {ID: "b", Duration: hours(0.5), GPUs: 2, User: "bob"},
		{ID: "c", Submit: hours(1), Duration: hours(1), GPUs: 1, User: "bob"},
	}}
	simulate(t, w, workload.Homogeneous(1, 8, "T4", 16000), sim.Options{Planner: spy, NoZoom: true})
	if spy.had[1000] != 4*3600 || spy.had[1001] != 2*1800 {
		t.Errorf("after an hour they had %v, want 14400 s of cards and 3600", spy.had)
	}
}

// serving is the scheduler, and remembers what users had when it was asked last.
type serving struct{ had map[cluster.UID]int64 }

func (s *serving) Name() string { return "serving" }

func (s *serving) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	if len(snap.Waiting) > 0 {
		s.had = snap.Service
	}
	return scheduler.Schedule(snap, scheduler.Default())
}
