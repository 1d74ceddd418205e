package scheduler_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// The laws that hold for each plan of each world, checked on drawn ones.

// drawPolicy is a policy that a site could choose.
func drawPolicy(t *rapid.T) scheduler.Policy {
	pol := scheduler.Default()
	pol.MaxShares = rapid.IntRange(1, 4).Draw(t, "policy's shares")
	pol.FIFOAge = rapid.SampledFrom([]time.Duration{0, time.Minute, 4 * time.Hour}).Draw(t, "FIFO age")
	pol.OldDrains = rapid.SampledFrom([]int64{0, 2}).Draw(t, "old drains")
	pol.ShortPart = rapid.SampledFrom([]int64{0, 2, 32}).Draw(t, "short part")
	pol.LongPart = rapid.SampledFrom([]int64{0, 1, 4}).Draw(t, "long part")
	pol.ReserveAge = rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "reserve age")
	pol.PatienceMilli = rapid.SampledFrom([]int64{0, 0, 2000}).Draw(t, "patience")
	pol.MaxMoves = rapid.SampledFrom([]int{0, 1, 20000}).Draw(t, "moves")
	pol.MaxRebalance = rapid.SampledFrom([]int{0, 1, 1000}).Draw(t, "rebalance")
	if rapid.IntRange(0, 5).Draw(t, "slot") == 0 {
		pol.Mode = scheduler.ModeSlot
	}
	return pol
}

// TestStartsKeepTheSpec: whatever the policy, each start is what was asked.
func TestStartsKeepTheSpec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), drawPolicy(t)
		p := scheduler.Schedule(w.Snapshot(), pol)
		for i := range p.Starts {
			st := &p.Starts[i]
			j := w.Jobs[st.Job]
			if st.Why == "" || st.Attempt != uint32(len(j.Attempts))+1 {
				t.Fatalf("start of job %d: attempt %d, why %q", st.Job, st.Attempt, st.Why)
			}
			if n := len(st.Berth.GPUs); n != j.Spec.GPUs {
				t.Fatalf("job %d gets %d GPUs, wants %d", st.Job, n, j.Spec.GPUs)
			}
			node, _ := w.Node(st.Berth.Node)
			if !node.Schedulable() || j.Spec.Node != "" && j.Spec.Node != node.ID {
				t.Fatalf("job %d starts on node %s", st.Job, node.ID)
			}
			for _, gs := range st.Berth.GPUs {
				g := node.GPU(gs.GPU)
				if g == nil {
					t.Fatalf("job %d: node %s has no GPU %s", st.Job, node.ID, gs.GPU)
				}
				want, est, r := rules.ShareOn(j, g, pol)
				if r.Code != "" || want != gs.Share || est != st.Estimate {
					t.Fatalf("job %d has %+v of %s, ShareOn says %+v (%s)", st.Job, gs.Share, g.ID, want, r)
				}
				if alone := pol.Mode == scheduler.ModeSlot || !g.Shareable() || pol.MaxShares < 2; alone && !gs.Share.Exclusive {
					t.Fatalf("job %d shares %s", st.Job, g.ID)
				}
			}
		}
		w.Apply(&p)
		if err := w.Check(); err != nil || len(w.Rejected) > 0 {
			t.Fatalf("applied: %v, rejected %v", err, w.Rejected)
		}
	})
}

// TestOvertookExactlyWhenSomebodyIsPassed: no start is silent about whom it
// passes, and none excuses itself for nothing.
func TestOvertookExactlyWhenSomebodyIsPassed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), drawPolicy(t)
		p := scheduler.Schedule(w.Snapshot(), pol)
		for _, st := range p.Starts {
			passes := false
			for _, g := range st.Berth.GPUs {
				q := w.Queues[g.GPU]
				passes = passes || len(q) > 0 && q[0].Job != st.Job
			}
			if passes != (st.Overtook != "") {
				t.Fatalf("job %d passes somebody: %t, says %q", st.Job, passes, st.Overtook)
			}
			w.Apply(&dispatch.Plan{Starts: []dispatch.Start{st}})
		}
	})
}

// TestMovesMakeSense: jobs join queues of cards of nodes that could run them,
// once for each job, never into the past, and who is old before all others.
func TestMovesMakeSense(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), drawPolicy(t)
		s := w.Snapshot()
		p := scheduler.Schedule(s, pol)
		moved := map[cluster.JobID]bool{}
		for _, st := range p.Starts {
			moved[st.Job] = true
		}
		first, between := 0, 0
		for _, m := range p.Moves {
			j := w.Jobs[m.Job]
			if moved[m.Job] {
				t.Fatalf("job %d is started and moved, or moved twice", m.Job)
			}
			moved[m.Job] = true
			if j.Queue == "" {
				first++
			} else {
				between++
			}
			if m.GPU == "" {
				continue
			}
			u, _ := w.Ledg.GPU(m.GPU)
			node, _ := w.Node(u.Node)
			if !node.Schedulable() || rules.NeverFits([]*cluster.Node{node}, j, pol) != nil {
				t.Fatalf("job %d joins the queue of %s and can never run there", m.Job, m.GPU)
			}
			waits := s.Now.Sub(j.Eligible)
			if m.Rank < 0 || m.EstStart < s.Now && m.GPU != j.Queue || m.Reason == "" {
				t.Fatalf("job %d joins %s: rank %d, start %s from now, reason %q", m.Job, m.GPU, m.Rank, m.EstStart.Sub(s.Now), m.Reason)
			}
			if old := scheduler.RankIsOld(m.Rank); old && (pol.FIFOAge == 0 || waits < pol.FIFOAge) || !old && pol.FIFOAge > 0 && waits >= max(pol.FIFOAge, pol.MaxAge) {
				t.Fatalf("job %d joins %s after %s with rank %d", m.Job, m.GPU, waits, m.Rank)
			}
		}
		if first > pol.MaxMoves {
			t.Fatalf("%d first moves, at most %d are allowed", first, pol.MaxMoves)
		}
		if between > pol.MaxMoves+pol.MaxRebalance {
			t.Fatalf("%d moves between queues", between)
		}
	})
}

// TestNoFreeCardBesideAWaitingJob: by default nobody waits for one GPU while
// a card is empty on which it could lie, but for cards that are kept for who
// waits for several.
func TestNoFreeCardBesideAWaitingJob(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		for id, j := range w.Jobs { // nobody wants several, and hosts have plenty
			if j.State.Waiting() && j.Spec.GPUs != 1 {
				spec := *j.Spec
				spec.GPUs = 1
				c := j.Clone()
				c.Spec = &spec
				w.Jobs[id] = c
			}
		}
		pol := scheduler.Default()
		pol.KeepCPUMilli, pol.KeepMemMiB = 0, 0 // the cores and the memory of idle GPUs
		p := scheduler.Schedule(w.Snapshot(), pol)
		apply(t, w, p, pol)
		hosts := map[cluster.NodeID]bool{} // whose cores or memory lack to a waiter are out of this law
		for _, j := range w.Snapshot().Waiting {
			for _, n := range w.Nodes {
				if b := hostBerth(n, j, pol); w.Ledg.Fits(&b).Code != "" {
					hosts[n.ID] = true
				}
			}
		}
		for _, j := range w.Snapshot().Waiting {
			for _, n := range w.Nodes {
				if hosts[n.ID] || !n.Schedulable() || j.Spec.Node != "" && j.Spec.Node != n.ID || j.MinGPUMemMiB > 0 {
					continue
				}
				for i := range n.GPUs {
					u, _ := w.Ledg.GPU(n.GPUs[i].ID)
					if _, _, r := rules.ShareOn(j, &n.GPUs[i], pol); r.Code == "" && u.Shares == 0 {
						t.Fatalf("job %d waits (%s) although %s is empty", j.ID, j.Reason, u.ID)
					}
				}
			}
		}
	})
}

func hostBerth(n *cluster.Node, j *cluster.Job, pol scheduler.Policy) cluster.Berth {
	return cluster.Berth{Node: n.ID, CPUMilli: host(j.Spec.CPUMilli, pol.DefaultCPUMilli), MemMiB: host(j.Spec.MemMiB, pol.DefaultMemMiB)}
}

// TestNeverFitsIsRight: a job that is refused would not start on the empty
// cluster, and one that is not refused starts there.
func TestNeverFitsIsRight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, pol := drawNodes(t), drawPolicy(t)
		for _, n := range nodes {
			n.State, n.Drain = cluster.NodeReady, false
		}
		j := drawJob(t, 1)
		err := rules.NeverFits(nodes, j, pol)
		p := scheduler.Schedule(NewWorld(nodes, j).Snapshot(), pol)
		switch {
		case err == nil && len(p.Starts) == 0:
			t.Fatalf("job waits on an empty cluster: %v", p.Unplaced)
		case err != nil && len(p.Starts) > 0:
			t.Fatalf("job starts, and NeverFits says %q", err.Msg)
		case err != nil && err.Code != cluster.CodeInvalid:
			t.Fatalf("code %v", err.Code)
		}
	})
}

// TestNeverFitsKnowsNoState: drained and silent nodes count as able.
func TestNeverFitsKnowsNoState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, j, pol := drawNodes(t), drawJob(t, 1), drawPolicy(t)
		before := rules.NeverFits(nodes, j, pol)
		for _, n := range nodes {
			Drained(n)
			Silent(n)
		}
		slices.Reverse(nodes)
		after := rules.NeverFits(nodes, j, pol)
		if (before == nil) != (after == nil) || before != nil && before.Msg != after.Msg {
			t.Fatalf("%v, drained and in another order %v", before, after)
		}
	})
}

// TestExplainCountsEveryPlace: each GPU on which the job may look is counted
// once, codes come once for each GPU type and worst first.
func TestExplainCountsEveryPlace(t *testing.T) {
	t.Parallel()
	order := []cluster.ReasonCode{
		cluster.ReasonNeverFits, cluster.ReasonNodeDown, cluster.ReasonGPUType, cluster.ReasonGPUs, cluster.ReasonExclusive,
		cluster.ReasonGPUMem, cluster.ReasonGPUCompute, cluster.ReasonGPUSlots, cluster.ReasonHostMem, cluster.ReasonCPU,
		cluster.ReasonSharing, cluster.ReasonQueueOrder, cluster.ReasonResources, cluster.ReasonUnconfirmed,
	}
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), scheduler.Default()
		s := w.Snapshot()
		for _, j := range s.Waiting {
			got := scheduler.Explain(s, j, pol)
			sum, at, last := 0, -1, ""
			for _, e := range got {
				i := slices.Index(order, e.Reason.Code)
				if i < at || i == at && e.GPUType <= last || e.Count < 1 && e.Reason.Code != cluster.ReasonNeverFits || e.Reason.Detail == "" {
					t.Fatalf("job %d: %+v", j.ID, got)
				}
				at, last = i, e.GPUType
				sum += e.Count
			}
			places := 0
			for _, n := range s.Nodes {
				if j.Spec.Node != "" && j.Spec.Node != n.ID {
					continue
				}
				if j.Spec.GPUs == 0 {
					places++
				} else {
					places += len(n.GPUs)
				}
			}
			if j.Spec.GPUs == 1 && j.Queue == "" && rules.NeverFits(s.Nodes, j, pol) == nil && sum != places {
				t.Fatalf("job %d: %d places are explained, there are %d: %+v", j.ID, sum, places, got)
			}
		}
	})
}

// TestAnotherPassHasNothingToDo: a plan that was applied leaves no work for a
// pass at the same instant, once nobody changes queues. What a start leaves of
// what its idle GPU kept is kept until the next pass, so that rule is off here.
func TestAnotherPassHasNothingToDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		pol := scheduler.Default()
		pol.MaxRebalance, pol.ReserveAge, pol.FIFOAge = 0, 1<<55, 0
		pol.KeepCPUMilli, pol.KeepMemMiB = 0, 0
		p := scheduler.Schedule(w.Snapshot(), pol)
		apply(t, w, p, pol)
		again := scheduler.Schedule(w.Snapshot(), pol)
		if len(again.Starts)+len(again.Moves) > 0 {
			t.Fatalf("decides again: %q", show(&dispatch.Plan{Starts: again.Starts, Moves: again.Moves}))
		}
		if len(again.Unplaced) != len(w.Snapshot().Waiting) {
			t.Fatalf("%d of %d are told why they wait", len(again.Unplaced), len(w.Snapshot().Waiting))
		}
	})
}

// TestFastPathStaysInItsQueues: OnRelease starts nobody who does not stand in
// the queue of a GPU that was freed, and looks no deeper than it may.
func TestFastPathStaysInItsQueues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), drawPolicy(t)
		p := scheduler.Schedule(w.Snapshot(), pol)
		w.Apply(&p)
		freed := w.Advance(time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes")) * time.Minute)
		pol.ReleaseDepth = rapid.IntRange(1, 3).Draw(t, "depth")
		may := map[cluster.JobID]bool{}
		for _, g := range freed {
			q := w.Queues[g]
			for _, x := range q[:min(len(q), pol.ReleaseDepth)] {
				may[x.Job] = true
			}
		}
		before := w.Ledg.Clone()
		p = scheduler.OnRelease(w, freed, pol)
		if !before.Equal(w.Ledg) {
			t.Fatal("the ledger of the view was changed")
		}
		if len(p.Moves)+len(p.Unplaced) > 0 {
			t.Fatalf("the fast path moves or explains: %+v", p)
		}
		for _, st := range p.Starts {
			if !may[st.Job] {
				t.Fatalf("job %d starts and does not stand in front of a queue of %v", st.Job, freed)
			}
		}
		apply(t, w, p, pol)
	})
}

// TestProtectedHeadsAreNotDelayed: whoever is laid on the card of a head that
// is old is predicted to be gone when the head could start at the
// latest: when all who lie there have ended.
func TestProtectedHeadsAreNotDelayed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		w.Clock = w.Clock.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "later")) * time.Minute)
		pol := scheduler.Default()
		pol.FIFOAge, pol.OldDrains = 5*time.Minute, 0
		s := w.Snapshot()
		clear := map[cluster.GPUID]cluster.Time{} // when the last who lies there ends
		for _, r := range s.Running {
			a := r.Live()
			d := cmp.Or(a.Estimate.Duration, r.Spec.Duration, r.Spec.TimeLimit, pol.AssumedDuration)
			end := a.Started.Add(max(d, r.Spec.TimeLimit))
			if end <= s.Now { // it outlived what was expected of it
				end = s.Now.Add(max(time.Second, s.Now.Sub(a.Started)/4))
			}
			for _, g := range a.Berth.GPUs {
				clear[g.GPU] = max(clear[g.GPU], end)
			}
		}
		starts := map[cluster.JobID]bool{}
		p := scheduler.Schedule(s, pol)
		for _, st := range p.Starts {
			starts[st.Job] = true
		}
		for _, st := range p.Starts {
			j := w.Jobs[st.Job]
			d := cmp.Or(st.Estimate.Duration, j.Spec.Duration, j.Spec.TimeLimit, pol.AssumedDuration)
			latest := s.Now.Add(max(d, j.Spec.TimeLimit))
			if j.Spec.TimeLimit > 0 {
				d = min(d, j.Spec.TimeLimit)
			}
			for _, g := range st.Berth.GPUs {
				head := unstarted(s.Queues[g.GPU], starts)
				if end := s.Now.Add(d); head != 0 && head != st.Job && !mayDelay(w, s, j, w.Jobs[head], g.GPU, pol) && end > max(clear[g.GPU], s.Now) {
					t.Fatalf("job %d passes job %d on %s until %s from now, %s after the last there ends",
						j.ID, head, g.GPU, end.Sub(s.Now), end.Sub(clear[g.GPU]))
				}
				clear[g.GPU] = max(clear[g.GPU], latest)
			}
		}
	})
}

// unstarted is the head of a queue, 0 when it starts in this plan or there is
// none.
func unstarted(q []dispatch.Waiter, starts map[cluster.JobID]bool) cluster.JobID {
	if len(q) == 0 || starts[q[0].Job] {
		return 0
	}
	return q[0].Job
}

// mayDelay reports whether the rule of age lets j take the card before head.
func mayDelay(w *World, s *dispatch.Snapshot, j, head *cluster.Job, gpu cluster.GPUID, pol scheduler.Policy) bool {
	u, _ := w.Ledg.GPU(gpu)
	n, _ := w.Node(u.Node)
	switch {
	case head.Spec.GPUs != 1: // waits for several, not for this one
		return true
	case !old(s, head, pol):
		return true
	case !n.Schedulable() || rules.NeverFits([]*cluster.Node{n}, head, pol) != nil: // cannot run there any more
		return true
	}
	return older(j, head) && old(s, j, pol)
}

func older(a, b *cluster.Job) bool {
	return a.Eligible < b.Eligible || a.Eligible == b.Eligible && a.ID < b.ID
}

// old reports whether a job goes first whatever its length, where the policy
// does not look at how much there is to do.
func old(s *dispatch.Snapshot, j *cluster.Job, pol scheduler.Policy) bool {
	return s.Now >= j.Eligible.Add(pol.FIFOAge)
}

// TestEqualJobsStartInOrder: of equal jobs the one with the lower id goes
// first, and after FIFOAge the one that waits longer.
func TestEqualJobsStartInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cards := rapid.IntRange(1, 3).Draw(t, "cards")
		n := rapid.IntRange(cards+1, 9).Draw(t, "jobs")
		pol := scheduler.Default()
		pol.OldDrains = 0 // else it depends on how many wait who is old
		old := rapid.Bool().Draw(t, "old")
		var waits []time.Duration
		w := NewWorld([]*cluster.Node{Node("n1", cards, a100)})
		for i := range n {
			d := time.Duration(rapid.IntRange(0, 100).Draw(t, "waited")) * time.Second
			if old {
				d += pol.FIFOAge
			}
			waits = append(waits, d)
			w.Submit(Job(cluster.JobID(i+1), Exclusive, Waited(d)))
		}
		want := make([]cluster.JobID, n)
		for i := range want {
			want[i] = cluster.JobID(i + 1)
		}
		if old {
			slices.SortStableFunc(want, func(a, b cluster.JobID) int { return cmp.Compare(waits[b-1], waits[a-1]) })
		}
		var got []cluster.JobID
		for _, st := range scheduler.Schedule(w.Snapshot(), pol).Starts {
			got = append(got, st.Job)
		}
		if !slices.Equal(got, want[:cards]) {
			t.Fatalf("start %v of %s, want %v", got, fmt.Sprint(waits), want[:cards])
		}
	})
}

// TestNeverFitsAsksFew: of many nodes those behind the first few are not looked at
// when a job fits on these, since every submit asks.
func TestNeverFitsAsksFew(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 2, 4} {
		nodes := make([]*cluster.Node, 10_000) // whoever looks at those that are nil panics
		for i := range 2 * count {
			nodes[i] = Node(cluster.NodeID(fmt.Sprintf("n%d", i)), 8, "T4")
		}
		j := Job(1, GPUs(2))
		j.Spec.Nodes = count
		if err := rules.NeverFits(nodes, j, scheduler.Default()); err != nil {
			t.Errorf("%d nodes: %v", count, err)
		}
	}
}
