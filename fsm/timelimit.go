package fsm

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// limitTask gives a task, or those that wait with it, another time limit. Who
// waits leaves its queue and is looked at anew; of who runs the agent is told.
// mine returns the job to change once nothing refuses it.
func (s *State) limitTask(index uint64, old *cluster.Job, mine func() *cluster.Job, c *logv1.ChangeTasks) *cluster.Error {
	limit, now := time.Duration(c.TimeLimitUs)*time.Microsecond, old.Spec.TimeLimit
	switch {
	case c.TimeLimitUs < 0 || c.TimeLimitUs > int64(cluster.MaxTimeDays)*24*3600*1e6 || limit > 0 && limit < time.Second:
		return cluster.Errorf(cluster.CodeInvalid, "time: %s is outside 1 s to %d days", cluster.TimeText(limit), cluster.MaxTimeDays)
	case limit == now:
		return nil
	case !c.Admin && LongerLimit(limit, now):
		return cluster.Errorf(cluster.CodeDenied, "time: only administrators raise the time limit of a job that was submitted, here from %s of %s; lower it, or cancel the job and submit it again", limitText(now), old.Label())
	}
	old = mine()
	j := old.Clone()
	spec := *old.Spec
	spec.TimeLimit = limit
	j.Spec, j.OwnLimit, j.Revision = &spec, &limit, index
	if old.State.Waiting() {
		s.roll.Queues.Leave(j)
		j.State = cluster.JobPending
		if j.Reason = j.Barred(s.at.Now); j.Reason.Code == "" {
			j.Reason = s.fleet.WaitsFor(j.Spec)
		}
	}
	s.roll.Change(old, j, Change{New: old.State.Waiting()})
	return nil
}

// LongerLimit reports whether a time limit is above another; 0 is none.
func LongerLimit(a, b time.Duration) bool { return b != 0 && (a == 0 || a > b) }

func limitText(d time.Duration) string {
	if d > 0 {
		return cluster.TimeText(d)
	}
	return "none"
}
