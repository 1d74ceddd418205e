package trace

import (
	"errors"
	"fmt"
	"strings"

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
	err = each(path, []string{"gpu_type", "job", "scale_factor", "tput_alone"}, func(t *table) error {
		n, err := t.between(1, 1<<16, "scale_factor")
		v, err2 := t.between(0, 1e12, "tput_alone")
		if strings.EqualFold(t.text("gpu_type"), "v100") && n == 1 && v > 0 {
			programs = append(programs, t.text("job"))
		}
		return errors.Join(err, err2)
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
	path, err := find(dir, "gavel", "gavel_pairs")
	if err != nil {
		return nil, err
	}
	p := slowdown.NewPairs("gavel", slowdown.DefaultCurve())
	return p, each(path, []string{"gpu_type", "job1", "job2", "norm1", "norm2"}, func(t *table) error {
		a, err := t.between(0, 1e3, "norm1")
		b, err2 := t.between(0, 1e3, "norm2")
		if a > 0 && b > 0 {
			p.Set(t.text("gpu_type"), t.text("job1"), t.text("job2"), a)
			p.Set(t.text("gpu_type"), t.text("job2"), t.text("job1"), b)
		}
		return errors.Join(err, err2)
	})
}
