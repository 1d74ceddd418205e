package scheduler

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// A job that spans several nodes takes the same of each, of one class of GPU, on
// all at once or on none. It is in no queue, since a queue belongs to one GPU:
// every pass considers it in its turn, and reserves nodes for it as it reserves
// GPUs for other jobs that waited long.

// spans reports whether an item needs several nodes, or all of one.
func (it *item) spans() bool { return it.nodes > 1 || it.whole }

// allGPUs returns how many GPUs a job takes on all of its nodes.
func (it *item) allGPUs() int { return it.gpus * max(1, it.nodes) }

// startSpan starts a job on several nodes if enough have what it needs now. Among
// the classes that do it chooses as for other jobs.
func (p *pass) startSpan(it *item) bool {
	if it.gpus == 0 {
		parts, where, ok := p.nearParts(it, p.fitter.plainParts(it))
		if !ok {
			return false
		}
		e, _ := cluster.EstimateFor(it.job.Estimates, cluster.CPUType)
		why := say.Nodes(it.nodes) + " with " + say.Cores(it.cpu) + " free"
		if it.whole {
			why = say.Nodes(it.nodes) + " for itself"
		}
		p.placeSpan(it, -1, parts, e, why+where+p.readWords(it, parts))
		return true
	}
	best, fastest := -1, int64(rules.Forever)
	var fits []int
	parts, where := map[int][]rules.Part{}, map[int]string{}
	for c := range it.needs {
		if !p.fitter.leads(it, c) || p.traded(it, c) || p.realms == nil && !p.fitter.mayFit(it, c) {
			continue
		}
		if s, on, ok := p.nearParts(it, p.fitter.fitSpan(it, c)); ok {
			fits, parts[c], where[c] = append(fits, c), s, on
		} else if p.realms == nil {
			p.fitter.noteFailed(it, c)
		}
	}
	fits = inTime(fits, parts)
	for _, c := range fits {
		fastest = min(fastest, it.needs[c].Dur)
	}
	for _, c := range fits {
		if d := it.needs[c].Dur; d-fastest <= p.slack(fastest) && (best < 0 || d > it.needs[best].Dur) {
			best = c
		}
	}
	if c, ok := p.chooses(it, fits); ok {
		best = c
	}
	if best < 0 {
		return false
	}
	_, e, _ := rules.ShareOn(it.job, p.f.Classes[best].Rep, p.pol)
	why := fmt.Sprintf("%d nodes with %s %s free on each, those with the fewest%s%s; %s",
		it.nodes, say.GPUs(it.gpus), p.f.Classes[best].GPUType, where[best], p.readWords(it, parts[best]), say.TimeWords(it.job, p.f.Classes[best].GPUType, it.needs[best].Dur))
	p.placeSpan(it, best, parts[best], e, why)
	return true
}

// inTime filters the classes that fit to those whose nodes were all ready in the
// job's earlier attempts, if there are any.
func inTime(fits []int, parts map[int][]rules.Part) []int {
	late := func(c int) bool { return slices.ContainsFunc(parts[c], func(s rules.Part) bool { return s.Late }) }
	if good := slices.DeleteFunc(slices.Clone(fits), late); len(good) > 0 {
		return good
	}
	return fits
}

// fitSpan lists the nodes on which the job fits, on GPUs of class c: those with the
// fewest empty GPUs first, so that nodes stay whole for others, and last those on
// which it was given up before.
func (ft *fitter) fitSpan(it *item, c int) []rules.Part {
	var out []rules.Part
	want := ft.want(it, c)
	for k, g := range ft.spanGroups(it, c) {
		if int(g.Hi-g.Lo) < it.gpus || ft.f.Hosts[g.Host].ForeignQueue {
			continue
		}
		cards := ft.partCards(it, c, k, g, &want)
		if len(cards) >= it.gpus && len(cards) > 0 {
			out = append(out, ft.partOn(it, g.Host, cards, int64(g.Empty)))
		}
	}
	return out
}

// plainParts lists the nodes on which a job without GPUs fits, in the order in
// which such jobs take them.
func (ft *fitter) plainParts(it *item) []rules.Part {
	var out []rules.Part
	for place, i := range ft.f.Order {
		h := &ft.f.Hosts[i]
		if r := ft.f.HostRoom(h); r.CPU >= it.cpu && r.Host >= it.mem && !ft.refused(it, i) && (!it.whole || ft.f.IsEmpty(h)) {
			out = append(out, ft.partOn(it, i, nil, int64(place)))
		}
	}
	return out
}

// placeSpan starts a job on the parts. Nodes are ranked by id. c is the class of
// the GPUs, -1 for none.
func (p *pass) placeSpan(it *item, c int, parts []rules.Part, e cluster.Estimate, why string) {
	slices.SortFunc(parts, func(a, b rules.Part) int { return cmp.Compare(a.Host, b.Host) })
	st := dispatch.Start{Job: it.job.ID, Attempt: uint32(len(it.job.Attempts)) + 1, Estimate: e, Why: why}
	if len(parts) > 1 && c >= 0 && !p.pol.Linkless {
		p.linked().Take(parts)
	}
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
		if r := p.f.Led.Fits(b); r.Code != "" {
			panic("scheduler: index and ledger disagree on job " + st.Job.String() + ": " + r.String())
		}
		p.f.Led.Take(b)
		host := parts[rank].Host
		p.fitter.frag.changed(host)
		p.f.Took(host, b.GPUs)
		p.plains.spared(host)
	}
	if c >= 0 {
		p.lines.settle(it, c, all)
		p.crowd.settled(it, it.needs[c].Milli, all)
	}
}

// berthOn returns what the job takes of one node, and records which jobs it
// overtakes there.
func (p *pass) berthOn(it *item, c int, s *rules.Part, st *dispatch.Start) cluster.Berth {
	h := &p.f.Hosts[s.Host]
	b := cluster.Berth{Node: h.Node.ID, CPUMilli: it.cpu, MemMiB: it.mem}
	if it.whole {
		b.CPUMilli, b.MemMiB = h.Use.CPUMilli, it.memOn(h)
	}
	takes := 0
	for _, i := range s.Cards {
		if p.f.Cards[i].Use.Shares == 0 {
			takes++
		}
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: p.f.Cards[i].Use.ID, Share: it.needs[c].Share(p.f.Classes[c].Sellable)})
		if st.Overtook == "" {
			st.Overtook = p.overtakes(it, int(p.f.Cards[i].Class), i)
		}
	}
	slices.SortFunc(b.GPUs, func(a, b cluster.GPUShare) int { return cmp.Compare(a.GPU, b.GPU) })
	if len(s.Cards) > 0 {
		h.Occupy(it.cpu, b.MemMiB, takes)
	}
	return b
}

// keepSpan reserves as many nodes as the job needs, those that clear first, until
// it starts: jobs later in this pass may run there only if they are predicted to
// end before the last of them is clear. As nothing longer is placed on them, that
// time only gets closer from pass to pass. It reports whether it reserved any.
func (kp *keeper) keepSpan(it *item) bool {
	if it.gpus == 0 {
		return false // cores come free all the time; old jobs go first
	}
	best, shadow, class, behind := kp.soonest(it)
	switch {
	case class < 0:
		return false
	case behind:
		kp.keepBehind(it, best, shadow)
		return true
	}
	if it.old && kp.now-it.eligible-kp.turns.oldAge(it) >= kp.pol.HoldAge.Microseconds() {
		shadow = kp.now // see keep
	}
	kp.keepParts(it, best, shadow)
	return true
}

// clearest finds the nodes that clear first for a job that needs several, when that
// is, and the class of their GPUs; the class is below 0 if there are none.
func (kp *keeper) clearest(it *item) (best []rules.Part, shadow int64, class int) {
	kp.lines.needResidents()
	shadow, class = rules.Forever, -1
	for c := range it.needs {
		if !kp.fitter.leads(it, c) {
			continue
		}
		if s, ok := rules.SoonestParts(it.job, kp.clearing(it, c), cluster.Time(kp.now)); ok && (class < 0 || rules.LastOrder(s) < shadow) {
			best, shadow, class = s, rules.LastOrder(s), c
		}
	}
	return best, shadow, class
}

// keepParts reserves a job's parts of several nodes until a time.
func (kp *keeper) keepParts(it *item, best []rules.Part, shadow int64) {
	for i := range best {
		h := &kp.f.Hosts[best[i].Host]
		h.KeptCPU += kp.coresOn(it, h)
		h.KeptMem += it.memOn(h)
	}
	kp.keepBehind(it, best, shadow)
}

// clearing lists the nodes that could ever hold the job on GPUs of class c by when
// enough of them have room, with those GPUs.
func (kp *keeper) clearing(it *item, c int) []rules.Part {
	var out []rules.Part
	for k, g := range kp.fitter.spanGroups(it, c) {
		h := &kp.f.Hosts[g.Host]
		if int(g.Hi-g.Lo) < it.gpus || h.Use.CPUMilli < it.cpu || h.Use.MemMiB < it.mem {
			continue
		}
		all := kp.clearsOn(k, g, &it.needs[c])
		if !it.whole {
			all = all[:it.gpus]
		}
		roomy, ok := kp.roomy(it, g.Host)
		if !ok {
			continue
		}
		opens := int64(0)
		if it.behind {
			if opens, ok = kp.realms.Opens(&it.bounds, k.Realm, kp.now); !ok {
				continue
			}
		}
		s := kp.fitter.partOn(it, g.Host, nil, max(all[len(all)-1].At, roomy, opens))
		for _, f := range all {
			s.Cards = append(s.Cards, f.Card)
		}
		out = append(out, s)
	}
	return out
}

// leaving is what a job frees of a node's cores and host memory, and when at the
// latest.
type leaving struct{ end, cpu, mem int64 }

// roomy returns when a node has the cores and host memory for a job, by the latest
// ends of those there; ok is false if they are reserved for others.
func (kp *keeper) roomy(it *item, host int32) (at int64, ok bool) {
	h := &kp.f.Hosts[host]
	cpu, mem := kp.coresOn(it, h), it.memOn(h)
	if h.FreeCPU() >= cpu && h.FreeMem() >= mem {
		return kp.now, true
	}
	if kp.leaves == nil {
		kp.leaves = make([][]leaving, len(kp.f.Hosts))
		for _, j := range kp.running {
			a := j.Live()
			if a == nil {
				continue
			}
			_, latest := rules.EndsAt(j, a, kp.now, &kp.pol)
			for _, b := range a.Held() {
				if i, there := kp.f.HostAt[b.Node]; there {
					kp.leaves[i] = append(kp.leaves[i], leaving{latest, b.CPUMilli, b.MemMiB})
				}
			}
		}
		for _, ls := range kp.leaves {
			slices.SortFunc(ls, func(a, b leaving) int { return cmp.Compare(a.end, b.end) })
		}
	}
	at, freeCPU, freeMem := kp.now, h.FreeCPU(), h.FreeMem()
	for _, l := range kp.leaves[host] {
		if freeCPU >= cpu && freeMem >= mem {
			break
		}
		at, freeCPU, freeMem = max(at, l.end), freeCPU+l.cpu, freeMem+l.mem
	}
	return at, cpu <= h.Use.CPUMilli-h.KeptCPU && mem <= h.Use.MemMiB-h.KeptMem
}

// spanReason says how many nodes have room for a job that needs several.
func (tl *teller) spanReason(it *item, c int) (r cluster.Reason) {
	r.Code = cluster.ReasonNodes
	key := shape{class: -1, cpu: it.cpu, host: it.mem, nodes: int32(it.nodes)}
	if c >= 0 {
		key = tl.fitter.shapeOf(it, c)
	}
	few := say.FewSwitches(it.job, cluster.Time(tl.now))
	if told, ok := tl.told[key]; ok || len(tl.told) >= tl.pol.MaxReasons {
		r.Detail = told.Detail + few
		return r
	}
	defer func() {
		tl.told[key] = r
		r.Detail += few
	}()
	if c < 0 {
		r.Detail = fmt.Sprintf("%s with %s and %s of host memory free, needs %d at once", say.Nodes(len(tl.fitter.plainParts(it))), say.Cores(it.cpu), cluster.MemText(it.mem), it.nodes)
		return r
	}
	r.Detail = fmt.Sprintf("%s: %s with room for %s, needs %d at once", tl.f.Classes[c].GPUType, say.Nodes(len(tl.fitter.fitSpan(it, c))), say.GPUs(it.gpus), it.nodes)
	return r
}

// spanBefore finds out which job holds the nodes on which a job would start if it
// waited alone, by a pass over all waiting jobs: the one they are reserved for, or
// that starts there; 0 if the job starts itself.
func spanBefore(snap *dispatch.Snapshot, job *cluster.Job, alone *dispatch.Plan, pol Policy) (before cluster.JobID, kept bool) {
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
		if id := p.f.Hosts[p.f.HostAt[b.Node]].KeptFor; id != 0 && id != job.ID {
			return id, true
		}
		before = cmp.Or(before, started[b.Node])
	}
	return before, false
}

// keptFrom runs a pass and returns for which job each GPU is kept from the given one at
// its turn, 0 for none or where the job starts.
func keptFrom(snap *dispatch.Snapshot, job *cluster.Job, pol Policy) func(cluster.GPUID) cluster.JobID {
	p := scheduleFor(snap, pol, job.ID, &memory{})
	kept := p.keeper.noted
	if kept == nil && !slices.ContainsFunc(p.plan.Starts, func(st dispatch.Start) bool { return st.Job == job.ID }) {
		kept = p.keeper.note() // it had no turn
	}
	return func(id cluster.GPUID) cluster.JobID { return kept[id] }
}

// tellAgain is by how much the planned start of a promise changes until it is written
// again.
const tellAgain = time.Minute

// tellSpan writes a job's reason into the state when it changed, and where its
// deadline is kept: the job is in no queue, and the reasons of other jobs come with
// their moves. Why an attempt of it was given up is of more use to its owner.
func (ls *lines) tellSpan(it *item) {
	if ls.moves >= ls.pol.MaxMoves {
		return
	}
	m, ok := ls.spanned[it.job.ID]
	if !ok {
		m.Nodes, m.EstStart = it.job.Promised, it.job.EstStart
	}
	m.Job, m.Reason = it.job.ID, it.job.Reason.Code
	if m.Reason != cluster.ReasonRequeued {
		m.Reason = ls.teller.reason(it).Code
	}
	if m.Reason != it.job.Reason.Code || !slices.Equal(m.Nodes, it.job.Promised) || m.EstStart.Sub(it.job.EstStart).Abs() >= tellAgain {
		ls.moves++
		it.moved = true
		ls.plan.Moves = append(ls.plan.Moves, m)
	}
}

// SpanWaits reports whether full passes reserve nodes for some waiting job. The
// fast path cannot see that and must leave what comes free to them.
func SpanWaits(waiting []*cluster.Job, now cluster.Time, pol Policy) bool {
	least := pol.ReserveAge
	if pol.YieldAfter > 0 {
		least = min(least, pol.YieldAfter)
	}
	return slices.ContainsFunc(waiting, func(j *cluster.Job) bool {
		return (j.Spec.NodeCount() > 1 || j.Spec.WholeNodes()) && j.Spec.GPUs > 0 && now.Sub(j.Eligible) >= least
	})
}

// spanGroups returns the nodes with GPUs like those of class c on which a job may
// run, wherever they are, each once.
func (ft *fitter) spanGroups(it *item, c int) iter.Seq2[*fleet.Class, *fleet.Group] {
	return func(yield func(*fleet.Class, *fleet.Group) bool) {
		lo, hi := ft.f.Family(c)
		var seen map[int32]struct{}
		if hi-lo > 1 {
			seen = map[int32]struct{}{}
		}
		for o := lo; o < hi; o++ {
			k := &ft.f.Classes[o]
			for i := range k.Groups {
				g := &k.Groups[i]
				if it.needs[o].Way == rules.WayNone || it.bounds.Single && !it.job.Spec.Allows(ft.f.Hosts[g.Host].Node) {
					continue
				}
				if _, twice := seen[g.Host]; twice {
					continue
				}
				if seen != nil && int(g.Hi-g.Lo) >= it.gpus {
					seen[g.Host] = struct{}{}
				}
				if !yield(k, g) {
					return
				}
			}
		}
	}
}

// leads reports whether a class is the first of its family on which the job may
// run, so that each family is considered once.
func (ft *fitter) leads(it *item, c int) bool {
	lo, _ := ft.f.Family(c)
	for ; lo < c; lo++ {
		if it.needs[lo].Way != rules.WayNone {
			return false
		}
	}
	return it.needs[c].Way != rules.WayNone
}

// partCards returns the GPUs that a job would take of a node now, none if it has
// not enough. A job that wants whole nodes takes them all, of an empty one.
func (ft *fitter) partCards(it *item, c int, k *fleet.Class, g *fleet.Group, want *fleet.Room) []int32 {
	h := &ft.f.Hosts[g.Host]
	if it.whole {
		if !ft.f.IsEmpty(h) || h.Use.MemMiB < it.mem || h.Use.CPUMilli < it.cpu || h.KeptCPU > 0 || int(g.Hi-g.Lo) > cluster.MaxGPUsPerJob {
			return nil
		}
		for _, i := range k.Cards[g.Lo:g.Hi] {
			if !ft.f.Cards[i].Open(want) {
				return nil
			}
		}
		return append([]int32(nil), k.Cards[g.Lo:g.Hi]...)
	}
	if it.needs[c].Way == rules.WayWhole {
		return ft.takeEmpty(k, it, g, want, nil)
	}
	each := *want
	each.CPU, each.Host = -1, -1 // of the node, which is checked itself
	return ft.spreadOn(it, int(ft.f.Cards[k.Cards[g.Lo]].Class), g, &each, nil)
}

// coresOn returns how many cores of a node a job takes, in thousandths.
func (kp *keeper) coresOn(it *item, h *fleet.Host) int64 {
	if it.whole {
		return h.Use.CPUMilli
	}
	return it.cpu
}

// memOn returns how much memory of a node a job takes, in MiB.
func (it *item) memOn(h *fleet.Host) int64 {
	if it.job.Spec.TakesAllMem() {
		return h.Use.MemMiB
	}
	return it.mem
}

func (ft *fitter) partOn(it *item, host int32, cards []int32, order int64) rules.Part {
	return rules.NewPart(it.job, ft.f.Hosts[host].Node, rules.Part{Host: host, Cards: cards, Order: order})
}
