package attempts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/learned"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// report takes over what an agent says of an attempt. What is not about a
// live attempt on that node changes nothing, however often it is said.
func (s *Steward) report(r *logv1.ReportAttempt) command.Result {
	old := s.roll.Jobs.Get(cluster.JobID(r.Job))
	if old == nil {
		return command.Result{Released: true}
	}
	k := slices.IndexFunc(old.Attempts, func(a cluster.Attempt) bool { return a.No == r.Attempt })
	rank := -1
	if k >= 0 {
		rank = old.Attempts[k].Rank(cluster.NodeID(r.Node))
	}
	if rank < 0 {
		return command.Refuse(cluster.CodeDenied, "attempt %d of job %d is not on node %s", r.Attempt, r.Job, r.Node)
	}
	a := &old.Attempts[k]
	to := cluster.JobState(min(r.State, 255))
	switch {
	case uint64(a.TokenOf(rank)) != r.Token:
		return command.Refuse(cluster.CodeDenied, "attempt %d of job %d has another token", r.Attempt, r.Job)
	case a.State.Terminal():
		return command.Result{Released: true}
	case to == cluster.JobUnreachable || !to.Live() && !to.Terminal():
		return command.Refuse(cluster.CodeInvalid, "an attempt cannot be in state %d", r.State)
	case r.Exit != nil && (r.Exit.Code < 0 || r.Exit.Code > 255 || r.Exit.Signal < 0 || r.Exit.Signal > 64):
		return command.Refuse(cluster.CodeInvalid, "exit code %d, signal %d are out of range", r.Exit.Code, r.Exit.Signal)
	}
	if a.Gang != nil {
		return s.reportPart(old, rank, to, r)
	}
	j := old.Clone()
	if to.Terminal() {
		a := j.Last()
		s.ended(a, r)
		a.Power = s.powered(a.Power, &a.Berth, r)
		a.Search = s.searched(a.Search, r)
		s.finish(old, j, to)
		return command.Result{Released: true, Absurd: !s.learn(j, j.Last(), r)}
	}
	s.rose(old, j, to, r)
	return command.Result{}
}

// rose records that an attempt came further. States only go up, so that
// reports may be repeated and come late: a process that was seen running is
// never starting again.
func (s *Steward) rose(old, j *cluster.Job, to cluster.JobState, r *logv1.ReportAttempt) {
	a := j.Last()
	if s.lingers(old, j, to, r) || s.capped(old, j, to, r) {
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
	a.Power = s.powered(a.Power, &a.Berth, r)
	a.Search = s.searched(a.Search, r)
	a.State, j.State, j.Reason = to, to, cluster.Reason{}
	if a.Preempt != nil { // a node that was silent came back
		j.Reason = a.Preempt.Reason()
	}
	s.whyCompleting(j, r)
	s.roll.Change(old, j, command.Change{})
}

// whyCompleting takes over what an agent says of an attempt whose process ended
// and that still holds its GPUs, or that cannot be ended: how it ended, which
// its user may know at once, and what it waits for.
func (s *Steward) whyCompleting(j *cluster.Job, r *logv1.ReportAttempt) {
	a := j.Last()
	if s.at.Version < command.HealthVersion || a.State != cluster.JobCompleting {
		return
	}
	if r.Exit != nil {
		a.Exit = &cluster.Exit{Code: r.Exit.Code, Signal: r.Exit.Signal}
	}
	if why := conv.ReasonFromLog(r.Reason); why.Code != "" {
		j.Reason = why
	}
}

// lingers takes over a new reason of an attempt that is completing already. It
// reports whether that was all there is.
func (s *Steward) lingers(old, j *cluster.Job, to cluster.JobState, r *logv1.ReportAttempt) bool {
	if s.at.Version < command.HealthVersion || to != cluster.JobCompleting || j.Last().State != to || r.Reason.GetCode() == "" {
		return false
	}
	s.whyCompleting(j, r)
	if j.Reason == old.Reason {
		return true
	}
	s.roll.Change(old, j, command.Change{})
	return true
}

// ended takes over how an attempt ended.
func (s *Steward) ended(a *cluster.Attempt, r *logv1.ReportAttempt) {
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

// powered is what was done to the power and clock of cards, with what an agent says of
// those of a berth. What it says of others, or beyond what there can be, is passed over.
func (s *Steward) powered(was []cluster.CardPower, b *cluster.Berth, r *logv1.ReportAttempt) []cluster.CardPower {
	if s.at.Version < command.PowerVersion || len(r.Power) == 0 {
		return was
	}
	said := conv.CardPowerFromLog(r.Power)
	now := slices.DeleteFunc(slices.Clone(was), func(p cluster.CardPower) bool {
		return slices.ContainsFunc(b.GPUs, func(g cluster.GPUShare) bool { return g.GPU == p.GPU })
	})
	for _, g := range b.GPUs {
		i := slices.IndexFunc(said, func(p cluster.CardPower) bool { return p.GPU == g.GPU })
		if i < 0 {
			continue
		}
		if p := said[i]; p.CapW >= 0 && p.CapW <= cluster.MaxPowerCapW && p.ClockMHz >= 0 && p.ClockMHz <= cluster.MaxGPUClockMHz && len(p.Why) <= cluster.MaxPowerWhy {
			p.GPU = g.GPU // one text for both
			now = append(now, p)
		}
	}
	return now
}

// searched is what came of the search for a power cap, as an agent says it: what cannot be
// is passed over.
func (s *Steward) searched(was *cluster.CapSearch, r *logv1.ReportAttempt) *cluster.CapSearch {
	said := conv.CapSearchFromLog(r.Search)
	if s.at.Version < command.PowerVersion || said == nil || !said.Sane() {
		return was
	}
	return said
}

// capped takes over what an attempt that runs on has found of its power cap. It reports
// whether that was all there is.
func (s *Steward) capped(old, j *cluster.Job, to cluster.JobState, r *logv1.ReportAttempt) bool {
	a := j.Last()
	if to != cluster.JobRunning || a.State != to || r.Search == nil {
		return false
	}
	found := s.searched(a.Search, r)
	if found == a.Search {
		return false
	}
	a.Search, a.Power = found, s.powered(a.Power, &a.Berth, r)
	s.roll.Change(old, j, command.Change{})
	return true
}

// clamp brings a node's clock between earliest and now; 0 stays unknown.
func (s *Steward) clamp(us int64, earliest cluster.Time) cluster.Time {
	if us <= 0 {
		return 0
	}
	return min(max(cluster.Time(us), earliest), max(s.at.Now, earliest))
}

// learn keeps what an attempt taught that has just ended. It returns false when the
// figures cannot be.
func (s *Steward) learn(j *cluster.Job, a *cluster.Attempt, r *logv1.ReportAttempt) bool {
	run := learned.Run{Job: j, Attempt: a, Report: r, Company: func() []learned.Company { return s.companyOf(a) }}
	if len(a.Berth.GPUs) > 0 {
		run.Card = s.fleet.Card(a.Berth.Node, a.Berth.GPUs[0].GPU)
	}
	return s.learned.Learn(*s.at, run)
}

// companyOf says with whom an attempt that has just ended shared its GPUs, and
// how long: nobody when one of them is not known any more, since the others
// would then be blamed for what it did.
func (s *Steward) companyOf(a *cluster.Attempt) []learned.Company {
	if len(a.Neighbours) == 0 || len(a.Neighbours) >= cluster.MaxNeighbours {
		return nil
	}
	began := max(a.Started, a.Placed)
	var out []learned.Company
	for _, id := range a.Neighbours {
		j := s.roll.Jobs.Get(id)
		if j == nil {
			return nil
		}
		for i := range j.Attempts {
			b := &j.Attempts[i]
			if !sharesGPU(a, b) {
				continue
			}
			to := a.Ended
			if b.State.Terminal() {
				to = min(to, b.Ended)
			}
			if overlap := to.Sub(max(began, b.Started, b.Placed)); overlap > 0 {
				k := slices.IndexFunc(out, func(c learned.Company) bool { return c.Signature == j.Spec.Signature })
				if k < 0 {
					k = len(out)
					out = append(out, learned.Company{Signature: j.Spec.Signature})
				}
				out[k].Overlap += overlap
				out[k].Milli = b.Estimate.Milli
			}
		}
	}
	slices.SortFunc(out, func(a, b learned.Company) int {
		return cmp.Or(cmp.Compare(b.Overlap, a.Overlap), strings.Compare(a.Signature, b.Signature))
	})
	return slices.Clip(out[:min(len(out), learned.MaxCompany)])
}

func sharesGPU(a, b *cluster.Attempt) bool {
	for _, x := range a.Berths() {
		for _, y := range b.Berths() {
			if x.Node == y.Node && slices.ContainsFunc(x.GPUs, func(g cluster.GPUShare) bool {
				return slices.ContainsFunc(y.GPUs, func(h cluster.GPUShare) bool { return g.GPU == h.GPU })
			}) {
				return true
			}
		}
	}
	return false
}
