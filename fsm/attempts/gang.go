package attempts

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/learned"
	"github.com/berth-scheduler/berth/fsm/notices"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// newGang returns the gang that a start on several nodes adds to its attempt, nil
// for a job that stays on one node.
func (s *starter) newGang(st *dispatch.Start, spec *cluster.Spec) *cluster.Gang {
	if len(st.Rest) == 0 && !spec.InPlace {
		return nil
	}
	g := &cluster.Gang{Rest: st.Rest}
	for _, b := range st.Berths() {
		s.texts.Berth(b)
		g.Parts = append(g.Parts, cluster.Part{BootID: s.fleet.Node(b.Node).BootID, State: cluster.JobStarting})
	}
	return g
}

// gangOf returns a copy of j whose gang may be changed in place, and that gang.
func gangOf(old *cluster.Job) (*cluster.Job, *cluster.Attempt, *cluster.Gang) {
	j := old.Clone()
	a := j.Last()
	a.Gang = a.Gang.Clone()
	return j, a, a.Gang
}

// reportPart records an agent's report on its node's part of the live attempt of
// old.
func (s *Steward) reportPart(old *cluster.Job, rank int, to cluster.JobState, r *logv1.ReportAttempt) command.Result {
	if old.Last().Gang.Parts[rank].State.Terminal() {
		return command.Result{Released: true}
	}
	if to.Terminal() {
		return s.partReported(old, rank, to, r)
	}
	j, a, g := gangOf(old)
	p := &g.Parts[rank]
	if r.Ready && !p.Ready && to == cluster.JobStarting && p.Started == 0 {
		p.Ready = true
	} else if p.State != cluster.JobUnreachable && !cluster.CanMove(p.State, to) || to == cluster.JobStarting && p.Started != 0 {
		return command.Result{}
	}
	if p.Started == 0 && to != cluster.JobStarting {
		if p.Started = s.clamp(r.StartedUs, a.Placed); p.Started == 0 {
			p.Started = s.at.Now
		}
		if a.Started == 0 {
			a.Started, j.Started = p.Started, p.Started
		}
	}
	a.Power = s.powered(a.Power, a.BerthAt(rank), r)
	p.State = to
	p.Ready = p.Ready || to != cluster.JobStarting
	if g.Waits() == 0 && !g.Stopping() && j.Cancel == nil && a.Preempt == nil {
		g.Go = true
	}
	s.putGang(old, j, nil)
	return command.Result{}
}

// partReported records how one part ended.
func (s *Steward) partReported(old *cluster.Job, rank int, to cluster.JobState, r *logv1.ReportAttempt) command.Result {
	was := old.Last()
	one := cluster.Attempt{Placed: was.Placed, Started: was.Gang.Parts[rank].Started, State: to, Neighbours: was.Neighbours}
	s.ended(&one, r)
	one.Power = s.powered(was.Power, was.BerthAt(rank), r)
	var card *cluster.GPU
	if b := was.BerthAt(rank); len(b.GPUs) > 0 {
		card = s.fleet.Card(b.Node, b.GPUs[0].GPU)
	}
	bad := one.Usage != (cluster.Usage{}) && learned.Absurd(r, &one, card)
	if bad {
		one.Usage = cluster.Usage{}
	}
	s.endPart(old, rank, &one)
	return command.Result{Released: true, Absurd: bad}
}

// endPart ends the part of one node and frees what it holds, whatever the others
// do. The first part that fails decides how the attempt ends, and the others are
// told to end too; the attempt ends with the last one. one says how the part ended.
func (s *Steward) endPart(old *cluster.Job, rank int, one *cluster.Attempt) {
	j, a, g := gangOf(old)
	p := &g.Parts[rank]
	p.State, p.Started, p.Ended, p.Exit, p.Usage = one.State, one.Started, one.Ended, one.Exit, one.Usage
	if one.Power != nil {
		a.Power = one.Power
	}
	if p.Reason = one.Reason; p.Reason.Code == "" && p.Left > 0 && one.State != cluster.JobCompleted {
		p.Reason = cluster.Reason{Code: cluster.ReasonPreempted, Detail: "it was given up"}
	} else if p.Reason.Code == "" {
		p.Reason = defaultReason(one)
	}
	if a.Started == 0 && p.Started != 0 {
		a.Started, j.Started = p.Started, p.Started
	}
	if failing(j, a, p) && !s.departs(j, a, rank) {
		g.First = rank + 1
	}
	for i := range g.Parts {
		if g.Parts[i].State.Live() {
			s.putGang(old, j, s.fleet.ReleaseBerth(old.ID, a.BerthAt(rank)))
			return
		}
	}
	to := decide(a)
	s.finish(old, j, to)
	if a := j.Last(); a.Usage != (cluster.Usage{}) {
		s.learn(j, a, &logv1.ReportAttempt{}) // each part's figures were used already
	}
}

// failing reports whether the end of a part ends the whole gang: it neither
// completed nor was asked to end.
func failing(j *cluster.Job, a *cluster.Attempt, p *cluster.Part) bool {
	switch {
	case p.Left > 0, p.Token > 0 && a.Gang.Parts[0].State == cluster.JobCompleted: // it was told to end, or joined too late
		return false
	case p.State == cluster.JobCompleted, a.Gang.Stopping(), j.Cancel != nil && p.State == cluster.JobCancelled:
		return false
	case a.Preempt != nil && (p.State == cluster.JobPreempted || p.State == cluster.JobCancelled):
		return false
	}
	return true
}

// decide derives the end of the attempt from the ends of all parts, and returns its
// state.
func decide(a *cluster.Attempt) cluster.JobState {
	g := a.Gang
	by := max(0, g.First-1)
	to := g.Parts[by].State
	madeRoom := false
	for i := range g.Parts {
		p := &g.Parts[i]
		a.Ended = max(a.Ended, p.Ended)
		mergeUsage(&a.Usage, &p.Usage)
		madeRoom = madeRoom || a.Stays(i) && (p.State == cluster.JobPreempted || a.Preempt != nil && p.State == cluster.JobCancelled)
	}
	a.Usage.Profile = g.Parts[0].Usage.Profile
	if n := int64(len(g.Parts)); n > 1 {
		a.Usage.Milli /= n
		a.Usage.PowerW /= n
	}
	a.Exit, a.Reason = g.Parts[by].Exit, g.Parts[by].Reason
	switch {
	case g.First > 0:
		if a.Reason.Code != "" {
			a.Reason.Detail = fmt.Sprintf("node %s: %s", a.BerthAt(by).Node, a.Reason.Detail)
		}
	case g.Undo.Code != "":
		to, a.Exit, a.Reason = cluster.JobFailed, nil, g.Undo
	case madeRoom:
		to = cluster.JobPreempted
	}
	return to
}

// mergeUsage merges the measurements of one node: maxima of memory and cores, sums
// of means.
func mergeUsage(to, u *cluster.Usage) {
	to.GPUMemPeakMiB = max(to.GPUMemPeakMiB, u.GPUMemPeakMiB)
	to.HostMemPeakMiB = max(to.HostMemPeakMiB, u.HostMemPeakMiB)
	to.CPUMilli = max(to.CPUMilli, u.CPUMilli)
	to.Duration = max(to.Duration, u.Duration)
	to.Steps = max(to.Steps, u.Steps)
	to.GPUOOM = to.GPUOOM || u.GPUOOM
	to.Milli += u.Milli
	to.PowerW += u.PowerW
}

// putGang stores j, with a changed part in its gang, in the state that follows from
// all parts.
func (s *Steward) putGang(old, j *cluster.Job, freed []cluster.GPUID) {
	a := j.Last()
	a.State = jobs.GangState(a.Gang)
	j.State = a.State
	switch g := a.Gang; {
	case a.State == cluster.JobUnreachable:
		j.Reason = old.Reason
	case g.First > 0:
		r := g.Parts[g.First-1].Reason
		j.Reason = cluster.Reason{Code: r.Code, Detail: fmt.Sprintf("node %s: %s; the other nodes end", a.BerthAt(g.First-1).Node, r.Detail)}
	case g.Undo.Code != "":
		j.Reason = g.Undo
	case a.Preempt != nil:
		j.Reason = a.Preempt.Reason()
	default:
		j.Reason = cluster.Reason{}
	}
	s.roll.Change(old, j, command.Change{Released: freed})
}

// undoGang abandons an attempt because not all of its nodes became ready. None of
// its processes was started, so its job may be requeued.
func (s *Steward) undoGang(c *logv1.UndoGang) command.Result {
	old := s.roll.Jobs.Get(cluster.JobID(c.Job))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "job %d is not known", c.Job)
	}
	a := old.Live()
	switch {
	case a == nil || a.No != c.Attempt || a.Gang == nil:
		return command.Refuse(cluster.CodeConflict, "attempt %d of job %d is not a live one on several nodes", c.Attempt, c.Job)
	case a.Gang.Go:
		return command.Refuse(cluster.CodeConflict, "attempt %d of job %d has started", c.Attempt, c.Job)
	case a.Gang.Stopping():
		return command.Result{}
	}
	j, _, g := gangOf(old)
	g.Undo = conv.ReasonFromLog(&logv1.Reason{Code: string(cluster.ReasonNotReady), Detail: notices.Clip(c.Why, maxWhy)})
	s.putGang(old, j, nil)
	return command.Result{}
}
