package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// The load of a card is how many microseconds of the whole card are spoken
// for: of each job that lies there what remains of it, of each that waits
// there all of it, each times the fraction of the card it takes. For jobs
// that take cards alone this is SchedTune's queueing time (equation 1); with
// sharing it is what a card would need if work were a fluid.

// weigh is what a job adds to the load of a card of class c for each GPU.
func (p *pass) weigh(it *item, c int) int64 {
	n := &it.needs[c]
	return n.Dur / cluster.WholeGPU * n.Dominant(p.f.classes[c].Sellable)
}

// needLoads makes the loads of all cards, once in a pass.
func (p *pass) needLoads() {
	if p.loaded {
		return
	}
	p.loaded = true
	p.loadRunning()
	for i := range p.items {
		if it := &p.items[i]; !it.gone && it.queue >= 0 {
			p.addQueued(it, 1)
		}
	}
	for _, s := range p.started {
		p.f.cards[s.card].load += s.load
	}
	for c := range p.f.classes {
		k := &p.f.classes[c]
		k.loads = newLoadTree(len(k.cards))
		for place, i := range k.cards {
			cd := &p.f.cards[i]
			h, g := &p.f.hosts[cd.host], &k.groups[cd.group]
			cd.load += int64(cd.unseen)*k.meanUS + g.load
			k.loads.at[k.loads.leaves+place] = loadLeaf{cd.load, h.use.CPUMilli, h.use.MemMiB, int64(g.hi - g.lo)}
		}
		k.loads.build()
	}
}

// loadRunning adds what runs, and learns how long runs take on each class.
func (p *pass) loadRunning() {
	sum, count := make([]int64, len(p.f.classes)), make([]int64, len(p.f.classes))
	for _, j := range p.running {
		a := j.Live()
		if a == nil {
			continue
		}
		end, _ := rules.EndsAt(j, a, p.now, &p.pol)
		for _, gs := range a.HeldGPUs() {
			i, ok := p.f.cardAt[gs.GPU]
			if !ok {
				continue
			}
			cd := &p.f.cards[i]
			n := rules.Need{Mem: gs.Share.MemMiB, Milli: gs.Share.Milli, Way: rules.WayShare}
			if gs.Share.Exclusive {
				n.Way = rules.WayWhole
			}
			cd.load += (end - p.now) / cluster.WholeGPU * n.Dominant(cd.use.SellableMiB)
			if cd.class >= 0 {
				sum[cd.class] += rules.DurationOf(j, &a.Estimate, &p.pol)
				count[cd.class]++
			}
		}
	}
	for c := range p.f.classes {
		p.f.classes[c].meanUS = p.pol.AssumedDuration.Microseconds()
		if count[c] > 0 {
			p.f.classes[c].meanUS = sum[c] / count[c]
		}
	}
}

// addQueued adds what a waiter adds to the load of its queue, or takes it
// away. A job for several GPUs loads all of the class on its node evenly,
// since nobody knows yet which it will get.
func (p *pass) addQueued(it *item, sign int64) {
	cd := &p.f.cards[it.queue]
	if cd.class < 0 || it.needs[cd.class].Way == rules.WayNone {
		return
	}
	w := sign * p.weigh(it, int(cd.class))
	n := int64(it.gpus)
	if n <= 1 {
		p.addLoad(it.queue, w)
		return
	}
	k := &p.f.classes[cd.class]
	g := &k.groups[cd.group]
	each := w * n / int64(g.hi-g.lo)
	if k.loads == nil { // needLoads gives it to all cards at once
		g.load += each
		return
	}
	for _, i := range k.cards[g.lo:g.hi] {
		p.addLoad(i, each)
	}
}

func (p *pass) addLoad(i int32, w int64) {
	cd := &p.f.cards[i]
	cd.load += w
	if cd.class >= 0 && p.f.classes[cd.class].loads != nil {
		p.f.classes[cd.class].loads.setLoad(int(cd.place), cd.load)
	}
}

// settle moves the load of a job that starts from its queue to its cards.
func (p *pass) settle(it *item, c int, cards []int32) {
	end := p.now + it.needs[c].Dur
	limit := end
	if l := it.job.Spec.TimeLimit; l > 0 {
		limit = p.now + l.Microseconds()
	}
	for _, i := range cards {
		s := newcomer{card: i, load: p.weigh(it, c), resident: resident{end: limit, share: it.needs[c].Share(p.f.classes[c].Sellable)}}
		p.started = append(p.started, s)
		if p.residents != nil {
			p.residents[i] = append(p.residents[i], s.resident)
		}
		if p.loaded {
			p.addLoad(i, s.load)
		}
	}
	if p.loaded && it.queue >= 0 {
		p.addQueued(it, -1)
	}
}

// leastLoaded returns the card of class c on which the job would wait least,
// and for how long; -1 when no node could ever hold it.
func (p *pass) leastLoaded(it *item, c int) (int32, int64) {
	p.needLoads()
	k := &p.f.classes[c]
	want := loadLeaf{cpu: it.cpu, host: it.mem, count: int64(max(1, it.gpus))}
	place := -1
	if it.node == "" {
		place = k.loads.least(&want)
	} else if g := p.groupOn(it.node, k); g != nil {
		for i := int(g.lo); i < int(g.hi); i++ {
			l := &k.loads.at[k.loads.leaves+i]
			if l.large(&want) && (place < 0 || l.load < k.loads.at[k.loads.leaves+place].load) {
				place = i
			}
		}
	}
	if place < 0 {
		return -1, 0
	}
	i := k.cards[place]
	return i, p.waitAt(it, i)
}

// waitAt is how long a job that joins the queue of a card waits: until so
// many cards of the node are through with what they have.
func (p *pass) waitAt(it *item, i int32) int64 {
	cd := &p.f.cards[i]
	n := it.gpus
	if n <= 1 {
		return cd.load
	}
	k := &p.f.classes[cd.class]
	g := &k.groups[cd.group]
	var buf [2 * cluster.MaxGPUsPerJob]int64
	loads := buf[:0]
	for _, j := range k.cards[g.lo:g.hi] {
		loads = append(loads, p.f.cards[j].load)
	}
	return nth(loads, min(n, len(loads))-1)
}

// bestQueue is the queue in which the job is expected to end first, -1 when
// there is none.
func (p *pass) bestQueue(it *item) (at int32, wait, done int64) {
	at, done = -1, rules.Forever
	if o := it.job.Spec.Objective; o != "" && o != cluster.ObjectiveLatency {
		p.able = p.able[:0]
		for c := range it.needs {
			if it.needs[c].Way != rules.WayNone && p.everOn(it, c) {
				p.able = append(p.able, c)
			}
		}
		if c, ok := p.chooses(it, p.able); ok {
			i, w := p.leastLoaded(it, c)
			return i, w, w + it.needs[c].Dur
		}
	}
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone {
			continue
		}
		i, w := p.leastLoaded(it, c)
		if i >= 0 && (at < 0 || w+it.needs[c].Dur < done) {
			at, wait, done = i, w, w+it.needs[c].Dur
		}
	}
	return at, wait, done
}

// wait gives a job that cannot start a queue, if it has none that is good.
func (p *pass) wait(it *item) {
	if it.spans() {
		p.tellSpan(it)
		return
	}
	p.tellWhere(it)
	if it.gpus == 0 && it.job.State != cluster.JobQueued || p.moves >= p.pol.MaxMoves || p.queueHolds(it) {
		return
	}
	to, wait, _ := p.bestQueue(it)
	switch {
	case to >= 0:
		p.moves++
		p.join(it, to, wait)
	case it.job.State == cluster.JobQueued:
		p.moves++
		it.moved = true
		p.plan.Moves = append(p.plan.Moves, cluster.QueueMove{Job: it.job.ID, Reason: p.reason(it).Code})
		it.queue = -1
	}
}

// queueHolds reports whether the job stands in a queue that can still serve it.
func (p *pass) queueHolds(it *item) bool {
	if it.queue < 0 {
		return false
	}
	cd := &p.f.cards[it.queue]
	if cd.class < 0 || it.needs[cd.class].Way == rules.WayNone {
		return false
	}
	h, g := &p.f.hosts[cd.host], &p.f.classes[cd.class].groups[cd.group]
	return h.use.CPUMilli >= it.cpu && h.use.MemMiB >= it.mem && int(g.hi-g.lo) >= it.gpus &&
		(it.node == "" || it.node == h.node.ID)
}

// join puts a job into the queue of a card.
func (p *pass) join(it *item, to int32, wait int64) {
	if it.queue >= 0 {
		p.addQueued(it, -1)
	}
	it.queue, it.moved = to, true
	p.plan.Moves = append(p.plan.Moves, cluster.QueueMove{
		Job: it.job.ID, GPU: p.f.cards[to].use.ID, Rank: p.queueRank(it), EstStart: cluster.Time(p.now + wait), Reason: p.reason(it).Code,
	})
	p.addQueued(it, 1)
}

// Queues are ordered like passes: the rank of a waiter is its tier and then its
// place there. Who is old has the time since when it waits, and no tier. So had
// everybody in queues that were written before queues had an order.
const (
	rankTier = 1 << 58
	rankSize = 1 << 32 // larger than the size of any job, in thousandths of a card
)

// queueRank is the rank of a job in whatever queue.
func (p *pass) queueRank(it *item) int64 {
	if by := it.job.Spec.Deadline; by > 0 && it.fast >= 0 {
		return int64(by) / 1e6 // before all ages
	}
	return inClass(p.placeRank(it), it.class)
}

// placeRank is the rank among those of one priority.
func (p *pass) placeRank(it *item) int64 {
	if it.old || it.fast < 0 {
		return int64(it.job.Eligible)
	}
	tier, first, second := p.byLength(it)
	if tier == tierLong {
		first, second = max(0, rules.MaxSpread+first)>>14, 0 // first is the negative duration
	}
	return int64(tier-tierOld)*rankTier + first*rankSize + rankSize + second - 1
}

// RankIsOld tells of the rank of a waiter in a queue that whoever has it is old
// or has a deadline, so that nobody passes it there. Such ranks are times: since
// when they wait, in microseconds, or by when they must end, in seconds.
func RankIsOld(rank int64) bool { return classless(rank) < rankTier }

// rankedShort tells of a rank that whoever has it was short when it came.
func rankedShort(rank int64) bool { return classless(rank)/rankTier == int64(tierShort-tierOld) }

// rerank gives those a new place in their queue who became old, or who are no
// longer as short beside the others as their rank says; the fast path goes by it.
func (p *pass) rerank() {
	left := p.pol.MaxRebalance
	for i := range p.f.cards {
		for _, w := range p.f.cards[i].queue {
			if left <= 0 {
				return
			}
			it := p.find(w.Job)
			if it == nil || it.gone || it.moved || it.queue != int32(i) || it.fast < 0 ||
				priorityOf(w.Rank) == it.class && first(it) == RankIsOld(w.Rank) && (first(it) || !rankedShort(w.Rank) || it.tier == tierShort) {
				continue
			}
			left--
			it.moved = true
			p.plan.Moves = append(p.plan.Moves, cluster.QueueMove{
				Job: w.Job, GPU: p.f.cards[i].use.ID, Rank: p.queueRank(it), EstStart: it.job.EstStart, Reason: p.reason(it).Code,
			})
		}
	}
}

// first reports whether nobody passes a job in its queue.
func first(it *item) bool { return it.old || it.job.Spec.Deadline > 0 }

// tailDepth is how many of the last waiters of a long queue are asked whether
// they would end sooner elsewhere.
const tailDepth = 4

// rebalance moves jobs from the ends of the longest queues to shorter ones.
// Whoever stands further in front stays: most of a backlog is never looked at
// again.
func (p *pass) rebalance() {
	left := p.pol.MaxRebalance
	if left <= 0 || p.unseen {
		return
	}
	var long []int32
	for i := range p.f.cards {
		if c := &p.f.cards[i]; c.class >= 0 && len(c.queue) > 0 {
			long = append(long, int32(i))
		}
	}
	if len(long) == 0 {
		return
	}
	p.needLoads()
	slices.SortFunc(long, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.f.cards[b].load, p.f.cards[a].load), cmp.Compare(a, b))
	})
	for tries := 0; len(long) > 0 && left > 0 && tries < 2*p.pol.MaxRebalance; tries++ {
		c := &p.f.cards[long[0]]
		moved := false
		for i := len(c.queue) - 1; i >= max(0, len(c.queue)-tailDepth) && left > 0; i-- {
			// Who has cards kept for it stays, or what is kept would hop about and
			// never come free.
			if it := p.find(c.queue[i].Job); it != nil && !it.gone && !it.kept && it.queue == long[0] && p.better(it) {
				moved = true
				left--
			}
		}
		if !moved && tries > tailDepth*tailDepth {
			return // the longest queues are all as good as others
		}
		long = long[1:]
	}
}

// better moves a queued job elsewhere if that ends it much sooner.
func (p *pass) better(it *item) bool {
	cd := &p.f.cards[it.queue]
	c := int(cd.class)
	if !p.queueHolds(it) {
		return false
	}
	here := p.waitAt(it, it.queue) // its own work included
	to, wait, done := p.bestQueue(it)
	if to < 0 || to == it.queue || done >= rules.Forever {
		return false
	}
	gain := here - done
	if it.gpus > 1 { // its own work is spread over the node
		gain = here + it.needs[c].Dur/2 - done
	}
	if gain < p.pol.MinGain.Microseconds() || gain < here/1000*p.pol.MinGainMilli {
		return false
	}
	p.join(it, to, wait)
	return true
}
