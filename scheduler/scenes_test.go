package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// scene is a small cluster at one instant and what a pass does with it: nodes,
// who runs, who waits, and in a line each what becomes of those who wait, as brief
// says it.
type scene struct {
	name  string
	nodes []*cluster.Node
	runs  []lies
	waits []*cluster.Job
	pol   func(*scheduler.Policy)
	snap  func(*dispatch.Snapshot)
	want  string
}

// lies is a job that runs on a card, on all of it or on a share.
type lies struct {
	job *cluster.Job
	on  cluster.GPUID
	mem int64 // of the share; 0 is the whole card
	use int64 // thousandths
}

// held is job 100+n, alone on a card for so long.
func held(n int, on cluster.GPUID, d time.Duration, opts ...JobOption) lies {
	return lies{job: Job(cluster.JobID(100+n), append([]JobOption{Lasts(d)}, opts...)...), on: on}
}

// brief says in few words what a plan does: "2@n1-00+n1-01" is a start, "@n1" one
// without GPUs, "@n1-00,n2-00" one on two nodes; "3>n1-00 in 5m0s" waits in a queue,
// "4-Reason" leaves one, "5!" is ended.
func brief(p *dispatch.Plan) string {
	var out []string
	for i := range p.Starts {
		var parts []string
		for _, b := range p.Starts[i].Berths() {
			var cards []string
			for _, g := range b.GPUs {
				cards = append(cards, string(g.GPU))
			}
			if len(cards) == 0 {
				cards = []string{string(b.Node)}
			}
			parts = append(parts, strings.Join(cards, "+"))
		}
		out = append(out, fmt.Sprintf("%d@%s", p.Starts[i].Job, strings.Join(parts, ",")))
	}
	for _, m := range p.Moves {
		if m.GPU == "" {
			out = append(out, fmt.Sprintf("%d-%s", m.Job, m.Reason))
			continue
		}
		out = append(out, fmt.Sprintf("%d>%s in %s", m.Job, m.GPU, m.EstStart.Sub(Now)))
	}
	for _, x := range p.Preempt {
		out = append(out, fmt.Sprintf("%d!", x.Job))
	}
	return strings.Join(out, "; ")
}

// world lays out the scene.
func (c *scene) world(t *testing.T) *World {
	t.Helper()
	w := NewWorld(c.nodes)
	for _, r := range c.runs {
		u, ok := w.Ledg.GPU(r.on)
		if !ok {
			t.Fatalf("no GPU %s", r.on)
		}
		share := whole(u.SellableMiB)
		if r.mem > 0 {
			share = cluster.Share{MemMiB: r.mem, Milli: r.use}
		}
		running(w, r.job, r.on, share)
	}
	for _, j := range c.waits {
		w.Submit(j)
	}
	if err := w.Check(); err != nil || len(w.Rejected) > 0 {
		t.Fatalf("bad scene: %v, rejected %v", err, w.Rejected)
	}
	return w
}

func (c *scene) plan(t *testing.T) dispatch.Plan {
	t.Helper()
	s, pol := c.world(t).Snapshot(), scheduler.Default()
	if c.pol != nil {
		c.pol(&pol)
	}
	if c.snap != nil {
		c.snap(s)
	}
	return scheduler.Schedule(s, pol)
}

func playScenes(t *testing.T, scenes []scene) {
	t.Helper()
	for _, c := range scenes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := c.plan(t)
			if d := cmp.Diff(c.want, brief(&p)); d != "" {
				t.Errorf("(-want +got):\n%s\nreasons %v", d, p.Unplaced)
			}
		})
	}
}

// one is a cluster of single cards of a type, n1, n2 and so on.
func one(types ...string) []*cluster.Node {
	var out []*cluster.Node
	for i, typ := range types {
		out = append(out, Node(cluster.NodeID(fmt.Sprintf("n%d", i+1)), 1, typ))
	}
	return out
}

func attached(opts ...JobOption) JobOption {
	return func(j *cluster.Job) {
		for _, o := range opts {
			o(j)
		}
	}
}

// inQOS gives a job a class; ranked says what the classes of these tests are
// worth.
func inQOS(name string) JobOption { return func(j *cluster.Job) { j.Spec.QOS = name } }

func ranked(s *dispatch.Snapshot) {
	s.Standing = &accounting.Standing{QOS: map[string]*accounting.QOS{"urgent": {Name: "urgent", Priority: 5}, "idle": {Name: "idle"}}}
}

// TestWhoGoesFirst: one place, and who gets it. Without more said, the order is
// that of QSSF for what is short, the longest of what is long, then QSSF again.
func TestWhoGoesFirst(t *testing.T) {
	t.Parallel()
	const m, h, day = time.Minute, time.Hour, 24 * time.Hour
	alone := func(id cluster.JobID, d time.Duration, opts ...JobOption) *cluster.Job {
		return Job(id, Exclusive, Lasts(d), attached(opts...))
	}
	byWork := func(p *scheduler.Policy) { p.ShortPart, p.LongPart = 0, 0 }
	fixedAge := func(p *scheduler.Policy) { p.OldDrains, p.MaxMoves = 0, 0 }
	noMoves := func(p *scheduler.Policy) { p.MaxMoves = 0 }
	both := func(fs ...func(*scheduler.Policy)) func(*scheduler.Policy) {
		return func(p *scheduler.Policy) {
			for _, f := range fs {
				f(p)
			}
		}
	}
	playScenes(t, []scene{
		{name: "the least GPU time", nodes: one(a100), pol: both(byWork, noMoves),
			waits: []*cluster.Job{alone(1, h), alone(2, 10*m)}, want: "2@n1-00"},
		{name: "a job on four nodes takes four times as much", nodes: one(a100, a100, a100, a100), pol: both(byWork, noMoves),
			waits: []*cluster.Job{Job(1, Exclusive, Lasts(20*m), onNodes(4)), alone(2, h), alone(3, h), alone(4, h)}, want: "2@n1-00; 3@n2-00; 4@n3-00"},
		{name: "a priority goes before any length", nodes: one(a100), pol: both(byWork, noMoves), snap: ranked,
			waits: []*cluster.Job{alone(1, m, inQOS("idle")), alone(2, 9*h, inQOS("urgent"))}, want: "2@n1-00"},
		{name: "and before age", nodes: one(a100), pol: fixedAge, snap: ranked,
			waits: []*cluster.Job{alone(1, m, Waited(9*h)), alone(2, 9*h, inQOS("urgent"))}, want: "2@n1-00"},
		{name: "but not before a deadline", nodes: one(a100), pol: both(noMoves, func(p *scheduler.Policy) { p.DeadlineShareMilli = 1000 }), snap: ranked,
			waits: []*cluster.Job{alone(1, m, Limit(m), dueIn(m)), alone(2, 9*h, inQOS("urgent"))}, want: "1@n1-00"},
		{name: "old from FIFOAge on, to the moment", nodes: one(a100), pol: fixedAge,
			waits: []*cluster.Job{alone(1, 9*h, Waited(4*h)), alone(2, m)}, want: "1@n1-00"},
		{name: "and not a moment sooner", nodes: one(a100), pol: both(fixedAge, byWork),
			waits: []*cluster.Job{alone(1, 9*h, Waited(4*h-time.Microsecond)), alone(2, m)}, want: "2@n1-00"},
		{name: "of the old who waits longest, however short the other", nodes: one(a100), pol: fixedAge,
			waits: []*cluster.Job{alone(1, m, Waited(5*h)), alone(2, 9*h, Waited(6*h))}, want: "2@n1-00"},
		{name: "under a backlog nobody is old after four hours", nodes: one(a100), pol: noMoves,
			waits: []*cluster.Job{alone(1, 40*day, Waited(6*day)), alone(2, m)}, want: "2@n1-00"},
		{name: "but everybody is after seven days", nodes: one(a100), pol: noMoves,
			waits: []*cluster.Job{alone(1, 40*day, Waited(7*day)), alone(2, m)}, want: "1@n1-00"},
		{name: "long beside all there is to do goes before the middle", nodes: one(a100), pol: noMoves,
			waits: []*cluster.Job{alone(1, 10*h), alone(2, h)}, want: "1@n1-00"},
		{name: "tasks of an array that are not shown make all of it short", nodes: one(a100), pol: noMoves,
			snap:  func(s *dispatch.Snapshot) { s.More = map[cluster.JobID]int{1: 500} },
			waits: []*cluster.Job{alone(1, 10*h), alone(2, h)}, want: "2@n1-00"},
		{name: "of what is short and about as long, the largest", nodes: one(a100), pol: noMoves,
			runs: []lies{{job: Job(100, Lasts(h)), on: "n1-00", mem: 32_000, use: 400}},
			waits: []*cluster.Job{Job(1, Mem(24_000), Util(300), Lasts(h)), Job(2, Mem(40_000), Util(500), Lasts(h)),
				alone(3, 200*h)}, want: "2@n1-00"},
		// Four came within four minutes, an hour ago. Nobody comes any more: all that
		// is here is all there is, and the longest of it goes first.
		{name: "a stream that has ended is a batch", nodes: one(a100), pol: noMoves,
			waits: []*cluster.Job{alone(1, 20*m, Waited(64*m)), alone(2, 5*m, Waited(63*m)), alone(3, 3*m, Waited(62*m)), alone(4, 2*m, Waited(61*m))},
			want:  "1@n1-00"},
		// The last came two minutes ago, one a quarter of an hour: that goes on.
		{name: "a stream that lasts longer than the drain is none", nodes: one(a100), pol: noMoves,
			waits: []*cluster.Job{alone(1, 20*m, Waited(47*m)), alone(2, 5*m, Waited(32*m)), alone(3, 3*m, Waited(17*m)), alone(4, 2*m, Waited(2*m))},
			want:  "4@n1-00"},
		{name: "a day is not longer than its limit", nodes: one(a100), pol: both(byWork, noMoves),
			waits: []*cluster.Job{alone(1, h), alone(2, 24*h, Limit(10*m))}, want: "2@n1-00"},
	})
}

// TestWhichType: of several that are free, and of one that is free and one that
// is not.
func TestWhichType(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	// on is a job of a tenth of any card that lasts so long on each type.
	on := func(big, little time.Duration, opts ...JobOption) *cluster.Job {
		return Job(1, Predict(a100, 1000, 100, big), Predict(t4, 1000, 100, little), attached(opts...))
	}
	patient := func(p *scheduler.Policy) { p.PatienceMilli = 2000 }
	playScenes(t, []scene{
		{name: "the slower while it takes no more than 15 % longer", nodes: one(a100, t4), waits: []*cluster.Job{on(60*m, 69*m)}, want: "1@n2-00"},
		{name: "the faster from there on", nodes: one(a100, t4), waits: []*cluster.Job{on(60*m, 69*m+time.Second)}, want: "1@n1-00"},
		{name: "the slower one, although it is the larger", nodes: one(a100, t4), waits: []*cluster.Job{on(66*m, 60*m)}, want: "1@n1-00"},
		{name: "nobody waits beside a free card", nodes: one(a100, t4), runs: []lies{held(0, "n1-00", m)}, waits: []*cluster.Job{on(h, 10*h)}, want: "1@n2-00"},
		{name: "but who is patient, for half the time", nodes: one(a100, t4), runs: []lies{held(0, "n1-00", h)}, pol: patient,
			waits: []*cluster.Job{on(3*h, 10*h)}, want: "1>n1-00 in 1h0m0s"},
		{name: "the wait counts", nodes: one(a100, t4), runs: []lies{held(0, "n1-00", h)}, pol: patient,
			waits: []*cluster.Job{on(4*h+30*m, 10*h)}, want: "1@n2-00"},
		{name: "a promise that is a little late is waited for", nodes: one(a100, t4), runs: []lies{held(0, "n1-00", h)}, pol: patient,
			waits: []*cluster.Job{on(h, 10*h, queued("n1-00", -29*time.Second))}, want: ""},
		{name: "one that is late for ReserveAge is not", nodes: one(a100, t4), runs: []lies{held(0, "n1-00", h)}, pol: patient,
			waits: []*cluster.Job{on(h, 10*h, queued("n1-00", -30*time.Second))}, want: "1@n2-00"},
		{name: "who is old takes what there is", nodes: one(a100, t4), runs: []lies{held(0, "n1-00", h)},
			pol:   func(p *scheduler.Policy) { p.PatienceMilli, p.OldDrains = 2000, 0 },
			waits: []*cluster.Job{on(h, 10*h, Waited(4*h))}, want: "1@n2-00"},
		{name: "nobody can predict it: the most memory", nodes: one(t4, a100), waits: []*cluster.Job{Job(1)}, want: "1@n2-00"},
		{name: "just sure enough: the least that does", nodes: one(t4, a100), waits: []*cluster.Job{Job(1, Predict(a100, 900, 100, h), Predict(t4, 900, 100, h), sure(300))}, want: "1@n1-00"},
		{name: "and two of them share it", nodes: one(a100), waits: []*cluster.Job{Job(1, Predict(a100, 900, 100, h), sure(300)), Job(2, Predict(a100, 900, 100, h), sure(300))}, want: "1@n1-00; 2@n1-00"},
		{name: "not sure enough: alone, on the most", nodes: one(t4, a100), waits: []*cluster.Job{Job(1, Predict(a100, 900, 100, h), Predict(t4, 900, 100, h), sure(299))}, want: "1@n2-00"},
	})
}

func sure(milli int64) JobOption {
	return func(j *cluster.Job) {
		for i := range j.Estimates {
			j.Estimates[i].ConfidenceMilli = milli
		}
	}
}

// TestWhichCard: of the cards of one type.
func TestWhichCard(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	tenth := func(id cluster.JobID, opts ...JobOption) *cluster.Job {
		return Job(id, Mem(8000), Util(100), Lasts(h), attached(opts...))
	}
	noShares := func(n *cluster.Node) {
		for i := range n.GPUs {
			n.GPUs[i].CapMode = "none"
		}
	}
	playScenes(t, []scene{
		{name: "cards alike but for sharing are two classes", nodes: []*cluster.Node{Node("n1", 1, a100, noShares), Node("n2", 1, a100)},
			waits: []*cluster.Job{tenth(1), tenth(2), tenth(3), tenth(4)}, want: "1@n1-00; 2@n2-00; 3@n2-00; 4@n2-00"},
		{name: "who wants it alone lies on either", nodes: []*cluster.Node{Node("n1", 1, a100, noShares), Node("n2", 1, a100)},
			waits: []*cluster.Job{tenth(1, Exclusive), tenth(2, Exclusive)}, want: "1@n1-00; 2@n2-00"},
		{name: "all of the memory is all of the card", nodes: one(a100), pol: func(p *scheduler.Policy) { p.MaxMoves = 0 },
			waits: []*cluster.Job{Job(1, Mem(80_000), Util(100), Lasts(h)), tenth(2)}, want: "1@n1-00"},
		{name: "the policy's bound of shares is below the card's", nodes: one(a100, a100), pol: func(p *scheduler.Policy) { p.MaxShares = 1 },
			waits: []*cluster.Job{tenth(1), tenth(2)}, want: "1@n1-00; 2@n2-00"},
		{name: "shares of a gang lie on one node", nodes: one(a100, a100), pol: func(p *scheduler.Policy) { p.MaxMoves = 0 },
			waits: []*cluster.Job{tenth(1, GPUs(2))}, want: ""},
		{name: "on the first node that has as many cards", nodes: []*cluster.Node{Node("n1", 1, a100), Node("n2", 2, a100)},
			waits: []*cluster.Job{tenth(1, GPUs(2))}, want: "1@n2-00+n2-01"},
		{name: "on the node that it asks for", nodes: one(a100, a100, a100), waits: []*cluster.Job{tenth(1, On("n2"))}, want: "1@n2-00"},
		{name: "beside others on the node that it asks for", nodes: one(a100, a100), runs: []lies{{job: tenth(100), on: "n1-00", mem: 8000, use: 100}},
			waits: []*cluster.Job{tenth(1, On("n2"))}, want: "1@n2-00"},
		{name: "a drained card takes nobody", nodes: []*cluster.Node{Node("n1", 2, a100, func(n *cluster.Node) { n.GPUs[0].State = cluster.GPUFailing })},
			waits: []*cluster.Job{tenth(1)}, want: "1@n1-01"},
		{name: "memory that was proved too little is not given again", nodes: one(t4, a100),
			waits: []*cluster.Job{tenth(1, func(j *cluster.Job) { j.MinGPUMemMiB = 16_000 })}, want: "1@n2-00"},
		{name: "unless nothing has more", nodes: one(t4),
			waits: []*cluster.Job{tenth(1, func(j *cluster.Job) { j.MinGPUMemMiB = 16_000 })}, want: "1@n1-00"},
		{name: "or what has more could never hold the job", nodes: []*cluster.Node{Node("n1", 2, t4), Node("n2", 1, a100)},
			waits: []*cluster.Job{tenth(1, GPUs(2), func(j *cluster.Job) { j.MinGPUMemMiB = 16_000 })}, want: "1@n1-00+n1-01"},
	})
}

// TestQueuesServe: a job stands where it can be served, and moves for a gain that
// the policy wants.
func TestQueuesServe(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	alone := func(id cluster.JobID, d time.Duration, opts ...JobOption) *cluster.Job {
		return Job(id, Exclusive, Lasts(d), attached(opts...))
	}
	gains := func(part int64, span time.Duration) func(*scheduler.Policy) {
		return func(p *scheduler.Policy) { p.MinGainMilli, p.MinGain = part, span }
	}
	playScenes(t, []scene{
		{name: "a node with too few cards does not serve a gang", nodes: []*cluster.Node{Node("n1", 1, a100), Node("n2", 2, a100)},
			runs:  []lies{held(0, "n1-00", h), held(1, "n2-00", h), held(2, "n2-01", h)},
			waits: []*cluster.Job{alone(1, m, GPUs(2), queued("n1-00", h))}, want: "1>n2-00 in 1h0m0s"},
		{name: "a type that it may not have does not serve", nodes: one(t4, a100), runs: []lies{held(0, "n1-00", m), held(1, "n2-00", h)},
			waits: []*cluster.Job{alone(1, m, Type(a100), queued("n1-00", m))}, want: "1>n2-00 in 1h0m0s"},
		{name: "a node that is drained does not serve", nodes: []*cluster.Node{Node("n1", 1, a100, Drained), Node("n2", 1, a100)}, runs: []lies{held(1, "n2-00", h)},
			waits: []*cluster.Job{alone(1, m, queued("n1-00", m))}, want: "1>n2-00 in 1h0m0s"},
		{name: "nor one with too few cores", nodes: []*cluster.Node{Node("n1", 1, a100, Host(4000, 64<<10)), Node("n2", 1, a100)}, runs: []lies{held(0, "n1-00", m), held(1, "n2-00", h)},
			waits: []*cluster.Job{alone(1, m, Cores(8000), queued("n1-00", m))}, want: "1>n2-00 in 1h0m0s"},
		// Job 1 would end in 70 minutes here, in 11 there.
		{name: "moves to a queue that ends it sooner", nodes: one(a100, a100), runs: []lies{held(0, "n1-00", h), held(1, "n2-00", m)},
			waits: []*cluster.Job{alone(1, 10*m, queued("n1-00", h))}, want: "1>n2-00 in 1m0s"},
		{name: "not for less than MinGain", nodes: one(a100, a100), runs: []lies{held(0, "n1-00", h), held(1, "n2-00", m)}, pol: gains(0, h),
			waits: []*cluster.Job{alone(1, 10*m, queued("n1-00", h))}, want: ""},
		{name: "nor for a small part of the whole", nodes: one(a100, a100), runs: []lies{held(0, "n1-00", h), held(1, "n2-00", 55*m)}, pol: gains(200, time.Second),
			waits: []*cluster.Job{alone(1, 10*m, queued("n1-00", h))}, want: ""},
		{name: "but for that part", nodes: one(a100, a100), runs: []lies{held(0, "n1-00", h), held(1, "n2-00", 55*m)}, pol: gains(50, time.Second),
			waits: []*cluster.Job{alone(1, 10*m, queued("n1-00", h))}, want: "1>n2-00 in 55m0s"},
		{name: "who has cards kept for it stays", nodes: one(a100, a100), runs: []lies{held(0, "n1-00", h), held(1, "n2-00", m)},
			waits: []*cluster.Job{alone(1, 10*m, queued("n1-00", h), Waited(m))}, want: ""},
		{name: "the queue that has half of a card to do counts as half", nodes: one(a100, a100),
			runs:  []lies{held(0, "n1-00", 40*m), held(1, "n2-00", 50*m)},
			waits: []*cluster.Job{Job(1, Mem(40_000), Util(500), Lasts(16*m), queued("n1-00", 40*m)), alone(2, 10*m)},
			want:  "2>n1-00 in 48m0s"},
		{name: "or, being larger, sends it on", nodes: one(a100, a100),
			runs:  []lies{held(0, "n1-00", 40*m), held(1, "n2-00", 50*m)},
			waits: []*cluster.Job{Job(1, Mem(40_000), Util(500), Lasts(24*m), queued("n1-00", 40*m)), alone(2, 10*m)},
			want:  "2>n2-00 in 50m0s"},
	})
}

// TestNobodyDelaysTheHead: what is kept for who waits for a while, and from whom.
func TestNobodyDelaysTheHead(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	// The card of n1 is free in 30 minutes, that of n2 now. Job 1 wants both.
	cards := func() []*cluster.Node { return []*cluster.Node{Node("n1", 2, a100)} }
	pair := func(waited time.Duration, opts ...JobOption) *cluster.Job {
		return Job(1, GPUs(2), Exclusive, Lasts(10*m), Waited(waited), queued("n1-00", 30*m), attached(opts...))
	}
	alone := func(d time.Duration, opts ...JobOption) *cluster.Job {
		return Job(2, Exclusive, Lasts(d), attached(opts...))
	}
	busy := []lies{held(0, "n1-00", 30*m)}
	limited := []lies{held(0, "n1-00", 10*m, Limit(30*m))}
	noMoves := func(p *scheduler.Policy) { p.MaxMoves, p.MaxRebalance, p.ShortPart, p.LongPart = 0, 0, 0, 0 }
	fixedAge := func(p *scheduler.Policy) { noMoves(p); p.OldDrains = 0 }
	share := func(d time.Duration, mem, milli int64) *cluster.Job { return Job(2, Mem(mem), Util(milli), Lasts(d)) }
	playScenes(t, []scene{
		{name: "who ends in time passes", nodes: cards(), runs: busy, waits: []*cluster.Job{pair(m), alone(30 * m)}, pol: noMoves, want: "2@n1-01"},
		{name: "who ends a moment later does not", nodes: cards(), runs: busy, waits: []*cluster.Job{pair(m), alone(30*m + time.Second)}, pol: noMoves, want: ""},
		{name: "before ReserveAge nothing is kept", nodes: cards(), runs: busy, waits: []*cluster.Job{pair(29 * time.Second), alone(9 * h)}, pol: noMoves, want: "2@n1-01"},
		{name: "from then on it is", nodes: cards(), runs: busy, waits: []*cluster.Job{pair(30 * time.Second), alone(9 * h)}, pol: noMoves, want: ""},
		{name: "the start goes by the time limit of who runs", nodes: cards(), runs: limited, waits: []*cluster.Job{pair(m), alone(30 * m)}, pol: noMoves, want: "2@n1-01"},
		{name: "and the end of who passes by its own", nodes: cards(), runs: busy, waits: []*cluster.Job{pair(m), alone(9*h, Limit(30*m))}, pol: noMoves, want: "2@n1-01"},
		{name: "an old job keeps its cards as well", nodes: cards(), runs: busy, waits: []*cluster.Job{pair(4*h + m), alone(31 * m)}, pol: fixedAge, want: ""},
		{name: "and lets pass who ends in time", nodes: cards(), runs: busy, waits: []*cluster.Job{pair(4*h + m), alone(30 * m)}, pol: fixedAge, want: "2@n1-01"},
		{name: "for HoldAge, and then nobody", nodes: cards(), runs: busy, waits: []*cluster.Job{pair(4*h + 20*m), alone(30 * m)}, pol: fixedAge, want: ""},
		{name: "not one moment before", nodes: cards(), runs: busy, waits: []*cluster.Job{pair(4*h + 20*m - time.Second), alone(30 * m)}, pol: fixedAge, want: "2@n1-01"},
		{name: "it keeps its cores, too", nodes: []*cluster.Node{Node("n1", 2, a100, Host(8000, 64<<10))}, runs: busy,
			waits: []*cluster.Job{pair(m, Cores(6000)), alone(30*m, Cores(2000))}, pol: func(p *scheduler.Policy) { noMoves(p); p.KeepCPUMilli, p.KeepMemMiB = 0, 0 }, want: ""},
		// A share that waits: the card clears when compute is free, not only memory.
		{name: "a card has room when both are free", nodes: one(a100),
			runs:  []lies{{job: Job(100, Lasts(10*m)), on: "n1-00", mem: 50_000, use: 100}, {job: Job(101, Lasts(20*m)), on: "n1-00", mem: 10_000, use: 600}},
			waits: []*cluster.Job{Job(1, Mem(40_000), Util(600), Lasts(m), Waited(5*m), queued("n1-00", 20*m)), share(20*m, 1000, 100)}, pol: noMoves, want: "2@n1-00"},
		{name: "and not before", nodes: one(a100),
			runs:  []lies{{job: Job(100, Lasts(10*m)), on: "n1-00", mem: 50_000, use: 100}, {job: Job(101, Lasts(20*m)), on: "n1-00", mem: 10_000, use: 600}},
			waits: []*cluster.Job{Job(1, Mem(40_000), Util(600), Lasts(m), Waited(5*m), queued("n1-00", 20*m)), share(21*m, 1000, 100)}, pol: noMoves, want: ""},
		// Either of those there leaves enough, and job 101 ends first.
		{name: "who ends first is counted first", nodes: one(a100),
			runs:  []lies{{job: Job(100, Lasts(20*m)), on: "n1-00", mem: 30_000, use: 100}, {job: Job(101, Lasts(10*m)), on: "n1-00", mem: 30_000, use: 100}},
			waits: []*cluster.Job{Job(1, Mem(40_000), Util(100), Lasts(m), Waited(5*m), queued("n1-00", 10*m)), share(11*m, 1000, 50)}, pol: noMoves, want: ""},
		{name: "and all of its compute", nodes: one(a100),
			runs:  []lies{{job: Job(100, Lasts(20*m)), on: "n1-00", mem: 1000, use: 300}, {job: Job(101, Lasts(10*m)), on: "n1-00", mem: 1000, use: 600}},
			waits: []*cluster.Job{Job(1, Mem(1000), Util(700), Lasts(m), Waited(5*m), queued("n1-00", 10*m)), share(11*m, 1000, 50)}, pol: noMoves, want: ""},
		{name: "until then others pass", nodes: one(a100),
			runs:  []lies{{job: Job(100, Lasts(20*m)), on: "n1-00", mem: 1000, use: 300}, {job: Job(101, Lasts(10*m)), on: "n1-00", mem: 1000, use: 600}},
			waits: []*cluster.Job{Job(1, Mem(1000), Util(700), Lasts(m), Waited(5*m), queued("n1-00", 10*m)), share(10*m, 1000, 50)}, pol: noMoves, want: "2@n1-00"},
		{name: "and all of its memory", nodes: one(a100),
			runs:  []lies{{job: Job(100, Lasts(20*m)), on: "n1-00", mem: 20_000, use: 100}, {job: Job(101, Lasts(10*m)), on: "n1-00", mem: 50_000, use: 100}},
			waits: []*cluster.Job{Job(1, Mem(60_000), Util(100), Lasts(m), Waited(5*m), queued("n1-00", 10*m)), share(11*m, 1000, 50)}, pol: noMoves, want: ""},
		{name: "a short job of the same shape as a long one that failed is tried", nodes: cards(), runs: busy,
			waits: []*cluster.Job{pair(m), alone(40 * m), Job(3, Exclusive, Lasts(45*m)), Job(4, Exclusive, Lasts(20*m))},
			pol:   noMoves, want: "4@n1-01"},
		// The oldest job without GPUs holds the node that has most of what it needs.
		{name: "cores are kept where most are free", nodes: []*cluster.Node{Node("n1", 0, "", Host(8000, 64<<10)), Node("n2", 0, "", Host(8000, 64<<10))}, pol: fixedAge,
			waits: []*cluster.Job{Job(1, GPUs(0), Cores(8000), Waited(5*h)), Job(2, GPUs(0), Cores(8000), Waited(5*h)), Job(3, GPUs(0), Cores(8000), Waited(5*h)), Job(4, GPUs(0), Cores(1000))},
			want:  "1@n1; 2@n2"},
	})
}

// TestPlainJobsKeepTheirNode: one that waited too long holds one node, always the
// same, and the one that it asks for.
func TestPlainJobsKeepTheirNode(t *testing.T) {
	t.Parallel()
	host := func(id cluster.NodeID) *cluster.Node { return Node(id, 0, "", Host(8000, 64<<10)) }
	fixedAge := func(p *scheduler.Policy) { p.OldDrains = 0 }
	for _, c := range []struct {
		name  string
		wants *cluster.Job
		next  *cluster.Job
		want  string
	}{
		{"the first of two that have as much", Job(1, GPUs(0), Cores(8000), Waited(5*time.Hour)), Job(2, GPUs(0), Cores(2000), On("n1")), ""},
		{"so that the other stays open", Job(1, GPUs(0), Cores(8000), Waited(5*time.Hour)), Job(2, GPUs(0), Cores(2000), On("n2")), "2@n2"},
		{"the one that it asks for", Job(1, GPUs(0), Cores(8000), Waited(5*time.Hour), On("n2")), Job(2, GPUs(0), Cores(2000), On("n2")), ""},
		{"and not the other", Job(1, GPUs(0), Cores(8000), Waited(5*time.Hour), On("n2")), Job(2, GPUs(0), Cores(2000), On("n1")), "2@n1"},
		{"not one that it excludes", Job(1, GPUs(0), Cores(8000), Waited(5*time.Hour), where(func(w *cluster.Where) { w.Exclude = hosts("n1") })), Job(2, GPUs(0), Cores(2000), On("n1")), "2@n1"},
		{"all of its host memory, when it needs all", Job(1, GPUs(0), HostMem(64<<10), Waited(5*time.Hour)), Job(2, GPUs(0), On("n1")), ""},
		{"nothing before it is old", Job(1, GPUs(0), Cores(8000), Waited(3*time.Hour)), Job(2, GPUs(0), Cores(2000), On("n1")), "2@n1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{host("n1"), host("n2")})
			for i, n := range []cluster.NodeID{"n1", "n2"} { // a quarter of each is in use
				w.Submit(Job(cluster.JobID(100+i), GPUs(0), Cores(2000), On(n)))
				w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: cluster.JobID(100 + i), Attempt: 1, Berth: cluster.Berth{Node: n, CPUMilli: 2000, MemMiB: 1024}}}})
			}
			w.Submit(c.wants)
			w.Submit(c.next)
			pol := scheduler.Default()
			fixedAge(&pol)
			p := scheduler.Schedule(w.Snapshot(), pol)
			if got := brief(&p); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
