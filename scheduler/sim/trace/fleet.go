package trace

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// load is the target load of an invented fleet.
const load = 0.8

// FleetFor returns the cluster on which to replay a trace, and how it was chosen:
// the nodes that the trace describes, those of the evaluation that it comes from,
// or enough nodes of eight GPUs that the jobs ask for 80 % of them on average.
func FleetFor(w *workload.Workload) (workload.Fleet, string) {
	if len(w.Nodes) > 0 {
		f := workload.Fleet{Name: "of the trace", Nodes: w.Nodes}
		if w.Form == "openb" {
			f.MaxShares = 1000
		}
		return f, fmt.Sprintf("%d GPUs, the nodes that the trace describes", f.GPUs())
	}
	switch {
	case w.Form == "muri":
		return workload.Homogeneous(8, 8, "V100", 0), "64 GPUs in nodes of 8, as in the evaluation of Muri"
	case w.Form == "sia":
		return workload.Fleet{Name: "sia", Nodes: []workload.NodeSpec{
			{Count: 6, GPUs: 4, GPUType: "T4"}, {Count: 3, GPUs: 8, GPUType: "RTX 2080 Ti"}, {Count: 2, GPUs: 8, GPUType: "A100"},
		}}, "64 GPUs of three types, as in the evaluation of Sia"
	case w.Form == "schedtune":
		return SchedTuneFleet(), "5 GPUs in nodes of one, as in the evaluation of SchedTune"
	}
	n := int(math.Ceil(Demand(w) / load / 8))
	for i := range w.Jobs {
		n = max(n, (w.Jobs[i].GPUs+7)/8)
	}
	n = max(n, 1)
	mem := cardFor(w)
	return workload.Homogeneous(n, 8, "gpu", mem), fmt.Sprintf("%d GPUs of %d GiB in nodes of 8: the mean demand is %.0f %% of that or less", 8*n, mem>>10, 100*load)
}

// cardFor returns the memory of the smallest usual GPU that holds every job.
func cardFor(w *workload.Workload) int64 {
	most := int64(0)
	for i := range w.Jobs {
		most = max(most, w.Jobs[i].MemMiB)
	}
	for _, gib := range []int64{16, 24, 32, 48, 80, 141} {
		if most <= gib<<10 {
			return gib << 10
		}
	}
	return most
}

// Demand returns the mean number of requested GPUs over the time in which jobs
// arrive, if each started at once.
func Demand(w *workload.Workload) float64 {
	if len(w.Jobs) == 0 {
		return 0
	}
	work, last := 0.0, w.Jobs[0].Submit
	for i := range w.Jobs {
		j := &w.Jobs[i]
		work += j.Duration.Seconds() * float64(j.GPUs)
		last = max(last, j.Submit)
	}
	span := (last - w.Jobs[0].Submit).Seconds()
	if span < 3600 { // all at once: as if they came within a day
		span = 24 * 3600
	}
	return work / span
}

// SchedTuneFleet returns the cluster of SchedTune's evaluation: 56,178 MiB on five
// GPUs of three types, one per node.
func SchedTuneFleet() workload.Fleet {
	return workload.Fleet{Name: "schedtune", Nodes: []workload.NodeSpec{
		{Count: 2, GPUs: 1, GPUType: "RTX 2070 SUPER", MemMiB: 7982, IdleW: 15, MaxW: 215, MaxShares: 2},
		{Count: 2, GPUs: 1, GPUType: "RTX 3070", MemMiB: 7982, IdleW: 15, MaxW: 220, MaxShares: 2},
		{Count: 1, GPUs: 1, GPUType: "RTX 3090", MemMiB: 24250, IdleW: 20, MaxW: 350, MaxShares: 4},
	}}
}

// Squeeze scales the times between arrivals, so that the mean demand becomes so
// many times the GPUs of a fleet.
func Squeeze(w *workload.Workload, cards int, demand float64) {
	have := Demand(w) / float64(max(1, cards))
	if have <= 0 || demand <= 0 {
		return
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		slack := j.Deadline - j.Submit
		j.Submit = time.Duration(float64(j.Submit) * have / demand).Round(time.Microsecond)
		if j.Deadline > 0 {
			j.Deadline = j.Submit + slack
		}
	}
}

// ParseFleet reads a cluster written as NODESxGPUS or NODESxGPUS:TYPE, such as
// "8x8:V100"; false if s is not of that form.
func ParseFleet(s string) (workload.Fleet, bool) {
	size, gpuType, _ := strings.Cut(s, ":")
	a, b, ok := strings.Cut(size, "x")
	nodes, err := strconv.Atoi(a)
	gpus, err2 := strconv.Atoi(b)
	if !ok || err != nil || err2 != nil {
		return workload.Fleet{}, false
	}
	f := workload.Homogeneous(nodes, gpus, gpuType, 0)
	f.Name = s
	return f, true
}

// What a GPU draws if neither the cluster nor the table of types says it: idle and
// busy, in watts.
const (
	assumedIdleW = 40
	assumedMaxW  = 250
)

// Complete fills in memory and power of GPUs if the cluster does not say them: by
// the table of published types, and 40 to 250 W for others. It returns what it
// assumed, sorted; it does not modify the fleet's own list.
func Complete(f *workload.Fleet) []string {
	var notes []string
	f.Nodes = slices.Clone(f.Nodes)
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if n.GPUs == 0 {
			continue
		}
		spec, known := gpuspec.Lookup(n.GPUType)
		if known && n.MemMiB == 0 {
			n.MemMiB = spec.MemMiB
		}
		if n.MaxW > 0 {
			continue
		}
		n.IdleW, n.MaxW = assumedIdleW, assumedMaxW
		if known && spec.TDPWatt > 0 {
			n.IdleW, n.MaxW = spec.TDPWatt/10, spec.TDPWatt
			continue
		}
		note := fmt.Sprintf("energy: a card of type %q is assumed to draw %d W idle and %d W busy", n.GPUType, n.IdleW, n.MaxW)
		if !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	slices.Sort(notes)
	return notes
}
