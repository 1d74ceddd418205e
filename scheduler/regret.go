package scheduler

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Regret closes a card to newcomers while somebody there is slower than the
// limit (Gandiva's unpacking). Agents measure what an attempt used when it
// ends, but not how fast it runs, so that there are two signs: the predicted
// slowdown of those there, which judge counts for residents as well, and time:
// who shared its GPU and runs for longer than the limit times what a confident
// prediction said, and longer than nine in ten such predictions err, has been
// slowed down or was mispredicted. Either way nobody is laid beside it.

// regret closes the cards of those who overran, and proposes to end the newest
// there that may be ended and is not the only one.
func (p *pass) regret(terms map[cluster.JobID]dispatch.Terms) {
	closed := map[int32]*cluster.Job{}
	for _, j := range p.running {
		a := j.Live()
		if a == nil || p.now-int64(a.Started) <= a.Estimate.Duration.Microseconds() {
			continue // most of them: nothing else is looked at
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

// part proposes whom to end on each closed card.
func (p *pass) part(closed map[int32]*cluster.Job, terms map[cluster.JobID]dispatch.Terms) {
	newest := map[int32]*cluster.Job{}
	for _, j := range p.running {
		a := j.Live()
		if a == nil || !terms[j.ID].Preemptible {
			continue
		}
		for _, gs := range a.HeldGPUs() {
			i, ok := p.f.CardAt[gs.GPU]
			if ok && a.Preempt != nil { // somebody leaves it already
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
