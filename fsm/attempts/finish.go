package attempts

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
)

// finish ends the live attempt of j, which is a changed copy of old with the
// end of its last attempt filled in: its shares are free, and the job ends or
// waits again. A job that was to be cancelled is, whatever its exit; one that
// made room waits again.
func (s *Steward) finish(old, j *cluster.Job, to cluster.JobState) {
	a := j.Last()
	freed := s.fleet.Release(old)
	j.Revision, a.State, j.Started, j.Ended = s.at.Index, to, a.Started, a.Ended
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
		s.roll.Change(old, j, command.Change{New: true, Released: freed})
		return
	}
	j.State, j.Reason, j.Hold = a.State, a.Reason, nil
	s.roll.Change(old, j, command.Change{Released: freed})
}

// preempted settles the attempt a of j that was to make room and has ended. It
// reports false when something else came first, which then is what it ended
// as: its own end, its time limit, or an out-of-memory. A request to cancel it
// is looked at before this.
func preempted(a *cluster.Attempt) bool {
	if a.Preempt == nil || a.State != cluster.JobPreempted && a.State != cluster.JobCancelled {
		return false
	}
	// An agent that was told to stop it for another reason says CANCELLED, and
	// nobody asked for that: it was on its way out for this.
	a.State, a.Reason = cluster.JobPreempted, a.Preempt.Reason()
	return true
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
