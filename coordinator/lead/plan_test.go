package lead

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/site"
)

func plans(c *logv1.Command) bool { return c.GetApplyPlan() != nil }

// TestWhatWakesThePlanner: what each change asks for.
func TestWhatWakesThePlanner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 1, nil)
		over := l.running(job(0, nil), berth("n1"))
		l.say(over, cluster.JobCompleted, nil)
		on := l.running(job(0, nil), berth("n1"))
		p := l.l.plan
		for name, c := range map[string]struct {
			change        fsm.Change
			gpus          []cluster.GPUID
			arrived, full bool
		}{
			"a job came":                  {fsm.Change{Job: 7, New: true}, nil, true, false},
			"a node":                      {fsm.Change{Node: "n1"}, nil, false, true},
			"a partition":                 {fsm.Change{Partition: "p"}, nil, false, true},
			"a reservation":               {fsm.Change{Reservation: "r"}, nil, false, true},
			"cards came free":             {fsm.Change{Job: on, Released: []cluster.GPUID{"g2", "g1"}}, []cluster.GPUID{"g1", "g2"}, true, false},
			"cards came free with a node": {fsm.Change{Job: on, Node: "n1", Released: []cluster.GPUID{"g1"}}, []cluster.GPUID{"g1"}, false, true},
			"a new one took cards along":  {fsm.Change{Job: 7, New: true, Released: []cluster.GPUID{"g1"}}, []cluster.GPUID{"g1"}, true, false},
			"a job without cards ended":   {fsm.Change{Job: over}, nil, true, false},
			"a job that goes on":          {fsm.Change{Job: on}, nil, false, false},
		} {
			p.takeWork()
			select {
			case <-p.wake:
			default:
			}
			p.note([]fsm.Change{c.change})
			woken := false
			select {
			case <-p.wake:
				woken = true
			default:
			}
			gpus, arrived, full := p.takeWork()
			slices.Sort(gpus)
			if want := c.arrived || c.full || c.gpus != nil; !slices.Equal(gpus, c.gpus) || arrived != c.arrived || full != c.full || woken != want {
				t.Errorf("%s: %v, arrived %t, full %t, woken %t", name, gpus, arrived, full, woken)
			}
		}
	})
}

// TestJobsStartAtOnce: those that come within a moment of their coming, those that wait
// as soon as what they wait for is free, whether that is a card, cores, a node, or a
// time; nobody is planned for in vain.
func TestJobsStartAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(func(p *scheduler.Policy) { p.PatienceMilli = 0 }))
		l.machine("n1", 2, func(n *cluster.Node) { n.CPUMilli = 8000 })
		l.follow()
		l.loop(l.l.plan.run)
		alone := func(s *cluster.Spec) { s.Exclusive = true }
		within := func(what string, d time.Duration, id cluster.JobID) {
			t.Helper()
			began := time.Now()
			for l.job(id).State != cluster.JobStarting {
				if time.Since(began) > d {
					t.Fatalf("%s: after %s it is %s (%s)", what, d, l.job(id).State, l.job(id).Reason)
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
		}
		time.Sleep(10 * time.Second)
		a, b := l.submit(job(1, alone))[0], l.submit(job(1, alone))[0]
		within("two came", 20*time.Millisecond, a)
		within("two came", 20*time.Millisecond, b)
		if n := len(l.since(0, plans)); n > 2 {
			t.Errorf("%d plans for two that came together", n)
		}
		c := l.submit(job(1, alone))[0]
		time.Sleep(5 * time.Second)
		if s := l.job(c).State; s != cluster.JobQueued {
			t.Errorf("without a card it is %s", s)
		}
		l.say(a, cluster.JobCompleted, nil)
		within("a card came free", 50*time.Millisecond, c)
		big := l.submit(job(0, func(s *cluster.Spec) { s.CPUMilli = 7000 }))[0]
		time.Sleep(5 * time.Second)
		if s := l.job(big).State; s != cluster.JobPending {
			t.Errorf("without cores it is %s", s)
		}
		l.say(b, cluster.JobCompleted, nil)
		within("cores came free with a card", 2*time.Second, big)
		far := l.submit(job(1, func(s *cluster.Spec) { s.Exclusive = true; s.GPUs = 3 }))[0]
		time.Sleep(5 * time.Second)
		l.machine("n2", 3, nil)
		within("a node came", 2*time.Second, far)
		later := l.submit(job(0, func(s *cluster.Spec) { s.Begin = cluster.TimeOf(time.Now().Add(time.Hour)) }))[0]
		time.Sleep(time.Hour - time.Second)
		if s := l.job(later).State; s != cluster.JobPending {
			t.Errorf("before its time it is %s", s)
		}
		mark := l.mark()
		within("its time came", 2*time.Second, later)
		time.Sleep(time.Minute)
		if n := len(l.since(mark, plans)); n != 1 {
			t.Errorf("%d plans where one job starts", n)
		}
	})
}

// TestPlansThatFail are made again: one that is not written, one that is rejected.
func TestPlansThatFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 1, nil)
		l.follow()
		l.loop(l.l.plan.run)
		left := 3
		l.mu.Lock()
		l.refuse = func(c *logv1.Command) bool {
			if c.GetApplyPlan() == nil || left == 0 {
				return false
			}
			left--
			return true
		}
		l.mu.Unlock()
		id := l.submit(job(1, nil))[0]
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if l.refusals() != 3 || l.job(id).State != cluster.JobStarting {
			t.Errorf("after %d refusals the job is %s", l.refusals(), l.job(id).State)
		}
	})
}

// TestPlansGoInPieces: of a bounded size, every start before any move, in order; each
// piece from the index of the plan; where one is rejected a full pass comes.
func TestPlansGoInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 1, func(n *cluster.Node) { n.CPUMilli, n.MemMiB, n.Credentials = 1<<20, 1<<20, true })
		var plan dispatch.Plan
		plan.BaseIndex = 77
		for i := range 2300 {
			id := l.submit(job(0, func(s *cluster.Spec) { s.CPUMilli, s.MemMiB, s.Tasks = 10, 1, 1+i%2 }))[0]
			plan.Starts = append(plan.Starts, dispatch.Start{Job: id, Attempt: 1, Berth: cluster.Berth{Node: "n1", CPUMilli: 10, MemMiB: 1}})
		}
		for range 30 {
			id := l.submit(job(1, nil))[0]
			plan.Moves = append(plan.Moves, dispatch.QueueMove{Job: id, GPU: "n1-g0", Rank: int64(id), Reason: cluster.ReasonGPUMem})
		}
		l.l.plan.takeWork()
		if err := l.l.plan.propose(t.Context(), &plan, "full"); err != nil {
			t.Fatal(err)
		}
		var sizes [][2]int
		next := uint64(1)
		for _, c := range l.since(0, plans) {
			p := c.cmd.GetApplyPlan()
			sizes = append(sizes, [2]int{len(p.Starts), len(p.Moves)})
			if p.BaseIndex != 77 {
				t.Errorf("a piece is from index %d", p.BaseIndex)
			}
			for _, s := range p.Starts {
				if s.Job != next {
					t.Fatalf("job %d comes before job %d", s.Job, next)
				}
				if next++; len(s.Secret) != cluster.SecretBytes || (s.Port != 0) != (s.Job%2 == 0) {
					t.Fatalf("job %d starts with port %d and a secret of %d bytes", s.Job, s.Port, len(s.Secret))
				}
			}
		}
		if d := cmp.Diff([][2]int{{1000, 0}, {1000, 0}, {300, 30}}, sizes); d != "" {
			t.Error(d)
		}
		if _, _, full := l.l.plan.takeWork(); full {
			t.Error("nothing was rejected, and a full pass is asked for")
		}
		bad := dispatch.Plan{Starts: []dispatch.Start{{Job: 9999, Attempt: 1, Berth: berth("n1")}}}
		if err := l.l.plan.propose(t.Context(), &bad, "full"); err != nil {
			t.Fatal(err)
		}
		if _, _, full := l.l.plan.takeWork(); !full {
			t.Error("a start was rejected, and no full pass is asked for")
		}
	})
}

// TestTimeAlone: where nothing else happens a job starts when its time has come, and
// somebody makes room for one that has waited long enough.
func TestTimeAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := planBy(nil)
		s.Interval = 20 * time.Minute
		l := newLab(t, Config{}, s)
		l.machine("n1", 0, nil)
		l.follow()
		l.loop(l.l.plan.run)
		at := time.Now().Add(10 * time.Minute)
		id := l.submit(job(0, func(s *cluster.Spec) { s.Begin = cluster.TimeOf(at) }))[0]
		time.Sleep(10*time.Minute - time.Millisecond)
		if s := l.job(id).State; s != cluster.JobPending {
			t.Errorf("before its time it is %s", s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := l.job(id).State; s != cluster.JobStarting {
			t.Errorf("a second after its time it is %s", s)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(func(p *scheduler.Policy) { p.MaxShares = 1 }))
		l.machine("n1", 1, nil)
		long := l.running(job(1, func(s *cluster.Spec) { hooked(s); s.Duration = 20 * time.Hour }), berth("n1", 0))
		l.follow()
		l.loop(l.l.plan.run)
		time.Sleep(time.Minute)
		wait := l.submit(job(1, func(s *cluster.Spec) { s.Duration = time.Minute; s.TimeLimit = time.Minute }))[0]
		room := func(c *logv1.Command) bool { return c.GetPreemptAttempt() != nil }
		time.Sleep(110 * time.Second)
		if got := l.since(0, room); len(got) != 0 {
			t.Errorf("it has not waited for two minutes: %v", got)
		}
		time.Sleep(90 * time.Second)
		got := l.since(0, room)
		if len(got) != 1 || got[0].cmd.GetPreemptAttempt().Job != uint64(long) || got[0].cmd.GetPreemptAttempt().For != uint64(wait) {
			t.Errorf("after more than three minutes: %v", got)
		}
	})
}

// TestTheFastPath starts who heads the queue of a card that came free, but beside strays
// of which gossip says, and leaves to a full pass what it cannot say.
func TestTheFastPath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 1, nil)
		id := l.submit(job(1, func(s *cluster.Spec) { s.GPUMemMiB, s.GPUMilli = 5000, 10 }))[0]
		l.do(&logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: conv.PlanToLog(&dispatch.Plan{Moves: []dispatch.QueueMove{{Job: id, GPU: "n1-g0", Rank: 1, Reason: cluster.ReasonGPUMem}}})}})
		p := l.l.plan
		fast := func(what string, starts, again bool) {
			t.Helper()
			p.takeWork()
			if err := p.fast(t.Context(), []cluster.GPUID{"n1-g0"}); err != nil {
				t.Fatal(err)
			}
			_, _, full := p.takeWork()
			if s := l.job(id).State == cluster.JobStarting; s != starts || full != again {
				t.Errorf("%s: it starts %t, a full pass is asked for %t; want %t, %t", what, s, full, starts, again)
			}
		}
		l.held["n1-g0"] = 39_000
		fast("beside strays", false, true)
		delete(l.held, "n1-g0")
		p.waits = site.Waits{Promised: true}
		fast("where somebody is promised a card", false, true)
		p.waits = site.Waits{}
		fast("else", true, false)
	})
}

// TestOtherPoliciesAtOnce: another policy that is put in use is planned by at once.
func TestOtherPoliciesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := planBy(nil)
		s.Interval = time.Hour
		l := newLab(t, Config{}, s)
		l.machine("n1", 1, nil)
		l.follow()
		l.loop(l.l.plan.run)
		first := l.submit(job(1, func(s *cluster.Spec) { s.GPUMemMiB = 1000; s.GPUMilli = 10 }))[0]
		time.Sleep(time.Second)
		slots := planBy(func(p *scheduler.Policy) { p.MaxShares = 1 })
		slots.Interval = time.Second
		l.l.SetScheduling(slots)
		second := l.submit(job(1, func(s *cluster.Spec) { s.GPUMemMiB = 1000; s.GPUMilli = 10 }))[0]
		time.Sleep(3 * time.Second)
		if a, b := l.job(first).State, l.job(second).State; a != cluster.JobStarting || b != cluster.JobQueued {
			t.Errorf("of two under a policy of one each: %s and %s", a, b)
		}
		shared := planBy(nil)
		l.l.SetScheduling(shared)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b := l.job(second).State; b != cluster.JobStarting {
			t.Errorf("under one that shares: %s", b)
		}
	})
}

// TestLongPassesAtRest: while nothing changes, passes take a hundredth of the time at
// most, and a short one comes each minute; a change is planned for within five times as
// long as a pass took.
func TestLongPassesAtRest(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]int64{0: 10, 2 * time.Second: 3} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, Config{}, planBy(nil))
			var passes atomic.Int64
			l.l.plan.holders = func([]*cluster.Job) map[string][]cluster.NodeID {
				passes.Add(1)
				time.Sleep(took)
				return nil
			}
			l.machine("n1", 1, nil)
			l.submit(job(2, nil)) // there is no such node
			l.follow()
			l.loop(l.l.plan.run)
			time.Sleep(time.Minute)
			passes.Store(0)
			time.Sleep(10*time.Minute - 30*time.Second)
			if got := passes.Load(); got != want {
				t.Errorf("%d passes of %s in most of ten minutes without a change, want %d", got, took, want)
			}
			passes.Store(0)
			l.partition(&cluster.Partition{Name: "p"})
			time.Sleep(5*took + 2*time.Second)
			if passes.Load() == 0 {
				t.Errorf("no pass of %s after a change", took)
			}
		})
	}
}
