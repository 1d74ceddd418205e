package lead

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
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
		if l.refused != 3 || l.job(id).State != cluster.JobStarting {
			t.Errorf("after %d refusals the job is %s", l.refused, l.job(id).State)
		}
	})
}

// TestPlansGoInPieces: of a bounded size, every start before any move, in order; each
// piece from the index of the plan; where one is rejected a full pass comes.
func TestPlansGoInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 1, func(n *cluster.Node) { n.CPUMilli, n.MemMiB = 1<<20, 1<<20 })
		var plan cluster.Plan
		plan.BaseIndex = 77
		for range 2300 {
			id := l.submit(job(0, func(s *cluster.Spec) { s.CPUMilli, s.MemMiB = 10, 1 }))[0]
			plan.Starts = append(plan.Starts, cluster.Start{Job: id, Attempt: 1, Berth: cluster.Berth{Node: "n1", CPUMilli: 10, MemMiB: 1}})
		}
		for range 30 {
			id := l.submit(job(1, nil))[0]
			plan.Moves = append(plan.Moves, cluster.QueueMove{Job: id, GPU: "n1-g0", Rank: int64(id), Reason: cluster.ReasonGPUMem})
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
				next++
			}
		}
		if d := cmp.Diff([][2]int{{1000, 0}, {1000, 0}, {300, 30}}, sizes); d != "" {
			t.Error(d)
		}
		if _, _, full := l.l.plan.takeWork(); full {
			t.Error("nothing was rejected, and a full pass is asked for")
		}
		bad := cluster.Plan{Starts: []cluster.Start{{Job: 9999, Attempt: 1, Berth: berth("n1")}}}
		if err := l.l.plan.propose(t.Context(), &bad, "full"); err != nil {
			t.Fatal(err)
		}
		if _, _, full := l.l.plan.takeWork(); !full {
			t.Error("a start was rejected, and no full pass is asked for")
		}
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

// TestFairSharesAreFresh: the order of fair shares and what users had are at most a
// second old, at once new when accounts change, and added up from nothing each time.
func TestFairSharesAreFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(func(p *scheduler.Policy) { p.FairMilli = 500 }))
		l.machine("n1", 3, nil)
		f := l.l.plan.fair
		if got := f.order(l.f, time.Now()); got != nil {
			t.Error("there are no accounts, and an order")
		}
		account := func(name string) {
			l.do(&logv1.Command{Kind: &logv1.Command_SetStanding{SetStanding: &logv1.SetStanding{Standing: &logv1.Standing{Kind: &logv1.Standing_Account{Account: &logv1.Account{Name: name, Shares: 1}}}}}})
		}
		member := func(name string, uid cluster.UID) {
			l.do(&logv1.Command{Kind: &logv1.Command_SetStanding{SetStanding: &logv1.SetStanding{Standing: &logv1.Standing{Kind: &logv1.Standing_Member{Member: &logv1.Member{Account: name, Uid: uint32(uid), Name: fmt.Sprint("u", uid), Shares: 1, Default: true}}}}}})
		}
		account("bio")
		account("phys")
		member("bio", 1000)
		member("phys", 1001)
		who := func(uid cluster.UID, account string) cluster.Assoc { return cluster.Assoc{UID: uid, Account: account} }
		at := func() (bio, phys int32) {
			o := f.order(l.f, time.Now())
			return o.Place(who(1000, "bio")), o.Place(who(1001, "phys"))
		}
		if a, b := at(); a != b {
			t.Errorf("nobody had anything, and their places are %d and %d", a, b)
		}
		spec := job(1, func(s *cluster.Spec) { s.Account = "bio" })
		id := l.submitBy(1000, spec)[0]
		l.start(id, berth("n1", 0))
		l.say(id, cluster.JobRunning, nil)
		began := time.Now()
		time.Sleep(500 * time.Millisecond)
		if a, b := at(); a != b {
			t.Errorf("half a second later it is made anew: %d and %d", a, b)
		}
		time.Sleep(time.Hour)
		if a, b := at(); a <= b {
			t.Errorf("an hour of one's run later their places are %d and %d", a, b)
		}
		had := f.service(l.f, time.Now())
		if got := had[1000]; got < 1000 || got > 1100 { // 300 thousandths of a card, an hour
			t.Errorf("after %s of 0.3 of a card: %d s", time.Since(began), got)
		}
		time.Sleep(900 * time.Millisecond)
		if again := f.service(l.f, time.Now()); again[1000] != had[1000] {
			t.Error("it is added up within a second")
		}
		time.Sleep(10 * time.Minute)
		if again := f.service(l.f, time.Now()); again[1000] <= had[1000] {
			t.Error("it is not added up any more")
		}
		first := f.order(l.f, time.Now())
		time.Sleep(time.Hour)
		for range 5 { // what was had is not added up again and again
			time.Sleep(2 * time.Second)
			f.order(l.f, time.Now())
		}
		if d := cmp.Diff(first.Places, f.order(l.f, time.Now()).Places); d != "" {
			t.Error(d)
		}
		account("chem")
		member("chem", 1002)
		o := f.order(l.f, time.Now())
		if _, is := o.Index[who(1002, "chem")]; !is {
			t.Errorf("who is new is not in the order at once: %+v", o)
		}
		snap := l.f.SchedulerSnapshot()
		qos := map[string]*cluster.QOS{"high": {}}
		snap.Standing = &cluster.Standing{QOS: qos}
		was := snap.Standing
		l.l.Prepare(snap)
		if snap.Standing.Fair == nil || len(snap.Standing.QOS) != 1 || was.Fair != nil || snap.Service != nil {
			t.Errorf("a snapshot has %+v", snap.Standing)
		}
	})
}

// TestWaryOfWholeStarts: a start on several nodes goes only when it fits beside strays on
// each of them, and what starts before counts.
func TestWaryOfWholeStarts(t *testing.T) {
	t.Parallel()
	n1, n2 := schedtest.Node("n1", 1, "T4"), schedtest.Node("n2", 2, "T4")
	nodes := []*cluster.Node{n1, n2}
	sells := n1.GPUs[0].SellableMiB
	before := [2]int{n1.GPUs[0].MaxShares, n2.GPUs[0].MaxShares}
	snap := &cluster.Snapshot{Nodes: nodes, Ledger: cluster.NewLedger(nodes)}
	held := map[cluster.GPUID]int64{n2.GPUs[0].ID: sells - 1000}
	on := func(n *cluster.Node, card int, mib int64) cluster.Berth {
		return cluster.Berth{Node: n.ID, GPUs: []cluster.GPUShare{{GPU: n.GPUs[card].ID, Share: cluster.Share{MemMiB: mib, Milli: 10}}}}
	}
	starts := []cluster.Start{
		{Job: 1, Berth: on(n1, 0, sells), Rest: []cluster.Berth{on(n2, 0, 1001)}}, // not beside the strays
		{Job: 2, Berth: on(n1, 0, 500), Rest: []cluster.Berth{on(n2, 0, 600)}},
		{Job: 3, Berth: on(n2, 0, 401)}, // not beside strays and job 2
		{Job: 4, Berth: on(n2, 0, 400)},
		{Job: 5, Berth: on(n1, 0, sells)}, // no stray there: the state machine says
		{Job: 6, Berth: on(n2, 1, sells)},
	}
	var got []cluster.JobID
	for _, st := range careful(snap, held, slices.Clone(starts)) {
		got = append(got, st.Job)
	}
	if d := cmp.Diff([]cluster.JobID{2, 4, 5, 6}, got); d != "" {
		t.Error(d)
	}
	view := wary(snap, held)
	if u, _ := view.Ledger.GPU(n2.GPUs[0].ID); u.UsedMiB != sells-1000 || u.Shares != 1 || u.MaxShares != before[1]+1 || view.Nodes[0] != n1 || view.Nodes[1] == n2 {
		t.Errorf("the planner sees %+v", u)
	}
	if u, _ := snap.Ledger.GPU(n2.GPUs[0].ID); u.UsedMiB != 0 || n1.GPUs[0].MaxShares != before[0] || n2.GPUs[0].MaxShares != before[1] || snap.Nodes[1] != n2 {
		t.Errorf("the snapshot has changed: %+v", u)
	}
}

// TestPlansBesideStrays: as long as gossip holds memory nobody is laid on it, neither by
// passes nor by the fast path; the job starts once it is free, though nothing else
// happens meanwhile. Queues that were handed to the planner are its own.
func TestPlansBesideStrays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 1, nil)
		l.mu.Lock()
		l.held["n1-g0"] = 39_000
		l.mu.Unlock()
		l.follow()
		l.loop(l.l.plan.run)
		small := func(s *cluster.Spec) { s.GPUMemMiB, s.GPUMilli = 500, 10 }
		first := l.submit(job(1, small))[0]
		id := l.submit(job(1, func(s *cluster.Spec) { s.GPUMemMiB, s.GPUMilli = 5000, 10 }))[0]
		time.Sleep(5 * time.Second)
		if a, b := l.job(first).State, l.job(id).State; a != cluster.JobStarting || b == cluster.JobStarting {
			t.Errorf("beside strays: the small one is %s, the large one %s", a, b)
		}
		l.say(first, cluster.JobCompleted, nil) // the fast path looks at the card
		time.Sleep(5 * time.Second)
		if s := l.job(id).State; s == cluster.JobStarting {
			t.Error("the fast path laid it on strays")
		}
		l.mu.Lock()
		delete(l.held, "n1-g0")
		l.mu.Unlock()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s := l.job(id).State; s != cluster.JobStarting {
			t.Errorf("strays are gone, and it is %s", s)
		}
	})
}

// TestNobodyEndsForGossip: with memory that only gossip holds no more are preempted than
// without it.
func TestNobodyEndsForGossip(t *testing.T) {
	t.Parallel()
	n := schedtest.Node("n1", 1, "T4")
	now := cluster.Time(1_700_000_000_000_000)
	run := schedtest.Job(1, schedtest.Mem(2000), schedtest.Lasts(20*time.Hour))
	run.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
	run.State = cluster.JobRunning
	run.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobRunning, Started: now.Add(-2 * time.Hour), Placed: now.Add(-2 * time.Hour),
		Berth:    cluster.Berth{Node: "n1", CPUMilli: 1000, MemMiB: 1000, GPUs: []cluster.GPUShare{{GPU: n.GPUs[0].ID, Share: cluster.Share{MemMiB: 2000, Milli: 100}}}},
		Estimate: cluster.Estimate{GPUType: "T4", GPUMemMiB: 2000, Milli: 100, Duration: 20 * time.Hour, ConfidenceMilli: 900}}}
	wait := schedtest.Job(2, schedtest.Mem(2000), schedtest.Util(100), schedtest.Predict("T4", 2000, 100, time.Minute))
	wait.Eligible = now.Add(-time.Hour)
	make1 := func() *cluster.Snapshot {
		led := cluster.NewLedger([]*cluster.Node{n})
		led.Take(&run.Attempts[0].Berth)
		return &cluster.Snapshot{Now: now, Nodes: []*cluster.Node{n}, Ledger: led, Running: []*cluster.Job{run}, Waiting: []*cluster.Job{wait}, Queues: map[cluster.GPUID][]cluster.Waiter{}}
	}
	s := planBy(func(p *scheduler.Policy) { p.MaxShares = 1 })
	held := map[cluster.GPUID]int64{}
	p := &planner{held: func() map[cluster.GPUID]int64 { return held }}
	if without := p.beside(make1(), &s, site.Full); len(without.Preempt) != 1 || p.less {
		t.Fatalf("without strays %v make room; less %t", without.Preempt, p.less)
	}
	held[n.GPUs[0].ID] = 100
	if with := p.beside(make1(), &s, site.Full); len(with.Preempt) > 1 || !p.less {
		t.Errorf("with strays %v make room; less %t", with.Preempt, p.less)
	}
	// Where nobody would end without them nobody does.
	s = planBy(nil)
	held[n.GPUs[0].ID] = n.GPUs[0].SellableMiB - 2500
	snap := make1()
	queues := len(snap.Queues)
	if with := p.beside(snap, &s, site.Full); len(with.Preempt) != 0 || len(with.Starts) != 0 || len(snap.Queues) != queues {
		t.Errorf("%v make room for gossip, %v start", with.Preempt, with.Starts)
	}
	held = nil
	if without := p.beside(make1(), &s, site.Full); len(without.Starts) != 1 {
		t.Errorf("without strays it does not start: %+v", without.Unplaced)
	}
}
