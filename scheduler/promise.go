package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
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
	p.careful = true
	laid := newDemand(snap, &p.pol, 0).plan(jobs)
	var later []promise
	asked := map[cluster.JobID]struct{}{}
	for _, j := range jobs {
		pr, ok := p.promised(j, laid[j])
		switch {
		case !ok:
		case p.atLimit(pr.it):
		case pr.start <= p.now && p.isFree(&pr):
			p.place(pr.it, pr.class, pr.cards)
		default:
			later = append(later, pr)
			p.plan.Preempt = append(p.plan.Preempt, yieldsFor(j, laid[j].yield, asked)...)
		}
	}
	for i := range later {
		p.keepPromise(&later[i])
	}
}

// promised finds the cards of a plan, all of one class that can run the job.
func (p *pass) promised(j *cluster.Job, c DeadlineCheck) (pr promise, ok bool) {
	pr = promise{it: p.find(j.ID), start: c.start}
	for _, id := range c.on {
		pr.cards = append(pr.cards, p.f.cardAt[id])
	}
	if len(pr.cards) == 0 {
		return pr, false
	}
	slices.Sort(pr.cards)
	pr.class = int(p.f.cards[pr.cards[0]].class)
	return pr, pr.class >= 0 && pr.it.needs[pr.class].way != wayNone &&
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
	if it.queue >= 0 && p.f.cards[it.queue].host == first.host && p.queueHolds(it) {
		return
	}
	p.promisedTo(it, pr.cards[0], pr.start)
}

// promisedTo lets a job wait at a card of its promise.
func (p *pass) promisedTo(it *item, at int32, start int64) {
	if p.moves < p.pol.MaxMoves {
		p.moves++
		p.join(it, at, max(0, start-p.now))
	}
}

// admitMargin is how much longer than its grace making room may take when a
// deadline is promised: a pass must see it, and what is asked reach the node.
const admitMargin = 15 * time.Second

// holding is who holds a GPU.
type holding struct {
	free, cleared, lost int64
	by                  []*cluster.Job
}

// holders finds who holds each GPU and until when, and until when if those make
// room that may.
func (d *demand) holders(snap *cluster.Snapshot, margin time.Duration) map[cluster.GPUID]*holding {
	out := map[cluster.GPUID]*holding{}
	for _, j := range snap.Running {
		a := j.Live()
		if a == nil {
			continue
		}
		end := endAt(j, a, tail, d.now, d.pol)
		clear, may := clearsAt(j, snap, margin)
		may = may && clear < end
		d.clears = d.clears || may
		for _, gs := range a.HeldGPUs() {
			h := out[gs.GPU]
			if h == nil {
				h = &holding{}
				out[gs.GPU] = h
			}
			h.free = max(h.free, end)
			if !may {
				h.cleared = max(h.cleared, end)
				continue
			}
			h.cleared = max(h.cleared, clear)
			h.by = append(h.by, j)
			h.lost += lostBy(j, d.now)
		}
	}
	return out
}

// clearsAt is when a running job is gone if it is asked to make room for a
// deadline now; ok is false for one that is not asked.
func clearsAt(j *cluster.Job, snap *cluster.Snapshot, margin time.Duration) (at int64, ok bool) {
	if !snap.Terms[j.ID].Preemptible || j.Unpreemptible(snap.Now) != "" {
		return 0, false
	}
	return int64(snap.Now.Add(j.Spec.Checkpoint.Grace + margin)), true
}

// lostBy is what a job loses that makes room, in microseconds of GPUs: at most what it
// did, and a minute to begin anew.
func lostBy(j *cluster.Job, now int64) int64 {
	a := j.Live()
	return (a.Ran(cluster.Time(now)) + time.Minute).Microseconds() * int64(max(1, len(a.HeldGPUs())))
}

func (h *holding) slot(node cluster.NodeID, gpu cluster.GPUID, now int64) slot {
	if h == nil {
		return slot{node: node, gpu: gpu, free: now, cleared: now}
	}
	free := max(now, h.free)
	return slot{node: node, gpu: gpu, free: free, cleared: min(free, max(now, h.cleared)), lost: h.lost, by: h.by}
}

// due is when a slot is to be had: when it is free, or when it is cleared if
// that is after latest.
func (s *slot) due(latest int64) int64 {
	if s.free <= latest {
		return s.free
	}
	return s.cleared
}

// yields are those who must make room for that.
func (s *slot) yields(latest int64) []*cluster.Job {
	if s.free <= latest {
		return nil
	}
	return s.by
}

// cleared is earliest where those make room for whom the job would start after
// latest: on the node where it starts by then and they lose least.
func (d *demand) cleared(slots []slot, nodes []slotNode, n int, latest int64, claims bool, may func(*slot) bool) (best DeadlineCheck, at []int) {
	best.start, best.lost = forever, forever
	lost := func(s *slot) int64 {
		if s.free <= latest {
			return 0
		}
		return s.lost
	}
	for k := range nodes {
		own := claimable(slots, nodes[k].at, claims, may, nil)
		if len(own) < n {
			continue
		}
		slices.SortFunc(own, func(a, b int) int {
			x, y := &slots[a], &slots[b]
			return cmp.Or(cmp.Compare(max(latest, x.due(latest)), max(latest, y.due(latest))), cmp.Compare(lost(x), lost(y)),
				cmp.Compare(x.free, y.free), cmp.Compare(a, b))
		})
		var c DeadlineCheck
		for _, i := range own[:n] {
			c.start = max(c.start, slots[i].due(latest))
			for _, j := range slots[i].yields(latest) {
				if !slices.Contains(c.yield, j) {
					c.yield = append(c.yield, j)
				}
			}
		}
		for _, j := range c.yield {
			c.lost += lostBy(j, d.now)
		}
		if c.better(&best, latest) {
			best, at = c, own[:n]
		}
	}
	return best, at
}

// better reports whether a check starts by latest rather than another, or loses
// less, or starts earlier.
func (c *DeadlineCheck) better(o *DeadlineCheck, latest int64) bool {
	return cmp.Or(cmp.Compare(max(latest, c.start), max(latest, o.start)), cmp.Compare(c.lost, o.lost), cmp.Compare(c.start, o.start)) < 0
}

// serves reports whether a check serves a job more than another: in time, then
// with less lost, then sooner.
func (c *DeadlineCheck) serves(j *cluster.Job, o *DeadlineCheck) bool {
	in := max(c.End, j.Spec.Deadline)
	return cmp.Or(cmp.Compare(in, max(o.End, j.Spec.Deadline)), cmp.Compare(c.lost, o.lost), cmp.Compare(c.End, o.End)) < 0
}

// yieldsFor asks those to make room who must for a job with a deadline, each once.
func yieldsFor(due *cluster.Job, by []*cluster.Job, asked map[cluster.JobID]struct{}) (out []cluster.Preemption) {
	for _, j := range by {
		if _, twice := asked[j.ID]; twice {
			continue
		}
		asked[j.ID] = struct{}{}
		out = append(out, cluster.Preemption{Job: j.ID, Attempt: j.Live().No, For: due.ID, Why: "it was promised its end by " + clock(due.Spec.Deadline)})
	}
	return out
}
