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

// lines are the queues of cards: how long they are, who joins them, leaves them and
// goes from one to another.
type lines struct {
	*scene
	turns  *turns
	teller *teller
	loaded bool
	moves  int
	// residents holds who lies on each card and until when, made when first
	// asked for; started are those that this pass laid there.
	residents [][]resident
	started   []newcomer
	able      []int // scratch
}

// weigh is what a job adds to the load of a card of class c for each GPU.
func (ls *lines) weigh(it *item, c int) int64 {
	n := &it.needs[c]
	return n.Dur / cluster.WholeGPU * n.Dominant(ls.f.classes[c].Sellable)
}

// needLoads makes the loads of all cards, once in a pass.
func (ls *lines) needLoads() {
	if ls.loaded {
		return
	}
	ls.loaded = true
	ls.loadRunning()
	for i := range ls.items {
		if it := &ls.items[i]; !it.gone && it.queue >= 0 {
			ls.addQueued(it, 1)
		}
	}
	for _, s := range ls.started {
		ls.f.cards[s.card].load += s.load
	}
	for c := range ls.f.classes {
		k := &ls.f.classes[c]
		k.loads = newLoadTree(len(k.cards))
		for place, i := range k.cards {
			cd := &ls.f.cards[i]
			h, g := &ls.f.hosts[cd.host], &k.groups[cd.group]
			cd.load += int64(cd.unseen)*k.meanUS + g.load
			k.loads.at[k.loads.leaves+place] = loadLeaf{cd.load, h.use.CPUMilli, h.use.MemMiB, int64(g.hi - g.lo)}
		}
		k.loads.build()
	}
}

// loadRunning adds what runs, and learns how long runs take on each class.
func (ls *lines) loadRunning() {
	sum, count := make([]int64, len(ls.f.classes)), make([]int64, len(ls.f.classes))
	for _, j := range ls.running {
		a := j.Live()
		if a == nil {
			continue
		}
		end, _ := rules.EndsAt(j, a, ls.now, &ls.pol)
		for _, gs := range a.HeldGPUs() {
			i, ok := ls.f.cardAt[gs.GPU]
			if !ok {
				continue
			}
			cd := &ls.f.cards[i]
			n := rules.Need{Mem: gs.Share.MemMiB, Milli: gs.Share.Milli, Way: rules.WayShare}
			if gs.Share.Exclusive {
				n.Way = rules.WayWhole
			}
			cd.load += (end - ls.now) / cluster.WholeGPU * n.Dominant(cd.use.SellableMiB)
			if cd.class >= 0 {
				sum[cd.class] += rules.DurationOf(j, &a.Estimate, &ls.pol)
				count[cd.class]++
			}
		}
	}
	for c := range ls.f.classes {
		ls.f.classes[c].meanUS = ls.pol.AssumedDuration.Microseconds()
		if count[c] > 0 {
			ls.f.classes[c].meanUS = sum[c] / count[c]
		}
	}
}

// addQueued adds what a waiter adds to the load of its queue, or takes it
// away. A job for several GPUs loads all of the class on its node evenly,
// since nobody knows yet which it will get.
func (ls *lines) addQueued(it *item, sign int64) {
	cd := &ls.f.cards[it.queue]
	if cd.class < 0 || it.needs[cd.class].Way == rules.WayNone {
		return
	}
	w := sign * ls.weigh(it, int(cd.class))
	n := int64(it.gpus)
	if n <= 1 {
		ls.addLoad(it.queue, w)
		return
	}
	k := &ls.f.classes[cd.class]
	g := &k.groups[cd.group]
	each := w * n / int64(g.hi-g.lo)
	if k.loads == nil { // needLoads gives it to all cards at once
		g.load += each
		return
	}
	for _, i := range k.cards[g.lo:g.hi] {
		ls.addLoad(i, each)
	}
}

func (ls *lines) addLoad(i int32, w int64) {
	cd := &ls.f.cards[i]
	cd.load += w
	if cd.class >= 0 && ls.f.classes[cd.class].loads != nil {
		ls.f.classes[cd.class].loads.setLoad(int(cd.place), cd.load)
	}
}

// settle moves the load of a job that starts from its queue to its cards.
func (ls *lines) settle(it *item, c int, cards []int32) {
	end := ls.now + it.needs[c].Dur
	limit := end
	if l := it.job.Spec.TimeLimit; l > 0 {
		limit = ls.now + l.Microseconds()
	}
	for _, i := range cards {
		s := newcomer{card: i, load: ls.weigh(it, c), resident: resident{end: limit, share: it.needs[c].Share(ls.f.classes[c].Sellable)}}
		ls.started = append(ls.started, s)
		if ls.residents != nil {
			ls.residents[i] = append(ls.residents[i], s.resident)
		}
		if ls.loaded {
			ls.addLoad(i, s.load)
		}
	}
	if ls.loaded && it.queue >= 0 {
		ls.addQueued(it, -1)
	}
}

// leastLoaded returns the card of class c on which the job would wait least,
// and for how long; -1 when no node could ever hold it.
func (ls *lines) leastLoaded(it *item, c int) (int32, int64) {
	ls.needLoads()
	k := &ls.f.classes[c]
	want := loadLeaf{cpu: it.cpu, host: it.mem, count: int64(max(1, it.gpus))}
	place := -1
	if it.node == "" {
		place = k.loads.least(&want)
	} else if g := ls.f.groupOn(it.node, k); g != nil {
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
	return i, ls.f.waitAt(it, i)
}

// waitAt is how long a job that joins the queue of a card waits: until so
// many cards of the node are through with what they have.
func (f *fleet) waitAt(it *item, i int32) int64 {
	cd := &f.cards[i]
	n := it.gpus
	if n <= 1 {
		return cd.load
	}
	k := &f.classes[cd.class]
	g := &k.groups[cd.group]
	var buf [2 * cluster.MaxGPUsPerJob]int64
	loads := buf[:0]
	for _, j := range k.cards[g.lo:g.hi] {
		loads = append(loads, f.cards[j].load)
	}
	return nth(loads, min(n, len(loads))-1)
}

// bestQueue is the queue in which the job is expected to end first, -1 when
// there is none.
func (ls *lines) bestQueue(it *item) (at int32, wait, done int64) {
	at, done = -1, rules.Forever
	if o := it.job.Spec.Objective; o != "" && o != cluster.ObjectiveLatency {
		ls.able = ls.able[:0]
		for c := range it.needs {
			if it.needs[c].Way != rules.WayNone && ls.f.everOn(it, c) {
				ls.able = append(ls.able, c)
			}
		}
		if c, ok := ls.chooses(it, ls.able); ok {
			i, w := ls.leastLoaded(it, c)
			return i, w, w + it.needs[c].Dur
		}
	}
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone {
			continue
		}
		i, w := ls.leastLoaded(it, c)
		if i >= 0 && (at < 0 || w+it.needs[c].Dur < done) {
			at, wait, done = i, w, w+it.needs[c].Dur
		}
	}
	return at, wait, done
}

// wait gives a job that cannot start a queue, if it has none that is good.
func (ls *lines) wait(it *item) {
	if it.spans() {
		ls.tellSpan(it)
		return
	}
	ls.tellWhere(it)
	if it.gpus == 0 && it.job.State != cluster.JobQueued || ls.moves >= ls.pol.MaxMoves || ls.queueHolds(it) {
		return
	}
	to, wait, _ := ls.bestQueue(it)
	switch {
	case to >= 0:
		ls.moves++
		ls.join(it, to, wait)
	case it.job.State == cluster.JobQueued:
		ls.moves++
		it.moved = true
		ls.plan.Moves = append(ls.plan.Moves, cluster.QueueMove{Job: it.job.ID, Reason: ls.teller.reason(it).Code})
		it.queue = -1
	}
}

// queueHolds reports whether the job stands in a queue that can still serve it.
func (ls *lines) queueHolds(it *item) bool {
	if it.queue < 0 {
		return false
	}
	cd := &ls.f.cards[it.queue]
	if cd.class < 0 || it.needs[cd.class].Way == rules.WayNone {
		return false
	}
	h, g := &ls.f.hosts[cd.host], &ls.f.classes[cd.class].groups[cd.group]
	return h.use.CPUMilli >= it.cpu && h.use.MemMiB >= it.mem && int(g.hi-g.lo) >= it.gpus &&
		(it.node == "" || it.node == h.node.ID)
}

// join puts a job into the queue of a card.
func (ls *lines) join(it *item, to int32, wait int64) {
	if it.queue >= 0 {
		ls.addQueued(it, -1)
	}
	it.queue, it.moved = to, true
	ls.plan.Moves = append(ls.plan.Moves, cluster.QueueMove{
		Job: it.job.ID, GPU: ls.f.cards[to].use.ID, Rank: ls.turns.queueRank(it), EstStart: cluster.Time(ls.now + wait), Reason: ls.teller.reason(it).Code,
	})
	ls.addQueued(it, 1)
}

// Queues are ordered like passes: the rank of a waiter is its tier and then its
// place there. Who is old has the time since when it waits, and no tier. So had
// everybody in queues that were written before queues had an order.
const (
	rankTier = 1 << 58
	rankSize = 1 << 32 // larger than the size of any job, in thousandths of a card
)

// queueRank is the rank of a job in whatever queue.
func (ts *turns) queueRank(it *item) int64 {
	if by := it.job.Spec.Deadline; by > 0 && it.fast >= 0 {
		return int64(by) / 1e6 // before all ages
	}
	return inClass(ts.placeRank(it), it.class)
}

// placeRank is the rank among those of one priority.
func (ts *turns) placeRank(it *item) int64 {
	if it.old || it.fast < 0 {
		return int64(it.job.Eligible)
	}
	tier, first, second := ts.byLength(it)
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
func (ls *lines) rerank() {
	left := ls.pol.MaxRebalance
	for i := range ls.f.cards {
		for _, w := range ls.f.cards[i].queue {
			if left <= 0 {
				return
			}
			it := ls.find(w.Job)
			if it == nil || it.gone || it.moved || it.queue != int32(i) || it.fast < 0 ||
				priorityOf(w.Rank) == it.class && first(it) == RankIsOld(w.Rank) && (first(it) || !rankedShort(w.Rank) || it.tier == tierShort) {
				continue
			}
			left--
			it.moved = true
			ls.plan.Moves = append(ls.plan.Moves, cluster.QueueMove{
				Job: w.Job, GPU: ls.f.cards[i].use.ID, Rank: ls.turns.queueRank(it), EstStart: it.job.EstStart, Reason: ls.teller.reason(it).Code,
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
func (ls *lines) rebalance() {
	left := ls.pol.MaxRebalance
	if left <= 0 || ls.unseen {
		return
	}
	var long []int32
	for i := range ls.f.cards {
		if c := &ls.f.cards[i]; c.class >= 0 && len(c.queue) > 0 {
			long = append(long, int32(i))
		}
	}
	if len(long) == 0 {
		return
	}
	ls.needLoads()
	slices.SortFunc(long, func(a, b int32) int {
		return cmp.Or(cmp.Compare(ls.f.cards[b].load, ls.f.cards[a].load), cmp.Compare(a, b))
	})
	for tries := 0; len(long) > 0 && left > 0 && tries < 2*ls.pol.MaxRebalance; tries++ {
		c := &ls.f.cards[long[0]]
		moved := false
		for i := len(c.queue) - 1; i >= max(0, len(c.queue)-tailDepth) && left > 0; i-- {
			// Who has cards kept for it stays, or what is kept would hop about and
			// never come free.
			if it := ls.find(c.queue[i].Job); it != nil && !it.gone && !it.kept && it.queue == long[0] && ls.better(it) {
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
func (ls *lines) better(it *item) bool {
	cd := &ls.f.cards[it.queue]
	c := int(cd.class)
	if !ls.queueHolds(it) {
		return false
	}
	here := ls.f.waitAt(it, it.queue) // its own work included
	to, wait, done := ls.bestQueue(it)
	if to < 0 || to == it.queue || done >= rules.Forever {
		return false
	}
	gain := here - done
	if it.gpus > 1 { // its own work is spread over the node
		gain = here + it.needs[c].Dur/2 - done
	}
	if gain < ls.pol.MinGain.Microseconds() || gain < here/1000*ls.pol.MinGainMilli {
		return false
	}
	ls.join(it, to, wait)
	return true
}
