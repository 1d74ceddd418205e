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

// report records an agent's report on an attempt. Reports that are not about a live
// attempt on that node change nothing, however often they are repeated.
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

// rose records progress of an attempt. States only rise, so that reports may be
// repeated or late: a process that was seen running is never starting again.
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
	if a.Preempt != nil { // a silent node came back
		j.Reason = a.Preempt.Reason()
	}
	s.whyCompleting(j, r)
	s.roll.Change(old, j, command.Change{})
}

// whyCompleting records what an agent says of an attempt whose process ended and
// that still holds its GPUs, or that cannot be killed: how it ended, which its user
// may know at once, and what it waits for.
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

// lingers records a new reason of an attempt that is already completing, or is being
// started. It reports whether the report held nothing else.
func (s *Steward) lingers(old, j *cluster.Job, to cluster.JobState, r *logv1.ReportAttempt) bool {
	starting := to == cluster.JobStarting && s.at.Version >= command.StartingVersion && j.Last().Preempt == nil
	if s.at.Version < command.HealthVersion || to != cluster.JobCompleting && !starting || j.Last().State != to || r.Reason.GetCode() == "" {
		return false
	}
	if starting {
		j.Reason = conv.ReasonFromLog(r.Reason)
	}
	s.whyCompleting(j, r)
	if j.Reason == old.Reason {
		return true
	}
	s.roll.Change(old, j, command.Change{})
	return true
}

// ended records how an attempt ended.
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
	if s.at.Version < command.CheckedVersion { // old coordinators do not read it
		a.Usage.PowerW, a.Usage.Steps = 0, 0
	}
	if a.Usage.Profile = learned.SaneProfile(a.Usage.Profile, a); s.at.Version < command.ProfileVersion {
		a.Usage.Profile = nil
	}
	a.Reason = conv.ReasonFromLog(r.Reason)
}

// powered returns the power and clock changes so far with those that an agent
// reports for the GPUs of a berth. Reports of other GPUs, or out of bounds, are
// ignored.
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
			p.GPU = g.GPU // one string for both
			now = append(now, p)
		}
	}
	return now
}

// searched returns the result of the search for a power cap as an agent reports it;
// impossible results are ignored.
func (s *Steward) searched(was *cluster.CapSearch, r *logv1.ReportAttempt) *cluster.CapSearch {
	said := conv.CapSearchFromLog(r.Search)
	if s.at.Version < command.PowerVersion || said == nil || !said.Sane() {
		return was
	}
	return said
}

// capped records what a running attempt has found of its power cap. It reports
// whether the report held nothing else.
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

// clamp limits a node's clock to the range from earliest to now; 0 stays unknown.
func (s *Steward) clamp(us int64, earliest cluster.Time) cluster.Time {
	if us <= 0 {
		return 0
	}
	return min(max(cluster.Time(us), earliest), max(s.at.Now, earliest))
}

// learn keeps a sample of an attempt that has just ended. It returns false if the
// figures are impossible.
func (s *Steward) learn(j *cluster.Job, a *cluster.Attempt, r *logv1.ReportAttempt) bool {
	run := learned.Run{Job: j, Attempt: a, Report: r, Company: func() []learned.Company { return s.companyOf(a) }}
	if len(a.Berth.GPUs) > 0 {
		run.Card = s.fleet.Card(a.Berth.Node, a.Berth.GPUs[0].GPU)
		if n := s.fleet.Node(a.Berth.Node); n != nil {
			run.Driver = n.Driver
		}
	}
	return s.learned.Learn(*s.at, run)
}

// companyOf returns the jobs with which a just ended attempt shared its GPUs, and
// for how long: none if one of them is no longer known, since the others would then
// be blamed for what it did.
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
