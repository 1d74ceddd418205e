package sim

import (
	"math"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// sight is what the scheduler sees of jobs. It depends on the job, the options and
// the fleet alone: the same job always looks the same.
type sight struct {
	opt    *Options
	nodes  []*cluster.Node
	types  []string // of GPUs
	owners map[string]cluster.UID
}

// viewOf returns what the scheduler sees of a job.
func (s *sight) viewOf(id cluster.JobID, j *workload.Job) *cluster.Job {
	if _, ok := s.owners[j.User]; !ok {
		s.owners[j.User] = cluster.UID(1000 + len(s.owners))
	}
	spec := &cluster.Spec{
		Name: j.ID, Command: []string{"job"}, GPUs: j.GPUs, CPUMilli: j.CPUMilli, MemMiB: j.HostMemMiB, RequeueOnLoss: true,
	}
	if j.Nodes > 1 {
		spec.Nodes, spec.GPUs = j.Nodes, j.GPUs/j.Nodes
	}
	if !s.opt.Fetch.Blind {
		spec.Image, spec.Data = j.Image, j.Data
	}
	if len(s.opt.Partitions) > 0 {
		spec.Partition = j.Partition
	}
	if s.opt.Promise != nil && j.Deadline > 0 {
		spec.Deadline = epoch.Add(j.Deadline)
	}
	if s.opt.Preemptible && !j.Serves {
		spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: cluster.DefaultCheckpointGrace}
	}
	if s.opt.resizes() {
		spec.Partition = resizing
	}
	if (s.opt.Know != nil || s.opt.Learn) && j.Model != "" {
		spec.Signature = j.Signature()
	}
	v := &cluster.Job{ID: id, Spec: spec, Owner: cluster.Owner{UID: s.owners[j.User], Name: j.User}}
	if j.Serves {
		spec.Service, v.ArrayJobID = &service.Service{Name: "sim", Replicas: 1, Min: 1, Max: 1}, id
	}
	if j.GPUs == 0 {
		v.Estimates = []cluster.Estimate{{GPUType: cluster.CPUType, Duration: s.guess(j, "duration", j.Duration), ConfidenceMilli: 1000, Source: "trace"}}
		return v
	}
	if len(j.Types) == 1 {
		spec.GPUType = j.Types[0]
	}
	spec.Exclusive = j.Milli == 1000
	if j.Elastic() {
		spec.GPUs, spec.GPURange = j.Least, cluster.GPURange{Min: j.Least, Max: j.Most}
	}
	if s.opt.Profile > 0 {
		v.Estimates = s.unknown(j)
		return v
	}
	v.Estimates = s.estimates(j)
	if s.opt.Declare && j.MemMiB > 0 {
		for _, est := range v.Estimates {
			spec.GPUMemMiB = max(spec.GPUMemMiB, est.GPUMemMiB, est.GPUMemP95MiB)
		}
	}
	return v
}

// guess returns the prediction for a true duration.
func (s *sight) guess(j *workload.Job, what string, truth time.Duration) time.Duration {
	f := s.opt.Errors.Duration
	if s.opt.Errors.NoDuration || j.Serves {
		return 0
	}
	if b := s.opt.Errors.Bias; b > 0 {
		truth = time.Duration(float64(truth) * b)
	}
	if f == 0 {
		return truth
	}
	return time.Duration(float64(truth) * math.Exp(f*workload.Chance(s.opt.Seed, j.ID, what).NormFloat64()))
}

// leastTime returns how long a job takes with the fewest GPUs that it may run with.
func leastTime(j *workload.Job, d time.Duration) time.Duration {
	if !j.Elastic() {
		return d
	}
	return time.Duration(float64(d) * j.Slower(j.Least))
}

// quantile95 is the upper quantile of a standard normal.
const quantile95 = 1.6449

// estimates returns the predictions for a job on each type, with one factor per job
// and figure: a job underestimated on one GPU is so on all.
func (s *sight) estimates(j *workload.Job) []cluster.Estimate {
	er := &s.opt.Errors
	if er.Hide {
		return s.unknown(j)
	}
	if len(j.Predicted) > 0 {
		return s.predicted(j)
	}
	mem := math.Exp(er.Mem * workload.Chance(s.opt.Seed, j.ID, "mem").NormFloat64())
	util := math.Exp(er.Util * workload.Chance(s.opt.Seed, j.ID, "util").NormFloat64())
	out := make([]cluster.Estimate, 0, len(s.types))
	for _, t := range s.types {
		f := j.Figures(t)
		est := cluster.Estimate{GPUType: t, Duration: s.guess(j, "duration", leastTime(j, f.Duration)), Source: "trace", ConfidenceMilli: 1000}
		switch {
		case !j.MayUse(t):
			est.GPUMemMiB = cluster.MaxMemMiB // no GPU sells that: a veto
		case f.MemMiB > 0:
			est.GPUMemMiB = max(1, int64(float64(f.MemMiB)*mem))
			est.GPUMemP95MiB = int64(float64(est.GPUMemMiB) * (1 + er.MemMargin) * math.Exp(quantile95*er.Mem))
			est.Milli = min(1000, max(1, int64(float64(f.UsedMilli)*util)))
		case j.Milli > 0:
			est.GPUMemMiB = s.memOf(t) * j.Milli / 1000
		default:
			est.ConfidenceMilli = 0
		}
		if j.Milli > 0 {
			est.Milli = j.Milli
		}
		out = append(out, est)
	}
	return out
}

// predicted returns what a predictor said, for each type of the fleet. Types that
// the job may not have are vetoed; types it said nothing of are unknown.
func (s *sight) predicted(j *workload.Job) []cluster.Estimate {
	out := s.unknown(j)
	for i := range out {
		for _, p := range j.Predicted {
			if p.GPUType == out[i].GPUType && j.MayUse(p.GPUType) {
				out[i] = p
			}
		}
	}
	return out
}

// unknown leaves out everything but the duration.
func (s *sight) unknown(j *workload.Job) []cluster.Estimate {
	out := make([]cluster.Estimate, 0, len(s.types))
	for _, t := range s.types {
		est := cluster.Estimate{GPUType: t, Duration: s.guess(j, "duration", leastTime(j, j.Figures(t).Duration)), Source: "none"}
		if !j.MayUse(t) {
			est.GPUMemMiB, est.ConfidenceMilli = cluster.MaxMemMiB, 1000
		}
		out = append(out, est)
	}
	return out
}

// memOf returns the sellable memory of the first GPU of a type.
func (s *sight) memOf(t string) int64 {
	for _, n := range s.nodes {
		for i := range n.GPUs {
			if n.GPUs[i].Type == t {
				return n.GPUs[i].SellableMiB
			}
		}
	}
	return 0
}
