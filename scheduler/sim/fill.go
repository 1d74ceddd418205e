package sim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// FillOptions configure Fill.
type FillOptions struct {
	Planner Planner
	Seed    uint64
	// Demand is how much is requested in all, relative to the GPUs: FGD's
	// evaluation uses 1.3.
	Demand float64
	// Progress is called now and then with how many of all were tried.
	Progress func(done, all int)
	// Clock measures planning; nil leaves the rates out.
	Clock func() time.Duration
	// NoZoom runs a full pass for each job, even for planners that have a shortcut.
	NoZoom bool
}

// Fill follows the protocol of FGD (ATC 2023): the jobs arrive one at a time in
// random order, drawn again with replacement once all of them came, until they
// asked for Demand times the GPUs. Nothing ever ends, and what does not fit on
// arrival is rejected. Only the final packing counts: the share of all compute that
// was allocated, and the share of what is idle that no typical job can use.
func Fill(ctx context.Context, w *workload.Workload, f *workload.Fleet, opt FillOptions) (*Result, error) {
	switch {
	case opt.Planner == nil:
		return nil, fmt.Errorf("planner: is missing")
	case !(opt.Demand > 0 && opt.Demand <= 100):
		return nil, fmt.Errorf("demand: %g is outside 0 to 100", opt.Demand)
	case len(w.Jobs) == 0:
		return nil, fmt.Errorf("workload %s: has no jobs", w.Name)
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	sorted := &workload.Workload{Name: w.Name, Jobs: append([]workload.Job(nil), w.Jobs...)}
	sorted.Sort()
	if err := sorted.Check(); err != nil {
		return nil, err
	}
	whole, err := newEngine(&workload.Workload{}, f, &Options{Planner: opt.Planner, Seed: opt.Seed, Clock: opt.Clock, NoZoom: opt.NoZoom})
	if err != nil {
		return nil, err
	}
	e := filling{whole, whole.st.(*plain)}
	order := inflate(sorted.Jobs, opt.Seed, opt.Demand*float64(len(e.slots))*cluster.WholeGPU)
	began := e.clock()
	turned, err := e.fill(ctx, sorted.Jobs, order, opt.Progress)
	if err != nil {
		return nil, err
	}
	e.sums.wall = e.clock() - began
	return e.filled(sorted, order, turned), nil
}

// inflate draws the order of arrival: a shuffle of all jobs, then single jobs with
// replacement, until they want so many thousandths of GPUs.
func inflate(jobs []workload.Job, seed uint64, milli float64) []int {
	r := workload.Chance(seed, "", "order")
	order := r.Perm(len(jobs))
	have := 0.0
	for i, k := range order {
		if have += demandOf(&jobs[k]); have >= milli {
			return order[:i+1]
		}
	}
	for tries := 0; have < milli && tries < 100*len(jobs); tries++ {
		k := r.IntN(len(jobs))
		order = append(order, k)
		have += demandOf(&jobs[k])
	}
	return order
}

// demandOf returns what a job wants, in thousandths of GPUs.
func demandOf(j *workload.Job) float64 { return 1000 * float64(j.GPUs) * j.Fraction() }

// filling is a fleet that takes jobs one at a time, none of which ever ends.
type filling struct {
	*engine
	plain *plain
}

// fill offers the jobs one at a time and returns how many were rejected.
func (e *filling) fill(ctx context.Context, jobs []workload.Job, order []int, progress func(done, all int)) (int, error) {
	st := e.plain
	turned, short := 0, e.shortcut()
	for i, k := range order {
		if i%64 == 0 {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			if progress != nil {
				progress(i, len(order))
			}
		}
		e.now += 1_000_000
		v := e.viewOf(cluster.JobID(i+1), &jobs[k])
		if err := st.submit(e.wallTime(), []*cluster.Job{v}); err != nil {
			return 0, err
		}
		plan := e.offer(short, v)
		e.sums.passes++
		started, err := st.apply(e.wallTime(), &plan)
		if err != nil {
			return 0, err
		}
		e.sums.starts += len(started)
		if len(started) == 0 {
			turned++
			v.State = cluster.JobCancelled
			st.nwait--
		} else {
			e.stays(int32(i), &v.Last().Berth)
		}
		e.sums.events++
	}
	return turned, nil
}

// offer plans a job that waits alone: with a full pass, unless the planner has a
// shortcut.
func (e *filling) offer(short scheduler.Offers, j *cluster.Job) dispatch.Plan {
	if short == nil {
		snap := e.st.snapshot(e.wallTime(), false)
		began := e.clock()
		plan := e.opt.Planner.Plan(snap)
		e.sums.took(e.clock() - began)
		plan.Moves = nil
		return plan
	}
	began := e.clock()
	st, ok := short.Offer(e.wallTime(), e.st.Index(), j)
	e.sums.took(e.clock() - began)
	if !ok {
		return dispatch.Plan{}
	}
	return dispatch.Plan{BaseIndex: e.st.Index(), Starts: []dispatch.Start{st}}
}

// shortcut returns the planner's way to decide about arrivals, nil if it has none.
func (e *filling) shortcut() scheduler.Offers {
	a, ok := e.opt.Planner.(Arriver)
	if !ok || e.opt.NoZoom {
		return nil
	}
	if short, ok := a.Arrivals(e.nodes, e.st.Ledger()); ok {
		return short
	}
	return nil
}

// filled returns the resulting packing.
func (e *filling) filled(w *workload.Workload, order []int, turned int) *Result {
	r := &Result{
		Policy: e.opt.Planner.Name(), Trace: w.Name, Seed: e.opt.Seed, GPUs: len(e.slots), Jobs: len(order),
		Completed: e.sums.starts, RejectedPods: &turned, Events: e.sums.events, Passes: e.sums.passes, World: "none",
	}
	r.AllocationPct = figure(100 * float64(e.cur.alloc) / (float64(len(e.slots)) * cluster.WholeGPU))
	r.FragmentationPct = figure(100 * e.unusable(w))
	e.sums.speeds(r, len(order))
	return r
}

// shape is what makes two requests alike.
type shape struct {
	gpus            int
	milli, cpu, mem int64
	types           string
}

// unusable is FGD's measure: the expected share of the idle compute that a job
// drawn from the workload cannot use. On a node where it does not fit at all that
// is everything; otherwise it is what is on GPUs too full for it.
func (e *filling) unusable(w *workload.Workload) float64 {
	counts := map[shape]int{}
	sample := map[shape]*workload.Job{}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		s := shape{j.GPUs, cmp.Or(j.Milli, 1000), j.CPUMilli, j.HostMemMiB, fmt.Sprint(j.Types)}
		counts[s]++
		sample[s] = j
	}
	idle, lost := 0.0, 0.0
	for _, n := range e.nodes {
		use, _ := e.plain.ledger.Node(n.ID)
		free := make([]int64, len(n.GPUs))
		sum := int64(0)
		for i := range n.GPUs {
			free[i] = 1000 - e.slots[e.slotAt[n.GPUs[i].ID]].alloc
			sum += free[i]
		}
		if sum == 0 {
			continue
		}
		idle += float64(sum) * float64(len(w.Jobs))
		for s, k := range counts { // integers: the order of adding does not matter
			lost += float64(k) * float64(lostTo(sample[s], s, n, use, free, sum))
		}
	}
	if idle == 0 {
		return 0
	}
	return lost / idle
}

// lostTo returns the idle compute of a node that a job cannot use.
func lostTo(j *workload.Job, s shape, n *cluster.Node, use dispatch.NodeUse, free []int64, sum int64) int64 {
	if s.gpus == 0 || s.cpu > use.CPUMilli-use.UsedCPU || s.mem > use.MemMiB-use.UsedMem || len(n.GPUs) > 0 && !j.MayUse(n.GPUs[0].Type) {
		return sum
	}
	fits, lost := 0, int64(0)
	for _, f := range free {
		if f >= s.milli {
			fits++
		} else {
			lost += f
		}
	}
	if fits < s.gpus {
		return sum
	}
	return lost
}
