package trace

import (
	"fmt"

	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// AssignGavel gives each job without memory figures one of the programs of Gavel's
// table for V100, all equally likely, whose neighbours' effects are in its table of
// pairs. The table holds neither memory nor utilization: memory is a peak that
// SchedTune measured, up to a GPU of so many MiB, utilization is uniform in the 20
// to 82 % of Yeung et al. (HotCloud 2020).
func AssignGavel(w *workload.Workload, colocation, schedtune string, cardMiB int64, seed uint64) (*workload.Workload, error) {
	path, err := find(colocation, "gavel", "gavel_isolated")
	if err != nil {
		return nil, err
	}
	var programs []string
	err = eachStep(path, func(k StepKey, v float64) {
		if k.GPUType == "v100" && k.GPUs == 1 && v > 0 {
			programs = append(programs, k.JobType)
		}
	})
	if err != nil {
		return nil, err
	}
	if len(programs) == 0 {
		return nil, fmt.Errorf("%s: holds no program on V100", path)
	}
	peaks, err := Peaks(schedtune, "RTX 3090", cardMiB)
	if err != nil {
		return nil, err
	}
	return assign(w, "programs are those of Gavel's table, memory is a peak of SchedTune's, utilization uniform in 20 to 82 %, drawn for each job", func(j *workload.Job) {
		r := dice(seed, j.ID)
		j.Model, j.MemMiB, j.UsedMilli = programs[r.IntN(len(programs))], peaks[r.IntN(len(peaks))], 200+r.Int64N(621)
	}), nil
}

// GavelPairs returns Gavel's table of pairs without those that could not share its
// GPUs: where both have room by their own account the default curve applies.
func GavelPairs(dir string) (*slowdown.Pairs, error) {
	return gavelPairs(dir, "gavel", "gavel_pairs", func(a, b float64) bool { return a > 0 && b > 0 })
}
