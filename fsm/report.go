package fsm

import (
	"fmt"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/learned"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// report takes over what an agent says of an attempt. What is not about a
// live attempt on that node changes nothing, however often it is said.
func (s *State) report(index uint64, r *logv1.ReportAttempt) Result {
	old := s.roll.Jobs.Get(cluster.JobID(r.Job))
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
			a.Started = s.at.Now
		}
		j.Started = a.Started
	}
	a.State, j.State, j.Reason = to, to, cluster.Reason{}
	if a.Preempt != nil { // a node that was silent came back
		j.Reason = a.Preempt.Reason()
	}
	s.whyCompleting(j, r)
	s.roll.Change(old, j, Change{})
}

// ended takes over how an attempt ended.
func (s *State) ended(a *cluster.Attempt, r *logv1.ReportAttempt) {
	if a.Started == 0 {
		a.Started = s.clamp(r.StartedUs, a.Placed)
	}
	if a.Ended = s.clamp(r.EndedUs, max(a.Placed, a.Started)); a.Ended == 0 {
		a.Ended = max(s.at.Now, a.Placed, a.Started)
	}
	if r.Exit != nil {
		a.Exit = &cluster.Exit{Code: r.Exit.Code, Signal: r.Exit.Signal}
	}
	a.Usage = learned.SaneUsage(conv.UsageFromLog(r.Usage), a.Ended.Sub(max(a.Started, a.Placed)))
	if s.at.Version < command.CheckedVersion { // a coordinator that reads no more does not see them
		a.Usage.PowerW, a.Usage.Steps = 0, 0
	}
	if a.Usage.Profile = learned.SaneProfile(a.Usage.Profile, a); s.at.Version < command.ProfileVersion {
		a.Usage.Profile = nil
	}
	a.Reason = conv.ReasonFromLog(r.Reason)
}

// clamp brings a node's clock between earliest and now; 0 stays unknown.
func (s *State) clamp(us int64, earliest cluster.Time) cluster.Time {
	if us <= 0 {
		return 0
	}
	return min(max(cluster.Time(us), earliest), max(s.at.Now, earliest))
}

// finish ends the live attempt of j, which is a changed copy of old with the
// end of its last attempt filled in: its shares are free, and the job ends or
// waits again. A job that was to be cancelled is, whatever its exit; one that
// made room waits again.
func (s *State) finish(index uint64, old, j *cluster.Job, to cluster.JobState) {
	a := j.Last()
	freed := s.fleet.Release(old)
	j.Revision, a.State, j.Started, j.Ended = index, to, a.Started, a.Ended
	a.Secret = "" // whoever still has a credential of it has nothing
	madeRoom := false
	if j.Cancel != nil {
		a.State, a.Reason = cluster.JobCancelled, jobs.CancelReason(j)
	} else {
		madeRoom = preempted(a)
	}
	if a.Reason.Code == "" {
		a.Reason = defaultReason(a)
	}
	s.books.Charge(j, a)
	if madeRoom && jobs.Expired(j, s.at.Now) {
		jobs.EndLate(s.roll, old, j, freed)
		return
	}
	if madeRoom && !s.books.EndsForGood(j, a, s.roll.Jobs.Get) || !madeRoom && s.again(j, a) {
		j.State, j.Reason, j.Eligible = cluster.JobPending, cluster.Reason{Code: cluster.ReasonRequeued, Detail: a.Reason.String()}, s.at.Now
		if p := a.Preempt; p != nil && p.Hold {
			j.Hold = &cluster.Hold{At: s.at.Now, By: p.By, Admin: p.Admin}
		}
		if j.Hold != nil {
			j.Reason = j.Hold.Reason()
		}
		s.roll.Change(old, j, Change{New: true, Released: freed})
		return
	}
	j.State, j.Reason, j.Hold = a.State, a.Reason, nil
	s.roll.Change(old, j, Change{Released: freed})
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

// again decides whether a job runs once more, and with what. A lost node is
// final unless the job allows it.
func (s *State) again(j *cluster.Job, a *cluster.Attempt) bool {
	switch {
	case tries(j)-s.neverBegan(j) >= maxAttempts:
		return false
	case againGang(j, a):
		return true
	case s.at.Version >= command.SharingVersion && a.State == cluster.JobNodeFail && a.Reason.Code == cluster.ReasonGPUNeighbour:
		return j.Spec.RequeueOnLoss || disturbed(j) <= maxDisturbed
	case s.at.Version >= command.LifeVersion && a.State == cluster.JobNodeFail && a.Reason.Code == cluster.ReasonNodeFault:
		return true // it never ran
	case s.at.Version >= command.HealthVersion && unsoundEnd(a):
		return true // it never began
	case a.State == cluster.JobNodeFail:
		return j.Spec.RequeueOnLoss || a.Preempt != nil && a.Preempt.Requeue
	case a.State == cluster.JobOutOfMemory:
		return s.againLarger(j, a)
	}
	return false
}

const maxAttempts = 100

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

// againLarger settles an out-of-memory by the ladder that holds for the entry.
func (s *State) againLarger(j *cluster.Job, a *cluster.Attempt) bool {
	ladder := cluster.Ladder{
		Nodes: maps.Values(s.fleet.Nodes()), Partition: s.fleet.Partition(j.Spec.Partition),
		TrustPeak: s.at.Version < command.SharingVersion, EndAtWhole: s.at.Version < command.LargerVersion, HostFinal: s.at.Version < command.HostVersion,
	}
	next := ladder.Next(j, a)
	if next.Again {
		j.NeedWhole, j.MinGPUMemMiB, j.MinHostMemMiB = next.Whole, next.MinGPUMemMiB, next.MinHostMemMiB
	}
	switch {
	case next.Why != "" && a.Reason.Detail != "":
		a.Reason.Detail += "; " + next.Why
	case next.Why != "":
		a.Reason.Detail = next.Why
	}
	return next.Again
}
