package site

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
)

// Pass is how much a pass looks at.
type Pass uint8

// A Full pass plans everybody who waits, an Arrival pass those who stand in no
// queue yet. Policies that know no queues always plan everybody.
const (
	Full Pass = iota
	Arrival
)

// String is the pass as metrics name it.
func (p Pass) String() string {
	if p == Arrival {
		return "arrival"
	}
	return "full"
}

// Waits is what the fast path must know of those who wait until the next pass.
// The zero value knows of nobody.
type Waits struct {
	// Promised reports that somebody waits to whom GPUs are promised beyond the
	// queues: with a deadline, or for several nodes.
	Promised bool
	// Partitions are those of which somebody waits after a full pass, nil where
	// there are none.
	Partitions map[string]struct{}
}

// After is what the fast path must know after a pass over a snapshot of all who
// wait, which Prepare has not seen yet. Of which partitions somebody waits only a
// full pass says.
func (w Waits) After(snap *dispatch.Snapshot, s *Site, p Pass) Waits {
	w.Promised = unqueuedDeadline(snap.Waiting) || scheduler.SpanWaits(snap.Waiting, snap.Now, s.Policy)
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

// Prepare adds to a snapshot what policies go by beside the state, unless it is
// there, and leaves out who is not looked at by a pass.
func Prepare(snap *dispatch.Snapshot, s *Site, p Pass) {
	if snap.Terms == nil {
		snap.Terms = termsOf(snap.Waiting, snap.Running)
	}
	if p == Arrival && len(snap.Partitions) == 0 && s.Planner == nil {
		// All that stand in no queue, and not only those that came: else an
		// older one could be passed for ever.
		snap.Waiting = slices.DeleteFunc(snap.Waiting, func(j *cluster.Job) bool { return !newcomer(j) })
	}
}

// newcomer reports whether a pass over those in no queue plans a job: not one that
// made room, which would take its place again before those in queues are looked at.
func newcomer(j *cluster.Job) bool {
	return j.State == cluster.JobPending && (j.Last() == nil || j.Last().Preempt == nil || j.Last().State != cluster.JobPreempted)
}

// Plan makes one pass over the cluster, or one over each of its partitions. Of
// snap it changes the ledger and the map of queues, and nothing else: both are
// the caller's to give away.
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
	for _, p := range s.Elastic.Restarts(snap, before, &out) {
		if len(p.Gets) > 0 && s.guarantees(snap, p.Job) {
			continue // who may have what of it passes alone decide
		}
		out.Preempt = append(out.Preempt, p)
	}
	return out
}

// guarantees reports whether cards are guaranteed to tenants where a job runs.
func (s *Site) guarantees(snap *dispatch.Snapshot, id cluster.JobID) bool {
	i := slices.IndexFunc(snap.Running, func(j *cluster.Job) bool { return j.ID == id })
	return i >= 0 && s.Of(snap.Running[i].Spec.Partition).Tenancy() != nil
}

// started is a job as the state will have it once a start is committed, for
// passes that come after the one that planned it.
func started(j *cluster.Job, st *dispatch.Start, now cluster.Time) *cluster.Job {
	run := j.Clone()
	run.State, run.Queue = cluster.JobStarting, ""
	run.Attempts = append(run.Attempts, cluster.Attempt{
		No: st.Attempt, State: cluster.JobStarting, Berth: st.Berth, Gang: gangOf(st), Estimate: st.Estimate, Placed: now, Loan: st.Loan,
	})
	return run
}

// gangOf is what a start on several nodes will have; nil for one node.
func gangOf(st *dispatch.Start) *cluster.Gang {
	if len(st.Rest) == 0 {
		return nil
	}
	g := &cluster.Gang{Rest: st.Rest}
	for range st.Berths() {
		g.Parts = append(g.Parts, cluster.Part{State: cluster.JobStarting})
	}
	return g
}
