package sim_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// shortestMakespan is the optimum for jobs that are all there, one to a card,
// by branch and bound: each job in turn to each card, cards with equal loads
// tried once, and nothing that is no better than the best so far.
func shortestMakespan(ds []int, cards int) int {
	ds = slices.Clone(ds)
	slices.Sort(ds)
	slices.Reverse(ds)
	best, loads := 0, make([]int, cards)
	for _, d := range ds {
		best += d
	}
	var place func(i, longest int)
	place = func(i, longest int) {
		if longest >= best {
			return
		}
		if i == len(ds) {
			best = longest
			return
		}
		for c := range loads {
			if slices.Contains(loads[:c], loads[c]) {
				continue
			}
			loads[c] += ds[i]
			place(i+1, max(longest, loads[c]))
			loads[c] -= ds[i]
		}
	}
	place(0, 0)
	return best
}

func TestShortestMakespan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ds          []int
		cards, want int
	}{{[]int{5}, 3, 5}, {[]int{3, 3, 2, 2, 2}, 2, 6}, {[]int{7, 5, 4, 4}, 2, 11}, {[]int{1, 1, 1}, 1, 3}} {
		if got := shortestMakespan(c.ds, c.cards); got != c.want {
			t.Errorf("%v on %d cards: got %d, want %d", c.ds, c.cards, got, c.want)
		}
	}
}

// TestOracle holds bounds and schedules against the optimum: no bound is above
// it, no schedule below, list scheduling within twice of it, and the longest
// first within four thirds (Graham 1969).
func TestOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cards := rapid.IntRange(1, 3).Draw(t, "cards")
		ds := rapid.SliceOfN(rapid.IntRange(1, 50), 1, 7).Draw(t, "durations")
		w := &workload.Workload{Name: "small"}
		for i, d := range ds {
			w.Jobs = append(w.Jobs, workload.Job{ID: fmt.Sprintf("j%d", i), Duration: time.Duration(d) * time.Minute, GPUs: 1})
		}
		best := 60 * float64(shortestMakespan(ds, cards))
		f := workload.Homogeneous(1, cards, "T4", 16000)
		slot := sim.NewBerth(scheduler.ModeSlot, 0)
		longest := slot
		longest.Policy.ShortPart, longest.Policy.LongPart = 0, 1<<40 // every job is long
		for _, p := range []struct {
			planner sim.Planner
			within  float64
		}{{slot, 2 - 1/float64(cards)}, {longest, 4.0/3 - 1/(3*float64(cards))}} {
			r, err := sim.Run(context.Background(), w, &f, sim.Options{Planner: p.planner})
			if err != nil {
				t.Fatal(err)
			}
			got, bound := *r.Makespan, *r.LowerBoundAlone
			if bound > best+1e-6 {
				t.Fatalf("the bound of %g s is above the optimum of %g s", bound, best)
			}
			if got < best-1e-6 || got > p.within*best+1e-6 {
				t.Fatalf("%s took %g s; the optimum is %g s, and %.2f times that is promised", r.Policy, got, best, p.within)
			}
			if *r.MeanJCT < *r.LowerBoundJCT-1e-6 {
				t.Fatalf("mean completion after %g s beats the bound of %g s", *r.MeanJCT, *r.LowerBoundJCT)
			}
		}
	})
}
