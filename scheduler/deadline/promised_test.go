package deadline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestWhoHoldsACard: a card is free when the last of those on it has ended by its limit,
// and cleared when the last of them has, if those make room that may; what is lost is
// what those did, and a minute each.
func TestWhoHoldsACard(t *testing.T) {
	t.Parallel()
	snap := &dispatch.Snapshot{Now: now}
	on := func(id cluster.JobID, left, grace time.Duration, gpus ...cluster.GPUID) *cluster.Job {
		j := occupies(id, gpus[0], "n", left)
		for _, g := range gpus[1:] {
			j.Attempts[0].Berth.GPUs = append(j.Attempts[0].Berth.GPUs, cluster.GPUShare{GPU: g})
		}
		if grace > 0 {
			yieldable(snap, j, grace)
		}
		snap.Running = append(snap.Running, j)
		return j
	}
	on(1, hour, 0, "stays")
	on(2, 2*hour, 5*minute, "goes")
	on(3, hour, 0, "both")
	on(4, 3*hour, 5*minute, "both")
	on(11, 3*hour, 5*minute, "reversed")
	on(12, hour, 0, "reversed")
	on(13, 3*hour, 5*minute, "pair")
	on(14, 2*hour, 8*minute, "pair")
	on(5, 4*minute, 5*minute, "ends before") // sooner than it could make room
	on(6, 2*hour, minute, "two", "more")
	hook := on(7, hour, minute, "not asked")
	delete(snap.Terms, hook.ID)
	asked := on(8, hour, 5*minute, "makes room")
	asked.Attempts[0].Preempt = &cluster.PreemptRequest{At: now.Add(-2 * minute)}
	cancelled := on(9, hour, 5*minute, "cancelled")
	cancelled.Cancel = &cluster.CancelRequest{}
	ended := on(10, hour, minute, "ended")
	ended.Attempts[0].State = cluster.JobCompleted
	pol := rules.Default()
	d := &demand{now: int64(now), pol: &pol}
	held := d.holders(snap, minute)
	for _, c := range []struct {
		gpu           cluster.GPUID
		free, cleared time.Duration
		lost          time.Duration // of GPUs
		by            []cluster.JobID
	}{
		{"stays", hour, hour, 0, nil},
		{"goes", 2 * hour, 6 * minute, 61 * minute, []cluster.JobID{2}},
		{"both", 3 * hour, hour, 61 * minute, []cluster.JobID{4}},
		{"reversed", 3 * hour, hour, 61 * minute, []cluster.JobID{11}},
		{"pair", 3 * hour, 9 * minute, 122 * minute, []cluster.JobID{13, 14}},
		{"ends before", 4 * minute, 4 * minute, 0, nil},
		{"two", 2 * hour, 2 * minute, 122 * minute, []cluster.JobID{6}},
		{"more", 2 * hour, 2 * minute, 122 * minute, []cluster.JobID{6}},
		{"not asked", hour, hour, 0, nil},
		{"makes room", 3 * minute, 3 * minute, 0, nil},
		{"cancelled", hour, hour, 0, nil},
		{"ended", 0, 0, 0, nil},
		{"empty", 0, 0, 0, nil},
	} {
		s := held[c.gpu].slot("n", c.gpu, int64(now))
		var by []cluster.JobID
		for _, j := range s.by {
			by = append(by, j.ID)
		}
		if s.free != int64(now.Add(c.free)) || s.cleared != int64(now.Add(c.cleared)) || s.lost != c.lost.Microseconds() || !slices.Equal(by, c.by) || s.gpu != c.gpu || s.node != "n" {
			t.Errorf("%s: free in %s, cleared in %s, %s lost by %v; want %+v", c.gpu, cluster.Time(s.free).Sub(now), cluster.Time(s.cleared).Sub(now), time.Duration(s.lost)*time.Microsecond, by, c)
		}
	}
	if !d.clears {
		t.Error("nobody is said to make room")
	}
}

// TestRoomIsMadeOnlyInNeed: jobs with hooks are left alone where the deadline is met
// without them, and of those that would do the one that loses least goes.
func TestRoomIsMadeOnlyInNeed(t *testing.T) {
	t.Parallel()
	pol := rules.Default()
	pol.DeadlineShareMilli = 1000
	for _, c := range []struct {
		name  string
		due   time.Duration
		start time.Duration
		yield []cluster.JobID
	}{
		{"time enough", 3 * hour, 2 * hour, nil},
		{"just enough", 150 * minute, 90 * minute, nil},
		{"too little", 149 * minute, 6 * minute, []cluster.JobID{3}},
		{"none whatever is done", minute, 90 * minute, nil},
	} {
		n := schedtest.Node("n", 3, "A")
		snap := &dispatch.Snapshot{Now: now, Nodes: []*cluster.Node{n}}
		for i, left := range []time.Duration{90 * minute, 3 * hour, 4 * hour} {
			j := occupies(cluster.JobID(i+1), n.GPUs[i].ID, "n", left)
			if i > 0 {
				yieldable(snap, j, 5*minute)
			}
			j.Attempts[0].Started = j.Attempts[0].Started.Add(time.Duration(i) * 10 * minute) // the last did least
			j.Spec.TimeLimit -= time.Duration(i) * 10 * minute
			snap.Running = append(snap.Running, j)
		}
		if c.name == "time enough" {
			snap.Waiting = []*cluster.Job{promised(5, 2*hour, 30*minute, 1)} // has the first card until then
		}
		job := promised(9, c.due, hour, 1)
		got := NewDemand(snap, &pol, minute).Plan(append(due(snap.Waiting), job))[job]
		var yield []cluster.JobID
		for _, j := range got.Yield {
			yield = append(yield, j.ID)
		}
		if got.Start != int64(now.Add(c.start)) || !slices.Equal(yield, c.yield) {
			t.Errorf("%s: in %s, %v yield; want %s, %v", c.name, cluster.Time(got.Start).Sub(now), yield, c.start, c.yield)
		}
	}
}

// TestNobodyYieldsForAChoice: where another must have room made, a job that is in time
// on another type without a loss is not laid where somebody yields to it, though it
// would end sooner there.
func TestNobodyYieldsForAChoice(t *testing.T) {
	t.Parallel()
	pol := rules.Default()
	pol.DeadlineShareMilli = 1000
	snap := &dispatch.Snapshot{Now: now}
	for i, left := range []time.Duration{hour, 9 * hour, 9 * hour} {
		n := schedtest.Node(cluster.NodeID(fmt.Sprint("n", i)), 1, string(rune('A'+i)))
		j := occupies(cluster.JobID(i+1), n.GPUs[0].ID, n.ID, left)
		if i > 0 {
			yieldable(snap, j, minute)
		}
		snap.Nodes, snap.Running = append(snap.Nodes, n), append(snap.Running, j)
	}
	choice, must := promised(8, 3*hour, hour, 1), promised(9, 3*hour, hour, 1)
	must.Spec.GPUType = "C"
	laid := NewDemand(snap, &pol, minute).Plan([]*cluster.Job{choice, must})
	if c := laid[choice]; c.GPUType != "A" || len(c.Yield) != 0 || c.Start != int64(now.Add(hour)) {
		t.Errorf("the one with a choice is laid on %s in %s, %d yield", c.GPUType, cluster.Time(c.Start).Sub(now), len(c.Yield))
	}
	if c := laid[must]; c.GPUType != "C" || len(c.Yield) != 1 || c.Yield[0].ID != 3 {
		t.Errorf("the other one is laid on %s, %d yield", c.GPUType, len(c.Yield))
	}
}

// TestHowLongAPromiseReckons: for as long as nine in ten such predictions stay below,
// at most the limit, on the type of the promise.
func TestHowLongAPromiseReckons(t *testing.T) {
	t.Parallel()
	pol := rules.Default()
	for _, c := range []struct {
		name  string
		opts  []schedtest.JobOption
		takes time.Duration
	}{
		{"a guess", []schedtest.JobOption{schedtest.Lasts(hour)}, 3 * hour},
		{"a guess with a limit", []schedtest.JobOption{schedtest.Lasts(hour), schedtest.Limit(2 * hour)}, 2 * hour},
		{"a limit alone", []schedtest.JobOption{schedtest.Limit(2 * hour)}, 2 * hour},
		{"a prediction, 900 sure", []schedtest.JobOption{schedtest.Predict("A", 100, 100, hour)}, 99 * minute},
		{"nothing", nil, 3 * hour},
	} {
		snap := &dispatch.Snapshot{Now: now, Nodes: []*cluster.Node{schedtest.Node("n", 1, "A")}}
		j := schedtest.Job(1, c.opts...)
		j.Spec.Deadline = now.Add(99 * hour)
		if got := NewDemand(snap, &pol, 0).Plan([]*cluster.Job{j})[j]; got.End != now.Add(c.takes) || got.GPUType != "A" || got.Before != 0 {
			t.Errorf("%s: %s on %s, want %s", c.name, got.End.Sub(now), got.GPUType, c.takes)
		}
	}
}

// TestQueuedStay: who was promised a place in a queue keeps it, though it is not among
// those that new promises are made of, and is laid anew only where that saves one.
func TestQueuedStay(t *testing.T) {
	t.Parallel()
	pol := rules.Default() // half of four
	a, b := schedtest.Node("a", 2, "A"), schedtest.Node("b", 2, "A")
	snap := &dispatch.Snapshot{Now: now, Nodes: []*cluster.Node{a, b}, Running: []*cluster.Job{occupies(80, b.GPUs[0].ID, "b", hour), occupies(81, b.GPUs[1].ID, "b", hour)}}
	stays := promised(1, 5*hour, hour, 1)
	stays.Queue = b.GPUs[1].ID
	laid := NewDemand(snap, &pol, minute).Plan([]*cluster.Job{stays})
	if c := laid[stays]; c.Start != int64(now.Add(hour)) || c.On[0] != b.GPUs[0].ID {
		t.Errorf("in its queue it starts in %s on %v", cluster.Time(c.Start).Sub(now), c.On)
	}
	stays.Spec.Deadline = now.Add(90 * minute) // there it would be late
	laid = NewDemand(snap, &pol, minute).Plan([]*cluster.Job{stays})
	if c := laid[stays]; c.Start != int64(now) || !strings.HasPrefix(string(c.On[0]), "a-") {
		t.Errorf("laid anew it starts in %s on %v", cluster.Time(c.Start).Sub(now), c.On)
	}
}

// TestSlackByHand: by the expected end of who runs, else by when it is expected to
// start and how long it takes on the type that is fastest for it.
func TestSlackByHand(t *testing.T) {
	t.Parallel()
	with := func(change func(*cluster.Job)) *cluster.Job {
		j := schedtest.Job(1, schedtest.Predict("A", 100, 100, 2*hour), schedtest.Predict("B", 100, 100, hour))
		j.Estimates = append(j.Estimates, cluster.Estimate{GPUType: cluster.CPUType, Duration: minute})
		j.Spec.Deadline = now.Add(5 * hour)
		change(j)
		return j
	}
	for _, c := range []struct {
		name string
		job  *cluster.Job
		want time.Duration
		ok   bool
	}{
		{"the fastest type", with(func(*cluster.Job) {}), 4 * hour, true},
		{"the type that it asks for", with(func(j *cluster.Job) { j.Spec.GPUType = "A" }), 3 * hour, true},
		{"expected to start later", with(func(j *cluster.Job) { j.EstStart = now.Add(hour) }), 3 * hour, true},
		{"was expected before", with(func(j *cluster.Job) { j.EstStart = now.Add(-hour) }), 4 * hour, true},
		{"on cores", with(func(j *cluster.Job) { j.Spec.GPUs = 0 }), 5*hour - minute, true},
		{"nobody knows", with(func(j *cluster.Job) { j.Estimates = nil }), 4 * hour, true},
		{"no longer than its limit", with(func(j *cluster.Job) { j.Spec.TimeLimit = 30 * minute }), 270 * minute, true},
		{"no deadline", with(func(j *cluster.Job) { j.Spec.Deadline = 0 }), 0, false},
		{"has ended", with(func(j *cluster.Job) { j.State = cluster.JobCompleted }), 0, false},
		{"will be late", with(func(j *cluster.Job) { j.Spec.Deadline = now.Add(30 * minute) }), -30 * minute, true},
		{"runs", with(func(j *cluster.Job) {
			*j = *occupies(1, "g", "n", 3*hour)
			j.Spec.Deadline = now.Add(5 * hour)
		}), 2 * hour, true},
	} {
		if got, ok := Slack(c.job, now, rules.Default()); got != c.want || ok != c.ok {
			t.Errorf("%s: %s, %t; want %s, %t", c.name, got, ok, c.want, c.ok)
		}
	}
}

// TestAskedOnce: each that must make room is asked once, for the first job that needs it.
func TestAskedOnce(t *testing.T) {
	t.Parallel()
	one, two := occupies(1, "g", "n", hour), occupies(2, "h", "n", hour)
	two.Attempts[0].No = 7
	asked := map[cluster.JobID]struct{}{}
	first := YieldsFor(promised(8, hour, minute, 1), []*cluster.Job{one}, asked)
	again := YieldsFor(promised(9, hour, minute, 1), []*cluster.Job{one, two, two}, asked)
	if len(first) != 1 || first[0].Job != 1 || first[0].For != 8 || first[0].Attempt != 1 {
		t.Errorf("%+v", first)
	}
	if len(again) != 1 || again[0].Job != 2 || again[0].For != 9 || again[0].Attempt != 7 || again[0].Why == "" {
		t.Errorf("%+v", again)
	}
}
