package lead

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/scheduler/power"
	"github.com/berth-scheduler/berth/scheduler/site"
)

const (
	// powerEvery is how often the progress of nodes' power changes is checked,
	// powerAnew the longest time between decisions about which go down or come up,
	// even if nothing changed; deciding takes at most one part in powerShare of the
	// time.
	powerEvery = time.Second
	powerAnew  = 30 * time.Second
	powerShare = 20
	// powerPause is how long a node that could not be powered down is left alone.
	powerPause = 10 * time.Minute
	// powerRuns is how many programs run at once.
	powerRuns = 16
)

// PowerSaving is how a site treats idle nodes, and how they are powered down and
// up.
type PowerSaving struct {
	power.Rule
	// SuspendTimeout is how long a node may take to fall silent once the program
	// has run. Rule.ResumeTimeout is how long it may take to register.
	SuspendTimeout time.Duration
	// Suspend and Resume power a node down and up. They may be called again for
	// what they have already done.
	Suspend, Resume func(ctx context.Context, node cluster.NodeID) error
	// Ended yields jobs that ended between two times, the newest first and at most
	// so many, for a forecast; nil if no history is kept.
	Ended func(ctx context.Context, from, before cluster.Time, most int, yield func(*cluster.Job) error) error
}

// powerKeeper powers nodes down and up during a leader's term. Each node's target
// is in the log, so that the next leader continues; what is here is soft state.
type powerKeeper struct {
	*Leader
	cfg       *PowerSaving
	keeper    power.Keeper
	runs      map[cluster.NodeID]*powerRun
	programs  sync.WaitGroup
	slots     chan struct{} // as many programs may run at once
	index     uint64        // of the last decision
	next, not cluster.Time
	memory    memory
}

// powerRun is a program that this leader runs or ran for a node.
type powerRun struct {
	since cluster.Time // of the state that it is for
	mu    sync.Mutex
	ended time.Time // zero while it runs
	err   error
}

// result returns when the program ended, zero while it runs, and how.
func (r *powerRun) result() (time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended, r.err
}

// SavesPower reports whether nodes are powered down and up here.
func (l *Leader) SavesPower() bool { return l.cfg.Power != nil }

// WaitsFor returns the nodes that are powered down, or coming up, and on which a
// job would start if they were up, by the last decision.
func (l *Leader) WaitsFor(id cluster.JobID) []cluster.NodeID {
	if n := l.needs.Load(); n != nil {
		return n.For[id]
	}
	return nil
}

// savePower powers idle nodes down, and up again for waiting jobs, until ctx ends.
func (l *Leader) savePower(ctx context.Context) error {
	l.needs.Store(nil)
	l.Idling.of.Store(nil)
	l.metrics.foreseen(nil)
	if l.cfg.Power == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	k := &powerKeeper{Leader: l, cfg: l.cfg.Power, runs: map[cluster.NodeID]*powerRun{}, slots: make(chan struct{}, powerRuns)}
	defer k.programs.Wait()
	defer k.memory.reads.Wait()
	for wait.Sleep(ctx, powerEvery) {
		if now := cluster.TimeOf(l.clock()); k.due(now) {
			k.decide(ctx, now)
		}
		k.carryOut(ctx)
	}
	return ctx.Err()
}

// due reports whether it is time to decide again.
func (k *powerKeeper) due(now cluster.Time) bool {
	return now >= k.not && (k.next == 0 || now >= k.next || k.fsm.Index() != k.index)
}

// decide orders nodes down and up.
func (k *powerKeeper) decide(ctx context.Context, now cluster.Time) {
	began := time.Now()
	snap, begins := k.fsm.SchedulerSnapshotAt(now)
	need := site.Needs{}
	if len(snap.Waiting) > 0 && power.Concerns(snap) {
		sched := k.Scheduling()
		snap.Interference = k.plan.company.ForScheduler(snap.Nodes, snap.Waiting, snap.Running)
		k.Prepare(snap)
		need = site.Needed(snap, &sched.Site)
	}
	k.needs.Store(&need)
	k.recall(ctx, snap)
	k.keeper.Look(snap, &k.cfg.Rule, need.Used)
	for _, id := range k.keeper.Up(snap, &k.cfg.Rule, need.Wake) {
		why := ""
		if !slices.Contains(need.Wake, id) {
			why = k.because("powered up ahead", id)
		}
		if k.order(ctx, &logv1.PowerNode{Node: string(id), To: uint32(cluster.PoweringUp), Why: why}) {
			k.keeper.WentUp(now)
			k.log.InfoContext(ctx, "node is powered up", "node", string(id), "why", why)
		}
	}
	for _, id := range k.down(snap) {
		why := k.because("not needed", id)
		if k.order(ctx, &logv1.PowerNode{Node: string(id), To: uint32(cluster.PoweringDown), Why: why}) {
			k.keeper.WentDown(now)
			k.log.InfoContext(ctx, "idle node is powered down", "node", string(id), "why", why)
		}
	}
	k.tell(snap)
	k.index, k.next = snap.Index, now.Add(powerAnew)
	for _, at := range []cluster.Time{begins, k.keeper.Next(&k.cfg.Rule, now)} {
		if at > now {
			k.next = min(k.next, at)
		}
	}
	if k.memory.reading {
		k.next = min(k.next, now.Add(powerEvery))
	}
	k.not = now.Add(powerShare * time.Since(began))
}

// order puts a change of a node's power into the log.
func (k *powerKeeper) order(ctx context.Context, c *logv1.PowerNode) bool {
	cmd := &logv1.Command{Kind: &logv1.Command_PowerNode{PowerNode: c}}
	if fsm.NeedsVersion(cmd) > k.prop.Version() {
		return false // not before every coordinator reads it
	}
	_, err := k.prop.One(ctx, cmd)
	if e, ok := errors.AsType[*cluster.Error](err); ok && e.Code == cluster.CodeConflict {
		return false // something came in between
	}
	if err != nil && ctx.Err() == nil {
		k.log.WarnContext(ctx, "cannot record the power of a node", "node", c.Node, "err", err)
	}
	return err == nil
}

// carryOut runs the programs for nodes that should go down or come up, including
// those that a previous leader started, and gives up nodes that do not.
func (k *powerKeeper) carryOut(ctx context.Context) {
	there := map[cluster.NodeID]*powerRun{}
	for _, n := range k.fsm.Nodes() {
		p := n.Power
		if p.State != cluster.PoweringDown && p.State != cluster.PoweringUp {
			continue
		}
		r := k.runs[n.ID]
		if r == nil || r.since != p.Since {
			r = k.run(ctx, n.ID, p)
		}
		there[n.ID] = r
		k.judge(ctx, n, r)
	}
	k.runs = there
}

// run starts the program for a node.
func (k *powerKeeper) run(ctx context.Context, id cluster.NodeID, p cluster.Power) *powerRun {
	r, program, name := &powerRun{since: p.Since}, k.cfg.Suspend, suspends
	if p.State == cluster.PoweringUp {
		program, name = k.cfg.Resume, resumes
	}
	k.programs.Go(func() {
		k.slots <- struct{}{}
		defer func() { <-k.slots }()
		err := program(ctx, id)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.ended, r.err = k.clock(), err; ctx.Err() == nil {
			k.metrics.powered(name, err == nil)
		}
	})
	return r
}

// judge gives up a node that was not powered down or up: its program failed, or it
// did not reach its state in time after that.
func (k *powerKeeper) judge(ctx context.Context, n *cluster.Node, r *powerRun) {
	ended, err := r.result()
	if ended.IsZero() || ctx.Err() != nil {
		return
	}
	down, since := n.Power.State == cluster.PoweringDown, k.clock().Sub(ended)
	c, program := &logv1.PowerNode{Node: string(n.ID), To: uint32(cluster.PowerFailed)}, resumes
	if down {
		program = suspends
		c.To, c.NotBeforeUs = uint32(cluster.PowerUp), int64(cluster.TimeOf(k.clock()).Add(max(powerPause, k.cfg.Idle)))
	}
	switch {
	case down && err != nil:
		c.Why = fmt.Sprintf("could not be powered down: %v", err)
	case down && since >= k.cfg.SuspendTimeout:
		c.Why = fmt.Sprintf("was still there %s after it was powered down", k.cfg.SuspendTimeout)
	case !down && err != nil:
		c.Why = fmt.Sprintf("could not be powered up: %v", err)
	case !down && since >= k.cfg.ResumeTimeout:
		c.Why = fmt.Sprintf("did not come back within %s after it was powered up", k.cfg.ResumeTimeout)
	default:
		return
	}
	if k.order(ctx, c) {
		if err == nil {
			k.metrics.power.WithLabelValues(program, late).Inc()
		}
		k.log.WarnContext(ctx, "node was not powered down or up", "node", string(n.ID), "reason", c.Why)
	}
}

const (
	// rememberJobs is how many ended jobs, the newest, are read to learn past
	// demand, and rememberEvery the least time between two such reads.
	rememberJobs  = 200_000
	rememberEvery = time.Minute
	// maxPowerWhy bounds an entry's reason for powering a node down or up, in
	// bytes.
	maxPowerWhy = 240
)

// Idling is why nodes on which nothing runs are up, by the last decision.
type Idling struct{ of atomic.Pointer[idling] }

type idling map[cluster.NodeID]struct {
	since cluster.Time
	why   string
}

// KeptUp returns since when a node that is up has been idle, and why it is up
// nevertheless; false for one that is not idle, or is not powered down
// automatically.
func (i *Idling) KeptUp(id cluster.NodeID) (since cluster.Time, why string, idle bool) {
	all := i.of.Load()
	if all == nil {
		return 0, "", false
	}
	x, idle := (*all)[id]
	return x.since, x.why, idle
}

// memory is past demand, from the history: each coordinator has that, so no demand
// is in the log, and a new leader knows as much as the previous one.
type memory struct {
	reads   sync.WaitGroup
	reading bool
	done    chan recollection
	asked   cluster.Time
	kinds   []power.Kind // that it was read for
	there   []power.Kind // that exist
}

// recollection is what was found.
type recollection struct {
	snap  *dispatch.Snapshot // from which nodes are held that still are
	spans []power.Span
	since cluster.Time // from when on everything is known
}

// recall takes over what was read of the history, and has it read if there are
// kinds of nodes of which nothing is known: at the beginning of a term, and after
// partitions or nodes changed.
func (k *powerKeeper) recall(ctx context.Context, snap *dispatch.Snapshot) {
	m, r := &k.memory, &k.cfg.Rule
	if r.Forecast == nil || k.cfg.Ended == nil {
		return
	}
	select {
	case x := <-m.done:
		m.reading = false
		k.keeper.Recall(x.snap, r, x.spans, x.since)
		k.log.InfoContext(ctx, "demand of nodes is known", "since", x.since.Std(), "attempts", len(x.spans))
	default:
	}
	m.there = slices.Compact(slices.Sorted(maps.Values(power.KindsOf(snap, r))))
	if m.reading || slices.Equal(m.there, m.kinds) || m.asked != 0 && snap.Now.Sub(m.asked) < rememberEvery {
		return
	}
	m.reading, m.asked, m.kinds, m.done = true, snap.Now, m.there, make(chan recollection, 1)
	m.reads.Go(func() { m.done <- k.remember(ctx, snap) })
}

// down returns the nodes to power down, none while past demand is unknown.
func (k *powerKeeper) down(snap *dispatch.Snapshot) []cluster.NodeID {
	if m := &k.memory; m.reading || !slices.Equal(m.there, m.kinds) {
		return nil
	}
	return k.keeper.Down(snap, &k.cfg.Rule)
}

// remember reads which jobs held nodes until a snapshot was made.
func (k *powerKeeper) remember(ctx context.Context, snap *dispatch.Snapshot) recollection {
	out, kinds := recollection{snap: snap, since: snap.Now}, power.KindsOf(snap, &k.cfg.Rule)
	from := snap.Now.Add(-power.MaxSlots * k.cfg.Forecast.Every)
	err := k.cfg.Ended(ctx, from, snap.Now, rememberJobs, func(j *cluster.Job) error {
		out.since = min(out.since, j.Ended)
		out.spans = append(out.spans, power.SpansOf(j, kinds)...)
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		k.log.WarnContext(ctx, "what nodes were needed before is known in part alone", "err", err)
	}
	for _, j := range snap.Running {
		out.spans = append(out.spans, power.SpansOf(j, kinds)...)
	}
	return out
}

// because says why a node is powered down or up, for users; "" if nothing is
// forecast.
func (k *powerKeeper) because(what string, id cluster.NodeID) string {
	o := k.keeper.Outlook(id)
	if o == nil {
		return ""
	}
	why := what + ": " + o.String()
	return why[:min(len(why), maxPowerWhy)]
}

// tell publishes what was decided.
func (k *powerKeeper) tell(snap *dispatch.Snapshot) {
	all := idling{}
	for _, n := range snap.Nodes {
		if since, why, idle := k.keeper.Why(n, snap, &k.cfg.Rule); idle {
			x := all[n.ID]
			x.since, x.why = since, why
			all[n.ID] = x
		}
	}
	k.Idling.of.Store(&all)
	k.metrics.foreseen(k.keeper.Outlooks())
}
