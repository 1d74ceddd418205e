package optimum

import (
	"cmp"
	"math"
	"slices"

	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// CardsBound bounds from below how many GPUs hold all jobs of one GPU at once, each
// within the memory, the time and the sharing limit of its GPU: by counting and the
// bound L2 of Martello and Toth (1990) in each dimension, and by the linear program
// over patterns, rounded up; 0 if that is too large.
func CardsBound(w *workload.Workload, f *workload.Fleet) (l2, pattern int) {
	types := cardTypes(f, true, 0)
	if len(types) != 1 {
		return 0, 0
	}
	t := types[0]
	var mem, milli []int64
	for i := range w.Jobs {
		if j := &w.Jobs[i]; j.GPUs == 1 {
			o := j.Figures(t.name)
			mem, milli = append(mem, o.MemMiB), append(milli, cmp.Or(o.UsedMilli, 1000))
		}
	}
	l2 = max((len(mem)+t.shares-1)/t.shares, martelloToth(mem, t.memMiB), martelloToth(milli, 1000))
	return l2, patternCards(mem, milli, t)
}

// martelloToth returns L2: for every threshold k, items above size-k have their own
// bin, those above half one each, and the room that these leave for items of at
// least k is filled up.
func martelloToth(items []int64, size int64) int {
	best := 0
	thresholds := append(slices.Clone(items), 0)
	for _, k := range thresholds {
		if k > size/2 {
			continue
		}
		own, half, room, rest := 0, 0, int64(0), int64(0)
		for _, s := range items {
			switch {
			case s > size-k:
				own++
			case 2*s > size:
				half++
				room += size - s
			case s >= k:
				rest += s
			}
		}
		more := 0
		if rest > room {
			more = int((rest - room + size - 1) / size)
		}
		best = max(best, own+half+more)
	}
	return best
}

// patternCards is the program over patterns: each job is one second of work,
// and a pattern that holds it does that second.
func patternCards(mem, milli []int64, t cardType) int {
	if len(mem) == 0 || len(mem) > classLimit(t.shares) {
		return 0
	}
	lp := program{types: []cardType{{name: t.name, cards: 1, memMiB: t.memMiB, shares: t.shares}}, world: slowdown.Free{}}
	for i := range mem {
		lp.classes = append(lp.classes, class{load: []slowdown.Load{{MemMiB: mem[i]}}, speed: []float64{1}, milli: milli[i], work: 1, count: 1})
	}
	sum := 0.0
	for _, p := range lp.solve() {
		sum += p
	}
	return int(math.Ceil(sum - 1e-6))
}
