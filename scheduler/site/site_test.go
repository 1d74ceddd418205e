package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

var _ = draws.Fixed()

// byName makes a policy as the daemon does.
func byName(t interface{ Fatal(...any) }, name string) Chosen {
	c := Chosen{Policy: scheduler.Default()}
	place, order, _ := strings.Cut(name, "+")
	if place == "slot" {
		c.Policy.Mode = scheduler.ModeSlot
	}
	if order != "" || place != "slot" && place != "ffd" {
		p, err := policies.New(name, policies.Options{Base: c.Policy, Age: c.Policy.FIFOAge, HoldAge: c.Policy.FIFOAge})
		if err != nil {
			t.Fatal(err)
		}
		c.Planner = p
	}
	return c
}

func partition(t interface{ Fatal(...any) }, name, nodes string, types ...string) *cluster.Partition {
	h, err := cluster.ParseHostList(nodes)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster.Partition{Name: name, Nodes: h, GPUTypes: types}
}

// of puts a job into a partition.
func of(name string) schedtest.JobOption {
	return func(j *cluster.Job) { j.Spec.Partition = name }
}

// parted is a world with partitions.
type parted struct {
	*schedtest.World
	parts []*cluster.Partition
	site  *Site
}

func (s *parted) snapshot() *dispatch.Snapshot {
	snap := s.Snapshot()
	snap.Partitions = s.parts
	return snap
}

// pass plans, and says what is wrong with the plan or with what became of it.
func (s *parted) pass(arrival bool) error {
	plan := planPartitions(s.snapshot(), s.site, arrival)
	if d := cmp.Diff(plan, planPartitions(s.snapshot(), s.site, arrival)); d != "" {
		return fmt.Errorf("two plans of one snapshot differ: %s", d)
	}
	return s.take(&plan)
}

func (s *parted) take(plan *dispatch.Plan) error {
	for i := range plan.Starts {
		st := &plan.Starts[i]
		for _, p := range s.parts {
			n, _ := s.Node(st.Berth.Node)
			if s.Jobs[st.Job].Spec.Partition != p.Name {
				continue
			}
			part := p.Part(n)
			if p.Down || part == nil || slices.ContainsFunc(st.Berth.GPUs, func(g cluster.GPUShare) bool { return part.GPU(g.GPU) == nil }) {
				return fmt.Errorf("job %d of %s starts on %+v", st.Job, p.Name, st.Berth)
			}
		}
	}
	s.Apply(plan)
	for _, j := range s.Jobs {
		for _, p := range s.parts {
			if j.Queue == "" || j.Spec.Partition != p.Name {
				continue
			}
			u, _ := s.Ledg.GPU(j.Queue)
			if !p.Nodes.Holds(u.Node) || !p.HasType(u.Type) {
				return fmt.Errorf("job %d of %s waits for %s", j.ID, p.Name, j.Queue)
			}
		}
	}
	if len(s.Rejected) > 0 {
		return fmt.Errorf("rejected: %+v", s.Rejected[0])
	}
	return s.Check()
}

// TestPartitionsArePlannedApart: whatever the policies and however the
// partitions overlap, plans hold, nobody leaves a partition, and when no more
// jobs come everybody has run in the end.
func TestPartitionsArePlannedApart(t *testing.T) { // not beside tests that wait for elections
	rapid.Check(t, func(t *rapid.T) {
		nodes := []*cluster.Node{
			schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 2, "T4"), schedtest.Node("n3", 4, "A100-SXM4-80GB"), schedtest.Node("n4", 0, ""),
		}
		names := []string{"ffd", "ffd", "slot", "slot+fifo", "fgd", "bestfit+sjf", "horus", "lucid"}
		lists := []string{"ALL", "n1", "n[1-2]", "n[2-4]", "n3,n4", "n[1-9]"}
		s := &parted{World: schedtest.NewWorld(nodes), site: &Site{Chosen: byName(t, "ffd"), Partitions: map[string]Chosen{}}}
		for i := range rapid.IntRange(1, 4).Draw(t, "partitions") {
			p := partition(t, string(rune('a'+i)), rapid.SampledFrom(lists).Draw(t, "nodes"))
			if rapid.IntRange(0, 4).Draw(t, "typed") == 0 {
				p.GPUTypes = []string{"T4"}
			}
			s.parts = append(s.parts, p)
			s.site.Partitions[p.Name] = byName(t, rapid.SampledFrom(names).Draw(t, "policy"))
		}
		id := cluster.JobID(0)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range rapid.IntRange(0, 6).Draw(t, "jobs") {
				id++
				j := schedtest.Job(id, schedtest.GPUs(rapid.IntRange(0, 2).Draw(t, "gpus")), schedtest.Util(300), schedtest.Mem(int64(rapid.IntRange(1, 14).Draw(t, "gib"))<<10),
					schedtest.Lasts(time.Duration(rapid.IntRange(1, 240).Draw(t, "minutes"))*time.Minute), of(rapid.SampledFrom(s.parts).Draw(t, "of").Name))
				if j.Spec.GPUs == 0 {
					j.Spec.GPUMemMiB, j.Spec.GPUMilli = 0, 0
				}
				j.Submitted, j.Eligible = s.Clock, s.Clock
				s.Submit(j)
			}
			if err := s.pass(rapid.Bool().Draw(t, "arrival")); err != nil {
				t.Fatal(err)
			}
			s.Advance(time.Duration(rapid.IntRange(1, 3600).Draw(t, "seconds")) * time.Second)
		}
		for range 400 {
			if err := s.pass(false); err != nil {
				t.Fatal(err)
			}
			s.Advance(time.Hour)
		}
		for _, j := range s.Jobs {
			p := PartitionOf(s.snapshot(), j)
			if !j.State.Terminal() && rules.NeverFits(NodesOf(s.Nodes, p), j, s.site.Of(p.Name).Policy) == nil && len(NodesOf(s.Nodes, p)) > 0 {
				t.Fatalf("job %d of %s (%s, %s) never ran: %+v, queue %s", j.ID, p.Name, p.Nodes, s.site.Partitions[p.Name].Planner, j.Spec, j.Queue)
			}
		}
	})
}

// TestOnePartitionIsTheCluster: a partition of all nodes is planned as a
// cluster without partitions is.
func TestOnePartitionIsTheCluster(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ffd", "slot", "fgd+sjf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := []*cluster.Node{schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 1, "A100-SXM4-80GB")}
			s := &parted{World: schedtest.NewWorld(nodes), site: &Site{Chosen: byName(t, name)}}
			for i := range 12 {
				s.Submit(schedtest.Job(cluster.JobID(i+1), schedtest.Mem(int64(1+i)<<10), schedtest.Util(200), schedtest.Lasts(time.Hour), of("p")))
			}
			for range 4 {
				want := Plan(s.snapshot(), s.site, Full)
				s.parts = []*cluster.Partition{partition(t, "p", "ALL")}
				got := Plan(s.snapshot(), s.site, Full)
				s.parts = nil
				if d := cmp.Diff(want, got); d != "" {
					t.Fatal(d)
				}
				s.Apply(&got)
				s.Advance(30 * time.Minute)
			}
		})
	}
}

// TestPartitionsTakeTurns: of two partitions whose heads have stood on one node
// for too long, the older one's goes first, and neither bars the node for both.
func TestPartitionsTakeTurns(t *testing.T) {
	t.Parallel()
	s := &parted{
		World: schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4")}), site: &Site{Chosen: byName(t, "ffd")},
		parts: []*cluster.Partition{partition(t, "a", "n1"), partition(t, "b", "ALL")},
	}
	queued := func(id cluster.JobID, part string, card int, since time.Duration) {
		j := schedtest.Job(id, schedtest.Exclusive, of(part), schedtest.Waited(since))
		j.Queue = schedtest.GPU("n1", card)
		s.Submit(j)
	}
	queued(1, "a", 0, 10*time.Minute)
	queued(2, "b", 1, 20*time.Minute)
	queued(3, "b", 1, 19*time.Minute)
	p := planPartitions(s.snapshot(), s.site, false)
	var starts []cluster.JobID
	for _, st := range p.Starts {
		starts = append(starts, st.Job)
	}
	if !slices.Contains(starts, 2) || len(starts) != 2 {
		t.Errorf("starts %v, want the oldest head, 2, and one more", starts)
	}
	if err := s.take(&p); err != nil {
		t.Error(err)
	}
}

// mover is a policy that takes every job out of its queue.
type mover struct{ policies.Policy }

func (mover) Plan(s *dispatch.Snapshot) (p dispatch.Plan) {
	for _, j := range s.Waiting {
		p.Moves = append(p.Moves, dispatch.QueueMove{Job: j.ID, Reason: cluster.ReasonGPUReturning})
	}
	return p
}

// TestStartsComeBeforeMoves: a job that one pass moves away still heads its
// queue when the start that a later pass put there is checked.
func TestStartsComeBeforeMoves(t *testing.T) {
	t.Parallel()
	s := &parted{
		World: schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4")}), site: &Site{Chosen: byName(t, "ffd"), Partitions: map[string]Chosen{"a": {Planner: mover{}}}},
		parts: []*cluster.Partition{partition(t, "a", "ALL"), partition(t, "b", "ALL")},
	}
	j := schedtest.Job(1, of("a"))
	j.Queue = schedtest.GPU("n1", 0)
	s.Submit(j)
	s.Submit(schedtest.Job(2, of("b")))
	p := planPartitions(s.snapshot(), s.site, false)
	if len(p.Starts) != 1 || p.Starts[0].Job != 2 || !strings.Contains(p.Starts[0].Overtook, "job 1 of partition a") {
		t.Errorf("starts %+v, want that of job 2, which says that it passes job 1", p.Starts)
	}
	if err := s.take(&p); err != nil {
		t.Error(err)
	}
}

// TestDownPartitionsStartNothing, nor is anybody else kept by them.
func TestDownPartitionsStartNothing(t *testing.T) {
	t.Parallel()
	s := &parted{
		World: schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4")}, schedtest.Job(1, of("a")), schedtest.Job(2, of("b")), schedtest.Job(3)),
		site:  &Site{Chosen: byName(t, "ffd")}, parts: []*cluster.Partition{partition(t, "a", "ALL"), partition(t, "b", "ALL")},
	}
	s.parts[0].Down = true
	p := planPartitions(s.snapshot(), s.site, false)
	// Job 3 came before there were partitions, and their pass is the first.
	if len(p.Starts) != 1 || p.Starts[0].Job != 3 || slices.ContainsFunc(p.Moves, func(m dispatch.QueueMove) bool { return m.Job == 1 }) {
		t.Errorf("plan %+v", p)
	}
	s.World = schedtest.NewWorld(s.Nodes, schedtest.Job(1, of("a")), schedtest.Job(2, of("b")))
	if p = planPartitions(s.snapshot(), s.site, false); len(p.Starts) != 1 || p.Starts[0].Job != 2 {
		t.Errorf("plan %+v", p)
	}
}

// TestOldPartitionsGoFirst: whose oldest job waits for too long is planned
// first, whatever its name.
func TestOldPartitionsGoFirst(t *testing.T) {
	t.Parallel()
	s := &parted{
		World: schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4")}, schedtest.Job(1, of("a"), schedtest.Exclusive), schedtest.Job(2, of("b"), schedtest.Exclusive)),
		site:  &Site{Chosen: byName(t, "slot+fifo")}, parts: []*cluster.Partition{partition(t, "a", "ALL"), partition(t, "b", "ALL")},
	}
	if p := planPartitions(s.snapshot(), s.site, false); len(p.Starts) != 1 || p.Starts[0].Job != 1 {
		t.Errorf("in order of names: %+v", p.Starts)
	}
	s.Jobs[2].Eligible = s.Clock.Add(-5 * time.Hour)
	if p := planPartitions(s.snapshot(), s.site, false); len(p.Starts) != 1 || p.Starts[0].Job != 2 {
		t.Errorf("the older first: %+v", p.Starts)
	}
}

// TestPoliciesTakeGangs: policies beside the scheduler's own place jobs over several
// nodes and say why they wait; where they guarantee cells to tenants they are not
// shown those with GPUs, which are placed before.
func TestPoliciesTakeGangs(t *testing.T) {
	t.Parallel()
	guarded := byName(t, "slot+sjf")
	p, err := policies.New("slot+sjf", policies.Options{Tenants: &policies.Tenancy{}})
	if err != nil {
		t.Fatal(err)
	}
	guarded.Planner = p
	for _, name := range []string{"slot+sjf", "consolidate", "fgd", "lucid", "gavel", "horus", "muri", "schedtune", "tenants"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, want := guarded, "AssocGrpGRES: its user is of no team with a guarantee; it may borrow when preemptible: submit with a checkpoint hook"
			if name != "tenants" {
				c, want = byName(t, name), "NodeCount: 0 nodes with room for 2 of T4, needs 2 at once"
			}
			for _, gpus := range []int{0, 1} {
				w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 2, "T4")})
				gang, large := schedtest.Job(1, schedtest.GPUs(gpus), schedtest.Nodes(2)), schedtest.Job(2, schedtest.GPUs(2), schedtest.Nodes(2))
				w.Submit(gang)
				w.Submit(large)
				snap := w.Snapshot()
				if _, ok := c.WhyWaits(snap, gang); !ok {
					t.Error("nothing is said of the gang")
				}
				plan := c.pass(snap)
				if r := c.SpanReason(gang); r.Code != "" || gpus == 1 && (len(plan.Starts) != 1 || plan.Starts[0].Job != 1 || len(plan.Starts[0].Rest) != 1) {
					t.Errorf("%d GPUs: starts %+v, refused by %q", gpus, plan.Starts, r)
				}
				if u := plan.Unplaced; gpus == 1 && (len(u) != 1 || u[0].Reason.String() != want) {
					t.Errorf("%d GPUs: unplaced %+v", gpus, u)
				}
			}
		})
	}
}

// TestGangsHoldAgainstOtherSets: what a pass keeps for a gang that excludes a node
// binds those who ask for no nodes, who are planned after it, and who is told for
// whom.
func TestGangsHoldAgainstOtherSets(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"firstfit", "bestfit", "consolidate", "fgd", "lucid+fifo", "gavel+fifo", "horus", "muri+fifo", "schedtune"} {
		c := byName(t, name)
		w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4"), schedtest.Node("n2", 1, "T4"), schedtest.Node("n3", 1, "T4")})
		for id, n := range map[cluster.JobID]cluster.NodeID{1: "n1", 2: "n3"} {
			w.Submit(schedtest.Job(id, schedtest.Exclusive, schedtest.On(n), schedtest.Lasts(time.Hour)))
		}
		first := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		w.Apply(&first)
		none, err := cluster.ParseHostList("n3")
		if err != nil || len(first.Starts) != 2 {
			t.Fatalf("%v, %+v", err, first)
		}
		w.Submit(schedtest.Job(3, schedtest.Exclusive, schedtest.Nodes(2), schedtest.Waited(time.Minute), schedtest.Lasts(time.Hour), func(j *cluster.Job) {
			j.Spec.Where = &cluster.Where{Exclude: none}
		}))
		w.Submit(schedtest.Job(4, schedtest.Exclusive, schedtest.Lasts(2*time.Hour)))
		long := c.pass(w.Snapshot())
		if r, starts := fate(long, 4); starts || name != "schedtune" && r.Detail != "job 3 is before it and waits for room" {
			t.Errorf("%s: who outlasts the wait of the gang starts: %t, told %q", name, starts, r)
		}
		w.Submit(schedtest.Job(5, schedtest.Exclusive, schedtest.Lasts(time.Minute)))
		short := c.pass(w.Snapshot())
		if _, starts := fate(short, 5); !starts && name != "schedtune" {
			t.Errorf("%s: who ends before the gang can start waits", name)
		}
	}
}

// BenchmarkPlanPartitions is a full pass over 1,250 nodes of 8 GPUs in 16
// partitions, with 20,000 jobs that wait for the first time, beside the same
// without partitions.
func BenchmarkPlanPartitions(b *testing.B) {
	for _, parts := range []int{0, 16} {
		b.Run(fmt.Sprintf("parts=%d", parts), func(b *testing.B) {
			s := &parted{site: &Site{Chosen: byName(b, "ffd")}}
			var nodes []*cluster.Node
			for i := range 1250 {
				nodes = append(nodes, schedtest.Node(cluster.NodeID(fmt.Sprintf("n%04d", i)), 8, "A100-SXM4-80GB"))
			}
			s.World = schedtest.NewWorld(nodes)
			for i := range parts {
				s.parts = append(s.parts, partition(b, fmt.Sprintf("p%02d", i), fmt.Sprintf("n[%04d-%04d]", i*1250/16, (i+1)*1250/16-1)))
			}
			for i := range 20_000 {
				s.Submit(schedtest.Job(cluster.JobID(i+1), schedtest.Mem(int64(1+i%40)<<10), schedtest.Util(300), schedtest.Lasts(time.Hour), of(fmt.Sprintf("p%02d", i%16))))
			}
			for b.Loop() {
				Plan(s.snapshot(), s.site, Full)
			}
		})
	}
}
