package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/deadline"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// promise is where Admit's plan has a job with a deadline, and from when on.
type promise struct {
	it    *item
	class int
	cards []int32
	start int64
}

// keepPromises starts the jobs with deadlines whose time has come by the plan
// that Admit makes, where that plan has them, and keeps the GPUs of the others:
// who comes later lies there only if nine in ten like it end before. Without it
// small jobs that hold one GPU of each node make a gang late.
func (p *pass) keepPromises(order []rank, snap *cluster.Snapshot) {
	var jobs []*cluster.Job
	for _, r := range order {
		if r.tier == tierDue && p.items[r.item].gpus > 0 {
			jobs = append(jobs, p.items[r.item].job)
		}
	}
	if len(jobs) == 0 {
		return
	}
	p.fitter.careful = true
	laid := deadline.NewDemand(snap, &p.pol, 0).Plan(jobs)
	var later []promise
	asked := map[cluster.JobID]struct{}{}
	for _, j := range jobs {
		pr, ok := p.promised(j, laid[j])
		switch {
		case !ok:
		case p.lines.atLimit(pr.it):
		case pr.start <= p.now && p.isFree(&pr):
			p.place(pr.it, pr.class, pr.cards)
		default:
			later = append(later, pr)
			p.plan.Preempt = append(p.plan.Preempt, deadline.YieldsFor(j, laid[j].Yield, asked)...)
		}
	}
	for i := range later {
		p.keepPromise(&later[i])
	}
}

// promised finds the cards of a plan, all of one class that can run the job.
func (p *pass) promised(j *cluster.Job, c deadline.Check) (pr promise, ok bool) {
	pr = promise{it: p.find(j.ID), start: c.Start}
	for _, id := range c.On {
		pr.cards = append(pr.cards, p.f.cardAt[id])
	}
	if len(pr.cards) == 0 {
		return pr, false
	}
	slices.Sort(pr.cards)
	pr.class = int(p.f.cards[pr.cards[0]].class)
	return pr, pr.class >= 0 && pr.it.needs[pr.class].Way != rules.WayNone &&
		!slices.ContainsFunc(pr.cards, func(i int32) bool { return int(p.f.cards[i].class) != pr.class })
}

func (p *pass) isFree(pr *promise) bool {
	h := &p.f.hosts[p.f.cards[pr.cards[0]].host]
	return h.freeCPU() >= pr.it.cpu && h.freeMem() >= pr.it.mem && !slices.ContainsFunc(pr.cards, func(i int32) bool {
		return p.f.cards[i].use.Shares > 0 || p.f.cards[i].use.FreeShares() < 1
	})
}

// keepPromise keeps the cards of a promise, and cores and host memory for the
// first on its node. The job waits in the queue of one of them.
func (p *pass) keepPromise(pr *promise) {
	it, first := pr.it, &p.f.cards[pr.cards[0]]
	it.kept = true
	h := &p.f.hosts[first.host]
	for _, i := range pr.cards {
		p.f.cards[i].until = min(p.f.cards[i].until, pr.start)
	}
	if !h.promised {
		h.promised = true
		h.keptCPU += it.cpu
		h.keptMem += it.mem
	}
	h.keptFor = cmp.Or(h.keptFor, it.job.ID)
	p.f.keeps(first.host, pr.cards)
	if it.queue >= 0 && p.f.cards[it.queue].host == first.host && p.lines.queueHolds(it) {
		return
	}
	p.lines.promisedTo(it, pr.cards[0], pr.start)
}

// promisedTo lets a job wait at a card of its promise.
func (ls *lines) promisedTo(it *item, at int32, start int64) {
	if ls.moves < ls.pol.MaxMoves {
		ls.moves++
		ls.join(it, at, max(0, start-ls.now))
	}
}
