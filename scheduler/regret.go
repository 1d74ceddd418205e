package scheduler

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Regret closes a GPU to newcomers while some job there is slower than the limit
// (Gandiva's unpacking). Agents measure what an attempt used when it ends, but not
// how fast it runs, so there are two signs. One is the predicted slowdown of the
// residents, which judge counts as well. The other is time: a job that shared its
// GPU and runs longer than the limit times a confident prediction, and longer than
// nine in ten such predictions err, was slowed down or mispredicted. Either way no
// job is placed next to it.

// regret closes the GPUs of jobs that overran, and proposes to preempt the newest
// job there that may be preempted and is not alone.
func (p *pass) regret(terms map[cluster.JobID]dispatch.Terms) {
	closed := map[int32]*cluster.Job{}
	for _, j := range p.running {
		a := j.Live()
		if a == nil || p.now-int64(a.Started) <= a.Estimate.Duration.Microseconds() {
			continue // most jobs: nothing else is checked
		}
		for _, gs := range a.HeldGPUs() {
			i, ok := p.f.CardAt[gs.GPU]
			if ok && rules.Overran(j, p.now, p.f.Cards[i].Use.Shares, &p.pol) && (closed[i] == nil || j.ID < closed[i].ID) {
				closed[i] = j
				p.f.Cards[i].Regretted = true
			}
		}
	}
	if len(closed) == 0 {
		return
	}
	hosts := map[int32]struct{}{}
	for i := range closed {
		hosts[p.f.Cards[i].Host] = struct{}{}
	}
	for h := range hosts {
		p.f.Refresh(h)
	}
	if len(terms) > 0 {
		p.part(closed, terms)
	}
}

// part proposes which job to preempt on each closed GPU.
func (p *pass) part(closed map[int32]*cluster.Job, terms map[cluster.JobID]dispatch.Terms) {
	newest := map[int32]*cluster.Job{}
	for _, j := range p.running {
		a := j.Live()
		if a == nil || !terms[j.ID].Preemptible {
			continue
		}
		for _, gs := range a.HeldGPUs() {
			i, ok := p.f.CardAt[gs.GPU]
			if ok && a.Preempt != nil { // a job is already being preempted there
				delete(closed, i)
				delete(newest, i)
			}
			if !j.Rested(cluster.Time(p.now)) {
				continue
			}
			if ok && closed[i] != nil && p.f.Cards[i].Use.Shares > 1 && (newest[i] == nil || later(j, newest[i])) {
				newest[i] = j
			}
		}
	}
	seen := map[cluster.JobID]struct{}{}
	for _, i := range slices.Sorted(maps.Keys(newest)) {
		j := newest[i]
		if _, ok := seen[j.ID]; !ok {
			seen[j.ID] = struct{}{}
			p.plan.Preempt = append(p.plan.Preempt, dispatch.Preemption{Job: j.ID, Attempt: j.Live().No, Why: rules.OverranWords(closed[i], p.now, &p.pol)})
		}
	}
	slices.SortFunc(p.plan.Preempt, func(a, b dispatch.Preemption) int { return cmp.Compare(a.Job, b.Job) })
}

func later(a, b *cluster.Job) bool {
	x, y := a.Live().Placed, b.Live().Placed
	return x > y || x == y && a.ID > b.ID
}
