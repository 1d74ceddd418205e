package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// class is all schedulable cards that are alike, in the order of nodes and ids.
type class struct {
	rules.ClassKey
	rep   *cluster.GPU
	cards []int32
	// used and empty index the same places: a card is in the one or the other.
	used, empty *tree
	loads       *loadTree // made when first asked for
	// groups are the nodes that have such cards; free[k] is the set of groups
	// with k empty cards.
	groups []group
	free   []bitset
	meanUS int64 // mean expected duration of what runs there
	drain  int64 // microseconds until all that runs and waits is done; see measure
	wanted int64 // GPUs of those who wait and may run here
	// parted tells that some node has GPUs in several NUMA groups, largest is
	// the most in one.
	parted  bool
	largest int
	// Who asks for no more can be held by any node beside idle GPUs.
	easyCPU, easyMem int64
}

// group is the cards of one class on one node.
type group struct {
	host   int32
	lo, hi int32 // places in class.cards
	empty  int32
	// clears tells when each card is empty, soonest first, by what runs; nil
	// when nobody asked since a start.
	clears []freeing
	// load is what gangs that wait here add to each card, until the loads of
	// cards are made.
	load int64
}

type card struct {
	gpu    *cluster.GPU
	use    cluster.GPUUse
	host   int32
	class  int32 // -1 on a node that takes no jobs
	place  int32 // in class.cards
	group  int32
	until  int64
	load   int64 // microseconds of the whole card that are spoken for
	queue  []cluster.Waiter
	head   int // the first waiter that was not started in this pass
	unseen int // waiters that are not in the snapshot
	// regretted: somebody there is slower than the limit; see regret.
	regretted bool
	kept      bool // for somebody who waited too long
	realm     int32
}

type host struct {
	node         *cluster.Node
	use          cluster.NodeUse
	lo, hi       int32 // cards
	keptFor      cluster.JobID
	promised     bool  // cores are kept for a deadline
	keptCPU      int64 // for jobs that waited too long
	keptMem      int64
	spare        rules.Spare
	idleCPU      int64 // what the idle GPUs keep; see occupy
	idleMem      int64
	plainCPU     int64 // what they keep from jobs without GPUs
	plainMem     int64
	idle         int64 // of its GPUs, in thousandths of one
	place        int32 // in the tree of nodes, -1 when it takes no jobs
	realm        int32 // of its cores
	foreignQueue bool  // somebody waits here too long whom the snapshot does not hold
	offered      offer // what the leaves of its cards hold, see reroom
}

// offer is what a node has for a newcomer on one of its cards, with others
// there and alone.
type offer struct{ cpu, mem [2]int64 }

func (h *host) offer() offer {
	return offer{[2]int64{h.mostCPU(0), h.mostCPU(1)}, [2]int64{h.mostMem(0), h.mostMem(1)}}
}

// clipped is an offer as far as it matters to those who ask for no more than
// so much.
func (o offer) clipped(cpu, mem int64) offer {
	for i := range o.cpu {
		o.cpu[i], o.mem[i] = min(o.cpu[i], cpu), min(o.mem[i], mem)
	}
	return o
}

func (h *host) freeCPU() int64 { return h.use.CPUMilli - h.use.UsedCPU - h.keptCPU }
func (h *host) freeMem() int64 { return h.use.MemMiB - h.use.UsedMem - h.keptMem }

// full is the larger of the fractions of cores and of host memory that are
// taken, in thousandths.
func (h *host) full() int64 {
	part := func(used, of int64) int64 {
		if of <= 0 {
			return 1000
		}
		return used * 1000 / of
	}
	return max(part(h.use.UsedCPU, h.use.CPUMilli), part(h.use.UsedMem, h.use.MemMiB))
}

// fleet is the snapshot's nodes with the indexes over what they have left.
type fleet struct {
	led     *cluster.Ledger
	pol     *Policy
	hosts   []host
	cards   []card
	classes []class
	hostAt  map[cluster.NodeID]int32
	cardAt  map[cluster.GPUID]int32
	// plain indexes the nodes by what they have left for jobs without GPUs;
	// order maps its places to hosts, nodes without GPUs first, then the fullest.
	plain *tree
	order []int32
	// asksCPU and asksMem are the most that any waiting job asks of a node.
	asksCPU, asksMem int64
	next             int            // where the ledger has the next card, likely
	closed           map[string]int // see close
	realms           *realms        // nil where there is but one
}

func newFleet(nodes []*cluster.Node, led *cluster.Ledger, queues map[cluster.GPUID][]cluster.Waiter, pol *Policy, parts *realms) *fleet {
	f := &fleet{led: led, pol: pol, realms: parts, hostAt: make(map[cluster.NodeID]int32, len(nodes)), asksCPU: rules.Forever, asksMem: rules.Forever}
	if !slices.IsSortedFunc(nodes, rules.ByNode) {
		nodes = slices.Clone(nodes)
		slices.SortFunc(nodes, rules.ByNode)
	}
	total := 0
	for _, n := range nodes {
		total += len(n.GPUs)
	}
	f.hosts = make([]host, 0, len(nodes))
	f.cards = make([]card, 0, total)
	f.cardAt = make(map[cluster.GPUID]int32, total)
	for _, n := range nodes {
		f.addHost(n, queues)
	}
	f.classify()
	f.indexHosts()
	return f
}

func (f *fleet) addHost(n *cluster.Node, queues map[cluster.GPUID][]cluster.Waiter) {
	use, ok := f.led.Node(n.ID)
	if !ok {
		return
	}
	use.Schedulable = use.Schedulable && n.Schedulable()
	h := host{node: n, use: use, lo: int32(len(f.cards)), place: -1}
	if f.realms != nil {
		h.realm = f.realms.of(n, "")
	}
	for k := range n.GPUs {
		u, ok := f.account(n.GPUs[k].ID)
		if !ok || u.Node != n.ID {
			continue
		}
		var q []cluster.Waiter
		if len(queues) > 0 {
			q = queues[u.ID]
		}
		if u.Closed && use.Schedulable {
			f.close(u.Type)
		}
		c := card{gpu: &n.GPUs[k], use: u, host: int32(len(f.hosts)), class: -1, until: rules.Forever, queue: q}
		if f.realms != nil {
			c.realm = f.realms.of(n, u.ID)
		}
		f.cardAt[u.ID] = int32(len(f.cards))
		f.cards = append(f.cards, c)
	}
	h.hi = int32(len(f.cards))
	h.spare = rules.SpareOf(&h.use, int(h.hi-h.lo), f.pol)
	f.keepIdle(&h)
	f.hostAt[n.ID] = int32(len(f.hosts))
	f.hosts = append(f.hosts, h)
}

// account is Ledger.GPU for cards that are asked for in the order of nodes,
// which mostly is that of the ledger.
func (f *fleet) account(id cluster.GPUID) (cluster.GPUUse, bool) {
	if u, ok := f.led.GPUAt(f.next); ok && u.ID == id {
		f.next++
		return *u, true
	}
	at, ok := f.led.Place(id)
	if !ok {
		return cluster.GPUUse{}, false
	}
	f.next = at + 1
	u, _ := f.led.GPUAt(at)
	return *u, true
}

// classify sorts the cards of nodes that take jobs into classes, themselves
// sorted by type, then by what they sell.
func (f *fleet) classify() {
	at := map[rules.ClassKey]int32{}
	f.eachClass(func(k rules.ClassKey, first int32) {
		if _, ok := at[k]; !ok {
			at[k] = int32(len(f.classes))
			f.classes = append(f.classes, class{ClassKey: k, rep: f.cards[first].gpu})
		}
	}, func(int32) {})
	slices.SortFunc(f.classes, func(a, b class) int {
		return cmp.Or(cmp.Compare(a.GPUType, b.GPUType), cmp.Compare(a.Sellable, b.Sellable), rules.CompareBool(a.Shareable, b.Shareable), cmp.Compare(a.Realm, b.Realm))
	})
	for i := range f.classes {
		at[f.classes[i].ClassKey] = int32(i)
	}
	now := int32(0)
	f.eachClass(func(k rules.ClassKey, _ int32) { now = at[k] }, func(i int32) {
		f.cards[i].class = now
		f.classes[now].add(&f.cards[i], i)
	})
	for i := range f.classes {
		f.indexClass(&f.classes[i])
	}
}

// eachClass calls of where cards of another class than those before begin, and
// card for each card of a node that takes jobs.
func (f *fleet) eachClass(of func(k rules.ClassKey, first int32), card func(i int32)) {
	var last rules.ClassKey
	for i := range f.cards {
		c := &f.cards[i]
		if !f.hosts[c.host].use.Schedulable || c.use.SellableMiB <= 0 || c.use.Closed {
			continue
		}
		if k := (rules.ClassKey{GPUType: c.use.Type, Sellable: c.use.SellableMiB, Shareable: c.use.Shareable, Realm: c.realm}); k != last {
			last = k
			of(k, int32(i))
		}
		card(int32(i))
	}
}

func (k *class) add(c *card, i int32) {
	c.place = int32(len(k.cards))
	k.cards = append(k.cards, i)
	if n := len(k.groups); n == 0 || k.groups[n-1].host != c.host {
		k.groups = append(k.groups, group{host: c.host, lo: c.place, hi: c.place})
	}
	g := &k.groups[len(k.groups)-1]
	g.hi++
	if c.use.Shares == 0 {
		g.empty++
	}
	c.group = int32(len(k.groups) - 1)
}

func (f *fleet) indexClass(k *class) {
	k.used, k.empty = newTree(len(k.cards)), newTree(len(k.cards))
	for i := range k.groups {
		h := &f.hosts[k.groups[i].host]
		h.offered = h.offer()
	}
	for place, i := range k.cards {
		k.whichOf(&f.cards[i]).put(place, f.room(&f.cards[i]))
	}
	k.used.build()
	k.empty.build()
	large := int32(0)
	k.easyCPU, k.easyMem = rules.Forever, rules.Forever
	for i := range k.groups {
		large = max(large, k.groups[i].hi-k.groups[i].lo)
		if h := &f.hosts[k.groups[i].host]; h.spare.GPUs > 0 {
			k.easyCPU, k.easyMem = min(k.easyCPU, h.spare.PartCPU), min(k.easyMem, h.spare.PartMem)
		}
	}
	f.groupParts(k)
	k.free = make([]bitset, large+1)
	for i := range k.free {
		k.free[i] = make(bitset, (len(k.groups)+63)/64)
	}
	for i := range k.groups {
		k.free[k.groups[i].empty].add(i)
	}
}

func (k *class) whichOf(c *card) *tree {
	if c.use.Shares > 0 {
		return k.used
	}
	return k.empty
}

// indexHosts orders the nodes for jobs without GPUs: nodes without GPUs
// first, then those of whose GPUs the least is idle, then the fullest as the
// pass finds them. First fit keeps it so, as it fills the fuller ones up before
// it turns to the next.
func (f *fleet) indexHosts() {
	for i := range f.hosts {
		if f.hosts[i].use.Schedulable {
			f.hosts[i].idle = f.idleOf(&f.hosts[i])
			f.order = append(f.order, int32(i))
		}
	}
	slices.SortFunc(f.order, f.comparePlain)
	f.plain = newTree(len(f.order))
	f.fillPlain()
}

func (f *fleet) comparePlain(a, b int32) int {
	x, y := &f.hosts[a], &f.hosts[b]
	return cmp.Or(rules.CompareBool(x.lo != x.hi, y.lo != y.hi), cmp.Compare(x.idle, y.idle), cmp.Compare(y.full(), x.full()), cmp.Compare(a, b))
}

func (f *fleet) fillPlain() {
	for place, i := range f.order {
		f.hosts[i].place = int32(place)
		f.plain.put(place, f.hostRoom(&f.hosts[i]))
	}
	f.plain.build()
}

// room is what a card has left for one more share.
func (f *fleet) room(c *card) room {
	h := &f.hosts[c.host]
	if h.foreignQueue {
		return nowhere()
	}
	takes, slots := int64(0), int64(min(c.use.FreeShares(), max(1, f.pol.MaxShares)-c.use.Shares))
	switch {
	case c.use.Shares == 0:
		takes = 1
	case c.regretted:
		slots = 0
	}
	return room{
		mem: c.use.FreeMiB(), milli: c.use.FreeMilli(), slots: slots,
		cpu: h.mostCPU(takes), host: h.mostMem(takes), until: c.until,
	}
}

func (f *fleet) hostRoom(h *host) room {
	if h.foreignQueue {
		return nowhere()
	}
	return room{cpu: h.freeCPU() - h.plainCPU, host: h.freeMem() - h.plainMem, until: rules.Forever}
}

// asks learns what the waiting jobs ask of nodes.
func (f *fleet) asks(items []item) {
	f.asksCPU, f.asksMem = 0, 0
	for i := range items {
		f.asksCPU, f.asksMem = max(f.asksCPU, items[i].cpu), max(f.asksMem, items[i].mem)
	}
}

// refresh brings the indexes up to what the ledger says of a node.
func (f *fleet) refresh(hi int32) {
	f.reread(hi)
	h := &f.hosts[hi]
	for i := h.lo; i < h.hi; i++ {
		f.recount(&f.cards[i])
	}
	f.reroomAll(h)
}

// took brings the indexes up to the ledger after a start on cards of a node.
func (f *fleet) took(hi int32, on []cluster.GPUShare) {
	f.reread(hi)
	h := &f.hosts[hi]
	whole := f.changedOffer(h)
	for _, gs := range on {
		c := &f.cards[f.cardAt[gs.GPU]]
		f.recount(c)
		if c.class < 0 {
			continue
		}
		f.classes[c.class].groups[c.group].clears = nil
		if !whole {
			f.reroom(c)
		}
	}
	if whole {
		f.reroomAll(h)
	}
	f.reroomHost(h)
}

// keeps brings the indexes up to what is kept of a node for a job that waits,
// on the given cards in particular.
func (f *fleet) keeps(hi int32, on []int32) {
	h := &f.hosts[hi]
	if f.changedOffer(h) {
		f.reroomAll(h)
		return
	}
	for _, i := range on {
		f.reroom(&f.cards[i])
	}
	f.reroomHost(h)
}

// changedOffer reports whether a node offers something else than the leaves of
// its cards hold, to anybody who waits. On a node with plenty it does not, and
// one start of thousands need not touch all cards.
func (f *fleet) changedOffer(h *host) bool {
	return h.offer().clipped(f.asksCPU, f.asksMem) != h.offered.clipped(f.asksCPU, f.asksMem)
}

func (f *fleet) reread(hi int32) {
	h := &f.hosts[hi]
	sched := h.use.Schedulable
	h.use, _ = f.led.Node(h.node.ID)
	h.use.Schedulable = sched
}

// recount reads a card's account.
func (f *fleet) recount(c *card) {
	before := c.use.Shares
	c.use, _ = f.led.GPU(c.use.ID)
	if c.class >= 0 && (before == 0) != (c.use.Shares == 0) {
		f.regroup(&f.classes[c.class], c, before == 0)
	}
}

// reroom sets the leaf of a card.
func (f *fleet) reroom(c *card) {
	if c.class >= 0 {
		f.classes[c.class].whichOf(c).set(int(c.place), f.room(c))
	}
}

func (f *fleet) reroomAll(h *host) {
	h.offered = h.offer()
	for i := h.lo; i < h.hi; i++ {
		f.reroom(&f.cards[i])
	}
	f.reroomHost(h)
}

func (f *fleet) reroomHost(h *host) {
	if h.place >= 0 {
		f.plain.set(int(h.place), f.hostRoom(h))
	}
}

// regroup notes that a card became used, or empty again.
func (f *fleet) regroup(k *class, c *card, nowUsed bool) {
	g := &k.groups[c.group]
	k.free[g.empty].remove(int(c.group))
	if nowUsed {
		g.empty--
		k.empty.set(int(c.place), nowhere())
	} else {
		g.empty++
		k.used.set(int(c.place), nowhere())
	}
	k.free[g.empty].add(int(c.group))
}
