// Package fleet models the nodes and GPUs of a snapshot, with indexes over what
// they have left.
package fleet

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Class is all schedulable GPUs that are alike, in the order of nodes and ids.
type Class struct {
	rules.ClassKey
	Rep   *cluster.GPU
	Cards []int32
	// Used and empty index the same places: a GPU is in one or the other.
	Used, Empty *Tree
	Loads       *LoadTree // built on first use
	loads       *LoadTree // of an earlier fleet, which Loads may become
	// Groups are the nodes that have such GPUs; free[k] is the set of groups with k
	// empty GPUs.
	Groups []Group
	Free   []bitset
	MeanUS int64 // mean expected duration of what runs there
	Drain  int64 // microseconds until everything running and waiting is done; see measure
	Wanted int64 // GPUs of waiting jobs that may run here
	// Parted means that some node has GPUs in several NUMA groups; largest is the
	// most in one.
	Parted  bool
	Largest int
	// A job that asks for no more fits next to idle GPUs on any node.
	EasyCPU, EasyMem int64
}

// Group is the GPUs of one class on one node.
type Group struct {
	Host   int32
	Lo, Hi int32 // places in class.cards
	Empty  int32
	// Clears holds when each GPU is empty, soonest first, by what runs; nil if not
	// asked for since a start.
	Clears []Freeing
	// Load is what waiting gangs add to each GPU here, until the loads of GPUs are
	// computed.
	Load int64
}

// Card is a GPU, what is taken of it, and the jobs that wait for it.
type Card struct {
	GPU    *cluster.GPU
	Use    dispatch.GPUUse
	Host   int32
	Class  int32 // -1 on a node that takes no jobs
	Place  int32 // in class.cards
	Group  int32
	Until  int64
	Load   int64 // microseconds of the whole GPU that are spoken for
	Queue  []dispatch.Waiter
	Head   int // the first waiting job that was not started in this pass
	Unseen int // waiting jobs that are not in the snapshot
	// Regretted: a job there is slower than the limit; see regret.
	Regretted bool
	Kept      bool // for a job that waited too long
	realm     int32
}

// Host is a node, what is taken of it, and what is reserved there.
type Host struct {
	Node         *cluster.Node
	Use          dispatch.NodeUse
	Lo, Hi       int32 // its GPUs
	KeptFor      cluster.JobID
	Promised     bool  // cores are reserved for a deadline
	KeptCPU      int64 // for jobs that waited too long
	KeptMem      int64
	Spare        rules.Spare
	idleCPU      int64 // what the idle GPUs keep; see occupy
	idleMem      int64
	PlainCPU     int64 // what they keep from jobs without GPUs
	PlainMem     int64
	Idle         int64 // of its GPUs, in thousandths of one
	Place        int32 // in the tree of nodes, -1 when it takes no jobs
	Realm        int32 // of its cores
	ForeignQueue bool  // a job that the snapshot does not hold has waited too long here
	offered      offer // what the leaves of its GPUs hold; see reroom
}

// offer is what a node has for a newcomer on one of its GPUs, next to other jobs
// and alone.
type offer struct{ cpu, mem [2]int64 }

func (h *Host) offer() offer {
	return offer{[2]int64{h.mostCPU(0), h.mostCPU(1)}, [2]int64{h.mostMem(0), h.mostMem(1)}}
}

// clipped returns the offer as far as it matters to jobs that ask for at most so
// much.
func (o offer) clipped(cpu, mem int64) offer {
	for i := range o.cpu {
		o.cpu[i], o.mem[i] = min(o.cpu[i], cpu), min(o.mem[i], mem)
	}
	return o
}

// FreeCPU returns the cores that are free and not reserved.
func (h *Host) FreeCPU() int64 { return h.Use.CPUMilli - h.Use.UsedCPU - h.KeptCPU }

// FreeMem returns the memory that is free and not reserved.
func (h *Host) FreeMem() int64 { return h.Use.MemMiB - h.Use.UsedMem - h.KeptMem }

// full returns the larger of the fractions of cores and of host memory that are
// taken, in thousandths.
func (h *Host) full() int64 {
	part := func(used, of int64) int64 {
		if of <= 0 {
			return 1000
		}
		return used * 1000 / of
	}
	return max(part(h.Use.UsedCPU, h.Use.CPUMilli), part(h.Use.UsedMem, h.Use.MemMiB))
}

// Fleet is the snapshot's nodes with the indexes over what they have left.
type Fleet struct {
	Led     *dispatch.Ledger
	Pol     *rules.Policy
	Hosts   []Host
	Cards   []Card
	Classes []Class
	HostAt  map[cluster.NodeID]int32
	CardAt  map[cluster.GPUID]int32
	// Plain indexes the nodes by what they have left for jobs without GPUs;
	// order maps its places to hosts, nodes without GPUs first, then the fullest.
	Plain *Tree
	Order []int32
	// asksCPU and asksMem are the most that any waiting job asks of a node.
	asksCPU, asksMem int64
	next             int            // where the ledger probably has the next GPU
	closed           map[string]int // see close
	realms           *Realms        // nil if there is only one
}

// New returns the nodes as they are in the ledger, with the queues of their GPUs.
func New(nodes []*cluster.Node, led *dispatch.Ledger, queues map[cluster.GPUID][]dispatch.Waiter, pol *rules.Policy, parts *Realms) *Fleet {
	return new(Memory).New(nodes, led, queues, pol, parts)
}

func (f *Fleet) addHost(m *Memory, n *cluster.Node, queues map[cluster.GPUID][]dispatch.Waiter) {
	use, ok := f.Led.Node(n.ID)
	if !ok {
		return
	}
	use.Schedulable = use.Schedulable && n.Schedulable()
	h := Host{Node: n, Use: use, Lo: int32(len(f.Cards)), Place: -1}
	if f.realms != nil {
		h.Realm = f.realms.of(n, "")
	}
	for k := range n.GPUs {
		u, ok := f.account(n.GPUs[k].ID)
		if !ok || u.Node != n.ID {
			continue
		}
		var q []dispatch.Waiter
		if len(queues) > 0 {
			q = queues[u.ID]
		}
		if u.Closed && use.Schedulable {
			f.close(u.Type)
		}
		c := Card{GPU: &n.GPUs[k], Use: u, Host: int32(len(f.Hosts)), Class: -1, Until: rules.Forever, Queue: q}
		if f.realms != nil {
			c.realm = f.realms.of(n, u.ID)
		}
		m.cardAt.put(u.ID, len(f.Cards))
		f.Cards = append(f.Cards, c)
	}
	h.Hi = int32(len(f.Cards))
	h.Spare = rules.SpareOf(&h.Use, int(h.Hi-h.Lo), f.Pol)
	f.KeepIdle(&h)
	m.hostAt.put(n.ID, len(f.Hosts))
	f.Hosts = append(f.Hosts, h)
}

// account is Ledger.GPU for GPUs looked up in the order of nodes, which is mostly
// that of the ledger.
func (f *Fleet) account(id cluster.GPUID) (dispatch.GPUUse, bool) {
	if u, ok := f.Led.GPUAt(f.next); ok && u.ID == id {
		f.next++
		return *u, true
	}
	at, ok := f.Led.Place(id)
	if !ok {
		return dispatch.GPUUse{}, false
	}
	f.next = at + 1
	u, _ := f.Led.GPUAt(at)
	return *u, true
}

// classify sorts the GPUs of nodes that take jobs into classes, themselves sorted
// by type, then by what they sell. They take over the lists and trees of old ones.
func (f *Fleet) classify(old []Class) {
	at := map[rules.ClassKey]int32{}
	f.eachClass(func(k rules.ClassKey, first int32) {
		if _, ok := at[k]; !ok {
			at[k] = int32(len(f.Classes))
			f.Classes = append(f.Classes, Class{ClassKey: k, Rep: f.Cards[first].GPU})
		}
	}, func(int32) {})
	slices.SortFunc(f.Classes, func(a, b Class) int { return a.Compare(&b.ClassKey) })
	for i := range f.Classes {
		at[f.Classes[i].ClassKey] = int32(i)
		if i < len(old) {
			f.Classes[i].takeOver(&old[i])
		}
	}
	now := int32(0)
	f.eachClass(func(k rules.ClassKey, _ int32) { now = at[k] }, func(i int32) {
		f.Cards[i].Class = now
		f.Classes[now].add(&f.Cards[i], i)
	})
	for i := range f.Classes {
		f.indexClass(&f.Classes[i])
	}
}

// eachClass calls of where GPUs of a new class begin, and card for each GPU of a
// node that takes jobs.
func (f *Fleet) eachClass(of func(k rules.ClassKey, first int32), card func(i int32)) {
	var last rules.ClassKey
	for i := range f.Cards {
		c := &f.Cards[i]
		if !f.Hosts[c.Host].Use.Schedulable || c.Use.SellableMiB <= 0 || c.Use.Closed {
			continue
		}
		if k := (rules.ClassKey{GPUType: c.Use.Type, Sellable: c.Use.SellableMiB, Shareable: c.Use.Shareable, Realm: c.realm}); k != last {
			last = k
			of(k, int32(i))
		}
		card(int32(i))
	}
}

func (k *Class) add(c *Card, i int32) {
	c.Place = int32(len(k.Cards))
	k.Cards = append(k.Cards, i)
	if n := len(k.Groups); n == 0 || k.Groups[n-1].Host != c.Host {
		k.Groups = append(k.Groups, Group{Host: c.Host, Lo: c.Place, Hi: c.Place})
	}
	g := &k.Groups[len(k.Groups)-1]
	g.Hi++
	if c.Use.Shares == 0 {
		g.Empty++
	}
	c.Group = int32(len(k.Groups) - 1)
}

func (f *Fleet) indexClass(k *Class) {
	k.Used, k.Empty = k.Used.again(len(k.Cards)), k.Empty.again(len(k.Cards))
	for i := range k.Groups {
		h := &f.Hosts[k.Groups[i].Host]
		h.offered = h.offer()
	}
	for place, i := range k.Cards {
		k.Used.Put(place, Nowhere())
		k.Empty.Put(place, Nowhere())
		k.whichOf(&f.Cards[i]).Put(place, f.Room(&f.Cards[i]))
	}
	k.Used.Build()
	k.Empty.Build()
	large := int32(0)
	k.EasyCPU, k.EasyMem = rules.Forever, rules.Forever
	for i := range k.Groups {
		large = max(large, k.Groups[i].Hi-k.Groups[i].Lo)
		if h := &f.Hosts[k.Groups[i].Host]; h.Spare.GPUs > 0 {
			k.EasyCPU, k.EasyMem = min(k.EasyCPU, h.Spare.PartCPU), min(k.EasyMem, h.Spare.PartMem)
		}
	}
	f.groupParts(k)
	words := (len(k.Groups) + 63) / 64
	if len(k.Free) != int(large)+1 || len(k.Free[0]) != words {
		all := make(bitset, (int(large)+1)*words)
		k.Free = make([]bitset, large+1)
		for i := range k.Free {
			k.Free[i], all = all[:words:words], all[words:]
		}
	}
	for i := range k.Free {
		clear(k.Free[i])
	}
	for i := range k.Groups {
		k.Free[k.Groups[i].Empty].add(i)
	}
}

func (k *Class) whichOf(c *Card) *Tree {
	if c.Use.Shares > 0 {
		return k.Used
	}
	return k.Empty
}

// indexHosts orders the nodes for jobs without GPUs: nodes without GPUs first, then
// those with the least GPU capacity idle, then the fullest as the pass finds them.
// First fit preserves this, as it fills up the fuller ones before it turns to the
// next.
func (f *Fleet) indexHosts() {
	for i := range f.Hosts {
		if f.Hosts[i].Use.Schedulable {
			f.Hosts[i].Idle = f.IdleOf(&f.Hosts[i])
			f.Order = append(f.Order, int32(i))
		}
	}
	slices.SortFunc(f.Order, f.ComparePlain)
	f.Plain = f.Plain.again(len(f.Order))
	f.FillPlain()
}

// ComparePlain compares nodes in the order for jobs without GPUs; see indexHosts.
func (f *Fleet) ComparePlain(a, b int32) int {
	x, y := &f.Hosts[a], &f.Hosts[b]
	return cmp.Or(rules.CompareBool(x.Lo != x.Hi, y.Lo != y.Hi), cmp.Compare(x.Idle, y.Idle), cmp.Compare(y.full(), x.full()), cmp.Compare(a, b))
}

// FillPlain rebuilds the tree of nodes.
func (f *Fleet) FillPlain() {
	for place, i := range f.Order {
		f.Hosts[i].Place = int32(place)
		f.Plain.Put(place, f.HostRoom(&f.Hosts[i]))
	}
	f.Plain.Build()
}

// Room returns what a GPU has left for one more share.
func (f *Fleet) Room(c *Card) Room {
	h := &f.Hosts[c.Host]
	if h.ForeignQueue {
		return Nowhere()
	}
	takes, slots := int64(0), int64(min(c.Use.FreeShares(), max(1, f.Pol.MaxShares)-c.Use.Shares))
	switch {
	case c.Use.Shares == 0:
		takes = 1
	case c.Regretted:
		slots = 0
	}
	return Room{
		Mem: c.Use.FreeMiB(), Milli: c.Use.FreeMilli(), Slots: slots,
		CPU: h.mostCPU(takes), Host: h.mostMem(takes), Until: c.Until,
	}
}

// HostRoom returns what a node has left for a job without GPUs.
func (f *Fleet) HostRoom(h *Host) Room {
	if h.ForeignQueue {
		return Nowhere()
	}
	return Room{CPU: h.FreeCPU() - h.PlainCPU, Host: h.FreeMem() - h.PlainMem, Until: rules.Forever}
}

// Asks records the most that any waiting job asks of a node.
func (f *Fleet) Asks(cpu, mem int64) { f.asksCPU, f.asksMem = cpu, mem }

// Refresh updates the indexes from the ledger's account of a node.
func (f *Fleet) Refresh(hi int32) {
	f.reread(hi)
	h := &f.Hosts[hi]
	for i := h.Lo; i < h.Hi; i++ {
		f.recount(&f.Cards[i])
	}
	f.reroomAll(h)
}

// Took updates the indexes after a start on GPUs of a node.
func (f *Fleet) Took(hi int32, on []cluster.GPUShare) {
	f.reread(hi)
	h := &f.Hosts[hi]
	whole := f.changedOffer(h)
	for _, gs := range on {
		c := &f.Cards[f.CardAt[gs.GPU]]
		f.recount(c)
		if c.Class < 0 {
			continue
		}
		f.Classes[c.Class].Groups[c.Group].Clears = nil
		if !whole {
			f.reroom(c)
		}
	}
	if whole {
		f.reroomAll(h)
	}
	f.reroomHost(h)
}

// Keeps updates the indexes after a reservation on a node for a waiting job, on the
// given GPUs in particular.
func (f *Fleet) Keeps(hi int32, on []int32) {
	h := &f.Hosts[hi]
	if f.changedOffer(h) {
		f.reroomAll(h)
		return
	}
	for _, i := range on {
		f.reroom(&f.Cards[i])
	}
	f.reroomHost(h)
}

// changedOffer reports whether, for any waiting job, a node offers something else
// than the leaves of its GPUs hold. On a node with plenty it does not, and a start
// of thousands need not touch all GPUs.
func (f *Fleet) changedOffer(h *Host) bool {
	return h.offer().clipped(f.asksCPU, f.asksMem) != h.offered.clipped(f.asksCPU, f.asksMem)
}

func (f *Fleet) reread(hi int32) {
	h := &f.Hosts[hi]
	sched := h.Use.Schedulable
	h.Use, _ = f.Led.Node(h.Node.ID)
	h.Use.Schedulable = sched
}

// recount reads a GPU's account.
func (f *Fleet) recount(c *Card) {
	before := c.Use.Shares
	c.Use, _ = f.Led.GPU(c.Use.ID)
	if c.Class >= 0 && (before == 0) != (c.Use.Shares == 0) {
		f.regroup(&f.Classes[c.Class], c, before == 0)
	}
}

// reroom sets the leaf of a GPU.
func (f *Fleet) reroom(c *Card) {
	if c.Class >= 0 {
		f.Classes[c.Class].whichOf(c).Set(int(c.Place), f.Room(c))
	}
}

func (f *Fleet) reroomAll(h *Host) {
	h.offered = h.offer()
	for i := h.Lo; i < h.Hi; i++ {
		f.reroom(&f.Cards[i])
	}
	f.reroomHost(h)
}

func (f *Fleet) reroomHost(h *Host) {
	if h.Place >= 0 {
		f.Plain.Set(int(h.Place), f.HostRoom(h))
	}
}

// regroup records that a GPU became used, or empty again.
func (f *Fleet) regroup(k *Class, c *Card, nowUsed bool) {
	g := &k.Groups[c.Group]
	k.Free[g.Empty].remove(int(c.Group))
	if nowUsed {
		g.Empty--
		k.Empty.Set(int(c.Place), Nowhere())
	} else {
		g.Empty++
		k.Used.Set(int(c.Place), Nowhere())
	}
	k.Free[g.Empty].add(int(c.Group))
}
