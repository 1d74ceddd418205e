package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// A job that spans several nodes takes the same of each, of one class of cards,
// on all at once or on none. It stands in no queue, since a queue is of one card:
// every pass looks at it in its turn, and keeps nodes for it as it keeps cards
// for others who waited long.

// spans tells of an item that it needs several nodes, or all of one.
func (it *item) spans() bool { return it.nodes > 1 || it.whole }

// allGPUs is how many GPUs a job takes on all of its nodes.
func (it *item) allGPUs() int { return it.gpus * max(1, it.nodes) }

// startSpan starts a job on several nodes if as many have what it needs now. Of
// the classes that do it takes one as other jobs do.
func (p *pass) startSpan(it *item) bool {
	if it.gpus == 0 {
		parts, ok := BestParts(it.job, p.plainParts(it))
		if !ok {
			return false
		}
		e, _ := cluster.EstimateFor(it.job.Estimates, cluster.CPUType)
		p.placeSpan(it, -1, parts, e, fmt.Sprintf("%d nodes with %s free", it.nodes, cores(it.cpu)))
		return true
	}
	best, fastest := -1, int64(forever)
	var fits []int
	parts := map[int][]Part{}
	for c := range it.needs {
		if !p.leads(it, c) || p.realms == nil && !p.mayFit(it, c) {
			continue
		}
		if s, ok := BestParts(it.job, p.fitSpan(it, c)); ok {
			fits, parts[c] = append(fits, c), s
		}
	}
	fits = inTime(fits, parts)
	for _, c := range fits {
		fastest = min(fastest, it.needs[c].dur)
	}
	for _, c := range fits {
		if d := it.needs[c].dur; d-fastest <= p.slack(fastest) && (best < 0 || d > it.needs[best].dur) {
			best = c
		}
	}
	if c, ok := p.chooses(it, fits); ok {
		best = c
	}
	if best < 0 {
		return false
	}
	_, e, _ := ShareOn(it.job, p.f.classes[best].rep, p.pol)
	why := fmt.Sprintf("%d nodes with %s %s free on each, those with the fewest; %s",
		it.nodes, gpus(it.gpus), p.f.classes[best].gpuType, timeWords(it.job, p.f.classes[best].gpuType, it.needs[best].dur))
	p.placeSpan(it, best, parts[best], e, why)
	return true
}

// inTime leaves of the classes that fit those whose nodes were all ready in the
// job's earlier attempts, if there are such.
func inTime(fits []int, parts map[int][]Part) []int {
	late := func(c int) bool { return slices.ContainsFunc(parts[c], func(s Part) bool { return s.late }) }
	if good := slices.DeleteFunc(slices.Clone(fits), late); len(good) > 0 {
		return good
	}
	return fits
}

// fitSpan lists the nodes on which the job fits, on cards of class c: those with
// the fewest empty cards first, so that nodes stay whole for others, and last
// those for which it was given up before.
func (p *pass) fitSpan(it *item, c int) []Part {
	var out []Part
	want := p.want(it, c)
	for k, g := range p.spanGroups(it, c) {
		if int(g.hi-g.lo) < it.gpus || p.f.hosts[g.host].foreignQueue {
			continue
		}
		cards := p.partCards(it, c, k, g, &want)
		if len(cards) >= it.gpus && len(cards) > 0 {
			out = append(out, p.partOn(it, g.host, cards, int64(g.empty)))
		}
	}
	if p.realms == nil && len(out) < it.nodes {
		s := p.shapeOf(it, c)
		if u, ok := p.failed[s]; !ok || want.until < u {
			p.failed[s] = want.until
		}
	}
	return out
}

// plainParts lists the nodes on which a job without GPUs fits, in the order in
// which such jobs take them.
func (p *pass) plainParts(it *item) []Part {
	var out []Part
	for place, i := range p.f.order {
		h := &p.f.hosts[i]
		if r := p.f.hostRoom(h); r.cpu >= it.cpu && r.host >= it.mem && !p.refused(it, i) && (!it.whole || p.isEmpty(h)) {
			out = append(out, p.partOn(it, i, nil, int64(place)))
		}
	}
	return out
}

// placeSpan starts a job on the parts. Nodes have their ranks in the order of
// their ids. c is the class of the cards, -1 for none.
func (p *pass) placeSpan(it *item, c int, parts []Part, e cluster.Estimate, why string) {
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Compare(a.Host, b.Host) })
	st := cluster.Start{Job: it.job.ID, Attempt: uint32(len(it.job.Attempts)) + 1, Estimate: e, Why: why}
	var all []int32
	for i := range parts {
		b := p.berthOn(it, c, &parts[i], &st)
		if i == 0 {
			st.Berth = b
		} else {
			st.Rest = append(st.Rest, b)
		}
		all = append(all, parts[i].Cards...)
	}
	it.gone = true
	p.countStart(it, &st)
	p.plan.Starts = append(p.plan.Starts, st)
	for rank, b := range st.Berths() {
		if r := p.f.led.Fits(b); r.Code != "" {
			panic("scheduler: index and ledger disagree on job " + st.Job.String() + ": " + r.String())
		}
		p.f.led.Take(b)
		host := parts[rank].Host
		p.frag.changed(host)
		p.f.took(host, b.GPUs)
		p.spared(host)
	}
	if c >= 0 {
		p.settle(it, c, all)
		p.crowd.settled(it.job, it.needs[c].milli, all)
	}
}

// berthOn is what the job takes of one node, and notes whom it overtakes there.
func (p *pass) berthOn(it *item, c int, s *Part, st *cluster.Start) cluster.Berth {
	h := &p.f.hosts[s.Host]
	b := cluster.Berth{Node: h.node.ID, CPUMilli: it.cpu, MemMiB: it.mem}
	if it.whole {
		b.CPUMilli = h.use.CPUMilli
	}
	takes := 0
	for _, i := range s.Cards {
		if p.f.cards[i].use.Shares == 0 {
			takes++
		}
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: p.f.cards[i].use.ID, Share: it.needs[c].share(p.f.classes[c].sellable)})
		if st.Overtook == "" {
			st.Overtook = p.overtakes(it, int(p.f.cards[i].class), i)
		}
	}
	slices.SortFunc(b.GPUs, func(a, b cluster.GPUShare) int { return cmp.Compare(a.GPU, b.GPU) })
	if len(s.Cards) > 0 {
		h.occupy(it.cpu, it.mem, takes)
	}
	return b
}

// keepSpan keeps as many nodes as the job needs, those that clear first, until
// it starts: who comes later in this pass may lie there only if it is predicted
// to end before the last of them is clear. As nothing longer is laid on them,
// that time only comes nearer from pass to pass. It reports whether it kept any.
func (p *pass) keepSpan(it *item) bool {
	if it.gpus == 0 {
		return false // cores come free all the time; the old go first
	}
	p.needResidents()
	var best []Part
	shadow, class := int64(forever), -1
	for c := range it.needs {
		if !p.leads(it, c) {
			continue
		}
		if s, ok := BestParts(it.job, p.clearing(it, c)); ok && (class < 0 || LastOrder(s) < shadow) {
			best, shadow, class = s, LastOrder(s), c
		}
	}
	if class < 0 {
		return false
	}
	if it.old && p.now-int64(it.job.Eligible)-p.oldAge(it) >= p.pol.HoldAge.Microseconds() {
		shadow = p.now // see keep
	}
	for i := range best {
		for _, card := range best[i].Cards {
			p.f.cards[card].until = min(p.f.cards[card].until, shadow)
		}
		h := &p.f.hosts[best[i].Host]
		h.keptCPU += p.coresOn(it, h)
		h.keptMem += it.mem
		h.keptFor = cmp.Or(h.keptFor, it.job.ID)
		p.f.keeps(best[i].Host, best[i].Cards)
	}
	return true
}

// clearing lists the nodes that could ever hold the job on cards of class c by
// when enough of them have room, with those cards.
func (p *pass) clearing(it *item, c int) []Part {
	var out []Part
	for k, g := range p.spanGroups(it, c) {
		h := &p.f.hosts[g.host]
		if int(g.hi-g.lo) < it.gpus || h.use.CPUMilli < it.cpu || h.use.MemMiB < it.mem {
			continue
		}
		all := p.clearsOn(k, g, &it.needs[c])
		if !it.whole {
			all = all[:it.gpus]
		}
		s := p.partOn(it, g.host, nil, all[len(all)-1].at)
		for _, f := range all {
			s.Cards = append(s.Cards, f.card)
		}
		out = append(out, s)
	}
	return out
}

// spanReason says how many nodes have room for a job that needs several.
func (p *pass) spanReason(it *item, c int) cluster.Reason {
	r := cluster.Reason{Code: cluster.ReasonNodes}
	key := shape{class: -1, cpu: it.cpu, host: it.mem, nodes: int32(it.nodes)}
	if c >= 0 {
		key = p.shapeOf(it, c)
	}
	if told, ok := p.told[key]; ok || len(p.told) >= p.pol.MaxReasons {
		r.Detail = told.Detail
		return r
	}
	defer func() { p.told[key] = r }()
	if c < 0 {
		r.Detail = fmt.Sprintf("%s with %s and %s of host memory free, needs %d at once", nodes(len(p.plainParts(it))), cores(it.cpu), gib(it.mem), it.nodes)
		return r
	}
	r.Detail = fmt.Sprintf("%s: %s with room for %s, needs %d at once", p.f.classes[c].gpuType, nodes(len(p.fitSpan(it, c))), gpus(it.gpus), it.nodes)
	return r
}

// explainSpan says in front of what each node lacks how many have room, and for
// whom they are if not for the job.
func explainSpan(snap *cluster.Snapshot, job *cluster.Job, pol Policy) Explanation {
	alone := *snap
	alone.Waiting = []*cluster.Job{job}
	pol.MaxReasons = max(1, pol.MaxReasons)
	plan := Schedule(&alone, pol)
	room, have := nodes(job.Spec.NodeCount())+" with room", " have"
	if job.Spec.NodeCount() == 1 {
		have = " has"
	}
	e := Explanation{Count: job.Spec.NodeCount(), Reason: cluster.Reason{
		Code: cluster.ReasonUnconfirmed, Detail: nodes(job.Spec.NodeCount()) + have + " room; the next pass decides",
	}}
	switch before, kept := spanBefore(snap, job, &plan, pol); {
	case len(plan.Starts) == 0 && len(plan.Unplaced) > 0:
		e.Reason = plan.Unplaced[0].Reason
	case kept:
		e.Reason = cluster.Reason{Code: cluster.ReasonQueueOrder, Detail: fmt.Sprintf("%s, but they are kept for job %d, which waits and comes before it", room, before)}
	case before != 0:
		e.Reason = cluster.Reason{Code: cluster.ReasonQueueOrder, Detail: fmt.Sprintf("%s, but job %d comes before it and starts there", room, before)}
	}
	return e
}

// spanBefore finds out who has the nodes on which a job would start, were it alone
// in waiting, by a pass over all who wait: for whom they are kept, or who starts there; 0
// when it starts itself.
func spanBefore(snap *cluster.Snapshot, job *cluster.Job, alone *cluster.Plan, pol Policy) (before cluster.JobID, kept bool) {
	if len(alone.Starts) == 0 || len(snap.Waiting) < 2 {
		return 0, false
	}
	p := schedule(snap, pol)
	started := map[cluster.NodeID]cluster.JobID{}
	for i := range p.plan.Starts {
		st := &p.plan.Starts[i]
		if st.Job == job.ID {
			return 0, false
		}
		for _, b := range st.Berths() {
			started[b.Node] = cmp.Or(started[b.Node], st.Job)
		}
	}
	for _, b := range alone.Starts[0].Berths() {
		if id := p.f.hosts[p.f.hostAt[b.Node]].keptFor; id != 0 && id != job.ID {
			return id, true
		}
		before = cmp.Or(before, started[b.Node])
	}
	return before, false
}

// tellSpan puts the reason why a job waits into the state, when it is another
// than is there: it stands in no queue, with whose moves the reasons of others
// come. Why an attempt of it was given up is of more use to its owner.
func (p *pass) tellSpan(it *item) {
	now := it.job.Reason.Code
	if p.moves >= p.pol.MaxMoves || now == cluster.ReasonRequeued {
		return
	}
	if code := p.reason(it).Code; code != now {
		p.moves++
		it.moved = true
		p.plan.Moves = append(p.plan.Moves, cluster.QueueMove{Job: it.job.ID, Reason: code})
	}
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// SpanWaits reports whether some job of those that wait has nodes kept for it by
// full passes. The fast path sees nothing of that and must leave what comes free
// to them.
func SpanWaits(waiting []*cluster.Job, now cluster.Time, pol Policy) bool {
	return slices.ContainsFunc(waiting, func(j *cluster.Job) bool {
		return (j.Spec.NodeCount() > 1 || j.Spec.WholeNodes()) && j.Spec.GPUs > 0 && now.Sub(j.Eligible) >= pol.ReserveAge
	})
}

// enough says it when a job needs more nodes than could ever hold it at once,
// on cards of one type.
func (s *sieve) enough() string {
	n := s.job.Spec.NodeCount()
	if w := s.job.Spec.Where; w.Named() {
		for _, id := range w.Nodes.Names() {
			if !slices.ContainsFunc(s.able, func(o *cluster.Node) bool { return o.ID == id }) {
				return fmt.Sprintf("node %s, which it asks for, with all that it needs", id)
			}
		}
	}
	if n == 1 {
		return ""
	}
	if s.job.Spec.GPUs == 0 {
		if len(s.able) >= n {
			return ""
		}
		return fmt.Sprintf("%d nodes at once; the largest set that has what it needs on each is %s", n, nodes(len(s.able)))
	}
	count, most, of := map[classKey]int{}, 0, ""
	for _, node := range s.able {
		seen := map[classKey]bool{}
		for i := range node.GPUs {
			k := classOf(&node.GPUs[i])
			if seen[k] || s.same(node, &node.GPUs[i]) < s.job.Spec.GPUs {
				continue
			}
			seen[k] = true
			if count[k]++; count[k] > most || count[k] == most && k.gpuType < of {
				most, of = count[k], k.gpuType
			}
		}
	}
	if most >= n {
		return ""
	}
	return fmt.Sprintf("%d nodes with %s of one type on each; the largest set is %s with %s of %s", n, gpus(s.job.Spec.GPUs), nodes(most), gpus(s.job.Spec.GPUs), of)
}

// Part is what a job over several nodes would take of one of them.
type Part struct {
	// Host is the node's place in the order of ids, Cards are the caller's own
	// numbers.
	Host  int32
	Cards []int32
	// Order says how good the node is, less is better.
	Order int64

	named bool // the job asks for the node by its name
	late  bool // the job was given up once since this node was not ready
}

// NewPart is what j would take of a node, with what j says of the node.
func NewPart(j *cluster.Job, n cluster.NodeID, p Part) Part {
	w := j.Spec.Where
	p.late, p.named = j.HeldUpBy(n), w.Named() && w.Nodes.Holds(n)
	return p
}

// BestParts sorts the parts, each of another node, the best first: nodes that are
// asked for, last those that held up an earlier attempt. It returns as many as j
// needs; ok is false where they are too few, or lack a node that j asks for.
func BestParts(j *cluster.Job, parts []Part) (best []Part, ok bool) {
	bestFirst(parts)
	n := j.Spec.NodeCount()
	if len(parts) < n {
		return nil, false
	}
	if w := j.Spec.Where; w.Named() {
		named := 0
		for i := range parts[:n] {
			if parts[i].named {
				named++
			}
		}
		if named != w.Nodes.Len() {
			return nil, false
		}
	}
	return parts[:n], true
}

// LastOrder is the greatest Order of parts.
func LastOrder(parts []Part) int64 {
	last := parts[0].Order
	for i := range parts {
		last = max(last, parts[i].Order)
	}
	return last
}

func bestFirst(parts []Part) {
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(lateLast(!a.named, !b.named), lateLast(a.late, b.late), cmp.Compare(a.Order, b.Order), cmp.Compare(a.Host, b.Host))
	})
}

func lateLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
