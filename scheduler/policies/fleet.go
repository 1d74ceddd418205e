package policies

import (
	"cmp"
	"math"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// forever is later than any time.
const forever = math.MaxInt64

// whole is all of a card, in thousandths.
const whole = cluster.WholeGPU

// class is what a need is computed for: cards of one type that sell the same
// and are shared the same way.
type class struct {
	gpuType   string
	sellable  int64
	shareable bool
	scope     cluster.Scope
	rep       *cluster.GPU
	count     int
	// family is the first of the classes that differ from this one at most in
	// their scope: a job over several nodes may lie on all of them.
	family int32
	// most is the most that any group had when the pass began.
	most roomLeft
}

// roomLeft bounds what the groups of a class have left: cards that are empty on
// one host, and whether a card in use takes a share.
type roomLeft struct {
	empty int
	free  bool
}

// card mirrors a GPU's account in the pass's ledger.
type card struct {
	gpu   *cluster.GPU
	use   cluster.GPUUse
	group int32
	at    int // in the ledger
	on    []resident
	// until is the time by which a newcomer must have ended, forever where
	// nothing is kept.
	until int64
}

// resident is a share of a card.
type resident struct {
	run   int32 // in pass.runs
	share cluster.Share
}

// group is the cards of one class on one host: what one job can get.
type group struct {
	host, class int32
	cards       []int32
	// The most that any card has left, and how many are empty.
	mem, milli int64
	free       bool // a card takes one more share
	empty      int
}

// host is a node that takes jobs.
type host struct {
	node   *cluster.Node
	use    cluster.NodeUse
	groups []int32
	runs   []int32 // who holds something of it
	// keptCPU and keptMem are for a job that waits, from those who end after
	// until.
	keptCPU, keptMem, until int64
	// foreign tells that an earlier pass keeps something of it, see Kept.
	foreign bool
}

func (h *host) freeCPU(end int64) int64 {
	free := h.use.CPUMilli - h.use.UsedCPU
	if end > h.until {
		free -= h.keptCPU
	}
	return free
}

func (h *host) freeMem(end int64) int64 {
	free := h.use.MemMiB - h.use.UsedMem
	if end > h.until {
		free -= h.keptMem
	}
	return free
}

// run is an attempt that holds shares: one of the snapshot, or one that this
// pass starts.
type run struct {
	job   *cluster.Job
	berth *cluster.Berth
	est   cluster.Estimate
	began int64
	// host and cards are where it lies in the mirror, -1 for a host that takes
	// no jobs; revision is that of the job when this was looked up.
	host     int32
	cards    []int32
	revision uint64
	// end is when it is expected to end, latest when it must have.
	end, latest int64
	fresh       bool
	// An attempt on several nodes is as many runs, one after the other: this
	// is the one at part, from 0 on, of parts; both are 0 for an attempt on one.
	part, parts int32
}

// fleet is the schedulable part of the cluster.
type fleet struct {
	hosts   []host          // by id
	idle    []*cluster.Node // those that take no jobs
	groups  []group
	cards   []card
	classes []class
	cardAt  map[cluster.GPUID]int32
	hostAt  map[cluster.NodeID]int32
	// The most that any host has, so that what is left of hosts of different
	// size can be compared.
	mostGPUs, mostCPU, mostMem int64
}

// newFleet reads the nodes that take jobs, in order of id.
func newFleet(nodes []*cluster.Node, led *cluster.Ledger) *fleet {
	f := &fleet{cardAt: map[cluster.GPUID]int32{}, hostAt: map[cluster.NodeID]int32{}}
	byID := func(a, b *cluster.Node) int { return cmp.Compare(a.ID, b.ID) }
	if !slices.IsSortedFunc(nodes, byID) {
		nodes = slices.Clone(nodes)
		slices.SortFunc(nodes, byID)
	}
	f.classes = classesOf(nodes)
	for _, n := range nodes {
		if u, ok := led.Node(n.ID); ok && n.Schedulable() && u.Schedulable {
			f.addHost(n, u, led)
		} else {
			f.idle = append(f.idle, n)
		}
	}
	return f
}

// classesOf lists the classes of the nodes that take jobs, by type, then by
// what they sell.
func classesOf(nodes []*cluster.Node) []class {
	var out []class
	for _, n := range nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if !n.Schedulable() || g.SellableMiB <= 0 {
				continue
			}
			c := class{gpuType: g.Type, sellable: g.SellableMiB, shareable: g.Shareable(), scope: g.Scope, rep: g, count: 1}
			if k := slices.IndexFunc(out, c.same); k >= 0 {
				out[k].count++
			} else {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, func(a, b class) int {
		return cmp.Or(cmp.Compare(a.gpuType, b.gpuType), cmp.Compare(a.sellable, b.sellable), cmp.Compare(boolInt(a.shareable), boolInt(b.shareable)), cmp.Compare(a.scope, b.scope))
	})
	for c := range out {
		if out[c].family = int32(c); c > 0 && out[c].alike(&out[c-1]) {
			out[c].family = out[c-1].family
		}
	}
	return out
}

func (c *class) alike(o *class) bool {
	return c.gpuType == o.gpuType && c.sellable == o.sellable && c.shareable == o.shareable
}

func (c class) same(o class) bool {
	return c.alike(&o) && c.scope == o.scope
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (f *fleet) addHost(n *cluster.Node, u cluster.NodeUse, led *cluster.Ledger) {
	hi := int32(len(f.hosts))
	h := host{node: n, use: u, until: forever}
	for ci := range f.classes {
		g := group{host: hi, class: int32(ci)}
		for i := range n.GPUs {
			c := class{gpuType: n.GPUs[i].Type, sellable: n.GPUs[i].SellableMiB, shareable: n.GPUs[i].Shareable(), scope: n.GPUs[i].Scope}
			acc, ok := led.GPU(n.GPUs[i].ID)
			if !ok || acc.Node != n.ID || !c.same(f.classes[ci]) {
				continue
			}
			f.cardAt[acc.ID] = int32(len(f.cards))
			g.cards = append(g.cards, int32(len(f.cards)))
			at, _ := led.Place(acc.ID)
			f.cards = append(f.cards, card{gpu: &n.GPUs[i], use: acc, at: at, group: int32(len(f.groups)), until: forever})
		}
		if len(g.cards) > 0 {
			slices.SortFunc(g.cards, func(a, b int32) int { return cmp.Compare(f.cards[a].use.ID, f.cards[b].use.ID) })
			h.groups = append(h.groups, int32(len(f.groups)))
			f.groups = append(f.groups, g)
		}
	}
	f.hostAt[n.ID] = hi
	f.mostGPUs, f.mostCPU, f.mostMem = max(f.mostGPUs, int64(len(n.GPUs))), max(f.mostCPU, u.CPUMilli), max(f.mostMem, u.MemMiB)
	f.hosts = append(f.hosts, h)
}

// sum brings the summary of a group up to its cards.
func (f *fleet) sum(gi int32, maxShares int) {
	g := &f.groups[gi]
	g.mem, g.milli, g.free, g.empty = -1, -1, false, 0
	for _, i := range g.cards {
		u := &f.cards[i].use
		if u.Idle() {
			g.empty++
		}
		if u.FreeShares() > 0 && u.Shares < maxShares {
			g.free = true
			g.mem, g.milli = max(g.mem, u.FreeMiB()), max(g.milli, u.FreeMilli())
		}
	}
}
