package site

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// withinLimits removes what quotas do not allow from the plan of a policy that
// knows no quotas. Jobs that no quota lets start now were not shown to it.
func withinLimits(snap *dispatch.Snapshot, plan *dispatch.Plan) {
	if snap.Limits == nil {
		return
	}
	jobs := make(map[cluster.JobID]*cluster.Job, len(snap.Waiting))
	for _, j := range snap.Waiting {
		jobs[j.ID] = j
	}
	limits, keep := snap.Limits.Clone(), plan.Starts[:0]
	for i := range plan.Starts {
		st := &plan.Starts[i]
		j, milli := jobs[st.Job], snap.Ledger.HeldMilli(st.AllGPUs())
		if j == nil {
			continue
		}
		if r := limits.MayStart(accounting.WhoOf(j), milli); r.Code != "" {
			plan.Unplaced = append(plan.Unplaced, dispatch.Unplaced{Job: j.ID, Reason: r})
			continue
		}
		limits.Count(accounting.HolderOf(j), 0, 1, milli)
		keep = append(keep, *st)
	}
	plan.Starts = keep
}

// startable leaves out jobs that wait for a quota, except as many as a quota has
// room for: of each holder in order of ids.
func startable(snap *dispatch.Snapshot) (waiting []*cluster.Job, held []dispatch.Unplaced) {
	if snap.Limits == nil {
		return snap.Waiting, nil
	}
	limits := snap.Limits.Clone()
	for _, j := range snap.Waiting {
		least := int64(0)
		if j.Spec.GPUs > 0 {
			least = int64(j.Spec.GPUs*j.Spec.NodeCount()) * max(1, j.Spec.GPUMilli)
		}
		if r := limits.MayStart(accounting.WhoOf(j), least); r.Code != "" {
			held = append(held, dispatch.Unplaced{Job: j.ID, Reason: r})
			continue
		}
		limits.Count(accounting.HolderOf(j), 0, 1, least)
		waiting = append(waiting, j)
	}
	return waiting, held
}

// planWithin asks a policy that knows no quotas.
func (c *Chosen) planWithin(snap *dispatch.Snapshot, kept []policies.Kept) (dispatch.Plan, []policies.Kept) {
	if snap.Limits == nil {
		return c.planKnown(snap, kept)
	}
	less := *snap
	var held []dispatch.Unplaced
	less.Waiting, held = startable(snap)
	plan, kept := c.planKnown(&less, kept)
	withinLimits(snap, &plan)
	plan.Unplaced = append(plan.Unplaced, held...)
	return plan, kept
}

// LimitReason says which quota keeps a job from starting, the zero Reason if none
// does.
func LimitReason(snap *dispatch.Snapshot, j *cluster.Job, nodes []*cluster.Node, pol scheduler.Policy) cluster.Reason {
	if snap.Limits == nil {
		return cluster.Reason{}
	}
	return snap.Limits.MayStart(accounting.WhoOf(j), rules.LeastMilli(nodes, j, pol))
}
