package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// busy is a world in which job 100+i holds the i-th GPU of all nodes alone,
// for as many minutes as given.
func busy(nodes []*cluster.Node, minutes ...int) *World {
	w := NewWorld(nodes)
	i := 0
	for _, n := range w.Nodes {
		for _, g := range n.GPUs {
			if i < len(minutes) && minutes[i] > 0 {
				running(w, Job(cluster.JobID(100+i), Lasts(time.Duration(minutes[i])*time.Minute)), g.ID, whole(g.SellableMiB))
			}
			i++
		}
	}
	return w
}

func queued(at cluster.GPUID, est time.Duration) JobOption {
	return func(j *cluster.Job) { j.Queue, j.EstStart = at, Now.Add(est) }
}

// decisions is what show says of a plan but for the reasons.
func decisions(p dispatch.Plan) []string {
	p.Unplaced = nil
	return show(&p)
}

func TestScheduleQueues(t *testing.T) {
	t.Parallel()
	m := time.Minute
	for _, c := range []struct {
		name string
		w    *World
		jobs []*cluster.Job
		pol  func(*scheduler.Policy)
		want []string
	}{
		{
			name: "the GPU that is free first",
			w:    busy([]*cluster.Node{Node("n1", 3, a100)}, 30, 10, 20),
			jobs: []*cluster.Job{Job(1, Exclusive, Lasts(10*m)), Job(2, Exclusive, Lasts(10*m)), Job(3, Exclusive, Lasts(10*m))},
			want: []string{
				"j1 waits at n1-01 in 10m0s: WholeGPUBusy",
				"j2 waits at n1-01 in 20m0s: WholeGPUBusy",
				"j3 waits at n1-02 in 20m0s: WholeGPUBusy",
			},
		},
		{
			name: "what waits there counts with what it takes",
			w:    busy([]*cluster.Node{Node("n1", 2, a100)}, 10, 16),
			jobs: []*cluster.Job{Job(1, Mem(40000), Util(500), Lasts(10*m)), Job(2, Mem(40000), Util(500), Lasts(10*m)), Job(3, Mem(40000), Util(500), Lasts(10*m))},
			want: []string{
				"j1 waits at n1-00 in 10m0s: GPUMemory",
				"j2 waits at n1-00 in 15m0s: GPUMemory",
				"j3 waits at n1-01 in 16m0s: GPUMemory",
			},
		},
		{
			name: "least completion, not least wait",
			w:    busy([]*cluster.Node{Node("n1", 1, small), Node("n2", 1, a100)}, 10, 20),
			jobs: []*cluster.Job{Job(1, Predict(small, 1000, 100, 40*m), Predict(a100, 1000, 100, 20*m))},
			want: []string{"j1 waits at n2-00 in 20m0s: GPUMemory"},
		},
		{
			name: "behind those who are there already",
			w:    busy([]*cluster.Node{Node("n1", 1, a100)}, 10),
			jobs: []*cluster.Job{Job(1, Exclusive, Lasts(m), queued("n1-00", 10*m)), Job(2, Exclusive, Lasts(m))},
			want: []string{"j2 waits at n1-00 in 11m0s: WholeGPUBusy"},
		},
		{
			name: "several GPUs: when so many of the node are through",
			w:    busy([]*cluster.Node{Node("n1", 2, a100), Node("n2", 1, a100)}, 30, 10, 1),
			jobs: []*cluster.Job{Job(1, GPUs(2), Exclusive, Lasts(m))},
			want: []string{"j1 waits at n1-01 in 30m0s: GPUCount"},
		},
		{
			name: "only nodes large enough",
			w:    busy([]*cluster.Node{Node("n1", 1, a100, Host(2000, 1<<20)), Node("n2", 1, a100)}, 1, 30),
			jobs: []*cluster.Job{Job(1, Exclusive, Cores(4000), Lasts(m))},
			want: []string{"j1 waits at n2-00 in 30m0s: WholeGPUBusy"},
		},
		{
			name: "a queued job starts anywhere it fits",
			w:    busy([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, a100)}, 30),
			jobs: []*cluster.Job{Job(1, Exclusive, Lasts(m), queued("n1-00", 30*m))},
			want: []string{"j1 on n2-00:whole"},
		},
		{
			name: "even on a slower type",
			w:    busy([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small)}, 30),
			jobs: []*cluster.Job{Job(1, Exclusive, Predict(small, 1, 1, 90*m), Predict(a100, 1, 1, 60*m), queued("n1-00", 30*m))},
			want: []string{"j1 on n2-00:whole"},
		},
		{
			name: "on whatever is free: nobody waits beside a free card",
			w:    busy([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small)}, 1),
			jobs: []*cluster.Job{Job(1, Exclusive, Predict(small, 1, 1, 300*m), Predict(a100, 1, 1, 60*m))},
			want: []string{"j1 on n2-00:whole"},
		},
		{
			name: "unless the site lets them: not on one that takes more than twice as long as to wait",
			w:    busy([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small)}, 1),
			jobs: []*cluster.Job{Job(1, Exclusive, Predict(small, 1, 1, 300*m), Predict(a100, 1, 1, 60*m))},
			pol:  func(p *scheduler.Policy) { p.PatienceMilli = 2000 },
			want: []string{"j1 waits at n1-00 in 1m0s: WholeGPUBusy"},
		},
		{
			name: "unless the promised start has long passed",
			w:    busy([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small)}, 1),
			jobs: []*cluster.Job{Job(1, Exclusive, Predict(small, 1, 1, 300*m), Predict(a100, 1, 1, 60*m), queued("n1-00", -30*m))},
			want: []string{"j1 on n2-00:whole"},
		},
		{
			name: "unless patience is off",
			w:    busy([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small)}, 1),
			jobs: []*cluster.Job{Job(1, Exclusive, Predict(small, 1, 1, 300*m), Predict(a100, 1, 1, 60*m))},
			pol:  func(p *scheduler.Policy) { p.PatienceMilli = 0 },
			want: []string{"j1 on n2-00:whole"},
		},
		{
			name: "nor is a long wait for a fast one better than a slow one now",
			w:    busy([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small)}, 200),
			jobs: []*cluster.Job{Job(1, Exclusive, Predict(small, 1, 1, 300*m), Predict(a100, 1, 1, 60*m))},
			want: []string{"j1 on n2-00:whole"},
		},
		{
			name: "as many change as make the queues even",
			w:    busy([]*cluster.Node{Node("n1", 2, a100)}, 10, 10),
			jobs: []*cluster.Job{
				Job(1, Exclusive, Lasts(60*m), queued("n1-00", 10*m)), Job(2, Exclusive, Lasts(60*m), queued("n1-00", 70*m)),
				Job(3, Exclusive, Lasts(60*m), queued("n1-00", 130*m)), Job(4, Exclusive, Lasts(60*m), queued("n1-00", 190*m)),
			},
			want: []string{"j4 waits at n1-01 in 10m0s: WholeGPUBusy", "j3 waits at n1-01 in 1h10m0s: WholeGPUBusy"},
		},
		{
			name: "nobody changes for a few seconds",
			w:    busy([]*cluster.Node{Node("n1", 2, a100)}, 0, 0),
			jobs: func() []*cluster.Job {
				hold := Lasts(2 * time.Second)
				return []*cluster.Job{
					Job(1, GPUs(2), Exclusive, Lasts(m)), // starts and holds both
					Job(2, Exclusive, hold, queued("n1-00", 0)), Job(3, Exclusive, hold, queued("n1-00", 0)),
				}
			}(),
			want: []string{"j1 on n1-00:whole n1-01:whole (job 2: would fit as well; the pass takes what is long beside all that waits first)"},
		},
		{
			name: "the last of a long queue changes to a short one",
			w:    busy([]*cluster.Node{Node("n1", 2, a100)}, 10, 10),
			jobs: []*cluster.Job{
				Job(1, Exclusive, Lasts(60*m), queued("n1-00", 10*m)),
				Job(2, Exclusive, Lasts(60*m), queued("n1-00", 70*m)),
			},
			want: []string{"j2 waits at n1-01 in 10m0s: WholeGPUBusy"},
		},
		{
			name: "not for a small gain",
			w:    busy([]*cluster.Node{Node("n1", 2, a100)}, 10, 60),
			jobs: []*cluster.Job{
				Job(1, Exclusive, Lasts(60*m), queued("n1-00", 10*m)),
				Job(2, Exclusive, Lasts(60*m), queued("n1-00", 70*m)),
			},
			want: []string{},
		},
		{
			name: "never more moves between queues than allowed",
			w:    busy([]*cluster.Node{Node("n1", 2, a100)}, 10, 10),
			jobs: []*cluster.Job{
				Job(1, Exclusive, Lasts(60*m), queued("n1-00", 10*m)),
				Job(2, Exclusive, Lasts(60*m), queued("n1-00", 70*m)),
			},
			pol:  func(p *scheduler.Policy) { p.MaxRebalance = 0 },
			want: []string{},
		},
		{
			name: "never more first moves than allowed",
			w:    busy([]*cluster.Node{Node("n1", 1, a100)}, 10),
			jobs: []*cluster.Job{Job(1, Exclusive, Lasts(m)), Job(2, Exclusive, Lasts(m))},
			pol:  func(p *scheduler.Policy) { p.MaxMoves = 1 },
			want: []string{"j1 waits at n1-00 in 10m0s: WholeGPUBusy"},
		},
		{
			name: "out of the queue of a drained node",
			w:    busy([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, a100, Drained)}, 10),
			jobs: []*cluster.Job{Job(1, Exclusive, Lasts(m), queued("n2-00", 0))},
			want: []string{"j1 waits at n1-00 in 10m0s: WholeGPUBusy"},
		},
		{
			name: "out of every queue when none can serve",
			w:    busy([]*cluster.Node{Node("n2", 1, a100, Drained)}),
			jobs: []*cluster.Job{Job(1, Exclusive, Lasts(m), queued("n2-00", 0))},
			want: []string{"j1 waits at  in " + Now.Sub(2*Now).String() + ": ReqNodeNotAvail"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pol := scheduler.Default()
			if c.pol != nil {
				c.pol(&pol)
			}
			for _, j := range c.jobs {
				c.w.Submit(j)
			}
			p := scheduler.Schedule(c.w.Snapshot(), pol)
			if d := cmp.Diff(c.want, decisions(p)); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			c.w.Apply(&p)
			if err := c.w.Check(); err != nil || len(c.w.Rejected) > 0 {
				t.Errorf("applied: %v, rejected %v", err, c.w.Rejected)
			}
			again := scheduler.Schedule(c.w.Snapshot(), pol)
			if c.pol == nil && len(again.Moves)+len(again.Starts) > 0 {
				t.Errorf("a second pass still decides %q", decisions(again))
			}
		})
	}
}

func TestScheduleOvertakes(t *testing.T) {
	t.Parallel()
	m := time.Minute
	// n1-00 has 30000 MiB free until job 90 ends in an hour; job 1 waits there
	// for more.
	world := func(opts ...JobOption) *World {
		w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
		running(w, Job(90, Lasts(60*m), Limit(60*m)), "n1-00", cluster.Share{MemMiB: 50000, Milli: 100})
		w.Submit(Job(1, append([]JobOption{Mem(40960), Util(100), Lasts(40 * time.Second), queued("n1-00", 0)}, opts...)...))
		return w
	}
	for _, c := range []struct {
		name string
		w    *World
		job  *cluster.Job
		want []string
	}{
		{
			"a younger one passes a head that does not fit", world(),
			Job(2, Mem(20000), Util(100), Lasts(600*m)),
			[]string{"j2 on n1-00:20000/100 (job 1: needs 40960 MiB, 30000 free)"},
		},
		{
			"not one that waits for 30 s", world(Waited(30*time.Second), queued("n1-00", 60*m)),
			Job(2, Mem(20000), Util(100), Lasts(600*m)),
			[]string{"j2 waits at n1-00 in 37m50.48s: Priority"},
		},
		{
			"but one that waits for 29 s", world(Waited(29*time.Second), queued("n1-00", -29*time.Second)),
			Job(2, Mem(20000), Util(100), Lasts(600*m)),
			[]string{"j2 on n1-00:20000/100 (job 1: needs 40960 MiB, 30000 free)"},
		},
		{
			"and one that waits long for a job that ends before it can start", world(Waited(11*m), queued("n1-00", -11*m)),
			Job(2, Mem(20000), Util(100), Lasts(60*m)),
			[]string{"j2 on n1-00:20000/100 (job 1: needs 40960 MiB, 30000 free)"},
		},
		{
			"but for no second more", world(Waited(11*m), queued("n1-00", -11*m)),
			Job(2, Mem(20000), Util(100), Lasts(60*m+time.Second)),
			[]string{"j2 waits at n1-00 in 37m50.48s: Priority"},
		},
		{
			"not even for that when it is old for 20 minutes", world(Waited(4*time.Hour+20*m), queued("n1-00", -20*m)),
			Job(2, Mem(20000), Util(100), Lasts(59*m)),
			[]string{"j2 waits at n1-00 in 37m50.48s: Priority"},
		},
		{
			"size decides between two that fit and are equally long", func() *World {
				w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
				w.Submit(Job(1, Mem(30000), Util(100), Lasts(m), queued("n1-00", 0)))
				return w
			}(),
			Job(2, Mem(60000), Util(100), Lasts(m)),
			[]string{"j2 on n1-00:60000/100 (job 1: would fit as well; the pass takes 75 % of a GPU before 37.5 % for about as long)"},
		},
		{
			"age before size after the FIFO age", func() *World {
				w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
				w.Submit(Job(1, Mem(30000), Util(100), Waited(5*time.Hour), queued("n1-00", time.Hour)))
				return w
			}(),
			Job(2, Mem(60000), Util(100), Lasts(m)),
			[]string{"j1 on n1-00:30000/100", "j2 waits at n1-00 in 22m30s: GPUMemory"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.w.Submit(c.job)
			p := scheduler.Schedule(c.w.Snapshot(), scheduler.Default())
			if d := cmp.Diff(c.want, decisions(p)); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			c.w.Apply(&p)
			if err := c.w.Check(); err != nil || len(c.w.Rejected) > 0 {
				t.Errorf("applied: %v, rejected %v", err, c.w.Rejected)
			}
		})
	}
}

func TestKeptForSeveralGPUs(t *testing.T) {
	t.Parallel()
	m := time.Minute
	// Four GPUs, two free; job 1 wants three and waited too long. Job 101 ends
	// before job 100: so the third is 101's, and 100's card is not kept.
	w := busy([]*cluster.Node{Node("n1", 4, a100)}, 90, 30)
	w.Submit(Job(1, GPUs(3), Exclusive, Lasts(20*time.Second), queued("n1-01", -11*m), Waited(11*m)))
	w.Submit(Job(2, Exclusive, Lasts(60*m)))
	w.Submit(Job(3, Exclusive, Lasts(20*m)))
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if d := cmp.Diff([]string{"j3 on n1-02:whole", "j2 waits at n1-02 in 15s: Priority"}, decisions(p)); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
}

func TestKeptCardsAreNotTakenWhole(t *testing.T) {
	t.Parallel()
	m := time.Minute
	// As above, and a node with more empty cards: fewest first would choose the
	// kept ones.
	w := busy([]*cluster.Node{Node("n1", 4, a100), Node("n2", 3, a100)}, 90, 30)
	w.Submit(Job(1, GPUs(4), Exclusive, Lasts(20*time.Second), queued("n1-01", -11*m), Waited(11*m)))
	w.Submit(Job(2, Exclusive, Lasts(100*m)))
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if d := cmp.Diff([]string{"j2 on n2-00:whole"}, decisions(p)); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
}

func TestShorterJobOfTheSameShapeIsTried(t *testing.T) {
	t.Parallel()
	m := time.Minute
	// n2 has an empty card that nobody keeps, but no cores: the long job is
	// looked for in vain, and that must not speak for the short one.
	w := busy([]*cluster.Node{Node("n1", 4, a100), Node("n2", 1, a100, Host(500, 1<<20))}, 90, 30)
	w.Submit(Job(1, GPUs(3), Exclusive, Lasts(20*time.Second), queued("n1-01", -11*m), Waited(11*m)))
	w.Submit(Job(2, Exclusive, Lasts(60*m)))
	w.Submit(Job(3, Exclusive, Lasts(20*m)))
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if len(p.Starts) != 1 || p.Starts[0].Job != 3 {
		t.Errorf("plan: %q, want job 3 alone to start", decisions(p))
	}
}

func TestKeptCoresForOldJob(t *testing.T) {
	t.Parallel()
	m := time.Minute
	for _, c := range []struct {
		name string
		wait time.Duration
		want []string
	}{
		{"young: the small one passes", m, []string{"j2 on n1"}},
		{"old: what is free is kept", 5 * time.Hour, []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100, Host(8000, 1<<20))})
			running(w, Job(90, Lasts(60*m), Cores(4000)), "n1-00", cluster.Share{MemMiB: 50000, Milli: 100})
			w.Submit(Job(1, GPUs(0), Cores(6000), Waited(c.wait)))
			w.Submit(Job(2, GPUs(0), Cores(1000)))
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			if d := cmp.Diff(c.want, decisions(p)); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
		})
	}
}

// TestArrivalPass: the snapshot holds the new jobs alone, and all queues.
func TestArrivalPass(t *testing.T) {
	t.Parallel()
	m := time.Minute
	one := func(opts ...JobOption) *cluster.Job {
		return Job(8, append([]JobOption{Exclusive, Lasts(m)}, opts...)...)
	}
	for _, c := range []struct {
		name   string
		queued []*cluster.Job // unseen
		jobs   []*cluster.Job
		want   []string
	}{
		{
			"a head that has just come is passed, and the plan says so",
			[]*cluster.Job{Job(1, GPUs(2), Exclusive, Waited(12*time.Second), queued("n1-01", 0))},
			[]*cluster.Job{one()},
			[]string{"j8 on n1-01:whole (job 1: is not old, and not looked at in this pass)"},
		},
		{
			"one that is old is not, nor is anything of its node taken",
			[]*cluster.Job{Job(1, GPUs(2), Exclusive, Waited(5*time.Hour), queued("n1-00", 0))},
			[]*cluster.Job{one(), one(func(j *cluster.Job) { j.ID = 9 })},
			[]string{"j8 on n2-00:whole", "j9 waits at n1-01 in 0s: Priority"},
		},
		{
			"a head that is in the snapshot is known for what it needs",
			nil,
			[]*cluster.Job{Job(1, GPUs(2), Exclusive, Lasts(m), Waited(m), queued("n1-00", 0)), one(), one(func(j *cluster.Job) { j.ID = 9 })},
			[]string{"j8 on n1-01:whole", "j9 on n2-00:whole"},
		},
		{
			"and its node is kept from who would stay too long",
			nil,
			[]*cluster.Job{Job(1, GPUs(2), Exclusive, Lasts(20*m), Waited(m), queued("n1-00", 0)), one(On("n1"), Lasts(11*m))},
			[]string{"j8 waits at n1-01 in 20m0s: Priority"},
		},
		{
			"whoever stands behind such a head may be passed, whatever the wait",
			[]*cluster.Job{Job(2, Exclusive, Waited(m), queued("n1-01", 0))},
			[]*cluster.Job{Job(1, Exclusive, Lasts(m), Waited(2*m), queued("n1-01", 0))},
			[]string{"j1 on n1-01:whole"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := busy([]*cluster.Node{Node("n1", 2, a100), Node("n2", 1, a100)}, 10)
			for _, j := range append(slices.Clone(c.jobs), c.queued...) {
				w.Submit(j)
			}
			s := w.Snapshot()
			s.Waiting = slices.DeleteFunc(s.Waiting, func(j *cluster.Job) bool { return slices.Contains(c.queued, j) })
			p := scheduler.Schedule(s, scheduler.Default())
			if d := cmp.Diff(c.want, decisions(p)); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			w.Apply(&p)
			if err := w.Check(); err != nil || len(w.Rejected) > 0 {
				t.Errorf("applied: %v, rejected %v", err, w.Rejected)
			}
		})
	}
}

func TestUnknownWaitersCountAsMuchAsWhatRuns(t *testing.T) {
	t.Parallel()
	w := busy([]*cluster.Node{Node("n1", 2, a100)}, 10, 12)
	w.Submit(Job(1, Exclusive, Lasts(30*time.Minute), queued("n1-00", 0)))
	s := w.Snapshot()
	s.Waiting = []*cluster.Job{Job(2, Exclusive, Lasts(time.Minute)), Job(3, Exclusive, Lasts(time.Minute))}
	p := scheduler.Schedule(s, scheduler.Default())
	want := []string{"j2 waits at n1-01 in 12m0s: WholeGPUBusy", "j3 waits at n1-01 in 13m0s: WholeGPUBusy"}
	if d := cmp.Diff(want, decisions(p)); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
}

func TestRebalanceIsBounded(t *testing.T) {
	t.Parallel()
	w := busy([]*cluster.Node{Node("n1", 8, a100)}, 10, 10, 10, 10, 10, 10, 10, 10)
	for id := cluster.JobID(1); id <= 64; id++ {
		w.Submit(Job(id, Exclusive, Lasts(time.Hour), queued(cluster.GPUID(fmt.Sprintf("n1-0%d", id%2)), 0)))
	}
	pol := scheduler.Default()
	pol.MaxRebalance = 3
	for range 20 {
		p := scheduler.Schedule(w.Snapshot(), pol)
		if len(p.Moves) > 3 {
			t.Fatalf("%d moves, at most 3 are allowed", len(p.Moves))
		}
		w.Apply(&p)
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	for _, g := range w.Nodes[0].GPUs {
		if n := len(w.Queues[g.ID]); n < 7 || n > 10 {
			t.Errorf("%d wait at %s after twenty passes, want 7 to 10: nothing else gains a fifth", n, g.ID)
		}
	}
}
