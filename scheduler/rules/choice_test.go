package rules_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestBulkyAsTried: a job is too bulky for a kind of card when no open node that could
// hold it keeps enough for the cards that then stay idle.
func TestBulkyAsTried(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, j, pol := drawFleet(t, 4), drawAsking(t), rules.Default()
		pol.KeepCPUMilli, pol.KeepMemMiB = rapid.Int64Range(0, 2).Draw(t, "cores kept"), rapid.Int64Range(0, 2).Draw(t, "memory kept")
		j.Spec.GPUs = max(1, j.Spec.GPUs)
		g := cluster.GPU{Type: "A", SellableMiB: 100, CapMode: "sim", MaxShares: 3}
		want := true
		for _, n := range nodes {
			alike := 0
			for k, o := range n.GPUs {
				if rapid.IntRange(0, 4).Draw(t, "lost") == 0 {
					n.GPUs[k].State = cluster.GPULost
					continue
				}
				if o.Type == "A" && o.SellableMiB == 100 && o.CapMode == "sim" && o.MaxShares > 1 {
					alike++
				}
			}
			if n.Drain || alike < j.Spec.GPUs {
				continue
			}
			spares := true
			for _, r := range [][3]int64{{n.CPUMilli, j.Spec.CPUMilli, pol.KeepCPUMilli}, {n.MemMiB, j.Spec.MemMiB, pol.KeepMemMiB}} {
				part := r[0] / int64(len(n.GPUs))
				left, keep := r[0]-r[1], min(part, r[2])*int64(len(n.GPUs)-j.Spec.GPUs)
				off := pol.KeepCPUMilli == 0 && pol.KeepMemMiB == 0
				spares = spares && left >= 0 && (off || r[1] <= part*int64(j.Spec.GPUs) || left >= keep)
			}
			want = want && !spares
		}
		if got := rules.BulkyEver(nodes, &g, j, &pol); got != want {
			t.Fatalf("too bulky: %t, want %t", got, want)
		}
	})
}

// TestWhoLeavesSmallCards: a job that ran out of memory leaves cards alone that sell
// less than it then needs, and one that may outgrow a card, where another would do:
// an open one that sells enough, on a node with enough of the kind, cores and memory.
func TestWhoLeavesSmallCards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, pol := drawFleet(t, 4), rules.Default()
		for range 4 {
			leavesAsWritten(t, nodes, drawAsking(t), pol)
		}
	})
}

func leavesAsWritten(t *rapid.T, nodes []*cluster.Node, j *cluster.Job, pol rules.Policy) {
	j.Spec.GPUs, j.Spec.MaxPowerW, j.Spec.MaxCostMilli = max(1, j.Spec.GPUs), 0, 0
	tightOn := func(g *cluster.GPU) bool {
		for _, e := range j.Estimates {
			if e.GPUType == g.Type && e.ConfidenceMilli >= 300 && j.Spec.GPUMemMiB == 0 && e.GPUMemP95MiB > g.SellableMiB {
				return true
			}
		}
		return false
	}
	roomy, untight := false, false
	for pass := range 2 {
		for _, n := range nodes {
			for i := range n.GPUs {
				g, alike := &n.GPUs[i], 0
				for k := range n.GPUs {
					if rules.Twins(g, &n.GPUs[k]) {
						alike++
					}
				}
				_, can := shareByWords(j, g, &pol)
				if n.Drain || !can || alike < j.Spec.GPUs || n.CPUMilli < j.Spec.CPUMilli || n.MemMiB < j.Spec.MemMiB {
					continue
				}
				enough := j.MinGPUMemMiB > 0 && g.SellableMiB >= j.MinGPUMemMiB
				if pass == 0 {
					roomy = roomy || enough
					continue
				}
				untight = untight || !tightOn(g) && (!roomy || enough)
			}
		}
	}
	s := rules.SparingOf(rules.PlacesOf(nodes), j, &pol)
	for _, n := range nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			e, _ := cluster.EstimateFor(j.Estimates, g.Type)
			nd := rules.NeedOn(j, g, &e, &pol)
			if nd.Way == rules.WayNone {
				continue
			}
			want := rules.VetoNone
			switch {
			case roomy && g.SellableMiB < j.MinGPUMemMiB:
				want = rules.VetoObserved
			case untight && tightOn(g):
				want = rules.VetoTight
			}
			if got := s.Veto(g, &nd); got != want {
				t.Fatalf("veto %d on a card that sells %d, want %d", got, g.SellableMiB, want)
			}
		}
	}
}

// TestRateAsDefined: the type with the least of what an objective counts, of equals
// the one that ends sooner and then the first; what nobody knows counts as the worst.
func TestRateAsDefined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol := rules.Default()
		pol.Prices = &rules.Prices{PerHourMilli: map[string]int64{}}
		j := schedtest.Job(1)
		j.Spec.GPUs = 1
		type measure struct{ us, work, joules, milli int64 }
		var goals []rules.GoalOf
		var by []measure
		for i := range rapid.IntRange(1, 4).Draw(t, "types") {
			gpuType := fmt.Sprint("T", i)
			hours, watts, price := rapid.Int64Range(1, 4).Draw(t, "hours"), rapid.Int64Range(0, 3).Draw(t, "watts"), rapid.Int64Range(0, 3).Draw(t, "price")
			pol.Prices.PerHourMilli[gpuType] = price * 1000
			nd := rules.Need{Dur: hours * time.Hour.Microseconds(), Milli: 1000, Mem: 1, Way: rules.WayShare}
			goals = append(goals, pol.Goal(j, gpuType, &cluster.Estimate{PowerW: watts}, &nd, 100))
			by = append(by, measure{hours * time.Hour.Microseconds(), hours * time.Hour.Microseconds(), watts * hours * 3600, price * 1000 * hours})
		}
		worst := measure{}
		for _, m := range by {
			worst.joules, worst.milli = max(worst.joules, m.joules), max(worst.milli, m.milli)
		}
		least := measure{1 << 62, 1 << 62, 1 << 62, 1 << 62}
		for i := range by {
			m := &by[i]
			if m.joules == 0 {
				m.joules = worst.joules
			}
			if m.milli == 0 {
				m.milli = worst.milli
			}
			least.us, least.joules, least.milli = min(least.us, m.us), min(least.joules, m.joules), min(least.milli, m.milli)
		}
		times := func(v, of int64) int64 {
			if of == 0 {
				return 0 // nobody knows any, or all is free
			}
			return v * 1000 / of
		}
		for o, score := range map[cluster.Objective]func(m measure) int64{
			cluster.ObjectiveLatency:    func(m measure) int64 { return m.us },
			cluster.ObjectiveThroughput: func(m measure) int64 { return m.work },
			cluster.ObjectiveEnergy:     func(m measure) int64 { return m.joules },
			cluster.ObjectiveCost:       func(m measure) int64 { return m.milli },
			cluster.ObjectiveBalanced: func(m measure) int64 {
				return times(m.us, least.us) + times(m.joules, least.joules) + times(m.milli, least.milli)
			},
		} {
			want := 0
			for i := range by {
				if cmp.Or(cmp.Compare(score(by[i]), score(by[want])), cmp.Compare(by[i].us, by[want].us)) < 0 {
					want = i
				}
			}
			if got := rules.Rate(o, slices.Clone(goals)); got != want {
				t.Fatalf("%s: type %d, want %d of %+v", o, got, want, by)
			}
		}
	})
}

// TestLeastAnywhere: the least of GPUs that a job is charged for on any card that can
// hold it, to the thousandth, rounded up.
func TestLeastAnywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol, nodes, j := drawChoice(t), drawFleet(t, 3), drawAsking(t)
		want := int64(0)
		for _, n := range nodes {
			for k := range n.GPUs {
				share, can := shareByWords(j, &n.GPUs[k], &pol)
				if !can || j.Spec.GPUs == 0 {
					continue
				}
				part := int64(1)
				for part < 1000 && (part < share.Milli || part*n.GPUs[k].SellableMiB < min(share.MemMiB, n.GPUs[k].SellableMiB)*1000) {
					part++
				}
				if part *= int64(j.Spec.GPUs * j.Spec.NodeCount()); want == 0 || part < want {
					want = part
				}
			}
		}
		if got := rules.LeastMilli(nodes, j, pol); got != want {
			t.Fatalf("%d thousandths, want %d", got, want)
		}
		j.Spec.OrCPU = true
		if got := rules.LeastMilli(nodes, j, pol); got != 0 {
			t.Fatalf("%d thousandths of a job that may do without", got)
		}
	})
}

// TestSpareOfEdges: nothing is kept without GPUs or with the rule off, and never more
// for a GPU than its part of the node.
func TestSpareOfEdges(t *testing.T) {
	t.Parallel()
	node := &dispatch.NodeUse{CPUMilli: 10, MemMiB: 7}
	for _, c := range []struct {
		gpus     int
		cpu, mem int64
		want     rules.Spare
	}{
		{0, 2, 2, rules.Spare{}}, {4, 0, 0, rules.Spare{}}, {4, -1, -1, rules.Spare{}},
		{4, 1, 1, rules.Spare{GPUs: 4, PartCPU: 2, PartMem: 1, LeastCPU: 1, LeastMem: 1}},
		{4, 9, 9, rules.Spare{GPUs: 4, PartCPU: 2, PartMem: 1, LeastCPU: 2, LeastMem: 1}},
		{1, 3, 0, rules.Spare{GPUs: 1, PartCPU: 10, PartMem: 7, LeastCPU: 3}},
		{3, 0, 2, rules.Spare{GPUs: 3, PartCPU: 3, PartMem: 2, LeastMem: 2}},
	} {
		pol := rules.Default()
		pol.KeepCPUMilli, pol.KeepMemMiB = c.cpu, c.mem
		if got := rules.SpareOf(node, c.gpus, &pol); got != c.want {
			t.Errorf("%d GPUs, %d and %d kept: %+v, want %+v", c.gpus, c.cpu, c.mem, got, c.want)
		}
	}
}
