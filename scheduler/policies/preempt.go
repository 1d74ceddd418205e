package policies

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// heads bounds for how many waiting jobs one plan looks for victims.
const heads = 16

// preempt proposes to end attempts so that the first of those who wait can
// start in a later plan. Only jobs whose terms allow it are ended, only when
// the order lets the one take the other's place, and not before
// Options.MinRun where the order asks for that. Of the nodes where that would make room it takes the one
// with the fewest victims, then the one that loses the least work, then the first. Room that
// is being cleared anyway is waited for.
func (p *pass) preempt() {
	if p.order.over == nil {
		return
	}
	var able []int32
	for ri := range p.runs {
		if r := &p.runs[ri]; p.mayEnd(r) {
			able = append(able, int32(ri))
		}
	}
	if len(able) == 0 {
		return
	}
	for ri := range p.runs {
		if r := &p.runs[ri]; r.job.State == cluster.JobCompleting || r.job.Cancel != nil || r.job.Preempting() {
			p.remove(int32(ri)) // its room is being made anyway
		}
	}
	tried := 0
	for _, t := range p.sorted() {
		if tried == heads || len(p.plan.Preempt) >= p.opt.MaxPreempt {
			return
		}
		if t.gone || t.gpus == 0 || !p.everFits(t) {
			continue
		}
		tried++
		p.preemptFor(t)
	}
}

// mayEnd reports whether an attempt may be preempted at all.
func (p *pass) mayEnd(r *run) bool {
	return !r.fresh && !p.ends(r.job.ID) && p.snap.Terms[r.job.ID].Preemptible && r.job.State == cluster.JobRunning && r.job.Cancel == nil &&
		!r.job.Preempting() && (p.order.atOnce || time.Duration(p.now-r.began)*time.Microsecond >= p.opt.MinRun) && p.rested(r.job)
}

// rested reports whether a job's last preemption is long enough ago. The state
// machine asks the same; Options that compare with published rules do not.
func (p *pass) rested(j *cluster.Job) bool {
	return p.opt.MinRun < 0 || j.Rested(cluster.Time(p.now))
}

// ends reports whether the plan ends a job already, as a placement may.
func (p *pass) ends(id cluster.JobID) bool {
	return slices.ContainsFunc(p.plan.Preempt, func(x cluster.Preemption) bool { return x.Job == id })
}

// victims are who would be ended on one host.
type victims struct {
	runs []int32
	lost int64
}

func (p *pass) preemptFor(t *task) {
	if t.spans() {
		p.gangs.preemptSpan(t)
		return
	}
	var best *victims
	at := int32(-1)
	for gi := range p.f.groups {
		if !p.couldHold(t, int32(gi)) {
			continue
		}
		v := p.victimsOn(t, int32(gi))
		if v != nil && (best == nil || len(v.runs) < len(best.runs) || len(v.runs) == len(best.runs) && v.lost < best.lost) {
			best, at = v, int32(gi)
		}
	}
	if best == nil || len(p.plan.Preempt)+len(best.runs) > p.opt.MaxPreempt {
		return
	}
	for _, ri := range best.runs {
		p.gangs.end(ri, t)
	}
	p.claim(t, at)
}

// remove takes a run out of the mirror for good.
func (p *pass) remove(ri int32) {
	r := &p.runs[ri]
	hi, ok := p.f.hostAt[r.berth.Node]
	if !ok {
		return
	}
	h := &p.f.hosts[hi]
	use := h.use
	for _, gi := range h.groups {
		p.lift(gi, ri)
	}
	h.use = use // of which lift took its part for each group
	h.use.UsedCPU -= r.berth.CPUMilli
	h.use.UsedMem -= r.berth.MemMiB
	h.runs = slices.DeleteFunc(h.runs, func(o int32) bool { return o == ri })
}

// claim enters t in the mirror where room is made for it, so that nobody
// else counts on that.
func (p *pass) claim(t *task, gi int32) {
	g := &p.f.groups[gi]
	h := &p.f.hosts[g.host]
	share := t.needs[g.class].share
	b := cluster.Berth{Node: h.node.ID, CPUMilli: t.coresOn(h), MemMiB: t.mem}
	undo := p.remember(gi)
	cards := slices.Clone(p.anyOf(t, gi))
	undo()
	if t.whole {
		cards = g.cards
	}
	for _, ci := range cards {
		c := &p.f.cards[ci]
		c.use.UsedMiB += share.MemMiB
		c.use.UsedMilli += share.Milli
		c.use.Shares++
		c.use.Exclusive = share.Exclusive
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: c.use.ID, Share: share})
	}
	h.use.UsedCPU += b.CPUMilli
	h.use.UsedMem += b.MemMiB
	p.addRun(run{job: t.job, berth: &b, began: p.now, end: forever, latest: forever, fresh: true})
}

// victimsOn returns whom t would displace in a group, the worst placed in the
// order first and nobody without need; nil when that makes no room.
func (p *pass) victimsOn(t *task, gi int32) *victims {
	undo := p.remember(gi)
	defer func() { undo() }()
	rivals := p.rivals(t, gi)
	v := &victims{}
	for !p.roomOn(t, gi) {
		if len(v.runs) == len(rivals) {
			return nil
		}
		v.runs = append(v.runs, rivals[len(v.runs)])
		p.lift(gi, v.runs[len(v.runs)-1])
	}
	for i := 0; i < len(v.runs)-1; { // the last one is needed
		undo()
		undo = p.remember(gi)
		rest := slices.Delete(slices.Clone(v.runs), i, i+1)
		for _, ri := range rest {
			p.lift(gi, ri)
		}
		if p.roomOn(t, gi) {
			v.runs = rest
		} else {
			i++
		}
	}
	for _, ri := range v.runs {
		v.lost += p.runs[ri].loss()
	}
	return v
}

// rivals returns who lies in a group and may be displaced by t, the worst
// placed in the order first.
func (p *pass) rivals(t *task, gi int32) []int32 {
	type rival struct {
		ri int32
		id cluster.JobID
		key
	}
	var all []rival
	for _, ri := range p.f.hosts[p.f.groups[gi].host].runs {
		r := &p.runs[ri]
		f := p.factsOfRun(r)
		if p.mayEnd(r) && p.liesIn(r, gi) && p.order.over(p, &t.facts, &f) {
			all = append(all, rival{ri, f.id, p.order.key(p, &f)})
		}
	}
	slices.SortFunc(all, func(x, y rival) int {
		return cmp.Or(-cmp.Compare(x.a, y.a), -cmp.Compare(x.b, y.b), -cmp.Compare(x.id, y.id))
	})
	out := make([]int32, len(all))
	for i := range all {
		out[i] = all[i].ri
	}
	return out
}

func (p *pass) liesIn(r *run, gi int32) bool {
	return slices.ContainsFunc(r.berth.GPUs, func(g cluster.GPUShare) bool {
		ci, ok := p.f.cardAt[g.GPU]
		return ok && p.f.cards[ci].group == gi
	})
}

// roomOn reports whether t fits in a group as its mirror is.
func (p *pass) roomOn(t *task, gi int32) bool {
	h := &p.f.hosts[p.f.groups[gi].host]
	return h.use.CPUMilli-h.use.UsedCPU >= t.coresOn(h) && h.use.MemMiB-h.use.UsedMem >= t.mem && p.anyOf(t, gi) != nil && (!t.whole || p.gangs.allOf(t, gi))
}

// allOf reports whether a host is empty but for cards of other classes, and t may
// have all cards of the group.
func (p *gangs) allOf(t *task, gi int32) bool {
	g := &p.f.groups[gi]
	return p.f.hosts[g.host].use.UsedMem == 0 && !slices.ContainsFunc(g.cards, func(ci int32) bool { return !p.hasRoom(t, ci) })
}

// remember keeps the mirror of a group, whose cards it opens to everybody,
// and returns what puts it back.
func (p *pass) remember(gi int32) (undo func()) {
	g := &p.f.groups[gi]
	h := &p.f.hosts[g.host]
	kept := make([]card, len(g.cards))
	for i, ci := range g.cards {
		kept[i] = p.f.cards[ci]
		p.f.cards[ci].until = forever
	}
	use := h.use
	return func() {
		for i, ci := range g.cards {
			p.f.cards[ci] = kept[i]
		}
		h.use = use
	}
}

// toll is whom a task over several nodes would displace on the nodes of parts.
type toll struct {
	placed
	runs []int32 // one of each attempt
	lost int64
}

// preemptSpan proposes to end those in the way of t on as many nodes as it needs,
// those with the fewest victims, then those that lose the least.
func (p *gangs) preemptSpan(t *task) {
	var best *toll
	on := map[int32]*victims{} // by group
	p.eachFamily(t, func(gi int32) (rules.Part, bool) {
		v := p.victimsOn(t, gi)
		if v == nil {
			return rules.Part{}, false
		}
		on[gi] = v
		return rules.Part{Order: int64(len(v.runs))<<32 + v.lost>>20}, true // about a second
	}, func(x placed) {
		if o := p.tollOf(x, on); best == nil || cmp.Or(cmp.Compare(len(o.runs), len(best.runs)), cmp.Compare(o.lost, best.lost)) < 0 {
			best = o
		}
	})
	if best == nil || len(p.plan.Preempt)+len(best.runs) > p.opt.MaxPreempt {
		return
	}
	for _, ri := range best.runs {
		p.end(ri, t)
	}
	for i := range best.parts {
		p.claim(t, best.groups[best.parts[i].Host])
	}
}

func (p *gangs) tollOf(x placed, on map[int32]*victims) *toll {
	o := &toll{placed: x}
	seen := map[cluster.JobID]bool{}
	for i := range o.parts {
		v := on[o.groups[o.parts[i].Host]]
		for _, ri := range v.runs {
			if id := p.runs[ri].job.ID; !seen[id] {
				seen[id] = true
				o.runs = append(o.runs, ri)
				o.lost += p.runs[ri].loss()
			}
		}
	}
	return o
}

// loss is what the preemption of a run's attempt costs, in GPU time.
func (r *run) loss() int64 {
	s := r.job.Spec
	n := s.GPUs * s.NodeCount()
	return preemptCost(n) * int64(max(1, n))
}

// end proposes to end the attempt that a run is part of for t, and takes it out
// of the mirror, on all of its nodes.
func (p *gangs) end(ri int32, t *task) {
	r := &p.runs[ri]
	p.plan.Preempt = append(p.plan.Preempt, cluster.Preemption{
		Job: r.job.ID, Attempt: r.job.Live().No, For: t.id, Why: p.label + ": that one goes first",
	})
	for lo, hi := p.siblings(ri); lo < hi; lo++ {
		p.remove(lo)
	}
}
