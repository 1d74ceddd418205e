package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestWhoPassesAGang: a job that comes before one on several nodes in the order lies on
// its nodes if that delays it by no more than it would run itself, less what it waited.
func TestWhoPassesAGang(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	// The second card of n1 is busy for 10 minutes; three cards are free. Job 1 wants all
	// four, for 20 minutes: 80 minutes of GPUs, so that who takes an hour of one goes first.
	nodes := func() []*cluster.Node { return []*cluster.Node{Node("n1", 2, a100), Node("n2", 2, a100)} }
	busy := []lies{held(0, "n1-01", 10*m)}
	gang := func(waited time.Duration, opts ...JobOption) *cluster.Job {
		return Job(1, GPUs(2), Exclusive, onNodes(2), Lasts(20*m), Waited(waited), attached(opts...))
	}
	alone := func(d time.Duration, opts ...JobOption) *cluster.Job {
		return Job(2, Exclusive, Lasts(d), attached(opts...))
	}
	noMoves := func(p *scheduler.Policy) {
		p.MaxMoves, p.MaxRebalance, p.ShortPart, p.LongPart, p.YieldAfter = 0, 0, 0, 0, 0
	}
	playScenes(t, []scene{
		{name: "before ReserveAge anybody", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(29 * time.Second), alone(30*m + time.Second)}, pol: noMoves, want: "2@n1-00"},
		{name: "who delays it by less than its run", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(2 * m), alone(28 * m)}, pol: noMoves, want: "2@n1-00"},
		{name: "not by a moment more", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(2 * m), alone(28*m + time.Second)}, pol: noMoves, want: ""},
		{name: "the longer it waited the less", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(15 * m), alone(15*m + time.Second)}, pol: noMoves, want: ""},
		{name: "and then nobody who delays it", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(30 * m), alone(10*m + time.Second)}, pol: noMoves, want: ""},
		{name: "but who does not", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(30 * m), alone(10 * m)}, pol: noMoves, want: "2@n1-00"},
		{name: "a third node is not kept", nodes: append(nodes(), Node("n3", 1, a100)), runs: busy, waits: []*cluster.Job{gang(30 * m), alone(60 * m)}, pol: noMoves, want: "2@n3-00"},
		{name: "deadlines are not held up", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(30 * m), alone(60*m, func(j *cluster.Job) { j.Spec.Deadline = Now.Add(61 * time.Minute) })}, pol: noMoves, want: "2@n1-00"},
		{name: "nor the old", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(30 * m), alone(60*m, Waited(5*time.Hour))}, pol: func(p *scheduler.Policy) { noMoves(p); p.OldDrains = 0 }, want: "2@n1-00"},
		{name: "nor a higher class", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(30 * m), alone(60*m, inQOS("urgent"))}, pol: noMoves, snap: ranked, want: "2@n1-00"},
		{name: "in a class of its own it is kept as well", nodes: nodes(), runs: busy, waits: []*cluster.Job{gang(30*m, inQOS("urgent")), alone(60*m, inQOS("urgent"))}, pol: noMoves, snap: ranked, want: ""},
		{name: "a whole node for one", nodes: nodes(), runs: []lies{held(0, "n1-01", 10*m), held(1, "n2-01", 30*m)}, pol: noMoves,
			waits: []*cluster.Job{Job(1, GPUs(1), Exclusive, Lasts(45*m), Waited(50*m), func(j *cluster.Job) { j.Spec.Where = &cluster.Where{Whole: true} }), alone(40 * m)}, want: "2@n2-00"},
		{name: "what is kept is over when it starts", nodes: append(nodes(), Node("n3", 2, a100)), waits: []*cluster.Job{gang(30 * m), alone(60 * m), Job(3, Exclusive, Lasts(60*m))}, pol: noMoves,
			want: "1@n1-00+n1-01,n2-00+n2-01; 2@n3-00; 3@n3-01"},
	})
}

// TestAStreamOfShortJobsDoesNotHoldAGang: an hour of one card comes before a gang in
// every pass, and there are always such; the gang starts when what ran as it came is
// over and it has waited about as long as it runs, not when it is old.
func TestAStreamOfShortJobsDoesNotHoldAGang(t *testing.T) {
	t.Parallel()
	w, pol := NewWorld(farmOf(2, 2, a100)), scheduler.Default()
	next := cluster.JobID(10)
	keepBusy := func() {
		for len(w.Snapshot().Waiting) < 3 {
			w.Submit(Job(next, Exclusive, Predict(a100, 1000, 500, time.Duration(40+next*7%20)*time.Minute)))
			next++
		}
		p := scheduler.Schedule(w.Snapshot(), pol)
		w.Apply(&p)
	}
	for range 4 {
		keepBusy()
		w.Advance(7 * time.Minute)
	}
	came := w.Clock
	w.Submit(Job(1, GPUs(2), Exclusive, onNodes(2), Predict(a100, 1000, 500, 20*time.Minute)))
	for w.Jobs[1].State != cluster.JobRunning {
		keepBusy()
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		w.Advance(time.Minute)
		if waits := w.Clock.Sub(came); waits > 90*time.Minute {
			t.Fatalf("it waits for %s", waits)
		}
	}
	t.Logf("it waited for %s", w.Clock.Sub(came))
}

// TestWhyBehindAGang: a job that nodes are kept from is told for whom, and the gang's
// forecast counts only those before it that may delay it.
func TestWhyBehindAGang(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	gang := Job(1, GPUs(2), Exclusive, onNodes(2), Lasts(20*m), Waited(5*m))
	long := Job(2, Exclusive, Lasts(60*m), queued("n1-01", 10*m))
	sc := scene{nodes: []*cluster.Node{Node("n1", 2, a100), Node("n2", 2, a100)}, runs: []lies{held(0, "n1-01", 10*m)}, waits: []*cluster.Job{gang, long}}
	s, pol := sc.world(t).Snapshot(), scheduler.Default()
	var said []string
	for _, e := range scheduler.Explain(s, long, pol) {
		said = append(said, fmt.Sprintf("%d × %s", e.Count, e.Reason))
	}
	if want := "3 × Priority: GPU 0 of n1 (A100-SXM4-80GB) has room, but is kept for waiting job 1"; !slices.Contains(said, want) {
		t.Errorf("it is said %q, want %q", said, want)
	}
	if f, ok := scheduler.ForecastStart(s, gang, pol); !ok || f.P50.Sub(s.Now) != 10*m || f.Ahead != 0 {
		t.Errorf("the gang is expected in %s, %d ahead", f.P50.Sub(s.Now), f.Ahead)
	}
	if f, ok := scheduler.ForecastStart(s, long, pol); !ok || f.P50.Sub(s.Now) != 30*m || f.Ahead != 1 {
		t.Errorf("who waits behind it is expected in %s, %d ahead", f.P50.Sub(s.Now), f.Ahead)
	}
	// Who delays it by less than its run goes before it.
	short := Job(2, Exclusive, Lasts(24*m), queued("n1-01", 10*m))
	sc.waits = []*cluster.Job{Job(1, GPUs(2), Exclusive, onNodes(2), Lasts(20*m), Waited(5*m)), short}
	s = sc.world(t).Snapshot()
	if f, ok := scheduler.ForecastStart(s, sc.waits[0], pol); !ok || f.P50.Sub(s.Now) <= 10*m || f.Ahead != 1 {
		t.Errorf("with one that passes the gang is expected in %s, %d ahead", f.P50.Sub(s.Now), f.Ahead)
	}
	// The nodes are kept until the gang's turn, the last, though another has the only reservation then.
	pol.ShortPart, pol.LongPart = 0, 0
	long = Job(2, Exclusive, Lasts(19*m), Type(a100), Waited(13*m), queued("n1-00", 0))
	sc.nodes, sc.runs = append(sc.nodes, Node("n3", 1, t4)), append(sc.runs, held(1, "n3-00", 10*m))
	sc.waits = []*cluster.Job{Job(1, GPUs(2), Exclusive, onNodes(2), Lasts(20*m), Waited(12*m)), long, Job(3, Exclusive, Type(t4), Lasts(5*m), Waited(14*m), queued("n3-00", 10*m))}
	s = sc.world(t).Snapshot()
	if p := scheduler.Schedule(s, pol); len(p.Starts) > 0 {
		t.Fatalf("started: %v", show(&p))
	}
	said = nil
	for _, e := range scheduler.Explain(s, long, pol) {
		said = append(said, fmt.Sprintf("%d × %s", e.Count, e.Reason))
	}
	if want := "3 × Priority: GPU 0 of n1 (A100-SXM4-80GB) has room, but is kept for waiting job 1"; !slices.Contains(said, want) {
		t.Errorf("it is said %q, want %q", said, want)
	}
}

// TestAGangWithoutCoresKeepsNoCards: where jobs without GPUs have the cores of a node for
// hours, its cards are nobody's until then.
func TestAGangWithoutCoresKeepsNoCards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hours []int // of those that have the cores of n1, five and two
		other time.Duration
		want  string
	}{
		{nil, time.Hour, ""},
		{[]int{10, 10}, time.Hour, "2@n2-00"},
		{[]int{10, 10}, 10 * time.Hour, "2@n2-00"},
		{[]int{10, 10}, 10*time.Hour + time.Second, ""},
		{[]int{3, 10}, 3 * time.Hour, "2@n2-00"}, // the two are enough then
		{[]int{3, 10}, 3*time.Hour + time.Second, ""},
	} {
		pol := scheduler.Default()
		pol.KeepCPUMilli, pol.KeepMemMiB, pol.MaxMoves, pol.MaxRebalance, pol.ShortPart, pol.LongPart = 0, 0, 0, 0, 0, 0
		w := NewWorld([]*cluster.Node{Node("n1", 1, a100, Host(8000, 64<<10)), Node("n2", 1, a100, Host(8000, 64<<10))})
		running(w, Job(100, Lasts(10*time.Minute)), "n1-00", whole(80_000))
		for i, h := range c.hours {
			w.Submit(Job(cluster.JobID(101+i), GPUs(0), Cores([]int64{5000, 2000}[i]), Lasts(time.Duration(h)*time.Hour), func(j *cluster.Job) { j.Spec.Node = "n1" }))
		}
		w.Apply(ptr(scheduler.Schedule(w.Snapshot(), pol)))
		w.Submit(Job(1, GPUs(1), Exclusive, Cores(4000), onNodes(2), Lasts(20*time.Minute), Waited(30*time.Minute)))
		w.Submit(Job(2, Exclusive, Cores(1000), Lasts(c.other)))
		if err := w.Check(); err != nil || len(w.Rejected) > 0 {
			t.Fatalf("%v, rejected %v", err, w.Rejected)
		}
		if p := scheduler.Schedule(w.Snapshot(), pol); brief(&p) != c.want {
			t.Errorf("%v hours, and one of %s: %q, want %q", c.hours, c.other, brief(&p), c.want)
		}
	}
}
