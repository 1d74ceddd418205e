package trace

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// format is a form of job list, identified by its required columns.
type format struct {
	name string
	must []string
	read func(*table, *Options) (workload.Job, error)
}

// formats returns the forms in the order in which they are tried: those that need
// more come first.
func formats() []format {
	return []format{
		{"sacct", []string{"jobid", "submit", "start", "end"}, readSacct},
		{"sacct", []string{"jobid", "submit", "elapsed"}, readSacct},
		{"sacct", []string{"jobid", "submit", "elapsedraw"}, readSacct},
		{"openb", []string{"name", "num_gpu", "gpu_milli", "cpu_milli"}, readOpenb},
		{"dlrm", []string{"instance_sn", "gpu_request", "creation_time"}, readInstance},
		{"schedtune", []string{"arrival_s", "job", "kind", "model", "batch_size"}, readSchedTune},
		{"muri", []string{"submit_time", "duration", "num_gpu", "resource_time_0"}, readMuri},
		{"elasticflow", []string{"submission_time", "duration", "num_gpu", "deadline"}, readElasticFlow},
		{"sia", []string{"time", "application", "num_replicas"}, readSia},
		{"gavel", []string{"job_type", "total_steps", "scale_factor"}, readGavel},
		{"gpu jobs", []string{}, readPlain},
	}
}

// errSkip marks a valid row that is no job of the replay.
var errSkip = errors.New("not a job that ran")

// oneOf requires one of several names for the same thing.
func oneOf(t *table, names ...string) error {
	if _, _, ok := t.first(names...); !ok {
		return fmt.Errorf("%s: has no column %s; its columns say of no known form of trace", t.file, names[0])
	}
	return nil
}

var (
	arrivalNames  = []string{"arrival_s", "submit_s", "submit_time_s", "arrival_time", "submission_time", "time"}
	durationNames = []string{"duration_s_clamped", "duration_s", "duration", "run_time_s", "runtime_s", "runtime"}
	gpuNames      = []string{"gpu_num", "num_gpu", "gpus", "num_gpus", "gpu_count", "scale_factor", "num_replicas"}
	idNames       = []string{"job_id", "jobid", "id", "name", "job_name", "job", "task_id"}
)

// known reports whether the plain form can be read from a head.
func known(t *table) error {
	return errors.Join(oneOf(t, arrivalNames...), oneOf(t, durationNames...), oneOf(t, gpuNames...))
}

// lacks says which columns a head would need to be a list of jobs: those of the
// nearest form.
func lacks(t *table) string {
	var missing []string
	for _, names := range [][]string{arrivalNames, durationNames, gpuNames} {
		if _, _, ok := t.first(names...); !ok {
			missing = append(missing, names[0])
		}
	}
	near := "gpu jobs"
	for _, f := range formats() {
		var m []string
		for _, c := range f.must {
			if !t.has(c) {
				m = append(m, c)
			}
		}
		if len(m) > 0 && len(m) < len(f.must) && len(m) < len(missing) {
			near, missing = f.name, m
		}
	}
	return fmt.Sprintf("row 1: lacks the columns %s of a list of %s", strings.Join(missing, ", "), near)
}

// readPlain reads what most traces have: an arrival, a duration and a number of
// GPUs. Philly, Helios, ITP and the windows of Lucid have this form.
func readPlain(t *table, o *Options) (workload.Job, error) {
	j := workload.Job{
		ID: t.text(idNames...), User: t.text("user", "user_id", "username"), Group: t.text("vc", "cluster", "queue", "partition", "group"),
		Model: t.text("model_name", "model", "job_type", "application"),
	}
	for _, names := range [][]string{arrivalNames, durationNames, gpuNames} {
		if err := t.filled(names...); err != nil {
			return j, err
		}
	}
	var err error
	if j.Submit, err = t.span(time.Second, arrivalNames...); err != nil {
		return j, err
	}
	if j.Duration, err = t.span(time.Second, durationNames...); err != nil {
		return j, err
	}
	if err := readGPUs(t, &j); err != nil {
		return j, err
	}
	mem, err := t.between(0, 1<<23, "gpu_mem_mib", "gpu_memory_mib", "gmem")
	if err != nil {
		return j, err
	}
	util, err := t.between(0, 1000, "gpu_util_pct", "gpu_util", "gpu_wrk_util")
	if err != nil {
		return j, err
	}
	j.MemMiB, j.UsedMilli, j.Image = int64(mem), min(1000, int64(util*10)), t.text("image")
	if j.Data, err = readData(t); err != nil {
		return j, err
	}
	return j, readSteps(t, &j, "steps")
}

// readData reads the data sets of a job, as imagenet+coco.
func readData(t *table) ([]string, error) {
	v := t.text("data")
	if v == "" {
		return nil, nil
	}
	names := strings.Split(v, "+")
	for _, name := range names {
		if err := cluster.CheckDataName(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// readGPUs reads a number of GPUs; a fraction of one is a share.
func readGPUs(t *table, j *workload.Job) error {
	n, err := t.between(0, 1<<16, gpuNames...)
	if err != nil {
		return err
	}
	if n > 0 && n < 1 {
		j.GPUs, j.Milli = 1, max(1, int64(n*1000))
		return nil
	}
	j.GPUs = int(n)
	if float64(j.GPUs) < n {
		j.GPUs++
	}
	return nil
}

// readMuri reads the lists of Muri (SIGCOMM 2022): times in milliseconds, and
// for each stage how long an iteration spends in it.
func readMuri(t *table, _ *Options) (workload.Job, error) {
	j := workload.Job{ID: t.text(idNames...), Model: t.text("model_name")}
	var err error
	if j.Submit, err = t.span(time.Millisecond, "submit_time"); err != nil {
		return j, err
	}
	if j.Duration, err = t.span(time.Millisecond, "duration"); err != nil {
		return j, err
	}
	if err = readGPUs(t, &j); err != nil {
		return j, err
	}
	if err = readSteps(t, &j, "iterations"); err != nil {
		return j, err
	}
	whole, err := t.between(0, 1e9, "iteration_time")
	if err != nil || whole == 0 {
		return j, err
	}
	j.Iteration = time.Duration(whole * float64(time.Millisecond))
	// The file's stages are load and prepare, compute, send: bert spends half a
	// millisecond in the first of them, and a2c, whose game runs on cores, all.
	for k, name := range []string{"resource_time_1", "resource_time_0", "resource_time_2"} {
		x, err := t.between(0, 1e9, name)
		if err != nil {
			return j, err
		}
		j.Stages[k] = min(10_000, int64(math.Round(x/whole*1000)))
	}
	j.UsedMilli = min(1000, max(1, j.Stages[0]))
	return j, nil
}

// readElasticFlow reads the testbed list of ElasticFlow (ASPLOS 2023).
func readElasticFlow(t *table, _ *Options) (workload.Job, error) {
	j := workload.Job{ID: t.text(idNames...), Model: t.text("model_name")}
	var err error
	if j.Submit, err = t.span(time.Second, "submission_time"); err != nil {
		return j, err
	}
	if j.Duration, err = t.span(time.Second, "duration"); err != nil {
		return j, err
	}
	if j.Deadline, err = t.span(time.Second, "deadline"); err != nil {
		return j, err
	}
	if err = readSteps(t, &j, "num_iteration"); err != nil {
		return j, err
	}
	return j, readGPUs(t, &j)
}

// readSteps reads the inputs of a predictor, if present.
func readSteps(t *table, j *workload.Job, steps string) error {
	n, err := t.between(0, 1e15, steps)
	if err != nil {
		return err
	}
	batch, err := t.between(0, 1<<20, "batch_size")
	j.Steps, j.Batch = int64(n), int64(batch)
	return err
}

// readSia reads the workloads of Pollux and Sia. They hold no durations; each
// application stands for a class of GPU time in the papers, and the geometric
// middle of its class is used.
func readSia(t *table, _ *Options) (workload.Job, error) {
	j := workload.Job{ID: t.text("workload") + "/" + t.text("name"), Group: t.text("workload"), Model: t.text("application")}
	var err error
	if j.Submit, err = t.span(time.Second, "time"); err != nil {
		return j, err
	}
	if err = readGPUs(t, &j); err != nil {
		return j, err
	}
	hours, ok := map[string]float64{
		"cifar10": 0.32, "ncf": 0.32, "bert": 3.2, "deepspeech2": 3.2, "yolov3": 32, "imagenet": 320,
	}[j.Model]
	if !ok {
		return j, fmt.Errorf("application: %q stands for no class of GPU time", j.Model)
	}
	j.Duration = time.Duration(hours / float64(max(1, j.GPUs)) * float64(time.Hour)).Round(time.Second)
	return j, nil
}

// readGavel reads the lists of Gavel (OSDI 2020) and Shockwave (NSDI 2023).
// Lists without durations need the table of speeds.
func readGavel(t *table, o *Options) (workload.Job, error) {
	j := workload.Job{Model: t.text("job_type")}
	steps, err := t.between(1, 1e12, "total_steps")
	if err != nil {
		return j, err
	}
	j.Steps = int64(steps)
	if j.Submit, err = t.span(time.Second, "arrival_s"); err != nil {
		return j, err
	}
	if err = readGPUs(t, &j); err != nil {
		return j, err
	}
	if t.has("duration_s") {
		j.Duration, err = t.span(time.Second, "duration_s")
		return j, err
	}
	per := o.StepsPerSecond[StepKey{"v100", j.Model, j.GPUs}]
	if per <= 0 {
		return j, fmt.Errorf("job_type: no speed of %q on %d GPUs is known; give the table of co-location speeds", j.Model, j.GPUs)
	}
	j.Duration = time.Duration(steps / per * float64(time.Second)).Round(time.Millisecond)
	for _, typ := range []string{"k80", "p100"} {
		if s := o.StepsPerSecond[StepKey{typ, j.Model, j.GPUs}]; s > 0 {
			j.On = append(j.On, workload.OnType{Type: typ, Duration: time.Duration(steps / s * float64(time.Second)).Round(time.Millisecond)})
		}
	}
	return j, nil
}
