package lead

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// Limits on one planning cycle.
const (
	// coalesce is how long the planner waits for more after the first change, so
	// that a burst is planned at once.
	coalesce = time.Millisecond
	// fullEvery is the interval of full passes; a slow pass lengthens it, so that
	// planning takes at most a fifth of the time.
	fullEvery = time.Second
	fullShare = 5
	// soonShare is how many times as long as the last full pass took the planner
	// waits before the next, if something ended and the fast path may have left a
	// job to it: on small clusters a GPU is idle for milliseconds.
	soonShare = 20
	soonest   = 10 * time.Millisecond
	// restShare is how many times as long as the last full pass took the planner waits
	// at least before another over a state that has not changed: such passes look for
	// what depends on the time alone, such as preemptions.
	restShare   = 100
	maxStarts   = 1000 // per command
	maxMoves    = 5000 // per command
	planTimeout = 30 * time.Second
)

// planner turns changes of the state into plans and proposes them. Only the
// leader's runs.
type planner struct {
	fsm     *fsm.FSM
	prop    *proposer.Proposer
	sched   func() *Scheduling
	clock   func() time.Time
	log     *slog.Logger
	metrics *metrics
	company *learner.Company
	ports   [2]uint16
	fair    *fairShares
	held    func() map[cluster.GPUID]int64
	awaits  func(cluster.JobID, cluster.NodeID, cluster.GPUID) bool // see Needs
	holders func([]*cluster.Job) map[string][]cluster.NodeID        // likewise
	noteFar func(context.Context, cluster.JobID)

	mu       sync.Mutex
	released map[cluster.GPUID]struct{}
	arrived  bool
	full     bool
	waits    site.Waits                       // what the fast path must know; replaced, never modified
	trades   atomic.Pointer[[]dispatch.Trade] // of the last pass
	wake     chan struct{}

	// short is the guarantees of tenants that cannot be kept, as last logged; only
	// run uses it.
	short string
	// begins is the earliest time at which another job may start, 0 for none; only
	// run uses it.
	begins cluster.Time
	// lastPreempt is when preemptions were last carried out; only run uses it.
	lastPreempt time.Time
	lastLook    time.Time // at running jobs, while none waits
	// less means that the last pass allocated less than the ledger has, because of
	// gossip, whose changes wake nothing; only run uses it.
	less bool
}

func newPlanner(l *Leader, company *learner.Company) *planner {
	return &planner{
		fsm: l.fsm, prop: l.prop, sched: l.Scheduling, clock: l.clock, log: l.log.With("component", "planner"),
		metrics: l.metrics, company: company, ports: l.cfg.GangPorts, fair: &fairShares{}, held: l.held, awaits: l.awaits, holders: l.holders, noteFar: l.noteFar, released: map[cluster.GPUID]struct{}{}, wake: make(chan struct{}, 1),
	}
}

// note records what changed; it never blocks.
func (p *planner) note(cs []fsm.Change) {
	p.mu.Lock()
	hit := false
	for _, c := range cs {
		for _, g := range c.Released {
			p.released[g] = struct{}{}
			hit = true
		}
		switch {
		case c.New:
			p.arrived, hit = true, true
		case c.Node != "" || c.Partition != "" || c.Reservation != "":
			p.full, hit = true, true
		case len(c.Released) > 0 || p.ended(c.Job):
			// What a job held besides its GPUs may be all that another one, which
			// is in no queue, waits for.
			p.arrived, hit = true, true
		}
	}
	p.mu.Unlock()
	if hit {
		p.poke()
	}
}

// ended reports whether the job has nothing running any more.
func (p *planner) ended(id cluster.JobID) bool {
	j, ok := p.fsm.Job(id)
	return ok && j.State.Terminal()
}

// again asks for a full pass.
func (p *planner) again() {
	p.mu.Lock()
	p.full = true
	p.mu.Unlock()
	p.poke()
}

func (p *planner) poke() { wait.Poke(p.wake) }

// run plans until ctx ends, beginning with a full pass.
func (p *planner) run(ctx context.Context) error {
	p.again()
	var lastFull, nextArrival time.Time
	var lastTook time.Duration
	timer := time.NewTimer(p.sched().interval())
	defer timer.Stop()
	seen := uint64(0) // index after the last full pass
	ended := false    // something ended since
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wake:
			if !wait.Sleep(ctx, coalesce) {
				return ctx.Err()
			}
		case <-timer.C:
		}
		released, arrived, full := p.takeWork()
		interval := max(p.sched().interval(), fullShare*lastTook)
		if ended = ended || len(released) > 0; ended {
			interval, full = min(interval, max(soonest, soonShare*lastTook)), full || p.queued()
		}
		due := time.Since(lastFull) >= interval
		// Other policies may depend on the time alone, and so do preemptions.
		full = full || due && (p.others(p.sched()) || p.less || p.fsm.Index() != seen || time.Since(lastFull) >= max(p.sched().preemptEvery(), restShare*lastTook))
		if err := p.fast(ctx, released); err != nil {
			return err
		}
		switch {
		case full && due:
			took, err := p.pass(ctx, site.Full)
			if err != nil {
				return err
			}
			lastFull, lastTook, seen, ended = time.Now(), took, p.fsm.Index(), false
			interval = max(p.sched().interval(), fullShare*took)
		case full:
			p.keepFull()
			interval = max(time.Millisecond, interval-time.Since(lastFull)) // less than a whole one more
			fallthrough
		default:
			if !arrived {
				break
			}
			if wait := time.Until(nextArrival); wait > 0 {
				p.keepArrived()
				timer.Reset(min(wait, interval))
				continue
			}
			took, err := p.pass(ctx, site.Arrival)
			if err != nil {
				return err
			}
			nextArrival = time.Now().Add(fullShare * took)
		}
		timer.Reset(min(interval, p.begin()))
	}
}

// queued reports whether a job is in the queue of a GPU.
func (p *planner) queued() bool { return p.fsm.Counts()[cluster.JobQueued] > 0 }

// begin returns how long until the next job that waits for its time may start, 0 if
// that has come.
func (p *planner) begin() time.Duration {
	if p.begins == 0 {
		return math.MaxInt64
	}
	return max(0, p.begins.Sub(cluster.TimeOf(p.clock())))
}

func (p *planner) takeWork() (released []cluster.GPUID, arrived, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g := range p.released {
		released = append(released, g)
	}
	clear(p.released)
	arrived, p.arrived = p.arrived, false
	full, p.full = p.full, false
	if p.begin() == 0 {
		// A job may start from now on; when a reservation begins or ends, also one
		// in a queue.
		arrived, full = true, full || len(p.fsm.Reservations()) > 0
	}
	return released, arrived, full
}

// keepFull remembers for the next tick that a full pass is wanted.
func (p *planner) keepFull() {
	p.mu.Lock()
	p.full = true
	p.mu.Unlock()
}

// keepArrived remembers that jobs arrived, until passes may take time again.
func (p *planner) keepArrived() {
	p.mu.Lock()
	p.arrived = true
	p.mu.Unlock()
}

// fast starts the heads of the queues of GPUs on which something ended, if a queue
// alone can decide who is next.
func (p *planner) fast(ctx context.Context, gpus []cluster.GPUID) error {
	if len(gpus) == 0 {
		return nil
	}
	p.mu.Lock()
	waits := p.waits
	p.mu.Unlock()
	slices.Sort(gpus)
	var plan dispatch.Plan
	var again bool
	know, sched := p.company.Newest(), p.sched()
	held, before := p.held(), dispatch.Snapshot{}
	p.fsm.Read(func(st *fsm.State) {
		plan, again = site.OnRelease(releaseView{st, know}, gpus, &sched.Site, waits)
		if len(held) > 0 {
			before.Nodes, before.Ledger = st.Nodes(), st.Ledger().Clone()
		}
	})
	starts := careful(&before, held, plan.Starts)
	plan.Starts, again = starts, again || len(starts) < len(plan.Starts)
	if again {
		p.again()
	}
	return p.propose(ctx, &plan, "release")
}

// pass plans everything that waits, or only what is in no queue yet. It returns how
// long the planning took, without committing.
func (p *planner) pass(ctx context.Context, kind site.Pass) (took time.Duration, err error) {
	sched := p.sched()
	arrival := kind == site.Arrival && !p.others(sched)
	p.begins = 0
	counts := p.fsm.Counts()
	if counts[cluster.JobPending] == 0 && (arrival || counts[cluster.JobQueued] == 0) {
		// No job waits: now and then check which may grow.
		if kind != site.Full || counts[cluster.JobRunning] == 0 || p.clock().Sub(p.lastLook) < sched.preemptEvery() {
			return 0, nil
		}
		p.lastLook = p.clock()
	}
	began := time.Now()
	var snap *dispatch.Snapshot
	snap, p.begins = p.fsm.SchedulerSnapshotAt(cluster.TimeOf(p.clock()))
	if len(snap.Nodes) == 0 {
		return 0, nil
	}
	snap.Interference = p.company.ForScheduler(snap.Nodes, snap.Waiting, snap.Running)
	if p.holders != nil {
		snap.Images = p.holders(snap.Waiting)
	}
	p.stand(snap, sched)
	p.begins = untilSwitches(snap, p.begins)
	p.mu.Lock()
	p.waits = p.waits.After(snap, &sched.Site, kind)
	p.mu.Unlock()
	site.Prepare(snap, &sched.Site, kind)
	if arrival && len(snap.Partitions) == 0 && len(snap.Waiting) == 0 {
		return 0, nil
	}
	if kind == site.Full {
		p.tellShort(ctx, sched, snap)
	}
	plan := p.beside(snap, sched, kind)
	p.trades.Store(&plan.Trades)
	took = time.Since(began)
	p.metrics.cycle(kind.String(), took, len(snap.Waiting))
	preempt := plan.Preempt
	if err := p.propose(ctx, &plan, kind.String()); err != nil {
		return took, err
	}
	return took, p.preempt(ctx, preempt)
}

// untilSwitches returns the earlier of a time, 0 for none, and the first at which a
// job no longer waits for few switches.
func untilSwitches(snap *dispatch.Snapshot, at cluster.Time) cluster.Time {
	for _, j := range snap.Waiting {
		if most, until := j.FewSwitches(snap.Now); most > 0 && (at == 0 || until < at) {
			at = until
		}
	}
	return at
}

// others reports whether some passes are not the scheduler's own.
func (p *planner) others(sched *Scheduling) bool { return sched.Foreign(p.fsm.Partitions()) }

// releaseView is the live state for the fast path, with what was learned of
// sharing.
type releaseView struct {
	*fsm.State
	know *dispatch.Interference
}

// Interference implements scheduler.CompanyView.
func (v releaseView) Interference() *dispatch.Interference { return v.know }

// propose commits a plan in pieces of bounded size. What the state machine rejects
// is planned again from a fresh view.
func (p *planner) propose(ctx context.Context, plan *dispatch.Plan, kind string) error {
	if p.awaits != nil {
		plan.Starts = slices.DeleteFunc(plan.Starts, func(st dispatch.Start) bool {
			return len(st.Rest) == 0 && len(st.Berth.GPUs) == 1 && p.awaits(st.Job, st.Berth.Node, st.Berth.GPUs[0].GPU)
		})
	}
	for len(plan.Starts)+len(plan.Moves) > 0 {
		// Every start before any move: a waiting job that moved into a queue is
		// ahead of the starts that come after it.
		ns, nm := min(len(plan.Starts), maxStarts), min(len(plan.Moves), maxMoves)
		if ns < len(plan.Starts) {
			nm = 0
		}
		p.assignPorts(plan.Starts[:ns])
		p.assignSecrets(plan.Starts[:ns])
		part := dispatch.Plan{BaseIndex: plan.BaseIndex, Starts: plan.Starts[:ns], Moves: plan.Moves[:nm]}
		plan.Starts, plan.Moves = plan.Starts[ns:], plan.Moves[nm:]
		pctx, cancel := context.WithTimeout(ctx, planTimeout)
		r, err := p.prop.One(pctx, &logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: conv.PlanToLog(&part)}})
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.log.WarnContext(ctx, "plan not committed; planning again", "err", err)
			if !wait.Sleep(ctx, 100*time.Millisecond) {
				return ctx.Err()
			}
			p.again()
			return nil
		}
		if r.Plan == nil {
			return errors.New("state machine gave no answer to a plan")
		}
		p.metrics.planned(kind, r.Plan)
		if len(r.Plan.Rejected) > 0 {
			p.log.DebugContext(ctx, "plan partly rejected", "count", len(r.Plan.Rejected), "reason", r.Plan.Rejected[0].Reason.String())
			p.again()
		}
	}
	return nil
}
