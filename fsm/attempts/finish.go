package attempts

import (
	"fmt"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/ladder"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
)

// finish ends the live attempt of j, a changed copy of old with the end of its last
// attempt filled in: its shares are freed, and the job ends or is requeued. A job
// with a pending cancel is cancelled, whatever its exit; a preempted one is
// requeued.
func (s *Steward) finish(old, j *cluster.Job, to cluster.JobState) {
	a := j.Last()
	freed := s.fleet.Release(old)
	a.State, j.Started, j.Ended = to, a.Started, a.Ended
	a.Secret = "" // a leaked credential is now worthless
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
		if j.Spec.Service != nil && !madeRoom {
			j.DependAt = s.at.Now.Add(service.Backoff(soonEnds(j)))
			j.Eligible = j.DependAt
		}
		if p := a.Preempt; p != nil && p.Hold {
			j.Hold = &cluster.Hold{At: s.at.Now, By: p.By, Admin: p.Admin}
		}
		if j.Hold != nil {
			j.Reason = j.Hold.Reason()
		}
		s.roll.Change(old, j, command.Change{New: true, Released: freed})
		return
	}
	j.State, j.Reason, j.Hold = a.State, a.Reason, nil
	s.roll.Change(old, j, command.Change{Released: freed})
}

// preempted settles the attempt a, which was asked to make room and has ended. It
// reports false if something else came first, which is then how it ended: its own
// exit, its time limit, or running out of memory. A request to cancel it is handled
// before this.
func preempted(a *cluster.Attempt) bool {
	if a.Preempt == nil || a.State != cluster.JobPreempted && a.State != cluster.JobCancelled {
		return false
	}
	// An agent that was told to stop it for another reason reports CANCELLED,
	// though nobody asked for that: it was already being preempted.
	a.State, a.Reason = cluster.JobPreempted, a.Preempt.Reason()
	return true
}

// defaultReason returns the reason for an end for which the agent gave none.
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

// maxAttempts is how many times a job is tried, maxNeverBegan how many attempts
// that never began because of an unhealthy GPU do not count, and maxDisturbed how
// often a job is rerun after being ended by neighbours on its GPU.
const (
	maxAttempts   = 100
	maxNeverBegan = 20
	maxDisturbed  = 3
)

// again decides whether a job is rerun, and with what. A lost node is final unless
// the job allows a rerun.
func (s *Steward) again(j *cluster.Job, a *cluster.Attempt) bool {
	tries := count(j, counts)
	if s.at.Version >= command.HealthVersion {
		tries -= min(count(j, unsoundEnd), maxNeverBegan)
	}
	switch {
	case tries >= maxAttempts:
		return false
	case againGang(j, a):
		return true
	case s.at.Version >= command.SharingVersion && a.State == cluster.JobNodeFail && disturbed(a):
		return j.Spec.RequeueOnLoss || count(j, disturbed) <= maxDisturbed
	case s.at.Version >= command.LifeVersion && a.State == cluster.JobNodeFail && a.Reason.Code == cluster.ReasonNodeFault:
		return true // it never ran
	case s.at.Version >= command.HealthVersion && unsoundEnd(a):
		return true // it never began
	case a.State == cluster.JobNodeFail && (j.Spec.RequeueOnLoss || a.Preempt != nil && a.Preempt.Requeue):
		return true
	case a.State == cluster.JobOutOfMemory && s.againLarger(j, a):
		return true
	}
	return j.Spec.Service != nil && j.Cancel == nil || s.retried(j, a)
}

// soonEnds returns how many of a replica's latest attempts ended by themselves soon
// after they started.
func soonEnds(j *cluster.Job) (n int) {
	for _, a := range slices.Backward(j.Attempts) {
		if !counts(&a) {
			continue
		}
		if a.Started > 0 && a.Ended.Sub(a.Started) >= service.Soon {
			break
		}
		n++
	}
	return n
}

// retried reports whether a job is rerun because its owner asked for that after
// such an end. It adds to the end which try that is, or why there is none.
func (s *Steward) retried(j *cluster.Job, a *cluster.Attempt) bool {
	again, why := j.Retries()
	if s.at.Version < command.ProbeVersion {
		again, why = cluster.RetriesUnprobed(j)
	}
	explain(a, why)
	return again
}

// explain adds the consequence to the end of an attempt.
func explain(a *cluster.Attempt, why string) {
	switch {
	case why != "" && a.Reason.Detail != "":
		a.Reason.Detail += "; " + why
	case why != "":
		a.Reason.Detail = why
	}
}

// againGang reports whether a gang that was abandoned before it started is retried:
// nothing of it ran.
func againGang(j *cluster.Job, a *cluster.Attempt) bool {
	return a.Gang != nil && !a.Gang.Go && (a.State == cluster.JobFailed || a.State == cluster.JobNodeFail) && j.Undone() < cluster.MaxUndone
}

// count returns how many attempts of j satisfy is.
func count(j *cluster.Job, is func(*cluster.Attempt) bool) (n int) {
	for i := range j.Attempts {
		if is(&j.Attempts[i]) {
			n++
		}
	}
	return n
}

// counts reports whether an attempt counts as a try: preempted ones do not.
func counts(a *cluster.Attempt) bool { return a.State != cluster.JobPreempted || a.Preempt == nil }

// unsoundEnd reports whether an attempt ended before it began because its GPU was
// found unhealthy.
func unsoundEnd(a *cluster.Attempt) bool {
	return a.State == cluster.JobNodeFail && a.Reason.Code == cluster.ReasonGPUCheck && a.Started == 0
}

// disturbed reports whether neighbours on its GPU ended an attempt.
func disturbed(a *cluster.Attempt) bool { return a.Reason.Code == cluster.ReasonGPUNeighbour }

// againLarger handles running out of memory by the ladder that applies to the
// entry.
func (s *Steward) againLarger(j *cluster.Job, a *cluster.Attempt) bool {
	ladder := ladder.Ladder{
		Nodes: maps.Values(s.fleet.Nodes()), Partition: s.fleet.Partition(j.Spec.Partition),
		TrustPeak: s.at.Version < command.SharingVersion, EndAtWhole: s.at.Version < command.LargerVersion, HostFinal: s.at.Version < command.HostVersion,
		IdleIsOwn: s.at.Version < command.OutgrewVersion,
	}
	next := ladder.Next(j, a)
	if next.Again {
		j.NeedWhole, j.MinGPUMemMiB, j.MinHostMemMiB = next.Whole, next.MinGPUMemMiB, next.MinHostMemMiB
	}
	explain(a, next.Why)
	return next.Again
}
