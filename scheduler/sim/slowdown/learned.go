package slowdown

import (
	"math"
	"slices"

	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// mostBend keeps slowdowns expressed by an offset below 39 times.
const mostBend = 1.9

// Learned returns what a learner would know that had measured every pair of
// programs of w once, on every type of GPU: exact for two per GPU, and sums of
// slowdowns for more. It is for planners in Options.Know. A job without a model has
// no signature and is unknown.
func Learned(w *workload.Workload, f *workload.Fleet, world Interference) *dispatch.Interference {
	out := &dispatch.Interference{Jobs: map[string]dispatch.Temper{}, MaxBend: mostBend}
	of := map[string]*workload.Job{}
	var names []string
	for i := range w.Jobs {
		if j := &w.Jobs[i]; j.Model != "" && of[j.Signature()] == nil {
			of[j.Signature()] = j
			names = append(names, j.Signature())
		}
	}
	slices.Sort(names)
	for i, name := range names {
		out.Jobs[name] = dispatch.Temper{Self: uint64(i + 1)}
	}
	for _, t := range f.Types() {
		s := dispatch.Sharing{GPUType: t, Histories: map[[2]uint64]float64{}}
		for i, a := range names {
			for k, b := range names {
				s.Histories[[2]uint64{uint64(i + 1), uint64(k + 1)}] = offsetOf(speedBeside(world, t, of[a], of[b]))
			}
		}
		out.Cards = append(out.Cards, s)
	}
	return out
}

func speedBeside(world Interference, gpuType string, a, b *workload.Job) float64 {
	out := []float64{1, 1}
	world.Speeds(gpuType, []Load{LoadOf(a, gpuType), LoadOf(b, gpuType)}, out)
	return out[0]
}

// offsetOf returns the offset whose bend is the slowdown, see
// dispatch.Interference.
func offsetOf(speed float64) float64 {
	slow := 1 / max(speed, 1e-3)
	return math.Min(mostBend, 2*(slow-1)/(slow+1))
}
