package attempts

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/nodes"
	"github.com/berth-scheduler/berth/fsm/notices"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// idle moves a running attempt forward in its partition's idle policy, by one stage
// or more, or back to none. The leader's measurement is checked against the current
// policy.
func (s *Steward) idle(c *logv1.IdleAttempt) command.Result {
	old := s.roll.Jobs.Get(cluster.JobID(c.Job))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "job %d is gone", c.Job)
	}
	part := s.fleet.Partition(old.Spec.Partition)
	a, to := old.Live(), cluster.IdleStage(min(c.Stage, uint32(cluster.IdleEnded)))
	switch {
	case a == nil || a.No != c.Attempt || a.State != cluster.JobRunning || len(a.Berth.GPUs) == 0:
		return command.Refuse(cluster.CodeConflict, "attempt %d of job %d is not one that runs on GPUs", c.Attempt, c.Job)
	case a.Preempt != nil || old.Cancel != nil:
		return command.Refuse(cluster.CodeConflict, "job %d is on its way out", c.Job)
	case to != cluster.IdleNone && (part == nil || !part.Idle.On()):
		return command.Refuse(cluster.CodeConflict, "the partition of job %d has no idle policy any more", c.Job)
	case to == cluster.IdleNone && a.Idle == nil, a.Idle != nil && to != cluster.IdleNone && to <= a.Idle.Stage:
		return command.Result{}
	}
	j := old.Clone()
	b := j.Last()
	mark := cluster.IdleMark{Stage: to, Since: cluster.Time(c.SinceUs), At: s.at.Now, BusyMs: c.BusyMs, KnownMs: c.KnownMs}
	if a.Idle != nil {
		mark.Was = a.Idle.Was
	}
	var freed []cluster.GPUID
	spared := s.at.Version >= command.OutgrewVersion && old.OutgrewCut()
	if to == cluster.IdleShrunk && c.Berth != nil && len(mark.Was) == 0 && !spared {
		cut := conv.BerthFromLog(c.Berth)
		if !nodes.Smaller(cut.GPUs, a.Berth.GPUs) {
			return command.Refuse(cluster.CodeInvalid, "what job %d is cut to is no part of what it has", c.Job)
		}
		mark.Was = a.Berth.GPUs
		freed = s.fleet.Reshare(a, b, cut.GPUs)
	}
	j.Reason = cluster.Reason{Code: cluster.ReasonIdle, Detail: notices.Clip(c.Why, maxWhy)}
	b.Idle = &mark
	switch to {
	case cluster.IdleNone:
		j.Reason, b.Idle = cluster.Reason{}, nil
		was := mark.Was
		if a.Resize != nil { // it may have more by now
			was = nodes.Larger(was, a.Berth.GPUs)
		}
		if len(was) > 0 && !s.fleet.GiveBack(a, b, was) {
			b.Idle = &cluster.IdleMark{At: s.at.Now, Was: mark.Was} // others have it by now
		}
	case cluster.IdleEnded:
		j.Cancel = &cluster.CancelRequest{At: s.at.Now, Admin: true}
	}
	s.roll.Put(old, j)
	if to >= cluster.IdleWarned {
		s.roll.Announce(j, cluster.MailIdle, c.Why)
	}
	s.roll.Changed(command.Change{Job: j.ID, Released: freed})
	return command.Result{}
}

// resize changes the shares of a running attempt on its GPUs: to less, if its
// partition cuts jobs to what they use, or to more, up to what it was granted at
// its start. The leader's proposal is checked against the current state.
func (s *Steward) resize(c *logv1.ResizeAttempt) command.Result {
	old := s.roll.Jobs.Get(cluster.JobID(c.Job))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "job %d is gone", c.Job)
	}
	a, to := old.Live(), conv.ResizedShares(c)
	if a == nil || a.No != c.Attempt || a.State != cluster.JobRunning || len(a.Berth.GPUs) == 0 {
		return command.Refuse(cluster.CodeConflict, "attempt %d of job %d is not one that runs on GPUs", c.Attempt, c.Job)
	}
	j := old.Clone()
	b, mark := j.Last(), cluster.ResizeMark{At: s.at.Now}
	var freed []cluster.GPUID
	switch {
	case a.WasCut():
		mark = *a.Resize
		if !nodes.Smaller(a.Berth.GPUs, to) || !nodes.Within(to, mark.Was) {
			return command.Refuse(cluster.CodeInvalid, "what job %d would get is not more than it has, or more than it was granted", c.Job)
		}
		if !s.fleet.GiveBack(a, b, to) {
			return command.Refuse(cluster.CodeConflict, "others have what job %d was granted by now", c.Job)
		}
		if nodes.Within(mark.Was, to) {
			mark.Was = nil
		}
	case !old.MayResize() || cluster.ResizeOf(s.fleet.Partition(old.Spec.Partition), old.Spec) == cluster.ResizeOff:
		return command.Refuse(cluster.CodeConflict, "the shares of job %d may not be cut", c.Job)
	case !nodes.Smaller(to, a.Berth.GPUs):
		return command.Refuse(cluster.CodeInvalid, "what job %d would be cut to is no part of what it has", c.Job)
	default:
		mark.Was, mark.Cuts = a.Berth.GPUs, 1
		freed = s.fleet.Reshare(a, b, to)
	}
	b.Resize = &mark
	s.roll.Change(old, j, command.Change{Released: freed})
	return command.Result{}
}

// noteProgress records the progress of running attempts. Those that have ended
// meanwhile are ignored.
func (s *Steward) noteProgress(c *logv1.NoteProgress) {
	for _, n := range c.GetAttempts() {
		old := s.roll.Jobs.Get(cluster.JobID(n.GetJob()))
		if old == nil || old.Live() == nil || old.Live().No != n.GetAttempt() {
			continue
		}
		if old.Live().Started == 0 {
			s.noteWait(old, n.GetWaits())
			continue
		}
		if v := conv.ServingFromLog(n.GetServing()); v != nil && old.Spec.Service != nil && v.State > service.Starting && v.State <= service.Draining {
			v.Since, v.Why = s.at.Now, service.ClipWhy(v.Why)
			j := old.Clone()
			j.Last().Serving = v
			s.roll.Change(old, j, command.Change{})
			continue
		}
		p := conv.ProgressFromLog(n.GetProgress())
		if p == nil {
			continue
		}
		*p = p.Clip()
		p.At = min(max(p.At, old.Live().Started), max(s.at.Now, old.Live().Started))
		j := old.Clone()
		p.Seen = saw(j, p)
		j.Last().Progress, j.Revision = p, s.at.Index
		if cs := j.Last().Changes; len(cs) > 0 {
			cs = slices.Clone(cs)
			cs[len(cs)-1] = cs[len(cs)-1].Counted(p)
			j.Last().Changes = cs
		}
		s.roll.Change(old, j, command.Change{})
	}
}

// noteWait records what an attempt that does not run yet waits for on its node: its
// image.
func (s *Steward) noteWait(old *cluster.Job, n *logv1.Reason) {
	why := conv.ReasonFromLog(n)
	if why.Code != cluster.ReasonPulling || old.State != cluster.JobStarting || old.Reason == why ||
		old.Reason.Code != "" && old.Reason.Code != cluster.ReasonPulling {
		return
	}
	j := old.Clone()
	j.Reason, j.Revision = why, s.at.Index
	s.roll.Change(old, j, command.Change{})
}

// saw returns the state of a job's metric after now, nil for a job without one.
func saw(j *cluster.Job, now *cluster.Progress) *study.Seen {
	if j.Spec.Study == nil {
		return nil
	}
	var was *study.Seen
	if p := j.Last().Progress; p != nil {
		was = p.Seen
	}
	if now.Seen == nil {
		return was
	}
	return j.Spec.Study.Saw(j.ArrayTaskID, was, now.Step, *now.Seen)
}
