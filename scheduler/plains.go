package scheduler

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// bulky reports whether a job is so large that no node of its class could hold it
// next to idle GPUs. Such a job may strand them, or it would never start; so may
// one that waited too long, whatever its queue's node is like.
func (ft *fitter) bulky(it *item, c int) bool {
	k := &ft.f.Classes[c]
	if it.cpu <= k.EasyCPU && it.mem <= k.EasyMem {
		return false
	}
	if it.kept || it.old {
		return true
	}
	s := ft.shapeOf(it, c)
	b, ok := ft.bulks[s]
	if ok {
		return b
	}
	b = true
	for i := range k.Groups {
		g := &k.Groups[i]
		h := &ft.f.Hosts[g.Host]
		n := int64(max(1, it.gpus))
		if int(g.Hi-g.Lo) >= it.gpus && (it.node == "" || it.node == h.Node.ID) &&
			it.cpu <= rules.Most(h.Use.CPUMilli, h.Spare.PartCPU, h.Spare.GPUs*h.Spare.LeastCPU, h.Spare.LeastCPU, n) &&
			it.mem <= rules.Most(h.Use.MemMiB, h.Spare.PartMem, h.Spare.GPUs*h.Spare.LeastMem, h.Spare.LeastMem, n) {
			b = false
			break
		}
	}
	ft.bulks[s] = b
	return b
}

// plains finds nodes for jobs without GPUs and keeps what idle GPUs need there.
type plains struct {
	*scene
	fitter    *fitter
	mild      *mild
	keepsIdle bool // keepForIdle was called
}

// keepForIdle keeps, for the idle GPUs of all nodes, what the most demanding of the
// jobs waiting for GPUs takes with each, at most the GPU's part of the node. Jobs
// without GPUs cannot take that. If only such jobs wait, they may take it all.
func (pl *plains) keepForIdle() {
	pl.keepsIdle = true
	if pl.pol.KeepCPUMilli <= 0 && pl.pol.KeepMemMiB <= 0 {
		return
	}
	var cpu, mem int64
	for i := range pl.items {
		if it := &pl.items[i]; !it.gone && it.gpus > 0 {
			n := int64(it.gpus)
			cpu, mem = max(cpu, (it.cpu+n-1)/n), max(mem, (it.mem+n-1)/n)
		}
	}
	if pl.unseen { // a job waits whose needs the pass does not know
		cpu, mem = rules.Forever, rules.Forever
	}
	if cpu == 0 && mem == 0 {
		return
	}
	for i := range pl.f.Hosts {
		h := &pl.f.Hosts[i]
		if h.Place < 0 || h.Spare.GPUs == 0 {
			continue
		}
		idle := int64(0)
		for c := h.Lo; c < h.Hi; c++ {
			if pl.f.Cards[c].Use.Idle() {
				idle++
			}
		}
		h.PlainCPU, h.PlainMem = idle*min(cpu, h.Spare.PartCPU), idle*min(mem, h.Spare.PartMem)
		if idle > 0 {
			pl.f.Plain.Set(int(h.Place), pl.f.HostRoom(h))
		}
	}
}

// beside is what typical jobs take with GPUs: cpu and host for milli thousandths of
// a GPU. milli is 0 if nothing is known.
type beside struct{ cpu, host, milli int64 }

// usable returns how much of idle GPUs, in thousandths of one, typical jobs could
// use with that much cpu and host left on the node.
func (b *beside) usable(idle, cpu, host int64) int64 {
	if b.milli == 0 {
		return 0
	}
	if b.cpu > 0 {
		idle = min(idle, max(0, cpu)*b.milli/b.cpu)
	}
	if b.host > 0 {
		idle = min(idle, max(0, host)*b.milli/b.host)
	}
	return idle
}

// mild knows where jobs without GPUs take nothing that typical jobs need with the
// idle GPUs: a tree of what is left beyond that, over the same places as
// fleet.plain.
type mild struct {
	beside
	tree *fleet.Tree
}

// needMild builds the tree on first use; it is nil if the site wants nothing kept.
func (pl *plains) needMild() *mild {
	if pl.mild != nil || pl.pol.KeepCPUMilli <= 0 && pl.pol.KeepMemMiB <= 0 {
		return pl.mild
	}
	pl.mild = &mild{tree: fleet.NewTree(len(pl.f.Order))}
	pl.fillMild()
	return pl.mild
}

func (pl *plains) fillMild() {
	l := pl.fitter.learned()
	pl.mild.beside = beside{l.cpu, l.host, l.milli}
	for place, i := range pl.f.Order {
		pl.mild.tree.Put(place, pl.mildRoom(&pl.f.Hosts[i]))
	}
	pl.mild.tree.Build()
}

func (pl *plains) mildRoom(h *fleet.Host) fleet.Room {
	r := pl.f.HostRoom(h)
	if r.Until < 0 {
		return r
	}
	b := &pl.mild.beside
	use := b.usable(h.Idle, h.FreeCPU(), h.FreeMem())
	if use == 0 {
		return r
	}
	r.CPU = min(r.CPU, h.FreeCPU()-(use*b.cpu+b.milli-1)/b.milli)
	r.Host = min(r.Host, h.FreeMem()-(use*b.host+b.milli-1)/b.milli)
	return r
}

// spared updates what is known of a node's idle GPUs from the ledger.
func (pl *plains) spared(host int32) {
	h := &pl.f.Hosts[host]
	h.Idle = pl.f.IdleOf(h)
	if pl.mild != nil && h.Place >= 0 {
		pl.mild.tree.Set(int(h.Place), pl.mildRoom(h))
	}
}

// plainPlace finds a place in fleet.order for a job without GPUs: the first where
// it takes nothing from idle GPUs, nodes without GPUs first, then those with the
// fewest idle ones; otherwise where it takes the cores of the fewest.
func (pl *plains) plainPlace(it *item, want *fleet.Room) (int, string) {
	place, why := pl.anyPlace(it, want)
	if place < 0 || it.node != "" {
		return place, why
	}
	here, left := pl.scoreOn(it, pl.f.Order[place]), maxNearer
	for _, tier := range pl.near.Tiers(it.job) {
		if tier.Score <= here {
			break
		}
		tries := min(left, len(tier.Nodes))
		left -= tries
		for n := range tries {
			id := tier.Nodes[(int(it.job.ID)+n)%len(tier.Nodes)]
			h, ok := pl.f.HostAt[id]
			if ok && pl.mayHold(it, h, want) && pl.gentle(h, want) {
				return int(pl.f.Hosts[h].Place), "takes nothing from idle GPUs" + pl.near.Words(it.job, id)
			}
		}
	}
	return place, why + pl.near.Words(it.job, pl.f.Hosts[pl.f.Order[place]].Node.ID)
}

// mayHold reports whether a node has room for a job without GPUs, and may take it.
func (pl *plains) mayHold(it *item, host int32, want *fleet.Room) bool {
	place := pl.f.Hosts[host].Place
	return place >= 0 && !pl.refused(it, host) && pl.f.Plain.Leaf(int(place)).Holds(want)
}

// gentle reports whether a job without GPUs takes nothing from the idle GPUs of a
// node that could hold it.
func (pl *plains) gentle(host int32, want *fleet.Room) bool {
	m := pl.needMild()
	return m == nil || m.tree.Leaf(int(pl.f.Hosts[host].Place)).Holds(want)
}

// anyPlace is plainPlace whatever the job reads.
func (pl *plains) anyPlace(it *item, want *fleet.Room) (int, string) {
	t := pl.f.Plain
	if it.node != "" {
		h, ok := pl.f.HostAt[it.node]
		if !ok || !pl.mayHold(it, h, want) {
			return -1, ""
		}
		return int(pl.f.Hosts[h].Place), "the node that it asks for"
	}
	m := pl.needMild()
	if m == nil {
		place := t.First(0, want)
		for place >= 0 && pl.refused(it, pl.f.Order[place]) {
			place = t.First(place+1, want)
		}
		return place, "a node with room, those without GPUs first, then those with the fewest idle"
	}
	for place := m.tree.First(0, want); place >= 0; place = m.tree.First(place+1, want) {
		if t.Leaf(place).Holds(want) && !pl.refused(it, pl.f.Order[place]) {
			return place, "leaves idle GPUs the cores and memory that jobs for them take; nodes without GPUs first, then those with the fewest idle"
		}
	}
	best, least := -1, int64(rules.Forever)
	for place := t.First(0, want); place >= 0 && least > 0; place = t.First(place+1, want) {
		if pl.refused(it, pl.f.Order[place]) {
			continue
		}
		h := &pl.f.Hosts[pl.f.Order[place]]
		if cost := m.usable(h.Idle, h.FreeCPU(), h.FreeMem()) - m.usable(h.Idle, h.FreeCPU()-it.cpu, h.FreeMem()-it.mem); cost < least {
			best, least = place, cost
		}
	}
	return best, "the node where it takes the cores and memory of the fewest idle GPUs"
}

// startOnCores starts a job that prefers GPUs on cores, if they serve its objective
// better than the GPUs on which it fits now or, if there are none, than those it
// would wait for, the wait included. It takes nothing that idle GPUs need.
func (p *pass) startOnCores(it *item, fits []int) bool {
	c := it.cores
	if c == nil || c.Choosable(it.job, p.now) != "" {
		return false
	}
	place, where := p.plains.coresPlace(it)
	if place < 0 {
		return false
	}
	host := p.f.Order[place]
	h := &p.f.Hosts[host]
	among, wait := fits, []int64(nil)
	if len(fits) == 0 {
		among, wait = p.lines.awaited(it)
	}
	goals := p.goalsOf(it, among)
	for i := range wait {
		goals[i].Us += wait[i]
	}
	part := cluster.WholeGPU * max(c.CPU*1000/max(1, h.Use.CPUMilli), c.Mem*1000/max(1, h.Use.MemMiB)) / 1000
	goals = append(goals, c.Goal(&p.pol, part))
	best := rules.Rate(it.job.Spec.Objective, goals)
	if best < len(among) {
		return false
	}
	p.commit(it, &dispatch.Start{
		Job: it.job.ID, Attempt: uint32(len(it.job.Attempts)) + 1, Estimate: c.Est, Why: p.coresWhy(it, among, goals, wait != nil) + where,
		Berth: cluster.Berth{Node: h.Node.ID, CPUMilli: c.CPU, MemMiB: c.Mem},
	}, host)
	if p.lines.loaded && it.queue >= 0 {
		p.lines.addQueued(it, -1)
	}
	return true
}

// awaited returns the classes that could ever run a job, and how long it would wait
// for a GPU of each.
func (ls *lines) awaited(it *item) (able []int, wait []int64) {
	wait = []int64{}
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone {
			continue
		}
		w, ok := ls.waitOn(it, c)
		if i, least := ls.leastLoaded(it, c); !ok && i >= 0 {
			w, ok = least, true
		}
		if ok {
			able, wait = append(able, c), append(wait, w)
		}
	}
	return able, wait
}

// coresPlace returns where the job would run without GPUs, -1 for nowhere.
func (pl *plains) coresPlace(it *item) (int, string) {
	c := it.cores
	want := fleet.Room{Mem: -1, Milli: -1, Slots: -1, CPU: c.CPU, Host: c.Mem, Until: -1}
	if !pl.f.Plain.May(&want) {
		return -1, ""
	}
	without := item{job: it.job, node: it.node, bounds: it.bounds, cpu: c.CPU, mem: c.Mem}
	place, why := pl.plainPlace(&without, &want)
	if place < 0 || pl.mild != nil && !pl.mild.tree.Leaf(place).Holds(&want) {
		return -1, ""
	}
	return place, why
}

// coresWhy says why cores were chosen, compared with the best that GPUs promise.
func (p *pass) coresWhy(it *item, among []int, goals []rules.GoalOf, waited bool) string {
	c, o := it.cores, it.job.Spec.Objective
	w := fmt.Sprintf("%s in place of %s, the best for %s (%s)", say.Cores(c.CPU), say.GPUs(it.gpus), o, c.Words(&p.pol))
	if len(among) > 0 {
		best := rules.Rate(o, goals[:len(among)])
		k := &p.f.Classes[among[best]]
		e, _ := cluster.EstimateFor(it.job.Estimates, k.GPUType)
		wait := ""
		if waited {
			wait = ", the wait included,"
		}
		w += fmt.Sprintf("; on %s%s %s", k.GPUType, wait, goals[best].Words(e.PowerW*int64(max(1, it.gpus)), !goals[best].Unpriced))
	}
	return w + "; "
}

// chooses returns the best of the classes by the job's objective: the lowest score,
// then the earlier end, then the first. ok is false for a job without an objective.
func (s *scene) chooses(it *item, among []int) (best int, ok bool) {
	if len(among) == 0 || !it.aims {
		return 0, false
	}
	return among[rules.Rate(it.job.Spec.Objective, s.goalsOf(it, among))], true
}

// goalsOf returns what a job would take on each of the classes.
func (s *scene) goalsOf(it *item, among []int) []rules.GoalOf {
	goals := make([]rules.GoalOf, len(among), len(among)+1)
	for i, c := range among {
		k := &s.f.Classes[c]
		e, _ := cluster.EstimateFor(it.job.Estimates, k.GPUType)
		goals[i] = s.pol.Goal(it.job, k.GPUType, &e, &it.needs[c], k.Sellable)
	}
	return goals
}

// nearParts chooses a job's nodes among parts: of those equally near to each other
// the ones that have most of what it reads, if that breaks into no more idle nodes or GPUs.
// Before both, it keeps to links that other jobs do not use, and says so.
func (p *pass) nearParts(it *item, parts []rules.Part) (best []rules.Part, words string, ok bool) {
	best, ok = rules.NearParts(it.job, parts, cluster.Time(p.now))
	if !ok {
		return nil, "", false
	}
	best = slices.Clone(best)
	if !p.pol.Linkless && it.gpus > 0 {
		some, freer, _ := p.linked().NearParts(it.job, parts, cluster.Time(p.now))
		if freer {
			return some, rules.SwitchWords(some) + ", on links that fewer other jobs use", true
		}
	}
	if len(p.near.Tiers(it.job)) == 0 {
		return best, rules.SwitchWords(best), true
	}
	for i := range parts {
		if s := &parts[i]; len(s.Cards) > 0 || p.plains.gentle(s.Host, &fleet.Room{Mem: -1, Milli: -1, Slots: -1, CPU: it.cpu, Host: it.mem, Until: -1}) {
			s.Near = p.scoreOn(it, s.Host)
		}
	}
	breaks := func(parts []rules.Part) (n int) {
		for i := range parts {
			n += p.fitter.breaks(parts[i].Cards)
		}
		return n
	}
	if near, ok := rules.NearParts(it.job, parts, cluster.Time(p.now)); ok && breaks(near) <= breaks(best) {
		best = near
	}
	return best, rules.SwitchWords(best), true
}

// breaks returns how much a start breaks into: idle GPUs and, unless two of the widest
// nodes are idle anyway, nodes with many of them, which wide jobs need.
func (ft *fitter) breaks(cards []int32) int {
	n := ft.opens(cards) << 16
	if n == 0 {
		return 0
	}
	c := &ft.f.Cards[cards[0]]
	k := &ft.f.Classes[c.Class]
	idle := &k.Free[len(k.Free)-1]
	if i := idle.Next(0); i < 0 || idle.Next(i+1) < 0 {
		n += int(k.Groups[c.Group].Empty)
	}
	return n
}

// readWords says what of that which a job reads all of its nodes have.
func (p *pass) readWords(it *item, parts []rules.Part) string {
	var ids []cluster.NodeID
	for i := range parts {
		ids = append(ids, p.f.Hosts[parts[i].Host].Node.ID)
	}
	return p.near.Words(it.job, ids...)
}
