package site

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/deadline"
	"github.com/berth-scheduler/berth/scheduler/elastic"
)

// shared returns the snapshot with the shares that the deadlines of jobs of elastic
// size need.
func (c *Chosen) shared(snap *dispatch.Snapshot) *dispatch.Snapshot {
	shares := deadline.Shares(snap, c.Policy)
	if shares == nil {
		return snap
	}
	out := *snap
	out.Shares = shares
	return &out
}

// Shared returns a waiting job as passes see it: one of elastic size with a deadline
// wants as many of its units as that needs.
func Shared(snap *dispatch.Snapshot, j *cluster.Job, s *Site) *cluster.Job {
	if j.Spec.Deadline == 0 || !j.Spec.Elastic() || !j.State.Waiting() {
		return j
	}
	own := *Within(snap, PartitionOf(snap, j))
	if !slices.ContainsFunc(own.Waiting, func(o *cluster.Job) bool { return o.ID == j.ID }) {
		own.Waiting = append(slices.Clone(own.Waiting), j)
	}
	own = *s.Of(j.Spec.Partition).shared(&own)
	own.Waiting = []*cluster.Job{j}
	n, ok := own.Shares[j.ID]
	if !ok {
		return j
	}
	return elastic.Sized(&own, map[cluster.JobID]elastic.Size{j.ID: {Units: n}}).Waiting[0]
}

// tellShares says of starts by how much a deadline decided their size.
func tellShares(plan *dispatch.Plan, snap *dispatch.Snapshot) {
	for i := range plan.Starts {
		st := &plan.Starts[i]
		k := slices.IndexFunc(snap.Waiting, func(j *cluster.Job) bool { return j.ID == st.Job })
		if n, ok := snap.Shares[st.Job]; ok && k >= 0 {
			st.Why += "; its deadline needs " + deadline.Units(snap.Waiting[k], n)
		}
	}
}
