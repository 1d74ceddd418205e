package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
)

// Longest is first fit by the scheduler's own rules of placement with those
// first who are predicted to run longest, as list scheduling does for the
// makespan (Graham 1969). It asks the scheduler for one job after the other, so
// that it is for small fleets; nobody ages in it.
type Longest struct{ Policy scheduler.Policy }

// Name implements Planner.
func (l Longest) Name() string { return string(l.Policy.Mode) + "+longest" }

// Plan implements Planner.
func (l Longest) Plan(snap *cluster.Snapshot) cluster.Plan {
	plan := cluster.Plan{BaseIndex: snap.Index}
	jobs := slices.Clone(snap.Waiting)
	slices.SortStableFunc(jobs, func(a, b *cluster.Job) int {
		return cmp.Or(cmp.Compare(predicted(b), predicted(a)), cmp.Compare(a.ID, b.ID))
	})
	one := *snap
	one.Queues, one.Ledger = nil, snap.Ledger.Clone()
	for _, j := range jobs {
		one.Waiting = []*cluster.Job{j}
		p := scheduler.Schedule(&one, l.Policy)
		for i := range p.Starts {
			one.Ledger.Take(&p.Starts[i].Berth)
		}
		plan.Starts = append(plan.Starts, p.Starts...)
	}
	return plan
}

// predicted is the shortest predicted run time of a job over all types.
func predicted(j *cluster.Job) time.Duration {
	var best time.Duration
	for _, e := range j.Estimates {
		if e.Duration > 0 && (best == 0 || e.Duration < best) {
			best = e.Duration
		}
	}
	return best
}
