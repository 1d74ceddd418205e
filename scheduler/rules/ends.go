package rules

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// Forever is later than any time.
const Forever = math.MaxInt64

// Quantile says how pessimistic an assumed run time is.
type Quantile uint8

const (
	Middle Quantile = iota // as predicted
	Tail                   // as at most nine runs in ten last
)

// EndsAt returns when an attempt is expected to end, and when at the latest: by its
// time limit if it has one. An attempt that outlives its estimate is given another
// quarter of its age, so that the sum never pretends it is gone. Progress that it
// reports takes precedence. A preempted attempt is gone when its grace period is
// over.
func EndsAt(j *cluster.Job, a *cluster.Attempt, now int64, pol *Policy) (expected, latest int64) {
	began := cmp.Or(int64(max(a.Started, a.Placed)), now)
	expected = began + DurationOf(j, &a.Estimate, pol)
	if rest, ok := a.Progress.Rest(); ok {
		expected = int64(a.Progress.At.Add(rest))
	}
	if expected <= now {
		expected = now + max(1_000_000, (now-began)/4)
	}
	latest = expected
	if l := j.Spec.TimeLimit; l > 0 {
		latest = max(began+l.Microseconds(), now+1_000_000)
		expected = min(expected, latest)
	}
	if a.Preempt != nil {
		leaves := leavesAt(j, a, now)
		expected, latest = min(expected, leaves), min(latest, leaves)
	}
	return expected, latest
}

// Assumed reports whether nothing says how long an attempt takes, neither its user
// nor earlier runs nor its progress, so that its end is the default assumption.
func Assumed(j *cluster.Job, a *cluster.Attempt) bool {
	_, progress := a.Progress.Rest()
	return a.Estimate.Duration <= 0 && j.Spec.Duration <= 0 && j.Spec.TimeLimit <= 0 && j.Spec.Service == nil && a.Preempt == nil && !progress
}

// leavesAt returns when a preempted attempt is gone: when its grace period is over.
func leavesAt(j *cluster.Job, a *cluster.Attempt, now int64) int64 {
	return max(now+time.Second.Microseconds(), int64(a.Preempt.At.Add(j.Spec.Checkpoint.Grace)))
}

// Stretched returns a duration at a quantile. Errors of predictions are about
// log-normal; 1.5 times is the ninth decile of a confident one (σ = 0.32), 3 times
// that of a guess (σ = 0.86). A time limit bounds both.
func Stretched(d int64, q Quantile, e *cluster.Estimate, limit time.Duration) int64 {
	if q == Tail {
		d = d / 1000 * (3000 - 3*min(1000, max(0, e.TimeSure()))/2)
	}
	if l := limit.Microseconds(); l > 0 {
		d = min(d, l)
	}
	return max(1, d)
}

// EndAt returns when a running attempt ends at a quantile; one that outlives it is
// given another part of its age. A preempted attempt is gone when its grace period
// is over.
func EndAt(j *cluster.Job, a *cluster.Attempt, q Quantile, now int64, pol *Policy) int64 {
	end := ownEnd(j, a, q, now, pol)
	if a.Preempt != nil {
		end = min(end, leavesAt(j, a, now))
	}
	return end
}

// ownEnd is EndAt for an attempt that is not preempted. The remaining time that it
// reports itself is as good as a confident prediction.
func ownEnd(j *cluster.Job, a *cluster.Attempt, q Quantile, now int64, pol *Policy) int64 {
	began := cmp.Or(int64(max(a.Started, a.Placed)), now)
	end := began + Stretched(DurationOf(j, &a.Estimate, pol), q, &a.Estimate, j.Spec.TimeLimit)
	if rest, ok := a.Progress.Rest(); ok {
		if q == Tail {
			rest += rest / 2
		}
		end = int64(a.Progress.At.Add(rest))
		if l := j.Spec.TimeLimit.Microseconds(); l > 0 {
			end = min(end, began+l)
		}
	}
	if end > now {
		if q == Tail { // nor before the middle, which may have passed and been postponed
			end = max(end, ownEnd(j, a, Middle, now, pol))
		}
		return end
	}
	more := max(1_000_000, (now-began)/4*int64(1+q))
	if l := j.Spec.TimeLimit; l > 0 {
		more = min(more, max(1_000_000, began+l.Microseconds()-now))
	}
	return now + more
}

// Overran reports whether j has outrun its prediction by more than the limit while
// it shared a GPU; shares is how many shares the GPU has now.
func Overran(j *cluster.Job, now int64, shares int, pol *Policy) bool {
	a := j.Live()
	if a == nil || pol.MaxSlowdownMilli <= 0 || shares < 2 && len(a.Neighbours) == 0 {
		return false
	}
	d := a.Estimate.Duration.Microseconds()
	if a.Started == 0 || d <= 0 || a.Estimate.TimeSure() < max(1, pol.MinConfidenceMilli) {
		return false
	}
	most := max(d/1000*pol.MaxSlowdownMilli, Stretched(d, Tail, &a.Estimate, 0))
	return now-int64(a.Started) > most
}

// OverranWords describes that for a GPU.
func OverranWords(j *cluster.Job, now int64, pol *Policy) string {
	a := j.Live()
	return fmt.Sprintf("job %d shared it and runs for %s, predicted %s alone; the limit is %s×, so nobody joins it",
		j.ID, say.About(now-int64(a.Started)), say.About(a.Estimate.Duration.Microseconds()), say.Times(pol.MaxSlowdownMilli))
}
