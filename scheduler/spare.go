package scheduler

import "github.com/berth-scheduler/berth/scheduler/rules"

// bulky reports whether a job is so large that no node of its class could hold
// it beside idle GPUs. Such a job may strand them, else it would never start;
// so may one that waited too long, whatever its queue's node is like.
func (ft *fitter) bulky(it *item, c int) bool {
	k := &ft.f.classes[c]
	if it.cpu <= k.easyCPU && it.mem <= k.easyMem {
		return false
	}
	if it.kept || ft.old(it.job) {
		return true
	}
	s := ft.shapeOf(it, c)
	b, ok := ft.bulks[s]
	if ok {
		return b
	}
	b = true
	for i := range k.groups {
		g := &k.groups[i]
		h := &ft.f.hosts[g.host]
		n := int64(max(1, it.gpus))
		if int(g.hi-g.lo) >= it.gpus && (it.node == "" || it.node == h.node.ID) &&
			it.cpu <= rules.Most(h.use.CPUMilli, h.spare.PartCPU, h.spare.GPUs*h.spare.LeastCPU, h.spare.LeastCPU, n) &&
			it.mem <= rules.Most(h.use.MemMiB, h.spare.PartMem, h.spare.GPUs*h.spare.LeastMem, h.spare.LeastMem, n) {
			b = false
			break
		}
	}
	ft.bulks[s] = b
	return b
}

// keepsEnough reports whether a job leaves the idle GPUs of a node enough when
// it takes so many of them.
func (h *host) keepsEnough(cpu, mem int64, takes int) bool {
	return cpu <= h.mostCPU(int64(takes)) && mem <= h.mostMem(int64(takes))
}

func (h *host) mostCPU(takes int64) int64 {
	if h.spare.GPUs == 0 {
		return h.freeCPU()
	}
	return rules.Most(h.freeCPU(), h.spare.PartCPU, h.idleCPU, h.spare.LeastCPU, takes)
}

func (h *host) mostMem(takes int64) int64 {
	if h.spare.GPUs == 0 {
		return h.freeMem()
	}
	return rules.Most(h.freeMem(), h.spare.PartMem, h.idleMem, h.spare.LeastMem, takes)
}

// keepIdle counts what the idle GPUs of a node keep.
func (f *fleet) keepIdle(h *host) {
	h.idleCPU, h.idleMem = 0, 0
	for i := h.lo; i < h.hi; i++ {
		if f.cards[i].use.Idle() {
			h.idleCPU += h.spare.LeastCPU
			h.idleMem += h.spare.LeastMem
		}
	}
}

// occupy notes that a job took idle GPUs of the node, and of what they kept as
// much as it needs. What it leaves stays kept in this pass, so that no place
// gets roomier while a pass takes.
func (h *host) occupy(cpu, mem int64, takes int) {
	h.idleCPU -= min(cpu, h.idleCPU, h.spare.LeastCPU*int64(takes))
	h.idleMem -= min(mem, h.idleMem, h.spare.LeastMem*int64(takes))
}

// plains finds nodes for jobs without GPUs, and keeps there what idle GPUs need.
type plains struct {
	*scene
	fitter    *fitter
	mild      *mild
	keepsIdle bool // keepForIdle was called
}

// keepForIdle keeps the idle GPUs of all nodes, from jobs that need none, what
// the most demanding of the jobs that wait for GPUs takes beside each, at most
// the part of a GPU. When only jobs without GPUs wait, they may take it all.
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
	if pl.unseen { // somebody waits whose needs the pass does not know
		cpu, mem = rules.Forever, rules.Forever
	}
	if cpu == 0 && mem == 0 {
		return
	}
	for i := range pl.f.hosts {
		h := &pl.f.hosts[i]
		if h.place < 0 || h.spare.GPUs == 0 {
			continue
		}
		idle := int64(0)
		for c := h.lo; c < h.hi; c++ {
			if pl.f.cards[c].use.Idle() {
				idle++
			}
		}
		h.plainCPU, h.plainMem = idle*min(cpu, h.spare.PartCPU), idle*min(mem, h.spare.PartMem)
		if idle > 0 {
			pl.f.plain.set(int(h.place), pl.f.hostRoom(h))
		}
	}
}

// beside is what typical jobs take with a GPU: cpu and host for each milli
// thousandths of one. milli is 0 where nothing is known.
type beside struct{ cpu, host, milli int64 }

// usable is how much of idle GPUs, in thousandths of one, finds beside it what
// typical jobs take, with so much left of a node.
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

// idleOf is what is idle of a node's GPUs, in thousandths of one.
func (f *fleet) idleOf(h *host) (idle int64) {
	for i := h.lo; i < h.hi; i++ {
		if f.cards[i].class >= 0 {
			left := f.leftOf(&f.cards[i])
			idle += left.Idle()
		}
	}
	return idle
}

// mild is where jobs without GPUs take nothing that typical jobs need beside
// GPUs that are idle: a tree of what is left beyond that, over the same places
// as fleet.plain.
type mild struct {
	beside
	tree *tree
}

// needMild makes the tree when first asked for; nil where the site wants
// nothing to be kept.
func (pl *plains) needMild() *mild {
	if pl.mild != nil || pl.pol.KeepCPUMilli <= 0 && pl.pol.KeepMemMiB <= 0 {
		return pl.mild
	}
	pl.mild = &mild{tree: newTree(len(pl.f.order))}
	pl.fillMild()
	return pl.mild
}

func (pl *plains) fillMild() {
	l := pl.fitter.learned()
	pl.mild.beside = beside{l.cpu, l.host, l.milli}
	for place, i := range pl.f.order {
		pl.mild.tree.put(place, pl.mildRoom(&pl.f.hosts[i]))
	}
	pl.mild.tree.build()
}

func (pl *plains) mildRoom(h *host) room {
	r := pl.f.hostRoom(h)
	if r.until < 0 {
		return r
	}
	b := &pl.mild.beside
	use := b.usable(h.idle, h.freeCPU(), h.freeMem())
	if use == 0 {
		return r
	}
	r.cpu = min(r.cpu, h.freeCPU()-(use*b.cpu+b.milli-1)/b.milli)
	r.host = min(r.host, h.freeMem()-(use*b.host+b.milli-1)/b.milli)
	return r
}

// spared brings what is known of a node's idle GPUs up to its ledger.
func (pl *plains) spared(host int32) {
	h := &pl.f.hosts[host]
	h.idle = pl.f.idleOf(h)
	if pl.mild != nil && h.place >= 0 {
		pl.mild.tree.set(int(h.place), pl.mildRoom(h))
	}
}

// plainPlace finds a place in fleet.order for a job without GPUs: the first
// where it takes nothing from idle GPUs, nodes without GPUs first, then those
// with the fewest idle; else where it takes the cores of the fewest.
func (pl *plains) plainPlace(it *item, want *room) (int, string) {
	t := pl.f.plain
	if it.node != "" {
		h, ok := pl.f.hostAt[it.node]
		if !ok || pl.refused(it, h) || pl.f.hosts[h].place < 0 || !t.leaf(int(pl.f.hosts[h].place)).holds(want) {
			return -1, ""
		}
		return int(pl.f.hosts[h].place), "the node that it asks for"
	}
	m := pl.needMild()
	if m == nil {
		place := t.first(0, want)
		for place >= 0 && pl.refused(it, pl.f.order[place]) {
			place = t.first(place+1, want)
		}
		return place, "a node with room, those without GPUs first, then those with the fewest idle"
	}
	for place := m.tree.first(0, want); place >= 0; place = m.tree.first(place+1, want) {
		if t.leaf(place).holds(want) && !pl.refused(it, pl.f.order[place]) {
			return place, "leaves idle GPUs the cores and memory that jobs for them take; nodes without GPUs first, then those with the fewest idle"
		}
	}
	best, least := -1, int64(rules.Forever)
	for place := t.first(0, want); place >= 0 && least > 0; place = t.first(place+1, want) {
		if pl.refused(it, pl.f.order[place]) {
			continue
		}
		h := &pl.f.hosts[pl.f.order[place]]
		if cost := m.usable(h.idle, h.freeCPU(), h.freeMem()) - m.usable(h.idle, h.freeCPU()-it.cpu, h.freeMem()-it.mem); cost < least {
			best, least = place, cost
		}
	}
	return best, "the node where it takes the cores and memory of the fewest idle GPUs"
}
