package fsm

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// report takes over what an agent says of an attempt. What is not about a
// live attempt on that node changes nothing, however often it is said.
func (s *State) report(index uint64, r *logv1.ReportAttempt) Result {
	old := s.jobs.get(cluster.JobID(r.Job))
	if old == nil {
		return Result{Released: true}
	}
	k := slices.IndexFunc(old.Attempts, func(a cluster.Attempt) bool { return a.No == r.Attempt })
	rank := -1
	if k >= 0 {
		rank = old.Attempts[k].Rank(cluster.NodeID(r.Node))
	}
	if rank < 0 {
		return refuse(cluster.CodeDenied, "attempt %d of job %d is not on node %s", r.Attempt, r.Job, r.Node)
	}
	a := &old.Attempts[k]
	to := cluster.JobState(min(r.State, 255))
	switch {
	case uint64(a.Token) != r.Token:
		return refuse(cluster.CodeDenied, "attempt %d of job %d has another token", r.Attempt, r.Job)
	case a.State.Terminal():
		return Result{Released: true}
	case to == cluster.JobUnreachable || !to.Live() && !to.Terminal():
		return refuse(cluster.CodeInvalid, "an attempt cannot be in state %d", r.State)
	case r.Exit != nil && (r.Exit.Code < 0 || r.Exit.Code > 255 || r.Exit.Signal < 0 || r.Exit.Signal > 64):
		return refuse(cluster.CodeInvalid, "exit code %d, signal %d are out of range", r.Exit.Code, r.Exit.Signal)
	}
	if a.Gang != nil {
		return s.reportPart(index, old, rank, to, r)
	}
	j := old.Clone()
	j.Revision = index
	if to.Terminal() {
		s.ended(j.Last(), r)
		s.finish(index, old, j, to)
		return Result{Released: true, Absurd: !s.learn(j, j.Last(), r)}
	}
	s.rose(old, j, to, r)
	return Result{}
}

// rose records that an attempt came further. States only go up, so that
// reports may be repeated and come late: a process that was seen running is
// never starting again.
func (s *State) rose(old, j *cluster.Job, to cluster.JobState, r *logv1.ReportAttempt) {
	a := j.Last()
	if s.lingers(old, j, to, r) {
		return
	}
	if a.State != cluster.JobUnreachable && !cluster.CanMove(a.State, to) || to == cluster.JobStarting && a.Started != 0 {
		return
	}
	if a.Started == 0 && to != cluster.JobStarting {
		if a.Started = s.clamp(r.StartedUs, a.Placed); a.Started == 0 {
			a.Started = s.now
		}
		j.Started = a.Started
	}
	a.State, j.State, j.Reason = to, to, cluster.Reason{}
	if a.Preempt != nil { // a node that was silent came back
		j.Reason = a.Preempt.Reason()
	}
	s.whyCompleting(j, r)
	s.putJob(old, j)
	s.changed(Change{Job: j.ID})
}

// ended takes over how an attempt ended.
func (s *State) ended(a *cluster.Attempt, r *logv1.ReportAttempt) {
	if a.Started == 0 {
		a.Started = s.clamp(r.StartedUs, a.Placed)
	}
	if a.Ended = s.clamp(r.EndedUs, max(a.Placed, a.Started)); a.Ended == 0 {
		a.Ended = max(s.now, a.Placed, a.Started)
	}
	if r.Exit != nil {
		a.Exit = &cluster.Exit{Code: r.Exit.Code, Signal: r.Exit.Signal}
	}
	a.Usage = saneUsage(conv.UsageFromLog(r.Usage), a.Ended.Sub(max(a.Started, a.Placed)))
	if s.rules < checkedVersion { // a coordinator that reads no more does not see them
		a.Usage.PowerW, a.Usage.Steps = 0, 0
	}
	if a.Usage.Profile = saneProfile(a.Usage.Profile, a); s.rules < profileVersion {
		a.Usage.Profile = nil
	}
	a.Reason = conv.ReasonFromLog(r.Reason)
}

// saneUsage bounds what an agent measured, so that no sum of it overflows.
func saneUsage(u cluster.Usage, longest time.Duration) cluster.Usage {
	u.GPUMemPeakMiB = min(max(0, u.GPUMemPeakMiB), cluster.MaxMemMiB)
	u.HostMemPeakMiB = min(max(0, u.HostMemPeakMiB), cluster.MaxMemMiB)
	u.Milli = min(max(0, u.Milli), cluster.WholeGPU)
	u.CPUMilli = min(max(0, u.CPUMilli), maxCPUMilli)
	u.Duration = min(max(0, u.Duration), longest)
	u.PowerW = min(max(0, u.PowerW), maxPowerW)
	u.Steps = min(max(0, u.Steps), maxSteps)
	return u
}

const maxCPUMilli = 1 << 22 // of one attempt

// clamp brings a node's clock between earliest and now; 0 stays unknown.
func (s *State) clamp(us int64, earliest cluster.Time) cluster.Time {
	if us <= 0 {
		return 0
	}
	return min(max(cluster.Time(us), earliest), max(s.now, earliest))
}

// finish ends the live attempt of j, which is a changed copy of old with the
// end of its last attempt filled in: its shares are free, and the job ends or
// waits again. A job that was to be cancelled is, whatever its exit; one that
// made room waits again.
func (s *State) finish(index uint64, old, j *cluster.Job, to cluster.JobState) {
	a := j.Last()
	freed := s.release(old)
	j.Revision, a.State, j.Started, j.Ended = index, to, a.Started, a.Ended
	madeRoom := false
	if j.Cancel != nil {
		a.State, a.Reason = cluster.JobCancelled, cancelReason(j)
	} else {
		madeRoom = preempted(a)
	}
	if a.Reason.Code == "" {
		a.Reason = defaultReason(a)
	}
	s.charge(j, a)
	if madeRoom && expired(j, s.now) {
		s.endLate(old, j, freed)
		return
	}
	if madeRoom && !s.endsForGood(j, a) || !madeRoom && s.again(j, a) {
		j.State, j.Reason, j.Eligible = cluster.JobPending, cluster.Reason{Code: cluster.ReasonRequeued, Detail: a.Reason.String()}, s.now
		if p := a.Preempt; p != nil && p.Hold {
			j.Hold = &cluster.Hold{At: s.now, By: p.By, Admin: p.Admin}
		}
		if j.Hold != nil {
			j.Reason = j.Hold.Reason()
		}
		s.putJob(old, j)
		s.changed(Change{Job: j.ID, New: true, Released: freed})
		return
	}
	j.State, j.Reason, j.Hold = a.State, a.Reason, nil
	s.putJob(old, j)
	s.changed(Change{Job: j.ID, Released: freed})
}

// defaultReason names an end that the agent gave no reason for.
func defaultReason(a *cluster.Attempt) cluster.Reason {
	switch {
	case a.State == cluster.JobTimeout:
		return cluster.Reason{Code: cluster.ReasonTimeLimit}
	case a.State == cluster.JobNodeFail:
		return cluster.Reason{Code: cluster.ReasonNodeLost}
	case a.State == cluster.JobOutOfMemory && a.Usage.GPUOOM:
		return cluster.Reason{Code: cluster.ReasonGPUOOM}
	case a.State == cluster.JobOutOfMemory:
		return cluster.Reason{Code: cluster.ReasonHostOOM}
	case a.State == cluster.JobFailed && a.Exit == nil:
		return cluster.Reason{Code: cluster.ReasonLaunch}
	case a.State == cluster.JobFailed && a.Exit.Signal != 0:
		return cluster.Reason{Code: cluster.ReasonSignal, Detail: fmt.Sprintf("signal %d", a.Exit.Signal)}
	case a.State == cluster.JobFailed:
		return cluster.Reason{Code: cluster.ReasonExit, Detail: fmt.Sprintf("exit code %d", a.Exit.Code)}
	case a.State != cluster.JobCompleted: // nobody here asked for that
		return cluster.Reason{Code: cluster.ReasonRuntimeLost, Detail: "its node ended it as " + a.State.String()}
	}
	return cluster.Reason{}
}

// release gives back what the live attempt of old holds.
func (s *State) release(old *cluster.Job) []cluster.GPUID {
	var freed []cluster.GPUID
	for _, b := range old.Last().Held() {
		freed = append(freed, s.releaseBerth(old.ID, b)...)
	}
	return freed
}

// releaseBerth gives back what a job holds on one node.
func (s *State) releaseBerth(job cluster.JobID, b *cluster.Berth) []cluster.GPUID {
	s.ledger.Release(b)
	var freed []cluster.GPUID
	for _, g := range b.GPUs {
		freed = append(freed, g.GPU)
		on := slices.DeleteFunc(slices.Clone(s.gpuJobs[g.GPU]), func(id cluster.JobID) bool { return id == job })
		if len(on) == 0 {
			delete(s.gpuJobs, g.GPU)
		} else {
			s.gpuJobs[g.GPU] = on
		}
	}
	return freed
}

// again decides whether a job runs once more, and with what. A lost node is
// final unless the job allows it.
func (s *State) again(j *cluster.Job, a *cluster.Attempt) bool {
	switch {
	case tries(j)-s.neverBegan(j) >= maxAttempts:
		return false
	case againGang(j, a):
		return true
	case s.rules >= sharingVersion && a.State == cluster.JobNodeFail && a.Reason.Code == cluster.ReasonGPUNeighbour:
		return j.Spec.RequeueOnLoss || disturbed(j) <= maxDisturbed
	case s.rules >= lifeVersion && a.State == cluster.JobNodeFail && a.Reason.Code == cluster.ReasonNodeFault:
		return true // it never ran
	case s.rules >= healthVersion && unsoundEnd(a):
		return true // it never began
	case a.State == cluster.JobNodeFail:
		return j.Spec.RequeueOnLoss || a.Preempt != nil && a.Preempt.Requeue
	case a.State == cluster.JobOutOfMemory:
		return s.againLarger(j, a)
	}
	return false
}

// maxDisturbed is how often a job runs again for what others on its GPU did.
const maxDisturbed = 3

// disturbed is how many of the attempts of a job others on their GPU ended.
func disturbed(j *cluster.Job) int {
	n := 0
	for i := range j.Attempts {
		if j.Attempts[i].Reason.Code == cluster.ReasonGPUNeighbour {
			n++
		}
	}
	return n
}

// againLarger settles an out-of-memory on the GPU. After the first the job
// gets a larger share, after the second a whole GPU, and after one with a whole
// GPU another that sells more, if there is one that could ever run it; each of
// those is larger than the last. Else it is final. So is one at the memory that
// the user declared: the number is also a cap, and hitting it is the job's own
// doing. Beside others it is not: a neighbour above its share may have taken
// what this job was refused, and so it gets the benefit of the doubt, unless it
// was itself above its share.
func (s *State) againLarger(j *cluster.Job, a *cluster.Attempt) bool {
	if !a.Usage.GPUOOM || len(a.Berth.GPUs) == 0 {
		return false
	}
	if a.Berth.GPUs[0].Share.Exclusive {
		return s.rules >= largerVersion && s.againOnLarger(j, a)
	}
	share := a.Berth.GPUs[0].Share.MemMiB
	own := len(a.Neighbours) == 0 || s.rules >= sharingVersion && a.Usage.GPUMemPeakMiB > share
	if j.Spec.GPUMemMiB > 0 && share <= j.Spec.GPUMemMiB && own {
		return false
	}
	ooms := 0
	for i := range j.Attempts {
		if j.Attempts[i].Usage.GPUOOM {
			ooms++
		}
	}
	if ooms > 2 {
		return false
	}
	j.NeedWhole = ooms == 2
	j.MinGPUMemMiB = min(max(share+share/2, a.Usage.GPUMemPeakMiB*11/10), s.largestFor(j.Spec))
	return true
}

// againOnLarger settles an out-of-memory of a job that had whole GPUs. It says
// in numbers why there is no next time.
func (s *State) againOnLarger(j *cluster.Job, a *cluster.Attempt) bool {
	had := a.Berth.GPUs[0].Share.MemMiB
	gpuType := a.Estimate.GPUType
	if n := s.nodes[a.Berth.Node]; n != nil {
		if g := n.GPU(a.Berth.GPUs[0].GPU); g != nil {
			gpuType = g.Type
		}
	}
	most, on := int64(0), ""
	for _, n := range s.nodes { // the maximum of both does not depend on the order
		mib, t := n.Largest(j.Spec, s.mayUse(j, n))
		if mib > most || mib == most && t > on {
			most, on = mib, t
		}
	}
	why := ""
	switch {
	case j.Spec.GPUMemMiB > 0:
		why = fmt.Sprintf("it declares %d MiB and took more than all %d MiB of a %s", j.Spec.GPUMemMiB, had, gpuType)
	case most <= had:
		why = fmt.Sprintf("it had all %d MiB of a %s, and no larger GPU could ever run it", had, gpuType)
	case hadAsMuch(j, a):
		why = fmt.Sprintf("it had all %d MiB of a %s, and no less before; the largest that could ever run it is %s with %d MiB", had, gpuType, on, most)
	}
	if why != "" {
		if a.Reason.Detail != "" {
			why = a.Reason.Detail + "; " + why
		}
		a.Reason.Detail = why
		return false
	}
	j.NeedWhole = true
	j.MinGPUMemMiB = min(max(had+1, a.Usage.GPUMemPeakMiB*11/10), most)
	return true
}

// mayUse tells which types of GPU of a node the job may have, by its partition.
func (s *State) mayUse(j *cluster.Job, n *cluster.Node) func(gpuType string) bool {
	p := s.parts[j.Spec.Partition]
	if p == nil {
		return nil
	}
	return func(gpuType string) bool { return p.Nodes.Holds(n.ID) && p.HasType(gpuType) }
}

// hadAsMuch tells whether the job ran out of memory before with a whole GPU as
// large as that of a. So it is when the larger ones are out of service: it must
// not die on the same card again and again until they are back.
func hadAsMuch(j *cluster.Job, a *cluster.Attempt) bool {
	return slices.ContainsFunc(j.Attempts, func(o cluster.Attempt) bool {
		return o.No < a.No && o.Usage.GPUOOM && len(o.Berth.GPUs) > 0 && o.Berth.GPUs[0].Share.Exclusive &&
			o.Berth.GPUs[0].Share.MemMiB >= a.Berth.GPUs[0].Share.MemMiB
	})
}

// largestFor returns the most memory that a share of one GPU can have for a
// job, so that none waits for more than there is.
func (s *State) largestFor(spec *cluster.Spec) int64 {
	most := int64(0)
	for id, n := range s.nodes { // the maximum does not depend on the order
		if spec.Node != "" && spec.Node != id {
			continue
		}
		for i := range n.GPUs {
			if g := &n.GPUs[i]; spec.GPUType == "" || g.Type == spec.GPUType {
				most = max(most, g.SellableMiB)
			}
		}
	}
	if most == 0 {
		return cluster.MaxMemMiB
	}
	return most
}
