package site

import (
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// living is a world as the fast path sees it.
type living struct {
	*schedtest.World
	parts []*cluster.Partition
}

func (l living) Partitions() []*cluster.Partition { return l.parts }

// set makes a set of partitions.
func set(names ...string) map[string]struct{} {
	out := map[string]struct{}{}
	for _, n := range names {
		out[n] = struct{}{}
	}
	return out
}

// TestReleaseByHand: the cards n1-00, n1-01 (T4) and n2-00 (V100) are free, an old
// job heads the queue of each that is named. Partition a is n1, b all T4, c is n2.
func TestReleaseByHand(t *testing.T) {
	t.Parallel()
	foreign := byName(t, "slot+fifo")
	own := func() *Site { return &Site{Chosen: byName(t, "ffd")} }
	of := func(partition string, c Chosen) *Site {
		return &Site{Chosen: byName(t, "ffd"), Partitions: map[string]Chosen{partition: c}}
	}
	for name, c := range map[string]struct {
		heads map[cluster.GPUID]string // the partition of who heads each queue
		whole bool                     // no partitions
		site  *Site
		waits Waits
		gpus  []cluster.GPUID // empty is the cards of heads
		start int
		again bool
	}{
		"without partitions":                   {heads: map[cluster.GPUID]string{"n1-00": ""}, whole: true, site: own(), start: 1},
		"a policy that knows no queues":        {heads: map[cluster.GPUID]string{"n1-00": ""}, whole: true, site: &Site{Chosen: foreign}},
		"something is promised":                {heads: map[cluster.GPUID]string{"n1-00": ""}, whole: true, site: own(), waits: Waits{Promised: true}, again: true},
		"promised, and no queues":              {heads: map[cluster.GPUID]string{"n1-00": ""}, whole: true, site: &Site{Chosen: foreign}, waits: Waits{Promised: true}, again: true},
		"promised in a partition":              {heads: map[cluster.GPUID]string{"n1-00": "a"}, site: own(), waits: Waits{Promised: true, Partitions: set("a")}, again: true},
		"only one partition waits":             {heads: map[cluster.GPUID]string{"n1-00": "a"}, site: own(), waits: Waits{Partitions: set("a")}, start: 1},
		"a rival for the card":                 {heads: map[cluster.GPUID]string{"n1-00": "a"}, site: own(), waits: Waits{Partitions: set("a", "b")}, again: true},
		"a rival, seen from the other side":    {heads: map[cluster.GPUID]string{"n1-00": "b"}, site: own(), waits: Waits{Partitions: set("a", "b")}, again: true},
		"another that has no such node":        {heads: map[cluster.GPUID]string{"n1-00": "a"}, site: own(), waits: Waits{Partitions: set("a", "c")}, start: 1},
		"another that has no such type":        {heads: map[cluster.GPUID]string{"n2-00": "c"}, site: own(), waits: Waits{Partitions: set("b", "c")}, start: 1},
		"a rival that waits no more":           {heads: map[cluster.GPUID]string{"n1-00": "a"}, site: own(), waits: Waits{Partitions: set("a")}, start: 1},
		"those of no partition are rivals":     {heads: map[cluster.GPUID]string{"n1-00": "a"}, site: own(), waits: Waits{Partitions: set("a", "")}, again: true},
		"of no partition, alone":               {heads: map[cluster.GPUID]string{"n1-00": ""}, site: own(), waits: Waits{Partitions: set("")}, start: 1},
		"of no partition, all others rivals":   {heads: map[cluster.GPUID]string{"n1-00": ""}, site: own(), waits: Waits{Partitions: set("", "c")}, again: true},
		"a partition whose policy has none":    {heads: map[cluster.GPUID]string{"n1-00": "a"}, site: of("a", foreign), waits: Waits{Partitions: set("a")}, again: true},
		"another's policy has none":            {heads: map[cluster.GPUID]string{"n1-00": "a"}, site: of("c", foreign), waits: Waits{Partitions: set("a", "c")}, start: 1},
		"two cards of two partitions":          {heads: map[cluster.GPUID]string{"n1-00": "a", "n2-00": "c"}, site: own(), waits: Waits{Partitions: set("a", "c")}, start: 2},
		"one of two cards has rivals":          {heads: map[cluster.GPUID]string{"n1-00": "a", "n2-00": "c"}, site: own(), waits: Waits{Partitions: set("a", "b", "c")}, start: 1, again: true},
		"two cards of one partition":           {heads: map[cluster.GPUID]string{"n1-00": "a", "n1-01": "a"}, site: own(), waits: Waits{Partitions: set("a")}, start: 2},
		"nobody waits there":                   {site: own(), waits: Waits{Partitions: set("a", "b")}, gpus: []cluster.GPUID{"n1-00"}},
		"a card that is not there":             {site: own(), waits: Waits{Partitions: set("a", "b")}, gpus: []cluster.GPUID{"n9-00"}},
		"the other cards' queues stay as they": {heads: map[cluster.GPUID]string{"n1-00": "a"}, site: own(), waits: Waits{Partitions: set("a")}, gpus: []cluster.GPUID{"n2-00"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 1, "V100")})
			gpus := c.gpus
			id := cluster.JobID(0)
			for _, g := range []cluster.GPUID{"n1-00", "n1-01", "n2-00"} {
				part, ok := c.heads[g]
				if !ok {
					continue
				}
				id++
				j := schedtest.Job(id, schedtest.Exclusive, schedtest.Waited(5*time.Hour), schedtest.Lasts(time.Hour))
				j.Spec.Partition, j.Queue = part, g
				w.Submit(j)
				if len(c.gpus) == 0 {
					gpus = append(gpus, g)
				}
			}
			l := living{World: w}
			if !c.whole {
				l.parts = []*cluster.Partition{partition(t, "a", "n1"), partition(t, "b", "ALL", "T4"), partition(t, "c", "n2")}
			}
			before := w.Ledg.Clone()
			plan, again := OnRelease(l, gpus, c.site, c.waits)
			if len(plan.Starts) != c.start || again != c.again {
				t.Errorf("%d starts, again %t; want %d, %t", len(plan.Starts), again, c.start, c.again)
			}
			if !before.Equal(w.Ledg) {
				t.Error("the ledger of the state is not as it was")
			}
			for _, st := range plan.Starts {
				if j := w.Jobs[st.Job]; st.Berth.GPUs[0].GPU != j.Queue {
					t.Errorf("job %d of the queue of %s starts on %s", st.Job, j.Queue, st.Berth.GPUs[0].GPU)
				}
			}
			if w.Apply(&plan); len(w.Rejected) > 0 {
				t.Errorf("rejected: %+v", w.Rejected)
			}
			plan, _ = OnRelease(l, gpus, c.site, c.waits)
			if len(plan.Starts) > 0 {
				t.Errorf("a second release of the same cards starts %+v", plan.Starts)
			}
		})
	}
	// The head of a queue is gone already: what comes next only a full pass says.
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4")})
	w.Queues["n1-00"] = []dispatch.Waiter{{Job: 7, Rank: 1}}
	l := living{World: w, parts: []*cluster.Partition{partition(t, "a", "n1")}}
	if plan, again := OnRelease(l, []cluster.GPUID{"n1-00"}, own(), Waits{Partitions: set("a")}); len(plan.Starts) > 0 || !again {
		t.Errorf("of a job that is gone: %+v, again %t", plan, again)
	}
}

// TestWhatTheFastPathKnows: after a full pass the partitions of all who wait, after
// another what they were; and of each pass whether GPUs are promised: to a deadline
// in no queue that wants some, or to a gang.
func TestWhatTheFastPathKnows(t *testing.T) {
	t.Parallel()
	s := &Site{Chosen: byName(t, "ffd")}
	parts := []*cluster.Partition{partition(t, "a", "n1"), partition(t, "b", "ALL")}
	due := func(j *cluster.Job) { j.Spec.Deadline = schedtest.Now.Add(time.Hour) }
	queued := func(j *cluster.Job) { j.State = cluster.JobQueued }
	gang := func(j *cluster.Job) { j.Spec.Nodes = 2 }
	for name, c := range map[string]struct {
		job      *cluster.Job
		promised bool
	}{
		"plain":                   {schedtest.Job(1, of("a")), false},
		"due":                     {schedtest.Job(1, of("a"), due), true},
		"due and in a queue":      {schedtest.Job(1, of("a"), due, queued), false},
		"due on cores alone":      {schedtest.Job(1, of("a"), due, schedtest.GPUs(0)), false},
		"on several nodes":        {schedtest.Job(1, of("a"), gang, schedtest.Waited(s.Policy.ReserveAge)), true},
		"on several nodes, new":   {schedtest.Job(1, of("a"), gang, schedtest.Waited(s.Policy.ReserveAge-time.Second)), false},
		"on several nodes' cores": {schedtest.Job(1, of("a"), gang, schedtest.GPUs(0), schedtest.Waited(time.Hour)), false},
	} {
		snap := &dispatch.Snapshot{Now: schedtest.Now, Partitions: parts, Waiting: []*cluster.Job{c.job}}
		was := Waits{Promised: !c.promised, Partitions: set("b")}
		full, arrival := was.After(snap, s, Full), was.After(snap, s, Arrival)
		if _, a := full.Partitions["a"]; full.Promised != c.promised || !a || len(full.Partitions) != 1 {
			t.Errorf("%s: after a full pass %+v", name, full)
		}
		if _, b := arrival.Partitions["b"]; arrival.Promised != c.promised || !b || len(arrival.Partitions) != 1 {
			t.Errorf("%s: after an arrival pass %+v", name, arrival)
		}
		snap.Partitions = nil
		if full = was.After(snap, s, Full); full.Partitions != nil {
			t.Errorf("%s: without partitions %v", name, full.Partitions)
		}
	}
}

// TestPrepare: policies are told of deadlines and of who may be preempted, unless
// somebody has told them before; an arrival pass of the scheduler's own sees those
// in no queue, every other pass sees all.
func TestPrepare(t *testing.T) {
	t.Parallel()
	hook := func(j *cluster.Job) { j.Spec.Checkpoint.Signal = "USR1" }
	due := func(j *cluster.Job) { j.Spec.Deadline = 42 }
	queued := func(j *cluster.Job) { j.State = cluster.JobQueued }
	fresh := func() *dispatch.Snapshot {
		return &dispatch.Snapshot{
			Waiting: []*cluster.Job{schedtest.Job(1), schedtest.Job(2, hook, queued), schedtest.Job(3, due), schedtest.Job(4, due, hook)},
			Running: []*cluster.Job{schedtest.Job(5, hook), schedtest.Job(6, due), schedtest.Job(7, due, hook)},
		}
	}
	if !fresh().Waiting[1].Spec.Checkpoint.Set() {
		t.Fatal("a signal makes no checkpoint hook")
	}
	want := map[cluster.JobID]dispatch.Terms{2: {Preemptible: true}, 3: {Deadline: 42}, 4: {Deadline: 42}, 5: {Preemptible: true}}
	s, foreign := &Site{Chosen: byName(t, "ffd")}, &Site{Chosen: byName(t, "slot+fifo")}
	parts := []*cluster.Partition{partition(t, "a", "n1")}
	for _, c := range []struct {
		pass  Pass
		site  *Site
		parts []*cluster.Partition
		seen  []cluster.JobID
	}{
		{Full, s, nil, []cluster.JobID{1, 2, 3, 4}},
		{Arrival, s, nil, []cluster.JobID{1, 3, 4}},
		{Arrival, s, parts, []cluster.JobID{1, 2, 3, 4}},
		{Arrival, foreign, nil, []cluster.JobID{1, 2, 3, 4}},
		{Full, foreign, nil, []cluster.JobID{1, 2, 3, 4}},
	} {
		snap := fresh()
		snap.Partitions = c.parts
		Prepare(snap, c.site, c.pass)
		var seen []cluster.JobID
		for _, j := range snap.Waiting {
			seen = append(seen, j.ID)
		}
		if !slices.Equal(seen, c.seen) {
			t.Errorf("%s pass of %s: sees %v, want %v", c.pass, c.site.Name(), seen, c.seen)
		}
		if len(snap.Terms) != len(want) {
			t.Errorf("terms %+v, want %+v", snap.Terms, want)
		}
		for id, terms := range want {
			if snap.Terms[id] != terms {
				t.Errorf("job %d: %+v, want %+v", id, snap.Terms[id], terms)
			}
		}
		told := map[cluster.JobID]dispatch.Terms{1: {WeightMilli: 3}}
		snap.Terms = told
		if Prepare(snap, c.site, c.pass); len(snap.Terms) != 1 || snap.Terms[1].WeightMilli != 3 {
			t.Errorf("what was told before is now %+v", snap.Terms)
		}
	}
	if plain := (&dispatch.Snapshot{Waiting: []*cluster.Job{schedtest.Job(1)}}); termsOf(plain.Waiting, nil) != nil {
		t.Error("there are terms of a job without any")
	}
}

// TestDeadlinesOfPartitions, by hand: of six cards one partition promises all, each
// of two that lie on them three, and each of three two. Jobs take an hour of one card
// and are due in an hour and a half, so that one card keeps one promise.
func TestDeadlinesOfPartitions(t *testing.T) {
	t.Parallel()
	chosen := byName(t, "ffd")
	chosen.Policy.DeadlineShareMilli = 1000
	s := &Site{Chosen: chosen}
	all := []*cluster.Partition{partition(t, "a", "n1"), partition(t, "b", "n[1-2]"), partition(t, "c", "ALL"), partition(t, "far", "n2")}
	for _, c := range []struct {
		parts []*cluster.Partition
		most  int
	}{{all[:1], 6}, {all[:2], 3}, {all[:3], 2}, {[]*cluster.Partition{all[0], all[3]}, 6}, {nil, 6}} {
		for n := 1; n <= 7; n++ {
			w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 6, "T4")})
			snap := w.Snapshot()
			snap.Partitions = c.parts
			var jobs []*cluster.Job
			for i := range n {
				j := schedtest.Job(cluster.JobID(i+1), schedtest.Exclusive, schedtest.Limit(time.Hour), schedtest.Predict("T4", 1000, 1000, time.Hour))
				j.Spec.Deadline = schedtest.Now.Add(90 * time.Minute)
				if c.parts != nil {
					j.Spec.Partition = "a"
				}
				jobs = append(jobs, j)
			}
			if _, err := Admit(snap, jobs, s); (err == nil) != (n <= c.most) {
				t.Errorf("%d partitions, %d jobs, at most %d: %v", len(c.parts), n, c.most, err)
			}
		}
	}
}

// TestForeignAndFairly, by hand.
func TestForeignAndFairly(t *testing.T) {
	t.Parallel()
	own, foreign, fair := byName(t, "ffd"), byName(t, "slot+fifo"), byName(t, "ffd")
	own.Policy.FairMilli, foreign.Policy.FairMilli, fair.Policy.FairMilli = 0, 0, 1
	parts := []*cluster.Partition{partition(t, "a", "n1")}
	for _, c := range []struct {
		site                  Site
		alone, parted, fairly bool
	}{
		{Site{Chosen: own}, false, false, false},
		{Site{Chosen: foreign}, true, true, false},
		{Site{Chosen: own, Partitions: map[string]Chosen{"a": foreign}}, false, true, false},
		{Site{Chosen: own, Partitions: map[string]Chosen{"a": fair}}, false, false, true},
		{Site{Chosen: fair, Partitions: map[string]Chosen{"a": foreign}}, false, true, true},
	} {
		if a, p, f := c.site.Foreign(nil), c.site.Foreign(parts), c.site.Fairly(); a != c.alone || p != c.parted || f != c.fairly {
			t.Errorf("%s, %v: %t %t %t", c.site.Name(), c.site.Partitions, a, p, f)
		}
	}
	if s := (&Site{Chosen: own, Partitions: map[string]Chosen{"a": foreign}}); s.Of("a").Planner == nil || s.Of("b").Planner != nil || s.Of("").Planner != nil {
		t.Error("a partition has a policy that was chosen for another")
	}
}
