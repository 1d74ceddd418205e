package order

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// Source of this file: Narayanan et al., "Heterogeneity-Aware Cluster
// Scheduling Policies for Deep Learning Workloads" (Gavel, OSDI 2020). The
// policy is its max-min fairness over normalised throughput (section 4.1),
// the mechanism its rounds (section 5).

const (
	// roundTime is how long an assignment lasts, the artefact's default.
	roundTime = 360 * time.Second
	// slices of a round that the greedy solution allocates, and for how many jobs
	// it does, in order of arrival.
	roundSlices = 20
	roundJobs   = 512
)

// Rounds is the allocation: the fraction of time that each job should spend
// on each type, in thousandths, and what follows from it.
type Rounds struct {
	Types    []string
	capacity []int64 // GPUs
	share    map[cluster.JobID][]int64
	Priority map[cluster.JobID][]int64
}

// contender is a job while the allocation is computed.
type contender struct {
	id       cluster.JobID
	since    int64
	gpus     int64
	weight   int64
	speed    []int64 // by type, thousandths of its fastest
	equal    int64   // speed with equal parts of all GPUs
	got      []int64 // slices, by type
	sum      int64
	progress int64
}

// Allocate computes the allocation for waiting and running jobs, once in a pass.
func Allocate(ts *Turns) {
	if ts.Rounds != nil {
		return
	}
	r := &Rounds{share: map[cluster.JobID][]int64{}, Priority: map[cluster.JobID][]int64{}}
	ts.Rounds = r
	for c := range ts.Fleet.Classes {
		if n := len(r.Types); n == 0 || r.Types[n-1] != ts.Fleet.Classes[c].GPUType {
			r.Types, r.capacity = append(r.Types, ts.Fleet.Classes[c].GPUType), append(r.capacity, 0)
		}
		r.capacity[len(r.Types)-1] += int64(ts.Fleet.Classes[c].Count)
	}
	var all []*contender
	for _, t := range ts.Tasks {
		all = append(all, r.contend(ts, t)...)
	}
	for i := range ts.Fleet.Runs {
		if !ts.Fleet.Runs[i].Fresh && ts.Fleet.Runs[i].Part == 0 {
			all = append(all, r.contend(ts, ts.NewTask(ts.Fleet.Runs[i].Job))...)
		}
	}
	slices.SortFunc(all, func(a, b *contender) int { return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id)) })
	all = all[:min(len(all), roundJobs)]
	r.fill(all)
	for _, c := range all {
		for k := range c.got {
			c.got[k] = c.got[k] * 1000 / roundSlices
		}
		r.share[c.id] = c.got
	}
	for _, t := range ts.Tasks {
		r.prioritise(t.Job, ts.Now)
	}
	for i := range ts.Fleet.Runs {
		r.prioritise(ts.Fleet.Runs[i].Job, ts.Now)
	}
}

// contend makes a contender of a job that some type can run.
func (r *Rounds) contend(ts *Turns, t *scene.Task) []*contender {
	c := &contender{id: t.ID, since: t.Submitted, gpus: int64(t.Cards()), weight: t.Weight, speed: make([]int64, len(r.Types)), got: make([]int64, len(r.Types))}
	cards, any := int64(0), false
	for i := range t.Needs {
		if n := &t.Needs[i]; n.OK {
			k := slices.Index(r.Types, ts.Fleet.Classes[i].GPUType)
			c.speed[k] = max(1, t.Dur*1000/n.Dur)
			any = true
		}
	}
	for k := range r.Types {
		c.equal += c.speed[k] * r.capacity[k]
		cards += r.capacity[k]
	}
	if t.GPUs == 0 || !any {
		return nil
	}
	c.equal = max(1, c.equal/max(1, cards))
	return []*contender{c}
}

// fill allocates the GPUs' time in slices: each to the job whose throughput, over
// what it would have with equal parts, over its weight, is least, on the type that
// is best for it relative to what that type is to the others. The paper solves a
// linear program: among jobs that gain about as much by the better type it gives
// each a part of both, where this may give each a type of its own, and then the
// worst off has less.
func (r *Rounds) fill(all []*contender) {
	left := make([]int64, len(r.Types))
	mean := make([]int64, len(r.Types))
	for k := range left {
		left[k] = r.capacity[k] * roundSlices
		n := int64(0)
		for _, c := range all {
			if c.speed[k] > 0 {
				mean[k] += c.speed[k]
				n++
			}
		}
		mean[k] = max(1, mean[k]/max(1, n))
	}
	h := contenders(slices.Clone(all))
	heap.Init(&h)
	for len(h) > 0 {
		c := h[0]
		best := -1
		for k := range left {
			if c.speed[k] > 0 && left[k] >= c.gpus && c.sum < roundSlices &&
				(best < 0 || c.speed[k]*mean[best] > c.speed[best]*mean[k]) {
				best = k
			}
		}
		if best < 0 {
			heap.Pop(&h)
			continue
		}
		left[best] -= c.gpus
		c.got[best]++
		c.sum++
		c.progress += c.speed[best] * 1_000_000 / c.equal * 1000 / c.weight
		heap.Fix(&h, 0)
	}
}

// contenders is a heap, the worst off first.
type contenders []*contender

func (h contenders) Len() int { return len(h) }
func (h contenders) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].progress, h[j].progress), cmp.Compare(h[i].since, h[j].since), cmp.Compare(h[i].id, h[j].id)) < 0
}
func (h contenders) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *contenders) Push(x any)   { *h = append(*h, x.(*contender)) }
func (h *contenders) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// prioritise sets a job's priority on each type: the fraction of time that it
// should get over the fraction that it got (section 5, figure 5).
func (r *Rounds) prioritise(j *cluster.Job, now int64) {
	share, ok := r.share[j.ID]
	if !ok {
		return
	}
	got := make([]int64, len(r.Types))
	for i := range j.Attempts {
		a := &j.Attempts[i]
		k := slices.Index(r.Types, a.Estimate.GPUType)
		if k < 0 || a.Started == 0 {
			continue
		}
		end := cmp.Or(int64(a.Ended), now)
		got[k] += max(0, end-int64(a.Started))
	}
	age := max(1, now-int64(j.Submitted))
	for k := range got {
		got[k] = share[k] * 1000 / max(1, got[k]*1000/age)
	}
	r.Priority[j.ID] = got
}

// of returns a job's highest priority over the types.
func (r *Rounds) of(id cluster.JobID) int64 {
	if ps := r.Priority[id]; len(ps) > 0 {
		return slices.Max(ps)
	}
	return 0
}

// byPriority takes the job that is furthest behind its allocation first: the
// order of Gavel's rounds.
func byPriority(ts *Turns, f *scene.Facts) scene.Key {
	return scene.Key{A: -ts.Rounds.of(f.ID), B: f.Submitted}
}

// roundEnded lets a job that is further behind take the place of one whose
// round is over.
func roundEnded(ts *Turns, waits, runs *scene.Facts) bool {
	return time.Duration(ts.Now-runs.Since)*time.Microsecond >= roundTime && ts.Rounds.of(waits.ID) > ts.Rounds.of(runs.ID)
}
