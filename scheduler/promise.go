package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/deadline"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// promise is where and from when Admit's plan places a job with a deadline.
type promise struct {
	it    *item
	class int
	parts []rules.Part // one for each node
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
			p.placePromise(&pr)
		default:
			later = append(later, pr)
			p.plan.Preempt = append(p.plan.Preempt, deadline.YieldsFor(j, laid[j].Yield, asked)...)
		}
	}
	for i := range later {
		p.keepPromise(&later[i])
	}
}

// promised finds the GPUs of a plan, all of classes that can run the job: of one on
// a single node, alike on several.
func (p *pass) promised(j *cluster.Job, c deadline.Check) (pr promise, ok bool) {
	pr = promise{it: p.find(j.ID), start: c.Start, class: -1}
	for _, id := range c.On {
		card := p.f.CardAt[id]
		host, class := p.f.Cards[card].Host, int(p.f.Cards[card].Class)
		if class < 0 || pr.it.needs[class].Way == rules.WayNone {
			return pr, false
		}
		if pr.class < 0 {
			pr.class = class
		}
		if lo, hi := p.f.Family(pr.class); class != pr.class && (!pr.it.spans() || class < lo || class >= hi) {
			return pr, false
		}
		k := slices.IndexFunc(pr.parts, func(s rules.Part) bool { return s.Host == host })
		if k < 0 {
			k = len(pr.parts)
			pr.parts = append(pr.parts, p.fitter.partOn(pr.it, host, nil, 0))
		}
		pr.parts[k].Cards = append(pr.parts[k].Cards, card)
	}
	for k := range pr.parts {
		slices.Sort(pr.parts[k].Cards)
	}
	return pr, len(pr.parts) > 0
}

func (p *pass) isFree(pr *promise) bool {
	return !slices.ContainsFunc(pr.parts, func(s rules.Part) bool {
		h := &p.f.Hosts[s.Host]
		return h.FreeCPU() < p.keeper.coresOn(pr.it, h) || h.FreeMem() < pr.it.memOn(h) || pr.it.whole && !p.f.IsEmpty(h) ||
			slices.ContainsFunc(s.Cards, func(i int32) bool { return p.f.Cards[i].Use.Shares > 0 || p.f.Cards[i].Use.FreeShares() < 1 })
	})
}

// placePromise starts a job where its promise has it.
func (p *pass) placePromise(pr *promise) {
	if !pr.it.spans() {
		p.place(pr.it, pr.class, pr.parts[0].Cards)
		return
	}
	k := &p.f.Classes[pr.class]
	_, e, _ := rules.ShareOn(pr.it.job, k.Rep, p.pol)
	p.placeSpan(pr.it, pr.class, pr.parts, e, fmt.Sprintf("%s with %s, as planned for its deadline; %s",
		say.Nodes(len(pr.parts)), say.GPUs(len(pr.parts[0].Cards))+" "+k.GPUType, say.TimeWords(pr.it.job, k.GPUType, pr.it.needs[pr.class].Dur)))
}

// keepPromise reserves the GPUs of a promise, and cores and host memory for the
// first on each of its nodes. A job on one node waits in the queue of one of them.
func (p *pass) keepPromise(pr *promise) {
	it := pr.it
	it.kept = true
	for k := range pr.parts {
		s := &pr.parts[k]
		h := &p.f.Hosts[s.Host]
		for _, i := range s.Cards {
			p.f.Cards[i].Until = min(p.f.Cards[i].Until, pr.start)
		}
		if !h.Promised {
			h.Promised = true
			h.KeptCPU += p.keeper.coresOn(it, h)
			h.KeptMem += it.memOn(h)
		}
		h.KeptFor = cmp.Or(h.KeptFor, it.job.ID)
		p.f.Keeps(s.Host, s.Cards)
	}
	if it.spans() {
		p.lines.promisedOn(it, pr)
		return
	}
	first := &pr.parts[0]
	if it.queue >= 0 && p.f.Cards[it.queue].Host == first.Host && p.lines.queueHolds(it) {
		return
	}
	p.lines.promisedTo(it, first.Cards[0], pr.start)
}

// promisedOn notes on which nodes a job is to start, for its turn.
func (ls *lines) promisedOn(it *item, pr *promise) {
	m := dispatch.QueueMove{EstStart: cluster.Time(pr.start)}
	for k := range pr.parts {
		m.Nodes = append(m.Nodes, ls.f.Hosts[pr.parts[k].Host].Node.ID)
	}
	slices.Sort(m.Nodes)
	if ls.spanned == nil {
		ls.spanned = map[cluster.JobID]dispatch.QueueMove{}
	}
	ls.spanned[it.job.ID] = m
}

// promisedTo queues a job at a GPU of its promise.
func (ls *lines) promisedTo(it *item, at int32, start int64) {
	if ls.moves < ls.pol.MaxMoves {
		ls.moves++
		ls.join(it, at, max(0, start-ls.now))
	}
}
