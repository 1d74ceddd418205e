package policies_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// at is where jobs start: their cards, joined by commas, by job.
type at map[cluster.JobID]string

func startsOf(p *dispatch.Plan) at {
	out := at{}
	for i := range p.Starts {
		var gpus []string
		for _, g := range p.Starts[i].Berth.GPUs {
			gpus = append(gpus, string(g.GPU))
		}
		out[p.Starts[i].Job] = strings.Join(gpus, ",")
		if len(gpus) == 0 {
			out[p.Starts[i].Job] = string(p.Starts[i].Berth.Node)
		}
	}
	return out
}

// scene is a cluster in which some already run.
type scene struct {
	w *World
}

func newScene(nodes ...*cluster.Node) *scene { return &scene{NewWorld(nodes)} }

// runs lays a job on cards of a node with a declared share, started ago.
func (s *scene) runs(id cluster.JobID, mem, milli int64, lasts, ago time.Duration, gpus ...cluster.GPUID) *scene {
	s.w.Submit(Job(id, Mem(mem), Util(milli), Lasts(lasts), GPUs(len(gpus)), Waited(ago)))
	st := dispatch.Start{Job: id, Attempt: 1, Overtook: "-", Berth: cluster.Berth{Node: cluster.NodeID(gpus[0][:strings.LastIndex(string(gpus[0]), "-")]), CPUMilli: 1000, MemMiB: 1024}}
	u, _ := s.w.Ledg.GPU(gpus[0])
	st.Estimate = cluster.Estimate{GPUType: u.Type, Duration: lasts, Milli: milli, GPUMemMiB: mem}
	for _, g := range gpus {
		sh := cluster.Share{MemMiB: mem, Milli: milli}
		if milli == cluster.WholeGPU {
			sh = cluster.Share{MemMiB: u.SellableMiB, Milli: cluster.WholeGPU, Exclusive: true}
		}
		st.Berth.GPUs = append(st.Berth.GPUs, cluster.GPUShare{GPU: g, Share: sh})
	}
	s.w.Clock = Now.Add(-ago)
	s.w.Apply(&dispatch.Plan{Starts: []dispatch.Start{st}})
	s.w.Clock = Now
	return s
}

func (s *scene) waits(jobs ...*cluster.Job) *scene {
	for _, j := range jobs {
		s.w.Submit(j)
	}
	return s
}

func (s *scene) snap(t *testing.T) *dispatch.Snapshot {
	t.Helper()
	if err := s.w.Check(); err != nil || len(s.w.Rejected) > 0 {
		t.Fatalf("bad scene: %v, rejected %v", err, s.w.Rejected)
	}
	return s.w.Snapshot()
}

// part is a job for so many hundredths of a card that sells 80000 MiB.
func part(id cluster.JobID, percent int64, opts ...JobOption) *cluster.Job {
	return Job(id, append([]JobOption{Mem(800 * percent), Util(10 * percent), Lasts(time.Hour)}, opts...)...)
}

// TestPlacementsByHand: each case is worked out from the placement's source.
func TestPlacementsByHand(t *testing.T) {
	t.Parallel()
	nodes := func(n int) []*cluster.Node {
		var out []*cluster.Node
		for i := range n {
			out = append(out, Node(cluster.NodeID(fmt.Sprintf("n%d", i+1)), 1, a100))
		}
		return out
	}
	half := func(id cluster.JobID, percent int64, g cluster.GPUID) func(*scene) {
		return func(s *scene) { s.runs(id, 800*percent, 10*percent, time.Hour, time.Minute, g) }
	}
	all := func(fs ...func(*scene)) func(*scene) {
		return func(s *scene) {
			for _, f := range fs {
				f(s)
			}
		}
	}
	for _, c := range []struct {
		name, policy string
		nodes        []*cluster.Node
		runs         func(*scene)
		waits        []*cluster.Job
		want         at
	}{
		{"the first card that holds it", "firstfit", nodes(3), half(1, 50, "n2-00"), []*cluster.Job{part(2, 40), part(3, 70)}, at{2: "n1-00", 3: "n3-00"}},
		{"the first card again while it lasts", "firstfit", nodes(2), nil, []*cluster.Job{part(1, 40), part(2, 40), part(3, 40)}, at{1: "n1-00", 2: "n1-00", 3: "n2-00"}},
		{"the node with the least left", "bestfit", nodes(3), all(half(1, 30, "n2-00"), half(2, 50, "n3-00")), []*cluster.Job{part(3, 40), part(4, 60)}, at{3: "n3-00", 4: "n2-00"}},
		{"one card, one job", "slot", nodes(2), nil, []*cluster.Job{part(1, 10), part(2, 10), part(3, 10)}, at{1: "n1-00", 2: "n2-00"}},
		{"one card, one job, shortest first", "slot+sjf", nodes(1), nil, []*cluster.Job{part(1, 10), part(2, 10, Lasts(time.Minute))}, at{2: "n1-00"}},
		{"largest first, used cards first", "ffd", nodes(2), nil, []*cluster.Job{part(1, 40), part(2, 50), part(3, 60)}, at{1: "n1-00", 2: "n2-00", 3: "n1-00"}},
		// Targets 40 % and 30 % of a card, one each. Beside job 1, 30 % would
		// stay that 40 % cannot use: (300+0)/2. Alone, 70 % that both can: 0.
		{"where fragments grow least", "fgd", nodes(2), half(1, 40, "n1-00"), []*cluster.Job{part(2, 30)}, at{2: "n2-00"}},
		// Targets 40 % and 60 %. Beside job 1 nothing is left and 600 that 40 %
		// and 60 % could use are used up: 0. Alone, 400 are left, lost to 60 %: 200.
		{"where it fills up", "fgd", nodes(2), half(1, 40, "n2-00"), []*cluster.Job{part(2, 60)}, at{2: "n2-00"}},
		{"equal growth is first fit", "fgd", nodes(3), nil, []*cluster.Job{part(1, 50), part(2, 100)}, at{1: "n1-00", 2: "n2-00"}},
		{"tiny beside jumbo", "lucid", nodes(1), half(1, 70, "n1-00"), []*cluster.Job{Job(2, Mem(8000), Util(240), Lasts(time.Hour))}, at{2: "n1-00"}},
		{"not medium beside jumbo", "lucid", nodes(1), half(1, 70, "n1-00"), []*cluster.Job{Job(2, Mem(8000), Util(260), Lasts(time.Hour))}, at{}},
		{"medium beside medium", "lucid", nodes(1), half(1, 40, "n1-00"), []*cluster.Job{part(2, 40)}, at{2: "n1-00"}},
		{"an empty card before company", "lucid", nodes(2), half(1, 10, "n1-00"), []*cluster.Job{part(2, 10)}, at{2: "n2-00"}},
		{"two to a card", "lucid", nodes(1), all(half(1, 10, "n1-00"), half(2, 10, "n1-00")), []*cluster.Job{part(3, 10)}, at{}},
		{"not three times as long as the resident", "lucid", nodes(1), half(1, 10, "n1-00"), []*cluster.Job{part(2, 10, Lasts(3*time.Hour))}, at{}},
		{"twice as long as the resident", "lucid", nodes(1), half(1, 10, "n1-00"), []*cluster.Job{part(2, 10, Lasts(2*time.Hour))}, at{2: "n1-00"}},
		// (50+40)·1.154 = 103.9 % on n1, (30+40)·1.154 = 80.8 % on n2.
		{"the card that is not over-used", "horus", nodes(2), all(half(1, 50, "n1-00"), half(2, 30, "n2-00")), []*cluster.Job{part(3, 40)}, at{3: "n2-00"}},
		{"an over-used card is put off", "horus", nodes(1), half(1, 50, "n1-00"), []*cluster.Job{part(2, 40)}, at{}},
		{"an over-used card is better than none", "horus", nodes(1), half(1, 50, "n1-00"), []*cluster.Job{part(2, 40, Waited(5*time.Minute))}, at{2: "n1-00"}},
		{"of equal costs the fuller card", "horus", nodes(2), half(1, 30, "n2-00"), []*cluster.Job{part(2, 40)}, at{2: "n2-00"}},
	} {
		t.Run(c.policy+" "+c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(c.nodes...)
			if c.runs != nil {
				c.runs(s)
			}
			plan := must(t, c.policy, policies.Options{}).Plan(s.waits(c.waits...).snap(t))
			if d := cmp.Diff(c.want, startsOf(&plan)); d != "" {
				t.Errorf("starts (-want +got):\n%s", d)
			}
		})
	}
}

func TestGangsTakeWholeNodes(t *testing.T) {
	t.Parallel()
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(Node("n1", 4, a100), Node("n2", 4, a100)).runs(1, 80000, 1000, time.Hour, 2*time.Minute, "n1-00")
			s.waits(Job(2, GPUs(4), Lasts(time.Hour)), Job(3, GPUs(4), Lasts(time.Hour), Waited(time.Second)))
			plan := must(t, name, policies.Options{}).Plan(s.snap(t))
			if len(plan.Starts) != 1 || len(plan.Starts[0].Berth.GPUs) != 4 || plan.Starts[0].Berth.Node != "n2" {
				t.Errorf("starts %v, want one gang on n2", startsOf(&plan))
			}
		})
	}
}

// TestWideGangs: the simulator takes the nodes of a type for one, on which a
// job may be wider than one machine's.
func TestWideGangs(t *testing.T) {
	t.Parallel()
	for _, name := range policies.Names() {
		for _, order := range policies.Orders() {
			s := newScene(Node("n1", 64, a100)).waits(Job(1, GPUs(48), Lasts(time.Hour)), Job(2, GPUs(17), Lasts(time.Hour)), part(3, 20))
			plan := must(t, name, policies.Options{Order: order}).Plan(s.snap(t))
			want := 2 // one gang and the share
			if name == "schedtune" {
				want = 1 // or one gang, the share being behind the other in its queue
			}
			if n := len(plan.Starts); n < want || n > 2 {
				t.Errorf("%s+%s: %d starts, want %d", name, order, n, want)
			}
		}
	}
}

// TestRandomIsFair: over many seeds each of four nodes gets its part.
func TestRandomIsFair(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for seed := range uint64(400) {
		s := newScene(Node("n1", 1, a100), Node("n2", 1, a100), Node("n3", 1, a100), Node("n4", 1, a100)).waits(part(9, 50))
		plan := must(t, "random", policies.Options{Seed: seed}).Plan(s.snap(t))
		count[startsOf(&plan)[9]]++
	}
	for _, g := range []string{"n1-00", "n2-00", "n3-00", "n4-00"} {
		if count[g] < 65 || count[g] > 135 { // 100 and four standard deviations
			t.Errorf("node counts %v, want about 100 each", count)
		}
	}
}

func TestReactiveByHand(t *testing.T) {
	t.Parallel()
	// known has had its minute in an attempt that was ended.
	known := func(j *cluster.Job) *cluster.Job {
		j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobPreempted, Started: Now.Add(-5 * time.Minute), Ended: Now.Add(-4 * time.Minute)}}
		return j
	}
	for _, c := range []struct {
		name     string
		ago      time.Duration // since job 1 runs
		waits    *cluster.Job
		terms    bool
		want     at
		preempts int
	}{
		{"who is not known runs alone", time.Hour / 2, part(2, 20), false, at{}, 0},
		{"who is known joins who is known", time.Hour / 2, known(part(2, 20)), false, at{2: "n1-00"}, 0},
		{"nobody joins a profile", 59 * time.Second, known(part(2, 20)), false, at{}, 0},
		{"after its minute a profile is joined", time.Minute, known(part(2, 20)), false, at{2: "n1-00"}, 0},
		{"after its minute a profile is ended", time.Minute, part(2, 20), true, at{}, 1},
		{"not before", 59 * time.Second, part(2, 20), true, at{}, 0},
		{"not when nobody waits", time.Minute, known(part(2, 20)), true, at{2: "n1-00"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(Node("n1", 1, a100)).runs(1, 8000, 100, time.Hour, c.ago, "n1-00").waits(c.waits).snap(t)
			s.Terms = map[cluster.JobID]dispatch.Terms{1: {Preemptible: c.terms}}
			plan := must(t, "reactive", policies.Options{}).Plan(s)
			if d := cmp.Diff(c.want, startsOf(&plan)); d != "" || len(plan.Preempt) != c.preempts {
				t.Errorf("%d preemptions, want %d; starts (-want +got):\n%s", len(plan.Preempt), c.preempts, d)
			}
		})
	}
}

func TestSchedTuneByHand(t *testing.T) {
	t.Parallel()
	on := func(id cluster.JobID, mem int64, big, little time.Duration) *cluster.Job {
		return Job(id, Predict(a100, mem, 1000, big), Predict(t4, mem, 900, little))
	}
	type queue struct {
		GPU   cluster.GPUID
		Start time.Duration
	}
	for _, c := range []struct {
		name  string
		waits []*cluster.Job
		want  at
		moves map[cluster.JobID]queue
	}{
		// The A100 is busy for another 100 s.
		{"the slow card that is free", []*cluster.Job{on(2, 9000, 50*time.Second, 149*time.Second)}, at{2: "n2-00"}, nil},
		{"the queue of the fast card", []*cluster.Job{on(2, 9000, 50*time.Second, 151*time.Second)}, at{}, map[cluster.JobID]queue{2: {"n1-00", 100 * time.Second}}},
		{"the queue counts", []*cluster.Job{on(2, 9000, 50*time.Second, 151*time.Second), on(3, 9000, 50*time.Second, 199*time.Second)},
			at{3: "n2-00"}, map[cluster.JobID]queue{2: {"n1-00", 100 * time.Second}}},
		// 13 700 MiB and 9 % are 14 933 of 15 000; 13 800 are 15 042.
		{"memory with its margin fits", []*cluster.Job{on(2, 13700, time.Second, time.Second)}, at{2: "n2-00"}, nil},
		{"memory with its margin is a veto", []*cluster.Job{on(2, 13800, time.Second, time.Second)}, at{}, map[cluster.JobID]queue{2: {"n1-00", 100 * time.Second}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(Node("n1", 1, a100), Node("n2", 1, t4)).runs(1, 80000, 1000, 160*time.Second, time.Minute, "n1-00").waits(c.waits...)
			plan := must(t, "schedtune", policies.Options{}).Plan(s.snap(t))
			if d := cmp.Diff(c.want, startsOf(&plan)); d != "" {
				t.Errorf("starts (-want +got):\n%s", d)
			}
			moves := map[cluster.JobID]queue{}
			for _, m := range plan.Moves {
				moves[m.Job] = queue{m.GPU, m.EstStart.Sub(Now)}
			}
			if !maps.Equal(moves, c.moves) {
				t.Errorf("moves %v, want %v", moves, c.moves)
			}
		})
	}
}

// TestSchedTuneQueues: who stands in a queue stays there and goes first.
func TestSchedTuneQueues(t *testing.T) {
	t.Parallel()
	p := must(t, "schedtune", policies.Options{})
	s := newScene(Node("n1", 1, a100)).runs(1, 80000, 1000, 100*time.Second, time.Second, "n1-00")
	s.waits(part(2, 60), part(3, 60), part(4, 30))
	plan := p.Plan(s.snap(t))
	s.w.Apply(&plan)
	if q := s.w.Queues["n1-00"]; len(q) != 3 || q[0].Job != 2 || q[2].Job != 4 {
		t.Fatalf("queue %v, want 2, 3, 4", q)
	}
	if plan = p.Plan(s.snap(t)); len(plan.Moves) > 0 {
		t.Fatalf("moves %v of who stands well", plan.Moves)
	}
	s.w.End(1)
	plan = p.Plan(s.snap(t))
	if d := cmp.Diff(at{2: "n1-00"}, startsOf(&plan)); d != "" { // 4 would fit, but 3 is before it
		t.Errorf("starts (-want +got):\n%s", d)
	}
}

func TestMuriByHand(t *testing.T) {
	t.Parallel()
	// 64 cores and two cards make 32 cores a card: 16 cores are half of a row.
	job := func(id cluster.JobID, milli, cores int64) *cluster.Job {
		return Job(id, Mem(8000), Util(milli), Lasts(time.Hour), Cores(cores*1000))
	}
	s := newScene(Node("n1", 2, a100))
	// The rows are (450, 31, 519) and (300, 687, 13): two of the first take
	// 1488 together, two of the second 1674, one of each 1237.
	s.waits(job(1, 450, 1), job(2, 450, 1), job(3, 300, 22), job(4, 300, 22))
	plan := must(t, "muri", policies.Options{}).Plan(s.snap(t))
	got := startsOf(&plan)
	if len(got) != 4 || got[1] == got[2] || got[3] == got[4] {
		t.Errorf("starts %v, want each of 1 and 2 beside one of 3 and 4", got)
	}
	// With a card for each nobody shares.
	s = newScene(Node("n1", 2, a100), Node("n2", 2, a100)).waits(job(1, 450, 1), job(2, 450, 1), job(3, 300, 22), job(4, 300, 22))
	plan = must(t, "muri", policies.Options{}).Plan(s.snap(t))
	if got := slices.Sorted(maps.Values(startsOf(&plan))); !slices.Equal(got, []string{"n1-00", "n1-01", "n2-00", "n2-01"}) {
		t.Errorf("starts on %v, want each alone", got)
	}
}

func TestGavelByHand(t *testing.T) {
	t.Parallel()
	// Both are fastest on the A100; job 1 is three times slower on the T4, job
	// 2 hardly. The program's solution is job 1 on the A100, job 2 on the T4.
	one := Job(1, Exclusive, Predict(a100, 9000, 900, 10*time.Minute), Predict(t4, 9000, 900, 30*time.Minute))
	two := Job(2, Exclusive, Predict(a100, 9000, 900, 9*time.Minute), Predict(t4, 9000, 900, 10*time.Minute))
	for _, jobs := range [][]*cluster.Job{{one, two}, {two, one}} {
		s := newScene(Node("n1", 1, a100), Node("n2", 1, t4)).waits(jobs...)
		plan := must(t, "gavel", policies.Options{}).Plan(s.snap(t))
		if d := cmp.Diff(at{1: "n1-00", 2: "n2-00"}, startsOf(&plan)); d != "" {
			t.Errorf("starts (-want +got):\n%s", d)
		}
	}
}
