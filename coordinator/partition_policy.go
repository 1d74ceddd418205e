package coordinator

import (
	"fmt"
	"slices"
	"time"

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

func (c *Chosen) plan(snap *cluster.Snapshot) cluster.Plan {
	if c.Planner != nil {
		return planApart(snap, c.planWithin)
	}
	return scheduler.Schedule(snap, c.Policy)
}

// planOneNode asks a policy that places jobs on one node each: those that need
// several are kept from it, and told so.
func (c *Chosen) planOneNode(snap *cluster.Snapshot) cluster.Plan {
	spans := func(j *cluster.Job) bool { return j.Spec.NodeCount() > 1 || j.Spec.WholeNodes() }
	if !slices.ContainsFunc(snap.Waiting, spans) {
		return c.Planner.Plan(snap)
	}
	less := *snap
	less.Waiting = slices.DeleteFunc(slices.Clone(snap.Waiting), spans)
	plan := c.Planner.Plan(&less)
	for _, j := range snap.Waiting {
		if spans(j) {
			plan.Unplaced = append(plan.Unplaced, cluster.Unplaced{Job: j.ID, Reason: cluster.Reason{Code: cluster.ReasonNodes, Detail: c.noSpans()}})
		}
	}
	return plan
}

// noSpans says that the policy knows no jobs on several nodes.
func (c *Chosen) noSpans() string {
	return fmt.Sprintf("the policy %s places every job on one node; ask for one node, or the site for the policy %s", c.Name(), scheduler.ModeFFD)
}

// Scheduling is what a site chooses of planning. It is immutable; policies
// keep nothing between passes, so that another one can take its place at any
// time.
type Scheduling struct {
	// Chosen is for partitions that are not named below, and for a cluster
	// without partitions.
	Chosen
	Partitions map[string]Chosen
	// Interval is the longest time between full passes while something changes;
	// 0 means a second.
	Interval time.Duration
	// PreemptEvery is the least time between two passes whose preemptions are
	// carried out; 0 means a minute.
	PreemptEvery time.Duration
}

func (s *Scheduling) preemptEvery() time.Duration {
	if s.PreemptEvery <= 0 {
		return defaultPreemptEvery
	}
	return s.PreemptEvery
}

// of is what was chosen for a partition.
func (s *Scheduling) of(partition string) *Chosen {
	if c, ok := s.Partitions[partition]; ok {
		return &c
	}
	return &s.Chosen
}

// planners tells whether some partition's passes are not the scheduler's own.
func (s *Scheduling) planners() bool {
	for _, c := range s.Partitions {
		if c.Planner != nil {
			return true
		}
	}
	return false
}

func (s *Scheduling) interval() time.Duration {
	if s.Interval <= 0 {
		return fullEvery
	}
	return s.Interval
}

// scheduling is what is in use. It is not changed.
func (c *Coordinator) scheduling() *Scheduling { return c.sched.Load() }

// SetScheduling puts other policies in use from the next pass on, which comes
// within their interval. Attempts and queues stay as they are. It may be called at any time,
// by several goroutines at once, and on any coordinator: who does not lead
// plans nothing.
func (c *Coordinator) SetScheduling(s Scheduling) {
	c.sched.Store(&s)
	c.plan.again()
}

// policyOf is the scheduler's policy for a job.
func (c *Coordinator) policyOf(j *cluster.Job) scheduler.Policy {
	return c.scheduling().of(j.Spec.Partition).Policy
}
