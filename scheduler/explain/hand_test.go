package explain_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/explain"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// lie starts a job with the whole of a card until its limit.
func lie(t *testing.T, w *schedtest.World, id cluster.JobID, node cluster.NodeID, gpu int, left time.Duration) {
	t.Helper()
	w.Submit(schedtest.Job(id, schedtest.Limit(left), schedtest.Lasts(left)))
	whole := cluster.Share{MemMiB: 24_000, Milli: cluster.WholeGPU, Exclusive: true}
	w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: id, Attempt: 1, Berth: cluster.Berth{Node: node, GPUs: []cluster.GPUShare{{GPU: schedtest.GPU(node, gpu), Share: whole}}}}}})
	if len(w.Rejected) > 0 {
		t.Fatal(w.Rejected)
	}
}

func saying(es []explain.Explanation, code cluster.ReasonCode) string {
	for _, e := range es {
		if e.Reason.Code == code {
			return e.Reason.Detail
		}
	}
	return ""
}

// TestForecastWords: what lacks at the place, how many must end, and when they have.
func TestForecastWords(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for _, c := range []struct {
		name  string
		left  []time.Duration // of those on the cards of n
		job   []schedtest.JobOption
		in    time.Duration
		words string
	}{
		{"one card of two is free", []time.Duration{h}, []schedtest.JobOption{schedtest.Exclusive}, 0, "GPU 1 of n: has room"},
		{"the first to end", []time.Duration{3 * h, 2 * h}, []schedtest.JobOption{schedtest.Exclusive}, 2 * h, "GPU 1 of n: in use, but needed exclusively; 1 job ends in ~2 h"},
		{"both must end", []time.Duration{3 * h, 2 * h}, []schedtest.JobOption{schedtest.Exclusive, schedtest.GPUs(2)}, 3 * h, "node n: 0 of 2 GPUs with room, needs 2 at once; 2 jobs end in ~3 h"},
		{"one of two", []time.Duration{3 * h}, []schedtest.JobOption{schedtest.Exclusive, schedtest.GPUs(2)}, 3 * h, "node n: 1 of 2 GPUs with room, needs 2 at once; 1 job ends in ~3 h"},
		{"both are free", nil, []schedtest.JobOption{schedtest.Exclusive, schedtest.GPUs(2)}, 0, "node n: 2 GPUs have room"},
		{"no GPU", nil, []schedtest.JobOption{schedtest.GPUs(0)}, 0, "node n has room"},
	} {
		w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n", 2, "A")})
		for i, left := range c.left {
			lie(t, w, cluster.JobID(i+1), "n", i, left)
		}
		j := schedtest.Job(9, c.job...)
		w.Submit(j)
		f, ok := scheduler.ForecastStart(w.Snapshot(), j, scheduler.Default())
		if !ok || f.P50.Sub(w.Clock) != c.in || f.Missing != c.words {
			t.Errorf("%s: in %s, %q; want in %s, %q", c.name, f.P50.Sub(w.Clock), f.Missing, c.in, c.words)
		}
	}
}

// TestForecastOfTheSoonerType: a job on two nodes of one type starts on the type of
// which two are free together first, and the last of them is named.
func TestForecastOfTheSoonerType(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for _, c := range []struct {
		a, b, d, e time.Duration // until the nodes are free
		in         time.Duration
		last       cluster.NodeID
	}{
		{h, 5 * h, 2 * h, 3 * h, 3 * h, "b1"}, {h, 2 * h, h, 3 * h, 2 * h, "a1"}, {4 * h, 2 * h, 9 * h, 3 * h, 4 * h, "a0"}, {4 * h, 2 * h, 3 * h, h, 3 * h, "b0"},
	} {
		nodes := []*cluster.Node{schedtest.Node("a0", 1, "A"), schedtest.Node("a1", 1, "A"), schedtest.Node("b0", 1, "B"), schedtest.Node("b1", 1, "B")}
		w := schedtest.NewWorld(nodes)
		for i, left := range []time.Duration{c.a, c.b, c.d, c.e} {
			lie(t, w, cluster.JobID(i+1), nodes[i].ID, 0, left)
		}
		j := schedtest.Job(9, schedtest.Exclusive, schedtest.Nodes(2))
		w.Submit(j)
		f, ok := scheduler.ForecastStart(w.Snapshot(), j, scheduler.Default())
		if want := fmt.Sprintf("0 of 2 nodes with room, needs 2 at once; the last to become free is GPU 0 of %s: in use, but needed exclusively; 1 job ends in ~", c.last); !ok ||
			f.P50.Sub(w.Clock) != c.in || f.Node != c.last || len(f.Missing) < len(want) || f.Missing[:len(want)] != want {
			t.Errorf("%+v: in %s on %s, %q", c, f.P50.Sub(w.Clock), f.Node, f.Missing)
		}
	}
}

// TestForecastBehindAReservation: a job that would run into a window starts when that
// is over, and one that is short before it.
func TestForecastBehindAReservation(t *testing.T) {
	t.Parallel()
	nodes, err := cluster.ParseHostList("n")
	if err != nil {
		t.Fatal(err)
	}
	for takes, want := range map[time.Duration]time.Duration{time.Hour: 0, time.Hour + time.Minute: 3 * time.Hour} {
		w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n", 1, "A")})
		j := schedtest.Job(9, schedtest.Exclusive, schedtest.Limit(takes))
		w.Submit(j)
		s := w.Snapshot()
		s.Reservations = dispatch.Reservations{{Name: "r", Nodes: nodes, Start: w.Clock.Add(time.Hour), Duration: 2 * time.Hour}}
		f, ok := scheduler.ForecastStart(s, j, scheduler.Default())
		if !ok || f.P50.Sub(w.Clock) != want || f.P90.Sub(w.Clock) != want {
			t.Errorf("%s long: in %s to %s, want %s", takes, f.P50.Sub(w.Clock), f.P90.Sub(w.Clock), want)
		}
	}
}

// TestNobodyPassesInAQueue: a small job that the card could hold waits for the one
// that stands before it and needs the card alone.
func TestNobodyPassesInAQueue(t *testing.T) {
	t.Parallel()
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n", 1, "A")})
	w.Submit(schedtest.Job(1, schedtest.Limit(time.Hour), schedtest.Lasts(time.Hour)))
	w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: 1, Attempt: 1, Berth: cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "n-00", Share: cluster.Share{MemMiB: 1000, Milli: 100}}}}}}})
	inQueue := func(j *cluster.Job) { j.Queue = "n-00" }
	first := schedtest.Job(5, schedtest.Exclusive, schedtest.Limit(30*time.Minute), inQueue)
	small := schedtest.Job(6, schedtest.Mem(1000), schedtest.Util(100), schedtest.Limit(time.Minute), inQueue)
	w.Submit(first)
	w.Submit(small)
	for j, want := range map[*cluster.Job]time.Duration{first: time.Hour, small: 90 * time.Minute} {
		if f, ok := scheduler.ForecastStart(w.Snapshot(), j, scheduler.Default()); !ok || f.P50.Sub(w.Clock) != want {
			t.Errorf("job %d: in %s, want %s", j.ID, f.P50.Sub(w.Clock), want)
		}
	}
	said := scheduler.Explain(w.Snapshot(), small, scheduler.Default())
	if got, want := saying(said, cluster.ReasonQueueOrder), "2nd in the queue of GPU 0 of n"; got != want {
		t.Errorf("the second is told %q, want %q", got, want)
	}
	said = scheduler.Explain(w.Snapshot(), first, scheduler.Default())
	if got, want := saying(said, cluster.ReasonResources), "1st in the queue of GPU 0 of n"; got != want {
		t.Errorf("the first is told %q, want %q", got, want)
	}
}

// TestWorstFirst: a job that fits on no card of one type, on none today of another and
// on one of a third is told so in that order.
func TestWorstFirst(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{schedtest.Node("a", 1, "C"), schedtest.Node("b", 1, "B"), schedtest.Node("c", 1, "T4"), schedtest.Node("d", 1, "A", schedtest.Drained)}
	w := schedtest.NewWorld(nodes)
	lie(t, w, 1, "b", 0, time.Hour)
	j := schedtest.Job(9, schedtest.Mem(20_000))
	w.Submit(j)
	said := scheduler.Explain(w.Snapshot(), j, scheduler.Default())
	var codes []cluster.ReasonCode
	for _, e := range said {
		codes = append(codes, e.Reason.Code)
	}
	if want := []cluster.ReasonCode{cluster.ReasonNeverFits, cluster.ReasonNodeDown, cluster.ReasonSharing, cluster.ReasonUnconfirmed}; !slices.Equal(codes, want) {
		t.Errorf("%v, want %v", codes, want)
	}
}

// TestKeptFromPlainJobs: a job without GPUs is told that cores are kept where those who
// wait for GPUs would take them beside idle cards, counted for each card, exactly when
// a pass leaves it waiting.
func TestKeptFromPlainJobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cores, mem       int64 // of the job without GPUs
		gpus             int   // of the one that waits for some
		theirs, theirMem int64
		waited           time.Duration
		lost, kept       bool
	}{
		// A node of 8 cores and 8 GiB with two idle cards: 4 of each beside one.
		{4, 4, 1, 2, 2, 0, false, false}, {5, 4, 1, 2, 2, 0, false, true}, {4, 5, 1, 2, 2, 0, false, true}, {7, 7, 1, 9, 1, 0, false, true}, {1, 1, 1, 9, 9, 0, false, true},
		{4, 4, 3, 6, 6, 0, false, false}, {5, 1, 3, 6, 6, 0, false, true}, {8, 8, 0, 9, 9, 0, false, false}, {5, 5, 1, 2, 2, 5 * time.Hour, false, false},
		// One of the cards is lost, and keeps nothing.
		{6, 6, 1, 2, 2, 0, true, false}, {7, 6, 1, 2, 2, 0, true, true},
	} {
		n := schedtest.Node("n", 2, "A", schedtest.Host(8000, 8192))
		if c.lost {
			n.GPUs[0].State = cluster.GPULost
		}
		w := schedtest.NewWorld([]*cluster.Node{n})
		j := schedtest.Job(9, schedtest.GPUs(0), schedtest.Cores(c.cores*1000), schedtest.HostMem(c.mem*1024), schedtest.Waited(c.waited))
		w.Submit(j)
		// It asks for a type that is not there, so that the cards stay idle.
		w.Submit(schedtest.Job(5, schedtest.GPUs(c.gpus), schedtest.Type(map[bool]string{true: "none", false: ""}[c.gpus > 0]), schedtest.Cores(cmp.Or(c.theirs, 1)*1000), schedtest.HostMem(c.theirMem*1024)))
		said := scheduler.Explain(w.Snapshot(), j, scheduler.Default())
		if got := saying(said, cluster.ReasonUnconfirmed) == ""; got != c.kept {
			t.Errorf("%+v: %+v", c, said)
		}
		starts := slices.ContainsFunc(scheduler.Schedule(w.Snapshot(), scheduler.Default()).Starts, func(st dispatch.Start) bool { return st.Job == 9 })
		if starts == c.kept {
			t.Errorf("%+v: a pass starts it: %t", c, starts)
		}
	}
}
