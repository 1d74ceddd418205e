package simcmd

import (
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// actualView is what really happened to the ended jobs.
type actualView struct {
	Jobs       int     `json:"jobs"`
	MeanJCT    float64 `json:"mean_jct_s"`
	MedianJCT  float64 `json:"median_jct_s"`
	P99JCT     float64 `json:"p99_jct_s"`
	MeanWait   float64 `json:"mean_wait_s"`
	MedianWait float64 `json:"median_wait_s"`
	P90Wait    float64 `json:"p90_wait_s"`
	Makespan   float64 `json:"makespan_s"`
	// AllocationPct covers all GPUs, from the first arrival to the last end, as
	// in results; nil if the capture does not say what the jobs held.
	AllocationPct  *float64 `json:"allocation_pct"`
	GPUUtilPct     *float64 `json:"gpu_util_pct"`
	ReservedMemPct *float64 `json:"reserved_mem_pct"`
}

// viewActual sums up what happened on a fleet, nil if nothing ended.
func viewActual(all []trace.Actual, f *workload.Fleet) *actualView {
	if len(all) == 0 {
		return nil
	}
	v := &actualView{Jobs: len(all)}
	var jct, waits []float64
	var sum trace.Held
	known := true
	first, last := all[0].Submit, all[0].End
	for _, a := range all {
		jct, waits = append(jct, (a.End-a.Submit).Seconds()), append(waits, (a.Start-a.Submit).Seconds())
		v.MeanJCT += jct[len(jct)-1] / float64(len(all))
		v.MeanWait += waits[len(waits)-1] / float64(len(all))
		first, last = min(first, a.Submit), max(last, a.End)
		if known = known && a.Held != nil; known {
			sum.GPUSeconds, sum.BusySeconds, sum.MiBSeconds = sum.GPUSeconds+a.Held.GPUSeconds, sum.BusySeconds+a.Held.BusySeconds, sum.MiBSeconds+a.Held.MiBSeconds
		}
	}
	slices.Sort(jct)
	slices.Sort(waits)
	v.MedianJCT, v.P99JCT, v.Makespan = sim.Quantile(jct, 0.5), sim.Quantile(jct, 0.99), (last - first).Seconds()
	v.MedianWait, v.P90Wait = sim.Quantile(waits, 0.5), sim.Quantile(waits, 0.9)
	gpus, mem := float64(f.GPUs()), 0.0
	for i := range f.Nodes {
		mem += float64(f.Nodes[i].Count) * float64(f.Nodes[i].GPUs) * float64(f.Nodes[i].MemMiB)
	}
	part := func(held, of float64) *float64 {
		if p := 100 * held / (of * v.Makespan); known && of*v.Makespan > 0 {
			return &p
		}
		return nil
	}
	v.AllocationPct, v.GPUUtilPct, v.ReservedMemPct = part(sum.GPUSeconds, gpus), part(sum.BusySeconds, gpus), part(sum.MiBSeconds, mem)
	return v
}

// print prints what happened below what would have happened.
func (v *actualView) print(e *console.Env, results []*sim.Result) {
	if v == nil {
		return
	}
	show := func(s float64) string { return strconv.FormatFloat(s, 'f', 1, 64) + " s" }
	e.Printf("\nactual outcome: %d jobs, mean completion %s (p99 %s), mean wait %s, makespan %s\n", v.Jobs, show(v.MeanJCT), show(v.P99JCT), show(v.MeanWait), show(v.Makespan))
	for _, r := range results {
		if r.MeanJCT != nil && v.MeanJCT > 0 && r.Completed == v.Jobs {
			e.Printf("%s instead: mean completion %s (%+.1f %%), mean wait %s\n", r.Policy, show(*r.MeanJCT), 100*(*r.MeanJCT/v.MeanJCT-1), show(*r.MeanWait))
		}
	}
}
