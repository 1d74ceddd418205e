package site

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
)

// Pass is the scope of a pass.
type Pass uint8

// A Full pass plans all waiting jobs, an Arrival pass those not yet in a queue.
// Policies without queues always plan all.
const (
	Full Pass = iota
	Arrival
)

// String returns the pass's name in metrics.
func (p Pass) String() string {
	if p == Arrival {
		return "arrival"
	}
	return "full"
}

// Waits is what the fast path must know about waiting jobs until the next pass. The
// zero value knows of none.
type Waits struct {
	// Promised reports that a job waits to which GPUs are promised beyond the
	// queues: with a deadline, for several nodes, or by a trade of GPU types.
	Promised bool
	// Partitions are those with waiting jobs after a full pass, nil if there are
	// none.
	Partitions map[string]struct{}
}

// After returns what the fast path must know after a pass over a snapshot of all
// waiting jobs, before Prepare. Only a full pass says which partitions have waiting
// jobs.
func (w Waits) After(snap *dispatch.Snapshot, s *Site, p Pass) Waits {
	w.Promised = unqueuedDeadline(snap.Waiting) || scheduler.SpanWaits(snap.Waiting, snap.Now, s.Policy) || s.trades() && len(snap.Waiting) > 0
	if p != Full {
		return w
	}
	w.Partitions = nil
	if len(snap.Partitions) > 0 {
		w.Partitions = map[string]struct{}{}
		for _, j := range snap.Waiting {
			w.Partitions[j.Spec.Partition] = struct{}{}
		}
	}
	return w
}

// Prepare adds to a snapshot what policies use besides the state, unless it is
// there, and removes the jobs that a pass does not consider.
func Prepare(snap *dispatch.Snapshot, s *Site, p Pass) {
	if snap.Terms == nil {
		snap.Terms = termsOf(snap.Waiting, snap.Running)
	}
	if p == Arrival && len(snap.Partitions) == 0 && s.Planner == nil && !s.trades() {
		// All that are in no queue, and not only the new ones: otherwise an older
		// one could be overtaken forever.
		snap.Waiting = slices.DeleteFunc(snap.Waiting, func(j *cluster.Job) bool { return !newcomer(j) })
	}
}

// newcomer reports whether a pass over jobs in no queue plans a job: not a
// preempted one, which would retake its place before queued jobs are considered.
func newcomer(j *cluster.Job) bool {
	return j.State == cluster.JobPending && (j.Last() == nil || j.Last().Preempt == nil || j.Last().State != cluster.JobPreempted)
}

// Plan runs one pass over the cluster, or one over each of its partitions. Of snap
// it changes only the ledger and the map of queues: the caller must own both.
func Plan(snap *dispatch.Snapshot, s *Site, p Pass) dispatch.Plan {
	plan := func() dispatch.Plan {
		if len(snap.Partitions) > 0 {
			return planPartitions(snap, s, p == Arrival)
		}
		return s.pass(snap)
	}
	if p != Full || !slices.ContainsFunc(snap.Running, func(j *cluster.Job) bool { return j.Spec.Elastic() }) {
		return plan()
	}
	before := snap.Ledger.Clone()
	out := plan()
	for _, p := range s.Elastic.Restarts(s.shared(snap), before, &out) {
		if len(p.Gets) > 0 && s.guarantees(snap, p.Job) {
			continue // passes alone decide which job may have what
		}
		out.Preempt = append(out.Preempt, p)
	}
	return out
}

// guarantees reports whether GPUs are guaranteed to tenants where a job runs.
func (s *Site) guarantees(snap *dispatch.Snapshot, id cluster.JobID) bool {
	i := slices.IndexFunc(snap.Running, func(j *cluster.Job) bool { return j.ID == id })
	return i >= 0 && s.Of(snap.Running[i].Spec.Partition).Tenancy() != nil
}
