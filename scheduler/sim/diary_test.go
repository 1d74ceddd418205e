package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// diary is an Observer that keeps everything.
type diary struct {
	attempts []written
	levels   []level
}

type written struct {
	job      string
	cards    []int
	from, to time.Duration
	how      cluster.JobState
}

type level struct {
	at                      time.Duration
	allocated, used, memMiB int64
	waiting                 int
}

func (d *diary) Attempt(job string, cards []int, from, to time.Duration, how cluster.JobState) {
	d.attempts = append(d.attempts, written{job, slices.Clone(cards), from, to, how})
}

func (d *diary) Level(at time.Duration, allocated, used, memMiB int64, waiting int) {
	d.levels = append(d.levels, level{at, allocated, used, memMiB, waiting})
}

// TestGPUTimeIsConserved: what the fleet gave away is what attempts had, card by
// card and second by second; all figures of a result follow from the diary of its
// attempts, and no card has two of those who want one alone.
func TestGPUTimeIsConserved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, opt := genWorkload(t), genOptions(t)
		opt.Planner, opt.CapMemory, opt.Errors = sim.NewBerth(scheduler.ModeSlot, 0), false, sim.Errors{}
		d := &diary{}
		opt.Observe = d
		r := simulate(t, w, workload.Homogeneous(2, 4, "T4", 16000), opt)
		first, last := time.Duration(math.MaxInt64), time.Duration(0)
		jobs := map[string]*workload.Job{}
		for i := range w.Jobs {
			jobs[w.Jobs[i].ID] = &w.Jobs[i]
			first = min(first, w.Jobs[i].Submit)
		}
		taken, ended := 0.0, map[string]time.Duration{}
		had := map[string]float64{}
		for i, a := range d.attempts {
			taken += a.to.Seconds() * float64(len(a.cards))
			taken -= a.from.Seconds() * float64(len(a.cards))
			had[a.job] += (a.to - a.from).Seconds()
			if len(a.cards) != jobs[a.job].GPUs {
				t.Fatalf("job %s had %d cards, it asks for %d", a.job, len(a.cards), jobs[a.job].GPUs)
			}
			if a.from < jobs[a.job].Submit {
				t.Fatalf("job %s began before it came", a.job)
			}
			for _, b := range d.attempts[:i] {
				if a.from < b.to && b.from < a.to && slices.ContainsFunc(a.cards, func(c int) bool { return slices.Contains(b.cards, c) }) {
					t.Fatalf("jobs %s and %s had one card at once", a.job, b.job)
				}
			}
			if a.how == cluster.JobCompleted {
				ended[a.job] = a.to
				last = max(last, a.to)
				if had[a.job] < jobs[a.job].Duration.Seconds()-1e-6 {
					t.Fatalf("job %s ended after %g s, it takes %s", a.job, had[a.job], jobs[a.job].Duration)
				}
			}
		}
		if len(ended) != len(w.Jobs) || r.Completed != len(w.Jobs) {
			t.Fatalf("%d of %d jobs ended, the result says %d", len(ended), len(w.Jobs), r.Completed)
		}
		sum, waited, bounded := 0.0, 0.0, 0.0
		for id, at := range ended {
			j := jobs[id]
			sum += (at - j.Submit).Seconds()
			waited += (at - j.Submit).Seconds() - had[id]
			bounded += max(1, (at-j.Submit).Seconds()/max(10, j.Duration.Seconds()))
		}
		n := float64(len(ended))
		about(t, "makespan", r.Makespan, (last - first).Seconds(), 1e-4)
		about(t, "mean completion", r.MeanJCT, sum/n, 1e-4)
		about(t, "mean wait", r.MeanWait, waited/n, 1e-4)
		about(t, "bounded slowdown", r.BoundedSlowdown, bounded/n, 1e-6)
		if last > first {
			about(t, "allocation", r.AllocationPct, 100*taken/(8*(last-first).Seconds()), 1e-4)
			about(t, "fragments where nobody shares", r.FragmentationPct, 0, 1e-9)
		}
	})
}

// TestLevelsAddUp: whoever shares, what is allocated at any time is the sum of what
// lies there, no card does more than one card's work, and the mean over time is the
// result's figure.
func TestLevelsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, opt := genWorkload(t), genOptions(t)
		opt.MTBF, opt.Repair = 0, 0
		d := &diary{}
		opt.Observe = d
		r := simulate(t, w, workload.Homogeneous(2, 4, "T4", 16000), opt)
		area, used, from := 0.0, 0.0, d.levels[0].at
		until := time.Duration(0)
		for _, a := range d.attempts {
			until = max(until, a.to)
		}
		for i, l := range d.levels {
			if l.allocated < 0 || l.allocated > 8000 || l.used < 0 || l.used > 8000 || l.memMiB < 0 || l.memMiB > 8*16000 || l.waiting < 0 {
				t.Fatalf("at %s: %+v of eight cards", l.at, l)
			}
			if i+1 < len(d.levels) && d.levels[i+1].at <= until {
				dt := (d.levels[i+1].at - l.at).Seconds()
				area, used = area+dt*float64(l.allocated), used+dt*float64(l.used)
			}
		}
		span := (until - from).Seconds()
		if span <= 0 || r.Completed == 0 {
			return
		}
		about(t, "allocation", r.AllocationPct, 100*area/(8000*span), 1e-3)
		if r.GPUUtilPct != nil {
			about(t, "utilization", r.GPUUtilPct, 100*used/(8000*span), 1e-3)
		}
	})
}

// TestMoreCardsNeverHurtFIFO: of jobs for one card each, first come first served,
// nobody ends later for a card more (jobs that want one resource have none of
// Graham's anomalies).
func TestMoreCardsNeverHurtFIFO(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs, cards := drawSeconds(t, 20), rapid.IntRange(1, 4).Draw(t, "cards")
		ends := func(cards int) map[string]time.Duration {
			d := &diary{}
			simulate(t, workloadOf(jobs), workload.Homogeneous(1, cards, "T4", 16000), sim.Options{Planner: policy(t, "slot+fifo", policies.Options{}), Observe: d})
			out := map[string]time.Duration{}
			for _, a := range d.attempts {
				out[a.job] = a.to
			}
			return out
		}
		few, more := ends(cards), ends(cards+1)
		for id, at := range few {
			if more[id] > at {
				t.Fatalf("job %s ends after %s on %d cards, after %s on %d", id, at, cards, more[id], cards+1)
			}
		}
	})
}

// TestScalingTime: a workload that is twice as slow in all takes twice as long in
// all: nothing in a run knows how long a second is.
func TestScalingTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := genWorkload(t)
		slow := &workload.Workload{Name: w.Name, Jobs: slices.Clone(w.Jobs)}
		for i := range slow.Jobs {
			slow.Jobs[i].Submit *= 2
			slow.Jobs[i].Duration *= 2
		}
		f := workload.Homogeneous(2, 4, "T4", 16000)
		name := rapid.SampledFrom([]string{"firstfit+fifo", "slot+sjf", "bestfit+fifo", "horus+sjf"}).Draw(t, "policy")
		if name == "horus+sjf" { // whose patience is five minutes
			name = "lucid+qssf"
		}
		a := simulate(t, w, f, sim.Options{Planner: policy(t, name, policies.Options{})})
		b := simulate(t, slow, f, sim.Options{Planner: policy(t, name, policies.Options{})})
		about(t, "makespan", b.Makespan, 2**a.Makespan, 1e-3)
		about(t, "mean completion", b.MeanJCT, 2**a.MeanJCT, 1e-3)
		if a.MeanSlowdown != nil {
			about(t, "slowdown", b.MeanSlowdown, *a.MeanSlowdown, 1e-6)
		}
	})
}

// TestPassEvery: between two full passes nothing but what came and what ended is
// planned: a policy without a fast path starts at whole minutes only.
func TestPassEvery(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := &diary{}
		jobs := drawSeconds(t, 12)
		simulate(t, workloadOf(jobs), workload.Homogeneous(1, 2, "T4", 16000), sim.Options{Planner: policy(t, "slot+fifo", policies.Options{}), PassEvery: time.Minute, Observe: d, NoZoom: true})
		var begun []time.Duration
		for _, a := range d.attempts {
			if !slices.Contains(begun, a.from) {
				begun = append(begun, a.from)
			}
		}
		slices.Sort(begun)
		for i := 1; i < len(begun); i++ {
			if gap := begun[i] - begun[i-1]; gap < time.Minute {
				t.Fatalf("starts %s after each other", gap)
			}
		}
	})
}
