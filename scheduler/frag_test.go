package scheduler_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/fragment"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// typicalOn learns what is typical on cards like g from all jobs of a world.
func typicalOn(s *dispatch.Snapshot, g *cluster.GPU, pol scheduler.Policy) fragment.Typical {
	var m fragment.Mix
	for _, jobs := range [][]*cluster.Job{s.Running, s.Waiting} {
		for _, j := range jobs {
			share, _, r := rules.ShareOn(j, g, pol)
			if j.Spec.GPUs == 0 || r.Code != "" {
				m.AddUnable(1)
				continue
			}
			m.Add(shapeOf(j, share, g, pol), 1)
		}
	}
	return m.Typical()
}

func shapeOf(j *cluster.Job, share cluster.Share, g *cluster.GPU, pol scheduler.Policy) fragment.Shape {
	out := fragment.Shape{
		GPUs: j.Spec.GPUs, Alone: share.Exclusive, Mem: 1000, Milli: 1000,
		CPUMilli: host(j.Spec.CPUMilli, pol.DefaultCPUMilli), HostMiB: host(j.Spec.MemMiB, pol.DefaultMemMiB),
	}
	if !share.Exclusive {
		out.Mem, out.Milli = min(1000, share.MemMiB*1000/g.SellableMiB), share.Milli
	}
	return out
}

// tight reports whether a typical job asks for more cores or memory than goes
// with its part of the cards of some node.
func tight(nodes []*cluster.Node, t *fragment.Typical) bool {
	for _, n := range nodes {
		for _, s := range t.Shapes() {
			cards := int64(s.GPUs) * max(1, s.Milli, s.Mem)
			if k := int64(len(n.GPUs)); k > 0 && (s.CPUMilli*1000/cards > n.CPUMilli/k || s.HostMiB*1000/cards > n.MemMiB/k) {
				return true
			}
		}
	}
	return false
}

// lostOn is the measure of Weng et al., section 4.2, of a node with one type
// of cards, times the total of t: for each typical job what is idle where it
// cannot use it.
func lostOn(led *dispatch.Ledger, n *cluster.Node, t *fragment.Typical, pol scheduler.Policy) int64 {
	u, _ := led.Node(n.ID)
	lost := int64(0)
	for k, s := range t.Shapes() {
		idle, good, fit := int64(0), int64(0), 0
		for i := range n.GPUs {
			g, _ := led.GPU(n.GPUs[i].ID)
			mem, free := g.FreeMiB()*1000/g.SellableMiB, max(g.FreeMilli(), g.FreeMiB()*1000/g.SellableMiB)
			idle += free
			takes := g.FreeShares() > 0 && g.Shares < pol.MaxShares
			if takes && (s.Alone && g.Shares == 0 || !s.Alone && mem >= s.Mem && g.FreeMilli() >= s.Milli) {
				fit++
				good += free
			}
		}
		if fit < s.GPUs || u.CPUMilli-u.UsedCPU < s.CPUMilli || u.MemMiB-u.UsedMem < s.HostMiB {
			good = 0
		}
		lost += t.Weight(k) * (idle - good)
	}
	return lost
}

// TestFragmentsLeast: of all cards of the chosen type that hold a share, it
// lies on one with the best score, and of these on one in use if there is any.
func TestFragmentsLeast(t *testing.T) {
	t.Parallel()
	scored := 0
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*cluster.Node
		for i := range rapid.IntRange(2, 6).Draw(t, "nodes") {
			nodes = append(nodes, Node(cluster.NodeID([]string{"n0", "n1", "n2", "n3", "n4", "n5"}[i]), rapid.IntRange(1, 4).Draw(t, "gpus"), a100,
				Host(rapid.Int64Range(2, 16).Draw(t, "cores")*1000, 64<<10)))
		}
		w, pol := NewWorld(nodes), scheduler.Default()
		pol.KeepCPUMilli, pol.KeepMemMiB = 1, 1 // no more than that rules are on
		for id := range cluster.JobID(rapid.IntRange(1, 14).Draw(t, "jobs")) {
			j := Job(id+1, Mem(rapid.Int64Range(1, 40000).Draw(t, "mem")), Util(rapid.Int64Range(1, 900).Draw(t, "milli")),
				Cores(rapid.Int64Range(1, 3).Draw(t, "cores")*1000), HostMem(1024), Lasts(time.Hour))
			w.Submit(j)
			s := w.Snapshot()
			typical := typicalOn(s, &nodes[0].GPUs[0], pol)
			p := scheduler.Schedule(s, pol)
			if len(p.Starts) == 1 && tight(nodes, &typical) {
				scored++
				leastOf(t, s, &p.Starts[0], j, &typical, pol)
			}
			w.Apply(&p)
		}
	})
	if scored < 100 {
		t.Errorf("only %d starts were scored", scored)
	}
}

// leastOf compares a start with all others that were possible.
func leastOf(t *rapid.T, s *dispatch.Snapshot, st *dispatch.Start, j *cluster.Job, typical *fragment.Typical, pol scheduler.Policy) {
	score := func(b *cluster.Berth, n *cluster.Node) int8 {
		led := s.Ledger.Clone()
		before := lostOn(led, n, typical, pol)
		led.Take(b)
		return fragment.Score((lostOn(led, n, typical, pol) - before) / typical.Total())
	}
	var got int8
	for _, n := range s.Nodes {
		if n.ID == st.Berth.Node {
			got = score(&st.Berth, n)
		}
	}
	on, _ := s.Ledger.GPU(st.Berth.GPUs[0].GPU)
	for _, n := range s.Nodes {
		for i := range n.GPUs {
			u, _ := s.Ledger.GPU(n.GPUs[i].ID)
			b := cluster.Berth{Node: n.ID, CPUMilli: st.Berth.CPUMilli, MemMiB: st.Berth.MemMiB,
				GPUs: []cluster.GPUShare{{GPU: n.GPUs[i].ID, Share: st.Berth.GPUs[0].Share}}}
			if u.Shares >= pol.MaxShares || s.Ledger.Fits(&b).Code != "" || b.CPUMilli > n.CPUMilli/int64(len(n.GPUs)) {
				continue // the last: idle GPUs may keep it
			}
			if other := score(&b, n); other > got || other == got && u.Shares > 0 && on.Shares == 0 {
				t.Fatalf("job %d lies on %s with score %d, on %s it had %d", j.ID, on.ID, got, u.ID, other)
			}
		}
	}
}
