package site

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// foreigners are policies that know neither quotas nor reservations.
func foreigners() []string {
	return []string{"slot+fifo", "slot+sjf", "fgd", "bestfit+sjf", "horus", "lucid", "consolidate"}
}

// mayLie says by lists of all that each reservation holds whether a job may start
// now on a berth: inside the one that it asks for, while that is open and for it,
// outside of all others that open before it ends, and on nodes that it allows.
func mayLie(j *cluster.Job, b *cluster.Berth, snap *dispatch.Snapshot) bool {
	asks := ""
	if w := j.Spec.Where; w != nil {
		asks = w.Reservation
		if w.Exclude.Holds(b.Node) || w.Nodes.String() != "" && !w.Nodes.Holds(b.Node) {
			return false
		}
	}
	inside := asks == ""
	for _, r := range snap.Reservations {
		held := holds(r, snap.Nodes)
		on := held[string(b.Node)]
		for _, g := range b.GPUs {
			on = on || held[string(g.GPU)]
		}
		next := windowsOf(r, snap.Now)
		if r.Name != asks {
			if on && len(next) > 0 && (j.Spec.TimeLimit == 0 || next[0].from < snap.Now.Add(j.Spec.TimeLimit)) {
				return false
			}
			continue
		}
		if len(next) == 0 || next[0].from > snap.Now || !slices.Contains(r.Users, j.Owner.Name) {
			return false
		}
		inside = r.Nodes.Holds(b.Node)
		for _, g := range b.GPUs {
			inside = inside && held[string(g.GPU)]
		}
	}
	return inside
}

// TestForeignPoliciesKeepReservations: whatever the policy and whatever is reserved,
// nobody starts where it may not lie; a plan changes nothing that it was made of,
// the same again gives the same, and the state takes all of it.
func TestForeignPoliciesKeepReservations(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := []*cluster.Node{schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 2, "T4"), schedtest.Node("n3", 2, "A100-SXM4-80GB"), schedtest.Node("n4", 0, "")}
		w := schedtest.NewWorld(nodes)
		c := byName(t, rapid.SampledFrom(append(foreigners(), "ffd", "slot")).Draw(t, "policy"))
		var rs dispatch.Reservations
		for _, name := range []string{"r", "s"}[:rapid.IntRange(0, 2).Draw(t, "reservations")] {
			r := drawReservation(t, name)
			r.Start = schedtest.Now.Add(time.Duration(rapid.IntRange(-6, 30).Draw(t, "from")) * time.Hour)
			r.Users = []string{"ann"}
			rs = append(rs, r)
		}
		for id := cluster.JobID(1); id <= 8; id++ {
			j := schedtest.Job(id, schedtest.GPUs(rapid.IntRange(0, 2).Draw(t, "gpus")), schedtest.Limit(time.Duration(rapid.IntRange(0, 20).Draw(t, "limit"))*time.Hour),
				schedtest.Predict("A100-SXM4-80GB", 3000, 300, time.Hour), schedtest.Predict("T4", 3000, 300, time.Hour))
			if j.Spec.TimeLimit == 0 {
				j.Estimates, j.Spec.Duration = nil, 0 // nobody knows when it ends
			}
			j.Owner.Name = rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "owner")
			switch rapid.IntRange(0, 5).Draw(t, "where") {
			case 0:
				j.Spec.Where = &cluster.Where{Reservation: rapid.SampledFrom([]string{"r", "s"}).Draw(t, "in")}
			case 1:
				j.Spec.Where = &cluster.Where{Nodes: hosts(t, rapid.SampledFrom([]string{"n1", "n3"}).Draw(t, "on"))}
			case 2:
				j.Spec.Where = &cluster.Where{Exclude: hosts(t, rapid.SampledFrom([]string{"n1", "n[2-3]"}).Draw(t, "not on"))}
			}
			j.Eligible = schedtest.Now.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, "waited")) * time.Second)
			w.Submit(j)
		}
		snapshot := func() *dispatch.Snapshot {
			snap := w.Snapshot()
			snap.Reservations = rs
			return snap
		}
		for range 4 {
			snap := snapshot()
			plan := c.pass(snap)
			if d := cmp.Diff(plan, c.pass(snap)); d != "" {
				t.Fatalf("two plans of one snapshot differ: %s", d)
			}
			if !snap.Ledger.Equal(w.Ledg) || len(snap.Waiting)+len(snap.Running) != len(snapshot().Waiting)+len(snapshot().Running) {
				t.Fatal("the snapshot is not as it was")
			}
			seen := map[cluster.JobID]bool{}
			for i := range plan.Starts {
				st := &plan.Starts[i]
				j := w.Jobs[st.Job]
				if asks := j.Spec.Where.InReservation(); seen[j.ID] || !mayLie(j, &st.Berth, snap) || asks != "" && rs.Get(asks) == nil {
					t.Fatalf("%s: job %d (%+v, %s) starts on %+v of %+v", c.Name(), j.ID, j.Spec.Where, j.Spec.TimeLimit, st.Berth, rs)
				}
				seen[j.ID] = true
			}
			for _, u := range plan.Unplaced {
				if seen[u.Job] {
					t.Fatalf("%s: job %d starts and is told why it waits: %+v", c.Name(), u.Job, u.Reason)
				}
			}
			w.Apply(&plan)
			if len(w.Rejected) > 0 {
				t.Fatalf("%s: rejected %+v", c.Name(), w.Rejected)
			}
			if err := w.Check(); err != nil {
				t.Fatal(err)
			}
			w.Advance(40 * time.Minute)
		}
	})
}

// TestOldestSetFirst: of jobs that may lie on different nodes the set goes first
// whose oldest waits longest, and what it takes the next find taken.
func TestOldestSetFirst(t *testing.T) {
	t.Parallel()
	c := byName(t, "slot+fifo")
	for older := cluster.JobID(1); older <= 2; older++ {
		w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4"), schedtest.Node("n2", 0, "")})
		for id := cluster.JobID(1); id <= 3; id++ {
			j := schedtest.Job(id, schedtest.Exclusive, schedtest.Waited(time.Minute))
			if id == 1 {
				j.Spec.Where = &cluster.Where{Exclude: hosts(t, "n2")}
			}
			if id == older {
				j.Eligible = schedtest.Now.Add(-time.Hour)
			}
			w.Submit(j)
		}
		plan := c.pass(w.Snapshot())
		if len(plan.Starts) != 1 || plan.Starts[0].Job != older {
			t.Errorf("starts %+v, want job %d", plan.Starts, older)
		}
	}
}

// TestForeignPoliciesKeepQuotas: by a count of all that runs, no user is above a
// quota after any pass; who has no room is told which; and everybody has run in the
// end, so that a quota keeps nobody for ever.
func TestForeignPoliciesKeepQuotas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 4, "T4"), schedtest.Node("n2", 2, "T4")})
		c := byName(t, rapid.SampledFrom(append(foreigners(), "ffd", "slot")).Draw(t, "policy"))
		most := accounting.Limits{Running: int64(rapid.IntRange(1, 4).Draw(t, "running")), GPUMilli: int64(rapid.IntRange(2, 6).Draw(t, "halves")) * 1000}
		each := accounting.Subject{Each: true}
		quotas := map[accounting.Subject]*accounting.Quota{each: {Subject: each, Limits: most}}
		for id := range cluster.JobID(rapid.IntRange(1, 14).Draw(t, "jobs")) {
			j := schedtest.Job(id+1, schedtest.GPUs(rapid.IntRange(0, 2).Draw(t, "gpus")), schedtest.Lasts(time.Hour), schedtest.Limit(time.Hour), schedtest.Predict("T4", 6000, 400, time.Hour))
			j.Spec.Exclusive = j.Spec.GPUs > 0 && rapid.Bool().Draw(t, "alone")
			j.Owner.UID = cluster.UID(rapid.IntRange(1, 3).Draw(t, "user"))
			w.Submit(j)
		}
		for round := 0; ; round++ {
			snap := w.Snapshot()
			snap.Limits = accounting.NewLimiter(nil, quotas, nil)
			for _, j := range snap.Running {
				snap.Limits.Count(accounting.HolderOf(j), 1, 1, snap.Ledger.HeldMilli(j.Live().HeldGPUs()))
			}
			full := map[cluster.JobID]bool{} // whose owner has no job more
			for _, j := range snap.Waiting {
				n := int64(0)
				for _, o := range snap.Running {
					if o.Owner.UID == j.Owner.UID {
						n++
					}
				}
				full[j.ID] = n >= most.Running
			}
			before := snap.Limits.Used()
			plan := c.pass(snap)
			if d := cmp.Diff(before, snap.Limits.Used()); d != "" {
				t.Fatalf("%s: a pass counts on the quotas of the state: %s", c.Name(), d)
			}
			told := map[cluster.JobID]bool{}
			for _, u := range plan.Unplaced {
				told[u.Job] = told[u.Job] || accounting.LimitReason(u.Reason.Code)
			}
			for _, st := range plan.Starts {
				if full[st.Job] {
					t.Fatalf("%s: job %d starts above a quota", c.Name(), st.Job)
				}
			}
			for id, is := range full {
				if is && !told[id] {
					t.Fatalf("%s: job %d waits for a quota and is not told: %+v", c.Name(), id, plan.Unplaced)
				}
			}
			if w.Apply(&plan); len(w.Rejected) > 0 {
				t.Fatalf("%s: rejected %+v", c.Name(), w.Rejected)
			}
			jobs, held, left := map[cluster.UID]int64{}, map[cluster.UID]int64{}, 0
			for _, j := range w.Jobs {
				if !j.State.Terminal() {
					left++
				}
				if a := j.Live(); a != nil {
					jobs[j.Owner.UID]++
					for _, g := range a.HeldGPUs() {
						if g.Share.Exclusive {
							held[j.Owner.UID] += 1000
						} else {
							held[j.Owner.UID] += max(g.Share.Milli, g.Share.MemMiB*1000/15000)
						}
					}
				}
			}
			for u, n := range jobs {
				if n > most.Running || held[u] > most.GPUMilli {
					t.Fatalf("%s: user %d runs %d jobs on %d thousandths of GPUs, the quota is %+v", c.Name(), u, n, held[u], most)
				}
			}
			if left == 0 {
				return
			}
			if round > 100 {
				t.Fatalf("%s: %d jobs never run", c.Name(), left)
			}
			w.Advance(30 * time.Minute)
		}
	})
}

// TestWithin: what somebody sees who may use one partition only, by a look at each
// node, card and job.
func TestWithin(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 1, "V100"), schedtest.Node("n3", 0, "")}
	nodes[0].GPUs[1].Type = "V100"
	rapid.Check(t, func(t *rapid.T) {
		w := schedtest.NewWorld(nodes)
		p := partition(t, "a", rapid.SampledFrom([]string{"n1", "n[1-2]", "n[2-3]", "ALL"}).Draw(t, "nodes"), rapid.SampledFrom([][]string{nil, {"T4"}, {"V100"}}).Draw(t, "types")...)
		snap := w.Snapshot()
		for id := cluster.JobID(1); id <= 6; id++ {
			part := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "of")
			n := rapid.SampledFrom(nodes).Draw(t, "node")
			switch rapid.IntRange(0, 2).Draw(t, "state") {
			case 0:
				j := runs(id, time.Hour, 0, n.ID)
				j.Spec.Partition = part
				snap.Running = append(snap.Running, j)
			case 1:
				snap.Waiting = append(snap.Waiting, schedtest.Job(id, of(part)))
			case 2:
				if len(n.GPUs) > 0 {
					g := n.GPUs[0].ID
					snap.Queues[g] = append(snap.Queues[g], dispatch.Waiter{Job: id})
				}
			}
		}
		got := Within(snap, p)
		cards, at := 0, map[cluster.NodeID]bool{}
		for _, n := range got.Nodes {
			at[n.ID] = true
			cards += len(n.GPUs)
		}
		for _, n := range nodes {
			if at[n.ID] != p.Nodes.Holds(n.ID) {
				t.Fatalf("node %s of %s: seen %t", n.ID, p.Nodes, at[n.ID])
			}
			for _, g := range n.GPUs {
				if !p.Nodes.Holds(n.ID) || len(p.GPUTypes) > 0 && p.GPUTypes[0] != g.Type {
					if len(got.Queues[g.ID]) > 0 {
						t.Fatalf("the queue of %s, which is not of %s %v", g.ID, p.Nodes, p.GPUTypes)
					}
					continue
				}
				cards--
				if d := cmp.Diff(snap.Queues[g.ID], got.Queues[g.ID]); d != "" {
					t.Fatalf("the queue of %s: %s", g.ID, d)
				}
			}
		}
		if cards != 0 {
			t.Fatalf("%d cards too many are seen of %s %v", cards, p.Nodes, p.GPUTypes)
		}
		running := slices.DeleteFunc(slices.Clone(snap.Running), func(j *cluster.Job) bool { return !p.Nodes.Holds(j.Attempts[0].Berth.Node) })
		waiting := slices.DeleteFunc(slices.Clone(snap.Waiting), func(j *cluster.Job) bool { return j.Spec.Partition != "a" })
		if !slices.Equal(got.Running, running) || !slices.Equal(got.Waiting, waiting) {
			t.Fatalf("sees %d that run and %d that wait, want %d and %d", len(got.Running), len(got.Waiting), len(running), len(waiting))
		}
		if Within(snap, nil) != snap {
			t.Fatal("without a partition not all is seen")
		}
	})
}

// watcher is a policy that notes who runs, and starts nobody.
type watcher struct {
	policies.Policy
	seen *[]cluster.JobID
}

func (w watcher) Name() string { return "watcher" }

func (w watcher) Plan(s *dispatch.Snapshot) dispatch.Plan {
	for _, j := range s.Running {
		*w.seen = append(*w.seen, j.ID)
	}
	return dispatch.Plan{}
}

// TestLaterPartitionsSeeStarts: who is started for one partition runs, to those
// planned after it on the same nodes, and is not theirs to end.
func TestLaterPartitionsSeeStarts(t *testing.T) {
	t.Parallel()
	var seen []cluster.JobID
	s := &parted{
		World: schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4")}, schedtest.Job(1, of("a"), schedtest.Exclusive), schedtest.Job(2, of("b"))),
		site:  &Site{Chosen: byName(t, "ffd"), Partitions: map[string]Chosen{"b": {Planner: watcher{seen: &seen}}}},
		parts: []*cluster.Partition{partition(t, "a", "ALL"), partition(t, "b", "ALL")},
	}
	if p := planPartitions(s.snapshot(), s.site, false); len(p.Starts) != 1 || !slices.Equal(seen, []cluster.JobID{1}) {
		t.Errorf("starts %+v; the pass after it sees %v run, want job 1", p.Starts, seen)
	}
	s.site.Partitions["b"] = Chosen{Planner: enders{}}
	s.Submit(runs(3, time.Hour, 0, "n1", "n1-00"))
	s.Submit(runs(4, time.Hour, 0, "n1", "n1-01"))
	s.Jobs[3].Spec.Partition, s.Jobs[4].Spec.Partition = "a", "b"
	if p := planPartitions(s.snapshot(), s.site, false); len(p.Preempt) != 1 || p.Preempt[0].Job != 4 {
		t.Errorf("ends %+v, want job 4 of its own partition alone", p.Preempt)
	}
}

// enders is a policy that ends all that it sees.
type enders struct{ policies.Policy }

func (enders) Name() string { return "enders" }

func (enders) Plan(s *dispatch.Snapshot) (p dispatch.Plan) {
	for _, j := range s.Running {
		p.Preempt = append(p.Preempt, dispatch.Preemption{Job: j.ID, Attempt: 1})
	}
	return p
}

// TestPartitionsShareQuotas: what one partition starts counts against the quotas of
// those planned after it; of two that both wait for too long the older goes first,
// whatever its name.
func TestPartitionsShareQuotas(t *testing.T) {
	t.Parallel()
	for older, name := range map[cluster.JobID]string{1: "a", 2: "b"} {
		for _, policy := range []string{"ffd", "slot+fifo"} {
			w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4")})
			for id, part := range map[cluster.JobID]string{1: "a", 2: "b"} {
				j := schedtest.Job(id, schedtest.Exclusive, schedtest.Of(7, 7), of(part), schedtest.Waited(5*time.Hour))
				if id == older {
					j.Eligible = schedtest.Now.Add(-6 * time.Hour)
				}
				w.Submit(j)
			}
			s := &parted{World: w, site: &Site{Chosen: byName(t, policy)}, parts: []*cluster.Partition{partition(t, "a", "ALL"), partition(t, "b", "ALL")}}
			snap := s.snapshot()
			snap.Limits = accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{{Each: true}: {Limits: accounting.Limits{Running: 1}}}, nil)
			if p := planPartitions(snap, s.site, false); len(p.Starts) != 1 || p.Starts[0].Job != older {
				t.Errorf("%s: starts %+v, want that of partition %s, which waits longest, alone", policy, p.Starts, name)
			}
		}
	}
}
