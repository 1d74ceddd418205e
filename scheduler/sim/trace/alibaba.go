package trace

import (
	"cmp"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// readOpenb reads the pods of FGD's trace (ATC 2023). A pod without times, as in
// the resampled lists, has none here either and is useful only for filling a
// cluster.
func readOpenb(t *table, _ *Options) (workload.Job, error) {
	j := workload.Job{ID: t.text("name"), Group: t.text("qos")}
	milli, err := t.between(0, 1000, "gpu_milli")
	if err != nil {
		return j, err
	}
	cpu, err := t.between(0, 1<<32, "cpu_milli")
	if err != nil {
		return j, err
	}
	mem, err := t.between(0, 1<<40, "memory_mib")
	if err != nil {
		return j, err
	}
	if err := readGPUs(t, &j); err != nil {
		return j, err
	}
	j.CPUMilli, j.HostMemMiB = int64(cpu), int64(mem)
	if j.GPUs > 0 {
		j.Milli = int64(milli)
	}
	if spec := t.text("gpu_spec"); spec != "" {
		j.Types = strings.Split(spec, "|")
	}
	created, err := t.span(time.Second, "creation_time")
	if err != nil {
		return j, err
	}
	from, err := t.span(time.Second, "scheduled_time", "creation_time")
	if err != nil {
		return j, err
	}
	to, err := t.span(time.Second, "deletion_time")
	if err != nil {
		return j, err
	}
	from = cmp.Or(from, created)
	j.Submit, j.Duration = created, max(time.Second, to-from)
	return j, nil
}

// traceEnd is the end of the trace of serving instances, 31 days: instances not
// deleted in it run until then.
const traceEnd = 31 * 24 * time.Hour

// readInstance reads the serving instances of the trace of 2025.
func readInstance(t *table, _ *Options) (workload.Job, error) {
	j := workload.Job{ID: t.text("instance_sn"), Group: t.text("role"), Model: t.text("app_name")}
	gpus, err := t.between(0, 64, "gpu_request")
	if err != nil {
		return j, err
	}
	cpu, err := t.between(0, 1<<20, "cpu_request")
	if err != nil {
		return j, err
	}
	mem, err := t.between(0, 1<<20, "memory_request")
	if err != nil {
		return j, err
	}
	from, err := t.span(time.Second, "creation_time")
	if err != nil {
		return j, err
	}
	to, err := t.span(time.Second, "deletion_time")
	if err != nil {
		return j, err
	}
	to = cmp.Or(to, max(traceEnd, from+time.Second))
	j.GPUs, j.CPUMilli, j.HostMemMiB = int(gpus), int64(cpu*1000), int64(mem*1024)
	j.Submit, j.Duration = from, to-from
	return j, nil
}

// series adds up the samples of serving pods: each pod becomes a job as long
// as its series, with its mean utilization and its largest memory.
type series struct {
	pods  map[string]*pod
	order []string
}

type pod struct {
	from, to  time.Duration
	util      float64
	memory    int64
	withUtils int
}

const maxPods = 1_000_000

func isSeries(t *table) bool { return t.has("pod", "t_s", "gpu_util_pct", "gpu_mem_mib") }

func (s *series) add(t *table) error {
	name := t.text("pod")
	at, err := t.span(time.Second, "t_s")
	if err != nil {
		return err
	}
	util, err := t.between(0, 100, "gpu_util_pct")
	if err != nil {
		return err
	}
	mem, err := t.between(0, 1<<23, "gpu_mem_mib")
	if err != nil {
		return err
	}
	p := s.pods[name]
	if p == nil {
		if len(s.pods) >= maxPods {
			return errSkip
		}
		p = &pod{from: at, to: at}
		s.pods[name] = p
		s.order = append(s.order, name)
	}
	p.from, p.to, p.memory = min(p.from, at), max(p.to, at), max(p.memory, int64(mem))
	if v, _, _ := t.first("gpu_util_pct"); v != "" {
		p.util += util
		p.withUtils++
	}
	return nil
}

func (s *series) jobs() []workload.Job {
	var out []workload.Job
	for _, name := range s.order {
		p := s.pods[name]
		out = append(out, workload.Job{
			ID: "pod-" + name, GPUs: 1, Submit: p.from, Duration: max(time.Second, p.to-p.from), MemMiB: p.memory,
			UsedMilli: max(1, int64(10*p.util/float64(max(1, p.withUtils)))),
		})
	}
	return out
}
