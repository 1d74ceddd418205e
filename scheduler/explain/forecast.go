package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// Forecast is the place that is likely to take a waiting job, what is missing
// there, and when the job is expected to start.
type Forecast struct {
	Node cluster.NodeID
	// GPU is nil for a job without GPUs or with several.
	GPU *cluster.GPU
	// Missing says in numbers what is missing there and what must end first.
	Missing string
	// P50 is when it is expected to start if jobs take as long as predicted; P90 if
	// they take as long as at most nine in ten do by the confidence of their
	// predictions, but never longer than their time limits. Neither includes later
	// jobs that are placed before it.
	P50, P90 cluster.Time
	// Ahead is how many wait there before it.
	Ahead int
}

// mostAhead bounds how many waiting jobs ahead of a job are simulated; the time of
// the rest is extrapolated in proportion.
const mostAhead = 256

// mostReplayed is up to how many waiting jobs a forecast runs a pass over all of
// them to learn for which jobs GPUs are kept; more would cost too much for a list
// of forecasts.
const mostReplayed = 2000

// When finds where and when job is likely to start: at its queue, or the place that
// is free first. ok is false if no node that takes jobs could ever run it. Like Why
// it serves users who ask.
func When(snap *dispatch.Snapshot, job *cluster.Job, pol rules.Policy, by Passes) (f Forecast, ok bool) {
	x := newExplainer(snap, job, pol, by)
	live := map[cluster.NodeID][]*cluster.Job{}
	for _, r := range snap.Running {
		if a := r.Live(); a != nil {
			for _, b := range a.Held() {
				live[b.Node] = append(live[b.Node], r)
			}
		}
	}
	if job.Spec.NodeCount() > 1 || job.Spec.WholeNodes() {
		return x.forecastSpan(live)
	}
	var best *clearing
	own := x.own(job)
	for _, n := range rules.SortedNodes(snap.Nodes) {
		if !n.Schedulable() || !job.Spec.Allows(n) || own != nil && !own.Covers(n.ID, "") {
			continue
		}
		c := &clearing{x: x, node: n, running: live[n.ID]}
		if !c.find() || !c.shift() {
			continue
		}
		mine := n.GPU(job.Queue) != nil && job.Queue != ""
		if best == nil || mine || c.at < best.at {
			best = c
		}
		if mine {
			break
		}
	}
	if best == nil {
		return f, false
	}
	now := int64(snap.Now)
	f = Forecast{Node: best.node.ID, Missing: best.missing(), Ahead: best.before()}
	if job.Spec.GPUs == 1 {
		f.GPU = &best.node.GPUs[best.cards[0]]
	}
	early, late := best.play(rules.Middle), best.play(rules.Tail)
	early, _ = best.shifted(max(now, early), best.length)
	late, _ = best.shifted(max(now, late), best.length)
	f.P50, f.P90 = cluster.Time(max(now, early)), cluster.Time(max(now, early, late))
	switch {
	case job.Spec.GPUs > 0 && int64(f.P50) <= now:
		x.afterOthers(&f)
	case job.Spec.GPUs > 0 && len(snap.Waiting) <= mostReplayed && slices.ContainsFunc(snap.Waiting, inNoQueue):
		g := &best.node.GPUs[best.cards[0]]
		nd, _ := x.need(job, g)
		x.after(&f, x.keptFor(g), nd.Dur)
	}
	return f, true
}

// clearing simulates how a node becomes free for a job.
type clearing struct {
	x       *explainer
	node    *cluster.Node
	running []*cluster.Job
	at      int64 // when the job would fit if none were ahead of it, and may start
	clears  int64 // when it would fit, whatever is reserved
	cards   []int // of the node, where it then fits
	ends    int   // how many must end for that
	length  int64 // how long the job may last there
	bound   int64 // jobs that would end later do not go before the job; 0 is no bound
}

// leave is a release in the simulation.
type leave struct {
	at    int64
	job   cluster.JobID
	berth *cluster.Berth
}

// stage is what a node has free at one instant of the simulation.
type stage struct {
	cpu, mem int64
	cards    []dispatch.GPUUse
	blocked  []bool // a job ahead waits for the GPU
}

func (c *clearing) stage() stage {
	u, _ := c.x.snap.Ledger.Node(c.node.ID)
	s := stage{cpu: u.CPUMilli - u.UsedCPU, mem: u.MemMiB - u.UsedMem, blocked: make([]bool, len(c.node.GPUs))}
	for i := range c.node.GPUs {
		g, _ := c.x.snap.Ledger.GPU(c.node.GPUs[i].ID)
		s.cards = append(s.cards, g)
	}
	return s
}

func (s *stage) change(b *cluster.Berth, sign int64) {
	s.cpu -= sign * b.CPUMilli
	s.mem -= sign * b.MemMiB
	for _, gs := range b.GPUs {
		i := slices.IndexFunc(s.cards, func(u dispatch.GPUUse) bool { return u.ID == gs.GPU })
		if i < 0 {
			continue
		}
		u := &s.cards[i]
		u.UsedMiB += sign * gs.Share.MemMiB
		u.UsedMilli += sign * gs.Share.Milli
		u.Shares += int(sign)
		u.Exclusive = gs.Share.Exclusive && sign > 0
	}
}

// fit returns the GPUs on which a job fits on the stage. at is the only GPU that
// will do for one GPU, -1 for any.
func (c *clearing) fit(s *stage, j *cluster.Job, at int, alone []bool) ([]int, bool) {
	cpu, mem := rules.HostOf(j, &c.x.pol)
	if s.cpu < cpu || s.mem < mem || j.Spec.WholeNodes() && !c.empty(s) {
		return nil, false
	}
	if j.Spec.GPUs == 0 {
		return nil, true
	}
	for i := range c.node.GPUs {
		if j.Spec.GPUs > 1 && slices.ContainsFunc(c.node.GPUs[:i], func(g cluster.GPU) bool { return rules.Twins(&g, &c.node.GPUs[i]) }) {
			continue
		}
		on := c.alike(s, j, i, at, alone)
		if j.Spec.GPUs > 1 { // a pass takes those in use first, and then no others
			slices.SortStableFunc(on, func(a, b int) int { return cmp.Compare(min(1, s.cards[b].Shares), min(1, s.cards[a].Shares)) })
		}
		if len(on) < j.Spec.GPUs {
			continue
		}
		if on = on[:j.Spec.GPUs]; j.Spec.WholeNodes() || !c.strands(s, j, on, cpu, mem) {
			return on, true
		}
	}
	return nil, false
}

// empty reports whether nothing is in use of the node.
func (c *clearing) empty(s *stage) bool {
	u, _ := c.x.snap.Ledger.Node(c.node.ID)
	return s.cpu >= u.CPUMilli && s.mem >= u.MemMiB && !slices.ContainsFunc(s.cards, func(g dispatch.GPUUse) bool { return g.Shares > 0 })
}

// alike returns the GPUs from i on, of its type and kind, that hold a job.
func (c *clearing) alike(s *stage, j *cluster.Job, i, at int, alone []bool) (on []int) {
	first, own := &c.node.GPUs[i], c.x.own(j)
	for k := i; k < len(c.node.GPUs); k++ {
		g := &c.node.GPUs[k]
		if rules.Twins(g, first) && (own == nil || own.Covers(c.node.ID, g.ID)) && (at < 0 || j.Spec.GPUs > 1 || k == at) &&
			!s.blocked[k] && c.holds(&s.cards[k], g, j, alone != nil && alone[k]) {
			on = append(on, k)
		}
	}
	return on
}

// strands reports whether a job would leave too little to the idle GPUs.
func (c *clearing) strands(s *stage, j *cluster.Job, on []int, cpu, mem int64) bool {
	idle, takes := 0, 0
	for k := range s.cards {
		if s.cards[k].Idle() {
			idle++
		}
	}
	for _, k := range on {
		if s.cards[k].Shares == 0 {
			takes++
		}
	}
	u := dispatch.NodeUse{CPUMilli: s.cpu, MemMiB: s.mem}
	whole := dispatch.NodeUse{CPUMilli: c.node.CPUMilli, MemMiB: c.node.MemMiB}
	sp := rules.SpareOf(&whole, len(c.node.GPUs), &c.x.pol)
	return sp.Strands(&u, idle, takes, cpu, mem) && !rules.BulkyEver(c.x.snap.Nodes, &c.node.GPUs[on[0]], j, &c.x.pol)
}

func (c *clearing) holds(u *dispatch.GPUUse, g *cluster.GPU, j *cluster.Job, alone bool) bool {
	nd, _ := c.x.need(j, g)
	switch {
	case nd.Way == rules.WayNone || u.FreeShares() < 1:
		return false
	case nd.Way == rules.WayWhole || alone:
		return u.Shares == 0
	}
	return u.Shares < max(1, c.x.pol.MaxShares) && nd.Mem <= u.FreeMiB() && nd.Milli <= u.FreeMilli()
}

// find simulates without queues until the job fits; false if it never does.
func (c *clearing) find() bool {
	s, now := c.stage(), int64(c.x.snap.Now)
	alone := make([]bool, len(c.node.GPUs))
	for i := range c.node.GPUs {
		g := &c.node.GPUs[i]
		nd, _ := c.x.need(c.x.job, g)
		v, _ := c.x.judge(g, &nd)
		alone[i] = v.Against() || slices.ContainsFunc(c.x.on[g.ID], func(j *cluster.Job) bool {
			return rules.Overran(j, now, s.cards[i].Shares, &c.x.pol)
		})
	}
	leaves := c.leaves(rules.Middle)
	at := slices.IndexFunc(c.node.GPUs, func(g cluster.GPU) bool { return g.ID == c.x.job.Queue && g.ID != "" })
	c.at = now
	for k := 0; ; k++ {
		if on, ok := c.fit(&s, c.x.job, at, alone); ok {
			c.cards = on
			c.ends, c.clears = c.mustEnd(leaves[:k]), c.at
			return true
		}
		if k == len(leaves) {
			return false
		}
		s.change(leaves[k].berth, -1)
		c.at = leaves[k].at
	}
}

// mustEnd counts the jobs that leave a GPU of the job, or all that leave if the job
// lacks a resource of the whole node, or needs all of it.
func (c *clearing) mustEnd(leaves []leave) int {
	s := c.stage()
	cpu, mem := rules.HostOf(c.x.job, &c.x.pol)
	if len(c.cards) == 0 || c.x.job.Spec.WholeNodes() || s.cpu < cpu || s.mem < mem {
		return len(leaves)
	}
	n := 0
	for _, l := range leaves {
		if slices.ContainsFunc(l.berth.GPUs, func(g cluster.GPUShare) bool {
			return slices.ContainsFunc(c.cards, func(k int) bool { return c.node.GPUs[k].ID == g.GPU })
		}) {
			n++
		}
	}
	return n
}

func (c *clearing) leaves(q rules.Quantile) []leave {
	var out []leave
	for _, j := range c.running {
		a := j.Live()
		out = append(out, leave{rules.EndAt(j, a, q, int64(c.x.snap.Now), &c.x.pol), j.ID, a.BerthAt(max(0, a.Rank(c.node.ID)))})
	}
	slices.SortFunc(out, byLeave)
	return out
}

func byLeave(a, b leave) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.job, b.job)) }

// place is a waiting job before the job in the queue of a GPU.
type place struct {
	w   dispatch.Waiter
	job *cluster.Job
}

// queued appends the jobs that are before the job in the queue of a GPU.
func (c *clearing) queued(ps []place, g *cluster.GPU) []place {
	for _, w := range c.x.snap.Queues[g.ID] {
		if w.Job == c.x.job.ID {
			break
		}
		k, ok := slices.BinarySearchFunc(c.x.snap.Waiting, w.Job, func(j *cluster.Job, id cluster.JobID) int { return cmp.Compare(j.ID, id) })
		if ok && c.passes(c.x.snap.Waiting[k], g) {
			ps = append(ps, place{w, c.x.snap.Waiting[k]})
		}
	}
	return ps
}

// ahead returns the waiting jobs in the node's queues that are before the job, in
// order of their places, and how many there are in all.
func (c *clearing) ahead() (out []*cluster.Job, all int) {
	var ps []place
	for i := range c.node.GPUs {
		ps = c.queued(ps, &c.node.GPUs[i])
	}
	slices.SortFunc(ps, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.w.Rank, b.w.Rank), cmp.Compare(a.w.Job, b.w.Job))
	})
	all = len(ps)
	for _, p := range ps[:min(all, mostAhead)] {
		out = append(out, p.job)
	}
	return out, all
}

// before returns how many jobs are ahead of the job for its GPUs, or on the node if
// it has none.
func (c *clearing) before() int {
	if len(c.cards) == 0 {
		_, all := c.ahead()
		return all
	}
	var ps []place
	for _, k := range c.cards {
		ps = c.queued(ps, &c.node.GPUs[k])
	}
	return len(ps)
}

// passes reports whether a job in the queue of a GPU goes before one that the node
// is reserved for.
func (c *clearing) passes(j *cluster.Job, g *cluster.GPU) bool {
	if c.bound == 0 || j.Spec.Deadline > 0 || c.x.snap.Standing.Priority(j) > c.x.snap.Standing.Priority(c.x.job) {
		return true
	}
	nd, _ := c.x.need(j, g)
	return int64(c.x.snap.Now)+nd.Dur <= c.bound
}

// play returns when the job starts once those before it had their turn: a GPU goes
// to the first in its queue, without overtaking.
func (c *clearing) play(q rules.Quantile) int64 {
	now := int64(c.x.snap.Now)
	s, leaves := c.stage(), c.leaves(q)
	ahead, all := c.ahead()
	at := now
	for {
		clear(s.blocked)
		ahead = slices.DeleteFunc(ahead, func(j *cluster.Job) bool {
			l, ok := c.begin(&s, j, at, q)
			if ok {
				i, _ := slices.BinarySearchFunc(leaves, l, byLeave)
				leaves = slices.Insert(leaves, i, l)
			}
			return ok
		})
		own := -1
		if c.x.job.Spec.GPUs == 1 {
			own = c.cards[0]
		}
		if _, ok := c.fit(&s, c.x.job, own, nil); ok && at >= c.floor(q) {
			break
		}
		if len(leaves) == 0 {
			break
		}
		at = max(at, leaves[0].at)
		s.change(leaves[0].berth, -1)
		leaves = leaves[1:]
	}
	if all > mostAhead {
		at = now + (at-now)/mostAhead*int64(all)
	}
	return at
}

// floor returns the earliest time play may give: a job that may not share with the
// residents waits until they left, which play ignores.
func (c *clearing) floor(q rules.Quantile) int64 {
	if q == rules.Middle {
		return c.at
	}
	return int64(c.x.snap.Now)
}

// begin starts a waiting job on the stage, or closes its GPU to those behind it.
func (c *clearing) begin(s *stage, j *cluster.Job, now int64, q rules.Quantile) (leave, bool) {
	at := slices.IndexFunc(c.node.GPUs, func(g cluster.GPU) bool { return g.ID == j.Queue })
	on, ok := c.fit(s, j, at, nil)
	if !ok || at < 0 {
		if at >= 0 {
			s.blocked[at] = true
		}
		return leave{}, false
	}
	cpu, mem := rules.HostOf(j, &c.x.pol)
	b := &cluster.Berth{Node: c.node.ID, CPUMilli: cpu, MemMiB: mem}
	g := &c.node.GPUs[at]
	nd, e := c.x.need(j, g)
	for _, k := range on {
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: c.node.GPUs[k].ID, Share: nd.Share(c.node.GPUs[k].SellableMiB)})
	}
	s.change(b, 1)
	return leave{now + rules.Stretched(nd.Dur, q, e, j.Spec.TimeLimit), j.ID, b}, true
}

// missing says in words what is missing at the place now, and what must end.
func (c *clearing) missing() string {
	what := c.lacks()
	if r := c.reserved(); r != "" && (c.ends == 0 || c.clears < c.at) {
		return r
	}
	if c.ends == 0 {
		return what
	}
	verb := " end in "
	if c.ends == 1 {
		verb = " ends in "
	}
	return what + "; " + say.Jobs(c.ends) + verb + say.About(c.clears-int64(c.x.snap.Now))
}

// reserved says which reservation keeps the job from its GPUs now, "" for none.
func (c *clearing) reserved() string {
	b := cluster.Berth{Node: c.node.ID}
	for _, k := range c.cards {
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: c.node.GPUs[k].ID})
	}
	rs := c.x.snap.Reservations
	if r := cmp.Or(rs.Outside(c.x.job, c.x.snap.Now), rs.Keeps(c.x.job, &b, c.x.snap.Now)); r.Code != "" {
		return fmt.Sprintf("node %s: %s", c.node.ID, r.Detail)
	}
	return ""
}

func (c *clearing) lacks() string {
	x, s := c.x, c.stage()
	where := "node " + string(c.node.ID)
	free := 0
	for k := range c.node.GPUs {
		if c.holds(&s.cards[k], &c.node.GPUs[k], x.job, false) {
			free++
		}
	}
	switch {
	case x.job.Spec.WholeNodes() && !c.empty(&s):
		return where + ": in use, but needed whole"
	case s.mem < x.mem:
		return fmt.Sprintf("%s: %s of host memory free, needs %s", where, cluster.MemText(max(0, s.mem)), cluster.MemText(x.mem))
	case s.cpu < x.cpu:
		return fmt.Sprintf("%s: %s free, needs %s", where, say.Cores(max(0, s.cpu)), say.Cores(x.cpu))
	case len(c.cards) == 0:
		return where + " has room"
	case len(c.cards) > 1 && free < len(c.cards):
		return fmt.Sprintf("%s: %d of %s with room, needs %d at once", where, free, say.GPUs(len(c.node.GPUs)), len(c.cards))
	case len(c.cards) > 1:
		return fmt.Sprintf("%s: %s have room", where, say.GPUs(free))
	}
	g := &c.node.GPUs[c.cards[0]]
	nd, _ := x.need(x.job, g)
	if c.holds(&s.cards[c.cards[0]], g, x.job, false) && c.strands(&s, x.job, c.cards, x.cpu, x.mem) {
		return where + ": " + x.keptWords(c.node, &dispatch.NodeUse{CPUMilli: c.node.CPUMilli, MemMiB: c.node.MemMiB})
	}
	code, _, what := x.lack(g, &nd, &s.cards[c.cards[0]])
	if code == "" {
		what = "has room"
	}
	return fmt.Sprintf("GPU %d of %s: %s", g.Index, c.node.ID, what)
}
