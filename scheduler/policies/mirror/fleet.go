// Package mirror models the nodes in service as a pass of a policy sees them:
// copies of the ledger's accounts, which jobs run where and until when, and what is
// reserved for which.
package mirror

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Class is what a need is computed for: GPUs of one type that sell the same and are
// shared the same way.
type Class struct {
	rules.ClassKey
	Scope cluster.Scope
	Rep   *cluster.GPU
	Count int
	// Family is the first of the classes that differ from this one at most in their
	// scope: a job over several nodes may run on all of them.
	Family int32
	// Most is the most that any group had when the pass began.
	Most roomLeft
}

// roomLeft bounds what the groups of a class have left: GPUs that are empty on one
// host, and whether a GPU in use takes a share.
type roomLeft struct {
	Empty int
	Free  bool
}

// Card mirrors a GPU's account in the pass's ledger.
type Card struct {
	GPU   *cluster.GPU
	Use   dispatch.GPUUse
	Group int32
	at    int // in the ledger
	On    []Resident
	// Until is the time by which a newcomer must have ended, rules.Forever if
	// nothing is reserved.
	Until int64
}

// group is the GPUs of one class on one host: what one job can get.
type group struct {
	Host, Class int32
	Cards       []int32
	// The most that any GPU has left, and how many are empty.
	Mem, Milli int64
	Free       bool // a GPU takes one more share
	Empty      int
}

// Host is a node that takes jobs.
type Host struct {
	Node   *cluster.Node
	Use    dispatch.NodeUse
	Groups []int32
	Runs   []int32 // those that hold something of it
	// KeptCPU and KeptMem are reserved for a waiting job, against those that end
	// after Until.
	KeptCPU, KeptMem, Until int64
	// Foreign means that an earlier pass reserves something of it, see Kept.
	Foreign bool
}

// Left returns what is free on a host.
func (h *Host) Left() (cpu, mem int64) {
	return h.Use.CPUMilli - h.Use.UsedCPU, h.Use.MemMiB - h.Use.UsedMem
}

// FreeCPU returns what a job that ends at a time may take of the cores.
func (h *Host) FreeCPU(end int64) int64 {
	free := h.Use.CPUMilli - h.Use.UsedCPU
	if end > h.Until {
		free -= h.KeptCPU
	}
	return free
}

// FreeMem returns the same of the memory.
func (h *Host) FreeMem(end int64) int64 {
	free := h.Use.MemMiB - h.Use.UsedMem
	if end > h.Until {
		free -= h.KeptMem
	}
	return free
}

// Fleet is the schedulable part of the cluster, and which jobs run where.
type Fleet struct {
	Led *dispatch.Ledger
	// MaxShares is how many may share a GPU, whatever its own limit.
	MaxShares int
	Hosts     []Host          // by id
	idle      []*cluster.Node // those that take no jobs
	Groups    []group
	Cards     []Card
	Classes   []Class
	CardAt    map[cluster.GPUID]int32
	HostAt    map[cluster.NodeID]int32
	// The most that any host has, so that what is left of hosts of different
	// size can be compared.
	MostGPUs, MostCPU, MostMem int64
	Runs                       []Run
	// Changed lists the hosts on which something was placed, in order.
	Changed []int32
}

// New reads the nodes that take jobs, in order of id.
func New(nodes []*cluster.Node, led *dispatch.Ledger, maxShares int) *Fleet {
	f := &Fleet{Led: led, MaxShares: maxShares, CardAt: map[cluster.GPUID]int32{}, HostAt: map[cluster.NodeID]int32{}}
	nodes = rules.SortedNodes(nodes)
	f.Classes = classesOf(nodes)
	for _, n := range nodes {
		if u, ok := led.Node(n.ID); ok && n.Schedulable() && u.Schedulable {
			f.addHost(n, u)
		} else {
			f.idle = append(f.idle, n)
		}
	}
	return f
}

// classesOf lists the classes of the nodes that take jobs, by type, then by
// what they sell.
func classesOf(nodes []*cluster.Node) []Class {
	var out []Class
	for _, n := range nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if !n.Schedulable() || g.SellableMiB <= 0 {
				continue
			}
			c := classOf(g)
			if k := slices.IndexFunc(out, c.same); k >= 0 {
				out[k].Count++
			} else {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, func(a, b Class) int {
		return cmp.Or(a.Compare(&b.ClassKey), cmp.Compare(a.Scope, b.Scope))
	})
	for c := range out {
		if out[c].Family = int32(c); c > 0 && out[c].Alike(&out[c-1].ClassKey) {
			out[c].Family = out[c-1].Family
		}
	}
	return out
}

// classOf returns the class of a GPU that is its only one so far.
func classOf(g *cluster.GPU) Class {
	return Class{ClassKey: rules.ClassKey{GPUType: g.Type, Sellable: g.SellableMiB, Shareable: g.Shareable()}, Scope: g.Scope, Rep: g, Count: 1}
}

func (k Class) same(o Class) bool { return k.ClassKey == o.ClassKey && k.Scope == o.Scope }
func (f *Fleet) addHost(n *cluster.Node, u dispatch.NodeUse) {
	hi := int32(len(f.Hosts))
	h := Host{Node: n, Use: u, Until: rules.Forever}
	for ci := range f.Classes {
		g := group{Host: hi, Class: int32(ci)}
		for i := range n.GPUs {
			acc, ok := f.Led.GPU(n.GPUs[i].ID)
			if !ok || acc.Node != n.ID || !classOf(&n.GPUs[i]).same(f.Classes[ci]) {
				continue
			}
			f.CardAt[acc.ID] = int32(len(f.Cards))
			g.Cards = append(g.Cards, int32(len(f.Cards)))
			at, _ := f.Led.Place(acc.ID)
			f.Cards = append(f.Cards, Card{GPU: &n.GPUs[i], Use: acc, at: at, Group: int32(len(f.Groups)), Until: rules.Forever})
		}
		if len(g.Cards) > 0 {
			slices.SortFunc(g.Cards, func(a, b int32) int { return cmp.Compare(f.Cards[a].Use.ID, f.Cards[b].Use.ID) })
			h.Groups = append(h.Groups, int32(len(f.Groups)))
			f.Groups = append(f.Groups, g)
		}
	}
	f.HostAt[n.ID] = hi
	f.MostGPUs, f.MostCPU, f.MostMem = max(f.MostGPUs, int64(len(n.GPUs))), max(f.MostCPU, u.CPUMilli), max(f.MostMem, u.MemMiB)
	f.Hosts = append(f.Hosts, h)
}

// SumAll updates all summaries from the GPUs, and records the most of each class.
func (f *Fleet) SumAll() {
	for c := range f.Classes {
		f.Classes[c].Most = roomLeft{}
	}
	for gi := range f.Groups {
		f.sum(int32(gi))
		g := &f.Groups[gi]
		k := &f.Classes[g.Class].Most
		k.Empty, k.Free = max(k.Empty, g.Empty), k.Free || g.Free
	}
}

// sum updates the summary of a group from its GPUs.
func (f *Fleet) sum(gi int32) {
	g := &f.Groups[gi]
	g.Mem, g.Milli, g.Free, g.Empty = -1, -1, false, 0
	for _, i := range g.Cards {
		u := &f.Cards[i].Use
		if u.Idle() {
			g.Empty++
		}
		if u.FreeShares() > 0 && u.Shares < f.MaxShares {
			g.Free = true
			g.Mem, g.Milli = max(g.Mem, u.FreeMiB()), max(g.Milli, u.FreeMilli())
		}
	}
}

// Reset resets a mirror to the ledger with nothing reserved or running. It reports
// false if nodes or GPUs were added, removed or changed.
func (f *Fleet) Reset(led *dispatch.Ledger) bool {
	for _, n := range f.idle {
		if u, ok := led.Node(n.ID); ok && n.Schedulable() && u.Schedulable {
			return false
		}
	}
	for hi := range f.Hosts {
		h := &f.Hosts[hi]
		u, ok := led.Node(h.Node.ID)
		if !ok || !u.Schedulable || u.CPUMilli != h.Use.CPUMilli || u.MemMiB != h.Use.MemMiB {
			return false
		}
		h.Use.UsedCPU, h.Use.UsedMem = u.UsedCPU, u.UsedMem
		h.Runs, h.KeptCPU, h.KeptMem, h.Until, h.Foreign = h.Runs[:0], 0, 0, rules.Forever, false
	}
	f.Led, f.Changed = led, nil
	for i := range f.Cards {
		c := &f.Cards[i]
		u, ok := led.GPUAt(c.at)
		if !ok || u.ID != c.Use.ID || u.Node != c.Use.Node || u.Type != c.Use.Type || u.SellableMiB != c.Use.SellableMiB || u.MaxShares != c.Use.MaxShares || u.Shareable != c.Use.Shareable || u.Scope != c.Use.Scope || u.Closed != c.Use.Closed {
			return false
		}
		c.take(u)
		c.On, c.Until = c.On[:0], rules.Forever
	}
	return true
}

// take copies what is allocated of a GPU.
func (c *Card) take(u *dispatch.GPUUse) {
	c.Use.UsedMiB, c.Use.UsedMilli, c.Use.Shares, c.Use.Exclusive = u.UsedMiB, u.UsedMilli, u.Shares, u.Exclusive
}

// AfterKept returns when a place that is clear at when is a job's: not before the
// first that an earlier pass reserved it for, unless the job is gone by then.
func (h *Host) AfterKept(when, dur int64) int64 {
	if h.Foreign && when < h.Until && dur > h.Until-when {
		return h.Until
	}
	return when
}
