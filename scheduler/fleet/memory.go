package fleet

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Memory is what a fleet leaves to the next one, which is mostly of the same nodes.
type Memory struct {
	hosts   []Host
	cards   []Card
	classes []Class
	order   []int32
	plain   *Tree
	hostAt  places[cluster.NodeID]
	cardAt  places[cluster.GPUID]
}

// places maps ids to where they are in a list. It is made anew once an id is elsewhere.
type places[ID comparable] struct {
	most int // there are
	ids  []ID
	at   map[ID]int32
}

// put records that an id is at i, as all before it are recorded.
func (p *places[ID]) put(id ID, i int) {
	if i < len(p.ids) && p.ids[i] == id {
		return
	}
	p.cut(i)
	p.ids = append(p.ids, id)
	p.at[id] = int32(i)
}

// end returns where the n ids are.
func (p *places[ID]) end(n int) map[ID]int32 {
	p.cut(n)
	return p.at
}

// cut forgets all ids but the first n.
func (p *places[ID]) cut(n int) {
	if n == len(p.ids) && p.at != nil {
		return
	}
	p.ids, p.at = p.ids[:n], make(map[ID]int32, p.most)
	for i, id := range p.ids {
		p.at[id] = int32(i)
	}
}

// New is like the function New. It ends the fleet that was made on this memory before.
func (m *Memory) New(nodes []*cluster.Node, led *dispatch.Ledger, queues map[cluster.GPUID][]dispatch.Waiter, pol *rules.Policy, parts *Realms) *Fleet {
	f := &Fleet{Led: led, Pol: pol, realms: parts, asksCPU: rules.Forever, asksMem: rules.Forever}
	if !slices.IsSortedFunc(nodes, rules.ByNode) {
		nodes = slices.Clone(nodes)
		slices.SortFunc(nodes, rules.ByNode)
	}
	total := 0
	for _, n := range nodes {
		total += len(n.GPUs)
	}
	m.hostAt.most, m.cardAt.most = len(nodes), total
	f.Hosts = slices.Grow(m.hosts[:0], len(nodes))
	f.Cards = slices.Grow(m.cards[:0], total)
	for _, n := range nodes {
		f.addHost(m, n, queues)
	}
	f.HostAt, f.CardAt = m.hostAt.end(len(f.Hosts)), m.cardAt.end(len(f.Cards))
	f.classify(m.classes)
	f.Order, f.Plain = m.order[:0], m.plain
	f.indexHosts()
	m.hosts, m.cards, m.classes, m.order, m.plain = f.Hosts, f.Cards, f.Classes, f.Order, f.Plain
	return f
}

// takeOver gives a class the lists and trees of an old one.
func (k *Class) takeOver(old *Class) {
	k.Cards, k.Groups, k.Free = old.Cards[:0], old.Groups[:0], old.Free
	k.Used, k.Empty, k.loads = old.Used, old.Empty, cmp.Or(old.Loads, old.loads)
}
