package policies

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Source of this file: Narayanan et al., "Heterogeneity-Aware Cluster
// Scheduling Policies for Deep Learning Workloads" (Gavel, OSDI 2020). The
// policy is its max-min fairness over normalised throughput (section 4.1),
// the mechanism its rounds (section 5).

const (
	// roundTime is how long an assignment lasts, the artefact's default.
	roundTime = 360 * time.Second
	// slices of a round that the greedy solution gives away, and for how many
	// jobs it does, the first to come.
	roundSlices = 20
	roundJobs   = 512
)

// rounds is the allocation: the fraction of time that each job should spend
// on each type, in thousandths, and what follows from it.
type rounds struct {
	types    []string
	capacity []int64 // cards
	share    map[cluster.JobID][]int64
	priority map[cluster.JobID][]int64
}

// contender is a job in the making of the allocation.
type contender struct {
	id       cluster.JobID
	since    int64
	gpus     int64
	weight   int64
	speed    []int64 // by type, thousandths of its fastest
	equal    int64   // speed with equal parts of all cards
	got      []int64 // slices, by type
	sum      int64
	progress int64
}

// allocate makes the allocation for who waits and who runs, once in a pass.
func allocate(p *pass) {
	if p.rounds != nil {
		return
	}
	r := &rounds{share: map[cluster.JobID][]int64{}, priority: map[cluster.JobID][]int64{}}
	p.rounds = r
	for c := range p.f.classes {
		if n := len(r.types); n == 0 || r.types[n-1] != p.f.classes[c].gpuType {
			r.types, r.capacity = append(r.types, p.f.classes[c].gpuType), append(r.capacity, 0)
		}
		r.capacity[len(r.types)-1] += int64(p.f.classes[c].count)
	}
	var all []*contender
	for _, t := range p.tasks {
		all = append(all, r.contend(p, t)...)
	}
	for i := range p.runs {
		if !p.runs[i].fresh && p.runs[i].part == 0 {
			all = append(all, r.contend(p, p.newTask(p.runs[i].job))...)
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
	for _, t := range p.tasks {
		r.prioritise(t.job, p.now)
	}
	for i := range p.runs {
		r.prioritise(p.runs[i].job, p.now)
	}
}

// contend makes a contender of a job that some type can run.
func (r *rounds) contend(p *pass, t *task) []*contender {
	c := &contender{id: t.id, since: t.submitted, gpus: int64(t.cards()), weight: t.weight, speed: make([]int64, len(r.types)), got: make([]int64, len(r.types))}
	cards, any := int64(0), false
	for i := range t.needs {
		if n := &t.needs[i]; n.ok {
			k := slices.Index(r.types, p.f.classes[i].gpuType)
			c.speed[k] = max(1, t.dur*1000/n.dur)
			any = true
		}
	}
	for k := range r.types {
		c.equal += c.speed[k] * r.capacity[k]
		cards += r.capacity[k]
	}
	if t.gpus == 0 || !any {
		return nil
	}
	c.equal = max(1, c.equal/max(1, cards))
	return []*contender{c}
}

// fill gives the time of the cards away in slices: each to the job whose
// throughput, over what it would have with equal parts, over its weight, is
// least, on the type that is best for it compared with what that type is to
// the others. The paper solves a linear program: of jobs that gain about as much
// by the better type it gives each a part of both, where this may give each a type of
// its own, and then the worst off has less.
func (r *rounds) fill(all []*contender) {
	left := make([]int64, len(r.types))
	mean := make([]int64, len(r.types))
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
func (r *rounds) prioritise(j *cluster.Job, now int64) {
	share, ok := r.share[j.ID]
	if !ok {
		return
	}
	got := make([]int64, len(r.types))
	for i := range j.Attempts {
		a := &j.Attempts[i]
		k := slices.Index(r.types, a.Estimate.GPUType)
		if k < 0 || a.Started == 0 {
			continue
		}
		end := int64(a.Ended)
		if end == 0 {
			end = now
		}
		got[k] += max(0, end-int64(a.Started))
	}
	age := max(1, now-int64(j.Submitted))
	for k := range got {
		got[k] = share[k] * 1000 / max(1, got[k]*1000/age)
	}
	r.priority[j.ID] = got
}

// of is a job's highest priority over the types.
func (r *rounds) of(id cluster.JobID) int64 {
	if ps := r.priority[id]; len(ps) > 0 {
		return slices.Max(ps)
	}
	return 0
}

// byPriority takes the job that is furthest behind its allocation first: the
// order of Gavel's rounds.
func byPriority(p *pass, f *facts) key { return key{-p.rounds.of(f.id), f.submitted} }

// roundEnded lets a job that is further behind take the place of one whose
// round is over.
func roundEnded(p *pass, waits, runs *facts) bool {
	return time.Duration(p.now-runs.since)*time.Microsecond >= roundTime && p.rounds.of(waits.id) > p.rounds.of(runs.id)
}

// gavel places each job on the type where it is furthest behind its
// allocation, and there by first fit. Types of which it has no part come last,
// the fastest first, so that no card stays idle.
type gavel struct{ open }

func newGavel(p *pass) placer {
	allocate(p)
	return gavel{}
}

func (gavel) choose(p *pass, t *task) []int32 {
	classes := make([]int32, 0, len(t.needs))
	prio := make([]int64, len(t.needs))
	for c := range t.needs {
		if t.needs[c].ok {
			classes = append(classes, int32(c))
			if ps := p.rounds.priority[t.id]; len(ps) > 0 {
				prio[c] = ps[slices.Index(p.rounds.types, p.f.classes[c].gpuType)]
			}
		}
	}
	slices.SortFunc(classes, func(a, b int32) int {
		return cmp.Or(-cmp.Compare(prio[a], prio[b]), cmp.Compare(t.needs[a].dur, t.needs[b].dur), cmp.Compare(a, b))
	})
	for _, c := range classes {
		for gi := range p.f.groups {
			if p.f.groups[gi].class == c && p.mayHold(t, int32(gi)) {
				if cards := p.pick(t, int32(gi), nil); cards != nil {
					return cards
				}
			}
		}
	}
	return nil
}
