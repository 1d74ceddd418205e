package site

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// Chosen is how jobs are placed.
type Chosen struct {
	Policy scheduler.Policy
	// Planner makes the passes instead of the scheduler's own, nil for those.
	Planner policies.Policy
}

// Name is the policy as configurations name it.
func (c *Chosen) Name() string {
	if c.Planner != nil {
		return c.Planner.Name()
	}
	return string(c.Policy.Mode)
}

// pass makes one pass over what a snapshot shows.
func (c *Chosen) pass(snap *cluster.Snapshot) cluster.Plan {
	if c.Planner != nil {
		return planApart(snap, c.planWithin)
	}
	return scheduler.Schedule(snap, c.Policy)
}

// planOneNode asks a policy that places jobs on one node each: those that need
// several are kept from it, and told so.
func (c *Chosen) planOneNode(snap *cluster.Snapshot) cluster.Plan {
	if !slices.ContainsFunc(snap.Waiting, Spans) {
		return c.Planner.Plan(snap)
	}
	less := *snap
	less.Waiting = slices.DeleteFunc(slices.Clone(snap.Waiting), Spans)
	plan := c.Planner.Plan(&less)
	for _, j := range snap.Waiting {
		if Spans(j) {
			plan.Unplaced = append(plan.Unplaced, cluster.Unplaced{Job: j.ID, Reason: c.SpanReason(j)})
		}
	}
	return plan
}

// SpanReason says that a job on several nodes waits since the policy knows none;
// the code is empty when that is not so.
func (c *Chosen) SpanReason(j *cluster.Job) cluster.Reason {
	if c.Planner == nil || !Spans(j) {
		return cluster.Reason{}
	}
	return cluster.Reason{Code: cluster.ReasonNodes, Detail: c.NoSpans()}
}

// NoSpans says that the policy knows no jobs on several nodes.
func (c *Chosen) NoSpans() string {
	return fmt.Sprintf("the policy %s places every job on one node; ask for one node, or the site for the policy %s", c.Name(), scheduler.ModeFFD)
}

// Spans reports whether a job needs several nodes, or nodes of its own, which
// only the scheduler's own passes know.
func Spans(j *cluster.Job) bool { return j.Spec.NodeCount() > 1 || j.Spec.WholeNodes() }

// Site is the policies that a site chooses. It is not changed; policies keep
// nothing between passes, so that another Site can take its place at any time.
type Site struct {
	// Chosen is for partitions that are not named below, and for a cluster
	// without partitions.
	Chosen
	Partitions map[string]Chosen
}

// Of is what was chosen for a partition.
func (s *Site) Of(partition string) *Chosen {
	if c, ok := s.Partitions[partition]; ok {
		return &c
	}
	return &s.Chosen
}

// Foreign reports whether some pass over these partitions is not the scheduler's
// own. Such passes know no queues, and may look at the time alone.
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

// CountsUse reports whether some policy goes by what users had, Snapshot.Service.
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
