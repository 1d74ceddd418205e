package policies_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestVictimsAsNaive: shortest remaining time first, whole cards, one each. For who
// wants so many of one node those with most left to do are ended, on the node where
// the fewest have to be, each with more left than the newcomer and the price; nobody
// where that does not do.
func TestVictimsAsNaive(t *testing.T) {
	t.Parallel()
	p := must(t, "slot", policies.Options{Order: "srtf", MinRun: time.Minute})
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 3).Draw(t, "nodes")
		const cards = 4
		var list []*cluster.Node
		for n := range nodes {
			list = append(list, Node(cluster.NodeID(fmt.Sprintf("n%d", n)), cards, a100))
		}
		sc := newScene(list...)
		type runs struct {
			id   cluster.JobID
			left time.Duration
			may  bool
		}
		on, terms := make([][]runs, nodes), map[cluster.JobID]dispatch.Terms{}
		for n := range nodes {
			for k := range cards {
				if rapid.IntRange(0, 4).Draw(t, "empty") == 0 {
					continue
				}
				id := cluster.JobID(100 + 10*n + k)
				lasts := time.Duration(rapid.IntRange(30, 600).Draw(t, "lasts")) * time.Minute
				ago := time.Duration(rapid.IntRange(0, 20).Draw(t, "ago")) * time.Minute
				ends := rapid.IntRange(0, 3).Draw(t, "preemptible") > 0
				sc.runs(id, 80000, 1000, lasts, ago, GPU(list[n].ID, k))
				terms[id] = dispatch.Terms{Preemptible: ends}
				on[n] = append(on[n], runs{id, lasts - ago, ends && ago >= time.Minute})
			}
		}
		want, need := rapid.IntRange(1, cards).Draw(t, "gpus"), time.Duration(rapid.IntRange(1, 400).Draw(t, "minutes"))*time.Minute
		sc.waits(Job(1, Exclusive, GPUs(want), Lasts(need)))
		snap := sc.w.Snapshot()
		snap.Terms = terms
		plan := p.Plan(snap)
		var victims []cluster.JobID
		found := false
		for n := range nodes {
			lack := want - (cards - len(on[n]))
			rivals := slices.DeleteFunc(slices.Clone(on[n]), func(r runs) bool { return !r.may || need+40*time.Second >= r.left })
			slices.SortFunc(rivals, func(a, b runs) int { return cmp.Or(-cmp.Compare(a.left, b.left), -cmp.Compare(a.id, b.id)) })
			if lack <= 0 {
				victims, found = nil, false
				if len(plan.Starts) != 1 || len(plan.Preempt) > 0 {
					t.Fatalf("node %d has room: starts %v, ends %v", n, startsOf(&plan), plan.Preempt)
				}
				return
			}
			if len(rivals) >= lack && (!found || lack < len(victims)) {
				victims, found = nil, true
				for _, r := range rivals[:lack] {
					victims = append(victims, r.id)
				}
			}
		}
		var got []cluster.JobID
		for _, x := range plan.Preempt {
			if got = append(got, x.Job); x.For != 1 || x.Attempt != 1 {
				t.Fatalf("preemption %+v", x)
			}
		}
		slices.Sort(got)
		slices.Sort(victims)
		// Of those with as much left as the last it takes whoever has the higher id.
		if len(plan.Starts) > 0 || !slices.Equal(got, victims) {
			t.Fatalf("ends %v, want %v; starts %v", got, victims, startsOf(&plan))
		}
	})
}

// TestBackfillDelaysNobody: one node of whole cards, first come first served with
// EASY backfill. By the time limits of who runs, the first that does not fit starts
// no later than it would if nobody had passed it, and everybody has passed who fits
// and ends by then.
func TestBackfillDelaysNobody(t *testing.T) {
	t.Parallel()
	p := must(t, "slot", policies.Options{Order: "fifo"})
	rapid.Check(t, func(t *rapid.T) {
		const cards = 4
		sc := newScene(Node("n0", cards, a100))
		var ends []time.Duration // of the cards that are in use, at the latest
		for k := range cards {
			if rapid.Bool().Draw(t, "busy") {
				lasts := time.Duration(rapid.IntRange(10, 90).Draw(t, "lasts")) * time.Minute
				sc.runs(cluster.JobID(100+k), 80000, 1000, lasts, 5*time.Minute, GPU("n0", k))
				ends = append(ends, lasts-5*time.Minute)
			}
		}
		all := drawWaits(t)
		for i := range all {
			all[i].ran = 0
			sc.waits(all[i].job())
		}
		plan := p.Plan(sc.w.Snapshot())
		started := map[cluster.JobID]bool{}
		for _, st := range plan.Starts {
			started[st.Job] = true
		}
		slices.SortFunc(all, func(a, b nwaits) int { return cmp.Or(-cmp.Compare(a.waited, b.waited), cmp.Compare(a.id, b.id)) })
		// when is the least time at which so many cards are free.
		when := func(ends []time.Duration, n int) time.Duration {
			ends = slices.Clone(ends)
			slices.Sort(ends)
			if lack := n - (cards - len(ends)); lack > 0 {
				return ends[lack-1]
			}
			return 0
		}
		take := func(j nwaits) {
			for range j.gpus {
				ends = append(ends, j.lasts)
			}
		}
		for len(all) > 0 && started[all[0].id] {
			take(all[0])
			all = all[1:]
		}
		if len(all) == 0 {
			return
		}
		head := all[0]
		promised := when(ends, head.gpus)
		if promised == 0 {
			t.Fatalf("job %d is first, fits and waits", head.id)
		}
		for _, j := range all[1:] {
			if started[j.id] {
				take(j)
			}
		}
		if now := when(ends, head.gpus); now > promised {
			t.Fatalf("job %d could start in %s, and after backfill in %s", head.id, promised, now)
		}
		for _, j := range all[1:] {
			if !started[j.id] && j.gpus <= cards-len(ends) && j.lasts <= promised {
				t.Fatalf("job %d waits, though %d cards are free and it ends in %s, by when job %d starts in %s", j.id, cards-len(ends), j.lasts, head.id, promised)
			}
		}
	})
}

// TestBackfillGoesByLimits: the start of the first goes by the time limits of who
// runs, not by when they are expected to end.
func TestBackfillGoesByLimits(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	for _, c := range []struct {
		name string
		next *cluster.Job
		want at
	}{
		{"who ends by then passes", Job(3, Exclusive, Lasts(30*m)), at{3: "n1-02"}},
		{"who ends a little later does not", Job(3, Exclusive, Lasts(30*m+time.Second)), at{}},
		{"its own limit bounds it", Job(3, Exclusive, Lasts(90*m), Limit(30*m)), at{3: "n1-02"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 3, a100)})
			// 10 is expected to end first, and may last longest.
			for i, x := range []struct{ lasts, limit time.Duration }{{10 * m, 40 * m}, {20 * m, 30 * m}} {
				j := Job(cluster.JobID(10+i), Exclusive, Lasts(x.lasts), Limit(x.limit))
				w.Submit(j)
				w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: j.ID, Attempt: 1, Estimate: cluster.Estimate{GPUType: a100, Duration: x.lasts},
					Berth: cluster.Berth{Node: "n1", CPUMilli: 1000, MemMiB: 1024, GPUs: []cluster.GPUShare{{GPU: GPU("n1", i), Share: cluster.Share{MemMiB: 80000, Milli: 1000, Exclusive: true}}}}}}})
			}
			w.Submit(Job(2, GPUs(2), Lasts(m), Waited(m)))
			w.Submit(c.next)
			plan := must(t, "slot", policies.Options{Order: "fifo"}).Plan(w.Snapshot())
			if got := startsOf(&plan); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("starts %v, want %v", got, c.want)
			}
		})
	}
}

// TestConsolidateAsNaive: a gang lies on one island, of those that hold it the one
// with the fewest free cards, and waits while only several together would hold it.
func TestConsolidateAsNaive(t *testing.T) {
	t.Parallel()
	p := must(t, "consolidate", policies.Options{})
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 2).Draw(t, "nodes")
		var list []*cluster.Node
		for n := range nodes {
			list = append(list, numa(Node(cluster.NodeID(fmt.Sprintf("n%d", n)), 8, a100), 4))
		}
		sc := newScene(list...)
		free := map[[2]int]int{}
		for n := range nodes {
			for k := range 8 {
				if rapid.Bool().Draw(t, "busy") {
					sc.runs(cluster.JobID(100+10*n+k), 80000, 1000, time.Hour, time.Minute, GPU(list[n].ID, k))
				} else {
					free[[2]int{n, list[n].GPUs[k].NUMA}]++
				}
			}
		}
		widest := 0
		for i := range list[0].GPUs {
			same := 0
			for k := range list[0].GPUs {
				if list[0].GPUs[k].NUMA == list[0].GPUs[i].NUMA {
					same++
				}
			}
			widest = max(widest, same)
		}
		want := rapid.IntRange(1, widest).Draw(t, "gpus")
		sc.waits(Job(1, Exclusive, GPUs(want), Lasts(time.Hour)))
		plan := p.Plan(sc.w.Snapshot())
		tight := 99
		for _, n := range free {
			if n >= want {
				tight = min(tight, n)
			}
		}
		if (tight < 99) != (len(plan.Starts) == 1) {
			t.Fatalf("%d starts; islands %v, wants %d", len(plan.Starts), free, want)
		}
		if len(plan.Starts) == 0 {
			return
		}
		seen := map[[2]int]bool{}
		for _, g := range plan.Starts[0].Berth.GPUs {
			for n := range list {
				if x := list[n].GPU(g.GPU); x != nil {
					seen[[2]int{n, x.NUMA}] = true
				}
			}
		}
		for at := range seen {
			if len(seen) != 1 || free[at] != tight {
				t.Fatalf("lies on islands %v with %d free, want one of those with %d", seen, free[at], tight)
			}
		}
	})
}
