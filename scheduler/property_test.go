package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

func drawNodes(t *rapid.T) []*cluster.Node {
	var out []*cluster.Node
	for i := range rapid.IntRange(1, 7).Draw(t, "nodes") {
		n := Node(cluster.NodeID(fmt.Sprintf("n%d", i)), rapid.IntRange(0, 4).Draw(t, "gpus"),
			rapid.SampledFrom([]string{a100, small, t4}).Draw(t, "type"),
			Host(rapid.Int64Range(1, 10).Draw(t, "cores")*1000, rapid.Int64Range(1, 10).Draw(t, "host")*1024))
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			Drained(n)
		case 1:
			Silent(n)
		case 2:
			CapMode("none")(n)
		case 3: // an older driver keeps more for itself
			for k := range n.GPUs {
				n.GPUs[k].SellableMiB -= 500
			}
		case 4: // two types in one node
			for k := range n.GPUs {
				if k%2 == 1 {
					n.GPUs[k].Type, n.GPUs[k].SellableMiB = t4, 15000
				}
			}
		case 5:
			for k := range n.GPUs {
				n.GPUs[k].MaxShares = rapid.IntRange(1, 5).Draw(t, "max shares")
			}
		}
		out = append(out, n)
	}
	return out
}

func drawJob(t *rapid.T, id cluster.JobID) *cluster.Job {
	mem := rapid.Int64Range(1, 50000).Draw(t, "mem")
	opts := []JobOption{
		Cores(rapid.Int64Range(0, 4).Draw(t, "cores") * 1000), HostMem(rapid.Int64Range(0, 4).Draw(t, "host") * 1024),
		GPUs(rapid.SampledFrom([]int{0, 1, 1, 1, 1, 1, 2, 3}).Draw(t, "gpus")),
		Waited(time.Duration(rapid.IntRange(0, 600).Draw(t, "waited")) * time.Second),
	}
	minutes := func(what string) time.Duration {
		return time.Duration(rapid.IntRange(1, 90).Draw(t, what)) * time.Minute
	}
	j := Job(id, opts...)
	if j.Spec.GPUs == 0 {
		return j
	}
	if rapid.Bool().Draw(t, "predicted") {
		milli := rapid.Int64Range(1, 1000).Draw(t, "milli")
		Predict(small, mem, milli, minutes("on small"))(j)
		Predict(a100, mem, milli, minutes("on a100"))(j)
		if rapid.Bool().Draw(t, "known on t4") {
			Predict(t4, mem, milli, minutes("on t4"))(j)
		}
		if rapid.IntRange(0, 4).Draw(t, "unsure") == 0 {
			for i := range j.Estimates {
				j.Estimates[i].ConfidenceMilli = 100
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "wide") == 0 { // it may take more than it is expected to
			for i := range j.Estimates {
				j.Estimates[i].GPUMemP95MiB = mem * rapid.Int64Range(1, 8).Draw(t, "wider")
			}
		}
	}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		Exclusive(j)
	case 1:
		j.NeedWhole = true
	case 2:
		j.MinGPUMemMiB = rapid.Int64Range(1, 90000).Draw(t, "least")
	case 3:
		Type(rapid.SampledFrom([]string{a100, t4}).Draw(t, "wanted type"))(j)
	case 4:
		On(cluster.NodeID(fmt.Sprintf("n%d", rapid.IntRange(0, 7).Draw(t, "wanted node"))))(j)
	case 5, 6, 7:
		Mem(rapid.Int64Range(1, 20000).Draw(t, "declared"))(j)
		Util(rapid.Int64Range(1, 600).Draw(t, "declared milli"))(j)
	}
	if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
		Limit(minutes("limit"))(j)
	}
	if rapid.IntRange(0, 3).Draw(t, "declared") == 0 {
		Lasts(minutes("declared duration"))(j)
	}
	return j
}

// drawWorld is a cluster in the middle of its life: some run, some ended,
// some wait in queues, some are new.
func drawWorld(t *rapid.T, queues bool) *World {
	w := NewWorld(drawNodes(t))
	id := cluster.JobID(0)
	for range rapid.IntRange(0, 3).Draw(t, "rounds") {
		for range rapid.IntRange(1, 10).Draw(t, "batch") {
			id++
			w.Submit(drawJob(t, id))
		}
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		if !queues {
			p.Moves = nil
		}
		w.Apply(&p)
		w.Advance(time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes")) * time.Minute)
	}
	for range rapid.IntRange(1, 12).Draw(t, "new") {
		id++
		w.Submit(drawJob(t, id))
	}
	return w
}

// TestIndexEqualsScan compares with the placement rule written as a scan.
func TestIndexEqualsScan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, false)
		pol := scheduler.Default()
		pol.FIFOAge, pol.ReserveAge = 0, 1<<55 // the scan keeps nothing for anybody
		pol.FragNodes = 0                      // nor of fragmentation
		pol.MaxShares = rapid.IntRange(1, 4).Draw(t, "policy's shares")
		if rapid.IntRange(0, 9).Draw(t, "slot") == 0 {
			pol.Mode = scheduler.ModeSlot
		}
		s := w.Snapshot()
		got := scheduler.Schedule(s, pol).Starts
		for i := range got {
			got[i].Why, got[i].Overtook = "", ""
		}
		want := newNaive(s, pol).starts(s.Waiting)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("starts (-scan +index):\n%s", d)
		}
	})
}

func TestPlanIsAFunction(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		s, untouched := w.Snapshot(), w.Snapshot()
		pol := drawPolicy(t)
		want := scheduler.Schedule(s, pol)
		if d := cmp.Diff(untouched.Waiting, s.Waiting); d != "" || !untouched.Ledger.Equal(s.Ledger) {
			t.Fatalf("the snapshot was changed: %s", d)
		}
		if d := cmp.Diff(want, scheduler.Schedule(s, pol)); d != "" {
			t.Fatalf("the same again (-first +second):\n%s", d)
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		s.Nodes, s.Waiting, s.Running = slices.Clone(s.Nodes), slices.Clone(s.Waiting), slices.Clone(s.Running)
		r.Shuffle(len(s.Nodes), func(i, j int) { s.Nodes[i], s.Nodes[j] = s.Nodes[j], s.Nodes[i] })
		r.Shuffle(len(s.Waiting), func(i, j int) { s.Waiting[i], s.Waiting[j] = s.Waiting[j], s.Waiting[i] })
		r.Shuffle(len(s.Running), func(i, j int) { s.Running[i], s.Running[j] = s.Running[j], s.Running[i] })
		if d := cmp.Diff(want, scheduler.Schedule(s, pol)); d != "" {
			t.Fatalf("in another order (-first +shuffled):\n%s", d)
		}
	})
}

// TestPlansHold lets a world live and checks what must always be true.
func TestPlansHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		pol := drawPolicy(t)
		next := cluster.JobID(1000)
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			freed := w.Advance(time.Duration(rapid.IntRange(0, 40).Draw(t, "minutes")) * time.Minute)
			apply(t, w, scheduler.OnRelease(w, freed, pol), pol)
			var arrived []*cluster.Job
			for range rapid.IntRange(0, 4).Draw(t, "arrivals") {
				next++
				j := drawJob(t, next)
				j.Eligible = w.Clock
				w.Submit(j)
				arrived = append(arrived, j)
			}
			s := w.Snapshot()
			if rapid.Bool().Draw(t, "arrival pass") {
				s.Waiting = arrived
			}
			p := scheduler.Schedule(s, pol)
			told := map[cluster.JobID]int{}
			for _, st := range p.Starts {
				told[st.Job]++
			}
			for _, u := range p.Unplaced {
				told[u.Job]++
				if u.Reason.Code == "" || u.Reason.Code == cluster.ReasonNone {
					t.Fatalf("job %d waits without a reason", u.Job)
				}
			}
			for _, j := range s.Waiting {
				if told[j.ID] != 1 {
					t.Fatalf("job %d is told of %d times", j.ID, told[j.ID])
				}
			}
			apply(t, w, p, pol)
			for id, j := range w.Jobs {
				if !j.State.Waiting() {
					continue
				}
				if ex := scheduler.Explain(w.Snapshot(), j, pol); len(ex) == 0 && (j.Spec.Node == "" || nodeOf(w, j.Spec.Node)) {
					t.Fatalf("no explanation for job %d", id)
				}
			}
		}
	})
}

func nodeOf(w *World, id cluster.NodeID) bool { _, ok := w.Node(id); return ok }

// apply checks a plan against a fresh ledger and applies it to w.
func apply(t *rapid.T, w *World, p dispatch.Plan, pol scheduler.Policy) {
	led := w.Ledg.Clone()
	for _, st := range p.Starts {
		if r := led.Fits(&st.Berth); r.Code != "" {
			t.Fatalf("job %d does not fit: %s", st.Job, r)
		}
		led.Take(&st.Berth)
		for _, g := range st.Berth.GPUs {
			u, _ := led.GPU(g.GPU)
			if u.UsedMiB > u.SellableMiB || u.UsedMilli > cluster.WholeGPU || u.Shares > pol.MaxShares || u.Exclusive && u.Shares != 1 {
				t.Fatalf("GPU %s is overfull: %+v", g.GPU, u)
			}
			if j := w.Jobs[st.Job]; !g.Share.Exclusive && g.Share.MemMiB < j.MinGPUMemMiB {
				t.Fatalf("job %d gets %d MiB, it needs %d", st.Job, g.Share.MemMiB, j.MinGPUMemMiB)
			}
		}
	}
	w.Apply(&p)
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	if len(w.Rejected) > 0 {
		t.Fatalf("rejected: %v", w.Rejected)
	}
}

// TestWorkIsConserved: after a full pass nobody waits who would fit, if
// nobody waited so long that room is kept for them.
func TestWorkIsConserved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		pol := scheduler.Default()
		pol.FIFOAge, pol.ReserveAge = 0, 1<<55
		pol.KeepCPUMilli, pol.KeepMemMiB = 0, 0 // what is kept for idle GPUs waits by intent
		p := scheduler.Schedule(w.Snapshot(), pol)
		apply(t, w, p, pol)
		v := newNaive(w.Snapshot(), pol)
		for _, j := range w.Snapshot().Waiting {
			if b, _, ok := v.berth(j); ok {
				t.Fatalf("job %d waits although %+v is free", j.ID, b)
			}
		}
	})
}

// TestFastPathStartsFromTheQueue: what OnRelease starts stands in the queues asked
// for, and each start has the reason that the state machine wants.
func TestFastPathStartsFromTheQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		w.Advance(2 * time.Hour)
		var all []cluster.GPUID
		for _, n := range w.Nodes {
			for _, g := range n.GPUs {
				all = append(all, g.ID)
			}
		}
		waits := map[cluster.JobID]bool{}
		for _, q := range w.Queues {
			for _, x := range q {
				waits[x.Job] = true
			}
		}
		p := scheduler.OnRelease(w, all, scheduler.Default())
		for _, st := range p.Starts {
			if !waits[st.Job] {
				t.Fatalf("job %d starts but stands in no queue", st.Job)
			}
		}
		apply(t, w, p, scheduler.Default())
	})
}
