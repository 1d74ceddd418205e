package rules_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

var _ = draws.Fixed()

func hostList(t interface{ Fatal(...any) }, text string) (l cluster.HostList) {
	if text == "" {
		return l
	}
	l, err := cluster.ParseHostList(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func featuresOf(t interface{ Fatal(...any) }, text string) cluster.Features {
	x, err := cluster.ParseFeatures(text)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// drawFleet draws a few nodes of two types of card, some of which sell less, cannot
// be shared or sell nothing.
func drawFleet(t *rapid.T, most int) (nodes []*cluster.Node) {
	for i := range rapid.IntRange(1, most).Draw(t, "nodes") {
		n := schedtest.Node(cluster.NodeID(fmt.Sprintf("n%d", i)), rapid.IntRange(0, 4).Draw(t, "cards"), "A",
			schedtest.Host(rapid.Int64Range(1, 9).Draw(t, "cores"), rapid.Int64Range(1, 9).Draw(t, "memory")))
		for k := range n.GPUs {
			g := &n.GPUs[k]
			g.Type = rapid.SampledFrom([]string{"A", "A", "B"}).Draw(t, "type")
			g.SellableMiB = rapid.SampledFrom([]int64{100, 100, 60, 0}).Draw(t, "sells")
			g.CapMode = rapid.SampledFrom([]string{"sim", "sim", "none"}).Draw(t, "cap")
			g.MaxShares = rapid.IntRange(1, 3).Draw(t, "shares")
		}
		if rapid.IntRange(0, 5).Draw(t, "drained") == 0 {
			schedtest.Drained(n)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func drawEstimates(t *rapid.T) (es []cluster.Estimate) {
	for _, gpuType := range []string{"A", "B"} {
		if rapid.IntRange(0, 3).Draw(t, "known") == 0 {
			continue
		}
		e := cluster.Estimate{
			GPUType: gpuType, GPUMemMiB: rapid.Int64Range(0, 120).Draw(t, "peak"), Milli: rapid.Int64Range(0, 1100).Draw(t, "compute"),
			ConfidenceMilli: rapid.SampledFrom([]int64{0, 299, 300, 900}).Draw(t, "confidence"), PowerW: rapid.Int64Range(0, 300).Draw(t, "watts"),
			Duration: time.Duration(rapid.IntRange(0, 3).Draw(t, "hours")) * time.Hour,
		}
		e.GPUMemP95MiB = e.GPUMemMiB + rapid.Int64Range(0, 30).Draw(t, "spread")
		es = append(es, e)
	}
	return es
}

func drawAsking(t *rapid.T) *cluster.Job {
	j := schedtest.Job(1)
	s := j.Spec
	s.GPUs = rapid.IntRange(0, 3).Draw(t, "GPUs")
	s.CPUMilli, s.MemMiB = rapid.Int64Range(1, 10).Draw(t, "asks cores"), rapid.Int64Range(1, 10).Draw(t, "asks memory")
	s.GPUType = rapid.SampledFrom([]string{"", "", "A", "B"}).Draw(t, "asks type")
	s.GPUMemMiB = rapid.SampledFrom([]int64{0, 0, 1, 60, 61, 100, 101}).Draw(t, "declares")
	s.GPUMilli = rapid.SampledFrom([]int64{0, 0, 400, 1000}).Draw(t, "declares compute")
	s.Exclusive = rapid.IntRange(0, 7).Draw(t, "alone") == 0
	s.Nodes = rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "gang")
	s.MaxPowerW = rapid.SampledFrom([]int64{0, 0, 200, 500}).Draw(t, "most power")
	s.MaxCostMilli = rapid.SampledFrom([]int64{0, 0, 2000, 6000}).Draw(t, "most cost")
	j.MinGPUMemMiB = rapid.SampledFrom([]int64{0, 0, 60, 80, 100, 130}).Draw(t, "proved too little")
	j.NeedWhole = rapid.IntRange(0, 9).Draw(t, "needs whole") == 0
	j.Estimates = drawEstimates(t)
	return j
}

func drawChoice(t *rapid.T) rules.Policy {
	pol := rules.Default()
	pol.Mode = rapid.SampledFrom([]rules.Mode{rules.ModeFFD, rules.ModeFFD, rules.ModeFFD, rules.ModeSlot}).Draw(t, "mode")
	pol.MaxShares = rapid.SampledFrom([]int{1, 3, 3}).Draw(t, "most shares")
	pol.OvercommitMilli = rapid.SampledFrom([]int64{0, 1000, 1250, 1999}).Draw(t, "overcommit")
	if rapid.Bool().Draw(t, "priced") {
		pol.Prices = &rules.Prices{PerHourMilli: map[string]int64{"A": 2000}}
	}
	return pol
}

// shareByWords is what ShareOn's comment says, clause by clause.
func shareByWords(j *cluster.Job, g *cluster.GPU, pol *rules.Policy) (share cluster.Share, can bool) {
	var e cluster.Estimate
	known := false
	for _, x := range j.Estimates {
		if x.GPUType == g.Type {
			e, known = x, true
		}
	}
	confident := known && e.ConfidenceMilli >= pol.MinConfidenceMilli
	declared := j.Spec.GPUMemMiB > 0
	switch {
	case g.SellableMiB <= 0,
		j.Spec.GPUType != "" && j.Spec.GPUType != g.Type,
		declared && j.Spec.GPUMemMiB > g.SellableMiB,
		!declared && confident && e.GPUMemMiB > g.SellableMiB:
		return share, false
	}
	memory := j.Spec.GPUMemMiB
	if !declared {
		memory = e.GPUMemP95MiB
	}
	if memory < j.MinGPUMemMiB {
		memory = j.MinGPUMemMiB
	}
	if memory == 0 {
		memory = 1
	}
	compute := j.Spec.GPUMilli
	if compute == 0 {
		compute = e.Milli
	}
	if compute == 0 || compute > 1000 {
		compute = 1000
	}
	alone := pol.Mode == rules.ModeSlot || pol.MaxShares < 2 || // nobody shares at this site
		j.Spec.Exclusive || j.NeedWhole || memory >= g.SellableMiB || // it asks to, or needs all that is sold
		g.CapMode == "none" || g.MaxShares < 2 || // the card cannot be capped, or holds one
		!declared && j.Spec.GPUs > 1 || !declared && !confident
	if pol.OvercommitMilli > 1000 && confident && j.Spec.GPUMilli == 0 && e.Milli > 0 {
		least := int64(1)
		for least*pol.OvercommitMilli < compute*1000 {
			least++
		}
		compute = least
	}
	share = cluster.Share{MemMiB: memory, Milli: compute}
	if alone {
		share = cluster.Share{MemMiB: g.SellableMiB, Milli: 1000, Exclusive: true}
	}
	cards := int64(j.Spec.NodeCount())
	if j.Spec.GPUs > 0 {
		cards *= int64(j.Spec.GPUs)
	}
	if w := j.Spec.MaxPowerW; w > 0 && e.PowerW*cards > w {
		return share, false
	}
	hours := int64(e.Duration / time.Hour) // 0 is unknown, and costs nobody knows what
	if pol.Prices != nil && j.Spec.MaxCostMilli > 0 {
		part := max(share.Milli, share.MemMiB*1000/g.SellableMiB)
		if pol.Prices.PerHourMilli[g.Type]*hours*cards*part/1000 > j.Spec.MaxCostMilli {
			return share, false
		}
	}
	return share, true
}

// TestShareAsWritten: what a job takes of a card, or that it cannot, as the comment of
// ShareOn says.
func TestShareAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol, j := drawChoice(t), drawAsking(t)
		for _, n := range drawFleet(t, 5) {
			for k := range n.GPUs {
				g := &n.GPUs[k]
				got, _, why := rules.ShareOn(j, g, pol)
				want, can := shareByWords(j, g, &pol)
				if can != (why.Code == "") || can && got != want {
					t.Fatalf("%+v (%v), want %+v (%t)\n%+v\n%+v\n%+v", got, why, want, can, g, j.Spec, j.Estimates)
				}
				if why.Code != "" && why.Detail == "" {
					t.Fatalf("no words for %s", why.Code)
				}
			}
		}
	})
}

// everFits tries each set of nodes that is as large as the job needs, on each kind of
// card, were all empty.
func everFits(nodes []*cluster.Node, j *cluster.Job, pol *rules.Policy) bool {
	type kind struct {
		gpuType string
		sells   int64
		shared  bool
	}
	kinds := map[kind]bool{{}: true}
	if j.Spec.GPUs > 0 {
		kinds = map[kind]bool{}
	}
	for _, n := range nodes {
		for _, g := range n.GPUs {
			if j.Spec.GPUs > 0 {
				kinds[kind{g.Type, g.SellableMiB, g.Shareable()}] = true
			}
		}
	}
	holds := func(n *cluster.Node, of kind) bool {
		cards := 0
		for k := range n.GPUs {
			g := &n.GPUs[k]
			if _, _, why := rules.ShareOn(j, g, *pol); why.Code == "" && of == (kind{g.Type, g.SellableMiB, g.Shareable()}) {
				cards++
			}
		}
		return j.Spec.Refuses(n) == "" && cards >= j.Spec.GPUs && n.CPUMilli >= j.Spec.CPUMilli && n.MemMiB >= j.Spec.MemMiB
	}
	for of := range kinds {
		for set := range 1 << len(nodes) {
			size, all, named := 0, true, 0
			for i, n := range nodes {
				if set>>i&1 == 0 {
					continue
				}
				size++
				all = all && holds(n, of)
				if j.Spec.Where.Named() && j.Spec.Where.Nodes.Holds(n.ID) {
					named++
				}
			}
			if all && size == j.Spec.NodeCount() && (!j.Spec.Where.Named() || named == j.Spec.Where.Nodes.Len()) {
				return true
			}
		}
	}
	return false
}

// TestNeverFitsAsTried: a job is refused exactly when no set of empty nodes could run
// it. Drained nodes count.
func TestNeverFitsAsTried(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol, nodes := drawChoice(t), drawFleet(t, 7)
		for _, n := range nodes {
			if rapid.Bool().Draw(t, "has ib") {
				n.Features = []string{"ib"}
			}
		}
		for range 4 {
			neverFitsAsTried(t, nodes, drawAsking(t), pol)
		}
	})
}

func neverFitsAsTried(t *rapid.T, nodes []*cluster.Node, j *cluster.Job, pol rules.Policy) {
	switch rapid.IntRange(0, 5).Draw(t, "where") {
	case 0:
		j.Spec.Where = &cluster.Where{Nodes: hostList(t, "n0")}
	case 1:
		j.Spec.Where = &cluster.Where{Exclude: hostList(t, "n[0-2]"), Features: featuresOf(t, "ib")}
	case 2:
		j.Spec.Where = &cluster.Where{Nodes: hostList(t, "n[0-1]")}
		j.Spec.Nodes = max(2, j.Spec.Nodes)
	}
	err, want := rules.NeverFits(nodes, j, pol), everFits(nodes, j, &pol)
	if (err == nil) != want {
		t.Fatalf("refused with %v; some set of nodes could run it: %t\n%+v", err, want, j.Spec)
	}
	if err != nil && err.Code != cluster.CodeInvalid {
		t.Fatalf("code %v", err.Code)
	}
}

// TestBestPartsAsChosen: of all sets of as many nodes as a job needs, the best: those
// that it names first, then those that never held it up, then by order and number.
func TestBestPartsAsChosen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := schedtest.Job(1, schedtest.Nodes(rapid.IntRange(1, 4).Draw(t, "needs")))
		if rapid.Bool().Draw(t, "names some") {
			j.Spec.Where = &cluster.Where{Nodes: hostList(t, "n[1-2]")}
		}
		var parts []rules.Part
		type key [4]int64
		var keys []key
		for host := range int32(rapid.IntRange(0, 6).Draw(t, "offers")) {
			id := cluster.NodeID(fmt.Sprintf("n%d", host))
			late := rapid.IntRange(0, 2).Draw(t, "late") == 0
			p := rules.NewPart(j, &cluster.Node{ID: id}, rules.Part{Host: host, Order: rapid.Int64Range(0, 2).Draw(t, "order")})
			p.Late = late
			k := key{1, 0, p.Order, int64(host)}
			if j.Spec.Where != nil && (host == 1 || host == 2) {
				k[0] = 0
			}
			if late {
				k[1] = 1
			}
			parts, keys = append(parts, p), append(keys, k)
		}
		slices.SortFunc(keys, func(a, b key) int { return slices.Compare(a[:], b[:]) })
		n := j.Spec.NodeCount()
		can := len(keys) >= n
		if can && j.Spec.Where != nil {
			can = n >= 2 && len(keys) > 2 // both that it names are there, first, and there is a place for each
		}
		for i := len(parts) - 1; i > 0; i-- {
			k := rapid.IntRange(0, i).Draw(t, "shuffle")
			parts[i], parts[k] = parts[k], parts[i]
		}
		best, ok := rules.BestParts(j, parts)
		if ok != can {
			t.Fatalf("%v: %t, want %t", keys, ok, can)
		}
		last := int64(0)
		for i := range best {
			if int64(best[i].Host) != keys[i][3] {
				t.Fatalf("place %d: node %d, want %d", i, best[i].Host, keys[i][3])
			}
			last = max(last, keys[i][2])
		}
		if ok && (len(best) != n || rules.LastOrder(best) != last) {
			t.Fatalf("%d parts, greatest order %d; want %d, %d", len(best), rules.LastOrder(best), n, last)
		}
	})
}
