package dispatch

import (
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/berth-scheduler/berth/cluster"
)

// Ledger accounts for what is taken and free on every node and GPU. The scheduler
// works on a copy of the state machine's ledger, so that both agree exactly on what
// fits. It is not safe for concurrent use.
type Ledger struct {
	at    *ledgerIndex
	nodes accounts[NodeUse]
	gpus  accounts[GPUUse]
}

// ledgerIndex locates the accounts. Copies of a ledger share it; it is copied
// before a change.
type ledgerIndex struct {
	node   map[cluster.NodeID]int
	gpu    map[cluster.GPUID]int
	gpus   map[cluster.NodeID]int // number of GPU accounts of a node
	shared atomic.Bool
}

func newIndex(nodes, gpus int) *ledgerIndex {
	return &ledgerIndex{node: make(map[cluster.NodeID]int, nodes), gpu: make(map[cluster.GPUID]int, gpus), gpus: make(map[cluster.NodeID]int, nodes)}
}

// own returns the index for writing.
func (l *Ledger) own() *ledgerIndex {
	if l.at.shared.Load() {
		l.at = &ledgerIndex{node: maps.Clone(l.at.node), gpu: maps.Clone(l.at.gpu), gpus: maps.Clone(l.at.gpus)}
	}
	return l.at
}

// NodeUse is a node's capacity and what is taken of it.
type NodeUse struct {
	ID               cluster.NodeID
	CPUMilli, MemMiB int64 // capacity
	UsedCPU, UsedMem int64
	Schedulable      bool
}

// GPUUse is a GPU's capacity and what is taken of it.
type GPUUse struct {
	ID          cluster.GPUID
	Node        cluster.NodeID
	Type        string
	SellableMiB int64
	MaxShares   int
	Shareable   bool
	Scope       cluster.Scope
	Unshared    string // see GPU.Unshared
	UsedMiB     int64
	UsedMilli   int64
	Shares      int
	Exclusive   bool // one attempt holds the whole GPU
	// Closed GPUs keep what they hold and take nothing new: they are drained, or
	// not healthy.
	Closed bool
}

// Idle reports whether the GPU holds nothing and would accept a job.
func (g *GPUUse) Idle() bool { return g.Shares == 0 && !g.Closed }

// FreeMiB returns the unallocated memory, 0 under an exclusive share.
func (g *GPUUse) FreeMiB() int64 {
	if g.Exclusive {
		return 0
	}
	return max(0, g.SellableMiB-g.UsedMiB)
}

// FreeMilli returns the unallocated compute.
func (g *GPUUse) FreeMilli() int64 {
	if g.Exclusive {
		return 0
	}
	return max(0, cluster.WholeGPU-g.UsedMilli)
}

// FreeShares returns how many more attempts the GPU may hold.
func (g *GPUUse) FreeShares() int {
	switch {
	case g.Exclusive, g.Closed, g.MaxShares == 0: // MaxShares is 0 if the GPU is gone
		return 0
	case !g.Shareable:
		return max(0, 1-g.Shares)
	default:
		return max(0, g.MaxShares-g.Shares)
	}
}

// NewLedger returns a ledger of nodes with nothing taken.
func NewLedger(nodes []*cluster.Node) *Ledger {
	l := &Ledger{at: newIndex(0, 0)}
	for _, n := range nodes {
		l.SetNode(n)
	}
	return l
}

// Clone returns an independent copy. It costs a pointer per 16 nodes or GPUs, plus
// what is changed afterwards. It may be called concurrently.
func (l *Ledger) Clone() *Ledger {
	l.at.shared.Store(true)
	return &Ledger{at: l.at, nodes: l.nodes.clone(), gpus: l.gpus.clone()}
}

// SetNode adds n or adopts its new capacity; what is taken stays taken. A GPU that
// n no longer has keeps its account with no capacity until its last share is
// released, so that the accounts balance.
func (l *Ledger) SetNode(n *cluster.Node) {
	i, ok := l.at.node[n.ID]
	if !ok {
		i = l.nodes.n
		l.nodes.add(NodeUse{ID: n.ID})
		l.own().node[n.ID] = i
	}
	u := l.nodes.edit(i)
	u.CPUMilli, u.MemMiB, u.Schedulable = n.CPUMilli, n.MemMiB, n.Schedulable()
	l.forget(n)
	for k := range n.GPUs {
		l.setGPU(n, &n.GPUs[k])
	}
}

// forget zeroes the capacity of GPUs that n had and no longer has.
func (l *Ledger) forget(n *cluster.Node) {
	still := 0
	for k := range n.GPUs {
		if i, ok := l.at.gpu[n.GPUs[k].ID]; ok && l.gpus.at(i).Node == n.ID {
			still++
		}
	}
	if still == l.at.gpus[n.ID] {
		return
	}
	for k, u := range l.gpus.all() {
		if u.Node == n.ID && n.GPU(u.ID) == nil {
			g := l.gpus.edit(k)
			g.Type, g.SellableMiB, g.MaxShares, g.Shareable, g.Scope, g.Closed = "", 0, 0, false, cluster.ScopeAnyone, false
			g.Unshared = ""
		}
	}
	l.closeGone()
}

func (l *Ledger) setGPU(n *cluster.Node, c *cluster.GPU) {
	i, ok := l.at.gpu[c.ID]
	if !ok {
		i = l.open(n.ID, c.ID)
	}
	g := l.gpus.edit(i)
	if g.Node != n.ID {
		at := l.own()
		at.gpus[g.Node]--
		at.gpus[n.ID]++
	}
	g.Node, g.Type, g.SellableMiB = n.ID, c.Type, c.SellableMiB
	g.MaxShares, g.Shareable, g.Scope, g.Closed = max(1, c.MaxShares), c.Shareable(), c.Scope, !n.Open(c)
	g.Unshared = c.Unshared
}

// open opens an account with no capacity, and returns its index.
func (l *Ledger) open(node cluster.NodeID, gpu cluster.GPUID) int {
	i, at := l.gpus.n, l.own()
	l.gpus.add(GPUUse{ID: gpu, Node: node})
	at.gpu[gpu] = i
	at.gpus[node]++
	return i
}

// Node returns the account of a node; ok is false for an unknown one.
func (l *Ledger) Node(id cluster.NodeID) (u NodeUse, ok bool) {
	i, ok := l.at.node[id]
	if !ok {
		return NodeUse{}, false
	}
	return *l.nodes.at(i), true
}

// GPU returns the account of a GPU; ok is false for an unknown one.
func (l *Ledger) GPU(id cluster.GPUID) (u GPUUse, ok bool) {
	i, ok := l.at.gpu[id]
	if !ok {
		return GPUUse{}, false
	}
	return *l.gpus.at(i), true
}

// Place returns the index of a GPU's account, for GPUAt.
func (l *Ledger) Place(id cluster.GPUID) (at int, ok bool) {
	at, ok = l.at.gpu[id]
	return at, ok
}

// GPUAt returns the account at an index, which belongs to another GPU once nodes
// came or went; ok is false beyond the last. It is for reading, and valid until the
// ledger is changed.
func (l *Ledger) GPUAt(at int) (u *GPUUse, ok bool) {
	if at < 0 || at >= l.gpus.n {
		return nil, false
	}
	return l.gpus.at(at), true
}

// Fits reports whether b can be taken now: the zero Reason if it can, and otherwise
// the first shortage, in numbers.
func (l *Ledger) Fits(b *cluster.Berth) cluster.Reason {
	i, ok := l.at.node[b.Node]
	if !ok {
		return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: fmt.Sprintf("node %s is not registered", b.Node)}
	}
	n := l.nodes.at(i)
	if !n.Schedulable {
		return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: fmt.Sprintf("node %s is drained or silent", b.Node)}
	}
	if b.CPUMilli < 0 || b.MemMiB < 0 {
		return cluster.Reason{Code: cluster.ReasonStale, Detail: fmt.Sprintf("berth on node %s is malformed", n.ID)}
	}
	// Differences of stored amounts cannot overflow, sums with b's could.
	if b.CPUMilli > n.CPUMilli-n.UsedCPU {
		return cluster.Reason{Code: cluster.ReasonCPU, Detail: fmt.Sprintf("node %s: %s cores free, needs %s", n.ID, milli(n.CPUMilli-n.UsedCPU), milli(b.CPUMilli))}
	}
	if b.MemMiB > n.MemMiB-n.UsedMem {
		return cluster.Reason{Code: cluster.ReasonHostMem, Detail: fmt.Sprintf("node %s: %d MiB of host memory free, needs %d", n.ID, max(0, n.MemMiB-n.UsedMem), b.MemMiB)}
	}
	for k, gs := range b.GPUs {
		if k > 0 && b.GPUs[k-1].GPU >= gs.GPU {
			return cluster.Reason{Code: cluster.ReasonStale, Detail: fmt.Sprintf("GPUs of the berth are not sorted or repeat at %s", gs.GPU)}
		}
		if r := l.fitsGPU(b.Node, gs); r.Code != "" {
			return r
		}
	}
	return cluster.Reason{}
}

func (l *Ledger) fitsGPU(node cluster.NodeID, gs cluster.GPUShare) cluster.Reason {
	i, ok := l.at.gpu[gs.GPU]
	if !ok || l.gpus.at(i).Node != node {
		return cluster.Reason{Code: cluster.ReasonStale, Detail: fmt.Sprintf("node %s has no GPU %s", node, gs.GPU)}
	}
	g, s := l.gpus.at(i), gs.Share
	switch {
	case s.MemMiB < 0 || s.Milli < 0 || s.Milli > cluster.WholeGPU:
		return cluster.Reason{Code: cluster.ReasonStale, Detail: fmt.Sprintf("share of GPU %s is malformed", gs.GPU)}
	case g.Closed:
		return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: fmt.Sprintf("GPU %s is drained or not sound", gs.GPU)}
	case s.Exclusive && g.Shares > 0:
		return cluster.Reason{Code: cluster.ReasonExclusive, Detail: fmt.Sprintf("GPU %s: %d jobs on it, needs it alone", gs.GPU, g.Shares)}
	case g.FreeShares() < 1 && g.Unshared != "":
		return cluster.Reason{Code: cluster.ReasonSharing, Detail: fmt.Sprintf("GPU %s: %d jobs on it, and %s", gs.GPU, g.Shares, g.Unshared)}
	case g.FreeShares() < 1:
		return cluster.Reason{Code: cluster.ReasonGPUSlots, Detail: fmt.Sprintf("GPU %s: %d jobs on it, at most %d may share it", gs.GPU, g.Shares, max(1, g.MaxShares))}
	case s.MemMiB > g.FreeMiB():
		return cluster.Reason{Code: cluster.ReasonGPUMem, Detail: fmt.Sprintf("GPU %s: %d MiB free, needs %d", gs.GPU, g.FreeMiB(), s.MemMiB)}
	case s.Milli > g.FreeMilli():
		return cluster.Reason{Code: cluster.ReasonGPUCompute, Detail: fmt.Sprintf("GPU %s: %s of its compute free, needs %s", gs.GPU, percent(g.FreeMilli()), percent(s.Milli))}
	}
	return cluster.Reason{}
}

// Take adds b to what is taken. It does not check: callers call Fits first, and a
// restore takes what was committed whatever the capacity is now. It returns false,
// and takes nothing, if b names an unknown node or GPU.
func (l *Ledger) Take(b *cluster.Berth) bool { return l.add(b, 1) }

// Release gives b back. It returns false, and changes nothing, if b names an
// unknown node or GPU.
func (l *Ledger) Release(b *cluster.Berth) bool { return l.add(b, -1) }

// TakeStart takes all berths of a start. It returns false, and takes none, if one
// names an unknown node or GPU.
func (l *Ledger) TakeStart(st *Start) bool {
	for i, b := range st.Berths() {
		if l.Take(b) {
			continue
		}
		for k, o := range st.Berths() {
			if k < i {
				l.Release(o)
			}
		}
		return false
	}
	return true
}

// HeldMilli returns the total of GPUs that the shares take, in thousandths of whole
// ones. For a GPU unknown to the ledger only compute counts.
func (l *Ledger) HeldMilli(gpus []cluster.GPUShare) int64 {
	return cluster.HeldMilli(gpus, func(id cluster.GPUID) int64 {
		u, _ := l.GPU(id)
		return u.SellableMiB
	})
}

func (l *Ledger) add(b *cluster.Berth, sign int64) bool {
	i, ok := l.at.node[b.Node]
	if !ok {
		return false
	}
	for _, gs := range b.GPUs {
		if _, ok := l.at.gpu[gs.GPU]; !ok {
			return false
		}
	}
	n := l.nodes.edit(i)
	n.UsedCPU += sign * b.CPUMilli
	n.UsedMem += sign * b.MemMiB
	gone := false
	for _, gs := range b.GPUs {
		g := l.gpus.edit(l.at.gpu[gs.GPU])
		g.UsedMiB += sign * gs.Share.MemMiB
		g.UsedMilli += sign * gs.Share.Milli
		g.Shares += int(sign)
		if gs.Share.Exclusive {
			g.Exclusive = sign > 0
		}
		gone = gone || g.MaxShares == 0
	}
	if gone && sign < 0 {
		l.closeGone()
	}
	return true
}

// closeGone closes the accounts of GPUs that are gone and hold nothing, so that
// equal clusters have equal ledgers, whatever their histories.
func (l *Ledger) closeGone() {
	gone := func(g *GPUUse) bool { return g.MaxShares == 0 && g.Shares == 0 }
	for _, g := range l.gpus.all() {
		if gone(g) {
			l.keep(l.nodes, l.gpus.without(gone))
			return
		}
	}
}

// keep adopts accounts, and builds their index.
func (l *Ledger) keep(nodes accounts[NodeUse], gpus accounts[GPUUse]) {
	l.nodes, l.gpus, l.at = nodes, gpus, newIndex(nodes.n, gpus.n)
	for i, n := range nodes.all() {
		l.at.node[n.ID] = i
	}
	for i, g := range gpus.all() {
		l.at.gpu[g.ID] = i
		l.at.gpus[g.Node]++
	}
}

// Remember opens an account with no capacity for a GPU that node no longer reports,
// so that shares still held there can be taken again after a restore.
func (l *Ledger) Remember(node cluster.NodeID, gpu cluster.GPUID) {
	if _, ok := l.at.gpu[gpu]; !ok {
		l.open(node, gpu)
	}
}

// RemoveNode forgets a node and its GPUs. Nothing may be taken on it.
func (l *Ledger) RemoveNode(id cluster.NodeID) {
	if _, ok := l.at.node[id]; !ok {
		return
	}
	l.keep(l.nodes.without(func(n *NodeUse) bool { return n.ID == id }), l.gpus.without(func(g *GPUUse) bool { return g.Node == id }))
}

// Check returns an error that names the first account that is negative or
// over its capacity, or nil. The state machine's tests call it after every
// entry.
func (l *Ledger) Check() error {
	for _, n := range l.nodes.all() {
		if n.UsedCPU < 0 || n.UsedMem < 0 || n.UsedCPU > n.CPUMilli || n.UsedMem > n.MemMiB {
			return fmt.Errorf("node %s: taken %d/%d milli-cores, %d/%d MiB", n.ID, n.UsedCPU, n.CPUMilli, n.UsedMem, n.MemMiB)
		}
	}
	for _, g := range l.gpus.all() {
		switch {
		case g.UsedMiB < 0 || g.UsedMilli < 0 || g.Shares < 0,
			g.UsedMiB > g.SellableMiB || g.UsedMilli > cluster.WholeGPU,
			g.Shares > max(1, g.MaxShares), g.Exclusive && g.Shares != 1:
			return fmt.Errorf("GPU %s: taken %d/%d MiB, %d milli, %d/%d shares, exclusive %t",
				g.ID, g.UsedMiB, g.SellableMiB, g.UsedMilli, g.Shares, g.MaxShares, g.Exclusive)
		}
	}
	return nil
}

// Equal reports whether two ledgers hold the same accounts, in whatever order they
// were made.
func (l *Ledger) Equal(m *Ledger) bool {
	if l.nodes.n != m.nodes.n || l.gpus.n != m.gpus.n {
		return false
	}
	for _, n := range l.nodes.all() {
		if o, ok := m.Node(n.ID); !ok || o != *n {
			return false
		}
	}
	for _, g := range l.gpus.all() {
		if o, ok := m.GPU(g.ID); !ok || o != *g {
			return false
		}
	}
	return true
}

// milli formats thousandths as a decimal, "1.5" for 1500.
func milli(v int64) string {
	v = max(0, v)
	if v%1000 == 0 {
		return fmt.Sprint(v / 1000)
	}
	return fmt.Sprintf("%.1f", float64(v)/1000)
}

func percent(v int64) string { return fmt.Sprintf("%d %%", (v+5)/10) }
