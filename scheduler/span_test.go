package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// onNodes makes a job one on several nodes.
func onNodes(n int) JobOption {
	return func(j *cluster.Job) { j.Spec.Nodes = n }
}

func farmOf(n, gpus int, gpuType string) []*cluster.Node {
	var out []*cluster.Node
	for i := range n {
		out = append(out, Node(cluster.NodeID(fmt.Sprintf("n%d", i)), gpus, gpuType, Host(16_000, 64<<10)))
	}
	return out
}

func nodesOf(st *dispatch.Start) []string {
	var out []string
	for _, b := range st.Berths() {
		out = append(out, fmt.Sprintf("%s:%d", b.Node, len(b.GPUs)))
	}
	return out
}

// TestSpanTakesNodesAlike: all nodes or none, of one type, those with the fewest
// empty cards that are enough, their ranks in the order of their ids.
func TestSpanTakesNodesAlike(t *testing.T) {
	t.Parallel()
	nodes := append(farmOf(3, 4, a100), Node("t0", 4, t4, Host(16_000, 64<<10)))
	w := NewWorld(nodes)
	w.Submit(Job(1, GPUs(2), Exclusive))
	w.Apply(ptr(scheduler.Schedule(w.Snapshot(), scheduler.Default())))
	w.Submit(Job(2, GPUs(2), Exclusive, onNodes(2)))
	w.Submit(Job(3, GPUs(4), Exclusive, onNodes(3)))
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if len(p.Starts) != 1 {
		t.Fatalf("starts %+v, unplaced %+v", p.Starts, p.Unplaced)
	}
	first := w.Jobs[1].Last().Berth.Node
	got := nodesOf(&p.Starts[0])
	if !slices.Contains(got, string(first)+":2") || !slices.IsSorted(got) || len(got) != 2 {
		t.Errorf("on %v, job 1 is on %s", got, first)
	}
	w.Apply(&p)
	if len(w.Rejected) > 0 {
		t.Errorf("rejected %v", w.Rejected)
	}
	if u := p.Unplaced; len(u) != 1 || u[0].Reason.Code != cluster.ReasonNodes || !strings.Contains(u[0].Reason.Detail, "needs 3 at once") {
		t.Errorf("unplaced %+v", u)
	}
}

func ptr[T any](v T) *T { return &v }

// TestSpanThatCanNeverBe is refused with the largest set that there is.
func TestSpanThatCanNeverBe(t *testing.T) {
	t.Parallel()
	nodes := append(farmOf(2, 4, a100), Node("t0", 4, t4, Host(16_000, 64<<10)), Node("t1", 1, t4, Host(16_000, 64<<10)))
	for _, tc := range []struct {
		job  *cluster.Job
		want string
	}{
		{Job(1, GPUs(4), onNodes(2)), ""},
		{Job(1, GPUs(4), onNodes(3)), "3 nodes with 4 GPUs of one type on each; the largest set is 2 nodes with 4 GPUs of " + a100},
		{Job(1, GPUs(1), onNodes(3)), "the largest set is 2 nodes"},
		{Job(1, GPUs(0), onNodes(4)), ""},
		{Job(1, GPUs(0), onNodes(5)), "the largest set that has what it needs on each is 4 nodes"},
	} {
		err := rules.NeverFits(nodes, tc.job, scheduler.Default())
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%d nodes × %d GPUs: %v", tc.job.Spec.Nodes, tc.job.Spec.GPUs, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Msg, tc.want)):
			t.Errorf("%d nodes × %d GPUs: %v, want %q", tc.job.Spec.Nodes, tc.job.Spec.GPUs, err, tc.want)
		}
	}
}

// TestSpanDoesNotStarve: small jobs come for ever, two for each place, and the
// job on all nodes starts all the same once it has waited for long enough.
func TestSpanDoesNotStarve(t *testing.T) {
	t.Parallel()
	w := NewWorld(farmOf(4, 2, a100))
	pol := scheduler.Default()
	pol.FIFOAge, pol.MaxAge = 10*time.Minute, time.Hour
	next := cluster.JobID(10)
	small := func() {
		for range 4 {
			w.Submit(Job(next, GPUs(1), Exclusive, Predict(a100, 1000, 500, time.Duration(200+next*37%400)*time.Second)))
			next++
		}
	}
	for range 6 {
		small()
	}
	w.Apply(ptr(scheduler.Schedule(w.Snapshot(), pol)))
	w.Submit(Job(1, GPUs(2), Exclusive, onNodes(4), Predict(a100, 1000, 500, 30*time.Minute)))
	for range 400 {
		freed := w.Advance(30 * time.Second)
		if !scheduler.SpanWaits(w.Snapshot().Waiting, w.Clock, pol) {
			w.Apply(ptr(scheduler.OnRelease(w, freed, pol)))
		}
		small()
		w.Apply(ptr(scheduler.Schedule(w.Snapshot(), pol)))
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		if w.Jobs[1].State == cluster.JobRunning {
			return
		}
	}
	t.Fatalf("it waits after %s: %s", w.Clock.Sub(w.Jobs[1].Submitted), w.Jobs[1].State)
}

// TestSpanPlansHold: whatever else runs and waits, what is planned for jobs on
// several nodes is right, is the same in whatever order things are listed, and
// who does not start is told why.
func TestSpanPlansHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := NewWorld(drawNodes(t))
		pol := scheduler.Default()
		for id := cluster.JobID(1); id <= cluster.JobID(rapid.IntRange(1, 25).Draw(t, "jobs")); id++ {
			j := drawJob(t, id)
			if rapid.IntRange(0, 2).Draw(t, "spans") == 0 {
				j.Spec.Nodes, j.Spec.Node, j.Spec.OrCPU, j.Spec.Deadline = rapid.IntRange(2, 4).Draw(t, "on"), "", false, 0
			}
			w.Submit(j)
			if rapid.IntRange(0, 3).Draw(t, "plan") > 0 {
				continue
			}
			snap := w.Snapshot()
			p := scheduler.Schedule(snap, pol)
			slices.Reverse(snap.Nodes)
			slices.Reverse(snap.Waiting)
			if d := cmp.Diff(p, scheduler.Schedule(snap, pol)); d != "" {
				t.Fatalf("listed in another order: %s", d)
			}
			w.Apply(&p)
			if err := w.Check(); err != nil || len(w.Rejected) > 0 {
				t.Fatalf("%v, rejected %+v", err, w.Rejected)
			}
			for _, u := range p.Unplaced {
				if u.Reason.Code == "" {
					t.Fatalf("job %d waits for no reason", u.Job)
				}
			}
			if rapid.Bool().Draw(t, "time goes on") {
				freed := w.Advance(time.Duration(rapid.IntRange(1, 3600).Draw(t, "seconds")) * time.Second)
				w.Apply(ptr(scheduler.OnRelease(w, freed, pol)))
			}
		}
	})
}

// TestSpanAvoidsWhoHeldItUp: nodes for which an earlier attempt was given up
// before its start come last, and other cards do where no set of these is
// without one; where there is nothing else they are taken all the same.
func TestSpanAvoidsWhoHeldItUp(t *testing.T) {
	t.Parallel()
	undone := func(first int, ready ...bool) cluster.Attempt {
		a := cluster.Attempt{No: 1, State: cluster.JobFailed, Berth: cluster.Berth{Node: "n0"}, Gang: &cluster.Gang{First: first, Rest: []cluster.Berth{{Node: "n1"}}}}
		for _, r := range ready {
			a.Gang.Parts = append(a.Gang.Parts, cluster.Part{Ready: r, State: cluster.JobCancelled})
		}
		return a
	}
	began := undone(1, true, true)
	began.Gang.Go = true
	t4s := []*cluster.Node{Node("t0", 2, t4, Host(16_000, 64<<10)), Node("t1", 2, t4, Host(16_000, 64<<10))}
	for _, tc := range []struct {
		name  string
		nodes []*cluster.Node
		was   cluster.Attempt
		gpus  int
		want  []string
	}{
		{"never undone", farmOf(3, 2, a100), began, 2, []string{"n0:2", "n1:2"}},
		{"the first was not ready", farmOf(3, 2, a100), undone(0, false, true), 2, []string{"n1:2", "n2:2"}},
		{"the second was not ready", farmOf(3, 2, a100), undone(0, true, false), 2, []string{"n0:2", "n2:2"}},
		{"the second failed first, the other had not said it was ready", farmOf(3, 2, a100), undone(2, false, false), 2, []string{"n0:2", "n2:2"}},
		{"neither was ready", farmOf(4, 2, a100), undone(0, false, false), 2, []string{"n2:2", "n3:2"}},
		{"without GPUs", farmOf(3, 0, a100), undone(0, false, true), 0, []string{"n1:0", "n2:0"}},
		{"nothing else", farmOf(2, 2, a100), undone(0, false, true), 2, []string{"n0:2", "n1:2"}},
		{"another type", slices.Concat(farmOf(2, 2, a100), t4s), undone(0, false, true), 2, []string{"t0:2", "t1:2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld(tc.nodes)
			j := Job(1, GPUs(tc.gpus), onNodes(2), Predict(a100, 1000, 500, 10*time.Minute), Predict(t4, 1000, 500, time.Hour))
			j.Attempts = []cluster.Attempt{tc.was}
			w.Submit(j)
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			if len(p.Starts) != 1 {
				t.Fatalf("starts %+v, unplaced %+v", p.Starts, p.Unplaced)
			}
			if d := cmp.Diff(tc.want, nodesOf(&p.Starts[0])); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestSpanOnTheNodesItNames: a job that names as many nodes as it needs gets
// these or waits; one that names fewer gets all of those among others.
func TestSpanOnTheNodesItNames(t *testing.T) {
	t.Parallel()
	named := func(list string) JobOption {
		return func(j *cluster.Job) {
			h, err := cluster.ParseHostList(list)
			if err != nil {
				t.Fatal(err)
			}
			j.Spec.Where = &cluster.Where{Nodes: h}
		}
	}
	for _, tc := range []struct {
		names string
		nodes int
		busy  []cluster.NodeID
		want  string // the nodes, or "" for none
	}{
		{"n1,n2", 2, nil, "[n1:2 n2:2]"},
		{"n2", 2, nil, "n2:2"},
		{"n1,n2", 3, nil, "n1:2 n2:2"},
		{"n1,n2", 2, []cluster.NodeID{"n2"}, ""},
		{"n1,n2", 3, []cluster.NodeID{"n1"}, ""},
		{"n1,n2,n3", 3, []cluster.NodeID{"n3"}, ""},
	} {
		t.Run(fmt.Sprint(tc.names, " of ", tc.nodes, " beside ", tc.busy), func(t *testing.T) {
			t.Parallel()
			w := NewWorld(farmOf(5, 2, a100))
			for i, n := range tc.busy {
				w.Submit(Job(cluster.JobID(i+1), GPUs(2), Exclusive, On(n)))
			}
			w.Apply(ptr(scheduler.Schedule(w.Snapshot(), scheduler.Default())))
			w.Submit(Job(9, GPUs(2), Exclusive, onNodes(tc.nodes), named(tc.names)))
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			if tc.want == "" {
				if len(p.Starts) > 0 {
					t.Fatalf("starts on %v", nodesOf(&p.Starts[0]))
				}
				return
			}
			if len(p.Starts) != 1 || len(nodesOf(&p.Starts[0])) != tc.nodes {
				t.Fatalf("starts %+v", p.Starts)
			}
			got := nodesOf(&p.Starts[0])
			for _, n := range strings.Fields(strings.Trim(tc.want, "[]")) {
				if !slices.Contains(got, n) {
					t.Errorf("starts on %v, without %s", got, n)
				}
			}
		})
	}
}
