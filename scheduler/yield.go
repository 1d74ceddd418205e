package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// Limits on preemption by attained service in one pass: for how many waiting jobs,
// on how many nodes it looks for each, and how many jobs each may preempt.
const (
	yieldHeads  = 16
	yieldHosts  = 16
	yieldersMax = 64
)

// yielder preempts running jobs for waiting ones that come before them in the order
// of the pass and have much less left to do; see DESIGN.md.
type yielder struct {
	p *pass
	// on holds the nodes where a job may be preempted, those with the most left of
	// a job first; nil until first needed.
	on    []*yielding
	at    map[int32]*yielding        // by node
	asked map[cluster.JobID]struct{} // jobs for which another is already being preempted
	tried int
}

// learn reads the running jobs.
func (y *yielder) learn() {
	p := y.p
	y.on, y.at, y.asked = []*yielding{}, map[int32]*yielding{}, map[cluster.JobID]struct{}{}
	leaves := map[cluster.JobID]struct{}{}
	for i := range p.plan.Preempt {
		leaves[p.plan.Preempt[i].Job] = struct{}{}
		y.asked[p.plan.Preempt[i].For] = struct{}{}
	}
	for _, j := range p.running {
		a := j.Live()
		if !j.Spec.Checkpoint.Set() || a == nil {
			continue
		}
		if a.Preempt != nil {
			y.asked[a.Preempt.For] = struct{}{}
			continue
		}
		g := y.giverOf(j, a)
		if _, twice := leaves[j.ID]; g == nil || twice {
			continue
		}
		for _, host := range g.hosts {
			c := y.node(host)
			if len(c.may) == 0 {
				y.on = append(y.on, c)
			}
			c.may = append(c.may, g)
			c.most = max(c.most, g.work())
		}
	}
	slices.SortFunc(y.on, func(a, b *yielding) int { return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(a.host, b.host)) })
}

// node returns the assumed state of a node.
func (y *yielder) node(host int32) *yielding {
	c := y.at[host]
	if c == nil {
		c = &yielding{host: host}
		y.at[host] = c
	}
	return c
}

// giverOf returns what a running job would free, on all its nodes or none; nil for
// one that may not be preempted.
func (y *yielder) giverOf(j *cluster.Job, a *cluster.Attempt) *giver {
	p := y.p
	if j.Spec.Deadline > 0 || len(a.Berth.GPUs) == 0 || j.Unpreemptible(cluster.Time(p.now)) != "" {
		return nil
	}
	if _, n := j.Preempted(); n >= p.pol.YieldMost {
		return nil
	}
	g := &giver{job: j, left: rules.LeftOf(j, &a.Estimate, p.now, &p.pol), cost: rules.YieldCost(j)}
	for rank, b := range a.Berths() {
		host, there := p.f.HostAt[b.Node]
		if !there || !a.PartLive(rank) { // it is ending, or part of it may not be ended here
			return nil
		}
		g.hosts = append(g.hosts, host)
		for _, gs := range b.GPUs {
			i, there := p.f.CardAt[gs.GPU]
			if !there || p.f.Cards[i].Class < 0 {
				return nil
			}
			g.size += cluster.ShareMilli(gs.Share, p.f.Cards[i].Use.SellableMiB)
		}
	}
	if g.size <= 0 {
		return nil
	}
	return g
}

// takeTurn proposes preemptions for a job that did not start, on the nodes where
// the fewest leave.
func (y *yielder) takeTurn(r rank) {
	p := y.p
	it := &p.items[r.item]
	if p.pol.YieldAfter <= 0 || y.tried >= yieldHeads || it.gpus == 0 || it.fast < 0 || it.due ||
		p.now-it.eligible < p.pol.YieldAfter.Microseconds() || p.standing.Preempts(it.job) {
		return // its QOS makes room for it
	}
	if y.on == nil {
		y.learn()
	}
	if _, coming := y.asked[it.job.ID]; coming || len(y.on) == 0 {
		return
	}
	y.tried++
	w := &wish{it, r, 0, len(it.needs)}
	if it.spans() {
		y.forSpan(w)
		return
	}
	best, at := y.best(w)
	if at == nil {
		return
	}
	y.ask(w, best)
	cards := at.claim(w, p)
	if len(best) > 0 && !it.moved && p.lines.moves < p.pol.MaxMoves && (it.queue < 0 || p.f.Cards[it.queue].Host != at.host) {
		p.lines.moves++
		p.lines.join(it, cards[0], best[0].cost) // considered there as soon as they left
	}
}

// ask proposes to preempt jobs for another.
func (y *yielder) ask(w *wish, who []*giver) {
	for _, g := range who {
		y.p.plan.Preempt = append(y.p.plan.Preempt, dispatch.Preemption{Job: g.job.ID, Attempt: g.job.Live().No, For: w.job.ID, Why: y.words(w.item, g)})
		for _, host := range g.hosts {
			c := y.at[host]
			c.open(y.p)
			c.lift(g, y.p, -1)
			c.may = slices.DeleteFunc(c.may, func(o *giver) bool { return o == g })
		}
	}
}

// best returns which jobs would be preempted for a job, and where; nil for nowhere.
func (y *yielder) best(w *wish) (best []*giver, at *yielding) {
	looked := 0
	for _, c := range y.on {
		if !y.mayLie(w, c.host) {
			continue
		}
		if gs, ok := y.fewest(w, c); ok && y.pays(w.item, gs) && (at == nil || len(gs) < len(best)) {
			best, at = gs, c
		}
		if looked++; looked == yieldHosts || at != nil && len(best) == 0 {
			break
		}
	}
	return best, at
}

// mayLie reports whether a job may start on a node at all, given the nodes it asks
// for and the jobs waiting there unseen.
func (y *yielder) mayLie(w *wish, host int32) bool {
	h := &y.p.f.Hosts[host]
	return !h.ForeignQueue && (w.node == "" || w.node == h.Node.ID) && w.job.Spec.Allows(h.Node)
}

// vacated is what other jobs would free for a job on several nodes.
type vacated struct {
	who   []*giver
	nodes []*yielding
	loss  int64 // what they hold of GPUs, plus one GPU for each, in thousandths
}

// forSpan proposes preemptions for a job on several nodes: enough for it to start
// on all of them, or none. From then on the nodes are reserved for it, including
// those already free.
func (y *yielder) forSpan(w *wish) {
	p := y.p
	var best vacated
	for c := range w.needs {
		if !p.fitter.leads(w.item, c) {
			continue
		}
		lo, hi := p.f.Family(c)
		if v, ok := y.onFamily(&wish{w.item, w.rank, lo, hi}, c); ok && y.pays(w.item, v.who) && (best.nodes == nil || v.loss < best.loss) {
			best, w.lo, w.hi = v, lo, hi
		}
	}
	if best.nodes == nil || len(p.plan.Preempt)+len(best.who) > yieldersMax {
		return // some of them would be ended for nothing
	}
	y.ask(w, best.who)
	until := p.now
	for _, g := range best.who {
		until = max(until, p.now+g.job.Spec.Checkpoint.Grace.Microseconds())
	}
	parts := make([]rules.Part, 0, len(best.nodes))
	for _, c := range best.nodes {
		parts = append(parts, rules.Part{Host: c.host, Cards: c.claim(w, p)})
	}
	p.keeper.keepParts(w.item, parts, until)
	w.kept = true
}

// onFamily chooses, among the GPUs like those of class c, the nodes on which the
// least must be freed for the job to start; ok is false if there are too few.
func (y *yielder) onFamily(w *wish, c int) (v vacated, ok bool) {
	who, on := map[int32][]*giver{}, map[*giver]int64{} // by node; on how many nodes each would leave
	all := y.candidates(w, c)
	var parts []rules.Part
	for _, n := range all {
		gs, ok := y.fewest(w, n)
		if !ok {
			continue
		}
		for _, g := range gs {
			on[g]++
		}
		who[n.host] = gs
		parts = append(parts, y.part(w, n))
	}
	for i := range parts {
		for _, g := range who[parts[i].Host] {
			parts[i].Order += (g.size + cluster.WholeGPU) / min(on[g], int64(w.nodes))
		}
	}
	best, ok := rules.NearParts(w.job, parts, cluster.Time(y.p.now))
	if !ok {
		return v, false
	}
	for i := range best {
		for _, g := range who[best[i].Host] {
			if !slices.Contains(v.who, g) {
				v.who = append(v.who, g)
			}
		}
	}
	y.spare(w, &v, all)
	for _, g := range v.who {
		v.loss += g.size + cluster.WholeGPU
	}
	return v, true
}

func (y *yielder) part(w *wish, n *yielding) rules.Part {
	return rules.NewPart(w.job, y.p.f.Hosts[n.host].Node, rules.Part{Host: n.host})
}

// candidates returns the nodes that a job may get a part of: those where another
// may be preempted and those where it has room.
func (y *yielder) candidates(w *wish, c int) []*yielding {
	var out []*yielding
	seen := map[int32]struct{}{}
	for _, n := range y.on {
		if len(out) == yieldHosts+w.nodes {
			break
		}
		if y.mayLie(w, n.host) {
			seen[n.host] = struct{}{}
			out = append(out, n)
		}
	}
	for _, part := range y.p.fitter.fitSpan(w.item, c) {
		if _, twice := seen[part.Host]; !twice {
			out = append(out, y.node(part.Host))
		}
	}
	return out
}

// spare drops the preemptions without which the job still finds as many nodes:
// preempting a job on several may free more than the node it was chosen for. It
// records which nodes those are.
func (y *yielder) spare(w *wish, v *vacated, all []*yielding) {
	lift := func(g *giver, sign int64) {
		for _, host := range g.hosts {
			y.at[host].open(y.p)
			y.at[host].lift(g, y.p, sign)
		}
	}
	fits := func() (best []rules.Part, ok bool) {
		var parts []rules.Part
		for _, n := range all {
			if n.holds(w, y.p) {
				parts = append(parts, y.part(w, n))
			}
		}
		return rules.NearParts(w.job, parts, cluster.Time(y.p.now))
	}
	for _, g := range v.who {
		lift(g, -1)
	}
	for i := len(v.who) - 1; i >= 0; i-- {
		g := v.who[i]
		lift(g, 1)
		if _, ok := fits(); ok {
			v.who = slices.Delete(v.who, i, i+1)
		} else {
			lift(g, -1)
		}
	}
	best, _ := fits()
	for i := range best {
		v.nodes = append(v.nodes, y.at[best[i].Host])
	}
	for _, g := range v.who {
		lift(g, 1)
	}
}

// words says why a job makes room for another.
func (y *yielder) words(it *item, g *giver) string {
	return fmt.Sprintf("it has %s left, and that one %s and has waited for %s", say.About(g.left), say.About(y.lasts(it)), say.About(y.p.now-int64(it.job.Eligible)))
}

// lasts returns how long a waiting job is assumed to run when others are to make
// room for it, in microseconds. A declared duration alone preempts nothing: unless
// a run or the model says otherwise, the job counts as long as it is allowed to
// run, or as a job without a prediction.
func (y *yielder) lasts(it *item) int64 {
	p, n := y.p, &it.needs[it.fast]
	if e, _ := cluster.EstimateFor(it.job.Estimates, p.f.Classes[it.fast].GPUType); it.job.Spec.Duration <= 0 || e.Duration > 0 {
		return n.Dur
	}
	return max(n.Dur, cmp.Or(it.job.Spec.TimeLimit, p.pol.AssumedDuration).Microseconds())
}

// gains reports whether a job may take the place of a running one: it comes before
// it in the order, and its shorter wait exceeds the other's longer wait by the
// margin, in time and, for a job on one node, in GPU time; pays considers those on
// several together.
func (y *yielder) gains(w *wish, g *giver) bool {
	p, m := y.p, max(1000, y.p.pol.YieldMilli)
	dur := y.lasts(w.item)
	if g.job.Spec.Partition != w.job.Spec.Partition || g.left < (dur+g.cost)/1000*m {
		return false // it may not end others
	}
	work := p.turns.gpuTime(w.item, dur) * 1000
	return (w.spans() || g.work() >= (work+g.cost/cluster.WholeGPU*g.size)/1000*m) && y.precedes(w, g)
}

// precedes reports whether a job would come before a running one if that waited
// and, if fair shares count, its user was not served more.
func (y *yielder) precedes(w *wish, g *giver) bool {
	p := y.p
	if p.pol.FairMilli > 0 && p.standing != nil && p.standing.Fair != nil && p.standing.Fair.Place(assocOf(w.job)) > p.standing.Fair.Place(assocOf(g.job)) {
		return false
	}
	if g.rank == nil {
		w := *g.job
		w.Eligible = cluster.Time(p.now)
		other := item{needs: make([]rules.Need, len(p.f.Classes))}
		p.fill(&other, &w)
		g.rank = &rank{class: -other.class, tier: tierPlain, first: rules.Forever} // it starts nowhere
		if other.fast = p.fastest(&other); other.fast >= 0 {
			*g.rank = p.turns.rankOf(&other)
		}
	}
	return w.rank.compare(*g.rank) < 0
}

// fewest returns the jobs to preempt on a node so that a job fits there, none
// needlessly. ok is false if it would not fit even then.
func (y *yielder) fewest(w *wish, c *yielding) (out []*giver, ok bool) {
	p := y.p
	c.open(p)
	defer func() {
		for i := range out {
			c.lift(out[i], p, 1)
		}
	}()
	n := 0
	for ; !c.holds(w, p); n++ {
		for n < len(c.may) && !y.gains(w, c.may[n]) {
			n++
		}
		if n >= len(c.may) || len(out) == yieldersMax {
			return out, false
		}
		out = append(out, c.may[n])
		c.lift(c.may[n], p, -1)
	}
	for i := len(out) - 2; i >= 0; i-- { // the last one is needed
		c.lift(out[i], p, 1)
		if c.holds(w, p) {
			out = slices.Delete(out, i, i+1)
		} else {
			c.lift(out[i], p, -1)
		}
	}
	return out, true
}

// pays reports whether a job's wait shrinks by the margin more than the waits of
// all jobs preempted for it grow. If one of those is on several nodes, waits also
// count once per GPU of the job; a job that waits for several nodes need only gain
// no less than they lose if each counts once.
func (y *yielder) pays(it *item, who []*giver) bool {
	m := max(1000, y.p.pol.YieldMilli)
	gain, loss, cards, spans := int64(rules.Forever), int64(0), int64(0), it.spans()
	for _, g := range who {
		lost := y.lasts(it) + g.cost
		gain, loss = min(gain, g.left), loss+lost
		cards += min(lost, rules.MaxSpread) / cluster.WholeGPU * g.size
		spans = spans || g.spans()
	}
	if spans && len(who) > 0 && y.p.turns.gpuTime(it, gain)*1000 < cards/1000*m {
		return false
	}
	if it.spans() {
		return gain >= loss
	}
	return gain >= loss/1000*m
}
