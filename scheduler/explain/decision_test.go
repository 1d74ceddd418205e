package explain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// drawNodes draws a few small nodes, short of cores, memory and sound cards now and
// then, of two types.
func drawNodes(t *rapid.T) (nodes []*cluster.Node) {
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := schedtest.Node(cluster.NodeID(fmt.Sprint("n", i)), rapid.IntRange(0, 4).Draw(t, "cards"), rapid.SampledFrom([]string{"A", "A", "B"}).Draw(t, "type"),
			schedtest.Host(rapid.Int64Range(2, 16).Draw(t, "cores")*1000, rapid.Int64Range(2, 16).Draw(t, "memory")*1024))
		for k := range n.GPUs {
			switch rapid.IntRange(0, 9).Draw(t, "card") {
			case 0:
				n.GPUs[k].State = cluster.GPULost
			case 1:
				n.GPUs[k].CapMode = "none"
			case 2:
				n.GPUs[k].Type = "B"
			}
		}
		switch rapid.IntRange(0, 7).Draw(t, "node") {
		case 0:
			schedtest.Drained(n)
		case 1:
			schedtest.Silent(n)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func drawJob(t *rapid.T, id cluster.JobID) *cluster.Job {
	minutes := time.Duration(rapid.IntRange(1, 12).Draw(t, "minutes")) * 10 * time.Minute
	j := schedtest.Job(id, schedtest.GPUs(rapid.SampledFrom([]int{1, 1, 1, 0, 2, 3}).Draw(t, "GPUs")), schedtest.Lasts(minutes), schedtest.Limit(minutes),
		schedtest.Cores(rapid.SampledFrom([]int64{1, 1, 2, 5}).Draw(t, "cores")*1000), schedtest.HostMem(rapid.SampledFrom([]int64{1, 1, 2, 5}).Draw(t, "memory")*1024))
	j.Spec.GPUMemMiB = rapid.SampledFrom([]int64{4000, 9000, 0, 13_000, 24_000}).Draw(t, "declares")
	j.Spec.GPUMilli = rapid.SampledFrom([]int64{200, 400, 700, 0}).Draw(t, "compute")
	j.Spec.GPUType = rapid.SampledFrom([]string{"", "", "", "A", "B"}).Draw(t, "type")
	j.Spec.Exclusive = rapid.IntRange(0, 5).Draw(t, "alone") == 0
	j.Spec.Node = rapid.SampledFrom([]cluster.NodeID{"", "", "", "", "n1"}).Draw(t, "node")
	return j
}

// drawRunning is a world in which some jobs run, as passes laid them at several
// instants, and one that just came waits.
func drawRunning(t *rapid.T, pol *rules.Policy) (*schedtest.World, *cluster.Job) {
	pol.MaxShares = rapid.IntRange(1, 3).Draw(t, "shares")
	w := schedtest.NewWorld(drawNodes(t))
	id := cluster.JobID(1)
	for range rapid.IntRange(0, 3).Draw(t, "passes") {
		for range rapid.IntRange(0, 6).Draw(t, "jobs") {
			w.Submit(drawJob(t, id))
			id++
		}
		p := scheduler.Schedule(w.Snapshot(), *pol)
		p.Moves = nil
		w.Apply(&p)
		for _, j := range w.Snapshot().Waiting {
			delete(w.Jobs, j.ID)
		}
		w.Advance(7 * time.Minute)
	}
	j := drawJob(t, 1000)
	j.Submitted, j.Eligible = w.Clock, w.Clock
	w.Submit(j)
	return w, j
}

// TestExplanationsAgreeWithThePass: to a job that waits alone it is said that there is
// room exactly where a pass starts it, and else nowhere.
func TestExplanationsAgreeWithThePass(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol := scheduler.Default()
		w, j := drawRunning(t, &pol)
		plan, said := scheduler.Schedule(w.Snapshot(), pol), scheduler.Explain(w.Snapshot(), j, pol)
		var room []string
		for _, e := range said {
			if e.Reason.Code == cluster.ReasonUnconfirmed {
				room = append(room, e.GPUType)
			}
		}
		if (len(plan.Starts) > 0) != (len(room) > 0) {
			t.Fatalf("the pass starts %+v and leaves %+v; it is said %+v", plan.Starts, plan.Unplaced, said)
		}
		for _, st := range plan.Starts {
			gpuType := ""
			for _, g := range st.Berth.GPUs {
				u, _ := w.Ledg.GPU(g.GPU)
				gpuType = u.Type
			}
			if !slices.Contains(room, gpuType) {
				t.Fatalf("it starts on %s, room is said to be on %v", gpuType, room)
			}
		}
		for _, u := range plan.Unplaced {
			if u.Reason.Code == "" || u.Reason.Detail == "" {
				t.Fatalf("the pass gives no reason: %+v", u)
			}
		}
	})
}

// TestExplanationsAsTheLedgerSays: for a job on one GPU each card counts for what the
// ledger misses when the job's share is tried there.
func TestExplanationsAsTheLedgerSays(t *testing.T) {
	t.Parallel()
	type key struct {
		code    cluster.ReasonCode
		gpuType string
	}
	rapid.Check(t, func(t *rapid.T) {
		pol := scheduler.Default()
		pol.KeepCPUMilli, pol.KeepMemMiB = 0, 0
		w, j := drawRunning(t, &pol)
		j.Spec.GPUs = 1
		if rules.NeverFits(w.Nodes, j, pol) != nil {
			return // counted for all places at once
		}
		want := map[key]int{}
		for _, n := range w.Nodes {
			if j.Spec.Node != "" && j.Spec.Node != n.ID {
				continue
			}
			for k := range n.GPUs {
				g := &n.GPUs[k]
				share, _, never := rules.ShareOn(j, g, pol)
				if never.Code != "" {
					want[key{never.Code, g.Type}]++
					continue
				}
				b := &cluster.Berth{Node: n.ID, CPUMilli: j.Spec.CPUMilli, MemMiB: j.Spec.MemMiB, GPUs: []cluster.GPUShare{{GPU: g.ID, Share: share}}}
				why, u := w.Ledg.Fits(b), key{}
				card, _ := w.Ledg.GPU(g.ID)
				switch u = (key{why.Code, g.Type}); why.Code {
				case "":
					u.code = cluster.ReasonUnconfirmed
				case cluster.ReasonNodeDown:
					u.gpuType = ""
				case cluster.ReasonCPU, cluster.ReasonHostMem: // of memory it is said first
					node, _ := w.Ledg.Node(n.ID)
					u = key{cluster.ReasonCPU, ""}
					if node.MemMiB-node.UsedMem < j.Spec.MemMiB {
						u.code = cluster.ReasonHostMem
					}
				}
				if u.code != cluster.ReasonNodeDown && u.gpuType != "" && !share.Exclusive && !card.Exclusive && card.Shares >= pol.MaxShares {
					u.code = cluster.ReasonGPUSlots // the policy's bound, of which the ledger does not know
				}
				if u.code == cluster.ReasonGPUSlots {
					switch {
					case share.Exclusive:
						u.code = cluster.ReasonExclusive
					case card.Exclusive: // by somebody who has it alone
						u.code = cluster.ReasonSharing
					}
				}
				want[u]++
			}
		}
		got := map[key]int{}
		for _, e := range scheduler.Explain(w.Snapshot(), j, pol) {
			got[key{e.Reason.Code, e.GPUType}] += e.Count
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("said %v, by the ledger %v", got, want)
		}
	})
}

// TestForecastsAreNeitherEarlyNorLate: where all end exactly when they should and a job
// waits alone, it starts at the instant that was forecast, and at none before.
func TestForecastsAreNeitherEarlyNorLate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol := scheduler.Default()
		w, j := drawRunning(t, &pol)
		f, ok := scheduler.ForecastStart(w.Snapshot(), j, pol)
		if !ok {
			if p := scheduler.Schedule(w.Snapshot(), pol); len(p.Starts) > 0 {
				t.Fatalf("it starts though no place was found")
			}
			return
		}
		for w.Clock < f.P50 {
			if p := scheduler.Schedule(w.Snapshot(), pol); len(p.Starts) > 0 {
				t.Fatalf("it starts %s before it was forecast: %+v, %+v", f.P50.Sub(w.Clock), p.Starts[0], f)
			}
			w.Advance(time.Minute) // all lengths are whole minutes
		}
		if w.Clock != f.P50 || f.P90 != f.P50 {
			t.Fatalf("forecast %+v of ends in whole minutes by limits", f)
		}
		p := scheduler.Schedule(w.Snapshot(), pol)
		if len(p.Starts) != 1 {
			t.Fatalf("at its time, %d, it does not start: %+v", f.P50, p.Unplaced)
		}
	})
}

// TestForecastNamesItsPlace: the node and card of a forecast are ones that the job may
// have, and the words name them; those who must end are as many as hold what it lacks.
func TestForecastNamesItsPlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol := scheduler.Default()
		w, j := drawRunning(t, &pol)
		f, ok := scheduler.ForecastStart(w.Snapshot(), j, pol)
		if !ok {
			return
		}
		n, _ := w.Node(f.Node)
		if n == nil || !n.Schedulable() || !j.Spec.Allows(n) || !strings.Contains(f.Missing, string(f.Node)) {
			t.Fatalf("forecast %+v", f)
		}
		if (f.GPU != nil) != (j.Spec.GPUs == 1) {
			t.Fatalf("a card is named: %t, for %d GPUs", f.GPU != nil, j.Spec.GPUs)
		}
		if f.GPU != nil {
			if _, _, why := rules.ShareOn(j, f.GPU, pol); why.Code != "" || n.GPU(f.GPU.ID) == nil || !n.Open(f.GPU) {
				t.Fatalf("card %s of %s: %+v", f.GPU.ID, f.Node, why)
			}
		}
		if ends := strings.Contains(f.Missing, " end"); ends != (f.P50 > w.Clock) {
			t.Fatalf("in %s: %s", f.P50.Sub(w.Clock), f.Missing)
		}
	})
}

// TestWhoHasTheCard: the words of a card name what lacks there, who is there and when
// the first of them ends; of several cards of a type the nearest is named.
func TestWhoHasTheCard(t *testing.T) {
	t.Parallel()
	pol := scheduler.Default()
	run := func(w *schedtest.World, id cluster.JobID, gpu int, left time.Duration, s cluster.Share) {
		j := schedtest.Job(id, schedtest.Limit(left), schedtest.Lasts(left))
		w.Submit(j)
		w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: id, Attempt: 1, Berth: cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: schedtest.GPU("n", gpu), Share: s}}}}}})
	}
	part := func(mib, milli int64) cluster.Share { return cluster.Share{MemMiB: mib, Milli: milli} }
	whole := cluster.Share{MemMiB: 24_000, Milli: 1000, Exclusive: true}
	for _, c := range []struct {
		name  string
		lie   func(*schedtest.World)
		job   []schedtest.JobOption
		code  cluster.ReasonCode
		count int
		words string
	}{
		{"memory, the nearest", func(w *schedtest.World) {
			run(w, 1, 0, time.Hour, part(20_000, 100))
			run(w, 2, 1, 2*time.Hour, part(16_384, 100))
		}, []schedtest.JobOption{schedtest.Mem(10_240), schedtest.Util(100)}, cluster.ReasonGPUMem, 2, "GPU 1 of n (A): 7.4 GiB free, needs 10.0 GiB; 1 job there, it ends in ~2 h"},
		{"compute, and the first of two ends", func(w *schedtest.World) {
			for gpu := range 2 {
				run(w, cluster.JobID(1+2*gpu), gpu, 3*time.Hour, part(1000, 500))
				run(w, cluster.JobID(2+2*gpu), gpu, 30*time.Minute, part(1000, 300+int64(gpu)))
			}
		}, []schedtest.JobOption{schedtest.Mem(1000), schedtest.Util(400)}, cluster.ReasonGPUCompute, 2, "GPU 0 of n (A): 20 % of its compute free, needs 40 %; 2 jobs there, the next ends in ~30 min"},
		{"as many as may share", func(w *schedtest.World) {
			for id := range cluster.JobID(6) {
				run(w, id+1, int(id%2), time.Duration(id+1)*time.Hour, part(100, 10))
			}
		}, []schedtest.JobOption{schedtest.Mem(100), schedtest.Util(10)}, cluster.ReasonGPUSlots, 2, "GPU 0 of n (A): as many jobs as may share it; 3 jobs there, the next ends in ~60 min"},
		{"it needs it alone, the one that is free first", func(w *schedtest.World) {
			run(w, 1, 0, 5*time.Hour, part(100, 10))
			run(w, 2, 1, 4*time.Hour, part(100, 10))
		}, []schedtest.JobOption{schedtest.Exclusive}, cluster.ReasonExclusive, 2, "GPU 1 of n (A): in use, but needed exclusively; 1 job there, it ends in ~4 h"},
		{"how long it takes is not known", func(w *schedtest.World) { run(w, 1, 0, 0, whole); run(w, 2, 1, 0, whole) },
			[]schedtest.JobOption{schedtest.Exclusive}, cluster.ReasonExclusive, 2, "GPU 0 of n (A): in use, but needed exclusively; 1 job there, it ends in ~60 min (not known: 60 min assumed)"},
		{"replicas of a service", func(w *schedtest.World) {
			run(w, 1, 0, 0, whole)
			run(w, 2, 1, 0, whole)
			for _, j := range w.Snapshot().Running {
				j.Spec.Service = &service.Service{Name: "chat"}
			}
		}, []schedtest.JobOption{schedtest.Exclusive}, cluster.ReasonExclusive, 2, "GPU 0 of n (A): in use, but needed exclusively; 1 job there, of a service: until somebody ends it"},
		{"in exclusive use", func(w *schedtest.World) {
			run(w, 1, 0, 4*time.Hour, whole)
			run(w, 2, 1, 5*time.Hour, whole)
		}, []schedtest.JobOption{schedtest.Mem(100), schedtest.Util(10)}, cluster.ReasonSharing, 2, "GPU 0 of n (A): in exclusive use; 1 job there, it ends in ~4 h"},
		{"too few at once", func(w *schedtest.World) { run(w, 1, 0, time.Hour, whole) },
			[]schedtest.JobOption{schedtest.GPUs(2), schedtest.Exclusive}, cluster.ReasonGPUs, 2, "node n: 1 of 2 GPUs with room, needs 2 at once"},
		{"room", func(w *schedtest.World) { run(w, 1, 0, time.Hour, whole) },
			[]schedtest.JobOption{schedtest.Exclusive}, cluster.ReasonUnconfirmed, 1, "GPU 1 of n (A) has room; the next pass decides"},
		{"cores", func(*schedtest.World) {}, []schedtest.JobOption{schedtest.Cores(64_001)}, cluster.ReasonCPU, 2, "node n: 64 cores free, needs 64.001 cores"},
	} {
		w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n", 2, "A")})
		c.lie(w)
		if len(w.Rejected) > 0 {
			t.Fatalf("%s: %v", c.name, w.Rejected)
		}
		j := schedtest.Job(99, c.job...)
		w.Submit(j)
		found := false
		for _, e := range scheduler.Explain(w.Snapshot(), j, pol) {
			if e.Reason.Code == c.code {
				found = true
				if e.Count != c.count || e.Reason.Detail != c.words {
					t.Errorf("%s: %d × %q, want %d × %q", c.name, e.Count, e.Reason.Detail, c.count, c.words)
				}
			}
		}
		if !found {
			t.Errorf("%s: no %s in %+v", c.name, c.code, scheduler.Explain(w.Snapshot(), j, pol))
		}
	}
}

// TestWhatIsOutOfService: at most four nodes and cards are named, with why, and the
// others counted.
func TestWhatIsOutOfService(t *testing.T) {
	t.Parallel()
	plain := func(n *cluster.Node) { n.Drain = true }
	lost := func(n *cluster.Node) { n.GPUs[0].State, n.GPUs[0].StateReason = cluster.GPULost, "fell off the bus" }
	node := func(id cluster.NodeID, o schedtest.NodeOption) *cluster.Node { return schedtest.Node(id, 1, "A", o) }
	for _, c := range []struct {
		nodes []*cluster.Node
		count int
		words string
	}{
		{[]*cluster.Node{node("a", schedtest.Drained)}, 1, "node a is drained: fan"},
		{[]*cluster.Node{node("a", plain), node("b", schedtest.Silent)}, 2, "node a is drained; node b is silent"},
		{[]*cluster.Node{node("a", plain), node("b", plain), node("c", plain), node("d", plain)}, 4, "node a is drained; node b is drained; node c is drained; node d is drained"},
		{[]*cluster.Node{node("a", plain), node("b", plain), node("c", plain), node("d", plain), node("e", plain), node("f", plain)}, 6,
			"node a is drained; node b is drained; node c is drained; node d is drained; and 2 more"},
		{[]*cluster.Node{node("a", plain), node("b", lost)}, 2, "node a is drained; 1 GPU out of service: GPU 0 of b (A) is " + "%s"},
	} {
		w := schedtest.NewWorld(c.nodes)
		j := schedtest.Job(1)
		w.Submit(j)
		if strings.HasSuffix(c.words, "%s") {
			b := c.nodes[1]
			c.words = fmt.Sprintf(c.words, b.Why(&b.GPUs[0]))
		}
		got := scheduler.Explain(w.Snapshot(), j, scheduler.Default())
		if len(got) != 1 || got[0].Reason.Code != cluster.ReasonNodeDown || got[0].Count != c.count || got[0].Reason.Detail != c.words {
			t.Errorf("%+v, want %d × %q", got, c.count, c.words)
		}
	}
}
