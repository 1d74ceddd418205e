package scheduler

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// pass is one run of Schedule.
type pass struct {
	pol     Policy
	now     int64
	nodes   []*cluster.Node
	f       *fleet
	items   []item
	byID    []int32 // item+1 by job id less firstID
	firstID cluster.JobID
	running []*cluster.Job
	more    map[cluster.JobID]int // see Snapshot.More
	plan    cluster.Plan
	failed  map[shape]int64
	told    map[shape]cluster.Reason
	loaded  bool
	moves   int
	judged  int // how often a job was held against those on a card
	// residents holds who lies on each card and until when, made when first
	// asked for; started are those that this pass laid there.
	residents [][]resident
	started   []newcomer
	crowd     *crowd
	keptPlain bool
	lasted    int64 // how long jobs have kept coming, see streamAge
	reserved  int   // how many cards are kept for who is not old
	keepsIdle bool  // keepForIdle was called
	bulks     map[shape]bool
	typical   *learn // of what runs and waits, made when first asked for
	frag      *frag  // nil where fragmentation plays no part
	mild      *mild
	// reservations are those of the snapshot.
	reservations cluster.Reservations
	careful      bool    // something is kept for deadlines; see want
	plenty       bool    // each who waits could have empty cards; see rankOf
	unseen       bool    // somebody stands in a queue whom the snapshot does not hold
	realms       *realms // nil where every job may lie everywhere
	picked       []int32 // scratch
	chosen       []int   // scratch
	able         []int   // scratch
	standing     *cluster.Standing
	niced        bool             // somebody steps back or forward
	limits       *cluster.Limiter // ours, nil without quotas
	limited      map[cluster.JobID]cluster.Reason
}

// Schedule decides where the waiting jobs of snap go. It changes nothing of
// snap. Starts are in the order in which they must be applied, then moves.
//
// snap.Waiting holds every PENDING job; those in queues may be left out (an
// arrival pass). Heads of queues that are left out may be overtaken unless
// they are old; then nobody starts on their node, since the pass cannot see
// what they need. Such a pass balances no queues.
//
// The cost is that of sorting what waits plus a logarithm of the GPUs for
// each job that moves. Every waiting job that does not start has an entry in
// Unplaced; the first Policy.MaxReasons shapes of them have it in words.
func Schedule(snap *cluster.Snapshot, pol Policy) cluster.Plan { return schedule(snap, pol).plan }

// schedule makes a pass, and returns it with its plan.
func schedule(snap *cluster.Snapshot, pol Policy) *pass {
	p := &pass{pol: pol, now: int64(snap.Now), running: snap.Running, more: snap.More, failed: map[shape]int64{}, bulks: map[shape]bool{}, told: map[shape]cluster.Reason{}}
	p.plan.BaseIndex, p.nodes = snap.Index, snap.Nodes
	p.realms, p.reservations = newRealms(snap), snap.Reservations
	p.f = newFleet(snap.Nodes, snap.Ledger.Clone(), snap.Queues, &p.pol, p.realms)
	p.standing, p.limits = snap.Standing, snap.Limits.Clone()
	p.crowd = newCrowd(snap.Interference, p.f, snap.Running)
	p.regret(snap.Terms)
	p.gather(snap.Waiting)
	p.f.asks(p.items)
	p.markUnseen()
	p.frag = p.newFrag()
	order := p.order()
	p.keepPromises(order, snap)
	y := yielder{p: p}
	for _, r := range order {
		it := &p.items[r.item]
		if it.gone {
			continue
		}
		if r.tier == tierPlain && !p.keepsIdle {
			p.keepForIdle()
		}
		if p.atLimit(it) || p.start(it) {
			continue
		}
		p.wait(it)
		y.takeTurn(r)
		p.reserve(it)
		p.offLimit(it)
	}
	p.makeRoom(order)
	p.rebalance()
	p.rerank()
	p.tellUnplaced()
	return p
}

// markUnseen counts those in queues whom the snapshot does not hold, and
// closes the nodes where one of them heads a queue and is old. It
// looks at no queue beyond its head.
func (p *pass) markUnseen() {
	for i := range p.f.cards {
		p.f.cards[i].unseen = len(p.f.cards[i].queue)
	}
	for i := range p.items {
		if q := p.items[i].queue; q >= 0 {
			p.f.cards[q].unseen--
		}
	}
	for i := range p.f.cards {
		c := &p.f.cards[i]
		if c.unseen <= 0 {
			c.unseen = 0
			continue
		}
		p.unseen = true
		if h := &p.f.hosts[c.host]; !h.foreignQueue && RankIsOld(c.queue[0].Rank) && p.find(c.queue[0].Job) == nil {
			h.foreignQueue = true
			p.f.refresh(c.host)
		}
	}
}

// start starts a job now if it fits and nothing much better is near.
func (p *pass) start(it *item) bool {
	if it.spans() {
		return p.startSpan(it)
	}
	if it.gpus == 0 {
		return p.startPlain(it)
	}
	fits := p.fits(it)
	if it.cores != nil && p.startOnCores(it, fits) {
		return true
	}
	best, fastest := -1, int64(rules.Forever)
	for _, c := range fits {
		fastest = min(fastest, it.needs[c].Dur)
	}
	for _, c := range fits {
		if it.needs[c].Dur-fastest <= p.slack(fastest) && (best < 0 || p.prefer(it, c, best)) {
			best = c
		}
	}
	if c, ok := p.chooses(it, fits); ok {
		best = c
	}
	if best < 0 || p.declines(it, best, fits) {
		return false
	}
	if p.frag != nil {
		p.picked = append(p.picked[:0], p.frag.sites[best].cards...)
	} else {
		p.picked = p.fit(it, best, p.picked[:0])
	}
	p.place(it, best, p.picked)
	return true
}

// slack is how much longer than the fastest a run may take that leaves the
// fastest cards free.
func (p *pass) slack(fastest int64) int64 {
	return int64(float64(fastest) / 1000 * float64(max(0, p.pol.FastGainMilli-1000)))
}

// fits returns the classes on which the job fits now.
func (p *pass) fits(it *item) []int {
	p.chosen = p.chosen[:0]
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone || !p.mayFit(it, c) {
			continue
		}
		p.picked = p.fit(it, c, p.picked[:0])
		if len(p.picked) > 0 {
			p.chosen = append(p.chosen, c)
		}
	}
	return p.chosen
}

// prefer reports whether class a is the better place for a job than b, both
// being free and about as fast: the slower, so that the faster stays free; of
// equals that where it fragments less, then the smaller, or the larger for a
// job that nobody can predict (SchedTune, section IV-C, gives those the most
// memory).
func (p *pass) prefer(it *item, a, b int) bool {
	na, nb := &it.needs[a], &it.needs[b]
	ka, kb := &p.f.classes[a], &p.f.classes[b]
	switch {
	case p.realms != nil && p.frag == nil && na.Dur == nb.Dur && ka.Alike(&kb.ClassKey):
		return p.closer(it, a, b)
	case na.Dur != nb.Dur:
		return na.Dur > nb.Dur
	case ka.Sellable == kb.Sellable && p.frag != nil:
		return p.frag.sites[a].better(&p.frag.sites[b])
	case ka.Sellable == kb.Sellable:
		return a < b
	case na.Way == rules.WayWhole && it.job.Spec.GPUMemMiB == 0 && !p.sure(it, ka.GPUType):
		return ka.Sellable > kb.Sellable
	case p.frag != nil && p.frag.sites[a].score != p.frag.sites[b].score:
		return p.frag.sites[a].score > p.frag.sites[b].score
	}
	return ka.Sellable < kb.Sellable
}

func (p *pass) sure(it *item, gpuType string) bool {
	e, ok := cluster.EstimateFor(it.job.Estimates, gpuType)
	return ok && e.ConfidenceMilli >= p.pol.MinConfidenceMilli
}

// declines reports whether a job that could start on class on should rather
// wait for a much faster one.
func (p *pass) declines(it *item, on int, fits []int) bool {
	if p.pol.PatienceMilli <= 0 || it.kept || p.old(it.job) {
		return false
	}
	limit := it.needs[on].Dur / p.pol.PatienceMilli * 1000
	at := 0
	for c := range it.needs {
		for at < len(fits) && fits[at] < c {
			at++
		}
		n := &it.needs[c]
		if n.Way == rules.WayNone || n.Dur >= limit || at < len(fits) && fits[at] == c {
			continue
		}
		if wait, ok := p.waitOn(it, c); ok && wait+n.Dur < limit {
			return true
		}
	}
	return false
}

// waitOn is how long a job would wait for a card of class c.
func (p *pass) waitOn(it *item, c int) (int64, bool) {
	if it.queue >= 0 && p.f.cards[it.queue].class == int32(c) {
		est := int64(it.job.EstStart)
		return max(0, est-p.now), p.now < est+p.pol.ReserveAge.Microseconds()
	}
	i, wait := p.leastLoaded(it, c)
	return wait, i >= 0
}
