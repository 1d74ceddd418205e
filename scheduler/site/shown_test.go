package site

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// shown is a policy that notes what passes show it, and plans what a test says.
type shown struct {
	name string
	log  *[]string
	do   func(*dispatch.Snapshot) dispatch.Plan
}

func (s shown) Name() string { return s.name }

func (s shown) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	*s.log = append(*s.log, s.name+": "+sight(snap))
	if s.do == nil {
		return dispatch.Plan{}
	}
	return s.do(snap)
}

// sight is what a snapshot shows, in words.
func sight(snap *dispatch.Snapshot) string {
	ids := func(js []*cluster.Job) (out []string) {
		for _, j := range js {
			out = append(out, fmt.Sprint(j.ID))
		}
		return out
	}
	var nodes, queues []string
	for _, n := range snap.Nodes {
		nodes = append(nodes, fmt.Sprintf("%s/%d", n.ID, len(n.GPUs)))
	}
	for _, g := range slices.Sorted(maps.Keys(snap.Queues)) {
		var q []string
		for _, w := range snap.Queues[g] {
			q = append(q, fmt.Sprint(w.Job))
		}
		queues = append(queues, fmt.Sprintf("%s=%s", g, strings.Join(q, "+")))
	}
	return fmt.Sprintf("waiting %s; running %s; nodes %s; queues %s", strings.Join(ids(snap.Waiting), " "), strings.Join(ids(snap.Running), " "), strings.Join(nodes, " "), strings.Join(queues, " "))
}

// on is a share of a card of a node.
func on(node cluster.NodeID, card int, mib int64) cluster.Berth {
	return cluster.Berth{Node: node, CPUMilli: 100, MemMiB: 10, GPUs: []cluster.GPUShare{{GPU: schedtest.GPU(node, card), Share: cluster.Share{MemMiB: mib, Milli: 10}}}}
}

func start(id cluster.JobID, first cluster.Berth, rest ...cluster.Berth) dispatch.Start {
	return dispatch.Start{Job: id, Attempt: 1, Berth: first, Rest: rest}
}

// lies has a job run there.
func lies(w *schedtest.World, id cluster.JobID, part string, first cluster.Berth, rest ...cluster.Berth) {
	w.Submit(schedtest.Job(id, of(part), schedtest.Nodes(1+len(rest)), schedtest.Lasts(time.Hour)))
	w.Apply(&dispatch.Plan{Starts: []dispatch.Start{start(id, first, rest...)}})
	if len(w.Rejected) > 0 {
		panic(fmt.Sprint(w.Rejected))
	}
}

func waits(w *schedtest.World, id cluster.JobID, part string, ago time.Duration, opts ...schedtest.JobOption) *cluster.Job {
	j := schedtest.Job(id, append([]schedtest.JobOption{of(part), schedtest.Lasts(time.Hour)}, opts...)...)
	j.Eligible = w.Clock.Add(-ago)
	j.Submitted = j.Eligible
	w.Submit(j)
	return j
}

// TestWhatPartitionsAreShown: each its own nodes, sorted, and only its cards of them;
// who runs there, once each, on whatever of their nodes; who waits for it; and what the
// passes before it made of all that. The partition whose oldest waits too long goes first.
func TestWhatPartitionsAreShown(t *testing.T) {
	t.Parallel()
	w := schedtest.NewWorld([]*cluster.Node{
		schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 1, "A100-SXM4-80GB"), schedtest.Node("n3", 2, "T4"), schedtest.Node("n10", 1, "T4"),
	})
	lies(w, 1, "a", on("n1", 0, 100), on("n3", 0, 100)) // on two nodes of a, the second of b alone
	lies(w, 2, "b", on("n2", 0, 100))
	waits(w, 11, "a", time.Minute)
	waits(w, 12, "b", 5*time.Hour)
	waits(w, 13, "b", time.Minute)
	waits(w, 14, "c", 6*time.Hour)
	waits(w, 15, "down", 9*time.Hour)
	parts := []*cluster.Partition{
		partition(t, "a", "n10,n3,n1", "T4"), partition(t, "b", "n3,n2"), partition(t, "c", "n[1-9]", "T4"), partition(t, "down", "n1"), partition(t, "empty", "n1"),
	}
	parts[3].Down = true
	var log []string
	s := &Site{Chosen: byName(t, "ffd"), Partitions: map[string]Chosen{}}
	as := func(name string, do func(*dispatch.Snapshot) dispatch.Plan) {
		c := byName(t, "ffd")
		c.Planner = shown{name, &log, do}
		s.Partitions[name] = c
	}
	as("a", nil)
	as("b", func(*dispatch.Snapshot) dispatch.Plan {
		return dispatch.Plan{Starts: []dispatch.Start{start(12, on("n3", 1, 100), on("n2", 0, 100)), start(13, on("n9", 0, 100))},
			Unplaced: []dispatch.Unplaced{{Job: 13, Reason: cluster.Reason{Code: cluster.ReasonNodeDown}}}}
	})
	as("c", func(*dispatch.Snapshot) dispatch.Plan {
		return dispatch.Plan{Starts: []dispatch.Start{start(14, on("n1", 1, 100))}, Preempt: []dispatch.Preemption{{Job: 1, Attempt: 1, For: 14}}}
	})
	as("down", nil)
	as("empty", nil)
	snap := w.Snapshot()
	snap.Partitions = parts
	running := len(snap.Running)
	plan := Plan(snap, s, Full)
	want := []string{
		"c: waiting 14; running 1 2; nodes n1/2 n2/0 n3/2; queues ",
		"b: waiting 12 13; running 1 2; nodes n2/1 n3/2; queues ",
		"a: waiting 11; running 1 12 14; nodes n1/2 n10/1 n3/2; queues ",
	}
	if d := cmp.Diff(want, log); d != "" {
		t.Error(d)
	}
	if len(plan.Starts) != 2 || len(plan.Preempt) != 0 || len(plan.Unplaced) != 1 || len(snap.Running) != running {
		t.Errorf("starts %+v, preempted %+v, told %+v; %d run in the snapshot", plan.Starts, plan.Preempt, plan.Unplaced, len(snap.Running))
	}
	if u, _ := snap.Ledger.GPU(schedtest.GPU("n3", 1)); u.Shares != 1 {
		t.Errorf("a start is not in the ledger: %+v", u)
	}
	// An arrival pass: of other policies all, who made room too.
	log = nil
	back := waits(w, 16, "c", time.Minute)
	back.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobPreempted, Preempt: &cluster.PreemptRequest{}}}
	snap = w.Snapshot()
	snap.Partitions = parts
	Prepare(snap, s, Arrival)
	Plan(snap, s, Arrival)
	if len(log) != 3 || !strings.HasPrefix(log[0], "c: waiting 14 16;") {
		t.Errorf("an arrival pass shows %q", log)
	}
	// The scheduler's own passes see no more than who stands in no queue, and nobody who
	// just made room.
	own := &Site{Chosen: byName(t, "ffd")}
	for kind, may := range map[Pass]bool{Arrival: false, Full: true} {
		snap = w.Snapshot()
		snap.Partitions = parts
		Prepare(snap, own, kind)
		plan := Plan(snap, own, kind)
		if starts := slices.ContainsFunc(plan.Starts, func(st dispatch.Start) bool { return st.Job == 16 }); starts != may {
			t.Errorf("a pass of kind %s starts who just made room: %t", kind, starts)
		}
	}
}

// TestQueuesOfPartitions: a move of one pass is in the queue that the next one sees, in
// its place; who starts leaves his; and where strangers wait for too long other policies
// are not shown the node, unless it is their turn.
func TestQueuesOfPartitions(t *testing.T) {
	t.Parallel()
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4"), schedtest.Node("n2", 2, "T4")})
	g1, g2 := schedtest.GPU("n1", 0), schedtest.GPU("n2", 0)
	queued := func(id cluster.JobID, part string, ago time.Duration, gpu cluster.GPUID) {
		waits(w, id, part, ago, func(j *cluster.Job) { j.Queue = gpu })
	}
	queued(1, "b", 9*time.Hour, g1) // old, so that it heads n1
	queued(2, "a", 5*time.Hour, g1)
	queued(3, "a", time.Minute, g2)
	waits(w, 4, "a", time.Minute)
	waits(w, 5, "b", time.Minute)
	var log []string
	s := &Site{Chosen: byName(t, "ffd"), Partitions: map[string]Chosen{}}
	moved := map[string]dispatch.Plan{
		"a": {Starts: []dispatch.Start{start(3, on("n2", 1, 100))}, Moves: []dispatch.QueueMove{{Job: 4, GPU: g2, Rank: 1 << 60, Reason: cluster.ReasonGPUMem}}},
		"b": {Moves: []dispatch.QueueMove{{Job: 5, GPU: g2, Rank: 7, Reason: cluster.ReasonGPUMem}, {Job: 1, Reason: cluster.ReasonGPUMem}}},
		"c": {},
	}
	waits(w, 6, "c", time.Second)
	for name, p := range moved {
		c := byName(t, "ffd")
		c.Policy.FIFOAge = 0 // by their names
		c.Planner = shown{name, &log, func(*dispatch.Snapshot) dispatch.Plan { return p }}
		s.Partitions[name] = c
	}
	snap := w.Snapshot()
	snap.Partitions = []*cluster.Partition{partition(t, "a", "ALL"), partition(t, "b", "ALL"), partition(t, "c", "ALL")}
	before := maps.Clone(snap.Queues)
	lengths := map[cluster.GPUID]int{}
	for g, q := range before {
		lengths[g] = len(q)
	}
	plan := Plan(snap, s, Full)
	want := []string{
		"a: waiting 2 3 4; running ; nodes n2/2; queues n2-00=3", // on n1 it is b's turn
		"b: waiting 1 5; running 3; nodes n1/1 n2/2; queues n1-00=1+2 n2-00=4",
		"c: waiting 6; running 3; nodes ; queues ", // on n1 it is a's turn now, on n2 b's by a rank of old
	}
	if d := cmp.Diff(want, log); d != "" {
		t.Error(d)
	}
	if got := sight(&dispatch.Snapshot{Queues: snap.Queues}); got != "waiting ; running ; nodes ; queues n1-00=2 n2-00=5+4" {
		t.Errorf("in the end there is %s", got)
	}
	for g, q := range before {
		if len(q) != lengths[g] || slices.ContainsFunc(q, func(w dispatch.Waiter) bool { return w.Job == 0 }) {
			t.Errorf("the queue of %s that was given has changed: %v", g, q)
		}
	}
	if len(plan.Moves) != 3 || plan.Starts[0].Overtook != "" {
		t.Errorf("moves %+v, starts %+v", plan.Moves, plan.Starts)
	}
}

// TestWhatSetsAreShown: who may use the same is planned together, the set whose oldest
// waits longest first; each finds in ledger and company what those before it started,
// and what they keep; what they plan is the plan.
func TestWhatSetsAreShown(t *testing.T) {
	t.Parallel()
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 2, "T4"), schedtest.Node("n3", 2, "T4")})
	for i, n := range w.Nodes {
		n.Features = [][]string{{"ib"}, {"ib", "nvme"}, nil}[i]
	}
	asks := func(id cluster.JobID, ago time.Duration, features, nodes string) *cluster.Job {
		j := waits(w, id, "", ago)
		if features != "" || nodes != "" {
			f, err := cluster.ParseFeatures(features)
			if err != nil {
				t.Fatal(err)
			}
			j.Spec.Where = &cluster.Where{Features: f}
			if j.Spec.Where.Nodes, err = cluster.ParseHostList(nodes); nodes != "" && err != nil {
				t.Fatal(err)
			}
		}
		return j
	}
	lies(w, 1, "", on("n1", 0, 100))
	asks(11, time.Hour, "", "")
	asks(12, 3*time.Hour, "ib", "")
	asks(13, 2*time.Hour, "nvme", "")
	asks(14, time.Minute, "ib", "")
	asks(15, 4*time.Hour, "", "")
	lost := asks(16, time.Minute, "", "")
	lost.Spec.Where = &cluster.Where{Reservation: "gone"}
	snap := w.Snapshot()
	running, shares := len(snap.Running), 0
	type seen struct {
		Sight  string
		Shares int // on n2's first card
		Kept   []policies.Kept
	}
	var got []seen
	script := []struct {
		plan  dispatch.Plan
		keeps []policies.Kept
	}{
		{dispatch.Plan{Starts: []dispatch.Start{start(15, on("n2", 0, 100))}, Preempt: []dispatch.Preemption{{Job: 1, Attempt: 1, For: 11}}, Unplaced: []dispatch.Unplaced{{Job: 11}}}, []policies.Kept{{Node: "n3", For: 11, CPUMilli: 5}}},
		{dispatch.Plan{Starts: []dispatch.Start{start(12, on("n1", 1, 100)), start(14, on("n9", 1, 100))}, Moves: []dispatch.QueueMove{{Job: 14}}}, []policies.Kept{{Node: "n3", For: 14, CPUMilli: 6}, {Node: "n1", For: 12}}},
		{dispatch.Plan{Starts: []dispatch.Start{start(13, on("n2", 0, 100))}}, nil},
	}
	plan := planApart(snap, func(view *dispatch.Snapshot, kept []policies.Kept) (dispatch.Plan, []policies.Kept) {
		u, _ := view.Ledger.GPU(schedtest.GPU("n2", 0))
		slices.SortFunc(kept, func(a, b policies.Kept) int { return strings.Compare(string(a.Node), string(b.Node)) })
		got = append(got, seen{sight(view), u.Shares, slices.Clone(kept)})
		do := script[len(got)-1]
		return do.plan, do.keeps
	})
	want := []seen{
		{"waiting 11 15; running 1; nodes n1/2 n2/2 n3/2; queues ", 0, nil},
		{"waiting 12 14; running 1 15; nodes n1/2 n2/2; queues ", 1, script[0].keeps},
		{"waiting 13; running 1 12 15; nodes n2/2; queues ", 1, []policies.Kept{{Node: "n1", For: 12}, {Node: "n3", For: 14, CPUMilli: 6}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	var starts []cluster.JobID
	for _, st := range plan.Starts {
		starts = append(starts, st.Job)
	}
	if d := cmp.Diff([]cluster.JobID{15, 12, 13}, starts); d != "" || len(plan.Preempt) != 1 || len(plan.Moves) != 1 || len(plan.Unplaced) != 2 {
		t.Errorf("%s; the plan is %+v", d, plan)
	}
	if !slices.ContainsFunc(plan.Unplaced, func(u dispatch.Unplaced) bool { return u.Job == 16 && u.Reason.Code == cluster.ReasonReservationGone }) {
		t.Errorf("who asks for a reservation that is gone is told %+v", plan.Unplaced)
	}
	if u, _ := snap.Ledger.GPU(schedtest.GPU("n2", 0)); u.Shares != shares || len(snap.Running) != running {
		t.Error("the snapshot has changed")
	}
}

// TestOverlapsAsCounted: the most partitions that one node of a partition belongs to.
func TestOverlapsAsCounted(t *testing.T) {
	t.Parallel()
	var nodes []*cluster.Node
	for i := range 6 {
		nodes = append(nodes, schedtest.Node(cluster.NodeID(fmt.Sprint("n", i)), 1, "T4"))
	}
	snap := &dispatch.Snapshot{Nodes: nodes, Partitions: []*cluster.Partition{
		partition(t, "a", "n[0-3]"), partition(t, "b", "n1"), partition(t, "c", "n[1-2]"), partition(t, "d", "n5"), partition(t, "e", "n[8-9]"),
	}}
	for i, want := range []int{3, 3, 3, 1, 1} {
		if got := overlaps(snap, snap.Partitions[i]); got != want {
			t.Errorf("partition %s: %d, want %d", snap.Partitions[i].Name, got, want)
		}
	}
	if overlaps(snap, nil) != 1 {
		t.Error("without a partition nothing overlaps")
	}
}

// TestAJobThatStarts is for later passes as the state will have it.
func TestAJobThatStarts(t *testing.T) {
	t.Parallel()
	now := cluster.Time(1_700_000_000_000_000)
	j := schedtest.Job(4, schedtest.Nodes(2))
	j.State, j.Queue = cluster.JobQueued, "g"
	j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobNodeFail}}
	st := start(4, on("n1", 0, 100), on("n2", 0, 200))
	st.Attempt, st.Estimate = 2, cluster.Estimate{GPUType: "T4", Duration: time.Hour}
	run := st.Began(j, now)
	a := run.Live()
	if run.State != cluster.JobStarting || run.Queue != "" || a == nil || a.No != 2 || a.Placed != now || a.Estimate != st.Estimate || a.Gang == nil || len(a.Gang.Parts) != 2 || a.Nodes() != 2 {
		t.Errorf("it is %+v, its attempt %+v", run, a)
	}
	held := 0
	for _, b := range a.Held() {
		held += len(b.GPUs)
	}
	if held != 2 || len(a.HeldGPUs()) != 2 {
		t.Errorf("it holds %d cards", held)
	}
	if j.State != cluster.JobQueued || j.Queue != "g" || len(j.Attempts) != 1 {
		t.Errorf("the job that was given has changed: %+v", j)
	}
}

// TestQuotasAroundAPolicy that knows none: who has room by the least that he could take
// is shown to it, in order of ids; of what it plans what has room by what it takes goes;
// everybody else is told, and the quotas of the snapshot stay.
func TestQuotasAroundAPolicy(t *testing.T) {
	t.Parallel()
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 4, "T4"), schedtest.Node("n2", 4, "T4")})
	for id, c := range []struct {
		gpus, nodes int
		milli       int64
	}{{1, 1, 500}, {2, 2, 300}, {0, 1, 0}, {1, 1, 900}, {1, 1, 0}, {1, 1, 100}} {
		j := waits(w, cluster.JobID(id+1), "", time.Minute, schedtest.GPUs(c.gpus), schedtest.Nodes(c.nodes), schedtest.Util(c.milli))
		j.Owner.UID = 7
	}
	each := accounting.Subject{Each: true}
	of := func(running, milli int64) *dispatch.Snapshot {
		snap := w.Snapshot()
		snap.Limits = accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{each: {Subject: each, Limits: accounting.Limits{Running: running, GPUMilli: milli}}}, nil)
		return snap
	}
	for _, c := range []struct {
		running, milli int64
		shown, held    []cluster.JobID
	}{
		{0, 0, []cluster.JobID{1, 2, 3, 4, 5, 6}, nil},
		{2, 0, []cluster.JobID{1, 2}, []cluster.JobID{3, 4, 5, 6}},
		{0, 1000, []cluster.JobID{1, 3, 5, 6}, []cluster.JobID{2, 4}}, // 500, 0, 1 at least, 100
		{0, 1700, []cluster.JobID{1, 2, 3}, []cluster.JobID{4, 5, 6}}, // 500, four times 300, 0
		{4, 2600, []cluster.JobID{1, 2, 3, 4}, []cluster.JobID{5, 6}}, // 500, 1200, 0, 900
		{0, 2600, []cluster.JobID{1, 2, 3, 4}, []cluster.JobID{5, 6}}, // and nothing is left of 2600
	} {
		snap := of(c.running, c.milli)
		before := snap.Limits.Used()
		waiting, held := startable(snap)
		var shown, told []cluster.JobID
		for _, j := range waiting {
			shown = append(shown, j.ID)
		}
		for _, u := range held {
			if told = append(told, u.Job); !accounting.LimitReason(u.Reason.Code) {
				t.Errorf("job %d is told %v", u.Job, u.Reason)
			}
		}
		if d := cmp.Diff(c.shown, shown) + cmp.Diff(c.held, told) + cmp.Diff(before, snap.Limits.Used()); d != "" {
			t.Errorf("%d jobs, %d thousandths: %s", c.running, c.milli, d)
		}
	}
	// What is planned takes more than the least.
	snap := of(3, 1000)
	plan := dispatch.Plan{Starts: []dispatch.Start{start(1, on("n1", 0, 6000)), start(4, on("n1", 1, 6000)), start(5, on("n1", 2, 6000)), start(3, cluster.Berth{Node: "n1"}), start(6, on("n1", 3, 100))}}
	whole := plan.Starts[2].Berth.GPUs
	whole[0].Share = cluster.Share{MemMiB: 15_000, Milli: 1000, Exclusive: true}
	before := snap.Limits.Used()
	withinLimits(snap, &plan)
	var starts, told []cluster.JobID
	milli := int64(0)
	for _, st := range plan.Starts {
		starts = append(starts, st.Job)
		milli += snap.Ledger.HeldMilli(st.AllGPUs())
	}
	for _, u := range plan.Unplaced {
		told = append(told, u.Job)
	}
	if d := cmp.Diff([]cluster.JobID{1, 4, 3}, starts) + cmp.Diff([]cluster.JobID{5, 6}, told) + cmp.Diff(before, snap.Limits.Used()); d != "" || milli > 1000 {
		t.Errorf("%s; they take %d thousandths", d, milli)
	}
}
