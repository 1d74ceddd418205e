package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxNeverBegan is how many attempts that never began, for an unsound GPU, do
// not count against maxAttempts.
const maxNeverBegan = 20

func (s *State) neverBegan(j *cluster.Job) int {
	n := 0
	for i := range j.Attempts {
		if s.at.Version >= command.HealthVersion && unsoundEnd(&j.Attempts[i]) && n < maxNeverBegan {
			n++
		}
	}
	return n
}

// unsoundEnd reports whether an attempt ended before it began, since its GPU was
// found to be unsound.
func unsoundEnd(a *cluster.Attempt) bool {
	return a.State == cluster.JobNodeFail && a.Reason.Code == cluster.ReasonGPUCheck && a.Started == 0
}

// whyCompleting takes over what an agent says of an attempt whose process ended
// and that still holds its GPUs, or that cannot be ended: how it ended, which
// its user may know at once, and what it waits for.
func (s *State) whyCompleting(j *cluster.Job, r *logv1.ReportAttempt) {
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
func (s *State) lingers(old, j *cluster.Job, to cluster.JobState, r *logv1.ReportAttempt) bool {
	if s.at.Version < command.HealthVersion || to != cluster.JobCompleting || j.Last().State != to || r.Reason.GetCode() == "" {
		return false
	}
	s.whyCompleting(j, r)
	if j.Reason == old.Reason {
		return true
	}
	s.roll.Change(old, j, Change{})
	return true
}
