// Package scene is what a pass of a policy reads: the waiting jobs, what each needs
// of which GPUs, and what the mirror has room for. Orders and placements build on
// it.
package scene

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Scene is what all parts of a pass read. The fleet, the tasks and the plan change
// during the pass.
type Scene struct {
	Snap  *dispatch.Snapshot
	Pol   *rules.Policy
	Now   int64
	Label string // the policy's name
	Fleet *mirror.Fleet
	Tasks []*Task // by id
	Plan  dispatch.Plan
	Rule  Rule
	// Fence keeps tenants to their cells, nil without tenants.
	Fence  fence
	Spread *Spread // of the task over several nodes that is being placed, or nil
	// Near knows where what jobs read is at hand; while Among is set, a task may
	// only go to those of its nodes, which are sorted.
	Near  *dispatch.Near
	Among []cluster.NodeID
	// marginMilli is added to predicted memory, in thousandths of it.
	marginMilli int64
	MaxPreempt  int    // bounds the preemptions of the plan
	Seed        uint64 // for random draws
	pool        pool
}

// Rule is a placement rule.
type Rule interface {
	// Choose returns the GPUs that t should start on now, as many as it asks for,
	// of one group, each of which Fits; none if it has to wait.
	Choose(p *Scene, t *Task) []int32
	// Admits reports whether t may run on a GPU next to its residents, beyond what
	// the ledger says. Every rule admits all jobs to an empty GPU.
	Admits(p *Scene, t *Task, c *mirror.Card) bool
	// Tag distinguishes tasks of one shape that the rule treats differently.
	Tag(t *Task) int64
}

// fence keeps tasks off some GPUs.
type fence interface {
	Allows(t *Task, ci int32) bool
}

// Settings configure a pass.
type Settings struct {
	Pol         rules.Policy
	Label       string
	MarginMilli int64 // added to predicted memory, in thousandths of it
	MaxPreempt  int
	Seed        uint64
}

// New reads a snapshot, on a ledger that the pass may allocate in, with what an
// earlier one left.
func New(snap *dispatch.Snapshot, led *dispatch.Ledger, set *Settings, m *Memory) *Scene {
	p := &Scene{
		Snap: snap, Pol: &set.Pol, Now: int64(snap.Now), Label: set.Label, Plan: dispatch.Plan{BaseIndex: snap.Index},
		marginMilli: set.MarginMilli, MaxPreempt: set.MaxPreempt, Seed: set.Seed, Near: dispatch.NewNear(snap), Fleet: m.fleetOf(snap.Nodes, led, max(1, set.Pol.MaxShares)),
	}
	at := 0
	p.Fleet.Runs = m.spare[:0]
	for _, j := range byID(snap.Running) {
		p.addRunning(j, m.run(j, &at))
	}
	m.running, at = len(p.Fleet.Runs), 0
	p.Fleet.SumAll()
	p.Tasks = make([]*Task, 0, len(snap.Waiting))
	for _, j := range byID(snap.Waiting) {
		if j.State.Waiting() && j.Cancel == nil {
			p.Tasks = append(p.Tasks, m.task(p, j, &at))
		}
	}
	return p
}

// TaskOf returns the task of a waiting job, nil for any other.
func (p *Scene) TaskOf(id cluster.JobID) *Task {
	i, ok := slices.BinarySearchFunc(p.Tasks, id, func(t *Task, id cluster.JobID) int { return cmp.Compare(t.ID, id) })
	if !ok {
		return nil
	}
	return p.Tasks[i]
}

// LeaveQueues removes waiting jobs from the queues of GPUs: an engine has one
// queue, and a job in another one would block it.
func (p *Scene) LeaveQueues() {
	for _, t := range p.Tasks {
		if !t.Gone && t.Job.State == cluster.JobQueued {
			p.Plan.Moves = append(p.Plan.Moves, dispatch.QueueMove{Job: t.ID, Reason: cluster.ReasonResources})
		}
	}
}

// MayAsk reports whether the plan may preempt one more.
func (p *Scene) MayAsk() bool { return len(p.Plan.Preempt) < p.MaxPreempt }

// Ask proposes to end the attempt of a run for a job, 0 for none.
func (p *Scene) Ask(r *mirror.Run, to cluster.JobID, why string) {
	p.Plan.Preempt = append(p.Plan.Preempt, dispatch.Preemption{Job: r.Job.ID, Attempt: r.Job.Live().No, For: to, Why: p.Label + ": " + why})
}

// Asked reports whether the plan already ends a job, as a placement may.
func (p *Scene) Asked(id cluster.JobID) bool {
	return slices.ContainsFunc(p.Plan.Preempt, func(x dispatch.Preemption) bool { return x.Job == id })
}
