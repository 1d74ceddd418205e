package site

import (
	"fmt"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// Chosen is how jobs are placed in a partition or cluster.
type Chosen struct {
	Policy scheduler.Policy
	// Planner runs the passes instead of the scheduler's own, nil for those.
	Planner policies.Policy
	// Elastic is how jobs of elastic size are sized.
	Elastic elastic.Rules
}

// Name returns the policy's name in configurations.
func (c *Chosen) Name() string {
	if c.Planner != nil {
		return c.Planner.Name()
	}
	return string(c.Policy.Mode)
}

// within returns what was chosen, with the settings of a partition; nil for none.
func (c *Chosen) within(p *cluster.Partition) *Chosen {
	if p == nil || p.Preempt != cluster.PreemptOff {
		return c
	}
	out := *c
	out.Policy.YieldAfter = 0
	return &out
}

// pass runs one pass over a snapshot, in which replicas of services keep apart if
// there is room for that.
func (c *Chosen) pass(snap *dispatch.Snapshot) dispatch.Plan {
	for more := range spreads {
		apart := spread(snap, more)
		if apart == nil {
			break
		}
		if plan := c.passElastic(apart); startsAll(apart, &plan) {
			return plan
		}
	}
	return c.passElastic(snap)
}

// passElastic runs a pass in which elastic jobs want as many GPUs as they can start
// with.
func (c *Chosen) passElastic(snap *dispatch.Snapshot) dispatch.Plan {
	snap = c.shared(snap)
	for sizes := c.Elastic.Sizes(snap); len(sizes) > 0; {
		if plan := c.passSized(elastic.Sized(snap, sizes)); !elastic.Less(snap, sizes, &plan) {
			tellShares(&plan, snap)
			return plan
		}
	}
	return c.passSized(snap)
}

func (c *Chosen) passSized(snap *dispatch.Snapshot) dispatch.Plan {
	if c.Planner != nil {
		return planApart(snap, c.planWithin)
	}
	return scheduler.Schedule(snap, c.Policy)
}

// planKnown asks the policy about the jobs that it can handle: jobs that want nodes
// exclusively are kept from one that manages cells for tenants, and get that
// reason.
func (c *Chosen) planKnown(snap *dispatch.Snapshot, kept []policies.Kept) (dispatch.Plan, []policies.Kept) {
	if c.Tenancy() == nil {
		return c.ask(snap, kept)
	}
	less := *snap
	less.Waiting = nil
	var told []dispatch.Unplaced
	for _, j := range snap.Waiting {
		if r := c.SpanReason(j); r.Code != "" {
			told = append(told, dispatch.Unplaced{Job: j.ID, Reason: r})
		} else {
			less.Waiting = append(less.Waiting, j)
		}
	}
	plan, kept := c.planTenants(&less, kept)
	plan.Unplaced = append(plan.Unplaced, told...)
	return plan, kept
}

// ask lets the policy plan around what earlier passes reserved, if it can.
func (c *Chosen) ask(snap *dispatch.Snapshot, kept []policies.Kept) (dispatch.Plan, []policies.Kept) {
	p, ok := c.Planner.(interface {
		PlanBeside(*dispatch.Snapshot, []policies.Kept) (dispatch.Plan, []policies.Kept)
	})
	if !ok {
		return c.Planner.Plan(snap), nil
	}
	return p.PlanBeside(snap, kept)
}

// SpanReason says that a job that wants nodes exclusively never starts, since the
// GPUs are guaranteed to tenants; otherwise the code is empty. A guarantee is of
// GPUs, and other jobs on a node need hold none that could be reclaimed.
func (c *Chosen) SpanReason(j *cluster.Job) cluster.Reason {
	if c.Tenancy() == nil || !j.Spec.WholeNodes() {
		return cluster.Reason{}
	}
	return cluster.Reason{Code: cluster.ReasonNodes, Detail: fmt.Sprintf(
		"GPUs are guaranteed to tenants here (policy %s), and nodes are nobody's alone; ask for GPUs of each node instead", c.Name())}
}

// WhyWaits returns what a pass of a policy other than the scheduler's own says of a
// waiting job: always for one over several nodes, for any other if some job comes
// before it; ok is false if it says nothing. snap is what the job may use, with
// everything that passes need.
func (c *Chosen) WhyWaits(snap *dispatch.Snapshot, j *cluster.Job) (r cluster.Reason, ok bool) {
	if c.Planner == nil {
		return r, false
	}
	alone := *snap
	alone.Waiting = []*cluster.Job{j}
	if r, starts := fate(c.pass(&alone), j.ID); !starts {
		return r, Spans(j)
	}
	all := *snap
	if !slices.ContainsFunc(all.Waiting, func(o *cluster.Job) bool { return o.ID == j.ID }) {
		all.Waiting = append(slices.Clone(all.Waiting), j)
	}
	if r, starts := fate(c.pass(&all), j.ID); !starts {
		return r, Spans(j) || r.Code == cluster.ReasonQueueOrder
	}
	return cluster.Reason{Code: cluster.ReasonUnconfirmed, Detail: "there is room; the next pass decides"}, Spans(j)
}

// fate returns what a plan says of a job: that it starts, or why not.
func fate(p dispatch.Plan, id cluster.JobID) (why cluster.Reason, starts bool) {
	for i := range p.Unplaced {
		if p.Unplaced[i].Job == id {
			return p.Unplaced[i].Reason, false
		}
	}
	return why, slices.ContainsFunc(p.Starts, func(s dispatch.Start) bool { return s.Job == id })
}

// Spans reports whether a job needs several nodes, or whole nodes.
func Spans(j *cluster.Job) bool { return j.Spec.NodeCount() > 1 || j.Spec.WholeNodes() }

// Site is the policies that a site chooses. It is immutable; policies keep nothing
// between passes, so another Site can replace it at any time.
type Site struct {
	// Chosen is for partitions that are not named below, and for a cluster without
	// partitions.
	Chosen
	Partitions map[string]Chosen
}

// Of returns what was chosen for a partition.
func (s *Site) Of(partition string) *Chosen {
	if c, ok := s.Partitions[partition]; ok {
		return &c
	}
	return &s.Chosen
}

// Foreign reports whether some pass over these partitions is not the scheduler's
// own. Such passes know no queues, and may read only the time.
func (s *Site) Foreign(parts []*cluster.Partition) bool {
	if s.Planner != nil {
		return true
	}
	for _, c := range s.Partitions {
		if c.Planner != nil {
			return len(parts) > 0
		}
	}
	return false
}

// CountsUse reports whether some policy uses past usage, Snapshot.Service.
func (s *Site) CountsUse() bool {
	counts := func(c *Chosen) bool {
		p, ok := c.Planner.(interface{ CountsUse() bool })
		return ok && p.CountsUse()
	}
	for _, c := range s.Partitions {
		if counts(&c) {
			return true
		}
	}
	return counts(&s.Chosen)
}

// trades reports whether accounts trade GPU types anywhere.
func (s *Site) trades() bool {
	return s.Policy.Trading || slices.ContainsFunc(slices.Collect(maps.Values(s.Partitions)), func(c Chosen) bool { return c.Policy.Trading })
}

// Fairly reports whether fair shares count anywhere.
func (s *Site) Fairly() bool {
	if s.Policy.FairMilli > 0 {
		return true
	}
	for _, c := range s.Partitions {
		if c.Policy.FairMilli > 0 {
			return true
		}
	}
	return false
}
