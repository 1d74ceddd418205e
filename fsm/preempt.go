package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const maxWhy = 1024

// preempt asks a running attempt to make room. What it holds stays its own
// until its agent says that it ended: it needs its card to save its state.
func (s *State) preempt(index uint64, c *logv1.PreemptAttempt) Result {
	old := s.roll.Jobs.Get(cluster.JobID(c.Job))
	if old == nil {
		return refuse(cluster.CodeNotFound, "job %d is gone", c.Job)
	}
	if a := old.Live(); a == nil || a.No != c.Attempt {
		return refuse(cluster.CodeConflict, "attempt %d of job %d is not the live one", c.Attempt, c.Job)
	}
	if why := old.Unpreemptible(s.at.Now); why != "" {
		return refuse(cluster.CodeConflict, "job %d cannot be preempted: %s", c.Job, why)
	}
	if len(c.Why) > maxWhy {
		return refuse(cluster.CodeInvalid, "preemption of job %d: a reason of %d bytes, at most %d are kept", c.Job, len(c.Why), maxWhy)
	}
	j := old.Clone()
	a := j.Last()
	a.Preempt = &cluster.PreemptRequest{At: s.at.Now, For: cluster.JobID(c.For), Why: c.Why}
	j.Reason, j.Revision = a.Preempt.Reason(), index
	s.roll.Change(old, j, Change{})
	return Result{}
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

// tries counts the attempts of j that count against maxAttempts: those that
// made room do not.
func tries(j *cluster.Job) int {
	n := 0
	for i := range j.Attempts {
		if a := &j.Attempts[i]; a.State != cluster.JobPreempted || a.Preempt == nil {
			n++
		}
	}
	return n
}
