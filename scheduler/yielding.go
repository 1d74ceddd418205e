package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// yielding is a node as it would be if the preempted jobs had left and those they
// made room for had started.
type yielding struct {
	host     int32
	opened   bool     // the rest is filled in
	most     int64    // left of a job, on a whole GPU
	may      []*giver // jobs that may still be preempted, in the order in which they are tried
	cpu, mem int64
	cards    []dispatch.GPUUse
	on       [][]company.Sharer // nil if nothing was learned of sharing
}

// giver is a running job that may be preempted, on all of its nodes at once.
type giver struct {
	job   *cluster.Job
	left  int64   // how much longer it runs, in microseconds
	cost  int64   // of its preemption, in microseconds
	size  int64   // what it takes of GPUs, in thousandths of one
	hosts []int32 // its nodes
	rank  *rank   // its place in the order if it waited; nil until first needed
}

// work returns what is left of it on a whole GPU, in microseconds.
func (g *giver) work() int64 { return min(g.left, rules.MaxSpread) / cluster.WholeGPU * g.size }

// spans reports whether it frees more than one node.
func (g *giver) spans() bool { return len(g.hosts) > 1 }

// wish is a job that others may be preempted for, on GPUs of a range of classes.
type wish struct {
	*item
	rank   rank
	lo, hi int
}

// open sorts the jobs that may be preempted on a node and reads its resources,
// once: those with the most left first, last those that would free other nodes,
// which the job does not need.
func (c *yielding) open(p *pass) {
	if c.opened {
		return
	}
	c.opened = true
	slices.SortFunc(c.may, func(a, b *giver) int {
		return cmp.Or(cmp.Compare(len(a.hosts), len(b.hosts)), cmp.Compare(b.work(), a.work()), cmp.Compare(b.job.ID, a.job.ID))
	})
	h := &p.f.Hosts[c.host]
	c.cpu, c.mem = h.FreeCPU(), h.FreeMem()
	for i := h.Lo; i < h.Hi; i++ {
		c.cards = append(c.cards, p.f.Cards[i].Use)
		if p.crowd != nil {
			c.on = append(c.on, slices.Clone(p.crowd.on[i]))
		}
	}
}

// lift tentatively removes a job from a node or, with sign 1, puts it back.
func (c *yielding) lift(g *giver, p *pass, sign int64) {
	b := g.berth(c.host)
	c.cpu -= sign * b.CPUMilli
	c.mem -= sign * b.MemMiB
	lo := p.f.Hosts[c.host].Lo
	for _, gs := range b.GPUs {
		k := p.f.CardAt[gs.GPU] - lo
		u := &c.cards[k]
		u.UsedMiB += sign * gs.Share.MemMiB
		u.UsedMilli += sign * gs.Share.Milli
		u.Shares += int(sign)
		u.Exclusive = u.Shares > 0 && (u.Exclusive || sign > 0 && gs.Share.Exclusive) && (sign > 0 || !gs.Share.Exclusive)
		switch {
		case c.on == nil:
		case sign > 0:
			c.on[k] = company.Insert(c.on[k], p.crowd.sharer(g.job, g.job.ID, cluster.BusyMilli(g.job.Spec, gs.Share, &g.job.Live().Estimate), lo+k))
		default:
			c.on[k] = slices.DeleteFunc(c.on[k], func(m company.Sharer) bool { return m.Job == g.job.ID })
		}
	}
}

// berth returns what it holds of one of its nodes.
func (g *giver) berth(host int32) *cluster.Berth {
	at := slices.Index(g.hosts, host)
	for rank, b := range g.job.Live().Berths() {
		if rank == at {
			return b
		}
	}
	panic("scheduler: job " + g.job.ID.String() + " makes room on a node where it is not")
}

// holds reports whether a job fits a node in its assumed state.
func (c *yielding) holds(w *wish, p *pass) bool { return c.class(w, p, nil) >= 0 }

// class returns the class of GPUs on which a job fits a node in its assumed state,
// -1 for none; it appends those GPUs to at, unless at is nil.
func (c *yielding) class(w *wish, p *pass, at *[]int32) int32 {
	if c.cpu < w.cpu || c.mem < w.mem || w.whole && !c.bare(w, p) {
		return -1
	}
	lo := p.f.Hosts[c.host].Lo
	for class := w.lo; class < w.hi; class++ {
		if w.needs[class].Way == rules.WayNone || p.limits != nil && p.overLimit(w.item, class) {
			continue
		}
		n, of := 0, 0
		for k := range c.cards {
			i := lo + int32(k)
			if p.f.Cards[i].Class != int32(class) {
				continue
			}
			if of++; !c.room(w.item, p, k) {
				continue
			}
			if at != nil {
				*at = append(*at, int32(k))
			}
			if n++; n == w.gpus && !w.whole {
				return int32(class)
			}
		}
		if w.whole && n >= w.gpus && n == of {
			return int32(class)
		}
		if at != nil {
			*at = (*at)[:0]
		}
	}
	return -1
}

// bare reports whether a node would be empty with nothing of it reserved, so that a
// job can have all of it.
func (c *yielding) bare(w *wish, p *pass) bool {
	h := &p.f.Hosts[c.host]
	return c.cpu == h.Use.CPUMilli && c.mem == h.Use.MemMiB && len(c.cards) <= cluster.MaxGPUsPerJob &&
		!slices.ContainsFunc(c.cards, func(u dispatch.GPUUse) bool { return u.Shares > 0 })
}

// room reports whether GPU k of a node would have room for a job, for as long as it
// is reserved for no other.
func (c *yielding) room(it *item, p *pass, k int) bool {
	i := p.f.Hosts[c.host].Lo + int32(k)
	card, u := &p.f.Cards[i], &c.cards[k]
	n := &it.needs[card.Class]
	if u.FreeShares() < 1 || u.Shares >= max(1, p.pol.MaxShares) || card.Regretted && u.Shares > 0 || p.now+n.Dur > card.Until {
		return false
	}
	if n.Way == rules.WayWhole {
		return u.Shares == 0
	}
	if n.Mem > u.FreeMiB() || n.Milli > u.FreeMilli() {
		return false
	}
	if c.on == nil || u.Shares == 0 {
		return true
	}
	if v := company.Strangers(card.GPU, c.on[k], &it.job.Owner); v.Strange != nil {
		return false
	}
	newcomer := p.crowd.sharer(it.job, 0, n.Busy, i)
	return company.Suits(p.crowd.know, p.crowd.rules[i].Sharing, c.on[k], &newcomer, p.pol.MaxSlowdownMilli)
}

// claim gives a job its room on a node, so that no other counts on it, and returns
// the GPUs.
func (c *yielding) claim(w *wish, p *pass) (at []int32) {
	class, it := c.class(w, p, &at), w.item
	c.cpu -= it.cpu
	c.mem -= it.mem
	if it.whole {
		c.cpu, c.mem = 0, 0 // even if it asks for less memory: no other job may run there
	}
	n := &it.needs[class]
	s := n.Share(p.f.Classes[class].Sellable)
	for _, k := range at {
		u := &c.cards[k]
		u.UsedMiB += s.MemMiB
		u.UsedMilli += s.Milli
		u.Shares++
		u.Exclusive = s.Exclusive
		if c.on != nil {
			c.on[k] = company.Insert(c.on[k], p.crowd.sharer(it.job, it.job.ID, n.Busy, p.f.Hosts[c.host].Lo+k))
		}
	}
	for i := range at {
		at[i] += p.f.Hosts[c.host].Lo
	}
	return at
}
