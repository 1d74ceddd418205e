package mirror

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

var _ = draws.Fixed()

func drawNodes(t *rapid.T) (nodes []*cluster.Node) {
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := schedtest.Node(cluster.NodeID(fmt.Sprint("n", i)), rapid.IntRange(0, 4).Draw(t, "cards"), "A", schedtest.Host(rapid.Int64Range(4, 16).Draw(t, "cores"), rapid.Int64Range(4, 16).Draw(t, "memory")))
		for k := range n.GPUs {
			g := &n.GPUs[k]
			g.SellableMiB = 100
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0:
				g.Type = "B"
			case 1:
				g.Scope = rapid.SampledFrom([]cluster.Scope{cluster.ScopeSameGroup, cluster.ScopeSameUser}).Draw(t, "scope")
			case 2:
				g.State = cluster.GPULost
			case 3:
				g.CapMode = "none"
			case 4:
				g.SellableMiB = 0
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "drained") == 0 {
			schedtest.Drained(n)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// drawRun draws what a job might take of some cards of one group.
func drawRun(t *rapid.T, f *Fleet, id cluster.JobID) (r Run, ok bool) {
	if len(f.Groups) == 0 {
		return r, false
	}
	g := &f.Groups[rapid.IntRange(0, len(f.Groups)-1).Draw(t, "group")]
	b := &cluster.Berth{Node: f.Hosts[g.Host].Node.ID, CPUMilli: rapid.Int64Range(0, 3).Draw(t, "cores"), MemMiB: rapid.Int64Range(0, 3).Draw(t, "memory")}
	alone := rapid.IntRange(0, 3).Draw(t, "alone") == 0
	for _, ci := range g.Cards {
		if rapid.Bool().Draw(t, "on it") {
			s := cluster.Share{MemMiB: rapid.Int64Range(1, 50).Draw(t, "MiB"), Milli: rapid.Int64Range(1, 500).Draw(t, "milli")}
			if alone {
				s = cluster.Share{MemMiB: 100, Milli: 1000, Exclusive: true}
			}
			b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: f.Cards[ci].Use.ID, Share: s})
		}
	}
	return Run{Job: schedtest.Job(id), Berth: b, Latest: rapid.Int64Range(1, 9).Draw(t, "latest")}, true
}

// check compares a mirror with nodes and the berths that are said to lie there.
func check(t *rapid.T, f *Fleet, nodes []*cluster.Node, lie map[int32]*cluster.Berth, summed bool) {
	led := dispatch.NewLedger(nodes)
	for _, b := range lie {
		led.Take(b)
	}
	hosts := 0
	for _, n := range nodes {
		hi, in := f.HostAt[n.ID]
		if in == n.Drain {
			t.Fatalf("node %s, drained %t, has a mirror: %t", n.ID, n.Drain, in)
		}
		if !in {
			continue
		}
		hosts++
		u, _ := led.Node(n.ID)
		if f.Hosts[hi].Use != u {
			t.Fatalf("node %s: %+v, want %+v", n.ID, f.Hosts[hi].Use, u)
		}
		runs := 0
		for ri, b := range lie {
			if b.Node == n.ID {
				runs++
			}
			if slices.Contains(f.Hosts[hi].Runs, ri) != (b.Node == n.ID) {
				t.Fatalf("node %s has run %d on %s among %v", n.ID, ri, b.Node, f.Hosts[hi].Runs)
			}
		}
		if runs != len(f.Hosts[hi].Runs) {
			t.Fatalf("node %s has the runs %v, want %d", n.ID, f.Hosts[hi].Runs, runs)
		}
		for k := range n.GPUs {
			ci, in := f.CardAt[n.GPUs[k].ID]
			if in != (n.GPUs[k].SellableMiB > 0) {
				t.Fatalf("card %s, which sells %d, has a mirror: %t", n.GPUs[k].ID, n.GPUs[k].SellableMiB, in)
			}
			if !in {
				continue
			}
			c := &f.Cards[ci]
			use, _ := led.GPU(n.GPUs[k].ID)
			if c.Use != use {
				t.Fatalf("card %s: %+v, want %+v", use.ID, c.Use, use)
			}
			on := map[int32]cluster.Share{}
			for ri, b := range lie {
				for _, g := range b.GPUs {
					if g.GPU == use.ID {
						on[ri] = g.Share
					}
				}
			}
			got := map[int32]cluster.Share{}
			for _, o := range c.On {
				got[o.Run] = o.Share
			}
			if fmt.Sprint(got) != fmt.Sprint(on) || len(c.On) != len(on) {
				t.Fatalf("card %s: on it %v, want %v", use.ID, c.On, on)
			}
		}
	}
	if hosts != len(f.Hosts) {
		t.Fatalf("%d hosts, want %d", len(f.Hosts), hosts)
	}
	if summed {
		checkSums(t, f)
	}
}

// checkSums: what a group says of its cards, and a class of its groups.
func checkSums(t *rapid.T, f *Fleet) {
	for gi := range f.Groups {
		g := &f.Groups[gi]
		mem, milli, free, empty := int64(-1), int64(-1), false, 0
		for _, ci := range g.Cards {
			u := f.Cards[ci].Use
			if int(f.Cards[ci].Group) != gi {
				t.Fatalf("card %s is of group %d, and in %d", u.ID, f.Cards[ci].Group, gi)
			}
			if u.Shares == 0 && !u.Closed {
				empty++
			}
			if u.FreeShares() > 0 && u.Shares < f.MaxShares {
				mem, milli, free = max(mem, u.FreeMiB()), max(milli, u.FreeMilli()), true
			}
		}
		if g.Mem != mem || g.Milli != milli || g.Free != free || g.Empty != empty {
			t.Fatalf("group %d: %+v, want %d MiB, %d, %t, %d empty", gi, g, mem, milli, free, empty)
		}
		if most := f.Classes[g.Class].Most; most.Empty < empty {
			t.Fatalf("class %d has at most %d empty cards on a node, one has %d", g.Class, most.Empty, empty)
		}
	}
}

// TestMirrorAsTheLedger: whatever starts and is removed, hosts, cards, groups and who
// lies where are as a ledger made anew says; what is tried on a group is undone; and
// a mirror that is reset is as one made anew.
func TestMirrorAsTheLedger(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		led := dispatch.NewLedger(nodes)
		f := New(nodes, led, rapid.IntRange(1, 3).Draw(t, "shares"))
		f.SumAll()
		lie := map[int32]*cluster.Berth{}
		check(t, f, nodes, lie, true)
		for id := range cluster.JobID(rapid.IntRange(0, 8).Draw(t, "steps")) {
			r, ok := drawRun(t, f, id+1)
			if !ok {
				return
			}
			fits := led.Fits(r.Berth).Code == ""
			if why := f.Start(r); (why.Code == "") != fits {
				t.Fatalf("started: %v, the ledger lets it: %t", why, fits)
			}
			if fits {
				lie[int32(len(f.Runs)-1)] = r.Berth
				check(t, f, nodes, lie, true)
			}
			if gi := rapid.IntRange(0, len(f.Groups)-1).Draw(t, "tried"); len(lie) > 0 {
				h := &f.Hosts[f.Groups[gi].Host]
				for _, ci := range f.Groups[gi].Cards {
					f.Cards[ci].Until = 5
				}
				undo := f.Remember(int32(gi))
				for _, ri := range h.Runs {
					f.Lift(int32(gi), ri)
				}
				if h.Use.UsedCPU != 0 || h.Use.UsedMem != 0 {
					t.Fatalf("node %s is empty and has %+v taken", h.Node.ID, h.Use)
				}
				for _, ci := range f.Groups[gi].Cards {
					if c := &f.Cards[ci]; c.Use.Shares != 0 || c.Use.UsedMiB != 0 || c.Use.UsedMilli != 0 || c.Use.Exclusive || len(c.On) != 0 || c.Until != rules.Forever {
						t.Fatalf("card %s with nobody on it: %+v", c.Use.ID, c)
					}
				}
				undo()
				for _, ci := range f.Groups[gi].Cards {
					if f.Cards[ci].Until != 5 {
						t.Fatalf("what was kept of %s is forgotten", f.Cards[ci].Use.ID)
					}
				}
				check(t, f, nodes, lie, true)
			}
		}
		for ri, b := range lie { // for good
			f.Remove(ri)
			delete(lie, ri)
			check(t, f, nodes, lie, false)
			led.Release(b)
		}
		if len(f.Hosts) == 0 {
			return
		}
		f.Hosts[0].KeptCPU, f.Hosts[0].Foreign, f.Hosts[0].Until = 3, true, 7
		if !f.Reset(led) {
			t.Fatal("nothing came or went, and it cannot be reset")
		}
		f.SumAll()
		check(t, f, nodes, lie, true)
		for i := range f.Cards {
			if c := &f.Cards[i]; c.Until != rules.Forever {
				t.Fatalf("card %s is kept from %d on after a reset", c.Use.ID, c.Until)
			}
		}
		if h := &f.Hosts[0]; h.KeptCPU != 0 || h.Foreign || h.Until != rules.Forever || len(f.Changed) != 0 {
			t.Fatalf("after a reset %+v", h)
		}
	})
}

// TestClassesOfAMirror: cards that differ in type, what they sell, sharing or scope are
// of different classes, counted, in order; those that differ in scope alone are family.
func TestClassesOfAMirror(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		f := New(nodes, dispatch.NewLedger(nodes), 3)
		type kind struct {
			gpuType string
			shared  bool
			scope   cluster.Scope
		}
		count := map[kind]int{}
		for _, n := range nodes {
			for _, g := range n.GPUs {
				if !n.Drain && g.SellableMiB > 0 {
					count[kind{g.Type, g.Shareable(), g.Scope}]++
				}
			}
		}
		if len(count) != len(f.Classes) {
			t.Fatalf("%d classes, want %v", len(f.Classes), count)
		}
		for i := range f.Classes {
			k := &f.Classes[i]
			if n := count[kind{k.GPUType, k.Shareable, k.Scope}]; n != k.Count {
				t.Fatalf("%d cards of %+v, want %d", k.Count, k.ClassKey, n)
			}
			family := i
			for o := i; o >= 0; o-- {
				if f.Classes[o].ClassKey == k.ClassKey {
					family = o
				}
			}
			if int(k.Family) != family {
				t.Fatalf("class %d is of family %d, want %d", i, k.Family, family)
			}
		}
	})
}

// TestResetSeesWhatChanged: another account of a node or card, or a node that takes
// jobs again, asks for a mirror made anew.
func TestResetSeesWhatChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(a, b *cluster.Node){
		"nothing":           func(*cluster.Node, *cluster.Node) {},
		"cores":             func(a, _ *cluster.Node) { a.CPUMilli++ },
		"memory":            func(a, _ *cluster.Node) { a.MemMiB-- },
		"a drain":           func(a, _ *cluster.Node) { a.Drain = true },
		"a drain that ends": func(_, b *cluster.Node) { b.Drain = false },
		"what a card sells": func(a, _ *cluster.Node) { a.GPUs[1].SellableMiB-- },
		"its shares":        func(a, _ *cluster.Node) { a.GPUs[1].MaxShares-- },
		"its scope":         func(a, _ *cluster.Node) { a.GPUs[1].Scope = cluster.ScopeSameGroup },
		"its type":          func(a, _ *cluster.Node) { a.GPUs[1].Type = "B" },
		"its health":        func(a, _ *cluster.Node) { a.GPUs[1].State = cluster.GPULost },
		"its caps":          func(a, _ *cluster.Node) { a.GPUs[1].CapMode = "none" },
	} {
		a, b := schedtest.Node("a", 2, "A"), schedtest.Node("b", 2, "A", schedtest.Drained)
		led := dispatch.NewLedger([]*cluster.Node{a, b})
		f := New([]*cluster.Node{a, b}, led, 3)
		change(a, b)
		led = led.Clone()
		led.SetNode(a)
		led.SetNode(b)
		if got := f.Reset(led); got != (name == "nothing") {
			t.Errorf("%s: reset is %t", name, got)
		}
	}
}

// TestWhatIsKept: who ends by the time until which something is kept may have it, and
// a place that an earlier pass keeps is a job's only after that, unless it is gone by then.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	h := &Host{Use: dispatch.NodeUse{CPUMilli: 10, UsedCPU: 2, MemMiB: 20, UsedMem: 5}, KeptCPU: 3, KeptMem: 4, Until: 100}
	for end, want := range map[int64][2]int64{99: {8, 15}, 100: {8, 15}, 101: {5, 11}} {
		if cpu, mem := h.FreeCPU(end), h.FreeMem(end); cpu != want[0] || mem != want[1] {
			t.Errorf("until %d: %d cores, %d MiB, want %v", end, cpu, mem, want)
		}
	}
	for _, c := range []struct {
		foreign         bool
		when, dur, want int64
	}{{false, 50, 99, 50}, {true, 50, 50, 50}, {true, 50, 51, 100}, {true, 100, 9, 100}, {true, 120, 9, 120}, {true, 99, rules.Forever, 100}} {
		h.Foreign = c.foreign
		if got := h.AfterKept(c.when, c.dur); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestPartsOfAnAttempt: an attempt on several nodes is as many runs, which know each
// other and what they hold together.
func TestPartsOfAnAttempt(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{schedtest.Node("a", 2, "A"), schedtest.Node("b", 2, "A"), schedtest.Node("c", 2, "A", schedtest.Drained)}
	f := New(nodes, dispatch.NewLedger(nodes), 3)
	add := func(id cluster.JobID, latest int64, node cluster.NodeID, gpu int) {
		f.AddRun(Run{Job: schedtest.Job(id), Latest: latest, Berth: &cluster.Berth{Node: node, GPUs: []cluster.GPUShare{{GPU: schedtest.GPU(node, gpu)}}}})
	}
	add(7, 5, "a", 0)
	first := len(f.Runs)
	for _, n := range []cluster.NodeID{"a", "b", "c"} {
		add(8, 3, n, 1)
	}
	f.Number(first)
	add(6, 5, "a", 1)
	for ri, want := range [][2]int32{{0, 1}, {1, 4}, {1, 4}, {1, 4}, {4, 5}} {
		lo, hi := f.Siblings(int32(ri))
		if lo != want[0] || hi != want[1] || len(f.Held(int32(ri))) != int(hi-lo) {
			t.Errorf("run %d: %d to %d with %v, want %v", ri, lo, hi, f.Held(int32(ri)), want)
		}
	}
	if got := f.ByLatest(&f.Hosts[0]); !slices.Equal(got, []int32{1, 4, 0}) {
		t.Errorf("in order of their ends %v, want runs 1, 4, 0", got)
	}
	group := f.Cards[f.CardAt[schedtest.GPU("b", 1)]].Group
	for ri, want := range []bool{false, false, true, false, false} {
		if got := f.LiesIn(&f.Runs[ri], group); got != want {
			t.Errorf("run %d lies on node b: %t", ri, got)
		}
	}
	f.Remove(3) // of a node that has no mirror
}
