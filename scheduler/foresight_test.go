package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/deadline"
	"github.com/berth-scheduler/berth/scheduler/explain"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestPromisesAreKept: who has a deadline keeps the cards of its promise until it
// starts, from who would still be there.
func TestPromisesAreKept(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	all := func(p *scheduler.Policy) { p.DeadlineShareMilli, p.MaxMoves, p.MaxRebalance = 1000, 0, 0 }
	due := func(id cluster.JobID, by time.Duration, opts ...JobOption) *cluster.Job {
		return Job(id, Exclusive, Limit(h), dueIn(by), attached(opts...))
	}
	other := func(d time.Duration, opts ...JobOption) *cluster.Job {
		return Job(9, Exclusive, Limit(d), attached(opts...))
	}
	playScenes(t, []scene{
		{name: "the earliest deadline first", nodes: one(a100), pol: all, waits: []*cluster.Job{due(1, 3*h), due(2, 2*h)}, want: "2@n1-00"},
		{name: "the gang's two cards are free in half an hour", nodes: []*cluster.Node{Node("n1", 2, a100)}, runs: []lies{held(0, "n1-00", 30*m, Limit(30*m))}, pol: all,
			waits: []*cluster.Job{due(1, 2*h, GPUs(2)), other(30 * m)}, want: "9@n1-01"},
		{name: "who lasts longer waits", nodes: []*cluster.Node{Node("n1", 2, a100)}, runs: []lies{held(0, "n1-00", 30*m, Limit(30*m))}, pol: all,
			waits: []*cluster.Job{due(1, 2*h, GPUs(2)), other(30*m + time.Second)}, want: ""},
		{name: "by what nine in ten take, not by what is expected", nodes: []*cluster.Node{Node("n1", 2, a100)}, runs: []lies{held(0, "n1-00", 30*m, Limit(30*m))}, pol: all,
			waits: []*cluster.Job{due(1, 2*h, GPUs(2)), Job(9, Exclusive, Lasts(11*m))}, want: ""},
		{name: "a third of it passes", nodes: []*cluster.Node{Node("n1", 2, a100)}, runs: []lies{held(0, "n1-00", 30*m, Limit(30*m))}, pol: all,
			waits: []*cluster.Job{due(1, 2*h, GPUs(2)), Job(9, Exclusive, Lasts(10*m))}, want: "9@n1-01"},
	})
}

// TestAdmitLooksAtWhatIsThere: who runs, reservations, and what was promised.
func TestAdmitLooksAtWhatIsThere(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	due := func(id cluster.JobID, by time.Duration, opts ...JobOption) *cluster.Job {
		return Job(id, Exclusive, Limit(h), dueIn(by), attached(opts...))
	}
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		runs  []lies
		waits []*cluster.Job
		snap  func(*dispatch.Snapshot)
		asks  *cluster.Job
		want  string
	}{
		{name: "a card is free", nodes: one(a100), asks: due(1, h)},
		{name: "it is in use until its time limit", nodes: one(a100), runs: []lies{held(0, "n1-00", h, Limit(h))}, asks: due(1, h+30*m), want: "cannot be met"},
		{name: "by when it ends", nodes: one(a100), runs: []lies{held(0, "n1-00", h, Limit(h))}, asks: due(1, 2*h+m)},
		{name: "a guess of 20 minutes may take an hour", nodes: one(a100), asks: Job(1, Exclusive, Lasts(20*m), dueIn(h))},
		{name: "and so may not be promised in less", nodes: one(a100), asks: Job(1, Exclusive, Lasts(20*m), dueIn(h-m)), want: "it takes up to ~60 min"},
		{name: "a confident prediction takes half as long again at most", nodes: one(a100), asks: Job(1, Exclusive, Predict(a100, 1, 1, 40*m), sure(1000), dueIn(h))},
		{name: "and no less", nodes: one(a100), asks: Job(1, Exclusive, Predict(a100, 1, 1, 41*m), sure(1000), dueIn(h)), want: "cannot be met"},
		{name: "a reservation begins before it ends", nodes: one(a100), snap: reserve("r", "n1", 30*m, h), asks: due(1, h), want: "no node has 1 GPU"},
		{name: "elsewhere none does", nodes: one(a100, a100), snap: reserve("r", "n1", 30*m, h), asks: due(1, h)},
		{name: "one that begins after the deadline", nodes: one(a100), snap: reserve("r", "n1", h, h), asks: due(1, h)},
		{name: "who was promised keeps it", nodes: one(a100), waits: []*cluster.Job{due(1, 2*h-m)}, asks: due(2, h+m), want: "job 1, which was promised its end"},
		{name: "who has time lets it go first", nodes: one(a100), waits: []*cluster.Job{due(1, 2*h)}, asks: due(2, h)},
		{name: "a gang in the middle is not cut in two", nodes: []*cluster.Node{Node("n1", 2, a100)}, waits: []*cluster.Job{due(1, h)}, asks: due(2, h+m, GPUs(2)), want: "cannot be met"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := scene{nodes: c.nodes, runs: c.runs, waits: c.waits}
			s, pol := sc.world(t).Snapshot(), scheduler.Default()
			pol.DeadlineShareMilli = 1000
			if c.snap != nil {
				c.snap(s)
			}
			_, err := deadline.Admit(s, []*cluster.Job{c.asks}, pol)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Msg, c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestSlackOfWhoWaits counts from when it is expected to start.
func TestSlackOfWhoWaits(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for _, c := range []struct {
		est, want time.Duration
	}{{0, 4 * h}, {-h, 4 * h}, {3 * h, h}, {5 * h, -h}} {
		j := Job(1, Exclusive, Lasts(h), dueIn(5*h))
		if c.est != 0 {
			j.EstStart = Now.Add(c.est)
		}
		if got, ok := deadline.Slack(j, Now, scheduler.Default()); !ok || got != c.want {
			t.Errorf("expected to start in %s: slack %s, want %s", c.est, got, c.want)
		}
	}
}

// TestForecastWithinReservations: neither the middle nor the tail lies where a
// reservation keeps the job out.
func TestForecastWithinReservations(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for _, c := range []struct {
		name     string
		snap     func(*dispatch.Snapshot)
		job      *cluster.Job
		p50, p90 time.Duration
	}{
		// The card is free in an hour, in nine of ten cases in three.
		{"none", func(*dispatch.Snapshot) {}, Job(2, Exclusive, Limit(h)), h, 3 * h},
		{"it ends before the window", reserve("r", "n1", 2*h, h), Job(2, Exclusive, Limit(h)), h, 3 * h},
		{"it would end within it", reserve("r", "n1", 2*h-time.Minute, h), Job(2, Exclusive, Limit(h)), 3*h - time.Minute, 3 * h},
		{"the tail would", reserve("r", "n1", 3*h+time.Minute, h), Job(2, Exclusive, Limit(h)), h, 4*h + time.Minute},
		{"its own is not open yet", reserve("r", "n1", 5*h, h), Job(2, Exclusive, Limit(h), inside("r"), Of(7, 7)), 5 * h, 5 * h},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := scene{nodes: one(a100), runs: []lies{held(1, "n1-00", h)}, waits: []*cluster.Job{c.job}}
			s := sc.world(t).Snapshot()
			c.snap(s)
			f, ok := scheduler.ForecastStart(s, c.job, scheduler.Default())
			if !ok || f.P50.Sub(Now) != c.p50 || f.P90.Sub(Now) != c.p90 {
				t.Errorf("in %s to %s (%t), want %s to %s", f.P50.Sub(Now), f.P90.Sub(Now), ok, c.p50, c.p90)
			}
		})
	}
}

// TestForecastsOfQueues: who stands before a job has its turn, and is passed by
// nobody who stands behind it.
func TestForecastsOfQueues(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	half := func(id cluster.JobID, d time.Duration) *cluster.Job {
		return Job(id, Mem(40_000), Util(500), Lasts(d), queued("n1-00", h))
	}
	for _, c := range []struct {
		name  string
		runs  []lies
		waits []*cluster.Job
		of    cluster.JobID
		p50   time.Duration
		ahead int
	}{
		{"nobody before it", []lies{held(0, "n1-00", h)}, []*cluster.Job{Job(1, Exclusive, Lasts(m), queued("n1-00", h))}, 1, h, 0},
		{"one before it", []lies{held(0, "n1-00", h)}, []*cluster.Job{Job(1, Exclusive, Lasts(20*m), queued("n1-00", h)), Job(2, Exclusive, Lasts(m), queued("n1-00", h))}, 2, 80 * m, 1},
		{"two before it", []lies{held(0, "n1-00", h)}, []*cluster.Job{Job(1, Exclusive, Lasts(20*m), queued("n1-00", h)), Job(2, Exclusive, Lasts(10*m), queued("n1-00", h)), Job(3, Exclusive, Lasts(m), queued("n1-00", h))}, 3, 90 * m, 2},
		{"two that share have it together", []lies{held(0, "n1-00", h)}, []*cluster.Job{half(1, 20*m), half(2, 10*m), Job(3, Exclusive, Lasts(m), queued("n1-00", h))}, 3, 80 * m, 2},
		// Half is free at once for the third, but the first wants all and is before it.
		{"nobody passes", []lies{{job: Job(100, Lasts(h)), on: "n1-00", mem: 40_000, use: 500}},
			[]*cluster.Job{Job(1, Exclusive, Lasts(20*m), queued("n1-00", h)), half(2, m)}, 2, 80 * m, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := scene{nodes: one(a100), runs: c.runs, waits: c.waits}
			w := sc.world(t)
			f, ok := scheduler.ForecastStart(w.Snapshot(), w.Jobs[c.of], scheduler.Default())
			if !ok || f.P50.Sub(Now) != c.p50 || f.Ahead != c.ahead {
				t.Errorf("in %s behind %d (%t), want %s behind %d", f.P50.Sub(Now), f.Ahead, ok, c.p50, c.ahead)
			}
		})
	}
}

// TestForecastOfSpanByHand: two of three nodes, free in 10, 20 and 30 minutes.
func TestForecastOfSpanByHand(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	j := Job(1, Exclusive, onNodes(2), Lasts(m))
	sc := scene{nodes: one(a100, a100, a100), runs: []lies{held(0, "n1-00", 30*m, Limit(30*m)), held(1, "n2-00", 10*m, Limit(10*m)), held(2, "n3-00", 20*m, Limit(20*m))}, waits: []*cluster.Job{j}}
	f, ok := scheduler.ForecastStart(sc.world(t).Snapshot(), j, scheduler.Default())
	if !ok || f.P50.Sub(Now) != 20*m || f.Node != "n3" || !strings.Contains(f.Missing, "0 of 3 nodes with room, needs 2 at once") {
		t.Errorf("%+v in %s, want n3 in 20 minutes", f, f.P50.Sub(Now))
	}
}

// TestExplainNamesTheNearest: of the cards that lack the same the one that comes
// nearest is told, with who is there and when the first of them ends.
func TestExplainNamesTheNearest(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	lie := func(id cluster.JobID, on cluster.GPUID, mem, use int64, d time.Duration) lies {
		return lies{job: Job(id, Lasts(d)), on: on, mem: mem, use: use}
	}
	for _, c := range []struct {
		name  string
		runs  []lies
		job   *cluster.Job
		want  []string
		count int
	}{
		{"memory lacks: the card with the most", []lies{lie(10, "n1-00", 60_000, 100, h), lie(11, "n1-01", 50_000, 100, h)}, Job(1, Mem(40_000), Util(100)),
			[]string{"GPU 1 of n1 (A100-SXM4-80GB): 29.3 GiB free, needs 39.1 GiB; 1 job there, it ends in ~60 min"}, 2},
		{"who ends first is told", []lies{lie(10, "n1-00", 30_000, 100, 40*m), lie(11, "n1-00", 30_000, 100, 20*m), lie(12, "n1-01", 70_000, 100, m)}, Job(1, Mem(40_000), Util(100)),
			[]string{"GPU 0 of n1 (A100-SXM4-80GB): 19.5 GiB free, needs 39.1 GiB; 2 jobs there, the next ends in ~20 min"}, 2},
		{"both lack: memory is told", []lies{lie(10, "n1-00", 70_000, 900, h), lie(11, "n1-01", 70_000, 900, h)}, Job(1, Mem(40_000), Util(500)), []string{"9.8 GiB free, needs 39.1 GiB"}, 2},
		{"compute lacks", []lies{lie(10, "n1-00", 1000, 900, h), lie(11, "n1-01", 1000, 800, h)}, Job(1, Mem(1000), Util(500)), []string{"GPU 1 of n1 (A100-SXM4-80GB): 20 % of its compute free, needs 50 %"}, 2},
		{"alone: the one that is left first", []lies{lie(10, "n1-00", 1000, 100, 2*h), lie(11, "n1-01", 1000, 100, h)}, Job(1, Exclusive), []string{"GPU 1 of n1 (A100-SXM4-80GB): in use, but needed exclusively; 1 job there, it ends in ~60 min"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := scene{nodes: []*cluster.Node{Node("n1", 2, a100)}, runs: c.runs, waits: []*cluster.Job{c.job}}
			x := scheduler.Explain(sc.world(t).Snapshot(), c.job, scheduler.Default())
			if len(x) != len(c.want) {
				t.Fatalf("%+v, want %q", x, c.want)
			}
			for i := range x {
				if !strings.Contains(x[i].Reason.Detail, c.want[i]) || x[i].Count != c.count {
					t.Errorf("%q of %d, want %q of %d", x[i].Reason.Detail, x[i].Count, c.want[i], c.count)
				}
			}
		})
	}
	for place, want := range map[int]string{0: "1st in the queue of GPU 0 of n1", 1: "2nd in the queue", 2: "3rd in the queue", 10: "11th in the queue", 20: "21st in the queue"} {
		sc := scene{nodes: one(a100), runs: []lies{held(0, "n1-00", h)}}
		for i := range 22 {
			sc.waits = append(sc.waits, Job(cluster.JobID(i+1), Exclusive, queued("n1-00", h)))
		}
		w := sc.world(t)
		x := scheduler.Explain(w.Snapshot(), w.Jobs[cluster.JobID(place+1)], scheduler.Default())
		if !slices.ContainsFunc(x, func(e explain.Explanation) bool { return strings.HasPrefix(e.Reason.Detail, want) }) {
			t.Errorf("%+v, want %q", x, want)
		}
	}
}

// TestOvertookNamesWhoWaits: the head that a start passes is the first that does not
// start in the same plan.
func TestOvertookNamesWhoWaits(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	at := func(id cluster.JobID, mem int64, opts ...JobOption) *cluster.Job {
		return Job(id, Mem(mem), Util(100), Lasts(m), queued("n1-00", 0), attached(opts...))
	}
	sc := scene{nodes: one(a100), waits: []*cluster.Job{at(1, 30_000), at(2, 60_000), at(3, 20_000)},
		pol: func(p *scheduler.Policy) { p.MaxMoves, p.MaxRebalance = 0, 0 }}
	p := sc.plan(t)
	got := map[cluster.JobID]string{}
	for _, st := range p.Starts {
		got[st.Job] = st.Overtook
	}
	// The largest goes first, past job 1. Then 3 fits, and 1 does not.
	want := map[cluster.JobID]string{2: "job 1: would fit as well; the pass takes 75 % of a GPU before 37.5 % for about as long", 3: "job 1: needs 30000 MiB, 20000 free"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
