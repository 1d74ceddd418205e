package attempts

import (
	"maps"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

// maxAttempts is how many times a job is tried, maxNeverBegan how many attempts that
// never began, for an unsound GPU, do not count, and maxDisturbed how often it runs
// again for what others on its GPU did.
const (
	maxAttempts   = 100
	maxNeverBegan = 20
	maxDisturbed  = 3
)

// again decides whether a job runs once more, and with what. A lost node is
// final unless the job allows it.
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
	case a.State == cluster.JobNodeFail:
		return j.Spec.RequeueOnLoss || a.Preempt != nil && a.Preempt.Requeue
	case a.State == cluster.JobOutOfMemory:
		return s.againLarger(j, a)
	}
	return false
}

// againGang reports whether a gang that was given up before it started is tried
// once more: nothing of it ran.
func againGang(j *cluster.Job, a *cluster.Attempt) bool {
	return a.Gang != nil && !a.Gang.Go && (a.State == cluster.JobFailed || a.State == cluster.JobNodeFail) && j.Undone() < cluster.MaxUndone
}

// count is how many attempts of j are of a kind.
func count(j *cluster.Job, is func(*cluster.Attempt) bool) (n int) {
	for i := range j.Attempts {
		if is(&j.Attempts[i]) {
			n++
		}
	}
	return n
}

// counts reports whether an attempt is a try: those that made room are none.
func counts(a *cluster.Attempt) bool { return a.State != cluster.JobPreempted || a.Preempt == nil }

// unsoundEnd reports whether an attempt ended before it began, since its GPU was
// found to be unsound.
func unsoundEnd(a *cluster.Attempt) bool {
	return a.State == cluster.JobNodeFail && a.Reason.Code == cluster.ReasonGPUCheck && a.Started == 0
}

// disturbed reports whether others on its GPU ended an attempt.
func disturbed(a *cluster.Attempt) bool { return a.Reason.Code == cluster.ReasonGPUNeighbour }

// againLarger settles an out-of-memory by the ladder that holds for the entry.
func (s *Steward) againLarger(j *cluster.Job, a *cluster.Attempt) bool {
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
