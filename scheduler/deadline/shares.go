package deadline

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// Shares returns with how few of its units each job of elastic size with a deadline
// keeps it: the minimum satisfactory share of Gu et al., "ElasticFlow: An Elastic
// Serverless Training Platform for Distributed Deep Learning" (ASPLOS 2023). Waiting
// jobs have it by the plan that Admit makes, in which those with earlier deadlines
// come first; running ones by what is left of them if they restarted. It is nil if
// there are none.
func Shares(snap *dispatch.Snapshot, pol rules.Policy) map[cluster.JobID]int {
	sized := func(j *cluster.Job) bool { return j.Spec.Deadline > 0 && j.Spec.Elastic() }
	if !slices.ContainsFunc(snap.Waiting, sized) && !slices.ContainsFunc(snap.Running, sized) {
		return nil
	}
	out := map[cluster.JobID]int{}
	d := &demand{pol: &pol, now: int64(snap.Now)}
	for _, j := range snap.Running {
		if sized(j) {
			out[j.ID] = d.fewest(j, j.Live(), 0)
		}
	}
	if !slices.ContainsFunc(snap.Waiting, sized) {
		return out
	}
	d = NewDemand(snap, &pol, 0)
	d.sizing = snap
	for j, c := range d.Plan(due(snap.Waiting)) {
		if least, _, _ := j.Spec.Sizes(); sized(j) {
			out[j.ID] = max(least, c.Units)
		}
	}
	return out
}

// Units says how many units of a job of elastic size are meant.
func Units(j *cluster.Job, n int) string {
	if j.Spec.NodeRange.Max > 0 {
		return say.Nodes(n)
	}
	return say.GPUs(n)
}

// Words says what a job of elastic size, on several nodes, or on whole ones was
// promised; "" for others.
func (c *Check) Words(j *cluster.Job) string {
	what := ""
	switch {
	case j.Spec.NodeRange.Max > 0:
		what = "it needs " + Units(j, c.Units) + ", which it has on " + c.Place() + " by "
	case j.Spec.Elastic():
		what = "it needs " + Units(j, c.Units) + ", which it has by "
	case j.Spec.Spans() && len(c.Nodes) > 0:
		what = "it has " + c.Place() + " from "
	default:
		return ""
	}
	return fmt.Sprintf("deadline: %s%s, and then ends by %s in nine of ten cases", what, say.Clock(cluster.Time(c.Start)), say.Clock(c.End))
}

// Place is the nodes of the check as a list such as n[1-2].
func (c *Check) Place() string { return hostnames.Fold(c.Nodes) }

// sizes yields the numbers of units that a job may have, and what it takes with so
// many.
func (d *demand) sizes(j *cluster.Job) iter.Seq2[int, want] {
	return func(yield func(int, want) bool) {
		if d.sizing == nil || !j.Spec.Elastic() {
			yield(j.Spec.Size(), want{j.Spec.NodeCount(), j.Spec.GPUs, j.Spec.WholeNodes()})
			return
		}
		least, most, unit := elastic.Bounds(d.sizing, j)
		for n := least; n <= most; n++ {
			w := want{nodes: 1, gpus: n * unit}
			if j.Spec.NodeRange.Max > 0 {
				w = want{nodes: n, gpus: unit}
			}
			if !yield(n, w) {
				return
			}
		}
	}
}

// length returns how long a job takes with n units on a type at most, in nine of
// ten cases. What is predicted is shorter with more; a time limit is the same.
func (d *demand) length(j *cluster.Job, gpuType string, n int) int64 {
	e, _ := cluster.EstimateFor(j.Estimates, gpuType)
	all := cmp.Or(e.Duration, j.Spec.Duration)
	if d.sizing == nil || !j.Spec.Elastic() || all <= 0 {
		return rules.Stretched(rules.DurationOf(j, &e, d.pol), rules.Tail, &e, j.Spec.TimeLimit)
	}
	tail := time.Duration(rules.Stretched(all.Microseconds(), rules.Tail, &e, 0)) * time.Microsecond
	return rules.Stretched(elastic.Rest(j, cluster.Time(d.now), tail, n).Microseconds(), rules.Middle, &e, j.Spec.TimeLimit)
}

// fewest returns with how few of its units a running job keeps its deadline if it
// restarts, after as long as it may take to leave; as many as it has if it does not
// keep it with fewer, its least once the deadline has passed.
func (d *demand) fewest(j *cluster.Job, a *cluster.Attempt, margin time.Duration) int {
	least, _, _ := j.Spec.Sizes()
	if int64(j.Spec.Deadline) <= d.now {
		return least
	}
	for n := least; n < j.Spec.Size(); n++ {
		if d.again(j, a, n, margin) <= int64(j.Spec.Deadline) {
			return n
		}
	}
	return j.Spec.Size()
}

// again returns when a running job ends at the latest, in nine of ten cases, if it
// restarts with n units.
func (d *demand) again(j *cluster.Job, a *cluster.Attempt, n int, margin time.Duration) int64 {
	as := demand{pol: d.pol, now: d.now, sizing: &dispatch.Snapshot{}}
	return d.now + (j.Spec.Checkpoint.Grace + margin + elastic.Restart).Microseconds() + as.length(j, a.Estimate.GPUType, n)
}

// keeps returns how many of its GPUs a running job of elastic size with a deadline
// keeps if it restarts with as few as that needs, and when it ends then; 0 if it
// does not restart.
func (d *demand) keeps(j *cluster.Job, snap *dispatch.Snapshot, margin time.Duration) (gpus int, end int64) {
	a := j.Live()
	if !snap.Terms[j.ID].Shrinks || j.Spec.NodeRange.Max > 0 || j.Unpreemptible(snap.Now) != "" {
		return 0, 0
	}
	n := d.fewest(j, a, margin)
	if n >= len(a.HeldGPUs()) {
		return 0, 0
	}
	return n, d.again(j, a, n, margin)
}

// returning are the jobs with deadlines that leave to restart with another size.
func returning(running []*cluster.Job) []*cluster.Job {
	return slices.DeleteFunc(due(running), func(j *cluster.Job) bool {
		return !j.Spec.Elastic() || j.Live() == nil || j.Live().Preempt == nil
	})
}
