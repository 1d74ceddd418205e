package scheduler

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/explain"
)

// Explain says why job waits, worst first, from every GPU of the snapshot. It
// is for a user who asks about one job; Schedule never calls it.
func Explain(snap *cluster.Snapshot, job *cluster.Job, pol Policy) []explain.Explanation {
	return explain.Why(snap, job, pol, explain.Passes{Schedule: Schedule, Before: spanBefore})
}

// ForecastStart finds the place where job is likely to start, and when: that of
// its queue, or the place that is free first. ok is false when no node that
// takes jobs could ever run it. Like Explain it is for a user who asks.
func ForecastStart(snap *cluster.Snapshot, job *cluster.Job, pol Policy) (f explain.Forecast, ok bool) {
	return explain.When(snap, job, pol, explain.Passes{Schedule: Schedule, Before: spanBefore})
}
