package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// The load of a GPU is how many microseconds of the whole GPU are spoken for: the
// remaining time of each job there and the whole time of each that waits there,
// each times the fraction of the GPU it takes. For jobs that run alone this is
// SchedTune's queueing time (equation 1); with sharing it is what a GPU would need
// if work were a fluid.

// lines are the queues of GPUs: their lengths, and which jobs join, leave and move
// between them.
type lines struct {
	*scene
	turns  *turns
	teller *teller
	loaded bool
	moves  int
	// spanned is where jobs on several nodes, or on whole ones, keep their deadlines.
	spanned map[cluster.JobID]dispatch.QueueMove
	// residents holds the jobs on each GPU and their ends, built on first use;
	// started holds those that this pass placed there.
	residents [][]resident
	started   []newcomer
	able      []int // scratch
}

// weigh returns what a job adds to the load of a GPU of class c for each GPU it
// takes.
func (ls *lines) weigh(it *item, c int) int64 {
	n := &it.needs[c]
	return n.Dur / cluster.WholeGPU * n.Dominant(ls.f.Classes[c].Sellable)
}

// needLoads computes the loads of all GPUs, once in a pass.
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
		ls.f.Cards[s.card].Load += s.load
	}
	for c := range ls.f.Classes {
		k := &ls.f.Classes[c]
		k.BeginLoads()
		for place, i := range k.Cards {
			cd := &ls.f.Cards[i]
			h, g := &ls.f.Hosts[cd.Host], &k.Groups[cd.Group]
			cd.Load += int64(cd.Unseen)*k.MeanUS + g.Load
			k.Loads.At[k.Loads.Leaves+place] = fleet.LoadLeaf{Load: cd.Load, CPU: h.Use.CPUMilli, Host: h.Use.MemMiB, Count: int64(g.Hi - g.Lo)}
		}
		k.Loads.Build()
	}
}

// loadRunning adds running jobs, and learns how long runs take on each class.
func (ls *lines) loadRunning() {
	sum, count := make([]int64, len(ls.f.Classes)), make([]int64, len(ls.f.Classes))
	for _, h := range ls.holdings() {
		cd := &ls.f.Cards[h.card]
		cd.Load += h.left / cluster.WholeGPU * h.dominant
		if cd.Class >= 0 {
			sum[cd.Class] += h.dur
			count[cd.Class]++
		}
	}
	for c := range ls.f.Classes {
		ls.f.Classes[c].MeanUS = ls.pol.AssumedDuration.Microseconds()
		if count[c] > 0 {
			ls.f.Classes[c].MeanUS = sum[c] / count[c]
		}
	}
}

// addQueued adds a waiting job's load to its queue, or removes it. A job for
// several GPUs loads all GPUs of the class on its node evenly, since it is not
// known yet which it will get.
func (ls *lines) addQueued(it *item, sign int64) {
	cd := &ls.f.Cards[it.queue]
	if cd.Class < 0 || it.needs[cd.Class].Way == rules.WayNone {
		return
	}
	w := sign * ls.weigh(it, int(cd.Class))
	n := int64(it.gpus)
	if n <= 1 {
		ls.addLoad(it.queue, w)
		return
	}
	k := &ls.f.Classes[cd.Class]
	g := &k.Groups[cd.Group]
	each := w * n / int64(g.Hi-g.Lo)
	if k.Loads == nil { // needLoads sets all GPUs at once
		g.Load += each
		return
	}
	for _, i := range k.Cards[g.Lo:g.Hi] {
		ls.addLoad(i, each)
	}
}

func (ls *lines) addLoad(i int32, w int64) {
	cd := &ls.f.Cards[i]
	cd.Load += w
	if cd.Class >= 0 && ls.f.Classes[cd.Class].Loads != nil {
		ls.f.Classes[cd.Class].Loads.SetLoad(int(cd.Place), cd.Load)
	}
}

// settle moves the load of a starting job from its queue to its GPUs.
func (ls *lines) settle(it *item, c int, cards []int32) {
	end := ls.now + it.needs[c].Dur
	limit := end
	if l := it.job.Spec.TimeLimit; l > 0 {
		limit = ls.now + l.Microseconds()
	}
	for _, i := range cards {
		s := newcomer{card: i, load: ls.weigh(it, c), resident: resident{end: limit, share: it.needs[c].Share(ls.f.Classes[c].Sellable)}}
		ls.started = append(grown(ls.started), s)
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

// leastLoaded returns the GPU of class c on which the job would wait least, and for
// how long; -1 if no node could ever hold it.
func (ls *lines) leastLoaded(it *item, c int) (int32, int64) {
	ls.needLoads()
	k := &ls.f.Classes[c]
	want := fleet.LoadLeaf{CPU: it.cpu, Host: it.mem, Count: int64(max(1, it.gpus))}
	place := -1
	if it.node == "" {
		place = k.Loads.Least(&want)
	} else if g := ls.f.GroupOn(it.node, k); g != nil {
		for i := int(g.Lo); i < int(g.Hi); i++ {
			l := &k.Loads.At[k.Loads.Leaves+i]
			if l.Large(&want) && (place < 0 || l.Load < k.Loads.At[k.Loads.Leaves+place].Load) {
				place = i
			}
		}
	}
	if place < 0 {
		return -1, 0
	}
	i := k.Cards[place]
	return i, ls.waitAt(it, i)
}

// waitAt returns how long a job that joins the queue of a GPU waits: until enough
// GPUs of the node have finished what they have.
func (s *scene) waitAt(it *item, i int32) int64 {
	cd := &s.f.Cards[i]
	n := it.gpus
	if n <= 1 {
		return cd.Load
	}
	k := &s.f.Classes[cd.Class]
	g := &k.Groups[cd.Group]
	loads := s.mem.loads[:0]
	for _, j := range k.Cards[g.Lo:g.Hi] {
		loads = append(loads, s.f.Cards[j].Load)
	}
	s.mem.loads = loads
	return fleet.Nth(loads, min(n, len(loads))-1)
}

// bestQueue returns the queue in which the job is expected to end first, -1 if
// there is none.
func (ls *lines) bestQueue(it *item) (at int32, wait, done int64) {
	at, done = -1, rules.Forever
	if it.aims && it.job.Spec.Objective != cluster.ObjectiveLatency {
		ls.able = ls.able[:0]
		for c := range it.needs {
			if it.needs[c].Way != rules.WayNone && ls.everOn(it, c) {
				ls.able = append(ls.able, c)
			}
		}
		if c, ok := ls.chooses(it, ls.able); ok {
			i, w := ls.leastLoaded(it, c)
			return i, w, w + it.needs[c].Dur
		}
	}
	barred := false // by a trade
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone {
			continue
		}
		i, w := ls.leastLoaded(it, c)
		traded := ls.traded(it, c)
		if i >= 0 && (at < 0 || barred && !traded || barred == traded && w+it.needs[c].Dur < done) {
			at, wait, done, barred = i, w, w+it.needs[c].Dur, traded
		}
	}
	return at, wait, done
}

// wait gives a job that cannot start a queue, unless it has a good one.
func (ls *lines) wait(it *item) {
	if it.spans() {
		ls.tellSpan(it)
		return
	}
	ls.tellWhere(it)
	holds := ls.queueHolds(it)
	if it.gpus == 0 && it.job.State != cluster.JobQueued || ls.moves >= ls.pol.MaxMoves || holds && !ls.traded(it, int(ls.f.Cards[it.queue].Class)) {
		return
	}
	to, wait, _ := ls.bestQueue(it)
	switch {
	case holds && (to < 0 || ls.traded(it, int(ls.f.Cards[to].Class))): // nothing is better
	case to >= 0:
		ls.moves++
		ls.join(it, to, wait)
	case it.job.State == cluster.JobQueued:
		ls.moves++
		it.moved = true
		ls.plan.Moves = append(ls.plan.Moves, dispatch.QueueMove{Job: it.job.ID, Reason: ls.teller.reason(it).Code})
		it.queue = -1
	}
}

// queueHolds reports whether the job is in a queue that can still serve it.
func (ls *lines) queueHolds(it *item) bool {
	if it.queue < 0 {
		return false
	}
	cd := &ls.f.Cards[it.queue]
	if cd.Class < 0 || it.needs[cd.Class].Way == rules.WayNone {
		return false
	}
	h, g := &ls.f.Hosts[cd.Host], &ls.f.Classes[cd.Class].Groups[cd.Group]
	return h.Use.CPUMilli >= it.cpu && h.Use.MemMiB >= it.mem && int(g.Hi-g.Lo) >= it.gpus &&
		(it.node == "" || it.node == h.Node.ID)
}

// join puts a job into the queue of a GPU.
func (ls *lines) join(it *item, to int32, wait int64) {
	if it.queue >= 0 {
		ls.addQueued(it, -1)
	}
	it.queue, it.moved = to, true
	ls.plan.Moves = append(grown(ls.plan.Moves), dispatch.QueueMove{
		Job: it.id, GPU: ls.f.Cards[to].Use.ID, Rank: ls.turns.queueRank(it), EstStart: cluster.Time(ls.now + wait), Reason: ls.teller.reason(it).Code,
	})
	ls.addQueued(it, 1)
}

// Queues are ordered like passes: the rank of a waiting job is its tier, then its
// place there. An old job's rank is the time since which it waits, without a tier;
// so are all ranks in queues written before queues had an order.
const (
	rankTier = 1 << 58
	rankSize = 1 << 32 // greater than the size of any job, in thousandths of a GPU
)

// queueRank returns the rank of a job in any queue.
func (ts *turns) queueRank(it *item) int64 {
	if it.due && it.fast >= 0 {
		return int64(it.job.Spec.Deadline) / 1e6 // before all ages
	}
	return inClass(ts.placeRank(it), it.class)
}

// placeRank returns the rank within one priority.
func (ts *turns) placeRank(it *item) int64 {
	if it.old || it.fast < 0 {
		return it.eligible
	}
	tier, first, second := ts.byLength(it)
	if tier == tierLong {
		first, second = max(0, rules.MaxSpread+first)>>14, 0 // first is the negative duration
	}
	return int64(tier-tierOld)*rankTier + first*rankSize + rankSize + second - 1
}

// RankIsOld reports whether a job with this rank is old or has a deadline, so that
// no other job overtakes it in its queue. Such ranks are times: since when it
// waits, in microseconds, or by when it must end, in seconds.
func RankIsOld(rank int64) bool { return classless(rank) < rankTier }

// rankedShort reports whether a job with this rank was short when it arrived.
func rankedShort(rank int64) bool { return classless(rank)/rankTier == int64(tierShort-tierOld) }

// rerank moves jobs within their queues that became old, or that are no longer as
// short relative to the others as their rank says; the fast path goes by it.
func (ls *lines) rerank() {
	left := ls.pol.MaxRebalance
	for i := range ls.f.Cards {
		for _, w := range ls.f.Cards[i].Queue {
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
			ls.plan.Moves = append(ls.plan.Moves, dispatch.QueueMove{
				Job: w.Job, GPU: ls.f.Cards[i].Use.ID, Rank: ls.turns.queueRank(it), EstStart: it.job.EstStart, Reason: ls.teller.reason(it).Code,
			})
		}
	}
}

// first reports whether no other job may overtake this one in its queue.
func first(it *item) bool { return it.old || it.due }

// tailDepth is how many of the last jobs in a long queue are checked for an earlier
// end elsewhere.
const tailDepth = 4

// rebalance moves jobs from the ends of the longest queues to shorter ones. Jobs
// further ahead stay: most of a backlog is never looked at again.
func (ls *lines) rebalance() {
	left := ls.pol.MaxRebalance
	if left <= 0 || ls.unseen {
		return
	}
	var long []int32
	for i := range ls.f.Cards {
		if c := &ls.f.Cards[i]; c.Class >= 0 && len(c.Queue) > 0 {
			long = append(long, int32(i))
		}
	}
	if len(long) == 0 {
		return
	}
	ls.needLoads()
	slices.SortFunc(long, func(a, b int32) int {
		return cmp.Or(cmp.Compare(ls.f.Cards[b].Load, ls.f.Cards[a].Load), cmp.Compare(a, b))
	})
	for tries := 0; len(long) > 0 && left > 0 && tries < 2*ls.pol.MaxRebalance; tries++ {
		c := &ls.f.Cards[long[0]]
		moved := false
		for i := len(c.Queue) - 1; i >= max(0, len(c.Queue)-tailDepth) && left > 0; i-- {
			// A job with reserved GPUs stays, or the reservation would move about
			// and never come free.
			if it := ls.find(c.Queue[i].Job); it != nil && !it.gone && !it.kept && it.queue == long[0] && ls.better(it) {
				moved = true
				left--
			}
		}
		if !moved && tries > tailDepth*tailDepth {
			return // no queue is better than the longest ones
		}
		long = long[1:]
	}
}

// better moves a queued job elsewhere if it ends much sooner there.
func (ls *lines) better(it *item) bool {
	cd := &ls.f.Cards[it.queue]
	c := int(cd.Class)
	if !ls.queueHolds(it) {
		return false
	}
	here := ls.waitAt(it, it.queue) // its own work included
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

// tellWhere records in the state that a job waits for a reservation, or that none
// of the nodes it asks for will do: it is in no queue, and the reasons of other
// jobs come with their moves.
func (ls *lines) tellWhere(it *item) {
	if ls.realms == nil || it.job.State != cluster.JobPending || it.moved {
		return
	}
	if it.gpus > 0 && slices.ContainsFunc(it.needs, func(n rules.Need) bool { return n.Way != rules.WayNone }) {
		return
	}
	if isWhere(it.job.Reason.Code) || isWhere(ls.teller.reason(it).Code) {
		ls.tellSpan(it)
	}
}
