package sim_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// The simulator against event loops of a few lines that share nothing with it, and
// against what queueing theory and scheduling theory say in closed form.

// policy makes one of package policies that passes at every event.
func policy(t rapid.TB, name string, opt policies.Options) policies.Policy {
	t.Helper()
	p, err := policies.New(name, opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func simulate(t rapid.TB, w *workload.Workload, f workload.Fleet, opt sim.Options) *sim.Result {
	t.Helper()
	opt.Paranoid = true
	r, err := sim.Run(context.Background(), w, &f, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func about(t rapid.TB, what string, got *float64, want, within float64) {
	t.Helper()
	if got == nil {
		t.Fatalf("%s is not known, want %g", what, want)
	}
	if math.Abs(*got-want) > within {
		t.Fatalf("%s is %g, want %g", what, *got, want)
	}
}

// naiveJob is a job in whole seconds.
type naiveJob struct{ comes, lasts, left, ends int }

// onCards runs jobs second by second, none of which is ever put off once it runs:
// whoever is first by before among those who are here gets a card that is free.
func onCards(jobs []naiveJob, cards int, before func(a, b *naiveJob) int) []naiveJob {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		jobs[i].left, jobs[i].ends = jobs[i].lasts, -1
	}
	var running []*naiveJob
	for now, done := 0, 0; done < len(jobs); now++ {
		for _, j := range running {
			if j.left--; j.left == 0 {
				j.ends = now
				done++
			}
		}
		running = slices.DeleteFunc(running, func(j *naiveJob) bool { return j.left == 0 })
		var here []*naiveJob
		for i := range jobs {
			if j := &jobs[i]; j.comes <= now && j.ends < 0 && !slices.Contains(running, j) {
				here = append(here, j)
			}
		}
		slices.SortStableFunc(here, before)
		for len(running) < cards && len(here) > 0 {
			running, here = append(running, here[0]), here[1:]
		}
	}
	return jobs
}

func drawSeconds(t *rapid.T, most int) []naiveJob {
	var jobs []naiveJob
	for range rapid.IntRange(1, most).Draw(t, "jobs") {
		jobs = append(jobs, naiveJob{comes: rapid.IntRange(0, 60).Draw(t, "comes"), lasts: rapid.IntRange(1, 40).Draw(t, "lasts")})
	}
	slices.SortStableFunc(jobs, func(a, b naiveJob) int { return cmp.Compare(a.comes, b.comes) })
	return jobs
}

// workloadOf is the same for the simulator; ids follow the order, so that ties are
// broken alike.
func workloadOf(jobs []naiveJob) *workload.Workload {
	w := &workload.Workload{Name: "seconds"}
	for i, j := range jobs {
		w.Jobs = append(w.Jobs, workload.Job{ID: fmt.Sprintf("j%03d", i), Submit: seconds(j.comes), Duration: seconds(j.lasts), GPUs: 1})
	}
	return w
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// completions are the sorted times from arrival to end.
func completions(jobs []naiveJob) (out []float64) {
	for _, j := range jobs {
		out = append(out, float64(j.ends-j.comes))
	}
	slices.Sort(out)
	return out
}

// TestAsANaiveLoop: on cards that are given away whole, first come first served and
// shortest first come to the very same ends as a loop over seconds.
func TestAsANaiveLoop(t *testing.T) {
	t.Parallel()
	byLength := func(a, b *naiveJob) int { return cmp.Compare(a.lasts, b.lasts) }
	inOrder := func(*naiveJob, *naiveJob) int { return 0 }
	rapid.Check(t, func(t *rapid.T) {
		jobs, cards := drawSeconds(t, 14), rapid.IntRange(1, 3).Draw(t, "cards")
		for _, c := range []struct {
			name   string
			before func(a, b *naiveJob) int
		}{{"slot+fifo", inOrder}, {"slot+sjf", byLength}, {"slot+qssf", byLength}} {
			want := onCards(jobs, cards, c.before)
			r := simulate(t, workloadOf(jobs), workload.Homogeneous(1, cards, "T4", 16000), sim.Options{Planner: policy(t, c.name, policies.Options{})})
			if !slices.EqualFunc(completions(want), r.Completions, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }) {
				t.Fatalf("%s on %d cards: completion after %v, want %v", c.name, cards, r.Completions, completions(want))
			}
			last := slices.MaxFunc(want, func(a, b naiveJob) int { return cmp.Compare(a.ends, b.ends) }).ends
			about(t, c.name+": makespan", r.Makespan, float64(last-jobs[0].comes), 1e-6)
		}
	})
}

// TestShortestRemainingIsOptimal: on one card, with preemption that costs nothing,
// shortest remaining time first has the least mean completion time of all schedules
// (Schrage 1968), which is what the bound without sharing says; here it is played
// second by second, too. No other order is better.
func TestShortestRemainingIsOptimal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawSeconds(t, 8)
		best := shortestRemaining(jobs)
		f := workload.Homogeneous(1, 1, "T4", 16000)
		for _, name := range []string{"slot+srtf", "slot+srsf", "slot+las", "slot+fifo", "slot+sjf"} {
			r := simulate(t, workloadOf(jobs), f, sim.Options{Planner: policy(t, name, policies.Options{MinRun: -1}), Preemptible: true})
			about(t, "bound", r.LowerBoundJCT, best, 1e-6)
			if *r.MeanJCT < best-1e-6 {
				t.Fatalf("%s: mean completion after %g s, and the optimum is %g", name, *r.MeanJCT, best)
			}
		}
	})
}

// shortestRemaining is the mean completion time of that order.
func shortestRemaining(jobs []naiveJob) float64 {
	left, sum := make([]int, len(jobs)), 0
	for i := range jobs {
		left[i] = jobs[i].lasts
	}
	for now, done := 0, 0; done < len(jobs); now++ {
		best := -1
		for i := range jobs {
			if jobs[i].comes <= now && left[i] > 0 && (best < 0 || left[i] < left[best]) {
				best = i
			}
		}
		if best < 0 {
			continue
		}
		if left[best]--; left[best] == 0 {
			sum += now + 1 - jobs[best].comes
			done++
		}
	}
	return float64(sum) / float64(len(jobs))
}

// TestPreemptionPays: a shorter job takes the card of one that has more left than
// itself and the price, and not of one that has less.
func TestPreemptionPays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		first, later int // seconds; the second comes after 10 of the first
		preempted    int
		mean         float64
	}{
		// 100 s left, 59 s and 40 s: the first goes on after the other and pays.
		{"much shorter", 110, 59, 1, ((10 + 59 + 40 + 100) + 59) / 2.0},
		{"as short as it may be: the price makes them equal", 110, 60, 0, (110 + 160) / 2.0},
		{"longer", 110, 120, 0, (110 + 220) / 2.0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			jobs := []naiveJob{{comes: 0, lasts: c.first}, {comes: 10, lasts: c.later}}
			r := simulate(t, workloadOf(jobs), workload.Homogeneous(1, 1, "T4", 16000), sim.Options{
				Planner: policy(t, "slot+srtf", policies.Options{MinRun: -1}), Preemptible: true, PreemptSmall: 40 * time.Second, PreemptLarge: time.Hour,
			})
			if r.Preemptions != c.preempted {
				t.Errorf("%d preemptions, want %d", r.Preemptions, c.preempted)
			}
			about(t, "mean completion", r.MeanJCT, c.mean, 1e-6)
		})
	}
}

// TestPriceOfAPreemption: the large price from more than eight cards on.
func TestPriceOfAPreemption(t *testing.T) {
	t.Parallel()
	for gpus, price := range map[int]float64{1: 40, 8: 40, 9: 60} {
		w := &workload.Workload{Name: "wide", Jobs: []workload.Job{
			{ID: "a", Duration: time.Hour, GPUs: gpus}, {ID: "b", Submit: time.Minute, Duration: time.Minute, GPUs: gpus},
		}}
		r := simulate(t, w, workload.Homogeneous(1, gpus, "T4", 16000), sim.Options{
			Planner: policy(t, "slot+srtf", policies.Options{MinRun: -1}), Preemptible: true, PreemptSmall: 40 * time.Second, PreemptLarge: time.Minute,
		})
		about(t, fmt.Sprintf("makespan with %d cards", gpus), r.Makespan, 3600+60+price, 1e-6)
	}
}

// TestMM1: with arrivals and run times of exponential law on one card, first come
// first served, the mean time in the system is 1/(μ-λ), the card is busy for λ/μ of
// the time, and by PASTA a job waits with that chance (Erlang 1909).
func TestMM1(t *testing.T) {
	t.Parallel()
	const jobs, lambda, mu = 30_000, 0.6, 1.0 // a minute is the unit
	r, at := rand.New(rand.NewPCG(7, 7)), 0.0
	w := &workload.Workload{Name: "m/m/1"}
	for i := range jobs {
		at += r.ExpFloat64() / lambda
		w.Jobs = append(w.Jobs, workload.Job{
			ID: fmt.Sprintf("j%05d", i), Submit: time.Duration(at * float64(time.Minute)), Duration: 1 + time.Duration(r.ExpFloat64()/mu*float64(time.Minute)), GPUs: 1,
		})
	}
	got, err := sim.Run(context.Background(), w, &workload.Fleet{Name: "one", Nodes: []workload.NodeSpec{{Count: 1, GPUs: 1, GPUType: "T4", MemMiB: 16000}}},
		sim.Options{Planner: policy(t, "slot+fifo", policies.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	about(t, "time in the system", got.MeanJCT, 60/(mu-lambda), 60/(mu-lambda)*0.06)
	about(t, "wait", got.MeanWait, 60*lambda/(mu-lambda), 60*lambda/(mu-lambda)*0.09)
	about(t, "busy", got.AllocationPct, 100*lambda/mu, 2)
	about(t, "slowdown", got.MeanSlowdown, 1, 1e-3)
	// The time in the system is exponential as well: its median is ln 2 of its mean.
	about(t, "median", got.MedianJCT, math.Ln2*60/(mu-lambda), 60/(mu-lambda)*0.06)
	// And what stays above the 99th percentile is a hundredth of it.
	about(t, "99th percentile", got.P99JCT, math.Log(100)*60/(mu-lambda), math.Log(100)*60/(mu-lambda)*0.12)
}
