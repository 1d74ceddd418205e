package scheduler_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/deadline"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// dueIn sets a deadline.
func dueIn(d time.Duration) JobOption { return func(j *cluster.Job) { j.Spec.Deadline = Now.Add(d) } }

// TestAdmit: four GPUs, of which two may be claimed. With a time limit of an
// hour a job counts as an hour.
func TestAdmit(t *testing.T) {
	t.Parallel()
	h := time.Hour
	slo := func(id cluster.JobID, d time.Duration, opts ...JobOption) *cluster.Job {
		return Job(id, append([]JobOption{Exclusive, Limit(h), dueIn(d)}, opts...)...)
	}
	for _, c := range []struct {
		name     string
		waiting  []*cluster.Job
		asks     []*cluster.Job
		refuses  string
		busyFor  time.Duration
		noLimits bool
	}{
		{"no deadline", nil, []*cluster.Job{Job(9, GPUs(64))}, "", 0, false},
		{"just in time", nil, []*cluster.Job{slo(9, h)}, "", 0, false},
		{"too short", nil, []*cluster.Job{slo(9, h-time.Second)}, "it takes up to ~60 min on A100-SXM4-80GB and would end at 2023-11-14 23:13:20 UTC; ask", 0, false},
		{"three on two", nil, []*cluster.Job{slo(7, h), slo(8, h), slo(9, h)}, "would end at 2023-11-15 00:13:20 UTC, behind 2 jobs with earlier deadlines", 0, false},
		{"one after another", nil, []*cluster.Job{slo(6, h), slo(7, h), slo(8, 2*h), slo(9, 2*h)}, "", 0, false},
		{"would make another late", []*cluster.Job{slo(1, 2*h), slo(2, 2*h), slo(3, 2*h), slo(4, 2*h)}, []*cluster.Job{slo(9, h)}, "job 4, which was promised its end by 2023-11-15 00:13:20 UTC, would then end at 2023-11-15 01:13:20 UTC", 0, false},
		{"comes last", []*cluster.Job{slo(1, h), slo(2, h), slo(3, 2*h)}, []*cluster.Job{slo(9, 2*h)}, "", 0, false},
		{"behind what runs", nil, []*cluster.Job{slo(9, 90*time.Minute)}, "would end at 2023-11-15 00:13:20 UTC, behind what runs", h, false},
		{"after what runs", nil, []*cluster.Job{slo(9, 2*h)}, "", h, false},
		{"a gang larger than what may be claimed", nil, []*cluster.Job{slo(9, 9*h, GPUs(3))}, "no node has 3 GPUs among the 50 %", 0, false},
		{"one that misses already does not hold up others", []*cluster.Job{slo(1, time.Minute), slo(2, time.Minute)}, []*cluster.Job{slo(9, 2*h)}, "", 0, false},
		{"a guess counts three times", nil, []*cluster.Job{Job(9, Exclusive, Lasts(h), dueIn(2*h))}, "it takes up to ~3 h", 0, false},
		{"without GPUs", nil, []*cluster.Job{Job(9, GPUs(0), Limit(h), dueIn(h))}, "", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 4, a100)}, c.waiting...)
			if c.busyFor > 0 {
				for i := range 4 {
					running(w, Job(cluster.JobID(50+i), Limit(c.busyFor)), GPU("n1", i), whole(80000))
				}
			}
			_, err := deadline.Admit(w.Snapshot(), c.asks, scheduler.Default())
			switch {
			case c.refuses == "" && err != nil:
				t.Errorf("refused: %s", err.Msg)
			case c.refuses != "" && (err == nil || err.Code != cluster.CodeInvalid || !strings.Contains(err.Msg, c.refuses)):
				t.Errorf("got %v, want %q", err, c.refuses)
			}
		})
	}
}

// TestAReservationIsNamed: who is refused because of a reservation that begins before the
// deadline learns which one, whose, and when; before it, and with a reservation of one's own,
// nobody is.
func TestAReservationIsNamed(t *testing.T) {
	t.Parallel()
	h := time.Hour
	n1, err := cluster.ParseHostList("n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		due     time.Duration
		inside  bool
		refused string
	}{
		{3 * h, false, "no node has 1 GPU among the 50 % of each type that deadlines may claim and that nobody has reserved until then (reservation course keeps some from 2023-11-15 00:13:20 UTC until 2023-11-15 03:13:20 UTC; it is for bob)"},
		{2 * h, false, ""},
		{5 * h, true, ""},
	} {
		s := NewWorld([]*cluster.Node{Node("n1", 4, a100)}).Snapshot()
		s.Reservations = dispatch.Reservations{{Name: "course", Start: Now.Add(2 * h), Duration: 3 * h, Nodes: n1, Users: []string{"bob"}}}
		if c.inside {
			s.Reservations[0].Start = Now
		}
		j := Job(9, Exclusive, Limit(h), dueIn(c.due))
		if c.inside {
			j.Owner.Name, j.Spec.Where = "bob", &cluster.Where{Reservation: "course"}
		}
		_, err := deadline.Admit(s, []*cluster.Job{j}, scheduler.Default())
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Msg, c.refused) {
			t.Errorf("due in %s, inside %t: %v, want %q", c.due, c.inside, err, c.refused)
		}
	}
}

// TestDeadlinesAreLaidAnew: two cards, n2 busy for half an hour; job 1 takes two
// hours and waits at n2, job 2 takes one and may only lie there. Behind job 1 it
// ends after three and a half. If that is too late by however little, job 1 is laid
// anew, on n1, and job 2 ends after one and a half.
func TestDeadlinesAreLaidAnew(t *testing.T) {
	t.Parallel()
	const half, h = 30 * time.Minute, time.Hour
	pol := scheduler.Default()
	pol.DeadlineShareMilli = 1000
	for due, admitted := range map[time.Duration]bool{
		7 * half: true, 7*half - time.Microsecond: true, 6 * half: true, 3 * half: true, 3*half - time.Microsecond: false,
	} {
		s := scene{nodes: one(a100, a100), runs: []lies{held(0, "n2-00", half, Limit(half))},
			waits: []*cluster.Job{Job(1, Exclusive, Limit(2*h), dueIn(5*half), queued("n2-00", half))}}
		_, err := deadline.Admit(s.world(t).Snapshot(), []*cluster.Job{Job(2, Exclusive, Limit(h), dueIn(due), On("n2"))}, pol)
		if admitted != (err == nil) {
			t.Errorf("due in %s: got %v, want admitted %t", due, err, admitted)
		}
	}
}

// withTerms is a snapshot in which all that have a hook and no deadline may be
// ended.
func withTerms(w *World) *dispatch.Snapshot {
	s := w.Snapshot()
	s.Terms = map[cluster.JobID]dispatch.Terms{}
	for _, j := range s.Running {
		s.Terms[j.ID] = dispatch.Terms{Preemptible: j.Spec.Checkpoint.Set() && j.Spec.Deadline == 0}
	}
	return s
}

// makeRoom asks those whom a plan ends, as the state machine would.
func makeRoom(t interface{ Fatalf(string, ...any) }, w *World, ps []dispatch.Preemption) {
	for _, x := range ps {
		if why := w.Jobs[x.Job].Unpreemptible(w.Clock); why != "" {
			t.Fatalf("job %d cannot be preempted: %s", x.Job, why)
		}
		j := w.Jobs[x.Job].Clone()
		j.Last().Preempt = &cluster.PreemptRequest{At: w.Clock, For: x.For, Why: x.Why}
		w.Jobs[x.Job] = j
	}
}

// leave lets those wait again whose grace is over.
func leave(w *World) {
	for _, id := range slices.Sorted(maps.Keys(w.Jobs)) {
		j := w.Jobs[id]
		if !j.Preempting() || w.Clock.Sub(j.Last().Preempt.At) < j.Spec.Checkpoint.Grace {
			continue
		}
		w.End(id)
		j = w.Jobs[id].Clone()
		j.State, j.Last().State = cluster.JobPending, cluster.JobCancelled
		w.Jobs[id] = j
	}
}

// TestDeadlinesMakeRoom: 12 GPUs are held for hours by jobs with a checkpoint hook.
// A deadline of five minutes is admitted, as few as will do make room for it, and it
// starts when they have.
func TestDeadlinesMakeRoom(t *testing.T) {
	t.Parallel()
	pol := scheduler.Default()
	held := func(hook bool, gpus int) *World {
		w := NewWorld([]*cluster.Node{Node("n1", 4, a100), Node("n2", 4, a100), Node("n3", 4, a100)})
		w.Runs = func(j *cluster.Job) time.Duration { return j.Spec.TimeLimit }
		for i := range 12 / gpus {
			j := Job(cluster.JobID(1+i), Exclusive, Limit(10*time.Hour), GPUs(gpus))
			if hook {
				j.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
			}
			w.Submit(j)
		}
		p := scheduler.Schedule(w.Snapshot(), pol)
		w.Apply(&p)
		w.Advance(time.Minute)
		return w
	}
	asks := func(n int) *cluster.Job {
		j := Job(99, Exclusive, Limit(2*time.Minute), GPUs(n), dueIn(6*time.Minute))
		return j
	}
	if _, err := deadline.Admit(withTerms(held(false, 1)), []*cluster.Job{asks(1)}, pol); err == nil || !strings.Contains(err.Msg, "what runs and cannot make room") {
		t.Errorf("no hook: got %v, want a refusal", err)
	}
	tight := asks(1)
	tight.Spec.Deadline = Now.Add(4 * time.Minute)
	if _, err := deadline.Admit(withTerms(held(true, 1)), []*cluster.Job{tight}, pol); err == nil {
		t.Error("a deadline that leaves no time for the grace was admitted")
	}
	for _, c := range []struct{ gangs, asks, nodes, ends int }{{1, 1, 1, 1}, {1, 2, 1, 2}, {2, 1, 1, 1}, {2, 2, 1, 1}, {4, 1, 1, 1}, {1, 2, 2, 4}, {4, 1, 3, 3}} {
		w, j := held(true, c.gangs), asks(c.asks)
		j.Spec.Nodes = c.nodes
		if _, err := deadline.Admit(withTerms(w), []*cluster.Job{j}, pol); err != nil {
			t.Errorf("%+v: refused: %s", c, err.Msg)
			continue
		}
		w.Submit(j)
		ended := 0
		for range 5 {
			p := scheduler.Schedule(withTerms(w), pol)
			w.Apply(&p)
			makeRoom(t, w, p.Preempt)
			ended += len(p.Preempt)
			w.Advance(30 * time.Second)
			leave(w)
		}
		if got := w.Jobs[99]; ended != c.ends || got.Started == 0 || got.Started.Sub(Now) > 150*time.Second {
			t.Errorf("%+v: %d were ended, want %d; the job is %v, started %s", c, ended, c.ends, got.State, got.Started.Sub(Now))
		}
	}
}

// TestGangsAreAdmittedWhereTheyFit: on as many nodes as they ask for, whose GPUs are
// alike, among the part that deadlines may claim, once those are free together.
func TestGangsAreAdmittedWhereTheyFit(t *testing.T) {
	t.Parallel()
	h := time.Hour
	where := func(c cluster.Where) JobOption { return func(j *cluster.Job) { j.Spec.Where = &c } }
	named, err := cluster.ParseHostList("n3")
	if err != nil {
		t.Fatal(err)
	}
	gang := func(nodes, gpus int, due time.Duration, opts ...JobOption) *cluster.Job {
		return Job(9, append([]JobOption{Exclusive, Limit(h), Nodes(nodes), GPUs(gpus), dueIn(due)}, opts...)...)
	}
	for name, c := range map[string]struct {
		job     *cluster.Job
		share   int64
		on      string // and from when on
		refused string
	}{
		"two that are free":        {gang(2, 2, h), 1000, "n[1-2] 0s", ""},
		"behind one that runs":     {gang(3, 2, 2*h), 1000, "n[1-3] 1h0m0s", ""},
		"too late behind it":       {gang(3, 2, 2*h-time.Second), 1000, "", "it takes up to ~60 min on 3 nodes of A100-SXM4-80GB and would end at 2023-11-15 00:13:20 UTC, behind what runs"},
		"one that it asks for":     {gang(2, 2, 2*h, where(cluster.Where{Nodes: named})), 1000, "n[1,3] 1h0m0s", ""},
		"more than of one type":    {gang(4, 2, 9*h), 1000, "", "no 4 nodes have 2 GPUs each, of one type and alike, among the 100 %"},
		"more than may be claimed": {gang(2, 4, 9*h), 500, "", "no 2 nodes have 4 GPUs each"},
		"a few of each":            {gang(3, 2, 2*h), 500, "n[1-3] 1h0m0s", ""},
		"whole nodes":              {gang(2, 1, h, where(cluster.Where{Whole: true})), 1000, "n[1-2] 0s", ""},
		"whole, too few":           {gang(2, 1, h, where(cluster.Where{Whole: true}), Type(a100)), 500, "", "no 2 nodes have all of their GPUs"},
		"GPUs that sell less":      {gang(4, 1, 9*h, Type("T4")), 1000, "", "no 4 nodes have 1 GPU each, of one type and alike,"},
	} {
		less := Node("n7", 2, "T4")
		for i := range less.GPUs {
			less.GPUs[i].SellableMiB -= 1000
		}
		w := NewWorld([]*cluster.Node{Node("n1", 4, a100), Node("n2", 4, a100), Node("n3", 4, a100),
			Node("n4", 1, "T4"), Node("n5", 1, "T4"), Node("n6", 1, "T4"), less})
		for i := range 4 {
			running(w, Job(cluster.JobID(50+i), Limit(h)), GPU("n3", i), whole(80000))
		}
		pol := scheduler.Default()
		pol.DeadlineShareMilli = c.share
		laid, err := deadline.Admit(w.Snapshot(), []*cluster.Job{c.job}, pol)
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Msg, c.refused) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
		if got := laid[c.job]; c.on != "" && got.Place()+" "+cluster.Time(got.Start).Sub(Now).String() != c.on {
			t.Errorf("%s: on %s from %s, want %s", name, got.Place(), cluster.Time(got.Start).Sub(Now), c.on)
		}
	}
}

// TestAGangKeepsItsNodes: n1 is free, n2 in an hour and n3 in half of one. A gang that
// was planned on n1 and n2 stays there as long as that is in time, one that was
// planned nowhere has n1 and n3; until then n1 is left only to what ends before.
func TestAGangKeepsItsNodes(t *testing.T) {
	t.Parallel()
	const half, h = 30 * time.Minute, time.Hour
	pol := scheduler.Default()
	pol.DeadlineShareMilli = 1000
	for _, c := range []struct {
		was    []cluster.NodeID
		due    time.Duration
		on     []cluster.NodeID
		starts time.Duration
	}{
		{nil, 3 * h, []cluster.NodeID{"n1", "n3"}, half},
		{[]cluster.NodeID{"n1", "n2"}, 3 * h, []cluster.NodeID{"n1", "n2"}, h},
		{[]cluster.NodeID{"n1", "n2"}, 2*h - time.Second, []cluster.NodeID{"n1", "n3"}, half},
		{[]cluster.NodeID{"n1", "gone"}, 3 * h, []cluster.NodeID{"n1", "n3"}, half},
	} {
		w := NewWorld([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, a100), Node("n3", 1, a100)})
		running(w, Job(50, Limit(h)), "n2-00", whole(80000))
		running(w, Job(51, Limit(half)), "n3-00", whole(80000))
		gang := Job(1, Exclusive, Limit(h), Nodes(2), dueIn(c.due))
		gang.Promised = c.was
		w.Submit(gang)
		w.Submit(Job(2, Exclusive, Limit(c.starts+time.Second)))
		w.Submit(Job(3, Exclusive, Limit(c.starts)))
		p := scheduler.Schedule(w.Snapshot(), pol)
		w.Apply(&p)
		laid := deadline.NewDemand(w.Snapshot(), &pol, 0).Plan([]*cluster.Job{w.Jobs[1]})[w.Jobs[1]]
		if j := w.Jobs[1]; !slices.Equal(j.Promised, c.on) || laid.Start != int64(Now.Add(c.starts)) {
			t.Errorf("%+v: planned on %v, from %s", c, j.Promised, cluster.Time(laid.Start).Sub(Now))
		}
		if !w.Jobs[2].State.Waiting() || w.Jobs[3].State.Waiting() {
			t.Errorf("%+v: the longer one is %s, the shorter one %s", c, w.Jobs[2].State, w.Jobs[3].State)
		}
	}
}

// TestAdmittedDeadlinesAreMet: whatever else is submitted, who was admitted
// ends in time when runs take no longer than promised and have GPUs alone, also on
// several nodes or on whole ones, and where runs end early; and where the fast path
// gives away what no deadline waits for.
func TestAdmittedDeadlinesAreMet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const tick = 5 * time.Minute // all times are whole ones, with a pass at each
		pol := scheduler.Default()
		pol.DeadlineShareMilli = rapid.SampledFrom([]int64{250, 500, 1000}).Draw(t, "share")
		w := NewWorld([]*cluster.Node{Node("n1", 2, a100), Node("n2", 2, a100), Node("n3", 3, a100)})
		early := rapid.SampledFrom([]int{0, 3}).Draw(t, "early")
		w.Runs = func(j *cluster.Job) time.Duration { // some end early
			if early > 0 && int(j.ID)%early == 0 {
				return max(tick, (j.Spec.TimeLimit / 2).Truncate(tick))
			}
			return j.Spec.TimeLimit
		}
		promised, fast := map[cluster.JobID]cluster.Time{}, rapid.Bool().Draw(t, "fast path")
		var gpus []cluster.GPUID
		for _, n := range w.Nodes {
			for i := range n.GPUs {
				gpus = append(gpus, n.GPUs[i].ID)
			}
		}
		id := cluster.JobID(0)
		for step := 0; step < 150; step++ {
			if step < 30 && rapid.IntRange(0, 2).Draw(t, "comes") > 0 {
				id++
				l := time.Duration(rapid.IntRange(1, 12).Draw(t, "limit")) * tick
				j := Job(id, Exclusive, Limit(l), GPUs(rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "gpus")))
				j.Eligible = w.Clock
				switch rapid.IntRange(0, 7).Draw(t, "span") {
				case 0, 1, 2:
					j.Spec.Nodes = rapid.IntRange(2, 3).Draw(t, "nodes")
				case 3:
					j.Spec.Where = &cluster.Where{Whole: true}
				}
				if rapid.Bool().Draw(t, "due") {
					j.Spec.Deadline = w.Clock.Add(l + time.Duration(rapid.IntRange(0, 24).Draw(t, "slack"))*tick)
					if _, err := deadline.Admit(withTerms(w), []*cluster.Job{j}, pol); err != nil {
						continue
					}
					promised[id] = j.Spec.Deadline
				} else if !j.Spec.Spans() && rapid.Bool().Draw(t, "shares") {
					j.Spec.Exclusive, j.Spec.GPUMemMiB, j.Spec.GPUMilli = false, 10_000, 300
				}
				if j.Spec.Deadline == 0 && rapid.Bool().Draw(t, "makes room") {
					j.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: 2 * tick}
				}
				w.Submit(j)
			}
			if fast && !slices.ContainsFunc(w.Snapshot().Waiting, func(j *cluster.Job) bool { return j.Spec.Deadline > 0 && j.State == cluster.JobPending }) {
				p := scheduler.OnRelease(w, gpus, pol)
				w.Apply(&p)
			}
			p := scheduler.Schedule(withTerms(w), pol)
			w.Apply(&p)
			makeRoom(t, w, p.Preempt)
			w.Advance(tick)
			leave(w)
		}
		for id, by := range promised {
			j := w.Jobs[id]
			if s := j.Started; j.State.Waiting() || s.Add(w.Runs(j)) > by {
				t.Fatalf("job %d started %s and ends after its deadline %s, %v", id, s.Sub(Now), by.Sub(Now), j.State)
			}
		}
	})
}

// TestAdmitIsAFunction: of the snapshot, in whatever order it is listed.
func TestAdmitIsAFunction(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), scheduler.Default()
		for _, j := range w.Snapshot().Waiting {
			spec := *j.Spec
			spec.Deadline = Now.Add(time.Duration(rapid.IntRange(1, 600).Draw(t, "due")) * time.Minute)
			c := j.Clone()
			c.Spec = &spec
			w.Jobs[j.ID] = c
		}
		j := drawJob(t, 1000)
		j.Spec.Deadline = Now.Add(time.Duration(rapid.IntRange(1, 600).Draw(t, "own")) * time.Minute)
		s, r := w.Snapshot(), w.Snapshot()
		rnd := rand.New(rand.NewPCG(1, uint64(rapid.IntRange(0, 99).Draw(t, "order"))))
		r.Nodes = slices.Clone(r.Nodes)
		rnd.Shuffle(len(r.Nodes), func(a, b int) { r.Nodes[a], r.Nodes[b] = r.Nodes[b], r.Nodes[a] })
		rnd.Shuffle(len(r.Waiting), func(a, b int) { r.Waiting[a], r.Waiting[b] = r.Waiting[b], r.Waiting[a] })
		_, a := deadline.Admit(s, []*cluster.Job{j}, pol)
		_, b := deadline.Admit(r, []*cluster.Job{j}, pol)
		if (a == nil) != (b == nil) || a != nil && a.Msg != b.Msg {
			t.Fatalf("%v, shuffled %v", a, b)
		}
	})
}

func TestSlack(t *testing.T) {
	t.Parallel()
	h := time.Hour
	w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
	running(w, Job(1, Lasts(h), dueIn(3*h)), "n1-00", whole(80000))
	for _, c := range []struct {
		name string
		job  *cluster.Job
		want time.Duration
		ok   bool
	}{
		{"none", Job(2, Lasts(h)), 0, false},
		{"runs", w.Jobs[1], 2 * h, true},
		{"waits", Job(2, Lasts(h), dueIn(3*h)), 2 * h, true},
		{"waits in a queue", Job(2, Lasts(h), dueIn(3*h), queued("n1-00", h)), h, true},
		{"will be late", Job(2, Lasts(4*h), dueIn(3*h)), -h, true},
	} {
		if got, ok := deadline.Slack(c.job, Now, scheduler.Default()); got != c.want || ok != c.ok {
			t.Errorf("%s: slack %s %t, want %s %t", c.name, got, ok, c.want, c.ok)
		}
	}
}
