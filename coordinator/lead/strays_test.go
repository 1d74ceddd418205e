package lead

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// TestWaryOfWholeStarts: a start on several nodes goes only when it fits beside strays on
// each of them, and what starts before counts.
func TestWaryOfWholeStarts(t *testing.T) {
	t.Parallel()
	n1, n2 := schedtest.Node("n1", 1, "T4"), schedtest.Node("n2", 2, "T4")
	nodes := []*cluster.Node{n1, n2}
	sells := n1.GPUs[0].SellableMiB
	before := [2]int{n1.GPUs[0].MaxShares, n2.GPUs[0].MaxShares}
	snap := &dispatch.Snapshot{Nodes: nodes, Ledger: dispatch.NewLedger(nodes)}
	held := map[cluster.GPUID]int64{n2.GPUs[0].ID: sells - 1000}
	on := func(n *cluster.Node, card int, mib int64) cluster.Berth {
		return cluster.Berth{Node: n.ID, GPUs: []cluster.GPUShare{{GPU: n.GPUs[card].ID, Share: cluster.Share{MemMiB: mib, Milli: 10}}}}
	}
	starts := []dispatch.Start{
		{Job: 1, Berth: on(n1, 0, sells), Rest: []cluster.Berth{on(n2, 0, 1001)}}, // not beside the strays
		{Job: 2, Berth: on(n1, 0, 500), Rest: []cluster.Berth{on(n2, 0, 600)}},
		{Job: 3, Berth: on(n2, 0, 401)}, // not beside strays and job 2
		{Job: 4, Berth: on(n2, 0, 400)},
		{Job: 5, Berth: on(n1, 0, sells)}, // no stray there: the state machine says
		{Job: 6, Berth: on(n2, 1, sells)},
	}
	var got []cluster.JobID
	for _, st := range careful(snap, held, slices.Clone(starts)) {
		got = append(got, st.Job)
	}
	if d := cmp.Diff([]cluster.JobID{2, 4, 5, 6}, got); d != "" {
		t.Error(d)
	}
	view := wary(snap, held)
	if u, _ := view.Ledger.GPU(n2.GPUs[0].ID); u.UsedMiB != sells-1000 || u.Shares != 1 || u.MaxShares != before[1]+1 || view.Nodes[0] != n1 || view.Nodes[1] == n2 {
		t.Errorf("the planner sees %+v", u)
	}
	if u, _ := snap.Ledger.GPU(n2.GPUs[0].ID); u.UsedMiB != 0 || n1.GPUs[0].MaxShares != before[0] || n2.GPUs[0].MaxShares != before[1] || snap.Nodes[1] != n2 {
		t.Errorf("the snapshot has changed: %+v", u)
	}
}

// TestPlansBesideStrays: as long as gossip holds memory nobody is laid on it, neither by
// passes nor by the fast path; the job starts once it is free, though nothing else
// happens meanwhile. Queues that were handed to the planner are its own.
func TestPlansBesideStrays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 1, nil)
		l.mu.Lock()
		l.held["n1-g0"] = 39_000
		l.mu.Unlock()
		l.follow()
		l.loop(l.l.plan.run)
		small := func(s *cluster.Spec) { s.GPUMemMiB, s.GPUMilli = 500, 10 }
		first := l.submit(job(1, small))[0]
		id := l.submit(job(1, func(s *cluster.Spec) { s.GPUMemMiB, s.GPUMilli = 5000, 10 }))[0]
		time.Sleep(5 * time.Second)
		if a, b := l.job(first).State, l.job(id).State; a != cluster.JobStarting || b == cluster.JobStarting {
			t.Errorf("beside strays: the small one is %s, the large one %s", a, b)
		}
		l.say(first, cluster.JobCompleted, nil) // the fast path looks at the card
		time.Sleep(5 * time.Second)
		if s := l.job(id).State; s == cluster.JobStarting {
			t.Error("the fast path laid it on strays")
		}
		l.mu.Lock()
		delete(l.held, "n1-g0")
		l.mu.Unlock()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s := l.job(id).State; s != cluster.JobStarting {
			t.Errorf("strays are gone, and it is %s", s)
		}
	})
}

// TestNobodyEndsForGossip: with memory that only gossip holds no more are preempted than
// without it.
func TestNobodyEndsForGossip(t *testing.T) {
	t.Parallel()
	n := schedtest.Node("n1", 1, "T4")
	now := cluster.Time(1_700_000_000_000_000)
	run := schedtest.Job(1, schedtest.Mem(2000), schedtest.Lasts(20*time.Hour))
	run.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
	run.State = cluster.JobRunning
	run.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobRunning, Started: now.Add(-2 * time.Hour), Placed: now.Add(-2 * time.Hour),
		Berth:    cluster.Berth{Node: "n1", CPUMilli: 1000, MemMiB: 1000, GPUs: []cluster.GPUShare{{GPU: n.GPUs[0].ID, Share: cluster.Share{MemMiB: 2000, Milli: 100}}}},
		Estimate: cluster.Estimate{GPUType: "T4", GPUMemMiB: 2000, Milli: 100, Duration: 20 * time.Hour, ConfidenceMilli: 900}}}
	wait := schedtest.Job(2, schedtest.Mem(2000), schedtest.Util(100), schedtest.Predict("T4", 2000, 100, time.Minute))
	wait.Eligible = now.Add(-time.Hour)
	make1 := func() *dispatch.Snapshot {
		led := dispatch.NewLedger([]*cluster.Node{n})
		led.Take(&run.Attempts[0].Berth)
		return &dispatch.Snapshot{Now: now, Nodes: []*cluster.Node{n}, Ledger: led, Running: []*cluster.Job{run}, Waiting: []*cluster.Job{wait}, Queues: map[cluster.GPUID][]dispatch.Waiter{}}
	}
	s := planBy(func(p *scheduler.Policy) { p.MaxShares = 1 })
	held := map[cluster.GPUID]int64{}
	p := &planner{held: func() map[cluster.GPUID]int64 { return held }}
	if without := p.beside(make1(), &s, site.Full); len(without.Preempt) != 1 || p.less {
		t.Fatalf("without strays %v make room; less %t", without.Preempt, p.less)
	}
	held[n.GPUs[0].ID] = 100
	if with := p.beside(make1(), &s, site.Full); len(with.Preempt) > 1 || !p.less {
		t.Errorf("with strays %v make room; less %t", with.Preempt, p.less)
	}
	// Where nobody would end without them nobody does.
	s = planBy(nil)
	held[n.GPUs[0].ID] = n.GPUs[0].SellableMiB - 2500
	snap := make1()
	queues := len(snap.Queues)
	if with := p.beside(snap, &s, site.Full); len(with.Preempt) != 0 || len(with.Starts) != 0 || len(snap.Queues) != queues {
		t.Errorf("%v make room for gossip, %v start", with.Preempt, with.Starts)
	}
	held = nil
	if without := p.beside(make1(), &s, site.Full); len(without.Starts) != 1 {
		t.Errorf("without strays it does not start: %+v", without.Unplaced)
	}
}
