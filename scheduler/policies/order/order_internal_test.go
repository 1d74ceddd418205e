package order

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

var _ = draws.Fixed()

const bigCard = "A100-SXM4-80GB"

func by(uid cluster.UID) JobOption { return func(j *cluster.Job) { j.Owner.UID = uid } }

// ran gives a job an earlier attempt of so long on its GPUs.
func ran(d time.Duration) JobOption {
	return func(j *cluster.Job) {
		j.Attempts = append(j.Attempts, cluster.Attempt{No: 1, State: cluster.JobPreempted, Started: Now.Add(-5 * time.Hour), Ended: Now.Add(-5 * time.Hour).Add(d)})
	}
}

// tried is in what order the jobs of a snapshot are tried.
func tried(order string, s *dispatch.Snapshot, age time.Duration, las LAS) (ids []cluster.JobID) {
	o := slices.IndexFunc(All(), func(o Order) bool { return o.Name == order })
	sc := scene.New(s, s.Ledger.Clone(), &scene.Settings{Pol: rules.Default()}, &scene.Memory{})
	for _, task := range New(sc, &All()[o], age, las, &List{}).Sorted() {
		ids = append(ids, task.ID)
	}
	return ids
}

// TestOrdersByHand: in what order the jobs are tried, worked out from each
// order's source.
func TestOrdersByHand(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	whole := func(id cluster.JobID, lasts time.Duration, opts ...JobOption) *cluster.Job {
		return Job(id, append([]JobOption{Exclusive, Lasts(lasts)}, opts...)...)
	}
	resumes := func(ids ...cluster.JobID) map[cluster.JobID]dispatch.Terms {
		out := map[cluster.JobID]dispatch.Terms{}
		for _, id := range ids {
			out[id] = dispatch.Terms{Preemptible: true}
		}
		return out
	}
	due := func(in time.Duration) dispatch.Terms { return dispatch.Terms{Deadline: Now.Add(in)} }
	for _, c := range []struct {
		name, order string
		cards       int
		waits       []*cluster.Job
		terms       map[cluster.JobID]dispatch.Terms
		service     map[cluster.UID]int64
		age         time.Duration
		want        []cluster.JobID
	}{
		{"first come", "fifo", 4, []*cluster.Job{whole(1, m), whole(2, m, Waited(2*m)), whole(3, m, Waited(m))}, nil, nil, 0, []cluster.JobID{2, 3, 1}},
		{"largest", "size", 4, []*cluster.Job{Job(1, Mem(24000), Util(300)), Job(2, Mem(1000), Util(600)), whole(3, m), whole(4, m, GPUs(2)), Job(5, GPUs(0))}, nil, nil, 0, []cluster.JobID{4, 3, 2, 1, 5}},
		{"shortest", "sjf", 4, []*cluster.Job{whole(1, 3*m), whole(2, m, GPUs(2)), whole(3, 2*m)}, nil, nil, 0, []cluster.JobID{2, 3, 1}},
		{"least GPU time", "qssf", 4, []*cluster.Job{whole(1, 3*m), whole(2, 2*m, GPUs(2)), whole(3, 2*m)}, nil, nil, 0, []cluster.JobID{3, 1, 2}},
		{"least time left", "srtf", 4, []*cluster.Job{whole(1, 30*m, ran(25*m)), whole(2, 10*m), whole(3, 30*m, ran(25*m))}, resumes(1), nil, 0, []cluster.JobID{1, 2, 3}},
		{"least service left", "srsf", 5, []*cluster.Job{whole(1, 10*m, GPUs(2)), whole(2, 15*m), whole(3, 40*m, GPUs(2), ran(36*m))}, resumes(3), nil, 0, []cluster.JobID{3, 2, 1}},
		// 3250, 7200 and 18000 s are 54.2, 120 and 300 minutes of one GPU.
		{"least service had, in steps", "las", 5, []*cluster.Job{whole(1, m, ran(121*m)), whole(2, m, ran(30*m), GPUs(2)), whole(3, m, ran(54*m)), whole(4, m, Waited(-m))},
			nil, nil, 0, []cluster.JobID{3, 4, 2, 1}},
		// User 1 used 30 minutes: two jobs of user 2 go before.
		{"users take turns", "fairshare", 5, []*cluster.Job{whole(1, 20*m, by(1)), whole(2, 20*m, by(1)), whole(3, 20*m, by(2)), whole(4, 20*m, by(2)), whole(5, 20*m, by(2))},
			nil, map[cluster.UID]int64{1: 1800}, 0, []cluster.JobID{3, 4, 1, 5, 2}},
		{"a weight counts", "fairshare", 5, []*cluster.Job{whole(1, 20*m, by(1)), whole(2, 20*m, by(1)), whole(3, 20*m, by(2)), whole(4, 20*m, by(2))},
			map[cluster.JobID]dispatch.Terms{3: {WeightMilli: 500}}, map[cluster.UID]int64{}, 0, []cluster.JobID{1, 3, 2, 4}},
		// (60+60)/60 = 2, (30+10)/10 = 4, (100+100)/100 = 2.
		{"worst finish-time fairness", "themis", 4, []*cluster.Job{whole(1, 60*m, Waited(60*m)), whole(2, 10*m, Waited(30*m)), whole(3, 100*m, Waited(100*m))},
			nil, nil, 0, []cluster.JobID{2, 3, 1}},
		// One card: 40 minutes are due in 60, 30 more are not; 50 are by 120.
		{"deadlines that can be met", "edf", 1, []*cluster.Job{whole(1, 40*m, Waited(3*m)), whole(2, 30*m, Waited(2*m)), whole(3, 50*m, Waited(m)), whole(4, m)},
			map[cluster.JobID]dispatch.Terms{1: due(60 * m), 2: due(60 * m), 3: due(120 * m)}, nil, 0, []cluster.JobID{1, 3, 2, 4}},
		{"a deadline that is too near", "edf", 1, []*cluster.Job{whole(1, 40*m, Waited(m)), whole(2, 30*m)},
			map[cluster.JobID]dispatch.Terms{1: due(39 * m), 2: due(30 * m)}, nil, 0, []cluster.JobID{2, 1}},
		{"who waited too long", "sjf", 4, []*cluster.Job{whole(1, 3*m, Waited(2*m)), whole(2, m), whole(3, 9*m, Waited(3*m))}, nil, nil, 2 * m, []cluster.JobID{3, 1, 2}},
	} {
		t.Run(c.order+" "+c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", c.cards, bigCard)}, c.waits...)
			s := w.Snapshot()
			s.Terms, s.Service = c.terms, c.service
			if got := tried(c.order, s, c.age, LAS{}); !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
	}
}

// TestRunningDeadlinesCount: what a running job must still do by its deadline is taken
// from the time of the cards before anybody else's deadline is admitted.
func TestRunningDeadlinesCount(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	// Two cards have 200 minutes until the deadline. The running job has 50 to do,
	// the first of those who wait 95, and the second finds 55 for its 95.
	for runsFor, want := range map[time.Duration][]cluster.JobID{50 * m: {1, 3, 2}, 5 * m: {1, 2, 3}} {
		w := NewWorld([]*cluster.Node{Node("n1", 2, bigCard)}, Job(9, Exclusive, Lasts(runsFor)),
			Job(1, Exclusive, Lasts(95*m), Waited(2*m)), Job(2, Exclusive, Lasts(95*m)), Job(3, Exclusive, Lasts(m), Waited(m)))
		u, _ := w.Ledg.GPU("n1-00")
		w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: 9, Attempt: 1, Estimate: cluster.Estimate{GPUType: bigCard, Duration: runsFor},
			Berth: cluster.Berth{Node: "n1", CPUMilli: 1000, MemMiB: 1024, GPUs: []cluster.GPUShare{{GPU: "n1-00", Share: cluster.Share{MemMiB: u.SellableMiB, Milli: 1000, Exclusive: true}}}}}}})
		s := w.Snapshot()
		by := dispatch.Terms{Deadline: Now.Add(100 * m)}
		s.Terms = map[cluster.JobID]dispatch.Terms{1: by, 2: by, 9: by}
		if got := tried("edf", s, 0, LAS{}); !slices.Equal(got, want) {
			t.Errorf("beside %s of a running deadline: order %v, want %v", runsFor, got, want)
		}
	}
}

// TestSlackTree compares with a list.
func TestSlackTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slack := rapid.SliceOfN(rapid.Int64Range(-100, 100), 1, 20).Draw(t, "slack")
		ds := make([]due, len(slack))
		for i, v := range slack {
			ds[i].slack = v
		}
		tree := newSlackTree(ds)
		for range 30 {
			i := rapid.IntRange(0, len(slack)-1).Draw(t, "at")
			if got, want := tree.least(i), slices.Min(slack[i:]); got != want {
				t.Fatalf("least slack from %d is %d, want %d of %v", i, got, want, slack)
			}
			work := rapid.Int64Range(0, 50).Draw(t, "work")
			tree.take(i, work)
			for k := i; k < len(slack); k++ {
				slack[k] -= work
			}
		}
	})
}
