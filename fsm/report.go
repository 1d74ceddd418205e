package fsm

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// report takes over what an agent says of an attempt. What is not about a
// live attempt on that node changes nothing, however often it is said.
func (s *State) report(index uint64, r *logv1.ReportAttempt) Result {
	old, ok := s.jobs[cluster.JobID(r.Job)]
	if !ok {
		return Result{Released: true}
	}
	k := slices.IndexFunc(old.Attempts, func(a cluster.Attempt) bool { return a.No == r.Attempt })
	if k < 0 || string(old.Attempts[k].Berth.Node) != r.Node {
		return refuse(cluster.CodeDenied, "attempt %d of job %d is not on node %s", r.Attempt, r.Job, r.Node)
	}
	a := &old.Attempts[k]
	to := cluster.JobState(r.State)
	switch {
	case a.State.Terminal():
		return Result{Released: true}
	case uint64(a.Token) != r.Token:
		return refuse(cluster.CodeDenied, "attempt %d of job %d has another token", r.Attempt, r.Job)
	case to == cluster.JobUnreachable || !to.Live() && !to.Terminal():
		return refuse(cluster.CodeInvalid, "an attempt cannot be in state %d", r.State)
	case !a.State.Live():
		return refuse(cluster.CodeConflict, "attempt %d of job %d is %s", r.Attempt, r.Job, a.State)
	case r.Exit != nil && (r.Exit.Code < 0 || r.Exit.Code > 255 || r.Exit.Signal < 0 || r.Exit.Signal > 64):
		return refuse(cluster.CodeInvalid, "exit code %d, signal %d are out of range", r.Exit.Code, r.Exit.Signal)
	}
	j := old.Clone()
	j.Revision = index
	a = &j.Attempts[k]
	if t := s.clamp(r.StartedUs, a.Placed); t != 0 && a.Started == 0 {
		a.Started, j.Started = t, t
	}
	if !to.Terminal() {
		if a.State != cluster.JobUnreachable && !cluster.CanMove(a.State, to) {
			return Result{} // older news than we have
		}
		a.State, j.State = to, to
		s.putJob(old, j)
		s.changes = append(s.changes, Change{Job: j.ID})
		return Result{}
	}
	a.Ended = s.clamp(r.EndedUs, max(a.Placed, a.Started))
	if a.Ended == 0 {
		a.Ended = s.now
	}
	if r.Exit != nil {
		a.Exit = &cluster.Exit{Code: r.Exit.Code, Signal: r.Exit.Signal}
	}
	a.Usage = conv.UsageFromLog(r.Usage)
	a.Reason = conv.ReasonFromLog(r.Reason)
	s.finish(index, old, j, to)
	return Result{Released: true}
}

// clamp brings a node's clock between earliest and now; 0 stays unknown.
func (s *State) clamp(us int64, earliest cluster.Time) cluster.Time {
	if us <= 0 {
		return 0
	}
	return min(max(cluster.Time(us), earliest), max(s.now, earliest))
}

// finish ends the live attempt of j, which is a changed copy of old: its
// shares are free, and the job ends or waits again.
func (s *State) finish(index uint64, old, j *cluster.Job, to cluster.JobState) {
	a := j.Last()
	freed := s.release(old)
	a.State, j.Ended = to, a.Ended
	s.learn(j, a)
	if j.Cancel != nil {
		a.State = cluster.JobCancelled
		a.Reason = cancelReason(j)
	} else if s.again(j, a) {
		j.State, j.Reason, j.Eligible = cluster.JobPending, cluster.Reason{Code: cluster.ReasonRequeued, Detail: a.Reason.String()}, s.now
		s.putJob(old, j)
		s.changes = append(s.changes, Change{Job: j.ID, New: true, Released: freed})
		return
	}
	j.State, j.Reason, j.Revision = a.State, a.Reason, index
	s.putJob(old, j)
	s.changes = append(s.changes, Change{Job: j.ID, Released: freed})
}

// release gives back what the live attempt of old holds.
func (s *State) release(old *cluster.Job) []cluster.GPUID {
	b := &old.Last().Berth
	s.ledger.Release(b)
	var freed []cluster.GPUID
	for _, g := range b.GPUs {
		freed = append(freed, g.GPU)
		on := slices.DeleteFunc(slices.Clone(s.gpuJobs[g.GPU]), func(id cluster.JobID) bool { return id == old.ID })
		if len(on) == 0 {
			delete(s.gpuJobs, g.GPU)
		} else {
			s.gpuJobs[g.GPU] = on
		}
	}
	return freed
}

// again decides whether a job runs once more, and with what. After the first
// out-of-memory on the GPU it gets a larger share, after the second a whole
// GPU; a third one, or one with a whole GPU, is final. A lost node is final
// unless the job allows it.
func (s *State) again(j *cluster.Job, a *cluster.Attempt) bool {
	switch a.State {
	case cluster.JobNodeFail:
		return j.Spec.RequeueOnLoss
	case cluster.JobOutOfMemory:
		if !a.Usage.GPUOOM || len(a.Berth.GPUs) == 0 || a.Berth.GPUs[0].Share.Exclusive {
			return false
		}
		ooms := 0
		for i := range j.Attempts {
			if j.Attempts[i].Usage.GPUOOM {
				ooms++
			}
		}
		share := a.Berth.GPUs[0].Share.MemMiB
		j.MinGPUMemMiB = max(share*3/2, a.Usage.GPUMemPeakMiB*11/10)
		j.NeedWhole = ooms >= 2
		return ooms <= 2
	}
	return false
}

// learn keeps a sample of an attempt that ran, within bounds on the whole, on
// each job's share of it, and on each user's.
func (s *State) learn(j *cluster.Job, a *cluster.Attempt) {
	if len(a.Berth.GPUs) == 0 || a.Usage == (cluster.Usage{}) || a.State == cluster.JobNodeFail {
		return
	}
	u, ok := s.ledger.GPU(a.Berth.GPUs[0].GPU)
	if !ok || j.Spec.Signature == "" {
		return
	}
	s.sampleNo++
	x := Sample{
		Seq: s.sampleNo, Signature: j.Spec.Signature, GPUType: u.Type, GPUMemPeakMiB: a.Usage.GPUMemPeakMiB, Milli: a.Usage.Milli,
		Duration: a.Ended.Sub(max(a.Started, a.Placed)), HostMemMiB: a.Usage.HostMemPeakMiB, CPUMilli: a.Usage.CPUMilli,
		Censored: a.Usage.GPUOOM, UID: j.Owner.UID,
	}
	s.samples = append(s.samples, x)
	s.hash.touch(kindSample, sampleKey(x.Seq))
	same, mine := 0, 0
	for i := range s.samples {
		if s.samples[i].Signature == x.Signature {
			same++
		}
		if s.samples[i].UID == x.UID {
			mine++
		}
	}
	switch {
	case same > perSignature:
		s.dropSample(func(o *Sample) bool { return o.Signature == x.Signature })
	case len(s.samples) > maxSamples && mine > maxSamples/4:
		s.dropSample(func(o *Sample) bool { return o.UID == x.UID })
	case len(s.samples) > maxSamples:
		s.dropSample(func(*Sample) bool { return true })
	}
}

func (s *State) dropSample(match func(*Sample) bool) {
	i := slices.IndexFunc(s.samples, func(x Sample) bool { return match(&x) })
	s.hash.touch(kindSample, sampleKey(s.samples[i].Seq))
	s.samples = append(s.samples[:i:i], s.samples[i+1:]...)
}
