package scheduler

import (
	"sync"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/explain"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rollout"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// What a site may choose is in package rules; these are its names for callers of
// passes.
type (
	// Policy is what a site may choose.
	Policy = rules.Policy
	// Mode is how GPUs are allocated.
	Mode = rules.Mode
	// Prices is what an hour of a GPU or of a core costs.
	Prices = rules.Prices
)

// The modes of package rules.
const (
	ModeFFD  = rules.ModeFFD
	ModeSlot = rules.ModeSlot
)

// Default returns the policy of a site that chose nothing.
func Default() Policy { return rules.Default() }

// pass is one run of Schedule: it takes the jobs in turn, starts those that fit,
// and passes the others on.
type pass struct {
	*scene
	turns  *turns
	fitter *fitter
	plains *plains
	teller *teller
	lines  *lines
	keeper *keeper
}

// newPass returns a pass over a scene that has not been looked at yet.
func newPass(s *scene) *pass {
	p := &pass{scene: s, turns: &turns{scene: s}}
	p.fitter = &fitter{scene: s, failed: map[shape]int64{}, bulks: map[shape]bool{}}
	p.plains = &plains{scene: s, fitter: p.fitter}
	p.teller = &teller{scene: s, fitter: p.fitter, told: map[shape]cluster.Reason{}}
	p.lines = &lines{scene: s, turns: p.turns, teller: p.teller}
	p.keeper = &keeper{scene: s, turns: p.turns, fitter: p.fitter, lines: p.lines}
	return p
}

// Schedule decides where the waiting jobs of snap go. It does not modify snap.
// Starts are in the order in which they must be applied, then moves.
//
// snap.Waiting holds every PENDING job; those in queues may be left out (an arrival
// pass). Heads of queues that are left out may be overtaken unless they are old;
// then nothing starts on their node, since the pass cannot see what they need. Such
// a pass balances no queues.
//
// It costs sorting the waiting jobs plus a logarithm of the GPUs for each job that
// moves. Every waiting job that does not start has an entry in Unplaced; the first
// Policy.MaxReasons shapes of them have it in words.
func Schedule(snap *dispatch.Snapshot, pol Policy) dispatch.Plan {
	return planOf(snap, looked(snap, pol))
}

// memory is what passes work on, which one leaves to the next: allocated anew it costs
// a small pass a third of its time. Nothing in it outlives a pass, and no plan refers
// to it.
type memory struct {
	fleet     fleet.Memory
	items     []item
	needs     []rules.Need
	byID      []int32
	holds     []holding
	order     []rank
	sorter    sorter
	residents [][]resident
	loads     []int64 // scratch
	starts    []dispatch.Start
	started   []newcomer
	twins     twins
	numbered  []numbered
	failed    []int64
}

var memories = sync.Pool{New: func() any { return &memory{} }}

// sized returns a list of n with whatever was in it, s if that has room.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/8)
	}
	return s[:n]
}

// zeroed returns a list of n zeros, s if that has room.
func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/8)
	}
	clear(s[:n])
	return s[:n]
}

// planOf is a pass of which nobody asks anything but its plan.
func planOf(snap *dispatch.Snapshot, pol Policy) dispatch.Plan {
	m := memories.Get().(*memory)
	plan := planOn(m, snap, pol)
	memories.Put(m)
	return plan
}

// planOn is planOf on given memory. Its starts are large, and copied once when it is
// known how many there are.
func planOn(m *memory, snap *dispatch.Snapshot, pol Policy) dispatch.Plan {
	p := scheduleFor(snap, pol, 0, m)
	m.starts, m.started = p.plan.Starts, p.lines.started
	p.plan.Starts = append([]dispatch.Start(nil), m.starts...)
	clear(m.starts)
	return p.plan
}

// looked returns pol as it is followed now, after a look ahead.
func looked(snap *dispatch.Snapshot, pol Policy) Policy {
	pol.OvercommitMilli = rollout.Overcommit(snap, pol, planOf)
	pol.LookAhead = 0
	return pol
}

var passes = explain.Passes{Schedule: Schedule, Before: spanBefore, Kept: keptFrom}

// Explain says why job waits, worst first, from every GPU of the snapshot. It
// serves users who ask about one job; Schedule never calls it.
func Explain(snap *dispatch.Snapshot, job *cluster.Job, pol Policy) []explain.Explanation {
	return explain.Why(snap, job, looked(snap, pol), passes)
}

// ForecastStart finds where and when job is likely to start: at its queue, or the
// place that is free first. ok is false if no node that takes jobs could ever run
// it. Like Explain it serves users who ask.
func ForecastStart(snap *dispatch.Snapshot, job *cluster.Job, pol Policy) (f explain.Forecast, ok bool) {
	return explain.When(snap, job, looked(snap, pol), passes)
}

// schedule runs a pass, and returns it with its plan.
func schedule(snap *dispatch.Snapshot, pol Policy) *pass { return scheduleFor(snap, pol, 0, &memory{}) }

// scheduleFor is a pass that notes what is kept from one job at its turn, 0 for none.
func scheduleFor(snap *dispatch.Snapshot, pol Policy, asks cluster.JobID, m *memory) *pass {
	p := newPass(&scene{
		mem: m, pol: pol, now: int64(snap.Now), nodes: snap.Nodes, running: snap.Running, more: snap.More, near: dispatch.NewNear(snap), plan: dispatch.Plan{BaseIndex: snap.Index, Starts: m.starts[:0]},
		realms: fleet.NewRealms(snap), reservations: snap.Reservations, standing: snap.Standing, limits: snap.Limits.Clone(),
	})
	p.f = m.fleet.New(snap.Nodes, snap.Ledger.Clone(), snap.Queues, &p.pol, p.realms)
	p.crowd = newCrowd(snap.Interference, p.f, snap.Running)
	p.keeper.asks, p.lines.started = asks, m.started[:0]
	p.regret(snap.Terms)
	p.gather(snap.Waiting)
	p.f.Asks(p.mostAsked())
	p.markUnseen()
	p.deal()
	p.fitter.frag = p.fitter.newFrag()
	order := p.turns.order()
	p.keepPromises(order, snap)
	y := yielder{p: p}
	for k, r := range order {
		p.readAhead(order, k)
		it := &p.items[r.item]
		if it.gone {
			continue
		}
		p.keeper.keepAhead(order[k:], p.items)
		p.keeper.turnOf(it)
		if r.tier == tierPlain && !p.plains.keepsIdle {
			p.plains.keepForIdle()
		}
		if p.lines.atLimit(it) || p.start(it) {
			continue
		}
		p.lines.wait(it)
		y.takeTurn(r)
		p.keeper.reserve(it)
		p.lines.offLimit(it)
	}
	p.makeRoom(order)
	p.lines.rebalance()
	p.lines.rerank()
	p.tellUnplaced()
	return p
}

// start starts a job now if it fits and nothing much better is near.
func (p *pass) start(it *item) bool {
	if it.spans() {
		return p.startSpan(it)
	}
	if it.gpus == 0 {
		return p.startPlain(it)
	}
	fits := p.fitter.fits(it)
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
	if p.fitter.frag != nil {
		p.fitter.picked = append(p.fitter.picked[:0], p.fitter.frag.sites[best].cards...)
	} else {
		p.fitter.picked = p.fitter.fit(it, best, p.fitter.picked[:0])
	}
	p.place(it, best, p.fitter.nearer(it, best, p.fitter.picked))
	return true
}

// slack returns how much longer than the fastest a run may take to leave the
// fastest GPUs free.
func (p *pass) slack(fastest int64) int64 {
	return int64(float64(fastest) / 1000 * float64(max(0, p.pol.FastGainMilli-1000)))
}

// fits returns the classes on which the job fits now.
func (ft *fitter) fits(it *item) []int {
	ft.chosen = ft.chosen[:0]
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone || !ft.mayFit(it, c) {
			continue
		}
		ft.picked = ft.fit(it, c, ft.picked[:0])
		if len(ft.picked) > 0 {
			ft.chosen = append(ft.chosen, c)
		}
	}
	return ft.chosen
}

// prefer reports whether class a is the better place for a job than b, both being
// free and about as fast: the slower, so that the faster stays free; of equals the
// one where it fragments less, then the smaller, or the larger for a job without a
// prediction (SchedTune, section IV-C, gives those the most memory).
func (p *pass) prefer(it *item, a, b int) bool {
	na, nb := &it.needs[a], &it.needs[b]
	ka, kb := &p.f.Classes[a], &p.f.Classes[b]
	switch {
	case p.realms != nil && p.fitter.frag == nil && na.Dur == nb.Dur && ka.Alike(&kb.ClassKey):
		return p.fitter.closer(it, a, b)
	case na.Dur != nb.Dur:
		return na.Dur > nb.Dur
	case ka.Sellable == kb.Sellable && p.fitter.frag != nil:
		return p.fitter.frag.sites[a].better(&p.fitter.frag.sites[b])
	case ka.Sellable == kb.Sellable:
		return a < b
	case na.Way == rules.WayWhole && it.job.Spec.GPUMemMiB == 0 && !p.sure(it, ka.GPUType):
		return ka.Sellable > kb.Sellable
	case p.fitter.frag != nil && p.fitter.frag.sites[a].score != p.fitter.frag.sites[b].score:
		return p.fitter.frag.sites[a].score > p.fitter.frag.sites[b].score
	}
	return ka.Sellable < kb.Sellable
}

// closer reports which of two classes of one family is the better place for a job
// that fits on both: one where it shares a GPU, then the one the fewest other jobs
// may use, so that GPUs few jobs ask for stay free for them and those soon reserved
// for others are used until then.
func (ft *fitter) closer(it *item, a, b int) bool {
	if x, y := ft.joins(it, a), ft.joins(it, b); x != y {
		return x
	}
	x, y := &ft.realms.List[ft.f.Classes[a].Realm], &ft.realms.List[ft.f.Classes[b].Realm]
	if len(x.Covers) != len(y.Covers) {
		return len(x.Covers) > len(y.Covers)
	}
	wanted := func(z *fleet.Realm) (n int) {
		for _, ok := range z.Allows {
			if ok {
				n++
			}
		}
		return n
	}
	if m, n := wanted(x), wanted(y); m != n {
		return m < n
	}
	return a < b
}

// joins reports whether the job would share a GPU on a class.
func (ft *fitter) joins(it *item, c int) bool {
	cards := ft.fit(it, c, nil)
	return len(cards) > 0 && ft.f.Cards[cards[0]].Use.Shares > 0
}

func (p *pass) sure(it *item, gpuType string) bool {
	e, ok := cluster.EstimateFor(it.job.Estimates, gpuType)
	return ok && e.ConfidenceMilli >= p.pol.MinConfidenceMilli
}

// declines reports whether a job that could start on class on should rather wait
// for a much faster one.
func (p *pass) declines(it *item, on int, fits []int) bool {
	if p.pol.PatienceMilli <= 0 || it.kept || it.old {
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
		if wait, ok := p.lines.waitOn(it, c); ok && wait+n.Dur < limit {
			return true
		}
	}
	return false
}

// waitOn returns how long a job would wait for a GPU of class c.
func (ls *lines) waitOn(it *item, c int) (int64, bool) {
	if it.queue >= 0 && ls.f.Cards[it.queue].Class == int32(c) {
		est := int64(it.job.EstStart)
		return max(0, est-ls.now), ls.now < est+ls.pol.ReserveAge.Microseconds()
	}
	i, wait := ls.leastLoaded(it, c)
	return wait, i >= 0
}
