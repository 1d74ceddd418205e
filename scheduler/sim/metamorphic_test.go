package sim_test

import (
	"fmt"
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

// anyPlanner draws the scheduler's own passes or a policy.
func anyPlanner(t *rapid.T) sim.Planner {
	name := rapid.SampledFrom([]string{"ffd", "slot", "firstfit+fifo", "bestfit+sjf", "fgd", "consolidate", "lucid+qssf", "slot+sjf"}).Draw(t, "policy")
	if name == "ffd" || name == "slot" {
		return sim.NewBerth(scheduler.Mode(name), 0)
	}
	return policy(t, name, policies.Options{})
}

// TestNoCardIsFullerThanFull: whatever the policy, of jobs that are predicted exactly
// no card holds at any time more memory or compute than it has, nor more jobs than
// may share it; nobody runs before it came; what happens is told in order of time; and
// each job that ended had its cards for as long as it runs alone, at least.
func TestNoCardIsFullerThanFull(t *testing.T) {
	t.Parallel()
	shared := 0
	rapid.Check(t, func(t *rapid.T) {
		w := genWorkload(t)
		jobs := map[string]*workload.Job{}
		for i := range w.Jobs {
			jobs[w.Jobs[i].ID] = &w.Jobs[i]
		}
		f := workload.Homogeneous(2, 4, "T4", 16000)
		d := &diary{}
		r := simulate(t, w, f, sim.Options{Planner: anyPlanner(t), Observe: d})
		on := map[int][]written{}
		had, last := map[string]time.Duration{}, time.Duration(0)
		for _, a := range d.attempts {
			if a.to < a.from || a.from < jobs[a.job].Submit || a.to < last {
				t.Fatalf("job %s, here since %s, ran from %s to %s; told after %s", a.job, jobs[a.job].Submit, a.from, a.to, last)
			}
			last = a.to
			if a.how == cluster.JobCompleted {
				had[a.job] += a.to - a.from
			}
			cards := slices.Sorted(slices.Values(a.cards))
			if len(slices.Compact(cards)) != jobs[a.job].GPUs {
				t.Fatalf("job %s for %d cards had %v", a.job, jobs[a.job].GPUs, a.cards)
			}
			for _, c := range a.cards {
				if c/4 != a.cards[0]/4 {
					t.Fatalf("job %s lies on two nodes: %v", a.job, a.cards)
				}
				on[c] = append(on[c], a)
			}
		}
		for c, as := range on {
			for _, at := range as { // the fullest moments are those when somebody starts
				mem, milli, n := int64(0), int64(0), 0
				for _, a := range as {
					if a.from <= at.from && at.from < a.to {
						mem, milli, n = mem+jobs[a.job].MemMiB, milli+jobs[a.job].UsedMilli, n+1
					}
				}
				if mem > 16000 || milli > 1000 || n > 3 {
					t.Fatalf("card %d at %s: %d jobs with %d MiB and %d thousandths", c, at.from, n, mem, milli)
				}
				if n > 1 {
					shared++
				}
			}
		}
		for i := 1; i < len(d.levels); i++ {
			if d.levels[i].at < d.levels[i-1].at {
				t.Fatalf("levels of %s after those of %s", d.levels[i].at, d.levels[i-1].at)
			}
		}
		if len(had) != r.Completed || r.Failed > 0 || r.OOMs > 0 {
			t.Fatalf("%d of %d jobs ended, the result says %d; %d failed, %d out of memory", len(had), len(jobs), r.Completed, r.Failed, r.OOMs)
		}
		for id, took := range had {
			if took < jobs[id].Duration-time.Millisecond {
				t.Fatalf("job %s took %s, alone it takes %s", id, took, jobs[id].Duration)
			}
		}
	})
	if shared == 0 {
		t.Error("no card was ever shared")
	}
}

// TestWhatPlaysNoPart: a run on another day, with other names in the same order, and
// beside nodes that no job may use, ends every job at the same time.
func TestWhatPlaysNoPart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := genWorkload(t)
		for i := range w.Jobs {
			w.Jobs[i].ID = fmt.Sprintf("j%03d", i)
			w.Jobs[i].Types = []string{"T4"}
			w.Jobs[i].GPUs = max(1, w.Jobs[i].GPUs)
			w.Jobs[i].MemMiB, w.Jobs[i].UsedMilli = max(100, w.Jobs[i].MemMiB), max(50, w.Jobs[i].UsedMilli)
		}
		p := anyPlanner(t)
		ends := func(w *workload.Workload, f workload.Fleet) (out []float64) {
			return simulate(t, w, f, sim.Options{Planner: p}).Completions
		}
		f := workload.Homogeneous(2, 4, "T4", 16000)
		want := ends(w, f)
		same := func(what string, got []float64) {
			t.Helper()
			if !slices.EqualFunc(got, want, func(a, b float64) bool { return a-b < 1e-4 && b-a < 1e-4 }) {
				t.Fatalf("%s, %s: completion times\n%v, want\n%v", p.Name(), what, got, want)
			}
		}
		named := &workload.Workload{Name: w.Name, Jobs: slices.Clone(w.Jobs)}
		later := &workload.Workload{Name: w.Name, Jobs: slices.Clone(w.Jobs)}
		for i := range named.Jobs {
			named.Jobs[i].ID = "x" + named.Jobs[i].ID
			later.Jobs[i].Submit += 1000 * time.Hour
		}
		same("other names", ends(named, f))
		same("six weeks later", ends(later, f))
		wider := f
		wider.Nodes = append(slices.Clone(f.Nodes), workload.Homogeneous(3, 8, "V100", 32000).Nodes...)
		same("beside nodes of another type", ends(w, wider))
	})
}
