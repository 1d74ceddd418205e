package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// Bounds of how many one pass has make room by attained service: for how many who
// wait, on how many nodes it looks for each, and how many each may displace.
const (
	yieldHeads  = 16
	yieldHosts  = 16
	yieldersMax = 64
)

// yielder has running jobs make room for those who wait that come before them by
// the order of the pass and have much less left to do; see DESIGN.md.
type yielder struct {
	p *pass
	// on are the nodes where somebody may make room, those with the most left of a
	// job first; nil before it is asked for.
	on    []*yielding
	asked map[cluster.JobID]struct{} // for whom somebody leaves already
	tried int
}

// yielding is a node as it would be if those who were asked had left and those
// for whom they were had come.
type yielding struct {
	host     int32
	opened   bool    // the rest is filled in
	most     int64   // left of a job, on a whole card
	may      []giver // who may still make room, with the most left first
	cpu, mem int64
	cards    []cluster.GPUUse
	on       [][]company.Sharer // nil where nothing was learned of sharing
}

// giver is a running job that may make room.
type giver struct {
	job  *cluster.Job
	left int64 // how much longer it runs, in microseconds
	cost int64 // of making room, in microseconds
	size int64 // what it takes of cards, in thousandths of one
	rank *rank // its place in the order if it waited; nil before that is asked for
}

// work is what is left of it on a whole card, in microseconds.
func (g *giver) work() int64 { return min(g.left, rules.MaxSpread) / cluster.WholeGPU * g.size }

// learn looks at what runs.
func (y *yielder) learn() {
	p := y.p
	y.on, y.asked = []*yielding{}, map[cluster.JobID]struct{}{}
	leaves := map[cluster.JobID]struct{}{}
	for i := range p.plan.Preempt {
		leaves[p.plan.Preempt[i].Job] = struct{}{}
		y.asked[p.plan.Preempt[i].For] = struct{}{}
	}
	at := map[int32]*yielding{}
	for _, j := range p.running {
		a := j.Live()
		if !j.Spec.Checkpoint.Set() || a == nil {
			continue
		}
		if a.Preempt != nil {
			y.asked[a.Preempt.For] = struct{}{}
			continue
		}
		g, host, ok := y.giverOf(j, a)
		if _, twice := leaves[j.ID]; !ok || twice {
			continue
		}
		c := at[host]
		if c == nil {
			c = &yielding{host: host}
			at[host] = c
			y.on = append(y.on, c)
		}
		c.may = append(c.may, g)
		c.most = max(c.most, g.work())
	}
	slices.SortFunc(y.on, func(a, b *yielding) int { return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(a.host, b.host)) })
}

// giverOf returns what a running job would give up, and on which node; ok is false
// for one that makes no room for others.
func (y *yielder) giverOf(j *cluster.Job, a *cluster.Attempt) (g giver, host int32, ok bool) {
	p := y.p
	if j.Spec.Deadline > 0 || a.Gang != nil || len(a.Berth.GPUs) == 0 || j.Unpreemptible(cluster.Time(p.now)) != "" {
		return g, 0, false
	}
	if _, n := j.Preempted(); n >= p.pol.YieldMost {
		return g, 0, false
	}
	g = giver{job: j, left: rules.LeftOf(j, &a.Estimate, p.now, &p.pol), cost: rules.YieldCost(j)}
	for _, gs := range a.Berth.GPUs {
		i, there := p.f.CardAt[gs.GPU]
		if !there || p.f.Cards[i].Class < 0 {
			return g, 0, false
		}
		host = p.f.Cards[i].Host
		g.size += cluster.ShareMilli(gs.Share, p.f.Cards[i].Use.SellableMiB)
	}
	return g, host, g.size > 0
}

// takeTurn proposes to end others for a job that did not start, on the node where
// the fewest leave.
func (y *yielder) takeTurn(r rank) {
	p := y.p
	it := &p.items[r.item]
	if p.pol.YieldAfter <= 0 || y.tried >= yieldHeads || it.gpus == 0 || it.spans() || it.fast < 0 || it.job.Spec.Deadline > 0 ||
		p.now < int64(it.job.Eligible.Add(p.pol.YieldAfter)) || p.standing.Preempts(it.job) {
		return // room is made for it by its QOS
	}
	if y.on == nil {
		y.learn()
	}
	if _, coming := y.asked[it.job.ID]; coming || len(y.on) == 0 {
		return
	}
	y.tried++
	best, at := y.best(it, r)
	if at == nil {
		return
	}
	for i := range best {
		j := best[i].job
		p.plan.Preempt = append(p.plan.Preempt, cluster.Preemption{Job: j.ID, Attempt: j.Live().No, For: it.job.ID, Why: y.words(it, &best[i])})
		at.lift(&best[i], p, -1)
	}
	at.may = slices.DeleteFunc(at.may, func(g giver) bool {
		return slices.ContainsFunc(best, func(o giver) bool { return o.job == g.job })
	})
	cards := at.claim(it, p)
	if len(best) > 0 && !it.moved && p.lines.moves < p.pol.MaxMoves && (it.queue < 0 || p.f.Cards[it.queue].Host != at.host) {
		p.lines.moves++
		p.lines.join(it, cards[0], best[0].cost) // where it is looked at as soon as they left
	}
}

// best is who would leave for a job, and where; nil for nowhere.
func (y *yielder) best(it *item, r rank) (best []giver, at *yielding) {
	looked := 0
	for _, c := range y.on {
		h := &y.p.f.Hosts[c.host]
		if h.ForeignQueue || it.node != "" && it.node != h.Node.ID || !it.job.Spec.Allows(h.Node) {
			continue
		}
		c.open(y.p)
		if gs, ok := y.fewest(it, r, c); ok && (at == nil || len(gs) < len(best)) {
			best, at = gs, c
		}
		if looked++; looked == yieldHosts || at != nil && len(best) == 0 {
			break
		}
	}
	return best, at
}

// words say why a job makes room for another.
func (y *yielder) words(it *item, g *giver) string {
	return fmt.Sprintf("it has %s left, and that one %s and has waited for %s", say.About(g.left), say.About(y.lasts(it)), say.About(y.p.now-int64(it.job.Eligible)))
}

// lasts is how long a job that waits is taken to run when others are to make room for
// it, in microseconds. What its user declared moves nobody by itself: unless a run or
// the model says otherwise, the job counts as long as it is allowed to run, or as a job
// that nobody predicted.
func (y *yielder) lasts(it *item) int64 {
	p, n := y.p, &it.needs[it.fast]
	if e, _ := cluster.EstimateFor(it.job.Estimates, p.f.Classes[it.fast].GPUType); it.job.Spec.Duration <= 0 || e.Duration > 0 {
		return n.Dur
	}
	return max(n.Dur, cmp.Or(it.job.Spec.TimeLimit, p.pol.AssumedDuration).Microseconds())
}

// gains reports whether a job may take the place of one that runs: it comes before
// it in the order, and what it waits less is more than what the other waits longer
// by the margin, in time and in time of cards.
func (y *yielder) gains(it *item, r rank, g *giver) bool {
	p, m := y.p, max(1000, y.p.pol.YieldMilli)
	dur := y.lasts(it)
	if g.job.Spec.Partition != it.job.Spec.Partition {
		return false // others are not its to end
	}
	work := p.turns.gpuTime(it, dur) * 1000
	return g.work() >= (work+g.cost/cluster.WholeGPU*g.size)/1000*m && g.left >= (dur+g.cost)/1000*m && y.precedes(it, r, g)
}

// precedes reports whether a job would come before one that runs if that waited,
// and, where fair shares count, its user was not served more.
func (y *yielder) precedes(it *item, r rank, g *giver) bool {
	p := y.p
	if p.pol.FairMilli > 0 && p.standing != nil && p.standing.Fair != nil && p.standing.Fair.Place(assocOf(it.job)) > p.standing.Fair.Place(assocOf(g.job)) {
		return false
	}
	if g.rank == nil {
		w := *g.job
		w.Eligible = cluster.Time(p.now)
		other := newItem(p.scene, &w, make([]rules.Need, len(p.f.Classes)))
		g.rank = &rank{class: -other.class, tier: tierPlain, first: rules.Forever} // it starts nowhere
		if other.fast = p.fastest(&other); other.fast >= 0 {
			*g.rank = p.turns.rankOf(&other)
		}
	}
	return r.compare(*g.rank) < 0
}

// fewest returns who would leave a node so that a job fits there: with the most left
// first, and nobody without need. ok is false when it would not fit even then.
func (y *yielder) fewest(it *item, r rank, c *yielding) (out []giver, ok bool) {
	p := y.p
	defer func() {
		for i := range out {
			c.lift(&out[i], p, 1)
		}
	}()
	n := 0
	for ; !c.holds(it, p); n++ {
		for n < len(c.may) && !y.gains(it, r, &c.may[n]) {
			n++
		}
		if n >= len(c.may) || len(out) == yieldersMax {
			return out, false
		}
		out = append(out, c.may[n])
		c.lift(&c.may[n], p, -1)
	}
	for i := len(out) - 2; i >= 0; i-- { // the last one is needed
		c.lift(&out[i], p, 1)
		if c.holds(it, p) {
			out = slices.Delete(out, i, i+1)
		} else {
			c.lift(&out[i], p, -1)
		}
	}
	return out, y.pays(it, out)
}

// pays reports whether a job waits less by the margin than all those wait longer
// together who make room for it.
func (y *yielder) pays(it *item, gs []giver) bool {
	gain, loss := int64(rules.Forever), int64(0)
	for i := range gs {
		gain = min(gain, gs[i].left)
		loss += y.lasts(it) + gs[i].cost
	}
	return gain >= loss/1000*max(1000, y.p.pol.YieldMilli)
}

// open sorts who may make room on a node and reads what it has, once.
func (c *yielding) open(p *pass) {
	if c.opened {
		return
	}
	c.opened = true
	slices.SortFunc(c.may, func(a, b giver) int { return cmp.Or(cmp.Compare(b.work(), a.work()), cmp.Compare(b.job.ID, a.job.ID)) })
	h := &p.f.Hosts[c.host]
	c.cpu, c.mem = h.FreeCPU(), h.FreeMem()
	for i := h.Lo; i < h.Hi; i++ {
		c.cards = append(c.cards, p.f.Cards[i].Use)
		if p.crowd != nil {
			c.on = append(c.on, slices.Clone(p.crowd.on[i]))
		}
	}
}

// lift takes a job from a node in thought, or with sign 1 puts it back.
func (c *yielding) lift(g *giver, p *pass, sign int64) {
	b := &g.job.Live().Berth
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
			c.on[k] = company.Insert(c.on[k], company.SharerOf(p.crowd.know, g.job, g.job.ID, gs.Share.Milli))
		default:
			c.on[k] = slices.DeleteFunc(c.on[k], func(m company.Sharer) bool { return m.Job == g.job.ID })
		}
	}
}

// holds reports whether a job fits a node as it would be.
func (c *yielding) holds(it *item, p *pass) bool { return c.class(it, p, nil) >= 0 }

// class is the class of cards on which a job fits a node as it would be, -1 for none;
// it appends which those are to at, unless that is nil.
func (c *yielding) class(it *item, p *pass, at *[]int32) int32 {
	if c.cpu < it.cpu || c.mem < it.mem {
		return -1
	}
	lo := p.f.Hosts[c.host].Lo
	for class := range it.needs {
		if it.needs[class].Way == rules.WayNone {
			continue
		}
		n := 0
		for k := range c.cards {
			i := lo + int32(k)
			if p.f.Cards[i].Class != int32(class) || !c.room(it, p, k) {
				continue
			}
			if at != nil {
				*at = append(*at, int32(k))
			}
			if n++; n == it.gpus {
				return int32(class)
			}
		}
		if at != nil {
			*at = (*at)[:0]
		}
	}
	return -1
}

// room reports whether card k of a node would have room for a job, for as long as
// that is kept for nobody else.
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
	v := company.Judge(p.crowd.know, p.crowd.rules[i], c.on[k], company.SharerOf(p.crowd.know, it.job, 0, n.Milli), p.pol.MaxSlowdownMilli)
	return !v.Against()
}

// claim gives a job its room on a node, so that nobody else counts on it, and
// returns the cards.
func (c *yielding) claim(it *item, p *pass) (at []int32) {
	class := c.class(it, p, &at)
	c.cpu -= it.cpu
	c.mem -= it.mem
	n := &it.needs[class]
	s := n.Share(p.f.Classes[class].Sellable)
	for _, k := range at {
		u := &c.cards[k]
		u.UsedMiB += s.MemMiB
		u.UsedMilli += s.Milli
		u.Shares++
		u.Exclusive = s.Exclusive
		if c.on != nil {
			c.on[k] = company.Insert(c.on[k], company.SharerOf(p.crowd.know, it.job, it.job.ID, s.Milli))
		}
	}
	for i := range at {
		at[i] += p.f.Hosts[c.host].Lo
	}
	return at
}
