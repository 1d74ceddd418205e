package scheduler_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/explain"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// blockers counts, by code and type of card, what keeps a job for one GPU from each:
// the first that lacks, of the node and then of the card, as the ledger has it.
func blockers(w *World, j *cluster.Job, pol scheduler.Policy) map[string]int {
	out := map[string]int{}
	for _, n := range w.Nodes {
		if j.Spec.Node != "" && j.Spec.Node != n.ID {
			continue
		}
		u, _ := w.Ledg.Node(n.ID)
		for i := range n.GPUs {
			g := &n.GPUs[i]
			c, _ := w.Ledg.GPU(g.ID)
			share, _, never := rules.ShareOn(j, g, pol)
			cpu, mem := host(j.Spec.CPUMilli, pol.DefaultCPUMilli), host(j.Spec.MemMiB, pol.DefaultMemMiB)
			code, of := cluster.ReasonUnconfirmed, g.Type
			switch {
			case never.Code != "":
				code = never.Code
			case n.State != cluster.NodeReady || n.Drain:
				code, of = cluster.ReasonNodeDown, ""
			case u.UsedMem+mem > u.MemMiB:
				code, of = cluster.ReasonHostMem, ""
			case u.UsedCPU+cpu > u.CPUMilli:
				code, of = cluster.ReasonCPU, ""
			case share.Exclusive && c.Shares > 0:
				code = cluster.ReasonExclusive
			case c.Exclusive:
				code = cluster.ReasonSharing
			case c.Shares >= min(pol.MaxShares, g.MaxShares):
				code = cluster.ReasonGPUSlots
			case c.UsedMiB+share.MemMiB > g.SellableMiB:
				code = cluster.ReasonGPUMem
			case c.UsedMilli+share.Milli > cluster.WholeGPU:
				code = cluster.ReasonGPUCompute
			}
			out[fmt.Sprintf("%s %s", code, of)]++
		}
	}
	return out
}

// TestExplainOfMixedNodes: cards of two types are told apart, and a gang's are of one.
func TestExplainOfMixedNodes(t *testing.T) {
	t.Parallel()
	mixed := func(n *cluster.Node) {
		for _, i := range []int{1, 3} {
			n.GPUs[i].Type, n.GPUs[i].SellableMiB = t4, 15_000
		}
	}
	for _, c := range []struct {
		name string
		runs []lies
		job  *cluster.Job
		want map[string]int
	}{
		{"two of each have room", nil, Job(1), map[string]int{"Planning A100-SXM4-80GB": 2, "Planning T4": 2}},
		{"one of the one is taken", []lies{held(0, "n1-01", time.Hour)}, Job(1), map[string]int{"Planning A100-SXM4-80GB": 2, "Planning T4": 1, "WholeGPUBusy T4": 1}},
		{"a gang of two, one of each taken", []lies{held(0, "n1-00", time.Hour), held(1, "n1-01", time.Hour)}, Job(1, GPUs(2)),
			map[string]int{"GPUCount A100-SXM4-80GB": 2, "GPUCount T4": 2, "WholeGPUBusy A100-SXM4-80GB": 1, "WholeGPUBusy T4": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := scene{nodes: []*cluster.Node{Node("n1", 4, a100, mixed)}, runs: c.runs, waits: []*cluster.Job{c.job}}
			got := map[string]int{}
			for _, e := range scheduler.Explain(sc.world(t).Snapshot(), c.job, scheduler.Default()) {
				got[fmt.Sprintf("%s %s", e.Reason.Code, e.GPUType)] += e.Count
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestExplainOfReservations: what a reservation keeps from a job is told of its cards,
// or for a job without GPUs of its nodes, and nothing else of them; the others are
// told as ever.
func TestExplainOfReservations(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	lasts := func(d time.Duration, opts ...JobOption) *cluster.Job { return Job(1, Limit(d), attached(opts...)) }
	mixed := func(n *cluster.Node) { n.GPUs[1].Type, n.GPUs[1].SellableMiB = t4, 15_000 }
	for _, c := range []struct {
		name string
		runs []lies
		snap func(*dispatch.Snapshot)
		job  *cluster.Job
		want map[string]int
		opts []NodeOption
	}{
		{"a node from now on", nil, reserve("r", "n1", 0, h), lasts(m), map[string]int{"Reservation A100-SXM4-80GB": 2, "Planning A100-SXM4-80GB": 2}, nil},
		{"one card of it", nil, reserve("r", "n1", 0, h, "n1-01"), lasts(m), map[string]int{"Reservation A100-SXM4-80GB": 1, "Planning A100-SXM4-80GB": 3}, nil},
		{"later than it ends", nil, reserve("r", "n1", h, h), lasts(h), map[string]int{"Planning A100-SXM4-80GB": 4}, nil},
		{"a moment before it ends", nil, reserve("r", "n1", h-1000, h), lasts(h), map[string]int{"Reservation A100-SXM4-80GB": 2, "Planning A100-SXM4-80GB": 2}, nil},
		{"it is its own", nil, reserve("r", "n1", 0, h), lasts(m, inside("r"), Of(7, 7)), map[string]int{"Planning A100-SXM4-80GB": 2, "Reservation A100-SXM4-80GB": 2}, nil},
		{"both nodes", nil, reserve("r", "n[1-2]", 0, h), lasts(m), map[string]int{"Reservation A100-SXM4-80GB": 4}, nil},
		{"what is taken there counts as reserved", []lies{held(0, "n1-00", h), held(1, "n2-00", h)}, reserve("r", "n1", 0, h), lasts(m, Exclusive),
			map[string]int{"Reservation A100-SXM4-80GB": 2, "WholeGPUBusy A100-SXM4-80GB": 1, "Planning A100-SXM4-80GB": 1}, nil},
		{"without GPUs", nil, reserve("r", "n1", 0, h), lasts(m, GPUs(0)), map[string]int{"Reservation ": 1, "Planning ": 1}, nil},
		{"without GPUs, of a card no core is kept", nil, reserve("r", "n1", 0, h, "n1-01"), lasts(m, GPUs(0)), map[string]int{"Planning ": 2}, nil},
		{"a type that it cannot use is told as such", nil, reserve("r", "n1", 0, h), lasts(m, Type(t4)), map[string]int{"NeverFits ": 4, "GPUType A100-SXM4-80GB": 4}, nil},
		{"a node that it excludes is told before what is reserved of it", nil, reserve("r", "n1", 0, h), lasts(m, where(func(w *cluster.Where) { w.Exclude = hosts("n1") })), map[string]int{"BadConstraints ": 2, "Planning A100-SXM4-80GB": 2}, nil},
		{"nor is a card of another type beside them", nil, reserve("r", "n1", 0, h), lasts(m, Type(t4)), map[string]int{"GPUType A100-SXM4-80GB": 2, "Reservation T4": 1, "Planning T4": 1}, []NodeOption{mixed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := scene{nodes: []*cluster.Node{Node("n1", 2, a100, c.opts...), Node("n2", 2, a100, c.opts...)}, runs: c.runs, waits: []*cluster.Job{c.job}}
			s := sc.world(t).Snapshot()
			c.snap(s)
			got := map[string]int{}
			for _, e := range scheduler.Explain(s, c.job, scheduler.Default()) {
				got[fmt.Sprintf("%s %s", e.Reason.Code, e.GPUType)] += e.Count
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestExplainOfWhatIsDown: the first four nodes and cards that are out of service are
// named with why, and how many there are beside.
func TestExplainOfWhatIsDown(t *testing.T) {
	t.Parallel()
	silently := func(n *cluster.Node) { n.Drain = true }
	failing := func(n *cluster.Node) { n.GPUs[0].State = cluster.GPUFailing }
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		count int
		want  string
	}{
		{"each by what it is", []*cluster.Node{Node("n1", 1, t4, Drained), Node("n2", 2, t4, silently), Node("n3", 1, t4, Silent)}, 4,
			"node n1 is drained: fan; node n2 is drained; node n3 is silent"},
		{"four and the others", []*cluster.Node{Node("n1", 1, t4, Silent), Node("n2", 1, t4, Silent), Node("n3", 1, t4, Silent), Node("n4", 1, t4, Silent), Node("n5", 1, t4, Silent), Node("n6", 1, t4, Silent)}, 6,
			"node n1 is silent; node n2 is silent; node n3 is silent; node n4 is silent; and 2 more"},
		{"cards of nodes that are in service", []*cluster.Node{Node("n1", 2, t4, failing), Node("n2", 1, t4, failing)}, 2, "2 GPUs out of service: GPU 0 of n1 (T4) is failing; GPU 0 of n2 (T4) is failing"},
		{"after nodes, four of both", []*cluster.Node{Node("n1", 1, t4, Silent), Node("n2", 1, t4, failing), Node("n3", 1, t4, failing), Node("n4", 1, t4, failing), Node("n5", 1, t4, failing)}, 5,
			"node n1 is silent; 4 GPUs out of service: GPU 0 of n2 (T4) is failing; GPU 0 of n3 (T4) is failing; GPU 0 of n4 (T4) is failing; and 1 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := Job(1)
			x := scheduler.Explain((&scene{nodes: c.nodes, waits: []*cluster.Job{j}}).world(t).Snapshot(), j, scheduler.Default())
			at := slices.IndexFunc(x, func(e explain.Explanation) bool { return e.Reason.Code == cluster.ReasonNodeDown })
			if at < 0 || x[at].Count != c.count || x[at].Reason.Detail != c.want {
				t.Errorf("got %+v, want %d of %q", x, c.count, c.want)
			}
		})
	}
}

// TestExplainOfGangs: a job that needs several nodes is told first how many have room.
func TestExplainOfGangs(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for _, c := range []struct {
		name string
		runs []lies
		job  *cluster.Job
		want string
	}{
		{"room on all", nil, Job(1, Exclusive, onNodes(3)), "3 × Planning: 3 nodes have room; the next pass decides"},
		{"on one too few", []lies{held(0, "n2-00", h)}, Job(1, Exclusive, onNodes(3)), "3 × NodeCount: A100-SXM4-80GB: 2 nodes with room for 1 GPU, needs 3 at once"},
		{"of cores", nil, Job(1, GPUs(0), Cores(65_000), onNodes(2)), "2 × NodeCount: 0 nodes with 65 cores and 1.0 GiB of host memory free, needs 2 at once"},
		{"whole nodes", []lies{held(0, "n2-00", h)}, Job(1, Exclusive, where(wholeNodes), onNodes(3)), "3 × NodeCount: A100-SXM4-80GB: 2 nodes with room for 1 GPU, needs 3 at once"},
		{"one whole node", nil, Job(1, Exclusive, where(wholeNodes)), "1 × Planning: 1 node has room; the next pass decides"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := scene{nodes: one(a100, a100, a100), runs: c.runs, waits: []*cluster.Job{c.job}}
			x := scheduler.Explain(sc.world(t).Snapshot(), c.job, scheduler.Default())
			if got := fmt.Sprintf("%d × %s", x[0].Count, x[0].Reason); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestExplainAgreesWithTheLedger: what is told of each card is what lacks there.
func TestExplainAgreesWithTheLedger(t *testing.T) {
	t.Parallel()
	told := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, false), scheduler.Default()
		pol.KeepCPUMilli, pol.KeepMemMiB, pol.MaxSlowdownMilli = 0, 0, 0
		s := w.Snapshot()
		for _, j := range s.Waiting {
			wide := slices.ContainsFunc(j.Estimates, func(e cluster.Estimate) bool { return e.GPUMemP95MiB > e.GPUMemMiB })
			if j.Spec.GPUs != 1 || j.MinGPUMemMiB > 0 || wide || rules.NeverFits(s.Nodes, j, pol) != nil {
				continue // which cards those leave to others is another rule
			}
			want, got := blockers(w, j, pol), map[string]int{}
			alone := *s // of what is kept for others the ledger knows nothing
			alone.Waiting = []*cluster.Job{j}
			for _, e := range scheduler.Explain(&alone, j, pol) {
				got[fmt.Sprintf("%s %s", e.Reason.Code, e.GPUType)] += e.Count
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("job %d (-ledger +explained):\n%s", j.ID, d)
			}
			for k := range want {
				told[k]++
			}
		}
	})
	if len(told) < 9 {
		t.Errorf("only %v was ever told", slices.Sorted(maps.Keys(told)))
	}
}

// TestBackfillAsATimeline: a gang waits for so many cards of a node of whole cards.
// By the time limits of who runs it could start at an instant that a list of ends
// tells; of those who come after it exactly those start that end by then, as many as
// there are free cards. Once it is old for HoldAge nobody does.
func TestBackfillAsATimeline(t *testing.T) {
	t.Parallel()
	held, passed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const cards = 5
		w := NewWorld([]*cluster.Node{Node("n1", cards, a100)})
		var ends []time.Duration
		for k := range cards {
			if rapid.IntRange(0, 2).Draw(t, "busy") > 0 {
				d := time.Duration(rapid.IntRange(1, 40).Draw(t, "limit")) * time.Minute
				running(w, Job(cluster.JobID(100+k), Lasts(d/2), Limit(d)), GPU("n1", k), whole(80000))
				ends = append(ends, d)
			}
		}
		slices.Sort(ends)
		free := cards - len(ends)
		gang := rapid.IntRange(free+1, cards+1).Draw(t, "gang")
		if gang > cards { // or there is nobody to wait for
			return
		}
		waited := rapid.SampledFrom([]time.Duration{29 * time.Second, 30 * time.Second, time.Hour, 4 * time.Hour, 4*time.Hour + 19*time.Minute, 4*time.Hour + 20*time.Minute}).Draw(t, "waited")
		w.Submit(Job(1, Exclusive, GPUs(gang), Lasts(time.Second), Waited(waited), queued("n1-00", time.Hour)))
		var lasts []time.Duration
		for id := range cluster.JobID(rapid.IntRange(1, 6).Draw(t, "others")) {
			d := time.Duration(rapid.IntRange(10, 2500).Draw(t, "seconds")) * time.Second
			lasts = append(lasts, d)
			w.Submit(Job(2+id, Exclusive, Lasts(d)))
		}
		pol := scheduler.Default()
		pol.ShortPart, pol.LongPart, pol.OldDrains, pol.MaxMoves, pol.MaxRebalance = 0, 0, 0, 0, 0
		got := len(scheduler.Schedule(w.Snapshot(), pol).Starts)
		starts := ends[gang-free-1] // when the last of so many is free
		want := 0
		for _, d := range lasts {
			if d <= starts {
				want++
			}
		}
		switch {
		case waited < pol.ReserveAge:
			want = len(lasts)
		case waited >= pol.FIFOAge+pol.HoldAge:
			want = 0
		}
		if want = min(want, free); got != want {
			t.Fatalf("%d start beside a gang of %d that waited %s and can start in %s, want %d: %d cards free, others last %v", got, gang, waited, starts, want, free, lasts)
		}
		held += len(lasts) - want
		passed += want
	})
	if held == 0 || passed == 0 {
		t.Errorf("%d were held up and %d passed", held, passed)
	}
}

// TestBackfillBesideNewcomers, by hand: a job that starts in this very pass is
// predicted to last 10 minutes and may last 40. A gang of both cards can start when
// its 40 minutes are over at the latest, and who ends by then passes it, to the second.
func TestBackfillBesideNewcomers(t *testing.T) {
	t.Parallel()
	for lasts, want := range map[time.Duration]int{9 * time.Minute: 2, 30 * time.Minute: 2, 40 * time.Minute: 2, 40*time.Minute + time.Second: 1, 2 * time.Hour: 1} {
		w := NewWorld([]*cluster.Node{Node("n1", 2, a100)})
		w.Submit(Job(1, Exclusive, Lasts(10*time.Minute), Limit(40*time.Minute), Waited(5*time.Hour)))
		w.Submit(Job(2, Exclusive, GPUs(2), Lasts(time.Second), Waited(time.Hour), queued("n1-00", time.Hour)))
		w.Submit(Job(3, Exclusive, Lasts(lasts)))
		pol := scheduler.Default()
		pol.ShortPart, pol.LongPart, pol.OldDrains, pol.MaxMoves, pol.MaxRebalance = 0, 0, 0, 0, 0
		starts := scheduler.Schedule(w.Snapshot(), pol).Starts
		if len(starts) != want || starts[0].Job != 1 {
			t.Errorf("one that lasts %s: %d start, want %d: %+v", lasts, len(starts), want, starts)
		}
	}
}

// TestMoreCardsNeverHurt: of jobs that want one whole card each, as many more start
// for each card more, until all do; and whoever starts by few starts by more, too.
func TestMoreCardsNeverHurt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var jobs []*cluster.Job
		for id := range cluster.JobID(rapid.IntRange(1, 9).Draw(t, "jobs")) {
			jobs = append(jobs, Job(id+1, Exclusive, Lasts(time.Duration(rapid.IntRange(1, 500).Draw(t, "minutes"))*time.Minute), Waited(time.Duration(rapid.IntRange(0, 700).Draw(t, "waited"))*time.Minute)))
		}
		pol := scheduler.Default()
		pol.ShortPart, pol.LongPart, pol.OldDrains = 0, 0, 0 // else the order depends on how many cards there are
		var before []cluster.JobID
		for cards := 1; cards <= len(jobs); cards++ {
			p := scheduler.Schedule(NewWorld([]*cluster.Node{Node("n1", cards, a100)}, jobs...).Snapshot(), pol)
			var now []cluster.JobID
			for _, st := range p.Starts {
				now = append(now, st.Job)
			}
			if len(now) != cards {
				t.Fatalf("%d start on %d cards", len(now), cards)
			}
			for _, id := range before {
				if cards < len(jobs) && !slices.Contains(now, id) { // with cards for all the largest go first
					t.Fatalf("job %d starts on %d cards and not on %d", id, cards-1, cards)
				}
			}
			before = now
		}
	})
}
