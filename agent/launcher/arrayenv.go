package launcher

import (
	"strconv"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// arrayEnv tells a task of an array its index, in Slurm's variables and ours.
func arrayEnv(as *nodev1.Assignment) []string {
	a := as.GetArray()
	if a == nil {
		return nil
	}
	var env []string
	for _, v := range []struct {
		name  string
		value uint64
	}{
		{"JOB_ID", a.Job}, {"TASK_ID", uint64(a.Task)}, {"TASK_COUNT", uint64(a.Count)},
		{"TASK_MIN", uint64(a.Min)}, {"TASK_MAX", uint64(a.Max)}, {"TASK_STEP", uint64(a.Step)},
	} {
		n := strconv.FormatUint(v.value, 10)
		env = append(env, "SLURM_ARRAY_"+v.name+"="+n, "BERTH_ARRAY_"+v.name+"="+n)
	}
	return env
}
