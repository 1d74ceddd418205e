package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/deadline"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// promise is where and from when Admit's plan places a job with a deadline.
type promise struct {
	it    *item
	class int
	cards []int32
	start int64
}

// keepPromises starts the jobs with deadlines whose time has come by Admit's plan,
// where that plan places them, and reserves the GPUs of the others: a later job
// runs there only if nine in ten like it end before. Otherwise small jobs that hold
// one GPU of each node make a gang late.
func (p *pass) keepPromises(order []rank, snap *dispatch.Snapshot) {
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

// promised finds the GPUs of a plan, all of one class that can run the job.
func (p *pass) promised(j *cluster.Job, c deadline.Check) (pr promise, ok bool) {
	pr = promise{it: p.find(j.ID), start: c.Start}
	for _, id := range c.On {
		pr.cards = append(pr.cards, p.f.CardAt[id])
	}
	if len(pr.cards) == 0 {
		return pr, false
	}
	slices.Sort(pr.cards)
	pr.class = int(p.f.Cards[pr.cards[0]].Class)
	return pr, pr.class >= 0 && pr.it.needs[pr.class].Way != rules.WayNone &&
		!slices.ContainsFunc(pr.cards, func(i int32) bool { return int(p.f.Cards[i].Class) != pr.class })
}

func (p *pass) isFree(pr *promise) bool {
	h := &p.f.Hosts[p.f.Cards[pr.cards[0]].Host]
	return h.FreeCPU() >= pr.it.cpu && h.FreeMem() >= pr.it.mem && !slices.ContainsFunc(pr.cards, func(i int32) bool {
		return p.f.Cards[i].Use.Shares > 0 || p.f.Cards[i].Use.FreeShares() < 1
	})
}

// keepPromise reserves the GPUs of a promise, and cores and host memory for the
// first on its node. The job waits in the queue of one of them.
func (p *pass) keepPromise(pr *promise) {
	it, first := pr.it, &p.f.Cards[pr.cards[0]]
	it.kept = true
	h := &p.f.Hosts[first.Host]
	for _, i := range pr.cards {
		p.f.Cards[i].Until = min(p.f.Cards[i].Until, pr.start)
	}
	if !h.Promised {
		h.Promised = true
		h.KeptCPU += it.cpu
		h.KeptMem += it.mem
	}
	h.KeptFor = cmp.Or(h.KeptFor, it.job.ID)
	p.f.Keeps(first.Host, pr.cards)
	if it.queue >= 0 && p.f.Cards[it.queue].Host == first.Host && p.lines.queueHolds(it) {
		return
	}
	p.lines.promisedTo(it, pr.cards[0], pr.start)
}

// promisedTo queues a job at a GPU of its promise.
func (ls *lines) promisedTo(it *item, at int32, start int64) {
	if ls.moves < ls.pol.MaxMoves {
		ls.moves++
		ls.join(it, at, max(0, start-ls.now))
	}
}
