package fsm

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// idle takes a running attempt further in its partition's idle policy, one stage
// or more, or back to none. The leader measured; what it proposes is held against
// the policy as it is now.
func (s *State) idle(index uint64, c *logv1.IdleAttempt) Result {
	old := s.jobs.get(cluster.JobID(c.Job))
	if old == nil {
		return refuse(cluster.CodeNotFound, "job %d is gone", c.Job)
	}
	a, to := old.Live(), cluster.IdleStage(min(c.Stage, uint32(cluster.IdleEnded)))
	switch {
	case a == nil || a.No != c.Attempt || a.State != cluster.JobRunning || len(a.Berth.GPUs) == 0:
		return refuse(cluster.CodeConflict, "attempt %d of job %d is not one that runs on GPUs", c.Attempt, c.Job)
	case a.Preempt != nil || old.Cancel != nil:
		return refuse(cluster.CodeConflict, "job %d is on its way out", c.Job)
	case to != cluster.IdleNone && !s.idlePolicy(old).On():
		return refuse(cluster.CodeConflict, "the partition of job %d has no idle policy any more", c.Job)
	case to == cluster.IdleNone && a.Idle == nil, a.Idle != nil && to != cluster.IdleNone && to <= a.Idle.Stage:
		return Result{}
	}
	j := old.Clone()
	b := j.Last()
	mark := cluster.IdleMark{Stage: to, Since: cluster.Time(c.SinceUs), At: s.now, BusyMs: c.BusyMs, KnownMs: c.KnownMs}
	if a.Idle != nil {
		mark.Was = a.Idle.Was
	}
	var freed []cluster.GPUID
	if to == cluster.IdleShrunk && c.Berth != nil && len(mark.Was) == 0 {
		cut := conv.BerthFromLog(c.Berth)
		if !smaller(cut.GPUs, a.Berth.GPUs) {
			return refuse(cluster.CodeInvalid, "what job %d is cut to is no part of what it has", c.Job)
		}
		mark.Was = a.Berth.GPUs
		freed = s.reshare(a, b, cut.GPUs)
	}
	j.Revision, j.Reason = index, cluster.Reason{Code: cluster.ReasonIdle, Detail: clip(c.Why, maxWhy)}
	b.Idle = &mark
	switch to {
	case cluster.IdleNone:
		j.Reason, b.Idle = cluster.Reason{}, nil
		if len(mark.Was) > 0 && !s.giveBack(a, b, mark.Was) {
			b.Idle = &cluster.IdleMark{At: s.now, Was: mark.Was} // others have it by now
		}
	case cluster.IdleEnded:
		j.Cancel = &cluster.CancelRequest{At: s.now, Admin: true}
	}
	s.putJob(old, j)
	if to >= cluster.IdleWarned {
		s.announce(j, cluster.MailIdle, c.Why)
	}
	s.changed(Change{Job: j.ID, Released: freed})
	return Result{}
}

func (s *State) idlePolicy(j *cluster.Job) cluster.IdlePolicy {
	if p := s.parts[j.Spec.Partition]; p != nil {
		return p.Idle
	}
	return cluster.IdlePolicy{}
}

// smaller tells whether cut are shares of the same GPUs in the same order, none
// larger than in have and none exclusive.
func smaller(cut, have []cluster.GPUShare) bool {
	return slices.EqualFunc(cut, have, func(c, h cluster.GPUShare) bool {
		whole := h.Share.Exclusive
		return c.GPU == h.GPU && c.Share.MemMiB > 0 && c.Share.Milli > 0 && !c.Share.Exclusive &&
			(whole || c.Share.MemMiB <= h.Share.MemMiB && c.Share.Milli <= h.Share.Milli) && c.Share.Milli <= cluster.WholeGPU
	})
}

// reshare puts other shares in the place of those that a has, and returns the
// GPUs on which that freed something. b is the copy of a that is to be put.
func (s *State) reshare(a, b *cluster.Attempt, to []cluster.GPUShare) (freed []cluster.GPUID) {
	s.ledger.Release(&a.Berth)
	b.Berth.GPUs = slices.Clone(to)
	s.ledger.Take(&b.Berth)
	for _, g := range to {
		freed = append(freed, g.GPU)
	}
	return freed
}

// giveBack gives an attempt the shares that it had, if they are still free.
func (s *State) giveBack(a, b *cluster.Attempt, was []cluster.GPUShare) bool {
	s.ledger.Release(&a.Berth)
	had := a.Berth
	had.GPUs = slices.Clone(was)
	if s.ledger.Fits(&had).Code != "" {
		s.ledger.Take(&a.Berth)
		return false
	}
	s.ledger.Take(&had)
	b.Berth = had
	return true
}
