package rules

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// A preempted job continues from where it was, so what is left of it decides its
// turn. How long it ran is all that is known of a job without a prediction: what
// has lasted so long lasts as long again (Gott, Nature 1993), and the order becomes
// that of least attained service (Tiresias, NSDI 2019).

// MaxSpread bounds what one job adds, so that sums stay far from overflow.
const MaxSpread = 1e12

// PromoteAfter is how many times as long as it ran a job waits before its service
// is forgotten and it goes first again: the knob P of Tiresias, section 3.3.
const PromoteAfter = 8

// Had returns how long a job ran in attempts that it continues from: in all, and
// since it was last promoted. It is computed from the attempts, so nothing is
// stored.
func Had(j *cluster.Job, now int64, least time.Duration) (all, since int64) {
	idle := int64(j.Submitted)
	promote := func(until int64) {
		if since > 0 && until-idle >= max(PromoteAfter*since, least.Microseconds()) {
			since = 0
		}
	}
	for i := range j.Attempts {
		a := &j.Attempts[i]
		if a.Started == 0 || a.State != cluster.JobPreempted && !a.State.Live() {
			continue
		}
		promote(int64(a.Placed))
		ran := a.Ran(cluster.Time(now)).Microseconds()
		all, since, idle = all+ran, since+ran, int64(a.Ended)
	}
	if j.Live() == nil {
		promote(now)
	}
	return all, since
}

// GoesOn reports whether a waiting job continues from where it was, so that what is
// left of it decides its turn.
func (pol *Policy) GoesOn(j *cluster.Job) bool {
	return pol.YieldAfter > 0 && len(j.Attempts) > 0 && j.Spec.Checkpoint.Set()
}

// LeftOf returns how much longer a job is expected to run on a type of GPU, in
// microseconds. While it runs, the progress it reports counts; once it waits it
// does not, since no job should go first or take a place by a lie.
func LeftOf(j *cluster.Job, e *cluster.Estimate, now int64, pol *Policy) int64 {
	all, since := Had(j, now, pol.FIFOAge)
	if a := j.Live(); a != nil {
		if rest, ok := a.Progress.Rest(); ok {
			return max(rest-cluster.Time(now).Sub(a.Progress.At), time.Second).Microseconds()
		}
	}
	d := DurationOf(j, e, pol)
	if (e.Duration > 0 || j.Spec.Duration > 0) && d > all {
		return d - all
	}
	return max(d, since)
}

// YieldCost returns what preemption costs a job, in microseconds: as long as it
// took to save its state last time, or else may take, plus a minute to restart.
func YieldCost(j *cluster.Job) int64 {
	save := j.Spec.Checkpoint.Grace
	for i := range j.Attempts {
		if a := &j.Attempts[i]; a.Preempt != nil && a.State == cluster.JobPreempted {
			save = a.Ended.Sub(a.Preempt.At)
		}
	}
	return (save + time.Minute).Microseconds()
}
