package policies

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// pass is one run of a policy over a snapshot.
type pass struct {
	opt     *Options
	label   string
	order   ordering
	placer  placer
	snap    *cluster.Snapshot
	now     int64
	led     *cluster.Ledger
	f       *fleet
	runs    []run
	running int // those of the snapshot come first
	mem     *memory
	// plainly tells that a placer that finds no cards has done nothing else.
	plainly bool
	tasks   []*task // by id
	byOrder []*task
	plan    cluster.Plan
	failed  map[shape]int64
	// changed lists the hosts on which something was placed, in order.
	changed []int32
	head    *task // the first that did not fit, for whom room is kept
	pool    pool
	gangs   gangs
	// marginMilli is added to predicted memory, in thousandths of it.
	marginMilli int64
	// What orders work out beforehand.
	use      map[cluster.JobID]int64
	admitted map[cluster.JobID]struct{}
	rounds   *rounds
	// cells keeps tenants to their cells, nil where there are none.
	cells *guard
}

// placer is a rule of placement.
type placer interface {
	// choose returns the cards that t is to start on now, as many as it asks
	// for, of one group, each of which pass.fits; none when it has to wait.
	choose(p *pass, t *task) []int32
	// admits reports whether t may lie on a card beside those on it, beyond what
	// the ledger says. Every placer admits everybody to an empty card.
	admits(p *pass, t *task, c *card) bool
	// tag parts tasks of one shape that the placer treats differently.
	tag(t *task) int64
}

// finisher is a placer that has the last word about queues and preemptions;
// without one all who wait are taken out of the queues of cards.
type finisher interface{ finish(p *pass) }

// shape is what a choice depends on. What has failed once in a pass fails
// again, since a pass only ever takes.
type shape struct {
	class     int32
	gpus      int32
	nodes     int16
	whole     bool
	share     cluster.Share
	cpu, host int64
	node      cluster.NodeID
	tag       int64
	cells     cellKey
	temper    cluster.Temper
	owner     owner
}

// owner is whose a job is, as far as it matters on cards of a class.
type owner struct{ uid, gid uint32 }

func (p *pass) ownerOn(j *cluster.Job, class int32) owner {
	if p.f.classes[class].scope == cluster.ScopeAnyone {
		return owner{}
	}
	return owner{uint32(j.Owner.UID), j.Owner.GID}
}

func newPass(snap *cluster.Snapshot, e *engine) *pass {
	return newPassWith(snap, e, snap.Ledger.Clone(), &memory{})
}

// newPassWith is newPass on a ledger that the pass may take in, with what an
// earlier one left.
func newPassWith(snap *cluster.Snapshot, e *engine, led *cluster.Ledger, m *memory) *pass {
	p := &pass{
		opt: &e.opt, label: e.name, order: e.order, snap: snap, now: int64(snap.Now), led: led,
		marginMilli: e.place.marginMilli, failed: m.failures(), plan: cluster.Plan{BaseIndex: snap.Index},
		mem: m, plainly: !e.place.queues && !e.place.last,
	}
	p.gangs.pass = p
	p.f = m.fleetOf(snap.Nodes, p.led)
	at := 0
	p.runs = m.spare[:0]
	for _, j := range byID(snap.Running) {
		p.addRunning(j, m.run(j, &at))
	}
	p.running, at = len(p.runs), 0
	for c := range p.f.classes {
		p.f.classes[c].most = roomLeft{}
	}
	for gi := range p.f.groups {
		p.f.sum(int32(gi), p.maxShares())
		g := &p.f.groups[gi]
		k := &p.f.classes[g.class].most
		k.empty, k.free = max(k.empty, g.empty), k.free || g.free
	}
	p.tasks = make([]*task, 0, len(snap.Waiting))
	for _, j := range byID(snap.Waiting) {
		if j.State.Waiting() && j.Cancel == nil {
			p.tasks = append(p.tasks, m.task(p, j, &at))
		}
	}
	return p
}

// taskOf returns the task of a waiting job, nil for any other.
func (p *pass) taskOf(id cluster.JobID) *task {
	i, ok := slices.BinarySearchFunc(p.tasks, id, func(t *task, id cluster.JobID) int { return cmp.Compare(t.id, id) })
	if !ok {
		return nil
	}
	return p.tasks[i]
}

// byID returns jobs sorted by id.
func byID(jobs []*cluster.Job) []*cluster.Job {
	less := func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) }
	if slices.IsSortedFunc(jobs, less) {
		return jobs
	}
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, less)
	return jobs
}

func (p *pass) maxShares() int { return max(1, p.opt.Base.MaxShares) }

// addRunning enters what an attempt holds, so that it can be told who lies
// where and until when. known is what an earlier pass read of it, or nil.
func (p *pass) addRunning(j *cluster.Job, known *run) {
	a := j.Live()
	if a == nil {
		return
	}
	if a.Gang == nil {
		p.gangs.addPart(j, a, &a.Berth, known)
		return
	}
	first := len(p.runs)
	for _, b := range a.Held() {
		p.gangs.addPart(j, a, b, nil)
	}
	p.gangs.number(first)
}

// number tells the runs from first on that they are parts of one attempt.
func (p *gangs) number(first int) {
	for i := first; i < len(p.runs); i++ {
		p.runs[i].part, p.runs[i].parts = int32(i-first), int32(len(p.runs)-first)
	}
}

// addPart enters what an attempt holds of one node.
func (p *gangs) addPart(j *cluster.Job, a *cluster.Attempt, b *cluster.Berth, known *run) {
	if known == nil {
		r := run{job: j, berth: b, est: a.Estimate, began: int64(max(a.Started, a.Placed)), revision: j.Revision}
		p.locate(&r)
		known = &r
	}
	p.runs = append(p.runs, *known)
	r := &p.runs[len(p.runs)-1]
	r.berth, r.fresh = b, false
	r.began = int64(max(a.Started, a.Placed))
	if r.began == 0 {
		r.began = p.now
	}
	r.end = r.began + durationOf(j, &r.est, &p.opt.Base)
	if r.end <= p.now { // it outlives its estimate: a quarter of its age more
		r.end = p.now + max(time.Second.Microseconds(), (p.now-r.began)/4)
	}
	r.latest = r.end
	if l := j.Spec.TimeLimit; l > 0 {
		r.latest = max(r.began+l.Microseconds(), p.now+time.Second.Microseconds())
		r.end = min(r.end, r.latest)
	}
	p.enter(int32(len(p.runs) - 1))
}

// locate finds the places of a run in the mirror.
func (p *pass) locate(r *run) {
	r.host = -1
	if hi, ok := p.f.hostAt[r.berth.Node]; ok {
		r.host = hi
	}
	r.cards = make([]int32, len(r.berth.GPUs))
	for i, g := range r.berth.GPUs {
		r.cards[i] = -1
		if ci, ok := p.f.cardAt[g.GPU]; ok {
			r.cards[i] = ci
		}
	}
}

// enter notes a run on its host and cards.
func (p *pass) enter(ri int32) {
	r := &p.runs[ri]
	if r.host >= 0 {
		p.f.hosts[r.host].runs = append(p.f.hosts[r.host].runs, ri)
	}
	for i, ci := range r.cards {
		if ci >= 0 {
			c := &p.f.cards[ci]
			c.on = append(c.on, resident{ri, r.berth.GPUs[i].Share})
		}
	}
}

func (p *pass) addRun(r run) {
	p.locate(&r)
	p.runs = append(p.runs, r)
	p.enter(int32(len(p.runs) - 1))
}

// crowdedOut tells at a glance that nothing has room for t.
func (p *pass) crowdedOut(t *task) bool {
	if !p.plainly {
		return false
	}
	for c := range t.needs {
		k := &p.f.classes[c].most
		if n := &t.needs[c]; n.ok && k.free && (k.empty >= t.gpus || !n.share.Exclusive) {
			return false
		}
	}
	return true
}

// start places t now if there is room.
func (p *pass) start(t *task) bool {
	if t.spans() {
		return p.gangs.startSpan(t)
	}
	if t.gpus == 0 {
		return p.startPlain(t)
	}
	if p.crowdedOut(t) || !p.worthTrying(t) {
		return false
	}
	cards := p.placer.choose(p, t)
	if len(cards) == 0 || p.cells != nil && !p.cells.allowsAll(t, cards) {
		p.noteFailed(t)
		return false
	}
	p.place(t, cards)
	return true
}

func (p *pass) shapeOf(t *task, c int) shape {
	s := shape{int32(c), int32(t.gpus), int16(t.nodes), t.whole, t.needs[c].share, t.cpu, t.mem, t.job.Spec.Node, p.placer.tag(t), cellKey{}, p.temper(t.job), p.ownerOn(t.job, int32(c))}
	if p.cells != nil {
		s.cells = p.cells.key(t)
	}
	return s
}

// worthTrying reports whether on some class nothing of its shape has failed yet.
func (p *pass) worthTrying(t *task) bool {
	for c := range t.needs {
		if !t.needs[c].ok {
			continue
		}
		if dur, ok := p.failed[p.shapeOf(t, c)]; !ok || t.needs[c].dur < dur {
			return true
		}
	}
	return false
}

func (p *pass) noteFailed(t *task) {
	for c := range t.needs {
		if !t.needs[c].ok {
			continue
		}
		s := p.shapeOf(t, c)
		if dur, ok := p.failed[s]; !ok || t.needs[c].dur < dur {
			p.failed[s] = t.needs[c].dur
		}
	}
}

// mayHold is a cheap question about a group: false means certainly not.
func (p *pass) mayHold(t *task, gi int32) bool {
	g := &p.f.groups[gi]
	n := &t.needs[g.class]
	if !n.ok || len(g.cards) < t.gpus || !g.free {
		return false
	}
	if n.share.Exclusive {
		if g.empty < t.gpus {
			return false
		}
	} else if n.share.MemMiB > g.mem || n.share.Milli > g.milli {
		return false
	}
	h := &p.f.hosts[g.host]
	end := p.now + n.dur
	return t.cpu <= h.freeCPU(end) && t.mem <= h.freeMem(end) && (t.job.Spec.Node == "" || t.job.Spec.Node == h.node.ID) &&
		(p.gangs.spread == nil || p.gangs.takes(t, g.host, g.class))
}

// fits reports whether one card of a group that mayHold t takes it.
func (p *pass) fits(t *task, ci int32) bool {
	c := &p.f.cards[ci]
	return p.hasRoom(t, ci) && (len(c.on) == 0 || p.placer.admits(p, t, c) && p.bears(t, c))
}

// hasRoom is fits, whoever lies there.
func (p *pass) hasRoom(t *task, ci int32) bool {
	c := &p.f.cards[ci]
	n := &t.needs[p.f.groups[c.group].class]
	return (!n.share.Exclusive || c.use.Shares == 0) && c.use.FreeShares() > 0 && c.use.Shares < p.maxShares() &&
		n.share.MemMiB <= c.use.FreeMiB() && n.share.Milli <= c.use.FreeMilli() && p.now+n.dur <= c.until && (p.cells == nil || p.cells.allows(t, ci))
}

// pick returns the cards of a group that take t, those first for which before
// says so, or in the order of ids when it is nil; none when they are too few.
// The result is good until the next call.
func (p *pass) pick(t *task, gi int32, before func(a, b *card) int) []int32 {
	out := p.pool.cards[:0]
	for _, ci := range p.f.groups[gi].cards {
		if !p.fits(t, ci) {
			continue
		}
		if out = append(out, ci); before == nil && len(out) == t.gpus {
			break
		}
	}
	p.pool.cards = out
	if len(out) < t.gpus {
		return nil
	}
	if before != nil {
		slices.SortStableFunc(out, func(a, b int32) int { return before(&p.f.cards[a], &p.f.cards[b]) })
	}
	return out[:t.gpus]
}

// grouper is a placer with a rule of its own which cards of one group a task
// gets, if any.
type grouper interface {
	within(p *pass, t *task, gi int32) []int32
}

// anyOf returns cards of a group that take t, as the placer would have them at
// the least; none when there is no room.
func (p *pass) anyOf(t *task, gi int32) []int32 {
	if g, ok := p.placer.(grouper); ok {
		return g.within(p, t, gi)
	}
	return p.pick(t, gi, nil)
}

// pool is memory that is used again.
type pool struct {
	cards, best []int32
}

// keep copies cards that pick returned, for until the task is placed.
func (p *pass) keep(cards []int32) []int32 {
	p.pool.best = append(p.pool.best[:0], cards...)
	return p.pool.best
}

// place starts t on cards of one group.
func (p *pass) place(t *task, cards []int32) {
	g := &p.f.groups[p.f.cards[cards[0]].group]
	n := &t.needs[g.class]
	k := &p.f.classes[g.class]
	st := cluster.Start{
		Job: t.id, Attempt: uint32(len(t.job.Attempts)) + 1, Estimate: n.est,
		Berth: cluster.Berth{Node: p.f.hosts[g.host].node.ID, CPUMilli: t.cpu, MemMiB: t.mem, GPUs: make([]cluster.GPUShare, 0, len(cards))},
		Why: fmt.Sprintf("%s: %d of %s, beside %d; predicted %s", p.label, len(cards), k.gpuType, p.f.cards[cards[0]].use.Shares,
			(time.Duration(n.dur) * time.Microsecond).Round(time.Second)),
	}
	for _, ci := range cards {
		st.Berth.GPUs = append(st.Berth.GPUs, cluster.GPUShare{GPU: p.f.cards[ci].use.ID, Share: n.share})
		if st.Overtook == "" {
			st.Overtook = p.overtakes(t, p.f.cards[ci].use.ID)
		}
	}
	slices.SortFunc(st.Berth.GPUs, func(a, b cluster.GPUShare) int { return cmp.Compare(a.GPU, b.GPU) })
	p.commit(t, st, n.dur)
}

// overtakes says whom t passes in the queue of a GPU, which another policy
// may have left there, or "".
func (p *pass) overtakes(t *task, gpu cluster.GPUID) string {
	for _, w := range p.snap.Queues[gpu] {
		o := p.taskOf(w.Job)
		if o == t {
			return ""
		}
		if o == nil || !o.gone {
			return fmt.Sprintf("%s has one queue in which j%d does not stand first", p.label, w.Job)
		}
	}
	return ""
}

// commit takes the berths. What the pass believes is what the ledger says, so
// that a refusal here is a fault of ours.
func (p *pass) commit(t *task, st cluster.Start, dur int64) {
	t.gone = true
	p.plan.Starts = append(p.plan.Starts, st)
	first := len(p.runs)
	for _, berth := range p.plan.Starts[len(p.plan.Starts)-1].Berths() {
		if r := p.led.Fits(berth); r.Code != "" {
			panic("policies: " + p.label + " and the ledger disagree on job " + t.id.String() + ": " + r.String())
		}
		p.led.Take(berth)
		r := run{job: t.job, berth: berth, est: st.Estimate, began: p.now, end: p.now + dur, latest: p.now + dur, fresh: true}
		if l := t.job.Spec.TimeLimit; l > 0 {
			r.latest = p.now + l.Microseconds()
		}
		p.addRun(r)
		started := &p.runs[len(p.runs)-1]
		p.refresh(started.host, started)
	}
	if p.cells != nil {
		p.cells.took(t, st.AllGPUs())
	}
	if len(st.Rest) > 0 {
		p.gangs.number(first)
	}
}

// refresh brings the mirror of a host up to the ledger after a start there.
func (p *pass) refresh(hi int32, started *run) {
	h := &p.f.hosts[hi]
	u, _ := p.led.Node(h.node.ID)
	h.use.UsedCPU, h.use.UsedMem = u.UsedCPU, u.UsedMem
	last := int32(-1)
	for _, ci := range started.cards {
		c := &p.f.cards[ci]
		u, _ := p.led.GPUAt(c.at)
		c.take(u)
		last = c.group // all are of one
	}
	if last >= 0 {
		p.f.sum(last, p.maxShares())
	}
	p.changed = append(p.changed, hi)
}

// leaveQueues takes who waits in the queue of a card out of it: an engine has
// one queue, and a job that stood in another one would bar the way there.
func (p *pass) leaveQueues() {
	for _, t := range p.tasks {
		if !t.gone && t.job.State == cluster.JobQueued {
			p.plan.Moves = append(p.plan.Moves, cluster.QueueMove{Job: t.id, Reason: cluster.ReasonResources})
		}
	}
}
