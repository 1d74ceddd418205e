package fleet

import (
	"fmt"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// drawNodes draws nodes that differ in all that makes classes: type, what a card
// sells, whether it is shared; some drained, silent, without GPUs, with closed
// cards or cards that sell nothing, and with several NUMA groups.
func drawNodes(t *rapid.T, most int) []*cluster.Node {
	var nodes []*cluster.Node
	for i := range rapid.IntRange(1, most).Draw(t, "nodes") {
		count := rapid.IntRange(0, 6).Draw(t, "cards")
		n := schedtest.Node(cluster.NodeID(fmt.Sprintf("n%d", i)), count, rapid.SampledFrom([]string{"A", "B"}).Draw(t, "type"),
			schedtest.Host(rapid.Int64Range(0, 24).Draw(t, "cores"), rapid.Int64Range(0, 24).Draw(t, "host memory")))
		groups := rapid.IntRange(1, 3).Draw(t, "NUMA groups")
		for k := range n.GPUs {
			g := &n.GPUs[k]
			g.NUMA = rapid.IntRange(0, groups-1).Draw(t, "NUMA")
			g.SellableMiB, g.MaxShares = 100, 3
			switch rapid.IntRange(0, 11).Draw(t, "kind") {
			case 0:
				g.SellableMiB = 80
			case 1:
				g.MaxShares = 1
			case 2:
				g.State = cluster.GPULost
			case 3:
				g.SellableMiB = 0
			case 4:
				n.Orders = append(n.Orders, cluster.GPUOrder{GPU: g.ID, Drain: true})
			case 5:
				g.CapMode = "none"
			}
		}
		switch rapid.IntRange(0, 9).Draw(t, "state") {
		case 0:
			schedtest.Drained(n)
		case 1:
			schedtest.Silent(n)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func drawPolicy(t *rapid.T) rules.Policy {
	pol := rules.Default()
	pol.MaxShares = rapid.IntRange(0, 4).Draw(t, "shares a card")
	pol.KeepCPUMilli = rapid.Int64Range(0, 3).Draw(t, "cores kept")
	pol.KeepMemMiB = rapid.Int64Range(0, 3).Draw(t, "memory kept")
	return pol
}

// drawBerth draws what a job might take of a node whose every card has room for
// its share, nil where the ledger says that it does not fit.
func drawBerth(t *rapid.T, led *dispatch.Ledger, n *cluster.Node) *cluster.Berth {
	b := &cluster.Berth{Node: n.ID, CPUMilli: rapid.Int64Range(0, 4).Draw(t, "takes cores"), MemMiB: rapid.Int64Range(0, 4).Draw(t, "takes memory")}
	alone := rapid.IntRange(0, 3).Draw(t, "alone") == 0
	for k := range n.GPUs {
		g := &n.GPUs[k]
		if rapid.IntRange(0, 2).Draw(t, "on it") > 0 {
			continue
		}
		share := cluster.Share{MemMiB: rapid.Int64Range(1, 60).Draw(t, "MiB"), Milli: rapid.Int64Range(1, 600).Draw(t, "milli")}
		if alone {
			share = cluster.Share{MemMiB: g.SellableMiB, Milli: cluster.WholeGPU, Exclusive: true}
		}
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: g.ID, Share: share})
	}
	if led.Fits(b).Code != "" {
		return nil
	}
	return b
}

// kind is a class by name, and card what it has of one.
type kind struct {
	gpuType  string
	sellable int64
	shared   bool
}

// naive recounts everything from nodes and ledger, and remembers nothing but
// what the passes took since it was made, which stays kept for idle cards.
type naive struct {
	nodes []*cluster.Node
	led   *dispatch.Ledger
	pol   *rules.Policy
	keeps map[cluster.NodeID][2]int64 // cores and memory that idle cards keep
}

func newNaive(nodes []*cluster.Node, led *dispatch.Ledger, pol *rules.Policy) *naive {
	m := &naive{nodes: nodes, led: led, pol: pol, keeps: map[cluster.NodeID][2]int64{}}
	for _, n := range nodes {
		m.settle(n)
	}
	return m
}

// settle counts anew what the idle cards of a node keep.
func (m *naive) settle(n *cluster.Node) {
	idle := int64(0)
	for k := range n.GPUs {
		if u := m.use(n, k); u.Shares == 0 && !u.Closed {
			idle++
		}
	}
	cpu, mem := m.least(n)
	m.keeps[n.ID] = [2]int64{idle * cpu, idle * mem}
}

func (m *naive) use(n *cluster.Node, k int) dispatch.GPUUse {
	u, _ := m.led.GPU(n.GPUs[k].ID)
	return u
}

// least is what one idle card of a node keeps: what the policy says, at most its
// part of the node.
func (m *naive) least(n *cluster.Node) (cpu, mem int64) {
	if len(n.GPUs) == 0 {
		return 0, 0
	}
	cpu, mem = n.CPUMilli/int64(len(n.GPUs)), n.MemMiB/int64(len(n.GPUs))
	if m.pol.KeepCPUMilli < cpu {
		cpu = m.pol.KeepCPUMilli
	}
	if m.pol.KeepMemMiB < mem {
		mem = m.pol.KeepMemMiB
	}
	return cpu, mem
}

// most is the most that a newcomer may ask for which takes so many idle cards: the
// greatest amount within what is free that is within the part of its cards, or
// leaves the idle cards that it does not take what they keep.
func (m *naive) most(n *cluster.Node, free, capacity, keeps, least, takes int64) int64 {
	if len(n.GPUs) == 0 || m.pol.KeepCPUMilli == 0 && m.pol.KeepMemMiB == 0 {
		return free
	}
	part := capacity / int64(len(n.GPUs))
	cards := takes
	if cards == 0 {
		cards = 1
	}
	for ask := free; ask >= 0; ask-- {
		if ask <= part*cards || free-ask >= keeps-least*takes {
			return ask
		}
	}
	return 0
}

func (m *naive) room(n *cluster.Node, k int) Room {
	u := m.use(n, k)
	node, _ := m.led.Node(n.ID)
	most := max(1, m.pol.MaxShares)
	slots := min(int64(u.FreeShares()), int64(most-u.Shares)) // below 0 with more on it than the policy allows now
	takes := int64(0)
	if u.Shares == 0 {
		takes = 1
	}
	cpu, mem := m.least(n)
	keeps := m.keeps[n.ID]
	return Room{
		Mem: u.FreeMiB(), Milli: u.FreeMilli(), Slots: slots,
		CPU:  m.most(n, node.CPUMilli-node.UsedCPU, n.CPUMilli, keeps[0], cpu, takes),
		Host: m.most(n, node.MemMiB-node.UsedMem, n.MemMiB, keeps[1], mem, takes), Until: rules.Forever,
	}
}

// kinds are the cards that may be given away, by class.
func (m *naive) kinds() map[kind][]cluster.GPUID {
	out := map[kind][]cluster.GPUID{}
	for _, n := range m.nodes {
		if n.State != cluster.NodeReady || n.Drain {
			continue
		}
		for k := range n.GPUs {
			g := &n.GPUs[k]
			if u := m.use(n, k); !u.Closed && g.SellableMiB > 0 {
				c := kind{g.Type, g.SellableMiB, g.CapMode != "none" && g.MaxShares > 1}
				out[c] = append(out[c], g.ID)
			}
		}
	}
	return out
}

// took notes a start: idle cards keep no more what those kept that it took, as far
// as the job needs it itself.
func (m *naive) took(n *cluster.Node, b *cluster.Berth, cards int64) {
	cpu, mem := m.least(n)
	keeps := m.keeps[n.ID]
	for i, x := range []struct{ asks, least int64 }{{b.CPUMilli, cpu}, {b.MemMiB, mem}} {
		frees := x.least * cards
		if x.asks < frees {
			frees = x.asks
		}
		if keeps[i] < frees {
			frees = keeps[i]
		}
		keeps[i] -= frees
	}
	m.keeps[n.ID] = keeps
}

// idleOf is how many idle cards a berth takes.
func (m *naive) idleOf(b *cluster.Berth) (takes int) {
	for _, g := range b.GPUs {
		if u, _ := m.led.GPU(g.GPU); u.Shares == 0 {
			takes++
		}
	}
	return takes
}

// check compares the indexes of a fleet with a recount.
func (m *naive) check(t *rapid.T, f *Fleet) {
	kinds := m.kinds()
	if len(kinds) != len(f.Classes) {
		t.Fatalf("%d classes, a count by hand finds %d", len(f.Classes), len(kinds))
	}
	where := map[cluster.GPUID]struct{ node, card int }{}
	for i, n := range m.nodes {
		for k := range n.GPUs {
			where[n.GPUs[k].ID] = struct{ node, card int }{i, k}
		}
	}
	for ci := range f.Classes {
		k := &f.Classes[ci]
		want := kinds[kind{k.GPUType, k.Sellable, k.Shareable}]
		if ci > 0 && f.Classes[ci-1].Compare(&k.ClassKey) >= 0 {
			t.Fatalf("class %d is out of order", ci)
		}
		if len(want) != len(k.Cards) {
			t.Fatalf("class %+v has %d cards, want %d", k.ClassKey, len(k.Cards), len(want))
		}
		empties, idle := map[cluster.NodeID]int{}, int64(0)
		for place, c := range k.Cards {
			card := &f.Cards[c]
			if card.GPU.ID != want[place] || int(card.Class) != ci || int(card.Place) != place {
				t.Fatalf("class %d, place %d: card %s of class %d, place %d, want %s", ci, place, card.GPU.ID, card.Class, card.Place, want[place])
			}
			at := where[card.GPU.ID]
			n, room := m.nodes[at.node], m.room(m.nodes[at.node], at.card)
			used, empty := Nowhere(), room
			if m.use(n, at.card).Shares > 0 {
				used, empty = room, Nowhere()
			} else {
				empties[n.ID]++
				idle++
			}
			if got := *k.Used.Leaf(place); got != used {
				t.Fatalf("%s as a used card has %+v, want %+v", card.GPU.ID, got, used)
			}
			if got := *k.Empty.Leaf(place); got != empty {
				t.Fatalf("%s as an empty card has %+v, want %+v", card.GPU.ID, got, empty)
			}
		}
		if k.Idle() != idle {
			t.Fatalf("class %d: %d empty cards, want %d", ci, k.Idle(), idle)
		}
		m.checkGroups(t, f, k, empties)
	}
	m.checkHosts(t, f)
}

// checkGroups: each node with cards of a class is one group, found by its name and
// in the set of those with as many empty cards.
func (m *naive) checkGroups(t *rapid.T, f *Fleet, k *Class, empties map[cluster.NodeID]int) {
	largest, parted, groups := 0, false, 0
	for _, n := range m.nodes {
		numa, cards := map[int]int{}, 0
		for _, c := range k.Cards {
			if f.Hosts[f.Cards[c].Host].Node.ID == n.ID {
				numa[f.Cards[c].GPU.NUMA]++
				largest = max(largest, numa[f.Cards[c].GPU.NUMA])
				cards++
			}
		}
		parted = parted || len(numa) > 1
		g := f.GroupOn(n.ID, k)
		if (g != nil) != (cards > 0) {
			t.Fatalf("node %s has %d cards of class %+v and the group %v", n.ID, cards, k.ClassKey, g)
		}
		if g == nil {
			continue
		}
		if int(g.Hi-g.Lo) != cards || int(g.Empty) != empties[n.ID] {
			t.Fatalf("node %s: %d cards, %d empty; want %d, %d", n.ID, g.Hi-g.Lo, g.Empty, cards, empties[n.ID])
		}
		for free := range k.Free {
			if in := k.Free[free].Next(groups) == groups; in != (free == empties[n.ID]) {
				t.Fatalf("node %s with %d empty cards: among those with %d: %t", n.ID, empties[n.ID], free, in)
			}
		}
		groups++
	}
	if groups != len(k.Groups) || parted != k.Parted || largest != k.Largest {
		t.Fatalf("class %+v: %d groups, parted %t, at most %d in one NUMA group; want %d, %t, %d", k.ClassKey, len(k.Groups), k.Parted, k.Largest, groups, parted, largest)
	}
}

// checkHosts: the tree of nodes for jobs without GPUs, and whether nobody is there.
func (m *naive) checkHosts(t *rapid.T, f *Fleet) {
	for _, n := range m.nodes {
		h := &f.Hosts[f.HostAt[n.ID]]
		u, _ := m.led.Node(n.ID)
		nobody := u.UsedCPU == 0 && u.UsedMem == 0
		for k := range n.GPUs {
			nobody = nobody && m.use(n, k).Shares == 0
		}
		if f.IsEmpty(h) != nobody {
			t.Fatalf("node %s is empty: %t, want %t", n.ID, f.IsEmpty(h), nobody)
		}
		open := n.State == cluster.NodeReady && !n.Drain
		if (h.Place >= 0) != open {
			t.Fatalf("node %s takes jobs: %t, and has the place %d", n.ID, open, h.Place)
		}
		if !open {
			continue
		}
		want := Room{CPU: u.CPUMilli - u.UsedCPU, Host: u.MemMiB - u.UsedMem, Until: rules.Forever}
		if got := *f.Plain.Leaf(int(h.Place)); got != want {
			t.Fatalf("node %s has %+v for jobs without GPUs, want %+v", n.ID, got, want)
		}
	}
}

// TestIndexesAsRecounted: whatever starts and ends, classes, groups and both trees
// of each class say what a recount of nodes and ledger says. No start updates
// more than its node, and with plenty there nothing but its own cards.
func TestIndexesAsRecounted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, pol := drawNodes(t, 5), drawPolicy(t)
		led := dispatch.NewLedger(nodes)
		for range rapid.IntRange(0, 4).Draw(t, "lie there before") {
			if b := drawBerth(t, led, rapid.SampledFrom(nodes).Draw(t, "node")); b != nil {
				led.Take(b)
			}
		}
		given := slices.Clone(nodes)
		if rapid.Bool().Draw(t, "out of order") {
			slices.Reverse(given)
		}
		f := New(given, led, nil, &pol, nil)
		m := newNaive(nodes, led, &pol)
		m.check(t, f)
		var on []*cluster.Berth
		for range rapid.IntRange(0, 8).Draw(t, "steps") {
			if len(on) > 0 && rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
				b := on[len(on)-1]
				on = on[:len(on)-1]
				led.Release(b)
				h := &f.Hosts[f.HostAt[b.Node]]
				f.Refresh(f.HostAt[b.Node])
				f.KeepIdle(h)
				f.Keeps(f.HostAt[b.Node], nil)
				m.settle(h.Node)
				m.check(t, f)
				continue
			}
			n := rapid.SampledFrom(nodes).Draw(t, "node")
			b := drawBerth(t, led, n)
			if b == nil {
				continue
			}
			takes, at := m.idleOf(b), f.HostAt[n.ID]
			f.Hosts[at].Occupy(b.CPUMilli, b.MemMiB, takes)
			m.took(n, b, int64(takes))
			led.Take(b)
			f.Took(at, b.GPUs)
			m.check(t, f)
			on = append(on, b)
		}
	})
}

// TestWhatMattersToThoseWhoWait: where the most that anybody asks of a node is known,
// a leaf that was left as it was lies to none of them: it holds each demand up to
// that exactly when a recount does.
func TestWhatMattersToThoseWhoWait(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, pol := drawNodes(t, 2), drawPolicy(t)
		led := dispatch.NewLedger(nodes)
		f := New(nodes, led, nil, &pol, nil)
		m := newNaive(nodes, led, &pol)
		cpu, mem := rapid.Int64Range(0, 6).Draw(t, "most cores asked"), rapid.Int64Range(0, 6).Draw(t, "most memory asked")
		f.Asks(cpu, mem)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			n := rapid.SampledFrom(nodes).Draw(t, "node")
			b := drawBerth(t, led, n)
			if b == nil {
				continue
			}
			takes := m.idleOf(b)
			f.Hosts[f.HostAt[n.ID]].Occupy(b.CPUMilli, b.MemMiB, takes)
			m.took(n, b, int64(takes))
			led.Take(b)
			f.Took(f.HostAt[n.ID], b.GPUs)
			for _, n := range nodes {
				for k := range n.GPUs {
					c := &f.Cards[f.CardAt[n.GPUs[k].ID]]
					if c.Class < 0 {
						continue
					}
					leaf, room := f.Classes[c.Class].whichOf(c).Leaf(int(c.Place)), m.room(n, k)
					for asks := range cpu + 1 {
						for needs := range mem + 1 {
							if got, want := leaf.CPU >= asks && leaf.Host >= needs, room.CPU >= asks && room.Host >= needs; got != want {
								t.Fatalf("card %s holds %d cores and %d MiB: %t, want %t (%+v, %+v)", n.GPUs[k].ID, asks, needs, got, want, leaf, room)
							}
						}
					}
				}
			}
		}
	})
}

// TestNodesInOrderForPlainJobs: those without GPUs first, then those of whose GPUs the
// least is idle, of these the fullest, then by name.
func TestNodesInOrderForPlainJobs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, pol := drawNodes(t, 6), drawPolicy(t)
		led := dispatch.NewLedger(nodes)
		for range rapid.IntRange(0, 8).Draw(t, "lie there") {
			if b := drawBerth(t, led, rapid.SampledFrom(nodes).Draw(t, "node")); b != nil {
				led.Take(b)
			}
		}
		f, m := New(nodes, led, nil, &pol, nil), newNaive(nodes, led, &pol)
		given := map[cluster.GPUID]bool{}
		for _, ids := range m.kinds() {
			for _, id := range ids {
				given[id] = true
			}
		}
		type key struct{ gpus, idle, used, at int64 }
		var keys []key
		for at, n := range nodes {
			if n.State != cluster.NodeReady || n.Drain {
				continue
			}
			k := key{at: int64(at), gpus: 1}
			if len(n.GPUs) == 0 {
				k.gpus = 0
			}
			for i := range n.GPUs {
				if u := m.use(n, i); given[u.ID] {
					mem, milli := u.FreeMiB()*1000/n.GPUs[i].SellableMiB, u.FreeMilli()
					k.idle += max(mem, milli)
				}
			}
			u, _ := led.Node(n.ID)
			for _, x := range [][2]int64{{u.UsedCPU, u.CPUMilli}, {u.UsedMem, u.MemMiB}} {
				part := int64(1000)
				if x[1] > 0 {
					part = x[0] * 1000 / x[1]
				}
				k.used = max(k.used, part)
			}
			keys = append(keys, k)
		}
		sort.SliceStable(keys, func(a, b int) bool {
			x, y := keys[a], keys[b]
			if x.gpus != y.gpus {
				return x.gpus < y.gpus
			}
			if x.idle != y.idle {
				return x.idle < y.idle
			}
			return x.used > y.used
		})
		if len(keys) != len(f.Order) {
			t.Fatalf("%d nodes in order, want %d", len(f.Order), len(keys))
		}
		for i, k := range keys {
			if int64(f.Order[i]) != k.at {
				t.Fatalf("place %d: node %d, want %d (%+v)", i, f.Order[i], k.at, keys)
			}
		}
	})
}
