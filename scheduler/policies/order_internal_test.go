package policies

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

func by(uid cluster.UID) JobOption { return func(j *cluster.Job) { j.Owner.UID = uid } }

// ran gives a job an earlier attempt of so long on its GPUs.
func ran(d time.Duration) JobOption {
	return func(j *cluster.Job) {
		j.Attempts = append(j.Attempts, cluster.Attempt{No: 1, State: cluster.JobPreempted, Started: Now.Add(-5 * time.Hour), Ended: Now.Add(-5 * time.Hour).Add(d)})
	}
}

// TestOrdersByHand: in what order the jobs are tried, worked out from each
// order's source.
func TestOrdersByHand(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	whole := func(id cluster.JobID, lasts time.Duration, opts ...JobOption) *cluster.Job {
		return Job(id, append([]JobOption{Exclusive, Lasts(lasts)}, opts...)...)
	}
	resumes := func(ids ...cluster.JobID) map[cluster.JobID]cluster.Terms {
		out := map[cluster.JobID]cluster.Terms{}
		for _, id := range ids {
			out[id] = cluster.Terms{Preemptible: true}
		}
		return out
	}
	due := func(in time.Duration) cluster.Terms { return cluster.Terms{Deadline: Now.Add(in)} }
	for _, c := range []struct {
		name, order string
		cards       int
		waits       []*cluster.Job
		terms       map[cluster.JobID]cluster.Terms
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
			map[cluster.JobID]cluster.Terms{3: {WeightMilli: 500}}, map[cluster.UID]int64{}, 0, []cluster.JobID{1, 3, 2, 4}},
		// (60+60)/60 = 2, (30+10)/10 = 4, (100+100)/100 = 2.
		{"worst finish-time fairness", "themis", 4, []*cluster.Job{whole(1, 60*m, Waited(60*m)), whole(2, 10*m, Waited(30*m)), whole(3, 100*m, Waited(100*m))},
			nil, nil, 0, []cluster.JobID{2, 3, 1}},
		// One card: 40 minutes are due in 60, 30 more are not; 50 are by 120.
		{"deadlines that can be met", "edf", 1, []*cluster.Job{whole(1, 40*m, Waited(3*m)), whole(2, 30*m, Waited(2*m)), whole(3, 50*m, Waited(m)), whole(4, m)},
			map[cluster.JobID]cluster.Terms{1: due(60 * m), 2: due(60 * m), 3: due(120 * m)}, nil, 0, []cluster.JobID{1, 3, 2, 4}},
		{"a deadline that is too near", "edf", 1, []*cluster.Job{whole(1, 40*m, Waited(m)), whole(2, 30*m)},
			map[cluster.JobID]cluster.Terms{1: due(39 * m), 2: due(30 * m)}, nil, 0, []cluster.JobID{2, 1}},
		{"who waited too long", "sjf", 4, []*cluster.Job{whole(1, 3*m, Waited(2*m)), whole(2, m), whole(3, 9*m, Waited(3*m))}, nil, nil, 2 * m, []cluster.JobID{3, 1, 2}},
	} {
		t.Run(c.order+" "+c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", c.cards, bigCard)}, c.waits...)
			s := w.Snapshot()
			s.Terms, s.Service = c.terms, c.service
			e := engineOf(t, "firstfit+"+c.order, nil)
			e.opt.Age = c.age
			p := newPass(s, e)
			p.placer = e.place.make(p)
			var got []cluster.JobID
			for _, task := range p.sorted() {
				got = append(got, task.id)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
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

// TestLeastTree compares with a list.
func TestLeastTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Int64Range(0, 20), 1, 20).Draw(t, "numbers")
		tree := newLeastTree(len(list))
		for i, v := range list {
			tree.set(i, v)
		}
		for range 20 {
			if got, want := tree.first(), slices.Index(list, slices.Min(list)); got != want {
				t.Fatalf("least at %d, want %d of %v", got, want, list)
			}
			i := rapid.IntRange(0, len(list)-1).Draw(t, "at")
			list[i] = rapid.Int64Range(0, 20).Draw(t, "number")
			tree.set(i, list[i])
		}
	})
}

// TestPeriod works the group's iteration of Muri out by hand: with rows a, b
// and offset 1 it is Σ max(a[j], b[j+1]).
func TestPeriod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		group []stages
		want  int64
		gains bool
	}{
		{"alone", []stages{{700, 200, 100}}, 1000, true},
		{"halves that fit into one another", []stages{{500, 500, 0}, {500, 500, 0}}, 1500, true},           // 500+500+500
		{"both want the same", []stages{{900, 0, 100}, {900, 0, 100}}, 1900, false},                        // 900+100+900
		{"complements", []stages{{600, 0, 400}, {400, 600, 0}}, 1000, true},                                // 600+0+400 at offset 1
		{"three that take turns", []stages{{340, 330, 330}, {340, 330, 330}, {340, 330, 330}}, 1020, true}, // 340+340+340
		{"four take turns", []stages{{1, 1, 998}, {1, 1, 998}, {1, 1, 998}, {1, 1, 998}}, 4000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := period(c.group); got != c.want || gains(c.group) != c.gains {
				t.Errorf("period %d, gains %t, want %d, %t", got, gains(c.group), c.want, c.gains)
			}
		})
	}
}

// TestFillIsFair: on one type the allocation is max-min fair by weight.
func TestFillIsFair(t *testing.T) {
	t.Parallel()
	r := &rounds{types: []string{"A"}, capacity: []int64{3}}
	job := func(id cluster.JobID, gpus, weight int64) *contender {
		return &contender{id: id, gpus: gpus, weight: weight, speed: []int64{1000}, equal: 1000, got: []int64{0}}
	}
	// Three cards have 60 slices: 1 and 2 want 20 at most each, 3 takes two
	// cards at once: equal parts are 15 slices each.
	all := []*contender{job(1, 1, 1000), job(2, 1, 1000), job(3, 2, 1000)}
	r.fill(all)
	for _, c := range all {
		if c.got[0] != 15 {
			t.Errorf("job %d gets %d slices, want 15", c.id, c.got[0])
		}
	}
	// One card: who weighs three times as much gets three times as much.
	r.capacity[0] = 1
	all = []*contender{job(1, 1, 3000), job(2, 1, 1000)}
	r.fill(all)
	if all[0].got[0] != 15 || all[1].got[0] != 5 {
		t.Errorf("%d and %d slices, want 15 and 5", all[0].got[0], all[1].got[0])
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
		w.Apply(&cluster.Plan{Starts: []cluster.Start{{Job: 9, Attempt: 1, Estimate: cluster.Estimate{GPUType: bigCard, Duration: runsFor},
			Berth: cluster.Berth{Node: "n1", CPUMilli: 1000, MemMiB: 1024, GPUs: []cluster.GPUShare{{GPU: "n1-00", Share: cluster.Share{MemMiB: u.SellableMiB, Milli: 1000, Exclusive: true}}}}}}})
		s := w.Snapshot()
		by := cluster.Terms{Deadline: Now.Add(100 * m)}
		s.Terms = map[cluster.JobID]cluster.Terms{1: by, 2: by, 9: by}
		e := engineOf(t, "firstfit+edf", nil)
		p := newPass(s, e)
		p.placer = e.place.make(p)
		var got []cluster.JobID
		for _, task := range p.sorted() {
			got = append(got, task.id)
		}
		if !slices.Equal(got, want) {
			t.Errorf("beside %s of a running deadline: order %v, want %v", runsFor, got, want)
		}
	}
}
